//! What the fuzzer needs of this crate and nobody else does. No part of its interface.

/// Reads bytes as the file of an object that was loaded. Says whether they are one.
pub fn object_file(bytes: &[u8]) -> bool {
    crate::loader::read_as_object(bytes)
}
