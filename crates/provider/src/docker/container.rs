//! One desk's container: made, filled with its settings, started, found, measured, removed.

use super::engine::{ORDINARY, STARTING, gone_is_good, gone_is_none};
use super::{Docker, LABEL_DESK, LABEL_FLEET, LABEL_IMAGE, image, tree};
use crate::{Address, DeskSpec, Door, Error, Placed, Progress, Result, Usage};
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerSummary, EndpointSettings, HostConfig, HostConfigLogConfig, Mount,
    MountType, PortBinding, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptionsBuilder, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
    StartContainerOptions, StatsOptionsBuilder, UploadToContainerOptionsBuilder,
};
use futures_util::StreamExt;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Where the desk's server listens, inside.
pub(super) const PORT: u16 = 5000;
/// The desk's own settings: token, environment, passwords.
pub(super) const SETTINGS: &str = "etc/hotdesk/own.toml";
/// Seconds between the request to end and the end. A desk needs a fraction of one.
pub(super) const STOP_S: i32 = 5;
/// Processes and threads of a desk: meant to be far above what programs need and far below what harms the machine.
const MOST_PROCESSES: i64 = 2048;
/// A container's log is on the host's disk, outside of every quota.
const LOG_SIZE: &str = "1m";
const LOG_FILES: &str = "2";
/// A desk was ready after 1.3 s (median) on a machine with a load of 15; one that takes longer than this has a problem
/// that waiting won't solve.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How often a container whose desk is not ready yet is asked whether it still runs.
const ALIVE: Duration = Duration::from_millis(250);
/// Pause before a look whether a container that is being removed is gone.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of the log in the reason why a desk did not come up.
const LAST_LINES: usize = 8;

/// What root of a desk may do where its template has one: own files, be other users, end programs, take low ports. Neither raw packets
/// nor devices.
const ROOT_CAPABILITIES: [&str; 10] =
    ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "SETFCAP"];

fn mount(volume: &crate::VolumePlace) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(volume.directory.display().to_string()),
        target: Some(volume.at.clone()),
        read_only: Some(volume.read_only),
        ..Mount::default()
    }
}

/// Gives a volume to the desk's user at its first use. Part of a volume can't be mounted: the Engine takes a path and follows
/// whatever links desks have put there.
fn own(volume: &crate::VolumePlace, uid: u32) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    if volume.subpath.is_some() {
        return Err(Error::Unsupported {
            provider: "docker",
            what: format!("a part of the volume {}", volume.name),
            reason: "the Docker Engine would follow links in it; mount the whole volume".into(),
        });
    }
    let failed = |e: std::io::Error| Error::Failed(format!("the volume {} can't be opened: {e}", volume.name));
    if std::fs::symlink_metadata(&volume.directory).map_err(failed)?.uid() == 0 {
        std::os::unix::fs::chown(&volume.directory, Some(uid), Some(uid)).map_err(failed)?;
    }
    Ok(())
}

/// A container that exists.
pub(super) struct Existing {
    pub(super) running: bool,
    pub(super) inspected: ContainerInspectResponse,
}

impl Docker {
    pub(super) async fn look(&self, id: &str) -> Result<Option<Existing>> {
        let name = self.container_name(id);
        let options = InspectContainerOptionsBuilder::new().build();
        let answer = self.engine.ask(ORDINARY, async |docker| docker.inspect_container(&name, Some(options)).await).await;
        Ok(gone_is_none(answer)?.map(|inspected| Existing {
            running: inspected.state.as_ref().and_then(|state| state.running).unwrap_or(false),
            inspected,
        }))
    }

