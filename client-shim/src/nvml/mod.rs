//! The NVML door: nvml*, what monitoring programs ask.
//!
//! What is answered comes from three places: what every device tells about itself when the session begins (its name,
//! its UUID, its memory), [measurements](rgpu_device::telemetry) that are asked of the server and kept for a moment
//! ([`observer`]), and this process (its own use of a device). A question that a device has no answer to gets
//! `NVML_ERROR_NOT_SUPPORTED`, as it does from devices that lack the thing; nothing is made up. A function that is not
//! implemented at all says its name once in the log, and answers the same ([`refuse`]).
//!
//! NVML numbers devices without regard to `CUDA_VISIBLE_DEVICES`, may be used before and after a fork, and does not
//! begin CUDA's session: where the program has made no CUDA call yet, a session of NVML's own asks the server.

#![allow(non_snake_case)]

/// Defines functions. The body returns [`Result<()>`]; it runs only once NVML is initialised.
macro_rules! nvml {
    ($($(#[$meta:meta])* fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $crate::abi::c_functions! {$(
            $(#[$meta])*
            fn $name($($arg: $ty),*) -> u32 {
                $crate::nvml::guard(stringify!($name), move || {
                    $crate::nvml::observer::check_initialized()?;
                    $body
                })
            }
        )*}
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
pub(crate) mod table;
mod topology;
mod types;
mod values;

use std::collections::HashSet;
use std::ffi::c_char;

use parking_lot::Mutex;

use crate::abi::{self, NotUtf8, NullPointer};
use crate::core::error;
use results::{Result, Return};

/// A place for a result, with NVML's error for null.
type Out<T> = abi::Out<T, Return>;
/// A value that the caller points to, with NVML's error for null.
type In<T> = abi::In<T, Return>;
/// A C string, with NVML's error for null.
type CStrArg = abi::CStrArg<Return>;

impl From<NullPointer> for Return {
    fn from(_: NullPointer) -> Self {
        Self::INVALID_ARGUMENT
    }
}

impl From<NotUtf8> for Return {
    fn from(_: NotUtf8) -> Self {
        Self::INVALID_ARGUMENT
    }
}

/// Runs the body of an exported function: catches panics and logs failures.
fn guard(name: &'static str, body: impl FnOnce() -> Result<()>) -> u32 {
    let result = error::guard_value(Err(Return::UNKNOWN), body);
    match result {
        Ok(()) => 0,
        Err(code) => {
            error::log(&format!("{name}: {} (NVML error {})", code.text().to_string_lossy(), code.0));
            code.0
        }
    }
}

/// Writes a string and its NUL into a caller's buffer of `len` bytes, if it fits.
///
/// # Safety
/// There are so many bytes.
unsafe fn set_text(buffer: Out<c_char>, len: u32, value: &str) -> Result<()> {
    buffer.check()?;
    if value.len() >= len as usize {
        return Err(Return::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller's promise.
    unsafe { buffer.set_text(len as usize, value) }
}

/// The version that the caller has put at the beginning of a structure.
fn version_at<T>(place: Out<T>) -> Result<u32> {
    // SAFETY: structures with versions begin with them.
    unsafe { place.cast::<u32>() }.get()
}

/// Fills an array of fixed size with a text and NULs, cut off where it doesn't fit.
fn text_array<const N: usize>(value: &str) -> [u8; N] {
    let mut array = [0; N];
    let len = value.len().min(N - 1);
    array[..len].copy_from_slice(&value.as_bytes()[..len]);
    array
}

/// What a function answers that exists and is not implemented: as devices do that lack the thing. Its name is said once
/// in the log.
fn refuse(name: &'static str) -> u32 {
    static SAID: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    error::guard_value(Return::UNKNOWN.0, || {
        if SAID.lock().get_or_insert_default().insert(name) {
            error::log(&format!("{name} is not implemented; the program is told that it is not supported"));
        }
        observer::check_initialized().err().unwrap_or(Return::NOT_SUPPORTED).0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_or_are_refused() {
        let mut buffer = [1 as c_char; 4];
        let place = buffer.as_mut_ptr();
        // SAFETY: the buffer is there as long as the place is used, and has so many bytes.
        unsafe {
            assert_eq!(set_text(Out::new(place), 4, "abcd"), Err(Return::INSUFFICIENT_SIZE));
            assert_eq!(buffer, [1; 4]);
            assert_eq!(set_text(Out::new(place), 4, "abc"), Ok(()));
            assert_eq!(set_text(Out::unwanted(), 4, ""), Err(Return::INVALID_ARGUMENT));
        }
        assert_eq!(buffer, [97, 98, 99, 0]);
        assert_eq!(text_array::<4>("abcdef"), *b"abc\0");
        assert_eq!(text_array::<4>("a"), *b"a\0\0\0");
    }

    #[test]
    fn no_name_is_listed_twice() {
        assert!(table::TABLE.windows(2).all(|w| w[0].name < w[1].name));
    }

    #[test]
    fn a_panic_stays_inside() {
        assert_eq!(guard("nvmlTest", || panic!("boom")), 999);
    }
}
