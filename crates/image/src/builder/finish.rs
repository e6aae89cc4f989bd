//! What happens inside the tree after its packages are installed: user, files, settings, checks, cleaning. It is written
//! as a script that mmdebstrap runs, because only mmdebstrap can be root of the tree when we are not root. The template's files are
//! copied in by mmdebstrap too: that root of the tree can't read what is ours.

use super::Job;
use crate::template::Owner;
use crate::{DESK_SETTINGS, Error, Result};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::fmt::Write;
use std::path::Path;
use std::time::SystemTime;

/// The time of every file that the build itself made. Packages' files keep the time they have in the package.
const EPOCH: u64 = 1_767_225_600;

/// Where the template's files wait inside the tree.
pub(super) const WAITING: &str = "/var/tmp/hotdesk";

/// Programs of the tree run as its root, without the rights to leave it: neither to change their root again, nor by devices or mounts.
/// Who has no right to give rights up, as root of an imitated tree, has none to leave. This decides nothing about what a template
/// becomes, so it is no part of the recipe.
const FEWER_RIGHTS: &str = r#"
fewer=--bounding-set=-sys_admin,-sys_chroot,-mknod,-sys_ptrace,-sys_module,-sys_rawio,-dac_read_search,-net_admin,-net_raw,-sys_boot,-sys_time
if chroot "$1" /usr/bin/setpriv "$fewer" -- true 2>/dev/null; then
  chroot() { # TREE COMMAND…; with an option it is for the tree's user, who has no rights
    case $1 in -*) command chroot "$@"; return ;; esac
    root=$1; shift
    command chroot "$root" /usr/bin/setpriv "$fewer" -- "$@"
  }
fi
"#;

/// Common to all templates. `$1` is the tree; `name`, `uid`, `id`, `files` and times are set before.
pub(super) const BEGIN: &str = r#"
fail() { echo "E: $*" >&2; exit 1; }
tree=$1

# The user. Its password is locked, so nobody logs in, unless the template gives one.
chroot "$tree" groupadd --gid "$uid" "$name"
chroot "$tree" useradd --uid "$uid" --gid "$uid" --create-home --shell /bin/bash --comment "" "$name"
for directory in Desktop Documents Downloads; do mkdir -p "$tree/home/$name/$directory"; done
password() { # WORD; always the same hash of the same word
  hash=$(chroot "$tree" perl -e 'print crypt($ARGV[0], q($6$hotdesk$))' "$1")
  chroot "$tree" usermod --password "$hash" "$name"
}
become_root() {
  echo "$name ALL=(ALL:ALL) ALL" > "$tree/etc/sudoers.d/hotdesk"
  chmod 0440 "$tree/etc/sudoers.d/hotdesk"
}
python() { # the packages that wait
  chroot "$tree" /usr/bin/python3 -m pip install --quiet --no-index --no-deps --no-build-isolation --no-compile --no-cache-dir \
    --break-system-packages --root-user-action=ignore "$@" </dev/null >&2 || fail "Python packages can't be installed"
}
run() { # COMMAND, as root of the tree
  chroot "$tree" /usr/bin/env -i HOME=/root USER=root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive DESK_USER="$name" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /bin/sh -euc "$1" </dev/null >&2 || fail "step failed: $1"
}

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
    std::fs::create_dir_all(&files).map_err(|e| fail(&files, e))?;
    let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();

    let template = job.template;
    let mut script = format!(
        "set -eu\nname={} uid={} id={} begun={begun} epoch={EPOCH} files={WAITING}\n{FEWER_RIGHTS}{BEGIN}",
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
    if !template.open_with.is_empty() {
        let path = files.join("open_with");
        let list: String = template.open_with.iter().map(|(kind, entry)| format!("{kind}={entry}\n")).collect();
        std::fs::write(&path, format!("[Default Applications]\n{list}")).map_err(|e| fail(&path, e))?;
        let _ = writeln!(script, "put open_with 644 /etc/xdg/mimeapps.list");
    }
    let user = &template.user;
    if let Some(password) = &user.password {
        let _ = writeln!(script, "password {}", quote(password));
    }
    if user.sudo {
        let _ = writeln!(script, "become_root");
    }
    if !job.python.is_empty() {
        let list: Vec<String> = job.python.iter().map(|name| quote(&format!("{WAITING}/python/{name}"))).collect();
        let _ = writeln!(script, "python {}", list.join(" "));
    }
    let settings = template.settings().to_toml()?;
    let path = files.join("settings");
    std::fs::write(&path, settings).map_err(|e| fail(&path, e))?;
    let _ = writeln!(script, "put settings 644 {DESK_SETTINGS}");
    for command in &template.run {
        let _ = writeln!(script, "run {}", quote(command));
    }
    // Everything in the home directory belongs to the user, with the directories on the way.
    let _ = writeln!(script, "chown -R \"$uid:$uid\" \"$tree/home/$name\"\n{own}");
    for check in &template.checks {
        let _ = writeln!(script, "check {} {}", quote(&check.what), quote(&check.run));
    }
    script.push_str(END);
    Ok(script)
}

/// Where times are still those of the build: mmdebstrap cleans up after the script, and keeps the nodes of `/dev` to itself until
/// its end.
const UNSETTLED: [&str; 7] = ["", "dev", "proc", "sys", "tmp", "usr/sbin", "etc/apt/apt.conf.d"];

/// Settles them, so that two builds are equal. One that can't be is no reason to fail.
pub(super) fn settle(tree: &Path) {
    let nodes = std::fs::read_dir(tree.join("dev")).into_iter().flatten().flatten().map(|entry| entry.path());
    let time = Timespec { tv_sec: EPOCH as i64, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    // The nodes first: they are in a directory that is settled after them.
    for path in nodes.chain(UNSETTLED.iter().map(|place| tree.join(place))) {
        if let Err(e) = rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW) {
            tracing::debug!(path = %path.display(), error = %e, "a time stays as it is");
        }
    }
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
