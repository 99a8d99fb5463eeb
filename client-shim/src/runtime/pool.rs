//! Memory pools: what they promise about reuse is the device's own business; what they count is kept here.

use std::collections::HashMap;
use std::ffi::c_int;

use parking_lot::Mutex;

use super::abi::{In, Out, api, enter_stream};
use super::device::ordinal;
use super::types::{MemAccessDesc, MemLocation, MemPoolProps, PoolRef, StreamRef, location};
use crate::core::error::invalid;
use crate::core::{Code, Result, current, registry};

/// `cudaMemAccessFlagsProtReadWrite`.
const READ_WRITE: c_int = 3;
/// `cudaMemAllocationTypePinned`.
const PINNED: c_int = 1;
/// `cudaMemPoolAttrReleaseThreshold`.
const RELEASE_THRESHOLD: c_int = 4;

/// A pool.
struct Pool {
    ordinal: u32,
    /// Whether it is the device's default pool, which cannot be destroyed.
    default: bool,
    /// The three reuse policies, which are on unless switched off.
    reuse: [c_int; 3],
    release_threshold: u64,
    used: u64,
    used_high: u64,
    /// What other devices may do.
    access: HashMap<u32, c_int>,
}

impl Pool {
    fn new(ordinal: u32, default: bool) -> Self {
        Self {
            ordinal,
            default,
            reuse: [1; 3],
            release_threshold: 0,
            used: 0,
            used_high: 0,
            access: HashMap::new(),
        }
    }
}

/// All pools, and which pool an allocation came from.
#[derive(Default)]
struct Pools {
    pools: HashMap<PoolRef, Pool>,
    /// The default pool of each device.
    defaults: HashMap<u32, PoolRef>,
    /// The pool that `cudaMallocAsync` uses on each device, where it was changed.
    current: HashMap<u32, PoolRef>,
    allocations: HashMap<usize, (PoolRef, u64)>,
}

impl Pools {
    fn default_of(&mut self, ordinal: u32) -> PoolRef {
        *self.defaults.entry(ordinal).or_insert_with(|| {
            let raw = registry::fresh();
            self.pools.insert(raw, Pool::new(ordinal, true));
            raw
        })
    }

    fn current_of(&mut self, ordinal: u32) -> PoolRef {
        match self.current.get(&ordinal) {
            Some(raw) => *raw,
            None => self.default_of(ordinal),
        }
    }

    fn get(&mut self, raw: PoolRef) -> Result<&mut Pool> {
        self.pools.get_mut(&raw).ok_or_else(|| invalid("this is not a memory pool"))
    }
}

static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

/// Runs `f` with the pools.
fn with<T>(f: impl FnOnce(&mut Pools) -> T) -> T {
    f(POOLS.lock().get_or_insert_default())
}

/// Counts an allocation from a pool, or from the device's current one.
pub(crate) fn remember(pool: Option<PoolRef>, ordinal: u32, addr: usize, bytes: u64) {
    if addr == 0 {
        return;
    }
    with(|pools| {
        let raw = pool.unwrap_or_else(|| pools.current_of(ordinal));
        if let Ok(pool) = pools.get(raw) {
            pool.used += bytes;
            pool.used_high = pool.used_high.max(pool.used);
            pools.allocations.insert(addr, (raw, bytes));
        }
    });
}

/// Counts the release of an allocation, if it came from a pool.
pub(crate) fn forget(addr: usize) {
    // Most programs have no pools.
    let mut lock = POOLS.lock();
    if let Some(pools) = lock.as_mut()
        && let Some((raw, bytes)) = pools.allocations.remove(&addr)
        && let Ok(pool) = pools.get(raw)
    {
        pool.used -= bytes;
    }
}

/// The device that a location names.
fn device_of(place: MemLocation) -> Result<u32> {
    let core = current()?;
    if place.kind != location::DEVICE {
        return Err(invalid("pools are supported in device memory only"));
    }
    ordinal(core, place.id)
}

