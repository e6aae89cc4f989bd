//! The accessibility engine against real programs: zenity and gedit on a desktop of its own.
//!
//! Needs Xvfb, dbus-daemon, at-spi2-core, zenity and gedit; says so where one is missing.

use hotdesk_api::access::{Act, Element, FindRequest, TreeQuery};
use hotdesk_desk::access::Access;
use hotdesk_desk::{Display, Error, Place};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far more than anything here takes on a machine that is not broken.
const LONG: Duration = Duration::from_secs(60);

/// An X server and a session bus; both end with it.
struct Desktop {
    folder: TempDir,
    place: Arc<Place>,
    bus: Child,
    x: Child,
}

impl Desktop {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut x = command("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "800x600x24", "-nolisten", "tcp", "-noreset"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb must be installed");
        let mut number = String::new();
        BufReader::new(x.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let number: u16 = number.trim().parse().expect("Xvfb tells its display");
        let socket = folder.path().join("bus");
        let address = format!("unix:path={}", socket.display());
        let env: BTreeMap<String, String> = [
            ("DISPLAY", format!(":{number}")),
            ("DBUS_SESSION_BUS_ADDRESS", address.clone()),
            ("HOME", folder.path().display().to_string()),
            ("XDG_RUNTIME_DIR", folder.path().display().to_string()),
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("LANG", "C.UTF-8".into()),
            ("GTK_MODULES", "gail:atk-bridge".into()),
            ("GSETTINGS_BACKEND", "memory".into()),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .into();
        let bus = command("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--address", &address])
            .env_clear()
            .envs(&env)
            .stderr(Stdio::null())
            .spawn()
            .expect("dbus-daemon must be installed");
        wait_for("the session bus", || socket.exists().then_some(()));
        let place = Place {
            display: Display { number, cookie: None },
            home: folder.path().into(),
            runtime_dir: folder.path().into(),
            bus: address,
            env,
        };
        Self { folder, place: Arc::new(place), bus, x }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Program {
        let child = command(program).args(arguments).env_clear().envs(&self.place.env).stderr(Stdio::null()).spawn();
        Program(child.unwrap_or_else(|e| panic!("{program} must be installed: {e}")))
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        for child in [&mut self.bus, &mut self.x] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ends with its value.
struct Program(Child);

impl Program {
    fn signal(&self, name: &str) {
        assert!(command("kill").args(["-s", name, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < end, "{what} did not come within {LONG:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks again until the answer is there.
async fn until<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(value) = ready().await {
            return value;
        }
        assert!(Instant::now() < end, "{what} did not come within {LONG:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn one(access: &Access, request: &FindRequest) -> Option<Element> {
    let mut found = access.find(request).await.ok()?.found;
    (found.len() == 1).then(|| found.remove(0))
}

fn role(role: &str, name: &str) -> FindRequest {
    FindRequest { role: Some(role.into()), name: Some(name.into()), ..Default::default() }
}

const ENTRY: &[&str] = &["--entry", "--title=A question", "--text=Your name", "--entry-text=Ada"];

#[tokio::test(flavor = "multi_thread")]
async fn a_dialog_is_seen_searched_and_acted_on() {
    let desktop = Desktop::start();
    let access = Access::new(desktop.place.clone());
    let mut zenity = desktop.run("zenity", ENTRY);
    let field = FindRequest { role: Some("text".into()), text: Some("Ada".into()), ..Default::default() };
    // A window that is new is told of before it is shown, and before all that is in it.
    let shown = async |request: &FindRequest| one(&access, request).await.filter(|element| element.area.is_some());
    let ok = until("the button", async || shown(&role("push-button", "OK")).await).await;
    let entry = until("the text field", async || shown(&field).await).await;
    assert_eq!((entry.app.as_deref(), entry.window.as_deref()), (Some("zenity"), Some("A question")));

    let xml = access.osworld_xml().await.unwrap();
    assert!(xml.starts_with("<desktop-frame xmlns:st="));
    assert!(xml.contains("<application name=\"zenity\""));
    assert!(xml.contains("<label name=\"Your name\" "));
    assert!(xml.contains(">Ada</text>"));

    let query = TreeQuery { app: Some("ZENITY".into()), depth: Some(1), ..Default::default() };
    let tree = access.tree(&query).await.unwrap();
    assert_eq!((tree.apps.len(), tree.apps[0].children.len()), (1, 1));
    assert!(tree.apps[0].children[0].children_left_out.is_some());

    // What is written is there at once, in every form.
    access.act(&Act::SetText { id: entry.id.clone(), text: "Grace <&>".into() }).await.unwrap();
    assert!(access.osworld_xml().await.unwrap().contains(">Grace &lt;&amp;&gt;</text>"));

    let area = entry.area.expect("it is on the screen");
    let at = access.at(area.x + area.width as i32 / 2, area.y + area.height as i32 / 2).await.unwrap();
    assert_eq!(at.element.unwrap().id, entry.id);
    assert_eq!(at.within.last().unwrap().role, "application");

    let refused = access.act(&Act::SetValue { id: ok.id.clone(), value: 1.0 }).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid(text) if text.contains("possible with it: invoke")), "{refused}");
    let unknown = access.act(&Act::Invoke { id: ok.id.clone(), action: Some("fly".into()) }).await.unwrap_err();
    assert!(matches!(&unknown, Error::Invalid(text) if text.contains("`click`")), "{unknown}");
    access.act(&Act::Invoke { id: ok.id.clone(), action: None }).await.unwrap();
    wait_for("the end of zenity", || zenity.0.try_wait().unwrap());
    let gone = until("its end on the bus", async || access.act(&Act::Focus { id: ok.id.clone() }).await.err()).await;
    assert!(matches!(gone, Error::NotFound(_)), "{gone}");
    until("a tree without it", async || (!access.osworld_xml().await.ok()?.contains("zenity")).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_tree_is_that_of_a_fresh_look() {
    let desktop = Desktop::start();
    let path = desktop.folder.path().join("notes.txt");
    std::fs::write(&path, "one\ntwo <three>\n").unwrap();
    let _gedit = desktop.run("gedit", &["--standalone", path.to_str().unwrap()]);
    let access = Access::new(desktop.place.clone());
    let text = FindRequest { role: Some("text".into()), text_contains: Some("two <three>".into()), ..Default::default() };
    until("the text", async || one(&access, &text).await).await;
    // The window may still be settling: compare until two looks agree, which they must once it has.
    until("two looks that agree", async || {
        let kept = access.osworld_xml().await.ok()?;
        let fresh = Access::new(desktop.place.clone()).osworld_xml().await.ok()?;
        (kept == fresh && kept.contains(">one\ntwo &lt;three&gt;</text>")).then_some(())
    })
    .await;
    assert_eq!(access.terminal_text().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_program_does_not_hold_the_others_up() {
    let desktop = Desktop::start();
    let frozen = desktop.run("zenity", &["--info", "--title=Frozen", "--text=cold"]);
    let _awake = desktop.run("zenity", &["--info", "--title=Awake", "--text=warm"]);
    let access = Access::new(desktop.place.clone());
    let both = async || {
        let xml = access.osworld_xml().await.ok()?;
        (xml.contains("name=\"Frozen\"") && xml.contains("name=\"Awake\"")).then_some(())
    };
    until("both dialogs", both).await;
    frozen.signal("STOP");
    access.forget().await;
    let xml = access.osworld_xml().await.unwrap();
    assert!(xml.contains("name=\"Awake\""));
    assert!(!xml.contains("name=\"Frozen\""));
    frozen.signal("CONT");
    until("both dialogs again", both).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_dies_is_told_and_found_again() {
    let mut desktop = Desktop::start();
    let access = Access::new(desktop.place.clone());
    until("the bus", async || access.osworld_xml().await.ok()).await;
    desktop.bus.kill().unwrap();
    desktop.bus.wait().unwrap();
    let error = until("the news", async || access.osworld_xml().await.err()).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(matches!(access.terminal_text().await, Err(Error::Unavailable { .. })));
    let socket = desktop.folder.path().join("bus");
    let _ = std::fs::remove_file(&socket);
    desktop.bus = command("dbus-daemon")
        .args(["--session", "--nofork", "--nopidfile", "--address", &desktop.place.bus])
        .env_clear()
        .envs(&desktop.place.env)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the new bus", || Path::new(&socket).exists().then_some(()));
    until("the new bus", async || access.osworld_xml().await.ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_bus_the_answer_is_quick_and_clear() {
    let place = Place {
        display: Display { number: 60_000, cookie: None },
        home: "/".into(),
        runtime_dir: "/".into(),
        bus: "unix:path=/nowhere/bus".into(),
        env: BTreeMap::new(),
    };
    let access = Access::new(Arc::new(place));
    let error = access.osworld_xml().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { part: "accessibility", .. }), "{error}");
    assert!(access.tree(&TreeQuery::default()).await.is_err());
    assert!(access.act(&Act::Focus { id: ":1.1/x".into() }).await.is_err());
}
