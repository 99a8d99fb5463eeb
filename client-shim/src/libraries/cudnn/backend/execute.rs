//! Executing a plan: one posted operation.

use rgpu_libraries::DnnType;

use super::super::handles::stream_of;
use super::super::{Result, Status, guard};
use super::attribute::{Attribute, name};
use super::descriptor::{finalized, sort};
use super::graph::Given;
use crate::abi::c_functions;
use crate::libraries::cublas::types::parts_at;
use crate::libraries::math::Queue;

/// The one element of a tensor that is given by value.
///
/// # Safety
/// An element of this type lies at `at`.
pub(in super::super) unsafe fn value(kind: DnnType, at: i64) -> Result<f64> {
    if at == 0 {
        return Err(Status::NullPointer);
    }
    let at = at as usize as *const u8;
    let Some(shared) = kind.data_type() else {
        // SAFETY: the caller's promise; it is a single byte.
        return Ok(unsafe { at.read() }.into());
    };
    // SAFETY: the caller's promise.
    Ok(unsafe { parts_at(at, shared) }[0])
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
