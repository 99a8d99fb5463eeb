//! Taking from an application's process what it does not need.
//!
//! Kernels become native code in it. Their memory accesses are confined by how they are compiled and by the
//! address space; should that ever fail, this is the second wall: the process can compute, allocate memory,
//! start threads and use the connections that the daemon hands it, but open no file or socket, run no program, and touch no
//! other process.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// What needs no opened device: no core dumps, no gain of privileges.
pub fn limit() -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with valid arguments.
    let done = unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none) == 0
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether files may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// Not at all.
    None,
    /// As the process's user may. NVIDIA's driver opens its devices and its compiler when they are needed, and keeps
    /// a cache of what it has compiled. Kernels do not run in the process then.
    AsTheDriverNeeds,
}

/// System calls about files.
const FILES: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
];

/// System calls that are refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_chroot,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // The network.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_capset,
    // The kernel's rarer doors.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
];

/// The older forms, which exist on x86-64 alone.
#[cfg(target_arch = "x86_64")]
const FILES_X86_64: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
];
/// As above.
#[cfg(target_arch = "x86_64")]
const REFUSED_X86_64: &[libc::c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const FILES_X86_64: &[libc::c_long] = &[];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_X86_64: &[libc::c_long] = &[];

/// Refuses, for all threads and for good, what a session does not need.
pub fn confine(files: Files) -> io::Result<()> {
    // SAFETY: plain system call.
    let own = unsafe { libc::getpid() } as u64;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().chain(REFUSED_X86_64).map(|&number| (number, Vec::new())).collect();
    if files == Files::None {
        rules.extend(FILES.iter().chain(FILES_X86_64).map(|&number| (number, Vec::new())));
    }
    // Signals to others.
    let to_others = || rule(0, SeccompCmpOp::Ne, own);
    rules.insert(libc::SYS_kill, vec![to_others()?]);
    rules.insert(libc::SYS_tgkill, vec![to_others()?]);
    // A clone that is no thread.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(thread), 0)?]);
    install(rules, libc::EPERM)?;
    // Its arguments cannot be looked into. Told that it does not exist, the C library falls back to clone.
    install(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)
}

fn rule(argument: u8, op: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(io::Error::other)
}

fn install(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> io::Result<()> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let refuse = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&program).map_err(io::Error::other)
}
