//! How kernels are launched. What a device can launch is for [`rgpu_device::LaunchLimits`] to say.

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Config {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
    /// Blocks of a cluster in x, y, z, where the launch says so; else zeros.
    pub cluster: [u32; 3],
}
