//! System calls that several parts of rgpu make, each once.

use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Who is at the other end of a Unix socket, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its process; 0 where that is in a PID namespace that this one does not see.
    pub process: i32,
    /// Its effective user.
    pub user: u32,
}

impl PeerCredentials {
    /// Whether a program may tell a server of this user its token, and share memory with it, because the server listens under
    /// some name of this machine: the program's own user, root, or a user that is a service's (below 1000, or one of those that
    /// systemd makes for a service). Anybody could listen under a name that is free.
    pub fn may_serve(self) -> bool {
        // SAFETY: plain system call.
        let own = unsafe { libc::geteuid() };
        self.user == own || matches!(self.user, 0..1000 | 61184..65520)
    }
}

/// Who is at the other end of a Unix socket.
///
/// # Errors
/// It is no Unix socket.
pub fn peer_credentials(socket: &impl AsRawFd) -> io::Result<PeerCredentials> {
    // Not by rustix, whose type for a process's number has no 0, which the kernel does answer.
    let mut who = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    socket_option(socket.as_raw_fd(), libc::SO_PEERCRED, &mut who)?;
    Ok(PeerCredentials { process: who.pid, user: who.uid })
}

/// Whether a descriptor is a Unix socket.
pub fn is_unix_socket(descriptor: &impl AsRawFd) -> bool {
    let mut domain: libc::c_int = 0;
    socket_option(descriptor.as_raw_fd(), libc::SO_DOMAIN, &mut domain).is_ok() && domain == libc::AF_UNIX
}

fn socket_option<T: Copy>(fd: RawFd, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: both are valid places for the answer, of whose bytes the kernel writes no more than `length`; both types that
    // are asked for are plain numbers.
    let r = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, name, std::ptr::from_mut(value).cast(), &mut length)
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The value of an environment variable that names a file to be written. A process that runs with more rights than whoever
/// started it (setuid, file capabilities) has none: its environment is the starter's.
pub fn variable_of_a_file(name: &str) -> Option<std::ffi::OsString> {
    // SAFETY: a plain call.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    std::env::var_os(name).filter(|value| !secure && !value.is_empty())
}

/// An empty file that is nowhere but in memory. The name is for people.
///
/// # Errors
/// Those of the system: too many descriptors, or no memory.
pub fn memory_file(name: &CStr) -> io::Result<OwnedFd> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?)
}

/// Some of the signals. (rustix leaves signals to the C library, which has some of its own.)
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// A set with no signal in it.
    pub fn none() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: a valid place, which is filled; that cannot fail.
        Self(unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        })
    }

    /// All that there are.
    pub fn all() -> Self {
        let mut set = Self::none();
        // SAFETY: a valid set; filling it cannot fail.
        unsafe { libc::sigfillset(&mut set.0) };
        set
    }

    /// These, which must be numbers of signals.
    pub fn of(signals: &[libc::c_int]) -> Self {
        let mut set = Self::none();
        for signal in signals {
            // SAFETY: a valid set.
            unsafe { libc::sigaddset(&mut set.0, *signal) };
        }
        set
    }

    /// Has the calling thread block these and no others; says which it blocked before. Threads that it starts inherit that.
    /// Async-signal-safe.
    pub fn replace_blocked(&self) -> Self {
        self.change_mask(libc::SIG_SETMASK)
    }

    /// Has the calling thread block these too.
    pub fn block(&self) {
        self.change_mask(libc::SIG_BLOCK);
    }

    fn change_mask(&self, how: libc::c_int) -> Self {
        let mut before = Self::none();
        // SAFETY: both sets are valid.
        unsafe { libc::pthread_sigmask(how, &self.0, &mut before.0) };
        before
    }

    /// Waits for one of these, which all threads must have blocked; says which.
    pub fn wait(&self) -> libc::c_int {
        let mut signal = 0;
        // SAFETY: both are valid places.
        unsafe { libc::sigwait(&self.0, &mut signal) };
        signal
    }

    /// A descriptor that is readable when one of these has come, which all threads must have blocked.
    ///
    /// # Errors
    /// Those of the system: too many descriptors.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: a valid set.
        let fd = unsafe { libc::signalfd(-1, &self.0, libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Does something, which must not panic, with all signals blocked; threads that it starts keep them so.
pub fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let before = SignalSet::all().replace_blocked();
    let result = body();
    before.replace_blocked();
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_peer_of_a_unix_socket_is_known() {
        let (a, _b) = UnixStream::pair().unwrap();
        let of = |user| PeerCredentials { process: 1, user };
        assert!([0, 999, 61184, 65519].into_iter().all(|user| of(user).may_serve()));
        // Ordinary users, and those that a container's kernel has no name for.
        // SAFETY: plain system call.
        let own = unsafe { libc::geteuid() };
        assert!([1000, 61183, 65520, 65534].into_iter().all(|user| !of(user).may_serve() || user == own));
        let who = peer_credentials(&a).unwrap();
        assert!(who.may_serve() && who.process == std::process::id() as i32);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_unix_socket(&a) && !is_unix_socket(&tcp) && !is_unix_socket(&-1));
    }

    #[test]
    fn threads_that_are_started_without_signals_have_none() {
        let blocked = || {
            let before = SignalSet::none().replace_blocked();
            before.replace_blocked();
            // SAFETY: a valid set.
            unsafe { libc::sigismember(&before.0, libc::SIGTERM) == 1 }
        };
        assert!(!blocked());
        assert!(without_signals(|| std::thread::spawn(blocked)).join().unwrap());
        assert!(!blocked());
    }

    #[test]
    fn a_signal_is_waited_for() {
        let set = SignalSet::of(&[libc::SIGUSR2]);
        let waiting = without_signals(|| {
            std::thread::spawn(move || {
                let descriptor = set.descriptor().unwrap();
                // SAFETY: sends a signal to this very thread, which has it blocked.
                unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
                (descriptor.as_raw_fd() >= 0, set.wait())
            })
        });
        assert_eq!(waiting.join().unwrap(), (true, libc::SIGUSR2));
    }
}
