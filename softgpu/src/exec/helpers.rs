//! The functions that compiled kernels call.

use std::time::{SystemTime, UNIX_EPOCH};

use rgpu_device::Range;

use super::arch;
use super::block::Context;
use super::check::Place;
use super::device_runtime;
use super::fault::Guard;
use super::printf::{self, Failure, Memory};
use crate::abi::counted::Event;
use crate::abi::{Access, Block, Helpers, PRINTF_BAD_ADDRESS};

/// Their addresses.
pub(super) fn addresses() -> Helpers {
    Helpers {
        vprintf: vprintf as *const () as usize,
        malloc: malloc as *const () as usize,
        free: free as *const () as usize,
        assertfail: assertfail as *const () as usize,
        globaltimer: globaltimer as *const () as usize,
        clock: clock as *const () as usize,
        device_runtime: device_runtime::call as *const () as usize,
        check: check as *const () as usize,
        texture: super::texture::texture as *const () as usize,
        textures: super::texture::textures as *const () as usize,
        count: count as *const () as usize,
        tensor: super::tensor::tensor as *const () as usize,
        tensors: super::tensor::tensors as *const () as usize,
        exchange: super::block::rows::exchange as *const () as usize,
        exchange_by_name: super::block::rows::exchange_by_name as *const () as usize,
    }
}

/// The kernel's memory, read with care: the arena alone.
pub(super) struct Careful<'a> {
    /// Catches what cannot be accessed.
    pub guard: &'a mut Guard,
    /// All that may be accessed.
    pub arena: Range,
}

impl Careful<'_> {
    /// Writes bytes to an address of the kernel's.
    pub(super) fn write(&mut self, addr: u64, bytes: &[u8]) -> Option<()> {
        if !self.arena.contains(addr, bytes.len() as u64) {
            return None;
        }
        // SAFETY: `bytes` is valid, the rest lies in the arena, and the guard catches what is not mapped there.
        unsafe { self.guard.copy(addr, bytes.as_ptr() as u64, bytes.len() as u64) }.then_some(())
    }
}

impl Memory for Careful<'_> {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Option<()> {
        if !self.arena.contains(addr, buf.len() as u64) {
            return None;
        }
        // SAFETY: `buf` is valid, the rest lies in the arena, and the guard catches what is not mapped there.
        unsafe { self.guard.copy(buf.as_mut_ptr() as u64, addr, buf.len() as u64) }.then_some(())
    }
}

/// What a helper knows: the block it was called from, and its context.
///
/// # Safety
/// `block` must come from compiled code that [`super::block::Resident`] runs.
pub(super) unsafe fn with<R>(block: *mut Block, work: impl FnOnce(&Context, &mut Guard) -> R) -> R {
    // SAFETY: `Resident::step` has set both, and they outlive the call.
    let (context, guard) = unsafe {
        let context = &*(*block).executor.cast::<Context>();
        (*context.guard).want_room();
        (context, &mut *context.guard)
    };
    guard.pause(|guard| work(context, guard))
}

extern "C" fn vprintf(block: *mut Block, format: u64, args: u64) -> i32 {
    // SAFETY: called by compiled code with its own block.
    unsafe {
        with(block, |context, guard| {
            let mut memory = Careful { guard, arena: context.arena };
            match printf::format(&mut memory, format, args) {
                Ok((text, count)) => {
                    context.grid.print(&text);
                    count as i32
                }
                Err(Failure::Arguments) => -1,
                Err(Failure::Address) => PRINTF_BAD_ADDRESS,
            }
        })
    }
}

extern "C" fn malloc(block: *mut Block, bytes: u64) -> u64 {
    // SAFETY: called by compiled code with its own block.
    unsafe { with(block, |context, _| if bytes == 0 { 0 } else { context.grid.heap.malloc(bytes) }) }
}

extern "C" fn free(block: *mut Block, addr: u64) {
    // SAFETY: called by compiled code with its own block.
    unsafe {
        let place = Place { block: &*block, thread: &*(*block).cursor };
        with(block, |context, _| {
            if !context.grid.heap.free(addr)
                && addr != 0
                && let Some(check) = &context.check
            {
                check.borrow_mut().bad_free(context, &place, addr);
            }
        });
    };
}

extern "C" fn assertfail(block: *mut Block, message: u64, file: u64, line: u32, function: u64) {
    // SAFETY: called by compiled code with its own block, whose cursor is its running thread.
    unsafe {
        let ctaid = (*block).ctaid;
        let tid = (*block).cursor.as_ref().map_or([0; 3], |t| t.tid);
        with(block, |context, guard| {
            let mut memory = Careful { guard, arena: context.arena };
            let mut text = |addr| {
                let bytes = memory.string(addr, 4096).unwrap_or_else(|| b"?".to_vec());
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let (message, file, function) = (text(message), text(file), text(function));
            context.grid.print(
                format!(
                    "{file}:{line}: {function}: block: [{},{},{}], thread: [{},{},{}] Assertion `{message}` \
                     failed.\n",
                    ctaid[0], ctaid[1], ctaid[2], tid[0], tid[1], tid[2]
                )
                .as_bytes(),
            );
        });
    }
}

extern "C" fn check(block: *mut Block, address: u64, what: u64) -> u64 {
    // SAFETY: called by compiled code with its own block, whose cursor is its running thread.
    unsafe {
        let place = Place { block: &*block, thread: &*(*block).cursor };
        with(block, |context, _| match (&context.check, &context.counter) {
            (Some(check), _) => check.borrow_mut().access(context, &place, address, Access::unpack(what)),
            (None, Some(counter)) => {
                counter.borrow_mut().access(context, &place, address, Access::unpack(what));
                address
            }
            (None, None) => address,
        })
    }
}

extern "C" fn count(block: *mut Block, what: u64) {
    // SAFETY: called by compiled code with its own block, whose cursor is its running thread.
    unsafe {
        let thread = &*(*block).cursor;
        with(block, |context, _| {
            if let Some(counter) = &context.counter {
                counter.borrow_mut().event(context.index_of(thread), Event::unpack(what));
            }
        });
    }
}

extern "C" fn globaltimer() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

extern "C" fn clock() -> u64 {
    arch::cycles()
}
