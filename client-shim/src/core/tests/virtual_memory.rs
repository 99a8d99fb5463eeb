//! The virtual-memory calls over a software GPU in this process.

use std::sync::Arc;

use super::super::session::Session;
use super::super::virtual_memory::{Access, GRANULARITY};
use super::super::{Code, Core, Direction, Result, Stream, Wait};

const G: u64 = GRANULARITY;

fn core(megabytes: u64, devices: u32) -> (Core, Arc<Stream>) {
    let config = rgpu_softgpu::Config {
        devices,
        memory_bytes_per_device: megabytes << 20,
        workers: 1,
        ..rgpu_softgpu::Config::default()
    };
    let core = Core::with_session(Session::in_process(config, None).unwrap()).unwrap();
    core.set_device(0).unwrap();
    let stream = core.stream(&core.runtime_context().unwrap(), 0, false).unwrap();
    (core, stream)
}

fn write(core: &Core, stream: &Stream, addr: u64, bytes: &[u8]) -> Result<()> {
    let (src, len) = (bytes.as_ptr() as u64, bytes.len() as u64);
    core.copy(stream, addr, src, len, Direction::HostToDevice, Wait::Sync)
}

fn read(core: &Core, stream: &Stream, addr: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0xEE; len];
    let dst = bytes.as_mut_ptr() as u64;
    core.copy(stream, dst, addr, len as u64, Direction::DeviceToHost, Wait::Sync)?;
    Ok(bytes)
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code
}

#[test]
fn memory_is_there_with_an_address_and_access_and_not_otherwise() {
    let (core, stream) = core(64, 1);
    let addr = core.address_reserve(0, 8 * G, 0, 0).unwrap();
    assert_eq!(addr % G, 0);
    assert_eq!(code(write(&core, &stream, addr, &[1])), Code::InvalidValue);
    let (a, b) = (core.physical_create(0, G).unwrap(), core.physical_create(0, 2 * G).unwrap());
    assert_eq!(core.mem_info(0).unwrap().free, (64 << 20) - 3 * G);
    core.map(addr, G, 0, a).unwrap();
    core.map(addr + G, 2 * G, 0, b).unwrap();
    assert_eq!(code(write(&core, &stream, addr, &[1])), Code::InvalidValue);
    assert_eq!(core.access(addr, 0).unwrap(), Access::None);
    core.set_access(addr, 3 * G, 0, Access::ReadWrite).unwrap();
    assert_eq!(core.access(addr + 2 * G, 0).unwrap(), Access::ReadWrite);
    // Moving to its address took no more memory.
    assert_eq!(core.mem_info(0).unwrap().free, (64 << 20) - 3 * G);
    // A copy may cross from one mapping to the next, but not out of the last.
    let bytes: Vec<u8> = (0..3000u32).map(|i| (i % 251) as u8).collect();
    write(&core, &stream, addr + G - 1000, &bytes).unwrap();
    assert_eq!(read(&core, &stream, addr + G - 1000, 3000).unwrap(), bytes);
    assert_eq!(code(write(&core, &stream, addr + 3 * G - 1000, &bytes)), Code::InvalidValue);
    assert_eq!(core.address_range(addr + G + 5).unwrap(), (addr + G, 2 * G));
    assert_eq!(code(core.free(addr)), Code::InvalidValue);

    // What is no longer mapped cannot be reached; what is mapped again has its contents, wherever it is.
    core.unmap(addr, 3 * G).unwrap();
    assert_eq!(code(read(&core, &stream, addr + G - 1000, 1)), Code::InvalidValue);
    core.map(addr + 4 * G, 2 * G, 0, b).unwrap();
    core.set_access(addr + 4 * G, 2 * G, 0, Access::ReadWrite).unwrap();
    assert_eq!(read(&core, &stream, addr + 4 * G, 2000).unwrap(), bytes[1000..]);
    core.set_access(addr + 4 * G, 2 * G, 0, Access::None).unwrap();
    assert_eq!(code(read(&core, &stream, addr + 4 * G, 1)), Code::InvalidValue);
    core.set_access(addr + 4 * G, 2 * G, 0, Access::ReadWrite).unwrap();
    assert_eq!(read(&core, &stream, addr + 4 * G, 2000).unwrap(), bytes[1000..]);

    // Memory outlives its handle for as long as it is mapped.
    let again = core.physical_retain(addr + 4 * G + 77).unwrap();
    assert_eq!(again, b);
    core.physical_release(b).unwrap();
    core.physical_release(b).unwrap();
    assert_eq!(code(core.physical_release(b)), Code::InvalidValue);
    core.physical_release(a).unwrap();
    assert_eq!(read(&core, &stream, addr + 4 * G, 2000).unwrap(), bytes[1000..]);
    assert_eq!(code(core.address_free(addr, 8 * G)), Code::InvalidValue);
    core.unmap(addr + 4 * G, 2 * G).unwrap();
    assert_eq!(code(core.address_free(addr, 4 * G)), Code::InvalidValue);
    core.address_free(addr, 8 * G).unwrap();
    assert_eq!(core.mem_info(0).unwrap().free, 64 << 20);
}

