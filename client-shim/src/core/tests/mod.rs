//! The core over a software GPU in this process.

mod virtual_memory;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rgpu_device::Region;

use super::context::Context;
use super::graph::memory::{Freeing, GraphAllocation};
use super::session::Session;
use super::*;

fn new_core(devices: u32) -> Core {
    let config = rgpu_softgpu::Config {
        devices,
        memory_bytes_per_device: 256 << 20,
        workers: 2,
        ..rgpu_softgpu::Config::default()
    };
    Core::with_session(Session::in_process(config, None).unwrap()).unwrap()
}

/// One core for all tests that don't reset anything.
fn core() -> &'static Core {
    static CORE: OnceLock<Core> = OnceLock::new();
    CORE.get_or_init(|| new_core(2))
}

fn context() -> (&'static Core, Arc<Context>, Arc<Stream>) {
    let core = core();
    core.set_device(0).unwrap();
    let context = core.runtime_context().unwrap();
    let stream = core.stream(&context, 0, false).unwrap();
    (core, context, stream)
}

fn to_device(core: &Core, stream: &Stream, dst: u64, bytes: &[u8]) -> Result<()> {
    core.copy(stream, dst, bytes.as_ptr() as u64, bytes.len() as u64, Direction::HostToDevice, Wait::Sync)
}

fn from_device(core: &Core, stream: &Stream, src: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0xEE; len];
    core.copy(stream, bytes.as_mut_ptr() as u64, src, len as u64, Direction::DeviceToHost, Wait::Sync)?;
    Ok(bytes)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code
}

#[test]
fn bytes_survive_the_journey() {
    let (core, context, stream) = context();
    for len in [1, 1000, 70_000, 3 << 20] {
        let data = pattern(len);
        let a = core.alloc(&context, len as u64).unwrap();
        let b = core.alloc(&context, len as u64).unwrap();
        assert_eq!(a % 256, 0);
        to_device(core, &stream, a, &data).unwrap();
        core.copy(&stream, b, a, len as u64, Direction::DeviceToDevice, Wait::Sync).unwrap();
        assert!(from_device(core, &stream, b, len).unwrap() == data);
        core.free(a).unwrap();
        core.free(b).unwrap();
    }
}

#[test]
fn wild_copies_are_refused() {
    let (core, context, stream) = context();
    let a = core.alloc(&context, 1000).unwrap();
    let data = pattern(2000);
    assert_eq!(code(to_device(core, &stream, a, &data)), Code::InvalidValue);
    assert_eq!(code(to_device(core, &stream, a + 500, &data[..501])), Code::InvalidValue);
    to_device(core, &stream, a + 500, &data[..500]).unwrap();
    assert_eq!(code(to_device(core, &stream, a + (1 << 40), &data)), Code::InvalidValue);
    assert_eq!(code(to_device(core, &stream, 0, &data)), Code::InvalidValue);
    let host = data.as_ptr() as u64;
    let pageable = core.copy(&stream, host, a, 10, Direction::DeviceToDevice, Wait::Sync);
    assert_eq!(code(pageable), Code::InvalidValue);
    core.copy(&stream, 0, 0, 0, Direction::Infer, Wait::Sync).unwrap();
    assert_eq!(core.address_range(a + 999).unwrap(), (a, 1000));
    assert_eq!(code(core.free(a + 1)), Code::InvalidValue);
    core.free(a).unwrap();
    assert_eq!(code(core.free(a)), Code::InvalidValue);
    assert_eq!(code(to_device(core, &stream, a, &data[..1])), Code::InvalidValue);
    core.free(0).unwrap();
}

