//! Brings bytes from a server into a file: many parts at once, or one stream.

use super::arrival::{Arrival, State, Take};
use super::remote::{Http, Trouble, text};
use crate::disk::source::is_zero;
use crate::disk::{Meter, at};
use crate::{Error, Result};
use futures_util::future::try_join_all;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Parts at once. One connection is often slowed down by the server; more than a few are often refused.
const CONNECTIONS: usize = 4;
/// So often in a row a part may fail without a single byte.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// A fetch with little room looks so often whether it may go on.
const MOMENT: Duration = Duration::from_millis(50);
/// Zeros of a disk that is not packed become holes in pieces of this size.
const BLOCK: u64 = 64 << 10;

/// All segments that are not there yet. `keep` names the file that remembers what is there.
pub(super) async fn ranges(
    http: &Http,
    whole: u64,
    part: Arc<File>,
    arrival: Arc<Arrival>,
    meter: &Meter,
    state: State,
    keep: Option<&Path>,
) -> Result<()> {
    let begin = state.from;
    let state = Mutex::new(state);
    let note = || -> Result<()> {
        let Some(path) = keep else { return Ok(()) };
        let mut state = state.lock().map_err(|_| Error::Failed("another part failed".into()))?;
        state.done = arrival.done();
        state.write(path)
    };
    note()?;
    let worker = async || -> Result<()> {
        loop {
            let (index, from, length) = match arrival.take() {
                Take::Segment { index, from, length } => (index, from, length),
                Take::Nothing => return Ok(()),
                Take::Failed(why) => return Err(Error::Failed(why)),
                Take::Wait => {
                    meter.check()?;
                    tokio::time::sleep(MOMENT).await;
                    continue;
                }
            };
            segment(http, whole, begin, from, length, &part, meter).await?;
            arrival.arrived(index);
            note()?;
        }
    };
    try_join_all((0..CONNECTIONS).map(|_| worker())).await?;
    Ok(())
}

async fn segment(http: &Http, whole: u64, begin: u64, from: u64, length: u64, part: &File, meter: &Meter) -> Result<()> {
    let (mut done, mut tries) = (0, 0);
    while done < length {
        let before = done;
        let trouble = match http.stream(begin + from + done, length - done, whole).await {
            Ok(response) => body(response, length, &mut done, from, part, meter).await?,
            Err(trouble) => Some(trouble),
        };
        meter.check()?;
        let why = match trouble {
            None if done >= length => break,
            None => "the server closed the connection".to_owned(),
            Some(Trouble::Passing(why)) => why,
            Some(Trouble::Final(why)) => return Err(Error::Failed(why)),
            Some(Trouble::Changed) => {
                return Err(Error::Invalid("the file on the server was changed while it was fetched; run it again".into()));
            }
        };
        tries = if done > before { 0 } else { tries + 1 };
        if tries == TRIES {
            return Err(Error::Failed(format!("{why} ({TRIES} tries)")));
        }
        tokio::time::sleep(LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.pow(tries))).await;
    }
    Ok(())
}

/// Writes what comes. An error is for good; what is returned may pass.
async fn body(
    mut response: reqwest::Response,
    length: u64,
    done: &mut u64,
    from: u64,
    part: &File,
    meter: &Meter,
) -> Result<Option<Trouble>> {
    loop {
        meter.check()?;
        match response.chunk().await {
            Ok(Some(data)) => {
                let data = &data[..(data.len() as u64).min(length - *done) as usize];
                write(part, data, from + *done)?;
                *done += data.len() as u64;
                meter.add(data.len() as u64);
                if *done == length {
                    return Ok(None);
                }
            }
            Ok(None) => return Ok(None),
            Err(e) => return Ok(Some(Trouble::Passing(text(&e)))),
        }
    }
}

/// Leaves holes where whole blocks are zero: the file began as one large hole.
fn write(part: &File, mut data: &[u8], mut at_byte: u64) -> Result<()> {
    while !data.is_empty() {
        let length = (BLOCK - at_byte % BLOCK).min(data.len() as u64) as usize;
        let (now, rest) = data.split_at(length);
        if !is_zero(now) {
            part.write_all_at(now, at_byte).map_err(|e| at(Path::new("the download"), &e))?;
        }
        (data, at_byte) = (rest, at_byte + length as u64);
    }
    Ok(())
}

/// The whole, in order. Its first bytes are told, so that somebody can say what it is.
pub(super) async fn stream(
    mut response: reqwest::Response,
    length: Option<u64>,
    part: Arc<File>,
    arrival: &Arrival,
    meter: &Meter,
    first: tokio::sync::oneshot::Sender<Vec<u8>>,
) -> Result<()> {
    let (mut done, mut first, mut head) = (0, Some(first), Vec::new());
    loop {
        meter.check()?;
        let data = match response.chunk().await {
            Ok(Some(data)) => data,
            Ok(None) => break,
            Err(e) => return Err(Error::Failed(format!("the server broke off after {done} bytes: {}", text(&e)))),
        };
        if head.len() < 4 {
            head.extend(data.iter().take(4));
        }
        if head.len() >= 4
            && let Some(first) = first.take()
        {
            let _ = first.send(head.clone());
        }
        write(&part, &data, done)?;
        done += data.len() as u64;
        // Zeros were not written, but they are read.
        part.set_len(done).map_err(|e| at(Path::new("the download"), &e))?;
        meter.add(data.len() as u64);
        arrival.reach(done);
    }
    if length.is_some_and(|length| done < length) {
        return Err(Error::Failed(format!("the server broke off after {done} bytes")));
    }
    if let Some(first) = first.take() {
        let _ = first.send(head);
    }
    Ok(())
}
