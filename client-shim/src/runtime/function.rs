//! What can be asked of kernels and set about them, and how many blocks of them fit.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::entry::{api, enter};
use super::types::{FuncAttributes, LaunchConfig};
use crate::abi::launch::LaunchAttributes;
use crate::abi::{In, Out};
use crate::core::error::invalid;
use crate::core::{Code, Config, Core, Error, Function, Result};
use crate::doors::ordinal;

/// The attributes that `cudaFuncSetAttribute` takes.
const SETTABLE: std::ops::RangeInclusive<c_int> = 8..=15;

/// The function behind a host address.
fn function(symbol: *const c_void) -> Result<(&'static Core, Arc<Function>)> {
    let (core, context) = enter()?;
    if symbol.is_null() {
        return Err(Error::new(Code::InvalidDeviceFunction, "the kernel is null"));
    }
    Ok((core, core.function_for(&context, symbol)?))
}

/// A kernel's name as a C string that stays.
fn lasting_name(name: &str) -> *const c_char {
    static NAMES: Mutex<Option<HashMap<String, CString>>> = Mutex::new(None);
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    // A name with a NUL inside cannot come from an image.
    names.entry(name.to_owned()).or_insert_with(|| CString::new(name).unwrap_or_default()).as_ptr()
}

/// What there is to know of a function.
pub(super) fn attributes_of(symbol: *const c_void) -> Result<FuncAttributes> {
    let (core, function) = function(symbol)?;
    let info = core.function_info(&function)?;
    let attribute = |number| core.function_attribute(&function, number);
    Ok(FuncAttributes {
        shared_size_bytes: info.static_shared as usize,
        const_size_bytes: info.const_bytes as usize,
        local_size_bytes: info.local_bytes as usize,
        max_threads_per_block: info.max_threads as c_int,
        num_regs: info.registers as c_int,
        ptx_version: info.ptx_version as c_int,
        binary_version: info.binary_version as c_int,
        max_dynamic_shared_size_bytes: core.max_dynamic_shared(&function)?,
        preferred_shmem_carveout: function.carveout.load(Ordering::Relaxed),
        cluster_dim_must_be_set: attribute(10)?,
        required_cluster: [attribute(11)?, attribute(12)?, attribute(13)?],
        non_portable_cluster_size_allowed: attribute(14)?,
        cluster_scheduling_policy: attribute(15)?,
        ..FuncAttributes::default()
    })
}