    /// All of this fleet's, desks and helpers.
    pub(super) async fn containers(&self) -> Result<Vec<ContainerSummary>> {
        let filters = HashMap::from([("label".to_owned(), vec![format!("{LABEL_FLEET}={}", self.context.fleet)])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        self.engine.ask(ORDINARY, async |docker| docker.list_containers(Some(options)).await).await
    }

    pub(super) async fn make(&self, spec: &DeskSpec, image: &image::Image) -> Result<()> {
        let network = self.ensure_network(spec.network).await?;
        let info = self.info_once().await?;
        let cpus = f64::from(spec.resources.cpus).min(info.ncpu.unwrap_or(1) as f64);
        let root = self.root_of(spec).await?;
        let first = super::health::first_uid(info);
        for volume in &spec.volumes {
            own(volume, first + image.uid)?;
        }
        let mut body = self.body(spec, image, &network, cpus, root);
        if super::health::can_limit_disk(info)
            && let Some(host) = &mut body.host_config
        {
            host.storage_opt = Some(HashMap::from([("size".into(), format!("{}M", spec.resources.disk_mib))]));
        }
        match self.make_once(spec, body.clone()).await {
            // The file system could have limits, but they are not switched on.
            Err(Error::Failed(message)) if message.contains("storage-opt") => {
                tracing::warn!("desks have no disk limit: {message}");
                if let Some(host) = &mut body.host_config {
                    host.storage_opt = None;
                }
                self.make_once(spec, body).await
            }
            other => other,
        }
    }

    async fn make_once(&self, spec: &DeskSpec, body: ContainerCreateBody) -> Result<()> {
        let name = self.container_name(&spec.id);
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        match self.engine.ask(STARTING, async |docker| docker.create_container(Some(options), body).await).await {
            // Made by a call that was cut off.
            Err(Error::Failed(message)) if message.contains("already in use") => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether the desk's programs may become root; an error where that root would be the machine's.
    pub(super) async fn root_of(&self, spec: &DeskSpec) -> Result<bool> {
        if !self.context.images.template(&spec.template).is_ok_and(|template| template.root) {
            return Ok(false);
        }
        // Asked anew: Engines are restarted with other settings.
        if super::health::has_user_namespaces(&self.info().await?) || self.config.shared_root {
            return Ok(true);
        }
        Err(Error::Unsupported {
            provider: super::NAME,
            what: format!("the template `{}`", spec.template),
            reason: "its programs may become root, and without `userns-remap` the Engine's root is the machine's; turn that on, use the \
                     provider local, or set `[docker] shared_root = true`"
                .into(),
        })
    }

    fn body(&self, spec: &DeskSpec, image: &image::Image, network: &str, cpus: f64, root: bool) -> ContainerCreateBody {
        let memory = (spec.resources.memory_mib << 20) as i64;
        let uid = image.uid;
        // The desk's own labels stay with the fleet: clients write what they like into them, and `docker inspect` shows it.
        let mut labels = HashMap::from([
            (LABEL_FLEET.to_owned(), self.context.fleet.clone()),
            (LABEL_DESK.to_owned(), spec.id.clone()),
            ("hotdesk.template".to_owned(), spec.template.clone()),
        ]);
        labels.extend(image.exact.clone().map(|exact| (LABEL_IMAGE.to_owned(), exact)));
        let published = HashMap::from([(
            format!("{PORT}/tcp"),
            Some(vec![PortBinding { host_ip: Some("127.0.0.1".into()), host_port: Some(String::new()) }]),
        )]);
        // Memory that is used as a disk counts as memory, so half of it leaves room for programs.
        let half = memory / 2;
        let host = HostConfig {
            network_mode: Some(network.into()),
            port_bindings: (!self.is_near(spec.network)).then_some(published),
            memory: Some(memory),
            memory_swap: Some(memory),
            nano_cpus: Some((cpus * 1e9) as i64),
            pids_limit: Some(MOST_PROCESSES),
            shm_size: Some(half),
            tmpfs: Some(HashMap::from([
                ("/tmp".into(), format!("rw,exec,nosuid,nodev,size={half},mode=1777")),
                (format!("/run/user/{uid}"), format!("rw,nosuid,nodev,size={half},mode=0700,uid={uid},gid={uid}")),
            ])),
            cap_drop: Some(vec!["ALL".into()]),
            cap_add: root.then(|| ROOT_CAPABILITIES.map(String::from).into()),
            security_opt: (!root).then(|| vec!["no-new-privileges".into()]),
            restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
            ulimits: Some(vec![ResourcesUlimits { name: Some("core".into()), soft: Some(0), hard: Some(0) }]),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".into()),
                config: Some(HashMap::from([("max-size".into(), LOG_SIZE.into()), ("max-file".into(), LOG_FILES.into())])),
            }),
            mounts: (!spec.volumes.is_empty()).then(|| spec.volumes.iter().map(mount).collect()),
            ..HostConfig::default()
        };
        ContainerCreateBody {
            image: Some(image.name.clone()),
            hostname: Some("desk".into()),
            user: Some(format!("{uid}:{uid}")),
            working_dir: Some(image.home.clone()),
            entrypoint: Some(vec!["/usr/local/bin/hotdesk".into()]),
            cmd: Some(["desk", "--config", &format!("/{SETTINGS}")].map(String::from).into()),
            env: Some(vec![format!("HOME={}", image.home), format!("XDG_RUNTIME_DIR=/run/user/{uid}")]),
            exposed_ports: Some(vec![format!("{PORT}/tcp")]),
            stop_timeout: Some(STOP_S.into()),
            labels: Some(labels),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        }
    }

    /// Fills in the settings, starts the container and waits until the desk is ready.
    pub(super) async fn run(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        progress.stage("starting the container");
        self.root_of(spec).await?;
        self.put_settings(spec).await?;
        self.ensure_network(spec.network).await?;
        match self.start_once(&spec.id).await {
            // The bridge went away with what was the last desk for a moment.
            Err(Error::NotFound(message)) if message.contains("network") => {
                self.ensure_network(spec.network).await?;
                self.start_once(&spec.id).await?;
            }
            other => other?,
        }
        self.ready(spec, progress).await
    }

    async fn start_once(&self, id: &str) -> Result<()> {
        let name = self.container_name(id);
        self.engine.ask(STARTING, async |docker| docker.start_container(&name, None::<StartContainerOptions>).await).await
    }

    /// Waits until a container that was started is a desk that is ready.
    pub(super) async fn ready(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let Some(existing) = self.look(&spec.id).await? else {
            return Err(Error::NotReady("its container was removed while it started".into()));
        };
        let Some(placed) = self.placed_of(&existing.inspected) else {
            return Err(Error::NotReady(self.last_words(&spec.id).await));
        };
        let door = Door { address: placed.address.clone(), secret: spec.secret.clone() };
        let progress = progress.clone();
        tokio::select! {
            ready = door.wait_ready(READY_LIMIT, move |stage| progress.stage(stage), async || None) => ready.map(|()| placed),
            end = self.end_of(&spec.id) => Err(end),
        }
    }

    /// Returns when the container does not run any more, with the reason.
    async fn end_of(&self, id: &str) -> Error {
        loop {
            tokio::time::sleep(ALIVE).await;
            match self.look(id).await {
                Ok(Some(existing)) if existing.running => {}
                Ok(_) => return Error::NotReady(self.last_words(id).await),
                Err(e) => return e,
            }
        }
    }

    /// Why a container is not running.
    async fn last_words(&self, id: &str) -> String {
        let state = self.look(id).await.ok().flatten().and_then(|existing| existing.inspected.state).unwrap_or_default();
        let mut text = match (state.oom_killed, state.exit_code) {
            (Some(true), _) => "its container ran out of memory".to_owned(),
            (_, Some(code)) => format!("its container ended with status {code}"),
            _ => "its container is gone".to_owned(),
        };
        if let Some(error) = state.error.filter(|error| !error.is_empty()) {
            text = format!("{text}: {error}");
        }
        let logs = crate::Provider::logs(self, id, LAST_LINES).await.unwrap_or_default();
        if !logs.trim().is_empty() {
            text = format!("{text}; it said: {}", logs.trim());
        }
        text
    }

    /// Puts the desk's settings into its container, and our binary where the image has none.
    async fn put_settings(&self, spec: &DeskSpec) -> Result<()> {
        let template = self.context.images.template(&spec.template).map_err(image::of_library)?;
        let uid = template.user.uid;
        let mut settings = template.settings();
        settings.listen = vec![format!("0.0.0.0:{PORT}")];
        settings.token = Some(spec.secret.clone());
        settings.vnc_password = spec.vnc_password.clone();
        settings.size = Some(format!("{}x{}", spec.screen.width, spec.screen.height));
        settings.env.extend(spec.env.clone());
        let text = settings.to_toml().map_err(image::of_library)?;
        self.upload(&spec.id, tree::small(SETTINGS, text.into_bytes(), 0o400, uid)).await?;
        if template.image.is_some() {
            self.upload(&spec.id, tree::binary(&self.context.binary)).await?;
        }
        Ok(())
    }

    /// Empties the settings, so that what is saved of the container holds no secret. The next start fills them in again.
    pub(super) async fn blank_settings(&self, id: &str) -> Result<()> {
        self.upload(id, tree::small(SETTINGS, Vec::new(), 0o400, 0)).await
    }

    pub(super) async fn upload(&self, id: &str, body: tree::Body) -> Result<()> {
        self.upload_to(&self.container_name(id), body).await
    }

    pub(super) async fn upload_to(&self, container: &str, body: tree::Body) -> Result<()> {
        let options = UploadToContainerOptionsBuilder::new().path("/").build();
        self.engine.ask(STARTING, async |docker| docker.upload_to_container(container, Some(options), body.0).await).await
    }

    /// Removes a desk's container, with the images that only it used.
    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        let image = self.look(id).await?.and_then(|existing| existing.inspected.image);
        self.remove_container(&self.container_name(id)).await?;
        self.remove_leftover_images(id, image.as_deref()).await
    }

    pub(super) async fn remove_container(&self, name: &str) -> Result<()> {
        let options = RemoveContainerOptionsBuilder::new().v(true).force(true).build();
        let removed = self.engine.ask(STARTING, async |docker| docker.remove_container(name, Some(options)).await).await;
        match removed {
            Err(Error::Failed(message)) if message.contains("already in progress") => self.wait_gone(name).await,
            other => gone_is_good(other),
        }
    }

    /// Somebody else's removal is under way.
    async fn wait_gone(&self, name: &str) -> Result<()> {
        let end = tokio::time::Instant::now() + STARTING;
        loop {
            let options = InspectContainerOptionsBuilder::new().build();
            let there = self.engine.ask(ORDINARY, async |docker| docker.inspect_container(name, Some(options)).await).await;
            if gone_is_none(there)?.is_none() {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                return Err(Error::Failed(format!("the Engine does not get rid of container {name}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) async fn usage_of(&self, id: &str) -> Result<Usage> {
        let name = self.container_name(id);
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let stats = self
            .engine
            .ask(ORDINARY, async |docker| docker.stats(&name, Some(options)).next().await.transpose())
            .await?
            .unwrap_or_default();
        let size = InspectContainerOptionsBuilder::new().size(true).build();
        let inspected = self.engine.ask(ORDINARY, async |docker| docker.inspect_container(&name, Some(size)).await).await?;
        let memory = stats.memory_stats.unwrap_or_default();
        let detail = memory.stats.unwrap_or_default();
        // Files that could be dropped at any time are not the desk's need: named differently by the two kinds of cgroups.
        let cache = detail.get("inactive_file").or_else(|| detail.get("total_inactive_file")).copied().unwrap_or(0);
        Ok(Usage {
            cpu_s: stats.cpu_stats.and_then(|cpu| cpu.cpu_usage?.total_usage).unwrap_or(0) as f64 / 1e9,
            memory_bytes: memory.usage.unwrap_or(0).saturating_sub(cache),
            disk_bytes: inspected.size_rw.unwrap_or(0).max(0) as u64,
            processes: stats.pids_stats.and_then(|pids| pids.current).unwrap_or(0) as u32,
        })
    }

    /// Where a running container's desk is.
    fn placed_of(&self, inspected: &ContainerInspectResponse) -> Option<Placed> {
        let settings = inspected.network_settings.as_ref()?;
        let published = settings.ports.as_ref().and_then(|ports| {
            let binding = ports.get(&format!("{PORT}/tcp"))?.as_ref()?.first()?;
            binding.host_port.as_ref()?.parse().ok()
        });
        self.place(inspected.id.as_deref()?, published, settings.networks.as_ref()?)
    }

    pub(super) fn placed_of_summary(&self, container: &ContainerSummary) -> Option<Placed> {
        let published = container.ports.iter().flatten().find(|port| port.private_port == PORT).and_then(|port| port.public_port);
        self.place(container.id.as_deref()?, published, container.network_settings.as_ref()?.networks.as_ref()?)
    }

    /// At its own address where its bridge is in this network namespace. The proxies of published ports end with the Engine, and one
    /// that was killed comes back with more of them than there are containers.
    fn place(&self, container: &str, published: Option<u16>, networks: &HashMap<String, EndpointSettings>) -> Option<Placed> {
        let own = networks.values().find_map(|network| network.ip_address.as_ref()?.parse::<IpAddr>().ok());
        let near = [true, false].into_iter().any(|out| networks.contains_key(&self.network_name(out)) && self.is_near(out));
        let addr = match (own, published) {
            (_, Some(port)) if !near => SocketAddr::from(([127, 0, 0, 1], port)),
            (own, _) => SocketAddr::new(own?, PORT),
        };
        Some(Placed { address: Address::Tcp { addr }, handle: serde_json::json!({ "container": container }) })
    }
}
