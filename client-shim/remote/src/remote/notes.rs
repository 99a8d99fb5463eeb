//! Telling a server that looks at kernels what the program does with its memory.

use super::Remote;
use super::incoming::Pending;
use super::outgoing::Payload;
use rgpu_device::{Done, MemoryNote, Result};
use rgpu_protocol::calls::{MemoryChanged, MemorySettled};

/// How a change is told.
enum Telling {
    Posted(MemoryChanged),
    Asked(MemorySettled),
}

impl From<&MemoryNote> for Telling {
    fn from(note: &MemoryNote) -> Self {
        let (kind, base, size, stream) = match *note {
            MemoryNote::Allocated { range, device } => {
                let kind = if device { MemoryChanged::ALLOCATED } else { MemoryChanged::WRITTEN };
                (kind, range.base, range.size, None)
            }
            MemoryNote::Freed { base, stream: Some(stream) } => (MemoryChanged::FREED, base, 0, Some(stream)),
            MemoryNote::BadFree { address } => (MemoryChanged::FREED_WRONGLY, address, 0, None),
            MemoryNote::Freed { base, stream: None } => {
                return Self::Asked(MemorySettled { base, end: false });
            }
            MemoryNote::End => return Self::Asked(MemorySettled { base: 0, end: true }),
        };
        Self::Posted(MemoryChanged { kind, base, size, stream })
    }
}

impl Remote {
    pub(super) fn tell_of_memory(&self, note: &MemoryNote, done: Done) {
        match note.into() {
            Telling::Posted(call) => done(self.link.post(&call, Payload::NONE)),
            Telling::Asked(call) => {
                self.link.attention_begins();
                let link = self.link.clone();
                let done: Done = Box::new(move |result| {
                    link.attention_ends();
                    done(result);
                });
                // A failure has completed the callback.
                let _ = self.link.ask_later(&call, Pending::Done(done));
            }
        }
    }

    pub(super) fn tell_of_memory_and_wait(&self, note: &MemoryNote) -> Result<()> {
        match note.into() {
            Telling::Posted(call) => self.link.post(&call, Payload::NONE),
            Telling::Asked(call) => self.link.ask(&call, Payload::NONE),
        }
    }
}
