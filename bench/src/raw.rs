//! The limits: what the same kind of connection does with nothing on top of it.
//!
//! A *peer* process accepts connections and does, for each, what its first bytes ask for: echo messages of
//! given sizes, swallow a stream, or produce one. It stands where the server stands, so it is a process of its
//! own, and can be started on another machine (`rgpu bench peer`).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Instant;

use crate::Failure;

/// The most that a peer will hold for one message.
const LARGEST: u64 = 1 << 30;

/// What a connection is used for. Sent as four little-endian `u64`s: kind, bytes sent, bytes received, zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
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
    fn sizes(self) -> (u64, u64) {
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

/// Serves connections until the process is ended. Says where it listens in its first line of output.
pub fn peer(listen: &str) -> Result<(), Failure> {
    let listener =
        TcpListener::bind(listen).map_err(|e| Failure::new(format!("Cannot listen on {listen}: {e}")))?;
    let address = listener.local_addr().map_err(|e| Failure::new(e.to_string()))?;
    println!("rgpu bench: listening on {address}");
    for connection in listener.incoming() {
        match connection {
            Ok(connection) => {
                std::thread::spawn(move || {
                    let _ = answer(connection); // the other side has gone
                });
            }
            Err(e) => eprintln!("rgpu bench: a connection failed: {e}"),
        }
    }
    Ok(())
}

fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut header = [0; 16];
    connection.read_exact(&mut header)?;
    let Some((incoming, outgoing)) = sizes_of(header) else {
        return Err(std::io::ErrorKind::InvalidData.into());
    };
    let (mut from, to) = (vec![0; incoming], vec![1; outgoing]);
    loop {
        connection.read_exact(&mut from)?;
        connection.write_all(&to)?;
    }
}

/// A connection to a peer.
#[derive(Debug)]
pub struct Raw {
    connection: TcpStream,
    to: Vec<u8>,
    from: Vec<u8>,
}

impl Raw {
    /// Connects for one kind of exchange.
    pub fn connect(peer: &str, exchange: Exchange) -> Result<Self, Failure> {
        let problem = |e: std::io::Error| Failure::new(format!("The raw peer at {peer}: {e}"));
        let address = peer
            .to_socket_addrs()
            .map_err(problem)?
            .next()
            .ok_or_else(|| Failure::new(format!("{peer} has no address")))?;
        let mut connection = TcpStream::connect(address).map_err(problem)?;
        connection.set_nodelay(true).map_err(problem)?;
        connection.write_all(&exchange.encode()).map_err(problem)?;
        let (sent, received) = exchange.sizes();
        Ok(Self { connection, to: vec![1; sent as usize], from: vec![0; received as usize] })
    }

    /// `count` exchanges: nanoseconds of each.
    pub fn exchange(&mut self, count: u32) -> Result<Vec<u64>, Failure> {
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let start = Instant::now();
            self.connection
                .write_all(&self.to)
                .and_then(|()| self.connection.read_exact(&mut self.from))
                .map_err(|e| Failure::new(format!("The raw peer has gone: {e}")))?;
            samples.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(samples)
    }
}

/// Nanoseconds of `count` plain copies of `bytes` in memory, in all.
pub fn memcpy(bytes: usize, count: u32) -> u64 {
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
mod tests {
    use super::*;

    fn served() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let _ = answer(connection.unwrap());
            }
        });
        address
    }

    #[test]
    fn each_exchange_ends() {
        let peer = served();
        for exchange in [
            Exchange::PingPong { sent: 40, received: 100 },
            Exchange::Swallow { bytes: 1 << 20 },
            Exchange::Produce { bytes: 1 << 20 },
        ] {
            let mut raw = Raw::connect(&peer, exchange).unwrap();
            assert_eq!(raw.exchange(3).unwrap().len(), 3, "{exchange:?}");
        }
    }

    #[test]
    fn nonsense_ends_a_connection() {
        let peer = served();
        let mut connection = TcpStream::connect(&peer).unwrap();
        connection.write_all(&[0xff; 16]).unwrap();
        assert_eq!(connection.read(&mut [0; 8]).unwrap_or(0), 0);
        let nobody = Raw::connect("127.0.0.1:1", Exchange::Swallow { bytes: 1 }).unwrap_err();
        assert!(nobody.to_string().contains("127.0.0.1:1"), "{nobody}");
    }
}
