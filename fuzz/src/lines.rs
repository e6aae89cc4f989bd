//! Any bytes as lines and events of a desk: each is found once, whole, in whatever pieces they come.

use super::Lines;

pub(crate) fn run(input: &[u8]) {
    let [kind, size, input @ ..] = input else { return };
    let end: &[u8] = [&b"\n"[..], b"\n\n", b"\r\n\r\n"][usize::from(*kind) % 3];
    let mut lines = Lines::ending(end);
    let mut found = Vec::new();
    for piece in input.chunks(usize::from(*size) + 1) {
        lines.push(piece);
        while let Some(line) = lines.next().expect("it is short") {
            assert_eq!(line.windows(end.len()).position(|window| window == end), Some(line.len() - end.len()));
            found.extend(line);
        }
    }
    assert!(!lines.held.windows(end.len()).any(|window| window == end));
    found.extend(&lines.held);
    assert_eq!(found, input);
}
