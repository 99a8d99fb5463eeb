//! Memory of this very process that copies read or write: promises about it are types.
//!
//! A device that runs in its caller's process is handed plain addresses. Whether they may be used is something that only the
//! caller knows, so the caller says so once, in an `unsafe` constructor, and whoever is handed a [`HostSource`] or a
//! [`HostTarget`] may rely on it.

use crate::{Code, Done, Error, Region, RegionCursor, Result};

/// Memory of this process that may be read, as a [`Region`] whose `addr` is a host address.
#[derive(Debug)]
pub struct HostSource(Region);

impl HostSource {
    /// Lends memory to a copy.
    ///
    /// # Safety
    /// Whoever the value is given to may read the region's bytes until the copy is over: when a blocking call has returned,
    /// or else when its stream is known to have got past the copy. Other threads may write the bytes meanwhile if the
    /// program has such a race of its own; they must stay mapped.
    pub unsafe fn new(region: Region) -> Self {
        Self(region)
    }

    /// Where the bytes lie.
    pub fn region(&self) -> Region {
        self.0
    }

    /// The bytes, packed row after row.
    pub fn gather(self) -> Vec<u8> {
        let mut cursor = RegionCursor::new(self.0);
        let mut bytes = Vec::with_capacity(cursor.remaining() as usize);
        while let Some((addr, run)) = cursor.run() {
            // SAFETY: the constructor's caller says that it is readable.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(addr as *const u8, run as usize) });
            cursor.advance(run);
        }
        bytes
    }
}

/// Memory of this process that may be written, as a [`Region`] whose `addr` is a host address.
#[derive(Debug)]
pub struct HostTarget(Region);

impl HostTarget {
    /// Lends memory to a copy.
    ///
    /// # Safety
    /// Whoever the value is given to may write the region's bytes until the copy's outcome is known: until a blocking call
    /// has returned, or a callback was called. Nothing of Rust's may refer to them meanwhile.
    pub unsafe fn new(region: Region) -> Self {
        Self(region)
    }

    /// Where the bytes go.
    pub fn region(&self) -> Region {
        self.0
    }

    /// A sink that stores what arrives in this memory, row after row, and then calls `done`.
    pub fn sink(self, done: Done) -> Box<dyn CopySink> {
        Box::new(TargetSink { cursor: RegionCursor::new(self.0), done })
    }
}

/// See [`HostTarget::sink`].
struct TargetSink {
    cursor: RegionCursor,
    done: Done,
}

impl CopySink for TargetSink {
    fn chunk(&mut self, pieces: &[&[u8]]) {
        for mut piece in pieces.iter().copied() {
            while let (false, Some((addr, run))) = (piece.is_empty(), self.cursor.run()) {
                let n = piece.len().min(run as usize);
                // SAFETY: the target's constructor was promised that the region is writable until `done` is called, the
                // cursor stays inside it, and device memory does not overlap the destination of a copy to the host.
                unsafe { std::ptr::copy(piece.as_ptr(), addr as *mut u8, n) };
                self.cursor.advance(n as u64);
                piece = &piece[n..];
            }
        }
    }

    fn done(self: Box<Self>, result: Result<()>) {
        (self.done)(result);
    }
}

/// Receives the bytes of a copy from the device, in order.
pub trait CopySink: Send {
    /// The next bytes, as pieces to be joined. Called any number of times, before [`CopySink::done`].
    fn chunk(&mut self, pieces: &[&[u8]]);
    /// The copy is over; on failure the bytes received so far mean nothing.
    fn done(self: Box<Self>, result: Result<()>);
}

/// Where the bytes of a copy to the device come from.
pub enum HostData {
    /// The bytes themselves, rows one after another without gaps.
    Owned(Vec<u8>),
    /// Memory of this very process.
    Borrowed(HostSource),
}

impl HostData {
    /// Checks that it is what a region is to be filled with: as many bytes, or memory of the same shape. Says how many
    /// bytes that are.
    ///
    /// # Errors
    /// Those of [`Region::check_copy`]; [`Code::InvalidValue`] where the bytes are too many or too few.
    #[inline]
    pub fn check(&self, dst: &Region) -> Result<u64> {
        let bytes = match self {
            Self::Owned(bytes) => {
                dst.check()?;
                bytes.len() as u64
            }
            Self::Borrowed(source) => {
                dst.check_copy(&source.region())?;
                dst.bytes().unwrap_or(0)
            }
        };
        if dst.bytes() == Some(bytes) {
            return Ok(bytes);
        }
        Err(Error::new(Code::InvalidValue, format!("The copy has {bytes} bytes for {dst:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_regions_are_filled_row_by_row() {
        let mut memory = [0u8; 32];
        let region = Region {
            addr: memory.as_mut_ptr() as u64,
            row_pitch: 4,
            slice_pitch: 16,
            width: 3,
            height: 2,
            depth: 2,
        };
        // SAFETY: `memory` outlives the sink, and is not looked at meanwhile.
        let target = unsafe { HostTarget::new(region) };
        let mut sink = target.sink(Box::new(|r| r.unwrap()));
        sink.chunk(&[&[1, 2], &[3, 4, 5, 6, 7]]);
        sink.chunk(&[&[8, 9, 10, 11, 12, 99]]);
        sink.done(Ok(()));
        assert_eq!(memory[..8], [1, 2, 3, 0, 4, 5, 6, 0]);
        assert_eq!(memory[16..24], [7, 8, 9, 0, 10, 11, 12, 0]);
        assert_eq!(memory[24..], [0; 8]);
        // SAFETY: `memory` is readable.
        let source = unsafe { HostSource::new(region) };
        assert_eq!(source.gather(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn a_copy_has_as_many_bytes_as_its_region() {
        let of = |width| Region::linear(64, width);
        // SAFETY: it is not read: only its shape is looked at.
        let lent = |region| HostData::Borrowed(unsafe { HostSource::new(region) });
        assert_eq!(HostData::Owned(vec![0; 5]).check(&of(5)), Ok(5));
        assert_eq!(lent(of(7)).check(&of(7)), Ok(7));
        let error = HostData::Owned(vec![0; 4]).check(&of(5)).unwrap_err();
        assert!(error.code == Code::InvalidValue && error.message.contains("bytes for"), "{error:?}");
        let error = lent(of(6)).check(&of(5)).unwrap_err();
        assert!(error.code == Code::InvalidValue && error.message.contains("differ in shape"), "{error:?}");
        let endless = Region { width: u64::MAX, height: 3, ..of(1) };
        assert!(lent(of(5)).check(&endless).is_err());
    }
}