#[test]
fn too_much_memory_is_refused_at_once() {
    let (core, context, _) = context();
    assert_eq!(code(core.alloc(&context, 1 << 50)), Code::OutOfMemory);
    assert_eq!(code(core.alloc(&context, u64::MAX)), Code::OutOfMemory);
    assert_eq!(code(core.alloc_pitch(&context, u64::MAX, 3)), Code::OutOfMemory);
    assert_eq!(core.alloc(&context, 0).unwrap(), 0);
    let second = {
        core.set_device(1).unwrap();
        let context = core.runtime_context().unwrap();
        core.set_device(0).unwrap();
        context
    };
    let mut held = Vec::new();
    let error = loop {
        match core.alloc(&second, 64 << 20) {
            Ok(addr) => held.push(addr),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, Code::OutOfMemory);
    assert_eq!(held.len(), 4);
    let small = core.alloc(&second, 512);
    assert!(small.is_err());
    core.free(held.pop().unwrap()).unwrap();
    held.push(core.alloc(&second, 64 << 20).unwrap());
    for addr in held {
        core.free(addr).unwrap();
    }
}

#[test]
fn boxes_are_copied() {
    let (core, context, stream) = context();
    let (addr, pitch) = core.alloc_pitch(&context, 100, 20 * 3).unwrap();
    assert!(pitch >= 100 && pitch % 512 == 0);
    let data = pattern(100 * 20 * 3);
    let device = CopySide { addr, row_pitch: pitch, slice_pitch: pitch * 20 };
    let host = CopySide { addr: data.as_ptr() as u64, row_pitch: 100, slice_pitch: 2000 };
    let what = CopyBox { dst: device, src: host, width: 100, height: 20, depth: 3 };
    core.copy_box(&stream, &what, Direction::HostToDevice, Wait::Sync).unwrap();
    // A part of it comes back: 10 bytes of 4 rows of 2 slices.
    let mut part = vec![0u8; 80];
    let back = CopyBox {
        dst: CopySide { addr: part.as_mut_ptr() as u64, row_pitch: 10, slice_pitch: 40 },
        src: CopySide { addr: addr + 5 + 2 * pitch + pitch * 20, ..device },
        width: 10,
        height: 4,
        depth: 2,
    };
    core.copy_box(&stream, &back, Direction::Infer, Wait::Sync).unwrap();
    for z in 0..2 {
        for y in 0..4 {
            let from = (z + 1) * 2000 + (y + 2) * 100 + 5;
            assert_eq!(part[z * 40 + y * 10..][..10], data[from..from + 10]);
        }
    }
    let narrow = CopyBox { src: CopySide { row_pitch: 9, ..back.src }, ..back };
    assert_eq!(code(core.copy_box(&stream, &narrow, Direction::Infer, Wait::Sync)), Code::InvalidPitchValue);
    core.free(addr).unwrap();
}

#[test]
fn fills() {
    let (core, context, stream) = context();
    let a = core.alloc(&context, 4096).unwrap();
    core.fill(&stream, Region::linear(a, 4096), 0x11, 1, Wait::Sync).unwrap();
    core.fill(&stream, Region::linear(a + 4, 8), 0xAABB_CCDD, 4, Wait::Async).unwrap();
    let column = Region { addr: a + 100, row_pitch: 64, slice_pitch: 0, width: 2, height: 3, depth: 1 };
    core.fill(&stream, column, 0x7788, 2, Wait::Async).unwrap();
    let bytes = from_device(core, &stream, a, 4096).unwrap();
    assert_eq!(
        bytes[..14],
        [0x11, 0x11, 0x11, 0x11, 0xDD, 0xCC, 0xBB, 0xAA, 0xDD, 0xCC, 0xBB, 0xAA, 0x11, 0x11]
    );
    assert_eq!(bytes[163..167], [0x11, 0x88, 0x77, 0x11]);
    assert_eq!(bytes[228..231], [0x88, 0x77, 0x11]);
    assert_eq!(code(core.fill(&stream, Region::linear(a, 4097), 0, 1, Wait::Sync)), Code::InvalidValue);
    assert_eq!(code(core.fill(&stream, Region::linear(a + 1, 4), 0, 4, Wait::Sync)), Code::InvalidValue);
    let host = [0u8; 8];
    let pageable = Region::linear(host.as_ptr() as u64, 8);
    assert_eq!(code(core.fill(&stream, pageable, 0, 1, Wait::Sync)), Code::InvalidValue);
    core.free(a).unwrap();
}

#[test]
fn batches_copy_each_of_their_members() {
    use crate::abi::types::{MemLocation, location};
    use crate::abi::{In, Out};
    use crate::doors::batch::{self, CopyAttributes};
    let (core, context, legacy) = context();
    let stream = core.stream_create(&context, 1, 0).unwrap();
    let (a, b) = (core.alloc(&context, 1000).unwrap(), core.alloc(&context, 1000).unwrap());
    let mut source = pattern(1000);
    let mut target = vec![0u8; 500];
    to_device(core, &stream, b, &source[..500]).unwrap();
    let copies = |stream: &Stream, to: &[u64], from: &[u64], orders: &[u32], firsts: &[usize]| {
        let attributes: Vec<_> = orders.iter().map(|order| CopyAttributes::of(*order)).collect();
        let (sizes, mut failed) = (vec![500usize; to.len()], 77);
        // SAFETY: the lists are as long as each other, and what they point to is there.
        let done = unsafe {
            let lists = (In::new(to.as_ptr()), In::new(from.as_ptr()), In::new(sizes.as_ptr()));
            let shared = (In::new(attributes.as_ptr()), In::new(firsts.as_ptr()), orders.len());
            batch::copies(core, stream, lists, to.len(), shared, Some(Out::new(&mut failed)))
        };
        (done.map_err(|error| error.code), failed)
    };
    let (host, back) = (source.as_ptr() as u64, target.as_mut_ptr() as u64);
    assert_eq!(copies(&stream, &[a, back], &[host + 500, b], &[2, 1], &[0, 1]), (Ok(()), usize::MAX));
    let sent = source.split_off(500);
    core.stream_synchronize(&stream).unwrap();
    assert!(from_device(core, &stream, a, 500).unwrap() == sent && target == source);
    // The second member lies beyond its allocation; the orders are none, the indices of too many; the stream is the legacy one.
    let two = ([a, b + 600], [b, a]);
    assert_eq!(copies(&stream, &two.0, &two.1, &[1], &[0]), (Err(Code::InvalidValue), 1));
    assert_eq!(copies(&stream, &two.0, &two.1, &[1, 0], &[0, 1]), (Err(Code::InvalidValue), 1));
    assert_eq!(copies(&stream, &two.0, &two.1, &[1, 1], &[0, 2]), (Err(Code::InvalidValue), usize::MAX));
    assert_eq!(copies(&legacy, &[a], &[b], &[1], &[0]), (Err(Code::InvalidValue), usize::MAX));
    // Hints are about managed memory alone.
    let managed = core.managed_alloc(&context, 4096, 1).unwrap();
    let hints = |addr: u64, kind: i32, flags: u64| {
        let (place, bytes, first) = (MemLocation { kind, id: 0 }, 4096, 0);
        // SAFETY: each list has one entry.
        let done = unsafe {
            let range = (In::new(&raw const addr), In::new(&raw const bytes));
            let shared = (In::new(&raw const place), In::new(&raw const first), 1);
            batch::prefetches(core, &stream, range, 1, shared, flags)
        };
        done.map_err(|error| error.code)
    };
    assert_eq!(hints(managed, location::DEVICE, 0), Ok(()));
    for wrong in [hints(a, location::DEVICE, 0), hints(managed, 9, 0), hints(managed, location::HOST, 1)] {
        assert_eq!(wrong, Err(Code::InvalidValue));
    }
    [a, b, managed].into_iter().for_each(|addr| core.free(addr).unwrap());
    core.stream_destroy(stream.raw).unwrap();
}

#[test]
fn pinned_memory_is_seen_by_both() {
    let (core, context, stream) = context();
    let pinned = core.host_alloc(&context, 100_000, 0).unwrap();
    let a = core.alloc(&context, 100_000).unwrap();
    let data = pattern(100_000);
    // SAFETY: the allocation is host-visible and 100,000 bytes long.
    let view = unsafe { std::slice::from_raw_parts_mut(pinned as *mut u8, 100_000) };
    view.copy_from_slice(&data);
    core.copy(&stream, a, pinned, 100_000, Direction::HostToDevice, Wait::Async).unwrap();
    core.stream_synchronize(&stream).unwrap();
    view.fill(0);
    core.copy(&stream, pinned, a, 100_000, Direction::DeviceToHost, Wait::Async).unwrap();
    core.stream_synchronize(&stream).unwrap();
    assert!(view == &data[..]);
    let info = core.pointer_info(pinned + 5);
    assert_eq!(
        (info.kind, info.base, info.size, info.device_pointer),
        (PointerKind::Host, pinned, 100_000, pinned + 5)
    );
    assert_eq!(core.host_device_pointer(pinned + 5).unwrap(), pinned + 5);
    assert_eq!(code(core.free(pinned)), Code::InvalidValue);
    assert_eq!(code(core.host_free(a)), Code::InvalidValue);
    core.host_free(pinned).unwrap();
    assert_eq!(code(core.host_free(pinned)), Code::InvalidValue);
    assert_eq!(code(core.host_alloc(&context, 1, 0x80)), Code::InvalidValue);
    core.free(a).unwrap();
}

#[test]
fn registered_memory() {
    let (core, context, stream) = context();
    let mut memory = pattern(3 * 4096 + 123);
    let (at, len) = (memory.as_mut_ptr() as u64 + 100, 2 * 4096u64);
    core.host_register(&context, at, len, 2).unwrap();
    assert_eq!(code(core.host_register(&context, at + 8000, 5000, 0)), Code::HostMemoryAlreadyRegistered);
    let info = core.pointer_info(at + 7);
    assert_eq!((info.kind, info.base, info.registered), (PointerKind::Host, at, true));
    let alias = core.host_device_pointer(at + 7).unwrap();
    assert_eq!(info.device_pointer, alias);
    assert_eq!(core.host_device_pointer(at).unwrap(), alias - 7);
    assert_eq!(core.pointer_info(alias).host_pointer, at + 7);
    let a = core.alloc(&context, len).unwrap();
    core.copy(&stream, a, at, len, Direction::HostToDevice, Wait::Async).unwrap();
    assert!(from_device(core, &stream, a, len as usize).unwrap()[..] == memory[100..100 + len as usize]);
    core.fill(&stream, Region::linear(alias - 7, 16), 0x5A, 1, Wait::Sync).unwrap();
    assert_eq!(memory[100..116], [0x5A; 16]);
    core.fill(&stream, Region::linear(a, len), 0x33, 1, Wait::Async).unwrap();
    core.copy(&stream, alias, a, 100, Direction::DeviceToHost, Wait::Async).unwrap();
    core.stream_synchronize(&stream).unwrap();
    assert_eq!(memory[107..207], [0x33; 100]);
    core.host_unregister(at).unwrap();
    assert_eq!(code(core.host_unregister(at)), Code::HostMemoryNotRegistered);
    assert_eq!(core.pointer_info(at).kind, PointerKind::Unregistered);
    assert_eq!(code(core.host_device_pointer(at)), Code::InvalidValue);
    core.free(a).unwrap();
    memory.clear();
}

#[test]
fn managed_memory() {
    let (core, context, stream) = context();
    let m = core.managed_alloc(&context, 10_000, 1).unwrap();
    assert_eq!(core.pointer_info(m + 9999).kind, PointerKind::Managed);
    // SAFETY: managed memory is host-visible.
    let view = unsafe { std::slice::from_raw_parts_mut(m as *mut u8, 10_000) };
    core.fill(&stream, Region::linear(m, 10_000), 0x42, 1, Wait::Sync).unwrap();
    assert_eq!(view[9999], 0x42);
    view[1] = 7;
    assert_eq!(from_device(core, &stream, m, 3).unwrap(), [0x42, 7, 0x42]);
    to_device(core, &stream, m, &[1, 2, 3]).unwrap();
    assert_eq!(view[..4], [1, 2, 3, 0x42]);
    assert_eq!(code(core.managed_alloc(&context, 0, 1)), Code::InvalidValue);
    assert_eq!(code(core.managed_alloc(&context, 10, 3)), Code::InvalidValue);
    core.free(m).unwrap();
}

#[test]
fn what_a_stream_freed_it_may_have_again() {
    let (core, context, _) = context();
    let stream = core.stream_create(&context, 1, 0).unwrap();
    for bytes in [1000u64, 5 << 20] {
        let a = core.alloc_async(&context, &stream, bytes).unwrap();
        core.fill(&stream, Region::linear(a, bytes), 1, 1, Wait::Async).unwrap();
        core.free_async(&stream, a).unwrap();
        assert_eq!(core.alloc_async(&context, &stream, bytes).unwrap(), a);
        core.free_async(&stream, a).unwrap();
    }
    core.stream_synchronize(&stream).unwrap();
    core.stream_destroy(stream.raw).unwrap();
}

#[test]
fn handles_that_mean_nothing() {
    let (core, context, _) = context();
    assert_eq!(core.stream(&context, 12345, false).err().map(|e| e.code), Some(Code::InvalidHandle));
    assert_eq!(core.event(usize::MAX).err().map(|e| e.code), Some(Code::InvalidHandle));
    assert_eq!(core.module(1).err().map(|e| e.code), Some(Code::InvalidHandle));
    assert_eq!(core.context(1).err().map(|e| e.code), Some(Code::InvalidContext));
    for default in [0, 1, 2] {
        assert_eq!(code(core.stream_destroy(default)), Code::InvalidHandle);
    }
    let stream = core.stream_create(&context, 0, -100).unwrap();
    assert_eq!(stream.priority, core.stream_priorities().1);
    core.stream_destroy(stream.raw).unwrap();
    assert_eq!(code(core.stream_destroy(stream.raw)), Code::InvalidHandle);
    assert_eq!(core.stream_create(&context, 8, 0).err().map(|e| e.code), Some(Code::InvalidValue));
}

#[test]
fn every_thread_has_its_own_default_stream() {
    let (core, context, legacy) = context();
    let mine = core.stream(&context, 0, true).unwrap();
    assert!(mine.handle != legacy.handle && core.stream(&context, 2, false).unwrap().handle == mine.handle);
    assert_eq!(core.stream(&context, 1, true).unwrap().handle, legacy.handle);
    let theirs =
        std::thread::scope(|s| s.spawn(|| core.stream(&context, 2, false).unwrap().handle).join().unwrap());
    assert_ne!(mine.handle, theirs);
}

#[test]
fn events_keep_time() {
    let (core, context, stream) = context();
    let (start, end) = (core.event_create(&context, 0).unwrap(), core.event_create(&context, 0).unwrap());
    assert!(core.event_query(&start).unwrap());
    core.event_synchronize(&start).unwrap();
    assert_eq!(code(core.event_elapsed(&start, &end)), Code::InvalidHandle);
    core.event_record(&start, &stream).unwrap();
    core.event_record(&end, &stream).unwrap();
    core.event_synchronize(&end).unwrap();
    assert!(core.event_query(&end).unwrap());
    assert!(core.event_elapsed(&start, &end).unwrap() >= 0.0);
    let untimed = core.event_create(&context, event::DISABLE_TIMING).unwrap();
    core.event_record(&untimed, &stream).unwrap();
    assert_eq!(code(core.event_elapsed(&start, &untimed)), Code::InvalidHandle);
    assert_eq!(
        core.event_create(&context, event::INTERPROCESS).err().map(|e| e.code),
        Some(Code::InvalidValue)
    );
    for event in [start, end, untimed] {
        core.event_destroy(event.raw).unwrap();
        assert_eq!(code(core.event_destroy(event.raw)), Code::InvalidHandle);
    }
}

#[test]
fn a_stream_that_is_held_waits_and_no_other_does() {
    let (core, context, _) = context();
    let (held, free) =
        (core.stream_create(&context, 1, 0).unwrap(), core.stream_create(&context, 1, 0).unwrap());
    let (send, receive) = std::sync::mpsc::channel();
    core.hold(&held, true, Box::new(move |status, hold| send.send((status, hold)).unwrap())).unwrap();
    let (status, hold) = receive.recv().unwrap();
    assert_eq!(status, 0);
    // The thread of host functions has nothing to wait for.
    let (send, receive) = std::sync::mpsc::channel();
    core.host_function(&free, true, Box::new(move |_| send.send(()).unwrap())).unwrap();
    core.stream_synchronize(&free).unwrap();
    receive.recv().unwrap();
    assert!(!core.stream_query(&held).unwrap());
    drop(hold);
    core.stream_synchronize(&held).unwrap();
    core.stream_destroy(held.raw).unwrap();
    core.stream_destroy(free.raw).unwrap();
}

#[test]
fn host_functions_run_in_the_streams_order() {
    let (core, context, _) = context();
    let stream = core.stream_create(&context, 1, 0).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    for i in 0..20 {
        let order = order.clone();
        let function = Box::new(move |status| order.lock().unwrap().push((i, status)));
        core.host_function(&stream, true, function).unwrap();
    }
    core.stream_synchronize(&stream).unwrap();
    assert_eq!(*order.lock().unwrap(), (0..20).map(|i| (i, 0)).collect::<Vec<_>>());
    // What a host function writes is what a later copy sends.
    let pinned = core.host_alloc(&context, 4096, 0).unwrap();
    let a = core.alloc(&context, 4096).unwrap();
    let write = Box::new(move |_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        // SAFETY: the memory lives until after the synchronisation below.
        unsafe { (pinned as *mut u8).write_bytes(0x77, 4096) };
    });
    core.host_function(&stream, true, write).unwrap();
    core.copy(&stream, a, pinned, 4096, Direction::HostToDevice, Wait::Async).unwrap();
    core.stream_synchronize(&stream).unwrap();
    assert_eq!(from_device(core, &stream, a, 4096).unwrap(), vec![0x77; 4096]);
    core.host_free(pinned).unwrap();
    core.free(a).unwrap();
    core.stream_destroy(stream.raw).unwrap();
}

