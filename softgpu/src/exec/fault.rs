//! What a kernel does wrong ends in a signal; the handler here turns it into the end of the kernel.
//!
//! The handler is active only on threads that are running compiled code at that moment (between
//! [`Guard::call`]'s beginning and end). A fault in any other place is none of ours: it goes to whatever
//! handler was there before.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::arch::{self, Landing};
use super::governor::Seat;
use super::mirror::Mirror;

/// How a guarded call was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// The signal's number.
    pub signal: i32,
    /// The address that could not be accessed (of the instruction, where that failed).
    pub address: u64,
    /// Whether it was a write.
    pub write: bool,
    /// Whether the address was none of the processor's at all, and is not known.
    pub impossible: bool,
    /// Where the machine code was.
    pub at: u64,
}

/// `si_code` of a signal that the kernel raised without telling an address: what accesses to addresses that are none raise.
const SI_KERNEL: i32 = 0x80;

/// A thread's ability to run code that may fault. Kept in a box: the signal handler knows its address.
pub(super) struct Guard {
    landing: Landing,
    active: bool,
    fault: Fault,
    mirror: *const Mirror,
    /// Where the thread waits if it is to hold; null where it never is.
    seat: *const Seat,
    /// The launch that the compiled code belongs to.
    running: u64,
    /// The launch that is to end; null where none ever is.
    overdue: *const AtomicU64,
    alternate: *mut c_void,
    /// Where the thread's stack ends.
    stack: u64,
}

thread_local! {
    static CURRENT: Cell<*mut Guard> = const { Cell::new(std::ptr::null_mut()) };
}

/// What a helper may need of the stack, the C library's formatting included.
const ROOM: u64 = 512 << 10;
/// Half of all addresses are the system's own.
const SYSTEM_ADDRESS: *const u8 = (0xffff_8000u64 << 32) as *const u8;

const ALTERNATE_STACK: usize = 512 << 10;
const SIGNALS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// The handlers that were there before ours, by position in [`SIGNALS`]; leaked boxes.
static PREVIOUS: [AtomicPtr<libc::sigaction>; 4] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 4];

impl Guard {
    /// Prepares the calling thread: its alternate stack and the process's handlers. Faults in mirrored
    /// memory go to `mirror`, which must live as long as the guard.
    pub(super) fn new(mirror: *const Mirror) -> Box<Self> {
        install();
        let mut guard = Box::new(Self {
            landing: Landing::new(),
            active: false,
            fault: Fault { signal: 0, address: 0, write: false, impossible: false, at: 0 },
            mirror,
            seat: std::ptr::null(),
            running: 0,
            overdue: std::ptr::null(),
            alternate: std::ptr::null_mut(),
            stack: arch::stack_end(),
        });
        // SAFETY: a fresh private mapping becomes this thread's signal stack until `drop`.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let at = libc::mmap(
                std::ptr::null_mut(),
                ALTERNATE_STACK,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            );
            if at != libc::MAP_FAILED {
                let stack = libc::stack_t { ss_sp: at, ss_flags: 0, ss_size: ALTERNATE_STACK };
                libc::sigaltstack(&stack, std::ptr::null_mut());
                guard.alternate = at;
            }
        }
        CURRENT.set(&mut *guard);
        guard
    }

    /// From now on compiled code on this thread waits at the seat's gate when [`hold_signal`] comes. The seat must live as long
    /// as the guard.
    pub(super) fn hold_at(&mut self, seat: *const Seat) {
        self.seat = seat;
    }

    /// From now on compiled code on this thread is left when [`end_signal`] comes and its launch is the one that `overdue` says. That
    /// must live as long as the guard.
    pub(super) fn end_at(&mut self, overdue: *const AtomicU64) {
        self.overdue = overdue;
    }

    /// Says to which launch the code belongs that is called from now on.
    pub(super) fn runs(&mut self, launch: u64) {
        self.running = launch;
    }

    /// Whether the launch that it runs is to end.
    pub(super) fn is_overdue(&self) -> bool {
        // SAFETY: it lives as long as the guard, if it is there.
        let overdue = unsafe { self.overdue.as_ref() };
        self.running != 0 && overdue.is_some_and(|overdue| overdue.load(Ordering::Acquire) == self.running)
    }

    /// Calls `function(a, b, c)`, compiled code that owns nothing, and ends it at its first fault.
    ///
    /// # Safety
    /// What `function` asks for; and it must be possible to abandon it anywhere.
    pub(super) unsafe fn call(
        &mut self,
        function: *const c_void,
        a: *mut c_void,
        b: u64,
        c: *mut c_void,
    ) -> Result<(), Fault> {
        self.active = true;
        // SAFETY: as the caller promises.
        let how = unsafe { arch::enter(&mut self.landing, function, a, b, c) };
        self.active = false;
        if how == arch::LEFT { Err(self.fault) } else { Ok(()) }
    }

    /// Ends the kernel as one whose calls are too deep where there is no room on the stack for a helper: its own faults would
    /// end the process.
    ///
    /// # Safety
    /// To be called by a helper, which may be abandoned here.
    pub(super) unsafe fn want_room(&self) {
        let here = 0u8;
        if (std::ptr::from_ref(&here) as u64).saturating_sub(self.stack) < ROOM {
            // SAFETY: no process may access the system's addresses; the handler ends the kernel that called.
            unsafe { SYSTEM_ADDRESS.read_volatile() };
        }
    }

    /// Runs Rust code on behalf of compiled code, as a helper: a fault in it is nobody's fault but ours.
    pub(super) fn pause<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let was = std::mem::replace(&mut self.active, false);
        let result = work(self);
        self.active = was;
        result
    }

    /// Copies `len` bytes between device memory that may not be there and memory that is; false when
    /// part of it cannot be accessed.
    ///
    /// # Safety
    /// One side must be valid memory, the other must lie in the arena.
    pub(super) unsafe fn copy(&mut self, to: u64, from: u64, len: u64) -> bool {
        unsafe extern "C" fn bytes(to: *mut u8, len: u64, from: *const u8) {
            let mut i = 0;
            if (to as usize | from as usize).is_multiple_of(8) {
                while i + 8 <= len as usize {
                    // SAFETY: as below, and both are aligned.
                    unsafe {
                        to.add(i).cast::<u64>().write_volatile(from.add(i).cast::<u64>().read_volatile())
                    };
                    i += 8;
                }
            }
            for i in i..len as usize {
                // SAFETY: valid, or caught by the guard. Volatile, so that it stays this loop.
                unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
            }
        }
        let landing = std::mem::replace(&mut self.landing, Landing::new());
        let was = self.active;
        // SAFETY: `bytes` owns nothing.
        let done = unsafe { self.call(bytes as *const c_void, to as *mut _, len, from as *mut _) };
        self.active = was;
        self.landing = landing;
        done.is_ok()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null_mut());
        if !self.alternate.is_null() {
            // SAFETY: our own mapping, which stops being the signal stack first.
            unsafe {
                let off =
                    libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
                libc::sigaltstack(&off, std::ptr::null_mut());
                libc::munmap(self.alternate, ALTERNATE_STACK);
            }
        }
    }
}

