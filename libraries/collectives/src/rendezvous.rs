//! Where ranks meet: one process listens until all ranks have come, and tells each where the others are.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rgpu_protocol::sys::without_signals;

use crate::handshake::{self, Purpose};
use crate::id::UniqueId;
use crate::socket::{self, Socket};
use crate::wait::Patience;
use crate::wire::{ENTRY_BYTES, Entry, JOIN_BYTES, Join, VERDICT_BYTES, Verdict};
use crate::{Failure, Result, Stop};

/// Who connects has so long to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// So many may be saying it at the same time; others wait.
const INTRODUCING: usize = 256;
/// How long one attempt to connect takes at most, and how long to wait for the next where nobody listens yet.
const ATTEMPT: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(50);

/// Opens a rendezvous at a free port of this address, which ends when all have come, or after `limit`.
///
/// # Errors
/// Those of listening and of starting a thread.
pub fn announce(address: IpAddr, limit: Duration) -> io::Result<UniqueId> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    let address = open(SocketAddr::new(address, 0), secret, limit)?;
    Ok(UniqueId { address, secret, fixed: false })
}

/// Opens a rendezvous at this address.
pub(crate) fn open(address: SocketAddr, secret: [u8; 32], limit: Duration) -> io::Result<SocketAddr> {
    let listener = listen(address)?;
    let address = listener.local_addr()?;
    let round = Arc::new(Round {
        secret,
        gathered: Mutex::default(),
        introducing: AtomicUsize::new(0),
        over: Stop::new()?,
        until: Instant::now() + limit,
        limit,
    });
    let body = move || round.serve(listener);
    without_signals(|| std::thread::Builder::new().name("rgpu-rendezvous".into()).spawn(body))?;
    Ok(address)
}

/// A listener that does not block.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    let listener = TcpListener::from(socket::moved_above(OwnedFd::from(listener)));
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The next who connects.
pub(crate) fn accept(listener: &TcpListener, patience: Patience<'_>) -> Result<Socket> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Socket::tcp(stream).map_err(|e| Failure::System(e.to_string())),
            Err(e) if socket::is_not_yet(&e) => patience.wait_for(listener.as_raw_fd(), libc::POLLIN)?,
            // Who was about to connect has given up.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(e) => return Err(Failure::System(format!("Accepting a connection failed: {e}"))),
        }
    }
}

/// Connects. Where nobody listens (yet), it is tried again only if `again` says so.
pub(crate) fn connect(address: SocketAddr, again: bool, patience: Patience<'_>) -> Result<Socket> {
    loop {
        if patience.stop.is_raised() {
            return Err(Failure::Stopped);
        }
        let left = patience.left().unwrap_or(ATTEMPT).min(ATTEMPT);
        if left.is_zero() {
            return Err(Failure::Late(format!("Nobody answered at {address} in time")));
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Socket::tcp(stream).map_err(|e| Failure::System(e.to_string())),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused && again => {
                std::thread::sleep(AGAIN.min(left))
            }
            Err(e) => return Err(Failure::Lost(format!("Connecting to {address} failed: {e}"))),
        }
    }
}

/// Who has come so far.
#[derive(Default)]
struct Gathered {
    members: BTreeMap<u32, (Join, Socket)>,
    refusal: Option<String>,
}

struct Round {
    secret: [u8; 32],
    gathered: Mutex<Gathered>,
    /// How many are saying who they are.
    introducing: AtomicUsize,
    /// Raised when all have come, or when they will not come together.
    over: Stop,
    until: Instant,
    limit: Duration,
}

