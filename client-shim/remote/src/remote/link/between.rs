//! The order between a lock that is tried and a word that is left for whoever has it.

/// To be called after a word was left, before the lock is tried; and after the lock was given up, before the word is looked for. Without
/// it both could find the other's old state, and nobody would do what the word asks for.
#[inline(always)]
pub(super) fn between() {
    // On x86-64 all four are instructions that nothing passes.
    if cfg!(not(target_arch = "x86_64")) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}
