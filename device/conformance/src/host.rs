//! The application's side, as a test sees it.

use rgpu_device::{Code, Error, Host, Result};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes of a page of mirrored memory.
pub(crate) const PAGE: u64 = 4096;

/// How long anything may take; only what hangs takes that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An application that remembers what its device has asked of it.
#[derive(Default)]
pub struct TestHost {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    printed: Vec<u8>,
    /// The host's copy of mirrored memory, by page.
    pages: BTreeMap<u64, Vec<u8>>,
    fetched: Vec<u64>,
    functions: Vec<u64>,
}

impl TestHost {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What kernels have printed.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&self.seen().printed).into_owned()
    }

    /// Which pages of mirrored memory were asked for.
    pub fn fetched(&self) -> Vec<u64> {
        self.seen().fetched.clone()
    }

    /// Puts bytes into the host's copy of mirrored memory.
    pub fn store(&self, addr: u64, bytes: &[u8]) {
        let mut seen = self.seen();
        for (i, byte) in bytes.iter().enumerate() {
            let at = addr + i as u64;
            let page = seen.pages.entry(at / PAGE * PAGE).or_insert_with(|| vec![0; PAGE as usize]);
            page[(at % PAGE) as usize] = *byte;
        }
    }

    /// Bytes of the host's copy of mirrored memory; zeros where it has none.
    pub fn load(&self, addr: u64, len: u64) -> Vec<u8> {
        let seen = self.seen();
        let byte = |at: u64| seen.pages.get(&(at / PAGE * PAGE)).map_or(0, |page| page[(at % PAGE) as usize]);
        (addr..addr + len).map(byte).collect()
    }

    /// Waits until a stream has reached this host function.
    pub fn wait_for_function(&self, id: u64) {
        let end = Instant::now() + PATIENCE;
        let mut seen = self.seen();
        while !seen.functions.contains(&id) {
            assert!(Instant::now() < end, "no stream has reached the host function {id}");
            let waited = self.changed.wait_timeout(seen, PATIENCE);
            seen = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Whether a stream has reached this host function.
    pub fn has_reached(&self, id: u64) -> bool {
        self.seen().functions.contains(&id)
    }
}

impl Host for TestHost {
    fn print(&self, text: &[u8]) {
        self.seen().printed.extend_from_slice(text);
    }

    fn fetch(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        let mut seen = self.seen();
        for (i, part) in buf.chunks_mut(PAGE as usize).enumerate() {
            let page = addr + i as u64 * PAGE;
            seen.fetched.push(page);
            match seen.pages.get(&page) {
                Some(bytes) => part.copy_from_slice(&bytes[..part.len()]),
                None => {
                    let text = format!("The host has no memory at {page:#x}");
                    return Err(Error::new(Code::IllegalAddress, text));
                }
            }
        }
        Ok(())
    }

    fn host_func(&self, id: u64) {
        self.seen().functions.push(id);
        self.changed.notify_all();
    }
}
