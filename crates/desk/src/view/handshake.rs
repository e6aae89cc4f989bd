//! The beginning of a connection: version, password, who else may stay, and what the screen is.

use super::auth::{Door, Guesses, Password, WRONG_PASSWORD_DELAY};
use super::pixel::PixelFormat;
use hotdesk_api::action::Size;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// For everything that a program answers by itself.
pub(super) const STEP_LIMIT: Duration = Duration::from_secs(15);

/// For the password: a person types it now.
const PASSWORD_LIMIT: Duration = Duration::from_secs(120);

const NO_SECURITY: u8 = 1;
const VNC_PASSWORD: u8 = 2;

/// Why there will be no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the viewer did not answer in time")]
    Silent,
    #[error("the viewer does not speak RFB 3")]
    NotRfb,
    #[error("the viewer chose a way to prove itself that was not offered")]
    NotOffered,
    #[error("wrong password")]
    WrongPassword,
    #[error("too many wrong passwords from this address")]
    TooManyGuesses,
    #[error("{0}")]
    Closed(String),
}

/// What a viewer may do, and what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admitted {
    pub view_only: bool,
    /// Whether other viewers may stay.
    pub shared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    V3_3,
    V3_7,
    V3_8,
}

/// Version, security and the viewer's first word. [`welcome`] is to follow.
pub(super) async fn admit(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    door: &Door,
    guesses: &Guesses,
    from: IpAddr,
) -> Result<Admitted, Refusal> {
    stream.write_all(b"RFB 003.008\n").await?;
    let version = version(&read::<12>(stream, STEP_LIMIT).await?).ok_or(Refusal::NotRfb)?;

    let refusal = match door {
        Door::Closed(reason) => Some(Refusal::Closed(reason.clone())),
        Door::Locked { .. } if !guesses.may_try(from, Instant::now()) => Some(Refusal::TooManyGuesses),
        _ => None,
    };
    if let Some(refusal) = refusal {
        // No security type at all means "no", and a reason follows.
        let none: &[u8] = if version == Version::V3_3 { &[0; 4] } else { &[0] };
        stream.write_all(none).await?;
        write_reason(stream, &refusal).await?;
        return Err(refusal);
    }

    let kind = if matches!(door, Door::Open) { NO_SECURITY } else { VNC_PASSWORD };
    if version == Version::V3_3 {
        stream.write_all(&[0, 0, 0, kind]).await?;
    } else {
        stream.write_all(&[1, kind]).await?;
        if read::<1>(stream, STEP_LIMIT).await? != [kind] {
            let refusal = Refusal::NotOffered;
            refuse(stream, version, &refusal).await?;
            return Err(refusal);
        }
    }
    let view_only = match door {
        Door::Locked { full, view_only } => match check(stream, full.as_ref(), view_only.as_ref()).await? {
            Some(view_only) => {
                guesses.succeeded(from);
                view_only
            }
            None => {
                guesses.failed(from, Instant::now());
                tokio::time::sleep(WRONG_PASSWORD_DELAY).await;
                let refusal = Refusal::WrongPassword;
                refuse(stream, version, &refusal).await?;
                return Err(refusal);
            }
        },
        _ => false,
    };
    // Before 3.8 nothing is said after no check at all.
    if kind != NO_SECURITY || version == Version::V3_8 {
        stream.write_all(&[0; 4]).await?;
    }
    let [shared] = read::<1>(stream, STEP_LIMIT).await?;
    Ok(Admitted { view_only, shared: shared != 0 })
}

/// Tells the viewer what the screen is. Its requests are to follow.
pub(super) async fn welcome(stream: &mut (impl AsyncWrite + Unpin), size: Size, name: &str) -> io::Result<()> {
    let mut hello = Vec::with_capacity(24 + name.len());
    for side in [size.width, size.height] {
        hello.extend(u16::try_from(side).unwrap_or(u16::MAX).to_be_bytes());
    }
    hello.extend(PixelFormat::NATIVE.bytes());
    hello.extend((name.len() as u32).to_be_bytes());
    hello.extend(name.as_bytes());
    stream.write_all(&hello).await?;
    stream.flush().await
}

