//! The accessibility bus: finding it, asking the registry, and counting what programs announce.

use super::lock;
use super::tree::Place;
use super::walk::{ROOT, place_of};
use super::words::STATES;
use crate::error::{Error, Result};
use futures_util::StreamExt;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zbus::message::Type as Kind;
use zbus::zvariant::{DynamicType, ObjectPath, Structure, Value};
use zbus::{Connection, Message, MessageStream};

/// Starting the bus and its registry takes some 100 ms where they are not up yet, and seconds on an emulated machine.
const START_TIME: Duration = Duration::from_secs(10);
/// The registry and the bus daemon answer at once, or they are broken.
const ANSWER_TIME: Duration = Duration::from_millis(1500);
/// A desk has some ten programs. What lies beyond is not looked at.
const MOST_PROGRAMS: usize = 256;

/// News about more nodes than this is just "something changed".
const MOST_NODES: usize = 200;

const REGISTRY: &str = "org.a11y.atspi.Registry";

/// A living connection to the accessibility bus.
pub(super) struct Bus {
    pub(super) address: Arc<str>,
    connection: Connection,
    /// Kept open to notice when the session ends.
    _session: Connection,
    pulse: Arc<Pulse>,
}

/// What each program announced.
#[derive(Default)]
struct Pulse {
    programs: Mutex<HashMap<Box<str>, Announced>>,
    dead: AtomicBool,
}

/// What one program announced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Announced {
    /// How many changes, apart from those below.
    pub(super) changes: u64,
    /// The last word on a state of a node: path and bit to "set".
    pub(super) states: HashMap<(Box<str>, u8), bool>,
    /// Nodes that got a new role, or were just made.
    pub(super) roles: HashSet<Box<str>>,
}

/// One announcement about one node.
enum News {
    /// A bit, and whether it is set now.
    State(u8, bool),
    Role,
    /// That it is not dead, which nobody asked: ATK says so of every object that it makes.
    Alive,
    Other,
}

impl Announced {
    fn note(&mut self, message: &Message) {
        let path: Box<str> = message.header().path().map(|p| p.as_str()).unwrap_or_default().into();
        match news_in(message).unwrap_or(News::Other) {
            News::Alive => {}
            News::State(bit, set) if self.states.len() < MOST_NODES => drop(self.states.insert((path, bit), set)),
            News::Role if self.roles.len() < MOST_NODES => drop(self.roles.insert(path)),
            _ => self.changes += 1,
        }
    }
}

impl Bus {
    /// Finds the bus through the session, switches accessibility on and listens to all programs.
    pub(super) async fn connect(session: &str) -> Result<Self> {
        within(START_TIME, "starting accessibility", Self::try_connect(session)).await
    }

    async fn try_connect(session: &str) -> Result<Self> {
        let session = open(session).await?;
        // Starts the bus.
        let address =
            call_within(START_TIME, &session, "org.a11y.Bus", "/org/a11y/bus", "org.a11y.Bus", "GetAddress", &()).await?;
        let address: String = address.body().deserialize().map_err(down)?;
        // Toolkits look at this when they start. A bus that lacks the property still has a tree.
        let enabled = ("org.a11y.Status", "IsEnabled", Value::from(true));
        if let Err(e) = call(&session, "org.a11y.Bus", "/org/a11y/bus", "org.freedesktop.DBus.Properties", "Set", &enabled).await
        {
            tracing::debug!("accessibility could not be switched on: {e}");
        }
        let connection = open(&address).await?;
        let pulse = Arc::new(Pulse::default());
        listen(&session, pulse.clone());
        listen(&connection, pulse.clone());
        let bus = Self { address: address.into(), connection, _session: session, pulse };
        bus.subscribe().await?;
        Ok(bus)
    }

    async fn subscribe(&self) -> Result<()> {
        let daemon = "org.freedesktop.DBus";
        for rule in [
            "type='signal',interface='org.a11y.atspi.Event.Object'",
            "type='signal',interface='org.a11y.atspi.Event.Window'",
            "type='signal',interface='org.a11y.atspi.Event.Document'",
            "type='signal',interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='org.a11y.atspi.Registry'",
        ] {
            call(&self.connection, daemon, "/org/freedesktop/DBus", daemon, "AddMatch", &rule).await?;
        }
        // Programs announce only what somebody registered for.
        for event in ["object:", "window:", "document:"] {
            let none: [&str; 0] = [];
            // The first call starts the registry.
            let new = self.registry(START_TIME, "RegisterEvent", &(event, &none[..], "")).await;
            if new.is_err() {
                // Before at-spi 2.36 the call had one argument.
                self.registry(ANSWER_TIME, "RegisterEvent", &(event,)).await?;
            }
        }
        Ok(())
    }

    async fn registry<B: serde::Serialize + DynamicType>(&self, limit: Duration, member: &str, body: &B) -> Result<Message> {
        call_within(limit, &self.connection, REGISTRY, "/org/a11y/atspi/registry", REGISTRY, member, body).await
    }

    /// `false` once the bus, its registry or the session is gone.
    pub(super) fn is_alive(&self) -> bool {
        !self.pulse.dead.load(Ordering::Acquire)
    }

