//! Addresses, allocations, what is free.

use crate::bench::{Bench, LEGACY, OWN, code};
use crate::{Open, host::PAGE};
use rgpu_device::{Code, MemOp, MemoryKind, MemoryToken, Range, Region, Target};

const MIB: u64 = 1 << 20;
/// An ordinal that no device has.
const NOBODY: u32 = 999;

/// What a device tells of itself is in order.
pub fn devices_describe_themselves(open: Open) {
    let bench = Bench::new(open);
    let infos = bench.device.infos();
    assert!(!infos.is_empty());
    assert_eq!(infos, bench.device.infos());
    for info in infos {
        assert!(!info.name.is_empty() && info.total_memory >= 32 * MIB, "{info:?}");
        assert!(info.attributes.windows(2).all(|pair| pair[0].0 < pair[1].0), "{info:?}");
        assert!(info.compute_capability.0 > 0 && info.driver_version >= 12000, "{info:?}");
        assert!(info.accepts_ptx || info.accepts_cubin);
    }
}

/// The ranges of a plan are apart from each other and inside the whole, and it cannot be made twice.
pub fn plans_are_made_once(open: Open) {
    let bench = Bench::new(open);
    let plan = &bench.plan;
    assert_eq!(plan.devices.len(), bench.device.infos().len());
    let mut ranges = plan.devices.clone();
    ranges.push(plan.shared);
    for (i, range) in ranges.iter().enumerate() {
        assert!(
            range.size >= 32 * MIB && plan.whole.contains(range.base, range.size),
            "{range:?} of {plan:?}"
        );
        assert!(range.base.is_multiple_of(PAGE));
        assert!(ranges[..i].iter().all(|other| !other.overlaps(*range)), "{plan:?}");
    }
    // A device whose plan was agreed when it was reached says the same again.
    match bench.device.reserve(plan.whole) {
        Ok(again) => assert_eq!(again, *plan),
        Err(error) => assert_eq!(error.code, Code::IllegalState),
    }
}

/// A place must be whole pages, inside the ordinal's range, and free.
pub fn bad_places_are_refused(open: Open) {
    let bench = Bench::new(open);
    let base = bench.base(0);
    let alloc = |addr, size| bench.device.mem_alloc(0, addr, size, MemoryKind::Device);
    for (addr, size) in [
        (base, 0),
        (base, 100),
        (base + 8, PAGE),
        (base - PAGE, PAGE),
        (bench.plan.devices[0].end(), PAGE),
        (bench.plan.devices[0].end() - PAGE, 2 * PAGE),
        (u64::MAX - PAGE + 1, PAGE),
        (bench.plan.shared.base, PAGE),
    ] {
        bench.refused(alloc(addr, size), Code::InvalidValue);
    }
    alloc(base + PAGE, 2 * PAGE).unwrap();
    for at in [base, base + PAGE, base + 2 * PAGE] {
        bench.refused(alloc(at, 2 * PAGE), Code::InvalidValue);
    }
    alloc(base + 3 * PAGE, PAGE).unwrap();
    alloc(base, PAGE).unwrap();
    bench.sync().unwrap();
}

/// What needs an ordinal is told that there is none.
pub fn unknown_ordinals_are_refused(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    bench.refused(device.mem_alloc(NOBODY, bench.base(0), PAGE, MemoryKind::Device), Code::InvalidDevice);
    bench.refused(device.mem_info(NOBODY), Code::InvalidDevice);
    bench.refused(device.stream_create(NOBODY, OWN, true, 0), Code::InvalidDevice);
    bench.refused(device.event_create(NOBODY, 1, true), Code::InvalidDevice);
    bench.refused(device.module_load(NOBODY, 1, crate::bench::IMAGE, &[]), Code::InvalidDevice);
    bench.refused(device.set_limit(NOBODY, rgpu_device::Limit::StackSize, 1024), Code::InvalidDevice);
    bench.refused(device.query(Target::Device(NOBODY)), Code::InvalidDevice);
    bench.refused(device.synchronize_blocking(Target::Device(NOBODY)), Code::InvalidDevice);
    bench.refused(device.reset(NOBODY), Code::InvalidDevice);
}

