//! What happens inside the tree after its packages are installed: user, files, settings, checks, cleaning. It is written
//! as a script that mmdebstrap runs, because only mmdebstrap can be root of the tree when we are not root. The template's files are
//! copied in by mmdebstrap too: that root of the tree can't read what is ours.

use super::Job;
use crate::template::Owner;
use crate::{DESK_SETTINGS, Error, Result};
use std::fmt::Write;
use std::path::Path;
use std::time::SystemTime;

/// The time of every file that the build itself made. Packages' files keep the time they have in the package.
const EPOCH: u64 = 1_767_225_600;

/// Where the template's files wait inside the tree.
pub(super) const WAITING: &str = "/var/tmp/hotdesk";

/// Common to all templates. `$1` is the tree; `name`, `uid`, `id`, `files` and times are set before.
pub(super) const BEGIN: &str = r#"
fail() { echo "E: $*" >&2; exit 1; }
tree=$1

# The user. Its password is locked; nobody logs in.
chroot "$tree" groupadd --gid "$uid" "$name"
chroot "$tree" useradd --uid "$uid" --gid "$uid" --create-home --shell /bin/bash --comment "" "$name"
for directory in Desktop Documents Downloads; do mkdir -p "$tree/home/$name/$directory"; done

# The host's names must not leak in, and two builds must not differ.
echo desk > "$tree/etc/hostname"
printf '127.0.0.1 localhost desk\n::1 localhost\n' > "$tree/etc/hosts"
: > "$tree/etc/resolv.conf"
rm -f "$tree/var/lib/dbus/machine-id"
echo "$id" > "$tree/etc/machine-id"
mkdir -p "$tree/var/lib/dbus"; ln -sf /etc/machine-id "$tree/var/lib/dbus/machine-id"

# Mount points that every provider wants.
mkdir -p "$tree/run/hotdesk" "$tree/usr/local/bin" "$tree/etc/hotdesk"
[ -e "$tree/usr/local/bin/hotdesk" ] || install -m 0755 /dev/null "$tree/usr/local/bin/hotdesk"

put() { # NUMBER MODE PATH
  case $tree$3 in *//*) fail "bad path $3" ;; esac
  mkdir -p "$(dirname "$tree$3")"
  install -m "$2" "$tree$files/$1" "$tree$3"
}
check() { # WHAT COMMAND
  # With a home that goes away, so that a check leaves nothing.
  mkdir -p "$tree/tmp/home" && chown "$uid:$uid" "$tree/tmp/home"
  chroot --userspec="$uid:$uid" "$tree" /usr/bin/env -i HOME=/tmp/home USER="$name" LANG=C.UTF-8 \
    PATH=/usr/local/bin:/usr/bin:/bin /bin/sh -c "cd && $2" </dev/null >&2 || fail "check failed: $1"
}
"#;

pub(super) const END: &str = r#"
# /tmp is left to mmdebstrap: it has the settings there that keep its own apt away from the host's lists.
# Whatever only this build knows: caches, logs, backups, the apt settings of the host.
rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/apt/* "$tree/tmp/home" "$tree"/var/tmp/* \
  "$tree"/etc/passwd- "$tree"/etc/group- "$tree"/etc/shadow- "$tree"/etc/gshadow- "$tree"/etc/subuid- "$tree"/etc/subgid- \
  "$tree"/var/cache/debconf/*-old "$tree"/var/lib/dpkg/*-old "$tree"/var/cache/ldconfig/aux-cache \
  "$tree"/etc/apt/apt.conf.d/99mmdebstrap "$tree"/root/.wget-hsts
mkdir -p "$tree/var/cache/apt/archives/partial" "$tree/var/lib/apt/lists/partial"
find "$tree/var/log" -type f -delete
find "$tree/run" -xdev -mindepth 1 -not -path "$tree/run/hotdesk" -not -path "$tree/run/lock" -delete
sed -i 's#//[^/@ ]*@#//#' "$tree"/etc/apt/sources.list "$tree"/etc/apt/sources.list.d/* 2>/dev/null || true
sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1:1:/' "$tree/etc/shadow"
find "$tree" -xdev \( -path "$tree/proc" -o -path "$tree/sys" -o -path "$tree/dev" \) -prune \
  -o -newermt "@$begun" -print0 | xargs -0 -r touch -h -d "@$epoch"
# The fonts' caches know their directories by their times, which were only settled above: an old cache costs every program a scan.
if [ -x "$tree/usr/bin/fc-cache" ]; then
  chroot "$tree" /usr/bin/fc-cache -sf >&2
  find "$tree/var/cache/fontconfig" "$tree/var/cache" -maxdepth 1 -newermt "@$begun" -print0 | xargs -0 -r touch -h -d "@$epoch"
fi
"#;

/// Returns the script, and writes the files that it puts into the tree.
pub(super) fn write(job: &Job<'_>) -> Result<String> {
    let fail = |path: &Path, e: std::io::Error| Error::Failed(format!("{}: {e}", path.display()));
    let files = job.work.join("files");
    std::fs::create_dir(&files).map_err(|e| fail(&files, e))?;
    let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();

    let template = job.template;
    let mut script = format!(
        "set -eu\nname={} uid={} id={} begun={begun} epoch={EPOCH} files={WAITING}\n{BEGIN}",
        template.user.name,
        template.user.uid,
        &job.inputs[..32],
    );
    let home = format!("{}/", template.user.home());
    let mut own = String::new();
    for (number, file) in template.files.iter().enumerate() {
        if let Some(to) = &file.link {
            let _ = writeln!(
                script,
                "mkdir -p \"$(dirname \"$tree\"{0})\" && ln -sfn {1} \"$tree\"{0}",
                quote(&file.path),
                quote(to)
            );
            continue;
        }
        let path = files.join(number.to_string());
        std::fs::write(&path, file.bytes()).map_err(|e| fail(&path, e))?;
        let _ = writeln!(script, "put {number} {:o} {}", file.mode_bits(), quote(&file.path));
        if file.owner == Owner::User && !file.path.starts_with(&home) {
            let _ = writeln!(own, "chown -h \"$uid:$uid\" \"$tree\"{}", quote(&file.path));
        }
    }
    let settings = template.settings().to_toml()?;
    let path = files.join("settings");
    std::fs::write(&path, settings).map_err(|e| fail(&path, e))?;
    let _ = writeln!(script, "put settings 644 {DESK_SETTINGS}");
    // Everything in the home directory belongs to the user, with the directories on the way.
    let _ = writeln!(script, "chown -R \"$uid:$uid\" \"$tree/home/$name\"\n{own}");
    for check in &template.checks {
        let _ = writeln!(script, "check {} {}", quote(&check.what), quote(&check.run));
    }
    script.push_str(END);
    Ok(script)
}

/// One word for the shell.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_for_the_shell_are_one_word() {
        for word in ["plain", "a b", "it's", "$(x)", "a'b'c\n", ""] {
            let out =
                std::process::Command::new("sh").args(["-c", &format!("printf %s {}", super::quote(word))]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
        }
    }
}
