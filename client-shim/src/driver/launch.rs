//! Launching kernels, and how many blocks fit.

use super::stream::stream_of;
use super::types::*;
use super::*;
use crate::abi::launch::{LaunchAttributes, kernel_params};
use crate::abi::{In, KernelArguments, Out, c_functions};
use crate::core::Config;
use crate::core::relaunch::{Door, launch_again};

/// `CUoccupancyB2DSize`: dynamic shared memory for a block size.
type DynamicShared = unsafe extern "C" fn(block_size: i32) -> usize;

fn launch(
    core: &Core,
    function: Opaque,
    stream: Opaque,
    per_thread: bool,
    config: Config,
    (parameters, extra): (KernelArguments, KernelArguments),
) -> Result<()> {
    let parameters = kernel_params(parameters, extra)?;
    // SAFETY: the program passes what its kernel takes.
    unsafe { core.launch_function(function as usize, stream as usize, per_thread, &config, parameters) }
}

fn block_size(
    core: &Core,
    (grid, block): (Out<i32>, Out<i32>),
    function: Opaque,
    dynamic: Option<DynamicShared>,
    shared: usize,
    limit: i32,
) -> Result<()> {
    let function = core.function(&core.driver_context()?, function as usize)?;
    let for_size = |size: u32| match dynamic {
        // SAFETY: the program's own callback.
        Some(callback) => unsafe { callback(size as i32) as u64 },
        None => shared as u64,
    };
    let (its_grid, its_block) = core.occupancy_block_size(&function, &for_size, limit.max(0) as u32)?;
    grid.set(its_grid as i32)?;
    block.set(its_block as i32)
}

fn active_blocks(core: &Core, count: Out<i32>, function: Opaque, block: i32, shared: usize) -> Result<()> {
    if block <= 0 {
        return Err(Error::new(Code::InvalidValue, "the block size must be positive"));
    }
    let function = core.function(&core.driver_context()?, function as usize)?;
    count.set(core.occupancy_blocks(&function, block as u32, shared as u64)? as i32)
}

/// What a launch configuration asks for.
fn configuration(given: In<LaunchConfig>) -> Result<(LaunchConfig, Config, LaunchAttributes)> {
    let given = given.get()?;
    // SAFETY: the program says that the configuration has so many.
    let attributes = unsafe { LaunchAttributes::read(given.attrs, given.num_attrs) }?;
    let config = Config {
        grid: given.grid,
        block: given.block,
        shared_bytes: given.shared_mem_bytes,
        cooperative: attributes.cooperative,
        cluster: attributes.cluster,
    };
    Ok((given, config, attributes))
}

/// `cuLaunchKernel`, which most programs call very often: first [the short way](crate::core::relaunch). The functions
/// are exported themselves.
macro_rules! launch_kernel {
    ($name:ident, $per_thread:literal) => {
        c_functions! {
            #[unsafe(no_mangle)]
            fn $name(
                function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
                shared_bytes: u32, stream: Opaque, parameters: KernelArguments, extra: KernelArguments,
            ) -> u32 {
                let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
                let config = Config { grid, block, shared_bytes, cooperative: false, cluster: [0; 3] };
                if extra.is_null() {
                    let (kernel, stream) = (function.cast_const(), stream as usize);
                    let list = parameters.as_ptr();
                    // SAFETY: the program passes what its kernel takes.
                    let done = unsafe {
                        launch_again(Door::Driver, kernel.cast(), stream, $per_thread, &config, list)
                    };
                    if let Some(code) = done {
                        return code;
                    }
                }
                launch_guarded(function, stream, $per_thread, config, (parameters, extra))
            }
        }
    };
}
launch_kernel!(cuLaunchKernel, false);
launch_kernel!(cuLaunchKernel_ptsz, true);

#[cold]
fn launch_guarded(
    function: Opaque,
    stream: Opaque,
    per_thread: bool,
    config: Config,
    arguments: (KernelArguments, KernelArguments),
) -> u32 {
    guard_driver("cuLaunchKernel", || launch(core()?, function, stream, per_thread, config, arguments))
}

door! {
    fn cuLaunchCooperativeKernel<const PT>(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: Opaque, parameters: KernelArguments,
    ) |core| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let config = Config { grid, block, shared_bytes, cooperative: true, cluster: [0; 3] };
        launch(core, function, stream, PT, config, (parameters, KernelArguments::NONE))
    }
    fn cuLaunchKernelEx<const PT>(
        config: In<LaunchConfig>, function: Opaque, parameters: KernelArguments, extra: KernelArguments,
    ) |core| {
        let (given, config, attributes) = configuration(config)?;
        launch(core, function, given.stream, PT, config, (parameters, extra))?;
        if attributes.has_events() {
            attributes.record_events(core, &*stream_of(core, given.stream, PT)?)?;
        }
        Ok(())
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(count: Out<i32>, function: Opaque, block: i32, shared: usize) |core| {
        active_blocks(core, count, function, block, shared)
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: Out<i32>, function: Opaque, block: i32, shared: usize, _flags: u32,
    ) |core| {
        active_blocks(core, count, function, block, shared)
    }
    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, function: Opaque, dynamic: Option<DynamicShared>, shared: usize, limit: i32,
    ) |core| {
        block_size(core, (grid, block), function, dynamic, shared, limit)
    }
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>, block: Out<i32>, function: Opaque, dynamic: Option<DynamicShared>, shared: usize, limit: i32,
        _flags: u32,
    ) |core| {
        block_size(core, (grid, block), function, dynamic, shared, limit)
    }
    fn cuOccupancyMaxPotentialClusterSize(size: Out<i32>, function: Opaque, config: In<LaunchConfig>) |core| {
        let function = core.function(&core.driver_context()?, function as usize)?;
        let (_, config, _) = configuration(config)?;
        size.set(core.occupancy_cluster_size(&function, &config)? as i32)
    }
    fn cuOccupancyMaxActiveClusters(count: Out<i32>, function: Opaque, config: In<LaunchConfig>) |core| {
        let function = core.function(&core.driver_context()?, function as usize)?;
        let (_, config, _) = configuration(config)?;
        count.set(core.occupancy_clusters(&function, &config)? as i32)
    }
    fn cuOccupancyAvailableDynamicSMemPerBlock(bytes: Out<usize>, function: Opaque, blocks: i32, block: i32) |core| {
        if blocks <= 0 || block <= 0 {
            return Err(Code::InvalidValue.into());
        }
        let function = core.function(&core.driver_context()?, function as usize)?;
        bytes.set(core.occupancy_shared(&function, blocks as u32, block as u32)? as usize)
    }
}