/// After so many calls of [`install`] SIGBUS is looked at again.
const SELDOM: u32 = 64;

/// Installs the handlers, or puts them back in front where the program has installed its own since. SIGSEGV is looked at in each
/// call: wrong accesses raise it, and accesses to memory whose contents are still to be brought. SIGBUS comes only from addresses
/// that no memory can have, so it is looked at where the program has just replaced the handler of SIGSEGV, and seldom otherwise.
pub(super) fn install() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let mut times = LOCK.lock();
    let mut some = match *times {
        0 => SIGNALS.len(),
        times if times.is_multiple_of(SELDOM) => 2,
        _ => 1,
    };
    *times = times.checked_add(1).unwrap_or(1);
    for (i, &signal) in SIGNALS.iter().enumerate() {
        if i >= some {
            break;
        }
        // SAFETY: plain signal calls; the handler below does only what is allowed there.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut old) != 0
                || old.sa_sigaction == handler as *const () as usize
            {
                continue;
            }
            some = some.max(2);
            // Leaked on purpose: a handler on another thread may be reading the one before.
            PREVIOUS[i].store(Box::into_raw(Box::new(old)), Ordering::Release);
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = handler as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | (old.sa_flags & libc::SA_NODEFER);
            new.sa_mask = old.sa_mask;
            libc::sigaction(signal, &new, std::ptr::null_mut());
        }
    }
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let guard = CURRENT.get();
    // SAFETY: `CURRENT` is this thread's own living guard or null, and the kernel gave us the others.
    unsafe {
        if guard.is_null() || !(*guard).active {
            chain(signal, info, context);
            return;
        }
        let memory = signal == libc::SIGSEGV || signal == libc::SIGBUS;
        let address = (*info).si_addr() as u64;
        let write = memory && arch::is_write(context);
        if memory && !(*guard).mirror.is_null() {
            // What serves the fault is Rust code again.
            let served = {
                (*guard).active = false;
                let mirror = &*(*guard).mirror;
                let errno = *libc::__errno_location();
                let served = mirror.fault(address, write);
                *libc::__errno_location() = errno;
                (*guard).active = true;
                served
            };
            if served {
                return;
            }
        }
        let impossible = memory && (*info).si_code == SI_KERNEL;
        let at = arch::program_counter(context);
        (*guard).fault = Fault { signal, address, write, impossible, at };
        (*guard).active = false;
        arch::leave(&raw mut (*guard).landing, context);
    }
}

