//! How many blocks of a kernel fit on a multiprocessor.

use super::error::{Result, not_implemented};
use super::module::Function;
use super::process::Core;

impl Core {
    /// `cudaOccupancyMaxActiveBlocksPerMultiprocessor`.
    pub fn occupancy_blocks(&self, function: &Function, block_size: u32, dynamic_shared: u64) -> Result<u32> {
        let _ = (function, block_size, dynamic_shared);
        Err(not_implemented("occupancy_blocks"))
    }

    /// `cuOccupancyMaxPotentialBlockSize`: the smallest grid that fills the device, and the block size for it.
    /// `dynamic_shared` gives the dynamic shared memory for a block size; `limit` 0 is none.
    pub fn occupancy_block_size(
        &self,
        function: &Function,
        dynamic_shared: &dyn Fn(u32) -> u64,
        limit: u32,
    ) -> Result<(u32, u32)> {
        let _ = (function, dynamic_shared, limit);
        Err(not_implemented("occupancy_block_size"))
    }

    /// `cudaOccupancyAvailableDynamicSMemPerBlock`.
    pub fn occupancy_shared(&self, function: &Function, blocks: u32, block_size: u32) -> Result<u64> {
        let _ = (function, blocks, block_size);
        Err(not_implemented("occupancy_shared"))
    }
}
