//! The application's side of a device.

use crate::Result;

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
}
