//! seccomp: system calls that programs do without.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// Mounting, keys that users share, and what the kernel has been broken by most: no program of an agent needs it.
const NEVER: [libc::c_long; 29] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_open_by_handle_at,
];
/// Where other processes can be seen: what would reach into them. By Landlock alone this is refused in part.
const REACHING: [libc::c_long; 5] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];
/// The kinds of sockets that reach a network and nothing on this machine that has a path or a name.
const FAMILIES_OF_NETWORK: [libc::c_int; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The same calls by the numbers of the x32 way into the kernel, which has the same architecture in a filter's eyes.
#[cfg(target_arch = "x86_64")]
const X32: libc::c_long = 0x4000_0000;
/// Calls that have numbers of their own there: `ptrace`, `kexec_load`, `process_vm_readv`, `process_vm_writev`.
#[cfg(target_arch = "x86_64")]
const X32_OWN: [libc::c_long; 4] = [521, 528, 539, 540];

/// For programs in namespaces of their own.
pub(in crate::process) fn bwrap() -> Result<BpfProgram, String> {
    compile(NEVER.into_iter().map(|call| (call, Vec::new())).collect())
}

/// For programs that are held by Landlock: there a socket is the way to what has no path, so without network there is
/// none but a pair of the program's own.
pub(in crate::process) fn landlock(network: bool) -> Result<BpfProgram, String> {
    let mut calls: BTreeMap<_, _> =
        NEVER.into_iter().chain(REACHING).map(|call| (call, Vec::new())).collect();
    let sockets = if network { vec![other_families()?] } else { Vec::new() };
    calls.insert(libc::SYS_socket, sockets);
    compile(calls)
}

fn other_families() -> Result<SeccompRule, String> {
    let is_other = |family: &libc::c_int| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()))
    };
    let conditions = FAMILIES_OF_NETWORK.iter().map(is_other).collect::<Result<_, _>>();
    conditions.and_then(SeccompRule::new).map_err(|error| error.to_string())
}

fn compile(calls: BTreeMap<libc::c_long, Vec<SeccompRule>>) -> Result<BpfProgram, String> {
    let mut calls = calls;
    #[cfg(target_arch = "x86_64")]
    {
        let twins: Vec<_> = calls.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
        calls.extend(twins);
        calls.extend(X32_OWN.map(|call| (call | X32, Vec::new())));
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refuse, arch);
    filter.and_then(TryInto::try_into).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_filters_compile() {
        for filter in [bwrap(), landlock(false), landlock(true)] {
            assert!(!filter.unwrap().is_empty());
        }
    }
}
