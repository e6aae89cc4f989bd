//! From a plan to a running desk: the helper's own part.

use super::{Answer, Outcome, Plan, Step, Trouble, inside, keeper, mounts, say};
use crate::local::directory::{self, DeskDirectory, Running};
use crate::local::ids::Ids;
use crate::local::network;
use crate::local::process::Process;
use nix::libc;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

/// The namespaces of a desk.
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;

/// Makes the sandbox, starts the desk, tells so, and stays until the desk ended.
pub(super) fn run(plan: &Plan) -> ExitCode {
    match start(plan) {
        Ok((running, keeper)) => {
            say(&Answer::Running(running));
            // Whoever waits for the lock or for the end of our output waits no longer.
            let _ = silence();
            keeper.keep();
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            say(&Answer::Failed(trouble));
            ExitCode::FAILURE
        }
    }
}

fn start(plan: &Plan) -> Outcome<(Running, keeper::Keeper)> {
    let desk = DeskDirectory { path: plan.desk.clone() };
    if let Some(group) = &plan.group {
        group.make(&plan.limits).step(|| "make the desk's control group".into())?;
        group.take(std::process::id()).step(|| "enter the desk's control group".into())?;
    }
    let pipe = pipe_of_log(plan, &desk)?;
    let home = Home::leave(plan.ids)?;
    let mut loop_device = None;
    if !plan.ids.is_rootless() {
        let users = user_namespace(plan.ids)?;
        loop_device = mounts::lay(plan, Some(users.as_fd()))?;
    }
    if let Some(restore) = &plan.restore {
        let pid = restore.begin(plan)?;
        let note = |child: &mut Child| {
            home.back()?;
            // Before it has a way out.
            restore.fence(plan, pid)?;
            let started = note(plan, &desk, pid, loop_device, pipe)?;
            restore.finish(plan, pid)?;
            child.0 = None;
            Ok(started)
        };
        let done = note(&mut Child(Some(pid)));
        if done.is_err() {
            let _ = std::fs::remove_file(desk.running_file());
        }
        return done;
    }
    let (ours, theirs) = UnixStream::pair().step(|| "make a pair of sockets".into())?;
    let pid = clone_into(plan.ids, NAMESPACES, || {
        // Else it would hold the other end itself, and never notice that the helper died.
        // SAFETY: the child's copy, which nothing in the child uses.
        unsafe { libc::close(ours.as_raw_fd()) };
        inside::main(plan, &theirs);
    })?;
    drop(theirs);
    // From here on somebody else lives: what fails must end them.
    let mut child = Child(Some(pid));
    let done = (|| {
        home.back()?;
        write_maps(pid, plan.ids)?;
        let started = note(plan, &desk, pid, loop_device, pipe)?;
        go(ours, plan, &desk)?;
        Ok(started)
    })();
    match done {
        Ok(done) => {
            child.0 = None;
            Ok(done)
        }
        Err(trouble) => {
            let _ = std::fs::remove_file(desk.running_file());
            Err(trouble)
        }
    }
}

/// Notes who runs, and gives it a network and a keeper.
fn note(
    plan: &Plan,
    desk: &DeskDirectory,
    pid: i32,
    loop_device: Option<u32>,
    pipe: OwnedFd,
) -> Outcome<(Running, keeper::Keeper)> {
    let init = Process::of(pid).step(|| "find the first process of the sandbox".into())?;
    crate::goes_first(pid.cast_unsigned());
    let own = Process::of(std::process::id().cast_signed()).step(|| "find the helper itself".into())?;
    let running = Running { init, keeper: own, loop_device };
    let _ = std::fs::remove_file(desk.ended_file());
    directory::write(&desk.running_file(), &running).step(|| "note who runs".into())?;
    let log = desk.network_log();
    let network = plan.network.as_ref().map(|network| network::Helper::start(&network.tool, pid, plan.ids, &log)).transpose();
    let network = network.step(|| "start the network".into())?;
    let keeper = keeper::Keeper::new(plan, desk, pid, pipe, network)?;
    Ok((running, keeper))
}

/// Lets the first process go on, and hears whether it became the desk.
fn go(mut ours: UnixStream, plan: &Plan, desk: &DeskDirectory) -> Outcome<()> {
    // It opens its socket as the desk's root, who may make files there until then.
    lend(&desk.run(), plan.ids)?;
    ours.write_all(b"g").step(|| "let the sandbox start".into())?;
    let mut text = vec![0_u8];
    ours.read_exact(&mut text).step(|| "hear from the sandbox".into())?;
    if text == [inside::LISTENS] {
        take_back(&desk.run(), plan.ids)?;
        ours.write_all(b"g").step(|| "let the sandbox start".into())?;
        text.clear();
    }
    // Becoming another program closes the other end.
    ours.read_to_end(&mut text).step(|| "hear from the sandbox".into())?;
    if text.is_empty() {
        return Ok(());
    }
    Err(serde_json::from_slice(&text).unwrap_or_else(|_| Trouble::new(String::from_utf8_lossy(&text))))
}

/// A process that is ended unless it is let go.
struct Child(Option<i32>);

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(pid) = self.0.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        }
    }
}

/// The host's namespace of mounts, to which the helper returns when the sandbox has its own.
/// What it made in between lives on only in the sandbox.
struct Home(Option<File>);

