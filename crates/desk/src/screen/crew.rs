//! Two threads for many strips.
//!
//! The second thread may help, but is never waited for before it has begun: on a busy machine the first one does everything itself.

use super::pack::{Chunk, Packer};
use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// With fewer tasks than this, waking a second thread costs more than it brings.
const WORTH_A_THREAD: usize = 5;

/// Does the task of a number.
pub(crate) type Work = Arc<dyn Fn(&mut Packer, usize) -> Result<Chunk> + Send + Sync>;

/// The calling thread, and a helper that is started when there is enough to do.
#[derive(Default)]
pub(crate) struct Crew {
    mine: Option<Packer>,
    helper: Option<SyncSender<Arc<Batch>>>,
}

/// Tasks that are being done.
struct Batch {
    count: usize,
    next: AtomicUsize,
    /// Gone when all is done, so that a late helper keeps nothing alive.
    work: Mutex<Option<Work>>,
    done: Mutex<Vec<(usize, Result<Chunk>)>>,
    all_done: Condvar,
}

impl Crew {
    /// Does `count` tasks and returns their results in order.
    pub(crate) fn run(&mut self, count: usize, work: Work) -> Result<Vec<Chunk>> {
        let mine = self.mine.get_or_insert_with(Packer::new);
        if count < WORTH_A_THREAD {
            return (0..count).map(|n| work(mine, n)).collect();
        }
        let batch = Arc::new(Batch {
            count,
            next: AtomicUsize::new(0),
            work: Mutex::new(Some(work)),
            done: Mutex::new(Vec::with_capacity(count)),
            all_done: Condvar::new(),
        });
        let helper = self.helper.get_or_insert_with(start_helper);
        if helper.try_send(Arc::clone(&batch)).is_err() {
            // It is late, or could not be started: both are no reason to wait.
            tracing::trace!("a batch of strips without a helper");
        }
        batch.pitch_in(mine);
        let mut done = batch.done.lock().unwrap_or_else(PoisonError::into_inner);
        while done.len() < count {
            done = batch.all_done.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        batch.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        done.sort_unstable_by_key(|(n, _)| *n);
        done.drain(..).map(|(_, result)| result).collect()
    }
}

impl Batch {
    /// Takes tasks as long as there are some.
    fn pitch_in(&self, packer: &mut Packer) {
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.count {
                return;
            }
            // Held for one task only, because the work holds the frame.
            let Some(work) = self.work.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return };
            let result = catch_unwind(AssertUnwindSafe(|| work(packer, n))).unwrap_or_else(|_| {
                *packer = Packer::new();
                Err(Error::internal("a strip could not be encoded"))
            });
            drop(work);
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((n, result));
            if done.len() == self.count {
                self.all_done.notify_one();
            }
        }
    }
}

/// Ends when the crew does.
fn start_helper() -> SyncSender<Arc<Batch>> {
    let (sender, batches) = sync_channel::<Arc<Batch>>(1);
    let run = move || {
        let mut packer = Packer::new();
        for batch in batches {
            batch.pitch_in(&mut packer);
        }
    };
    if let Err(e) = std::thread::Builder::new().name("screen-helper".into()).spawn(run) {
        tracing::warn!("strips are encoded by one thread: {e}");
    }
    sender
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(fail: Option<usize>) -> Work {
        Arc::new(move |packer, n| match fail {
            Some(bad) if bad == n => panic!("on purpose"),
            _ => packer.strip(&vec![n as u8; 400], 400),
        })
    }

    #[test]
    fn results_come_in_order() {
        let mut crew = Crew::default();
        for count in [0, 1, WORTH_A_THREAD, 200] {
            let alone: Vec<_> = (0..count).map(|n| Packer::new().strip(&vec![n as u8; 400], 400).expect("packs").adler).collect();
            let together: Vec<_> = crew.run(count, work(None)).expect("works").iter().map(|chunk| chunk.adler).collect();
            assert_eq!(alone, together);
        }
    }

    #[test]
    fn nothing_is_held_afterwards() {
        let mut crew = Crew::default();
        let work = work(None);
        for _ in 0..100 {
            crew.run(50, Arc::clone(&work)).expect("works");
            assert_eq!(Arc::strong_count(&work), 1);
        }
    }

    #[test]
    fn a_panic_is_an_error_and_no_end() {
        let mut crew = Crew::default();
        assert!(crew.run(50, work(Some(20))).is_err());
        assert_eq!(crew.run(50, work(None)).expect("works").len(), 50);
    }
}
