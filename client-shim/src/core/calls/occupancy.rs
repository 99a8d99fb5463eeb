//! How many blocks of a kernel fit on a multiprocessor.

use crate::core::error::{Result, invalid};
use crate::core::launch::Config;
use crate::core::module::Function;
use crate::core::process::Core;

const WARP: u32 = 32;

/// What a multiprocessor has.
struct Multiprocessor {
    threads: u32,
    blocks: u32,
    registers: u32,
    shared: u64,
    reserved_shared: u64,
    threads_per_block: u32,
}

impl Core {
    fn multiprocessor(&self, function: &Function) -> Result<Multiprocessor> {
        let info = self.devices.info(function.module.ordinal)?;
        let get = |number: u32, missing: u32| match info.attribute(number) {
            n if n > 0 => n as u32,
            _ => missing,
        };
        Ok(Multiprocessor {
            threads: get(39, 2048),
            blocks: get(106, 32),
            registers: get(82, 65536),
            shared: u64::from(get(81, 164 << 10)),
            reserved_shared: u64::from(get(111, 0)),
            threads_per_block: get(1, 1024),
        })
    }

    /// `cudaOccupancyMaxActiveBlocksPerMultiprocessor`.
    pub(crate) fn occupancy_blocks(
        &self,
        function: &Function,
        block_size: u32,
        dynamic_shared: u64,
    ) -> Result<u32> {
        if block_size == 0 {
            return Err(invalid("A block has at least one thread"));
        }
        let has = self.multiprocessor(function)?;
        let info = self.function_info(function)?;
        let most = if info.max_threads == 0 { has.threads_per_block } else { info.max_threads };
        if block_size > most.min(has.threads_per_block) {
            return Ok(0);
        }
        let warps = block_size.div_ceil(WARP);
        let by_threads = (has.threads / WARP) / warps;
        let by_registers = if info.registers == 0 {
            u32::MAX
        } else {
            // Registers are given out to warps in units of 256, and warps to the four parts of a multiprocessor.
            let per_warp = (info.registers * WARP).next_multiple_of(256);
            (has.registers / 4 / per_warp) * 4 / warps
        };
        let shared = u64::from(info.static_shared).saturating_add(dynamic_shared);
        let by_shared = if shared == 0 {
            u64::MAX
        } else {
            has.shared
                / shared
                    .saturating_add(has.reserved_shared + 127)
                    .max(1)
                    .div_euclid(128)
                    .saturating_mul(128)
                    .max(1)
        };
        Ok(by_threads.min(has.blocks).min(by_registers).min(u32::try_from(by_shared).unwrap_or(u32::MAX)))
    }

    /// `cuOccupancyMaxPotentialBlockSize`: the smallest grid that fills the device, and the block size for it.
    /// `dynamic_shared` gives the dynamic shared memory for a block size; `limit` 0 is none.
    pub(crate) fn occupancy_block_size(
        &self,
        function: &Function,
        dynamic_shared: &dyn Fn(u32) -> u64,
        limit: u32,
    ) -> Result<(u32, u32)> {
        let has = self.multiprocessor(function)?;
        let info = self.function_info(function)?;
        let mut most = if info.max_threads == 0 { has.threads_per_block } else { info.max_threads };
        most = most.min(has.threads_per_block);
        if limit != 0 {
            most = most.min(limit);
        }
        let (mut best_threads, mut best) = (0, (0, 0));
        let mut size = most.next_multiple_of(WARP);
        while size > 0 {
            let block = size.min(most);
            let blocks = self.occupancy_blocks(function, block, dynamic_shared(block))?;
            if block * blocks > best_threads {
                best_threads = block * blocks;
                best = (blocks, block);
            }
            if best_threads == has.threads {
                break;
            }
            size -= WARP;
        }
        let processors = self.devices.launch_limits(function.module.ordinal).multiprocessors;
        Ok((best.0 * processors, best.1))
    }

    /// `cuOccupancyMaxActiveClusters`
    pub(crate) fn occupancy_clusters(&self, function: &Function, config: &Config) -> Result<u32> {
        let (blocks, cluster) = self.blocks_of_clusters(function, config)?;
        Ok(if blocks == 0 { 0 } else { (blocks / cluster).max(1) })
    }

    /// `cuOccupancyMaxPotentialClusterSize`
    pub(crate) fn occupancy_cluster_size(&self, function: &Function, config: &Config) -> Result<u32> {
        let (blocks, _) = self.blocks_of_clusters(function, config)?;
        let clusters = self.devices.launch_limits(function.module.ordinal).clusters;
        let most = if clusters { self.modules.max_cluster(function) } else { 1 };
        let most = match function.declared().cluster.most {
            0 => most,
            own => most.min(own),
        };
        Ok(if blocks == 0 { 0 } else { most })
    }

    /// How many blocks of a launch the device holds, and of how many its clusters are.
    fn blocks_of_clusters(&self, function: &Function, config: &Config) -> Result<(u32, u32)> {
        let threads = config.block.iter().try_fold(1_u32, |product, side| product.checked_mul(*side));
        let threads = threads.ok_or_else(|| invalid("A block has too many threads"))?;
        let config = self.modules.with_cluster(function, config);
        let limits = self.devices.launch_limits(function.module.ordinal);
        let most = self.modules.max_cluster(function);
        let cluster = limits.check_cluster(function.declared(), config.grid, config.cluster, most)?;
        let blocks = self.occupancy_blocks(function, threads, u64::from(config.shared_bytes))?;
        let each = cluster.map_or(1, |sides| sides.iter().product());
        Ok((blocks.saturating_mul(limits.multiprocessors), each))
    }

    /// `cudaOccupancyAvailableDynamicSMemPerBlock`.
    pub(crate) fn occupancy_shared(&self, function: &Function, blocks: u32, block_size: u32) -> Result<u64> {
        if blocks == 0 || blocks > self.occupancy_blocks(function, block_size, 0)? {
            return Err(invalid(format!("{blocks} blocks of {block_size} threads do not fit")));
        }
        let has = self.multiprocessor(function)?;
        let each = (has.shared / u64::from(blocks)) & !127;
        let own = has.reserved_shared + u64::from(self.function_info(function)?.static_shared);
        let most = self.max_dynamic_shared(function)?.max(0) as u64;
        Ok(each.saturating_sub(own).min(most))
    }
}
