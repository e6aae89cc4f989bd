//! Pictures of another form than the whole screen as PNG: a part, another size, JPEG, WebP.
//!
//! These are encoded from a frame, off the capture thread, and the last result of each form is kept.

use super::cursor::CursorImage;
use super::frame::{Frame, PIXEL, clip};
use super::memory::Memory;
use super::{Cursor, Format, FrameUpdate, Shot, ShotRequest, rgb, strips};
use crate::error::{Error, Result};
use bytes::Bytes;
use fast_image_resize as fir;
use hotdesk_api::action::{Point, Rect, Size};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Forms whose last picture is kept. An agent uses one or two.
const FORMS: usize = 8;

/// Kept pictures larger than this together are dropped, oldest first: the whole server has to stay small.
const KEPT_BYTES: usize = 6 << 20;

/// Pictures that are encoded at once; each may need a copy of the screen.
const AT_ONCE: usize = 2;

/// JPEG quality if none is asked for: text stays legible.
const QUALITY: u8 = 85;

/// Above this quality colours keep their full resolution, because whoever asks for it minds edges.
const FULL_COLOUR: u8 = 90;

/// The largest side of a WebP picture.
const WEBP_MOST: u32 = 16_383;

/// The largest side of a picture that is stretched: what no screen of ours has, and no model looks at.
const SIZE_MOST: u32 = 4096;

/// Encodes, and remembers.
pub(crate) struct Encoder {
    permits: Semaphore,
    /// The most recently used form is the last.
    kept: Mutex<Vec<(Form, Arc<Slot>)>>,
}

/// Everything that decides what a picture looks like, besides the pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    format: Format,
    cursor: Cursor,
    region: Rect2,
    size: (u32, u32),
    quality: u8,
}

/// `Rect` without a hash of its own.
type Rect2 = (i32, i32, u32, u32);

/// One form's last picture. Whoever wants the same form waits here for the one who encodes it.
#[derive(Default)]
struct Slot {
    last: tokio::sync::Mutex<Option<Shot>>,
    bytes: std::sync::atomic::AtomicUsize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { permits: Semaphore::new(AT_ONCE), kept: Mutex::default() }
    }
}

impl Encoder {
    pub(crate) async fn shot(&self, update: FrameUpdate, request: ShotRequest) -> Result<Shot> {
        let FrameUpdate { frame, cursor, .. } = update;
        let (form, region) = form_of(&request, frame.size())?;
        let touched = cursor.area(form.cursor, frame.size()).is_some_and(|area| overlap(area, region));
        let manner = if touched { form.cursor } else { Cursor::Hidden };
        let version = (frame.version_within(region), if touched { cursor.version } else { 0 });
        let etag = format!("\"{:x}-{:x}-{}\"", version.0, version.1, form.word());
        let slot = self.slot(form);
        let mut last = slot.last.lock().await;
        if let Some(shot) = last.as_ref().filter(|shot| shot.etag == etag) {
            return Ok(shot.clone());
        }
        // Never closed.
        let permit = self.permits.acquire().await.map_err(Error::internal)?;
        let size = Size { width: form.size.0, height: form.size.1 };
        let encode = move || encode(&frame, &cursor, manner, region, size, form.format, form.quality);
        let bytes =
            tokio::task::spawn_blocking(encode).await.map_err(|e| Error::internal(format!("encoding a picture: {e}")))??;
        drop(permit);
        let shot = Shot { bytes, etag, size };
        slot.bytes.store(shot.bytes.len(), std::sync::atomic::Ordering::Relaxed);
        *last = Some(shot.clone());
        drop(last);
        self.trim();
        Ok(shot)
    }

    pub(crate) async fn tiles(&self, frame: Arc<Frame>, rects: Vec<Rect>, format: Format, quality: u8) -> Result<Vec<Bytes>> {
        // Never closed.
        let _permit = self.permits.acquire().await.map_err(Error::internal)?;
        let encode = move || {
            let tile = |rect: Rect| {
                let size = Size { width: rect.width, height: rect.height };
                compress(&part(&frame, &CursorImage::none(), Cursor::Hidden, rect), size, format, quality)
            };
            rects.into_iter().filter_map(|rect| clip(rect, frame.size())).map(tile).collect()
        };
        tokio::task::spawn_blocking(encode).await.map_err(|e| Error::internal(format!("encoding pictures: {e}")))?
    }

