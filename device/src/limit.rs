//! What a program may set limits to.

use crate::{Code, Error, Result};

/// A configurable limit of a device (`CUlimit`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Limit {
    /// Stack of a device thread, in bytes.
    StackSize = 0,
    /// Buffer of the kernels' printf, in bytes.
    PrintfFifoSize = 1,
    /// Heap of the kernels' malloc, in bytes.
    MallocHeapSize = 2,
}

impl TryFrom<u32> for Limit {
    type Error = Error;
    fn try_from(value: u32) -> Result<Self> {
        match value {
            0 => Ok(Self::StackSize),
            1 => Ok(Self::PrintfFifoSize),
            2 => Ok(Self::MallocHeapSize),
            7.. => Err(Error::new(Code::InvalidValue, format!("there is no limit {value}"))),
            _ => Err(Error::new(Code::UnsupportedLimit, format!("limit {value} is not supported"))),
        }
    }
}
