//! The last error as the program sees it: the thread's own, or else the sticky error of its device.

use super::error;
use super::process::existing;
use super::thread::ordinal_hint;

/// The thread's last error (`cudaPeekAtLastError`), 0 if none; a sticky error of the current device counts.
pub(crate) fn peek_last() -> u32 {
    or_sticky(error::last())
}

/// As [`peek_last`], and clears it (`cudaGetLastError`); a sticky error stays.
pub(crate) fn take_last() -> u32 {
    or_sticky(error::take_own_last())
}

fn or_sticky(last: u32) -> u32 {
    match last {
        0 => existing().map_or(0, |core| core.sticky_code(ordinal_hint())),
        last => last,
    }
}
