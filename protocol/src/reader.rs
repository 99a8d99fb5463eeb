//! Reading frames off a transport.

use crate::frame::{HEADER_BYTES, Header};
use crate::transport::Transport;
use crate::wire::DecodeError;
use std::io;

const BUFFER_BYTES: usize = 32 << 10;

/// Why no frame could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection is over.
    #[error("The peer closed the connection")]
    Closed,
    /// The connection failed.
    #[error("The connection failed")]
    Io(#[from] io::Error),
    /// The peer sent something that is no frame.
    #[error("The peer sent a malformed frame")]
    Malformed(#[from] DecodeError),
}

/// Buffers what arrives, and hands it out in frames. What lies beyond a header is read straight to where
/// it belongs, as far as it has not been buffered.
pub struct FrameReader {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    received: u64,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, received: 0 }
    }
}

impl FrameReader {
    /// How many bytes were received in all.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether bytes have been received that were not handed out yet.
    pub fn has_buffered(&self) -> bool {
        self.start < self.end
    }

    /// The next bytes, if so many have been received; [`FrameReader::skip`] goes past them.
    pub fn peek(&self, length: usize) -> Option<&[u8]> {
        self.buffer[self.start..self.end].get(..length)
    }

    /// Goes past bytes that were looked at.
    pub fn skip(&mut self, length: usize) {
        self.start = self.end.min(self.start + length);
    }

    /// Reads a header. `wait` is called when bytes are missing; it returns when some may have arrived,
    /// or an error that ends the reading.
    pub fn header(
        &mut self,
        transport: &dyn Transport,
        wait: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<Header, ReadError> {
        while self.end - self.start < HEADER_BYTES {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let n = receive(wait, || transport.recv(&mut self.buffer[self.end..]))?;
            self.end += n;
            self.received += n as u64;
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(&self.buffer[self.start..self.start + HEADER_BYTES]);
        self.start += HEADER_BYTES;
        Ok(Header::parse(&bytes)?)
    }

    /// Reads `length` bytes of a body, appending them to `into`. Memory grows as bytes arrive.
    pub fn body(
        &mut self,
        transport: &dyn Transport,
        wait: &mut dyn FnMut() -> io::Result<()>,
        length: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let n = length.min(self.end - self.start);
        into.extend_from_slice(&self.buffer[self.start..self.start + n]);
        self.start += n;
        let mut left = length - n;
        // Small bodies come through the buffer, for the sake of the frames behind them.
        while left > 0 && left <= BUFFER_BYTES / 2 {
            let n = receive(wait, || transport.recv(&mut self.buffer))?;
            self.received += n as u64;
            let used = left.min(n);
            into.extend_from_slice(&self.buffer[..used]);
            (self.start, self.end) = (used, n);
            left -= used;
        }
        while left > 0 {
            into.reserve_exact(left.min(crate::frame::MAX_BULK));
            let room = into.spare_capacity_mut();
            let (at, length) = (room.as_mut_ptr() as u64, room.len().min(left));
            // SAFETY: the vector's spare room is nobody else's.
            let n = receive(wait, || unsafe { transport.recv_at(at, length) })?;
            // SAFETY: so many bytes were just received there.
            unsafe { into.set_len(into.len() + n) };
            self.received += n as u64;
            left -= n;
        }
        Ok(())
    }

    /// Reads up to `length` bytes of a body straight to `addr`; says how many (at least one).
    ///
    /// # Safety
    /// `addr..addr + length` is writable and nothing that the compiler relies on lies there.
    pub unsafe fn body_at(
        &mut self,
        transport: &dyn Transport,
        wait: &mut dyn FnMut() -> io::Result<()>,
        addr: u64,
        length: usize,
    ) -> Result<usize, ReadError> {
        let n = length.min(self.end - self.start);
        if n > 0 {
            // SAFETY: `n` bytes are in the buffer, and the caller vouches for the destination.
            unsafe { std::ptr::copy_nonoverlapping(self.buffer[self.start..].as_ptr(), addr as *mut u8, n) };
            self.start += n;
            return Ok(n);
        }
        // SAFETY: passed on to the caller.
        let n = receive(wait, || unsafe { transport.recv_at(addr, length) })?;
        self.received += n as u64;
        Ok(n)
    }
}

fn receive(
    wait: &mut dyn FnMut() -> io::Result<()>,
    mut recv: impl FnMut() -> io::Result<usize>,
) -> Result<usize, ReadError> {
    loop {
        match recv() {
            Ok(0) => return Err(ReadError::Closed),
            Ok(n) => return Ok(n),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => wait()?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
}
