//! The NVML door: nvml*, what monitoring programs ask.
//!
//! What is answered comes from three places: what every device tells about itself when the session begins (its name,
//! its UUID, its memory), [measurements](rgpu_device::telemetry) that are asked of the server and kept for a moment
//! ([`observer`]), and this process (its own use of a device). A question that a device has no answer to gets
//! `NVML_ERROR_NOT_SUPPORTED`, as it does from devices that lack the thing; nothing is made up. A function that is not
//! implemented at all says its name once in the log, and answers the same ([`unsupported`]).
//!
//! NVML numbers devices without regard to `CUDA_VISIBLE_DEVICES`, may be used before and after a fork, and does not
//! begin CUDA's session: where the program has made no CUDA call yet, a session of NVML's own asks the server.

#![allow(non_snake_case)]

/// Defines exported functions and lists their names. The body returns [`Result<()>`]; it runs only once NVML is
/// initialised.
macro_rules! nvml {
    ($($(#[$meta:meta])* fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
                $crate::nvml::guard(stringify!($name), move || {
                    $crate::nvml::observer::check_initialized()?;
                    $body
                })
            }
        )*
        /// The names of the functions in this file.
        #[cfg(test)]
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

mod events;
mod handles;
mod identity;
mod lifetime;
mod memory;
mod observer;
mod processes;
mod results;
mod topology;
mod types;
mod unsupported;
mod values;

use std::ffi::{CStr, c_char};

use results::{Result, Return};

/// Runs the body of an exported function: catches panics and logs failures.
fn guard(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    let result = crate::core::error::guard_value(Err(Return::UNKNOWN), body);
    match result {
        Ok(()) => 0,
        Err(code) => {
            crate::core::error::log(&format!(
                "{name}: {} (NVML error {})",
                code.text().to_string_lossy(),
                code.0
            ));
            code.0
        }
    }
}

/// A place for a result; a null pointer is an invalid argument.
fn set<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    // SAFETY: not null; that it is fit to be written to is the caller's part, as C has it.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// A value that the caller has put somewhere; a null pointer is an invalid argument.
fn get<T: Copy>(place: *const T) -> Result<T> {
    if place.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    // SAFETY: not null; that it holds a value is the caller's part, as C has it.
    Ok(unsafe { place.read_unaligned() })
}

/// Writes a string and its NUL into a caller's buffer of `len` bytes, if it fits.
fn set_text(buffer: *mut c_char, len: u32, value: &str) -> Result<()> {
    if buffer.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    if value.len() >= len as usize {
        return Err(Return::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller says that `len` bytes are there, and that is enough.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), value.len());
        buffer.add(value.len()).write(0);
    }
    Ok(())
}

/// A C string argument.
fn text<'a>(pointer: *const c_char) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    // SAFETY: not null; the caller passes a C string.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| Return::INVALID_ARGUMENT)
}

/// Fills an array of fixed size with a text and NULs, cut off where it doesn't fit.
fn text_array<const N: usize>(value: &str) -> [u8; N] {
    let mut array = [0; N];
    let len = value.len().min(N - 1);
    array[..len].copy_from_slice(&value.as_bytes()[..len]);
    array
}

/// The entry points' names and whether each is implemented, for the documentation.
#[cfg(test)]
pub fn status() -> Vec<(&'static str, bool)> {
    let lists = [
        events::NAMES,
        handles::NAMES,
        identity::NAMES,
        lifetime::NAMES,
        lifetime::MORE_NAMES,
        memory::NAMES,
        processes::NAMES,
        topology::NAMES,
        values::NAMES,
        values::MORE_NAMES,
    ];
    let done = lists.into_iter().flatten().map(|name| (*name, true));
    let mut all: Vec<_> = done.chain(unsupported::NAMES.iter().map(|name| (*name, false))).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_or_are_refused() {
        let mut buffer = [1 as c_char; 4];
        assert_eq!(set_text(buffer.as_mut_ptr(), 4, "abcd"), Err(Return::INSUFFICIENT_SIZE));
        assert_eq!(buffer, [1; 4]);
        assert_eq!(set_text(buffer.as_mut_ptr(), 4, "abc"), Ok(()));
        assert_eq!(buffer, [97, 98, 99, 0]);
        assert_eq!(set_text(std::ptr::null_mut(), 4, ""), Err(Return::INVALID_ARGUMENT));
        assert_eq!(text_array::<4>("abcdef"), *b"abc\0");
        assert_eq!(text_array::<4>("a"), *b"a\0\0\0");
    }

    #[test]
    fn no_name_is_listed_twice() {
        let all = status();
        let twice: Vec<_> = all.windows(2).filter(|w| w[0].0 == w[1].0).map(|w| w[0].0).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn a_panic_stays_inside() {
        assert_eq!(guard("nvmlTest", || panic!("boom")), 999);
    }
}