#[test]
fn contexts_own_what_is_made_in_them() {
    let (core, primary, _) = context();
    let made = core.context_create(0, 0).unwrap();
    assert_eq!(core.context_current_raw(), made.raw);
    let context = core.driver_context().unwrap();
    let a = core.alloc(&context, 1000).unwrap();
    let pinned = core.host_alloc(&context, 1000, 0).unwrap();
    let stream = core.stream_create(&context, 0, 0).unwrap();
    let event = core.event_create(&context, 0).unwrap();
    assert_eq!(code(core.context_destroy(primary.raw)), Code::InvalidContext);
    core.context_destroy(made.raw).unwrap();
    assert_eq!(core.context_current_raw(), primary.raw);
    assert_eq!(code(core.free(a)), Code::InvalidValue);
    assert_eq!(code(core.host_free(pinned)), Code::InvalidValue);
    assert!(core.event(event.raw).is_err() && core.stream(&primary, stream.raw, false).is_err());
    assert_eq!(code(core.context_destroy(made.raw)), Code::InvalidContext);
    std::thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(core.driver_context().err().map(|e| e.code), Some(Code::InvalidContext));
            core.context_push(primary.raw).unwrap();
            assert_eq!(core.driver_context().unwrap().raw, primary.raw);
            assert_eq!(core.context_pop().unwrap().raw, primary.raw);
            assert_eq!(core.context_pop().err().map(|e| e.code), Some(Code::InvalidContext));
        });
    });
}

