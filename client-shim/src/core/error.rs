//! Errors on their way to the program: the thread's last error, logging, and the guard at the C boundary.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::OnceLock;

pub(crate) use rgpu_device::{Code, Error, Result};

use rgpu_remote::trace;

use super::logs;

thread_local! {
    /// CUDA keeps the last error for each thread, whether or not there is a core.
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// Runs the body of an exported runtime function: catches panics, logs a failure, and makes it the thread's last error.
/// `cudaErrorNotReady` is returned but does not become the last error.
pub(crate) fn guard_runtime(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    let code = run(name, body);
    if code != 0 && code != Code::NotReady as u32 {
        set_last(code);
    }
    code
}

/// Runs the body of an exported driver function: catches panics, logs a failure, and translates codes that only the
/// runtime API has.
pub(crate) fn guard_driver(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    let code = run(name, body);
    if code == 0 { 0 } else { Code::from_number(code).driver() as u32 }
}

/// Runs something that returns no error code (`cuGetExportTable`-like helpers, callbacks); a panic yields `fallback`.
pub(crate) use rgpu_remote::threads::guard_value;

#[inline]
fn run(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    let start = trace::start();
    let code = run_untraced(name, body);
    if start != 0 {
        trace::api(name, start, code);
    }
    code
}

#[inline]
fn run_untraced(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            if error.code != Code::NotReady {
                match is_of_a_kernel(&error) {
                    true => say_once(&error.message),
                    false => log(&format!("{name}: {error}")),
                }
                logs::note(name, &error.message);
            }
            error.code as u32
        }
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            say(&format!("{name}: internal error: {what}"));
            logs::note(name, &format!("internal error: {what}"));
            Code::Unknown as u32
        }
    }
}

/// Whether an error tells what a kernel did wrong, and where. Every later call has it, too, and it is said once.
fn is_of_a_kernel(error: &Error) -> bool {
    error.code.is_sticky() && error.message.contains(" in kernel ")
}

/// Makes `code` the thread's last error.
pub(crate) fn set_last(code: u32) {
    let _ = LAST.try_with(|last| last.set(code));
}

/// The thread's last error, 0 if none.
pub(crate) fn last() -> u32 {
    LAST.try_with(Cell::get).unwrap_or(0)
}

/// As [`last`], and clears it.
pub(crate) fn take_own_last() -> u32 {
    LAST.try_with(|last| last.replace(0)).unwrap_or(0)
}

/// Writes a line to stderr if `RGPU_LOG` is set (to anything but `0` or `off`).
pub(crate) fn log(message: &str) {
    static ON: OnceLock<bool> = OnceLock::new();
    if *ON.get_or_init(|| std::env::var("RGPU_LOG").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "off"))) {
        say(message);
    }
}

/// Writes a line to stderr, whatever the settings, in one piece and without panicking where stderr is closed.
/// Parts of it may come from a server: what would move the cursor, or is invisible, is written out.
pub(crate) fn say(message: &str) {
    let line = format!("rgpu: {}\n", fit_for_a_terminal(message));
    // SAFETY: the buffer is valid for its length; a failing write is of no consequence.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// A message of one line or several, with all other control characters written out.
pub(super) fn fit_for_a_terminal(message: &str) -> String {
    let lines: Vec<String> = message.split('\n').map(rgpu_control::units::printable).collect();
    lines.join("\n")
}

/// [`say`], once per distinct message.
pub(crate) fn say_once(message: &str) {
    static SAID: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut said = SAID.lock().unwrap_or_else(|e| e.into_inner());
    if said.get_or_insert_default().insert(message.to_string()) {
        say(message);
    }
}

/// The error of a setting that nobody understands.
pub(super) fn not_understood(name: &str, value: &str) -> Error {
    Error::new(Code::NoDevice, format!("{name}={value} is not understood"))
}

/// Says once why GPU code cannot be used; where PyTorch is loaded, whose own kernels are machine code in every package of it, also what can be
/// done.
pub(crate) fn say_of_code(error: &Error) {
    let has_torch =
        || std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("/libtorch_cuda.so"));
    let way_out = if error.code == Code::NoBinaryForGpu && has_torch() {
        ". PyTorch's own kernels come as machine code: use torch.compile, a server with an NVIDIA GPU, or a PyTorch that was built with TORCH_CUDA_ARCH_LIST=8.0+PTX"
    } else {
        ""
    };
    say_once(&format!("{}{way_out}", error.message));
}

/// The error of a call or feature that nobody has implemented; says its name once on stderr.
pub(crate) fn not_implemented(name: &str) -> Error {
    say_once(&format!("{name} is not implemented; the program gets the error \"not supported\""));
    Error::new(Code::NotSupported, format!("{name} is not implemented"))
}

/// An [`Code::InvalidValue`] with its explanation.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidValue, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_move_no_cursor() {
        let said = fit_for_a_terminal("refused: \u{1b}[2J\u{7}\r\u{202e}grün\nand a line more\t.");
        assert_eq!(said, "refused: \\u{1b}[2J\\u{7}\\u{d}\\u{202e}grün\nand a line more\\u{9}.");
    }

    #[test]
    fn guards_catch_panics_and_keep_the_last_error() {
        assert_eq!(guard_runtime("a", || Ok(())), 0);
        assert_eq!(guard_runtime("b", || panic!("boom")), Code::Unknown as u32);
        assert_eq!(guard_runtime("c", || Err(Code::NotReady.into())), Code::NotReady as u32);
        assert_eq!(last(), Code::Unknown as u32);
        assert_eq!(take_own_last(), Code::Unknown as u32);
        assert_eq!(take_own_last(), 0);
        assert_eq!(guard_driver("d", || Err(Code::InvalidConfiguration.into())), Code::InvalidValue as u32);
        assert_eq!(take_own_last(), 0);
    }
}
