//! With a real API server and etcd, where `scripts/kubernetes build` has made one; and the files of `deploy/kubernetes`.
//!
//! There are no nodes: the tests do what scheduler, kubelet and controllers would, and a small server answers for the desks. Real
//! nodes and real desks are in `tests/kubernetes`.

mod deploy;
mod server;

use super::*;
use crate::{Address, VolumePlace};
use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use hotdesk_image::Library;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use server::Server;
use std::collections::BTreeMap;
use std::time::Duration;

fn provider(server: &Server, folder: &Path, fleet: &str, change: impl FnOnce(&mut Config)) -> Kubernetes {
    let context = Context {
        fleet: fleet.into(),
        data: folder.join(fleet),
        binary: "/nowhere".into(),
        images: Arc::new(Library::open(folder.join("images")).unwrap()),
    };
    let mut config = Config {
        kubeconfig: Some(server.gateway.clone()),
        namespace: Some(server::NAMESPACE.into()),
        door: DoorKind::Direct,
        schedule_s: 30,
        ..Config::default()
    };
    change(&mut config);
    Kubernetes::new(context, config).unwrap()
}

fn spec(id: &str) -> DeskSpec {
    DeskSpec {
        id: id.into(),
        template: "bare".into(),
        snapshot: None,
        resources: Resources { cpus: 1.0, memory_mib: 512, disk_mib: 512 },
        screen: Size { width: 1280, height: 800 },
        env: BTreeMap::new(),
        labels: BTreeMap::new(),
        network: true,
        vnc_password: None,
        secret: format!("token-of-{id}"),
        volumes: Vec::new(),
    }
}

