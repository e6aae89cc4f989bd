//! A private API server with its etcd, on loopback, without nodes; and somebody who plays them.

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, ResourceQuota};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

pub(super) const NAMESPACE: &str = "hotdesk";
/// On a machine with other things to do.
const UP: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(60);
/// Addresses of pods: loopback's, so that a server here can answer for them.
static NEXT: AtomicU32 = AtomicU32::new(0x7f21_0001);

pub(super) struct Server {
    folder: tempfile::TempDir,
    binary: PathBuf,
    etcd: Child,
    api: Option<Child>,
    port: u16,
    etcd_port: u16,
    client: Option<Client>,
    /// The kubeconfig of the account of `deploy/kubernetes`.
    pub(super) gateway: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in self.api.iter_mut().chain([&mut self.etcd]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn find_api_server() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home)?.join("hotdesk");
    let mut found: Vec<_> = std::fs::read_dir(cache)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("kube-apiserver")))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop()
}

fn free_port() -> u16 {
    StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Waits for something that must come.
pub(super) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !so().await {
        assert!(Instant::now() < end, "{what}: not within {} s", SOON.as_secs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

impl Server {
    /// None where no API server was built.
    pub(super) async fn start() -> Option<Self> {
        let binary = find_api_server()?;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (port, etcd_port, peer) = (free_port(), free_port(), free_port());
        let key = Command::new("openssl").args(["genrsa", "-out"]).arg(at("accounts.key")).arg("2048").output().unwrap();
        assert!(key.status.success(), "openssl makes a key");
        std::fs::write(at("tokens.csv"), "admin-token,admin,admin,system:masters\n").unwrap();
        kubeconfig(&at("admin.conf"), port, "admin-token");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let etcd = Command::new("etcd")
            .args(["--unsafe-no-fsync", "--listen-client-urls", &url(etcd_port), "--advertise-client-urls", &url(etcd_port)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("default={}", url(peer)), "--data-dir"])
            .arg(at("etcd"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(at("etcd.log")).unwrap())
            .spawn()
            .expect("etcd: apt-get install etcd-server");
        let gateway = at("gateway.conf");
        let mut server = Self { folder, binary, etcd, api: None, port, etcd_port, client: None, gateway };
        server.start_api().await;
        server.furnish().await;
        Some(server)
    }

    pub(super) async fn start_api(&mut self) {
        let at = |name: &str| self.folder.path().join(name);
        let api = Command::new(&self.binary)
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
            .args([
                "--bind-address=127.0.0.1",
                "--authorization-mode=RBAC",
                "--profiling=false",
                "--service-cluster-ip-range=10.96.0.0/16",
            ])
            .arg(format!("--secure-port={}", self.port))
            .arg(format!("--cert-dir={}", at("certificates").display()))
            .arg(format!("--token-auth-file={}", at("tokens.csv").display()))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", at("accounts.key").display()))
            .arg(format!("--service-account-signing-key-file={}", at("accounts.key").display()))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(at("api.log")).unwrap())
            .spawn()
            .unwrap();
        self.api = Some(api);
        let client = client(&at("admin.conf")).await;
        let end = Instant::now() + UP;
        let ready = || http::Request::get("/readyz").body(Vec::new()).unwrap();
        while client.request_text(ready()).await.is_err() {
            let log = std::fs::read_to_string(at("api.log")).unwrap_or_default();
            assert!(Instant::now() < end, "the API server did not come up: {}", log.lines().last().unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.client = Some(client);
    }

    pub(super) fn stop_api(&mut self) {
        if let Some(mut api) = self.api.take() {
            api.kill().unwrap();
            api.wait().unwrap();
        }
    }

    /// What `kubectl apply -k deploy/kubernetes` would make, without the gateway; and its account's token.
    async fn furnish(&self) {
        let client = self.client.clone().unwrap();
        for object in super::deploy::all() {
            let path = match object["kind"].as_str().unwrap() {
                "Namespace" => "/api/v1/namespaces".into(),
                "ServiceAccount" => format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
                "Role" => format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles"),
                "RoleBinding" => format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"),
                _ => continue,
            };
            self.post(&path, &object).await;
        }
        // No controller makes it here, and Pods need one.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        self.post(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account).await;
        let namespace = Api::<Namespace>::all(client).get(NAMESPACE).await.unwrap();
        assert_eq!(namespace.labels()["pod-security.kubernetes.io/enforce"], "restricted");
        let wish = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let token = self.post(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/hotdesk/token"), &wish).await;
        kubeconfig(&self.gateway, self.port, token["status"]["token"].as_str().unwrap());
    }

    async fn post(&self, path: &str, object: &serde_json::Value) -> serde_json::Value {
        let request = http::Request::post(path).header("content-type", "application/json").body(object.to_string().into_bytes());
        self.client.as_ref().unwrap().request(request.unwrap()).await.unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// Objects of our namespace, seen by somebody who may see everything.
    pub(super) fn admin<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone().unwrap(), NAMESPACE)
    }

    pub(super) async fn pod(&self, fleet: &str, id: &str) -> Option<Pod> {
        self.admin::<Pod>().get_opt(&format!("hotdesk-{fleet}-{id}")).await.unwrap()
    }

    /// Plays scheduler and kubelet for the Pods of a fleet, until it is aborted.
    pub(super) fn run_pods(&self, fleet: &str) -> tokio::task::AbortHandle {
        let (pods, claims, fleet) = (self.admin::<Pod>(), self.admin::<PersistentVolumeClaim>(), fleet.to_owned());
        tokio::spawn(async move {
            loop {
                let wanted = ListParams::default().labels(&format!("hotdesk.fleet={fleet}"));
                for pod in pods.list(&wanted).await.map(|list| list.items).unwrap_or_default() {
                    play(&pods, pod).await;
                }
                for claim in claims.list(&wanted).await.map(|list| list.items).unwrap_or_default() {
                    if claim.metadata.deletion_timestamp.is_some() {
                        // What protects claims in use is a controller's to lift.
                        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                        let _ = claims.patch(&claim.name_any(), &PatchParams::default(), &free).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .abort_handle()
    }

    pub(super) async fn end_pod(&self, fleet: &str, id: &str, reason: &str, message: &str) {
        let status = json!({"status": {"phase": "Failed", "reason": reason, "message": message}});
        let name = format!("hotdesk-{fleet}-{id}");
        self.admin::<Pod>().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// What the controllers do to a Pod whose node is silent.
    pub(super) async fn lose_node(&self, fleet: &str, id: &str) {
        let name = format!("hotdesk-{fleet}-{id}");
        let pods = self.admin::<Pod>();
        let conditions = json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "its node is gone",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let status = json!({"status": {"conditions": conditions}, "metadata": {"annotations": {"hotdesk.test/lost": "true"}}});
        pods.patch(
            &name,
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"annotations": {"hotdesk.test/lost": "true"}}})),
        )
        .await
        .unwrap();
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
        pods.delete(&name, &DeleteParams::default().grace_period(300)).await.unwrap();
    }

    pub(super) async fn set_quota(&self, pods: u32) {
        let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": pods.to_string()}}});
        let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
        let api = self.admin::<ResourceQuota>();
        api.create(&PostParams::default(), &quota).await.unwrap();
        // No controller counts here; without a count nothing is refused.
        let counted = json!({"status": {"hard": {"pods": pods.to_string()}, "used": {"pods": "0"}}});
        api.patch_status("few", &PatchParams::default(), &Patch::Merge(counted)).await.unwrap();
    }

    pub(super) async fn drop_quota(&self) {
        self.admin::<ResourceQuota>().delete("few", &DeleteParams::default()).await.unwrap();
    }
}

/// One Pod's kubelet.
async fn play(pods: &Api<Pod>, pod: Pod) {
    let name = pod.name_any();
    if pod.annotations().contains_key("hotdesk.test/lost") {
        return;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
        return;
    }
    if pod.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Pending") {
        return;
    }
    // A Pod that is on no node is removed at once by whoever deletes it.
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}});
    let _: Result<Value, _> = pods.create_subresource("binding", &name, &PostParams::default(), &binding).await;
    let ip = IpAddr::V4(Ipv4Addr::from_bits(NEXT.fetch_add(1, Ordering::Relaxed)));
    tokio::spawn(answer(TcpListener::bind(SocketAddr::new(ip, super::PORT)).await.unwrap()));
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
    let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
}

/// A desk that is ready, and nothing else.
async fn answer(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut buffer = [0; 1024];
        let _ = stream.read(&mut buffer).await;
        let body = r#"{"ready":true,"stage":"ready"}"#;
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await;
    }
}

fn kubeconfig(path: &Path, port: u16, token: &str) {
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    std::fs::write(path, text.to_string()).unwrap();
}

async fn client(path: &Path) -> Client {
    let file = Kubeconfig::read_from(path).unwrap();
    Client::try_from(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap()).unwrap()
}
