//! Combining values with those that are in memory, each at once: other blocks may do the same there.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use rgpu_device::tensor_map::Element;

use super::Reach;
use crate::abi::tensor::{BulkReduce, Number};
use crate::abi::{AccessKind, TRAP_MISALIGNED};
use crate::compile::halves::{bf16_from_f64, f16_from_f64, f32_from_f16};
use crate::exec::space::Trap;

/// What a tensor's elements are combined as; `None` for those that cannot be.
pub(super) fn number(element: Element) -> Option<Number> {
    Some(match element {
        Element::U8 | Element::U16 => return None,
        Element::U32 => Number::U32,
        Element::S32 => Number::S32,
        Element::U64 => Number::U64,
        Element::S64 => Number::S64,
        Element::F16 => Number::F16,
        Element::Bf16 => Number::Bf16,
        Element::F64 => Number::F64,
        Element::F32 | Element::F32Ftz | Element::Tf32 | Element::Tf32Ftz => Number::F32,
    })
}

/// The lesser or the larger of two numbers; of a number and NaN, the number.
fn choose(op: BulkReduce, a: f64, b: f64) -> f64 {
    if op == BulkReduce::Min { a.min(b) } else { a.max(b) }
}

fn half_like(op: BulkReduce, a: f64, b: f64, round: extern "C" fn(f64, u32) -> u32) -> u64 {
    let value = if op == BulkReduce::Add { a + b } else { choose(op, a, b) };
    if value.is_nan() { 0x7fff } else { round(value, 0).into() }
}

/// What `old` becomes.
fn combined(op: BulkReduce, number: Number, old: u64, new: u64) -> u64 {
    let bf16 = |bits: u64| f64::from(f32::from_bits((bits as u32) << 16));
    let f16 = |bits: u64| f64::from(f32_from_f16(bits as u32));
    match number {
        Number::F16 => half_like(op, f16(old), f16(new), f16_from_f64),
        Number::Bf16 => half_like(op, bf16(old), bf16(new), bf16_from_f64),
        Number::F32 => (f32::from_bits(old as u32) + f32::from_bits(new as u32)).to_bits().into(),
        Number::F64 => (f64::from_bits(old) + f64::from_bits(new)).to_bits(),
        Number::U32 | Number::S32 | Number::U64 | Number::S64 => {
            let signed = |bits: u64| if number == Number::S32 { i64::from(bits as i32) } else { bits as i64 };
            let less = match number {
                Number::S32 | Number::S64 => signed(new) < signed(old),
                _ => new < old,
            };
            match op {
                BulkReduce::Add => old.wrapping_add(new),
                BulkReduce::Min => {
                    if less {
                        new
                    } else {
                        old
                    }
                }
                BulkReduce::Max => {
                    if less {
                        old
                    } else {
                        new
                    }
                }
                BulkReduce::Inc => {
                    if old >= new {
                        0
                    } else {
                        old + 1
                    }
                }
                BulkReduce::Dec => {
                    if old == 0 || old > new {
                        new
                    } else {
                        old - 1
                    }
                }
                BulkReduce::And => old & new,
                BulkReduce::Or => old | new,
                BulkReduce::Xor => old ^ new,
            }
        }
    }
}

impl Reach<'_> {
    /// Combines values, as they lie in `from`, with those at an address.
    pub(super) fn combine(&self, to: u64, from: &[u8], op: BulkReduce, number: Number) -> Result<(), Trap> {
        let size = number.bytes();
        for (index, value) in from.chunks_exact(size as usize).enumerate() {
            let address = to.wrapping_add(index as u64 * size);
            let address = self.seen(AccessKind::Atomic, address, size as u32);
            let address = self.space.check(address, size)?;
            if !address.is_multiple_of(size) {
                return Err(TRAP_MISALIGNED);
            }
            let mut bits = [0; 8];
            bits[..value.len()].copy_from_slice(value);
            let new = u64::from_le_bytes(bits);
            let relaxed = Ordering::Relaxed;
            // SAFETY: the address is aligned and lies in the arena, where a fault ends the kernel and not this process. What lies
            // there is nobody's in Rust, and any bits are a value.
            unsafe {
                match size {
                    2 => {
                        let place = AtomicU16::from_ptr(address as *mut u16);
                        let change = |old: u16| Some(combined(op, number, old.into(), new) as u16);
                        let _ = place.fetch_update(relaxed, relaxed, change);
                    }
                    4 => {
                        let place = AtomicU32::from_ptr(address as *mut u32);
                        let change = |old: u32| Some(combined(op, number, old.into(), new) as u32);
                        let _ = place.fetch_update(relaxed, relaxed, change);
                    }
                    _ => {
                        let place = AtomicU64::from_ptr(address as *mut u64);
                        let _ =
                            place.fetch_update(relaxed, relaxed, |old| Some(combined(op, number, old, new)));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_combined_as_the_manual_says() {
        use BulkReduce::*;
        let minus = |value: i32| u64::from(value as u32);
        for (op, number, old, new, result) in [
            (Add, Number::U32, 0xffff_ffff, 2, 0x1_0000_0001),
            (Min, Number::S32, minus(-3), 2, minus(-3)),
            (Max, Number::S32, minus(-3), 2, 2),
            (Max, Number::U32, minus(-3), 2, minus(-3)),
            (Min, Number::S64, u64::MAX, 7, u64::MAX),
            (Inc, Number::U32, 5, 5, 0),
            (Inc, Number::U32, 4, 5, 5),
            (Dec, Number::U32, 0, 5, 5),
            (Dec, Number::U32, 9, 5, 5),
            (Dec, Number::U32, 3, 5, 2),
            (Xor, Number::U64, 6, 5, 3),
            (Add, Number::F16, 0x3c00, 0x4000, 0x4200),
            (Max, Number::Bf16, 0x3f80, 0x7fc0, 0x3f80),
            (Add, Number::F32, 1f32.to_bits().into(), 2.5f32.to_bits().into(), 3.5f32.to_bits().into()),
            (Add, Number::F64, 1f64.to_bits(), 2.5f64.to_bits(), 3.5f64.to_bits()),
        ] {
            assert_eq!(combined(op, number, old, new), result, "{op:?} {number:?} {old:x} {new:x}");
        }
    }
}
