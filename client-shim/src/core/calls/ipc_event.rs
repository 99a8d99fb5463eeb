//! Events that several processes have: `cuIpcGetEventHandle` and `cuIpcOpenEventHandle`.
//!
//! Such an event has two words in device memory that the processes share: how many times it was recorded, and how many of the records
//! were reached. Recording it counts the first one up before the call returns, and has a stream of the event's own write the second one when
//! the record is reached, so that records are reached in their order. Waiting is waiting for the second word to get to what the first
//! one is at that moment. Processes that record one event at the same moment, each with the other's knowledge of how many records there
//! were, count one record for both.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use rgpu_device::{Handle, HostTarget, MemOp, Ordinal, Region, Target};

use crate::core::context::Context;
use crate::core::error::{Code, Error, Result, invalid};
use crate::core::event::{DISABLE_TIMING, Event, INTERPROCESS};
use crate::core::memory::ipc::HandleBytes;
use crate::core::process::Core;
use crate::core::registry::Raw;
use crate::core::shared::PAGE;
use crate::core::stream::Stream;

/// What an event's handle begins with; a memory's begins with something else.
const MAGIC: [u8; 8] = *b"rgpuEVT1";
/// What the memory's handle behind it begins with.
const MEMORY: [u8; 8] = *b"rgpuIPC1";

/// The words of an event that other processes may have.
pub(crate) struct SharedWords {
    /// Where they are: the number of records, and of those that were reached.
    addr: u64,
    /// Whether the memory is another process's.
    imported: bool,
    /// Writes the second word.
    stream: Handle,
    /// Held while the event is recorded.
    recording: Mutex<()>,
}

fn write(addr: u64, value: u64) -> Result<MemOp> {
    MemOp::new(5, addr, value, 0)
}

impl SharedWords {
    /// Waits until so many records were reached.
    fn reaches(&self, records: u64) -> Result<MemOp> {
        MemOp::new(4, self.addr + 8, records, 0)
    }
}

impl Core {
    /// Does something on a stream of its own, which waits for no other.
    fn apart<T>(&self, ordinal: Ordinal, body: impl FnOnce(Handle) -> Result<T>) -> Result<T> {
        let (device, stream) = (self.devices.device(), self.devices.new_handle());
        self.devices.note(ordinal, device.stream_create(ordinal, stream, false, 0))?;
        let done = body(stream);
        let destroyed = device.stream_destroy(stream);
        let value = self.devices.note(ordinal, done)?;
        self.devices.note(ordinal, destroyed)?;
        Ok(value)
    }

    /// How many records there are, and how many of them were reached.
    fn records(&self, ordinal: Ordinal, words: &SharedWords) -> Result<(u64, u64)> {
        let mut both = [0_u64; 2];
        self.apart(ordinal, |stream| {
            // SAFETY: the two words outlive the call, which waits.
            let target = unsafe { HostTarget::new(Region::linear(both.as_mut_ptr() as u64, 16)) };
            self.devices.device().copy_from_device_blocking(stream, Region::linear(words.addr, 16), target)
        })?;
        Ok((both[0], both[1]))
    }

    /// Writes words at once.
    fn write_now(&self, ordinal: Ordinal, ops: &[MemOp]) -> Result<()> {
        self.apart(ordinal, |stream| {
            self.devices.device().mem_ops(stream, ops)?;
            self.devices.device().synchronize_blocking(Target::Stream(stream))
        })
    }

    fn new_words(&self, ordinal: Ordinal, addr: u64, imported: bool) -> Result<Arc<SharedWords>> {
        let stream = self.devices.new_handle();
        self.devices.note(ordinal, self.devices.device().stream_create(ordinal, stream, false, 0))?;
        Ok(Arc::new(SharedWords { addr, imported, stream, recording: Mutex::default() }))
    }

