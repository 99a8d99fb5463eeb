//! Which memory of the process may be registered, and which is.

use super::endpoint::{Endpoint, Registered};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The most bytes that are registered at a time, beside the rings: registered memory cannot be swapped.
const MOST: u64 = 1 << 30;
/// Memory is registered in parts of this size.
const PART: u64 = 16 << 20;

#[derive(Default)]
struct Registrations {
    /// Announced memory: starts and lengths.
    announced: BTreeMap<u64, u64>,
    /// Registered parts: starts, lengths, when last used.
    registered: BTreeMap<u64, (u64, u64, Arc<Registered>)>,
    bytes: u64,
    clock: u64,
    /// After a refusal nothing is tried until something was given back.
    refused: bool,
}

/// Announced memory, of which what is used stays registered, as far as that goes.
#[derive(Default)]
pub(super) struct Regions {
    state: Mutex<Registrations>,
}

impl Regions {
    fn lock(&self) -> std::sync::MutexGuard<'_, Registrations> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory that stays mapped, and the same, until it is retired.
    pub(super) fn announce(&self, addr: u64, length: u64) {
        self.lock().announced.insert(addr, length);
    }

    /// The memory that was announced at `addr` may go.
    pub(super) fn retire(&self, addr: u64) {
        let mut state = self.lock();
        let Some(length) = state.announced.remove(&addr) else { return };
        let gone: Vec<u64> = state.registered.range(addr..addr + length).map(|(a, _)| *a).collect();
        for start in gone {
            if let Some((length, ..)) = state.registered.remove(&start) {
                state.bytes -= length;
            }
        }
        state.refused = false;
    }

    /// Whether an address lies in announced memory.
    pub(super) fn knows(&self, addr: u64) -> bool {
        self.lock().announced_at(addr).is_some()
    }

    /// The registration of `length` bytes at `addr`, if that is announced memory, lies in one part, and can be registered;
    /// otherwise the bytes must be copied.
    pub(super) fn key(&self, endpoint: &Endpoint, addr: u64, length: usize) -> Option<Arc<Registered>> {
        let mut state = self.lock();
        let (base, size) = state.announced_at(addr)?;
        let start = base + (addr - base) / PART * PART;
        let end = (start + PART).min(base + size);
        if addr + length as u64 > end {
            return None;
        }
        state.clock += 1;
        let now = state.clock;
        if let Some((_, used, key)) = state.registered.get_mut(&start) {
            *used = now;
            return Some(key.clone());
        }
        if state.refused {
            return None;
        }
        while state.bytes + (end - start) > MOST {
            state.forget_one()?;
        }
        loop {
            // Nobody writes there by RDMA.
            match endpoint.register(start as *mut u8, (end - start) as usize, 0) {
                Ok(registered) => {
                    let registered = Arc::new(registered);
                    state.bytes += end - start;
                    state.registered.insert(start, (end - start, now, registered.clone()));
                    return Some(registered);
                }
                // The limit on locked memory, most likely: make room, or else copy.
                Err(_) if state.forget_one().is_some() => {}
                Err(_) => {
                    state.refused = true;
                    return None;
                }
            }
        }
    }
}

impl Registrations {
    fn announced_at(&self, addr: u64) -> Option<(u64, u64)> {
        let (base, length) = self.announced.range(..=addr).next_back()?;
        (addr - base < *length).then_some((*base, *length))
    }

    /// Gives back what has not been used for longest.
    fn forget_one(&mut self) -> Option<()> {
        let oldest = self.registered.iter().min_by_key(|(_, (_, used, _))| *used).map(|(start, _)| *start)?;
        let (length, ..) = self.registered.remove(&oldest)?;
        self.bytes -= length;
        Some(())
    }
}
