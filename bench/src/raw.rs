//! The limits: what the same kind of connection does with nothing on top of it.
//!
//! A *peer* process accepts connections and does, for each, what its first bytes ask for: echo messages of
//! given sizes, swallow a stream, or produce one. It stands where the server stands, so it is a process of its
//! own, and can be started on another machine (`rgpu bench peer`). Shared memory is the transport's own rings,
//! which wait by the same rule, without a protocol on top.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Instant;

use rgpu_protocol::transport::{Ready, Shm, Transport};

use crate::Failure;

/// The most that a peer will hold for one message.
const LARGEST: u64 = 1 << 30;

/// What a connection is used for. Sent as four little-endian `u64`s: kind, bytes sent, bytes received, zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// The peer answers each message of `sent` bytes with one of `received` bytes.
    PingPong {
        /// Bytes a message to the peer.
        sent: u64,
        /// Bytes an answer.
        received: u64,
    },
    /// The peer swallows `bytes` and then answers with one byte, again and again.
    Swallow {
        /// Bytes before each answer.
        bytes: u64,
    },
    /// The peer answers each byte with `bytes` bytes.
    Produce {
        /// Bytes an answer.
        bytes: u64,
    },
}

impl Exchange {
    /// Bytes a message to the peer, and an answer.
    pub(crate) fn sizes(self) -> (u64, u64) {
        match self {
            Self::PingPong { sent, received } => (sent, received),
            Self::Swallow { bytes } => (bytes, 1),
            Self::Produce { bytes } => (1, bytes),
        }
    }

    fn encode(self) -> [u8; 16] {
        let (sent, received) = self.sizes();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&sent.to_le_bytes());
        bytes[8..].copy_from_slice(&received.to_le_bytes());
        bytes
    }
}

fn sizes_of(bytes: [u8; 16]) -> Option<(usize, usize)> {
    let number = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().ok()?).into();
    let fits = |n: Option<u64>| n.filter(|n| (1..=LARGEST).contains(n)).map(|n| n as usize);
    Some((fits(number(0))?, fits(number(8))?))
}

/// A connection of either kind that waits as rgpu's own do.
#[derive(Debug)]
enum Wire {
    /// A socket that blocks.
    Tcp(TcpStream),
    /// Rings in shared memory.
    Shm(Rings),
}

/// Rings in shared memory.
struct Rings(Shm);

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Rings({})", self.0.peer())
    }
}

impl Rings {
    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.0.send(&[IoSlice::new(bytes)]) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.0.wait(Ready::WRITE, None, None)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn read_exact(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match self.0.recv(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => into = &mut into[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.0.wait(Ready::READ, None, None)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Wire {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Shm(rings) => rings.write_all(bytes),
        }
    }

    fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.read_exact(into),
            Self::Shm(rings) => rings.read_exact(into),
        }
    }
}

/// The abstract Unix socket beside a peer's TCP address, for shared memory.
fn local(address: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("rgpu-bench/{address}"))
}

/// Serves connections until the process is ended. Says where it listens in its first line of output.
pub(crate) fn peer(listen: &str) -> Result<(), Failure> {
    let problem = |e: io::Error| Failure::new(format!("Cannot listen on {listen}: {e}"));
    let listener = TcpListener::bind(listen).map_err(problem)?;
    let address = listener.local_addr().map_err(problem)?;
    let beside =
        local(&address.to_string()).and_then(|name| UnixListener::bind_addr(&name)).map_err(problem)?;
    std::thread::spawn(move || serve_local(&beside));
    println!("rgpu bench: listening on {address}");
    serve(&listener);
    Ok(())
}

fn serve(listener: &TcpListener) {
    for connection in listener.incoming() {
        match connection {
            Ok(connection) => {
                std::thread::spawn(move || {
                    let _ = connection.set_nodelay(true); // slower without, and nothing else
                    let _ = answer(Wire::Tcp(connection)); // the other side has gone
                });
            }
            Err(e) => eprintln!("rgpu bench: a connection failed: {e}"),
        }
    }
}

fn serve_local(listener: &UnixListener) {
    for connection in listener.incoming() {
        match connection.and_then(|connection| {
            let socket = connection.as_raw_fd();
            let (shm, offer) = Shm::create(connection.into(), "the measuring process".into())?;
            offer.send(socket, &[])?;
            Ok(shm)
        }) {
            Ok(shm) => {
                std::thread::spawn(move || {
                    let _ = answer(Wire::Shm(Rings(shm))); // the other side has gone
                });
            }
            Err(e) => eprintln!("rgpu bench: a connection through shared memory failed: {e}"),
        }
    }
}

