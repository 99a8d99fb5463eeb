//! Device memory that several processes of one machine have: a part of one process's memory file, mapped into another's arena.
//!
//! Whoever brings the processes together hands descriptors over (a server's daemon does that). Where the devices are in the
//! programs themselves, nobody does: the token then says where the lender's *ticket* is, a small memory file that says which part
//! of which file is meant, and both are opened through `/proc`. The system allows that to the same user alone, who could do so
//! without a token.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, read_link};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use parking_lot::Mutex;
use rgpu_device::{Code, Error, MemoryToken, Range, Result};

use super::arena::{PAGE, memory_file};

/// What the ticket's file is called, as `/proc` shows it.
const TICKET: &str = "rgpu-ticket";
/// What the devices' files are called, without their numbers.
pub(super) const DEVICE: &str = "rgpu-device";
/// Bytes of what stands in a ticket: the token, the descriptor and the inode of the memory's file, the offset and the size.
const TICKET_BYTES: usize = 32 + 4 * 8;

/// Where lent memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    descriptor: RawFd,
    inode: u64,
    offset: u64,
    size: u64,
}

impl Piece {
    fn to_bytes(self, token: &MemoryToken) -> [u8; TICKET_BYTES] {
        let words = [self.descriptor as u64, self.inode, self.offset, self.size];
        let mut bytes = [0; TICKET_BYTES];
        bytes[..32].copy_from_slice(&token.0);
        bytes[32..]
            .chunks_exact_mut(8)
            .zip(words)
            .for_each(|(at, word)| at.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// What stands in a ticket, if it is that of the token.
    fn parse(bytes: &[u8; TICKET_BYTES], token: &MemoryToken) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[32 + 8 * at + i]));
        (bytes[..32] == token.0).then(|| Self {
            descriptor: word(0) as RawFd,
            inode: word(1),
            offset: word(2),
            size: word(3),
        })
    }
}

/// The tickets of what this process lends to others without anybody's help.
#[derive(Default)]
pub(super) struct Tickets(Mutex<HashMap<MemoryToken, OwnedFd>>);

impl Tickets {
    /// Writes a ticket for a part of a file of this process.
    pub(super) fn issue(&self, file: RawFd, offset: u64, size: u64) -> Result<MemoryToken> {
        let failed = |e: io::Error| {
            Error::new(Code::OperatingSystem, format!("Memory cannot be shared with other processes: {e}"))
        };
        let inode = inode(file).map_err(failed)?;
        let ticket = memory_file(TICKET, PAGE).ok_or_else(|| failed(io::Error::last_os_error()))?;
        let mut token = MemoryToken([0; 32]);
        token.0[..4].copy_from_slice(&std::process::id().to_le_bytes());
        token.0[4..8].copy_from_slice(&ticket.as_raw_fd().to_le_bytes());
        let random = &mut token.0[8..];
        // SAFETY: so many bytes are there.
        if unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) } != random.len() as isize {
            return Err(failed(io::Error::last_os_error()));
        }
        let piece = Piece { descriptor: file, inode, offset, size };
        let ticket = File::from(ticket);
        ticket.write_all_at(&piece.to_bytes(&token), 0).map_err(failed)?;
        self.0.lock().insert(token, ticket.into());
        Ok(token)
    }

    /// Nobody else gets what the token stands for.
    pub(super) fn withdraw(&self, token: &MemoryToken) {
        self.0.lock().remove(token);
    }
}

/// Opens what another process of this user lends: the file, and the offset in it.
pub(super) fn redeem(token: &MemoryToken, size: u64) -> Result<(OwnedFd, u64)> {
    let unknown = || {
        let text = "No process of this machine and user has memory of this handle (any more)";
        Error::new(Code::InvalidValue, text)
    };
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| token.0[at + i]));
    let (process, descriptor) = (number(0), number(4));
    let ticket = open(process, descriptor, TICKET, false).ok_or_else(unknown)?;
    let mut bytes = [0; TICKET_BYTES];
    ticket.read_exact_at(&mut bytes, 0).map_err(|_| unknown())?;
    let piece = Piece::parse(&bytes, token).filter(|piece| piece.size == size).ok_or_else(unknown)?;
    let file = open(process, piece.descriptor as u32, DEVICE, true).ok_or_else(unknown)?;
    if inode(file.as_raw_fd()).ok() != Some(piece.inode) {
        return Err(unknown());
    }
    Ok((file.into(), piece.offset))
}

/// Opens a memory file of another process, which has such a name. Nothing else is opened, whatever the numbers are.
fn open(process: u32, descriptor: u32, name: &str, write: bool) -> Option<File> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    let target = read_link(&path).ok()?;
    if !target.to_str()?.starts_with(&format!("/memfd:{name}")) {
        return None;
    }
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path).ok()
}

fn inode(file: RawFd) -> io::Result<u64> {
    // SAFETY: the descriptor is open for the time of the call, which does not close it.
    let file = std::mem::ManuallyDrop::new(unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(file) });
    Ok(file.metadata()?.ino())
}

/// Checks that a part of a file can be mapped without ever becoming shorter under whoever maps it.
pub(super) fn check(file: &OwnedFd, part: Range) -> Result<()> {
    let refused =
        |text: &str| Err(Error::new(Code::InvalidValue, format!("Memory of another process: {text}")));
    let wanted = libc::F_SEAL_SHRINK;
    // SAFETY: plain system calls about an open descriptor; the structure is filled where the call succeeds.
    let (seals, size) = unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        let known = libc::fstat(file.as_raw_fd(), &mut about) == 0;
        (libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS), if known { about.st_size as u64 } else { 0 })
    };
    if seals < 0 || seals & wanted != wanted {
        return refused("its file is not sealed");
    }
    if !part.base.is_multiple_of(PAGE) || !(Range { base: 0, size }).contains(part.base, part.size) {
        return refused("its file is too short");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_lead_to_the_memory_until_they_are_withdrawn() {
        let file = memory_file(&format!("{DEVICE}-0"), 1 << 20).unwrap();
        let tickets = Tickets::default();
        let token = tickets.issue(file.as_raw_fd(), 8192, 4096).unwrap();
        let (opened, offset) = redeem(&token, 4096).unwrap();
        assert_eq!((inode(opened.as_raw_fd()).unwrap(), offset), (inode(file.as_raw_fd()).unwrap(), 8192));
        check(&opened, Range { base: 8192, size: 4096 }).unwrap();
        assert!(check(&opened, Range { base: 1 << 20, size: 4096 }).is_err());
        // Another size, another token.
        assert!(redeem(&token, 8192).is_err());
        for at in [0, 4, 8, 31] {
            let mut other = token;
            other.0[at] ^= 1;
            assert_eq!(redeem(&other, 4096).unwrap_err().code, Code::InvalidValue);
        }
        tickets.withdraw(&token);
        assert_eq!(redeem(&token, 4096).unwrap_err().code, Code::InvalidValue);
    }

    #[test]
    fn files_that_can_shrink_are_not_taken() {
        // SAFETY: a fresh descriptor, owned from here on.
        let file = unsafe {
            <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(libc::memfd_create(
                c"x".as_ptr(),
                libc::MFD_ALLOW_SEALING,
            ))
        };
        File::from(file.try_clone().unwrap()).set_len(8192).unwrap();
        assert!(check(&file, Range { base: 0, size: 4096 }).unwrap_err().message.contains("sealed"));
    }
}
