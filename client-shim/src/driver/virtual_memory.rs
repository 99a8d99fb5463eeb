//! Virtual memory: addresses and memory apart from each other. See [`crate::core::virtual_memory`].

use std::ffi::c_void;

use super::types::*;
use super::*;
use crate::abi::types::{MemAccessDesc, MemLocation, location};
use crate::abi::{In, Out};
use crate::core::virtual_memory::{Access, GRANULARITY};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, the one type that devices' memory has.
const TYPE_PINNED: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READ`.
const PROT_READ: u64 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const PROT_READ_WRITE: u64 = 3;

/// The device that a location means.
fn device_at(core: &Core, place: MemLocation) -> Result<u32> {
    match place.kind {
        location::DEVICE => ordinal(core, place.id),
        2..=4 => Err(Error::new(
            Code::NotSupported,
            format!("virtual memory of the host (CUmemLocationType {}) is not supported", place.kind),
        )),
        other => Err(Error::new(Code::InvalidValue, format!("memory location type {other} does not exist"))),
    }
}

/// The device that allocation properties mean; what cannot be had is refused by name.
fn checked(core: &Core, wanted: &MemAllocationProp) -> Result<u32> {
    let refuse = |what: String| Err(Error::new(Code::NotSupported, format!("{what} is not supported")));
    match wanted.kind {
        TYPE_PINNED => {}
        2 => return refuse("CU_MEM_ALLOCATION_TYPE_MANAGED".into()),
        other => {
            return Err(Error::new(Code::InvalidValue, format!("allocation type {other} does not exist")));
        }
    }
    let device = device_at(core, wanted.location)?;
    if wanted.handle_types != 0 {
        return refuse(format!("an allocation with shareable handles (types {:#x})", wanted.handle_types));
    }
    if wanted.usage != 0 {
        return refuse(format!("an allocation with usage flags {:#x}", wanted.usage));
    }
    // Compression may be declined by the driver, and GPUDirect RDMA is a hint to it.
    Ok(device)
}

door! {
    fn cuMemGetAllocationGranularity(granularity: Out<usize>, wanted: In<MemAllocationProp>, option: u32) |core| {
        checked(core, &wanted.get()?)?;
        if option > 1 {
            return Err(Error::new(Code::InvalidValue, format!("granularity option {option} does not exist")));
        }
        granularity.set(GRANULARITY as usize)
    }
    fn cuMemAddressReserve(address: Out<DevicePtr>, bytes: usize, alignment: usize, hint: DevicePtr, flags: u64) |core| {
        if address.is_null() || flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        let device = core.get_device();
        address.set(core.address_reserve(device, bytes as u64, alignment as u64, hint)?)
    }
    fn cuMemAddressFree(address: DevicePtr, bytes: usize) |core| {
        core.address_free(address, bytes as u64)
    }
    fn cuMemCreate(handle: Out<u64>, bytes: usize, wanted: In<MemAllocationProp>, flags: u64) |core| {
        if handle.is_null() || flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        let device = checked(core, &wanted.get()?)?;
        handle.set(core.physical_create(device, bytes as u64)? as u64)
    }
    fn cuMemRelease(handle: u64) |core| {
        core.physical_release(handle as usize)
    }
    fn cuMemMap(address: DevicePtr, bytes: usize, offset: usize, handle: u64, flags: u64) |core| {
        if flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        core.map(address, bytes as u64, offset as u64, handle as usize)
    }
    fn cuMemUnmap(address: DevicePtr, bytes: usize) |core| {
        core.unmap(address, bytes as u64)
    }
    fn cuMemSetAccess(address: DevicePtr, bytes: usize, wanted: In<MemAccessDesc>, count: usize) |core| {
        if wanted.is_null() || count == 0 {
            return Err(Code::InvalidValue.into());
        }
        let mut grants = Vec::new();
        // SAFETY: the program says that so many are there.
        for one in unsafe { wanted.list(count) }? {
            let access = match one.flags as u64 {
                0 => Access::None,
                PROT_READ_WRITE => Access::ReadWrite,
                PROT_READ => {
                    let text = "CU_MEM_ACCESS_FLAGS_PROT_READ is not supported: memory is readable and writable, or neither";
                    return Err(Error::new(Code::NotSupported, text));
                }
                other => {
                    return Err(Error::new(Code::InvalidValue, format!("access flags {other} do not exist")));
                }
            };
            grants.push((device_at(core, one.location)?, access));
        }
        for (device, access) in grants {
            core.set_access(address, bytes as u64, device, access)?;
        }
        Ok(())
    }
    fn cuMemGetAccess(flags: Out<u64>, place: In<MemLocation>, address: DevicePtr) |core| {
        let device = device_at(core, place.get()?)?;
        flags.set(match core.access(address, device)? {
            Access::None => 0,
            Access::ReadWrite => PROT_READ_WRITE,
        })
    }
    fn cuMemRetainAllocationHandle(handle: Out<u64>, address: *mut c_void) |core| {
        if handle.is_null() {
            return Err(Code::InvalidValue.into());
        }
        handle.set(core.physical_retain(address as u64)? as u64)
    }
    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<MemAllocationProp>, handle: u64) |core| {
        let (device, _) = core.physical_info(handle as usize)?;
        properties.set(MemAllocationProp {
            kind: TYPE_PINNED,
            location: MemLocation { kind: location::DEVICE, id: device as i32 },
            ..MemAllocationProp::default()
        })
    }
}
