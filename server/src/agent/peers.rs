//! How long other nodes are away: the time that connecting to their servers takes, which is one round trip.

use parking_lot::Mutex;
use rgpu_control::api::{Peer, PeerTime};
use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// So many of a peer's latest times are kept.
const KEPT: usize = 5;
/// A peer that takes longer is none that anything should be placed at.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Known {
    address: String,
    times: VecDeque<u64>,
}

/// The other nodes, and the times to them.
#[derive(Debug, Default)]
pub(super) struct Peers {
    known: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    known: HashMap<String, Known>,
    /// Whose turn it is, in order.
    turns: VecDeque<String>,
}

impl Peers {
    /// From now on these, without the node itself. What was measured of those that stay is kept.
    pub(super) fn set(&self, own: &str, peers: &[Peer]) {
        let mut table = self.known.lock();
        let same = |table: &Table| {
            let others = peers.iter().filter(|peer| peer.node != own);
            others.clone().count() == table.known.len()
                && others
                    .into_iter()
                    .all(|peer| table.known.get(&peer.node).is_some_and(|k| k.address == peer.address))
        };
        if same(&table) {
            return;
        }
        let mut old = std::mem::take(&mut table.known);
        for peer in peers.iter().filter(|peer| peer.node != own) {
            let known = old.remove(&peer.node).filter(|known| known.address == peer.address);
            let known = known.unwrap_or_else(|| Known { address: peer.address.clone(), ..Known::default() });
            table.known.insert(peer.node.clone(), known);
        }
        let Table { known, turns } = &mut *table;
        turns.retain(|name| known.contains_key(name));
        for peer in peers.iter().filter(|peer| known.contains_key(&peer.node)) {
            if !turns.contains(&peer.node) {
                // Nothing is known of it yet, so it comes first.
                turns.push_front(peer.node.clone());
            }
        }
    }

    /// The medians.
    pub(super) fn times(&self) -> Vec<PeerTime> {
        let table = self.known.lock();
        let mut times: Vec<PeerTime> = table
            .known
            .iter()
            .filter_map(|(node, known)| {
                let mut times: Vec<u64> = known.times.iter().copied().collect();
                times.sort_unstable();
                Some(PeerTime { node: node.clone(), rtt_us: *times.get(times.len() / 2)? })
            })
            .collect();
        times.sort_by(|a, b| a.node.cmp(&b.node));
        times
    }

    /// Measures the time to the next peer. A failure is no time: one that was measured before stays until the broker says that
    /// the peer is gone.
    pub(super) fn measure_next(&self) {
        let next = {
            let mut table = self.known.lock();
            let Some(name) = table.turns.pop_front() else { return };
            table.turns.push_back(name.clone());
            table.known.get(&name).map(|known| (name, known.address.clone()))
        };
        let Some((name, address)) = next else { return };
        let Some(time) = connect_time(&address) else { return };
        if let Some(known) = self.known.lock().known.get_mut(&name).filter(|k| k.address == address) {
            known.times.push_back(time.as_micros() as u64);
            if known.times.len() > KEPT {
                known.times.pop_front();
            }
        }
    }
}

fn connect_time(address: &str) -> Option<Duration> {
    let address: SocketAddr = address.to_socket_addrs().ok()?.next()?;
    let start = Instant::now();
    let stream = TcpStream::connect_timeout(&address, LONGEST).ok()?;
    let time = start.elapsed();
    drop(stream);
    Some(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn peer(node: &str, address: &str) -> Peer {
        Peer { node: node.into(), address: address.into() }
    }

    #[test]
    fn each_peer_gets_its_turn_and_the_own_node_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peers = Peers::default();
        peers.measure_next();
        peers.set("own", &[peer("own", &address), peer("a", &address), peer("b", &address)]);
        assert!(peers.times().is_empty());
        peers.measure_next();
        assert_eq!(peers.times().len(), 1);
        peers.measure_next();
        let times = peers.times();
        assert_eq!(times.iter().map(|t| t.node.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        // One that went is forgotten, one that moved is measured anew, one that stays is kept.
        peers.set("own", &[peer("b", &address), peer("c", "127.0.0.1:1")]);
        assert_eq!(peers.times().len(), 1);
        peers.set("own", &[peer("b", "127.0.0.1:1")]);
        assert!(peers.times().is_empty());
        peers.measure_next();
        assert!(peers.times().is_empty(), "nobody listens there");
    }

    #[test]
    fn the_median_counts() {
        let peers = Peers::default();
        peers.set("own", &[peer("a", "x:1")]);
        peers.known.lock().known.get_mut("a").unwrap().times = [900, 1, 3, 2, 800].into();
        assert_eq!(peers.times(), [PeerTime { node: "a".into(), rtt_us: 3 }]);
    }
}
