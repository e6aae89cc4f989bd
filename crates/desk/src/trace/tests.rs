//! Files: what is written is read again, whatever became of the file meanwhile.

mod desk;

use super::format::{HEADER, Head, SIGNATURE};
use super::reader::Reader;
use super::writer::Writer;
use crate::screen::{Frame, absorb};
use hotdesk_api::action::{Action, Point, Size};
use hotdesk_api::trace::{By, Deed, Step, StepResult};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn head() -> Head {
    Head {
        id: "t-abcabcabcabc".into(),
        name: Some("a run".into()),
        desk: None,
        started: "2026-01-01T00:00:00Z".into(),
        width: 80,
        height: 40,
        writer: "test".into(),
        mask: Default::default(),
    }
}

pub(super) fn step(number: u64, before: Option<String>, after: Option<String>) -> Step {
    let click = Action::Click { at: Some(Point { x: 1, y: 2 }), button: Default::default(), times: 1, hold: Vec::new() };
    Step {
        number,
        at: "2026-01-01T00:00:01Z".into(),
        offset_ms: 1000,
        took_ms: 1.5,
        by: By::default(),
        entrance: "v1".into(),
        actions: vec![Deed::Hands(click)],
        result: StepResult::Done,
        message: None,
        before,
        after,
        tree: false,
        snapshot: None,
    }
}

/// A frame whose row `y` has the colour that `paint` says.
fn painted(frame: &mut Arc<Frame>, version: u64, paint: impl Fn(u32, u32) -> u32) {
    let Size { width, height } = frame.size();
    let pixels: Vec<u8> = (0..width * height).flat_map(|n| (paint(n % width, n / width) | 0x7f00_0000).to_le_bytes()).collect();
    absorb(frame, 0, &pixels, version);
}

/// Red, green and blue of a PNG.
fn decoded(png: &[u8]) -> (Size, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (Size { width: info.width, height: info.height }, pixels)
}

/// Three steps with two pictures each, and a tree; the offsets at which records end.
fn sample(folder: &Path) -> (PathBuf, Vec<u64>) {
    let path = folder.join("sample.hdtrace");
    let mut writer = Writer::create(&path, &head(), 1 << 30).unwrap();
    let mut ends = vec![writer.bytes()];
    let mut frame = Arc::new(Frame::black(Size { width: 80, height: 40 }, 1));
    for number in 1..=3u64 {
        let before = writer.frame(&frame).unwrap();
        painted(&mut frame, number + 1, |x, y| if y / 16 == 1 { x * number as u32 } else { 7 });
        let after = writer.frame(&frame).unwrap();
        ends.push(writer.bytes());
        writer.tree(number, br#"{"apps":[],"complete":true}"#).unwrap();
        ends.push(writer.bytes());
        writer.step(&step(number, Some(before), Some(after))).unwrap();
        ends.push(writer.bytes());
    }
    writer.end("2026-01-01T00:00:09Z".into(), None).unwrap();
    ends.push(writer.bytes());
    (path, ends)
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = sample(folder.path());
    let reader = Reader::open(&path).unwrap();
    let info = reader.info();
    assert_eq!((info.steps, info.complete, info.width), (3, true, 80));
    assert_eq!(info.bytes, std::fs::metadata(&path).unwrap().len());
    let steps = reader.steps(1, 1).unwrap();
    assert_eq!(steps.iter().map(|step| step.number).collect::<Vec<_>>(), [2]);
    assert_eq!(steps[0].before, reader.steps(0, 9).unwrap()[0].after);
    let (size, pixels) = decoded(&reader.frame(steps[0].after.as_ref().unwrap()).unwrap());
    assert_eq!(size, Size { width: 80, height: 40 });
    // Blue of the tenth column: in the second strip, and outside of it.
    assert_eq!((pixels[(20 * 80 + 10) * 3 + 2], pixels[10 * 3 + 2]), (20, 7));
    assert_eq!(reader.tree(3).unwrap(), br#"{"apps":[],"complete":true}"#);
    assert!(reader.tree(4).is_err() && reader.frame("00").is_err() && reader.frame(&"0".repeat(32)).is_err());
}

#[test]
fn what_did_not_change_is_kept_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&folder.path().join("t.hdtrace"), &head(), 1 << 30).unwrap();
    let mut frame = Arc::new(Frame::black(Size { width: 1920, height: 1080 }, 1));
    painted(&mut frame, 2, |x, y| (x * y) & 0xff_ffff);
    let first = writer.frame(&frame).unwrap();
    let whole = writer.bytes();
    assert_eq!(writer.frame(&frame).unwrap(), first);
    assert_eq!(writer.bytes(), whole);
    let pixel = |x, y| if (x, y) == (5, 5) { 0 } else { (x * y) & 0xff_ffff };
    painted(&mut frame, 3, pixel);
    assert_ne!(writer.frame(&frame).unwrap(), first);
    let grown = writer.bytes() - whole;
    assert!(grown < whole / 20, "{grown} of {whole}");
    // Back to what it was: only the list of strips is looked up.
    painted(&mut frame, 4, |x, y| (x * y) & 0xff_ffff);
    assert_eq!(writer.frame(&frame).unwrap(), first);
    assert_eq!(writer.bytes(), whole + grown);
}

