//! Owning selections: a thread that answers whoever asks for what a client has put there.

use super::offer::{self, Atoms};
use super::{Content, Selection};
use crate::error::{Error, Result};
use crate::place::Display;
use crate::x11::{Client, next_event};
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ChangeWindowAttributesAux, ConnectionExt as _, CreateWindowAux, EventMask, PropMode, Property,
    SELECTION_NOTIFY_EVENT, SelectionNotifyEvent, SelectionRequestEvent, Timestamp, Window, WindowClass,
};
use x11rb::wrapper::ConnectionExt as _;

/// What is handed over at once; more goes in parts of this size.
const PART: usize = 256 << 10;
/// Handovers in parts at once; programs ask for one at a time.
const MOST_TRANSFERS: usize = 16;
/// How long a program may take to fetch the next part before it is forgotten.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pairs of one MULTIPLE request.
const MOST_PAIRS: usize = 64;

/// The thread, as seen by those who put something on the clipboard.
pub(super) struct Owner {
    commands: Sender<Command>,
    bell: UnixStream,
}

struct Command {
    selection: Selection,
    content: Option<Content>,
    reply: oneshot::Sender<Result<()>>,
}

impl Owner {
    pub(super) fn start(display: &Display) -> Result<Self> {
        let client = Client::connect(display)?;
        let atoms = Atoms::new(&client.connection)?.reply()?;
        let window = client.connection.generate_id()?;
        let values = CreateWindowAux::new().event_mask(EventMask::PROPERTY_CHANGE);
        client.connection.create_window(0, window, client.root, -1, -1, 1, 1, 0, WindowClass::INPUT_OUTPUT, 0, &values)?;
        let (bell, hears) = UnixStream::pair().map_err(Error::internal)?;
        bell.set_nonblocking(true).map_err(Error::internal)?;
        hears.set_nonblocking(true).map_err(Error::internal)?;
        let (commands, queue) = channel();
        let work = move || {
            let mut keeper = Keeper { client, atoms, window, owned: HashMap::new(), transfers: Vec::new() };
            if let Err(e) = keeper.work(&queue, hears) {
                tracing::debug!("the clipboard's owner ends: {e}");
            }
        };
        std::thread::Builder::new().name("clipboard".into()).spawn(work).map_err(Error::internal)?;
        Ok(Self { commands, bell })
    }

    /// Hands a content to the thread; it comes back if the thread has ended.
    pub(super) fn tell(
        &self,
        selection: Selection,
        content: Option<Content>,
    ) -> Result<oneshot::Receiver<Result<()>>, Option<Content>> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command { selection, content, reply }).map_err(|e| e.0.content)?;
        // A full pipe has rung already.
        let _ = (&self.bell).write(&[1]);
        Ok(answer)
    }
}

struct Keeper {
    client: Client,
    atoms: Atoms,
    window: Window,
    owned: HashMap<Atom, Owned>,
    transfers: Vec<Transfer>,
}

/// A content that we hand out.
struct Owned {
    since: Timestamp,
    is_text: bool,
    kind: Atom,
    bytes: Bytes,
}

/// A content that is handed out in parts.
struct Transfer {
    requestor: Window,
    property: Atom,
    kind: Atom,
    rest: Bytes,
    deadline: Instant,
}

