//! A disk from elsewhere: fetched in parallel ranges, unpacked while it comes, and continued where it was when
//! something went wrong.
//!
//! ```text
//!   OUT.part         the bytes as the server has them. A disk that is not packed becomes OUT by a rename.
//!   OUT.part.json    which of them are there, and of which version of the file: what a next try goes on from
//!   .OUT.unpacking   the disk as it is unpacked, following behind what has come
//! ```
//!
//! Where there is not room for the packed bytes too, they are given back as soon as they are unpacked; such a fetch survives a
//! broken connection, but not its own death.

mod arrival;
mod download;
mod remote;
mod unpack;
pub(crate) mod zip;

use super::{Meter, Unfinished, absent, at, free_room, home, invalid};
use crate::{Error, Result};
use arrival::{Arrival, Follow, State, WINDOW};
use remote::{Kind, Remote, is_digest};
use sha2::Digest;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unpack::Packing;

/// What to fetch.
#[derive(Debug, Clone, Default)]
pub struct Fetch {
    /// `http://`, `https://` or `file://`.
    pub url: String,
    /// Where to; by default the name in the URL, without the ending of an archive.
    pub output: Option<PathBuf>,
    /// What the file must have, as it is served: a SHA-256 in hex, or `beside` for the one in `URL.sha256`. Over plain HTTP from
    /// another machine it has to be known in hex: whoever is on the way could change the disk, and what lies beside it.
    pub sha256: Option<String>,
    /// Which file of an archive, if there are several disks.
    pub entry: Option<String>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fetched {
    pub path: PathBuf,
    pub size: u64,
    /// Bytes that an earlier try had brought already.
    pub resumed: u64,
    /// Of the file as it is served, where it was asked for.
    pub sha256: Option<String>,
}

/// Fetches a disk. What is left behind after an error is only what makes a next try shorter.
pub async fn fetch(request: Fetch, meter: Arc<Meter>) -> Result<Fetched> {
    let remote = Remote::open(&request.url).await?;
    remote.check_trust(request.sha256.as_deref())?;
    let output = match &request.output {
        Some(output) => output.clone(),
        None => name(&remote)?.into(),
    };
    absent(&output)?;
    let wanted = match request.sha256.as_deref() {
        None => None,
        Some("beside") => Some(remote.digest_beside().await?),
        Some(digest) if is_digest(digest) => Some(digest.to_ascii_lowercase()),
        Some(_) => return Err(Error::Invalid("a SHA-256 has 64 hex digits".into())),
    };
    let plan = Plan::new(&remote, request.entry, wanted.is_some()).await?;
    Job { output, plan, wanted, meter, url: remote.url.to_string() }.run(remote).await
}

/// What is to come and what it becomes.
struct Plan {
    packing: Packing,
    /// The stretch of the remote file that is needed.
    from: u64,
    length: Option<u64>,
    /// Of the disk, where it is known.
    size: Option<u64>,
}

impl Plan {
    async fn new(remote: &Remote, entry: Option<String>, whole: bool) -> Result<Self> {
        if let Kind::Stream(_) = remote.kind {
            // What it is, its first bytes tell; they are looked at when they are there.
            return Ok(Self { packing: Packing::Zip { wanted: entry }, from: 0, length: remote.size, size: None });
        }
        let length = remote.size.unwrap_or(0);
        let mut plan = Self { packing: Packing::of(&remote.head), from: 0, length: remote.size, size: None };
        match &plan.packing {
            Packing::None => plan.size = remote.size,
            Packing::Zstd => plan.size = zstd::zstd_safe::get_frame_content_size(&remote.head).ok().flatten(),
            Packing::Zip { .. } => {
                let (entry, at) = zip::find(remote, length, entry.as_deref()).await?;
                plan.size = entry.size;
                let mut at = at;
                if !whole {
                    (plan.from, plan.length, at) = (at, entry.packed, 0);
                }
                plan.packing = Packing::Entry { entry, at };
            }
            _ => {}
        }
        Ok(plan)
    }
}

struct Job {
    output: PathBuf,
    plan: Plan,
    wanted: Option<String>,
    meter: Arc<Meter>,
    url: String,
}

impl Job {
    async fn run(self, remote: Remote) -> Result<Fetched> {
        match remote.kind {
            Kind::File { file, .. } => self.local(file, remote.size.unwrap_or(0)).await,
            Kind::Ranges(http) => self.ranges(http, remote.size.unwrap_or(0)).await,
            Kind::Stream(response) => self.stream(*response).await,
        }
    }

