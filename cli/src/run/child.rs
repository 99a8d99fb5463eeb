//! Running a program as a child as if it had been started directly: signals go to it, and its death is
//! imitated.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

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
pub enum Ended {
    /// It exited with a status.
    Status(u8),
    /// It was killed by a signal.
    Signal(libc::c_int),
}

impl Ended {
    /// Ends this process in the same way: dies of the same signal, or returns the status to exit with.
    pub fn reproduce(self) -> u8 {
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

/// Starts the program and waits for its end.
pub fn run(command: &mut Command) -> io::Result<Ended> {
    // Blocked before the program is started, so that none is missed. The program starts with those blocked
    // that this process started with.
    let set = waited_for();
    // SAFETY: all zeroes is a valid set; live arguments.
    let old = unsafe {
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, &set, &mut old);
        old
    };
    // SAFETY: all that the closure calls is sigprocmask, which may be called after a fork.
    unsafe {
        command.pre_exec(move || {
            libc::sigprocmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
            Ok(())
        })
    };
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

fn waited_for() -> libc::sigset_t {
    // SAFETY: filled in at once; live arguments.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in FORWARDED {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigaddset(&mut set, libc::SIGCHLD);
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
