//! Against a real registry process (`docker-registry`), and one that was made up where the real one can't be made to misbehave.

use super::super::{Blob, spec};
use super::*;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// `me` with the password `pass-word`, as htpasswd writes it.
const PASSWORDS: &str = "me:$2b$04$Jl1C10qTMV1Uz/F2yeRFuOl.CSMT3Pd1RtANx1iTlToYwnz0mL20m\n";

#[test]
fn references() {
    let good = |text: &str| text.parse::<Reference>().unwrap();
    assert_eq!(good("127.0.0.1:5000/a/b-c:1.2").to_string(), "127.0.0.1:5000/a/b-c:1.2");
    assert_eq!(good("localhost/a").tag, "latest");
    assert!(good("localhost:1/a").is_loopback() && good("127.1.2.3:5/a").is_loopback() && good("[::1]:5/a").is_loopback());
    assert!(!good("registry.example/a").is_loopback());
    for bad in [
        "base",
        "a/b",
        "x.example/",
        "x.example/A",
        "x.example/a:-",
        "x.example/a//b",
        "x.example/a@sha256:0",
        "h:x/a",
        "u@h.x/a",
    ] {
        let error = bad.parse::<Reference>().unwrap_err();
        assert!(error.to_string().contains("HOST/NAME:TAG"), "{bad}: {error}");
    }
}

