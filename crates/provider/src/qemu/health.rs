//! What works on this machine, for the fleet and for people.

use super::{INSTALL, Inner, accel::Accel};
use crate::Check;
use hotdesk_api::fleet::Capabilities;

impl Inner {
    pub(super) fn capabilities(&self) -> Capabilities {
        let mut templates = self.context.images.names();
        templates.extend(self.config.disks.keys().cloned());
        Capabilities {
            reset: true,
            snapshot: true,
            live_fork: true,
            live_fork_reason: String::new(),
            archive: true,
            network: true,
            // A machine has no more than what it is made of.
            cpu_limit: true,
            memory_limit: true,
            disk_limit: true,
            templates,
        }
    }

    pub(super) async fn check(&self) -> Vec<Check> {
        let program = match self.program() {
            Ok(program) => program,
            Err(e) => {
                return vec![Check { what: "QEMU".into(), good: false, detail: e.to_string(), fix: Some(INSTALL.into()) }];
            }
        };
        let mut checks = vec![Check { what: "QEMU".into(), good: true, detail: program.display().to_string(), fix: None }];
        let found = self.accel().await;
        let (good, detail) = match &found {
            Ok(found) => (found.accel == Accel::Kvm, found.why.clone()),
            Err(e) => (false, e.to_string()),
        };
        let fix = (!good).then(|| "run on a machine with hardware virtualisation, as a user who may open /dev/kvm".to_owned());
        checks.push(Check { what: "speed".into(), good, detail, fix });
        let tool = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|at| at.join("qemu-img").is_file());
        checks.push(Check {
            what: "archives".into(),
            good: tool,
            detail: if tool { "qemu-img is there".into() } else { "qemu-img is missing, so desks can't be archived".into() },
            fix: (!tool).then(|| "apt-get install -y qemu-utils".into()),
        });
        for (name, path) in &self.config.disks {
            let opened = super::disks::open(path);
            checks.push(Check {
                what: format!("disk {name}"),
                good: opened.is_ok(),
                detail: opened.as_ref().map_or_else(ToString::to_string, |disk| disk.base.path.display().to_string()),
                fix: opened.is_err().then(|| format!("put the disk at {}, or change qemu.disks in hotdesk.toml", path.display())),
            });
        }
        checks
    }
}
