//! Running a program as a child as if it had been started directly: signals go to it, and its death is
//! imitated.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// The signals that are passed on.
const FORWARDED: [libc::c_int; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCONT,
    libc::SIGTSTP,
];

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It exited with a status.
    Status(u8),
    /// It was killed by a signal.
    Signal(libc::c_int),
}

impl Ended {
    /// Ends this process in the same way: dies of the same signal, or returns the status to exit with.
    pub(super) fn reproduce(self) -> u8 {
        let signal = match self {
            Self::Status(status) => return status,
            Self::Signal(signal) => signal,
        };
        // SAFETY: plain calls with live arguments. The program has left a core dump if one was wanted; a second
        // one, of this process, would only confuse.
        unsafe {
            let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &no_core);
            libc::signal(signal, libc::SIG_DFL);
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, signal);
            libc::raise(signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        }
        // The signal was one that doesn't kill after all: say it as shells do.
        128u8.saturating_add(signal as u8)
    }
}

/// The signals that end a program, held back until somebody looks, so that they end nothing that has to be tidied up first.
pub(crate) struct Held {
    old: libc::sigset_t,
    signals: OwnedFd,
}

/// The signals that are held.
const ENDING: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

impl Held {
    /// Holds them from now on, in this thread and those that it starts. [`run`] lets the program have them again.
    pub(crate) fn new() -> io::Result<Self> {
        let set = set_of(&ENDING);
        // SAFETY: all zeroes is a valid set; live arguments.
        let (old, fd) = unsafe {
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut old);
            (old, libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor.
        Ok(Self { old, signals: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Waits for a signal, or until something else wakes this up.
    pub(super) fn wait_for(&self, woken: &Woken) -> Option<libc::c_int> {
        self.poll(Some(woken), -1)
    }

    /// Waits for a signal, for so long.
    pub(crate) fn wait(&self, time: Duration) -> Option<libc::c_int> {
        self.poll(None, time.as_millis() as libc::c_int)
    }

    /// Lets a program that is going to be started have the signals that this process had before.
    #[cfg(all(feature = "broker", feature = "serve"))]
    pub(crate) fn release_in(&self, command: &mut Command) {
        start_with(command, self.old);
    }

    fn poll(&self, woken: Option<&Woken>, milliseconds: libc::c_int) -> Option<libc::c_int> {
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [
            readable(self.signals.as_raw_fd()),
            readable(woken.map_or(-1, |woken| woken.reader.as_raw_fd())),
        ];
        loop {
            // SAFETY: valid for its length.
            let found = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, milliseconds) };
            if found >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
        // SAFETY: all zeroes is a valid one.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: a valid place of that size.
        let read = unsafe { libc::read(self.signals.as_raw_fd(), (&raw mut info).cast(), size) };
        (read == size as isize).then_some(info.ssi_signo as libc::c_int)
    }
}

/// What wakes up a wait for signals: that the [waker](Woken::waker) is dropped.
pub(super) struct Woken {
    reader: PipeReader,
    writer: std::cell::Cell<Option<PipeWriter>>,
}

impl Woken {
    /// One that nothing has woken yet.
    pub(super) fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader, writer: std::cell::Cell::new(Some(writer)) })
    }

    /// What to drop for waking up. There is one.
    pub(super) fn waker(&self) -> io::Result<PipeWriter> {
        self.writer.take().ok_or_else(|| io::Error::other("the waker is taken already"))
    }
}

/// Starts the program and waits for its end.
pub(super) fn run(command: &mut Command, held: Option<&Held>) -> io::Result<Ended> {
    // Blocked before the program is started, so that none is missed. The program starts with those blocked
    // that this process started with.
    let set = waited_for();
    // SAFETY: all zeroes is a valid set; live arguments.
    let old = unsafe {
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, &set, &mut old);
        old
    };
    start_with(command, held.map_or(old, |held| held.old));
    let child = command.spawn()?;
    loop {
        // SAFETY: all zeroes is a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: live arguments.
        let signal = unsafe { libc::sigwaitinfo(&set, &mut info) };
        if signal == libc::SIGCHLD {
            if let Some(ended) = examine(&child)? {
                return Ok(ended);
            }
        } else if signal > 0 && !comes_from_terminal(&info) {
            send(&child, signal);
        }
    }
}

/// Has a program start with these signals blocked, and no others.
fn start_with(command: &mut Command, blocked: libc::sigset_t) {
    // SAFETY: all that the closure calls is sigprocmask, which may be called after a fork.
    unsafe {
        command.pre_exec(move || {
            libc::sigprocmask(libc::SIG_SETMASK, &blocked, std::ptr::null_mut());
            Ok(())
        })
    };
}

fn waited_for() -> libc::sigset_t {
    let mut set = set_of(&FORWARDED);
    // SAFETY: a live set.
    unsafe { libc::sigaddset(&mut set, libc::SIGCHLD) };
    set
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: filled in at once; live arguments.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

/// What the kernel sends (a key was pressed, the terminal's window changed), it sends to the whole process
/// group, and so to the program itself.
fn comes_from_terminal(info: &libc::siginfo_t) -> bool {
    info.si_code == libc::SI_KERNEL
}

fn send(child: &Child, signal: libc::c_int) {
    // SAFETY: the child has not been waited for, so the id is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// Looks what happened to the program. Where it was stopped, stops this process too, so that the shell sees
/// its job stop.
fn examine(child: &Child) -> io::Result<Option<Ended>> {
    loop {
        let mut status = 0;
        let flags = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
        // SAFETY: a live variable, and a child of this process.
        let found = unsafe { libc::waitpid(child.id() as libc::pid_t, &mut status, flags) };
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        if found == 0 {
            return Ok(None);
        }
        if libc::WIFEXITED(status) {
            return Ok(Some(Ended::Status(libc::WEXITSTATUS(status) as u8)));
        }
        if libc::WIFSIGNALED(status) {
            return Ok(Some(Ended::Signal(libc::WTERMSIG(status))));
        }
        if libc::WIFSTOPPED(status) {
            // SAFETY: stops this process until somebody continues it, which is passed on.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_reproduced() {
        assert_eq!(Ended::Status(7).reproduce(), 7);
        // SIGCONT doesn't kill.
        assert_eq!(Ended::Signal(libc::SIGCONT).reproduce(), 128 + libc::SIGCONT as u8);
    }
}
