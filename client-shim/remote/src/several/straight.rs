//! Copies that go from server to server, without passing through the program.
//!
//! For each pair of servers and direction there is at most one *link*, a connection that the first copy has made: the
//! receiving server gives a key, with which the sending one connects to it. Where that does not work (no way from one to the
//! other, an older release, encrypted connections, a server that does not connect there), copies pass through the program,
//! and it is not tried again. They do so as well while it takes long to find out: a machine that answers nothing is given
//! up only after many seconds. From the moment a link is lost, too: the copy that was under way is made anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rgpu_control::settings::{PEER_PATIENCE_S, PEER_PATIENCE_VARIABLE};
use rgpu_device::{Code, Done, Error, Handle, Region, Result};

use super::{Several, Spot};

/// All links between a program's servers.
pub(super) struct Links {
    pairs: Mutex<HashMap<(usize, usize), Arc<Pair>>>,
    /// Links and transfers are numbered.
    next: AtomicU64,
    /// How long copies wait for a link that is being made.
    patience: Duration,
}

impl Default for Links {
    fn default() -> Self {
        Self { pairs: Mutex::default(), next: AtomicU64::new(0), patience: patience_from_environment() }
    }
}

/// How long copies wait: so many seconds as the environment says, if that is a number up to 3600.
fn patience_from_environment() -> Duration {
    let given = std::env::var(PEER_PATIENCE_VARIABLE).ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.filter(|s| *s <= 3600).unwrap_or(PEER_PATIENCE_S))
}

/// Two servers, in one direction.
#[derive(Default)]
struct Pair {
    way: Mutex<Way>,
    changed: Condvar,
}

/// The way from one server to another.
#[derive(Debug, Clone, Copy, Default)]
enum Way {
    #[default]
    Untried,
    /// A link is being made. Nobody waits for it any longer than until then.
    Trying(Instant),
    Link(u64),
    /// The link with that number could not be made; the receiving server still expects it.
    Failed(u64),
    None,
}

impl Pair {
    fn set(&self, way: Way) {
        *self.way.lock() = way;
        self.changed.notify_all();
    }
}

/// One side of a copy between servers.
pub(super) type Side = (Spot, Handle, Region);

/// Whether an error says nothing about the copy, but that it cannot go this way.
fn is_of_the_way(error: &Error) -> bool {
    error.code == Code::PeerAccessUnsupported
}

impl Several {
    fn pair(&self, from: usize, to: usize) -> Arc<Pair> {
        self.links.pairs.lock().entry((from, to)).or_default().clone()
    }

    fn next_number(&self) -> u64 {
        self.links.next.fetch_add(1, Relaxed) + 1
    }

    /// The link from one server to another. The first that asks has it made. Whoever asks meanwhile waits for that, but not
    /// for long.
    fn link(&self, from: usize, to: usize) -> Option<u64> {
        let (source, target) = (self.remote(from), self.remote(to));
        if !source.meets_peers() || !target.meets_peers() {
            return None;
        }
        let pair = self.pair(from, to);
        let mut way = pair.way.lock();
        if let Way::Untried = *way {
            let number = self.next_number();
            *way = Way::Trying(Instant::now() + self.links.patience);
            drop(way);
            match target.peer_expect(number) {
                Ok(key) => {
                    let its = pair.clone();
                    // Called by whoever reads what the server says: nothing is sent there.
                    let done: Done = Box::new(move |made| match made {
                        Ok(()) => its.set(Way::Link(number)),
                        Err(_) => its.set(Way::Failed(number)),
                    });
                    source.peer_connect(number, &self.servers[to].node, &target.address(), key, done);
                }
                Err(_) => pair.set(Way::Failed(number)),
            }
            way = pair.way.lock();
        }
        loop {
            match *way {
                Way::Link(number) => return Some(number),
                Way::Untried | Way::None => return None,
                Way::Failed(number) => {
                    *way = Way::None;
                    drop(way);
                    target.peer_close(number);
                    return None;
                }
                Way::Trying(until) if Instant::now() >= until => return None,
                Way::Trying(until) => drop(pair.changed.wait_until(&mut way, until)),
            }
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
                    self.pair(from.server, to.server).set(Way::None);
                    source.peer_close(link);
                    target.peer_close(link);
                }
                other.into_iter().next().map_or(Ok(false), Err)
            }
        }
    }
}
