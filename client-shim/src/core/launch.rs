//! How kernels are launched, and what a device can launch.

use rgpu_device::{DeviceInfo, FunctionInfo};

use super::error::{Code, Error, Result};

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
}

/// What a device can launch at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchLimits {
    threads_per_block: u32,
    block: [u32; 3],
    grid: [u32; 3],
    /// Bytes of shared memory that a block has without asking for more.
    pub shared_per_block: u32,
    /// Bytes of shared memory that a block has at most.
    pub shared_per_block_optin: u32,
    /// How many multiprocessors there are.
    pub multiprocessors: u32,
}

impl LaunchLimits {
    /// From the device's attributes; one that it does not tell limits nothing.
    pub fn new(info: &DeviceInfo) -> Self {
        let get = |number: u32, missing: u32| match info.attribute(number) {
            n if n > 0 => n as u32,
            _ => missing,
        };
        let shared_per_block = get(8, 48 << 10);
        Self {
            threads_per_block: get(1, 1024),
            block: [get(2, 1024), get(3, 1024), get(4, 64)],
            grid: [get(5, 0x7fff_ffff), get(6, 0xffff), get(7, 0xffff)],
            shared_per_block,
            shared_per_block_optin: get(97, shared_per_block),
            multiprocessors: get(16, 1),
        }
    }

    /// Fails where a kernel cannot be launched like this, its dynamic shared memory aside.
    pub fn check(&self, info: &FunctionInfo, config: &Config) -> Result<()> {
        let Config { grid, block, .. } = *config;
        let no = |code: Code, why: String| {
            let name = &info.name;
            Err(Error::new(
                code,
                format!("{name} cannot be launched with grid {grid:?}, block {block:?}: {why}"),
            ))
        };
        if grid.contains(&0) || block.contains(&0) {
            return no(Code::InvalidConfiguration, "there is a 0".into());
        }
        if (0..3).any(|i| grid[i] > self.grid[i]) {
            return no(Code::InvalidConfiguration, format!("the largest grid is {:?}", self.grid));
        }
        if (0..3).any(|i| block[i] > self.block[i]) {
            return no(Code::InvalidConfiguration, format!("the largest block is {:?}", self.block));
        }
        let threads = u64::from(block[0]) * u64::from(block[1]) * u64::from(block[2]);
        if threads > u64::from(self.threads_per_block) {
            let why = format!("a block has at most {} threads", self.threads_per_block);
            return no(Code::InvalidConfiguration, why);
        }
        if info.max_threads != 0 && threads > u64::from(info.max_threads) {
            let why = format!("a block of this kernel has at most {} threads", info.max_threads);
            return no(Code::LaunchOutOfResources, why);
        }
        if info.required_block != [0; 3] && info.required_block != block {
            return no(
                Code::InvalidConfiguration,
                format!("it requires blocks of {:?}", info.required_block),
            );
        }
        Ok(())
    }
}
