//! The clipboard on the wire: Latin-1 in the old message, UTF-8 in the extended one.

use flate2::{Decompress, FlushDecompress, Status};
use std::io::{self, Write};

/// What one side may say; bits of the extended message's flags.
pub(super) mod action {
    pub(crate) const CAPABILITIES: u32 = 1 << 24;
    pub(crate) const REQUEST: u32 = 1 << 25;
    pub(crate) const PEEK: u32 = 1 << 26;
    pub(crate) const NOTIFY: u32 = 1 << 27;
    pub(crate) const PROVIDE: u32 = 1 << 28;
    pub(crate) const ALL: u32 = CAPABILITIES | REQUEST | PEEK | NOTIFY | PROVIDE;
}

/// The one kind of content that we pass on.
pub(super) const TEXT: u32 = 1;

/// Longest text in either direction: what is put on the clipboard here is sent to every viewer.
pub(super) const LONGEST_TEXT: usize = 4 << 20;

/// `ServerCutText` for viewers that know nothing better. What Latin-1 lacks becomes `?`.
pub(super) fn plain(text: &str) -> Vec<u8> {
    let latin: Vec<u8> = text.chars().take(LONGEST_TEXT).map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect();
    let mut out = vec![3, 0, 0, 0];
    out.extend((latin.len() as u32).to_be_bytes());
    out.extend(latin);
    out
}

/// Latin-1 as text.
pub(super) fn latin(bytes: &[u8]) -> String {
    normal(&bytes.iter().map(|b| char::from(*b)).collect::<String>())
}

/// An extended message without content. Its length is negative: that is its mark.
pub(super) fn extended(flags: u32) -> Vec<u8> {
    message(flags, &[])
}

/// What we can do. The size is the longest text that we want unasked.
pub(super) fn capabilities() -> Vec<u8> {
    message(action::ALL | TEXT, &0u32.to_be_bytes())
}

/// The clipboard's text.
pub(super) fn provide(text: &str) -> io::Result<Vec<u8>> {
    let text = text.get(..text.floor_char_boundary(LONGEST_TEXT)).unwrap_or_default();
    // The protocol wants line ends of DOS and a zero at the end.
    let mut content = text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes();
    content.push(0);
    let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    deflated.write_all(&(content.len() as u32).to_be_bytes())?;
    deflated.write_all(&content)?;
    Ok(message(action::PROVIDE | TEXT, &deflated.finish()?))
}

/// The text of a viewer's "provide". None if it is broken or too long.
pub(super) fn provided(flags: u32, data: &[u8]) -> Option<String> {
    if flags & TEXT == 0 {
        return None;
    }
    // Text is the lowest of the formats, so it comes first; the rest need not be inflated.
    let mut stream = Decompress::new(true);
    let head = inflate(&mut stream, data, 4)?;
    let length = u32::from_be_bytes(head.as_slice().try_into().ok()?) as usize;
    if length > LONGEST_TEXT {
        return None;
    }
    let rest = data.get(stream.total_in() as usize..)?;
    let mut content = inflate(&mut stream, rest, length)?;
    while content.last() == Some(&0) {
        content.pop();
    }
    Some(normal(&String::from_utf8_lossy(&content)))
}

fn normal(text: &str) -> String {
    text.replace("\r\n", "\n")
}

fn message(flags: u32, data: &[u8]) -> Vec<u8> {
    let mut out = vec![3, 0, 0, 0];
    out.extend((-(4 + data.len() as i32)).to_be_bytes());
    out.extend(flags.to_be_bytes());
    out.extend(data);
    out
}

/// Exactly so many bytes more of a stream; none if it ends before or is broken.
fn inflate(stream: &mut Decompress, mut input: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; length];
    let mut done = 0;
    while done < length {
        let (before_in, before_out) = (stream.total_in(), stream.total_out());
        let status = stream.decompress(input, &mut out[done..], FlushDecompress::None).ok()?;
        let (read, written) = ((stream.total_in() - before_in) as usize, (stream.total_out() - before_out) as usize);
        input = input.get(read..)?;
        done += written;
        if done < length && (status == Status::StreamEnd || read + written == 0) {
            return None;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a viewer finds in our message.
    fn body(message: &[u8]) -> (u32, &[u8]) {
        assert_eq!(message[0], 3);
        let length = i32::from_be_bytes(message[4..8].try_into().unwrap());
        assert_eq!(-length, message.len() as i32 - 8);
        (u32::from_be_bytes(message[8..12].try_into().unwrap()), &message[12..])
    }

    #[test]
    fn text_goes_and_comes() {
        for text in ["", "a", "über\nzwei Zeilen 日本 🙂", &"long ".repeat(100_000)] {
            let message = provide(text).unwrap();
            let (flags, data) = body(&message);
            assert_eq!(flags, action::PROVIDE | TEXT);
            assert_eq!(provided(flags, data).as_deref(), Some(text));
        }
    }

    #[test]
    fn old_viewers_get_latin() {
        assert_eq!(plain("aé€"), [3, 0, 0, 0, 0, 0, 0, 3, b'a', 0xe9, b'?']);
        assert_eq!(latin(&[b'a', 0xe9, b'\r', b'\n']), "aé\n");
    }

    #[test]
    fn bombs_and_rubbish_are_refused() {
        let mut bomb = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        bomb.write_all(&u32::MAX.to_be_bytes()).unwrap();
        bomb.write_all(&vec![0; 1 << 20]).unwrap();
        assert_eq!(provided(TEXT, &bomb.finish().unwrap()), None);
        assert_eq!(provided(TEXT, b""), None);
        assert_eq!(provided(TEXT, b"rubbish"), None);
        assert_eq!(provided(0, b""), None);
        // A length that the stream does not keep.
        let mut short = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        short.write_all(&[0, 0, 1, 0, b'x']).unwrap();
        assert_eq!(provided(TEXT, &short.finish().unwrap()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(flags: u32, data: Vec<u8>) {
            provided(flags, &data);
        }
    }
}
