//! The clipboard on a real display, between our engine and other programs.

use super::*;
use crate::x11::Client;
use crate::x11::tests::TestDisplay;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt as _, CreateWindowAux, WindowClass};
use x11rb::wrapper::ConnectionExt as _;

fn content(kind: &str, bytes: impl Into<Bytes>) -> Content {
    Content { kind: kind.into(), bytes: bytes.into() }
}

/// Bytes that no two parts of are alike.
fn noise(length: usize) -> Vec<u8> {
    (0..length as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_there_can_be_read() {
    let display = TestDisplay::bare();
    let clipboard = Clipboard::new(display.place.clone());
    // Another engine reads as another program does.
    let other = Clipboard::new(display.place.clone());
    assert!(matches!(clipboard.text(Selection::Clipboard).await, Err(Error::NotFound(_))));
    assert!(!clipboard.types(Selection::Clipboard).await.unwrap().filled);

    clipboard.set_text(Selection::Clipboard, "Grüße 日本 👍".into()).await.unwrap();
    assert_eq!(other.text(Selection::Clipboard).await.unwrap(), "Grüße 日本 👍");
    assert!(matches!(other.text(Selection::Primary).await, Err(Error::NotFound(_))));
    let types = other.types(Selection::Clipboard).await.unwrap();
    assert!(types.filled && types.types.contains(&"UTF8_STRING".to_owned()), "{types:?}");
    let latin = other.get(Selection::Clipboard, Some("STRING".into())).await.unwrap();
    assert_eq!(latin.bytes, "Grüße 日本 👍".as_bytes(), "text is given in its best form");
    let error = other.get(Selection::Clipboard, Some("image/png".into())).await.unwrap_err();
    assert!(matches!(&error, Error::NotFound(why) if why.contains("UTF8_STRING")), "{error}");

    other.set_text(Selection::Primary, "selected".into()).await.unwrap();
    assert_eq!(clipboard.text(Selection::Primary).await.unwrap(), "selected");
    assert_eq!(clipboard.text(Selection::Clipboard).await.unwrap(), "Grüße 日本 👍");

    // The other program becomes the owner.
    let picture = content("image/png", noise(1000));
    other.set(Selection::Clipboard, picture.clone()).await.unwrap();
    assert_eq!(clipboard.get(Selection::Clipboard, Some("image/png".into())).await.unwrap(), picture);
    assert!(matches!(clipboard.text(Selection::Clipboard).await, Err(Error::NotFound(_))));
    // And the first again.
    clipboard.set_text(Selection::Clipboard, String::new()).await.unwrap();
    assert_eq!(other.text(Selection::Clipboard).await.unwrap(), "");

    clipboard.clear(Selection::Primary).await.unwrap();
    assert!(matches!(other.text(Selection::Primary).await, Err(Error::NotFound(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_contents_go_in_parts() {
    let display = TestDisplay::bare();
    let (clipboard, other) = (Clipboard::new(display.place.clone()), Clipboard::new(display.place.clone()));
    for length in [256 << 10, (256 << 10) + 1, 512 << 10, 5_000_000] {
        let picture = content("image/png", noise(length));
        clipboard.set(Selection::Clipboard, picture.clone()).await.unwrap();
        let read = || other.get(Selection::Clipboard, Some("image/png".into()));
        // Two who read at once do not disturb each other.
        let (a, b) = tokio::join!(read(), read());
        assert!(a.unwrap() == picture && b.unwrap() == picture, "{length}");
    }
    let error = clipboard.set(Selection::Clipboard, content("image/png", vec![0; LARGEST + 1])).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }));
    let error = clipboard.set(Selection::Clipboard, content("text/plain", vec![0xff])).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_owner_is_given_up() {
    let display = TestDisplay::bare();
    let clipboard = Clipboard::new(display.place.clone());
    let silent = Client::connect(&display.place.display).unwrap();
    let window = silent.connection.generate_id().unwrap();
    let values = CreateWindowAux::new();
    silent.connection.create_window(0, window, silent.root, 0, 0, 1, 1, 0, WindowClass::INPUT_OUTPUT, 0, &values).unwrap();
    let atom = silent.connection.intern_atom(false, b"CLIPBOARD").unwrap().reply().unwrap().atom;
    silent.connection.set_selection_owner(window, atom, x11rb::CURRENT_TIME).unwrap();
    silent.connection.sync().unwrap();
    let error = clipboard.text(Selection::Clipboard).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    // Taking it away from the silent one works.
    clipboard.set_text(Selection::Clipboard, "mine".into()).await.unwrap();
    assert_eq!(clipboard.text(Selection::Clipboard).await.unwrap(), "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_display_is_used_after_the_old_one_died() {
    let mut display = TestDisplay::bare();
    let clipboard = Clipboard::new(display.place.clone());
    clipboard.set_text(Selection::Clipboard, "old".into()).await.unwrap();
    display.kill();
    let down = |result: Result<()>| assert!(matches!(result, Err(Error::Unavailable { .. })), "{result:?}");
    down(clipboard.text(Selection::Clipboard).await.map(drop));
    down(clipboard.set_text(Selection::Clipboard, "lost".into()).await);
    display.restart();
    assert!(matches!(clipboard.text(Selection::Clipboard).await, Err(Error::NotFound(_))));
    clipboard.set_text(Selection::Clipboard, "new".into()).await.unwrap();
    assert_eq!(clipboard.text(Selection::Clipboard).await.unwrap(), "new");
}

/// A program of Tk that reads and writes texts of its own.
#[tokio::test(flavor = "multi_thread")]
async fn other_programs_understand_us() {
    let display = TestDisplay::bare();
    let clipboard = Clipboard::new(display.place.clone());
    let long = "Zeile ü 日\n".repeat(50_000);
    clipboard.set_text(Selection::Clipboard, long.clone()).await.unwrap();
    let program = "import tkinter, sys; t = tkinter.Tk(); \
        sys.stdout.buffer.write(t.selection_get(selection='CLIPBOARD', type='UTF8_STRING').encode())";
    assert_eq!(display.output("/usr/bin/python3", &["-c", program]).await, long);
    let program = "import tkinter, sys; t = tkinter.Tk(); t.clipboard_clear(); t.clipboard_append('von Tk: ä日' * 100000); \
        t.update(); print('ready', flush=True); t.mainloop()";
    let mut owner = display.start("/usr/bin/python3", &["-c", program]);
    let mut ready = [0; 5];
    tokio::io::AsyncReadExt::read_exact(owner.stdout.as_mut().unwrap(), &mut ready).await.unwrap();
    assert_eq!(clipboard.text(Selection::Clipboard).await.unwrap(), "von Tk: ä日".repeat(100_000));
}
