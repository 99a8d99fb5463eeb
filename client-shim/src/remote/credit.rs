//! Memory credit: what may be allocated without asking.

use super::link::Link;
use parking_lot::Mutex;
use rgpu_device::{Code, Error, Ordinal, Result};
use std::collections::HashMap;

/// Asked for at once, at least.
const STEP: u64 = 2 << 20;
/// So much unused credit is kept for the next allocation; more is given back.
const KEPT: u64 = 512 << 20;

/// The credit of each ordinal, and what it was spent on.
pub(super) struct Credit {
    state: Mutex<State>,
}

struct State {
    left: Vec<u64>,
    /// By address: ordinal and size.
    spent: HashMap<u64, (Ordinal, u64)>,
}

impl Credit {
    pub fn new(left: Vec<u64>) -> Self {
        Self { state: Mutex::new(State { left, spent: HashMap::new() }) }
    }

    /// Spends credit on an allocation, asking for more where it does not suffice, then sends the
    /// allocation with `post`. All under one lock, so that allocations and releases reach the server in
    /// the order in which they were accounted for.
    pub fn spend(
        &self,
        link: &Link,
        ordinal: Ordinal,
        addr: u64,
        size: u64,
        post: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let at = ordinal as usize;
        let Some(&left) = state.left.get(at) else {
            return Err(Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")));
        };
        if left < size {
            let granted = link.credit_ask(ordinal, (size - left).next_multiple_of(STEP))?;
            state.left[at] = left.saturating_add(granted);
        }
        if state.left[at] < size {
            let text = format!("Device {ordinal} has no {size} bytes of memory left for this program");
            return Err(Error::new(Code::OutOfMemory, text));
        }
        post()?;
        state.left[at] -= size;
        state.spent.insert(addr, (ordinal, size));
        Ok(())
    }

    /// Sends a release with `post`, and regains the credit. False where nothing was allocated there.
    pub fn regain(&self, link: &Link, addr: u64, post: impl FnOnce() -> Result<()>) -> Result<bool> {
        let mut state = self.state.lock();
        let Some(&(ordinal, size)) = state.spent.get(&addr) else { return Ok(false) };
        post()?;
        state.spent.remove(&addr);
        let left = &mut state.left[ordinal as usize];
        *left += size;
        if *left > KEPT {
            let excess = *left - KEPT / 2;
            *left -= excess;
            link.credit_return(ordinal, excess)?;
        }
        Ok(true)
    }

    /// Everything on an ordinal was released.
    pub fn reset(&self, ordinal: Ordinal) {
        let mut state = self.state.lock();
        let mut regained = 0;
        state.spent.retain(|_, (o, size)| {
            let gone = *o == ordinal;
            regained += if gone { *size } else { 0 };
            !gone
        });
        if let Some(left) = state.left.get_mut(ordinal as usize) {
            *left += regained;
        }
    }
}
