//! A desk that is nothing but a picture in memory, for tests.

use crate::error::{Error, Result};
use crate::input::live;
use crate::screen::{CursorImage, CursorShape, Frame, FrameUpdate, Seen, absorb};
use crate::view::Viewer;
use crate::view::stage::Stage;
use hotdesk_api::action::{Rect, Size};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, watch};

#[derive(Clone)]
pub(super) struct Fake(pub(super) Arc<FakeInner>);

pub(super) struct FakeInner {
    pub(super) screen: watch::Sender<(Arc<Frame>, CursorImage)>,
    pub(super) down: Mutex<bool>,
    pub(super) clipboard: watch::Sender<u64>,
    pub(super) text: Mutex<String>,
    pub(super) touched: Mutex<Vec<live::Event>>,
    pub(super) asked_size: Mutex<Option<Size>>,
}

impl Fake {
    pub(super) fn new(size: Size) -> Self {
        let shape = CursorShape { width: 2, height: 2, hot_x: 0, hot_y: 0, pixels: vec![0xffff_ffff; 4] };
        let cursor = CursorImage { x: 10, y: 10, shape: Arc::new(shape), version: 1 };
        Self(Arc::new(FakeInner {
            screen: watch::channel((Arc::new(Frame::black(size, 1)), cursor)).0,
            down: Mutex::new(false),
            clipboard: watch::channel(0).0,
            text: Mutex::default(),
            touched: Mutex::default(),
            asked_size: Mutex::default(),
        }))
    }

    /// Fills a part of the screen by a rule.
    pub(super) fn draw(&self, rect: Rect, colour: impl Fn(u32, u32) -> u32) {
        self.0.screen.send_modify(|(frame, _)| {
            let mut pixels = frame.pixels().to_vec();
            let width = frame.size().width;
            for y in rect.y as u32..rect.y as u32 + rect.height {
                for x in rect.x as u32..rect.x as u32 + rect.width {
                    let at = (y * width + x) as usize * 4;
                    // The fourth byte means nothing, and is not always zero.
                    pixels[at..at + 4].copy_from_slice(&(colour(x, y) | 0xab00_0000).to_le_bytes());
                }
            }
            let version = frame.version() + 1;
            absorb(frame, 0, &pixels, version);
        });
    }

    pub(super) fn resize_to(&self, size: Size) {
        self.0.screen.send_modify(|(frame, _)| *frame = Arc::new(Frame::black(size, frame.version() + 1)));
    }

    pub(super) fn move_pointer(&self, x: i32, y: i32) {
        self.0.screen.send_modify(|(_, cursor)| *cursor = CursorImage { x, y, version: cursor.version + 1, ..cursor.clone() });
    }

    pub(super) fn pixels(&self) -> Vec<u32> {
        self.0.screen.borrow().0.pixels().as_chunks::<4>().0.iter().map(|p| u32::from_le_bytes(*p) & 0xff_ffff).collect()
    }

    fn look(&self) -> Result<FrameUpdate> {
        if *self.0.down.lock().unwrap() {
            return Err(Error::display_down("it was pulled out"));
        }
        let (frame, cursor) = self.0.screen.borrow().clone();
        let seen = Seen { frame: frame.version(), cursor: cursor.version };
        Ok(FrameUpdate { rects: vec![frame.area()], frame, cursor, seen })
    }
}

impl Stage for Fake {
    async fn frame(&self) -> Result<FrameUpdate> {
        self.look()
    }

    async fn next_frame(&self, seen: Seen) -> Result<FrameUpdate> {
        let mut screen = self.0.screen.subscribe();
        loop {
            let look = self.look()?;
            if look.seen != seen {
                return Ok(look);
            }
            screen.changed().await.map_err(Error::internal)?;
        }
    }

    async fn resize(&self, size: Size) -> Result<Size> {
        *self.0.asked_size.lock().unwrap() = Some(size);
        if size.width.max(size.height) > 1000 || size.width.min(size.height) == 0 {
            return Err(Error::Invalid("too large".into()));
        }
        self.resize_to(size);
        Ok(size)
    }

    fn hands(&self) -> mpsc::Sender<live::Event> {
        let (sender, mut events) = mpsc::channel(8);
        let this = self.clone();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                this.0.touched.lock().unwrap().push(event);
            }
        });
        sender
    }

    async fn copied_text(&self) -> Result<String> {
        Ok(self.0.text.lock().unwrap().clone())
    }

    async fn copy_text(&self, _: &Viewer, text: String) -> Result<()> {
        *self.0.text.lock().unwrap() = text;
        Ok(())
    }

    fn clipboard_changes(&self) -> watch::Receiver<u64> {
        self.0.clipboard.subscribe()
    }
}
