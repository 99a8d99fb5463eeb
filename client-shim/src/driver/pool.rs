//! Memory pools. What they are is in [`crate::doors::pool`].

use std::ffi::c_void;

use super::stream::stream_of;
use super::types::*;
use crate::abi::types::{MemAccessDesc, MemLocation, MemPoolProps, PoolRef};
use crate::abi::{In, Out};
use crate::core::error::invalid;
use crate::doors::{memory, pool as pools};

door! {
    fn cuDeviceGetDefaultMemPool(pool: Out<PoolRef>, device: Device) |core| {
        pools::default(pool, device)
    }
    fn cuDeviceGetMemPool(pool: Out<PoolRef>, device: Device) |core| {
        pools::device_pool(pool, device)
    }
    fn cuDeviceSetMemPool(device: Device, pool: PoolRef) |core| {
        pools::set_device_pool(device, pool)
    }
    fn cuMemGetDefaultMemPool(pool: Out<PoolRef>, place: In<MemLocation>, kind: i32) |core| {
        pools::default_at(pool, place, kind)
    }
    fn cuMemGetMemPool(pool: Out<PoolRef>, place: In<MemLocation>, kind: i32) |core| {
        pools::pool_at(pool, place, kind)
    }
    fn cuMemSetMemPool(place: In<MemLocation>, kind: i32, pool: PoolRef) |core| {
        pools::set_pool_at(place, kind, pool)
    }
    fn cuMemPoolCreate(pool: Out<PoolRef>, props: In<MemPoolProps>) |core| {
        pools::create(pool, props)
    }
    fn cuMemPoolDestroy(pool: PoolRef) |core| {
        pools::destroy(pool)
    }
    fn cuMemPoolTrimTo(pool: PoolRef, _keep: usize) |core| {
        pools::trim(pool)
    }
    fn cuMemPoolGetAttribute(pool: PoolRef, attribute: i32, value: Out<c_void>) |core| {
        pools::get_attribute(pool, attribute, value)
    }
    fn cuMemPoolSetAttribute(pool: PoolRef, attribute: i32, value: In<c_void>) |core| {
        pools::set_attribute(pool, attribute, value)
    }
    fn cuMemPoolSetAccess(pool: PoolRef, list: In<MemAccessDesc>, count: usize) |core| {
        // SAFETY: the program says that so many are there.
        unsafe { pools::set_access(pool, list, count) }
    }
    fn cuMemPoolGetAccess(flags: Out<i32>, pool: PoolRef, place: In<MemLocation>) |core| {
        pools::get_access(flags, pool, place)
    }
    fn cuMemAllocFromPoolAsync<const PT>(address: Out<DevicePtr>, bytes: usize, pool: PoolRef, stream: Opaque) |core| {
        address.check()?;
        if bytes == 0 {
            return Err(invalid("a size is 0"));
        }
        let stream = stream_of(core, stream, PT)?;
        address.set(memory::alloc_from_pool(core, core.context(stream.context)?, &stream, pool, bytes as u64)?)
    }
}
