//! How the service thread is started and woken, and how often it looks. What it does stands [with the
//! link](super::link): it sends a buffer that lingers, and reads when nobody else does but must.
//!
//! It is started when first needed, blocks all signals, and sleeps without a timer when there is nothing
//! to do.

use super::fork::{self, LOWEST_DESCRIPTOR};
use crate::threads::without_signals;
use parking_lot::Mutex;
use rgpu_protocol::transport::{Descriptor, dup_above};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::time::Duration;

/// In a run of calls, a buffer that nobody has sent for one to two of these is sent.
pub(super) const LINGER: Duration = Duration::from_micros(200);
/// Where the program's own threads send each buffer before long, the thread looks only so often.
const RARELY: Duration = Duration::from_millis(3);
/// After so many looks at an empty buffer that nobody has used in between the thread sleeps.
const IDLE_LOOKS: u32 = 5;

/// How often the thread looks at the buffer. A program that asks something after every few calls sends each buffer
/// itself; waking up several times meanwhile, to find that out, would take a processor from those who work.
#[derive(Debug)]
pub(super) struct Pace {
    /// The buffer's count when it was last looked at.
    batch: u64,
    /// Whether it had something in it then.
    filled: bool,
    /// How many more looks find buffers sent by others before it is looked at rarely.
    eager: u32,
    /// Looks at a buffer that was not used.
    idle: u32,
}

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// What was there before is there still: it is to be sent.
    Lingering,
    /// Nobody has used the buffer for long.
    Idle,
    /// Anything else.
    Nothing,
}

impl Pace {
    /// After the buffer had to be sent, so many looks are short ones.
    const EAGER: u32 = 8;

    pub(super) fn new() -> Self {
        Self { batch: u64::MAX, filled: false, eager: Self::EAGER, idle: 0 }
    }

    /// A look at the buffer: how often it was sent, and whether there is something in it.
    pub(super) fn look(&mut self, batch: u64, filled: bool) -> Found {
        let same = self.batch == batch;
        let lingering = same && self.filled && filled;
        let unused = same && !self.filled && !filled;
        (self.batch, self.filled) = (batch, filled);
        if lingering {
            self.sent(batch);
            return Found::Lingering;
        }
        if !same {
            self.eager = self.eager.saturating_sub(1);
        }
        self.idle = if unused { self.idle + 1 } else { 0 };
        if self.idle < IDLE_LOOKS {
            return Found::Nothing;
        }
        self.idle = 0;
        Found::Idle
    }

    /// The thread sends the buffer, whose count was this.
    pub(super) fn sent(&mut self, batch: u64) {
        // Its own sending is nobody else's.
        *self = Self { batch: batch + 1, filled: false, eager: Self::EAGER, idle: 0 };
    }

    /// Until the next look.
    pub(super) fn interval(&self) -> Duration {
        if self.eager > 0 { LINGER } else { RARELY }
    }
}

const NOT_STARTED: u8 = 0;
const RUNNING: u8 = 1;
const UNAVAILABLE: u8 = 2;

/// How others reach the service thread.
pub(super) struct Service {
    /// Becomes readable when the thread is to wake.
    pub event: Descriptor,
    /// The other end. Both are sockets, so that where a program has closed them and the numbers have come
    /// to mean files of its own, nothing is written there.
    waker: Descriptor,
    /// Whether the thread is watching the buffer.
    pub awake: AtomicBool,
    started: AtomicU8,
    starting: Mutex<()>,
}

impl Service {
    pub(super) fn new() -> io::Result<Self> {
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let mut ends = [-1; 2];
        // SAFETY: `ends` has room for the two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, flags, 0, ends.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let [event, waker] = ends.map(|fd| {
            // SAFETY: the call succeeded: both are fresh descriptors that nobody else owns.
            let end = unsafe { OwnedFd::from_raw_fd(fd) };
            let end = dup_above(fd, LOWEST_DESCRIPTOR).unwrap_or_else(|| end.into());
            fork::close_in_children(end.as_raw_fd());
            end
        });
        Ok(Self {
            event,
            waker,
            awake: AtomicBool::new(false),
            started: AtomicU8::new(NOT_STARTED),
            starting: Mutex::new(()),
        })
    }

    /// Starts the thread, if it has not been started, which does what `body` makes. False where that is impossible.
    pub(super) fn start<Body: FnOnce() + Send + 'static>(&self, body: impl FnOnce() -> Body) -> bool {
        if self.started.load(SeqCst) == NOT_STARTED {
            let _guard = self.starting.lock();
            if self.started.load(SeqCst) == NOT_STARTED {
                let builder = std::thread::Builder::new().name("rgpu-service".into()).stack_size(512 << 10);
                let spawned = without_signals(|| builder.spawn(body()));
                let state = if spawned.is_ok() { RUNNING } else { UNAVAILABLE };
                self.started.store(state, SeqCst);
            }
        }
        self.started.load(SeqCst) == RUNNING
    }

    /// Has the thread look at the buffer soon, once it is there. False where there can be none.
    pub(super) fn arm<Body: FnOnce() + Send + 'static>(&self, body: impl FnOnce() -> Body) -> bool {
        if self.awake.swap(true, SeqCst) {
            return self.started.load(SeqCst) != UNAVAILABLE;
        }
        let there = self.start(body);
        if there {
            self.wake();
        }
        there
    }

    /// Wakes the thread.
    pub(super) fn wake(&self) {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: sends one byte from a valid place. A full socket wakes as well.
        unsafe { libc::send(self.waker.as_raw_fd(), [1u8].as_ptr().cast(), 1, flags) };
    }

    /// Takes what has woken the thread.
    pub(super) fn drain(&self) {
        let mut bytes = [0u8; 64];
        // SAFETY: receives at most 64 bytes into a valid place. What is left wakes the thread once more.
        unsafe {
            libc::recv(self.event.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
        };
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        fork::forget(self.event.as_raw_fd());
        fork::forget(self.waker.as_raw_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_stays_is_sent_and_one_that_others_send_is_left_to_them() {
        let mut pace = Pace::new();
        assert_eq!(pace.interval(), LINGER);
        assert_eq!(pace.look(1, true), Found::Nothing);
        assert_eq!(pace.look(1, true), Found::Lingering);
        // It has sent that, as the second.
        assert_eq!(pace.look(2, true), Found::Nothing);
        for batch in 3..3 + u64::from(Pace::EAGER) {
            assert_eq!(pace.interval(), LINGER);
            assert_eq!(pace.look(batch, true), Found::Nothing);
        }
        assert_eq!(pace.interval(), RARELY);
        // As soon as one stays, it is looked at often again.
        assert_eq!(pace.look(10, true), Found::Lingering);
        assert_eq!(pace.interval(), LINGER);
    }

    #[test]
    fn it_sleeps_when_the_buffer_is_not_used_and_only_then() {
        let mut pace = Pace::new();
        // Others send each buffer between two looks: it is empty whenever it is looked at.
        for batch in 0..100 {
            assert_eq!(pace.look(batch, false), Found::Nothing);
        }
        for _ in 1..IDLE_LOOKS {
            assert_eq!(pace.look(99, false), Found::Nothing);
        }
        assert_eq!(pace.look(99, false), Found::Idle);
        assert_eq!(pace.look(99, false), Found::Nothing);
    }
}
