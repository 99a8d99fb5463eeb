//! Reserving addresses in this process, without memory behind them.

use rgpu_device::{Code, Error, Range, Result};
use std::io;

const GIB: u64 = 1 << 30;
/// Sizes to try: far above any machine's device memory first, because addresses cost nothing.
const SIZES: [u64; 6] = [4096 * GIB, 1024 * GIB, 256 * GIB, 64 * GIB, 32 * GIB, 16 * GIB];
/// Bases to try lie from here on: in the gap between the heap and the libraries, clear of sanitizers' shadow
/// memory.
const FIRST_BASE: u64 = 0x2000_0000_0000;
/// How many bases to try for each size.
const BASES: u64 = 16;

/// The ranges to try, best first.
pub(super) fn candidates() -> impl Iterator<Item = Range> {
    SIZES.into_iter().flat_map(|size| (0..BASES).map(move |i| Range { base: FIRST_BASE + i * size, size }))
}

/// The ranges to try for so many servers, best first: room for as much as one server would be offered, if possible.
pub(super) fn candidates_for(servers: u32) -> impl Iterator<Item = Range> {
    let larger =
        [4 * SIZES[0], 2 * SIZES[0]].into_iter().filter(move |size| *size / SIZES[0] <= u64::from(servers));
    let larger = larger.flat_map(|size| {
        let bases = BASES * SIZES[0] / size - 1;
        (0..bases).map(move |i| Range { base: FIRST_BASE + i * size, size })
    });
    larger.chain(candidates())
}

/// Addresses that belong to this process and lead nowhere. Released when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    range: Range,
}

impl Reservation {
    /// Reserves exactly this range.
    pub(super) fn new(range: Range) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let (base, size) = (range.base as *mut libc::c_void, range.size as usize);
        // SAFETY: with MAP_FIXED_NOREPLACE nothing that is mapped already is touched.
        let at = unsafe { libc::mmap(base, size, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let reservation = Self { range: Range { base: at as u64, size: range.size } };
        if at != base {
            // A kernel before 4.17 takes the address as a hint.
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        // SAFETY: the range was mapped just now.
        unsafe { libc::madvise(at, size, libc::MADV_DONTDUMP) };
        Ok(reservation)
    }

    /// The reserved range.
    pub(super) fn range(&self) -> Range {
        self.range
    }

    /// Keeps the part that is used, and releases the rest.
    pub(super) fn shrink(mut self, part: Range) -> Self {
        let all = self.range;
        if part.size > 0 && all.contains(part.base, part.size) {
            release(all.base, part.base - all.base);
            release(part.end(), all.end() - part.end());
            self.range = part;
        }
        self
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        release(self.range.base, self.range.size);
    }
}

fn release(base: u64, size: u64) {
    if size > 0 {
        // SAFETY: the caller names a part of a reservation of ours that nobody uses.
        unsafe { libc::munmap(base as *mut libc::c_void, size as usize) };
    }
}

/// Addresses for several servers of one program, of which each gets a part.
pub struct CommonAddresses(Reservation);

impl CommonAddresses {
    /// Reserves the best range that was not tried yet, for so many servers, and notes what was tried.
    pub fn next(tried: &mut Vec<Range>, count: u32) -> Result<Self> {
        let mut last = io::Error::from_raw_os_error(libc::ENOMEM);
        for candidate in candidates_for(count) {
            if tried.contains(&candidate) {
                continue;
            }
            tried.push(candidate);
            match Reservation::new(candidate) {
                Ok(reservation) => return Ok(Self(reservation)),
                Err(e) => last = e,
            }
        }
        Err(refusal(&last))
    }

    /// What was reserved.
    pub fn range(&self) -> Range {
        self.0.range()
    }
}

/// Reserves the first of these ranges that is free in this process.
pub(super) fn next_free(candidates: &mut impl Iterator<Item = Range>) -> Result<Reservation> {
    let mut last = io::Error::from_raw_os_error(libc::ENOMEM);
    for candidate in candidates {
        match Reservation::new(candidate) {
            Ok(reservation) => return Ok(reservation),
            Err(e) => last = e,
        }
    }
    Err(refusal(&last))
}

/// Why no range could be reserved, for people.
fn refusal(last: &io::Error) -> Error {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    let cause = if limit.rlim_cur == libc::RLIM_INFINITY {
        format!("the kernel said: {last}")
    } else {
        format!(
            "this process may use {} KiB of address space (`ulimit -v`); raise it to unlimited, no memory \
             is used by it",
            limit.rlim_cur / 1024
        )
    };
    Error::new(
        Code::OutOfMemory,
        format!("Cannot reserve addresses for device memory, not even {} GiB: {cause}", SIZES[5] / GIB),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_are_offered_more() {
        assert!(candidates_for(1).eq(candidates()));
        for servers in [2, 4, 64] {
            let all: Vec<_> = candidates_for(servers).collect();
            assert!(all[0].size / (u64::from(servers) + 1) >= SIZES[0] / 32 && all[0].size > SIZES[0]);
            assert!(all.iter().all(|range| range.base >= FIRST_BASE && range.end() < 1 << 47), "{all:x?}");
        }
    }

    #[test]
    fn a_taken_range_is_not_replaced() {
        let range = Range { base: 0x2345_0000_0000, size: 1 << 30 };
        let first = Reservation::new(range).unwrap();
        assert_eq!(Reservation::new(range).unwrap_err().raw_os_error(), Some(libc::EEXIST));
        let first = first.shrink(Range { base: range.base + 4096, size: 4096 });
        // All but one page is free again.
        drop(Reservation::new(Range { base: range.base, size: 4096 }).unwrap());
        assert!(Reservation::new(range).is_err());
        drop(first);
        assert!(Reservation::new(range).is_ok());
    }
}