/// Memory that runs out is said to by the call itself, and comes back when it is freed.
pub fn runs_out_and_comes_back(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    let before = device.mem_info(0).unwrap();
    assert!(before.free <= before.total && before.free >= 32 * MIB, "{before:?}");
    let most = before.free / PAGE * PAGE;
    let (first, second) = (bench.base(0), bench.base(0) + 2 * most);
    device.mem_alloc(0, first, most - MIB, MemoryKind::Device).unwrap();
    assert!(device.mem_info(0).unwrap().free <= before.free - (most - MIB));
    let full = device.mem_alloc(0, second, 8 * MIB, MemoryKind::Device);
    bench.refused_at_once(full, Code::OutOfMemory);
    device.mem_free(0, first, None).unwrap();
    device.mem_alloc(0, second, 8 * MIB, MemoryKind::Device).unwrap();
    device.mem_free(0, second, None).unwrap();
    bench.sync().unwrap();
    assert_eq!(device.mem_info(0).unwrap().total, before.total);
}

/// What is free follows what is allocated, to the byte.
pub fn what_is_free_is_told(open: Open) {
    let bench = Bench::new(open);
    let before = bench.device.mem_info(0).unwrap();
    let addr = bench.alloc(4 * MIB);
    assert_eq!(bench.device.mem_info(0).unwrap().free, before.free - 4 * MIB);
    bench.device.mem_free(0, addr, None).unwrap();
    bench.sync().unwrap();
    assert_eq!(bench.device.mem_info(0).unwrap(), before);
}

/// Only what is allocated can be freed, once, by its start.
pub fn only_allocations_are_freed(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(4 * PAGE);
    let free = |at| bench.device.mem_free(0, at, None);
    for at in [addr + PAGE, addr - PAGE, 0, u64::MAX, bench.plan.shared.base] {
        bench.refused_at_once(free(at), Code::InvalidValue);
    }
    free(addr).unwrap();
    bench.refused_at_once(free(addr), Code::InvalidValue);
}

/// Memory is zero when it is new, and when it is reused after its release.
pub fn new_memory_is_zero(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(64 * PAGE);
    assert!(bench.read(addr, 64 * PAGE).iter().all(|byte| *byte == 0));
    bench.device.memset(LEGACY, Region::linear(addr, 64 * PAGE), 0xee, 1).unwrap();
    bench.sync().unwrap();
    bench.device.mem_free(0, addr, None).unwrap();
    bench.sync().unwrap();
    bench.device.mem_alloc(0, addr + PAGE, 64 * PAGE, MemoryKind::Device).unwrap();
    assert!(bench.read(addr + PAGE, 64 * PAGE).iter().all(|byte| *byte == 0));
}

/// Freeing waits for work that uses the memory; its place is refused to new work at once.
pub fn freeing_waits_for_earlier_work(open: Open) {
    let bench = Bench::new(open);
    let (addr, kept) = (bench.alloc(PAGE), bench.alloc(PAGE));
    bench.device.stream_create(0, OWN, false, 0).unwrap();
    bench.write(addr, &[5; 64]);
    bench.sync().unwrap();
    bench.hold(OWN, 1);
    let (from, to) = (Region::linear(addr, 64), Region::linear(kept, 64));
    bench.device.copy_on_device(OWN, to, from).unwrap();
    bench.device.mem_free(0, addr, None).unwrap();
    assert!(!bench.is_done(Target::Stream(OWN)));
    let late = bench.device.memset(OWN, from, 1, 1);
    bench.release(1);
    // Refused by the call, or, where it was posted, when it is waited for.
    let waited = bench.device.synchronize_blocking(Target::Stream(OWN));
    assert_eq!(code(late.and(waited)), Some(Code::InvalidValue));
    assert_eq!(bench.read(kept, 64), [5; 64]);
}

