//! Copies between host and device, and on the device.

use crate::bench::{Bench, LEGACY, packed};
use crate::{Open, host::PAGE};
use rgpu_device::{Code, HostData, HostTarget, Region, Target};
use std::sync::mpsc;

/// So many bytes, all of them different from their neighbours.
fn pattern(count: u64) -> Vec<u8> {
    (0..count).map(|i| (i * 7 % 251) as u8).collect()
}

/// Three slices of four rows of 24 bytes, with gaps.
fn a_box(addr: u64) -> Region {
    Region { addr, row_pitch: 64, slice_pitch: 512, width: 24, height: 4, depth: 3 }
}

/// Regions of memory at `addr` that no copy can be made with, and why.
fn bad_boxes(addr: u64) -> Vec<(Region, Code)> {
    let good = a_box(addr);
    vec![
        (Region { row_pitch: 23, ..good }, Code::InvalidPitchValue),
        (Region { row_pitch: 0, ..good }, Code::InvalidPitchValue),
        (Region { slice_pitch: 215, ..good }, Code::InvalidValue),
        (Region { slice_pitch: 0, ..good }, Code::InvalidValue),
        (Region { slice_pitch: u64::MAX / 2, ..good }, Code::InvalidValue),
        (Region { row_pitch: u64::MAX / 3, slice_pitch: u64::MAX / 2, ..good }, Code::InvalidValue),
        (Region { addr: u64::MAX - 100, ..good }, Code::InvalidValue),
        (Region { slice_pitch: PAGE, ..good }, Code::InvalidValue),
        (Region { addr: addr + PAGE - 24, ..good }, Code::InvalidValue),
        (Region { addr: addr - 1, ..good }, Code::InvalidValue),
        (Region { addr: 0, ..good }, Code::InvalidValue),
    ]
}

/// Runs, rows and boxes come back as they went, by each of the calls.
pub fn what_was_sent_comes_back(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(4 << 20);
    for len in [1, 3, 64, 4096, 70_000, 3 << 20] {
        let bytes = pattern(len);
        bench.write(addr + 5, &bytes);
        assert!(bench.read(addr + 5, len) == bytes, "{len} bytes");
        let read = bench.read_by_sink(LEGACY, Region::linear(addr + 5, len));
        assert!(bench.hear(&read).unwrap() == bytes, "{len} bytes by a sink");
    }
    for (width, height, depth) in [(24, 4, 3), (1, 50, 1), (3000, 9, 2), (40_000, 3, 2)] {
        let row_pitch = width + 40;
        let region = Region { addr, row_pitch, slice_pitch: row_pitch * (height + 1), width, height, depth };
        let bytes = pattern(width * height * depth);
        bench.device.memset(LEGACY, Region::linear(addr, 1 << 20), 0xcc, 1).unwrap();
        bench.write_in(LEGACY, region, &bytes).unwrap();
        assert!(bench.read_in(LEGACY, region).unwrap() == bytes, "{region:?}");
        assert!(bench.hear(&bench.read_by_sink(LEGACY, region)).unwrap() == bytes, "{region:?}");
        assert_eq!(bench.read(addr + width, 8), [0xcc; 8], "behind the first row of {region:?}");
    }
}

/// Borrowed memory may have gaps of its own, and is sent by both calls.
pub fn borrowed_memory_is_sent(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(1 << 20);
    let bytes = pattern(300_000);
    for (width, height, depth) in [(24, 4, 3), (5000, 10, 5), (200_000, 1, 1)] {
        let src =
            Region { addr: 0, row_pitch: width + 7, slice_pitch: (width + 7) * height, width, height, depth };
        let dst =
            Region { addr, row_pitch: width + 3, slice_pitch: (width + 3) * height, width, height, depth };
        let row = |y: u64, z: u64| (z * src.slice_pitch + y * src.row_pitch) as usize;
        let expected: Vec<u8> = (0..depth)
            .flat_map(|z| (0..height).map(move |y| (y, z)))
            .flat_map(|(y, z)| bytes[row(y, z)..row(y, z) + width as usize].to_vec())
            .collect();
        for blocking in [false, true] {
            bench.device.memset(LEGACY, Region::linear(addr, 1 << 19), 0, 1).unwrap();
            bench.send(LEGACY, dst, src, &bytes, blocking).unwrap();
            assert!(bench.read_in(LEGACY, dst).unwrap() == expected, "{src:?} {blocking}");
        }
    }
}

/// Nothing is copied where there is nothing, whatever the pitches and addresses mean.
pub fn copies_of_nothing_are_fine(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    for region in
        [Region::linear(addr, 0), Region { height: 0, ..a_box(addr) }, Region { depth: 0, ..a_box(addr) }]
    {
        bench.write_in(LEGACY, region, &[]).unwrap();
        assert_eq!(bench.read_in(LEGACY, region).unwrap(), []);
        assert_eq!(bench.hear(&bench.read_by_sink(LEGACY, region)).unwrap(), []);
        bench.device.copy_on_device(LEGACY, region, region).unwrap();
        bench.device.memset(LEGACY, region, 1, 1).unwrap();
        bench.send(LEGACY, region, packed(region, 0), &[], true).unwrap();
    }
    bench.sync().unwrap();
}

