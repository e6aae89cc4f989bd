//! The way of a desk to the outside: a network stack in user space, one process per desk, without rights.
//!
//! A desk's network namespace has its own loopback and nothing else. If the desk may reach the outside, `slirp4netns` (or
//! `pasta`) carries its connections out as if they were its own. What must not be reached is dropped by a packet filter that
//! the desk can't change ([`filter`]): the addresses of this machine, so that no service of the host is, link-local addresses,
//! where clouds answer with credentials, and private networks. Desks have no addresses that others could reach.
//!
//! Routes say the same as the filter. They are no wall, but programs are told at once that there is no way, instead of
//! waiting for an answer.
//!
//! The process belongs to the desk's own root (nobody on the host) and is told to end by the end of a pipe that
//! only the keeper holds: so it ends with the keeper, however that ends.

pub(crate) mod filter;

use super::ids::Ids;
use crate::closed::{ALWAYS, Cidr, PRIVATE};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::libc;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The resolver that the network helper offers; it asks the host's.
pub(crate) const RESOLVER: &str = "nameserver 10.0.2.3\n";
/// What a helper may write about its troubles.
const LONGEST_LOG: u64 = 256 << 10;
/// The number of loopback in every network namespace.
const LOOPBACK: u32 = 1;

/// A program that connects a network namespace to the host's network, and what must not be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) tool: Tool,
    /// Addresses of this machine.
    pub(crate) blocked: Vec<IpAddr>,
    /// Private networks that the operator opened.
    #[serde(default)]
    pub(crate) allowed: Vec<Cidr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tool {
    Slirp(PathBuf),
    Pasta(PathBuf),
}

impl Tool {
    /// The best one that is installed.
    pub(crate) fn find() -> Option<Self> {
        let find = |name: &str| {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let usual = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
            std::env::split_paths(&folders).chain(usual).map(|folder| folder.join(name)).find(|path| path.is_file())
        };
        find("slirp4netns").map(Self::Slirp).or_else(|| find("pasta").map(Self::Pasta))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Slirp(_) => "slirp4netns",
            Self::Pasta(_) => "pasta",
        }
    }
}

/// All addresses by which this machine is reached, but for those of loopback, which a desk has itself.
pub(crate) fn host_addresses() -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = nix::ifaddrs::getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
        })
        .filter(|address| !address.is_loopback())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Inside a new network namespace, before it has a way out: loopback up, and what must not be reached closed.
pub(crate) fn prepare(network: Option<&Network>) -> io::Result<()> {
    let mut kernel = Kernel::connect()?;
    let mut loopback = LinkMessage::default();
    loopback.header.index = LOOPBACK;
    loopback.header.flags = LinkFlags::Up;
    loopback.header.change_mask = LinkFlags::Up;
    kernel.ask(RouteNetlinkMessage::SetLink(loopback), 0)?;
    let Some(network) = network else { return Ok(()) };
    network.fence()?;
    // Loopback has a route of its own.
    let closed = ALWAYS.into_iter().filter(|closed| !closed.address().is_loopback());
    let closed = closed.chain(PRIVATE).filter(|closed| !network.allowed.iter().any(|open| open.overlaps(*closed)));
    let closed = closed.map(|closed| (IpAddr::V4(closed.address()), closed.length()));
    let own = network.blocked.iter().map(|address| (*address, if address.is_ipv4() { 32 } else { 128 }));
    for (address, length) in own.chain(closed) {
        // The filter is the wall, and some of these the kernel does not take as routes.
        let _ = kernel.ask(RouteNetlinkMessage::NewRoute(unreachable(address, length)), NLM_F_CREATE | NLM_F_REPLACE);
    }
    Ok(())
}

impl Network {
    /// Writes the packet filter of the network namespace that this process is in.
    fn fence(&self) -> io::Result<()> {
        filter::install(&self.blocked, &self.allowed).map_err(|e| {
            io::Error::new(
                e.kind(),
                format!(
                    "the packet filter can't be written, and without it the desk would reach this machine: {e}; `modprobe nf_tables` \
                     may help, or create the desk without network"
                ),
            )
        })
    }
}

