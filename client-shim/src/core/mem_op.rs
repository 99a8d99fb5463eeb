//! Operations of streams on single words of memory, as programs describe them.

use rgpu_device::MemOp;

use super::error::Result;

/// `CUstreamBatchMemOpParams`.
pub(crate) type RawMemOp = [u64; 6];

/// Reads an operation as the program describes it.
pub(crate) fn read(raw: &RawMemOp) -> Result<MemOp> {
    let [kind, addr, value, flags, ..] = *raw;
    MemOp::new(kind as u32, addr, value, flags as u32)
}
