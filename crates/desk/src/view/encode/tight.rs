//! Tight: few colours as a deflated palette, photographs as JPEG, one colour as itself.
//!
//! A block is cut in bands, a band in tiles; neighbouring tiles of the same kind become one
//! rectangle. So text next to a photograph stays sharp, and large plain areas cost a few bytes.

use super::deflate::Deflater;
use super::palette::{MOST_COLOURS, Palette};
use super::{Block, Body};
use crate::view::pixel::Translator;
use crate::view::wishes::Encoding;
use hotdesk_api::action::Rect;
use jpeg_encoder::{ColorType, SamplingFactor};
use std::io;
use std::ops::Range;

/// Side of a tile. Small enough that text and pictures part, large enough for JPEG to pay.
const TILE: usize = 64;

/// Widest rectangle that viewers have to accept.
const WIDEST: usize = 2048;

/// Below this many pixels the tables of a JPEG are larger than what it saves.
const SMALLEST_JPEG: usize = 1024;

/// Data shorter than this is sent as it is, by the protocol.
const SHORTEST: usize = 12;

/// Our two of the four streams that the protocol has: few colours, and all colours.
const PALETTE_STREAM: u8 = 0;
const COLOUR_STREAM: u8 = 1;

/// JPEG's quality for the viewer's levels 0 to 9.
const QUALITY: [u8; 10] = [15, 25, 35, 45, 55, 65, 75, 82, 90, 97];

#[derive(Default)]
pub(super) struct Tight {
    level: u32,
    streams: [Stream; 2],
    tile: Palette,
    run: Palette,
    pixels: Vec<u32>,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Stream {
    deflater: Option<Deflater>,
    /// The viewer knows a stream that is no more.
    reset: bool,
}

/// What a tile, or a run of tiles, is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Solid,
    Two,
    Few,
    Many,
}

impl Tight {
    /// Changes zlib's level, from the next rectangle on.
    pub(super) fn set_level(&mut self, level: u32) {
        if level != self.level {
            self.level = level;
            for stream in &mut self.streams {
                stream.reset |= stream.deflater.take().is_some();
            }
        }
    }

    /// Keeps only small buffers.
    pub(super) fn rest(&mut self, kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(kept);
        self.pixels.clear();
        self.pixels.shrink_to(kept / 4);
    }

    pub(super) fn encode(
        &mut self,
        block: Block<'_>,
        quality: Option<u8>,
        translator: &Translator,
        body: &mut Body,
    ) -> io::Result<()> {
        for top in (0..usize::from(block.height)).step_by(TILE) {
            self.band(block.rows(top, TILE), quality, translator, body)?;
        }
        Ok(())
    }

    fn band(&mut self, band: Block<'_>, quality: Option<u8>, translator: &Translator, body: &mut Body) -> io::Result<()> {
        let width = usize::from(band.width);
        let mut run: Option<(Range<usize>, Kind)> = None;
        for left in (0..width).step_by(TILE) {
            let tile = left..(left + TILE).min(width);
            let kind = self.look(band, tile.clone());
            match &mut run {
                Some((span, of)) if *of == kind && tile.end - span.start <= WIDEST && self.joins(kind) => span.end = tile.end,
                _ => {
                    if let Some((span, kind)) = run.take() {
                        self.send(band, span, kind, quality, translator, body)?;
                    }
                    std::mem::swap(&mut self.run, &mut self.tile);
                    run = Some((tile, kind));
                }
            }
        }
        match run {
            Some((span, kind)) => self.send(band, span, kind, quality, translator, body),
            None => Ok(()),
        }
    }

    /// Finds the colours of a tile.
    fn look(&mut self, band: Block<'_>, tile: Range<usize>) -> Kind {
        self.tile.clear();
        let mut last = None;
        for y in 0..usize::from(band.height) {
            for &pixel in &band.row(y)[tile.clone()] {
                if Some(pixel) != last {
                    last = Some(pixel);
                    if !self.tile.insert(pixel) {
                        return Kind::Many;
                    }
                }
            }
        }
        match self.tile.colours().len() {
            0 | 1 => Kind::Solid,
            2 => Kind::Two,
            _ => Kind::Few,
        }
    }

    /// Whether the tile that was looked at last can be part of the run; if so, its colours are.
    fn joins(&mut self, kind: Kind) -> bool {
        match kind {
            Kind::Solid => self.run.merge(&self.tile, 1),
            Kind::Two => self.run.merge(&self.tile, 2),
            Kind::Few => self.run.merge(&self.tile, MOST_COLOURS),
            Kind::Many => true,
        }
    }

