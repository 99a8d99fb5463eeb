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

use std::cell::UnsafeCell;

use rgpu_device::texture::{TEXTURE_HEADER_BYTES, TextureHeader, TextureKind};

use self::sample::Plain;
use super::block::Context;
use super::operands;
use super::space::{Space, Trap};
use crate::abi::operands::{Operands, Words};
use crate::abi::texture::{COORDINATES, Field, TextureOp};
use crate::abi::{Block, TRAP_ADDRESS, Thread};

/// A header's words, as they lie in memory.
type Raw = [u64; TEXTURE_HEADER_BYTES / 8];

/// The texture that threads of a block have used last, and what its header said: most use one again and again. Only the thread that runs
/// the block has it.
#[derive(Default)]
pub(super) struct Latest(UnsafeCell<Option<Known>>);

/// What a header said.
struct Known {
    raw: Raw,
    header: TextureHeader,
}

impl Latest {
    /// The header that a handle leads to; `None` where none lies there. It is read anew, and taken apart if it is another than last time.
    fn header(&self, space: Space, handle: u64) -> Result<Option<&TextureHeader>, Trap> {
        let raw: Raw = space.get_all(handle)?;
        // SAFETY: nobody else has it, as of the type, and what is lent below is given back before the next operation. The call is abandoned nowhere
        // between here and there.
        let known = unsafe { &mut *self.0.get() };
        // A comparison of arrays is a function call.
        let is_another = |known: &Known| raw.iter().zip(&known.raw).fold(0, |all, (a, b)| all | a ^ b) != 0;
        if known.as_ref().is_none_or(is_another) {
            let bytes = std::array::from_fn(|at| raw[at / 8].to_le_bytes()[at % 8]);
            let Some(header) = TextureHeader::from_bytes(&bytes) else { return Ok(None) };
            *known = Some(Known { raw, header });
        }
        Ok(known.as_ref().map(|known| &known.header))
    }
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

/// The header that an operation is about; `None` where none lies there.
fn header(space: Space, latest: &Latest, handle: u64, op: TextureOp) -> Result<Option<&TextureHeader>, Trap> {
    match op {
        // It may be any number: what is nowhere is nothing.
        TextureOp::Is { .. } if space.check(handle, TEXTURE_HEADER_BYTES as u64).is_err() => Ok(None),
        _ => latest.header(space, handle),
    }
}

/// Carries an operation out.
fn operate(
    space: Space,
    found: Option<&TextureHeader>,
    op: TextureOp,
    words: &mut Words,
) -> Result<(), Trap> {
    if let TextureOp::Is { surface } = op {
        words[0] = u32::from(found.is_some_and(|header| header.flags.surface == surface));
        return Ok(());
    }
    let header = found.ok_or(TRAP_ADDRESS)?;
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
    // SAFETY: called by compiled code with its own block, whose executor is the context. Nothing here has to be dropped, so that the call may
    // be abandoned.
    unsafe {
        let context = &*(*block).executor.cast::<Context>();
        let Some(op) = TextureOp::from_number(operation) else { return TRAP_ADDRESS };
        operands::of_one(block, |words| {
            let space = Space(context.arena);
            let found = header(space, &context.texture, handle, op);
            found.and_then(|found| operate(space, found, op, words)).err().unwrap_or(0)
        })
    }
}

/// [`Helpers::textures`](crate::abi::Helpers::textures).
pub(super) extern "C" fn textures(
    block: *mut Block,
    first: *mut Thread,
    lanes: u64,
    operation: u64,
    given: *mut Operands,
) {
    // SAFETY: as above; the threads are the block's, and the operands the caller's own.
    unsafe {
        let context = &*(*block).executor.cast::<Context>();
        let (op, space) = (TextureOp::from_number(operation), Space(context.arena));
        // Mostly all lanes use one texture, whose header is read once then.
        let mut last = None;
        if let Some(op @ TextureOp::Sample { whole: true, .. }) = op
            && let Some(handle) = operands::one_object(lanes, given)
            && let Ok(found) = header(space, &context.texture, handle, op)
        {
            last = Some((handle, found));
            if let Some(plain) = found.and_then(Plain::of) {
                return operands::of_lanes_with(block, first, lanes, given, |given, lane| {
                    let texel = plain.texel(space, given.words[COORDINATES][lane]);
                    for (row, word) in given.words.iter_mut().zip(texel.unwrap_or_default()) {
                        row[lane] = word;
                    }
                    texel.err().unwrap_or(0)
                });
            }
        }
        operands::of_lanes(block, first, lanes, given, |handle, words| {
            let Some(op) = op else { return TRAP_ADDRESS };
            let found = match last {
                Some((known, found)) if known == handle => found,
                _ => match header(space, &context.texture, handle, op) {
                    Ok(found) => last.insert((handle, found)).1,
                    Err(trap) => return trap,
                },
            };
            operate(space, found, op, words).err().unwrap_or(0)
        });
    }
}
