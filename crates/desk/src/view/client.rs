//! A small viewer, for tests.

use crate::view::decode::{Canvas, Cursor, Told};
use crate::view::pixel::PixelFormat;
use hotdesk_api::action::Size;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// What the server said, message by message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Update(Vec<Told>),
    ColourMap,
    CutText(Vec<u8>),
    EndOfContinuousUpdates,
    Fence { flags: u32, payload: Vec<u8> },
}

/// A viewer.
pub(super) struct Client<S> {
    pub(super) stream: S,
    pub(super) canvas: Canvas,
    bytes: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Shakes hands without a password.
    pub(super) async fn meet(mut stream: S) -> Self {
        let mut version = [0; 12];
        stream.read_exact(&mut version).await.unwrap();
        stream.write_all(b"RFB 003.008\n").await.unwrap();
        assert_eq!(take::<2>(&mut stream).await, [1, 1]);
        stream.write_all(&[1]).await.unwrap();
        assert_eq!(take::<4>(&mut stream).await, [0; 4]);
        stream.write_all(&[1]).await.unwrap();
        let hello = take::<24>(&mut stream).await;
        assert_eq!(hello[4..20], PixelFormat::NATIVE.bytes());
        let side = |at: usize| u32::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
        let mut name = vec![0; u32::from_be_bytes(hello[20..].try_into().unwrap()) as usize];
        stream.read_exact(&mut name).await.unwrap();
        let size = Size { width: side(0), height: side(2) };
        Self { stream, canvas: Canvas::new(size, PixelFormat::NATIVE), bytes: Vec::new() }
    }

    pub(super) async fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(super) async fn encodings(&mut self, numbers: &[i32]) {
        let mut message = vec![2, 0];
        message.extend((numbers.len() as u16).to_be_bytes());
        numbers.iter().for_each(|n| message.extend(n.to_be_bytes()));
        self.say(&message).await;
    }

    pub(super) async fn format(&mut self, format: PixelFormat) {
        let mut message = vec![0; 4];
        message.extend(format.bytes());
        self.canvas.format = format;
        self.say(&message).await;
    }

    pub(super) async fn request(&mut self, incremental: bool) {
        let mut message = vec![3, incremental.into(), 0, 0, 0, 0];
        message.extend((self.canvas.width as u16).to_be_bytes());
        message.extend((self.canvas.height as u16).to_be_bytes());
        self.say(&message).await;
    }

    /// The next message, whole.
    pub(super) async fn hear(&mut self) -> Said {
        loop {
            // Try with what is there; what is missing makes the reader panic, so measure first.
            if let Some((said, used)) = self.try_hear() {
                self.bytes.drain(..used);
                return said;
            }
            let mut more = [0; 65536];
            let n = timeout(Duration::from_secs(20), self.stream.read(&mut more)).await.expect("an answer").unwrap();
            assert!(n > 0, "the server closed the connection");
            self.bytes.extend_from_slice(&more[..n]);
        }
    }

    /// Hears until an update has come, and says what it told.
    pub(super) async fn update(&mut self) -> Vec<Told> {
        loop {
            if let Said::Update(told) = self.hear().await {
                return told;
            }
        }
    }

    /// Asks for changes until the picture is as wanted.
    pub(super) async fn catch_up(&mut self, wanted: impl Fn() -> Vec<u32>) {
        while self.canvas.pixels != wanted() {
            self.request(true).await;
            self.update().await;
        }
    }
}

impl Client<()> {
    /// After the handshake, when all has been said.
    pub(super) fn over(size: Size, bytes: Vec<u8>) -> Self {
        Self { stream: (), canvas: Canvas::new(size, PixelFormat::NATIVE), bytes }
    }
}

impl<S> Client<S> {
    /// The next message, if all of it is there, and its length.
    pub(super) fn try_hear(&mut self) -> Option<(Said, usize)> {
        let all = std::mem::take(&mut self.bytes);
        let length = message_length(&all, &self.canvas.format);
        let said = length.map(|length| {
            let mut c = Cursor(&all[..length]);
            let said = match c.u8() {
                0 => {
                    c.take(1);
                    let count = c.u16();
                    Said::Update((0..count).map(|_| self.canvas.rect(&mut c)).collect())
                }
                1 => {
                    c.take(length - 1);
                    Said::ColourMap
                }
                3 => {
                    c.take(3);
                    Said::CutText(c.take(length - 4).to_vec())
                }
                150 => Said::EndOfContinuousUpdates,
                _ => {
                    c.take(3);
                    let flags = c.u32();
                    let n = usize::from(c.u8());
                    Said::Fence { flags, payload: c.take(n).to_vec() }
                }
            };
            assert!(c.0.is_empty());
            (said, length)
        });
        self.bytes = all;
        said
    }

    /// Hears the next message without a look at it.
    pub(super) fn drop_next(&mut self) -> bool {
        let heard = self.try_hear().map(|(_, length)| self.bytes.drain(..length));
        heard.is_some()
    }
}

pub(super) async fn take<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// The length of the message at the front, once all of it is there.
fn message_length(bytes: &[u8], format: &PixelFormat) -> Option<usize> {
    let number = |at: usize, n: usize| Some(bytes.get(at..at + n)?.iter().fold(0usize, |all, b| all << 8 | usize::from(*b)));
    let length = match bytes.first()? {
        0 => {
            let mut at = 4;
            for _ in 0..number(2, 2)? {
                let (width, height, encoding) = (number(at + 4, 2)?, number(at + 6, 2)?, number(at + 8, 4)? as u32 as i32);
                at += 12;
                let pixel = usize::from(format.bits / 8);
                at += match encoding {
                    0 => width * height * pixel,
                    6 | 16 => 4 + number(at, 4)?,
                    7 => tight_length(bytes.get(at..)?, width, height, format)?,
                    -308 => 4 + 16 * number(at, 1)?,
                    -239 => width * height * pixel + width.div_ceil(8) * height,
                    -314 => 4 + width * height * 4,
                    0x574d_5664 => 2 + width * height * 4,
                    _ => 0,
                };
            }
            at
        }
        1 => 6 + 6 * number(4, 2)?,
        3 => 8 + (number(4, 4)? as u32 as i32).unsigned_abs() as usize,
        150 => 1,
        248 => 9 + number(8, 1)?,
        other => panic!("the server said {other}"),
    };
    (bytes.len() >= length).then_some(length)
}

fn tight_length(b: &[u8], width: usize, height: usize, format: &PixelFormat) -> Option<usize> {
    let pixel = if format.is_packed_in_tight() { 3 } else { usize::from(format.bits / 8) };
    let control = b.first()? >> 4;
    let data = |at: usize, size: usize| {
        if size < 12 {
            return Some(at + size);
        }
        let (mut length, mut n) = (0, 0);
        loop {
            let byte = usize::from(*b.get(at + n)?);
            length |= if n == 2 { byte << 14 } else { (byte & 127) << (7 * n) };
            n += 1;
            if byte & 128 == 0 || n == 3 {
                return Some(at + n + length);
            }
        }
    };
    match control {
        8 => Some(1 + pixel),
        9 => data(1, usize::MAX),
        4..8 => {
            let colours = usize::from(*b.get(2)?) + 1;
            data(3 + colours * pixel, if colours == 2 { width.div_ceil(8) * height } else { width * height })
        }
        _ => data(1, width * height * pixel),
    }
}
