//! The application's side of a device.

use crate::{Finding, Result};

/// What a device asks of the application's side.
pub trait Host: Send + Sync {
    /// Text that kernels printed, to go to the program's standard output. Called before the
    /// completion of the kernel is reported.
    fn print(&self, text: &[u8]);

    /// Reads the host's current bytes of [`crate::MemoryKind::Mirrored`] memory. `addr` and `buf` are page
    /// aligned. May block. An error makes the access an illegal address.
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> Result<()>;

    /// A stream has reached the host function `id`. The stream goes on when
    /// [`crate::Device::host_func_done`] is called with it. Must not block.
    fn host_func(&self, id: u64);

    /// What a device that looks at kernels has found ([`crate::Check`]). Called before the completion of the kernel is reported. The
    /// text may have come from kernels.
    fn found(&self, _finding: Finding<'_>) {}

    /// Machine code that [`Host::keep_code`] was given under this name, perhaps by an earlier process. Nobody but this user, or this
    /// tenant of a server, can have put it there. `None` where there is none, or where nothing is kept.
    fn kept_code(&self, _name: &[u8; 32]) -> Option<Vec<u8>> {
        None
    }

    /// Keeps machine code for later processes, if it can.
    fn keep_code(&self, _name: &[u8; 32], _code: &[u8]) {}
}