api! {
    /// `cudaDeviceGetDefaultMemPool`
    fn get_default as "cudaDeviceGetDefaultMemPool" (pool: Out<PoolRef>, device: c_int) {
        pool.check()?;
        let ordinal = ordinal(current()?, device)?;
        pool.set(with(|pools| pools.default_of(ordinal)))
    }

    /// `cudaDeviceGetMemPool`
    fn get_current as "cudaDeviceGetMemPool" (pool: Out<PoolRef>, device: c_int) {
        pool.check()?;
        let ordinal = ordinal(current()?, device)?;
        pool.set(with(|pools| pools.current_of(ordinal)))
    }

    /// `cudaDeviceSetMemPool`
    fn set_current as "cudaDeviceSetMemPool" (device: c_int, pool: PoolRef) {
        let ordinal = ordinal(current()?, device)?;
        with(|pools| {
            if pools.get(pool)?.ordinal != ordinal {
                return Err(invalid("the pool is another device's"));
            }
            pools.current.insert(ordinal, pool);
            Ok(())
        })
    }

    /// `cudaMemGetDefaultMemPool`
    fn get_default_at as "cudaMemGetDefaultMemPool" (pool: Out<PoolRef>, place: In<MemLocation>, kind: c_int) {
        pool.check()?;
        let ordinal = device_of(place.get()?)?;
        if kind != PINNED {
            return Err(Code::NotSupported.into());
        }
        pool.set(with(|pools| pools.default_of(ordinal)))
    }

    /// `cudaMemGetMemPool`
    fn get_current_at as "cudaMemGetMemPool" (pool: Out<PoolRef>, place: In<MemLocation>, kind: c_int) {
        pool.check()?;
        let ordinal = device_of(place.get()?)?;
        if kind != PINNED {
            return Err(Code::NotSupported.into());
        }
        pool.set(with(|pools| pools.current_of(ordinal)))
    }

    /// `cudaMemSetMemPool`
    fn set_current_at as "cudaMemSetMemPool" (place: In<MemLocation>, kind: c_int, pool: PoolRef) {
        let ordinal = device_of(place.get()?)?;
        if kind != PINNED {
            return Err(Code::NotSupported.into());
        }
        with(|pools| {
            if pools.get(pool)?.ordinal != ordinal {
                return Err(invalid("the pool is another device's"));
            }
            pools.current.insert(ordinal, pool);
            Ok(())
        })
    }

    /// `cudaMemPoolCreate`
    fn create as "cudaMemPoolCreate" (pool: Out<PoolRef>, props: In<MemPoolProps>) {
        pool.check()?;
        let props = props.get()?;
        let ordinal = device_of(props.location)?;
        if props.alloc_type != PINNED {
            return Err(invalid("pools hold pinned memory"));
        }
        if props.handle_types != 0 {
            return Err(crate::core::error::not_implemented("a memory pool that other processes can open"));
        }
        let raw = registry::fresh();
        with(|pools| pools.pools.insert(raw, Pool::new(ordinal, false)));
        pool.set(raw)
    }

    /// `cudaMemPoolDestroy`: what was allocated from it lives on.
    fn destroy as "cudaMemPoolDestroy" (pool: PoolRef) {
        with(|pools| {
            if pools.get(pool)?.default {
                return Err(invalid("a default pool cannot be destroyed"));
            }
            pools.pools.remove(&pool);
            pools.current.retain(|_, current| *current != pool);
            Ok(())
        })
    }

    /// `cudaMemPoolTrimTo`: nothing is held back.
    fn trim_to as "cudaMemPoolTrimTo" (pool: PoolRef, _keep: usize) {
        with(|pools| pools.get(pool).map(drop))
    }

    /// `cudaMemPoolGetAttribute`
    fn get_attribute as "cudaMemPoolGetAttribute" (pool: PoolRef, attribute: c_int, value: Out<u64>) {
        value.check()?;
        with(|pools| {
            let pool = pools.get(pool)?;
            match attribute {
                1..=3 => Out(value.0.cast::<c_int>()).set(pool.reuse[attribute as usize - 1]),
                RELEASE_THRESHOLD => value.set(pool.release_threshold),
                5 | 7 => value.set(pool.used),
                6 | 8 => value.set(pool.used_high),
                _ => Err(invalid("no such pool attribute")),
            }
        })
    }

    /// `cudaMemPoolSetAttribute`
    fn set_attribute as "cudaMemPoolSetAttribute" (pool: PoolRef, attribute: c_int, value: In<u64>) {
        with(|pools| {
            let pool = pools.get(pool)?;
            match attribute {
                1..=3 => pool.reuse[attribute as usize - 1] = In(value.0.cast::<c_int>()).get()?,
                RELEASE_THRESHOLD => pool.release_threshold = value.get()?,
                6 | 8 if value.get()? == 0 => pool.used_high = pool.used,
                _ => return Err(invalid("this pool attribute cannot be set so")),
            }
            Ok(())
        })
    }

    /// `cudaMemPoolSetAccess`
    fn set_access as "cudaMemPoolSetAccess" (pool: PoolRef, list: In<MemAccessDesc>, count: usize) {
        let core = current()?;
        let list = list.list(count)?;
        with(|pools| {
            let pool = pools.get(pool)?;
            for desc in list {
                let device = device_of(desc.location)?;
                if !matches!(desc.flags, 0 | 1 | READ_WRITE) || (device == pool.ordinal && desc.flags == 0) {
                    return Err(invalid("a device cannot be given this access"));
                }
                if device != pool.ordinal && !core.can_access_peer(device, pool.ordinal)? {
                    return Err(Code::InvalidDevice.into());
                }
                pool.access.insert(device, desc.flags);
            }
            Ok(())
        })
    }

    /// `cudaMemPoolGetAccess`
    fn get_access as "cudaMemPoolGetAccess" (flags: Out<c_int>, pool: PoolRef, place: In<MemLocation>) {
        flags.check()?;
        let device = device_of(place.get()?)?;
        with(|pools| {
            let pool = pools.get(pool)?;
            let own = if device == pool.ordinal { READ_WRITE } else { 0 };
            flags.set(pool.access.get(&device).copied().unwrap_or(own))
        })
    }

    /// `cudaMallocFromPoolAsync`
    fn malloc_from<const PT> as "cudaMallocFromPoolAsync" (
        ptr: Out<usize>, size: usize, pool: PoolRef, stream: StreamRef,
    ) {
        ptr.check()?;
        let (core, context, stream) = enter_stream(stream, PT)?;
        let ordinal = with(|pools| pools.get(pool).map(|pool| pool.ordinal))?;
        let context = if ordinal == context.ordinal { context } else { core.primary_retain(ordinal)? };
        let addr = core.alloc_async(&context, &stream, size as u64)? as usize;
        remember(Some(pool), ordinal, addr, size as u64);
        ptr.set(addr)
    }
}
