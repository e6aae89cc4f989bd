//! How a desk is reached: at its Pod's address, or by a port-forward through the API server.
//!
//! A forwarded desk has a Unix socket here (`DATA/kubernetes/doors/DESK`); each connection to it becomes one to the Pod. The sockets are
//! made anew by every process, so a fleet that starts again finds its doors open.

use super::cluster::Cluster;
use super::{DoorKind, PORT};
use crate::{Address, Error, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::AbortHandle;

/// A Pod that can be reached answers at once, if only with a refusal.
const TRY: Duration = Duration::from_secs(2);

pub(super) struct Doors {
    directory: PathBuf,
    wish: DoorKind,
    /// Found out with the first desk.
    direct: OnceLock<bool>,
    open: Mutex<HashMap<String, AbortHandle>>,
}

impl Drop for Doors {
    fn drop(&mut self) {
        for (_, door) in self.open().drain() {
            door.abort();
        }
    }
}

impl Doors {
    pub(super) fn new(directory: PathBuf, wish: DoorKind) -> Self {
        let direct = match wish {
            DoorKind::Auto if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => OnceLock::from(true),
            DoorKind::Auto => OnceLock::new(),
            DoorKind::Direct => OnceLock::from(true),
            DoorKind::Forward => OnceLock::from(false),
        };
        Self { directory, wish, direct, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds out whether Pods can be reached from here, if that is not known yet.
    pub(super) async fn choose(&self, ip: Option<IpAddr>, cluster: &Arc<Cluster>, pod: &str) {
        let Some(ip) = ip.filter(|_| self.wish == DoorKind::Auto && self.direct.get().is_none()) else { return };
        let direct = match tokio::time::timeout(TRY, TcpStream::connect(SocketAddr::new(ip, PORT))).await {
            Ok(Ok(_)) => true,
            // Somebody is there and does not listen yet.
            Ok(Err(e)) => e.kind() == std::io::ErrorKind::ConnectionRefused,
            Err(_) => false,
        };
        if self.direct.set(direct).is_ok() && !direct {
            tracing::info!(
                pod,
                namespace = cluster.namespace,
                "pods can't be reached from here; desks are reached through the API server"
            );
        }
    }

    /// The address of a running desk. Without a first look at one it is taken to be direct.
    pub(super) fn address(&self, id: &str, ip: Option<IpAddr>, cluster: Option<&Arc<Cluster>>, pod: &str) -> Result<Address> {
        if self.direct.get().copied().unwrap_or(true) {
            let ip = ip.ok_or_else(|| Error::NotReady("its pod has no address".into()))?;
            return Ok(Address::Tcp { addr: SocketAddr::new(ip, PORT) });
        }
        let path = self.directory.join(id);
        let mut open = self.open();
        if !open.contains_key(id)
            && let Some(cluster) = cluster
        {
            let listener = listen(&path).map_err(|e| Error::Failed(format!("no door can be made at {}: {e}", path.display())))?;
            let task = tokio::spawn(serve(listener, Arc::clone(cluster), pod.to_owned()));
            open.insert(id.to_owned(), task.abort_handle());
        }
        Ok(Address::Unix { path })
    }

    pub(super) fn close(&self, id: &str) {
        if let Some(door) = self.open().remove(id) {
            door.abort();
            let _ = std::fs::remove_file(self.directory.join(id));
        }
    }
}

fn listen(path: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))?;
    }
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path)
}

async fn serve(listener: UnixListener, cluster: Arc<Cluster>, pod: String) {
    while let Ok((stream, _)) = listener.accept().await {
        let (api, pod) = (cluster.api::<Pod>(), pod.clone());
        tokio::spawn(async move {
            if let Err(reason) = forward(stream, &api, &pod).await {
                tracing::debug!(pod, reason, "a forwarded connection ended");
            }
        });
    }
}

async fn forward(mut stream: UnixStream, pods: &Api<Pod>, pod: &str) -> Result<(), String> {
    let mut forwarder = pods.portforward(pod, &[PORT]).await.map_err(|e| super::cluster::words(&e))?;
    let mut inside = forwarder.take_stream(PORT).ok_or("no stream")?;
    tokio::io::copy_bidirectional(&mut stream, &mut inside).await.map_err(|e| e.to_string())?;
    drop(inside);
    forwarder.join().await.map_err(|e| e.to_string())
}
