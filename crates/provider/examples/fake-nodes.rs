//! Nodes that only say they run what they are given: the API server, the scheduler and the controllers are real, and think that
//! thousands of Pods run. For the scale run (`make bench-scale`).
//!
//! ```text
//!   fake-nodes KUBECONFIG NODES [PODS-PER-NODE]
//! ```
//!
//! Each node has a `Node` and a `Lease` that is renewed. A Pod that is put on it is `Running` at once, with an address of its own in
//! 127.64.0.0/10; a Pod that is deleted is gone at once. One small server answers at port 5000 of all these addresses as a desk does:
//! `/health` and `/v1/activity`. Lines on stdin: `kill NODE`, `revive NODE`. On stdout: `ready`, once all nodes are.

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A node is heard of so often; the controllers of the test cluster wait for 8 s.
const RENEW: Duration = Duration::from_secs(3);
/// Requests to the API server at a time: a real cluster has one kubelet per node.
const AT_ONCE: usize = 48;
/// The first address of Pods.
const FIRST: u32 = 0x7f40_0001;

type Fallible<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

struct World {
    client: Client,
    turns: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    dead: HashSet<String>,
    /// The node and the address of each Pod, by its uid.
    pods: HashMap<String, (String, IpAddr)>,
    /// The node of each address.
    addresses: HashMap<IpAddr, String>,
    given: u32,
}

#[tokio::main]
async fn main() -> Fallible {
    let mut words = std::env::args().skip(1);
    let (Some(path), Some(nodes)) = (words.next(), words.next()) else {
        return Err("fake-nodes KUBECONFIG NODES [PODS-PER-NODE]".into());
    };
    let nodes: u32 = nodes.parse()?;
    let most: u32 = words.next().map_or(Ok(250), |word| word.parse())?;
    let config = kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let world = Arc::new(World { client, turns: Semaphore::new(AT_ONCE), state: Mutex::default() });
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 5000)).await?;
    tokio::spawn(serve(listener, Arc::clone(&world)));
    for number in 0..nodes {
        let name = format!("fake-{number:03}");
        register(&world.client, &name, most).await?;
        tokio::spawn(renew(Arc::clone(&world), name));
    }
    let following = tokio::spawn(follow(Arc::clone(&world)));
    tokio::io::stdout().write_all(b"ready\n").await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.split_once(' ') {
            Some(("kill", node)) => drop(world.state().dead.insert(node.into())),
            Some(("revive", node)) => drop(world.state().dead.remove(node)),
            _ => {}
        }
    }
    following.abort();
    Ok(())
}

impl World {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_dead(&self, node: &str) -> bool {
        self.state().dead.contains(node)
    }
}

async fn register(client: &Client, name: &str, pods: u32) -> Fallible {
    let api: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "hotdesk.test/fake": "true"}},
    }))?;
    api.create(&PostParams::default(), &node).await?;
    let room = json!({"cpu": "256", "memory": "1Ti", "ephemeral-storage": "10Ti", "pods": pods.to_string()});
    let status = json!({"status": {
        "capacity": room,
        "allocatable": room,
        "addresses": [{"type": "Hostname", "address": name}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "says that it is",
            "lastHeartbeatTime": now(), "lastTransitionTime": now()}],
    }});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

fn now() -> String {
    k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

async fn renew(world: Arc<World>, node: String) {
    let api: Api<Lease> = Api::namespaced(world.client.clone(), "kube-node-lease");
    let params = PatchParams::apply("fake-nodes").force();
    loop {
        if !world.is_dead(&node) {
            let time = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": time},
            });
            if let Err(e) = api.patch(&node, &params, &Patch::Apply(lease)).await {
                tracing::warn!("{node}: {e}");
            }
        }
        tokio::time::sleep(RENEW).await;
    }
}

/// Does what kubelets do, as far as the API server can tell.
async fn follow(world: Arc<World>) {
    let pods: Api<Pod> = Api::all(world.client.clone());
    let wanted = watcher::Config::default().fields("spec.nodeName!=");
    let mut events = std::pin::pin!(watch(pods, wanted).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                tokio::spawn(take(Arc::clone(&world), pod));
            }
            Ok(Event::Delete(pod)) => {
                let mut state = world.state();
                if let Some((_, address)) = state.pods.remove(&pod.uid().unwrap_or_default()) {
                    state.addresses.remove(&address);
                }
            }
            Ok(_) => {}
            Err(e) => tracing::warn!("{e}"),
        }
    }
}

async fn take(world: Arc<World>, pod: Pod) {
    let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
    if world.is_dead(&node) {
        return;
    }
    let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
    let api: Api<Pod> = Api::namespaced(world.client.clone(), &pod.namespace().unwrap_or_default());
    let Ok(_turn) = world.turns.acquire().await else { return };
    let done = if pod.metadata.deletion_timestamp.is_some() {
        api.delete(&name, &DeleteParams::default().grace_period(0)).await.map(drop)
    } else {
        let Some(address) = world.state().give(&node, &uid) else { return };
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(running(&pod, address))).await.map(drop)
    };
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(e) => tracing::warn!("{name}: {e}"),
        Ok(()) => {}
    }
}

impl State {
    /// An address for a Pod that has none yet.
    fn give(&mut self, node: &str, uid: &str) -> Option<IpAddr> {
        if self.pods.contains_key(uid) {
            return None;
        }
        let address = IpAddr::V4(Ipv4Addr::from_bits(FIRST + self.given));
        self.given += 1;
        self.pods.insert(uid.into(), (node.into(), address));
        self.addresses.insert(address, node.into());
        Some(address)
    }
}

fn running(pod: &Pod, address: IpAddr) -> serde_json::Value {
    let conditions: Vec<_> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now()}))
        .into();
    let containers: Vec<_> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            json!({"name": container.name, "image": container.image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": now()}}})
        })
        .collect();
    json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": now(),
        "conditions": conditions, "containerStatuses": containers}})
}

async fn serve(listener: TcpListener, world: Arc<World>) {
    while let Ok((stream, _)) = listener.accept().await {
        let world = Arc::clone(&world);
        tokio::spawn(async move { answer(stream, &world).await });
    }
}

/// Answers as a desk does, unless the node of the address is dead.
async fn answer(mut stream: TcpStream, world: &World) -> Option<()> {
    let here = stream.local_addr().ok()?.ip();
    let mut text = Vec::new();
    loop {
        let node = world.state().addresses.get(&here).cloned()?;
        if world.is_dead(&node) {
            return None;
        }
        while !text.windows(4).any(|end| end == b"\r\n\r\n") {
            if stream.read_buf(&mut text).await.ok()? == 0 {
                return None;
            }
        }
        let path = String::from_utf8_lossy(&text).split(' ').nth(1).unwrap_or_default().to_owned();
        text.clear();
        let (status, body) = match path.as_str() {
            "/health" => ("200 OK", r#"{"ready":true,"stage":"ready"}"#),
            "/v1/activity" => ("200 OK", r#"{"screen_changed":0.0,"viewers":0,"commands":0,"recording":false}"#),
            _ => ("404 Not Found", "{}"),
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.ok()?;
    }
}
