//! Threads that get no signals, and waiting for them while signals come.

use std::sync::mpsc::{self, Receiver};

use super::child::{Held, Woken};
use crate::Failure;

/// What came of something that a signal may interrupt.
pub(super) enum Interruptible<T> {
    /// Its result.
    Done(T),
    /// A signal came first. The result comes here, if it comes.
    Interrupted(libc::c_int, Receiver<T>),
}

/// Runs something on a thread of its own, which a signal doesn't wait for.
pub(super) fn run_interruptibly<T: Send + 'static>(
    signals: &Held,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<Interruptible<T>, Failure> {
    let failed = |e: std::io::Error| Failure::new(format!("Cannot wait for the broker: {e}"));
    let woken = Woken::new().map_err(failed)?;
    let (done, results) = mpsc::channel();
    let wake = woken.waker().map_err(failed)?;
    let body = move || {
        let _ = done.send(body());
        drop(wake);
    };
    spawn_without_signals("broker", body).map_err(failed)?;
    match signals.wait_for(&woken) {
        Some(signal) => Ok(Interruptible::Interrupted(signal, results)),
        None => match results.recv() {
            Ok(result) => Ok(Interruptible::Done(result)),
            Err(_) => Err(Failure::new("Asking the broker failed: this is a bug of rgpu")),
        },
    }
}

/// Starts a thread that gets no signals. It has them blocked from its first moment: one that took the SIGCHLD by which the
/// program's end is noticed would leave the thread that waits for it waiting forever.
pub(super) fn spawn_without_signals(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: all zeroes is a valid set; live arguments.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut old);
        old
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(body);
    // SAFETY: the set that this thread had before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    thread.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helping_threads_get_no_signals() {
        let (tell, told) = mpsc::channel();
        let blocked = || {
            // SAFETY: all zeroes is a valid set; live arguments.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
                libc::sigismember(&set, libc::SIGCHLD) == 1
            }
        };
        assert!(!blocked());
        spawn_without_signals("test", move || tell.send(blocked()).unwrap()).unwrap();
        assert!(told.recv().unwrap());
        assert!(!blocked(), "the thread that starts it keeps its own");
    }
}
