//! Memory files, and passing descriptors to another process over a Unix socket.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// The most descriptors in one message.
pub const MAX_PASSED: usize = 24;

/// What a memory file that is shared with a stranger must be sealed against: a file that shrinks kills whoever
/// touches what is gone.
pub const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Room for the descriptors of one message.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_PASSED));

/// A descriptor for the time of a system call.
fn borrowed<'a>(fd: RawFd) -> io::Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is not -1; and it is used for a system call alone, which reports a number that means nothing (any more).
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Makes a memory file whose size is fixed for good.
pub fn sealed_memory_file(name: &std::ffi::CStr, size: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, size)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Whether a descriptor is a memory file of exactly this size, now and for good.
pub fn check_memory_file(fd: RawFd, size: u64) -> io::Result<()> {
    let wrong = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidData, text.to_owned()));
    let file = borrowed(fd)?;
    let stat = fstat(file)?;
    if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS)) {
        return wrong("the peer's memory is not sealed");
    }
    if u64::try_from(stat.st_size) != Ok(size) {
        return wrong("the peer's memory has the wrong size");
    }
    Ok(())
}

/// Sends descriptors, with a byte. The socket must have room, as a fresh one has.
pub fn send_descriptors(socket: RawFd, descriptors: &[RawFd]) -> io::Result<()> {
    assert!(!descriptors.is_empty());
    if send_message(socket, b"D", descriptors)? == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Sends bytes, of which there must be some, and descriptors, of which there need be none. Never waits. Says how many bytes.
pub fn send_message(socket: RawFd, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<usize> {
    assert!(!bytes.is_empty() && descriptors.len() <= MAX_PASSED);
    let descriptors = descriptors.iter().map(|fd| borrowed(*fd)).collect::<io::Result<Vec<_>>>()?;
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(borrowed(socket)?, &[IoSlice::new(bytes)], &mut control, flags)?)
}

/// Receives what [`send_descriptors`] sent; [`io::ErrorKind::WouldBlock`] where it is not there yet.
pub fn receive_descriptors(socket: RawFd) -> io::Result<Vec<OwnedFd>> {
    let mut letter = [0u8];
    let (n, descriptors) = receive_message(socket, &mut letter)?;
    if n == 0 || letter != *b"D" || descriptors.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer passed no descriptors"));
    }
    Ok(descriptors)
}

/// Receives what [`send_message`] sent; 0 bytes are the end. [`io::ErrorKind::WouldBlock`] where there is nothing.
pub fn receive_message(socket: RawFd, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(borrowed(socket)?, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if received.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer's message does not fit"));
    }
    Ok((received.bytes, descriptors))
}

/// A part of a file in this process's memory, away from forked children and core dumps.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    size: usize,
}