impl Keeper {
    fn work(&mut self, queue: &Receiver<Command>, mut hears: UnixStream) -> Result<()> {
        loop {
            while let Some(event) = self.client.connection.poll_for_event()? {
                self.handle(event)?;
            }
            self.client.connection.flush()?;
            match queue.try_recv() {
                Ok(command) => {
                    let result = self.obey(command.selection, command.content);
                    let broken = matches!(result, Err(Error::Unavailable { .. }));
                    let _ = command.reply.send(result);
                    if broken {
                        return Err(Error::display_down("the connection broke"));
                    }
                    // Events may have come in with the answers.
                    continue;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            self.transfers.retain(|transfer| transfer.deadline > Instant::now());
            self.wait(&hears)?;
            let mut rung = [0; 64];
            while matches!(hears.read(&mut rung), Ok(1..)) {}
        }
    }

    /// Sleeps until the X server or a command has something for us, or a transfer is too old.
    fn wait(&self, hears: &UnixStream) -> Result<()> {
        let timeout = (!self.transfers.is_empty()).then_some(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut fds = [PollFd::new(self.client.connection.stream(), PollFlags::IN), PollFd::new(hears, PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(Error::display_down(e)),
        }
    }

    fn obey(&mut self, selection: Selection, content: Option<Content>) -> Result<()> {
        let atom = offer::selection_atom(&self.atoms, selection);
        let since = self.time()?;
        let connection = &self.client.connection;
        let Some(content) = content else {
            self.owned.remove(&atom);
            connection.set_selection_owner(x11rb::NONE, atom, since)?;
            connection.sync()?;
            return Ok(());
        };
        let is_text = offer::is_text(&content.kind);
        let kind = connection.intern_atom(false, content.kind.as_bytes())?.reply()?.atom;
        connection.set_selection_owner(self.window, atom, since)?;
        if connection.get_selection_owner(atom)?.reply()?.owner != self.window {
            return Err(Error::Conflict("another program took the clipboard at the same moment".into()));
        }
        self.owned.insert(atom, Owned { since, is_text, kind, bytes: content.bytes });
        Ok(())
    }

    /// The X server's time, which ownership is counted by.
    fn time(&mut self) -> Result<Timestamp> {
        let property = self.atoms.HOTDESK_TIME;
        self.client.connection.change_property8(PropMode::APPEND, self.window, property, AtomEnum::STRING, &[])?;
        let deadline = Instant::now() + super::OWNER_LIMIT;
        while let Some(event) = next_event(&self.client.connection, deadline)? {
            match event {
                Event::PropertyNotify(notice) if notice.window == self.window && notice.atom == property => {
                    return Ok(notice.time);
                }
                other => self.handle(other)?,
            }
        }
        Err(Error::display_down("it does not answer"))
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            Event::SelectionRequest(request) => self.answer(&request),
            Event::SelectionClear(notice) => {
                // An old notice about a selection that is ours again means nothing.
                if self.owned.get(&notice.selection).is_some_and(|owned| is_later(notice.time, owned.since)) {
                    self.owned.remove(&notice.selection);
                }
                Ok(())
            }
            Event::PropertyNotify(notice) if notice.state == Property::DELETE => self.go_on(notice.window, notice.atom),
            // Errors are about windows of others that went away.
            _ => Ok(()),
        }
    }

    fn answer(&mut self, request: &SelectionRequestEvent) -> Result<()> {
        // Old programs name no property and mean the target's name.
        let property = if request.property == x11rb::NONE { request.target } else { request.property };
        let done = if request.target == self.atoms.MULTIPLE {
            self.give_multiple(request.selection, request.requestor, property)?
        } else {
            self.give(request.selection, request.target, request.requestor, property)?
        };
        let notice = SelectionNotifyEvent {
            response_type: SELECTION_NOTIFY_EVENT,
            sequence: 0,
            time: request.time,
            requestor: request.requestor,
            selection: request.selection,
            target: request.target,
            property: if done { property } else { x11rb::NONE },
        };
        self.client.connection.send_event(false, request.requestor, EventMask::NO_EVENT, notice)?;
        Ok(())
    }

    /// Several targets in one request.
    fn give_multiple(&mut self, selection: Atom, requestor: Window, property: Atom) -> Result<bool> {
        let pairs = self.client.connection.get_property(false, requestor, property, AtomEnum::ANY, 0, 2 * MOST_PAIRS as u32)?;
        let Ok(pairs) = pairs.reply() else { return Ok(false) };
        let Some(mut atoms) = pairs.value32().map(Iterator::collect::<Vec<u32>>) else { return Ok(false) };
        for pair in atoms.as_chunks_mut::<2>().0 {
            if !self.give(selection, pair[0], requestor, pair[1])? {
                pair[1] = x11rb::NONE;
            }
        }
        self.client.connection.change_property32(PropMode::REPLACE, requestor, property, self.atoms.ATOM_PAIR, &atoms)?;
        Ok(true)
    }

    /// Writes one target onto the window of the one who asked; false if we don't have it.
    fn give(&mut self, selection: Atom, target: Atom, requestor: Window, property: Atom) -> Result<bool> {
        let Some(owned) = self.owned.get(&selection) else { return Ok(false) };
        let (connection, atoms) = (&self.client.connection, &self.atoms);
        if target == atoms.TARGETS {
            let mut targets = vec![atoms.TARGETS, atoms.TIMESTAMP, atoms.MULTIPLE, owned.kind];
            if owned.is_text {
                for name in offer::TEXT_TARGETS {
                    targets.push(connection.intern_atom(false, name.as_bytes())?.reply()?.atom);
                }
            }
            targets.dedup();
            connection.change_property32(PropMode::REPLACE, requestor, property, AtomEnum::ATOM, &targets)?;
            return Ok(true);
        }
        if target == atoms.TIMESTAMP {
            connection.change_property32(PropMode::REPLACE, requestor, property, AtomEnum::INTEGER, &[owned.since])?;
            return Ok(true);
        }
        let (kind, bytes) = if target == owned.kind {
            (target, owned.bytes.clone())
        } else if owned.is_text && target == atoms.STRING {
            (target, offer::to_latin1(&owned.bytes).into())
        } else if owned.is_text && target == atoms.TEXT {
            (atoms.UTF8_STRING, owned.bytes.clone())
        } else if owned.is_text && self.is_text_target(target)? {
            (target, owned.bytes.clone())
        } else {
            return Ok(false);
        };
        self.hand_over(requestor, property, kind, bytes)
    }

    fn is_text_target(&self, target: Atom) -> Result<bool> {
        let name = self.client.connection.get_atom_name(target)?.reply();
        Ok(name.is_ok_and(|name| std::str::from_utf8(&name.name).is_ok_and(offer::is_text)))
    }

    fn hand_over(&mut self, requestor: Window, property: Atom, kind: Atom, bytes: Bytes) -> Result<bool> {
        let connection = &self.client.connection;
        if bytes.len() <= PART {
            connection.change_property8(PropMode::REPLACE, requestor, property, kind, &bytes)?;
            return Ok(true);
        }
        if self.transfers.len() >= MOST_TRANSFERS {
            return Ok(false);
        }
        let listen = ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE);
        connection.change_window_attributes(requestor, &listen)?;
        connection.change_property32(PropMode::REPLACE, requestor, property, self.atoms.INCR, &[bytes.len() as u32])?;
        let deadline = Instant::now() + PATIENCE;
        self.transfers.push(Transfer { requestor, property, kind, rest: bytes, deadline });
        Ok(true)
    }

    /// The one who asked has taken a part: here is the next. An empty one is the end.
    fn go_on(&mut self, requestor: Window, property: Atom) -> Result<()> {
        let found = self.transfers.iter().position(|t| (t.requestor, t.property) == (requestor, property));
        let Some(index) = found else { return Ok(()) };
        let Some(transfer) = self.transfers.get_mut(index) else { return Ok(()) };
        let part = transfer.rest.split_to(transfer.rest.len().min(PART));
        transfer.deadline = Instant::now() + PATIENCE;
        self.client.connection.change_property8(PropMode::REPLACE, requestor, property, transfer.kind, &part)?;
        if part.is_empty() {
            self.transfers.remove(index);
            if self.transfers.iter().all(|t| t.requestor != requestor) && requestor != self.window {
                let deaf = ChangeWindowAttributesAux::new().event_mask(EventMask::NO_EVENT);
                self.client.connection.change_window_attributes(requestor, &deaf)?;
            }
        }
        Ok(())
    }
}

/// X's time wraps around every 49 days.
fn is_later(time: Timestamp, than: Timestamp) -> bool {
    time.wrapping_sub(than) < 1 << 31
}
