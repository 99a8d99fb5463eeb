//! How much bulk data is on its way to the device.
//!
//! A server that has too much undone stops reading, and then nobody's call gets through: not even one that has nothing to
//! do with the stream whose data is waiting. So it must not come to that. A thread that copies to the device waits
//! here, *before* its data takes a place in the session's order, while more than [`STREAM_WINDOW`] of its stream's or
//! [`BULK_WINDOW`] of the session's data is undone; other threads' calls go on meanwhile.
//!
//! How far a stream has got is known from synchronisations that are asked every few MiB, and that nobody waits for unless
//! a window is full.
//!
//! While a host function is outstanding nobody waits here: the stream may be waiting for what the very thread does next that
//! copies. The server's own limit does not hold then, either.

use super::incoming::Waiter;
use parking_lot::Mutex;
use rgpu_device::Handle;
use rgpu_protocol::{BULK_WINDOW, STREAM_WINDOW};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// After so many bytes on a stream the server is asked to say when they are done.
pub(super) const MARK: u64 = 8 << 20;

/// What was sent and is not known to be done.
#[derive(Default)]
pub(super) struct Bulk {
    pub state: Mutex<Undone>,
    /// Host functions that were put on a stream and have not returned, and streams that are held.
    host_funcs: AtomicUsize,
}

/// Bytes that are not known to be done.
#[derive(Default)]
pub(super) struct Undone {
    pub total: u64,
    pub streams: HashMap<Handle, Stream>,
    pub waiting: Vec<Arc<Waiter>>,
}

/// A stream's part of them.
#[derive(Default)]
pub(super) struct Stream {
    pub undone: u64,
    /// The part of it that was sent, and that no synchronisation has been asked for.
    pub unmarked: u64,
}

impl Undone {
    pub(super) fn admits(&self, stream: Handle, bytes: u64) -> bool {
        let of_stream = self.streams.get(&stream).map_or(0, |s| s.undone);
        // What is longer than a window goes alone.
        (of_stream == 0 || of_stream + bytes <= STREAM_WINDOW)
            && (self.total == 0 || self.total + bytes <= BULK_WINDOW)
    }

    pub(super) fn forget(&mut self, stream: Handle) {
        if let Some(gone) = self.streams.get_mut(&stream) {
            // Of what was asked for there will be word in any case.
            let unmarked = std::mem::take(&mut gone.unmarked);
            self.done(stream, unmarked);
        }
    }

    pub(super) fn done(&mut self, stream: Handle, bytes: u64) {
        self.total -= bytes;
        if let Some(its) = self.streams.get_mut(&stream) {
            its.undone -= bytes;
            if its.undone == 0 {
                self.streams.remove(&stream);
            }
        }
    }
}

impl Bulk {
    /// A host function was put on a stream.
    pub(super) fn host_func_begins(&self) {
        self.host_funcs.fetch_add(1, SeqCst);
    }

    /// A host function has returned.
    pub(super) fn host_func_ends(&self) {
        let _ = self.host_funcs.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }

    /// Whether a host function is outstanding, or a stream that is held for somebody.
    pub(super) fn awaits_host_func(&self) -> bool {
        self.host_funcs.load(SeqCst) > 0
    }

    /// A stream was destroyed.
    pub(super) fn forget(&self, stream: Handle) {
        self.state.lock().forget(stream);
    }

    /// Streams were destroyed.
    pub(super) fn forget_all(&self) {
        let mut state = self.state.lock();
        let streams: Vec<Handle> = state.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| state.forget(stream));
    }
}
