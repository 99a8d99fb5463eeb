//! A transport for tests, on which bytes move exactly as far as the test lets them.

use parking_lot::{Condvar, Mutex, MutexGuard};
use rgpu_protocol::frame::{HEADER_BYTES, Header};
use rgpu_protocol::transport::{Ready, Transport};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long tests wait for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct ScriptState {
    /// How many bytes may still be sent.
    budget: usize,
    /// The frame that is being sent.
    sending: Vec<u8>,
    /// Headers of the frames that were sent.
    pub(super) sent: Vec<Header>,
    /// How many times something was sent.
    sends: usize,
    incoming: VecDeque<u8>,
    readers_waiting: usize,
    writers_waiting: usize,
    over: bool,
}

/// See the module's text.
#[derive(Default, Clone)]
pub struct Script(Arc<(Mutex<ScriptState>, Condvar)>);

impl Script {
    /// Lets so many bytes more be sent.
    pub fn allow(&self, bytes: usize) {
        self.change(|state| state.budget = state.budget.saturating_add(bytes));
    }

    /// Has the other side receive these.
    pub fn deliver(&self, bytes: &[u8]) {
        self.change(|state| state.incoming.extend(bytes));
    }

    /// Headers of the frames that were sent whole.
    pub fn sent(&self) -> Vec<Header> {
        self.0.0.lock().sent.clone()
    }

    /// How many times something was sent.
    pub fn sends(&self) -> usize {
        self.0.0.lock().sends
    }

    /// Waits until so many frames were sent whole.
    pub fn wait_sent(&self, frames: usize) {
        self.wait_for("frames", |state| state.sent.len() >= frames);
    }

    /// Waits until somebody cannot send on.
    pub fn wait_stuck(&self) {
        self.wait_for("a sender without room", |state| state.writers_waiting > 0 && state.budget == 0);
    }

    /// Waits until all was received that was delivered.
    pub fn wait_received(&self) {
        self.wait_for("the reader", |state| state.incoming.is_empty());
    }

    /// Waits until all was received, and the thread that received it sleeps without waiting for more.
    pub fn wait_busy(&self, thread: libc::pid_t) {
        self.wait_for("the reader", |state| state.incoming.is_empty() && state.readers_waiting == 0);
        wait_asleep(thread);
    }

    fn change(&self, change: impl FnOnce(&mut ScriptState)) {
        change(&mut self.0.0.lock());
        self.0.1.notify_all();
    }

    pub(super) fn wait_for(&self, what: &str, there: impl Fn(&ScriptState) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut state = self.0.0.lock();
        while !there(&state) {
            assert!(!self.0.1.wait_until(&mut state, end).timed_out(), "{what}: waited for in vain");
        }
    }

    fn lock(&self) -> MutexGuard<'_, ScriptState> {
        self.0.0.lock()
    }
}

/// The calling thread's number.
pub fn thread_number() -> libc::pid_t {
    // SAFETY: plain system call.
    unsafe { libc::gettid() }
}

/// Waits until a thread of this process sleeps.
pub fn wait_asleep(thread: libc::pid_t) {
    let end = Instant::now() + PATIENCE;
    let mut seen = 0;
    while seen < 5 {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().starts_with('S'));
        seen = if state == Some(true) { seen + 1 } else { 0 };
        assert!(Instant::now() < end, "the thread does not sleep");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Transport for Script {
    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.lock();
        if state.over {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if state.budget == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.sends += 1;
        let mut taken = 0;
        for piece in pieces {
            let n = piece.len().min(state.budget);
            state.budget -= n;
            taken += n;
            let part = &piece[..n];
            state.sending.extend_from_slice(part);
        }
        while let Some(head) = state.sending.first_chunk::<HEADER_BYTES>() {
            let header = Header::parse(head).unwrap();
            let whole = HEADER_BYTES + header.length as usize;
            if state.sending.len() < whole {
                break;
            }
            state.sending.drain(..whole);
            state.sent.push(header);
        }
        drop(state);
        self.0.1.notify_all();
        Ok(taken)
    }

    fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.lock();
        let n = into.len().min(state.incoming.len());
        if n == 0 && state.over {
            return Ok(0);
        }
        if n == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        into.iter_mut().zip(state.incoming.drain(..n)).for_each(|(to, from)| *to = from);
        drop(state);
        self.0.1.notify_all();
        Ok(n)
    }

    unsafe fn recv_at(&self, addr: u64, length: usize) -> io::Result<usize> {
        // SAFETY: the caller vouches for the memory.
        self.recv(unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, length) })
    }

    fn wait(&self, want: Ready, wake: Option<RawFd>, time: Option<Duration>) -> io::Result<Ready> {
        // Whoever waits for a descriptor as well looks at it now and then.
        let time = if wake.is_some() { Some(Duration::from_millis(1)) } else { time };
        let end = Instant::now() + time.unwrap_or(PATIENCE);
        let mut state = self.lock();
        state.readers_waiting += usize::from(want.read);
        state.writers_waiting += usize::from(want.write);
        self.0.1.notify_all();
        let ready = loop {
            let ready = Ready {
                read: want.read && (state.over || !state.incoming.is_empty()),
                write: want.write && (state.over || state.budget > 0),
                wake: wake.is_some(),
            };
            if ready.read || ready.write || self.0.1.wait_until(&mut state, end).timed_out() {
                break ready;
            }
        };
        state.readers_waiting -= usize::from(want.read);
        state.writers_waiting -= usize::from(want.write);
        Ok(ready)
    }

    fn wait_for_hangup(&self, time: Option<Duration>) -> io::Result<bool> {
        let end = Instant::now() + time.unwrap_or(PATIENCE);
        let mut state = self.lock();
        while !state.over && !self.0.1.wait_until(&mut state, end).timed_out() {}
        Ok(state.over)
    }

    fn is_unanswered(&self) -> bool {
        false
    }

    fn shutdown(&self) {
        self.change(|state| state.over = true);
    }

    fn descriptor(&self) -> RawFd {
        -1
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn peer(&self) -> String {
        "script".into()
    }
}