/// Freeing in a stream's order lets the place be used again by work behind it.
pub fn freeing_in_a_streams_order(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    bench.device.stream_create(0, OWN, true, 0).unwrap();
    bench.device.memset(OWN, Region::linear(addr, 64), 3, 1).unwrap();
    bench.device.mem_free(0, addr, Some(OWN)).unwrap();
    bench.device.mem_alloc(0, addr, PAGE, MemoryKind::Device).unwrap();
    bench.device.memset(OWN, Region::linear(addr, 32), 4, 1).unwrap();
    bench.sync().unwrap();
    assert_eq!(bench.read(addr, 32), [4; 32]);
    bench.refused(bench.device.mem_free(0, addr, Some(0xdead)), Code::InvalidHandle);
}

/// Host and device see the same memory where the device says so, and nowhere else.
pub fn direct_memory_is_seen_by_both(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.plan.shared.base;
    let direct = bench.device.mem_alloc(0, addr, PAGE, MemoryKind::Direct);
    if !bench.device.shares_memory() {
        bench.refused_at_once(direct, Code::NotSupported);
        return;
    }
    direct.unwrap();
    bench.write(addr, &[1, 2, 3]);
    bench.sync().unwrap();
    // SAFETY: the device says that direct memory is this process's, too; it is allocated when this is called, and nothing else
    // uses it.
    let bytes = || unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, 4) };
    let seen = bytes();
    assert_eq!(seen, [1, 2, 3, 0]);
    seen[3] = 9;
    assert_eq!(bench.read(addr, 4), [1, 2, 3, 9]);
    // What takes its place is zero, and stays what the host makes of it, however late the device is.
    bench.device.mem_free(0, addr, None).unwrap();
    bench.device.mem_alloc(0, addr, PAGE, MemoryKind::Direct).unwrap();
    assert_eq!(std::mem::replace(&mut bytes()[3], 8), 0);
    bench.sync().unwrap();
    assert_eq!(bench.read(addr, 4), [0, 0, 0, 8]);
    bench.device.mem_ops(LEGACY, &[MemOp::new(2, addr, 6, 0).unwrap()]).unwrap();
    bench.sync().unwrap();
    assert_eq!(bytes(), [6, 0, 0, 0]);
    bench.device.mem_free(0, addr, None).unwrap();
    bench.sync().unwrap();
}

/// What other processes may open are whole pages of one allocation; what nobody exports cannot be opened. A device that shares nothing
/// with other processes says so.
pub fn whole_pages_of_an_allocation_are_exported(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    let addr = bench.alloc(4 * PAGE);
    let export = |base, size| device.export_memory(0, Range { base, size });
    let import = |base, token| device.import_memory(0, Range { base, size: PAGE }, &MemoryToken(token));
    let free = bench.fresh(4 * PAGE);
    let token = match export(addr, 4 * PAGE) {
        Err(error) if error.code == Code::NotSupported => {
            bench.refused_at_once(import(free, [7; 32]), Code::NotSupported);
            return;
        }
        exported => exported.unwrap(),
    };
    let part = export(addr + PAGE, PAGE).unwrap();
    assert_ne!(token, part);
    for (base, size) in
        [(addr, 5 * PAGE), (addr + 8, PAGE), (addr, 8), (addr, 0), (addr - PAGE, PAGE), (free, PAGE)]
    {
        bench.refused_at_once(export(base, size), Code::InvalidValue);
    }
    bench
        .refused_at_once(device.export_memory(NOBODY, Range { base: addr, size: PAGE }), Code::InvalidDevice);
    device.withdraw_memory(&part).unwrap();
    for token in [[0; 32], [0xff; 32], part.0] {
        bench.refused_at_once(import(free, token), Code::InvalidValue);
    }
    // Neither a token of other memory nor a place that is taken does any harm.
    bench.refused_at_once(import(addr, token.0), Code::InvalidValue);
    device.mem_alloc(0, free, 4 * PAGE, MemoryKind::Device).unwrap();
    assert!(bench.read(free, 64).iter().all(|byte| *byte == 0));
    device.mem_free(0, addr, None).unwrap();
    bench.sync().unwrap();
}
