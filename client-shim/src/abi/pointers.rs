//! The pointers among a call's arguments, as types that carry the program's promise about them.
//!
//! A C program that passes a pointer promises what lies behind it: room for a result, a value, a string. These types
//! stand for that promise. They have the layout of a pointer, so an entry point takes them right as C passes them,
//! and safe code of ours can't make one up: [`Out::new`] and its like are unsafe. What is left to each use is the
//! null pointer, which is an error unless the call says otherwise, and the length of an array, which comes in another
//! argument; methods that rely on such a length are unsafe.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;

use crate::core::Error;
use crate::core::error::invalid;

/// A pointer was null where the call needs what it should point to. Each door has its own error for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NullPointer(&'static str);

impl From<NullPointer> for Error {
    fn from(NullPointer(message): NullPointer) -> Self {
        invalid(message)
    }
}

/// A string argument is not UTF-8, so it names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotUtf8;

impl From<NotUtf8> for Error {
    fn from(_: NotUtf8) -> Self {
        invalid("a name is not UTF-8")
    }
}

/// Where the program wants a result: null, or fit to be written to (as many times as the call says), and to be read
/// where the call says that something lies there already. Alignment is not part of the promise. `E` is the door's
/// error.
#[repr(transparent)]
pub(crate) struct Out<T, E = Error>(*mut T, PhantomData<E>);

impl<T, E> Clone for Out<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for Out<T, E> {}

impl<T, E> Out<T, E> {
    /// # Safety
    /// As long as the result or a copy of it is used, `place` must be what the type promises.
    pub(crate) const unsafe fn new(place: *mut T) -> Self {
        Self(place, PhantomData)
    }

    /// A result that nobody wants.
    pub(crate) const fn unwanted() -> Self {
        Self(std::ptr::null_mut(), PhantomData)
    }

    /// Whether the program gave no place for the result.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address.
    pub(crate) fn as_ptr(self) -> *mut T {
        self.0
    }

    /// Stores the result unless the pointer is null, where CUDA allows that.
    #[inline(always)]
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and fit to be written to by the type's promise. Alignment is not part of it.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Stores the result; false where the pointer is null.
    #[inline(always)]
    pub(crate) fn set_well(self, value: T) -> bool {
        self.set_if_wanted(value);
        !self.0.is_null()
    }

    /// The same place for a value of another type.
    ///
    /// # Safety
    /// By the call's description, a `U` is what the program has room for there.
    pub(crate) unsafe fn cast<U>(self) -> Out<U, E> {
        Out(self.0.cast(), PhantomData)
    }

    /// The place of the `index`-th result.
    ///
    /// # Safety
    /// By the call's other arguments, the program has room for more than `index` results, if for any.
    pub(crate) unsafe fn at(self, index: usize) -> Self {
        if self.0.is_null() { self } else { Self(self.0.wrapping_add(index), PhantomData) }
    }
}

impl<T, E: From<NullPointer>> Out<T, E> {
    /// Stores the result; a null pointer is an error.
    pub(crate) fn set(self, value: T) -> Result<(), E> {
        self.check()?;
        self.set_if_wanted(value);
        Ok(())
    }

    /// An error if there is no place for the result.
    pub(crate) fn check(self) -> Result<(), E> {
        if self.0.is_null() { Err(NullPointer("a result pointer is null").into()) } else { Ok(()) }
    }

    /// What lies there now; a null pointer is an error.
    pub(crate) fn get(self) -> Result<T, E>
    where
        T: Copy,
    {
        In::<T, E>(self.0.cast_const(), PhantomData).get()
    }
}

impl<E: From<NullPointer>> Out<c_char, E> {
    /// Writes a string and its NUL into a buffer of `len` bytes, cut off where it doesn't fit.
    ///
    /// # Safety
    /// By the call's other arguments, the program has room for `len` bytes.
    pub(crate) unsafe fn set_text(self, len: usize, value: &str) -> Result<(), E> {
        if self.0.is_null() || len == 0 {
            return Err(NullPointer("a text buffer is null or empty").into());
        }
        let bytes = &value.as_bytes()[..value.len().min(len - 1)];
        // SAFETY: the caller's promise, and the text is no longer.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len());
            self.0.add(bytes.len()).write(0);
        }
        Ok(())
    }
}

/// What the program points to: null, or fit to be read (as many values as the call says). Alignment is not part of
/// the promise. `E` is the door's error.
#[repr(transparent)]
pub(crate) struct In<T, E = Error>(*const T, PhantomData<E>);

impl<T, E> Clone for In<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for In<T, E> {}

impl<T, E> In<T, E> {
    /// # Safety
    /// As long as the result or a copy of it is used, `place` must be what the type promises.
    pub(crate) const unsafe fn new(place: *const T) -> Self {
        Self(place, PhantomData)
    }

    /// Nothing.
    pub(crate) const fn null() -> Self {
        Self(std::ptr::null(), PhantomData)
    }

    /// Whether the program gave nothing.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address.
    pub(crate) fn as_ptr(self) -> *const T {
        self.0
    }

    /// The same place, holding a value of another type.
    ///
    /// # Safety
    /// By the call's description, a `U` is what lies there.
    pub(crate) unsafe fn cast<U>(self) -> In<U, E> {
        In(self.0.cast(), PhantomData)
    }