    fn slot(&self, form: Form) -> Arc<Slot> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match kept.iter().position(|(f, _)| *f == form) {
            Some(n) => kept.remove(n).1,
            None => Arc::default(),
        };
        kept.push((form, Arc::clone(&slot)));
        slot
    }

    /// Forgets the oldest forms until few enough and small enough ones are left.
    fn trim(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let size = |slot: &Slot| slot.bytes.load(std::sync::atomic::Ordering::Relaxed);
        while kept.len() > FORMS || (kept.len() > 1 && kept.iter().map(|(_, s)| size(s)).sum::<usize>() > KEPT_BYTES) {
            kept.remove(0);
        }
    }
}

impl Form {
    /// The form as part of an entity tag.
    fn word(&self) -> String {
        let (x, y, w, h) = self.region;
        format!("{:?}-{:?}-{x}.{y}.{w}.{h}-{}.{}-{}", self.format, self.cursor, self.size.0, self.size.1, self.quality)
    }
}

/// Checks a request against the screen, and works out which part of it becomes how large.
fn form_of(request: &ShotRequest, screen: Size) -> Result<(Form, Rect)> {
    let whole = Rect { x: 0, y: 0, width: screen.width, height: screen.height };
    let asked = request.region.unwrap_or(whole);
    let Some(region) = clip(asked, screen) else {
        let Rect { x, y, width, height } = asked;
        return Err(Error::Invalid(format!(
            "the region {x},{y},{width},{height} lies outside of the screen of {}×{}",
            screen.width, screen.height
        )));
    };
    let scale = match request.scale {
        Some(scale) if scale > 0.0 && scale <= 1.0 => f64::from(scale),
        Some(scale) => return Err(Error::Invalid(format!("scale is {scale}, but must be above 0 and at most 1"))),
        None => 1.0,
    };
    let most = match request.max_width {
        Some(0) => return Err(Error::Invalid("max_width is 0, but must be at least 1".into())),
        Some(most) => f64::from(most) / f64::from(region.width),
        None => 1.0,
    };
    let factor = scale.min(most).min(1.0);
    let side = |pixels: u32| ((f64::from(pixels) * factor).round() as u32).clamp(1, pixels);
    let size = match request.size {
        None => (side(region.width), side(region.height)),
        Some(_) if request.scale.is_some() || request.max_width.is_some() => {
            return Err(Error::Invalid("size stands alone, without scale and max_width".into()));
        }
        Some(Size { width: 1..=SIZE_MOST, height: 1..=SIZE_MOST }) => request.size.map_or((1, 1), |s| (s.width, s.height)),
        Some(Size { width, height }) => {
            return Err(Error::Invalid(format!("size is {width}x{height}, but each side must be from 1 to {SIZE_MOST}")));
        }
    };
    if request.format == Format::Webp && (size.0 > WEBP_MOST || size.1 > WEBP_MOST) {
        return Err(Error::Invalid(format!("a WebP picture can't be larger than {WEBP_MOST} pixels on a side")));
    }
    let quality = match (request.format, request.quality) {
        (_, Some(0)) | (_, Some(101..)) => return Err(Error::Invalid("quality must be between 1 and 100".into())),
        (Format::Jpeg, quality) => quality.unwrap_or(QUALITY),
        // Lossless formats have none.
        _ => 0,
    };
    let form = Form {
        format: request.format,
        cursor: request.cursor,
        region: (region.x, region.y, region.width, region.height),
        size,
        quality,
    };
    Ok((form, region))
}

fn encode(
    frame: &Frame,
    cursor: &CursorImage,
    manner: Cursor,
    region: Rect,
    size: Size,
    format: Format,
    quality: u8,
) -> Result<Bytes> {
    let pixels = part(frame, cursor, manner, region);
    let full = Size { width: region.width, height: region.height };
    let pixels = if size == full { pixels } else { Part::Copy(scaled(&pixels, full, size)?) };
    compress(&pixels, size, format, quality)
}

