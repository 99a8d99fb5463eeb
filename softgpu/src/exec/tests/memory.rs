//! Allocation, copies, mirrored memory.

use rgpu_device::{Code, Device, HostData, HostSource, MemoryKind, Range, Region, Target};

use super::super::{Config, SoftGpu};

use super::kernels;
use super::{LEGACY, Rig};

const PAGE: u64 = 4096;

#[test]
fn memory_runs_out_and_comes_back() {
    let rig = Rig::new(&[]);
    let base = rig.plan.devices[0].base;
    let alloc = |offset, size| rig.gpu.mem_alloc(0, base + offset, size, MemoryKind::Device);
    let code = |r: rgpu_device::Result<()>| r.unwrap_err().code;
    alloc(0, 48 << 20).unwrap();
    assert_eq!(code(alloc(128 << 20, 17 << 20)), Code::OutOfMemory);
    assert_eq!(code(alloc(47 << 20, PAGE)), Code::InvalidValue);
    assert_eq!(code(alloc(100 << 20, 100)), Code::InvalidValue);
    assert_eq!(code(alloc(100 << 20, !4095)), Code::InvalidValue);
    alloc(64 << 20, 16 << 20).unwrap();
    assert_eq!(rig.gpu.mem_info(0).unwrap().free, 0);
    rig.gpu.mem_free(0, base, None).unwrap();
    assert_eq!(code(rig.gpu.mem_free(0, base, None)), Code::InvalidValue);
    assert_eq!(rig.gpu.mem_info(0).unwrap().free, 48 << 20);
    rig.write(LEGACY, base + (64 << 20), &[7; 100]);
    let gone = rig.gpu.memset(LEGACY, Region::linear(base, 4), 0, 1);
    assert_eq!(code(gone), Code::InvalidValue);
    alloc(0, 48 << 20).unwrap();
    assert_eq!(rig.read(LEGACY, base, 16), [0; 16]);
}

#[test]
fn memory_lives_as_long_as_earlier_work_uses_it() {
    let rig = Rig::new(&[kernels::wait_for, kernels::number]);
    rig.gpu.stream_create(0, 0x100, false, 0).unwrap();
    rig.gpu.stream_create(0, 0x101, false, 0).unwrap();
    let flags = rig.alloc(0, PAGE);
    let used = rig.alloc(1 << 20, 16 * PAGE);
    rig.gpu.memset(0x100, Region::linear(flags, PAGE), 0, 1).unwrap();
    rig.launch(0x100, 0, 1, 1, &[flags, 1]);
    rig.launch(0x100, 1, 16, 1024, &[used, 0]);
    // Released while the kernel that writes it has not begun, and used again for something else.
    rig.gpu.mem_free(0, used, None).unwrap();
    assert_eq!(rig.gpu.mem_info(0).unwrap().free, (64 << 20) - PAGE);
    rig.gpu.mem_alloc(0, used + 8 * PAGE, 16 * PAGE, MemoryKind::Device).unwrap();
    let again = used + 8 * PAGE;
    rig.gpu.memset(0x101, Region::linear(again, 16 * PAGE), 9, 1).unwrap();
    assert!(!rig.gpu.query(Target::Stream(0x101)).unwrap());
    // A stream that the gate holds cannot open it; the flag comes from the other side.
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: device memory of the same process, which the kernel polls.
            unsafe { std::sync::atomic::AtomicU32::from_ptr(flags as *mut u32) }
                .store(1, std::sync::atomic::Ordering::SeqCst);
        });
        rig.read(0x101, again, 16 * 4096)
    });
    assert_eq!(done, vec![9; 16 * 4096]);
    rig.sync().unwrap();
    let gone = rig.try_launch(LEGACY, 1, [1; 3], [1; 3], false, &[used, 0]);
    gone.unwrap();
    assert_eq!(rig.sync().unwrap_err().code, Code::IllegalAddress);
}