#[test]
fn what_cannot_be_is_refused() {
    let (core, _) = core(64, 2);
    let addr = core.address_reserve(0, 4 * G, 0, 0).unwrap();
    assert_eq!(code(core.address_reserve(0, G + 1, 0, 0)), Code::InvalidValue);
    assert_eq!(code(core.address_reserve(0, 0, 0, 0)), Code::InvalidValue);
    assert_eq!(code(core.address_reserve(0, G, 3, 0)), Code::InvalidValue);
    assert_eq!(code(core.address_reserve(0, 1 << 60, 0, 0)), Code::OutOfMemory);
    assert_eq!(code(core.physical_create(0, 1)), Code::InvalidValue);
    assert_eq!(code(core.physical_create(0, 66 << 20)), Code::OutOfMemory);
    assert_eq!(code(core.physical_create(2, G)), Code::InvalidDevice);
    let p = core.physical_create(0, 2 * G).unwrap();
    let q = core.physical_create(0, 2 * G).unwrap();
    let other = core.physical_create(1, G).unwrap();
    assert_eq!(code(core.map(addr + 1, 2 * G, 0, p)), Code::InvalidValue);
    assert_eq!(code(core.map(addr, 4 * G, 0, p)), Code::InvalidValue);
    assert_eq!(code(core.map(addr + 3 * G, 2 * G, 0, p)), Code::InvalidValue);
    assert_eq!(code(core.map(addr, G, 0, p)), Code::NotSupported);
    assert_eq!(code(core.map(addr, G, 0, other)), Code::NotSupported);
    assert_eq!(code(core.map(addr, G, 0, 12345)), Code::InvalidValue);
    core.map(addr, 2 * G, 0, p).unwrap();
    assert_eq!(code(core.map(addr + 2 * G, 2 * G, 0, p)), Code::NotSupported);
    for at in [addr, addr + G] {
        assert_eq!(code(core.map(at, 2 * G, 0, q)), Code::InvalidValue);
    }
    assert_eq!(code(core.set_access(addr, G, 0, Access::ReadWrite)), Code::InvalidValue);
    assert_eq!(code(core.set_access(addr, 4 * G, 0, Access::ReadWrite)), Code::InvalidValue);
    assert_eq!(code(core.set_access(addr, 2 * G, 7, Access::ReadWrite)), Code::InvalidDevice);
    assert_eq!(code(core.unmap(addr, G)), Code::InvalidValue);
    assert_eq!(code(core.unmap(addr + 2 * G, 2 * G)), Code::InvalidValue);
    assert_eq!(code(core.physical_retain(addr + 2 * G)), Code::InvalidValue);
}

#[test]
fn a_hint_is_followed_where_it_can_be() {
    let (core, _) = core(64, 2);
    let free = core.address_reserve(0, 4 * G, 0, 0).unwrap();
    assert_eq!(core.address_reserve(0, 4 * G, 0, free + 8 * G).unwrap(), free + 8 * G);
    // Taken, not aligned, and nowhere near the device.
    for hint in [free + 8 * G, free + 20 * G + 1, 0x1000] {
        let other = core.address_reserve(0, 4 * G, 0, hint).unwrap();
        assert_ne!(other, hint);
        assert_eq!(other % G, 0);
    }
    let second = core.devices.plan().devices[1].base.next_multiple_of(G);
    assert_eq!(core.address_reserve(0, G, 0, second).unwrap(), second);
    assert_eq!(core.address_reserve(0, G, 1 << 30, 0).unwrap() % (1 << 30), 0);
    // What was reserved first can be had again once it is free and no work uses it.
    core.address_free(free, 4 * G).unwrap();
    core.devices.heap(0).settle(u64::MAX);
    assert_eq!(core.address_reserve(0, 4 * G, 0, free).unwrap(), free);
}