fn step(name: &str) {
    eprintln!("step: {name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn desks_at_a_real_api_server() {
    let Some(mut server) = Server::start().await else {
        eprintln!("hotdesk-skip: there is no API server here; `scripts/kubernetes build` makes one (10 minutes of CPU, once)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    step("rights are those of deploy/kubernetes, and suffice");
    rights(&server, folder.path()).await;
    step("a desk is made once, however often it is asked for");
    life(&server, folder.path()).await;
    step("a pod that ends is told, with its reason, and replaced or not, by policy");
    losses(&server, folder.path()).await;
    step("homes in claims outlive pods");
    homes(&server, folder.path()).await;
    step("fleets do not see each other; the next orchestrator finds all desks");
    fleets(&server, folder.path()).await;
    step("what is refused is told apart from what failed");
    refusals(&server, folder.path()).await;
    step("an API server that is away loses nothing");
    away(&mut server, folder.path()).await;
}

async fn rights(server: &Server, folder: &Path) {
    let kubernetes = provider(server, folder, "rights00", |_| {});
    let checks = kubernetes.check().await;
    assert!(checks.iter().all(|check| check.good), "{checks:?}");
    // And no more than those: secrets can't be read back.
    let secrets = kubernetes.cluster().await.unwrap().api::<Secret>();
    assert!(matches!(secrets.list(&ListParams::default()).await, Err(kube::Error::Api(status)) if status.code == 403));
}

async fn life(server: &Server, folder: &Path) {
    let kubernetes = Arc::new(provider(server, folder, "fleet001", |_| {}));
    let nodes = server.run_pods("fleet001");
    let (progress, _) = Progress::new();
    let desk = spec("d-life00000001");
    let (first, second) = tokio::join!(kubernetes.create(&desk, &progress), kubernetes.create(&desk, &progress));
    let placed = first.unwrap();
    assert_eq!(placed, second.unwrap());
    assert!(matches!(placed.address, Address::Tcp { addr } if addr.port() == PORT));
    assert_eq!(kubernetes.start(&desk, &progress).await.unwrap(), placed, "it runs already");

    let pod = server.pod("fleet001", &desk.id).await.expect("the pod");
    let secret = server.admin::<Secret>().list(&ListParams::default().labels("hotdesk.desk=d-life00000001")).await.unwrap();
    assert_eq!(secret.items.len(), 1);
    assert_eq!(secret.items[0].owner_references()[0].uid, pod.uid().unwrap());
    let policies = server.admin::<NetworkPolicy>().list(&ListParams::default().labels("hotdesk.fleet=fleet001")).await.unwrap();
    let names: Vec<_> = policies.items.iter().map(|policy| policy.name_any()).collect();
    assert_eq!(names, ["hotdesk-fleet001-closed", "hotdesk-fleet001-egress"]);

    let found = kubernetes.list().await.unwrap();
    assert_eq!(found, [Found { id: desk.id.clone(), running: true, placed: Some(placed.clone()) }]);
    let again = kubernetes.reset(&desk, &progress).await.unwrap();
    assert_ne!(again.handle["uid"], placed.handle["uid"], "a reset makes a new pod");
    kubernetes.delete(&desk.id).await.unwrap();
    kubernetes.delete(&desk.id).await.unwrap();
    assert_eq!(kubernetes.list().await.unwrap(), []);
    assert!(server.pod("fleet001", &desk.id).await.is_none());
    nodes.abort();
}

async fn losses(server: &Server, folder: &Path) {
    let kubernetes = Arc::new(provider(server, folder, "fleet002", |_| {}));
    let strict = provider(server, folder, "fleet002", |config| config.on_node_loss = OnNodeLoss::Error);
    let nodes = server.run_pods("fleet002");
    let (progress, _) = Progress::new();
    let desk = spec("d-lost00000001");
    kubernetes.create(&desk, &progress).await.unwrap();
    strict.list().await.unwrap();

    // Evicted: the fleet is told at once.
    let news = tokio::spawn({
        let kubernetes = Arc::clone(&kubernetes);
        async move { kubernetes.changed().await }
    });
    server.end_pod("fleet002", &desk.id, "Evicted", "The node was low on resource: memory.").await;
    tokio::time::timeout(Duration::from_secs(20), news).await.expect("news of the eviction").unwrap();
    let gone = |found: Vec<Found>| found.iter().all(|found| !found.running);
    server::until("both see that it does not run", async || {
        gone(kubernetes.list().await.unwrap()) && gone(strict.list().await.unwrap())
    })
    .await;
    match strict.start(&desk, &progress).await {
        Err(Error::NotFound(reason)) => assert!(reason.contains("low on resource"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let placed = kubernetes.start(&desk, &progress).await.unwrap();

    // The node is lost: nobody confirms the end of its pods, and it is not waited for.
    server.lose_node("fleet002", &desk.id).await;
    server::until("the loss is seen", async || gone(kubernetes.list().await.unwrap())).await;
    let words = kubernetes.logs(&desk.id, 3).await.unwrap();
    assert!(words.contains("its node is gone"), "{words}");
    let elsewhere = kubernetes.start(&desk, &progress).await.unwrap();
    assert_ne!(placed.handle["uid"], elsewhere.handle["uid"]);
    kubernetes.delete(&desk.id).await.unwrap();
    nodes.abort();
}

async fn homes(server: &Server, folder: &Path) {
    let kubernetes = provider(server, folder, "fleet003", |config| config.storage_class = Some("fast".into()));
    let nodes = server.run_pods("fleet003");
    let (progress, _) = Progress::new();
    let volume = VolumePlace {
        volume: "v-shared".into(),
        name: "shared".into(),
        directory: folder.into(),
        at: "/shared".into(),
        read_only: false,
        subpath: None,
        source: None,
    };
    let desk = DeskSpec { volumes: vec![volume], ..spec("d-home00000001") };
    kubernetes.create(&desk, &progress).await.unwrap();
    kubernetes.stop(&desk.id).await.unwrap();
    kubernetes.stop(&desk.id).await.unwrap();
    assert_eq!(kubernetes.list().await.unwrap(), [Found { id: desk.id.clone(), running: false, placed: None }]);
    kubernetes.start(&desk, &progress).await.unwrap();
    kubernetes.delete(&desk.id).await.unwrap();
    let claims = server.admin::<PersistentVolumeClaim>();
    assert!(matches!(kubernetes.start(&desk, &progress).await, Err(Error::NotFound(_))), "its files are gone");
    server::until("its home is gone, and the volume is not", async || {
        let left = claims.list(&ListParams::default().labels("hotdesk.fleet=fleet003")).await.unwrap().items;
        left.iter().map(|claim| claim.name_any()).collect::<Vec<_>>() == ["hotdesk-fleet003-v-shared"]
    })
    .await;
    let again = kubernetes.create(&desk, &progress).await.unwrap();
    let reset = kubernetes.reset(&desk, &progress).await.unwrap();
    assert_ne!(again.handle["uid"], reset.handle["uid"], "with a new home");
    kubernetes.delete(&desk.id).await.unwrap();
    claims.delete("hotdesk-fleet003-v-shared", &DeleteParams::default()).await.unwrap();
    nodes.abort();
}

async fn fleets(server: &Server, folder: &Path) {
    let (one, two) = (provider(server, folder, "fleet004", |_| {}), provider(server, folder, "fleet005", |_| {}));
    let nodes = server.run_pods("fleet004");
    let (progress, _) = Progress::new();
    let desk = spec("d-mine00000001");
    let placed = one.create(&desk, &progress).await.unwrap();
    assert_eq!(two.list().await.unwrap(), []);
    drop(one);
    let next = provider(server, folder, "fleet004", |_| {});
    assert_eq!(next.list().await.unwrap(), [Found { id: desk.id.clone(), running: true, placed: Some(placed) }]);
    next.delete(&desk.id).await.unwrap();
    nodes.abort();
}

async fn refusals(server: &Server, folder: &Path) {
    let kubernetes = provider(server, folder, "fleet006", |config| config.schedule_s = 1);
    let (progress, _) = Progress::new();
    let desk = spec("d-refused00001");
    match kubernetes.create(&desk, &progress).await {
        Err(Error::Full(reason)) => assert!(reason.contains("node"), "{reason}"),
        other => panic!("without a scheduler there is no node: {other:?}"),
    }
    kubernetes.delete(&desk.id).await.unwrap();
    server.set_quota(0).await;
    // The API server learns of a quota a little later.
    server::until("the quota is used up", async || {
        let refused = kubernetes.create(&desk, &progress).await;
        kubernetes.delete(&desk.id).await.unwrap();
        matches!(refused, Err(Error::Full(reason)) if reason.contains("quota"))
    })
    .await;
    server.drop_quota().await;
    let stranger = provider(server, folder, "fleet006", |config| config.namespace = Some("default".into()));
    match stranger.create(&desk, &progress).await {
        Err(Error::Failed(reason) | Error::Unavailable { reason, .. }) => assert!(reason.contains("orbidden"), "{reason}"),
        other => panic!("there are no rights in that namespace: {other:?}"),
    }
}

async fn away(server: &mut Server, folder: &Path) {
    let kubernetes = provider(server, folder, "fleet007", |_| {});
    let nodes = server.run_pods("fleet007");
    let (progress, _) = Progress::new();
    let desk = spec("d-away00000001");
    let placed = kubernetes.create(&desk, &progress).await.unwrap();
    nodes.abort();
    server.stop_api();
    server::until("that it is away is noticed", async || matches!(kubernetes.list().await, Err(Error::Unavailable { .. }))).await;
    server.start_api().await;
    server::until("it is back, and so is the desk", async || {
        kubernetes.list().await.is_ok_and(|found| found.first().is_some_and(|found| found.placed == Some(placed.clone())))
    })
    .await;
    let nodes = server.run_pods("fleet007");
    kubernetes.delete(&desk.id).await.unwrap();
    nodes.abort();
}