impl Home {
    fn leave(ids: Ids) -> Outcome<Self> {
        if ids.is_rootless() {
            return Ok(Self(None));
        }
        let home = File::open("/proc/self/ns/mnt").step(|| "open the namespace of mounts".into())?;
        private_mounts()?;
        Ok(Self(Some(home)))
    }

    fn back(&self) -> Outcome<()> {
        let Some(home) = &self.0 else { return Ok(()) };
        let kind = Some(rustix::thread::LinkNameSpaceType::Mount);
        rustix::thread::move_into_link_name_space(home.as_fd(), kind)
            .step(|| "return to the host's namespace of mounts".into())?;
        std::env::set_current_dir("/").step(|| "return to the root".into())
    }
}

/// A namespace of mounts of our own, from which nothing gets out.
pub(crate) fn private_mounts() -> Outcome<()> {
    // SAFETY: there is one thread, and file system state is wanted to be our own from here on.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.step(|| "make a namespace of mounts".into())?;
    let flags = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", flags).step(|| "make the mounts private".into())
}

/// A user namespace with these maps and nobody in it; mounts are shifted by it.
pub(crate) fn user_namespace(ids: Ids) -> Outcome<OwnedFd> {
    let (ours, theirs) = UnixStream::pair().step(|| "make a pair of sockets".into())?;
    let pid = clone_into(ids, libc::CLONE_NEWUSER, || {
        // Its only purpose is that the namespace exists; it ends with the helper at the latest.
        // SAFETY: the child's copy, which nothing in the child uses.
        unsafe { libc::close(ours.as_raw_fd()) };
        let _ = (&theirs).read(&mut [0]);
    })?;
    let _child = Child(Some(pid));
    write_maps(pid, ids)?;
    let namespace = File::open(format!("/proc/{pid}/ns/user")).step(|| "open the namespace of users".into())?;
    Ok(namespace.into())
}

/// Starts a child in new namespaces that does `body` and then ends. It owns its user namespace, as the host's user of its
/// root: so what the kernel counts per user is counted per desk. Only its owner, or who may do everything, can look at the
/// limits of its processes, which is needed to save them: where root may not, root owns it.
fn clone_into(ids: Ids, namespaces: libc::c_int, body: impl FnOnce()) -> Outcome<i32> {
    let keep = u32::MAX;
    let owns_limits =
        rustix::thread::capabilities(None).is_ok_and(|own| own.effective.contains(rustix::thread::CapabilitySet::SYS_RESOURCE));
    let become_user = |uid: u32| {
        if ids.is_rootless() || !owns_limits {
            return Ok(());
        }
        // SAFETY: a plain system call. The C library's wrapper would do the same for all threads, of which there is one.
        match unsafe { libc::syscall(libc::SYS_setresuid, keep, uid, keep) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    become_user(ids.uid(0)).step(|| "act as the desk's root".into())?;
    let flags = namespaces | libc::SIGCHLD;
    // SAFETY: without a stack of its own the child goes on here on a copy of everything, as after a fork. There is one
    // thread, so no lock is held. The child leaves by exec or exit and never returns from here.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    let failed = std::io::Error::last_os_error();
    if pid == 0 {
        body();
        // SAFETY: ends the child at once, without what the parent wants to do at its own exit.
        unsafe { libc::_exit(1) };
    }
    become_user(0).step(|| "act as root again".into())?;
    match i32::try_from(pid) {
        Ok(pid @ 1..) => Ok(pid),
        _ => Err(failed).step(|| "make namespaces".into()),
    }
}

fn write_maps(pid: i32, ids: Ids) -> Outcome<()> {
    let write = |name: &str, text: String| {
        std::fs::write(format!("/proc/{pid}/{name}"), text).step(|| format!("write the sandbox's {name}"))
    };
    if ids.is_rootless() {
        write("setgroups", "deny".into())?;
    }
    write("gid_map", ids.gid_map())?;
    write("uid_map", ids.uid_map())
}

/// The named pipe that the desk prints into. Named, so that a saved desk finds its new one; a pipe, so that
/// a desk that prints without end fills no disk.
fn pipe_of_log(plan: &Plan, desk: &DeskDirectory) -> Outcome<OwnedFd> {
    let path = desk.run().join("log");
    let _ = std::fs::remove_file(&path);
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .step(|| "make the pipe of the log".into())?;
    own(&path, plan.ids)?;
    rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .step(|| "open the pipe of the log".into())
}

/// Lets the desk's root make files in a directory of the host, before any program of the desk runs.
pub(crate) fn lend(run: &Path, ids: Ids) -> Outcome<()> {
    if ids.is_rootless() { Ok(()) } else { own(run, ids) }
}

/// From now on the directory is the host's again.
pub(crate) fn take_back(run: &Path, ids: Ids) -> Outcome<()> {
    if ids.is_rootless() {
        return Ok(());
    }
    std::os::unix::fs::lchown(run, Some(0), Some(0)).step(|| format!("take back {}", run.display()))
}

/// Gives a file to the desk's root.
pub(crate) fn own(path: &Path, ids: Ids) -> Outcome<()> {
    std::os::unix::fs::lchown(path, Some(ids.uid(0)), Some(ids.gid(0))).step(|| format!("give {} to the desk", path.display()))
}

/// Standard input and output lead nowhere from now on.
fn silence() -> std::io::Result<()> {
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    for number in 0..3 {
        // SAFETY: the numbers of standard input, output and errors, which nothing in this process owns.
        let mut standard = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        rustix::io::dup2(&nowhere, &mut standard)?;
    }
    Ok(())
}
