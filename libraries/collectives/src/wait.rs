//! Waiting for sockets, until a time or until somebody stops it.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{Failure, Result, socket};

/// Ends all waiting that looks at it, for good.
#[derive(Debug)]
pub struct Stop {
    raised: AtomicBool,
    /// Readable once it is raised; nobody ever reads it.
    seen: UnixStream,
    raise: UnixStream,
}

impl Stop {
    /// One that is not raised.
    ///
    /// # Errors
    /// Those of making a pair of sockets.
    pub fn new() -> io::Result<Self> {
        let (seen, raise) = UnixStream::pair()?;
        let (seen, raise) = (socket::moved_above(seen.into()), socket::moved_above(raise.into()));
        Ok(Self { raised: AtomicBool::new(false), seen: seen.into(), raise: raise.into() })
    }

    /// Raises it. Once is enough.
    pub fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            // Where the program has closed our descriptors, the flag is all that is left.
            let _ = (&self.raise).write(&[1]);
        }
    }

    /// Whether it is raised.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }
}

/// How long to wait.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'s> {
    pub(crate) stop: &'s Stop,
    pub(crate) until: Option<Instant>,
}

impl Patience<'_> {
    /// So much of it, and no more.
    pub(crate) fn at_most(self, time: Duration) -> Self {
        let end = Instant::now() + time;
        Self { until: Some(self.until.map_or(end, |until| until.min(end))), ..self }
    }

    /// What is left; `None` where there is no limit.
    pub(crate) fn left(self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Waits until one of these is ready. The place behind the last is for the stop.
    pub(crate) fn wait(self, fds: &mut Vec<libc::pollfd>) -> Result<()> {
        fds.push(libc::pollfd { fd: self.stop.seen.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        let result = self.poll(fds);
        fds.pop();
        result
    }

    fn poll(self, fds: &mut [libc::pollfd]) -> Result<()> {
        loop {
            if self.stop.is_raised() {
                return Err(Failure::Stopped);
            }
            let milliseconds = match self.left() {
                None => -1,
                Some(Duration::ZERO) => return Err(Failure::Late("The time for it is over".into())),
                Some(left) => left.as_millis().saturating_add(1).min(60_000) as libc::c_int,
            };
            // SAFETY: the list is valid for its length.
            let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, milliseconds) };
            if ready > 0 && !self.stop.is_raised() {
                return Ok(());
            }
            if ready < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(Failure::System(format!("Waiting for sockets failed: {error}")));
                }
            }
        }
    }

    /// Waits until a descriptor can be read (or written).
    pub(crate) fn wait_for(self, fd: RawFd, events: libc::c_short) -> Result<()> {
        self.wait(&mut vec![libc::pollfd { fd, events, revents: 0 }])
    }

    /// Reads exactly so many bytes of a socket that does not block.
    pub(crate) fn read(self, socket: &socket::Socket, mut bytes: &mut [u8]) -> Result<()> {
        while !bytes.is_empty() {
            match socket.reader().read(bytes) {
                Ok(0) => return Err(Failure::Lost("The connection was closed".into())),
                Ok(n) => bytes = &mut bytes[n..],
                Err(e) if socket::is_not_yet(&e) => {
                    self.wait_for(socket.as_fd().as_raw_fd(), libc::POLLIN)?
                }
                Err(e) => return Err(Failure::Lost(format!("The connection failed: {e}"))),
            }
        }
        Ok(())
    }

    /// Writes all of it to a socket that does not block.
    pub(crate) fn write(self, socket: &socket::Socket, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match socket.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if socket::is_not_yet(&e) => {
                    self.wait_for(socket.as_fd().as_raw_fd(), libc::POLLOUT)?;
                }
                Err(e) => return Err(Failure::Lost(format!("The connection failed: {e}"))),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_by_time_and_by_a_stop() {
        let stop = Stop::new().unwrap();
        let patience = Patience { stop: &stop, until: None };
        let (ours, theirs) = socket::pair().unwrap();
        let mut byte = [0];
        let late = patience.at_most(Duration::from_millis(5)).read(&ours, &mut byte);
        assert!(matches!(late, Err(Failure::Late(_))), "{late:?}");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| patience.read(&ours, &mut [0]));
            stop.raise();
            assert_eq!(waiting.join().unwrap(), Err(Failure::Stopped));
        });
        let other = Stop::new().unwrap();
        drop(theirs);
        let lost = Patience { stop: &other, until: None }.read(&ours, &mut byte);
        assert!(matches!(lost, Err(Failure::Lost(_))), "{lost:?}");
    }
}