/// Whether the password was one of ours, and then whether it only lets look.
async fn check(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    full: Option<&Password>,
    view_only: Option<&Password>,
) -> Result<Option<bool>, Refusal> {
    let challenge: [u8; 16] = rand::random();
    stream.write_all(&challenge).await?;
    let answer = read::<16>(stream, PASSWORD_LIMIT).await?;
    let fits = |password: Option<&Password>| password.is_some_and(|p| p.is_answered(&challenge, &answer));
    // Both are always compared, so that time tells nothing.
    Ok(match (fits(full), fits(view_only)) {
        (true, _) => Some(false),
        (false, true) => Some(true),
        (false, false) => None,
    })
}

async fn refuse(stream: &mut (impl AsyncWrite + Unpin), version: Version, refusal: &Refusal) -> io::Result<()> {
    stream.write_all(&[0, 0, 0, 1]).await?;
    if version == Version::V3_8 { write_reason(stream, refusal).await } else { stream.flush().await }
}

async fn write_reason(stream: &mut (impl AsyncWrite + Unpin), refusal: &Refusal) -> io::Result<()> {
    let text = refusal.to_string();
    stream.write_all(&(text.len() as u32).to_be_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.flush().await
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), limit: Duration) -> Result<[u8; N], Refusal> {
    stream.flush().await?;
    let mut bytes = [0; N];
    timeout(limit, stream.read_exact(&mut bytes)).await.map_err(|_| Refusal::Silent)??;
    Ok(bytes)
}

