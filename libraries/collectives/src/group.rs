//! Ranks that have come together, and their connections.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::handshake::{self, Purpose};
use crate::id::UniqueId;
use crate::rendezvous;
use crate::socket::{self, Socket};
use crate::wait::Patience;
use crate::wire::{Entry, Join, MAX_RANKS, Process};
use crate::{Failure, Result, Stop};

/// Who connects has so long to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// The rendezvous has the last word on the time; this much later it is gone.
const SLACK: Duration = Duration::from_secs(5);
/// A connection's first words: the group's name, and from which rank to which.
const HELLO: usize = 16 + 4 + 4;

/// How a rank joins.
#[derive(Debug, Clone)]
pub struct Joining {
    /// Where, and with which secret.
    pub id: UniqueId,
    /// The rank.
    pub rank: u32,
    /// How many ranks there are.
    pub ranks: u32,
    /// How long it may take.
    pub limit: Duration,
    /// The address to listen at; where none is given, the one that the rendezvous is reached from.
    pub address: Option<IpAddr>,
    /// Which process this is.
    pub process: Process,
    /// The number of the rank's device in this process. Two ranks cannot share one: each would wait for the other.
    pub device: u32,
}

/// A connection to another rank.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) socket: Socket,
    /// How many messages have been sent.
    pub(crate) sent: u64,
    /// How many have been received.
    pub(crate) received: u64,
}

/// A rank's side of ranks that have come together.
#[derive(Debug)]
pub struct Group {
    pub(crate) rank: u32,
    /// By rank; there is none to the rank itself.
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) stop: Arc<Stop>,
}

impl Group {
    /// Joins the others, and connects to each of them.
    ///
    /// # Errors
    /// [`Failure::Stopped`], or why they did not come together.
    pub fn join(how: &Joining, stop: &Arc<Stop>) -> Result<Self> {
        if how.ranks > MAX_RANKS || how.rank >= how.ranks {
            return Err(Failure::Invalid(format!("Rank {} of {} ranks cannot be", how.rank, how.ranks)));
        }
        let patience = Patience { stop, until: Some(Instant::now() + how.limit + SLACK) };
        if how.id.fixed && how.rank == 0 {
            rendezvous::open(how.id.address, how.id.secret, how.limit).map_err(|e| {
                Failure::System(format!("The rendezvous cannot listen at {}: {e}", how.id.address))
            })?;
        }
        let root = rendezvous::connect(how.id.address, how.id.fixed, patience)?;
        let address = how.address.or_else(|| Some(root.own_address()?.ip()));
        let address = address.ok_or_else(|| Failure::System("This rank has no address".into()))?;
        let system = |e: io::Error| Failure::System(format!("This rank cannot listen at {address}: {e}"));
        let listener = rendezvous::listen(SocketAddr::new(address, 0)).map_err(system)?;
        let entry = Entry {
            address: listener.local_addr().map_err(system)?,
            process: how.process,
            device: how.device,
        };
        let join = Join { rank: how.rank, ranks: how.ranks, entry };
        let table = rendezvous::join(&root, &how.id.secret, join, patience)?;
        drop(root);
        let mut devices = HashSet::new();
        if let Some(entry) = table.entries.iter().find(|entry| !devices.insert((entry.process, entry.device)))
        {
            let why = format!("Two ranks of one process have device {}", entry.device);
            return Err(Failure::Disagreement(why));
        }
        let mut meeting = Meeting { how, name: table.name, sockets: HashMap::new(), patience };
        let met = meeting.connect(&table.entries).and_then(|()| meeting.accept(&listener, &table.entries));
        if let Err(failure) = met {
            LOCAL.lock().retain(|(name, ..), _| *name != table.name);
            return Err(failure);
        }
        let peer = |socket| Peer { socket, sent: 0, received: 0 };
        let peers = (0..how.ranks).map(|rank| meeting.sockets.remove(&rank).map(peer)).collect();
        Ok(Self { rank: how.rank, peers, stop: stop.clone() })
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.peers.len() as u32
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A child of the program's may have the descriptors, too: the others shall see the end all the same.
        self.peers.iter().flatten().for_each(|peer| peer.socket.end());
    }
}

