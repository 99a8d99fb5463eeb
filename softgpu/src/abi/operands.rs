//! Where operations on textures and bulk copies have their operands and results.

use super::MOST_LANES;

/// Words of 32 bits that an operation has for operands and results.
pub const WORDS: usize = 12;

/// Operands and results of one thread's operation, as they lie in [`Block::words`](super::Block::words).
pub type Words = [u32; WORDS];

/// Operands and results of an operation that a group of threads makes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub struct Operands {
    /// By lane: the handle of the texture or surface, or the address of a tensor map or of memory.
    pub objects: [u64; MOST_LANES],
    /// By word and lane: the [`Words`] of all threads.
    pub words: [[u32; MOST_LANES]; WORDS],
    /// By lane: 0, or the trap that the thread ends with. Written for all lanes.
    pub traps: [u32; MOST_LANES],
}
