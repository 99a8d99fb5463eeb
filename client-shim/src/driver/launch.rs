//! Launching kernels, and how many blocks fit.

use super::types::*;
use super::*;
use crate::core::relaunch::{Door, launch_again};
use crate::core::{Config, Params};

type Arguments = *const *const c_void;

/// `CUoccupancyB2DSize`: dynamic shared memory for a block size.
type DynamicShared = unsafe extern "C" fn(block_size: i32) -> usize;

fn launch(
    core: &Core,
    function: Opaque,
    stream: Opaque,
    per_thread: bool,
    config: Config,
    (parameters, extra): (Arguments, Arguments),
) -> Result<()> {
    let parameters = match (parameters.is_null(), extra.is_null()) {
        (_, true) => Params::Pointers(parameters),
        (true, false) => Params::Extra(extra),
        (false, false) => {
            return Err(Error::new(Code::InvalidValue, "a launch has both parameters and extra"));
        }
    };
    // SAFETY: the program passes what its kernel takes.
    unsafe { core.launch_function(function as usize, stream as usize, per_thread, &config, parameters) }
}

/// The configuration that a `CUlaunchConfig` asks for.
fn from_launch_config(config: *const LaunchConfig) -> Result<(Config, Opaque)> {
    if config.is_null() {
        return Err(Error::new(Code::InvalidValue, "the launch configuration is null"));
    }
    // SAFETY: not null; the caller passes a CUlaunchConfig.
    let given = unsafe { config.read_unaligned() };
    let mut cooperative = false;
    for i in 0..given.num_attrs as usize {
        if given.attrs.is_null() {
            return Err(Error::new(Code::InvalidValue, "the launch attributes are null"));
        }
        // SAFETY: the caller says that there are `num_attrs` of them.
        let attribute = unsafe { given.attrs.add(i).read_unaligned() };
        match attribute.id {
            LAUNCH_ATTRIBUTE_COOPERATIVE => cooperative = attribute.value[0] as u32 != 0,
            LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                let [x, y] = [attribute.value[0] as u32, (attribute.value[0] >> 32) as u32];
                let z = attribute.value[1] as u32;
                if [x, y, z].iter().any(|&n| n > 1) {
                    return Err(not_implemented("launching thread block clusters"));
                }
            }
            // Access windows, priorities and the like: hints.
            _ => {}
        }
    }
    let config =
        Config { grid: given.grid, block: given.block, shared_bytes: given.shared_mem_bytes, cooperative };
    Ok((config, given.stream))
}

fn block_size(
    core: &Core,
    (grid, block): (*mut i32, *mut i32),
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
    set(grid, its_grid as i32)?;
    set(block, its_block as i32)
}

fn active_blocks(core: &Core, count: *mut i32, function: Opaque, block: i32, shared: usize) -> Result<()> {
    if block <= 0 {
        return Err(Error::new(Code::InvalidValue, "the block size must be positive"));
    }
    let function = core.function(&core.driver_context()?, function as usize)?;
    set(count, core.occupancy_blocks(&function, block as u32, shared as u64)? as i32)
}

/// `cuLaunchKernel`, which most programs call very often: first [the short way](crate::core::relaunch).
macro_rules! launch_kernel {
    ($name:ident, $per_thread:literal) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            function: Opaque,
            grid_x: u32,
            grid_y: u32,
            grid_z: u32,
            block_x: u32,
            block_y: u32,
            block_z: u32,
            shared_bytes: u32,
            stream: Opaque,
            parameters: Arguments,
            extra: Arguments,
        ) -> u32 {
            let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
            let config = Config { grid, block, shared_bytes, cooperative: false };
            if extra.is_null() {
                let (kernel, stream) = (function.cast_const(), stream as usize);
                // SAFETY: the program passes what its kernel takes.
                let done = unsafe {
                    launch_again(Door::Driver, kernel.cast(), stream, $per_thread, &config, parameters)
                };
                if let Some(code) = done {
                    return code;
                }
            }
            launch_guarded(function, stream, $per_thread, config, (parameters, extra))
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
    arguments: (Arguments, Arguments),
) -> u32 {
    guard_driver("cuLaunchKernel", || launch(core()?, function, stream, per_thread, config, arguments))
}

door! {
    fn cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: Opaque, parameters: Arguments,
    ) |core, PT| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let config = Config { grid, block, shared_bytes, cooperative: true };
        launch(core, function, stream, PT, config, (parameters, std::ptr::null()))
    }
    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        config: *const LaunchConfig, function: Opaque, parameters: Arguments, extra: Arguments,
    ) |core, PT| {
        let (config, stream) = from_launch_config(config)?;
        launch(core, function, stream, PT, config, (parameters, extra))
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(count: *mut i32, function: Opaque, block: i32, shared: usize) |core| {
        active_blocks(core, count, function, block, shared)
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: *mut i32, function: Opaque, block: i32, shared: usize, _flags: u32,
    ) |core| {
        active_blocks(core, count, function, block, shared)
    }
    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut i32, block: *mut i32, function: Opaque, dynamic: Option<DynamicShared>, shared: usize, limit: i32,
    ) |core| {
        block_size(core, (grid, block), function, dynamic, shared, limit)
    }
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut i32, block: *mut i32, function: Opaque, dynamic: Option<DynamicShared>, shared: usize, limit: i32,
        _flags: u32,
    ) |core| {
        block_size(core, (grid, block), function, dynamic, shared, limit)
    }
    fn cuOccupancyAvailableDynamicSMemPerBlock(bytes: *mut usize, function: Opaque, blocks: i32, block: i32) |core| {
        if blocks <= 0 || block <= 0 {
            return Err(Code::InvalidValue.into());
        }
        let function = core.function(&core.driver_context()?, function as usize)?;
        set(bytes, core.occupancy_shared(&function, blocks as u32, block as u32)? as usize)
    }
}