#[test]
fn a_reset_begins_anew() {
    let core = new_core(1);
    core.set_device(0).unwrap();
    let context = core.runtime_context().unwrap();
    assert!(core.primary_state(0).unwrap().1);
    let a = core.alloc(&context, 1 << 20).unwrap();
    let stream = core.stream_create(&context, 0, 0).unwrap();
    core.device_reset(0).unwrap();
    assert!(!core.primary_state(0).unwrap().1);
    assert_eq!(code(core.free(a)), Code::InvalidValue);
    let context = core.runtime_context().unwrap();
    assert!(core.stream(&context, stream.raw, false).is_err());
    let a = core.alloc(&context, 1 << 20).unwrap();
    let stream = core.stream(&context, 0, false).unwrap();
    to_device(&core, &stream, a, &[1, 2, 3]).unwrap();
    assert_eq!(from_device(&core, &stream, a, 3).unwrap(), [1, 2, 3]);
}

#[test]
fn memory_of_graphs() {
    let core = new_core(1);
    core.set_device(0).unwrap();
    let context = core.runtime_context().unwrap();
    let graphs = &core.graph_allocations;
    let new = |bytes| GraphAllocation::new(&core, &context, bytes).unwrap();
    let (kept, left) = (new(4096), new(100));
    assert_eq!(graphs.marks(0), [0, 0, 4196, 4196]);
    assert_eq!(code(graphs.end(kept.addr)), Code::InvalidValue);
    assert_eq!(graphs.end(kept.addr + 4).unwrap(), Freeing::Foreign);
    graphs.begin(kept.addr);
    graphs.begin(left.addr);
    assert_eq!(graphs.marks(0), [4196, 4196, 4196, 4196]);
    assert_eq!(graphs.end(kept.addr).unwrap(), Freeing::Kept);
    assert_eq!((graphs.is_live(kept.addr), graphs.is_live(left.addr)), (false, true));
    let left_at = left.addr;
    drop(left);
    assert_eq!(graphs.marks(0), [100, 4196, 4196, 4196], "what is not freed stays");
    assert_eq!(graphs.end(left_at).unwrap(), Freeing::Left);
    core.free(left_at).unwrap();
    graphs.reset_mark(0, 1);
    assert_eq!(graphs.marks(0), [0, 0, 4096, 4196]);
    graphs.begin(kept.addr);
    core.device_reset(0).unwrap();
    assert_eq!((graphs.marks(0), graphs.end(kept.addr).unwrap()), ([0; 4], Freeing::Foreign));
}

