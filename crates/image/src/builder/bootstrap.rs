//! Runs mmdebstrap, follows its output, and leaves nothing running when the build is given up.

use super::finish::{WAITING, quote};
use super::progress::Progress;
use super::{Job, host};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

/// Lines of the log that an error is made of.
const LAST_LINES: usize = 12;
/// Lines kept to look for the reason in.
const KEPT_LINES: usize = 400;

/// Left out of every tree: desks are for programs; nobody reads manuals or other languages' texts in them.
pub(super) const LEFT_OUT: [&str; 5] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/info/*",
];

/// The packages stay in the tree until they are saved for the next build; the rest of the cleaning is ours.
pub(super) const SKIPPED: &str = "--skip=download/empty,essential/unlink,cleanup/apt,cleanup/reproducible,cleanup/run";

/// Settings of the host's apt that decide whether it reaches its packages.
const HOST_APT: [&str; 4] =
    ["Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::http::Proxy-Auto-Detect", "Acquire::Check-Valid-Until"];

/// Packages are fetched, so the network stays.
const NAMESPACES: [&str; 7] = ["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"];
/// Rights over the machine that no package's installation needs.
const FEWER: &str = "--bounding-set=-audit_control,-audit_read,-block_suspend,-bpf,-checkpoint_restore,-dac_read_search,-lease,\
                     -linux_immutable,-mac_admin,-mac_override,-net_admin,-net_raw,-perfmon,-sys_boot,-sys_module,-sys_pacct,\
                     -sys_ptrace,-sys_rawio,-sys_time,-sys_tty_config,-syslog,-wake_alarm";

/// Runs the command that follows as `$1 …`, its output on stderr, until it ends or our end of its stdin closes: then we are
/// gone or don't want it any more, and everything that it started ends with it. As root it is the first process of a
/// namespace, so that nothing escapes; otherwise it ends its process group.
const GUARD: &str = r#"
set -o pipefail
exec 3<&0
trap 'trap "" TERM; [ $$ = 1 ] || kill -TERM 0; exit 143' TERM
if [ -n "$HOTDESK_UNPACK" ]; then
  "$@" </dev/null 3<&- | tar -x -C "$HOTDESK_UNPACK" --no-same-owner --exclude='./dev/*' 3<&- &
else
  "$@" </dev/null >&2 3<&- &
fi
main=$!
# It must not hold our output open, whose end says that all is over.
{ cat <&3; kill -TERM $$; } >/dev/null 2>&1 &
watch=$!
wait "$main"; status=$?
kill "$watch" 2>/dev/null
exit $status
"#;

pub(super) async fn run(job: &Job<'_>, tree: &Path, finish: &str, stage: &(dyn Fn(&str) + Send + Sync)) -> Result<()> {
    let root = host::is_root();
    let failed = |what: &str, e: std::io::Error| Error::Failed(format!("{what}: {e}"));
    let mut command = if root && can_isolate().await {
        let mut command = Command::new("unshare");
        command.args(NAMESPACES).args(["--", "setpriv", FEWER, "--", "bash", "-c", GUARD, "guard"]);
        command
    } else {
        let mut command = Command::new("bash");
        command.args(["-c", GUARD, "guard"]).process_group(0);
        command
    };
    command.args(arguments(job, tree, finish, root)).env("HOTDESK_UNPACK", if root { Path::new("") } else { tree });
    if !root {
        std::fs::create_dir(tree).map_err(|e| failed(&tree.to_string_lossy(), e))?;
    }
    if !root {
        // The tree is made there before it is streamed to us, by a user who can't enter our directories.
        command.env("TMPDIR", "/var/tmp");
    }
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| failed("mmdebstrap can't be started", e))?;
    // Dropped with this future: that is the sign to end.
    let _lifeline = child.stdin.take();

    let log_path = job.work.join("log");
    let mut log = tokio::fs::File::create(&log_path).await.map_err(|e| failed("the build's log", e))?;
    let mut last = VecDeque::new();
    let mut progress = Progress::default();
    if let Some(output) = child.stderr.take() {
        let mut lines = BufReader::new(output).split(b'\n');
        while let Some(line) = lines.next_segment().await.map_err(|e| failed("mmdebstrap's output", e))? {
            let line = String::from_utf8_lossy(&line).into_owned();
            let _ = log.write_all(format!("{line}\n").as_bytes()).await;
            if let Some(text) = progress.line(&line) {
                stage(&text);
            }
            last.push_back(line);
            if last.len() > KEPT_LINES {
                last.pop_front();
            }
        }
    }
    let _ = log.flush().await;
    let status = child.wait().await.map_err(|e| failed("mmdebstrap", e))?;
    if status.success() { Ok(()) } else { Err(reason(&job.template.name, last.make_contiguous())) }
}

fn arguments(job: &Job<'_>, tree: &Path, finish: &str, root: bool) -> Vec<String> {
    let debs = job.debs.to_string_lossy();
    let mut arguments: Vec<String> = ["mmdebstrap", "--verbose", "--variant=minbase"].map(String::from).into();
    arguments.push(format!("--mode={}", if root { "root" } else { "auto" }));
    arguments.push(SKIPPED.into());
    for option in ["Acquire::Languages \"none\"", "Acquire::Retries \"3\"", "APT::Sandbox::User \"root\""] {
        arguments.push(format!("--aptopt={option}"));
    }
    arguments.extend(host_settings().into_iter().map(|option| format!("--aptopt={option}")));
    arguments.push("--dpkgopt=force-unsafe-io".into());
    arguments.extend(LEFT_OUT.map(|option| format!("--dpkgopt={option}")));
    let version = |name: &str| match job.prescribed.and_then(|lock| lock.version(name)) {
        Some(version) => format!("{name}={version}"),
        None => name.to_owned(),
    };
    arguments.extend(job.template.packages.iter().map(|name| format!("--include={}", version(name))));
    // A pattern that matches nothing is no error.
    arguments.extend(job.template.optional_packages.iter().map(|name| format!("--include=?exact-name({name})")));
    if let Some(lock) = job.prescribed {
        arguments.extend(lock.iter().map(|(name, version)| format!("--include={name}={version}")));
    }
    // As root packages get a second name instead of a copy. Otherwise mmdebstrap copies for us (`sync-…`), because what runs
    // inside can't read our directories.
    let (kept, inside) = (quote(&debs), "/var/cache/apt/archives");
    arguments.push(format!("--setup-hook=mkdir -p \"$1\"{inside}/partial"));
    if root {
        arguments.push(format!("--setup-hook=find {kept} -maxdepth 1 -name '*.deb' -exec cp -l -t \"$1\"{inside} {{}} +"));
        arguments.push(format!("--customize-hook=find \"$1\"{inside} -maxdepth 1 -name '*.deb' -exec cp -ln -t {kept} {{}} +"));
    } else {
        arguments.push(format!("--setup-hook=sync-in {kept} {inside}"));
        arguments.push(format!("--customize-hook=sync-out {inside} {kept}"));
    }
    arguments.push(format!("--customize-hook=mkdir -p \"$1\"{WAITING}"));
    arguments.push(format!("--customize-hook=sync-in {} {WAITING}", quote(&job.work.join("files").to_string_lossy())));
    arguments.push(format!("--customize-hook={finish}"));
    arguments.push(job.suite.into());
    arguments.push(if root { tree.to_string_lossy().into_owned() } else { "-".into() });
    let sources = job.work.join("sources");
    if std::fs::metadata(&sources).is_ok_and(|data| data.len() > 0) {
        arguments.push(sources.to_string_lossy().into_owned());
    }
    arguments
}

/// What the host's apt was told about reaching its packages.
fn host_settings() -> Vec<String> {
    let Ok(dump) = std::process::Command::new("apt-config").arg("dump").output() else { return Vec::new() };
    let dump = String::from_utf8_lossy(&dump.stdout);
    dump.lines()
        .filter(|line| HOST_APT.iter().any(|name| line.starts_with(&format!("{name} "))))
        .map(|l| l.trim_end_matches(';').to_owned())
        .collect()
}

/// Whether we may make namespaces: not so in many containers, even as root.
async fn can_isolate() -> bool {
    let mut probe = Command::new("unshare");
    probe.args(NAMESPACES).args(["--", "setpriv", FEWER, "--", "true"]);
    probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    probe.status().await.is_ok_and(|status| status.success())
}

/// Why it failed, from the end of its output.
fn reason(template: &str, lines: &[String]) -> Error {
    let any = |parts: &[&str]| lines.iter().rev().find(|line| parts.iter().any(|part| line.contains(part)));
    if any(&["No space left on device"]).is_some() {
        return Error::Full(format!("the disk ran full while template `{template}` was built"));
    }
    if let Some(what) = lines.iter().rev().find_map(|line| line.strip_prefix("E: check failed: ")) {
        return Error::Failed(format!("template `{template}`: a check of the built tree failed: {what}{}", tail(lines)));
    }
    if let Some(line) = any(&["Unable to locate package", "has no installation candidate", "was not found"]) {
        return Error::Invalid(format!("template `{template}`: {}", line.trim_start_matches("E: ")));
    }
    if any(&[
        "Could not resolve",
        "Temporary failure resolving",
        "Could not connect",
        "Unable to connect",
        "Connection timed out",
        "Failed to fetch",
    ])
    .is_some()
    {
        return Error::Failed(format!(
            "template `{template}` was not built, because the packages' mirror can't be reached; `apt-get update` on this machine must work first{}",
            tail(lines)
        ));
    }
    Error::Failed(format!("template `{template}` was not built; mmdebstrap ended with an error{}", tail(lines)))
}

fn tail(lines: &[String]) -> String {
    let mut text = String::from(". The end of its output:");
    for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
        text.push_str("\n    ");
        text.push_str(line);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(line: &str) -> Error {
        reason("t", &["noise".into(), line.into(), "E: mmdebstrap failed to run".into()])
    }

    #[test]
    fn failures_say_what_to_do() {
        assert!(matches!(why("tar: write: No space left on device"), Error::Full(_)));
        assert!(matches!(why("E: Unable to locate package gibtsnicht"), Error::Invalid(m) if m.contains("gibtsnicht")));
        assert!(why("W: Failed to fetch x  Temporary failure resolving 'x'").to_string().contains("apt-get update"));
        assert!(why("E: check failed: xvfb runs").to_string().contains("xvfb runs"));
        assert!(why("dpkg: boom").to_string().contains("dpkg: boom"));
    }
}