    /// `cuIpcGetEventHandle`: a handle by which other processes open the event, which was made for that.
    pub(crate) fn ipc_event_export(&self, context: &Arc<Context>, event: &Event) -> Result<HandleBytes> {
        if event.flags & INTERPROCESS == 0 {
            let text = "The event was not created for several processes (CU_EVENT_INTERPROCESS)";
            return Err(Error::new(Code::InvalidHandle, text));
        }
        let mut shared = event.words.lock();
        let words = match &*shared {
            Some(words) => words.clone(),
            None => {
                let addr = self.memory.alloc_pages(context, PAGE)?;
                // What was recorded before anybody else could know of the event is the first record.
                let recorded = event.recorded_at.load(Ordering::Acquire) != 0;
                let words = self.new_words(event.ordinal, addr, false)?;
                self.write_now(event.ordinal, &[write(addr, recorded.into())?, write(addr + 8, 0)?])?;
                if recorded {
                    self.tell_when_reached(event, &words, 1)?;
                }
                shared.insert(words).clone()
            }
        };
        let mut bytes = self.memory.ipc_export(words.addr)?;
        bytes[..8].copy_from_slice(&MAGIC);
        Ok(bytes)
    }

    /// `cuIpcOpenEventHandle`: an event of this process that is another one's, too.
    pub(crate) fn ipc_event_open(&self, context: &Arc<Context>, bytes: &HandleBytes) -> Result<Arc<Event>> {
        let mut memory = *bytes;
        if memory[..8] != MAGIC {
            return Err(invalid("This is no handle of another process's event"));
        }
        memory[..8].copy_from_slice(&MEMORY);
        let addr = self.memory.ipc_open(context, &memory)?;
        let made = self.new_words(context.ordinal, addr, true).and_then(|words| {
            let event = self.streams.event_create(context, INTERPROCESS | DISABLE_TIMING)?;
            *event.words.lock() = Some(words);
            Ok(event)
        });
        if made.is_err() {
            self.memory.ipc_close(addr)?;
        }
        made
    }

    /// Has the second word written when the event's last record is reached.
    fn tell_when_reached(&self, event: &Event, words: &SharedWords, record: u64) -> Result<()> {
        let device = self.devices.device();
        self.devices.note(event.ordinal, device.stream_wait_event(words.stream, event.handle))?;
        let reached = write(words.addr + 8, record)?;
        self.devices.note(event.ordinal, device.mem_ops(words.stream, &[reached]))
    }

    /// The event was recorded: other processes learn of it, where they may have it.
    pub(super) fn share_record(&self, event: &Event) -> Result<()> {
        let Some(words) = event.words.lock().clone() else { return Ok(()) };
        let _recording = words.recording.lock();
        let record = self.records(event.ordinal, &words)?.0 + 1;
        self.tell_when_reached(event, &words, record)?;
        self.write_now(event.ordinal, &[write(words.addr, record)?])
    }

    /// Whether the most recent record of whatever process is reached.
    pub(super) fn shared_record_is_reached(&self, event: &Event) -> Result<bool> {
        let Some(words) = event.words.lock().clone() else { return Ok(true) };
        let (recorded, reached) = self.records(event.ordinal, &words)?;
        Ok(reached >= recorded)
    }

    /// Waits for the most recent record of whatever process.
    pub(super) fn wait_for_shared_record(&self, event: &Event) -> Result<()> {
        let Some(words) = event.words.lock().clone() else { return Ok(()) };
        let (recorded, reached) = self.records(event.ordinal, &words)?;
        if reached >= recorded {
            return Ok(());
        }
        self.write_now(event.ordinal, &[words.reaches(recorded)?])
    }

    /// Makes a stream wait for the most recent record of whatever process.
    pub(super) fn follow_shared_record(&self, stream: &Stream, event: &Event) -> Result<()> {
        let Some(words) = event.words.lock().clone() else { return Ok(()) };
        let (recorded, reached) = self.records(event.ordinal, &words)?;
        if reached >= recorded {
            return Ok(());
        }
        self.streams.mem_ops(stream, &[words.reaches(recorded)?])
    }

    /// Destroys an event; whoever waits for it still does.
    pub(crate) fn event_destroy(&self, raw: Raw) -> Result<()> {
        let event = self.streams.event(raw)?;
        self.streams.event_destroy(raw)?;
        let Some(words) = event.words.lock().take() else { return Ok(()) };
        self.devices.note(event.ordinal, self.devices.device().stream_destroy(words.stream))?;
        // The device keeps the memory until what was put on streams before is done.
        if words.imported { self.memory.ipc_close(words.addr) } else { self.memory.free(words.addr) }
    }
}
