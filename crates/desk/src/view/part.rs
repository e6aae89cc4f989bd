//! The work of an update: copying parts of the screen, painting the pointer on them, encoding them.

use super::cursor;
use super::encode::{Block, Body, Encoder};
use crate::screen::{CursorImage, Frame, PIXEL};
use hotdesk_api::action::Rect;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Parts of the screen at one moment.
pub(super) struct Part {
    pub frame: Arc<Frame>,
    pub rects: Vec<Rect>,
    /// To be painted.
    pub pointer: Option<CursorImage>,
    /// Without any loss.
    pub exact: bool,
}

/// What came of it.
pub(super) struct Done {
    pub encoder: Box<Encoder>,
    pub body: Body,
    /// What did not fit.
    pub left_over: Vec<Rect>,
    /// What it took of a core.
    pub cost: Duration,
}

impl Part {
    /// Appends the rectangles to the body. Takes milliseconds: not for async code.
    pub(super) fn encode(self, mut encoder: Box<Encoder>, mut body: Body) -> io::Result<Done> {
        let start = cpu_time();
        let mut pixels = Vec::with_capacity(self.rects.iter().map(|r| r.width as usize * r.height as usize).sum());
        self.rects.iter().for_each(|rect| copy(&self.frame, *rect, &mut pixels));
        // The capture engine has to copy a frame that is held while it changes.
        drop(self.frame);
        let (mut rest, mut left_over) = (&mut pixels[..], Vec::new());
        for rect in self.rects {
            let (part, others) = rest.split_at_mut(rect.width as usize * rect.height as usize);
            rest = others;
            if body.is_full() {
                left_over.push(rect);
                continue;
            }
            if let Some(pointer) = &self.pointer {
                cursor::paint(pointer, rect, part);
            }
            let side = |n: u32| n.min(u16::MAX.into()) as u16;
            let (x, y) = (side(rect.x as u32), side(rect.y as u32));
            let block = Block { x, y, width: side(rect.width), height: side(rect.height), pixels: part };
            encoder.encode(block, self.exact, &mut body)?;
        }
        encoder.rest();
        Ok(Done { encoder, body, left_over, cost: cpu_time().saturating_sub(start) })
    }
}

/// Appends a part of the screen. What lies beside the screen is black.
fn copy(frame: &Frame, rect: Rect, out: &mut Vec<u32>) {
    let (left, width) = (rect.x.max(0) as usize * PIXEL, rect.width as usize * PIXEL);
    for y in 0..rect.height {
        let row = frame.row(rect.y.max(0) as u32 + y);
        let part = row.get(left.min(row.len())..(left + width).min(row.len())).unwrap_or_default();
        let start = out.len();
        out.extend(part.as_chunks::<PIXEL>().0.iter().map(|p| u32::from_le_bytes(*p) & 0x00ff_ffff));
        out.resize(start + rect.width as usize, 0);
    }
}

/// What this thread has used of a core. Waiting for one is not the viewer's cost.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}
