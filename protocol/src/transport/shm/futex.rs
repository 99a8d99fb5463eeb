//! Sleeping on a word of shared memory, and waking who does.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// A word of shared memory that threads sleep on (a futex), and that counts how often it has woken them. A peer that garbles
/// it wakes whoever sleeps too often, or not at all, as one could that does not send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Futex<'a>(pub &'a AtomicU32);

impl Futex<'_> {
    /// How often sleepers were woken so far.
    pub(super) fn seen(self) -> u32 {
        self.0.load(SeqCst)
    }

    /// Wakes everybody who sleeps here.
    pub(super) fn wake(self) {
        self.0.fetch_add(1, SeqCst);
        // SAFETY: the word is valid; nothing else is read. It fails for no reason that matters.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Sleeps until it is woken, unless it was since the count was `seen`; for at most so long, or shorter.
    pub(super) fn wait(self, seen: u32, time: Duration) -> io::Result<()> {
        let time = libc::timespec {
            tv_sec: time.as_secs().min(1 << 30) as libc::time_t,
            tv_nsec: time.subsec_nanos() as libc::c_long,
        };
        // SAFETY: word and time are valid during the call.
        let r = unsafe {
            let at = self.0.as_ptr();
            libc::syscall(libc::SYS_futex, at, libc::FUTEX_WAIT, seen, &raw const time)
        };
        if r == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT) => Ok(()),
            _ => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_woken_before_does_not_sleep_and_who_sleeps_is_woken() {
        let word = AtomicU32::new(u32::MAX);
        let futex = Futex(&word);
        let seen = futex.seen();
        futex.wake();
        // Would take an hour.
        futex.wait(seen, Duration::from_secs(3600)).unwrap();
        let seen = futex.seen();
        futex.wait(seen, Duration::from_millis(1)).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| futex.wait(seen, Duration::from_secs(3600)));
            futex.wake();
            sleeper.join().unwrap().unwrap();
        });
    }
}