    /// From a file of this machine: only unpacked.
    async fn local(self, file: Arc<File>, size: u64) -> Result<Fetched> {
        self.room(self.plan.size.unwrap_or(size))?;
        self.meter.begin("unpacking", self.plan.length.unwrap_or(0));
        let arrival = Arc::new(Arrival::whole(self.plan.from + self.plan.length.unwrap_or(size)));
        let packing = self.plan.packing.clone();
        let (size, sha256) = self.unpack(file, arrival, packing, self.plan.from, false).await?;
        Ok(Fetched { path: self.output, size, resumed: 0, sha256 })
    }

    /// From a server that sends parts.
    async fn ranges(self, http: remote::Http, whole: u64) -> Result<Fetched> {
        let length = self.plan.length.unwrap_or(whole);
        let packed = self.plan.packing != Packing::None;
        let (part_path, state_path) = (with(&self.output, "part"), with(&self.output, "part.json"));
        let part = open_part(&part_path)?;
        let mut state =
            State { url: self.url.clone(), validator: http.validator.clone(), from: self.plan.from, length, done: String::new() };
        let old =
            State::read(&state_path).filter(|old| old.fits(&state) && part.metadata().is_ok_and(|data| data.len() == length));
        state.done = old.map(|old| old.done).unwrap_or_default();
        let leftovers = Leftovers { part: part_path.clone(), state: state_path.clone() };
        let resumed = Arrival::segments(length, &state.done, false).bytes();

        let unpacked = if packed { self.plan.size.unwrap_or(length) } else { 0 };
        let free = free_room(home(&self.output))?;
        let frugal = packed && free < unpacked.saturating_add(length - resumed);
        let needed = if frugal { unpacked.saturating_add(WINDOW.min(length)) } else { unpacked + length - resumed };
        if let Err(e) = self.room(needed) {
            leftovers.settle(resumed > 0);
            return Err(e);
        }
        if frugal {
            // What is given back can't be read again, so nothing is kept.
            state.done.clear();
            let _ = std::fs::remove_file(&state_path);
        }
        if state.done.is_empty() {
            part.set_len(0).map_err(|e| at(&part_path, &e))?;
        }
        part.set_len(length).map_err(|e| at(&part_path, &e))?;
        let arrival = Arc::new(Arrival::segments(length, &state.done, frugal));
        let resumed = arrival.bytes();
        self.meter.begin("fetching", length);
        self.meter.add(resumed);

        let keep = (!frugal && http.validator.is_some()).then_some(state_path.as_path());
        let loading = download::ranges(&http, whole, part.clone(), arrival.clone(), &self.meter, state, keep);
        let outcome = if packed || self.wanted.is_some() {
            let packing = self.plan.packing.clone();
            let reading = self.finish_from(part.clone(), arrival.clone(), packing, frugal, &part_path);
            let (loaded, read) = tokio::join!(
                async {
                    let loaded = loading.await;
                    if let Err(e) = &loaded {
                        arrival.fail(e.to_string());
                    }
                    loaded
                },
                async {
                    let read = reading.await;
                    if read.is_err() {
                        arrival.fail("it can't be used".into());
                    }
                    read
                }
            );
            // Who fails first makes the other one fail.
            match (loaded, read) {
                (Ok(()), read) => read,
                (Err(_), Err(e @ Error::Invalid(_) | e @ Error::Full(_))) => Err(e),
                (Err(e), _) => Err(e),
            }
        } else {
            match loading.await {
                Ok(()) => self.keep_part(&part_path, None),
                Err(e) => Err(e),
            }
        };
        match outcome {
            Ok((size, sha256)) => {
                leftovers.settle(false);
                Ok(Fetched { path: self.output, size, resumed, sha256 })
            }
            Err(e) => {
                // Bytes that were fetched wrong are of no use to a next try.
                let useful = keep.is_some() && !matches!(e, Error::Invalid(_)) && arrival.bytes() > 0;
                leftovers.settle(useful);
                let kept = if useful { "; what has come is kept: run it again to go on" } else { "" };
                Err(match e {
                    Error::Failed(why) => Error::Failed(format!("{}: {why}{kept}", self.url)),
                    Error::Full(why) => Error::Full(format!("{why}{kept}")),
                    other => other,
                })
            }
        }
    }

