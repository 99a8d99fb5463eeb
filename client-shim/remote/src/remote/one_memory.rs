//! Pinned and managed memory that is one memory with the server's: both processes map the same file at the same addresses, so that
//! running kernels and threads of the program see each other's writes and atomic operations at once.
//!
//! The file is the server's, sealed, and as long as the shared range. It is mapped here over the reservation, without access; what
//! is allocated becomes accessible. Whoever frees removes the pages before the server is told: it may be long before the server
//! gets to the call, and the place may be used anew meanwhile.

use rgpu_device::{Code, Error, Ordinal, Range, Result};
use rgpu_protocol::transport::pass::check_memory_file;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use parking_lot::Mutex;

/// The shared range, mapped.
pub(super) struct OneMemory {
    range: Range,
    /// What is allocated: the ordinal and the size, by address.
    allocated: Mutex<HashMap<u64, (Ordinal, u64)>>,
}

impl OneMemory {
    /// Maps the file that the server has passed. Where that is impossible, there are two copies, as with other transports.
    ///
    /// # Safety
    /// The range must be a part of the caller's reservation, which outlives this, and of which nobody else uses that part.
    pub(super) unsafe fn map(range: Range, file: &OwnedFd) -> io::Result<Self> {
        check_memory_file(file.as_raw_fd(), range.size)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let (at, size) = (range.base as *mut libc::c_void, range.size as usize);
        // SAFETY: it replaces pages of the reservation that nobody uses, says the caller.
        let mapped = unsafe { libc::mmap(at, size, libc::PROT_NONE, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: advice about the mapping from above. Failing costs nothing but a larger core dump.
        unsafe { libc::madvise(at, size, libc::MADV_DONTDUMP) };
        Ok(Self { range, allocated: Mutex::default() })
    }

    /// Makes pages accessible, which are in the range.
    pub(super) fn open(&self, ordinal: Ordinal, addr: u64, size: u64) -> Result<()> {
        self.protect(addr, size, libc::PROT_READ | libc::PROT_WRITE)
            .map_err(|e| Error::new(Code::OutOfMemory, format!("Cannot map host memory: {e}")))?;
        self.allocated.lock().insert(addr, (ordinal, size));
        Ok(())
    }

    /// Takes the allocation that starts there away, if there is one: its pages are given back, and touching them faults.
    pub(super) fn close(&self, addr: u64) {
        let Some((_, size)) = self.allocated.lock().remove(&addr) else { return };
        self.clear(addr, size);
    }

    /// Takes all allocations of an ordinal away.
    pub(super) fn close_all(&self, ordinal: Ordinal) {
        self.allocated.lock().retain(|addr, (owner, size)| {
            if *owner == ordinal {
                self.clear(*addr, *size);
            }
            *owner != ordinal
        });
    }

    fn clear(&self, addr: u64, size: u64) {
        // SAFETY: it was allocated, and is free now: nobody uses it.
        unsafe { libc::madvise(addr as *mut libc::c_void, size as usize, libc::MADV_REMOVE) };
        // Failing leaves pages accessible to their own program only.
        let _ = self.protect(addr, size, libc::PROT_NONE);
    }

    fn protect(&self, addr: u64, size: u64, protection: libc::c_int) -> io::Result<()> {
        if !self.range.contains(addr, size) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a part of the mapping that is this object's.
        match unsafe { libc::mprotect(addr as *mut libc::c_void, size as usize, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::reserve::Reservation;
    use rgpu_protocol::transport::pass::{Mapping, sealed_memory_file};

    #[test]
    fn what_is_allocated_is_the_file_and_what_is_freed_is_zero() {
        let range = Range { base: 0x2468_0000_0000, size: 1 << 20 };
        let _reservation = Reservation::new(range).unwrap();
        let file = sealed_memory_file(c"test", range.size).unwrap();
        let other_side = Mapping::new(file.as_raw_fd(), range.size).unwrap();
        // SAFETY: the reservation was made for it.
        let memory = unsafe { OneMemory::map(range, &file) }.unwrap();
        // A file of another size, or one that could shrink, is not taken.
        let short = sealed_memory_file(c"test", 4096).unwrap();
        // SAFETY: as above; it is not mapped.
        assert!(unsafe { OneMemory::map(range, &short) }.is_err());
        let addr = range.base + 8192;
        memory.open(0, addr, 4096).unwrap();
        memory.open(1, addr + 4096, 4096).unwrap();
        // SAFETY: two pages that were opened, and the same of the other mapping.
        unsafe {
            let (here, there) = (addr as *mut u8, other_side.base().add(8192));
            here.write_volatile(5);
            here.add(4096).write_volatile(6);
            assert_eq!((there.read_volatile(), there.add(4096).read_volatile()), (5, 6));
            memory.close(addr);
            memory.close(addr);
            assert_eq!((there.read_volatile(), there.add(4096).read_volatile()), (0, 6));
            memory.close_all(1);
            assert_eq!(there.add(4096).read_volatile(), 0);
        }
        assert!(memory.open(0, range.end() - 4096, 8192).is_err());
    }
}
