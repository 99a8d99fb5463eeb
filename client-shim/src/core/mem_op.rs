//! Operations of streams on single words of memory: writing one, and waiting until one has a value.
//!
//! They are there where the device's memory is this process's ([`Device::sees_host_memory`]): a thread of the shim looks at
//! the words that streams wait for, now and then, so that one that never gets its value holds up its own stream alone.
//!
//! [`Device::sees_host_memory`]: rgpu_device::Device::sees_host_memory

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use rgpu_device::Device;
use rgpu_remote::threads::spawn_quiet;

use super::error::{self, Error, Result, invalid, not_implemented};
use super::registry::NumberMap;

/// `CUstreamBatchMemOpParams`.
pub(crate) type RawMemOp = [u64; 6];

/// How long the thread that looks at words waits between two looks, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// `CUstreamWaitValue_flags`: what may be asked for beside the condition.
const FLUSH: u32 = 1 << 30;

/// When a word is as it was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// It is the value or, counting round, after it.
    GreaterOrEqual,
    /// It is the value.
    Equal,
    /// It has one of the value's bits.
    And,
    /// It lacks one of the bits that the value lacks.
    Nor,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Write,
    Wait(Condition),
    /// What was done before is seen before what comes later.
    Barrier,
}

/// An operation on a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemOp {
    what: What,
    /// Whether the word has eight bytes, and not four.
    wide: bool,
    /// Where the word is, in this process's addresses.
    pub addr: u64,
    value: u64,
}

impl MemOp {
    /// Reads an operation as the program describes it.
    pub(crate) fn read(raw: &RawMemOp) -> Result<Self> {
        let [kind, addr, value, flags, ..] = *raw;
        let (kind, flags) = (kind as u32, flags as u32);
        let (what, wide) = match kind {
            1 | 4 => (What::Wait(condition(flags)?), kind == 4),
            2 | 5 if flags > 1 => {
                return Err(invalid(format!("{flags:#x} are no flags for writing a value")));
            }
            2 | 5 => (What::Write, kind == 5),
            3 | 6 => return Ok(Self { what: What::Barrier, wide: false, addr: 0, value: 0 }),
            8 => return Err(not_implemented("an atomic reduction by a stream (cuStreamBatchMemOp)")),
            other => return Err(invalid(format!("there is no stream memory operation {other}"))),
        };
        let op = Self { what, wide, addr, value: if wide { value } else { u64::from(value as u32) } };
        if !addr.is_multiple_of(op.width()) {
            return Err(invalid(format!("{addr:#x} is no address of a word of {} bytes", op.width())));
        }
        Ok(op)
    }

    /// Bytes of the word; 0 where there is none.
    pub(crate) fn width(&self) -> u64 {
        match self.what {
            What::Barrier => 0,
            _ if self.wide => 8,
            _ => 4,
        }
    }

    /// Whether it changes memory.
    pub(crate) fn writes(&self) -> bool {
        self.what == What::Write
    }

    /// Does it; false where it is to be tried again later.
    ///
    /// # Safety
    /// The word must be readable and writable.
    unsafe fn carry_out(&self) -> bool {
        let condition = match self.what {
            What::Barrier => {
                fence(Ordering::SeqCst);
                return true;
            }
            What::Write => {
                // SAFETY: the caller's promise; the address is aligned.
                unsafe {
                    match self.wide {
                        true => (*(self.addr as *const AtomicU64)).store(self.value, Ordering::SeqCst),
                        false => {
                            (*(self.addr as *const AtomicU32)).store(self.value as u32, Ordering::SeqCst)
                        }
                    }
                }
                return true;
            }
            What::Wait(condition) => condition,
        };
        // SAFETY: the caller's promise; the address is aligned.
        let found = unsafe {
            match self.wide {
                true => (*(self.addr as *const AtomicU64)).load(Ordering::SeqCst),
                false => u64::from((*(self.addr as *const AtomicU32)).load(Ordering::SeqCst)),
            }
        };
        self.is_met(condition, found)
    }

    /// Whether a word is as it was waited for.
    fn is_met(&self, condition: Condition, found: u64) -> bool {
        let difference = found.wrapping_sub(self.value);
        match condition {
            Condition::GreaterOrEqual if self.wide => difference as i64 >= 0,
            Condition::GreaterOrEqual => difference as u32 as i32 >= 0,
            Condition::Equal => difference == 0,
            Condition::And => found & self.value != 0,
            Condition::Nor if self.wide => !(found | self.value) != 0,
            Condition::Nor => !((found | self.value) as u32) != 0,
        }
    }
}

/// The condition in the flags of a wait.
fn condition(flags: u32) -> Result<Condition> {
    // The memory is one, so there is nothing to flush.
    match flags & !FLUSH {
        0 => Ok(Condition::GreaterOrEqual),
        1 => Ok(Condition::Equal),
        2 => Ok(Condition::And),
        3 => Ok(Condition::Nor),
        _ => Err(invalid(format!("{flags:#x} are no flags for waiting for a value"))),
    }
}

/// Operations of one stream, to be done one after another.
pub(crate) struct Batch {
    /// The operations.
    pub ops: Vec<MemOp>,
    /// The device's error, 0 if there is none: then nothing is done or waited for any more.
    pub status: Box<dyn Fn() -> u32 + Send>,
    /// How many are done.
    pub done: usize,
}

impl Batch {
    /// Goes as far as it can; whether that is to the end.
    fn step(&mut self) -> bool {
        while let Some(op) = self.ops.get(self.done) {
            if (self.status)() != 0 {
                return true;
            }
            if !is_there(op) {
                error::say(&format!("a stream's memory operation at {:#x}: the memory is gone", op.addr));
                return true;
            }
            // SAFETY: the program's allocation was there a moment ago, and the device keeps what is released until earlier
            // work, such as this, is done.
            if !unsafe { op.carry_out() } {
                return false;
            }
            self.done += 1;
        }
        true
    }
}

