//! Stands in for the knowledge of a processor where there is none: nothing is redirected.

/// No object is taken for one of this processor.
pub(super) const ELF_MACHINE: u16 = object::elf::EM_NONE;
/// Whether functions can be redirected.
pub(super) const CAN_REDIRECT: bool = false;
/// How many bytes [`jump`] gives.
pub(super) const JUMP_LENGTH: usize = 1;

/// Nothing is ever redirected.
pub(super) fn jump(_: usize) -> [u8; JUMP_LENGTH] {
    [0]
}

/// No instruction is known.
pub(super) fn stored_constants(_: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::empty()
}

/// No instruction is known.
pub(super) fn calls(_: &[u8], _: u64) -> impl Iterator<Item = u64> {
    std::iter::empty()
}

/// The dynamic loader is left alone.
pub(super) fn hook_breakpoint(_: usize, _: extern "C" fn()) -> bool {
    false
}

/// Whether code is nothing but padding.
pub(super) fn is_padding(_: &[u8]) -> bool {
    false
}

/// Nothing is written.
pub(super) fn flush(_: usize, _: usize) {}
