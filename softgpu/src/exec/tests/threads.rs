//! Blocks, barriers, warps, faults.

use rgpu_device::{Code, Device, FunctionInfo, Limit, Target};

use super::super::Config;
use super::kernels;
use super::{LEGACY, MODULE, Module, Rig, Specs};

#[test]
fn every_thread_of_every_block_runs_once() {
    let rig = Rig::new(&[kernels::number, kernels::coordinates]);
    let out = rig.alloc(0, 1 << 20);
    rig.launch(LEGACY, 0, 1000, 37, &[out, 5]);
    let words = rig.words(LEGACY, out, 37_000);
    assert!(words.iter().enumerate().all(|(i, &w)| w == i as u32 + 5));
    rig.try_launch(LEGACY, 1, [3, 4, 5], [2, 2, 2], false, &[out]).unwrap();
    let words = rig.words(LEGACY, out, 60 * 8);
    for (i, word) in words.iter().enumerate() {
        let (b, t) = (i as u32 / 8, i as u32 % 8);
        let coordinates = (b % 3) | ((b / 3 % 4) << 4) | ((b / 12) << 8);
        assert_eq!(*word, coordinates | (t & 1) << 12 | (t >> 1 & 1) << 16 | t >> 2 << 20 | t << 24);
    }
    assert_eq!(rig.gpu.counters().launches, 2);
    assert!(rig.gpu.counters().busy_ns > 0);
}

#[test]
fn barriers_hold_and_do_not_wait_for_ended_threads() {
    let rig = Rig::new(&[kernels::reverse, kernels::count_threes, kernels::arrive]);
    let data = rig.alloc(0, 1 << 20);
    for (threads, n) in [(256, 256), (256, 100), (33, 33), (1024, 1)] {
        let words: Vec<u8> = (0..n * 20u32).flat_map(|i| i.to_le_bytes()).collect();
        rig.write(LEGACY, data, &words);
        rig.launch(LEGACY, 0, 20, threads, &[data, u64::from(n)]);
        let expected: Vec<u32> = (0..20).flat_map(|b| (0..n).rev().map(move |i| b * n + i)).collect();
        assert_eq!(rig.words(LEGACY, data, (n * 20) as usize), expected, "{threads} threads, {n} words");
    }
    rig.launch(LEGACY, 1, 1, 96, &[data]);
    assert_eq!(rig.words(LEGACY, data, 96), [32; 96]);
    rig.launch(LEGACY, 2, 1, 64, &[data]);
    let expected: Vec<u32> = (32..64).map(|i| i * 10).collect();
    assert_eq!(rig.words(LEGACY, data, 32), expected);
}

#[test]
fn divergent_lanes_shuffle_among_themselves() {
    let rig = Rig::new(&[kernels::divergent, kernels::ballot]);
    let (values, sums) = (rig.alloc(0, 4096), rig.alloc(4096, 4096));
    rig.launch(LEGACY, 0, 1, 64, &[values, sums]);
    let values_read = rig.words(LEGACY, values, 64);
    let sums_read = rig.words(LEGACY, sums, 64);
    for i in 0..64u32 {
        let (lane, warp) = (i % 32, i / 32 * 32);
        // Lane 15 takes from lane 16, which takes no part: undefined, and 0 on devices.
        let expected = if lane < 15 {
            i + 1
        } else if lane == 15 {
            0
        } else {
            warp + 20
        };
        assert_eq!(values_read[i as usize], expected, "thread {i}");
        let expected = if lane % 2 == 0 { 32 } else { 32 | 0xaaaa_aaaa };
        assert_eq!(sums_read[i as usize], expected, "thread {i}");
    }
    rig.launch(LEGACY, 1, 1, 32, &[values]);
    assert_eq!(rig.words(LEGACY, values, 20), [0xaaaaa; 20]);
}

