//! Any lines from QEMU: answers go to who asked, events to who listens, and nothing else is done.

use super::hear;
use std::collections::HashMap;
use std::sync::Mutex;
use tokio::sync::{broadcast, oneshot};

pub(crate) fn run(input: &[u8]) {
    let (events, mut heard) = broadcast::channel(64);
    let (senders, mut receivers): (HashMap<_, _>, Vec<_>) = (1..=3)
        .map(|number| {
            let (sender, receiver) = oneshot::channel();
            ((number, sender), receiver)
        })
        .unzip();
    let waiting = Mutex::new(Some(senders));
    let lines: Vec<_> = input.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()).collect();
    for line in &lines {
        hear(line, &waiting, &events);
    }
    let answered = receivers.iter_mut().map(|receiver| receiver.try_recv()).filter(Result::is_ok).count();
    let left = waiting.lock().unwrap().as_ref().map_or(0, HashMap::len);
    assert_eq!(answered + left, 3, "nobody waits for an answer that was given away");
    let mut told = 0;
    while !matches!(heard.try_recv(), Err(broadcast::error::TryRecvError::Empty)) {
        told += 1;
    }
    // One more where a listener was too far behind.
    assert!(told + answered <= lines.len() + 1);
}