#[test]
fn peers() {
    let (core, ..) = context();
    assert!(core.can_access_peer(0, 1).unwrap());
    assert_eq!(code(core.can_access_peer(0, 7)), Code::InvalidDevice);
    assert_eq!(code(core.enable_peer_access(1, 1)), Code::InvalidDevice);
    core.enable_peer_access(1, 0).unwrap();
    assert_eq!(code(core.enable_peer_access(1, 0)), Code::PeerAccessAlreadyEnabled);
    core.disable_peer_access(1, 0).unwrap();
    assert_eq!(code(core.disable_peer_access(1, 0)), Code::PeerAccessNotEnabled);
}

const PTX: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.visible .entry store(.param .u64 out, .param .u8 small, .param .u32 value)
{
    .reg .u64 %rd<4>;
    .reg .u32 %r<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u8 %r1, [small];
    ld.param.u32 %r2, [value];
    mov.u32 %r3, %ctaid.x;
    add.u32 %r2, %r2, %r1;
    add.u32 %r2, %r2, %r3;
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
}
\0";

fn config(grid: u32, block: u32) -> Config {
    Config { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0, cooperative: false, cluster: [0; 3] }
}

#[test]
fn kernels_are_launched() {
    let (core, context, stream) = context();
    // SAFETY: the text ends in NUL.
    let module = unsafe { core.module_load(&context, PTX.as_ptr()) }.unwrap();
    let function = core.module_function(&module, "store").unwrap();
    assert_eq!(core.module_function(&module, "store").unwrap().raw, function.raw);
    assert_eq!(core.module_function(&module, "nothing").err().map(|e| e.code), Some(Code::NotFound));
    let (counter, size) = core.module_global(&module, "counter").unwrap();
    assert_eq!((size, from_device(core, &stream, counter, 4).unwrap()), (4, vec![5, 0, 0, 0]));
    assert_eq!(core.pointer_info(counter).kind, PointerKind::Device);

    let out = core.alloc(&context, 64).unwrap();
    let (small, value) = (3u8, 1000u32);
    let args = [(&raw const out).cast(), (&raw const small).cast(), (&raw const value).cast()];
    // SAFETY: the arguments are what the kernel declares.
    unsafe { core.launch(&function, &stream, &config(4, 1), Params::Pointers(args.as_ptr())) }.unwrap();
    let words = |bytes: Vec<u8>| -> Vec<u32> {
        bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
    };
    assert_eq!(words(from_device(core, &stream, out, 16).unwrap()), [1003, 1004, 1005, 1006]);

    let mut packed = [0u8; 16];
    packed[..8].copy_from_slice(&out.to_le_bytes());
    packed[8] = 1;
    packed[12..].copy_from_slice(&7u32.to_le_bytes());
    let size = packed.len();
    let extra = [
        std::ptr::without_provenance(1),
        packed.as_ptr().cast(),
        std::ptr::without_provenance(2),
        (&raw const size).cast(),
        std::ptr::null(),
    ];
    // SAFETY: as above.
    unsafe { core.launch(&function, &stream, &config(2, 32), Params::Extra(extra.as_ptr())) }.unwrap();
    assert_eq!(words(from_device(core, &stream, out, 12).unwrap()), [8, 9, 1005]);

    let refuse = |config: Config| {
        // SAFETY: as above.
        code(unsafe { core.launch(&function, &stream, &config, Params::Pointers(args.as_ptr())) })
    };
    assert_eq!(refuse(config(0, 1)), Code::InvalidConfiguration);
    assert_eq!(refuse(config(1, 1025)), Code::InvalidConfiguration);
    assert_eq!(refuse(Config { grid: [1, 70_000, 1], ..config(1, 1) }), Code::InvalidConfiguration);
    assert_eq!(refuse(Config { shared_bytes: 49 << 10, ..config(1, 1) }), Code::InvalidValue);
    assert_eq!(refuse(Config { cooperative: true, ..config(1 << 20, 1) }), Code::CooperativeLaunchTooLarge);
    // SAFETY: null is refused before it is read.
    let nothing =
        unsafe { core.launch(&function, &stream, &config(1, 1), Params::Pointers(std::ptr::null())) };
    assert_eq!(code(nothing), Code::InvalidValue);

    assert!(core.occupancy_blocks(&function, 128, 0).unwrap() > 0);
    let (grid, block) = core.occupancy_block_size(&function, &|_| 0, 0).unwrap();
    assert!(grid > 0 && block % 32 == 0);
    core.module_unload(module.raw).unwrap();
    assert!(core.function(&context, function.raw).is_err());
    core.free(out).unwrap();
}

