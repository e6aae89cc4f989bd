//! Questions to a program, hundreds of them under way at once.
//!
//! A [`Talk`] is the conversation with one program: a wire straight to it where it listens, the bus
//! for parts of its tree that live in other programs, and the patience one has with it.

use super::tree::Node;
use super::wire::{Answer, Wire};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Calls under way at once. Enough to keep the program busy while answers travel, few enough not to
/// flood its queue with work that a person's click would have to wait for.
const UNDER_WAY: usize = 512;
/// With this many under way nobody waits for the next answer: whoever waits must be woken, and waking us
/// for each of ten thousand answers costs the program an eighth of its time.
const PLENTY: usize = UNDER_WAY / 2;
const NAP: Duration = Duration::from_millis(1);

const ACCESSIBLE: &str = "org.a11y.atspi.Accessible";
const ACTION: &str = "org.a11y.atspi.Action";
const COMPONENT: &str = "org.a11y.atspi.Component";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const TABLE: &str = "org.a11y.atspi.Table";
const TEXT: &str = "org.a11y.atspi.Text";
const VALUE: &str = "org.a11y.atspi.Value";

/// Coordinates of the whole screen, in the words of AT-SPI.
const ON_SCREEN: u32 = 0;

/// What can be asked of an accessible.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    /// Of the whole program: everything that it keeps in its cache.
    Items,
    Toolkit,
    Name,
    Role,
    RoleName,
    State,
    Interfaces,
    ChildCount,
    Children,
    Child(i32),
    IndexInParent,
    Attributes,
    Extents,
    AtPoint(i32, i32),
    CharacterCount,
    /// From the start up to a character; -1 is the end.
    Text(i32),
    Value(&'static str),
    Actions,
    ActionName(i32),
    Columns,
}

/// Why a conversation ended early.
pub(super) type Ended = io::Error;

pub(super) struct Talk {
    own: Wire,
    own_name: Arc<str>,
    bus_address: Arc<str>,
    bus: Option<Wire>,
    /// How long the program may be silent.
    patience: Duration,
    /// When everything must be over.
    end: Instant,
}

impl Talk {
    /// `peer` is the address where the program listens by itself, if it does.
    pub(super) fn with(
        own_name: Arc<str>,
        peer: Option<&str>,
        bus_address: Arc<str>,
        patience: Duration,
        time: Duration,
    ) -> io::Result<Self> {
        let own = match peer.map(|address| Wire::to_peer(address, patience)) {
            Some(Ok(wire)) => wire,
            // Silent here, it is silent everywhere.
            Some(Err(e)) if matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => return Err(e),
            _ => Wire::to_bus(&bus_address, patience)?,
        };
        Ok(Self { own, own_name, bus_address, bus: None, patience, end: Instant::now() + time })
    }

    /// Asks everything and hands each answer on with the number of its question. Questions that the
    /// program refuses are answered too, with an error inside; only its silence ends the talk.
    pub(super) fn ask(
        &mut self,
        nodes: &mut Vec<Node>,
        questions: &[(u32, Question)],
        mut on_answer: impl FnMut(&mut Vec<Node>, usize, &Answer<'_>),
    ) -> Result<(), Ended> {
        let is_own = |nodes: &[Node], node: u32| nodes.get(node as usize).is_some_and(|n| n.place.bus == self.own_name);
        let (own, foreign): (Vec<usize>, Vec<usize>) =
            (0..questions.len()).partition(|&i| questions.get(i).is_some_and(|q| is_own(nodes, q.0)));
        round(&mut self.own, self.patience, self.end, nodes, questions, &own, &mut on_answer)?;
        if foreign.is_empty() {
            return Ok(());
        }
        let bus = match &mut self.bus {
            Some(bus) => bus,
            None => self.bus.insert(Wire::to_bus(&self.bus_address, self.patience)?),
        };
        // Another program's silence is not this one's: its part is left out.
        if let Err(e) = round(bus, self.patience, self.end, nodes, questions, &foreign, &mut on_answer) {
            tracing::debug!(program = %self.own_name, "a part in another program was left out: {e}");
            self.bus = None;
        }
        Ok(())
    }
}

fn round(
    wire: &mut Wire,
    patience: Duration,
    end: Instant,
    nodes: &mut Vec<Node>,
    questions: &[(u32, Question)],
    chosen: &[usize],
    on_answer: &mut impl FnMut(&mut Vec<Node>, usize, &Answer<'_>),
) -> io::Result<()> {
    let mut to_send = chosen.iter();
    let mut under_way: HashMap<u32, usize> = HashMap::with_capacity(UNDER_WAY);
    let mut last_word = Instant::now();
    loop {
        while under_way.len() < UNDER_WAY {
            let Some(&i) = to_send.next() else { break };
            let Some((node, question)) = questions.get(i) else { continue };
            let Some(node) = nodes.get(*node as usize) else { continue };
            under_way.insert(send(wire, node, *question)?, i);
        }
        if under_way.is_empty() {
            return Ok(());
        }
        if under_way.len() >= PLENTY {
            wire.send()?;
            std::thread::sleep(NAP);
        }
        if !wire.exchange(end.min(last_word + patience))? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the program does not answer"));
        }
        while let Some(answer) = wire.next()? {
            if let Some(i) = under_way.remove(&answer.serial) {
                last_word = Instant::now();
                on_answer(nodes, i, &answer);
            }
        }
        if Instant::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the program answers too slowly"));
        }
    }
}

fn send(wire: &mut Wire, node: &Node, question: Question) -> io::Result<u32> {
    let (to, path) = (&*node.place.bus, &*node.place.path);
    let mut get = |interface: &str, name: &str| wire.call(to, path, PROPERTIES, "Get", &(interface, name));
    match question {
        Question::Items => wire.call(to, "/org/a11y/atspi/cache", "org.a11y.atspi.Cache", "GetItems", &()),
        Question::Toolkit => get("org.a11y.atspi.Application", "ToolkitName"),
        Question::Name => get(ACCESSIBLE, "Name"),
        Question::ChildCount => get(ACCESSIBLE, "ChildCount"),
        Question::CharacterCount => get(TEXT, "CharacterCount"),
        Question::Value(name) => get(VALUE, name),
        Question::Columns => get(TABLE, "NColumns"),
        Question::Role => wire.call(to, path, ACCESSIBLE, "GetRole", &()),
        Question::RoleName => wire.call(to, path, ACCESSIBLE, "GetRoleName", &()),
        Question::State => wire.call(to, path, ACCESSIBLE, "GetState", &()),
        Question::Interfaces => wire.call(to, path, ACCESSIBLE, "GetInterfaces", &()),
        Question::Children => wire.call(to, path, ACCESSIBLE, "GetChildren", &()),
        Question::Child(i) => wire.call(to, path, ACCESSIBLE, "GetChildAtIndex", &(i,)),
        Question::IndexInParent => wire.call(to, path, ACCESSIBLE, "GetIndexInParent", &()),
        Question::Attributes => wire.call(to, path, ACCESSIBLE, "GetAttributes", &()),
        Question::Extents => wire.call(to, path, COMPONENT, "GetExtents", &(ON_SCREEN,)),
        Question::AtPoint(x, y) => wire.call(to, path, COMPONENT, "GetAccessibleAtPoint", &(x, y, ON_SCREEN)),
        Question::Text(end) => wire.call(to, path, TEXT, "GetText", &(0i32, end)),
        Question::Actions => wire.call(to, path, ACTION, "GetActions", &()),
        Question::ActionName(i) => wire.call(to, path, ACTION, "GetName", &(i,)),
    }
}
