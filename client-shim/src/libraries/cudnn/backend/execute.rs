//! Executing a plan: one posted operation.

use rgpu_libraries::DnnType;

use super::super::handles::stream_of;
use super::super::{Result, Status, guard};
use super::attribute::{Attribute, name};
use super::descriptor::{finalized, sort};
use super::graph::Given;
use crate::abi::c_functions;
use crate::libraries::math::Queue;

/// The one element of a tensor that is given by value.
///
/// # Safety
/// An element of this type lies at `at`.
unsafe fn value(kind: DnnType, at: i64) -> Result<f64> {
    if at == 0 {
        return Err(Status::NullPointer);
    }
    let at = at as usize as *const u8;
    // SAFETY: the caller's promise, of an element of each of these types.
    Ok(unsafe {
        match kind {
            DnnType::F32 => at.cast::<f32>().read_unaligned().into(),
            DnnType::F64 => at.cast::<f64>().read_unaligned(),
            DnnType::I8 => at.cast::<i8>().read().into(),
            DnnType::U8 | DnnType::Bool => at.read().into(),
            DnnType::I32 => at.cast::<i32>().read_unaligned().into(),
            DnnType::I64 => at.cast::<i64>().read_unaligned() as f64,
            DnnType::Bf16 => f32::from_bits(u32::from(at.cast::<u16>().read_unaligned()) << 16).into(),
            DnnType::F16 => half(at.cast::<u16>().read_unaligned()),
        }
    })
}

/// The value of an IEEE half.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
    sign * match exponent {
        0 => fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction) * 2f64.powi(exponent - 15),
    }
}

c_functions! {
    /// `cudnnBackendExecute`.
    fn cudnnBackendExecute(handle: usize, plan: usize, pack: usize) -> u32 {
        guard("cudnnBackendExecute", || {
            let stream = stream_of(handle)?;
            let (plan, pack) = (finalized(plan)?, finalized(pack)?);
            let graph = plan.graph.as_ref().filter(|_| plan.sort == sort::PLAN).ok_or(Status::BadParam)?;
            let words = |name| pack.get(name).map(Attribute::words).unwrap_or_default();
            let (ids, pointers) = (words(name::PACK_IDS), words(name::PACK_POINTERS));
            let mut form = graph.form.clone();
            for (tensor, (id, given)) in form.tensors.iter_mut().zip(&graph.tensors) {
                if *given == Given::Inside {
                    continue;
                }
                let place = ids.iter().position(|known| known == id);
                let pointer = place.and_then(|place| pointers.get(place)).ok_or(Status::BadParam)?;
                if *given == Given::Address {
                    tensor.addr = *pointer as u64;
                } else {
                    // SAFETY: the program says that the tensor's element is there.
                    tensor.value = Some(unsafe { value(tensor.kind, *pointer) }?);
                }
            }
            Queue::of(stream)?.post(&form)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_have_values() {
        for (bits, expected) in [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2f64.powi(-24)), (0x7bff, 65504.0)] {
            assert_eq!(half(bits), expected);
        }
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
    }
}
