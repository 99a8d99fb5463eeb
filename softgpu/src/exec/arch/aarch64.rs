//! What the executor needs to know about AArch64.

use std::ffi::c_void;

use super::LEFT;

/// The state that [`leave`] goes back to; filled by [`enter`].
#[derive(Debug)]
#[repr(C)]
pub(in crate::exec) struct Landing {
    /// The stack pointer inside `enter`, or 0 while it is not running.
    stack: u64,
    /// The floating-point control register from before.
    control: u64,
}

impl Landing {
    /// Nowhere to land yet.
    pub(in crate::exec) const fn new() -> Self {
        Self { stack: 0, control: 0 }
    }
}

/// The end of `enter`, as [`land`] has it, too: the registers that a function keeps come back from the stack.
macro_rules! and_return {
    ($($instruction:literal,)+ $($name:ident = const $value:expr)?) => {
        std::arch::naked_asm!(
            $($instruction,)+
            "ldp d14, d15, [sp, #144]",
            "ldp d12, d13, [sp, #128]",
            "ldp d10, d11, [sp, #112]",
            "ldp d8, d9, [sp, #96]",
            "ldp x27, x28, [sp, #80]",
            "ldp x25, x26, [sp, #64]",
            "ldp x23, x24, [sp, #48]",
            "ldp x21, x22, [sp, #32]",
            "ldp x19, x20, [sp, #16]",
            "ldp x29, x30, [sp], #160",
            "ret",
            $($name = const $value)?
        )
    };
}

/// Calls `function(a, b, c)`; returns 0 when it returns, and [`LEFT`] when a signal handler used
/// [`leave`] with the same landing.
///
/// # Safety
/// What `function` asks for. Between `leave`'s place and here there must be no frame that has to clean up.
#[unsafe(naked)]
pub(in crate::exec) unsafe extern "C" fn enter(
    landing: *mut Landing,
    function: *const c_void,
    a: *mut c_void,
    b: u64,
    c: *mut c_void,
) -> u32 {
    and_return!(
        "stp x29, x30, [sp, #-160]!",
        "mov x29, sp",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mrs x10, fpcr",
        "mov x9, sp",
        "stp x9, x10, [x0]",
        "mov x19, x0",
        "mov x9, x1",
        "mov x0, x2",
        "mov x1, x3",
        "mov x2, x4",
        "blr x9",
        "str xzr, [x19]",
        "mov w0, wzr",
    )
}

/// Where [`leave`] makes the interrupted thread go on: the landing is in `x0`, its stack is in use.
#[unsafe(naked)]
unsafe extern "C" fn land() {
    and_return!(
        "ldr x9, [x0, #8]",
        "msr fpcr, x9",
        "str xzr, [x0]",
        "mov w0, #{left}",
        left = const LEFT
    )
}

/// Changes the interrupted context so that it goes on where [`enter`] returns.
///
/// # Safety
/// `context` must be the `ucontext_t` of a signal handler that interrupted code inside `enter(landing)`
/// on this thread.
pub(in crate::exec) unsafe fn leave(landing: *mut Landing, context: *mut c_void) {
    // SAFETY: the caller vouches for both pointers.
    unsafe {
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        machine.sp = (*landing).stack;
        machine.regs[0] = landing as u64;
        machine.pc = land as *const () as u64;
    }
}

/// What the records that follow the registers in a context begin with: a number, and their length in bytes.
#[repr(C)]
struct Record {
    magic: u32,
    size: u32,
}

/// The record that has the exception syndrome register.
const SYNDROME: u32 = 0x4553_5201;
/// Bytes for records.
const RECORDS: usize = 4096;

/// Where the interrupted code was.
///
/// # Safety
/// `context` must be the `ucontext_t` of a signal handler.
pub(in crate::exec) unsafe fn program_counter(context: *mut c_void) -> u64 {
    // SAFETY: the caller vouches for the pointer.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc }
}

/// Whether the page fault that the context describes was a write.
///
/// # Safety
/// `context` must be the `ucontext_t` of a SIGSEGV handler.
pub(in crate::exec) unsafe fn is_write(context: *mut c_void) -> bool {
    // SAFETY: the caller vouches for the pointer. Records lie behind the registers, at a multiple of 16; the last one is all zero.
    unsafe {
        let machine = &raw const (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        let records = (&raw const (*machine).pstate as usize + 8).next_multiple_of(16);
        let mut at = records;
        while at + 16 <= records + RECORDS {
            let record = &*(at as *const Record);
            if record.magic == SYNDROME {
                // "Write not read".
                return *((at + 8) as *const u64) & 1 << 6 != 0;
            }
            if record.magic == 0 || record.size < 8 {
                break;
            }
            at += record.size as usize;
        }
        // Emulators leave it out. A fault of an access means that the instruction could be fetched.
        stores(*((*machine).pc as *const u32))
    }
}

/// Whether an instruction that accesses memory writes there: of loads and stores, bit 22 tells loads, but for atomic operations
/// and for 16-byte vector registers.
fn stores(instruction: u32) -> bool {
    let bits = |from: u32, count: u32| instruction >> from & ((1 << count) - 1);
    // Compare-and-swap, and the atomic operations of one instruction.
    let compares = bits(24, 6) == 0b001000 && bits(21, 1) == 1 && (bits(23, 1) == 1 || bits(31, 1) == 0);
    let operates = bits(24, 6) == 0b111000 && bits(21, 1) == 1 && bits(10, 2) == 0 && bits(12, 4) != 0b1100;
    if compares || operates {
        return true;
    }
    // One register, of the general ones 32-bit results of signed loads included (bit 23).
    if bits(27, 3) == 0b111 && bits(25, 1) == 0 {
        let vector = bits(26, 1) == 1;
        return bits(22, 1) == 0 && (vector || bits(23, 1) == 0);
    }
    bits(22, 1) == 0
}

/// A counter that goes on steadily while the processor runs.
pub(in crate::exec) fn cycles() -> u64 {
    let count: u64;
    // SAFETY: programs may read the virtual counter on Linux.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_told_from_loads() {
        let writing = [
            0xf900_0020, // str x0, [x1]
            0x3900_0020, // strb w0, [x1]
            0x3d80_0020, // str q0, [x1]
            0xfd00_0020, // str d0, [x1]
            0xa900_0440, // stp x0, x1, [x2]
            0xf820_6820, // str x0, [x1, x0]
            0xc89f_fc20, // stlr x0, [x1]
            0xc800_fc41, // stlxr w0, x1, [x2]
            0xf8e0_0041, // ldaddal x0, x1, [x2]
            0xf8e0_8041, // swpal x0, x1, [x2]
            0xc8e0_fc41, // casal x0, x1, [x2]
        ];
        let reading = [
            0xf940_0020, // ldr x0, [x1]
            0x3980_0020, // ldrsb x0, [x1]
            0x39c0_0020, // ldrsb w0, [x1]
            0x3dc0_0020, // ldr q0, [x1]
            0xa940_0440, // ldp x0, x1, [x2]
            0xf860_6820, // ldr x0, [x1, x0]
            0xc8df_fc20, // ldar x0, [x1]
            0xc85f_fc20, // ldaxr x0, [x1]
            0xf8bf_c020, // ldapr x0, [x1]
        ];
        for instruction in writing {
            assert!(stores(instruction), "{instruction:#x}");
        }
        for instruction in reading {
            assert!(!stores(instruction), "{instruction:#x}");
        }
    }
}
