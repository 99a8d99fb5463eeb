//! Traffic of a chosen intensity to and from a raw peer, as `iperf -b` makes it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::raw::{Exchange, dial};

/// Bytes of a message: small beside what passes in the time in which rates are compared, large enough to cost little.
const MESSAGE: u64 = 32 << 10;

/// A stream in each direction, until this is dropped.
#[derive(Debug)]
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
    passed: [Arc<AtomicU64>; 2],
    begun: Instant,
}

impl Traffic {
    /// Starts sending and receiving `bits` a second each. What is late is made up for, as long as the connection lasts.
    pub(crate) fn start(peer: &str, bits: f64) -> Result<Self, Failure> {
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let mut traffic =
            Self { stop, streams: Vec::new(), threads: Vec::new(), passed: Default::default(), begun };
        // To the peer the message is large and the answer small, from it the other way round.
        let ways = [Exchange::Swallow { bytes: MESSAGE }, Exchange::Produce { bytes: MESSAGE }];
        for (exchange, at) in ways.into_iter().zip(0..) {
            let stream = dial(peer, exchange)?;
            traffic.pass(&stream, exchange.sizes(), at, bits).map_err(|e| {
                Failure::new(format!("The connection with the traffic's peer at {peer}: {e}"))
            })?;
            traffic.streams.push(stream);
        }
        Ok(traffic)
    }

    fn pass(&mut self, stream: &TcpStream, sizes: (u64, u64), at: usize, bits: f64) -> std::io::Result<()> {
        let (mut to, mut from) = (stream.try_clone()?, stream.try_clone()?);
        let (stop, begun) = (self.stop.clone(), self.begun);
        let interval = MESSAGE as f64 * 8.0 / bits;
        self.threads.push(std::thread::spawn(move || {
            let message = vec![1; sizes.0 as usize];
            for number in 0u32.. {
                let due = Duration::from_secs_f64(interval * f64::from(number));
                std::thread::sleep(due.saturating_sub(begun.elapsed()));
                // Where the connection ends, so does the measurement, by another error.
                if stop.load(Relaxed) || to.write_all(&message).is_err() {
                    return;
                }
            }
        }));
        let passed = self.passed[at].clone();
        self.threads.push(std::thread::spawn(move || {
            let mut buffer = vec![0; 256 << 10];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                // An answer of one byte stands for a message that the peer has taken.
                passed.fetch_add(length as u64 * MESSAGE / sizes.1, Relaxed);
            }
        }));
        Ok(())
    }

    /// Bits a second that have passed to the peer and from it since the beginning.
    pub(crate) fn rates(&self) -> [f64; 2] {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.passed.each_ref().map(|passed| passed.load(Relaxed) as f64 * 8.0 / seconds)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both); // the peer may have gone
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic was printed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::tests::served;

    #[test]
    fn traffic_has_the_rate_that_was_asked_for() {
        let peer = served();
        let traffic = Traffic::start(&peer, 40e6).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let rates = traffic.rates();
        // Never more; less only where the machine is slow.
        assert!(rates.iter().all(|rate| *rate > 4e6 && *rate < 42e6), "{rates:?}");
        drop(traffic);
        assert!(Traffic::start("127.0.0.1:1", 1e6).unwrap_err().to_string().contains("127.0.0.1:1"));
    }
}
