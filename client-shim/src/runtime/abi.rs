//! The C boundary: arguments, the last error, and what every entry point does around its work.

use std::cell::Cell;
use std::ffi::c_int;

use rgpu_device::{Code, Error, Result};

thread_local! {
    /// The most recent error of this thread's calls, until somebody asks for it.
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
}

/// Makes `error` the thread's last error and returns it.
pub(crate) fn fail(error: c_int) -> c_int {
    // A thread that is past its thread-locals has nobody left to ask.
    let _ = LAST_ERROR.try_with(|last| last.set(error));
    error
}

/// The thread's last error, which is forgotten if `take`.
pub(crate) fn last_error(take: bool) -> c_int {
    LAST_ERROR.try_with(|last| if take { last.replace(0) } else { last.get() }).unwrap_or(0)
}

/// Says something to the person in front of the program.
pub(crate) fn say(text: &str) {
    // Not `eprintln!`, which panics when stderr is closed.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("rgpu: {text}\n").as_bytes());
}

/// Where a caller wants a result. The caller vouches that it is null or fit to be written to, as C has it.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Out<T>(pub(crate) *mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Stores the result; a null pointer is an invalid value.
    pub(crate) fn set(self, value: T) -> Result<()> {
        self.check()?;
        self.set_if_wanted(value);
        Ok(())
    }

    /// Stores the result unless the caller gave null, where CUDA allows that.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and the caller vouches for the rest. C knows no alignment promises.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Whether there is a place for the result.
    pub(crate) fn check(self) -> Result<()> {
        if self.0.is_null() { Err(invalid("a result pointer is null")) } else { Ok(()) }
    }

    /// What lies there now.
    pub(crate) fn get(self) -> Result<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// Stores the `index`-th result.
    pub(crate) fn set_at(self, index: usize, value: T) {
        Out(self.0.wrapping_add(index)).set_if_wanted(value);
    }
}

/// What a caller points to. The caller vouches that it is null or fit to be read, as C has it.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct In<T>(pub(crate) *const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The value; a null pointer is an invalid value.
    pub(crate) fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(invalid("an argument pointer is null"));
        }
        // SAFETY: not null, and the caller vouches for the rest.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The first `count` values; a null pointer is an invalid value unless there are none.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>> {
        (0..count).map(|i| In(self.0.wrapping_add(if self.0.is_null() { 0 } else { i })).get()).collect()
    }
}

/// The bytes of a C string; null is an invalid value.
pub(crate) fn c_string(text: In<std::ffi::c_char>) -> Result<std::ffi::CString> {
    if text.0.is_null() {
        return Err(invalid("a name is null"));
    }
    // SAFETY: the caller passes a NUL-terminated string, as C has it.
    Ok(unsafe { std::ffi::CStr::from_ptr(text.0) }.to_owned())
}

/// An invalid value, explained.
pub(crate) fn invalid(message: &str) -> Error {
    Error::new(Code::InvalidValue, message)
}
