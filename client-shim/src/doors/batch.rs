//! Batches of copies, and of what is said about managed memory: `cudaMemcpyBatchAsync` and its like, since CUDA 12.8.

use std::ffi::c_uint;

use super::memory::{check_location, check_managed};
use crate::abi::types::MemLocation;
use crate::abi::{In, Out};
use crate::core::error::invalid;
use crate::core::{Core, Direction, Result, Stream, Wait};

/// `cudaMemcpyAttributes`, `CUmemcpyAttributes`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyAttributes {
    /// `cudaMemcpySrcAccessOrder`: when the source may be read.
    order: c_uint,
    /// Where managed memory of either side had better be: a hint.
    _from: MemLocation,
    _to: MemLocation,
    /// Hints.
    _flags: c_uint,
}

#[cfg(test)]
impl CopyAttributes {
    /// No hints.
    pub(crate) fn of(order: c_uint) -> Self {
        Self { order, _from: MemLocation::default(), _to: MemLocation::default(), _flags: 0 }
    }
}

/// `cudaMemcpySrcAccessOrderStream`, `…Any`: in stream order, or whenever.
const ORDERS: [c_uint; 2] = [1, 3];
/// `cudaMemcpySrcAccessOrderDuringApiCall`: the source is the program's again when the call returns.
const DURING_THE_CALL: c_uint = 2;

/// Copies as a program lists them: addresses to and from, and bytes.
pub(crate) type Lists = (In<u64>, In<u64>, In<usize>);

/// What applies to the members of a batch: the values, the first member that each is for, and how many they are.
pub(crate) type Shared<T> = (In<T>, In<usize>, usize);

/// For each of `count` members which of the values applies to it.
///
/// # Safety
/// The lists must be as long as is said.
unsafe fn spread<T: Copy>((values, firsts, number): Shared<T>, count: usize) -> Result<Vec<T>> {
    if number == 0 || number > count {
        return Err(invalid(format!("{number} entries apply to a batch of {count}")));
    }
    // SAFETY: the caller's promise.
    let (values, firsts) = unsafe { (values.list(number)?, firsts.list(number)?) };
    if firsts[0] != 0 || !firsts.is_sorted_by(|a, b| a < b) || firsts[number - 1] >= count {
        return Err(invalid("the indices of a batch begin with 0, rise, and are of its members"));
    }
    Ok((0..count).map(|member| values[firsts.partition_point(|first| *first <= member) - 1]).collect())
}

fn check_stream(stream: &Stream) -> Result<()> {
    if stream.is_legacy() { Err(invalid("a batch is not for the legacy default stream")) } else { Ok(()) }
}

/// Copies between addresses, one after the other. `failed` is told which member could not be, or the largest number where that is
/// not what went wrong.
///
/// # Safety
/// The lists must be as long as is said, and the memory what they say.
pub(crate) unsafe fn copies(
    core: &Core,
    stream: &Stream,
    (to, from, bytes): Lists,
    count: usize,
    attributes: Shared<CopyAttributes>,
    failed: Option<Out<usize>>,
) -> Result<()> {
    let told = |member: usize| failed.iter().for_each(|place| place.set_if_wanted(member));
    told(usize::MAX);
    check_stream(stream)?;
    // SAFETY: the caller's promise.
    let (to, from, bytes) = unsafe { (to.list(count)?, from.list(count)?, bytes.list(count)?) };
    // SAFETY: as above.
    let attributes = unsafe { spread(attributes, count) }?;
    let refused = |member: usize| {
        move |error| {
            told(member);
            error
        }
    };
    let known = |order: c_uint| order == DURING_THE_CALL || ORDERS.contains(&order);
    if let Some(member) = attributes.iter().position(|of| !known(of.order)) {
        return Err(invalid("a copy does not say when its source may be read")).map_err(refused(member));
    }
    for member in 0..count {
        let wait = if attributes[member].order == DURING_THE_CALL { Wait::Sync } else { Wait::Async };
        core.copy(stream, to[member], from[member], bytes[member] as u64, Direction::Infer, wait)
            .map_err(refused(member))?;
    }
    Ok(())
}

/// `cudaMemPrefetchBatchAsync`: hints, which are checked. `cudaMemDiscardAndPrefetchBatchAsync`: what was there may be lost, and
/// stays.
///
/// # Safety
/// The lists must be as long as is said.
pub(crate) unsafe fn prefetches(
    core: &Core,
    stream: &Stream,
    (addresses, bytes): (In<u64>, In<usize>),
    count: usize,
    places: Shared<MemLocation>,
    flags: u64,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { discards(core, stream, (addresses, bytes), count, flags) }?;
    // SAFETY: as above.
    let places = unsafe { spread(places, count) }?;
    places.into_iter().try_for_each(|place| check_location(core, place))
}

/// `cudaMemDiscardBatchAsync`: what is there may be lost, and stays.
///
/// # Safety
/// The lists must be as long as is said.
pub(crate) unsafe fn discards(
    core: &Core,
    stream: &Stream,
    (addresses, bytes): (In<u64>, In<usize>),
    count: usize,
    flags: u64,
) -> Result<()> {
    check_stream(stream)?;
    if flags != 0 || count == 0 {
        return Err(invalid("the flags of a batch are not 0, or it is empty"));
    }
    // SAFETY: the caller's promise.
    let (addresses, bytes) = unsafe { (addresses.list(count)?, bytes.list(count)?) };
    addresses.into_iter().zip(bytes).try_for_each(|(addr, bytes)| check_managed(core, addr, bytes as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_apply_up_to_the_next_ones() {
        let of = |values: &[u32], firsts: &[usize], count: usize| {
            // SAFETY: the lists are as long as each other.
            unsafe { spread((In::new(values.as_ptr()), In::new(firsts.as_ptr()), values.len()), count) }.ok()
        };
        assert_eq!(of(&[7, 8, 9], &[0, 2, 3], 5), Some(vec![7, 7, 8, 9, 9]));
        assert_eq!(of(&[7], &[0], 2), Some(vec![7, 7]));
        for (firsts, count) in [(vec![1], 2), (vec![0, 0], 2), (vec![0, 2], 2), (vec![], 2), (vec![0, 1], 1)]
        {
            assert_eq!(of(&vec![1; firsts.len()], &firsts, count), None, "{firsts:?} of {count}");
        }
    }
}
