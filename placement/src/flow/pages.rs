//! Memory in large pages.
//!
//! Searches go through rows and columns of tens of megabytes in no order. With pages of 4 KiB nearly every access also has to
//! look for its page; with large ones the processor knows where all of them are.

/// Less is not worth it: the size of a large page.
const LARGE: usize = 2 << 20;

/// A vector of so many equal elements, with room for an eighth more, in large pages where the system has them.
pub(super) fn vec_in_large_pages<T: Copy>(value: T, length: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(length + length / 8);
    advise(&mut all);
    all.resize(length, value);
    all
}

/// Asks for large pages, before any of a vector's memory is touched.
fn advise<T>(all: &mut Vec<T>) {
    let room = all.spare_capacity_mut();
    let begin = (room.as_ptr() as usize).next_multiple_of(LARGE);
    let end = (room.as_ptr() as usize + size_of_val(room)) / LARGE * LARGE;
    if begin >= end {
        return;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: the range lies within memory of the vector's, whose contents this does not change. It is only a hint, so that what
    // becomes of it does not matter.
    unsafe {
        libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_HUGEPAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_short_ones_are_as_ordinary_vectors() {
        for length in [0, 1, 1000, LARGE, 3 * LARGE + 5] {
            let mut all = vec_in_large_pages(7u32, length);
            assert!(all.len() == length && all.iter().all(|n| *n == 7));
            all.extend_from_slice(&[8; 100]);
            assert_eq!(all[length..], [8; 100]);
        }
    }
}