#[test]
fn blocks_may_wait_for_each_other_within_the_resident_limit() {
    let rig = Rig::new(&[kernels::grid_barrier, kernels::look_back, kernels::number]);
    let counter = rig.alloc(0, 1 << 20);
    let blocks = 2 * 16;
    rig.gpu.memset(LEGACY, rgpu_device::Region::linear(counter, 4096), 0, 4).unwrap();
    rig.try_launch(LEGACY, 0, [blocks, 1, 1], [64, 1, 1], true, &[counter, u64::from(blocks) * 64]).unwrap();
    assert_eq!(rig.words(LEGACY, counter, 1), [blocks * 64]);
    let too_many = rig.try_launch(LEGACY, 0, [blocks + 1, 1, 1], [64, 1, 1], true, &[counter, 0]);
    assert_eq!(too_many.unwrap_err().code, Code::CooperativeLaunchTooLarge);
    let too_many = rig.try_launch(LEGACY, 0, [5, 1, 1], [1024, 1, 1], true, &[counter, 0]);
    assert_eq!(too_many.unwrap_err().code, Code::CooperativeLaunchTooLarge);
    rig.gpu.memset(LEGACY, rgpu_device::Region::linear(counter, 1 << 20), 0, 4).unwrap();
    rig.launch(LEGACY, 1, 5000, 1, &[counter]);
    assert_eq!(rig.words(LEGACY, counter, 5000), (1..=5000).collect::<Vec<u32>>());
}

#[test]
fn a_kernel_that_was_short_may_have_blocks_that_wait_for_each_other() {
    for workers in [1, 2] {
        let config = Config { memory_bytes_per_device: 64 << 20, workers, ..Config::default() };
        let rig = Rig::with(&[kernels::grid_barrier], config);
        let counter = rig.alloc(0, 4096);
        rig.gpu.memset(LEGACY, rgpu_device::Region::linear(counter, 4), 0, 4).unwrap();
        // So short that one worker is left to run all blocks, one after another.
        for _ in 0..100 {
            rig.launch(LEGACY, 0, 4, 1, &[counter, 0]);
        }
        for round in 0..10 {
            rig.launch(LEGACY, 0, 4, 1, &[counter, 400 + 4 * (round + 1)]);
        }
        assert_eq!(rig.words(LEGACY, counter, 1), [440], "{workers} workers");
    }
}

#[test]
fn a_block_that_lets_all_others_go_first_comes_last() {
    for workers in [1, 2] {
        let config = Config { memory_bytes_per_device: 64 << 20, workers, ..Config::default() };
        let rig = Rig::with(&[kernels::let_go_first], config);
        let counter = rig.alloc(0, 1 << 16);
        let found = counter + 4096;
        let run = |blocks: u32, every: u64| {
            rig.gpu.memset(LEGACY, rgpu_device::Region::linear(counter, 4), 0, 4).unwrap();
            rig.launch(LEGACY, 0, blocks, 1, &[counter, found, every]);
            rig.words(LEGACY, found, blocks as usize)
        };
        for blocks in [1, 2, 3, 40, 5000] {
            for _ in 0..20 {
                assert_eq!(run(blocks, 10_000)[0], blocks - 1, "{workers} workers, {blocks} blocks");
            }
        }
        // Two of them, each behind all that do not.
        for _ in 0..20 {
            let found = run(60, 30);
            assert!(found[0].min(found[30]) == 58 && found[0].max(found[30]) == 59, "{found:?}");
        }
        // More than there is room for, and nobody else: they go on.
        let mut all = run(5000, 1);
        all.sort_unstable();
        assert_eq!(all, (0..5000).collect::<Vec<u32>>());
    }
}

#[test]
fn all_blocks_look_at_a_number_before_it_is_raised() {
    for workers in [1, 2, 4] {
        let config = Config { memory_bytes_per_device: 64 << 20, workers, ..Config::default() };
        let rig = Rig::with(&[kernels::exact_barriers], config);
        let counter = rig.alloc(0, 4096);
        for blocks in [1, 2, 5, 16] {
            rig.gpu.memset(LEGACY, rgpu_device::Region::linear(counter, 4), 0, 4).unwrap();
            rig.launch(LEGACY, 0, blocks, 1, &[counter, 100]);
            assert_eq!(rig.words(LEGACY, counter, 1), [100 * blocks], "{workers} workers, {blocks} blocks");
        }
    }
}