fn answer(mut wire: Wire) -> io::Result<()> {
    let mut header = [0; 16];
    wire.read_exact(&mut header)?;
    let Some((incoming, outgoing)) = sizes_of(header) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (mut from, to) = (vec![0; incoming], vec![1; outgoing]);
    loop {
        wire.read_exact(&mut from)?;
        wire.write_all(&to)?;
    }
}

/// Connects over TCP to a peer, and says what the connection is used for.
pub(crate) fn dial(peer: &str, exchange: Exchange) -> Result<TcpStream, Failure> {
    let problem = |e: io::Error| Failure::new(format!("The raw peer at {peer}: {e}"));
    let address = peer
        .to_socket_addrs()
        .map_err(problem)?
        .next()
        .ok_or_else(|| Failure::new(format!("{peer} has no address")))?;
    let mut stream = TcpStream::connect(address).map_err(problem)?;
    stream.set_nodelay(true).map_err(problem)?;
    stream.write_all(&exchange.encode()).map_err(problem)?;
    Ok(stream)
}

/// A connection to a peer.
#[derive(Debug)]
pub(crate) struct Raw {
    wire: Wire,
    to: Vec<u8>,
    from: Vec<u8>,
}

impl Raw {
    /// Connects over TCP for one kind of exchange.
    pub(crate) fn connect(peer: &str, exchange: Exchange) -> Result<Self, Failure> {
        Ok(Self::over(Wire::Tcp(dial(peer, exchange)?), exchange))
    }

    /// Connects through shared memory to a peer on this machine.
    pub(crate) fn connect_local(peer: &str, exchange: Exchange) -> Result<Self, Failure> {
        let connect = || -> io::Result<Self> {
            let socket: OwnedFd = UnixStream::connect_addr(&local(peer)?)?.into();
            let shm = loop {
                match Shm::join(&socket, 0, peer.to_owned()) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                    joined => break joined?.0,
                }
            };
            let mut wire = Wire::Shm(Rings(shm));
            wire.write_all(&exchange.encode())?;
            Ok(Self::over(wire, exchange))
        };
        connect().map_err(|e| {
            Failure::new(format!("Shared memory with the raw peer at {peer}, on this machine: {e}"))
        })
    }

    fn over(wire: Wire, exchange: Exchange) -> Self {
        let (sent, received) = exchange.sizes();
        Self { wire, to: vec![1; sent as usize], from: vec![0; received as usize] }
    }

    /// `count` exchanges: nanoseconds of each.
    pub(crate) fn exchange(&mut self, count: u32) -> Result<Vec<u64>, Failure> {
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let start = Instant::now();
            self.wire
                .write_all(&self.to)
                .and_then(|()| self.wire.read_exact(&mut self.from))
                .map_err(|e| Failure::new(format!("The raw peer has gone: {e}")))?;
            samples.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(samples)
    }
}

/// Nanoseconds of `count` plain copies of `bytes` in memory, in all.
pub(crate) fn memcpy(bytes: usize, count: u32) -> u64 {
    let from = vec![1u8; bytes];
    let mut to = vec![0u8; bytes];
    to.copy_from_slice(&from);
    let start = Instant::now();
    for _ in 0..count {
        std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
    }
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Where a peer in this process listens.
    pub(crate) fn served() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let beside = UnixListener::bind_addr(&local(&address).unwrap()).unwrap();
        std::thread::spawn(move || serve(&listener));
        std::thread::spawn(move || serve_local(&beside));
        address
    }

    #[test]
    fn each_exchange_ends() {
        let peer = served();
        for exchange in [
            Exchange::PingPong { sent: 40, received: 100 },
            Exchange::Swallow { bytes: 3 << 20 },
            Exchange::Produce { bytes: 3 << 20 },
        ] {
            for connect in [Raw::connect, Raw::connect_local] {
                let mut raw = connect(&peer, exchange).unwrap();
                assert_eq!(raw.exchange(3).unwrap().len(), 3, "{exchange:?}");
            }
        }
    }

    #[test]
    fn nonsense_ends_a_connection() {
        let peer = served();
        let mut connection = TcpStream::connect(&peer).unwrap();
        connection.write_all(&[0xff; 16]).unwrap();
        assert_eq!(connection.read(&mut [0; 8]).unwrap_or(0), 0);
        for connect in [Raw::connect, Raw::connect_local] {
            let nobody = connect("127.0.0.1:1", Exchange::Swallow { bytes: 1 }).unwrap_err();
            assert!(nobody.to_string().contains("127.0.0.1:1"), "{nobody}");
        }
    }
}
