//! Any packet as an answer to a question for an address: it is an answer or none, and what it tells fits into it.

use super::{Answer, CLIENT, HEAD, message, payload};

pub(crate) fn run(input: &[u8]) {
    if let Some(inside) = payload(input) {
        assert!(inside.len() + 8 <= input.len());
    }
    // The rest as what is in a packet for us, with the right number.
    let number = 7_u32;
    let mut answer = input.to_vec();
    if answer.len() > HEAD + 4 {
        answer[0] = 2;
        answer[4..8].copy_from_slice(&number.to_be_bytes());
        answer[HEAD..HEAD + 4].copy_from_slice(&super::COOKIE);
    }
    let Some(read) = Answer::read(&answer, number) else { return };
    assert_eq!(Answer::read(&answer, number + 1), None);
    assert!(read.resolvers.len() * 4 <= answer.len());
    assert!(read.prefix() <= 32);
    // In a packet it is the same.
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[9] = 17;
    packet[22..24].copy_from_slice(&CLIENT.to_be_bytes());
    packet.extend(&answer);
    assert_eq!(payload(&packet).and_then(|inside| Answer::read(inside, number)).as_ref(), Some(&read));
    // And what we ask is no answer.
    let question = message(read.kind, number, [2; 6], Some(read.address), read.server);
    assert_eq!(Answer::read(&question, number), None);
}