#[test]
fn an_older_picture_after_a_newer_one_is_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.hdtrace");
    let mut writer = Writer::create(&path, &head(), 1 << 30).unwrap();
    let mut frame = Arc::new(Frame::black(Size { width: 80, height: 40 }, 1));
    let old = frame.clone();
    painted(&mut frame, 2, |_, _| 0x99);
    let names = [writer.frame(&frame).unwrap(), writer.frame(&old).unwrap(), writer.frame(&frame).unwrap()];
    assert_eq!(names[0], names[2]);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(names.map(|name| decoded(&reader.frame(&name).unwrap()).1[2]), [0x99, 0, 0x99]);
}

#[test]
fn a_trace_that_breaks_off_is_read_up_to_its_last_whole_record() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ends) = sample(folder.path());
    let whole = std::fs::read(&path).unwrap();
    let cut = folder.path().join("cut.hdtrace");
    // Through the last step and the end, byte by byte; before that in larger steps.
    let last = ends[ends.len() - 3] as usize;
    for length in (0..last).step_by(97).chain(last..whole.len()) {
        std::fs::write(&cut, &whole[..length]).unwrap();
        match Reader::open(&cut) {
            Ok(reader) => {
                let info = reader.info();
                assert!(!info.complete && info.bytes <= length as u64, "{length}");
                for step in reader.steps(0, 99).unwrap() {
                    reader.frame(step.after.as_ref().unwrap()).unwrap();
                    reader.frame(step.before.as_ref().unwrap()).unwrap();
                }
            }
            Err(_) => assert!(length < ends[0] as usize, "{length}"),
        }
    }
    // The last step goes with its last byte, and no other with it.
    let end = ends[ends.len() - 2] as usize;
    for (length, steps) in [(end, 3), (end - 1, 2), (end + 5, 3)] {
        std::fs::write(&cut, &whole[..length]).unwrap();
        assert_eq!(Reader::open(&cut).unwrap().info().steps, steps);
    }
    // What a power cut may leave behind: zeros where the last records should be.
    let mut zeros = whole.clone();
    zeros[last..].fill(0);
    std::fs::write(&cut, &zeros).unwrap();
    assert_eq!(Reader::open(&cut).unwrap().info().steps, 2);
}

#[test]
fn a_reader_follows_a_trace_that_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.hdtrace");
    let mut writer = Writer::create(&path, &head(), 1 << 30).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.info().steps, 0);
    for number in 1..=5 {
        writer.step(&step(number, None, None)).unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.info().steps, number);
        assert!(!reader.info().complete);
    }
    writer.end("2026-01-01T00:00:09Z".into(), Some("the disk is full".into())).unwrap();
    reader.refresh().unwrap();
    assert_eq!(reader.info().note.as_deref(), Some("the disk is full"));
}

#[test]
fn the_limit_leaves_room_for_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.hdtrace");
    let mut writer = Writer::create(&path, &head(), 20_000).unwrap();
    let refused = (1..).find_map(|number| writer.step(&step(number, None, None)).err()).unwrap();
    assert!(refused.to_string().contains("limit of 20000 bytes"), "{refused}");
    writer.end("2026-01-01T00:00:09Z".into(), Some(refused.to_string())).unwrap();
    let info = Reader::open(&path).unwrap().info();
    assert!(info.complete && info.steps > 10 && info.bytes < 24_096);
}

#[test]
fn a_full_disk_leaves_whole_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.hdtrace");
    let mut writer = Writer::create(&path, &head(), 1 << 30).unwrap();
    writer.step(&step(1, None, None)).unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let file = writer.swap(full);
    let written = writer.step(&step(2, None, None));
    assert!(matches!(written, Err(crate::Error::Full(_))), "{written:?}");
    writer.swap(file);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), writer.bytes());
    writer.step(&step(2, None, None)).unwrap();
    assert_eq!(Reader::open(&path).unwrap().info().steps, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read_without_harm(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<proptest::sample::Index>(),
        noise in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        static SAMPLE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::read(sample(folder.path()).0).unwrap()
        });
        let mut bytes = SAMPLE.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        bytes.extend(noise);
        touch_everything(&bytes);
    }

    #[test]
    fn records_that_lie_about_themselves_are_harmless(
        kind in 0u8..9,
        length in any::<u32>(),
        content in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (path, ends) = sample(folder.path());
        let mut bytes = std::fs::read(path).unwrap()[..ends[3] as usize].to_vec();
        let mut header = [0u8; HEADER];
        header[0] = kind;
        header[4..8].copy_from_slice(&length.to_le_bytes());
        header[8..12].copy_from_slice(&crc32fast::hash(&content).to_le_bytes());
        let own = crc32fast::hash(&header[..12]);
        header[12..].copy_from_slice(&own.to_le_bytes());
        bytes.extend(header);
        bytes.extend(content);
        touch_everything(&bytes);
    }
}

/// Opens a file of these bytes and reads all that it claims to hold.
fn touch_everything(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.hdtrace");
    std::fs::write(&path, bytes).unwrap();
    let Ok(reader) = Reader::open(&path) else { return };
    assert!(bytes.starts_with(SIGNATURE));
    for number in 0..5 {
        let _ = reader.tree(number);
        for step in reader.steps(number, 1).into_iter().flatten() {
            let _ = step.before.map(|name| reader.frame(&name));
            let _ = step.after.map(|name| reader.frame(&name));
        }
    }
    let _ = reader.info();
}
