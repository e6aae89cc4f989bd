//! System calls that no program of a desk may make.
//!
//! A list of what is refused, not of what is allowed: desktops run all kinds of programs. Without capabilities most of these
//! calls would fail anyway; refusing them here keeps mistakes of the kernel out of reach.

use super::{Outcome, Trouble};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, sock_filter,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What may be loosened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// Programs may make user namespaces, as the browsers' own sandboxes do.
    pub(crate) nested_namespaces: bool,
    /// Programs may trace each other, as debuggers do.
    pub(crate) debuggers: bool,
}

/// Mounts, names of the system, modules, time, swap, keys, traces of the kernel, files by handle.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
];
const TRACING: &[libc::c_long] =
    &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_pidfd_getfd, libc::SYS_kcmp];
/// Calls for which programs have another way if the kernel does not know them. The flags of `clone3` can't be looked at
/// from here, so the C library must use `clone`; rings take work past every filter.
const UNKNOWN: &[libc::c_long] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
/// Families of sockets that stay inside the network namespace. The others are exotic, or lead around it: `AF_VSOCK`
/// reaches the host of a virtual machine.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The last call, on every processor, that somebody has looked at for this list (`futex_requeue`, Linux 6.7). What came later is
/// unknown here, as on an older kernel, and programs have another way.
const NEWEST: u32 = 456;
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Puts the filters in place, for this process and all that come from it.
pub(super) fn install(rules: Rules) -> Outcome<()> {
    for program in programs(rules)? {
        seccompiler::apply_filter(&program).map_err(|e| Trouble::new(format!("can't filter system calls: {e}")))?;
    }
    Ok(())
}

/// The same for a process that may become root again, which must be root of its namespaces now. The usual way would forbid it.
pub(super) fn install_by_root(rules: Rules) -> Outcome<()> {
    for program in programs(rules)? {
        let length = u16::try_from(program.len()).map_err(|e| Trouble::new(e.to_string()))?;
        // The kernel's structure has the same layout under another crate's name.
        let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
        // SAFETY: the filter's length is that of the array, which lives until the call returns; the kernel copies it.
        let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
        if done != 0 {
            return Err(Trouble::new(format!("can't filter system calls: {}", std::io::Error::last_os_error())));
        }
    }
    Ok(())
}

fn programs(rules: Rules) -> Outcome<Vec<BpfProgram>> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let tracing = if rules.debuggers { &[][..] } else { TRACING };
    refused.extend(REFUSED.iter().chain(tracing).map(|call| (*call, Vec::new())));
    let conditions = FAMILIES.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family)).collect::<Outcome<_>>()?;
    refused.insert(libc::SYS_socket, vec![rule(conditions)?]);
    // The other families have no pairs, but asking loads their modules.
    refused.insert(libc::SYS_socketpair, vec![rule(vec![condition(0, SeccompCmpOp::Ne, libc::AF_UNIX)?])?]);
    if !rules.nested_namespaces {
        for call in [libc::SYS_clone, libc::SYS_unshare] {
            let any = NAMESPACES.iter().map(|flag| {
                let flag = u64::from(flag.cast_unsigned());
                let set = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag);
                rule(vec![set.map_err(|e| Trouble::new(e.to_string()))?])
            });
            refused.insert(call, any.collect::<Outcome<_>>()?);
        }
    }
    let unknown = UNKNOWN.iter().map(|call| (*call, Vec::new())).collect();
    Ok(vec![compile(refused, libc::EPERM)?, compile(unknown, libc::ENOSYS)?, newer_numbers()])
}

fn compile(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: libc::c_int) -> Outcome<BpfProgram> {
    let refuse = SeccompAction::Errno(errno.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into();
    let made = arch.and_then(|arch| SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)).and_then(TryInto::try_into);
    made.map_err(|e: seccompiler::BackendError| Trouble::new(format!("can't filter system calls: {e}")))
}

fn condition(argument: u8, operator: SeccompCmpOp, value: libc::c_int) -> Outcome<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value.cast_unsigned()))
        .map_err(|e| Trouble::new(e.to_string()))
}

fn rule(conditions: Vec<SeccompCondition>) -> Outcome<SeccompRule> {
    SeccompRule::new(conditions).map_err(|e| Trouble::new(e.to_string()))
}

/// Numbers that the list does not know: those of newer kernels, and the second set of numbers that x86-64 has (x32), from
/// 0x40000000 on.
fn newer_numbers() -> BpfProgram {
    const FIRST: u32 = NEWEST + 1;
    let line = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k };
    vec![
        // The number is the first word of what a filter sees.
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, FIRST),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile() {
        for rules in [Rules::default(), Rules { nested_namespaces: true, debuggers: true }] {
            let programs = programs(rules).unwrap();
            assert_eq!(programs.len(), 3);
            assert!(programs.iter().all(|program| program.len() < 4096), "the kernel takes no more than 4096 lines");
        }
    }
}