api! {
    /// `cudaFuncGetAttributes`
    fn get_attributes as "cudaFuncGetAttributes" (attributes: Out<FuncAttributes>, symbol: *const c_void) {
        attributes.check()?;
        attributes.set(attributes_of(symbol)?)
    }

    /// `cudaFuncSetAttribute`
    fn set_attribute as "cudaFuncSetAttribute" (symbol: *const c_void, attribute: c_int, value: c_int) {
        let (core, function) = function(symbol)?;
        if !SETTABLE.contains(&attribute) {
            return Err(invalid("no such attribute can be set"));
        }
        core.function_set_attribute(&function, attribute as u32, value)
    }

    /// `cudaKernelSetAttributeForDevice`
    fn set_kernel_attribute as "cudaKernelSetAttributeForDevice" (
        kernel: usize, attribute: c_int, value: c_int, device: c_int,
    ) {
        let (core, context) = enter()?;
        let ordinal = ordinal(core, device)?;
        if !SETTABLE.contains(&attribute) {
            return Err(invalid("no such attribute can be set"));
        }
        let context = if context.ordinal == ordinal { context } else { core.primary_retain(ordinal)? };
        let function = core.kernel_function(&context, &*core.kernel(kernel)?)?;
        core.function_set_attribute(&function, attribute as u32, value)
    }

    /// `cudaFuncSetCacheConfig`: a hint.
    fn set_cache_config as "cudaFuncSetCacheConfig" (symbol: *const c_void, config: c_int) {
        function(symbol)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(invalid("no such cache configuration")) }
    }

    /// `cudaFuncSetSharedMemConfig`: a hint.
    fn set_shared_config as "cudaFuncSetSharedMemConfig" (symbol: *const c_void, config: c_int) {
        function(symbol)?;
        if (0..=2).contains(&config) { Ok(()) } else { Err(invalid("no such shared memory configuration")) }
    }

    /// `cudaFuncGetName`
    fn get_name as "cudaFuncGetName" (name: Out<*const c_char>, symbol: *const c_void) {
        name.check()?;
        let (_, function) = function(symbol)?;
        name.set(lasting_name(&function.declared().name))
    }

    /// `cudaFuncGetParamInfo`
    fn get_param_info as "cudaFuncGetParamInfo" (
        symbol: *const c_void, index: usize, offset: Out<usize>, size: Out<usize>,
    ) {
        offset.check()?;
        let (_, function) = function(symbol)?;
        let param = function.declared().params.get(index).copied();
        let param = param.ok_or_else(|| invalid("the kernel has fewer parameters"))?;
        offset.set_if_wanted(param.offset as usize);
        size.set_if_wanted(param.size as usize);
        Ok(())
    }

    /// `cudaOccupancyMaxActiveBlocksPerMultiprocessor`
    fn occupancy_blocks as "cudaOccupancyMaxActiveBlocksPerMultiprocessor" (
        blocks: Out<c_int>, symbol: *const c_void, block_size: c_int, dynamic_shared: usize,
    ) {
        blocks.check()?;
        blocks.set(max_active_blocks(symbol, block_size, dynamic_shared, 0)?)
    }

    /// `cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`
    fn occupancy_blocks_with_flags as "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" (
        blocks: Out<c_int>, symbol: *const c_void, block_size: c_int, dynamic_shared: usize, flags: c_uint,
    ) {
        blocks.check()?;
        blocks.set(max_active_blocks(symbol, block_size, dynamic_shared, flags)?)
    }

    /// `cudaOccupancyMaxPotentialClusterSize`
    fn occupancy_cluster_size as "cudaOccupancyMaxPotentialClusterSize" (
        size: Out<c_int>, symbol: *const c_void, config: In<LaunchConfig>,
    ) {
        size.check()?;
        let (core, function) = function(symbol)?;
        size.set(core.occupancy_cluster_size(&function, &cluster_config(config)?)? as c_int)
    }

    /// `cudaOccupancyMaxActiveClusters`
    fn occupancy_active_clusters as "cudaOccupancyMaxActiveClusters" (
        clusters: Out<c_int>, symbol: *const c_void, config: In<LaunchConfig>,
    ) {
        clusters.check()?;
        let (core, function) = function(symbol)?;
        clusters.set(core.occupancy_clusters(&function, &cluster_config(config)?)? as c_int)
    }

    /// `cudaOccupancyAvailableDynamicSMemPerBlock`
    fn occupancy_shared as "cudaOccupancyAvailableDynamicSMemPerBlock" (
        bytes: Out<usize>, symbol: *const c_void, blocks: c_int, block_size: c_int,
    ) {
        bytes.check()?;
        let (core, function) = function(symbol)?;
        if blocks <= 0 || block_size <= 0 {
            return Err(invalid("blocks and threads must be positive"));
        }
        bytes.set(core.occupancy_shared(&function, blocks as u32, block_size as u32)? as usize)
    }
}

/// What a launch configuration asks for.
fn cluster_config(config: In<LaunchConfig>) -> Result<Config> {
    let LaunchConfig { grid, block, shared_bytes, attrs, num_attrs, .. } = config.get()?;
    // SAFETY: the program says that the configuration has so many.
    let LaunchAttributes { cooperative, cluster, .. } = unsafe { LaunchAttributes::read(attrs, num_attrs) }?;
    let shared_bytes = u32::try_from(shared_bytes).map_err(|_| invalid("too much dynamic shared memory"))?;
    Ok(Config { grid: grid.into(), block: block.into(), shared_bytes, cooperative, cluster })
}

/// How many blocks of a kernel fit on a multiprocessor. The flag disables an override that there is none of.
fn max_active_blocks(
    symbol: *const c_void,
    block_size: c_int,
    shared: usize,
    flags: c_uint,
) -> Result<c_int> {
    let (core, function) = function(symbol)?;
    if block_size <= 0 || flags > 1 {
        return Err(invalid("the block size must be positive, and the flags known"));
    }
    Ok(core.occupancy_blocks(&function, block_size as u32, shared as u64)? as c_int)
}
