//! What all transports have in common.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// What [`Transport::wait`] waits for, and what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// [`Transport::recv`] makes progress (or reports the end).
    pub read: bool,
    /// [`Transport::send`] makes progress (or reports the end).
    pub write: bool,
    /// The extra descriptor is readable.
    pub wake: bool,
}

impl Ready {
    /// Waits for bytes alone.
    pub const READ: Self = Self { read: true, write: false, wake: false };
    /// Waits for room alone.
    pub const WRITE: Self = Self { read: false, write: true, wake: false };
    /// Waits for either.
    pub const BOTH: Self = Self { read: true, write: true, wake: false };
}

/// A connection. See the [module's](super) text.
pub trait Transport: Send + Sync {
    /// Sends some of the pieces, in order, without blocking; says how many bytes.
    /// [`io::ErrorKind::WouldBlock`] where there is no room: what is sent next has to begin with the same bytes, which may
    /// be encrypted already.
    fn send(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize>;

    /// Receives some bytes without blocking; 0 is the end. [`io::ErrorKind::WouldBlock`] where there
    /// are none.
    fn recv(&self, into: &mut [u8]) -> io::Result<usize>;

    /// Receives some bytes without blocking into memory that may be bad, which is then an error
    /// ([`libc::EFAULT`]) and not a crash, where [`Transport::survives_bad_memory`].
    ///
    /// # Safety
    /// Nothing that the compiler relies on lies in `addr..addr + length`.
    unsafe fn recv_at(&self, addr: u64, length: usize) -> io::Result<usize>;

    /// Waits for what `want` says, or for `wake` to become readable, or for the time to pass.
    fn wait(&self, want: Ready, wake: Option<RawFd>, time: Option<Duration>) -> io::Result<Ready>;

    /// Waits until the peer has gone, or the time has passed; says whether it has gone. Never consumes
    /// bytes.
    fn wait_for_hangup(&self, time: Option<Duration>) -> io::Result<bool>;

    /// Whether the peer's machine has not answered for seconds, though something was sent to it. Not to be
    /// confused with a peer that does not read.
    fn is_unanswered(&self) -> bool;

    /// Whether sending from and receiving into memory that is not there is an error; otherwise the caller must make
    /// sure.
    fn survives_bad_memory(&self) -> bool {
        true
    }

    /// Memory that will be sent from stays as it is until it is retired, at the latest when the transport goes: RDMA
    /// registers such memory once.
    ///
    /// # Safety
    /// Until then it stays mapped, to the same memory.
    unsafe fn announce(&self, addr: u64, length: u64) {
        let _ = (addr, length);
    }

    /// The memory that was announced at `addr` may go.
    fn retire(&self, addr: u64) {
        let _ = addr;
    }

    /// Whether sending a few bytes is cheap: no system call, unless the peer sleeps.
    fn sends_without_system_call(&self) -> bool {
        false
    }

    /// Whether what it carries is encrypted.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// Ends the connection both ways; whoever waits wakes up.
    fn shutdown(&self);

    /// The descriptor that stands for the connection: a forked child closes its copy, which disturbs
    /// nobody, so that the server sees the parent die.
    fn descriptor(&self) -> RawFd;

    /// All descriptors, which a forked child closes.
    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.descriptor()]
    }

    /// The peer's address, for people.
    fn peer(&self) -> String;
}