    /// The place of the `index`-th value.
    ///
    /// # Safety
    /// By the call's other arguments, more than `index` values are there, if any.
    pub(crate) unsafe fn at(self, index: usize) -> Self {
        if self.0.is_null() { self } else { Self(self.0.wrapping_add(index), PhantomData) }
    }
}

impl<T: Copy, E: From<NullPointer>> In<T, E> {
    /// The value; a null pointer is an error.
    pub(crate) fn get(self) -> Result<T, E> {
        if self.0.is_null() {
            return Err(NullPointer("an argument pointer is null").into());
        }
        // SAFETY: not null, and fit to be read by the type's promise.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The first `count` values; a null pointer is an error unless there are none.
    ///
    /// # Safety
    /// By the call's other arguments, `count` values are there.
    pub(crate) unsafe fn list(self, count: usize) -> Result<Vec<T>, E> {
        if self.0.is_null() && count > 0 {
            return Err(NullPointer("an argument array is null").into());
        }
        // SAFETY: not null where there is an index, and that many values are there.
        (0..count).map(|i| unsafe { self.at(i) }.get()).collect()
    }
}

impl<E: From<NullPointer>> In<u8, E> {
    /// The first `len` bytes; a null pointer is an error.
    ///
    /// # Safety
    /// By the call's other arguments, `len` bytes are there, for as long as the result is used.
    pub(crate) unsafe fn bytes<'a>(self, len: usize) -> Result<&'a [u8], E> {
        if self.0.is_null() {
            return Err(NullPointer("the data are null").into());
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(self.0, len) })
    }
}

/// A C string: null, or terminated by a NUL, for as long as the call takes. `E` is the door's error.
#[repr(transparent)]
pub(crate) struct CStrArg<E = Error>(*const c_char, PhantomData<E>);

impl<E> CStrArg<E> {
    /// # Safety
    /// As long as the result is used, `text` must be what the type promises.
    pub(crate) const unsafe fn new(text: *const c_char) -> Self {
        Self(text, PhantomData)
    }

    /// The address.
    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.0
    }
}

impl<E: From<NullPointer>> CStrArg<E> {
    /// The string; a null pointer is an error.
    pub(crate) fn c_str(&self) -> Result<&CStr, E> {
        if self.0.is_null() {
            return Err(NullPointer("a name is null").into());
        }
        // SAFETY: not null, so by the type's promise a string, for as long as `self`, which is an argument, is there.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// The string as text; null and what is not UTF-8 are errors.
    pub(crate) fn text(&self) -> Result<&str, E>
    where
        E: From<NotUtf8>,
    {
        self.c_str()?.to_str().map_err(|_| NotUtf8.into())
    }
}

/// A kernel's arguments as a launch takes them: null, or a list of pointers to as many values as the kernel has
/// parameters, each of its parameter's size.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct KernelArguments(*const *const c_void);

impl KernelArguments {
    /// No arguments.
    pub(crate) const NONE: Self = Self(std::ptr::null());

    /// # Safety
    /// As long as the result or a copy of it is used, `list` must be what the type promises for the kernel that it is
    /// used with.
    pub(crate) const unsafe fn new(list: *const *const c_void) -> Self {
        Self(list)
    }

    /// Whether the program gave no list.
    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The list.
    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *const *const c_void {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Code;

    #[test]
    fn null_pointers_are_errors() {
        assert_eq!(Out::<i32>::unwanted().set(1).unwrap_err().code, Code::InvalidValue);
        assert_eq!(In::<i32>::null().get().unwrap_err().code, Code::InvalidValue);
        // SAFETY: null is part of each type's promise.
        unsafe {
            assert!(In::<i32>::null().list(0).unwrap().is_empty());
            assert!(In::<i32>::null().list(1).is_err());
            let text: CStrArg = CStrArg::new(std::ptr::null());
            assert!(text.c_str().is_err());
            let buffer: Out<c_char> = Out::unwanted();
            assert!(buffer.set_text(10, "a").is_err());
        }
        let mut value = 5;
        // SAFETY: the variable outlives both.
        let (out, given): (Out<i32>, In<i32>) =
            unsafe { (Out::new(&raw mut value), In::new(&raw const value)) };
        out.set(6).unwrap();
        assert_eq!(given.get().unwrap(), 6);
    }

    #[test]
    fn texts_are_cut_off_and_end_in_nul() {
        let mut buffer = [1 as c_char; 4];
        // SAFETY: the buffer outlives it.
        let out: Out<c_char> = unsafe { Out::new(buffer.as_mut_ptr()) };
        // SAFETY: there is room for so many bytes.
        unsafe { out.set_text(4, "abcdef") }.unwrap();
        assert_eq!(buffer, [97, 98, 99, 0]);
        // SAFETY: the texts end in NUL.
        let (good, bad): (CStrArg, CStrArg) =
            unsafe { (CStrArg::new(c"ab".as_ptr()), CStrArg::new(c"\xff".as_ptr())) };
        assert_eq!(good.text().unwrap(), "ab");
        assert!(bad.text().is_err() && bad.c_str().is_ok());
    }
}