#[test]
fn regions_are_copied_row_by_row() {
    let rig = Rig::new(&[]);
    let a = rig.alloc(0, 1 << 16);
    let b = rig.alloc(1 << 20, 1 << 16);
    rig.gpu.memset(LEGACY, Region::linear(a, 1 << 16), 0xab, 1).unwrap();
    let strided = Region { addr: a + 5, row_pitch: 100, slice_pitch: 1000, width: 7, height: 3, depth: 2 };
    let bytes: Vec<u8> = (1..=42).collect();
    rig.gpu.copy_to_device(LEGACY, strided, 0, HostData::Owned(bytes.clone())).unwrap();
    let other = Region { addr: b, row_pitch: 16, slice_pitch: 64, ..strided };
    rig.gpu.copy_on_device(LEGACY, other, strided).unwrap();
    assert_eq!(super::read(&rig.gpu, LEGACY, other, 0).unwrap(), bytes);
    let raw = rig.read(LEGACY, a, 2000);
    assert_eq!(raw[5..12], [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(raw[1005..1012], [22, 23, 24, 25, 26, 27, 28]);
    assert_eq!(raw.iter().filter(|&&b| b != 0xab).count(), 42);
    // Borrowed host memory, strided itself.
    let host: Vec<u8> = (0..200).collect();
    let from =
        Region { addr: host.as_ptr() as u64, row_pitch: 50, slice_pitch: 0, width: 10, height: 4, depth: 1 };
    // SAFETY: `host` outlives the copies.
    let lent = || HostData::Borrowed(unsafe { HostSource::new(from) });
    let dst = Region { addr: b, row_pitch: 10, ..from };
    rig.gpu.copy_to_device(LEGACY, dst, 0, lent()).unwrap();
    let other = rig.gpu.copy_to_device(LEGACY, Region::linear(b, 40), 0, lent());
    assert_eq!(other.unwrap_err().code, Code::InvalidValue);
    rig.sync().unwrap();
    assert_eq!(rig.read(LEGACY, b + 30, 3), [150, 151, 152]);
    // Patterns.
    let part = Region { addr: a, row_pitch: 16, slice_pitch: 0, width: 6, height: 2, depth: 1 };
    rig.gpu.memset(LEGACY, part, 0x1234, 2).unwrap();
    assert_eq!(rig.read(LEGACY, a + 16, 7), [0x34, 0x12, 0x34, 0x12, 0x34, 0x12, 0xab]);
    let big: Vec<u8> = (0..1 << 16).map(|i| (i * 7) as u8).collect();
    rig.write(LEGACY, a, &big);
    assert_eq!(rig.read(LEGACY, a, 1 << 16), big);
}

#[test]
fn bad_regions_are_refused() {
    let rig = Rig::new(&[]);
    let a = rig.alloc(0, PAGE);
    let code = |region: Region| {
        let set = rig.gpu.memset(LEGACY, region, 0, 1).err().map(|e| e.code);
        let read = super::read(&rig.gpu, LEGACY, region, 0).err().map(|e| e.code);
        assert_eq!(set, read, "{region:?}");
        set
    };
    let bad = Some(Code::InvalidValue);
    assert_eq!(code(Region::linear(a, PAGE)), None);
    assert_eq!(code(Region::linear(a, PAGE + 1)), bad);
    assert_eq!(code(Region::linear(a - 1, 2)), bad);
    assert_eq!(code(Region::linear(u64::MAX - 3, 8)), bad);
    assert_eq!(code(Region::linear(a, u64::MAX)), bad);
    let shape = |row_pitch, slice_pitch, width, height, depth| {
        code(Region { addr: a, row_pitch, slice_pitch, width, height, depth })
    };
    assert_eq!(shape(0, 0, 1, 1 << 60, 1), Some(Code::InvalidPitchValue));
    assert_eq!(shape(u64::MAX, 0, 2, 2, 1), bad);
    assert_eq!(shape(1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40), bad);
    assert_eq!(shape(8, 7, 8, 2, 2), bad);
    assert_eq!(shape(8, 16, 8, 2, 2), None);
    assert_eq!(rig.gpu.memset(LEGACY, Region::linear(a, 8), 0, 3).unwrap_err().code, Code::InvalidValue);
    assert_eq!(rig.gpu.memset(LEGACY, Region::linear(a, 6), 0, 4).unwrap_err().code, Code::InvalidValue);
    let short = rig.gpu.copy_to_device(LEGACY, Region::linear(a, 8), 0, HostData::Owned(vec![0; 7]));
    assert_eq!(short.unwrap_err().code, Code::InvalidValue);
}

/// A rig with mirrored memory of some pages, whose host bytes are the pages' numbers.
fn mirrored(pages: u64) -> (Rig, u64) {
    let rig = Rig::new(&[kernels::step, kernels::number]);
    let base = rig.plan.shared.base + (1 << 20);
    for i in 0..pages {
        rig.host.pages.lock().insert(base + i * PAGE, vec![i as u8; PAGE as usize]);
    }
    rig.gpu.mem_alloc(0, base, pages * PAGE, MemoryKind::Mirrored).unwrap();
    (rig, base)
}

fn collected(rig: &Rig) -> Vec<(u64, Vec<u8>)> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    rig.gpu.collect_shared_writes(&mut |addr, bytes| match runs.last_mut() {
        Some((at, run)) if *at + run.len() as u64 == addr => run.extend_from_slice(bytes),
        _ => runs.push((addr, bytes.to_vec())),
    });
    runs
}

#[test]
fn kernels_see_the_hosts_bytes_and_hand_theirs_back() {
    let (rig, base) = mirrored(4);
    // The last word of page 1 and the first of page 2.
    rig.launch(LEGACY, 0, 1, 2, &[base + 2 * PAGE - 4]);
    rig.sync().unwrap();
    assert_eq!(*rig.host.fetched.lock(), [(base, 4 * PAGE as usize)], "small memory comes as a whole");
    let (one, two) = (0x0101_0101u32 * 2 + 1, 0x0202_0202u32 * 2 + 1);
    let bytes: Vec<u8> = [one, two].iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(collected(&rig), [(base + 2 * PAGE - 4, bytes.clone())]);
    assert_eq!(collected(&rig), [], "agreed");
    // The device goes on with what it has.
    assert_eq!(rig.read(LEGACY, base + 2 * PAGE - 4, 8), bytes);
    assert_eq!(rig.host.fetched.lock().len(), 1);
}

#[test]
fn changes_of_both_sides_are_merged() {
    let (rig, base) = mirrored(1);
    rig.launch(LEGACY, 1, 1, 1, &[base + 8, 0x55]);
    rig.sync().unwrap();
    rig.host.pages.lock().get_mut(&base).unwrap()[100] = 77;
    assert_eq!(rig.read(LEGACY, base + 100, 1), [0], "not told yet");
    rig.gpu.invalidate_shared().unwrap();
    rig.launch(LEGACY, 1, 1, 1, &[base + 16, 0x66]);
    assert_eq!(rig.read(LEGACY, base + 100, 1), [77]);
    assert_eq!(rig.read(LEGACY, base + 8, 1), [0x55]);
    assert_eq!(collected(&rig), [(base + 8, vec![0x55]), (base + 16, vec![0x66])]);
    rig.gpu.invalidate_shared().unwrap();
    assert_eq!(rig.read(LEGACY, base + 8, 1), [0], "the host's, which has not taken the change");
}

#[test]
fn copies_into_mirrored_memory_need_not_ask_the_host() {
    let (rig, base) = mirrored(3);
    rig.write(LEGACY, base + 100, &[1, 0, 2]);
    rig.gpu.memset(LEGACY, Region::linear(base + PAGE, PAGE), 9, 1).unwrap();
    rig.sync().unwrap();
    assert!(rig.host.fetched.lock().is_empty());
    rig.host.pages.lock().get_mut(&base).unwrap()[103] = 50;
    assert_eq!(rig.read(LEGACY, base + 99, 5), [0, 1, 0, 2, 50]);
    let runs = collected(&rig);
    assert_eq!(runs[0], (base + 100, vec![1]), "the 0 equals the host's byte");
    assert_eq!(runs[1], (base + 102, vec![2]));
    assert_eq!(runs[2], (base + PAGE, vec![9; PAGE as usize]));
}

#[test]
fn copies_between_host_and_device_respect_mirrored_memory() {
    let (rig, base) = mirrored(2);
    let plain = rig.alloc(0, PAGE);
    rig.launch(LEGACY, 1, 1, 1, &[base + 4, 0x1234_5678]);
    // The host sends its bytes of a buffer that the device has changed since.
    let dst = Region::linear(plain, 12);
    rig.gpu.copy_to_device(LEGACY, dst, base, HostData::Owned(vec![0xee; 12])).unwrap();
    let expected = [0xee, 0xee, 0xee, 0xee, 0x78, 0x56, 0x34, 0x12, 0xee, 0xee, 0xee, 0xee];
    assert_eq!(rig.read(LEGACY, plain, 12), expected);
    // Device bytes go to the host's buffer: the device's copy of that follows.
    assert_eq!(super::read(&rig.gpu, LEGACY, Region::linear(plain, 12), base + 6).unwrap(), expected);
    assert_eq!(rig.read(LEGACY, base + 4, 4), [0x78, 0x56, 0xee, 0xee]);
    assert_eq!(collected(&rig), [(base + 4, vec![0x78, 0x56])], "the rest is what the host has");
}

#[test]
fn mirrored_memory_that_cannot_be_fetched_is_an_illegal_address() {
    let (rig, base) = mirrored(1);
    rig.host.pages.lock().clear();
    rig.launch(LEGACY, 0, 1, 1, &[base]);
    assert_eq!(rig.sync().unwrap_err().code, Code::IllegalAddress);
}

#[test]
fn large_mirrored_memory_is_fetched_in_growing_runs() {
    let (rig, base) = mirrored(512);
    rig.launch(LEGACY, 0, 512, 1024, &[base]);
    rig.sync().unwrap();
    let fetched = rig.host.fetched.lock().clone();
    assert_eq!(fetched.iter().map(|f| f.1 as u64).sum::<u64>(), 512 * PAGE);
    assert!(fetched.len() < 64, "{} fetches", fetched.len());
    let bytes: usize = collected(&rig).iter().map(|r| r.1.len()).sum();
    assert!(bytes >= 510 * PAGE as usize / 2);
    rig.gpu.mem_free(0, base, None).unwrap();
    assert!(rig.gpu.sees_host_memory());
    rig.gpu.mem_alloc(0, base, PAGE, MemoryKind::Direct).unwrap();
    rig.write(LEGACY, base, &[1, 2, 3]);
    rig.sync().unwrap();
    // SAFETY: direct memory is memory of this process.
    assert_eq!(unsafe { std::slice::from_raw_parts(base as *const u8, 4) }, [1, 2, 3, 0]);
}

#[test]
fn a_large_machine_fits_into_four_tebibytes() {
    let host = std::sync::Arc::new(super::TestHost::default());
    for workers in [1, 16, 64, 128] {
        let config = Config { devices: 2, memory_bytes_per_device: 16 << 30, workers, ..Config::default() };
        let gpu = SoftGpu::open(config, host.clone()).unwrap();
        let plan = gpu.reserve(Range { base: 0x1000_0000_0000, size: 4 << 40 }).unwrap();
        assert!(plan.devices.iter().all(|d| d.size >= 64 << 30));
    }
}
