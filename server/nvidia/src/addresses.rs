//! Reserving addresses that the program and the driver agree on.
//!
//! The address given to the driver is only a hint, so each answer is looked at. Where the driver gives others
//! than were asked for, they serve just as well if they lie in the proposal; else the proposal is refused, and
//! the program makes another one.

use super::driver::Driver;
use super::memory::PIECE;
use rgpu_device::{AddressPlan, Code, Error, Range, Result, Seat};

/// The least addresses for shared memory.
const SHARED_LEAST: u64 = 1 << 30;
/// The addresses for shared memory that are asked for first.
const SHARED_MOST: u64 = 64 << 30;

/// Gives reserved ranges back unless they are kept.
struct Held<'a> {
    driver: &'a Driver,
    ranges: Vec<Range>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for range in &self.ranges {
            let _ = self.driver.address_free(range.base, range.size);
        }
    }
}

/// Reserves what devices with so much memory each need inside the proposal. `enter` makes the context of an
/// ordinal current.
pub(crate) fn reserve(
    driver: &Driver,
    proposal: Range,
    seat: Seat,
    memory: &[u64],
    enter: &dyn Fn(usize) -> Result<()>,
) -> Result<AddressPlan> {
    let (proposal, agreed) = match seat.is_alone() {
        true => (proposal, None),
        false => {
            let too_small = || {
                let text = format!("{} bytes are too few for {} servers", proposal.size, seat.of);
                Error::new(Code::MapFailed, text)
            };
            let (own, shared) = seat.parts(proposal).ok_or_else(too_small)?;
            (own, Some(shared))
        }
    };
    let misplaced = || Error::new(Code::InvalidValue, "An address plan must begin at a page above 0");
    if proposal.base == 0 || proposal.base.checked_add(proposal.size).is_none() {
        return Err(misplaced());
    }
    let start = proposal.base.checked_next_multiple_of(PIECE).ok_or_else(misplaced)?;
    let all: u64 = memory.iter().fold(0, |n, m| n.saturating_add(*m));
    let sizes = |bytes: u64, most: u64| {
        // Allocations lie apart, and freed addresses rest for a while: several times the memory is wanted.
        [4, 2, 1].map(|times| bytes.saturating_mul(times).min(most).max(PIECE)).map(|n| n / PIECE * PIECE)
    };
    let mut held = Held { driver, ranges: Vec::new() };
    let mut next = start;
    let room = |next: u64| proposal.base.saturating_add(proposal.size).saturating_sub(next);
    for (ordinal, &bytes) in memory.iter().enumerate() {
        enter(ordinal)?;
        let bytes = bytes.next_multiple_of(PIECE).saturating_add(64 * PIECE);
        let most = room(next);
        let wanted = sizes(bytes, u64::MAX).into_iter().filter(|size| *size <= most);
        take(&mut held, proposal, &mut next, wanted)?;
    }
    enter(0)?;
    let mut size = all.max(SHARED_MOST).next_multiple_of(PIECE);
    let mut wanted = Vec::new();
    while size >= SHARED_LEAST {
        if size <= room(next) {
            wanted.push(size);
        }
        size = (size / 2).next_multiple_of(PIECE);
    }
    match agreed {
        None => take(&mut held, proposal, &mut next, wanted.into_iter())?,
        // The same for all, so nothing else will do.
        Some(shared) => take(&mut held, shared, &mut { shared.base }, [shared.size].into_iter())?,
    }
    let mut ranges = std::mem::take(&mut held.ranges);
    let low = ranges.iter().map(|r| r.base).min().unwrap_or(start);
    let high = ranges.iter().map(Range::end).max().unwrap_or(start);
    let shared = ranges.pop().unwrap_or_default();
    Ok(AddressPlan { whole: Range { base: low, size: high - low }, devices: ranges, shared })
}

/// Reserves a range of the first of these sizes that can be had.
fn take(
    held: &mut Held<'_>,
    proposal: Range,
    next: &mut u64,
    sizes: impl Iterator<Item = u64>,
) -> Result<()> {
    let mut last = None;
    for size in sizes {
        for hint in [*next, 0] {
            let base = match held.driver.address_reserve(size, 0, hint) {
                Ok(base) => base,
                Err(e) => {
                    last = Some(e.message);
                    continue;
                }
            };
            let range = Range { base, size };
            let fits = base.checked_add(size).is_some()
                && proposal.contains(base, size)
                && base.is_multiple_of(PIECE);
            if fits {
                held.ranges.push(range);
                // A gap, so that running over an end faults.
                if hint != 0 {
                    *next = range.end() + PIECE;
                }
                return Ok(());
            }
            let _ = held.driver.address_free(base, size);
            last = Some(format!("it gave {base:#x} when asked for {hint:#x}"));
        }
    }
    let why = last.unwrap_or_else(|| format!("{} bytes are too few", proposal.size));
    let text = format!(
        "The driver has no addresses for device memory in the {} bytes at {:#x}: {why}",
        proposal.size, proposal.base
    );
    Err(Error::new(Code::MapFailed, text))
}

/// Makes sure after a device was reset that a range is still reserved.
pub(crate) fn reserve_again(driver: &Driver, range: Range) -> Result<()> {
    match driver.address_reserve(range.size, 0, range.base) {
        // It was not.
        Ok(base) if base == range.base => Ok(()),
        // It was, so the driver gave another one.
        Ok(base) => driver.address_free(base, range.size),
        Err(_) => Ok(()),
    }
}
