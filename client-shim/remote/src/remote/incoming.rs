//! What is received: who expects it, and what the reading thread works with.

use parking_lot::{Condvar, Mutex};
use rgpu_device::{CopySink, Done, RegionCursor, Result};
use rgpu_protocol::reader::FrameReader;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where the transport does not notice bad memory, copies of so many bytes look for it.
pub(super) const CHECKED_FROM: usize = 4096;

/// A thread that waits for an answer.
#[derive(Default)]
pub(super) struct Waiter {
    /// Whether there is an outcome.
    pub done: AtomicBool,
    /// The answer's bytes, or why there are none.
    pub outcome: Mutex<Option<Result<Vec<u8>>>>,
    /// Goes with the lock of the [link](super::link)'s state.
    pub changed: Condvar,
}

/// Who expects an answer.
pub(super) enum Pending {
    /// A thread, which gets the answer's bytes.
    Waiter(Arc<Waiter>),
    /// A callback.
    Done(Done),
    /// A copy to the host that goes to a sink.
    Copy(Box<dyn CopySink>),
    /// A copy to the host that goes to memory of the program. Whoever makes one vouches that the memory
    /// is writable until the callback is called.
    CopyInto(RegionCursor, Done),
    /// The same, for a thread that waits.
    CopyFor(RegionCursor, Arc<Waiter>),
}

impl Pending {
    /// Where the bytes of a copy go, if that is memory of the program.
    pub(super) fn cursor(&mut self) -> Option<&mut RegionCursor> {
        match self {
            Self::CopyInto(cursor, _) | Self::CopyFor(cursor, _) => Some(cursor),
            _ => None,
        }
    }
}

/// What the reading thread works with.
#[derive(Default)]
pub(super) struct Incoming {
    pub frames: FrameReader,
    /// The body of the frame that is being read.
    pub body: Vec<u8>,
    /// How many received bytes were counted already.
    pub counted: u64,
}
