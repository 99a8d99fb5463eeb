//! Errors that belong to no call in particular: pending ones and sticky ones.

use super::convert;
use parking_lot::Mutex;
use rgpu_device::{Error, ErrorState, Handle, Ordinal, Result};
use rgpu_protocol::frame::Failure;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What later calls must report.
#[derive(Default)]
pub(super) struct Errors {
    /// Whether there is anything below: all that a healthy session looks at.
    any: AtomicBool,
    kept: Mutex<KeptErrors>,
    /// Which ordinal a created stream belongs to.
    streams: Mutex<HashMap<Handle, Ordinal>>,
}

#[derive(Default)]
struct KeptErrors {
    /// The session's pending error, with its ordinal: told once, to whoever waits next.
    pending: Option<(u32, Error)>,
    /// What sticks, by ordinal.
    sticky: HashMap<u32, ErrorState>,
}

impl KeptErrors {
    /// Keeps an error if it sticks; true if it does.
    fn note(&mut self, ordinal: u32, error: &Error) -> bool {
        error.code.is_sticky() && self.sticky.entry(ordinal).or_default().note(error)
    }
}

impl Errors {
    /// An answer brought the session's pending error.
    pub(super) fn note_pending(&self, failure: &Failure) {
        let mut kept = self.kept.lock();
        let error = convert::error(failure);
        kept.note(failure.ordinal, &error);
        kept.pending.get_or_insert((failure.ordinal, error));
        self.any.store(true, Relaxed);
    }

    /// An asked call failed by itself.
    pub(super) fn note_failed(&self, failure: &Failure) {
        if self.kept.lock().note(failure.ordinal, &convert::error(failure)) {
            self.any.store(true, Relaxed);
        }
    }

    /// Whether there is anything to report.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Takes the pending error.
    pub(super) fn take_pending(&self) -> Result<()> {
        if !self.any.load(Relaxed) {
            return Ok(());
        }
        match self.kept.lock().pending.take() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// The sticky error of an ordinal.
    pub(super) fn check(&self, ordinal: Ordinal) -> Result<()> {
        if !self.any.load(Relaxed) {
            return Ok(());
        }
        let kept = self.kept.lock();
        // An error that belongs to no ordinal belongs to all.
        let state = kept.sticky.get(&ordinal).or_else(|| kept.sticky.get(&u32::MAX));
        state.map_or(Ok(()), ErrorState::check_sticky)
    }

    /// The sticky error of a stream's ordinal.
    pub(super) fn check_stream(&self, stream: Handle) -> Result<()> {
        if !self.any.load(Relaxed) {
            return Ok(());
        }
        self.check(self.ordinal_of(stream).unwrap_or(u32::MAX))
    }

    /// The ordinal of a stream, if there is such a stream.
    pub(super) fn ordinal_of(&self, stream: Handle) -> Option<Ordinal> {
        if stream < rgpu_device::FIRST_STREAM {
            return Some(stream as Ordinal);
        }
        self.streams.lock().get(&stream).copied()
    }

    /// Whether an ordinal has no stream but the legacy one.
    pub(super) fn has_no_streams(&self, ordinal: Ordinal) -> bool {
        !self.streams.lock().values().any(|o| *o == ordinal)
    }

    /// A stream was created.
    pub(super) fn stream_created(&self, stream: Handle, ordinal: Ordinal) {
        self.streams.lock().insert(stream, ordinal);
    }

    /// A stream was destroyed.
    pub(super) fn stream_destroyed(&self, stream: Handle) {
        self.streams.lock().remove(&stream);
    }

    /// The streams of an ordinal, the legacy one among them.
    pub(super) fn streams_of(&self, ordinal: Ordinal) -> Vec<Handle> {
        let streams = self.streams.lock();
        let created = streams.iter().filter(|(_, o)| **o == ordinal).map(|(stream, _)| *stream);
        created.chain([Handle::from(ordinal)]).collect()
    }

    /// An ordinal was reset.
    pub(super) fn reset(&self, ordinal: Ordinal) {
        let mut kept = self.kept.lock();
        kept.sticky.remove(&ordinal);
        kept.pending.take_if(|p| p.0 == ordinal);
        self.any.store(kept.pending.is_some() || !kept.sticky.is_empty(), Relaxed);
        self.streams.lock().retain(|_, o| *o != ordinal);
    }
}
