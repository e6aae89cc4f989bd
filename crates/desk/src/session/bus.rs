//! The D-Bus session: a `dbus-daemon` with settings of our own, so that it is the same for root and
//! for users, with and without systemd.

use super::child::{READY_FD, Spec};
use super::supervisor::Service;
use crate::place::Place;
use std::path::PathBuf;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

pub(crate) struct Bus {
    program: PathBuf,
    config: PathBuf,
    socket: PathBuf,
}

impl Bus {
    /// `None` where it is not installed.
    pub(crate) fn new(place: &Place) -> Option<Self> {
        let program = place.find_program("dbus-daemon")?;
        Some(Self { program, config: place.runtime_dir.join("hotdesk-bus.conf"), socket: place.runtime_dir.join("bus") })
    }

    /// Everything may talk to everything, as on every session bus; services of the system are found
    /// and started by the daemon itself.
    fn settings(&self) -> String {
        let socket = self.socket.to_string_lossy().replace('&', "&amp;").replace('<', "&lt;");
        format!(
            r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <keep_umask/>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <standard_session_servicedirs/>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
  <limit name="max_incoming_bytes">1000000000</limit>
  <limit name="max_outgoing_bytes">1000000000</limit>
  <limit name="max_message_size">1000000000</limit>
  <limit name="service_start_timeout">30000</limit>
  <limit name="auth_timeout">240000</limit>
  <limit name="max_completed_connections">100000</limit>
  <limit name="max_incomplete_connections">10000</limit>
  <limit name="max_connections_per_user">100000</limit>
  <limit name="max_pending_service_starts">10000</limit>
  <limit name="max_names_per_connection">50000</limit>
  <limit name="max_match_rules_per_connection">50000</limit>
  <limit name="max_replies_per_connection">50000</limit>
</busconfig>
"#
        )
    }
}

impl Service for Bus {
    fn spec(&mut self) -> Spec {
        if let Err(e) = std::fs::write(&self.config, self.settings()) {
            tracing::warn!(path = %self.config.display(), error = %e, "the settings of the bus can't be written");
        }
        // What a killed daemon left behind.
        let _ = std::fs::remove_file(&self.socket);
        let mut spec = Spec::new([self.program.as_os_str()]);
        spec.words.push("--config-file".into());
        spec.words.push(self.config.clone().into());
        spec.words.extend(["--nofork", "--nopidfile", "--nosyslog", "--print-address", READY_FD].map(Into::into));
        spec
    }

    async fn ready(&mut self, pipe: Option<pipe::Receiver>) -> Result<Option<String>, String> {
        let mut pipe = pipe.ok_or("its readiness can't be watched")?;
        let mut text = Vec::new();
        while !text.ends_with(b"\n") {
            match pipe.read_buf(&mut text).await {
                Ok(0) => return Err("it did not start".into()),
                Ok(_) => {}
                Err(e) => return Err(format!("its readiness can't be read: {e}")),
            }
        }
        Ok(None)
    }

    fn gone(&mut self, _: u32) {
        let _ = std::fs::remove_file(&self.socket);
    }
}
