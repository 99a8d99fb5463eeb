//! The broker's door: how many connections there are, and which one goes when another one comes.
//!
//! Connections are counted, all of them and by address. Where there are as many as may be, the one goes that has said nothing for the
//! longest time: first those that have never shown a good token, then those that have, and are idle. One over which an authorised
//! request is being answered never goes; where all are like that, a newcomer waits. So silent connections, and those that send
//! nonsense, keep nobody out.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// In all.
    pub total: usize,
    /// From one address; of IPv6, from one network of 64 bits.
    pub per_address: usize,
    /// How long a connection may be open before it has brought a first request.
    pub first_request: Duration,
}

/// The connections that there are.
pub(crate) struct Door {
    room: Room,
    connections: Mutex<Connections>,
    /// Told when one has gone or has become silent.
    freed: Notify,
}

/// How much it would matter if a connection went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Nobody who may do anything has spoken.
    Unknown,
    /// Its client has shown a good token, and waits for nothing.
    Idle,
    /// Its client waits for an answer.
    Busy,
}

/// A connection's place in the order of going, and which it is.
type Rank = (Standing, u64);

#[derive(Default)]
struct Connections {
    /// The next number; a connection gets a new one when its standing changes, so that the lowest is the longest so.
    next: u64,
    by_rank: HashMap<u64, Entry>,
    all: BTreeSet<(Rank, u64)>,
    by_address: HashMap<IpAddr, BTreeSet<(Rank, u64)>>,
}

struct Entry {
    address: IpAddr,
    rank: Rank,
    gone: Arc<Notify>,
}

/// What of an address counts as one: the network that a single customer gets.
fn origin(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let mut parts = address.segments();
            parts[4..].fill(0);
            IpAddr::V6(Ipv6Addr::from(parts))
        }
        address => address,
    }
}

impl Connections {
    fn insert(&mut self, address: IpAddr, gone: Arc<Notify>) -> u64 {
        let id = self.next;
        self.next += 1;
        let rank = (Standing::Unknown, id);
        self.by_rank.insert(id, Entry { address, rank, gone });
        self.all.insert((rank, id));
        self.by_address.entry(address).or_default().insert((rank, id));
        id
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.by_rank.remove(&id)?;
        self.all.remove(&(entry.rank, id));
        if let Some(here) = self.by_address.get_mut(&entry.address) {
            here.remove(&(entry.rank, id));
            if here.is_empty() {
                self.by_address.remove(&entry.address);
            }
        }
        Some(entry)
    }

    fn set(&mut self, id: u64, standing: Standing) {
        let rank = (standing, self.next);
        let Some(entry) = self.by_rank.get_mut(&id) else { return };
        self.next += 1;
        let old = std::mem::replace(&mut entry.rank, rank);
        let address = entry.address;
        for set in [Some(&mut self.all), self.by_address.get_mut(&address)].into_iter().flatten() {
            set.remove(&(old, id));
            set.insert((rank, id));
        }
    }

    /// Has one of these go, if any is silent.
    fn send_away(&mut self, first: Option<(Rank, u64)>) -> bool {
        match first {
            Some(((standing, _), id)) if standing != Standing::Busy => {
                if let Some(entry) = self.remove(id) {
                    entry.gone.notify_one();
                }
                true
            }
            _ => false,
        }
    }
}

/// Why a connection is not let in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AddressFull;

impl Door {
    pub(crate) fn new(room: Room) -> Arc<Self> {
        Arc::new(Self { room, connections: Mutex::default(), freed: Notify::new() })
    }

    /// Lets a connection in, as soon as there is room.
    ///
    /// # Errors
    /// All connections from its address are busy, and there are as many as may be.
    pub(crate) async fn enter(self: &Arc<Self>, peer: SocketAddr) -> Result<Place, AddressFull> {
        let address = origin(peer);
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            {
                let mut connections = self.connections.lock();
                let here = connections.by_address.get(&address);
                let crowded = here.filter(|here| here.len() >= self.room.per_address);
                let first = crowded.and_then(|here| here.first().copied());
                let crowded = crowded.is_some();
                if crowded && !connections.send_away(first) {
                    return Err(AddressFull);
                }
                let first = connections.all.first().copied();
                if connections.all.len() < self.room.total || connections.send_away(first) {
                    let gone = Arc::new(Notify::new());
                    let id = connections.insert(address, gone.clone());
                    return Ok(Place { door: self.clone(), id, gone, heard: Notify::new() });
                }
            }
            freed.await;
        }
    }

    /// Has all go that are silent: the broker stops.
    pub(crate) fn clear(&self) {
        let mut connections = self.connections.lock();
        while let first @ Some(_) = connections.all.first().copied()
            && connections.send_away(first)
        {}
    }

    fn set(&self, id: u64, standing: Standing) {
        self.connections.lock().set(id, standing);
        if standing != Standing::Busy {
            self.freed.notify_one();
        }
    }
}

