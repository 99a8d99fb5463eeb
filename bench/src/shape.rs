//! A proxy that makes a connection longer and narrower: "what if my network were …".
//!
//! Bytes leave no earlier than half the added round trip after they came, and no faster than the rate. What
//! waits is bounded, as in a real link's queues, so a sender that is too fast is held back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rgpu_control::units;

use crate::Failure;

/// What a link adds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Shape {
    /// Added to each round trip, half of it in each direction.
    pub delay: Duration,
    /// Bits a second in each direction, if limited.
    pub rate: Option<f64>,
}

impl Shape {
    /// Whether anything is changed.
    pub(crate) fn changes(&self) -> bool {
        !self.delay.is_zero() || self.rate.is_some()
    }

    /// How long `bytes` occupy the link.
    fn occupies(&self, bytes: usize) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(bytes as f64 * 8.0 / rate))
    }

    /// How many pieces may wait: what a link of 100 Gbit/s would hold for the delay, and some.
    fn pieces(&self) -> usize {
        let bits = self.rate.unwrap_or(20e9) * (self.delay.as_secs_f64() / 2.0 + 0.002);
        ((bits / 8.0) as usize / PIECE).clamp(16, 4096)
    }
}

const PIECE: usize = 64 << 10;

/// Starts a proxy before `target`; returns where it listens. It runs until the process ends.
pub(crate) fn start(target: SocketAddr, shape: Shape) -> Result<SocketAddr, Failure> {
    let problem = |e: std::io::Error| Failure::new(format!("The shaping proxy: {e}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(problem)?;
    let address = listener.local_addr().map_err(problem)?;
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            if let Err(e) = join(client, target, shape) {
                eprintln!("rgpu bench: the shaping proxy cannot reach {target}: {e}");
            }
        }
    });
    Ok(address)
}

fn join(client: TcpStream, target: SocketAddr, shape: Shape) -> std::io::Result<()> {
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let (sender, receiver) = sync_channel(shape.pieces());
        std::thread::spawn(move || take(from, &sender, shape));
        std::thread::spawn(move || pass(to, &receiver));
    }
    Ok(())
}

/// A piece, and when it may leave.
type Piece = (Instant, Vec<u8>);

fn take(mut from: TcpStream, to: &SyncSender<Piece>, shape: Shape) {
    let mut free = Instant::now();
    let mut buffer = vec![0; PIECE];
    loop {
        let len = match from.read(&mut buffer) {
            Ok(0) | Err(_) => return, // dropping the sender ends the other half
            Ok(len) => len,
        };
        let now = Instant::now();
        free = free.max(now) + shape.occupies(len);
        if to.send((free + shape.delay / 2, buffer[..len].to_vec())).is_err() {
            return;
        }
    }
}

fn pass(mut to: TcpStream, from: &Receiver<Piece>) {
    while let Ok((due, bytes)) = from.recv() {
        while let Some(left) = due.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
            // Sleeping is too coarse by some 60 µs; the rest is waited for by yielding.
            match left.checked_sub(Duration::from_micros(120)) {
                Some(long) if !long.is_zero() => std::thread::sleep(long),
                _ => std::thread::yield_now(),
            }
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both); // the other side may have gone first
}

/// Reads a time from 0 to 60 s, such as `5ms`, `250us` or `0.1s`. The unit is wanted: a bare number would be taken for milliseconds by
/// some and is seconds elsewhere.
pub(crate) fn parse_delay(text: &str) -> Result<Duration, String> {
    let delay = units::parse_duration(text).ok().filter(|_| has_unit(text));
    delay
        .filter(|delay| *delay <= Duration::from_secs(60))
        .ok_or_else(|| format!("{text:?} is no duration from 0 to 60 s with its unit, such as 5ms or 250us"))
}

/// Reads a rate with its unit, such as `1Gbit` or `100Mbit`, in bits a second.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = units::parse_rate(text).ok().filter(|rate| has_unit(text) && *rate > 0.0);
    rate.map(|mbps| mbps * 1e6).ok_or_else(|| format!("{text:?} is no rate, such as 1Gbit or 100Mbit"))
}

fn has_unit(text: &str) -> bool {
    text.trim_end().ends_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{Exchange, Raw};

    #[test]
    fn delays_and_rates_are_parsed() {
        assert_eq!(parse_delay("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(parse_delay("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_rate("1Gbit"), Ok(1e9));
        for bad in ["", "5", "ms", "-1ms", "1h", "61s", "NaNs"] {
            assert!(parse_delay(bad).is_err(), "{bad}");
        }
        for bad in ["", "1", "Gbit", "0Mbit", "-1Gbit", "1GB"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_link_is_occupied_by_what_passes() {
        let free = Shape::default();
        assert!(!free.changes() && free.occupies(1 << 30).is_zero());
        let narrow = Shape { delay: Duration::ZERO, rate: Some(8e6) };
        assert!(narrow.changes());
        assert_eq!(narrow.occupies(1_000_000), Duration::from_secs(1));
        let long = Shape { delay: Duration::from_millis(5), rate: None };
        assert!(long.changes() && long.occupies(1 << 20).is_zero());
        // What waits is bounded: 16 pieces at least, however narrow, and 4096 at most, however long and wide.
        assert_eq!(narrow.pieces(), 16);
        assert_eq!(Shape { delay: Duration::from_secs(60), rate: Some(100e9) }.pieces(), 4096);
        // Half of 100 ms and 2 ms of 1 Gbit/s are 6.5 MB, in pieces of 64 KiB.
        assert_eq!(Shape { delay: Duration::from_millis(100), rate: Some(1e9) }.pieces(), 99);
    }

    #[test]
    fn bytes_arrive_late_and_whole() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut bytes = vec![0; 16 + 300_000];
            connection.read_exact(&mut bytes).unwrap();
            assert!(bytes[16..].iter().all(|b| *b == 1));
            connection.write_all(&[1]).unwrap();
        });
        let shape = Shape { delay: Duration::from_millis(20), rate: Some(100e6) };
        let proxy = start(target, shape).unwrap().to_string();
        let mut raw = Raw::connect(&proxy, Exchange::Swallow { bytes: 300_000 }).unwrap();
        let took = raw.exchange(1).unwrap()[0];
        // 20 ms for the delay, and 24 ms for 2.4 Mbit at 100 Mbit/s: never less, however slow the machine.
        assert!(took >= 40_000_000, "{took} ns");
    }
}
