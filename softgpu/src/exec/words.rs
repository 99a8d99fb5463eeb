//! Operations of streams on words of memory.
//!
//! A stream that comes to some carries them out at once, as far as that is possible. One that has to wait is looked after by a
//! thread, which looks at all words that streams wait for, now and then: a word that never gets its value holds up its own
//! stream alone, and no worker. The thread looks under the device's lock, so that nothing of what it looks at is unmapped meanwhile.

use std::sync::Arc;
use std::time::Duration;

use rgpu_device::{Code, Error, MemOp, Region, Result};

use super::memory::Memory;
use super::shared::Shared;
use super::stream::Actions;
use super::worker;

/// How long the thread waits between two looks, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));
/// Bytes of the thread's stack.
const STACK: usize = 128 << 10;

/// Operations that a stream carries out one after another.
pub(super) struct Words {
    ops: Vec<MemOp>,
    done: usize,
    /// Whether words may lie in memory of this process that is not the device's: that can be gone.
    of_process: bool,
}

impl Words {
    /// Checks operations against what is allocated. With `of_process`, words may also lie in other memory of this process, which
    /// is the caller's.
    pub(super) fn new(memory: &Memory, ops: &[MemOp], of_process: bool) -> Result<Self> {
        if ops.len() > MemOp::MOST {
            let text = format!("{} memory operations are more than {} at once", ops.len(), MemOp::MOST);
            return Err(Error::new(Code::InvalidValue, text));
        }
        for op in ops.iter().filter(|op| op.width() > 0) {
            if of_process && !memory.is_of_the_device(op.addr) {
                continue;
            }
            if memory.place(Region::linear(op.addr, op.width()))?.mirrored {
                let text = format!(
                    "a stream's memory operation (cuStreamWaitValue and its like) on host memory of which the device has a copy \
                     of its own, at {:#x}",
                    op.addr
                );
                return Err(Error::new(Code::NotSupported, text));
            }
        }
        Ok(Self { ops: ops.to_vec(), done: 0, of_process })
    }

    /// Goes as far as it can; whether that is to the end. To be called under the device's lock.
    pub(super) fn go_on(&mut self) -> bool {
        while let Some(op) = self.ops.get(self.done) {
            if self.of_process && op.width() > 0 && !is_there(op) {
                // The program has freed what its stream was to look at.
                return true;
            }
            // SAFETY: the word was found to be allocated when this was put on the stream, and memory is unmapped after the work that
            // was put on streams before, under the lock. What is not the device's was found to be there just now, and is the
            // caller's, who may use it.
            if !unsafe { op.carry_out() } {
                return false;
            }
            self.done += 1;
        }
        true
    }
}

/// Whether a word of this process can be read.
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

impl Shared {
    /// Does what was left to be done once no lock is held.
    pub(super) fn act(self: &Arc<Self>, actions: Actions) {
        if actions.looks_for_words {
            self.look_for_words();
        }
        actions.run(&*self.host);
    }

    /// Has the thread look at words, which is started if there is none.
    fn look_for_words(self: &Arc<Self>) {
        let mut state = self.lock();
        self.words_begun.notify_one();
        if std::mem::replace(&mut state.looker, true) {
            return;
        }
        let shared = self.clone();
        let what = "streams' memory operations";
        if let Err(error) = worker::spawn_masked("rgpu-mem-ops", STACK, &[], what, move || shared.look_on()) {
            state.looker = false;
            (0..self.config.devices).for_each(|ordinal| state.streams.fail(ordinal, error.clone()));
            let mut actions = Actions::default();
            state.streams.look_at_words(&mut actions);
            drop(state);
            actions.run(&*self.host);
        }
    }

    /// Looks at words until the device is closed.
    fn look_on(self: &Arc<Self>) {
        let mut pause = PAUSES.0;
        let mut state = self.lock();
        while !state.is_stopped() {
            if state.streams.words.is_empty() {
                self.words_begun.wait(&mut state);
                pause = PAUSES.0;
                continue;
            }
            let mut actions = Actions::default();
            let before = state.streams.words.len();
            state.streams.look_at_words(&mut actions);
            if state.streams.words.len() < before {
                self.settle(&mut state);
                self.call_workers(&mut state);
                drop(state);
                // What comes to further words is looked at in the next round.
                actions.run(&*self.host);
                state = self.lock();
                pause = PAUSES.0;
                continue;
            }
            if self.words_begun.wait_for(&mut state, pause).timed_out() {
                pause = (pause * 2).min(PAUSES.1);
            } else {
                pause = PAUSES.0;
            }
        }
    }
}
