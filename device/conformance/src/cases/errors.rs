//! Errors that stick, resetting, limits, measurements.

use crate::bench::{Bench, IMAGE, LEGACY, MODULE, OTHER, OWN, code, pointers};
use crate::{Open, host::PAGE};
use rgpu_device::telemetry::Group;
use rgpu_device::{Code, Limit, MemoryKind, Region, Target};

/// After an error that sticks everything fails with it.
fn all_fails_with(bench: &Bench, addr: u64, expected: Code) {
    let device = &bench.device;
    let run = Region::linear(addr, 16);
    let info = device.infos();
    assert!(!info.is_empty(), "what a device is can be asked at any time");
    for _ in 0..2 {
        let outcomes = [
            ("synchronize", bench.sync()),
            ("synchronize", device.synchronize_blocking(Target::Stream(LEGACY))),
            ("query", device.query(Target::Device(0)).map(drop)),
            ("mem_alloc", device.mem_alloc(0, bench.fresh(PAGE), PAGE, MemoryKind::Device)),
            ("mem_free", device.mem_free(0, addr, None)),
            ("mem_info", device.mem_info(0).map(drop)),
            ("memset", device.memset(LEGACY, run, 1, 1)),
            ("copy_to_device", bench.write_in(LEGACY, run, &[1; 16])),
            ("copy_from_device", bench.hear(&bench.read_by_sink(LEGACY, run)).map(drop)),
            ("copy_from_device_blocking", bench.read_in(LEGACY, run).map(drop)),
            ("copy_on_device", device.copy_on_device(LEGACY, run, run)),
            ("module_load", device.module_load(0, OTHER, IMAGE, &[]).map(drop)),
            ("stream_create", device.stream_create(0, OTHER, true, 0)),
            ("event_create", device.event_create(0, 99, true)),
            ("event_record", device.event_record(1, LEGACY)),
            ("event_elapsed", device.event_elapsed(1, 1).map(drop)),
            ("fence", device.fence(LEGACY)),
            ("host_func", device.host_func(LEGACY, 77)),
            ("set_limit", device.set_limit(0, Limit::StackSize, 2048)),
        ];
        for (what, outcome) in outcomes {
            assert_eq!(code(outcome), Some(expected), "{what}");
        }
    }
}

/// A device that has failed, the memory that a case uses and its module's description.
fn failed(open: Open, kernel: &str, expected: Code) -> (Bench, u64) {
    let bench = Bench::new(open);
    let info = bench.load();
    let addr = bench.alloc(PAGE);
    bench.device.event_create(0, 1, true).unwrap();
    bench.device.event_record(1, LEGACY).unwrap();
    bench.write(addr, &41u32.to_le_bytes());
    bench.sync().unwrap();
    let params = pointers(8, addr);
    let params: &[u8] = if kernel == "failing" { &[] } else { &params };
    bench.device.launch(bench.launch(&info, kernel, params)).unwrap();
    assert_eq!(code(bench.sync()), Some(expected));
    let again = bench.device.launch(bench.launch(&info, "narrow", &[]));
    assert_eq!(code(again), Some(expected));
    (bench, addr)
}

/// After the reset of its ordinal a device is as new.
fn works_after_reset(bench: &Bench, addr: u64) {
    let device = &bench.device;
    device.reset(0).unwrap();
    bench.sync().unwrap();
    bench.refused(device.memset(LEGACY, Region::linear(addr, 4), 0, 1), Code::InvalidValue);
    device.mem_alloc(0, addr, PAGE, MemoryKind::Device).unwrap();
    assert_eq!(bench.words(addr, 4), [0; 4]);
    let info = bench.load();
    let params = pointers(addr, addr);
    device.launch(bench.launch(&info, "successor", &params)).unwrap();
    bench.sync().unwrap();
    device.event_create(0, 1, true).unwrap();
}

/// An illegal address sticks.
pub fn illegal_addresses_stick(open: Open) {
    let (bench, addr) = failed(open, "successor", Code::IllegalAddress);
    all_fails_with(&bench, addr, Code::IllegalAddress);
}

/// A failed assertion sticks.
pub fn failed_assertions_stick(open: Open) {
    let (bench, addr) = failed(open, "failing", Code::Assert);
    all_fails_with(&bench, addr, Code::Assert);
}

