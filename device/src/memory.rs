//! Addresses: which the device and the application agree on, and what kinds of memory stand there.

use crate::{Code, Error, Result};

/// A span of addresses, `base..base + size`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// Address of its first byte.
    pub base: u64,
    /// Length in bytes.
    pub size: u64,
}

impl Range {
    /// Whether the `len` bytes at `addr` lie inside this range. False on overflow.
    #[inline]
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.base && len <= self.size && addr - self.base <= self.size - len
    }

    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.base + self.size
    }

    /// Whether some address is in both.
    #[inline]
    pub fn overlaps(self, other: Range) -> bool {
        self.base < other.end() && other.base < self.end()
    }

    /// What is left of this range without `hole`: nothing, one range or two.
    pub fn without(self, hole: Range) -> Vec<Range> {
        if !self.overlaps(hole) {
            return vec![self];
        }
        let mut rest = Vec::new();
        if self.base < hole.base {
            rest.push(Range { base: self.base, size: hole.base - self.base });
        }
        if self.end() > hole.end() {
            rest.push(Range { base: hole.end(), size: self.end() - hole.end() });
        }
        rest
    }
}

/// Which addresses mean what, agreed between the application and its device.
///
/// `devices` and `shared` are disjoint parts of `whole`; the rest of `whole` belongs to the device
/// implementation (module-level variables, shared- and local-memory windows, its heap). The application
/// keeps all of `whole` reserved, so that no pointer of its own can be mistaken for a device pointer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressPlan {
    /// Everything that is reserved.
    pub whole: Range,
    /// For each ordinal, where the caller may place [`MemoryKind::Device`] memory.
    pub devices: Vec<Range>,
    /// Where the caller may place [`MemoryKind::Direct`] and [`MemoryKind::Mirrored`] memory.
    pub shared: Range,
}

/// Memory is allocated in multiples of this, at multiples of it.
pub const PAGE: u64 = 4096;

impl AddressPlan {
    /// Checks that an allocation may lie there: whole pages in the range for its kind.
    ///
    /// # Errors
    /// [`Code::InvalidDevice`] where there is no such ordinal; [`Code::InvalidValue`].
    pub fn check_place(&self, ordinal: u32, addr: u64, size: u64, kind: MemoryKind) -> Result<Range> {
        let Some(own) = self.devices.get(ordinal as usize) else {
            return Err(Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")));
        };
        let invalid =
            |what: &str| Err(Error::new(Code::InvalidValue, format!("{what}: {size} bytes at {addr:#x}")));
        if size == 0 || !size.is_multiple_of(PAGE) || !addr.is_multiple_of(PAGE) {
            return invalid("Memory is allocated in whole pages");
        }
        let range = if kind == MemoryKind::Device { own } else { &self.shared };
        if !range.contains(addr, size) {
            return invalid("The memory would lie outside its range");
        }
        Ok(Range { base: addr, size })
    }
}

/// Which of several `Device`s that serve one application this is. All of them are proposed the same addresses; each uses a
/// part of its own for whatever is its alone, and all agree on where shared memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// Counted from 0.
    pub index: u32,
    /// How many there are.
    pub of: u32,
}

impl Seat {
    /// The only one.
    pub const ALONE: Self = Self { index: 0, of: 1 };
    /// The most that can share addresses.
    pub const MOST: u32 = 64;
    /// Parts begin at multiples of this, and have as much unused at their end.
    const GRAIN: u64 = 1 << 30;
    /// The most addresses for shared memory.
    const SHARED: u64 = 256 << 30;

    /// Whether there is no other.
    pub fn is_alone(self) -> bool {
        self.of <= 1
    }

    /// What is this seat's alone in a proposal, and where shared memory lies for all. `None` where the proposal is too
    /// small, or there is no such seat.
    pub fn parts(self, proposal: Range) -> Option<(Range, Range)> {
        if self.index >= self.of || self.of > Self::MOST {
            return None;
        }
        let end = proposal.base.checked_add(proposal.size)?;
        let base = proposal.base.checked_next_multiple_of(Self::GRAIN)?;
        let part = end.checked_sub(base)? / u64::from(self.of + 1) / Self::GRAIN * Self::GRAIN;
        if part < 4 * Self::GRAIN {
            return None;
        }
        let own = Range { base: base + u64::from(self.index + 1) * part, size: part - Self::GRAIN };
        let shared = (part - 2 * Self::GRAIN).min(Self::SHARED);
        Some((own, Range { base: base + Self::GRAIN, size: shared }))
    }
}

