//! The device whose calls are forwarded to a server.
//!
//! [`Remote`] implements [`rgpu_device::Device`] over a [transport](rgpu_protocol::transport). Posted
//! calls gather in one buffer ([`link`]), which keeps their order across threads; it is sent when it is
//! large, when anything is asked, and soon in any case ([`service`]). Whoever waits for an answer reads
//! the connection itself, and hands others what is theirs.
//!
//! **When the connection is lost** (or the server vanishes, or sends something malformed) the reason is
//! written to stderr once, whoever waits gets an error, and every call from then on returns
//! [`Code::SystemNotReady`](rgpu_device::Code::SystemNotReady) (802). Nothing hangs, and nothing is retried.
//!
//! **Callbacks.** [`Host`](rgpu_device::Host)'s methods, [`Done`](rgpu_device::Done)s and [`CopySink`](rgpu_device::CopySink)s
//! are called on whatever thread reads the connection, which may hold the sending buffer. They must not call
//! the `Remote` again, nor wait for a thread that does.
//!
//! **Errors of posted calls** arrive with a later answer. The first is returned once by the next
//! synchronisation, query or copy to the host that would otherwise succeed; a sticky one is returned by
//! every later call on its ordinal, until the ordinal is reset.

mod bulk;
mod chunks;
mod connect;
mod convert;
mod credit;
pub(crate) mod device_impl;
mod direct;
mod errors;
mod fork;
mod hello;
mod images;
mod imported;
mod incoming;
mod link;
mod modules;
mod notes;
mod one_memory;
mod options;
mod outgoing;
mod peers;
mod quiet;
mod reserve;
#[cfg(any(test, feature = "test-support"))]
pub mod script;
mod service;
mod stubs;
#[cfg(test)]
mod tests;
mod window;

pub use options::{ConnectOptions, Credential, SharedRange};
pub use reserve::CommonAddresses;
pub use rgpu_protocol::transport::Encrypt;

use link::Link;
use parking_lot::Mutex;
use reserve::Reservation;
use rgpu_device::{
    AddressPlan, Check, DeviceInfo, Done, Error, Handle, Ordinal, PreparedLaunch, Region, Result,
};
use rgpu_protocol::frame::WRITES_BEFORE_FUNCTIONS;
use std::collections::HashMap;
use std::sync::Arc;

/// Cuts a copy between regions of the same shape into parts of at most 1 MiB.
pub fn cut(dst: Region, src: Region) -> Vec<(Region, Region)> {
    chunks::chunks(dst, src, false)
}

/// A session with a server. See the module's text.
pub struct Remote {
    link: Arc<Link>,
    /// The protocol's minor version that both sides speak.
    minor: u16,
    /// Whether the server copies straight to others.
    meets_peers: bool,
    infos: Vec<DeviceInfo>,
    plan: AddressPlan,
    /// The devices' memory, where server and client share it.
    direct: direct::DirectMemory,
    inventory: images::Inventory,
    credit: Arc<credit::Credit>,
    /// Mirrored allocations, with their ordinals.
    mirrored: Mutex<HashMap<u64, Ordinal>>,
    /// Memory of other sessions that is open in this one.
    imported: imported::Imported,
    /// Pinned and managed memory, where server and client share it.
    one_memory: Option<one_memory::OneMemory>,
    /// What the server looks at while kernels run.
    check: Option<Check>,
    /// The plan's addresses are this process's as long as the session lives.
    _reservation: Option<Reservation>,
}

impl Remote {
    /// What was agreed about addresses; [`Device::reserve`](rgpu_device::Device::reserve) returns the same.
    pub fn plan(&self) -> &AddressPlan {
        &self.plan
    }

    /// The server's address, for people.
    pub fn address(&self) -> String {
        self.link.transport.peer()
    }

    /// Has a stream stop when it gets there, until [`Remote::release`] is called with the same id. `done` is called when it
    /// has stopped (or never will, because the session is over).
    pub fn hold_later(&self, stream: Handle, id: u64, done: Done) {
        self.link.attention_begins();
        // Whoever is to let the stream go on may have to post something first.
        self.link.bulk.host_func_begins();
        let link = self.link.clone();
        let done: Done = Box::new(move |result| {
            link.attention_ends();
            done(result);
        });
        let call = rgpu_protocol::calls::Hold { stream, id, now: false };
        // A failure has completed the callback.
        let _ = self.link.ask_later(&call, incoming::Pending::Done(done));
    }

    /// Lets a held stream go on.
    pub fn release(&self, id: u64) -> Result<()> {
        self.link.bulk.host_func_ends();
        self.link.release(id).and_then(|()| self.link.flush())
    }

    /// The stream of a prepared launch.
    pub fn stream_of(&self, prepared: &PreparedLaunch) -> Handle {
        device_impl::stream_of(prepared)
    }

    /// Why the session failed, if it did.
    pub fn failure(&self) -> Option<Error> {
        self.link.failure().cloned()
    }

    /// Takes the error of a posted call that an answer has brought, if there is one.
    pub fn take_pending_error(&self) -> Result<()> {
        self.link.errors.take_pending()
    }

    /// Whether the server sends what the device has changed in mirrored memory before it tells of a host function, so that
    /// [`Remote::pull_shared_writes`] is not wanted then.
    pub fn writes_come_before_functions(&self) -> bool {
        self.minor >= WRITES_BEFORE_FUNCTIONS
    }

    /// Sends what is buffered, without waiting for anything but room.
    pub fn flush(&self) -> Result<()> {
        self.link.flush()
    }

    /// Asks for what the device has changed in mirrored memory, as of its finished work: one round trip.
    /// [`Device::collect_shared_writes`](rgpu_device::Device::collect_shared_writes) then hands it out;
    /// after a synchronisation it does so without this.
    pub fn pull_shared_writes(&self) -> Result<()> {
        self.link.collect_shared_writes()
    }

    /// Ends the session at the program's exit. Never waits, unless calls are traced.
    pub fn goodbye(&self) {
        if crate::trace::is_on() && !self.link.is_over() {
            // The answer brings what the server has measured since the last one.
            let _ = self.link.counters();
        }
        self.link.leave();
    }

    /// For a forked child: forgets the parent's session without any input or output. The child's copy of
    /// the connection has been closed at the fork already.
    pub fn abandon_after_fork(self: Arc<Self>) {
        std::mem::forget(self);
    }
}