    /// The programs of the desktop, in the order of the registry.
    pub(super) async fn programs(&self) -> Result<Vec<Place>> {
        let answer = call(&self.connection, REGISTRY, ROOT, "org.a11y.atspi.Accessible", "GetChildren", &()).await?;
        let body = answer.body();
        let children: Vec<(&str, ObjectPath<'_>)> = body.deserialize().map_err(down)?;
        let nobody: Arc<str> = "".into();
        Ok(children.iter().filter_map(|r| place_of(&nobody, r)).take(MOST_PROGRAMS).collect())
    }

    /// The process behind a name.
    pub(super) async fn pid_of(&self, program: &str) -> Option<u32> {
        let daemon = "org.freedesktop.DBus";
        let member = "GetConnectionUnixProcessID";
        let answer = call(&self.connection, daemon, "/org/freedesktop/DBus", daemon, member, &program).await.ok()?;
        answer.body().deserialize().ok()
    }

    /// How many changes the program has announced so far. States announced before are forgotten: whoever
    /// asks is about to learn them.
    pub(super) fn begin(&self, program: &str) -> u64 {
        let mut programs = lock(&self.pulse.programs);
        programs.get_mut(program).map_or(0, |announced| {
            announced.states.clear();
            announced.roles.clear();
            announced.changes
        })
    }

    /// Everything announced since [`Bus::begin`].
    pub(super) fn announced(&self, program: &str) -> Announced {
        lock(&self.pulse.programs).get(program).cloned().unwrap_or_default()
    }

    pub(super) fn forget(&self, keep: impl Fn(&str) -> bool) {
        lock(&self.pulse.programs).retain(|program, _| keep(program));
    }

    /// One call to a program. Announcements that it made before its answer are counted when this returns.
    pub(super) async fn ask<B: serde::Serialize + DynamicType>(
        &self,
        place: &Place,
        interface: &str,
        member: &str,
        body: &B,
        time: Duration,
    ) -> Result<Message, Refusal> {
        let call = self.connection.call_method(Some(&*place.bus), &*place.path, Some(interface), member, body);
        match tokio::time::timeout(time, call).await {
            Err(_) => Err(Refusal::Silence),
            Ok(Ok(message)) => Ok(message),
            Ok(Err(zbus::Error::MethodError(name, text, _))) => {
                Err(Refusal::Error { name: name.to_string(), text: text.unwrap_or_default() })
            }
            Ok(Err(e)) => Err(Refusal::Lost(e.to_string())),
        }
    }

    /// A property of an accessible.
    pub(super) async fn get(&self, place: &Place, interface: &str, property: &str, time: Duration) -> Result<Message, Refusal> {
        self.ask(place, "org.freedesktop.DBus.Properties", "Get", &(interface, property), time).await
    }
}

/// Why a program did not do what it was asked.
#[derive(Debug)]
pub(super) enum Refusal {
    Silence,
    /// An error by its D-Bus name.
    Error {
        name: String,
        text: String,
    },
    Lost(String),
}

/// Counts signals until the connection ends.
fn listen(connection: &Connection, pulse: Arc<Pulse>) {
    let mut stream = MessageStream::from(connection);
    tokio::spawn(async move {
        while let Some(Ok(message)) = stream.next().await {
            if message.message_type() != Kind::Signal {
                continue;
            }
            let header = message.header();
            let Some(interface) = header.interface() else { continue };
            if interface.starts_with("org.a11y.atspi.Event.") {
                if let Some(sender) = header.sender() {
                    let mut programs = lock(&pulse.programs);
                    match programs.get_mut(sender.as_str()) {
                        Some(announced) => announced.note(&message),
                        None => programs.entry(sender.as_str().into()).or_default().note(&message),
                    }
                }
            } else if header.member().is_some_and(|m| m == "NameOwnerChanged") {
                // Only the registry's name is watched: a new one does not know what we registered.
                let body = message.body();
                if matches!(body.deserialize::<(&str, &str, &str)>(), Ok((REGISTRY, was, _)) if !was.is_empty()) {
                    break;
                }
            }
        }
        pulse.dead.store(true, Ordering::Release);
    });
}

fn news_in(message: &Message) -> Option<News> {
    let header = message.header();
    let body = message.body();
    let body: Structure<'_> = body.deserialize().ok()?;
    let [Value::Str(what), Value::I32(set), ..] = body.fields() else { return None };
    match header.member()?.as_str() {
        "StateChanged" if what.as_str() == "defunct" && *set == 0 => Some(News::Alive),
        "StateChanged" => {
            let name = what.replace('-', "_");
            let bit = STATES.iter().position(|s| *s == name)?;
            Some(News::State(bit as u8, *set != 0))
        }
        "PropertyChange" if what.as_str() == "accessible-role" => Some(News::Role),
        _ => None,
    }
}

async fn open(address: &str) -> Result<Connection> {
    zbus::connection::Builder::address(address).map_err(down)?.build().await.map_err(down)
}

async fn call<B: serde::Serialize + DynamicType>(
    connection: &Connection,
    to: &str,
    path: &str,
    interface: &str,
    member: &str,
    body: &B,
) -> Result<Message> {
    call_within(ANSWER_TIME, connection, to, path, interface, member, body).await
}

async fn call_within<B: serde::Serialize + DynamicType>(
    limit: Duration,
    connection: &Connection,
    to: &str,
    path: &str,
    interface: &str,
    member: &str,
    body: &B,
) -> Result<Message> {
    let call = connection.call_method(Some(to), path, Some(interface), member, body);
    within(limit, member, async { call.await.map_err(down) }).await
}

async fn within<T>(time: Duration, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(time, work)
        .await
        .unwrap_or_else(|_| Err(down(format!("{what} took longer than {} ms", time.as_millis()))))
}

pub(super) fn down(reason: impl ToString) -> Error {
    Error::Unavailable { part: "accessibility", reason: reason.to_string() }
}
