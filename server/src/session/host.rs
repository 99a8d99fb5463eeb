//! What the device asks of the application's side, asked over the wire.

use super::answers::Due;
use super::outgoing::Outgoing;
use super::pressure::Pressure;
use crate::store::Store;
use parking_lot::{Condvar, Mutex};
use rgpu_device::{Code, Done, Error, Finding, Host, Result};
use rgpu_protocol::frame::{FetchRequest, Found, MAX_BULK, Notice};
use rgpu_protocol::wire::to_bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock, mpsc};

/// [`Host`] over a connection.
pub(super) struct WireHost {
    out: Arc<Outgoing>,
    pressure: Arc<Pressure>,
    fetches: Mutex<Fetches>,
    answered: Condvar,
    /// Streams that are to be held, by id, until they have got there.
    holds: Mutex<HashMap<u64, Done>>,
    /// Who sends what the device has changed in mirrored memory before it tells of a host function, which may look at that.
    collector: Mutex<Option<mpsc::Sender<Due>>>,
    /// Where compiled kernels are kept, if they are.
    store: OnceLock<Arc<Store>>,
}

/// Host functions with ids from here on are the server's own: streams that are held.
pub(super) const HOLD: u64 = 1 << 63;
/// Those among them for which no client's id stands, and for which no client is waited.
pub(super) const OWN: u64 = HOLD | (HOLD >> 1);

#[derive(Default)]
struct Fetches {
    next: u64,
    /// By id: how many bytes are wanted, and the answer when it has come.
    open: HashMap<u64, (usize, Option<Vec<u8>>)>,
    over: bool,
}

impl WireHost {
    pub(super) fn new(out: Arc<Outgoing>, pressure: Arc<Pressure>) -> Self {
        Self {
            out,
            pressure,
            fetches: Mutex::default(),
            answered: Condvar::new(),
            holds: Mutex::default(),
            collector: Mutex::default(),
            store: OnceLock::new(),
        }
    }

    /// From now on compiled kernels are kept there.
    pub(super) fn keep_code_in(&self, store: Arc<Store>) {
        let _ = self.store.set(store);
    }

    /// From now on there is mirrored memory.
    pub(super) fn collect_before_functions(&self, collector: mpsc::Sender<Due>) {
        *self.collector.lock() = Some(collector);
    }

    /// Calls `done` when a stream has reached the host function `id`. False where that id is in use.
    pub(super) fn expect_hold(&self, id: u64, done: Done) -> bool {
        match self.holds.lock().entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(done);
                true
            }
        }
    }

    /// Takes back what [`WireHost::expect_hold`] was told, if the stream has not got there.
    pub(super) fn take_hold(&self, id: u64) -> Option<Done> {
        self.holds.lock().remove(&id)
    }

    /// The client's answer to a fetch. False where none was asked, or for another length.
    pub(super) fn fetched(&self, id: u64, bytes: &[u8]) -> bool {
        let mut fetches = self.fetches.lock();
        match fetches.open.get_mut(&id) {
            Some((wanted, answer @ None)) if bytes.is_empty() || bytes.len() == *wanted => {
                *answer = Some(bytes.to_vec());
                self.pressure.answered();
                self.answered.notify_all();
                true
            }
            _ => false,
        }
    }

    /// The client has gone: whoever waits for it gets an error.
    pub(super) fn end(&self) {
        self.fetches.lock().over = true;
        self.answered.notify_all();
        // The thread behind it holds the device, which holds this.
        *self.collector.lock() = None;
    }

    fn fetch_part(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        let mut fetches = self.fetches.lock();
        fetches.next += 1;
        let id = fetches.next;
        fetches.open.insert(id, (buf.len(), None));
        drop(fetches);
        self.pressure.unanswered();
        let request = FetchRequest { id, addr, length: buf.len() as u64 };
        self.out.notice(Notice::FetchRequest, 0, &[&to_bytes(&request)]);
        let mut fetches = self.fetches.lock();
        let bytes = loop {
            if fetches.over {
                return Err(Error::new(Code::SystemNotReady, "The application has gone"));
            }
            match fetches.open.get_mut(&id) {
                Some((_, answer)) if answer.is_some() => break answer.take().unwrap_or_default(),
                Some(_) => self.answered.wait(&mut fetches),
                None => break Vec::new(),
            }
        };
        fetches.open.remove(&id);
        if bytes.len() != buf.len() {
            let text = format!("The host's memory at {addr:#x} cannot be read");
            return Err(Error::new(Code::IllegalAddress, text));
        }
        buf.copy_from_slice(&bytes);
        Ok(())
    }
}

impl Host for WireHost {
    fn print(&self, text: &[u8]) {
        text.chunks(MAX_BULK).for_each(|part| self.out.notice(Notice::Print, 0, &[part]));
    }

    fn fetch(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        for (i, part) in buf.chunks_mut(MAX_BULK).enumerate() {
            self.fetch_part(addr + (i * MAX_BULK) as u64, part)?;
        }
        Ok(())
    }

    fn host_func(&self, id: u64) {
        if id & OWN != OWN {
            self.pressure.unanswered();
        }
        if id & HOLD != 0
            && let Some(done) = self.take_hold(id)
        {
            return done(Ok(()));
        }
        // The device calls this, so that it cannot be asked for its changes here.
        let collector = self.collector.lock();
        if collector.as_ref().is_none_or(|collector| collector.send(Due::HostFunction(id)).is_err()) {
            self.out.notice(Notice::HostFunc, 0, &[&id.to_le_bytes()]);
        }
    }

    fn found(&self, finding: Finding<'_>) {
        let found = match finding {
            Finding::Mistake(text) => Found::new(Found::MISTAKE, 1, text),
            Finding::Unreported(count) => Found::new(Found::UNREPORTED, count, ""),
            Finding::Remark(text) => Found::new(Found::REMARK, 0, text),
        };
        self.out.notice(Notice::Found, 0, &[&to_bytes(&found)]);
    }

    fn kept_code(&self, name: &[u8; 32]) -> Option<Vec<u8>> {
        self.store.get()?.code(name)
    }

    fn keep_code(&self, name: &[u8; 32], code: &[u8]) {
        if let Some(store) = self.store.get() {
            store.put_code(name, code);
        }
    }
}