/// An illegal address is forgotten with a reset.
pub fn resets_mend_illegal_addresses(open: Open) {
    let (bench, addr) = failed(open, "successor", Code::IllegalAddress);
    works_after_reset(&bench, addr);
    assert_eq!(bench.words(addr, 1), [1]);
}

/// A failed assertion is forgotten with a reset.
pub fn resets_mend_failed_assertions(open: Open) {
    let (bench, addr) = failed(open, "failing", Code::Assert);
    works_after_reset(&bench, addr);
}

/// Errors of arguments are told once, and change nothing.
pub fn errors_of_arguments_do_not_stick(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    for _ in 0..3 {
        bench.refused(bench.device.memset(LEGACY, Region::linear(addr, 3), 0, 2), Code::InvalidValue);
        bench.refused(bench.device.memset(0xdead, Region::linear(addr, 4), 0, 2), Code::InvalidHandle);
        bench.device.memset(LEGACY, Region::linear(addr, 4), 7, 1).unwrap();
        assert_eq!(bench.read(addr, 4), [7; 4]);
    }
}

/// One ordinal's failure is not another's.
pub fn other_ordinals_go_on(open: Open) {
    let (bench, addr) = failed(open, "successor", Code::IllegalAddress);
    let device = &bench.device;
    let there = bench.base(1) + PAGE;
    device.mem_alloc(1, there, PAGE, MemoryKind::Device).unwrap();
    device.memset(1, Region::linear(there, 16), 5, 1).unwrap();
    device.synchronize_blocking(Target::Device(1)).unwrap();
    assert_eq!(bench.read_in(1, Region::linear(there, 16)).unwrap(), [5; 16]);
    assert_eq!(code(bench.sync()), Some(Code::IllegalAddress));
    works_after_reset(&bench, addr);
    assert_eq!(bench.read_in(1, Region::linear(there, 16)).unwrap(), [5; 16]);
}

/// A reset takes everything on its ordinal away, and leaves the other handles free.
pub fn resets_leave_nothing(open: Open) {
    let bench = Bench::new(open);
    let device = &bench.device;
    let before = device.mem_info(0).unwrap();
    let addr = bench.alloc(1 << 20);
    bench.load();
    device.stream_create(0, OWN, true, 0).unwrap();
    device.event_create(0, 1, true).unwrap();
    bench.hold(OWN, 1);
    device.memset(OWN, Region::linear(addr, 16), 1, 1).unwrap();
    let waiting = bench.read_by_sink(OWN, Region::linear(addr, 16));
    device.reset(0).unwrap();
    assert!(bench.hear(&waiting).is_err(), "the copy was given up");
    bench.sync().unwrap();
    assert_eq!(device.mem_info(0).unwrap(), before);
    bench.refused(device.memset(OWN, Region::linear(addr, 16), 1, 1), Code::InvalidHandle);
    bench.refused(device.event_record(1, LEGACY), Code::InvalidHandle);
    bench.refused(device.module_unload(MODULE), Code::InvalidHandle);
    bench.refused(device.mem_free(0, addr, None), Code::InvalidValue);
    device.stream_create(0, OWN, true, 0).unwrap();
    device.event_create(0, 1, true).unwrap();
    device.mem_alloc(0, addr, 1 << 20, MemoryKind::Device).unwrap();
    bench.load();
    device.memset(OWN, Region::linear(addr, 16), 1, 1).unwrap();
    bench.sync().unwrap();
    assert_eq!(bench.read(addr, 16), [1; 16]);
}

/// Limits are set, and nonsense is refused.
pub fn limits_are_set(open: Open) {
    let bench = Bench::new(open);
    for (limit, value) in [
        (Limit::StackSize, 4096),
        (Limit::StackSize, 1024),
        (Limit::PrintfFifoSize, 2 << 20),
        (Limit::MallocHeapSize, 16 << 20),
    ] {
        bench.device.set_limit(0, limit, value).unwrap();
    }
    bench.refused_at_once(bench.device.set_limit(0, Limit::StackSize, 1 << 40), Code::InvalidValue);
}

/// What can be measured is measured; what cannot be is not supported, and never an error of another kind.
pub fn measurements_are_told_or_not_supported(open: Open) {
    let bench = Bench::new(open);
    for group in [0, 1, 2, 3].into_iter().filter_map(Group::from_number) {
        if let Err(error) = bench.device.telemetry(0, group) {
            assert_eq!(error.code, Code::NotSupported, "{group:?}: {error}");
        }
    }
}
