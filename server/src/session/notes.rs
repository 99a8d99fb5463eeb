//! The dispatch of what a device that looks at kernels is told of the program's memory.

use super::answers::Reply;
use super::calls::{Dispatcher, Payload};
use rgpu_device::{Code, Error, MemoryNote, Range, Result};
use rgpu_protocol::calls::{Call, MemoryChanged, MemorySettled};

impl Dispatcher {
    pub(super) fn memory_changed(&mut self, call: MemoryChanged, _: Payload<'_>) -> Result<()> {
        let range = Range { base: call.base, size: call.size };
        let note = match call.kind {
            MemoryChanged::ALLOCATED => MemoryNote::Allocated { range, device: true },
            MemoryChanged::WRITTEN => MemoryNote::Allocated { range, device: false },
            // What is freed without a stream is waited for: that is asked.
            MemoryChanged::FREED if call.stream.is_some() => {
                MemoryNote::Freed { base: call.base, stream: call.stream }
            }
            MemoryChanged::FREED_WRONGLY => MemoryNote::BadFree { address: call.base },
            other => {
                let text =
                    format!("There is no change of memory of kind {other} (stream: {:?})", call.stream);
                return Err(Error::new(Code::InvalidValue, text));
            }
        };
        self.device.note_memory(note, Box::new(drop));
        Ok(())
    }

    pub(super) fn memory_settled(&mut self, call: MemorySettled, _: Payload<'_>) -> Reply<()> {
        let note = match call.end {
            true => MemoryNote::End,
            false => MemoryNote::Freed { base: call.base, stream: None },
        };
        self.device.note_memory(note, self.later(MemorySettled::NUMBER));
        Reply::Later
    }
}