/// Ends within this process that the other rank has not fetched yet: by the group's name, the lower and the higher
/// rank.
type Waiting = HashMap<([u8; 16], u32, u32), Socket>;
/// A process's threads find each other in no other place than the process.
static LOCAL: LazyLock<Mutex<Waiting>> = LazyLock::new(Mutex::default);

struct Meeting<'j> {
    how: &'j Joining,
    name: [u8; 16],
    sockets: HashMap<u32, Socket>,
    patience: Patience<'j>,
}

impl Meeting<'_> {
    /// Connects to the ranks below, and takes an end of each connection within this process.
    fn connect(&mut self, entries: &[Entry]) -> Result<()> {
        let own = self.how.rank;
        for (rank, entry) in (0..).zip(entries) {
            if rank == own {
                continue;
            }
            let socket = if entry.process == self.how.process {
                self.local(rank)?
            } else if rank < own {
                self.call(rank, entry)?
            } else {
                continue;
            };
            self.sockets.insert(rank, socket);
        }
        Ok(())
    }

    fn local(&self, rank: u32) -> Result<Socket> {
        let key = (self.name, rank.min(self.how.rank), rank.max(self.how.rank));
        let mut waiting = LOCAL.lock();
        if let Some(socket) = waiting.remove(&key) {
            return Ok(socket);
        }
        let (ours, theirs) = socket::pair().map_err(|e| Failure::System(e.to_string()))?;
        waiting.insert(key, theirs);
        Ok(ours)
    }

    fn call(&self, rank: u32, entry: &Entry) -> Result<Socket> {
        self.introduce(rank, entry).map_err(|failure| match failure {
            Failure::Lost(why) => Failure::Lost(format!("Rank {rank} at {}: {why}", entry.address)),
            other => other,
        })
    }

    fn introduce(&self, rank: u32, entry: &Entry) -> Result<Socket> {
        let socket = rendezvous::connect(entry.address, false, self.patience)?;
        handshake::call(&socket, &self.how.id.secret, Purpose::Peer, self.patience)?;
        let mut hello = [0; HELLO];
        hello[..16].copy_from_slice(&self.name);
        hello[16..20].copy_from_slice(&self.how.rank.to_le_bytes());
        hello[20..].copy_from_slice(&rank.to_le_bytes());
        self.patience.write(&socket, &hello)?;
        Ok(socket)
    }

    /// Waits for the ranks above.
    fn accept(&mut self, listener: &std::net::TcpListener, entries: &[Entry]) -> Result<()> {
        while self.sockets.len() + 1 < entries.len() {
            let socket = rendezvous::accept(listener, self.patience)?;
            // Whoever else connects is hung up on; the ranks go on trying until the time is over.
            match self.greet(&socket) {
                Ok(rank) if rank > self.how.rank && (rank as usize) < entries.len() => {
                    self.sockets.entry(rank).or_insert(socket);
                }
                Err(Failure::Stopped) => return Err(Failure::Stopped),
                _ => {}
            }
        }
        Ok(())
    }

    fn greet(&self, socket: &Socket) -> Result<u32> {
        let patience = self.patience.at_most(INTRODUCTION);
        if handshake::answer(socket, &self.how.id.secret, patience)? != Purpose::Peer {
            return Err(Failure::Refused("It comes for something else".into()));
        }
        let mut hello = [0; HELLO];
        patience.read(socket, &mut hello)?;
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| hello[at + i]));
        if hello[..16] != self.name || number(20) != self.how.rank {
            return Err(Failure::Refused("It looks for somebody else".into()));
        }
        Ok(number(16))
    }
}