#[test]
fn two_cooperative_kernels_do_not_starve_each_other() {
    let rig = Rig::new(&[kernels::grid_barrier]);
    let counters = rig.alloc(0, 4096);
    for i in 0..8u64 {
        rig.gpu.stream_create(0, 0x100 + i, false, 0).unwrap();
    }
    for round in 0..5 {
        for i in 0..8u64 {
            let args = [counters + 4 * i, 32 * (round + 1)];
            rig.try_launch(0x100 + i, 0, [32, 1, 1], [1, 1, 1], i % 2 == 0, &args).unwrap();
        }
        rig.sync().unwrap();
    }
    assert_eq!(rig.words(LEGACY, counters, 8), [160; 8]);
}

#[test]
fn a_fault_names_the_kernel_and_sticks_until_reset() {
    let rig = Rig::new(&[kernels::number, kernels::empty]);
    let out = rig.alloc(0, 4096);
    rig.launch(LEGACY, 0, 33, 32, &[out, 0]);
    let error = rig.sync().unwrap_err();
    assert_eq!(error.code, Code::IllegalAddress);
    assert!(error.message.contains("kernel number, block (32, 0, 0), thread (0, 0, 0)"), "{error}");
    assert!(error.message.contains(&format!("{:#x}", out + 4096)), "{error}");
    let sticks = |r: rgpu_device::Result<()>| assert_eq!(r.unwrap_err().code, Code::IllegalAddress);
    sticks(rig.try_launch(LEGACY, 1, [1; 3], [1; 3], false, &[]));
    sticks(rig.try_read(LEGACY, out, 4).map(drop));
    sticks(rig.gpu.mem_info(0).map(drop));
    sticks(rig.gpu.query(Target::Device(0)).map(drop));
    rig.gpu.reset(0).unwrap();
    let info = rig.gpu.mem_info(0).unwrap();
    assert_eq!(info.free, info.total);
    let out = rig.alloc(0, 4096);
    assert_eq!(rig.words(LEGACY, out, 4), [0; 4], "fresh memory");
    assert!(rig.try_launch(LEGACY, 1, [1; 3], [1; 3], false, &[]).is_err(), "the module is gone");
}

#[test]
fn a_faulting_device_does_not_touch_another() {
    let config = Config { devices: 2, memory_bytes_per_device: 1 << 20, workers: 1, ..Config::default() };
    let rig = Rig::with(&[kernels::number], config);
    rig.launch(LEGACY, 0, 1, 1, &[rig.plan.shared.base, 0]);
    assert_eq!(rig.sync().unwrap_err().code, Code::IllegalAddress);
    rig.gpu.synchronize_blocking(Target::Device(1)).unwrap();
    rig.gpu.mem_alloc(1, rig.plan.devices[1].base, 4096, rgpu_device::MemoryKind::Device).unwrap();
    let outside = rig.gpu.mem_alloc(1, rig.plan.devices[0].base, 4096, rgpu_device::MemoryKind::Device);
    assert_eq!(outside.unwrap_err().code, Code::InvalidValue);
}

#[test]
fn a_deadlock_is_an_error_that_names_its_lines() {
    let rig = Rig::new(&[kernels::deadlock]);
    rig.launch(LEGACY, 0, 4, 64, &[]);
    let error = rig.sync().unwrap_err();
    assert_eq!(error.code, Code::LaunchFailed);
    assert!(error.message.contains("kernel deadlock"), "{error}");
    assert!(error.message.contains("32 at Barrier in PTX line 21"), "{error}");
    assert!(error.message.contains("32 at Barrier in PTX line 22"), "{error}");
}

#[test]
fn traps_have_cudas_codes() {
    let rig = Rig::new(&[kernels::assertion]);
    rig.launch(LEGACY, 0, 2, 4, &[]);
    let error = rig.sync().unwrap_err();
    assert_eq!(error.code, Code::Assert);
    assert!(error.message.contains("kernel assertion, block (1, 0, 0), thread (1, 0, 0)"), "{error}");
}