impl Round {
    fn patience(&self) -> Patience<'_> {
        Patience { stop: &self.over, until: Some(self.until) }
    }

    fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            if self.introducing.load(Ordering::Acquire) >= INTRODUCING {
                std::thread::sleep(AGAIN);
            } else {
                match accept(&listener, self.patience()) {
                    Ok(socket) => self.clone().introduce_apart(socket),
                    Err(Failure::Stopped | Failure::Late(_)) => break,
                    // There are no descriptors left, or the like: that may pass.
                    Err(_) => std::thread::sleep(AGAIN),
                }
            }
        }
        // Who hears that all are there may look for the next rendezvous at the same address at once, and must not
        // find this one.
        drop(listener);
        self.conclude();
    }

    fn introduce_apart(self: Arc<Self>, socket: Socket) {
        self.introducing.fetch_add(1, Ordering::AcqRel);
        let round = self.clone();
        let body = move || {
            // Who does not know the secret, or says nothing that makes sense, is hung up on.
            let _ = round.introduce(socket);
            round.introducing.fetch_sub(1, Ordering::AcqRel);
        };
        if without_signals(|| std::thread::Builder::new().name("rgpu-joining".into()).spawn(body)).is_err() {
            self.introducing.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn introduce(&self, socket: Socket) -> Result<()> {
        let patience = self.patience().at_most(INTRODUCTION);
        if handshake::answer(&socket, &self.secret, patience)? != Purpose::Join {
            return Err(Failure::Refused("It comes for something else".into()));
        }
        let mut bytes = [0; JOIN_BYTES];
        patience.read(&socket, &mut bytes)?;
        let join = Join::parse(&bytes).ok_or_else(|| Failure::Refused("It makes no sense".into()))?;
        let mut gathered = self.gathered.lock();
        let ranks = gathered.members.first_key_value().map_or(join.ranks, |(_, (first, _))| first.ranks);
        if ranks != join.ranks {
            let why =
                format!("One rank says that there are {ranks} ranks, rank {} says {}", join.rank, join.ranks);
            gathered.refusal.get_or_insert(why);
        }
        if let Some((_, other)) = gathered.members.insert(join.rank, (join, socket)) {
            gathered.refusal.get_or_insert(format!("Two joined as rank {}", join.rank));
            refuse(&other, &gathered);
        }
        if gathered.refusal.is_some() || gathered.members.len() == ranks as usize {
            self.over.raise();
        }
        Ok(())
    }

    /// Tells all that have come what came of it.
    fn conclude(&self) {
        let mut gathered = self.gathered.lock();
        let ranks = gathered.members.first_key_value().map_or(0, |(_, (first, _))| first.ranks);
        let here = gathered.members.len();
        if here < ranks as usize {
            let seconds = self.limit.as_secs();
            let why = format!("{here} of {ranks} ranks have joined within {seconds} seconds");
            gathered.refusal.get_or_insert(why);
        }
        let mut name = [0; 16];
        if let Err(e) = getrandom::fill(&mut name) {
            gathered.refusal.get_or_insert(format!("There are no random numbers: {e}"));
        }
        let mut table = Verdict::Complete(name).to_bytes().to_vec();
        gathered.members.values().for_each(|(join, _)| table.extend(join.entry.to_bytes()));
        for (_, socket) in gathered.members.values() {
            if gathered.refusal.is_some() {
                refuse(socket, &gathered);
            } else {
                tell(socket, &table);
            }
        }
    }
}

fn refuse(socket: &Socket, gathered: &Gathered) {
    let why = gathered.refusal.clone().unwrap_or_default();
    tell(socket, &Verdict::Refused(why).to_bytes());
}

/// Whoever does not listen any more learns nothing.
fn tell(socket: &Socket, bytes: &[u8]) {
    if let Ok(stop) = Stop::new() {
        let patience = Patience { stop: &stop, until: None }.at_most(INTRODUCTION);
        let _ = patience.write(socket, bytes);
    }
}

/// All ranks, and the name of what they are together.
pub(crate) struct Table {
    pub(crate) name: [u8; 16],
    pub(crate) entries: Vec<Entry>,
}

/// Joins at the rendezvous, over a connection to it, and waits for the others.
pub(crate) fn join(socket: &Socket, secret: &[u8; 32], join: Join, patience: Patience<'_>) -> Result<Table> {
    handshake::call(socket, secret, Purpose::Join, patience)?;
    patience.write(socket, &join.to_bytes())?;
    let mut verdict = [0; VERDICT_BYTES];
    patience.read(socket, &mut verdict)?;
    let name = match Verdict::parse(&verdict) {
        Verdict::Complete(name) => name,
        Verdict::Refused(why) => return Err(Failure::Refused(why)),
    };
    // As many as this rank has said itself.
    let mut entries = Vec::new();
    for _ in 0..join.ranks {
        let mut bytes = [0; ENTRY_BYTES];
        patience.read(socket, &mut bytes)?;
        let entry = Entry::parse(&bytes);
        entries.push(entry.ok_or_else(|| Failure::Refused("The table of ranks makes no sense".into()))?);
    }
    Ok(Table { name, entries })
}