fn unreachable(address: IpAddr, length: u8) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header = RouteHeader {
        address_family: if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
        destination_prefix_length: length,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Static,
        scope: RouteScope::Universe,
        kind: RouteType::Unreachable,
        ..RouteHeader::default()
    };
    route.attributes = vec![RouteAttribute::Destination(address.into())];
    route
}

/// A connection to the kernel's network tables.
struct Kernel {
    socket: Socket,
    number: u32,
}

impl Kernel {
    fn connect() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, number: 0 })
    }

    /// Sends one message and hears whether it was done.
    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.number += 1;
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        message.header.sequence_number = self.number;
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        self.socket.send(&buffer, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            _ => Ok(()),
        }
    }
}

/// Tells that addresses of this machine came or went.
pub(crate) struct Changes(Socket);

impl Changes {
    pub(crate) fn watch() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, libc::RTMGRP_IPV4_IFADDR.cast_unsigned()))?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Whether there was one since the last time. One that got lost for want of room counts.
    pub(crate) fn happened(&mut self) -> bool {
        let mut any = false;
        loop {
            match self.0.recv(&mut Vec::<u8>::with_capacity(8 << 10), 0) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return any,
                Err(e) if e.raw_os_error() != Some(libc::ENOBUFS) => return any,
                _ => any = true,
            }
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        // SAFETY: the socket is open as long as this lives.
        unsafe { std::os::fd::BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}

/// The running helper of one desk. Dropped, it ends.
pub(crate) struct Helper {
    tool: Tool,
    users: OwnedFd,
    network: OwnedFd,
    ids: Ids,
    log: PathBuf,
    child: Child,
    /// Its other end is the helper's standard input; it watches for the end of it.
    _alive: io::PipeWriter,
}

impl Helper {
    /// Starts it for the namespaces of a process. It sets up the interface while the desk starts.
    pub(crate) fn start(tool: &Tool, pid: i32, ids: Ids, log: &Path) -> io::Result<Self> {
        let users = OwnedFd::from(File::open(format!("/proc/{pid}/ns/user"))?);
        let network = OwnedFd::from(File::open(format!("/proc/{pid}/ns/net"))?);
        let (child, alive) = spawn(tool, &users, &network, ids, log)?;
        Ok(Self { tool: tool.clone(), users, network, ids, log: log.into(), child, _alive: alive })
    }

    /// Closes the addresses that this machine has got since, if there are any. Entering the desk's namespaces
    /// is done by a child, which ends there.
    pub(crate) fn close_new_addresses(&self, known: &mut Network) -> io::Result<()> {
        let now = host_addresses();
        if now == known.blocked {
            return Ok(());
        }
        let next = Network { blocked: now, ..known.clone() };
        // SAFETY: the keeper has one thread, so no lock is held; the child leaves by _exit.
        let child = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
                let entered = move_into_link_name_space(self.users.as_fd(), Some(LinkNameSpaceType::User))
                    .and_then(|()| move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network)));
                let done = entered.is_ok() && next.fence().is_ok();
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!done)) }
            }
            child => rustix::process::Pid::from_raw(child),
        };
        let status = rustix::process::waitpid(child, rustix::process::WaitOptions::empty())?;
        if status.is_some_and(|(_, status)| status.exit_status() == Some(0)) {
            *known = next;
            return Ok(());
        }
        Err(io::Error::other("the packet filter can't be brought up to date"))
    }

    /// To be watched for its end; none if it ended.
    pub(crate) fn handle(&mut self) -> Option<OwnedFd> {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return None;
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)?;
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
    }

    /// Starts it again in the same namespaces, if it ended.
    pub(crate) fn again(&mut self) -> io::Result<()> {
        if matches!(self.child.try_wait(), Ok(None)) {
            return Ok(());
        }
        let (child, alive) = spawn(&self.tool, &self.users, &self.network, self.ids, &self.log)?;
        (self.child, self._alive) = (child, alive);
        Ok(())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(tool: &Tool, users: &OwnedFd, network: &OwnedFd, ids: Ids, log: &Path) -> io::Result<(Child, io::PipeWriter)> {
    // It can't look into the sandbox's process by itself before that became the desk; so it is handed the namespaces.
    let (users_path, network_path) = (own_path(users), own_path(network));
    let mut command = match tool {
        Tool::Slirp(path) => {
            let mut command = Command::new(path);
            command.args(["--configure", "--mtu=65520", "--disable-host-loopback", "--enable-seccomp", "--exit-fd=0"]);
            if ids.is_rootless() {
                command.arg(format!("--userns-path={users_path}"));
            }
            command.args(["--netns-type=path", &network_path, "tap0"]);
            command
        }
        Tool::Pasta(path) => {
            let mut command = Command::new(path);
            command.args(["--foreground", "--quiet", "--config-net", "--no-map-gw", "--ipv4-only", "--ns-ifname", "tap0"]);
            command.args(["--address", "10.0.2.100", "--netmask", "24", "--gateway", "10.0.2.2", "--dns-forward", "10.0.2.3"]);
            command.args(["-t", "none", "-u", "none", "-T", "none", "-U", "none"]);
            if ids.is_rootless() {
                command.args(["--userns", &users_path, "--netns", &network_path]);
            } else {
                command.args(["--netns-only", "--netns", &network_path]);
            }
            command
        }
    };
    let (ours, alive) = io::pipe()?;
    let log = File::options().create(true).write(true).truncate(true).open(log)?;
    command.stdin(ours).stdout(Stdio::null()).stderr(log).env_clear().current_dir("/");
    let namespace = users.as_raw_fd();
    // SAFETY: this process has one thread, so nothing is locked in the child.
    unsafe { command.pre_exec(move || restrict(ids, namespace)) };
    for namespace in [users, network] {
        rustix::io::fcntl_setfd(namespace, rustix::io::FdFlags::empty())?;
    }
    let child = command.spawn();
    for namespace in [users, network] {
        rustix::io::fcntl_setfd(namespace, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((child?, alive))
}

fn own_path(file: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Root of the desk's users, nobody on the host, no new rights, and no log without end. Whoever owns the user namespace (of
/// a restored desk that is the host's root) may enter it; so it is entered while there still is somebody to do so.
fn restrict(ids: Ids, users: i32) -> io::Result<()> {
    use rustix::process::{Gid, Resource, Rlimit, Uid, setrlimit};
    setrlimit(Resource::Fsize, Rlimit { current: Some(LONGEST_LOG), maximum: Some(LONGEST_LOG) })?;
    // SAFETY: sets how the signal of that limit is treated, before any other thread exists.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if !ids.is_rootless() {
        open_tunnels()?;
        // SAFETY: the descriptor is open, because whoever made this process holds it.
        let users = unsafe { std::os::fd::BorrowedFd::borrow_raw(users) };
        rustix::thread::move_into_link_name_space(users, Some(rustix::thread::LinkNameSpaceType::User))?;
        let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// The device of tunnels is open to everybody where `udev` is; elsewhere the helper gets one of its own, in a namespace
/// of its own.
fn open_tunnels() -> io::Result<()> {
    use rustix::fs::{FileType, Mode, chmod, makedev, mknodat};
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    const TUNNELS: &str = "/dev/net/tun";
    const OPEN: u32 = 0o666;
    if std::fs::metadata(TUNNELS).is_ok_and(|meta| meta.mode() & OPEN == OPEN) {
        return Ok(());
    }
    // SAFETY: there is one thread.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    // What the host unmounts is unmounted here too.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    mount("none", "/dev/net", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, Some(c"size=4k,mode=0755"))?;
    mknodat(rustix::fs::CWD, TUNNELS, FileType::CharacterDevice, Mode::from_raw_mode(OPEN), makedev(10, 200))?;
    Ok(chmod(TUNNELS, Mode::from_raw_mode(OPEN))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_addresses_and_none_is_loopback() {
        assert!(host_addresses().iter().all(|address| !address.is_loopback()));
    }

    #[test]
    fn a_route_into_nothing() {
        let route = unreachable("192.0.2.7".parse().unwrap(), 32);
        assert_eq!(route.header.kind, RouteType::Unreachable);
        assert_eq!(route.header.destination_prefix_length, 32);
    }
}