/// A connection's place, which is free again when this is dropped.
pub(crate) struct Place {
    door: Arc<Door>,
    id: u64,
    gone: Arc<Notify>,
    heard: Notify,
}

impl Place {
    /// Returns when the connection is to be closed, because others need the room, or it has brought no request in time.
    pub(crate) async fn over(&self) {
        tokio::select! {
            biased;
            () = self.gone.notified() => return,
            () = self.heard.notified() => {}
            () = tokio::time::sleep(self.door.room.first_request) => return,
        }
        self.gone.notified().await;
    }

    /// A request has begun, whoever may have sent it.
    pub(crate) fn heard(&self) {
        self.heard.notify_one();
    }

    /// A request with a good token has begun; it lasts until what this gives is dropped.
    pub(crate) fn serve(self: &Arc<Self>) -> Serving {
        self.door.set(self.id, Standing::Busy);
        Serving(self.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.door.connections.lock().remove(self.id);
        self.door.freed.notify_one();
    }
}

/// An authorised request that is being answered.
pub(crate) struct Serving(Arc<Place>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.door.set(self.0.id, Standing::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 1000))
    }

    fn room(total: usize, per_address: usize) -> Room {
        Room { total, per_address, first_request: Duration::from_secs(3600) }
    }

    async fn enter(door: &Arc<Door>, host: u8) -> Arc<Place> {
        Arc::new(door.enter(from(host)).await.unwrap())
    }

    async fn is_over(place: &Place) -> bool {
        tokio::time::timeout(Duration::from_millis(20), place.over()).await.is_ok()
    }

    #[tokio::test]
    async fn the_longest_silent_goes_and_who_is_served_stays() {
        let door = Door::new(room(3, 3));
        let busy = enter(&door, 1).await;
        let serving = busy.serve();
        let known = enter(&door, 2).await;
        drop(known.serve());
        let silent = enter(&door, 3).await;
        // Who never showed a token goes before who is idle, and that one before who is served.
        let fourth = enter(&door, 4).await;
        assert!(is_over(&silent).await && !is_over(&known).await);
        drop(fourth);
        let _fifth = enter(&door, 5).await.serve();
        let sixth = enter(&door, 6).await;
        assert!(is_over(&known).await);
        let held = sixth.serve();
        // All are served: a newcomer waits until one is not.
        let waiting = tokio::spawn({
            let door = door.clone();
            async move { door.enter(from(7)).await.is_ok() }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished() && !is_over(&busy).await);
        drop(serving);
        assert!(waiting.await.unwrap());
        assert!(is_over(&busy).await);
        drop(held);
    }

    #[tokio::test]
    async fn one_address_crowds_out_nobody_but_itself() {
        let door = Door::new(room(100, 2));
        let other = enter(&door, 1).await;
        let (first, second) = (enter(&door, 2).await, enter(&door, 2).await);
        let third = enter(&door, 2).await;
        assert!(is_over(&first).await && !is_over(&second).await && !is_over(&other).await);
        let _both = (second.serve(), third.serve());
        assert_eq!(door.enter(from(2)).await.err(), Some(AddressFull));
        let six = |last: u16| SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, last), 1));
        assert_eq!(origin(six(1)), origin(six(2)));
    }

    #[tokio::test]
    async fn who_says_nothing_at_all_goes_by_itself() {
        let door = Door::new(Room { first_request: Duration::from_millis(30), ..room(2, 2) });
        let (silent, speaking) = (enter(&door, 1).await, enter(&door, 1).await);
        speaking.heard();
        silent.over().await;
        assert!(!is_over(&speaking).await);
    }
}