#[tokio::test]
async fn an_answer_without_an_end_is_not_waited_for() {
    use axum::{Router, body::Body, http::StatusCode, response::IntoResponse};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endless = || {
        let piece = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b' '; 64 << 10]));
        Body::from_stream(futures_util::stream::repeat_with(piece))
    };
    let answer = move |request: axum::extract::Request| async move {
        match request.uri().path() {
            "/v2/" => {
                let challenge = format!("Bearer realm=\"http://127.0.0.1:{port}/token\"");
                (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response()
            }
            _ => endless().into_response(),
        }
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
    let to: Reference = format!("127.0.0.1:{port}/r:1").parse().unwrap();
    let error = session::Session::open(&to, &Push::default()).await.err().unwrap();
    assert!(error.to_string().contains("sends us to"), "{error}");
}

/// A registry process with its files in a directory. It ends with its owner.
struct Registry {
    directory: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Registry {
    fn start(auth: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let data = directory.path().join("data");
        let mut config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n\
             http: {{addr: '127.0.0.1:{port}', secret: the-same-after-a-restart}}\n",
            data.display()
        );
        if auth {
            std::fs::write(directory.path().join("passwords"), PASSWORDS).unwrap();
            let passwords = directory.path().join("passwords");
            config.push_str(&format!("auth: {{htpasswd: {{realm: tests, path: {}}}}}\n", passwords.display()));
        }
        std::fs::write(directory.path().join("config.yml"), config).unwrap();
        let child = Self::spawn(directory.path(), port);
        Self { directory, port, child }
    }

    fn spawn(directory: &Path, port: u16) -> Child {
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(directory.join("config.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("log")).unwrap())
            .spawn()
            .expect("docker-registry is missing; as root: apt-get install docker-registry");
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {}", std::fs::read_to_string(directory.join("log")).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn image(&self, name: &str) -> Reference {
        format!("127.0.0.1:{}/{name}", self.port).parse().unwrap()
    }

    /// What it has stored, by what the files really hold.
    fn has(&self, blob: &Blob) -> bool {
        let path: PathBuf = self.directory.path().join("data/docker/registry/v2/blobs/sha256").join(&blob.hex()[..2]);
        std::fs::read(path.join(blob.hex()).join("data")).is_ok_and(|bytes| spec::digest_of(&bytes) == blob.digest)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An image of layers that hold nothing of sense.
fn image(layers: &[usize]) -> Image {
    let mut state = layers.len() as u64 + 1;
    let mut noise = |size: usize| {
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.extend_from_slice(&(state >> 16).to_le_bytes());
        }
        bytes.truncate(size);
        bytes
    };
    let layers: Vec<Blob> = layers.iter().map(|size| Blob::of_bytes(noise(*size), spec::LAYER_TAR)).collect();
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|layer| &layer.digest).collect::<Vec<_>>()},
    });
    let config = Blob::of_bytes(config.to_string().into_bytes(), spec::CONFIG);
    let manifest = spec::Manifest {
        schema_version: 2,
        media_type: spec::MANIFEST.into(),
        config: spec::Descriptor::of(&config),
        layers: layers.iter().map(spec::Descriptor::of).collect(),
        annotations: Default::default(),
    };
    let manifest = Blob::of_bytes(serde_json::to_vec(&manifest).unwrap(), spec::MANIFEST);
    Image { manifest, config, layers, rooms: Vec::new() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_sends_what_is_missing_and_nothing_else() {
    let registry = Registry::start(false);
    let image = image(&[3 << 20, 18 << 20, 100]);
    let how = Push::default();
    let first = image.push(&registry.image("a/one:1"), &how, |_| {}).await.unwrap();
    let all: u64 = image.layers.iter().chain([&image.config]).map(|blob| blob.size).sum();
    assert_eq!(first, Pushed { digest: image.digest().into(), sent_bytes: all, present: 0, mounted: 0, resumed: 0 });
    assert!(image.blobs().all(|blob| registry.has(blob)));
    let again = image.push(&registry.image("a/one:2"), &how, |_| {}).await.unwrap();
    assert_eq!((again.sent_bytes, again.present), (0, 4));
    let from = Push { mount_from: vec!["a/one".into()], ..how.clone() };
    let mounted = image.push(&registry.image("b/two"), &from, |_| {}).await.unwrap();
    assert_eq!((mounted.sent_bytes, mounted.mounted), (0, 4));
    let other = image.push(&registry.image("c/three"), &how, |_| {}).await.unwrap();
    assert_eq!((other.sent_bytes, other.present, other.mounted), (all, 0, 0));
}

/// Killed and started again on the same files. Between two pieces it knows how far it was; in the middle of one this registry drops the upload, and
/// the layer goes up again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_dies_in_the_middle_gets_the_rest() {
    let image = image(&[70 << 20]);
    for (when, resumed) in [(Death::Answer("Range: 0-33554431"), 1), (Death::Bytes(40 << 20), 0)] {
        let registry = Arc::new(Mutex::new(Registry::start(false)));
        let port = relay(registry.clone(), when);
        let to: Reference = format!("127.0.0.1:{port}/big:1").parse().unwrap();
        let waits = Mutex::new(0);
        let stage = |text: &str| *waits.lock().unwrap() += usize::from(text.starts_with("waiting for the registry"));
        let pushed = image.push(&to, &Push::default(), stage).await.unwrap();
        assert!(*waits.lock().unwrap() > 0, "it was not interrupted: {pushed:?}");
        assert_eq!(pushed.resumed, resumed, "{pushed:?}");
        assert!(resumed == 0 || pushed.sent_bytes < 71 << 20, "nothing is sent twice: {pushed:?}");
        assert!(image.blobs().all(|blob| registry.lock().unwrap().has(blob)));
    }
}

/// When a registry is killed, once.
#[derive(Clone, Copy)]
enum Death {
    /// So many bytes went to it.
    Bytes(u64),
    /// It has just said this.
    Answer(&'static str),
}

/// Stands before a registry, kills it and starts it again.
fn relay(registry: Arc<Mutex<Registry>>, when: Death) -> u16 {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // None: it is over.
    let passed = Arc::new(Mutex::new(Some(0)));
    let kill = |registry: &Mutex<Registry>| {
        let mut registry = registry.lock().unwrap();
        registry.kill();
        registry.child = Registry::spawn(registry.directory.path(), registry.port);
    };
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", registry.lock().unwrap().port)) else { continue };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (count_of, there) = (passed.clone(), registry.clone());
            let up = move || {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(count @ 1..) = from.read(&mut buffer) {
                    let mut passed = count_of.lock().unwrap();
                    if to.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                    if let Some(bytes) = &mut *passed {
                        *bytes += count as u64;
                        if matches!(when, Death::Bytes(most) if *bytes >= most) {
                            *passed = None;
                            kill(&there);
                        }
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            };
            std::thread::spawn(up);
            let (count_of, there) = (passed.clone(), registry.clone());
            let down = move || {
                let (mut from, mut to) = (server, client);
                let (mut buffer, mut killed) = (vec![0; 64 << 10], false);
                while let Ok(count @ 1..) = from.read(&mut buffer) {
                    // Nothing goes up meanwhile.
                    let mut passed = count_of.lock().unwrap();
                    let _ = to.write_all(&buffer[..count]);
                    let said = String::from_utf8_lossy(&buffer[..count]);
                    if passed.is_some() && matches!(when, Death::Answer(text) if said.contains(text)) {
                        (*passed, killed) = (None, true);
                        kill(&there);
                    }
                }
                // Who was just answered learns it with the next piece, as behind a balancer.
                if !killed {
                    let _ = to.shutdown(Shutdown::Both);
                }
            };
            std::thread::spawn(down);
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_is_told_what_to_do() {
    let registry = Registry::start(true);
    let image = image(&[1000]);
    let as_me = |secret: &str| Push {
        credentials: Some(Credentials::Password { name: "me".into(), secret: secret.into() }),
        ..Push::default()
    };
    let to = registry.image("mine:1");
    let error = image.push(&to, &as_me("wrong"), |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("does not let us in") && error.contains("`me`") && !error.contains("wrong"), "{error}");
    image.push(&to, &as_me("pass-word"), |_| {}).await.unwrap();
    assert!(image.blobs().all(|blob| registry.has(blob)));
    // Nobody there at all.
    let nobody: Reference = "127.0.0.1:1/x:1".parse().unwrap();
    let error = image.push(&nobody, &Push::default(), |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("can't be reached"), "{error}");
}

/// A registry that wants a token, takes half of a piece, forgets an upload, and answers with other addresses.
mod moody {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::extract::{Request, State};
    use axum::http::{Method, StatusCode};
    use axum::response::{IntoResponse, Response};
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    pub(super) struct Moody {
        pub(super) port: u16,
        pub(super) tokens: usize,
        /// Older ones have ended.
        least: usize,
        pub(super) scopes: Vec<String>,
        pub(super) uploads: HashMap<String, Vec<u8>>,
        pub(super) blobs: HashMap<String, Vec<u8>>,
        pub(super) manifests: HashMap<String, Vec<u8>>,
        /// What goes wrong next, the last first.
        pub(super) moods: Vec<&'static str>,
        next: usize,
    }

    pub(super) async fn start() -> Arc<Mutex<Moody>> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let moody = Arc::new(Mutex::new(Moody { port: listener.local_addr().unwrap().port(), ..Moody::default() }));
        let router = Router::new().fallback(answer).with_state(moody.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        moody
    }

    async fn answer(State(moody): State<Arc<Mutex<Moody>>>, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let bytes = to_bytes(body, 1 << 30).await.unwrap_or_default();
        let mut moody = moody.lock().unwrap();
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
        let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        if path == "/token" {
            moody.tokens += 1;
            moody.scopes.push(query);
            let token = format!("token-{}", moody.tokens);
            return axum::Json(serde_json::json!({"access_token": token})).into_response();
        }
        let token = header("authorization").and_then(|value| value.strip_prefix("Bearer token-")?.parse::<usize>().ok());
        if token.is_none_or(|token| token < moody.least) {
            let challenge = format!("Bearer realm=\"http://127.0.0.1:{}/token\",service=\"moody\"", moody.port);
            return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
        }
        let rest = path.trim_start_matches("/v2/r/").to_owned();
        let upload = rest.trim_start_matches("blobs/uploads/").to_owned();
        let place = |id: &str, size: usize| {
            [("location", format!("/v2/r/blobs/uploads/{id}?state=x")), ("range", format!("0-{}", size.max(1) - 1))]
        };
        match (&parts.method, rest.as_str()) {
            (_, "/v2/") => StatusCode::OK.into_response(),
            (&Method::HEAD, _) => match moody.blobs.contains_key(rest.trim_start_matches("blobs/")) {
                true => StatusCode::OK.into_response(),
                false => StatusCode::NOT_FOUND.into_response(),
            },
            (&Method::POST, "blobs/uploads/") => {
                moody.next += 1;
                let id = moody.next.to_string();
                moody.uploads.insert(id.clone(), Vec::new());
                (StatusCode::ACCEPTED, place(&id, 0)).into_response()
            }
            (&Method::PUT, manifest) if manifest.starts_with("manifests/") => {
                moody.manifests.insert(manifest.to_owned(), bytes.to_vec());
                StatusCode::CREATED.into_response()
            }
            (&Method::GET, _) => match moody.uploads.get(&upload) {
                Some(upload_bytes) => (StatusCode::NO_CONTENT, place(&upload, upload_bytes.len())).into_response(),
                None => StatusCode::NOT_FOUND.into_response(),
            },
            (&Method::PATCH, _) => {
                let mood = moody.moods.pop();
                let Some(there) = moody.uploads.get_mut(&upload) else { return StatusCode::NOT_FOUND.into_response() };
                let begin = header("content-range").unwrap().split('-').next().unwrap().parse::<usize>().unwrap();
                if begin != there.len() {
                    return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
                }
                match mood {
                    Some("half") => {
                        there.extend_from_slice(&bytes[..bytes.len() / 2]);
                        StatusCode::SERVICE_UNAVAILABLE.into_response()
                    }
                    Some("forget") => {
                        moody.uploads.remove(&upload);
                        StatusCode::BAD_GATEWAY.into_response()
                    }
                    Some("new token") => {
                        moody.least = moody.tokens + 1;
                        StatusCode::TOO_MANY_REQUESTS.into_response()
                    }
                    _ => {
                        there.extend_from_slice(&bytes);
                        let size = there.len();
                        (StatusCode::ACCEPTED, place(&upload, size)).into_response()
                    }
                }
            }
            (&Method::PUT, _) => {
                let there = moody.uploads.remove(&upload).unwrap();
                let digest = query.split('&').find_map(|pair| pair.strip_prefix("digest=")).unwrap().replace("%3A", ":");
                if super::spec::digest_of(&there) != digest {
                    return StatusCode::BAD_REQUEST.into_response();
                }
                moody.blobs.insert(digest, there);
                StatusCode::CREATED.into_response()
            }
            _ => Response::builder().status(404).body(Body::empty()).unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_the_push_goes_on_where_the_registry_is() {
    let moody = moody::start().await;
    moody.lock().unwrap().moods = vec!["half", "forget", "new token", "half"];
    let image = image(&[40 << 20]);
    let to: Reference = format!("127.0.0.1:{}/r:tag", moody.lock().unwrap().port).parse().unwrap();
    let how = Push { mount_from: vec!["other".into()], ..Push::default() };
    let pushed = image.push(&to, &how, |_| {}).await.unwrap();
    let moody = moody.lock().unwrap();
    // The config goes up at the same time, and may meet some of the moods.
    assert!(pushed.resumed >= 2, "{pushed:?}");
    assert!(moody.moods.is_empty());
    assert!(moody.tokens > 1, "a token that ended was replaced");
    assert!(moody.scopes[0].contains("repository%3Ar%3Apull%2Cpush"), "{:?}", moody.scopes);
    for blob in image.layers.iter().chain([&image.config]) {
        assert_eq!(spec::digest_of(&moody.blobs[&blob.digest]), blob.digest);
    }
    assert_eq!(spec::digest_of(&moody.manifests["manifests/tag"]), image.digest());
}
