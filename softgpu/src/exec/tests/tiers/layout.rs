//! Where in memory a launch begins, and what it leaves.

use super::ops::Class;

/// The most threads of a block.
pub(super) const THREADS: usize = 256;
/// The most threads of a grid. What threads begin with and leave lies side by side: a register of all threads takes this times its size.
pub(super) const ALL: usize = 3 * THREADS;
/// Bytes of what each thread begins with.
pub(super) const START: usize = 112;
/// Bytes of what each thread leaves.
pub(super) const RECORD: usize = 256;
/// Where among them the sum of approximations is.
pub(super) const APPROXIMATE_AT: usize = 112;
/// Where a shared counter, and the shared ticket with its sum.
pub(super) const COUNTER_AT: usize = 120;
/// Where the thread's array.
pub(super) const LOCAL_AT: usize = 192;
/// The numbers in constant memory.
pub(super) fn constant(at: usize) -> u8 {
    (at as u8).wrapping_mul(167) ^ 0x5A
}

/// Where a register lies in what threads begin with, and in what they leave, for one thread.
pub(super) fn place(class: Class, register: usize) -> usize {
    let first = match class {
        Class::V => 0,
        Class::W => 24,
        Class::F => 48,
        Class::D => 64,
        Class::H => 88,
        Class::X => 94,
        Class::P => 100,
    };
    first + register * class.bytes()
}

/// The first byte of a register of a thread of the grid.
pub(super) fn place_of(class: Class, register: usize, thread: usize) -> usize {
    place(class, register) * ALL + thread * class.bytes()
}
