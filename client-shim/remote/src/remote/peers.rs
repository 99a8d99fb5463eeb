//! Copies straight from this server to another one, or from there.

use super::Remote;
use super::convert;
use super::incoming::{Pending, Waiter};
use super::link::Link;
use rgpu_device::{Done, Handle, Region, Result};
use rgpu_protocol::calls::{Call, PeerConnect, PeerKey, PeerReceive, PeerSend};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One side of a copy between servers, until it is over.
#[must_use = "somebody has to learn how it ends"]
pub struct Underway {
    link: Arc<Link>,
    waiter: Arc<Waiter>,
}

impl Underway {
    fn begin<C: Call>(link: &Arc<Link>, call: &C) -> Self {
        let waiter = Arc::new(Waiter::default());
        // A failure to send has completed the waiter.
        let _ = link.ask_later(call, Pending::Waiter(waiter.clone()));
        Self { link: link.clone(), waiter }
    }

    /// Waits for the server's word.
    pub fn wait(self) -> Result<()> {
        self.link.wait_for(&self.waiter).map(drop)
    }
}

impl Remote {
    /// Whether copies can go straight from this server to others, and come from there. Not where the program's data is
    /// encrypted: between servers it is not.
    pub fn meets_peers(&self) -> bool {
        self.meets_peers && !self.link.transport.is_encrypted() && !self.link.is_over()
    }

    /// A key by which another server can connect to this one.
    pub fn peer_expect(&self, link: u64) -> Result<PeerKey> {
        self.link.peer_expect(link)
    }

    /// Has this server connect to another one, and tells how that went.
    pub fn peer_connect(&self, link: u64, node: &str, address: &str, key: PeerKey, done: Done) {
        let call = PeerConnect { link, node: node.to_owned(), address: address.to_owned(), key };
        // Whoever waits for the link does not read what the server says.
        self.link.attention_begins();
        let its = self.link.clone();
        let done: Done = Box::new(move |made| {
            its.attention_ends();
            done(made);
        });
        // A failure to send has called it.
        let _ = self.link.ask_later(&call, Pending::Done(done));
    }

    /// Has memory sent over a link.
    pub fn peer_send(&self, link: u64, transfer: u64, stream: Handle, src: Region) -> Underway {
        Underway::begin(&self.link, &PeerSend { link, transfer, stream, src: convert::region(src) })
    }

    /// Has memory received over a link.
    pub fn peer_receive(&self, link: u64, transfer: u64, stream: Handle, dst: Region) -> Underway {
        Underway::begin(&self.link, &PeerReceive { link, transfer, stream, dst: convert::region(dst) })
    }

    /// Ends a link.
    pub fn peer_close(&self, link: u64) {
        // Failing means that the session is over, and the link with it.
        let _ = self.link.peer_close(link).and_then(|()| self.link.flush());
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        self.link.is_over()
    }

    /// So many bytes went from one server to another.
    pub fn count_between_servers(&self, bytes: u64, straight: bool) {
        let stats = self.link.stats;
        let counter = if straight { &stats.peer_bytes } else { &stats.relayed_bytes };
        counter.fetch_add(bytes, Relaxed);
    }
}
