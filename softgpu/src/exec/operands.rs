//! How the helpers for textures and bulk copies get at their operands, of one thread or of a group.

use super::block::Context;
use crate::abi::operands::{Operands, Words};
use crate::abi::{Block, MOST_LANES, Thread};

/// Calls an operation with the operands of the running thread; yields what that does.
///
/// # Safety
/// To be called by a helper that may be abandoned here, with the block of the compiled code that has called it.
pub(super) unsafe fn of_one(block: *mut Block, operation: impl FnOnce(&mut Words) -> u32) -> u32 {
    // SAFETY: as the caller promises; the executor is the block's context, and outlives the call.
    unsafe {
        let context = &*(*block).executor.cast::<Context>();
        (*context.guard).want_room();
        // They are copied: whoever looks at an operation borrows the block.
        let mut words = (*block).words.as_ptr().cast::<Words>().read();
        let trap = operation(&mut words);
        (*block).words.as_mut_ptr().cast::<Words>().write(words);
        trap
    }
}

/// The object that all threads of a group name that are there; none where they do not name one, or nobody is there.
///
/// # Safety
/// `given` is valid and the caller's own.
pub(super) unsafe fn one_object(lanes: u64, given: *const Operands) -> Option<u64> {
    // SAFETY: as the caller promises.
    let objects = unsafe { &(*given).objects };
    let object = *objects.get(lanes.trailing_zeros() as usize)?;
    let is_another = |lane: usize| lanes >> lane & 1 != 0 && objects[lane] != object;
    (!(0..MOST_LANES).any(is_another)).then_some(object)
}

/// Calls an operation for each thread of a group that is there, which is the running one meanwhile, with its object and its operands.
///
/// # Safety
/// As of [`of_one`]. `first` is the first thread of the group, and `given` is valid and the caller's own.
pub(super) unsafe fn of_lanes(
    block: *mut Block,
    first: *mut Thread,
    lanes: u64,
    given: *mut Operands,
    mut operation: impl FnMut(u64, &mut Words) -> u32,
) {
    // SAFETY: as the caller promises.
    unsafe {
        of_lanes_with(block, first, lanes, given, |given, lane| {
            let mut words = std::array::from_fn(|word| given.words[word][lane]);
            let trap = operation(given.objects[lane], &mut words);
            for (row, word) in given.words.iter_mut().zip(words) {
                row[lane] = word;
            }
            trap
        });
    }
}

/// Likewise, with the operands of all and the thread's lane.
///
/// # Safety
/// As of [`of_lanes`].
pub(super) unsafe fn of_lanes_with(
    block: *mut Block,
    first: *mut Thread,
    lanes: u64,
    given: *mut Operands,
    mut operation: impl FnMut(&mut Operands, usize) -> u32,
) {
    // SAFETY: as the caller promises. Where the call is abandoned the operands count for nobody any more.
    let given = unsafe {
        let context = &*(*block).executor.cast::<Context>();
        (*context.guard).want_room();
        &mut *given
    };
    given.traps = [0; MOST_LANES];
    for lane in (0..MOST_LANES).filter(|lane| lanes >> lane & 1 != 0) {
        // SAFETY: as the caller promises: there are as many threads.
        unsafe { (*block).cursor = first.add(lane) };
        given.traps[lane] = operation(given, lane);
    }
}