/// Versions between the three that exist are taken as the older one, later ones as the last.
fn version(line: &[u8; 12]) -> Option<Version> {
    let [b'R', b'F', b'B', b' ', a, b, c, b'.', d, e, f, b'\n'] = line else { return None };
    let number =
        |digits: [&u8; 3]| digits.iter().try_fold(0u32, |n, d| d.is_ascii_digit().then(|| n * 10 + u32::from(**d - b'0')));
    match (number([a, b, c])?, number([d, e, f])?) {
        (3, 3..=6) => Some(Version::V3_3),
        (3, 7) => Some(Version::V3_7),
        (3, 8..) | (4.., _) => Some(Version::V3_8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::io::{DuplexStream, duplex};

    const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn locked(full: &str, view_only: &str) -> Door {
        Door::Locked { full: Password::new(full), view_only: Password::new(view_only) }
    }

    /// Runs the server's side against a viewer.
    async fn meet<F: Future<Output = ()>>(
        door: Door,
        guesses: &Guesses,
        viewer: impl FnOnce(DuplexStream) -> F,
    ) -> Result<Admitted, Refusal> {
        let (mut server, client) = duplex(4096);
        let server = async move { admit(&mut server, &door, guesses, FROM).await };
        tokio::join!(server, viewer(client)).0
    }

    async fn expect(stream: &mut DuplexStream, bytes: &[u8]) {
        let mut got = vec![0; bytes.len()];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got, bytes);
    }

    async fn answer(stream: &mut DuplexStream, password: &str) {
        let mut challenge = [0; 16];
        stream.read_exact(&mut challenge).await.unwrap();
        stream.write_all(&Password::new(password).unwrap().answer(&challenge)).await.unwrap();
    }

    #[tokio::test]
    async fn every_version_gets_in_without_a_password() {
        for (version, list) in [("3.003", &[0u8, 0, 0, 1][..]), ("3.007", &[1, 1]), ("3.008", &[1, 1]), ("3.889", &[1, 1])] {
            let admitted = meet(Door::Open, &Guesses::default(), async |mut s: DuplexStream| {
                expect(&mut s, b"RFB 003.008\n").await;
                s.write_all(format!("RFB 00{version}\n").as_bytes()).await.unwrap();
                expect(&mut s, list).await;
                if version != "3.003" {
                    s.write_all(&[1]).await.unwrap();
                }
                if version >= "3.008" {
                    expect(&mut s, &[0; 4]).await;
                }
                s.write_all(&[1]).await.unwrap();
            })
            .await
            .unwrap();
            assert_eq!(admitted, Admitted { view_only: false, shared: true }, "{version}");
        }
    }

    #[tokio::test]
    async fn a_password_lets_in_and_the_other_one_only_looks() {
        for (password, view_only) in [("secret", false), ("look", true)] {
            for version in ["3.003", "3.008"] {
                let admitted = meet(locked("secret", "look"), &Guesses::default(), async |mut s: DuplexStream| {
                    expect(&mut s, b"RFB 003.008\n").await;
                    s.write_all(format!("RFB 00{version}\n").as_bytes()).await.unwrap();
                    if version == "3.003" {
                        expect(&mut s, &[0, 0, 0, 2]).await;
                    } else {
                        expect(&mut s, &[1, 2]).await;
                        s.write_all(&[2]).await.unwrap();
                    }
                    answer(&mut s, password).await;
                    expect(&mut s, &[0; 4]).await;
                    s.write_all(&[0]).await.unwrap();
                })
                .await
                .unwrap();
                assert_eq!(admitted, Admitted { view_only, shared: false });
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_password_is_told_late_and_not_often() {
        let guesses = Guesses::default();
        for _ in 0..5 {
            let start = tokio::time::Instant::now();
            let refusal = meet(locked("secret", ""), &guesses, async |mut s: DuplexStream| {
                expect(&mut s, b"RFB 003.008\n").await;
                s.write_all(b"RFB 003.008\n").await.unwrap();
                expect(&mut s, &[1, 2]).await;
                s.write_all(&[2]).await.unwrap();
                answer(&mut s, "wrong").await;
                expect(&mut s, b"\0\0\0\x01\0\0\0\x0ewrong password").await;
            })
            .await
            .unwrap_err();
            assert!(matches!(refusal, Refusal::WrongPassword));
            assert!(start.elapsed() >= WRONG_PASSWORD_DELAY);
        }
        let refusal = meet(locked("secret", ""), &guesses, async |mut s: DuplexStream| {
            expect(&mut s, b"RFB 003.008\n").await;
            s.write_all(b"RFB 003.008\n").await.unwrap();
            expect(&mut s, &[0]).await;
        })
        .await
        .unwrap_err();
        assert!(matches!(refusal, Refusal::TooManyGuesses));
    }

    #[tokio::test]
    async fn choosing_what_was_not_offered_is_no_way_in() {
        for choice in [1, 0, 16, 255] {
            let refusal = meet(locked("secret", ""), &Guesses::default(), async |mut s: DuplexStream| {
                expect(&mut s, b"RFB 003.008\n").await;
                s.write_all(b"RFB 003.008\n").await.unwrap();
                expect(&mut s, &[1, 2]).await;
                s.write_all(&[choice]).await.unwrap();
                expect(&mut s, &[0, 0, 0, 1]).await;
            })
            .await
            .unwrap_err();
            assert!(matches!(refusal, Refusal::NotOffered));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_nonsense_end() {
        let silent = meet(Door::Open, &Guesses::default(), async |s: DuplexStream| {
            tokio::time::sleep(STEP_LIMIT * 2).await;
            drop(s);
        })
        .await;
        assert!(matches!(silent, Err(Refusal::Silent)));
        for line in ["GET / HTTP/1", "RFB 002.008\n", "RFB 003.00x\n", "RFB 003.002\n"] {
            let nonsense =
                meet(Door::Open, &Guesses::default(), async |mut s: DuplexStream| s.write_all(line.as_bytes()).await.unwrap())
                    .await;
            assert!(matches!(nonsense, Err(Refusal::NotRfb)), "{line}");
        }
        let gone = meet(Door::Open, &Guesses::default(), async |s: DuplexStream| drop(s)).await;
        assert!(matches!(gone, Err(Refusal::Io(_))));
    }

    #[tokio::test]
    async fn a_closed_door_says_why() {
        let refusal = meet(Door::Closed("no password is set".into()), &Guesses::default(), async |mut s: DuplexStream| {
            expect(&mut s, b"RFB 003.008\n").await;
            s.write_all(b"RFB 003.008\n").await.unwrap();
            expect(&mut s, b"\0\0\0\0\x12no password is set").await;
        })
        .await;
        assert!(matches!(refusal, Err(Refusal::Closed(_))));
    }
}