/// The signal that makes compiled code wait.
pub(super) fn hold_signal() -> i32 {
    libc::SIGRTMIN() + 3
}

/// Installs the handler of [`hold_signal`].
pub(super) fn install_hold() {
    // SAFETY: plain signal calls; the handler below does only what is allowed there.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = hold as *const () as usize;
        new.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(hold_signal(), &new, std::ptr::null_mut());
    }
}

extern "C" fn hold(_signal: i32) {
    let guard = CURRENT.get();
    // SAFETY: `CURRENT` is this thread's own living guard or null, and its seat lives as long. Compiled code holds no locks,
    // so whoever the thread keeps waiting by waiting here is waiting for the kernel anyway.
    unsafe {
        if !guard.is_null() && (*guard).active && !(*guard).seat.is_null() {
            let errno = *libc::__errno_location();
            (*(*guard).seat).wait();
            *libc::__errno_location() = errno;
        }
    }
}

/// The signal that makes compiled code end.
pub(super) fn end_signal() -> i32 {
    libc::SIGRTMIN() + 4
}

/// Installs the handler of [`end_signal`].
pub(super) fn install_end() {
    // SAFETY: plain signal calls; the handler below does only what is allowed there.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = end as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(end_signal(), &new, std::ptr::null_mut());
    }
}

extern "C" fn end(signal: i32, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let guard = CURRENT.get();
    // SAFETY: `CURRENT` is this thread's own living guard or null, and what it refers to lives as long. Compiled code may be
    // abandoned anywhere.
    unsafe {
        if guard.is_null() || !(*guard).active || (*guard).overdue.is_null() || (*guard).running == 0 {
            return;
        }
        if (*(*guard).overdue).load(Ordering::Acquire) != (*guard).running {
            return;
        }
        let at = arch::program_counter(context);
        (*guard).fault = Fault { signal, address: 0, write: false, impossible: false, at };
        (*guard).active = false;
        arch::leave(&raw mut (*guard).landing, context);
    }
}

/// Lets the handler that was there before ours have the signal.
///
/// # Safety
/// To be called from a signal handler with its arguments.
unsafe fn chain(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let index = SIGNALS.iter().position(|&s| s == signal).unwrap_or(0);
    let previous = PREVIOUS[index].load(Ordering::Acquire);
    // SAFETY: entries are leaked boxes; their functions have the type that their flags say.
    unsafe {
        if previous.is_null()
            || (*previous).sa_sigaction == libc::SIG_DFL
            || (*previous).sa_sigaction == libc::SIG_IGN
        {
            // The instruction is tried again, and the default action follows. A signal that somebody sent
            // has no instruction to be tried again.
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &default, std::ptr::null_mut());
            if (*info).si_code <= 0 {
                libc::raise(signal);
            }
            return;
        }
        let function = (*previous).sa_sigaction;
        if (*previous).sa_flags & libc::SA_SIGINFO != 0 {
            let function: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(function);
            function(signal, info, context);
        } else {
            let function: extern "C" fn(i32) = std::mem::transmute(function);
            function(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn poke(at: *mut u64, value: u64, _: *mut c_void) {
        // SAFETY: the test wants it to fault.
        unsafe { at.write_volatile(value) };
    }

    #[test]
    fn a_fault_ends_the_call_and_nothing_else() {
        let mut guard = Guard::new(std::ptr::null());
        let mut word = 7u64;
        for round in 0..3u64 {
            // SAFETY: `poke` owns nothing.
            let good = unsafe {
                guard.call(poke as *const c_void, (&raw mut word).cast(), round, std::ptr::null_mut())
            };
            assert_eq!(good, Ok(()));
            assert_eq!(word, round);
            // SAFETY: the same, at an address that is never mapped.
            let bad =
                unsafe { guard.call(poke as *const c_void, 0x18 as *mut c_void, 1, std::ptr::null_mut()) };
            let Err(fault) = bad else { panic!("nothing faulted") };
            assert_eq!((fault.signal, fault.address), (libc::SIGSEGV, 0x18));
            assert!(fault.write && !fault.impossible);
            let function = poke as *const () as u64;
            assert!((function..function + 4096).contains(&fault.at), "{:#x} is not in `poke`", fault.at);
            // SAFETY: the destination is valid, the source never mapped.
            assert!(!unsafe { guard.copy(&raw mut word as u64, 0x20, 8) });
            let none = crate::abi::MISALIGNED_ADDRESS as *mut c_void;
            // SAFETY: the same, at an address that no processor has.
            let none = unsafe { guard.call(poke as *const c_void, none, 1, std::ptr::null_mut()) };
            assert!(none.unwrap_err().impossible);
        }
    }
}