// SAFETY: it is but an address range; whoever reads and writes there sees to order.
unsafe impl Send for Mapping {}
// SAFETY: likewise.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `size` bytes of a file for reading and writing.
    pub fn new(file: RawFd, size: u64) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping, at an address of the kernel's choice.
        unsafe {
            let base = libc::mmap(std::ptr::null_mut(), size as usize, access, flags, file, 0);
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(base, size as usize, libc::MADV_DONTFORK);
            libc::madvise(base, size as usize, libc::MADV_DONTDUMP);
            Ok(Self { base: base.cast(), size: size as usize })
        }
    }

    /// Fresh memory of this process alone, at a place that tells nothing about where other things lie: the other end is told it.
    pub fn apart(size: usize) -> io::Result<Self> {
        /// Where there is hardly anything, and so much of it.
        const FROM: usize = 1 << 44;
        const RANGE: usize = 1 << 45;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        for attempt in 0..16 {
            let mut random = 0usize;
            // SAFETY: a valid place for so many bytes.
            let got = unsafe { libc::getrandom((&raw mut random).cast(), size_of::<usize>(), 0) };
            // Where all of that is taken, which cannot be, anywhere.
            let (at, fixed) = match got > 0 && attempt < 15 {
                true => (FROM + random % RANGE / 4096 * 4096, libc::MAP_FIXED_NOREPLACE),
                false => (0, 0),
            };
            // SAFETY: a fresh mapping, which replaces none.
            unsafe {
                let wanted = std::ptr::without_provenance_mut(at);
                let base = libc::mmap(wanted, size, access, flags | fixed, -1, 0);
                if base != libc::MAP_FAILED {
                    libc::madvise(base, size, libc::MADV_DONTFORK);
                    return Ok(Self { base: base.cast(), size });
                }
            }
        }
        Err(io::Error::last_os_error())
    }

    /// As [`Mapping::new`], placed such that the system can use huge pages.
    pub fn of_huge_pages(file: RawFd, size: u64) -> io::Result<Self> {
        const HUGE: usize = 2 << 20;
        let room = size as usize + HUGE;
        let nowhere = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh reservation at an address of the kernel's choice, of which the mapping takes a part and the
        // rest is released.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), room, libc::PROT_NONE, nowhere, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let before = at.cast::<u8>().align_offset(HUGE);
            let base = at.cast::<u8>().add(before);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
            let mapped = libc::mmap(base.cast(), size as usize, access, flags, file, 0);
            if mapped == libc::MAP_FAILED {
                let e = io::Error::last_os_error();
                libc::munmap(at, room);
                return Err(e);
            }
            if before > 0 {
                libc::munmap(at, before);
            }
            let end = (size as usize).next_multiple_of(4096);
            if room > before + end {
                libc::munmap(base.add(end).cast(), room - before - end);
            }
            for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP, libc::MADV_HUGEPAGE] {
                libc::madvise(base.cast(), size as usize, advice);
            }
            Ok(Self { base, size: size as usize })
        }
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// How many bytes there are.
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.base.cast(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_apart_lies_anywhere() {
        let [a, b, c] = [(); 3].map(|()| Mapping::apart(8192).unwrap());
        let distances =
            [a.base().addr().abs_diff(b.base().addr()), b.base().addr().abs_diff(c.base().addr())];
        assert!(distances[0] != distances[1] && distances.iter().all(|distance| *distance > 1 << 20));
        // SAFETY: it is this test's alone, and long enough.
        unsafe {
            a.base().add(8191).write(7);
            assert_eq!((a.base().read(), a.base().add(8191).read(), a.size()), (0, 7, 8192));
        }
    }
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_cross_and_memory_is_shared() {
        let (a, b) = UnixStream::pair().unwrap();
        assert_eq!(receive_descriptors(b.as_raw_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let file = sealed_memory_file(c"test", 8192).unwrap();
        send_descriptors(a.as_raw_fd(), &[file.as_raw_fd(), a.as_raw_fd()]).unwrap();
        let got = receive_descriptors(b.as_raw_fd()).unwrap();
        assert_eq!(got.len(), 2);
        check_memory_file(got[0].as_raw_fd(), 8192).unwrap();
        let (one, two) = (Mapping::new(file.as_raw_fd(), 8192), Mapping::new(got[0].as_raw_fd(), 8192));
        let (one, two) = (one.unwrap(), two.unwrap());
        // SAFETY: both are mappings of 8192 bytes.
        unsafe {
            one.base().add(5000).write(7);
            assert_eq!(two.base().add(5000).read(), 7);
        }
    }

    #[test]
    fn unsealed_and_missized_memory_is_refused() {
        let plain = crate::sys::memory_file(c"test").unwrap();
        assert!(check_memory_file(plain.as_raw_fd(), 0).is_err());
        let file = sealed_memory_file(c"test", 8192).unwrap();
        assert!(check_memory_file(file.as_raw_fd(), 4096).is_err());
        assert!(ftruncate(&file, 0).is_err());
        let (a, b) = UnixStream::pair().unwrap();
        send_message(a.as_raw_fd(), b"D", &[]).unwrap();
        assert!(receive_descriptors(b.as_raw_fd()).is_err());
    }
}
