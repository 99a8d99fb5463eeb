//! Contexts.

use std::sync::atomic::Ordering;

use rgpu_device::Limit;

use super::types::*;
use super::*;

/// The limit for a `CUlimit`; `None` for those that are kept but mean nothing here.
fn limit(number: u32) -> Result<Option<Limit>> {
    Ok(Some(match number {
        0 => Limit::StackSize,
        1 => Limit::PrintfFifoSize,
        2 => Limit::MallocHeapSize,
        // Device-runtime depth and launch count, L2 fetch granularity, persisting L2.
        3..=6 => return Ok(None),
        _ => return Err(Error::new(Code::UnsupportedLimit, format!("limit {number} is not supported"))),
    }))
}

fn create(core: &Core, context: *mut Opaque, flags: u32, device: Device) -> Result<()> {
    if context.is_null() {
        return Err(Error::new(Code::InvalidValue, "a result pointer is null"));
    }
    set(context, core.context_create(ordinal(core, device)?, flags)?.raw as Opaque)
}

door! {
    fn cuCtxCreate(context: *mut Opaque, flags: u32, device: Device) |core| {
        create(core, context, flags, device)
    }
    fn cuCtxCreate_v2(context: *mut Opaque, flags: u32, device: Device) |core| {
        create(core, context, flags, device)
    }
    fn cuCtxCreate_v3(
        context: *mut Opaque, _affinity: *const c_void, affinities: i32, flags: u32, device: Device,
    ) |core| {
        if affinities != 0 {
            return Err(not_implemented("cuCtxCreate_v3 with execution affinity"));
        }
        create(core, context, flags, device)
    }
    fn cuCtxCreate_v4(context: *mut Opaque, parameters: *const c_void, flags: u32, device: Device) |core| {
        if !parameters.is_null() {
            return Err(not_implemented("cuCtxCreate_v4 with parameters"));
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
    fn cuCtxPopCurrent(context: *mut Opaque) |core| {
        let popped = core.context_pop()?;
        set_if_wanted(context, popped.raw as Opaque);
        Ok(())
    }
    fn cuCtxPopCurrent_v2(context: *mut Opaque) |core| {
        let popped = core.context_pop()?;
        set_if_wanted(context, popped.raw as Opaque);
        Ok(())
    }
    fn cuCtxSetCurrent(context: Opaque) |core| {
        core.context_set_current(context as usize)
    }
    fn cuCtxGetCurrent(context: *mut Opaque) |core| {
        set(context, core.context_current_raw() as Opaque)
    }
    fn cuCtxGetDevice(device: *mut Device) |core| {
        set(device, core.driver_context()?.ordinal as i32)
    }
    fn cuCtxGetDevice_v2(device: *mut Device, context: Opaque) |core| {
        let context = if context.is_null() { core.driver_context()? } else { core.context(context as usize)? };
        set(device, context.ordinal as i32)
    }
    fn cuCtxGetFlags(flags: *mut u32) |core| {
        set(flags, core.driver_context()?.flags.load(Ordering::Relaxed))
    }
    fn cuCtxSetFlags(flags: u32) |core| {
        core.driver_context()?.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }
    fn cuCtxGetId(context: Opaque, id: *mut u64) |core| {
        let context = if context.is_null() { core.driver_context()? } else { core.context(context as usize)? };
        set(id, context.raw as u64)
    }
    fn cuCtxGetApiVersion(context: Opaque, version: *mut u32) |core| {
        if !context.is_null() {
            core.context(context as usize)?;
        }
        set(version, 3020)
    }
    fn cuCtxSynchronize() |core| {
        core.device_synchronize(core.driver_context()?.ordinal)
    }
    fn cuCtxSynchronize_v2(context: Opaque) |core| {
        let context = if context.is_null() { core.driver_context()? } else { core.context(context as usize)? };
        core.device_synchronize(context.ordinal)
    }
    fn cuCtxGetLimit(value: *mut usize, number: u32) |core| {
        let context = core.driver_context()?;
        match limit(number)? {
            Some(limit) => set(value, core.get_limit(context.ordinal, limit)? as usize),
            None => set(value, 0),
        }
    }
    fn cuCtxSetLimit(number: u32, value: usize) |core| {
        let context = core.driver_context()?;
        match limit(number)? {
            Some(limit) => core.set_limit(context.ordinal, limit, value as u64),
            None => Ok(()),
        }
    }
    fn cuCtxGetCacheConfig(config: *mut u32) |core| {
        core.driver_context()?;
        set(config, 0)
    }
    fn cuCtxSetCacheConfig(config: u32) |core| {
        core.driver_context()?;
        if config > 3 { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    fn cuCtxGetSharedMemConfig(config: *mut u32) |core| {
        core.driver_context()?;
        // Banks of four bytes.
        set(config, 1)
    }
    fn cuCtxSetSharedMemConfig(config: u32) |core| {
        core.driver_context()?;
        if config > 2 { Err(Code::InvalidValue.into()) } else { Ok(()) }
    }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) |core| {
        core.driver_context()?;
        let (its_least, its_greatest) = core.stream_priorities();
        set_if_wanted(least, its_least);
        set_if_wanted(greatest, its_greatest);
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
    fn cuCtxAttach(context: *mut Opaque, flags: u32) |core| {
        if flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        set(context, core.driver_context()?.raw as Opaque)
    }
    fn cuCtxDetach(context: Opaque) |core| {
        core.context_destroy(context as usize)
    }
}
