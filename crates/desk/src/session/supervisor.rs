//! Keeps one part alive: start, wait until it is of use, watch, and start again when it dies.
//!
//! ```text
//!   wait for what it needs ──► start ──► ready? ──► running ──► died ─┐
//!          ▲   ▲                           │ no                       │
//!          │   └── pause (longer each time) ◄─────────────────────────┘
//!          └────── what it needs is gone: end it at once, no pause
//! ```

use super::board::{PartHandle, Up};
use super::child::{Running, Spec, describe};
use crate::place::Place;
use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The pauses before a part is started again: at once the first time, so that a single death is
/// healed in no time; never longer than 1 s, so that a part
/// that is killed again and again is still back within 2 s each time.
const PAUSES: [Duration; 4] = [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(300), Duration::from_secs(1)];
/// Who was of use for that long was well; its next death is a first one again.
const WELL_AFTER: Duration = Duration::from_secs(2);

/// What is done after a process ended by itself.
pub(crate) enum Verdict {
    /// It should not have: start it again.
    Heal,
    /// It was meant to. It is started again only together with what it stands on.
    Ended,
    /// It is in vain to try again.
    GiveUp(String),
}

/// One kind of part.
pub(crate) trait Service: Send + 'static {
    /// What is started, asked anew each time.
    fn spec(&mut self) -> Spec;

    /// Waits for what is good to have at the start, but not worth dying for later.
    fn prepare(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Returns once the part can be used. `Ok` may carry a remark for its state.
    fn ready(&mut self, pipe: Option<pipe::Receiver>) -> impl Future<Output = Result<Option<String>, String>> + Send;

    /// How long `ready` may take before the start counts as failed.
    const READY_LIMIT: Duration = Duration::from_secs(10);

    /// How long it may take to end when asked.
    const GRACE: Duration = Duration::from_millis(500);

    /// Called after its process is gone, however it went.
    fn gone(&mut self, pid: u32) {
        let _ = pid;
    }

    /// What its end means; `was_ready` tells whether it ever was of use.
    fn verdict(&mut self, status: ExitStatus, was_ready: bool) -> Verdict {
        let _ = (status, was_ready);
        Verdict::Heal
    }
}

/// What a part needs before it can start, and for as long as it runs.
pub(crate) struct Needs(pub(crate) Vec<watch::Receiver<Up>>);

