//! Spending memory credit, and returning it.

use super::{Link, between};
use crate::remote::credit::Credit;
use crate::remote::outgoing::Urgent;
use rgpu_device::{Code, Error, Ordinal, Result};
use std::sync::atomic::Ordering::SeqCst;

/// Asked for at once, at least.
const STEP: u64 = 2 << 20;

impl Credit {
    /// The server calls credit back. Called by whoever reads the connection: it must not wait for the account, whose holder may
    /// be waiting for an answer that is to be read.
    pub(in crate::remote) fn recall(&self, link: &Link, ordinal: Ordinal, bytes: u64) {
        // Each recall tells all that is too much as of then.
        self.recalled.lock().insert(ordinal, bytes);
        self.any_recalled.store(true, SeqCst);
        self.return_recalled(link);
    }

    /// Returns what was called back and is not spent, unless somebody has the account, who will.
    fn return_recalled(&self, link: &Link) {
        loop {
            between();
            if !self.any_recalled.load(SeqCst) {
                return;
            }
            let Some(mut account) = self.account.try_lock() else { return };
            self.any_recalled.store(false, SeqCst);
            // Sending may have to read, and what is read may call back more: the list is not locked meanwhile.
            let recalled = std::mem::take(&mut *self.recalled.lock());
            for (ordinal, bytes) in recalled {
                let returned = account.take(ordinal, bytes);
                if returned > 0 {
                    link.answer(Urgent::Credit(ordinal, returned));
                }
            }
        }
    }

    /// Spends credit on an allocation, asking for more where it does not suffice, then sends the
    /// allocation with `post`. All under one lock, so that allocations and releases reach the server in
    /// the order in which they were accounted for.
    pub(in crate::remote) fn spend(
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
        let mut account = self.account.lock();
        let Some(left) = account.left(ordinal) else {
            return Err(Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")));
        };
        if left < size {
            let granted = link.credit_ask(ordinal, (size - left).next_multiple_of(STEP))?;
            account.grant(ordinal, granted);
        }
        if account.left(ordinal) < Some(size) {
            let text = format!("Device {ordinal} has no {size} bytes of memory left for this program");
            return Err(Error::new(Code::OutOfMemory, text));
        }
        post()?;
        account.spend(ordinal, addr, size);
        Ok(())
    }

    /// Sends a release with `post`, and regains the credit. False where nothing was allocated there.
    pub(in crate::remote) fn regain(
        &self,
        link: &Link,
        addr: u64,
        post: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let regained = self.regain_locked(link, addr, post);
        self.return_recalled(link);
        regained
    }

    fn regain_locked(&self, link: &Link, addr: u64, post: impl FnOnce() -> Result<()>) -> Result<bool> {
        let mut account = self.account.lock();
        if !account.has(addr) {
            return Ok(false);
        }
        post()?;
        if let Some((ordinal, excess @ 1..)) = account.regain(addr) {
            link.credit_return(ordinal, excess)?;
        }
        Ok(true)
    }
}