/// What a program does with its memory, for a device that looks whether kernels keep to it. A device is asked for memory in pages and
/// larger pieces, of which the caller hands out parts: this is what the program knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryNote {
    /// The program may use these bytes from now on.
    Allocated {
        /// The bytes, in the device's addresses.
        range: Range,
        /// Whether it is memory of the device that nothing was written to, and that the program has to free.
        device: bool,
    },
    /// The program has freed what begins at this address.
    Freed {
        /// Where it begins.
        base: u64,
        /// The stream in whose order it is free; without one, it is at once.
        stream: Option<crate::Handle>,
    },
    /// The program has freed what is not allocated.
    BadFree {
        /// The address that it gave.
        address: u64,
    },
    /// The program ends.
    End,
}

/// Who can see an allocation, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum MemoryKind {
    /// Only the device sees it. Placed in the ordinal's device range.
    Device = 0,
    /// Host and device see the same bytes ([`crate::Device::shares_memory`]). Placed in the shared range.
    Direct = 1,
    /// Host and device each have a copy. Placed in the shared range. The device reads pages through
    /// [`crate::Host::fetch`] when a kernel first touches them, and hands back what it changed through
    /// [`crate::Device::collect_shared_writes`].
    Mirrored = 2,
}

impl TryFrom<u32> for MemoryKind {
    type Error = Error;
    fn try_from(value: u32) -> Result<Self> {
        match value {
            0 => Ok(Self::Device),
            1 => Ok(Self::Direct),
            2 => Ok(Self::Mirrored),
            _ => Err(Error::new(Code::InvalidValue, format!("memory kind {value} does not exist"))),
        }
    }
}

/// What stands for memory that one process lends to others. Who does not know it cannot guess it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryToken(pub [u8; 32]);

/// Free and total memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryInfo {
    /// Bytes not allocated.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_share_a_proposal() {
        let proposal = Range { base: (7 << 40) + 4096, size: 1 << 40 };
        let parts: Vec<_> = (0..3).map(|index| Seat { index, of: 3 }.parts(proposal).unwrap()).collect();
        let mut all = vec![parts[0].1];
        for (own, shared) in parts {
            assert_eq!(shared, all[0]);
            assert!(all.iter().all(|other| own.base >= other.end() || other.base >= own.end()));
            assert!(own.size > 200 << 30 && proposal.contains(own.base, own.size));
            all.push(own);
        }
        assert_eq!(Seat { index: 3, of: 3 }.parts(proposal), None);
        assert_eq!(Seat { index: 0, of: 3 }.parts(Range { size: 8 << 30, ..proposal }), None);
        let wraps = Range { base: u64::MAX - 4096, size: 1 << 40 };
        assert_eq!(Seat { index: 0, of: 3 }.parts(wraps), None);
    }

    #[test]
    fn allocations_have_their_places() {
        let range = |base, size| Range { base: base * PAGE, size: size * PAGE };
        let plan = AddressPlan { whole: range(1, 99), devices: vec![range(10, 10)], shared: range(30, 10) };
        let check = |page: u64, pages: u64, kind| {
            plan.check_place(0, page * PAGE, pages * PAGE, kind).map_err(|e| e.code)
        };
        assert_eq!(check(10, 10, MemoryKind::Device), Ok(range(10, 10)));
        for kind in [MemoryKind::Mirrored, MemoryKind::Direct] {
            assert_eq!(check(39, 1, kind), Ok(range(39, 1)));
            assert_eq!(check(10, 1, kind), Err(Code::InvalidValue));
        }
        for (page, pages) in [(9, 1), (10, 11), (20, 1), (30, 1), (10, 0)] {
            assert_eq!(check(page, pages, MemoryKind::Device), Err(Code::InvalidValue));
        }
        let odd =
            |ordinal, addr, size| plan.check_place(ordinal, addr, size, MemoryKind::Device).unwrap_err().code;
        assert_eq!(odd(0, 10 * PAGE + 8, PAGE), Code::InvalidValue);
        assert_eq!(odd(0, 10 * PAGE, PAGE - 8), Code::InvalidValue);
        assert_eq!(odd(0, !(PAGE - 1), PAGE), Code::InvalidValue);
        assert_eq!(odd(1, 10 * PAGE, PAGE), Code::InvalidDevice);
    }

    #[test]
    fn what_is_left_of_a_range_is_what_is_in_no_hole() {
        let range = |base, end| Range { base, size: end - base };
        let whole = range(10, 20);
        for base in 5..25 {
            for end in base + 1..26 {
                let hole = range(base, end);
                let left = whole.without(hole);
                let inside = |at: u64| left.iter().filter(|part| part.contains(at, 1)).count();
                for at in 0..30 {
                    let expected = whole.contains(at, 1) && !hole.contains(at, 1);
                    assert_eq!(inside(at), usize::from(expected), "{at} of {hole:?}: {left:?}");
                }
                assert!(left.iter().all(|part| part.size > 0), "{left:?}");
                assert_eq!(
                    whole.overlaps(hole),
                    (5..25).any(|at| whole.contains(at, 1) && hole.contains(at, 1))
                );
            }
        }
    }
}