impl Needs {
    /// Waits until all of them are there or will never be.
    async fn met(&mut self) {
        for need in &mut self.0 {
            // The sender lives in a task that ends only when the session does.
            if need.wait_for(|up| up.decided()).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until one of them is another one than it was.
    async fn lost(&mut self) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let changes = self.0.iter_mut().map(|need| Box::pin(need.changed()));
        let (change, ..) = futures_util::future::select_all(changes).await;
        if change.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// How one life of a part went.
enum Life {
    Stopped,
    NeedLost,
    Died { reason: String, verdict: Verdict, was_well: bool },
}

/// Runs until `stop`. Returns after the part's process is gone.
pub(crate) async fn supervise<S: Service>(
    mut service: S,
    mut part: PartHandle,
    mut needs: Needs,
    place: Arc<Place>,
    stop: CancellationToken,
) {
    let mut deaths = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return part.ended("the desk stops"),
            () = needs.met() => {}
        }
        match live(&mut service, &mut part, &mut needs, &place, &stop).await {
            Life::Stopped => return part.ended("the desk stops"),
            Life::NeedLost => {
                deaths = 0;
                part.waiting("what it stands on is being healed");
                continue;
            }
            Life::Died { reason, verdict: Verdict::GiveUp(why), .. } => {
                part.failed(&format!("{reason}; {why}"));
                return stop.cancelled().await;
            }
            Life::Died { reason, verdict: Verdict::Ended, .. } => {
                part.ended(&reason);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = needs.lost() => part.waiting("what it stands on is being healed"),
                }
                continue;
            }
            Life::Died { reason, verdict: Verdict::Heal, was_well } => {
                if was_well {
                    deaths = 0;
                }
                part.healing(&reason);
            }
        }
        let pause = PAUSES.get(deaths).copied().unwrap_or(PAUSES[PAUSES.len() - 1]);
        deaths += 1;
        tokio::select! {
            () = stop.cancelled() => return part.ended("the desk stops"),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn live<S: Service>(
    service: &mut S,
    part: &mut PartHandle,
    needs: &mut Needs,
    place: &Place,
    stop: &CancellationToken,
) -> Life {
    tokio::select! {
        biased;
        () = stop.cancelled() => return Life::Stopped,
        () = needs.lost() => return Life::NeedLost,
        () = service.prepare() => {}
    }
    let begin = Instant::now();
    let spec = service.spec();
    part.command(spec.text());
    let mut running = match Running::start(&spec, part.name(), place, part.board().log()).await {
        Ok(running) => running,
        Err(e) => return Life::Died { reason: format!("it can't be started: {e}"), verdict: Verdict::Heal, was_well: false },
    };
    let pid = running.pid;
    part.started(pid);
    let pipe = running.ready.take();

    enum First {
        Ready(Option<String>),
        NotReady(String),
        Died(std::io::Result<ExitStatus>),
        Stopped,
        NeedLost,
    }
    let first = tokio::select! {
        biased;
        () = stop.cancelled() => First::Stopped,
        () = needs.lost() => First::NeedLost,
        ready = tokio::time::timeout(S::READY_LIMIT, service.ready(pipe)) => match ready {
            Ok(Ok(remark)) => First::Ready(remark),
            // It usually says so because it dies; then its end tells more.
            Ok(Err(why)) => match tokio::time::timeout(S::GRACE, running.ended()).await {
                Ok(status) => First::Died(status),
                Err(_) => First::NotReady(why),
            },
            Err(_) => First::NotReady(format!("it was not ready after {} s", S::READY_LIMIT.as_secs())),
        },
        status = running.ended() => First::Died(status),
    };
    let (well_since, end) = match first {
        First::Ready(remark) => {
            let since = Instant::now();
            part.running(Some(pid), Some(since - begin), remark);
            let end = tokio::select! {
                biased;
                () = stop.cancelled() => First::Stopped,
                status = running.ended() => First::Died(status),
                () = needs.lost() => First::NeedLost,
            };
            (Some(since), end)
        }
        other => (None, other),
    };
    let life = match end {
        First::Died(status) => {
            let (reason, verdict) = match status {
                Ok(status) => {
                    // The last words are on their way through a pipe; they rarely take a millisecond.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let last_words = if spoke(status) { part.board().log().last(part.name()) } else { None };
                    let last_words = last_words.map(|words| format!(": {words}")).unwrap_or_default();
                    (format!("{}{last_words}", describe(status)), service.verdict(status, well_since.is_some()))
                }
                Err(e) => (format!("it can't be watched: {e}"), Verdict::Heal),
            };
            Life::Died { reason, verdict, was_well: well_since.is_some_and(|since| since.elapsed() > WELL_AFTER) }
        }
        First::NotReady(why) => {
            running.end(S::GRACE).await;
            Life::Died { reason: why, verdict: Verdict::Heal, was_well: false }
        }
        First::Stopped => {
            running.end(S::GRACE).await;
            Life::Stopped
        }
        First::NeedLost | First::Ready(_) => {
            running.end(S::GRACE).await;
            Life::NeedLost
        }
    };
    service.gone(pid);
    life
}

/// Whether what it wrote last tells why it ended. Who was ended from outside knew of nothing.
fn spoke(status: ExitStatus) -> bool {
    const FROM_OUTSIDE: [Signal; 4] = [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    !status.success() && !FROM_OUTSIDE.iter().any(|signal| status.signal() == Some(*signal as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Display;
    use crate::session::board::Board;
    use hotdesk_api::health::PartState;
    use std::path::PathBuf;

    struct Shell(&'static str);

    impl Service for Shell {
        fn spec(&mut self) -> Spec {
            Spec::new(["sh", "-c", self.0])
        }

        async fn ready(&mut self, _: Option<pipe::Receiver>) -> Result<Option<String>, String> {
            Ok(None)
        }

        fn verdict(&mut self, status: ExitStatus, _: bool) -> Verdict {
            match status.code() {
                Some(0) => Verdict::Ended,
                Some(9) => Verdict::GiveUp("nine".into()),
                _ => Verdict::Heal,
            }
        }
    }

    fn place() -> Arc<Place> {
        Arc::new(Place {
            display: Display { number: 0, cookie: None },
            home: PathBuf::from("/"),
            runtime_dir: PathBuf::from("/tmp"),
            bus: String::new(),
            env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        })
    }

    /// Waits until the part is as wanted.
    async fn until(board: &Board, wanted: impl Fn(&hotdesk_api::health::Part) -> bool) -> hotdesk_api::health::Part {
        let begin = Instant::now();
        loop {
            let part = board.health().parts["t"].clone();
            if wanted(&part) {
                return part;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{part:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn the_killed_come_back() {
        let board = Board::new();
        let stop = CancellationToken::new();
        let task = tokio::spawn(supervise(Shell("exec sleep 100"), board.part("t", true), Needs(vec![]), place(), stop.clone()));
        let first = until(&board, |part| part.state == PartState::Running).await.pid.unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(first as i32), nix::sys::signal::SIGKILL).unwrap();
        let second = until(&board, |part| part.state == PartState::Running && part.pid != Some(first)).await;
        assert_eq!(second.restarts, 1);
        stop.cancel();
        task.await.unwrap();
        assert_eq!(board.health().parts["t"].state, PartState::Ended);
        assert!(!std::path::Path::new(&format!("/proc/{}", second.pid.unwrap())).exists());
    }

    #[tokio::test]
    async fn the_reason_is_told() {
        let board = Board::new();
        let stop = CancellationToken::new();
        tokio::spawn(supervise(
            Shell("echo out of ink >&2; exit 9"),
            board.part("t", true),
            Needs(vec![]),
            place(),
            stop.clone(),
        ));
        let part = until(&board, |part| part.state == PartState::Failed).await;
        assert_eq!(part.reason.unwrap(), "it ended with status 9: out of ink; nine");
        stop.cancel();
    }

    #[tokio::test]
    async fn it_goes_with_what_it_stands_on_and_comes_back_with_it() {
        let board = Board::new();
        let stop = CancellationToken::new();
        let (ground, needs) = watch::channel(Up::No);
        tokio::spawn(supervise(Shell("exec sleep 100"), board.part("t", true), Needs(vec![needs]), place(), stop.clone()));
        assert_eq!(board.health().parts["t"].state, PartState::Starting);
        ground.send_replace(Up::Yes(1));
        let first = until(&board, |part| part.state == PartState::Running).await.pid;
        ground.send_replace(Up::No);
        until(&board, |part| part.state == PartState::Healing && part.pid.is_none()).await;
        ground.send_replace(Up::Yes(2));
        let second = until(&board, |part| part.state == PartState::Running).await.pid;
        assert_ne!(first, second);
        stop.cancel();
    }

    #[tokio::test]
    async fn what_ended_on_purpose_is_left_alone() {
        let board = Board::new();
        let stop = CancellationToken::new();
        tokio::spawn(supervise(Shell("exit 0"), board.part("t", false), Needs(vec![]), place(), stop.clone()));
        until(&board, |part| part.state == PartState::Ended).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let part = until(&board, |part| part.state == PartState::Ended).await;
        assert_eq!(part.restarts, 0);
        stop.cancel();
    }
}
