//! What kernels print.
//!
//! The driver writes it to this process's standard output. That is made a file in memory, from which the text
//! is taken whenever the driver was made to hand it out.

use parking_lot::Mutex;
use rgpu_device::Host;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

/// Text that was taken is given back to the system in multiples of this.
const CHUNK: u64 = 1 << 20;

/// The file behind the standard output.
pub(crate) struct Printed {
    /// And how much of it was taken.
    file: Mutex<(Option<File>, u64)>,
}

impl Printed {
    /// Standard output stays what it is, and nothing is forwarded.
    pub(crate) fn nothing() -> Self {
        Self { file: Mutex::new((None, 0)) }
    }

    /// Takes this process's standard output over. Failing loses what kernels print, and nothing else.
    pub(crate) fn capture() -> Self {
        // SAFETY: plain system calls; the descriptor is owned from here on.
        let file = unsafe {
            let fd = libc::memfd_create(c"rgpu-printed".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Self::nothing();
            }
            File::from_raw_fd(fd)
        };
        // So that text does not depend on where somebody left off.
        // SAFETY: plain system calls on a descriptor of ours.
        let captured = unsafe {
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) == 0
                && libc::dup2(file.as_raw_fd(), libc::STDOUT_FILENO) >= 0
        };
        Self { file: Mutex::new((captured.then_some(file), 0)) }
    }

    /// Hands over what was printed since the last call.
    pub(crate) fn forward(&self, host: &dyn Host) {
        let mut guard = self.file.lock();
        let (Some(file), taken) = &mut *guard else { return };
        // The driver may write through the C library, which keeps what goes to a file for a while.
        // SAFETY: flushing all streams is always allowed.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        let mut buffer = vec![0; 64 << 10];
        let before = *taken;
        while let Ok(n @ 1..) = file.read_at(&mut buffer, *taken) {
            *taken += n as u64;
            host.print(&buffer[..n]);
        }
        let (from, to) = (before / CHUNK * CHUNK, *taken / CHUNK * CHUNK);
        if from < to {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: plain system call on our own file. Failing keeps memory.
            unsafe { libc::fallocate(file.as_raw_fd(), mode, from as i64, (to - from) as i64) };
        }
    }
}
