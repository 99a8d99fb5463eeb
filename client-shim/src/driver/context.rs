//! Contexts.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use rgpu_device::Limit;

use super::types::*;
use super::*;
use crate::abi::{In, Out};

/// The limit for a `CUlimit`; `None` for those that are kept but mean nothing here.
fn limit(number: u32) -> Result<Option<Limit>> {
    Ok(Some(match number {
        0 => Limit::StackSize,
        1 => Limit::PrintfFifoSize,
        2 => Limit::MallocHeapSize,
        // Device-runtime depth and launch count, L2 fetch granularity, persisting L2.
        3..=6 => return Ok(None),
        _ => return Err(Error::new(Code::InvalidValue, format!("there is no limit {number}"))),
    }))
}

fn create(core: &Core, context: Out<Opaque>, flags: u32, device: Device) -> Result<()> {
    if context.is_null() {
        return Err(Error::new(Code::InvalidValue, "a result pointer is null"));
    }
    context.set(core.context_create(ordinal(core, device)?, flags)?.raw as Opaque)
}

/// Refuses what a context can be asked for beyond its flags. Parameters that ask for nothing are as none at all.
fn check_parameters(given: &CtxCreateParams) -> Result<()> {
    if given.affinity_count != 0 {
        return match given.affinities.is_null() {
            true => Err(Error::new(Code::InvalidValue, "execution affinities are counted, but not given")),
            false => Err(not_implemented("cuCtxCreate_v4 with execution affinity")),
        };
    }
    match given.cig.is_null() {
        true => Ok(()),
        false => Err(not_implemented("cuCtxCreate_v4 with CIG (CUDA in Graphics) parameters")),
    }
}

door! {
    fn cuCtxCreate(context: Out<Opaque>, flags: u32, device: Device) |core| {
        create(core, context, flags, device)
    }
    fn cuCtxCreate_v2(context: Out<Opaque>, flags: u32, device: Device) |core| {
        create(core, context, flags, device)
    }
    fn cuCtxCreate_v3(
        context: Out<Opaque>, _affinity: *const c_void, affinities: i32, flags: u32, device: Device,
    ) |core| {
        if affinities != 0 {
            return Err(not_implemented("cuCtxCreate_v3 with execution affinity"));
        }
        create(core, context, flags, device)
    }
    fn cuCtxCreate_v4(context: Out<Opaque>, parameters: In<CtxCreateParams>, flags: u32, device: Device) |core| {
        if !parameters.is_null() {
            check_parameters(&parameters.get()?)?;
        }
        create(core, context, flags, device)
    }
    fn cuCtxDestroy(context: Opaque) |core| {
        core.context_destroy(context as usize)
    }
    fn cuCtxDestroy_v2(context: Opaque) |core| {
        core.context_destroy(context as usize)
    }
    fn cuCtxPushCurrent(context: Opaque) |core| {
        core.context_push(context as usize)
    }
    fn cuCtxPushCurrent_v2(context: Opaque) |core| {
        core.context_push(context as usize)
    }
    fn cuCtxPopCurrent(context: Out<Opaque>) |core| {
        let popped = core.context_pop()?;
        context.set_if_wanted(popped.raw as Opaque);
        Ok(())
    }
    fn cuCtxPopCurrent_v2(context: Out<Opaque>) |core| {
        let popped = core.context_pop()?;
        context.set_if_wanted(popped.raw as Opaque);
        Ok(())
    }
    fn cuCtxSetCurrent(context: Opaque) |core| {
        core.context_set_current(context as usize)
    }
    fn cuCtxGetCurrent(context: Out<Opaque>) |core| {
        context.set(core.context_current_raw() as Opaque)
    }
    fn cuCtxGetDevice(device: Out<Device>) |core| {
        device.set(core.driver_context()?.ordinal as i32)
    }
    fn cuCtxGetDevice_v2(device: Out<Device>, context: Opaque) |core| {
        let context = if context.is_null() { core.driver_context()? } else { core.context(context as usize)? };
        device.set(context.ordinal as i32)
    }
    fn cuCtxGetFlags(flags: Out<u32>) |core| {
        flags.set(core.driver_context()?.flags.load(Ordering::Relaxed))
    }
    fn cuCtxSetFlags(flags: u32) |core| {
        core.driver_context()?.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }
    fn cuCtxGetId(context: Opaque, id: Out<u64>) |core| {
        let context = if context.is_null() { core.driver_context()? } else { core.context(context as usize)? };
        id.set(context.raw as u64)
    }
    fn cuCtxGetApiVersion(context: Opaque, version: Out<u32>) |core| {
        if !context.is_null() {
            core.context(context as usize)?;
        }
        version.set(3020)
    }
    fn cuCtxSynchronize() |core| {
        core.device_synchronize(core.driver_context()?.ordinal)
    }
    fn cuCtxSynchronize_v2(context: Opaque) |core| {
        let context = if context.is_null() { core.driver_context()? } else { core.context(context as usize)? };
        core.device_synchronize(context.ordinal)
    }
    fn cuCtxGetLimit(value: Out<usize>, number: u32) |core| {
        let context = core.driver_context()?;
        match limit(number)? {
            Some(limit) => value.set(core.get_limit(context.ordinal, limit)? as usize),
            None => value.set(0),
        }
    }
    fn cuCtxSetLimit(number: u32, value: usize) |core| {
        let context = core.driver_context()?;
        match limit(number)? {
            Some(limit) => core.set_limit(context.ordinal, limit, value as u64),
            None => Ok(()),
        }
    }
    fn cuCtxGetCacheConfig(config: Out<u32>) |core| {
        core.driver_context()?;
        config.set(0)
    }
    fn cuCtxSetCacheConfig(config: u32) |core| {
        core.driver_context()?;
        if config > 3 { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    fn cuCtxGetSharedMemConfig(config: Out<u32>) |core| {
        core.driver_context()?;
        // Banks of four bytes.
        config.set(1)
    }
    fn cuCtxSetSharedMemConfig(config: u32) |core| {
        core.driver_context()?;
        if config > 2 { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) |core| {
        core.driver_context()?;
        let (its_least, its_greatest) = core.stream_priorities();
        least.set_if_wanted(its_least);
        greatest.set_if_wanted(its_greatest);
        Ok(())
    }
    fn cuCtxResetPersistingL2Cache() |core| {
        core.driver_context().map(|_| ())
    }
    fn cuCtxEnablePeerAccess(peer: Opaque, flags: u32) |core| {
        if flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        let own = core.driver_context()?.ordinal;
        core.enable_peer_access(own, core.context(peer as usize)?.ordinal)
    }
    fn cuCtxDisablePeerAccess(peer: Opaque) |core| {
        let own = core.driver_context()?.ordinal;
        core.disable_peer_access(own, core.context(peer as usize)?.ordinal)
    }
    fn cuCtxAttach(context: Out<Opaque>, flags: u32) |core| {
        if flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        context.set(core.driver_context()?.raw as Opaque)
    }
    fn cuCtxDetach(context: Opaque) |core| {
        core.context_destroy(context as usize)
    }
}
