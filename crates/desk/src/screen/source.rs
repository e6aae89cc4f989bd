//! The X server's side of a capture: what changed, the pixels, the pointer.
//!
//! A capture must show one moment. One request for pixels does, but fetching only the damaged rows leaves the others as they were
//! some microseconds ago. So: take the damage away first, then fetch its rows, then look whether new damage arrived before the last
//! pixels did. If so, the rows may belong to different moments, and one request for the whole screen settles it.

use super::cursor::{CursorImage, CursorShape};
use super::frame::{Frame, PIXEL, absorb};
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::place::Display;
use hotdesk_api::action::Size;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::ReplyError;
use x11rb::protocol::damage::{self, ReportLevel};
use x11rb::protocol::randr::{self, NotifyMask};
use x11rb::protocol::xfixes::{self, ConnectionExt as _, GetCursorImageReply};
use x11rb::protocol::xproto::{
    self, ChangeWindowAttributesAux, ConnectionExt as _, EventMask, ImageFormat, ImageOrder, Rectangle,
};
use x11rb::protocol::{ErrorKind, Event, shm};
use x11rb::rust_connection::RustConnection;

/// Damaged rows nearer to each other than this are fetched together: a request costs as much as some dozen rows.
const GAP: u32 = 32;

/// How often a capture starts again because the screen's size changed under it.
const TRIES: usize = 4;

/// Planes of a pixel: all.
const ALL_PLANES: u32 = u32::MAX;

/// A connection to the X server, set up for capturing.
pub(crate) struct Source {
    connection: RustConnection,
    root: u32,
    size: Size,
    depth: u8,
    shared: bool,
    segment: Option<Segment>,
    damage: Option<Damage>,
    has_cursor: bool,
    /// Nothing was captured yet, so everything is damaged.
    everything: bool,
    /// The size may have changed.
    resized: bool,
    /// Damage that has not been looked at.
    dirty: bool,
    /// The sequence number of the last request that took damage away.
    taken: u64,
}

/// The server's record of what was drawn, and a place to fetch it to.
struct Damage {
    damage: damage::Damage,
    region: xfixes::Region,
}

