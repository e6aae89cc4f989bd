//! Any bytes from a viewer, from its first word on: they are understood or the connection ends. Who may only look changes nothing, and
//! what is sent is what a small viewer understands.
//!
//! The first byte chooses how the viewer comes in, the second in what pieces its bytes come.

use super::client::Client;
use super::fake::Fake;
use super::handshake;
use super::message::{Message, Parser};
use super::session::{self, Ending, Terms};
use super::*;
use hotdesk_api::action::Rect;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

const SIZE: Size = Size { width: 70, height: 40 };
/// For everything that a viewer is told without asking again.
const QUIET: Duration = Duration::from_secs(2);

pub(crate) fn run(input: &[u8]) {
    let [flags, size, input @ ..] = input else { return };
    let (welcomed, locked, view_only) = (flags & 1 == 0, flags & 2 != 0, flags & 4 != 0);
    let mut said = Vec::new();
    if welcomed {
        said.extend(b"RFB 003.008\n\x01\x01");
    }
    said.extend(input);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let heard = runtime.block_on(visit(&said, usize::from(*size) + 1, locked && !welcomed, view_only));
    // What a format means for updates that are under way, only the viewer that sent it knows; and it does not know hextiles.
    if welcomed && understands(input) {
        let client = &mut Client::over(SIZE, heard);
        while client.drop_next() {}
    }
}

/// Everything that the viewer hears after the handshake.
async fn visit(said: &[u8], size: usize, locked: bool, view_only: bool) -> Vec<u8> {
    let fake = Fake::new(SIZE);
    fake.draw(Rect { x: 3, y: 5, width: 40, height: 30 }, |x, y| (x * 7919 + y * 104_729) % (1 << (x / 3)));
    let door = if locked { Door::Locked { full: Password::new("secret"), view_only: None } } else { Door::Open };
    let (near, mut far) = duplex(1 << 16);
    let (mut read, mut write) = tokio::io::split(near);
    let viewers = Viewers::new(1);
    let serve = async {
        let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let admitted = handshake::admit(&mut far, &door, &Guesses::default(), from).await.ok()?;
        assert!(!locked, "nobody knows the password");
        let presence = viewers.enter(String::new(), None, view_only || admitted.view_only, false, CancellationToken::new())?;
        handshake::welcome(&mut far, SIZE, "").await.ok()?;
        let terms = Terms { viewer: presence.viewer.clone(), size: SIZE, resize: true, encoders: Arc::new(Semaphore::new(1)) };
        Some(session::run(far, fake.clone(), terms).await)
    };
    let speak = async {
        for piece in said.chunks(size) {
            if write.write_all(piece).await.is_err() {
                break;
            }
        }
        sleep(QUIET).await;
        let _ = write.shutdown().await;
    };
    let mut heard = Vec::new();
    let (ending, (), _) = tokio::join!(serve, speak, read.read_to_end(&mut heard));
    assert!(!matches!(ending, Some(Ending::Failed(_))), "{ending:?}");
    if view_only {
        assert!(fake.0.touched.lock().unwrap().is_empty() && fake.0.text.lock().unwrap().is_empty());
    }
    // Version, security types, result; size, format and the length of no name.
    heard.split_off(heard.len().min(12 + 2 + 4 + 24))
}

fn understands(said: &[u8]) -> bool {
    let mut parser = Parser { buffer: said.into(), extended_buttons: false };
    while let Ok(Some(message)) = parser.next() {
        match message {
            Message::PixelFormat(_) => return false,
            Message::Encodings(numbers) if numbers.contains(&5) => return false,
            _ => {}
        }
    }
    // A byte more or less of a pointer is told by the encodings; whoever lists that one is not followed.
    !said.windows(4).any(|bytes| bytes == (-316_i32).to_be_bytes())
}
