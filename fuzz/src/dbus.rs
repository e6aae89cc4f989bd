//! Any bytes from the other end of a D-Bus connection: they are messages, in whatever pieces they come, or the connection ends.

use super::{Answer, Wire};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use zbus::zvariant::{ObjectPath, Value};

pub(crate) fn run(input: &[u8]) {
    let Some((size, input)) = input.split_first() else { return };
    let whole = answers(input, input.len().max(1));
    assert_eq!(whole, answers(input, usize::from(*size) + 1));
}

/// The serials of all answers, and whether the connection ends by a message that is none.
fn answers(input: &[u8], size: usize) -> (Vec<u32>, bool) {
    let mut wire = Wire::over(UnixStream::pair().unwrap().0);
    let mut serials = Vec::new();
    for piece in input.chunks(size) {
        wire.incoming.extend_from_slice(piece);
        loop {
            match wire.next() {
                Ok(Some(answer)) => {
                    read(&answer);
                    serials.push(answer.serial);
                }
                Ok(None) => break,
                Err(_) => return (serials, true),
            }
        }
    }
    (serials, false)
}

/// As everything that is ever asked for.
fn read(answer: &Answer<'_>) {
    type Reference<'a> = (&'a str, ObjectPath<'a>);
    type Item<'a> = (Reference<'a>, Reference<'a>, Reference<'a>, i32, i32, Vec<&'a str>, &'a str, u32, &'a str, Vec<u32>);
    let _ = answer.read::<String>();
    let _ = answer.read::<&str>();
    let _ = answer.read::<i32>();
    let _ = answer.read::<u32>();
    let _ = answer.read::<(i32, i32, i32, i32)>();
    let _ = answer.read::<Value<'_>>();
    let _ = answer.read::<Vec<u32>>();
    let _ = answer.read::<Vec<&str>>();
    let _ = answer.read::<BTreeMap<&str, &str>>();
    let _ = answer.read::<Vec<(&str, &str, &str)>>();
    let _ = answer.read::<Reference<'_>>();
    let _ = answer.read::<Vec<Reference<'_>>>();
    let _ = answer.read::<Vec<Item<'_>>>();
}