#[test]
fn registered_kernels_are_loaded_when_first_used() {
    #[repr(C)]
    struct Wrapper(u32, u32, *const u8, usize);
    let (core, context, stream) = context();
    let wrapper = Wrapper(0x466243B1, 1, PTX.as_ptr(), 0);
    let (kernel, variable) = (1u8, 2u8);
    let (kernel, variable) = ((&raw const kernel).cast(), (&raw const variable).cast());
    // SAFETY: the wrapper, its text and the names outlive the registration.
    let handle = unsafe {
        let handle = fatbin::register((&raw const wrapper).cast());
        fatbin::register_function(handle, kernel, c"store".as_ptr());
        fatbin::register_variable(handle, variable, c"counter".as_ptr(), 4);
        handle
    };
    let function = core.function_for(&context, kernel).unwrap();
    assert_eq!(core.function_for(&context, kernel).unwrap().raw, function.raw);
    let handle_of_kernel = core.kernel_for(kernel).unwrap().raw;
    assert_eq!(core.function_for(&context, handle_of_kernel as *const _).unwrap().raw, function.raw);
    let (addr, size) = core.symbol_for(&context, variable).unwrap();
    assert_eq!((size, from_device(core, &stream, addr, 4).unwrap()), (4, vec![5, 0, 0, 0]));
    assert_eq!(
        core.function_for(&context, variable).err().map(|e| e.code),
        Some(Code::InvalidDeviceFunction)
    );
    assert_eq!(code(core.symbol_for(&context, kernel)), Code::InvalidSymbol);
    fatbin::unregister(handle);
    assert_eq!(core.function_for(&context, kernel).err().map(|e| e.code), Some(Code::InvalidDeviceFunction));
}

