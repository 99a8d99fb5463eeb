//! What a ring is made of. The models of `tests/models` put words and bytes in this file's place whose accesses are watched,
//! and a smaller ring.

pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// A byte of the ring.
pub(super) type Byte = u8;
/// Bytes that a ring holds.
pub(super) const CAPACITY: usize = 512 << 10;
/// So many bytes are written between two publications, so that the reader works meanwhile.
pub(super) const STEP: usize = 64 << 10;

/// Copies bytes into the ring.
///
/// # Safety
/// The source is readable, the destination a part of the ring.
#[inline(always)]
pub(super) unsafe fn put(from: *const u8, to: *mut Byte, count: usize) {
    // SAFETY: passed on to the caller. What the peer does there meanwhile is its own loss.
    unsafe { std::ptr::copy_nonoverlapping(from, to, count) };
}

/// Copies bytes out of the ring.
///
/// # Safety
/// The source is a part of the ring, the destination writable.
#[inline(always)]
pub(super) unsafe fn get(from: *const Byte, to: *mut u8, count: usize) {
    // SAFETY: passed on to the caller. The peer may change the bytes meanwhile, which garbles its own message: what is copied
    // is not read again from here.
    unsafe { std::ptr::copy_nonoverlapping(from, to, count) };
}
