//! Who computes: the processor itself (KVM), or QEMU in its place (TCG).
//!
//! That `/dev/kvm` is there says little: nested and para-virtual kinds start a guest and then hang, and a guest that hangs looks like one
//! that is slow. So KVM is used only after a guest of 512 bytes (`probe.s`) has done with it what every kernel does first (long mode,
//! paging, timer interrupts), printed a line and ended. The result holds until the machine is booted again.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// With `as --64 probe.s -o probe.o && ld -Ttext 0x7c00 --oformat binary probe.o -o probe.bin`.
const PROBE: &[u8] = include_bytes!("probe.bin");
const WORDS: &[u8] = b"hotdesk: it runs";
/// It takes 0.3 s with KVM and 0.7 s without.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// All that is heard of it.
const LARGEST_OUTPUT: u64 = 16 << 10;
/// Code that is translated once and kept, in MiB; QEMU's own default is 1024 per machine.
const TRANSLATED_MIB: u32 = 256;
const DEVICE: &str = "/dev/kvm";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accel {
    Kvm,
    #[default]
    Tcg,
}

/// What is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// KVM if it works.
    #[default]
    Auto,
    Kvm,
    Tcg,
}

/// What was found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub accel: Accel,
    /// In a sentence.
    pub why: String,
    /// The time of the boot in which it was found out.
    boot: String,
    program: PathBuf,
}

impl Accel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// How QEMU is told, with the processor that the guest sees: a KVM that runs one kind may refuse another.
    pub(super) fn words(self) -> [String; 4] {
        let (accel, processor) = match self {
            Self::Kvm => ("kvm".to_owned(), "host"),
            Self::Tcg => (format!("tcg,thread=multi,tb-size={TRANSLATED_MIB}"), "max,la57=off"),
        };
        ["-accel".into(), accel, "-cpu".into(), processor.into()]
    }
}

/// Decides; `cache` keeps what was found out.
pub async fn choose(choice: Choice, program: &Path, cache: &Path) -> Result<Found> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let found = |accel, why: String| Found { accel, why, boot: boot.clone(), program: program.to_owned() };
    if choice == Choice::Tcg {
        return Ok(found(Accel::Tcg, "KVM is not wanted; the guest is emulated, 10 to 30 times slower than with KVM".into()));
    }
    let known = std::fs::read(cache).ok().and_then(|text| serde_json::from_slice::<Found>(&text).ok());
    let known = known.filter(|known| known.boot == boot && known.program == program);
    let found = match known {
        Some(known) => known,
        None => {
            let found = match probe(program).await {
                Ok(()) => found(Accel::Kvm, "KVM works: a test guest ran on it".into()),
                Err(why) => found(Accel::Tcg, format!("{why}; the guest is emulated, 10 to 30 times slower than with KVM")),
            };
            if let Ok(text) = serde_json::to_vec(&found) {
                let _ = crate::local::directory::write_bytes(cache, &text, 0o600);
            }
            found
        }
    };
    match (choice, found.accel) {
        (Choice::Kvm, Accel::Tcg) => {
            Err(Error::Unsupported { provider: super::NAME, what: "a machine with KVM".into(), reason: found.why })
        }
        _ => Ok(found),
    }
}

/// Runs the test guest on KVM.
async fn probe(program: &Path) -> std::result::Result<(), String> {
    if let Err(e) = std::fs::File::options().read(true).write(true).open(DEVICE) {
        return Err(match e.kind() {
            std::io::ErrorKind::NotFound => "this machine has no KVM".into(),
            std::io::ErrorKind::PermissionDenied => format!("{DEVICE} may not be opened by this user"),
            _ => format!("{DEVICE} can't be opened: {e}"),
        });
    }
    run(program, &Accel::Kvm.words(), PROBE_LIMIT).await.map_err(|why| format!("KVM is there, but {why}"))
}

async fn run(program: &Path, accel: &[String], limit: Duration) -> std::result::Result<(), String> {
    let mut name = std::env::temp_dir();
    name.push(format!("hotdesk-probe-{:016x}", rand::random::<u64>()));
    crate::local::directory::write_bytes(&name, PROBE, 0o600).map_err(|e| format!("{}: {e}", name.display()))?;
    let said = async {
        let words = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "16", "-serial", "stdio"];
        let mut child = tokio::process::Command::new(program)
            .args(words)
            .args(accel)
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
            .arg("-drive")
            .arg(format!("file={},format=raw,if=floppy,readonly=on", name.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| format!("{} can't be started: {e}", program.display()))?;
        let mut said = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(LARGEST_OUTPUT).read_to_end(&mut said).await.map_err(|e| e.to_string())?;
        }
        let _ = child.wait().await;
        Ok(said)
    };
    let said = tokio::time::timeout(limit, said).await;
    let _ = std::fs::remove_file(&name);
    match said {
        Err(_) => Err(format!("a test guest hung on it for {} s", limit.as_secs())),
        Ok(Err(why)) => Err(why),
        Ok(Ok(said)) if said.windows(WORDS.len()).any(|part| part == WORDS) => Ok(()),
        Ok(Ok(_)) => Err("a test guest ended on it before it had said anything".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_test_guest_runs_where_a_machine_works() {
        let program = crate::qemu::find_program().expect("qemu-system-x86 is installed");
        run(&program, &Accel::Tcg.words(), Duration::from_secs(60)).await.unwrap();
        let none = ["-accel", "no-such"].map(String::from);
        assert!(run(&program, &none, Duration::from_secs(60)).await.is_err());
    }

    #[tokio::test]
    async fn what_was_found_out_is_remembered_for_this_boot() {
        let folder = tempfile::tempdir().unwrap();
        let (program, cache) = (PathBuf::from("/bin/false"), folder.path().join("accel.json"));
        let first = choose(Choice::Auto, &program, &cache).await.unwrap();
        assert_eq!(first.accel, Accel::Tcg, "a QEMU that ends at once proves nothing");
        let mut other: Found = serde_json::from_slice(&std::fs::read(&cache).unwrap()).unwrap();
        other.why = "remembered".into();
        std::fs::write(&cache, serde_json::to_vec(&other).unwrap()).unwrap();
        assert_eq!(choose(Choice::Auto, &program, &cache).await.unwrap().why, "remembered");
        assert!(choose(Choice::Kvm, &program, &cache).await.is_err());
        other.boot = "another".into();
        std::fs::write(&cache, serde_json::to_vec(&other).unwrap()).unwrap();
        assert_ne!(choose(Choice::Auto, &program, &cache).await.unwrap().why, "remembered");
    }
}