    async fn finish_from(
        &self,
        part: Arc<File>,
        arrival: Arc<Arrival>,
        packing: Packing,
        frugal: bool,
        path: &Path,
    ) -> Result<(u64, Option<String>)> {
        if packing != Packing::None {
            return self.unpack(part, arrival, packing, 0, frugal).await;
        }
        // It is what it becomes; only its digest is wanted.
        let mut follow = self.follow(part, arrival, 0, false);
        let digest = tokio::task::spawn_blocking(move || follow.digest()).await;
        let digest = digest.map_err(|e| Error::Failed(e.to_string()))?.map_err(|e| self.told(&e))?;
        self.check(digest.as_deref())?;
        self.keep_part(path, digest)
    }

    /// From a server that only sends the whole: there is no second chance.
    async fn stream(self, response: reqwest::Response) -> Result<Fetched> {
        let part_path = with(&self.output, "part");
        let part = open_part(&part_path)?;
        part.set_len(0).map_err(|e| at(&part_path, &e))?;
        let leftovers = Leftovers { part: part_path.clone(), state: with(&self.output, "part.json") };
        let result = self.streamed(response, part, &part_path).await;
        leftovers.settle(false);
        let (size, sha256) = result.map_err(|e| match e {
            Error::Failed(why) => {
                Error::Failed(format!("{}: {why}; this server does not let a fetch go on where it was", self.url))
            }
            other => other,
        })?;
        Ok(Fetched { path: self.output, size, resumed: 0, sha256 })
    }

    async fn streamed(&self, response: reqwest::Response, part: Arc<File>, path: &Path) -> Result<(u64, Option<String>)> {
        if let Some(size) = self.plan.length {
            self.room(size)?;
        }
        self.meter.begin("fetching", self.plan.length.unwrap_or(0));
        let arrival = Arc::new(Arrival::stream(self.plan.length));
        let (first, told) = tokio::sync::oneshot::channel();
        let loading = async {
            let loaded = download::stream(response, self.plan.length, part.clone(), &arrival, &self.meter, first).await;
            match &loaded {
                Ok(()) => arrival.end(),
                Err(e) => arrival.fail(e.to_string()),
            }
            loaded
        };
        let reading = async {
            // Without a beginning there is an error already.
            let packing = match told.await.map(|head| Packing::of(&head)) {
                Ok(Packing::Zip { .. }) => self.plan.packing.clone(),
                Ok(other) => other,
                Err(_) => return Err(Error::Failed("nothing came".into())),
            };
            let frugal = packing != Packing::None;
            let read = self.finish_stream(part.clone(), arrival.clone(), packing, frugal, path).await;
            if read.is_err() {
                arrival.fail("it can't be used".into());
            }
            read
        };
        tokio::pin!(loading, reading);
        // A disk may end before its archive does: the rest is not waited for, unless its digest is.
        let (loaded, read) = tokio::select! {
            read = &mut reading => (Ok(()), read),
            loaded = &mut loading => (loaded, reading.await),
        };
        match (loaded, read) {
            (Ok(()), read) => read,
            (Err(_), Err(e @ Error::Invalid(_) | e @ Error::Full(_))) => Err(e),
            (Err(e), _) => Err(e),
        }
    }

    async fn finish_stream(
        &self,
        part: Arc<File>,
        arrival: Arc<Arrival>,
        packing: Packing,
        frugal: bool,
        path: &Path,
    ) -> Result<(u64, Option<String>)> {
        if packing != Packing::None {
            return self.unpack(part, arrival, packing, 0, frugal).await;
        }
        let mut follow = self.follow(part, arrival, 0, false);
        let read = move || {
            std::io::copy(&mut follow, &mut std::io::sink())?;
            follow.digest()
        };
        let digest = tokio::task::spawn_blocking(read).await;
        let digest = digest.map_err(|e| Error::Failed(e.to_string()))?.map_err(|e| self.told(&e))?;
        self.check(digest.as_deref())?;
        self.keep_part(path, digest)
    }

