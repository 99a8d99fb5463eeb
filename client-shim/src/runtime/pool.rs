//! Memory pools. What they are is in [`crate::doors::pool`].

use std::ffi::{c_int, c_void};

use super::entry::{api, enter_stream};
use crate::abi::types::{MemAccessDesc, MemLocation, MemPoolProps, PoolRef, StreamRef};
use crate::abi::{In, Out};
use crate::doors::{memory, pool as pools};

api! {
    /// `cudaDeviceGetDefaultMemPool`
    fn get_default as "cudaDeviceGetDefaultMemPool" (pool: Out<PoolRef>, device: c_int) {
        pools::default(pool, device)
    }

    /// `cudaDeviceGetMemPool`
    fn get_current as "cudaDeviceGetMemPool" (pool: Out<PoolRef>, device: c_int) {
        pools::device_pool(pool, device)
    }

    /// `cudaDeviceSetMemPool`
    fn set_current as "cudaDeviceSetMemPool" (device: c_int, pool: PoolRef) {
        pools::set_device_pool(device, pool)
    }

    /// `cudaMemGetDefaultMemPool`
    fn get_default_at as "cudaMemGetDefaultMemPool" (pool: Out<PoolRef>, place: In<MemLocation>, kind: c_int) {
        pools::default_at(pool, place, kind)
    }

    /// `cudaMemGetMemPool`
    fn get_current_at as "cudaMemGetMemPool" (pool: Out<PoolRef>, place: In<MemLocation>, kind: c_int) {
        pools::pool_at(pool, place, kind)
    }

    /// `cudaMemSetMemPool`
    fn set_current_at as "cudaMemSetMemPool" (place: In<MemLocation>, kind: c_int, pool: PoolRef) {
        pools::set_pool_at(place, kind, pool)
    }

    /// `cudaMemPoolCreate`
    fn create as "cudaMemPoolCreate" (pool: Out<PoolRef>, props: In<MemPoolProps>) {
        pools::create(pool, props)
    }

    /// `cudaMemPoolDestroy`
    fn destroy as "cudaMemPoolDestroy" (pool: PoolRef) {
        pools::destroy(pool)
    }

    /// `cudaMemPoolTrimTo`
    fn trim_to as "cudaMemPoolTrimTo" (pool: PoolRef, _keep: usize) {
        pools::trim(pool)
    }

    /// `cudaMemPoolGetAttribute`
    fn get_attribute as "cudaMemPoolGetAttribute" (pool: PoolRef, attribute: c_int, value: Out<c_void>) {
        pools::get_attribute(pool, attribute, value)
    }

    /// `cudaMemPoolSetAttribute`
    fn set_attribute as "cudaMemPoolSetAttribute" (pool: PoolRef, attribute: c_int, value: In<c_void>) {
        pools::set_attribute(pool, attribute, value)
    }

    /// `cudaMemPoolSetAccess`
    fn set_access as "cudaMemPoolSetAccess" (pool: PoolRef, list: In<MemAccessDesc>, count: usize) {
        // SAFETY: the program says that so many are there.
        unsafe { pools::set_access(pool, list, count) }
    }

    /// `cudaMemPoolGetAccess`
    fn get_access as "cudaMemPoolGetAccess" (flags: Out<c_int>, pool: PoolRef, place: In<MemLocation>) {
        pools::get_access(flags, pool, place)
    }

    /// `cudaMallocFromPoolAsync`
    fn malloc_from<const PT> as "cudaMallocFromPoolAsync" (
        ptr: Out<usize>, size: usize, pool: PoolRef, stream: StreamRef,
    ) {
        ptr.check()?;
        let (core, context, stream) = enter_stream(stream, PT)?;
        ptr.set(memory::alloc_from_pool(core, context, &stream, pool, size as u64)? as usize)
    }
}
