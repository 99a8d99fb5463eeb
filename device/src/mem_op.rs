//! Operations of streams on single words of memory: writing one, and waiting until one has a value.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::{Code, Error, Result};

/// `CU_STREAM_WAIT_VALUE_FLUSH`: what may be asked for beside the condition of a wait.
const FLUSH: u32 = 1 << 30;

/// When a word is as it was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
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
pub enum MemOpKind {
    /// Stores the value.
    Write,
    /// Waits until the word is as the condition says.
    Wait(Condition),
    /// Sees to it that what was done before is seen before what comes later. It has no word.
    Barrier,
}

/// An operation on an aligned word of four or eight bytes. [`MemOp::number`], [`MemOp::value`] and [`MemOp::flags`] are those
/// of `CUstreamBatchMemOpParams`, and [`MemOp::new`] takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemOp {
    what: MemOpKind,
    number: u32,
    flags: u32,
    value: u64,
    /// Where the word is; means nothing where there is none.
    pub addr: u64,
}

impl MemOp {
    /// The most operations that are handed to a stream at once.
    pub const MOST: usize = 256;

    /// An operation as `cuda.h` numbers it (`CUstreamBatchMemOpType`).
    ///
    /// # Errors
    /// [`Code::InvalidValue`] where there is no such operation, where the flags are none of its, or where the address is not
    /// aligned to the word; [`Code::NotSupported`] for atomic reductions.
    pub fn new(number: u32, addr: u64, value: u64, flags: u32) -> Result<Self> {
        let invalid = |text: String| Err(Error::new(Code::InvalidValue, text));
        let what = match number {
            1 | 4 => MemOpKind::Wait(condition(flags)?),
            2 | 5 if flags > 1 => return invalid(format!("{flags:#x} are no flags for writing a value")),
            2 | 5 => MemOpKind::Write,
            3 | 6 => MemOpKind::Barrier,
            8 => {
                let text = "an atomic reduction by a stream (cuStreamBatchMemOp) is not implemented";
                return Err(Error::new(Code::NotSupported, text));
            }
            other => return invalid(format!("there is no stream memory operation {other}")),
        };
        let op = Self { what, number, flags, value, addr };
        if what == MemOpKind::Barrier {
            return Ok(Self { value: 0, addr: 0, ..op });
        }
        if !addr.is_multiple_of(op.width()) {
            return invalid(format!("{addr:#x} is no address of a word of {} bytes", op.width()));
        }
        Ok(if op.is_wide() { op } else { Self { value: u64::from(value as u32), ..op } })
    }

    /// What it does.
    pub fn kind(&self) -> MemOpKind {
        self.what
    }

    /// Its number in `cuda.h`.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its flags in `cuda.h`.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// What is written, or waited for.
    pub fn value(&self) -> u64 {
        self.value
    }

    fn is_wide(&self) -> bool {
        matches!(self.number, 4 | 5)
    }

    /// Bytes of the word; 0 where there is none.
    pub fn width(&self) -> u64 {
        match self.what {
            MemOpKind::Barrier => 0,
            _ if self.is_wide() => 8,
            _ => 4,
        }
    }

    /// Whether it changes memory.
    pub fn writes(&self) -> bool {
        self.what == MemOpKind::Write
    }

    /// Whether it may take long.
    pub fn waits(&self) -> bool {
        matches!(self.what, MemOpKind::Wait(_))
    }

    /// Does it, for a device whose memory lies in this process; false where it is to be tried again later.
    ///
    /// # Safety
    /// The word must be readable and writable at its address.
    pub unsafe fn carry_out(&self) -> bool {
        let condition = match self.what {
            MemOpKind::Barrier => {
                fence(Ordering::SeqCst);
                return true;
            }
            MemOpKind::Write => {
                // SAFETY: the caller's promise; the address is aligned.
                unsafe {
                    match self.is_wide() {
                        true => (*(self.addr as *const AtomicU64)).store(self.value, Ordering::SeqCst),
                        false => {
                            (*(self.addr as *const AtomicU32)).store(self.value as u32, Ordering::SeqCst)
                        }
                    }
                }
                return true;
            }
            MemOpKind::Wait(condition) => condition,
        };
        // SAFETY: the caller's promise; the address is aligned.
        let found = unsafe {
            match self.is_wide() {
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
            Condition::GreaterOrEqual if self.is_wide() => difference as i64 >= 0,
            Condition::GreaterOrEqual => difference as u32 as i32 >= 0,
            Condition::Equal => difference == 0,
            Condition::And => found & self.value != 0,
            Condition::Nor if self.is_wide() => !(found | self.value) != 0,
            Condition::Nor => !((found | self.value) as u32) != 0,
        }
    }
}

/// The condition in the flags of a wait.
fn condition(flags: u32) -> Result<Condition> {
    match flags & !FLUSH {
        0 => Ok(Condition::GreaterOrEqual),
        1 => Ok(Condition::Equal),
        2 => Ok(Condition::And),
        3 => Ok(Condition::Nor),
        _ => {
            let text = format!("{flags:#x} are no flags for waiting for a value");
            Err(Error::new(Code::InvalidValue, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(number: u32, value: u64, flags: u32) -> MemOp {
        MemOp::new(number, 64, value, flags).unwrap()
    }

    fn met(op: MemOp, found: u64) -> bool {
        let MemOpKind::Wait(condition) = op.kind() else { panic!("{op:?} waits for nothing") };
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
        for bad in [(1, 2, 0, 0), (4, 4, 0, 0), (1, 4, 0, 4), (2, 4, 0, 2), (7, 4, 0, 0), (0, 4, 0, 0)] {
            let (number, addr, value, flags) = bad;
            let refused = MemOp::new(number, addr, value, flags).unwrap_err();
            assert_eq!(refused.code, Code::InvalidValue, "{bad:?}");
        }
        assert_eq!(MemOp::new(8, 4, 0, 0).unwrap_err().code, Code::NotSupported);
    }

    #[test]
    fn words_are_written() {
        let mut words = [u64::MAX; 2];
        let addr = &raw mut words as u64;
        let ops = [(2, addr, 7 << 32 | 3), (5, addr + 8, 1 << 40), (6, 0, 0), (1, addr, 3), (1, addr, 4)];
        let done = ops.map(|(number, addr, value)| {
            // SAFETY: the addresses are those of the words.
            unsafe { MemOp::new(number, addr, value, 0).unwrap().carry_out() }
        });
        assert_eq!(words, [0xffff_ffff_0000_0003, 1 << 40]);
        assert_eq!(done, [true, true, true, true, false]);
    }
}
