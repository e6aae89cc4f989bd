//! Giving up every right, for good.

use super::{Outcome, Plan, Step, seccomp};
use crate::local::ids::USER;
use nix::libc;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Files and connections at once: an X server's clients and a browser need more than the usual 1024.
const DESCRIPTORS: u64 = 65_536;
/// The highest capability that any kernel will have: the sets have 64 bits.
const CAPABILITIES: libc::c_ulong = 64;

/// What root of a sandbox may do where a template allows one: change owners, overrule permissions, be other users, end programs,
/// give up rights, take low ports. All of it holds in the sandbox's own namespaces only.
///
/// Containers have three more. Raw packets (13) lead around routes, and `ping` works without. Devices (27) can't be made in a user
/// namespace anyway. Files that give rights to whoever runs them (31) are made by packages, which fall back to setuid.
const KEPT: [libc::c_ulong; 9] = [0, 1, 3, 4, 5, 6, 7, 8, 10];

/// Root of the sandbox, in every respect.
pub(crate) fn become_root() -> Outcome<()> {
    let what = || "become the sandbox's root".to_owned();
    use rustix::process::{Gid, Uid};
    let (gid, uid) = (Gid::ROOT, Uid::ROOT);
    rustix::thread::set_thread_groups(&[gid]).step(what)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).step(what)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step(what)
}

/// From root of the sandbox to an ordinary user of it, who can't become anything else; unless the plan lets it become root again.
pub(super) fn everything(plan: &Plan) -> Outcome<()> {
    limits(plan)?;
    // An ordinary user's sandbox has no root.
    let root = plan.root && !plan.ids.is_rootless();
    if root {
        // As long as we are root: who may become root again can't filter itself later.
        seccomp::install_by_root(plan.rules)?;
    }
    let what = || "give up the rights of root".to_owned();
    for capability in 0..CAPABILITIES {
        if root && KEPT.contains(&capability) {
            continue;
        }
        // SAFETY: a plain system call; a capability that the kernel does not know is refused.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            break;
        }
    }
    rustix::thread::clear_ambient_capability_set().step(what)?;
    if !plan.ids.is_rootless() {
        use rustix::process::{Gid, Uid};
        let (gid, uid) = (Gid::from_raw(USER), Uid::from_raw(USER));
        rustix::thread::set_thread_groups(&[gid]).step(what)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).step(what)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).step(what)?;
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).step(what)?;
    if root {
        // No `no_new_privs` here, and only here: `sudo` is a setuid program. The bounding set above is what it can get at most.
        return Ok(());
    }
    rustix::thread::set_no_new_privs(true).step(what)?;
    seccomp::install(plan.rules)
}

fn limits(plan: &Plan) -> Outcome<()> {
    let what = || "set limits".to_owned();
    let most = getrlimit(Resource::Nofile).maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) }).step(what)?;
    // A dump would go wherever the host sends dumps.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).step(what)?;
    // Counted per user and user namespace: where there is no control group, it is the limit.
    if plan.group.is_none() {
        let processes = Some(plan.limits.processes.into());
        setrlimit(Resource::Nproc, Rlimit { current: processes, maximum: processes }).step(what)?;
    }
    Ok(())
}
