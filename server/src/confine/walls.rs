//! A user and namespaces of its own for an application's process, where the system lets them be made.
//!
//! The process makes them itself, before it has any thread and before anything of the application's is executed. They stop
//! nothing that the list of [system calls](super) lets through; they are there for the day on which a kernel has a fault in one
//! of those calls: a process that breaks out of its program then finds no file, no network, no other process's memory and no
//! right to any.
//!
//! As root the process becomes a user that nobody else is. Without root it gets a user namespace, if the system lets ordinary
//! users make them; to the rest of the machine it stays the daemon's user. What is missing is said once, by the daemon
//! when it starts.

use super::limits::{self, Limits};
use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};

/// The first of the users that processes of applications are where the daemon is root: systemd's list of users leaves this range
/// to nobody. Each slot of the ledger has one.
pub const FIRST_USER: u32 = 0x7000_0000;

/// What could not be made, and why.
#[derive(Debug, Default)]
pub struct Missing(Vec<(&'static str, io::Error)>);

impl Missing {
    /// Whether everything is there.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is there.
    fn note(&mut self, what: &'static str, result: io::Result<()>) -> bool {
        result.map_err(|e| self.0.push((what, e))).is_ok()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (what, why)) in self.0.iter().enumerate() {
            write!(f, "{}{what} ({why})", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes what can be made for the calling process, which must have one thread only and serves the application in a slot.
///
/// Not for a process that opens an RDMA device or NVIDIA's driver: those are files, and belong to the machine's network and user.
pub fn build(slot: u32, limits: &Limits) -> Missing {
    let mut missing = Missing::default();
    // SAFETY: plain system calls.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let spaces = libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWNS;
    // SAFETY: plain system call; the process has one thread.
    let unshare = |flags| check(unsafe { libc::unshare(flags) });
    // With root's rights no namespace of users is needed.
    let spaced = user == 0 && unshare(spaces).is_ok();
    let mapped = !spaced
        && match unshare(libc::CLONE_NEWUSER | spaces) {
            Ok(()) => missing.note("a user of their own", map_users(user, group)),
            Err(e) => missing.note("namespaces and an empty file system", Err(e)),
        };
    if spaced || mapped {
        missing.note("an empty file system", empty_root());
    }
    let alone = mapped || {
        let own = match user {
            0 => become_nobody_else(slot),
            _ => Err(io::Error::other("only root can give one")),
        };
        missing.note("a user of their own", own)
    };
    if alone {
        // Otherwise all processes of the user would count.
        missing.note("a limit of threads", limits::set(libc::RLIMIT_NPROC, limits.threads.into()));
    }
    missing.note("no capabilities", drop_capabilities());
    missing
}

/// In a namespace of users: this one, by its number outside.
fn map_users(user: u32, group: u32) -> io::Result<()> {
    // Older kernels have no such file, and want no such word.
    let _ = fs::write("/proc/self/setgroups", "deny");
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))
}

/// A file system with nothing in it, which cannot be written.
fn empty_root() -> io::Result<()> {
    let (root, proc): (&CStr, &CStr) = (c"/", c"/proc");
    let none = std::ptr::null();
    let kept = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: system calls with constant texts, in a namespace of mounts that nobody else sees.
    unsafe {
        check(libc::mount(none, root.as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))?;
        let options = c"size=4k,nr_inodes=2,mode=0555";
        let tmpfs = c"tmpfs".as_ptr();
        // Any directory will do. This one is there: the process could not have been started otherwise.
        check(libc::mount(tmpfs, proc.as_ptr(), tmpfs, kept, options.as_ptr().cast()))?;
        check(libc::chdir(proc.as_ptr()))?;
        // What lies below it is covered for good: nothing of it is open, and soon there is no capability to uncover it.
        // (To take it away instead, the system would have to wait for all its processors.)
        check(libc::mount(c".".as_ptr(), root.as_ptr(), none, libc::MS_MOVE, none.cast()))?;
        check(libc::chroot(c".".as_ptr()))?;
        check(libc::chdir(root.as_ptr()))?;
        let again = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | kept;
        check(libc::mount(none, root.as_ptr(), none, again, none.cast()))
    }
}

/// A user and a group that nobody else is.
fn become_nobody_else(slot: u32) -> io::Result<()> {
    let user = FIRST_USER + slot;
    // SAFETY: plain system calls; the process has one thread. (A new user takes the signal at the daemon's end away: it is
    // set again.)
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(user, user, user))?;
        check(libc::setresuid(user, user, user))?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
    }
}

/// Takes all capabilities, in whatever namespace they count.
fn drop_capabilities() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    // _LINUX_CAPABILITY_VERSION_3, whose sets are two times three words.
    let header = Header { version: 0x2008_0522, pid: 0 };
    let none = [0u32; 6];
    // SAFETY: plain system calls with valid places.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        check(libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) as libc::c_int)
    }
}

/// What [`build`] would miss here, found out in a process of its own; `None` where nothing is missing. Must be called before any
/// thread is started.
///
/// # Errors
/// There can be no such process.
pub fn look(limits: &Limits) -> io::Result<Option<String>> {
    let (mut read, mut write) = io::pipe()?;
    // SAFETY: there is one thread.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // As an application's process does.
            let limited = limits::limit(limits).map_err(|e| e.to_string()).err();
            let missing = limited.unwrap_or_else(|| build(0, limits).to_string());
            let _ = write.write_all(missing.as_bytes());
            // SAFETY: leaves at once; what the parent has begun is the parent's to end.
            unsafe { libc::_exit(0) }
        }
        _ => {
            drop(write);
            let mut text = String::new();
            let heard = read.read_to_string(&mut text);
            // SAFETY: plain system call; nobody else waits for this process.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            heard?;
            Ok((!text.is_empty()).then_some(text))
        }
    }
}
