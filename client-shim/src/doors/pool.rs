//! Memory pools: what they promise about reuse is the device's own business; what they count is kept here.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use parking_lot::Mutex;

use super::ordinal;
use crate::abi::types::{MemAccessDesc, MemLocation, MemPoolProps, PoolRef, location};
use crate::abi::{In, Out};
use crate::core::error::{invalid, not_implemented};
use crate::core::{Code, Result, current, registry};

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: c_int = 3;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_int = 1;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
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
    /// The pool that `cudaMallocAsync` and `cuMemAllocAsync` use on each device, where it was changed.
    current: HashMap<u32, PoolRef>,
    allocations: HashMap<u64, (PoolRef, u64)>,
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
pub(super) fn remember(pool: Option<PoolRef>, ordinal: u32, addr: u64, bytes: u64) {
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

/// The pool that an allocation came from; 0 where it came from none.
pub(crate) fn pool_of(addr: u64) -> PoolRef {
    let found = POOLS.lock();
    found.as_ref().and_then(|pools| pools.allocations.get(&addr)).map_or(0, |found| found.0)
}

/// Counts the release of an allocation, if it came from a pool.
pub(super) fn forget(addr: u64) {
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

/// The device that a location names, for memory of a type that pools hold there.
fn device_for(place: In<MemLocation>, kind: c_int) -> Result<u32> {
    let ordinal = device_of(place.get()?)?;
    if kind == PINNED { Ok(ordinal) } else { Err(Code::NotSupported.into()) }
}

/// The device of a pool.
pub(super) fn ordinal_of(pool: PoolRef) -> Result<u32> {
    with(|pools| pools.get(pool).map(|pool| pool.ordinal))
}

/// `cuDeviceGetDefaultMemPool`.
pub(crate) fn default(pool: Out<PoolRef>, device: c_int) -> Result<()> {
    pool.check()?;
    let ordinal = ordinal(current()?, device)?;
    pool.set(with(|pools| pools.default_of(ordinal)))
}

/// `cuDeviceGetMemPool`.
pub(crate) fn device_pool(pool: Out<PoolRef>, device: c_int) -> Result<()> {
    pool.check()?;
    let ordinal = ordinal(current()?, device)?;
    pool.set(with(|pools| pools.current_of(ordinal)))
}

fn make_current(ordinal: u32, pool: PoolRef) -> Result<()> {
    with(|pools| {
        if pools.get(pool)?.ordinal != ordinal {
            return Err(invalid("the pool is another device's"));
        }
        pools.current.insert(ordinal, pool);
        Ok(())
    })
}

/// `cuDeviceSetMemPool`.
pub(crate) fn set_device_pool(device: c_int, pool: PoolRef) -> Result<()> {
    make_current(ordinal(current()?, device)?, pool)
}

/// `cuMemGetDefaultMemPool`.
pub(crate) fn default_at(pool: Out<PoolRef>, place: In<MemLocation>, kind: c_int) -> Result<()> {
    pool.check()?;
    let ordinal = device_for(place, kind)?;
    pool.set(with(|pools| pools.default_of(ordinal)))
}

/// `cuMemGetMemPool`.
pub(crate) fn pool_at(pool: Out<PoolRef>, place: In<MemLocation>, kind: c_int) -> Result<()> {
    pool.check()?;
    let ordinal = device_for(place, kind)?;
    pool.set(with(|pools| pools.current_of(ordinal)))
}

/// `cuMemSetMemPool`.
pub(crate) fn set_pool_at(place: In<MemLocation>, kind: c_int, pool: PoolRef) -> Result<()> {
    make_current(device_for(place, kind)?, pool)
}

/// `cuMemPoolCreate`.
pub(crate) fn create(pool: Out<PoolRef>, props: In<MemPoolProps>) -> Result<()> {
    pool.check()?;
    let props = props.get()?;
    let ordinal = device_of(props.location)?;
    if props.alloc_type != PINNED {
        return Err(invalid("pools hold pinned memory"));
    }
    if props.handle_types != 0 {
        return Err(not_implemented("a memory pool that other processes can open"));
    }
    let raw = registry::fresh();
    with(|pools| pools.pools.insert(raw, Pool::new(ordinal, false)));
    pool.set(raw)
}

/// `cuMemPoolDestroy`: what was allocated from it lives on.
pub(crate) fn destroy(pool: PoolRef) -> Result<()> {
    with(|pools| {
        if pools.get(pool)?.default {
            return Err(invalid("a default pool cannot be destroyed"));
        }
        pools.pools.remove(&pool);
        pools.current.retain(|_, current| *current != pool);
        Ok(())
    })
}

/// `cuMemPoolTrimTo`: nothing is held back.
pub(crate) fn trim(pool: PoolRef) -> Result<()> {
    with(|pools| pools.get(pool).map(drop))
}

/// `cuMemPoolGetAttribute`: the reuse policies are `int`s, the others 64 bits wide.
pub(crate) fn get_attribute(pool: PoolRef, attribute: c_int, value: Out<c_void>) -> Result<()> {
    value.check()?;
    // SAFETY: which of both it is, is what the attribute says.
    let (short, long) = unsafe { (value.cast::<c_int>(), value.cast::<u64>()) };
    with(|pools| {
        let pool = pools.get(pool)?;
        match attribute {
            1..=3 => short.set(pool.reuse[attribute as usize - 1]),
            RELEASE_THRESHOLD => long.set(pool.release_threshold),
            5 | 7 => long.set(pool.used),
            6 | 8 => long.set(pool.used_high),
            _ => Err(invalid("no such pool attribute")),
        }
    })
}

/// `cuMemPoolSetAttribute`. The highest use can be set to 0 alone, and begins anew with what is in use.
pub(crate) fn set_attribute(pool: PoolRef, attribute: c_int, value: In<c_void>) -> Result<()> {
    // SAFETY: which of both it is, is what the attribute says.
    let (short, long) = unsafe { (value.cast::<c_int>(), value.cast::<u64>()) };
    with(|pools| {
        let pool = pools.get(pool)?;
        match attribute {
            1..=3 => pool.reuse[attribute as usize - 1] = short.get()?,
            RELEASE_THRESHOLD => pool.release_threshold = long.get()?,
            6 | 8 if long.get()? == 0 => pool.used_high = pool.used,
            _ => return Err(invalid("this pool attribute cannot be set so")),
        }
        Ok(())
    })
}

/// `cuMemPoolSetAccess`.
///
/// # Safety
/// There are `count` descriptions.
pub(crate) unsafe fn set_access(pool: PoolRef, list: In<MemAccessDesc>, count: usize) -> Result<()> {
    let core = current()?;
    // SAFETY: the caller's promise.
    let list = unsafe { list.list(count) }?;
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

/// `cuMemPoolGetAccess`.
pub(crate) fn get_access(flags: Out<c_int>, pool: PoolRef, place: In<MemLocation>) -> Result<()> {
    flags.check()?;
    let device = device_of(place.get()?)?;
    with(|pools| {
        let pool = pools.get(pool)?;
        let own = if device == pool.ordinal { READ_WRITE } else { 0 };
        flags.set(pool.access.get(&device).copied().unwrap_or(own))
    })
}