#[test]
fn contents_survive_when_the_device_is_full() {
    let (core, stream) = core(64, 1);
    let addr = core.address_reserve(0, 64 << 20, 0, 0).unwrap();
    let p = core.physical_create(0, 48 << 20).unwrap();
    core.map(addr, 48 << 20, 0, p).unwrap();
    core.set_access(addr, 48 << 20, 0, Access::ReadWrite).unwrap();
    let bytes: Vec<u8> = (0..48u32 << 20).map(|i| (i % 253) as u8).collect();
    write(&core, &stream, addr, &bytes).unwrap();
    core.unmap(addr, 48 << 20).unwrap();
    assert_eq!(core.mem_info(0).unwrap().free, 16 << 20);
    core.map(addr + 8 * G, 48 << 20, 0, p).unwrap();
    core.set_access(addr + 8 * G, 48 << 20, 0, Access::ReadWrite).unwrap();
    assert!(read(&core, &stream, addr + 8 * G, 48 << 20).unwrap() == bytes);
}

#[test]
fn what_is_unmapped_makes_room_for_others_and_keeps_its_contents() {
    let (core, stream) = core(64, 1);
    let addr = core.address_reserve(0, 4 * G, 0, 0).unwrap();
    let (p, q) = (core.physical_create(0, G).unwrap(), core.physical_create(0, 2 * G).unwrap());
    let map = |at: u64, size: u64, raw| {
        core.map(at, size, 0, raw).unwrap();
        core.set_access(at, size, 0, Access::ReadWrite).unwrap();
    };
    map(addr, G, p);
    write(&core, &stream, addr, &[7; 5000]).unwrap();
    core.unmap(addr, G).unwrap();
    // Where it was mapped, and where it still lies, another one comes.
    map(addr, 2 * G, q);
    write(&core, &stream, addr, &[8; 5000]).unwrap();
    map(addr + 2 * G, G, p);
    assert_eq!(read(&core, &stream, addr + 2 * G, 5000).unwrap(), [7; 5000]);
    assert_eq!(read(&core, &stream, addr, 5000).unwrap(), [8; 5000]);
    // Back to the same place, before and after which something else was there.
    core.unmap(addr + 2 * G, G).unwrap();
    map(addr + 2 * G, G, p);
    assert_eq!(read(&core, &stream, addr + 2 * G, 5000).unwrap(), [7; 5000]);
    // Addresses that are given back before the memory are free once that has gone.
    core.unmap(addr, 3 * G).unwrap();
    core.address_free(addr, 4 * G).unwrap();
    assert_eq!(core.mem_info(0).unwrap().free, (64 << 20) - 3 * G);
    core.physical_release(p).unwrap();
    core.physical_release(q).unwrap();
    assert_eq!(core.mem_info(0).unwrap().free, 64 << 20);
    core.devices.heap(0).settle(u64::MAX);
    assert_eq!(core.address_reserve(0, 4 * G, 0, addr).unwrap(), addr);
}

#[test]
fn a_reset_takes_everything() {
    let (core, _) = core(64, 1);
    let addr = core.address_reserve(0, 4 * G, 0, 0).unwrap();
    let p = core.physical_create(0, G).unwrap();
    core.map(addr, G, 0, p).unwrap();
    core.set_access(addr, G, 0, Access::ReadWrite).unwrap();
    core.device_reset(0).unwrap();
    assert_eq!(code(core.unmap(addr, G)), Code::InvalidValue);
    assert_eq!(code(core.physical_release(p)), Code::InvalidValue);
    assert_eq!(core.mem_info(0).unwrap().free, 64 << 20);
    assert_eq!(core.address_reserve(0, 4 * G, 0, addr).unwrap(), addr);
}
