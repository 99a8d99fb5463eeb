//! Memory credit: what may be allocated without asking.

use super::link::Link;
use super::outgoing::Urgent;
use parking_lot::Mutex;
use rgpu_device::{Code, Error, Ordinal, Region, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Asked for at once, at least.
const STEP: u64 = 2 << 20;
/// So much unused credit is kept for the next allocation; more is given back.
const KEPT: u64 = 512 << 20;

/// The credit of each ordinal, and what it was spent on.
pub(super) struct Credit {
    state: Mutex<State>,
    /// What the server calls back, by ordinal, for whoever has the state.
    recalled: Mutex<HashMap<Ordinal, u64>>,
    any_recalled: AtomicBool,
}

struct State {
    left: Vec<u64>,
    /// By address: ordinal and size.
    spent: BTreeMap<u64, (Ordinal, u64)>,
}

impl State {
    fn holds(&self, region: &Region) -> bool {
        let Some(end) = region.extent().and_then(|extent| region.addr.checked_add(extent)) else {
            return false;
        };
        let mut at = region.addr;
        while at < end {
            match self.spent.range(..=at).next_back() {
                Some((base, (_, size))) if at - base < *size => at = base + size,
                _ => return false,
            }
        }
        true
    }
}

impl Credit {
    pub fn new(left: Vec<u64>) -> Self {
        let state = Mutex::new(State { left, spent: BTreeMap::new() });
        Self { state, recalled: Mutex::default(), any_recalled: AtomicBool::new(false) }
    }

    /// The server calls credit back. Called by whoever reads the connection: it must not wait for the state, whose holder may be
    /// waiting for an answer that is to be read.
    pub fn recall(&self, link: &Link, ordinal: Ordinal, bytes: u64) {
        // Each recall tells all that is too much as of then.
        self.recalled.lock().insert(ordinal, bytes);
        self.any_recalled.store(true, SeqCst);
        self.return_recalled(link);
    }

    /// Returns what was called back and is not spent, unless somebody has the state, who will.
    fn return_recalled(&self, link: &Link) {
        while self.any_recalled.load(SeqCst) {
            let Some(mut state) = self.state.try_lock() else { return };
            self.any_recalled.store(false, SeqCst);
            for (ordinal, bytes) in std::mem::take(&mut *self.recalled.lock()) {
                let Some(left) = state.left.get_mut(ordinal as usize) else { continue };
                let returned = bytes.min(*left);
                if returned > 0 {
                    *left -= returned;
                    link.answer(Urgent::Credit(ordinal, returned));
                }
            }
        }
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
        let spent = self.spend_locked(link, ordinal, addr, size, post);
        self.return_recalled(link);
        spent
    }

    fn spend_locked(
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
        let regained = self.regain_locked(link, addr, post);
        self.return_recalled(link);
        regained
    }

    fn regain_locked(&self, link: &Link, addr: u64, post: impl FnOnce() -> Result<()>) -> Result<bool> {
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

    /// Whether a region lies in what was allocated, in one allocation or in several side by side. False also where nobody can
    /// tell at once, because somebody is waiting for credit.
    pub fn holds(&self, region: &Region) -> bool {
        self.state.try_lock().is_some_and(|state| state.holds(region))
    }

    /// [`Credit::holds`], for who can wait.
    pub fn holds_for_sure(&self, region: &Region) -> bool {
        self.state.lock().holds(region)
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
