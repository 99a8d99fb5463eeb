//! Reading and writing of surfaces, by whole numbers.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use rgpu_device::texture::TextureHeader;

use super::{Space, Trap, Words, format};
use crate::abi::texture::{COORDINATES, Geometry, LAYER, Outside, REST, Reduce, TextureOp};
use crate::abi::{TRAP_ADDRESS, TRAP_MISALIGNED};

/// The place of an access of so many bytes; `None` where nothing is to be accessed.
fn place(
    header: &TextureHeader,
    geometry: Geometry,
    outside: Outside,
    bytes: u32,
    in_texels: bool,
    words: &Words,
) -> Result<Option<u64>, Trap> {
    if !header.flags.surface {
        return Err(TRAP_ADDRESS);
    }
    let texel = i64::from(header.format.bytes());
    let bytes = i64::from(bytes);
    let row = i64::from(header.size[0]) * texel;
    let number = |index: usize| i64::from(words[index] as i32);
    let dimensions = geometry.dimensions();
    let mut x = number(COORDINATES) * if in_texels { texel } else { 1 };
    let mut y = if dimensions > 1 { number(COORDINATES + 1) } else { 0 };
    let mut z = match geometry {
        Geometry::Volume => number(COORDINATES + 2),
        _ if geometry.has_layer() => number(LAYER),
        _ => 0,
    };
    let (rows, slices) = (i64::from(header.size[1].max(1)), i64::from(header.size[2].max(1)));
    let fits = x >= 0 && x + bytes <= row && (0..rows).contains(&y) && (0..slices).contains(&z);
    if !fits {
        match outside {
            Outside::Trap => return Err(TRAP_ADDRESS),
            Outside::Zero => return Ok(None),
            // Not even the first place is inside.
            Outside::Clamp if row < bytes => return Err(TRAP_ADDRESS),
            Outside::Clamp => {
                let last = row - bytes;
                x = x.clamp(0, last - last % bytes);
                y = y.clamp(0, rows - 1);
                z = z.clamp(0, slices - 1);
            }
        }
    }
    if !in_texels && x % bytes != 0 {
        return Err(TRAP_MISALIGNED);
    }
    let addr = (header.base)
        .wrapping_add((z as u64).wrapping_mul(header.slice_pitch))
        .wrapping_add((y as u64).wrapping_mul(header.row_pitch))
        .wrapping_add(x as u64);
    Ok(Some(addr))
}

/// An operation on a surface.
pub(super) fn access(
    space: Space,
    header: &TextureHeader,
    op: TextureOp,
    words: &mut Words,
) -> Result<(), Trap> {
    match op {
        TextureOp::Load { geometry, outside, size, count } => {
            let bytes = 1 << (size + count);
            let Some(addr) = place(header, geometry, outside, bytes, false, words)? else {
                words[..4].fill(0);
                return Ok(());
            };
            // An element has a word, or two if it is that large.
            for index in 0..1usize << count {
                let addr = addr.wrapping_add((index as u64) << size);
                match size {
                    0 => words[index] = u32::from(space.get::<u8>(addr)?),
                    1 => words[index] = u32::from(space.get::<u16>(addr)?),
                    2 => words[index] = space.get::<u32>(addr)?,
                    _ => {
                        let value = space.get::<u64>(addr)?;
                        (words[index * 2], words[index * 2 + 1]) = (value as u32, (value >> 32) as u32);
                    }
                }
            }
            Ok(())
        }
        TextureOp::Store { geometry, outside, size, count } => {
            let bytes = 1 << (size + count);
            let Some(addr) = place(header, geometry, outside, bytes, false, words)? else {
                return Ok(());
            };
            for index in 0..1usize << count {
                let addr = addr.wrapping_add((index as u64) << size);
                match size {
                    0 => space.put(addr, words[REST + index] as u8)?,
                    1 => space.put(addr, words[REST + index] as u16)?,
                    2 => space.put(addr, words[REST + index])?,
                    _ => {
                        let (low, high) = (words[REST + index * 2], words[REST + index * 2 + 1]);
                        space.put(addr, u64::from(low) | u64::from(high) << 32)?;
                    }
                }
            }
            Ok(())
        }
        TextureOp::StoreTexel { geometry, outside, count } => {
            let bytes = header.format.bytes();
            let Some(addr) = place(header, geometry, outside, bytes, true, words)? else {
                return Ok(());
            };
            let given = 1usize << count;
            let channels = std::array::from_fn(|index| if index < given { words[REST + index] } else { 0 });
            format::write(space, header.format, addr, format::stored(header.format, channels))
        }
        TextureOp::Reduce { geometry, outside, reduce, wide } => {
            let bytes = if wide { 8 } else { 4 };
            let Some(addr) = place(header, geometry, outside, bytes, false, words)? else {
                return Ok(());
            };
            let value = u64::from(words[REST]) | u64::from(words[REST + 1]) << 32;
            combine(space, addr, reduce, wide, value)
        }
        _ => Err(TRAP_ADDRESS),
    }
}

/// Combines a value with what lies at an aligned address, by the atomic types of its width.
macro_rules! combine_at {
    ($addr:expr, $reduce:expr, $value:expr, $unsigned:ident, $signed:ident) => {{
        // SAFETY: aligned and in the arena, where a fault ends the kernel; compiled code accesses it atomically, too, or as
        // memory that is not Rust's.
        let unsigned = unsafe { $unsigned::from_ptr($addr as *mut _) };
        // SAFETY: as above; both types have the same layout.
        let signed = unsafe { $signed::from_ptr($addr as *mut _) };
        match $reduce {
            Reduce::Add => { unsigned.fetch_add($value as _, Ordering::Relaxed); }
            Reduce::MinUnsigned => { unsigned.fetch_min($value as _, Ordering::Relaxed); }
            Reduce::MaxUnsigned => { unsigned.fetch_max($value as _, Ordering::Relaxed); }
            Reduce::And => { unsigned.fetch_and($value as _, Ordering::Relaxed); }
            Reduce::Or => { unsigned.fetch_or($value as _, Ordering::Relaxed); }
            Reduce::MinSigned => { signed.fetch_min($value as _, Ordering::Relaxed); }
            Reduce::MaxSigned => { signed.fetch_max($value as _, Ordering::Relaxed); }
        }
    }};
}

/// Combines a value with what lies at an address, as one atomic operation.
fn combine(space: Space, addr: u64, reduce: Reduce, wide: bool, value: u64) -> Result<(), Trap> {
    let bytes = if wide { 8 } else { 4 };
    let addr = space.check(addr, bytes)?;
    if addr % bytes != 0 {
        return Err(TRAP_MISALIGNED);
    }
    if wide {
        combine_at!(addr, reduce, value, AtomicU64, AtomicI64);
    } else {
        combine_at!(addr, reduce, value, AtomicU32, AtomicI32);
    }
    Ok(())
}
