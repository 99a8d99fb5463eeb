//! What is sent: the pieces of which calls are made, and the one buffer that is the session's order.

use super::quiet::Quiet;
use super::window::Runs;
use rgpu_device::RegionCursor;
use rgpu_protocol::calls::Call;
use rgpu_protocol::frame::{HEADER_BYTES, Header, Kind, MAX_BULK};

/// A buffer this full is sent.
pub(super) const FLUSH_BYTES: usize = 24 << 10;
/// After the program has waited for an answer, the server may have nothing to do: the next buffer is sent when it is only
/// this full, and each further one when it is twice as full as the one before.
const FIRST_FLUSH_BYTES: usize = 1 << 10;
/// Where sending costs no system call, buffers are sent when they are so full, at first and later.
const CHEAP_FLUSH_BYTES: (usize, usize) = (512, 4 << 10);
/// Payloads up to this size are copied into the buffer; larger ones are sent from where they lie.
pub(super) const INLINE_BYTES: usize = 8 << 10;
/// What follows a call's arguments.
pub(super) enum Payload<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Memory of the program, all that lies ahead of the cursor. Whoever makes one vouches that the
    /// memory is readable until the call has returned.
    Host(RegionCursor),
}

impl Payload<'_> {
    /// Nothing.
    pub(super) const NONE: Payload<'static> = Payload::Bytes(&[]);

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(b) => b.len() as u64,
            Self::Host(c) => c.remaining(),
        }
    }
}

/// What the server has asked for, and may be waiting for.
pub(super) enum Urgent {
    /// The bytes that a fetch request with this id is about.
    Fetched(u64, Vec<u8>),
    /// The image of a module.
    Image(u64, Vec<u8>),
    /// Memory credit of an ordinal.
    Credit(u32, u64),
}

/// An image in what is sent ahead, in parts of [`MAX_BULK`], and its last part.
pub(super) fn cut_image(image: &[u8]) -> (&[u8], &[u8]) {
    image.split_at(image.len().saturating_sub(1) / MAX_BULK * MAX_BULK)
}

/// The longest arguments, with their header, that are put together apart from the buffer.
const SHORT: usize = 128;

/// Whether a call's arguments are of fixed size, and short.
pub(super) const fn is_short<C: Call>() -> bool {
    C::FIXED && HEADER_BYTES + C::MIN_BYTES <= SHORT
}

/// The frame of a posted call whose arguments are [short](is_short), up to its payload.
#[inline]
pub(super) fn encode_short<C: Call>(call: &C, sequence: u64, payload: usize) -> [u8; SHORT] {
    let length = (C::MIN_BYTES + payload) as u32;
    let header = Header { length, kind: Kind::Call, flags: 0, call: C::NUMBER, sequence };
    let mut frame = [0u8; SHORT];
    let (head, arguments) = frame.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header.to_bytes());
    call.put(arguments);
    frame
}

/// The buffer.
pub(super) struct Out {
    pub buffer: Vec<u8>,
    /// The buffer is sent when it is so full.
    full: usize,
    /// What that begins with, and what it grows to.
    bounds: (usize, usize),
    /// The last call's sequence number.
    pub sequence: u64,
    /// Counts how often the buffer was sent.
    pub batch: u64,
    /// What may be posted without asking [the window](super::window).
    pub runs: Runs,
    /// What is known to be done.
    pub quiet: Quiet,
}

impl Out {
    /// An empty buffer; `cheap` says that [sending costs no system call](rgpu_protocol::transport::Transport::sends_without_system_call).
    pub(super) fn new(cheap: bool) -> Self {
        let bounds = if cheap { CHEAP_FLUSH_BYTES } else { (FIRST_FLUSH_BYTES, FLUSH_BYTES) };
        let (runs, quiet) = (Runs::default(), Quiet::default());
        Self { buffer: Vec::new(), full: bounds.0, bounds, sequence: 0, batch: 0, runs, quiet }
    }

    /// How many calls so far put work somewhere, or may have.
    pub(super) fn work(&self) -> u64 {
        self.sequence - self.quiet.workless
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.buffer.len() >= self.full
    }

    /// It was sent because it was full: the server has something to do, and more may gather.
    pub(super) fn wait_longer(&mut self) {
        self.full = (2 * self.full).min(self.bounds.1);
    }

    /// It was sent because something was asked, after which the server may have nothing to do.
    pub(super) fn wait_shortly(&mut self) {
        self.full = self.bounds.0;
    }
}

/// Leaves `errno` as it was: a launch is no call that programs expect to change it.
pub(super) fn keeping_errno<T>(action: impl FnOnce() -> T) -> T {
    // SAFETY: the address is valid in every thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = action();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_buffers_after_an_answer_are_short_ones() {
        for (cheap, first, last) in [(false, 1 << 10, 24 << 10), (true, 512, 4 << 10)] {
            let mut out = Out::new(cheap);
            let mut full = first;
            for _ in 0..10 {
                out.buffer = vec![0; full - 1];
                assert!(!out.is_full());
                out.buffer.push(0);
                assert!(out.is_full());
                out.wait_longer();
                full = (2 * full).min(last);
            }
            assert_eq!(full, last);
            out.wait_shortly();
            out.buffer = vec![0; first];
            assert!(out.is_full());
        }
    }
}