    /// Unpacks what comes into a file of its own, which becomes the output.
    async fn unpack(
        &self,
        file: Arc<File>,
        arrival: Arc<Arrival>,
        packing: Packing,
        from: u64,
        frugal: bool,
    ) -> Result<(u64, Option<String>)> {
        let guard = Unfinished::beside(&self.output, "unpacking")?;
        let out = guard.create()?;
        let follow = self.follow(file, arrival, from, frugal);
        let unpacked = tokio::task::spawn_blocking(move || unpack::unpack(follow, &packing, &out)).await;
        let (size, digest) = unpacked.map_err(|e| Error::Failed(e.to_string()))?.map_err(|e| self.told(&e))?;
        self.check(digest.as_deref())?;
        super::check_safe(guard.path()).map_err(|e| self.unsafe_disk(&e))?;
        guard.finish(&self.output)?;
        Ok((size, digest))
    }

    fn keep_part(&self, part: &Path, digest: Option<String>) -> Result<(u64, Option<String>)> {
        super::check_safe(part).map_err(|e| self.unsafe_disk(&e))?;
        let size = part.metadata().map_err(|e| at(part, &e))?.len();
        std::fs::rename(part, &self.output).map_err(|e| at(&self.output, &e))?;
        Ok((size, digest))
    }

    fn follow(&self, file: Arc<File>, arrival: Arc<Arrival>, position: u64, frugal: bool) -> Follow {
        let hash = self.wanted.as_ref().map(|_| sha2::Sha256::new());
        Follow { file, arrival, meter: self.meter.clone(), position, hash, frugal, punched: 0 }
    }

    fn check(&self, digest: Option<&str>) -> Result<()> {
        match (&self.wanted, digest) {
            (Some(wanted), Some(found)) if wanted != found => {
                Err(Error::Invalid(format!("{}: its SHA-256 is {found}, and {wanted} was expected; nothing was kept", self.url)))
            }
            _ => Ok(()),
        }
    }

    fn room(&self, needed: u64) -> Result<()> {
        super::room(home(&self.output), needed)
    }

    /// What went wrong while it was read.
    fn told(&self, e: &std::io::Error) -> Error {
        if let Some(own) = e.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return own.clone();
        }
        match e.kind() {
            std::io::ErrorKind::InvalidData => Error::Invalid(format!("{}: {e}", self.url)),
            std::io::ErrorKind::UnexpectedEof => Error::Invalid(format!("{}: it is cut off", self.url)),
            _ => at(&self.output, e),
        }
    }

    fn unsafe_disk(&self, e: &Error) -> Error {
        Error::Invalid(format!("{}: what came is no disk that can be used, and was removed: {e}", self.url))
    }
}

/// Files of a fetch that is not over.
struct Leftovers {
    part: PathBuf,
    state: PathBuf,
}

impl Leftovers {
    fn settle(&self, keep: bool) {
        if !keep {
            let _ = std::fs::remove_file(&self.part);
            let _ = std::fs::remove_file(&self.state);
        }
    }
}

/// Opened by one fetch at a time.
fn open_part(path: &Path) -> Result<Arc<File>> {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(|e| at(path, &e))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Arc::new(file)),
        Err(_) => Err(invalid(path, "it is being fetched by somebody else right now")),
    }
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// `https://host/dir/Ubuntu.qcow2.zip` becomes `Ubuntu.qcow2`.
fn name(remote: &Remote) -> Result<String> {
    let last = remote.url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    let plain = [".zip", ".gz", ".zst", ".gzip", ".zstd"].iter().find_map(|ending| last.strip_suffix(ending)).unwrap_or(last);
    let usable = !plain.is_empty() && !plain.starts_with('.') && !plain.contains(['/', '%', '\\']);
    if usable {
        Ok(plain.to_owned())
    } else {
        Err(Error::Invalid(format!("{}: it has no name for a file; -o gives one", remote.url)))
    }
}