#[test]
fn an_illegal_address_sticks_until_reset() {
    let core = new_core(1);
    core.set_device(0).unwrap();
    let context = core.runtime_context().unwrap();
    let stream = core.stream(&context, 0, false).unwrap();
    let module = core.module_load_bytes(&context, PTX.as_bytes()).unwrap();
    let function = core.module_function(&module, "store").unwrap();
    let (out, small, value) = (16u64, 0u8, 0u32);
    let args = [(&raw const out).cast(), (&raw const small).cast(), (&raw const value).cast()];
    // SAFETY: the arguments are what the kernel declares; where it stores is nobody's memory.
    unsafe { core.launch(&function, &stream, &config(1, 1), Params::Pointers(args.as_ptr())) }.unwrap();
    assert_eq!(code(core.device_synchronize(0)), Code::IllegalAddress);
    assert_eq!(core.runtime_context().err().map(|e| e.code), Some(Code::IllegalAddress));
    assert_eq!(core.devices.sticky_code(0), Code::IllegalAddress as u32);
    let told = Arc::new(AtomicU32::new(0));
    let seen = told.clone();
    let enqueued = core.host_function(&stream, true, Box::new(move |_| seen.store(1, Ordering::SeqCst)));
    assert!(enqueued.is_err());
    core.device_reset(0).unwrap();
    assert_eq!(core.devices.sticky_code(0), 0);
    let context = core.runtime_context().unwrap();
    assert!(core.alloc(&context, 100).is_ok());
    assert_eq!(told.load(Ordering::SeqCst), 0);
}
