//! What depends on the processor: entering machine code so that it can be left from a signal handler.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::{Landing, cycles, enter, is_write, leave, program_counter};
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{Landing, cycles, enter, is_write, leave, program_counter};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("The software GPU's executor needs an `arch` for this processor; x86-64 and AArch64 have one");

/// What [`enter`] returns when [`leave`] ended the call.
pub(super) const LEFT: u32 = 1;

/// Where the calling thread's stack ends: its lowest address. 0 if that is not known.
pub(super) fn stack_end() -> u64 {
    // SAFETY: plain calls about this thread, with memory of this function.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 0;
        }
        let (mut at, mut size) = (std::ptr::null_mut(), 0);
        let known = libc::pthread_attr_getstack(&attributes, &mut at, &mut size) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        if known { at as u64 } else { 0 }
    }
}