/// Pixels of the frame itself, or a changed copy of some.
enum Part<'a> {
    Frame(&'a [u8]),
    Copy(Memory),
}

impl Deref for Part<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Frame(pixels) => pixels,
            Self::Copy(pixels) => pixels,
        }
    }
}

/// The region's pixels with the pointer on them; copied only if need be.
fn part<'a>(frame: &'a Frame, cursor: &CursorImage, manner: Cursor, region: Rect) -> Part<'a> {
    let rows = region.y as u32..region.y as u32 + region.height;
    let whole_rows = region.width == frame.size().width;
    if whole_rows && manner == Cursor::Hidden {
        return Part::Frame(frame.rows(rows));
    }
    let columns = region.x as usize * PIXEL..(region.x as usize + region.width as usize) * PIXEL;
    let mut copy = Memory::new(columns.len() * region.height as usize);
    for (y, row) in rows.zip(copy.chunks_exact_mut(columns.len())) {
        row.copy_from_slice(&frame.row(y)[columns.clone()]);
    }
    cursor.paint(manner, &mut copy, Point { x: region.x, y: region.y }, region.width);
    Part::Copy(copy)
}

fn scaled(pixels: &[u8], from: Size, to: Size) -> Result<Memory> {
    let failed = |e: &dyn std::fmt::Display| Error::internal(format!("scaling a picture: {e}"));
    let mut result = Memory::new(to.width as usize * to.height as usize * PIXEL);
    let source = fir::images::ImageRef::new(from.width, from.height, pixels, fir::PixelType::U8x4).map_err(|e| failed(&e))?;
    let target = fir::images::Image::from_slice_u8(to.width, to.height, &mut result, fir::PixelType::U8x4);
    let mut target = target.map_err(|e| failed(&e))?;
    // The fourth byte is no alpha. Lanczos keeps small text legible.
    let filter = fir::ResizeAlg::Convolution(fir::FilterType::Lanczos3);
    let options = fir::ResizeOptions::new().resize_alg(filter).use_alpha(false);
    fir::Resizer::new().resize(&source, &mut target, &options).map_err(|e| failed(&e))?;
    drop(target);
    Ok(result)
}

fn compress(pixels: &[u8], size: Size, format: Format, quality: u8) -> Result<Bytes> {
    match format {
        Format::Png => strips::png_of(pixels, size),
        Format::Jpeg => {
            let (Ok(width), Ok(height)) = (size.width.try_into(), size.height.try_into()) else {
                return Err(Error::Invalid("a JPEG picture can't be larger than 65535 pixels on a side".into()));
            };
            let mut bytes = Vec::new();
            let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, quality);
            let full = quality > FULL_COLOUR;
            encoder.set_sampling_factor(if full {
                jpeg_encoder::SamplingFactor::F_1_1
            } else {
                jpeg_encoder::SamplingFactor::F_2_2
            });
            let done = encoder.encode(pixels, width, height, jpeg_encoder::ColorType::Bgra);
            done.map_err(|e| Error::internal(format!("JPEG: {e}")))?;
            Ok(bytes.into())
        }
        Format::Webp => {
            let mut rgb = Memory::new(pixels.len() / PIXEL * rgb::RGB);
            rgb::plain(pixels, &mut rgb);
            let mut bytes = Vec::new();
            let encoder = image_webp::WebPEncoder::new(&mut bytes);
            let done = encoder.encode(&rgb, size.width, size.height, image_webp::ColorType::Rgb8);
            done.map_err(|e| Error::internal(format!("WebP: {e}")))?;
            Ok(bytes.into())
        }
    }
}

fn overlap(a: Rect, b: Rect) -> bool {
    let apart = |a: i32, a_length: u32, b: i32, b_length: u32| {
        i64::from(a) + i64::from(a_length) <= i64::from(b) || i64::from(b) + i64::from(b_length) <= i64::from(a)
    };
    !apart(a.x, a.width, b.x, b.width) && !apart(a.y, a.height, b.y, b.height)
}