    /// Appends one rectangle.
    fn send(
        &mut self,
        band: Block<'_>,
        span: Range<usize>,
        kind: Kind,
        quality: Option<u8>,
        translator: &Translator,
        body: &mut Body,
    ) -> io::Result<()> {
        let (x, width) = (band.x + span.start as u16, span.len() as u16);
        body.rect(x, band.y, width, band.height, Encoding::Tight as i32);
        let rows = (0..usize::from(band.height)).map(|y| &band.row(y)[span.clone()]);
        self.bytes.clear();
        match kind {
            Kind::Solid => {
                body.bytes.push(self.resets() | 0x80);
                translator.write_tight(self.run.colours().get(..1).unwrap_or(&[0]), &mut body.bytes);
                Ok(())
            }
            Kind::Two => {
                let second = self.run.colours().get(1).copied();
                for row in rows {
                    // The first pixel is the highest bit.
                    let bits = |eight: &[u32]| {
                        eight.iter().enumerate().fold(0, |bits, (n, p)| bits | u8::from(Some(*p) == second) << (7 - n))
                    };
                    self.bytes.extend(row.chunks(8).map(bits));
                }
                self.send_indices(translator, &mut body.bytes)
            }
            Kind::Few => {
                let (mut last, mut index) = (u32::MAX, 0);
                for &pixel in rows.flatten() {
                    if pixel != last {
                        (last, index) = (pixel, self.run.index(pixel));
                    }
                    self.bytes.push(index);
                }
                self.send_indices(translator, &mut body.bytes)
            }
            Kind::Many => {
                self.pixels.clear();
                rows.for_each(|row| self.pixels.extend_from_slice(row));
                match quality.filter(|_| self.pixels.len() >= SMALLEST_JPEG && translator.format().bits > 8) {
                    Some(quality) => {
                        body.lossy.push(Rect { x: x.into(), y: band.y.into(), width: width.into(), height: band.height.into() });
                        self.send_jpeg(width, band.height, quality, &mut body.bytes)
                    }
                    None => {
                        body.bytes.push(self.resets() | COLOUR_STREAM << 4);
                        translator.write_tight(&self.pixels, &mut self.bytes);
                        self.deflate(COLOUR_STREAM, &mut body.bytes)
                    }
                }
            }
        }
    }

    fn send_indices(&mut self, translator: &Translator, out: &mut Vec<u8>) -> io::Result<()> {
        // 4: a filter is named; 1: the palette.
        out.extend([self.resets() | (4 | PALETTE_STREAM) << 4, 1, self.run.colours().len().saturating_sub(1) as u8]);
        translator.write_tight(self.run.colours(), out);
        self.deflate(PALETTE_STREAM, out)
    }

    fn send_jpeg(&mut self, width: u16, height: u16, quality: u8, out: &mut Vec<u8>) -> io::Result<()> {
        let level = usize::from(quality).min(QUALITY.len() - 1);
        self.bytes.extend(self.pixels.iter().flat_map(|p| p.to_le_bytes()));
        let mut jpeg = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut jpeg, QUALITY[level]);
        // Full colour resolution costs half as much again; what is lost is sent again anyway.
        let best = level == QUALITY.len() - 1;
        encoder.set_sampling_factor(if best { SamplingFactor::R_4_4_4 } else { SamplingFactor::R_4_2_0 });
        encoder.encode(&self.bytes, width, height, ColorType::Bgra).map_err(io::Error::other)?;
        out.push(self.resets() | 0x90);
        compact_length(jpeg.len(), out);
        out.extend(jpeg);
        Ok(())
    }

    /// Appends `self.bytes`, deflated where that is worth it.
    fn deflate(&mut self, stream: u8, out: &mut Vec<u8>) -> io::Result<()> {
        if self.bytes.len() < SHORTEST {
            out.extend_from_slice(&self.bytes);
            return Ok(());
        }
        let level = self.level;
        let deflater = self.streams[usize::from(stream)].deflater.get_or_insert_with(|| Deflater::new(level));
        // The length comes first and its own length depends on it.
        let at = out.len();
        deflater.append(&self.bytes, out)?;
        let mut length = Vec::with_capacity(3);
        compact_length(out.len() - at, &mut length);
        out.splice(at..at, length);
        Ok(())
    }

    /// The bits that tell the viewer which streams begin anew.
    fn resets(&mut self) -> u8 {
        self.streams.iter_mut().enumerate().fold(0, |bits, (n, stream)| bits | u8::from(std::mem::take(&mut stream.reset)) << n)
    }
}

/// Seven bits at a time, the last byte with eight: at most 4 MiB less one, and no rectangle comes near it.
fn compact_length(length: usize, out: &mut Vec<u8>) {
    match length {
        0..0x80 => out.push(length as u8),
        0x80..0x4000 => out.extend([length as u8 | 0x80, (length >> 7) as u8]),
        _ => out.extend([length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8]),
    }
}
