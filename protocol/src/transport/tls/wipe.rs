//! Secrets that are not left in memory: what held one is overwritten when it goes.
//!
//! That holds for what has a place of its own. Copies that the compiler makes on the stack or in registers when it moves a value
//! cannot be reached; they are overwritten by whatever comes next there.

use crate::wire::{DecodeError, Reader, Wire};
use std::mem::{MaybeUninit, needs_drop};
use std::ops::Deref;
use zeroize::{Zeroize, Zeroizing};

/// Bytes that are overwritten when they are let go.
pub(super) type Secret = Zeroizing<Vec<u8>>;

/// Appends bytes in their wire form to a buffer that has room for them: one that grew would leave a copy behind.
pub(super) fn append(bytes: &[u8], out: &mut Vec<u8>) {
    assert!(out.capacity() - out.len() >= u32::MIN_BYTES + bytes.len(), "a copy would be left behind");
    (bytes.len() as u32).encode(out);
    out.extend_from_slice(bytes);
}

/// Reads what [`append`] has written; no other copy is made.
pub(super) fn take(reader: &mut Reader<'_>) -> Result<Secret, DecodeError> {
    let length = u32::decode(reader)? as usize;
    Ok(Zeroizing::new(reader.take(length, "A secret")?.to_vec()))
}

/// A value without anything on the heap, such as a cipher's key schedule, that is overwritten when it goes.
pub(super) struct Flat<T>(MaybeUninit<T>);

impl<T> Flat<T> {
    pub(super) fn new(value: T) -> Self {
        const { assert!(!needs_drop::<T>(), "it would have to be dropped before") };
        Self(MaybeUninit::new(value))
    }
}

impl<T> Deref for Flat<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: it was made with a value, and nobody takes that out before `drop`.
        unsafe { self.0.assume_init_ref() }
    }
}

impl<T> Drop for Flat<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::ManuallyDrop;

    #[test]
    fn what_a_value_was_cannot_be_seen_in_its_place() {
        let mut place = ManuallyDrop::new(Flat::new([0x5a_u8; 48]));
        assert_eq!(**place, [0x5a; 48]);
        // SAFETY: it is dropped once, and not used as what it was afterwards; its bytes are all initialised.
        let bytes = unsafe {
            ManuallyDrop::drop(&mut place);
            std::slice::from_raw_parts((&raw const place).cast::<u8>(), 48)
        };
        assert_eq!(bytes, [0; 48]);
    }

    #[test]
    fn bytes_come_back_and_lengths_are_checked() {
        let mut out = Vec::with_capacity(7);
        append(b"abc", &mut out);
        let mut reader = Reader::new(&out);
        assert_eq!(take(&mut reader).unwrap().as_slice(), b"abc");
        assert!(take(&mut Reader::new(&out[..6])).is_err());
        assert!(take(&mut Reader::new(&[0xff; 4])).is_err());
        assert!(std::panic::catch_unwind(|| append(b"abc", &mut Vec::with_capacity(6))).is_err());
    }
}