#[test]
fn impossible_launches_are_refused_at_once() {
    let rig = Rig::new(&[kernels::empty]);
    let code = |grid, block| rig.try_launch(LEGACY, 0, grid, block, false, &[]).unwrap_err().code;
    assert_eq!(code([0, 1, 1], [1; 3]), Code::InvalidConfiguration);
    assert_eq!(code([1, 65536, 1], [1; 3]), Code::InvalidConfiguration);
    assert_eq!(code([1; 3], [33, 32, 1]), Code::InvalidConfiguration);
    assert_eq!(code([1; 3], [1, 1, 65]), Code::InvalidConfiguration);
    assert_eq!(code([u32::MAX; 3], [u32::MAX; 3]), Code::InvalidConfiguration);
    let unknown = rig.try_launch(LEGACY, 1, [1; 3], [1; 3], false, &[]).unwrap_err();
    assert_eq!(unknown.code, Code::InvalidHandle);
    let stream = rig.try_launch(77, 0, [1; 3], [1; 3], false, &[]).unwrap_err();
    assert_eq!(stream.code, Code::InvalidHandle);
    rig.sync().unwrap();
    assert_eq!(rig.gpu.counters().launches, 0);
}

#[test]
fn a_compiler_that_panics_fails_the_launch_and_nothing_else() {
    let rig = Rig::new(&[]);
    let load = || {
        // There is no kernel behind the second function: whoever makes it ready panics.
        let function = |name: &str| FunctionInfo { name: name.into(), ..FunctionInfo::default() };
        let kernels = Box::new(Specs(vec![kernels::empty]));
        rig.gpu
            .insert_module(MODULE, Module::new(0, ["empty", "nothing"].map(function).into(), kernels, None));
    };
    for _ in 0..3 {
        load();
        rig.launch(LEGACY, 1, 1, 1, &[]);
        let error = rig.sync().unwrap_err();
        assert_eq!(error.code, Code::LaunchFailed);
        assert!(error.message.contains("index out of bounds"), "{error}");
        // The workers have survived it.
        rig.gpu.reset(0).unwrap();
        load();
        rig.launch(LEGACY, 0, 1, 1, &[]);
        rig.sync().unwrap();
    }
}

#[test]
fn kernels_print_and_allocate() {
    let rig = Rig::new(&[kernels::print, kernels::allocate]);
    let memory = rig.alloc(0, 1 << 16);
    rig.write(LEGACY, memory, b"i=%d f=%.2f s=%s\n\0");
    let mut args = 42u64.to_le_bytes().to_vec();
    args.extend(2.5f64.to_le_bytes());
    args.extend((memory + 512).to_le_bytes());
    rig.write(LEGACY, memory + 256, &args);
    rig.write(LEGACY, memory + 512, b"text\0");
    rig.launch(LEGACY, 0, 3, 1, &[memory, memory + 256, memory + 1024]);
    rig.sync().unwrap();
    assert_eq!(*rig.host.printed.lock(), b"i=42 f=2.50 s=text\n".repeat(3));
    assert_eq!(rig.words(LEGACY, memory + 1024, 1), [3]);
    // A bad pointer is no crash.
    rig.launch(LEGACY, 0, 1, 1, &[8, memory, memory + 1024]);
    assert_eq!(rig.words(LEGACY, memory + 1024, 1), [-2i32 as u32]);
    rig.gpu.set_limit(0, Limit::MallocHeapSize, 4096).unwrap();
    rig.launch(LEGACY, 1, 10, 100, &[memory]);
    assert_eq!(rig.words(LEGACY, memory, 1000), (1..=1000).collect::<Vec<u32>>());
    assert!(rig.gpu.set_limit(0, Limit::StackSize, 1 << 40).is_err());
}

#[test]
fn an_endless_kernel_can_be_abandoned() {
    let rig = Rig::new(&[kernels::wait_for, kernels::number]);
    let flag = rig.alloc(0, 4096);
    rig.gpu.memset(LEGACY, rgpu_device::Region::linear(flag, 4096), 0, 1).unwrap();
    rig.launch(LEGACY, 0, 100, 32, &[flag, 1]);
    rig.launch(LEGACY, 1, 1, 1, &[flag, 1]);
    assert!(!rig.gpu.query(Target::Device(0)).unwrap());
    rig.gpu.reset(0).unwrap();
    assert!(rig.gpu.query(Target::Device(0)).unwrap());
    assert_eq!(rig.gpu.counters().launches, 0);
}
