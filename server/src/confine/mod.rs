//! Taking from an application's process what it does not need.
//!
//! Kernels become native code in it. Their memory accesses are confined by how they are compiled and by the
//! address space; should that ever fail, this is the second wall. It has three parts, in the order in which they are built:
//!
//! * [`limit`]: no gain of privileges, no core dumps, and rlimits;
//! * [`walls`]: a user and namespaces of its own, where the system lets that be made; and then [`hide`]: nobody of the same user
//!   may look into it;
//! * [`confine`]: which system calls there are. For the software GPU that is a short list, of which everything else is
//!   refused: the process can compute, allocate memory, start threads and use the connections that the daemon has handed it.
//!
//! A call that is not on the list fails with EPERM, as it does where the user has no right to it, and the process goes on. To
//! kill it instead would stop nothing more, and would end an application for a harmless call that some version of the C
//! library makes: libraries are written for calls that fail.

mod calls;
mod limits;
pub mod walls;

pub use limits::{Limits, hide, limit};

use calls::{ALLOWED, REFUSED};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::io;

/// What the device needs of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but processors and memory: the software GPU.
    Nothing,
    /// The same, and what it takes to open the software GPU, and to [confine](confine) the process further then.
    Opening,
    /// Memory files beside that: rgpu's own library in the driver's place, which executes kernels in this very process.
    MemoryFiles,
    /// What NVIDIA's driver calls. It is a closed program that opens its devices and its compiler when they are needed, keeps a
    /// cache of what it has compiled, and calls the system as its version pleases; so here it is what is refused that is
    /// listed. Kernels do not run in the process then.
    Driver,
}

/// Refuses, for all threads and for good, what a session does not need.
///
/// # Errors
/// The system cannot filter system calls.
pub fn confine(needs: Needs) -> io::Result<()> {
    // SAFETY: plain system call.
    let own = unsafe { libc::getpid() } as u64;
    // Its arguments cannot be looked into. Told that it does not exist, the C library falls back to clone.
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    install(unknown, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    match needs {
        Needs::Nothing => install(allowed(own)?, refuse, SeccompAction::Allow),
        Needs::Opening => {
            let mut rules = allowed(own)?;
            rules.extend(
                [libc::SYS_memfd_create, libc::SYS_ftruncate, libc::SYS_seccomp].map(|n| (n, Vec::new())),
            );
            install(rules, refuse, SeccompAction::Allow)
        }
        Needs::MemoryFiles => {
            let mut rules = allowed(own)?;
            rules.extend([libc::SYS_memfd_create, libc::SYS_ftruncate, calls::DUP2].map(|n| (n, Vec::new())));
            install(rules, refuse, SeccompAction::Allow)
        }
        Needs::Driver => {
            refuse_x32()?;
            install(refused(own)?, SeccompAction::Allow, refuse)
        }
    }
}

/// By number, the arguments with which a call is let through; without any, all of them.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// One of these conditions has to hold for each rule: all of its parts.
fn rule(parts: &[(u8, SeccompCmpArgLen, SeccompCmpOp, u64)]) -> io::Result<SeccompRule> {
    let parts = parts.iter().map(|(argument, length, op, value)| {
        SeccompCondition::new(*argument, length.clone(), op.clone(), *value).map_err(io::Error::other)
    });
    SeccompRule::new(parts.collect::<io::Result<_>>()?).map_err(io::Error::other)
}

/// What a process may call that needs nothing of the system.
fn allowed(own: u64) -> io::Result<Rules> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq};
    let mut rules: Rules = ALLOWED.iter().map(|&number| (number, Vec::new())).collect();
    let equal = |argument, value: u64| rule(&[(argument, Dword, Eq, value)]);
    let bits = |argument, mask: u64, value: u64| rule(&[(argument, Dword, MaskedEq(mask), value)]);
    let any_of = |argument, values: &[u64]| -> io::Result<Vec<SeccompRule>> {
        values.iter().map(|value| equal(argument, *value)).collect()
    };
    let write = libc::PROT_WRITE as u64;
    let execute = libc::PROT_EXEC as u64;
    // Code is written first and made executable then, and never both.
    rules.insert(libc::SYS_mmap, vec![bits(2, execute, 0)?]);
    rules.insert(libc::SYS_mprotect, vec![bits(2, execute, 0)?, bits(2, execute | write, execute)?]);
    // Threads, in the same namespaces.
    let thread = (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
    rules.insert(libc::SYS_clone, vec![bits(0, thread | calls::NEW_NAMESPACES, thread)?]);
    // Signals to itself.
    rules.insert(libc::SYS_kill, vec![equal(0, own)?]);
    rules.insert(libc::SYS_tgkill, vec![equal(0, own)?]);
    // Reading its own limits.
    rules.insert(libc::SYS_prlimit64, vec![rule(&[(0, Dword, Eq, 0), (2, Qword, Eq, 0)])?]);
    rules.insert(libc::SYS_sched_getaffinity, vec![equal(0, 0)?, equal(0, own)?]);
    // About descriptors, not paths.
    let descriptor = libc::AT_EMPTY_PATH as u64;
    rules.insert(libc::SYS_newfstatat, vec![equal(3, descriptor)?]);
    rules.insert(libc::SYS_statx, vec![equal(2, descriptor)?]);
    rules.insert(libc::SYS_fcntl, any_of(1, calls::FCNTL)?);
    rules.insert(libc::SYS_ioctl, any_of(1, calls::IOCTL)?);
    rules.insert(libc::SYS_prctl, any_of(0, calls::PRCTL)?);
    Ok(rules)
}

/// What a process with NVIDIA's driver may not call.
fn refused(own: u64) -> io::Result<Rules> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut rules: Rules = REFUSED.iter().map(|&number| (number, Vec::new())).collect();
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo] {
        rules.insert(call, vec![rule(&[(0, Dword, Ne, own)])?]);
    }
    // The limits of others, and new limits of its own.
    let others = rule(&[(0, Dword, Ne, 0), (0, Dword, Ne, own)])?;
    rules.insert(libc::SYS_prlimit64, vec![others, rule(&[(2, Qword, Ne, 0)])?]);
    // A clone that is no thread.
    rules.insert(libc::SYS_clone, vec![rule(&[(0, Dword, MaskedEq(libc::CLONE_THREAD as u64), 0)])?]);
    // Signals of descriptors to others.
    let owners = [libc::F_SETOWN, calls::F_SETOWN_EX];
    let owners = owners.iter().map(|command| rule(&[(1, Dword, Eq, *command as u64)]));
    rules.insert(libc::SYS_fcntl, owners.collect::<io::Result<_>>()?);
    rules.insert(libc::SYS_ioctl, vec![rule(&[(1, Dword, Eq, libc::TIOCSTI)])?]);
    Ok(rules)
}

/// Refuses the numbers of x32, an interface that some kernels have beside the usual one: a list of what is refused does not
/// name them. (One of what is allowed does not, either, and that is enough.)
fn refuse_x32() -> io::Result<()> {
    // Offsets and codes are those of <linux/seccomp.h> and <linux/bpf_common.h>.
    const LOAD: u16 = 0x20;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let program = [
        step(LOAD, 0, 0, 0),
        step(AT_LEAST, 0, 1, 0x4000_0000),
        step(RETURN, 0, 0, ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, ALLOW),
    ];
    seccompiler::apply_filter_all_threads(&program).map_err(io::Error::other)
}

/// Calls that no rule matches are answered in one way, the others in another; programs for other processors' interfaces are
/// killed.
fn install(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> io::Result<()> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&program).map_err(io::Error::other)
}