/// Whether a word can be read: memory that the program has freed in the order of another stream may be gone.
fn is_there(op: &MemOp) -> bool {
    let mut bytes = [0_u8; 8];
    let width = op.width() as usize;
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: width };
    let remote = libc::iovec { iov_base: op.addr as *mut libc::c_void, iov_len: width };
    // SAFETY: the buffer is large enough, and the call itself finds out whether the other address is one.
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    // Where the call is not allowed at all, nothing is known.
    read == width as isize || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

/// The batches that streams have come to.
#[derive(Default)]
pub(crate) struct Batches {
    kept: Mutex<NumberMap<u64, Batch>>,
    thread: Mutex<Option<Sender<(u64, Batch)>>>,
}

impl Batches {
    /// Keeps a batch until its stream gets there.
    pub(crate) fn keep(&self, id: u64, batch: Batch) {
        self.kept.lock().insert(id, batch);
    }

    /// Forgets a batch that could not be enqueued.
    pub(crate) fn forget(&self, id: u64) {
        self.kept.lock().remove(&id);
    }

    /// A stream has come to one: false where there is none of this number.
    pub(crate) fn begin(&self, id: u64, device: &Arc<dyn Device>) -> bool {
        let Some(batch) = self.kept.lock().remove(&id) else { return false };
        let mut thread = self.thread.lock();
        let sender = thread.get_or_insert_with(|| {
            let (send, receive) = channel();
            let device = device.clone();
            if let Err(why) = spawn_quiet("rgpu-mem-ops", move || look(&receive, &*device)) {
                error::say(&format!("cannot start the thread for streams' memory operations: {why}"));
            }
            send
        });
        drop(sender.send((id, batch)));
        true
    }
}

/// Carries batches out, looking at what they wait for.
fn look(receive: &Receiver<(u64, Batch)>, device: &dyn Device) {
    let (mut waiting, mut pause) = (Vec::new(), PAUSES.0);
    loop {
        let came = match waiting.is_empty() {
            true => receive.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => receive.recv_timeout(pause),
        };
        match came {
            Ok(batch) => {
                waiting.push(batch);
                pause = PAUSES.0;
            }
            Err(RecvTimeoutError::Timeout) => pause = (pause * 2).min(PAUSES.1),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        waiting.retain_mut(|(id, batch): &mut (u64, Batch)| {
            let goes_on = !batch.step();
            if !goes_on && let Err(error) = device.host_func_done(*id) {
                log_end(&error);
            }
            goes_on
        });
    }
}

fn log_end(error: &Error) {
    error::log(&format!("a stream's memory operations: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(kind: u64, value: u64, flags: u64) -> MemOp {
        MemOp::read(&[kind, 64, value, flags, 0, 0]).unwrap()
    }

    fn met(op: MemOp, found: u64) -> bool {
        let What::Wait(condition) = op.what else { panic!("{op:?} waits for nothing") };
        op.is_met(condition, found)
    }

    #[test]
    fn conditions_are_those_of_the_header() {
        // Counting round: what is up to half the numbers ahead has been reached.
        assert!(met(wait(1, 5, 0), 5) && met(wait(1, 5, 0), 6) && !met(wait(1, 5, 0), 4));
        assert!(met(wait(1, 0xffff_ffff, 0), 2) && !met(wait(1, 2, 0), 0xffff_ffff));
        assert!(met(wait(4, 5, 0), 1 << 40) && !met(wait(4, 1 << 40, 0), 5));
        assert!(met(wait(1, 5, 1), 5) && !met(wait(1, 5, 1), 6));
        assert!(met(wait(1, 6, 2), 12) && !met(wait(1, 6, 2), 9));
        assert!(met(wait(1, 0xffff_fffe, 3), 0) && !met(wait(1, 0xffff_fffe, 3), 1));
        assert!(met(wait(4, 0xffff_ffff, 3), 0) && !met(wait(4, u64::MAX, 3), 0));
        assert!(met(wait(1, 5, 1 << 30 | 1), 5), "flushing is no condition");
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for bad in [[1, 2, 0, 0], [4, 4, 0, 0], [1, 4, 0, 4], [2, 4, 0, 2], [7, 4, 0, 0], [0, 4, 0, 0]] {
            let [kind, addr, value, flags] = bad;
            let refused = MemOp::read(&[kind, addr, value, flags, 0, 0]).unwrap_err();
            assert_eq!(refused.code, crate::core::Code::InvalidValue, "{bad:?}");
        }
        assert_eq!(MemOp::read(&[8, 4, 0, 0, 0, 0]).unwrap_err().code, crate::core::Code::NotSupported);
    }

    #[test]
    fn words_are_written_and_memory_that_is_gone_is_noticed() {
        let mut words = [u64::MAX; 2];
        let addr = &raw mut words as u64;
        let ops = [[2, addr, 7 << 32 | 3, 0, 0, 0], [5, addr + 8, 1 << 40, 0, 0, 0], [6, 0, 0, 0, 0, 0]];
        let ops = ops.iter().map(|raw| MemOp::read(raw).unwrap()).collect();
        assert!(Batch { ops, status: Box::new(|| 0), done: 0 }.step());
        assert_eq!(words, [0xffff_ffff_0000_0003, 1 << 40]);
        let gone = MemOp::read(&[2, 4096, 0, 0, 0, 0]).unwrap();
        assert!(!is_there(&gone));
        assert!(Batch { ops: vec![gone], status: Box::new(|| 0), done: 0 }.step());
    }
}
