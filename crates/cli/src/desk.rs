//! `hotdesk desk`: one desktop, from start to end.

use crate::args::DeskArgs;
use crate::exit::{Exit, complain, complain_about, complain_about_settings};
use crate::init::{self, Side};
use futures_util::FutureExt;
use hotdesk_desk::config::{Config, ConfigError, LogFormat, Settings};
use hotdesk_desk::server::listen::Address;
use hotdesk_desk::{Desk, Ended, Hooks, SweepHook};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::time::{Duration, Instant};
use tracing_subscriber::EnvFilter;

/// The engines have threads of their own; the runtime only moves bytes.
const WORKERS: usize = 2;
/// Work that blocks: files, short waits for the display. They come when needed and go when idle.
const BLOCKING: usize = 128;
/// Programs that belong to nobody get so long to end when the desk stops.
const PROGRAM_GRACE: Duration = Duration::from_secs(2);

pub(crate) fn run(args: DeskArgs) -> Exit {
    let filter = args.log.clone();
    let config = match settings(args) {
        Ok(config) => config,
        Err(e) => return complain_about_settings(&e),
    };
    if let Err(e) = start_log(&filter, config.log_format) {
        complain(&format!("`{filter}` is not a filter for the log: {e}"), Some("write `info`, or `hotdesk_desk=debug,warn`"));
        return Exit::Usage;
    }
    init::close_foreign_descriptors_at_exec();
    init::allow_many_descriptors();
    // An attached desktop is not ours, and neither are the programs on it; there is nothing to sweep up.
    if config.attach.is_some() && std::process::id() != 1 {
        return serve(config, None);
    }
    match init::split() {
        Ok(Side::Desk { above, notify }) => serve(config, Some((above, notify))),
        // The process above has no thread but this one, and nothing to put away.
        Ok(Side::Over { status }) => std::process::exit(status.into()),
        Err(e) => {
            complain(&format!("the process can't be split: {e}"), None);
            Exit::Failure
        }
    }
}

/// A desk's hand as another user: `hotdesk hand DISPLAY XAUTHORITY RUNTIME_DIR`, with its socket as standard input.
pub(crate) fn hand() -> std::process::ExitCode {
    use std::os::fd::AsFd;
    let words: Vec<String> = std::env::args().skip(2).collect();
    let [display, xauthority, runtime_dir] = words.as_slice() else { return Exit::Usage.into() };
    let (Ok(display), Ok(socket)) = (display.parse(), std::io::stdin().as_fd().try_clone_to_owned()) else {
        return Exit::Usage.into();
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).max_blocking_threads(BLOCKING).enable_all().build();
    let Ok(runtime) = runtime else { return Exit::Failure.into() };
    init::close_foreign_descriptors_at_exec();
    let serving = hotdesk_desk::user::serve(socket.into(), display, xauthority, std::path::Path::new(runtime_dir));
    match runtime.block_on(serving) {
        Ok(()) => Exit::Success.into(),
        Err(e) => complain_about(&e).into(),
    }
}

/// All layers, put together.
fn settings(args: DeskArgs) -> Result<Config, ConfigError> {
    let file = args.config.as_deref().map(Settings::from_file).transpose()?.unwrap_or_default();
    let openmanus = Settings::from_openmanus(|name| std::env::var(name).ok())?;
    args.settings().over(openmanus).over(file).resolve()
}

fn start_log(filter: &str, format: LogFormat) -> Result<(), tracing_subscriber::filter::ParseError> {
    use std::io::IsTerminal;
    let filter = EnvFilter::builder().parse(filter)?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            log.with_ansi(colour).with_target(false).init();
        }
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// The desk itself. `above` is the process that adopts orphans, and a pipe to it.
fn serve(config: Config, above: Option<(Pid, std::io::PipeWriter)>) -> Exit {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).max_blocking_threads(BLOCKING).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => {
            complain(&format!("no threads can be started: {e}"), None);
            return Exit::Failure;
        }
    };
    let (above, notify) = above.unzip();
    let tell = move |state: &str| match &notify {
        Some(pipe) => {
            let mut pipe = pipe;
            let _ = pipe.write_all(state.as_bytes());
        }
        None => crate::notify::send(state),
    };
    let tell_stopping = std::sync::Arc::new(tell);
    let tell_ready = tell_stopping.clone();
    let hooks = Hooks {
        ready: Some(Box::new(move |desk: &Desk| {
            let addresses = desk.config.listen.iter().map(Address::url).collect::<Vec<_>>().join(" ");
            tracing::info!(display = %desk.place.display.name(), addresses, "the desk is ready");
            tell_ready("READY=1\nSTATUS=The desk is ready");
        })),
        stopping: Some(Box::new(move || tell_stopping("STOPPING=1"))),
        sweep: above.map(|above| -> SweepHook { Box::new(move |parts| sweep(above, parts).boxed()) }),
    };
    let outcome = runtime.block_on(hotdesk_desk::run_with(config, hooks));
    // Threads that are stuck in the kernel must not keep us.
    runtime.shutdown_timeout(Duration::from_millis(200));
    match outcome {
        Ok(Ended::Asked) => Exit::Success,
        Ok(Ended::Forced(signal)) => Exit::Signal(signal),
        Err(e) => complain_about(&e),
    }
}

/// Ends every program below the process above, but for the parts of the session, which are ended in order.
async fn sweep(above: Pid, parts: Vec<u32>) {
    let own = std::process::id();
    let programs = || -> Vec<i32> {
        let spared = |pid: i32| u32::try_from(pid).is_ok_and(|pid| pid == own || parts.contains(&pid));
        // What a part started is swept; a part is not.
        init::descendants(above.as_raw()).into_iter().filter(|pid| !spared(*pid)).collect()
    };
    let begin = Instant::now();
    for pid in programs() {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    while begin.elapsed() < PROGRAM_GRACE {
        if programs().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for pid in programs() {
        tracing::warn!(pid, "it does not end when asked and is killed");
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}
