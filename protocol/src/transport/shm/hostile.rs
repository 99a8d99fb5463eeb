//! A ring whose other side writes what it likes into the indices that both share.

use super::ring::{INDEX_BYTES, Ring};
use super::words::CAPACITY;
use std::cell::RefCell;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// What lies round the ring's bytes, and must stay as it is.
const GUARD: usize = 4096;
const MARK: u8 = 0xa5;
/// The largest piece that is read or written at a time, besides a few that are longer than the ring.
const PIECE: usize = 300;

/// Indices, and bytes between guards.
struct Memory(Vec<u128>);

impl Memory {
    fn new() -> Self {
        let mut memory = Self(vec![0; (128 + INDEX_BYTES + GUARD + CAPACITY + GUARD) / 16]);
        let bytes = memory.bytes();
        // SAFETY: both guards lie inside the memory.
        unsafe {
            std::ptr::write_bytes(bytes.sub(GUARD), MARK, GUARD);
            std::ptr::write_bytes(bytes.add(CAPACITY), MARK, GUARD);
        }
        memory
    }

    fn indices(&mut self) -> *mut u8 {
        let base = self.0.as_mut_ptr().cast::<u8>();
        // SAFETY: there is room for the alignment.
        unsafe { base.add(base.align_offset(128)) }
    }

    fn bytes(&mut self) -> *mut u8 {
        // SAFETY: the indices and a guard come before it.
        unsafe { self.indices().add(INDEX_BYTES + GUARD) }
    }

    fn is_whole(&mut self) -> bool {
        let bytes = self.bytes();
        // SAFETY: both guards lie inside the memory.
        let guards = unsafe {
            [
                std::slice::from_raw_parts(bytes.sub(GUARD), GUARD),
                std::slice::from_raw_parts(bytes.add(CAPACITY), GUARD),
            ]
        };
        guards.iter().all(|guard| guard.iter().all(|byte| *byte == MARK))
    }
}

thread_local! {
    static MEMORY: RefCell<(Memory, Vec<u8>)> =
        RefCell::new((Memory::new(), vec![0; 2 * CAPACITY]));
}

/// Does what the bytes say. The first one chooses whether this side writes or reads; then come moves: a byte that chooses, and
/// eight that are a number.
pub(in crate::transport) fn play(bytes: &[u8]) -> Result<bool, String> {
    MEMORY.with_borrow_mut(|(memory, room)| {
        let (indices, at) = (memory.indices(), memory.bytes());
        // SAFETY: nobody else looks at it.
        unsafe { std::ptr::write_bytes(indices, 0, INDEX_BYTES) };
        // SAFETY: both are as large as a ring wants, and outlive it.
        let ring = unsafe { Ring::new(indices, at) };
        let shared = indices.cast::<AtomicU64>();
        let Some((role, moves)) = bytes.split_first() else { return Ok(false) };
        let writes = role % 2 == 0;
        let (mut good, mut moved) = (false, 0u64);
        for piece in moves.chunks_exact(9) {
            let number = u64::from_le_bytes(std::array::from_fn(|at| piece[1 + at]));
            // Seldom more than the ring holds, which takes its time.
            let length = if piece[0] >= 0xf8 { 2 * CAPACITY } else { number as usize % PIECE };
            let result = match piece[0] % 3 {
                // The peer's numbers, near to what they should be or not.
                // SAFETY: the two indices are the first words of their lines of 128 bytes.
                0 => unsafe {
                    let near = if number & 1 == 0 { moved } else { 0 };
                    (*shared.add(16 * (number as usize >> 1 & 1)))
                        .store(near.wrapping_add(number >> 2), SeqCst);
                    Ok(0)
                },
                1 if writes => ring.write(&[IoSlice::new(&room[..length])], || {}),
                1 => {
                    if let Some(behind) = room.get_mut(length) {
                        *behind = MARK;
                    }
                    // SAFETY: the room is at least so long.
                    let read = unsafe { ring.read(room.as_mut_ptr(), length) };
                    if room.get(length).is_some_and(|behind| *behind != MARK) {
                        return Err("more was read than was asked for".into());
                    }
                    read
                }
                _ if writes => ring.room().map(|_| 0),
                _ => ring.available().map(|_| 0),
            };
            match result {
                Ok(n) if n > length.max(CAPACITY) => return Err(format!("{n} bytes were moved")),
                Ok(n) => {
                    good = true;
                    moved = moved.wrapping_add(n as u64);
                }
                // The session ends.
                Err(_) => break,
            }
        }
        if memory.is_whole() { Ok(good) } else { Err("something outside of the ring was written".into()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hostile_peer_gets_nowhere(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(play(&bytes).is_ok());
        }
    }
}