impl Source {
    pub(crate) fn connect(display: &Display) -> Result<Self> {
        let (connection, number) = display.connect()?;
        let setup = connection.setup();
        let screen = setup.roots.get(number).ok_or_else(|| Error::display_down("it has no screen"))?;
        let (root, depth) = (screen.root, screen.root_depth);
        check_pixels(setup, screen)?;
        let size = Size { width: screen.width_in_pixels.into(), height: screen.height_in_pixels.into() };
        for extension in
            [shm::X11_EXTENSION_NAME, damage::X11_EXTENSION_NAME, xfixes::X11_EXTENSION_NAME, randr::X11_EXTENSION_NAME]
        {
            connection.prefetch_extension_information(extension)?;
        }
        let has = |name| Ok::<_, Error>(connection.extension_information(name)?.is_some());
        let has_cursor = has(xfixes::X11_EXTENSION_NAME)? && connection.xfixes_query_version(5, 0)?.reply().is_ok();
        let shared = has(shm::X11_EXTENSION_NAME)?
            && shm::query_version(&connection)?.reply().is_ok_and(|v| (v.major_version, v.minor_version) >= (1, 2));
        let aux = ChangeWindowAttributesAux::new().event_mask(EventMask::STRUCTURE_NOTIFY);
        connection.change_window_attributes(root, &aux)?;
        if has(randr::X11_EXTENSION_NAME)? {
            randr::select_input(&connection, root, NotifyMask::SCREEN_CHANGE)?;
        }
        let damage = match has_cursor && has(damage::X11_EXTENSION_NAME)? {
            true => Some(Damage::create(&connection, root)?),
            false => None,
        };
        Ok(Self {
            connection,
            root,
            size,
            depth,
            shared,
            segment: None,
            damage,
            has_cursor,
            everything: true,
            resized: true,
            dirty: true,
            taken: 0,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.connection.stream().as_fd()
    }

    pub(crate) fn connection(&self) -> &RustConnection {
        &self.connection
    }

    pub(crate) fn root(&self) -> u32 {
        self.root
    }

    pub(crate) fn depth(&self) -> u8 {
        self.depth
    }

    /// Whether the X server tells when something is drawn. If not, somebody has to look again and again.
    pub(crate) fn reports(&self) -> bool {
        self.damage.is_some()
    }

    /// Reads what the X server has told meanwhile; true if there is something to capture.
    pub(crate) fn heed(&mut self) -> Result<bool> {
        while let Some((event, sequence)) = self.connection.poll_for_event_with_sequence()? {
            match event {
                // An event that was sent before the damage was taken away tells of what was taken.
                Event::DamageNotify(_) if sequence >= self.taken => self.dirty = true,
                Event::RandrScreenChangeNotify(_) => self.resized = true,
                Event::ConfigureNotify(e) if e.window == self.root => self.resized = true,
                _ => {}
            }
        }
        Ok(self.dirty || self.resized)
    }

    /// Brings the frame and the pointer up to date. The frame gets a new version if a pixel changed.
    pub(crate) fn capture(&mut self, frame: &mut Arc<Frame>, cursor: &mut CursorImage) -> Result<()> {
        for _ in 0..TRIES {
            self.heed()?;
            if self.resized {
                self.measure()?;
            }
            if frame.size() != self.size {
                *frame = Arc::new(Frame::black(self.size, frame.version() + 1));
                self.everything = true;
            }
            match self.try_capture(frame, cursor) {
                // The damage was taken away, but not used.
                Err(Refused::Size) => (self.resized, self.everything) = (true, true),
                Err(Refused::Other(e)) => return Err(e),
                Ok(()) => return Ok(()),
            }
        }
        Err(Error::display_down("its size keeps changing"))
    }

    fn try_capture(&mut self, frame: &mut Arc<Frame>, cursor: &mut CursorImage) -> Result<(), Refused> {
        let pointer = match self.has_cursor {
            true => Some(self.connection.xfixes_get_cursor_image()?),
            false => None,
        };
        // One round trip for both: the pointer and the damage.
        let region = match &self.damage {
            Some(d) => {
                self.taken = d.take(&self.connection)?;
                Some(xfixes::fetch_region(&self.connection, d.region)?)
            }
            None => None,
        };
        let whole = 0..self.size.height;
        let mut rows = match region.map(|r| r.reply()).transpose()? {
            Some(region) if !self.everything => rows_of(&region.rectangles, self.size.height),
            _ => vec![whole.clone()],
        };
        self.dirty = false;
        match pointer.map(|p| p.reply()).transpose() {
            Ok(Some(reply)) => take_cursor(cursor, reply),
            // No XFixes, or no cursor: a pointer without a picture.
            Ok(None) | Err(ReplyError::X11Error(_)) => {
                let reply = self.connection.query_pointer(self.root)?.reply()?;
                take_cursor(cursor, GetCursorImageReply { x: reply.root_x, y: reply.root_y, ..Default::default() });
            }
            Err(e) => return Err(e.into()),
        }
        if rows.is_empty() {
            return Ok(());
        }
        let mut pixels = self.fetch(&rows)?;
        self.heed()?;
        if self.dirty && rows.first() != Some(&whole) {
            if let Some(d) = &self.damage {
                self.taken = d.take(&self.connection)?;
            }
            rows = vec![whole];
            pixels = self.fetch(&rows)?;
            self.dirty = false;
            self.heed()?;
        }
        self.absorb(frame, &rows, pixels);
        self.everything = false;
        Ok(())
    }

    /// Asks for rows, and waits for them.
    fn fetch(&mut self, rows: &[Range<u32>]) -> Result<Pixels, Refused> {
        if self.shared && self.segment.is_none() {
            let length = self.size.width as usize * self.size.height as usize * PIXEL;
            match Segment::attach(&self.connection, length) {
                Ok(segment) => self.segment = Some(segment),
                Err(e @ Error::Unavailable { .. }) => return Err(Refused::Other(e)),
                // A server on another machine has the extension, but no way to our memory.
                Err(e) => {
                    tracing::info!("pictures are copied through the X connection: {e}");
                    self.shared = false;
                }
            }
        }
        let (width, stride) = (self.size.width as u16, self.size.width * PIXEL as u32);
        let format = ImageFormat::Z_PIXMAP;
        if let Some(segment) = &self.segment {
            let ask = |r: &Range<u32>| {
                let (y, height) = (r.start as i16, (r.end - r.start) as u16);
                let offset = r.start * stride;
                shm::get_image(&self.connection, self.root, 0, y, width, height, ALL_PLANES, format.into(), segment.id, offset)
            };
            let asked = rows.iter().map(ask).collect::<Result<Vec<_>, _>>()?;
            // Every reply is awaited, also after an error: until then the X server may write to the memory.
            let replies: Vec<_> = asked.into_iter().map(|cookie| cookie.reply()).collect();
            for reply in replies {
                reply?;
            }
            return Ok(Pixels::Shared);
        }
        let ask = |r: &Range<u32>| {
            let (y, height) = (r.start as i16, (r.end - r.start) as u16);
            xproto::get_image(&self.connection, format, self.root, 0, y, width, height, ALL_PLANES)
        };
        let asked = rows.iter().map(ask).collect::<Result<Vec<_>, _>>()?;
        let copies = asked.into_iter().map(|cookie| cookie.reply().map(|image| image.data)).collect::<Result<Vec<_>, _>>()?;
        Ok(Pixels::Copied(copies))
    }

    fn absorb(&mut self, frame: &mut Arc<Frame>, rows: &[Range<u32>], pixels: Pixels) {
        let (stride, version) = (frame.stride(), frame.version() + 1);
        match (pixels, &mut self.segment) {
            (Pixels::Copied(parts), _) => {
                for (r, part) in rows.iter().zip(parts) {
                    absorb(frame, r.start, &part, version);
                }
            }
            (Pixels::Shared, Some(segment)) => {
                let bytes = segment.bytes();
                for r in rows {
                    let fresh = bytes.get(r.start as usize * stride..r.end as usize * stride).unwrap_or(&[]);
                    absorb(frame, r.start, fresh, version);
                }
            }
            (Pixels::Shared, None) => {}
        }
    }

    /// Asks for the size and makes room for it.
    fn measure(&mut self) -> Result<()> {
        let geometry = self.connection.get_geometry(self.root)?.reply()?;
        let size = Size { width: geometry.width.into(), height: geometry.height.into() };
        self.resized = false;
        if size != self.size {
            self.size = size;
            self.everything = true;
            if let Some(segment) = self.segment.take() {
                segment.detach(&self.connection);
            }
        }
        Ok(())
    }
}

impl Damage {
    fn create(connection: &RustConnection, root: u32) -> Result<Self> {
        damage::query_version(connection, 1, 1)?.reply()?;
        let (damage, region) = (connection.generate_id()?, connection.generate_id()?);
        // One event when damage begins, then silence until it is taken away: an animation that nobody looks at costs nothing.
        damage::create(connection, damage, root, ReportLevel::NON_EMPTY)?.check()?;
        xfixes::create_region(connection, region, &[])?.check()?;
        Ok(Self { damage, region })
    }

    /// Moves the damage to the region and returns the request's number.
    fn take(&self, connection: &RustConnection) -> Result<u64, x11rb::errors::ConnectionError> {
        Ok(damage::subtract(connection, self.damage, x11rb::NONE, self.region)?.sequence_number())
    }
}

/// Where fetched rows are.
enum Pixels {
    /// In the segment, each row at its place.
    Shared,
    Copied(Vec<Vec<u8>>),
}

/// Why a capture did not work out.
enum Refused {
    /// The screen is no longer as large as we thought.
    Size,
    Other(Error),
}

impl From<Error> for Refused {
    fn from(e: Error) -> Self {
        Self::Other(e)
    }
}

impl From<x11rb::errors::ConnectionError> for Refused {
    fn from(e: x11rb::errors::ConnectionError) -> Self {
        Self::Other(e.into())
    }
}

impl From<ReplyError> for Refused {
    fn from(e: ReplyError) -> Self {
        match e {
            ReplyError::X11Error(ref x) if x.error_kind == ErrorKind::Match => Self::Size,
            e => Self::Other(e.into()),
        }
    }
}

/// Only the layout that every X server of today uses for true colour is understood.
fn check_pixels(setup: &xproto::Setup, screen: &xproto::Screen) -> Result<()> {
    let bits = setup.pixmap_formats.iter().find(|f| f.depth == screen.root_depth).map_or(0, |f| f.bits_per_pixel);
    let visual = screen.allowed_depths.iter().flat_map(|d| &d.visuals).find(|v| v.visual_id == screen.root_visual);
    let masks = visual.map_or((0, 0, 0), |v| (v.red_mask, v.green_mask, v.blue_mask));
    if bits == 32 && masks == (0xff_0000, 0xff00, 0xff) && setup.image_byte_order == ImageOrder::LSB_FIRST {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: "capturing this screen".into(),
        reason: format!("its depth is {} with {bits} bits per pixel", screen.root_depth),
        hint: "start the X server with a depth of 24 (Xvfb: -screen 0 1920x1080x24)".into(),
    })
}

/// Whole rows that cover all rectangles, few and in order.
fn rows_of(rectangles: &[Rectangle], height: u32) -> Vec<Range<u32>> {
    let mut spans: Vec<Range<u32>> = rectangles
        .iter()
        .map(|r| {
            let top = i32::from(r.y).max(0) as u32;
            let bottom = (i32::from(r.y) + i32::from(r.height)).max(0) as u32;
            top..bottom.min(height)
        })
        .filter(|span| span.start < span.end)
        .collect();
    spans.sort_unstable_by_key(|span| span.start);
    let mut rows: Vec<Range<u32>> = Vec::new();
    for span in spans {
        match rows.last_mut() {
            Some(last) if span.start <= last.end + GAP => last.end = last.end.max(span.end),
            _ => rows.push(span),
        }
    }
    rows
}

/// Keeps the shape if it is the same, and counts moves and changes.
fn take_cursor(cursor: &mut CursorImage, r: GetCursorImageReply) {
    let (x, y) = (i32::from(r.x), i32::from(r.y));
    let (hot_x, hot_y) = (r.xhot.into(), r.yhot.into());
    let shape = CursorShape { width: r.width.into(), height: r.height.into(), hot_x, hot_y, pixels: r.cursor_image };
    if *cursor.shape != shape {
        cursor.shape = Arc::new(shape);
    } else if (cursor.x, cursor.y) == (x, y) && cursor.version > 0 {
        return;
    }
    (cursor.x, cursor.y) = (x, y);
    cursor.version += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rectangle(y: i16, height: u16) -> Rectangle {
        Rectangle { x: 0, y, width: 1, height }
    }

    #[test]
    fn near_rows_are_fetched_together() {
        assert_eq!(rows_of(&[], 100), vec![]);
        assert_eq!(rows_of(&[rectangle(5, 5), rectangle(20, 10), rectangle(6, 1)], 1000), vec![5..30]);
        assert_eq!(rows_of(&[rectangle(500, 10), rectangle(5, 5)], 1000), vec![5..10, 500..510]);
    }

    #[test]
    fn rows_outside_of_the_screen_are_cut_off() {
        assert_eq!(
            rows_of(&[rectangle(-10, 20), rectangle(90, 50), rectangle(200, 5), rectangle(-30, 5)], 100),
            vec![0..10, 90..100]
        );
    }

    #[test]
    fn the_pointer_has_a_version() {
        let mut cursor = CursorImage::none();
        let reply = |x| GetCursorImageReply { x, width: 1, height: 1, cursor_image: vec![7], ..Default::default() };
        for (x, version) in [(1, 1), (1, 1), (2, 2), (1, 3)] {
            take_cursor(&mut cursor, reply(x));
            assert_eq!(cursor.version, version);
        }
        take_cursor(&mut cursor, GetCursorImageReply::default());
        assert_eq!((cursor.version, cursor.shape.width), (4, 0));
    }
}
