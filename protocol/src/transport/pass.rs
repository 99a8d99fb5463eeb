//! Memory files, and passing descriptors to another process over a Unix socket.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The most descriptors in one message.
pub const MAX_PASSED: usize = 24;

/// What a memory file that is shared with a stranger must be sealed against: a file that shrinks kills whoever
/// touches what is gone.
pub const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Makes a memory file whose size is fixed for good.
pub fn sealed_memory_file(name: &std::ffi::CStr, size: u64) -> io::Result<OwnedFd> {
    // SAFETY: the name is a valid string; the result is checked, and a fresh descriptor that nobody else owns.
    let file = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: plain system calls on our own file.
    let done = unsafe {
        libc::ftruncate(file.as_raw_fd(), size as i64) == 0
            && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) == 0
    };
    if done { Ok(file) } else { Err(io::Error::last_os_error()) }
}

/// Whether a descriptor is a memory file of exactly this size, now and for good.
pub fn check_memory_file(fd: RawFd, size: u64) -> io::Result<()> {
    let wrong = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidData, text.to_owned()));
    // SAFETY: all zeros is a valid stat, and the calls are plain.
    let (seals, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(fd, &mut stat) != 0 {
            return Err(io::Error::last_os_error());
        }
        (libc::fcntl(fd, libc::F_GET_SEALS), stat)
    };
    if seals < 0 || seals & SEALS != SEALS {
        return wrong("the peer's memory is not sealed");
    }
    if u64::try_from(stat.st_size) != Ok(size) {
        return wrong("the peer's memory has the wrong size");
    }
    Ok(())
}

/// Room for the control message.
#[repr(C, align(8))]
struct Control([u8; 24 + 8 * MAX_PASSED]);

fn message(control: &mut Control, bytes: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    message
}

/// Sends descriptors, with a byte. The socket must have room, as a fresh one has.
pub fn send_descriptors(socket: RawFd, descriptors: &[RawFd]) -> io::Result<()> {
    assert!(!descriptors.is_empty());
    if send_message(socket, b"D", descriptors)? == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Sends bytes, of which there must be some, and descriptors, of which there need be none. Never waits. Says how many bytes.
pub fn send_message(socket: RawFd, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<usize> {
    assert!(!bytes.is_empty() && descriptors.len() <= MAX_PASSED);
    let mut control = Control([0; _]);
    let mut place = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = message(&mut control, &mut place);
    let length = size_of_val(descriptors);
    // SAFETY: the control buffer is large enough for that many descriptors, and aligned; the bytes are only read.
    let sent = unsafe {
        if descriptors.is_empty() {
            message.msg_control = std::ptr::null_mut();
            message.msg_controllen = 0;
        } else {
            message.msg_controllen = libc::CMSG_SPACE(length as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(length as u32) as _;
            std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast(), libc::CMSG_DATA(header), length);
        }
        libc::sendmsg(socket, &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
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
    let mut control = Control([0; _]);
    let mut place = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut message = message(&mut control, &mut place);
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the message describes valid places.
    let n = unsafe { libc::recvmsg(socket, &mut message, flags) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled the control buffer as the message says; each descriptor is ours from here on.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for i in 0..bytes / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    if message.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer's message does not fit"));
    }
    Ok((n as usize, descriptors))
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

    /// Fresh memory of this process alone.
    pub fn anonymous(size: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping, at an address of the kernel's choice.
        unsafe {
            let base = libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0);
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(base, size, libc::MADV_DONTFORK);
            Ok(Self { base: base.cast(), size })
        }
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
        // SAFETY: a fresh descriptor.
        let plain = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) };
        assert!(check_memory_file(plain.as_raw_fd(), 0).is_err());
        let file = sealed_memory_file(c"test", 8192).unwrap();
        assert!(check_memory_file(file.as_raw_fd(), 4096).is_err());
        // SAFETY: a plain system call on our own file.
        assert_ne!(unsafe { libc::ftruncate(file.as_raw_fd(), 0) }, 0);
        let (a, b) = UnixStream::pair().unwrap();
        // SAFETY: sends one byte from a valid place.
        unsafe { libc::send(a.as_raw_fd(), b"D".as_ptr().cast(), 1, 0) };
        assert!(receive_descriptors(b.as_raw_fd()).is_err());
    }
}
