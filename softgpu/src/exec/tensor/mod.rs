//! Bulk copies and tensor maps: the helper that compiled kernels call for them.
//!
//! A map lies in memory that a program can overwrite at any time, also while it is being used here. So it is read once, nothing in
//! it is believed that was not checked, and every access is checked to lie in the arena ([`Space`]), or in the block's window of
//! shared memory. As the textures' helper this one runs as a part of the kernel, owns nothing, and can be abandoned anywhere.
//!
//! Copies are made at once, and so are there before anybody waits for them.

mod reduce;
#[cfg(test)]
mod tests;
mod tile;

use rgpu_device::tensor_map::{
    Patch, TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES, TENSOR_MAP_MAGIC, TENSOR_MAP_MAGIC_AT, TensorMap, replace,
};

use super::arena::WINDOW;
use super::block::Context;
use super::check::Place;
use super::operands;
use super::space::{Space, Trap};
use crate::abi::operands::{Operands, Words};
use crate::abi::tensor::{BYTES, BulkReduce, Number, RANK, SHARED, TensorOp, VALUE};
use crate::abi::{
    Access, AccessKind, Block, CLUSTER_STRIDE, Place as InCluster, TRAP_ADDRESS, TRAP_LINE, TRAP_MISALIGNED,
    TRAP_TENSOR_MAP, Thread,
};

/// Who looks at accesses, if anybody does.
struct Look<'a> {
    context: &'a Context,
    block: &'a Block,
    thread: &'a Thread,
}

/// The memory that a block's copies can reach.
struct Reach<'a> {
    space: Space,
    /// Where its window of shared memory begins.
    window: u64,
    look: Option<Look<'a>>,
}

impl Reach<'_> {
    /// The address of so many bytes of shared memory.
    fn shared(&self, at: u32, bytes: u64) -> Result<u64, Trap> {
        if u64::from(at) + bytes > WINDOW {
            return Err(TRAP_ADDRESS);
        }
        Ok(self.window + u64::from(at))
    }

    /// An access is going to be made; where to make it.
    fn seen(&self, kind: AccessKind, address: u64, bytes: u32) -> u64 {
        let Some(Look { context, block, thread }) = &self.look else { return address };
        let Some(check) = &context.check else { return address };
        let access = Access { kind, ordered: false, size: bytes, line: thread.op[TRAP_LINE] as u32 };
        // SAFETY: the guard is the one of the thread that runs the block; what looks at the access is not a part of the kernel.
        unsafe { &mut *context.guard }
            .pause(|_| check.borrow_mut().access(context, &Place { block, thread }, address, access))
    }

    /// Whether accesses are looked at, one by one.
    fn looks(&self) -> bool {
        self.look.is_some()
    }

    /// Reads elements of so many bytes, a power of two of at most eight.
    fn read(&self, address: u64, into: &mut [u8], element: u32) -> Result<(), Trap> {
        if self.looks() {
            for (index, place) in into.chunks_exact_mut(element as usize).enumerate() {
                let address = address.wrapping_add(index as u64 * u64::from(element));
                let address = self.seen(AccessKind::Read, address, element);
                for (byte, place) in place.iter_mut().enumerate() {
                    *place = self.space.get::<u8>(address.wrapping_add(byte as u64))?;
                }
            }
            return Ok(());
        }
        self.space.check(address, into.len() as u64)?;
        let (words, rest) = into.as_chunks_mut::<8>();
        let behind = address + words.len() as u64 * 8;
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.space.get::<u64>(address + index as u64 * 8)?.to_le_bytes();
        }
        for (index, byte) in rest.iter_mut().enumerate() {
            *byte = self.space.get::<u8>(behind + index as u64)?;
        }
        Ok(())
    }

    /// Writes elements of so many bytes.
    fn write(&self, address: u64, from: &[u8], element: u32) -> Result<(), Trap> {
        if self.looks() {
            for (index, bytes) in from.chunks_exact(element as usize).enumerate() {
                let address = address.wrapping_add(index as u64 * u64::from(element));
                let address = self.seen(AccessKind::Write, address, element);
                for (byte, &value) in bytes.iter().enumerate() {
                    self.space.put::<u8>(address.wrapping_add(byte as u64), value)?;
                }
            }
            return Ok(());
        }
        self.space.check(address, from.len() as u64)?;
        let (words, rest) = from.as_chunks::<8>();
        let behind = address + words.len() as u64 * 8;
        for (index, word) in words.iter().enumerate() {
            self.space.put::<u64>(address + index as u64 * 8, u64::from_le_bytes(*word))?;
        }
        for (index, &byte) in rest.iter().enumerate() {
            self.space.put::<u8>(behind + index as u64, byte)?;
        }
        Ok(())
    }

    /// The map at an address.
    fn map(&self, address: u64) -> Result<TensorMap, Trap> {
        if !address.is_multiple_of(TENSOR_MAP_ALIGN) {
            return Err(TRAP_MISALIGNED);
        }
        let mut bytes = [0u8; TENSOR_MAP_BYTES];
        for (index, place) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *place = self.space.get::<u64>(address.wrapping_add(index as u64 * 8))?.to_le_bytes();
        }
        TensorMap::from_bytes(&bytes).ok_or(TRAP_TENSOR_MAP)
    }

    /// Copies bytes from shared to global memory, or combines them with what is there.
    fn copy(&self, words: &Words, to: u64, reduce: Option<(BulkReduce, Number)>) -> Result<(), Trap> {
        let (at, bytes) = (words[SHARED], words[BYTES]);
        if !(at | bytes).is_multiple_of(16) || !to.is_multiple_of(16) {
            return Err(TRAP_MISALIGNED);
        }
        let from = self.shared(at, bytes.into())?;
        self.space.check(to, bytes.into())?;
        let mut part = [0u8; 16];
        for offset in (0..u64::from(bytes)).step_by(16) {
            self.read(from + offset, &mut part, 8)?;
            match reduce {
                None => self.write(to + offset, &part, 8)?,
                Some((op, number)) => self.combine(to + offset, &part, op, number)?,
            }
        }
        Ok(())
    }

    /// Copies a tensor map from shared to global memory.
    fn copy_map(&self, words: &Words, to: u64) -> Result<(), Trap> {
        if !u64::from(words[SHARED]).is_multiple_of(TENSOR_MAP_ALIGN) || !to.is_multiple_of(TENSOR_MAP_ALIGN)
        {
            return Err(TRAP_MISALIGNED);
        }
        let mut bytes = [0; TENSOR_MAP_BYTES];
        self.read(self.shared(words[SHARED], TENSOR_MAP_BYTES as u64)?, &mut bytes, 8)?;
        self.write(to, &bytes, 8)
    }

    /// Replaces a field of a map.
    fn patch(&self, map: u64, (at, patch): (usize, Patch)) -> Result<(), Trap> {
        if !map.is_multiple_of(TENSOR_MAP_ALIGN) {
            return Err(TRAP_MISALIGNED);
        }
        self.space.check(map, TENSOR_MAP_BYTES as u64)?;
        self.write(map + TENSOR_MAP_MAGIC_AT as u64, &TENSOR_MAP_MAGIC.to_le_bytes(), 8)?;
        let to = map + at as u64;
        match patch {
            Patch::Byte(value) => self.write(to, &[value], 1),
            Patch::Short(value) => self.write(to, &value.to_le_bytes(), 2),
            Patch::Word(value) => self.write(to, &value.to_le_bytes(), 4),
            Patch::Long(value) => self.write(to, &value.to_le_bytes(), 8),
        }
    }

    /// Carries an operation out.
    fn operate(&self, address: u64, op: TensorOp, words: &mut Words) -> Result<(), Trap> {
        match op {
            TensorOp::Load { rank, im2col, multicast: _ } => {
                words[BYTES] = self.load(&self.map(address)?, usize::from(rank), im2col, words)?;
                Ok(())
            }
            TensorOp::Store { rank, im2col, reduce } => {
                self.store(&self.map(address)?, usize::from(rank), im2col, reduce, words)
            }
            TensorOp::Copy { reduce } => self.copy(words, address, reduce),
            TensorOp::CopyMap => self.copy_map(words, address),
            TensorOp::Replace { field, ordinal } => {
                let value = u64::from(words[VALUE]) | u64::from(words[VALUE + 1]) << 32;
                self.patch(address, replace(field, ordinal, value).ok_or(TRAP_TENSOR_MAP)?)
            }
        }
    }
}

