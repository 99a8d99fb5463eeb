//! When each call was dispatched, answered and finished, for a client that wants to know.

use crate::ledger::monotonic_ns;
use parking_lot::Mutex;
use rgpu_protocol::frame::Traced;
use std::collections::HashMap;

/// So many records are sent together.
const BATCH: usize = 2048;

/// Gathers records, which are sent with the next answer, or when there are many.
#[derive(Default)]
pub(super) struct Tracer {
    records: Mutex<Vec<Traced>>,
    /// When calls began that will be answered.
    begun: Mutex<HashMap<u64, u64>>,
}

impl Tracer {
    /// A call is about to be executed.
    pub(super) fn begins(&self, sequence: u64, asked: bool) -> u64 {
        let now = monotonic_ns();
        if asked {
            self.begun.lock().insert(sequence, now);
        }
        now
    }

    /// A call was executed as far as the device takes it at once. True where there is enough to be sent.
    pub(super) fn dispatched(&self, call: u16, sequence: u64, start: u64) -> bool {
        let end = monotonic_ns();
        self.note(Traced { kind: Traced::DISPATCHED, call, sequence, stream: 0, start, end })
    }

    /// What a call put on a stream is done. True where there is enough to be sent.
    pub(super) fn finished(&self, call: u16, sequence: u64, stream: u64) -> bool {
        let end = monotonic_ns();
        self.note(Traced { kind: Traced::FINISHED, call, sequence, stream, start: 0, end })
    }

    /// A call is about to be answered.
    pub(super) fn answers(&self, call: u16, sequence: u64) {
        if let Some(start) = self.begun.lock().remove(&sequence) {
            let end = monotonic_ns();
            self.note(Traced { kind: Traced::ANSWERED, call, sequence, stream: 0, start, end });
        }
    }

    fn note(&self, record: Traced) -> bool {
        let mut records = self.records.lock();
        records.push(record);
        records.len() >= BATCH
    }

    /// Takes what there is.
    pub(super) fn take(&self) -> Vec<Traced> {
        std::mem::take(&mut *self.records.lock())
    }
}