/// Copies to the device are refused where the device's side makes no sense, or is no memory.
pub fn bad_targets_are_refused(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    let bytes = pattern(24 * 4 * 3);
    for (region, expected) in bad_boxes(addr) {
        bench.refused(bench.write_in(LEGACY, region, &bytes), expected);
        for blocking in [false, true] {
            let shape = packed(region, 0);
            let sent = bench.send(LEGACY, region, shape, &bytes, blocking);
            bench.refused_at_once(sent, expected);
        }
    }
    assert!(bench.read(addr, PAGE).iter().all(|byte| *byte == 0), "something was written");
}

/// Copies from the device are refused where the device's side makes no sense, or is no memory.
pub fn bad_sources_are_refused(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    for (region, expected) in bad_boxes(addr) {
        bench.refused_at_once(bench.read_in(LEGACY, region), expected);
        let outcome = bench.hear(&bench.read_by_sink(LEGACY, region));
        bench.refused_at_once(outcome, expected);
    }
}

/// Short runs of memory that is not allocated are refused, too, even where addresses are known to be the device's.
pub fn unallocated_memory_is_refused(open: Open) {
    let bench = Bench::new(open);
    let (addr, gone) = (bench.alloc(PAGE), bench.alloc(PAGE));
    bench.write(gone, &[7; 16]);
    bench.sync().unwrap();
    bench.device.mem_free(0, gone, None).unwrap();
    bench.sync().unwrap();
    for at in [addr + PAGE, addr + PAGE - 8, gone, gone + 64, bench.plan.devices[0].end() - 16] {
        let run = Region::linear(at, 16);
        bench.refused_at_once(bench.read_in(LEGACY, run), Code::InvalidValue);
        bench.refused_at_once(bench.hear(&bench.read_by_sink(LEGACY, run)), Code::InvalidValue);
        bench.refused(bench.write_in(LEGACY, run, &[1; 16]), Code::InvalidValue);
        for blocking in [false, true] {
            bench.refused_at_once(bench.send(LEGACY, run, run, &[1; 16], blocking), Code::InvalidValue);
        }
        bench.refused(bench.device.memset(LEGACY, run, 1, 1), Code::InvalidValue);
        bench.refused(bench.device.copy_on_device(LEGACY, Region::linear(addr, 16), run), Code::InvalidValue);
    }
    assert!(bench.read(addr, PAGE).iter().all(|byte| *byte == 0), "something was written");
}

/// The host's side must make sense as well.
pub fn bad_host_regions_are_refused(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    let bytes = pattern(PAGE);
    let bad = [
        (Region { row_pitch: 20, ..a_box(0) }, Code::InvalidPitchValue),
        (Region { slice_pitch: 100, ..a_box(0) }, Code::InvalidValue),
        (Region { slice_pitch: u64::MAX / 2, ..a_box(0) }, Code::InvalidValue),
    ];
    for (shape, expected) in bad {
        for blocking in [false, true] {
            bench.refused_at_once(bench.send(LEGACY, a_box(addr), shape, &bytes, blocking), expected);
        }
        let mut place = vec![0u8; PAGE as usize];
        let region = Region { addr: place.as_mut_ptr() as u64, ..shape };
        // SAFETY: it lies in the place as far as it can be walked at all, and is refused otherwise.
        let target = || unsafe { HostTarget::new(region) };
        let read = bench.device.copy_from_device_blocking(LEGACY, a_box(addr), target());
        bench.refused_at_once(read, expected);
        let (send, receive) = mpsc::channel();
        let done = Box::new(move |result| drop(send.send(result)));
        bench.device.copy_from_device_into(LEGACY, a_box(addr), target(), done);
        bench.refused_at_once(bench.hear(&receive), expected);
    }
}

/// Both sides of a copy have one shape, not just as many bytes.
pub fn shapes_that_differ_are_refused(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(2 * PAGE);
    let good = a_box(addr);
    let bytes = pattern(PAGE);
    for other in [
        Region { width: 25, ..good },
        Region { height: 3, ..good },
        Region { depth: 2, ..good },
        Region { width: 48, height: 2, ..good },
    ] {
        for blocking in [false, true] {
            let sent = bench.send(LEGACY, good, packed(other, 0), &bytes, blocking);
            bench.refused_at_once(sent, Code::InvalidValue);
        }
        let on_device = bench.device.copy_on_device(LEGACY, good, Region { addr: addr + PAGE, ..other });
        bench.refused(on_device, Code::InvalidValue);
        let mut place = vec![0u8; PAGE as usize];
        // SAFETY: the place is as large as any of these, and outlives the call.
        let target = unsafe { HostTarget::new(packed(other, place.as_mut_ptr() as u64)) };
        let read = bench.device.copy_from_device_blocking(LEGACY, good, target);
        bench.refused_at_once(read, Code::InvalidValue);
    }
    let short = bench.device.copy_to_device(LEGACY, good, 0, HostData::Owned(vec![0; 24 * 4 * 3 - 1]));
    bench.refused(short, Code::InvalidValue);
}

