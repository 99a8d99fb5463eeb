//! What a client counts, laid out so that another process can read it from a file.
//!
//! The block is mapped from a file that `rgpu run --stats` creates, or lies in the process's own memory.
//! All processes that a program starts add to the same file, and the counts survive the program's death.

use crate::calls::CALL_NAMES;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The environment variable that names the file.
pub const STATS_FILE_VARIABLE: &str = "RGPU_STATS_FILE";

const MAGIC: u64 = u64::from_le_bytes(*b"rgpustat");
const VERSION: u64 = 2;
const CALLS: usize = 64;
const _: () = assert!(CALL_NAMES.len() <= CALLS);

/// Counts for one row of the table of calls.
#[derive(Debug, Default)]
#[repr(C)]
pub struct CallStats {
    /// How many calls.
    pub count: AtomicU64,
    /// Nanoseconds spent in them.
    pub nanoseconds: AtomicU64,
}

/// The counters of a session, which all its threads add to.
#[derive(Debug)]
#[repr(C)]
pub struct Stats {
    magic: AtomicU64,
    version: AtomicU64,
    /// How often the client waited for the server, connecting included.
    pub round_trips: AtomicU64,
    /// Calls that were posted.
    pub posted_calls: AtomicU64,
    /// Bytes sent to servers, headers included.
    pub bytes_sent: AtomicU64,
    /// Bytes received from servers, headers included.
    pub bytes_received: AtomicU64,
    /// Bytes that went straight from one of the program's servers to another.
    pub peer_bytes: AtomicU64,
    /// Bytes that went from one of the program's servers to another through the program.
    pub relayed_bytes: AtomicU64,
    /// How many sessions were begun, one for each server.
    pub sessions: AtomicU64,
    /// Sessions whose connection is encrypted.
    pub encrypted: AtomicU64,
    /// Sessions that failed: the connection was lost or never made.
    pub failures: AtomicU64,
    /// By call number.
    pub calls: [CallStats; CALLS],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            magic: AtomicU64::new(MAGIC),
            version: AtomicU64::new(VERSION),
            round_trips: AtomicU64::default(),
            posted_calls: AtomicU64::default(),
            bytes_sent: AtomicU64::default(),
            bytes_received: AtomicU64::default(),
            peer_bytes: AtomicU64::default(),
            relayed_bytes: AtomicU64::default(),
            sessions: AtomicU64::default(),
            encrypted: AtomicU64::default(),
            failures: AtomicU64::default(),
            calls: std::array::from_fn(|_| CallStats::default()),
        }
    }
}

/// What was counted, for people and tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// How often the client waited for the server.
    pub round_trips: u64,
    /// Calls that were posted.
    pub posted_calls: u64,
    /// Bytes sent to servers, headers included.
    pub bytes_sent: u64,
    /// Bytes received from servers, headers included.
    pub bytes_received: u64,
    /// Bytes that went straight from one of the program's servers to another.
    pub peer_bytes: u64,
    /// Bytes that went from one of the program's servers to another through the program.
    pub relayed_bytes: u64,
    /// How many sessions were begun, one for each server.
    pub sessions: u64,
    /// Sessions whose connection is encrypted.
    pub encrypted: u64,
    /// Sessions that failed.
    pub failures: u64,
    /// Name, count and nanoseconds of every call that was made at all.
    pub calls: Vec<(String, u64, u64)>,
}

impl Stats {
    /// Maps a file (made long enough where it is too short) for as long as the process lives.
    pub fn map_file(file: &File) -> io::Result<&'static Self> {
        let size = size_of::<Self>();
        if file.metadata()?.len() < size as u64 {
            file.set_len(size as u64)?;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh shared mapping of a file that is long enough.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: page-aligned, long enough, never unmapped, and every bit pattern is valid for atomics.
        let stats = unsafe { &*at.cast::<Self>() };
        let _ = stats.magic.compare_exchange(0, MAGIC, Relaxed, Relaxed);
        let _ = stats.version.compare_exchange(0, VERSION, Relaxed, Relaxed);
        if stats.magic.load(Relaxed) != MAGIC || stats.version.load(Relaxed) != VERSION {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a statistics file of this version"));
        }
        Ok(stats)
    }

    /// Counters in this process's own memory, or in the file that `RGPU_STATS_FILE` names.
    pub fn from_environment() -> &'static Self {
        let file = crate::sys::variable_of_a_file(STATS_FILE_VARIABLE)
            .and_then(|path| File::options().read(true).write(true).open(path).ok());
        match file.map(|f| Self::map_file(&f)) {
            Some(Ok(stats)) => stats,
            _ => Box::leak(Box::default()),
        }
    }

    /// Counts a call.
    #[inline]
    pub fn count_call(&self, number: u16, nanoseconds: u64) {
        if let Some(call) = self.calls.get(usize::from(number)) {
            call.count.fetch_add(1, Relaxed);
            if nanoseconds > 0 {
                call.nanoseconds.fetch_add(nanoseconds, Relaxed);
            }
        }
    }

    /// The counts at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let calls = CALL_NAMES
            .iter()
            .zip(&self.calls)
            .map(|(name, c)| ((*name).to_owned(), c.count.load(Relaxed), c.nanoseconds.load(Relaxed)))
            .filter(|c| c.1 > 0)
            .collect();
        Snapshot {
            round_trips: self.round_trips.load(Relaxed),
            posted_calls: self.posted_calls.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            peer_bytes: self.peer_bytes.load(Relaxed),
            relayed_bytes: self.relayed_bytes.load(Relaxed),
            sessions: self.sessions.load(Relaxed),
            encrypted: self.encrypted.load(Relaxed),
            failures: self.failures.load(Relaxed),
            calls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shared_and_checked() {
        let path = std::env::temp_dir().join(format!("rgpu-stats-test-{}", std::process::id()));
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        let (one, two) = (Stats::map_file(&file).unwrap(), Stats::map_file(&file).unwrap());
        one.count_call(crate::calls::CALL_NAMES.iter().position(|n| *n == "launch").unwrap() as u16, 5);
        one.round_trips.fetch_add(3, Relaxed);
        let seen = two.snapshot();
        assert_eq!(seen.calls, [("launch".to_owned(), 1, 5)]);
        assert_eq!(seen.round_trips, 3);
        std::fs::write(&path, vec![b'x'; size_of::<Stats>()]).unwrap();
        assert!(Stats::map_file(&File::options().read(true).write(true).open(&path).unwrap()).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
