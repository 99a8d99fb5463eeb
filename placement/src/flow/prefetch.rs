//! Asking for memory before it is needed.

/// How many bytes the processor fetches at once.
const LINE: usize = 64;

/// Asks for what a slice is in, which a search will probably read soon: no more than the first `most` lines of the cache.
///
/// Where searches go, nearly every access misses the caches, and the next depends on it. What is asked for early enough
/// comes meanwhile.
#[inline]
pub(super) fn prefetch<T>(slice: &[T], most: usize) {
    let begin = slice.as_ptr().cast::<i8>();
    let lines = size_of_val(slice).div_ceil(LINE).min(most);
    for line in 0..lines {
        let address = begin.wrapping_add(line * LINE);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: it is only a hint, which reads nothing as far as the program can tell, and never faults.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(address);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}
