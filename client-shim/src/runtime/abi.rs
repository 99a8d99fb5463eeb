//! The C boundary: pointers that programs pass, and what every entry point does around its work.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;

use crate::core::error::{guard_runtime, invalid};
use crate::core::{Context, Core, Result, Stream};

/// Runs the body of an entry point: catches panics, keeps the last error, and leaves `errno` as it was.
pub(crate) fn call(name: &'static str, body: impl FnOnce() -> Result<()>) -> c_int {
    // SAFETY: the address is valid in every thread.
    let errno = unsafe { *libc::__errno_location() };
    let code = guard_runtime(name, body);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    code as c_int
}

/// Defines entry points: C functions that return an error code, whose body is a [`Result`]-returning block.
/// The literal after `as` is the name in messages and statistics.
macro_rules! api {
    ($(
        $(#[$doc:meta])*
        fn $name:ident $(<const $pt:ident>)? as $cuda:literal ($($arg:ident: $type:ty),* $(,)?) $body:block
    )*) => {
        $(
            $(#[$doc])*
            pub(crate) extern "C" fn $name $(<const $pt: bool>)? ($($arg: $type),*) -> ::std::ffi::c_int {
                $crate::runtime::abi::call($cuda, move || $body)
            }
        )*
    };
}
pub(crate) use api;

/// The core and the context that this thread's runtime calls work in.
pub(crate) fn enter() -> Result<(&'static Core, Arc<Context>)> {
    let core = crate::core::current()?;
    Ok((core, core.runtime_context()?))
}

/// As [`enter`], with the stream that the program named.
pub(crate) fn enter_stream(
    raw: usize,
    per_thread: bool,
) -> Result<(&'static Core, Arc<Context>, Arc<Stream>)> {
    let (core, context) = enter()?;
    let stream = core.stream(&context, raw, per_thread)?;
    Ok((core, context, stream))
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
            // SAFETY: not null, and the caller vouches for the rest. Alignment is not among it.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Stores the result; false where the pointer is null.
    #[inline(always)]
    pub(crate) fn set_well(self, value: T) -> bool {
        self.set_if_wanted(value);
        !self.0.is_null()
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

    /// The place of the `index`-th result.
    pub(crate) fn at(self, index: usize) -> Self {
        if self.0.is_null() { self } else { Self(self.0.wrapping_add(index)) }
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
        if self.0.is_null() && count > 0 {
            return Err(invalid("an argument array is null"));
        }
        (0..count).map(|i| In(self.0.wrapping_add(i)).get()).collect()
    }
}

/// A C string; null is an invalid value.
pub(crate) fn c_string(text: In<c_char>) -> Result<CString> {
    if text.0.is_null() {
        return Err(invalid("a name is null"));
    }
    // SAFETY: the caller passes a NUL-terminated string, as C has it.
    Ok(unsafe { CStr::from_ptr(text.0) }.to_owned())
}

/// A C string as a name; names that are not UTF-8 name nothing.
pub(crate) fn name(text: In<c_char>) -> Result<String> {
    c_string(text)?.into_string().map_err(|_| invalid("a name is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Code;

    #[test]
    fn null_pointers_are_errors() {
        assert_eq!(Out::<i32>(std::ptr::null_mut()).set(1).unwrap_err().code, Code::InvalidValue);
        assert_eq!(In::<i32>(std::ptr::null()).get().unwrap_err().code, Code::InvalidValue);
        assert!(In::<i32>(std::ptr::null()).list(0).unwrap().is_empty());
        assert!(In::<i32>(std::ptr::null()).list(1).is_err());
        assert!(c_string(In(std::ptr::null())).is_err());
        let mut value = 5;
        Out(&raw mut value).set(6).unwrap();
        assert_eq!(In(&raw const value).get().unwrap(), 6);
    }

    #[test]
    fn errno_survives_a_call() {
        // SAFETY: the address is valid in every thread.
        let errno = || unsafe { &mut *libc::__errno_location() };
        *errno() = 77;
        let code = call("a call", || {
            *errno() = 1;
            Err(Code::InvalidValue.into())
        });
        assert_eq!((code, *errno()), (1, 77));
    }
}
