//! Textures and surfaces: the helper that compiled kernels call for them.
//!
//! A handle is the address of a header ([`rgpu_device::texture`]), which lies, as texels do, in memory that a program can
//! overwrite at any time, also while it is being used here. So a header is read once, nothing in it is believed, and every
//! access is checked to lie in the arena ([`Space`]). Where nothing is mapped there, the access faults and ends the kernel as
//! the kernel's own would: the helper runs as a part of the kernel, owns nothing, and can be abandoned anywhere.

mod format;
mod sample;
mod surface;
#[cfg(test)]
mod tests;

use rgpu_device::texture::{TEXTURE_HEADER_BYTES, TextureHeader, TextureKind};

use super::block::Context;
use super::space::{Space, Trap};
use crate::abi::texture::{Field, TextureOp, WORDS};
use crate::abi::{Block, TRAP_ADDRESS};

/// Operands and results of an operation.
type Words = [u32; WORDS];

const _: () = assert!(size_of::<Words>() == size_of::<[u64; 6]>());

/// The header that a handle leads to; `None` where none lies there.
fn header(space: Space, handle: u64) -> Result<Option<TextureHeader>, Trap> {
    let mut bytes = [0u8; TEXTURE_HEADER_BYTES];
    for (index, place) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *place = space.get::<u64>(handle.wrapping_add(index as u64 * 8))?.to_le_bytes();
    }
    Ok(TextureHeader::from_bytes(&bytes))
}

/// What is asked about an object.
fn query(header: &TextureHeader, field: Field, level: Option<u32>) -> u32 {
    let size = match level {
        Some(number) if number >= header.levels => return 0,
        Some(number) => header.level(number).map_or([0; 3], |level| level.size),
        None => header.size,
    };
    match field {
        Field::Width => size[0],
        Field::Height => size[1],
        Field::Depth if header.kind == TextureKind::Volume => size[2],
        Field::Depth => 0,
        Field::Layers if header.kind == TextureKind::Cubes => size[2] / 6,
        Field::Layers if header.kind == TextureKind::Cube => 0,
        Field::Layers if header.kind.has_layers() => size[2],
        Field::Layers => 0,
        Field::Levels => header.levels,
        Field::Normalized => u32::from(header.flags.normalized),
    }
}

/// Carries an operation out.
fn operate(space: Space, handle: u64, op: TextureOp, words: &mut Words) -> Result<(), Trap> {
    let found = match op {
        // It may be any number: what is nowhere is nothing.
        TextureOp::Is { .. } if space.check(handle, TEXTURE_HEADER_BYTES as u64).is_err() => None,
        _ => header(space, handle)?,
    };
    if let TextureOp::Is { surface } = op {
        words[0] = u32::from(found.is_some_and(|header| header.flags.surface == surface));
        return Ok(());
    }
    let header = &found.ok_or(TRAP_ADDRESS)?;
    match op {
        TextureOp::Query { field, level } => {
            words[0] = query(header, field, level.then_some(words[0]));
            Ok(())
        }
        TextureOp::Sample { geometry, detail, whole } => {
            let texel = sample::sample(space, header, geometry, detail, whole, words)?;
            words[..4].copy_from_slice(&texel);
            Ok(())
        }
        TextureOp::Gather { geometry, channel } => {
            let texel = sample::gather(space, header, geometry, channel, words)?;
            words[..4].copy_from_slice(&texel);
            Ok(())
        }
        _ => surface::access(space, header, op, words),
    }
}

/// [`Helpers::texture`](crate::abi::Helpers::texture).
pub(super) extern "C" fn texture(block: *mut Block, handle: u64, operation: u64) -> u32 {
    // SAFETY: called by compiled code with its own block, whose executor is the context, and whose cursor is its running
    // thread; both outlive the call, and nobody else accesses the thread's operands. Nothing here has to be dropped, so that
    // the call may be abandoned.
    unsafe {
        let context = &*(*block).executor.cast::<Context>();
        (*context.guard).want_room();
        let Some(thread) = (*block).cursor.as_mut() else { return TRAP_ADDRESS };
        let Some(op) = TextureOp::from_number(operation) else { return TRAP_ADDRESS };
        let words = &mut *thread.op.as_mut_ptr().cast::<Words>();
        operate(Space(context.arena), handle, op, words).err().unwrap_or(0)
    }
}
