//! What the executor needs to know about x86-64.

use std::ffi::c_void;

use super::LEFT;

/// The state that [`leave`] goes back to; filled by [`enter`].
#[derive(Debug)]
#[repr(C)]
pub(in crate::exec) struct Landing {
    /// The stack pointer inside `enter`, or 0 while it is not running.
    stack: u64,
    /// The floating-point control word from before.
    mxcsr: u32,
}

impl Landing {
    /// Nowhere to land yet.
    pub(in crate::exec) const fn new() -> Self {
        Self { stack: 0, mxcsr: 0 }
    }
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
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "mov [rdi], rsp",
        "stmxcsr [rdi + 8]",
        "mov rax, rsi",
        "mov rbx, rdi",
        "mov rdi, rdx",
        "mov rsi, rcx",
        "mov rdx, r8",
        "call rax",
        "mov qword ptr [rbx], 0",
        "xor eax, eax",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Where [`leave`] makes the interrupted thread go on: the landing is in `rdi`, its stack is in use.
#[unsafe(naked)]
unsafe extern "C" fn land() {
    std::arch::naked_asm!(
        "cld",
        "ldmxcsr [rdi + 8]",
        "mov qword ptr [rdi], 0",
        "mov eax, {left}",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        left = const LEFT,
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
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        registers[libc::REG_RSP as usize] = (*landing).stack as i64;
        registers[libc::REG_RDI as usize] = landing as i64;
        registers[libc::REG_RIP as usize] = land as *const () as i64;
    }
}

/// Where the interrupted code was.
///
/// # Safety
/// `context` must be the `ucontext_t` of a signal handler.
pub(in crate::exec) unsafe fn program_counter(context: *mut c_void) -> u64 {
    // SAFETY: the caller vouches for the pointer.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as u64 }
}

/// Whether the page fault that the context describes was a write.
///
/// # Safety
/// `context` must be the `ucontext_t` of a SIGSEGV handler.
pub(in crate::exec) unsafe fn is_write(context: *mut c_void) -> bool {
    // SAFETY: the caller vouches for the pointer.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_ERR as usize] & 2 != 0
}

/// A counter that goes on steadily while the processor runs.
pub(in crate::exec) fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}