/// Where the shared memory of a cluster's block begins, if there is one of that rank.
fn window_of(cluster: &InCluster, rank: u32) -> Option<u64> {
    (rank < cluster.blocks).then(|| cluster.shared_base + u64::from(rank) * u64::from(CLUSTER_STRIDE))
}

/// Carries an operation out for the block's running thread; yields 0, or a trap.
///
/// # Safety
/// To be called by compiled code with its own block, whose executor is the context, and whose cursor is its running thread.
unsafe fn operate(block: *mut Block, address: u64, operation: u64, words: &mut Words) -> u32 {
    // SAFETY: as the caller promises; both outlive the call, and nobody writes to them meanwhile.
    let (context, block) = unsafe { (&*(*block).executor.cast::<Context>(), &*block) };
    // SAFETY: as above.
    let Some(thread) = (unsafe { block.cursor.as_ref() }) else { return TRAP_ADDRESS };
    let Some(op) = TensorOp::from_number(operation) else { return TRAP_TENSOR_MAP };
    let look = context.check.is_some().then_some(Look { context, block, thread });
    let window = match op {
        TensorOp::Load { multicast: true, .. } => window_of(&block.cluster, words[RANK]),
        _ => Some(block.shared_base),
    };
    let Some(window) = window else { return TRAP_ADDRESS };
    let reach = Reach { space: Space(context.arena), window, look };
    reach.operate(address, op, words).err().unwrap_or(0)
}

/// [`Helpers::tensor`](crate::abi::Helpers::tensor).
pub(super) extern "C" fn tensor(block: *mut Block, address: u64, operation: u64) -> u32 {
    // SAFETY: called by compiled code with its own block, which nobody else writes to. Nothing here has to be dropped, so that the call may
    // be abandoned.
    unsafe { operands::of_one(block, |words| operate(block, address, operation, words)) }
}

/// [`Helpers::tensors`](crate::abi::Helpers::tensors).
pub(super) extern "C" fn tensors(
    block: *mut Block,
    first: *mut Thread,
    lanes: u64,
    operation: u64,
    given: *mut Operands,
) {
    // SAFETY: as above; the threads are the block's, and the operands the caller's own.
    unsafe {
        operands::of_lanes(block, first, lanes, given, |address, words| {
            operate(block, address, operation, words)
        });
    }
}
