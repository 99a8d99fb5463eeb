//! What a process is limited to before it executes anything.

use std::io;

/// The most descriptors of an application's process: its connection, the device's memory, and a link to each of 256 servers.
const DESCRIPTORS: u64 = 1024;

/// Ceilings of an application's process. They count for the process alone, not for what lies on the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory that are its own: compiled code and its making, calls that wait, stacks. 0 limits nothing.
    pub memory: u64,
    /// Threads. They are counted only where the process has a [user or user namespace](super::walls) of its own.
    pub threads: u32,
}

/// What needs no opened device: no core dumps, no gain of privileges, no more memory and descriptors than it is given.
///
/// # Errors
/// Those of the system.
pub fn limit(limits: &Limits) -> io::Result<()> {
    set(libc::RLIMIT_CORE, 0)?;
    set(libc::RLIMIT_NOFILE, DESCRIPTORS)?;
    if limits.memory > 0 {
        set(libc::RLIMIT_DATA, limits.memory)?;
    }
    // SAFETY: a plain system call.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Nobody of the same user may look into the process, or stop it to look. After the [walls](super::walls): whoever makes a
/// namespace of users writes files of its own about it, which belong to root from here on.
///
/// # Errors
/// Those of the system.
pub fn hide() -> io::Result<()> {
    // SAFETY: a plain system call.
    match unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lowers a limit; one that is lower already stays.
pub(super) fn set(resource: libc::__rlimit_resource_t, most: u64) -> io::Result<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with valid places.
    let done = unsafe {
        libc::getrlimit(resource, &mut now) == 0 && {
            let most = most.min(now.rlim_max);
            libc::setrlimit(resource, &libc::rlimit { rlim_cur: most, rlim_max: most }) == 0
        }
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
