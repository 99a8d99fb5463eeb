//! Copies that go from server to server, without passing through the program.
//!
//! For each pair of servers and direction there is at most one *link*, a connection that the first copy has made: the
//! receiving server gives a key, with which the sending one connects to it. Where that does not work (no way from one to the
//! other, an older release, encrypted connections, a server that does not connect there), copies pass through the program,
//! and it is not tried again. The same holds from the moment a link is lost: the copy that was under way is made anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rgpu_device::{Code, Error, Handle, Region, Result};

use super::{Several, Spot};

/// All links between a program's servers.
#[derive(Default)]
pub(super) struct Links {
    pairs: Mutex<HashMap<(usize, usize), SharedPair>>,
    /// Links and transfers are numbered.
    next: AtomicU64,
}

/// The way from one server to another.
#[derive(Debug, Clone, Copy, Default)]
enum Pair {
    #[default]
    Untried,
    Link(u64),
    None,
}

/// Locked while the link is being made.
type SharedPair = Arc<Mutex<Pair>>;

/// One side of a copy between servers.
pub(super) type Side = (Spot, Handle, Region);

/// Whether an error says nothing about the copy, but that it cannot go this way.
fn is_of_the_way(error: &Error) -> bool {
    error.code == Code::PeerAccessUnsupported
}

impl Several {
    fn pair(&self, from: usize, to: usize) -> SharedPair {
        self.links.pairs.lock().entry((from, to)).or_default().clone()
    }

    fn next_number(&self) -> u64 {
        self.links.next.fetch_add(1, Relaxed) + 1
    }

    /// The link from one server to another. The first that asks makes it, and others wait for that.
    fn link(&self, from: usize, to: usize) -> Option<u64> {
        let (source, target) = (self.remote(from), self.remote(to));
        if !source.meets_peers() || !target.meets_peers() {
            return None;
        }
        let pair = self.pair(from, to);
        let mut pair = pair.lock();
        if let Pair::Untried = *pair {
            let number = self.next_number();
            let made = target
                .peer_expect(number)
                .and_then(|key| source.peer_connect(number, &self.servers[to].node, &target.address(), key));
            *pair = match made {
                Ok(()) => Pair::Link(number),
                Err(_) => {
                    target.peer_close(number);
                    Pair::None
                }
            };
        }
        match *pair {
            Pair::Link(number) => Some(number),
            _ => None,
        }
    }

    /// Copies from server to server, and waits; false where it cannot go that way.
    pub(super) fn copy_straight(&self, to: Side, from: Side) -> Result<bool> {
        let ((to, to_stream, dst), (from, from_stream, src)) = (to, from);
        let bytes = src.bytes().unwrap_or(0);
        if bytes == 0 {
            return Ok(true);
        }
        let Some(link) = self.link(from.server, to.server) else { return Ok(false) };
        let (source, target) = (self.remote(from.server), self.remote(to.server));
        let transfer = self.next_number();
        let received = target.peer_receive(link, transfer, to_stream, dst);
        let sent = source.peer_send(link, transfer, from_stream, src).wait();
        if sent.as_ref().is_err_and(|error| is_of_the_way(error) || source.is_over()) {
            // Nothing more will come.
            target.peer_close(link);
        }
        let received = received.wait();
        match (sent, received) {
            (Ok(()), Ok(())) => {
                target.count_between_servers(bytes, true);
                Ok(true)
            }
            (sent, received) => {
                let errors = [sent.err(), received.err()].into_iter().flatten();
                // What is wrong with the copy itself, or with a server, counts for more than that it did not arrive.
                let (way, other): (Vec<Error>, Vec<Error>) = errors.partition(is_of_the_way);
                if !way.is_empty() {
                    *self.pair(from.server, to.server).lock() = Pair::None;
                    source.peer_close(link);
                    target.peer_close(link);
                }
                other.into_iter().next().map_or(Ok(false), Err)
            }
        }
    }
}