/// Regions are copied on the device, between different pitches.
pub fn regions_are_copied_on_the_device(open: Open) {
    let bench = Bench::new(open);
    let (from, to) = (bench.alloc(64 << 10), bench.alloc(64 << 10));
    let bytes = pattern(24 * 4 * 3);
    let (src, dst) = (a_box(from), Region { row_pitch: 30, slice_pitch: 1000, ..a_box(to + 3) });
    bench.write_in(LEGACY, src, &bytes).unwrap();
    bench.device.copy_on_device(LEGACY, dst, src).unwrap();
    assert!(bench.read_in(LEGACY, dst).unwrap() == bytes);
    let run = pattern(30_000);
    bench.write(from, &run);
    bench
        .device
        .copy_on_device(LEGACY, Region::linear(to + 1, 30_000), Region::linear(from, 30_000))
        .unwrap();
    assert!(bench.read(to + 1, 30_000) == run);
    for (region, expected) in bad_boxes(bench.alloc(PAGE)) {
        bench.refused(bench.device.copy_on_device(LEGACY, region, src), expected);
        bench.refused(bench.device.copy_on_device(LEGACY, src, region), expected);
    }
}

/// Allocations side by side are one run of memory.
pub fn neighbours_are_one_run(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.fresh(4 * PAGE);
    for i in 0..3 {
        bench.device.mem_alloc(0, addr + i * PAGE, PAGE, rgpu_device::MemoryKind::Device).unwrap();
    }
    let bytes = pattern(3 * PAGE);
    bench.write(addr, &bytes);
    assert!(bench.read(addr, 3 * PAGE) == bytes);
    bench.device.memset(LEGACY, Region::linear(addr + 10, 2 * PAGE), 8, 1).unwrap();
    assert_eq!(bench.read(addr + 2 * PAGE, 12)[..], [[8; 10].as_slice(), &bytes[8202..8204]].concat());
    bench.refused(
        bench.write_in(LEGACY, Region::linear(addr, 3 * PAGE + 1), &pattern(3 * PAGE + 1)),
        Code::InvalidValue,
    );
}

/// Copies are made in the order of their stream, those to the host too.
pub fn copies_keep_their_streams_order(open: Open) {
    let bench = Bench::new(open);
    let addr = bench.alloc(PAGE);
    let mut reads = Vec::new();
    for i in 0..20u8 {
        bench.write(addr, &[i; 100]);
        reads.push((i, bench.read_by_sink(LEGACY, Region::linear(addr, 100))));
    }
    for (i, read) in reads {
        assert_eq!(bench.hear(&read).unwrap(), [i; 100]);
    }
    bench.device.synchronize_blocking(Target::Stream(LEGACY)).unwrap();
}

/// Memory of one device is copied to another, and written from streams of either.
pub fn devices_copy_to_each_other(open: Open) {
    let bench = Bench::new(open);
    let (here, there) = (bench.alloc(1 << 20), bench.base(1) + PAGE);
    bench.device.mem_alloc(1, there, 1 << 20, rgpu_device::MemoryKind::Device).unwrap();
    let bytes = pattern(900_000);
    let run = |addr| Region::linear(addr, 900_000);
    bench.write(here, &bytes);
    bench.sync().unwrap();
    bench.device.copy_on_device(1, run(there), run(here)).unwrap();
    bench.device.synchronize_blocking(Target::Device(1)).unwrap();
    assert!(bench.read_in(1, run(there)).unwrap() == bytes);
    // From the other's stream, and back from one's own.
    assert!(bench.read_in(LEGACY, run(there)).unwrap() == bytes);
    bench.device.memset(1, run(here), 0, 1).unwrap();
    bench.device.synchronize_blocking(Target::Device(1)).unwrap();
    bench.device.copy_on_device(LEGACY, run(here), run(there)).unwrap();
    assert!(bench.read(here, 900_000) == bytes);
    let strided = |addr| Region { addr, row_pitch: 100, slice_pitch: 5000, width: 60, height: 40, depth: 20 };
    bench.device.copy_on_device(LEGACY, strided(there + 1), strided(here)).unwrap();
    bench.sync().unwrap();
    assert!(bench.read_in(1, strided(there + 1)).unwrap() == bench.read_in(0, strided(here)).unwrap());
    let differ = bench.device.copy_on_device(LEGACY, run(here), Region::linear(there, 5));
    bench.refused(differ, Code::InvalidValue);
}
