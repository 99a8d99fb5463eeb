//! Launches.

use crate::bench::{Bench, LEGACY, MODULE, OWN, pointer_and_word, pointers};
use crate::{Open, host::PAGE};
use rgpu_device::{Code, Launch, MAX_PARAM_BYTES, attribute};

/// Kernels do what they are written to, with their parameters, grids and variables.
pub fn kernels_run(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let out = bench.alloc(64 << 10);
    let params = pointer_and_word(out, 100);
    let launch = bench.launch(&info, "store", &params);
    bench.device.launch(Launch { grid: [5, 1, 1], block: [64, 1, 1], ..launch }).unwrap();
    assert!(bench.words(out, 320).iter().copied().eq(100..420));
    assert_eq!(bench.words(out + 320 * 4, 1), [0]);
    let params = out.to_le_bytes();
    bench.device.launch(bench.launch(&info, "sum", &params)).unwrap();
    assert_eq!(bench.words(out, 1), [48]);
    let strict = Launch { block: [32, 1, 1], shared_bytes: 2048, ..bench.launch(&info, "strict", &params) };
    bench.device.launch(strict).unwrap();
    assert_eq!(bench.words(out, 1), [9]);
}

/// Launches on one stream see what those before them have written.
pub fn launches_keep_their_order(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let at = bench.alloc(PAGE);
    bench.device.stream_create(0, OWN, true, 0).unwrap();
    let params = pointers(at, at);
    for stream in [LEGACY, OWN, OWN, LEGACY, OWN].into_iter().cycle().take(50) {
        bench.device.launch(Launch { stream, ..bench.launch(&info, "successor", &params) }).unwrap();
    }
    bench.sync().unwrap();
    assert_eq!(bench.words(at, 1), [50]);
}

/// Grids and blocks that are empty, too large, or not the kernel's are refused.
pub fn impossible_shapes_are_refused(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let device = &bench.device;
    let out = bench.alloc(PAGE);
    let params = pointer_and_word(out, 1);
    let good = bench.launch(&info, "store", &params);
    let limit = |number: u32| device.infos()[0].attribute(number) as u32;
    for axis in 0..3u32 {
        let with = |n: u32| {
            let mut sides = [1; 3];
            sides[axis as usize] = n;
            sides
        };
        let largest_grid = limit(attribute::MAX_GRID_DIM_X + axis);
        let largest_block = limit(attribute::MAX_BLOCK_DIM_X + axis);
        for grid in [0, largest_grid + 1, u32::MAX] {
            bench.refused(device.launch(Launch { grid: with(grid), ..good }), Code::InvalidConfiguration);
        }
        for block in [0, largest_block + 1, u32::MAX] {
            bench.refused(device.launch(Launch { block: with(block), ..good }), Code::InvalidConfiguration);
        }
    }
    for block in [[1024, 2, 1], [32, 32, 32], [u32::MAX; 3]] {
        bench.refused(device.launch(Launch { block, ..good }), Code::InvalidConfiguration);
    }
    let params = out.to_le_bytes();
    for block in [[31, 1, 1], [16, 2, 1], [32, 1, 2]] {
        let strict = Launch { block, ..bench.launch(&info, "strict", &params) };
        // More threads than the kernel was compiled for are told from other shapes than it requires.
        let threads: u32 = block.iter().product();
        let code = if threads > 32 { Code::InvalidValue } else { Code::InvalidConfiguration };
        bench.refused(device.launch(strict), code);
    }
    let narrow = bench.launch(&info, "narrow", &[]);
    device.launch(Launch { block: [64, 1, 1], ..narrow }).unwrap();
    bench.refused(device.launch(Launch { block: [65, 1, 1], ..narrow }), Code::InvalidValue);
    assert_eq!(bench.words(out, 4), [0; 4]);
}

/// Static and dynamic shared memory together are bounded by what the device can give a block.
pub fn too_much_shared_memory_is_refused(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let out = bench.alloc(PAGE);
    let params = out.to_le_bytes();
    let strict = Launch { block: [32, 1, 1], ..bench.launch(&info, "strict", &params) };
    let own = info.functions[strict.function as usize].static_shared;
    let most = bench.device.infos()[0].attribute(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) as u32;
    bench.device.launch(Launch { shared_bytes: most - own, ..strict }).unwrap();
    bench.sync().unwrap();
    for shared_bytes in [most - own + 1, most + 1, u32::MAX] {
        bench.refused(bench.device.launch(Launch { shared_bytes, ..strict }), Code::InvalidValue);
    }
}

/// Parameters may be followed by bytes that mean nothing, but none may be missing.
pub fn missing_parameters_are_refused(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let out = bench.alloc(PAGE);
    let mut params = pointer_and_word(out, 1).to_vec();
    let launch = |params: &[u8]| bench.device.launch(bench.launch(&info, "store", params));
    for short in [0, 8, 11] {
        bench.refused(launch(&params[..short]), Code::InvalidValue);
    }
    params.resize(64, 0xee);
    launch(&params).unwrap();
    params.resize(MAX_PARAM_BYTES as usize, 0xee);
    launch(&params).unwrap();
    params.push(0);
    bench.refused(launch(&params), Code::InvalidValue);
    // A kernel without parameters takes none.
    bench.device.launch(bench.launch(&info, "narrow", &[])).unwrap();
    bench.sync().unwrap();
}

/// What is launched, and where, must be there.
pub fn unknown_kernels_and_streams_are_refused(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let out = bench.alloc(PAGE);
    let params = pointer_and_word(out, 1);
    let good = bench.launch(&info, "store", &params);
    for bad in [
        Launch { function: info.functions.len() as u32, ..good },
        Launch { function: u32::MAX, ..good },
        Launch { module: 0x4711, ..good },
        Launch { stream: 0xdead, ..good },
        Launch { stream: 0xfe, ..good },
    ] {
        bench.refused(bench.device.launch(bad), Code::InvalidHandle);
    }
    bench.device.module_unload(MODULE).unwrap();
    bench.refused(bench.device.launch(good), Code::InvalidHandle);
}

/// Blocks of a cooperative launch must all be resident at once.
pub fn cooperative_launches_fit_or_are_refused(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let narrow = Launch { cooperative: true, block: [64, 1, 1], ..bench.launch(&info, "narrow", &[]) };
    bench.device.launch(narrow).unwrap();
    bench.sync().unwrap();
    let many = Launch { grid: [60_000, 1, 1], ..narrow };
    bench.refused(bench.device.launch(many), Code::CooperativeLaunchTooLarge);
    let far_too_many = Launch { grid: [60_000, 60_000, 60_000], ..narrow };
    bench.refused(bench.device.launch(far_too_many), Code::CooperativeLaunchTooLarge);
}

/// Clusters of blocks divide the grid and are not too large; a device that has none refuses those of more than one block.
pub fn clusters_are_launched_or_refused(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let out = bench.alloc(PAGE);
    let params = pointer_and_word(out, 7);
    let plain = Launch { grid: [4, 1, 1], block: [16, 1, 1], ..bench.launch(&info, "store", &params) };
    let pairs = Launch { cluster: [2, 1, 1], ..plain };
    if bench.device.infos()[0].attribute(attribute::CLUSTER_LAUNCH) == 0 {
        return bench.refused(bench.device.launch(pairs), Code::NotSupported);
    }
    bench.device.launch(pairs).unwrap();
    assert!(bench.words(out, 64).iter().copied().eq(7..71));
    for cluster in [[3, 1, 1], [2, 2, 1], [2, 0, 1], [4, 8, 1], [u32::MAX; 3]] {
        bench.refused(bench.device.launch(Launch { cluster, ..plain }), Code::InvalidClusterSize);
    }
}

/// A prepared launch is repeated with other parameters.
pub fn launches_are_prepared_and_repeated(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let out = bench.alloc(PAGE);
    let params = pointer_and_word(out, 0);
    let launch = Launch { block: [4, 1, 1], ..bench.launch(&info, "store", &params) };
    bench.device.launch(launch).unwrap();
    let Some(prepared) = bench.device.prepare_launch(launch) else { return };
    for i in 1..20u32 {
        bench.device.launch_prepared(&prepared, &pointer_and_word(out + u64::from(i) * 16, i * 10)).unwrap();
    }
    let words = bench.words(out, 80);
    for (i, four) in words.chunks(4).enumerate() {
        let first = i as u32 * 10;
        assert_eq!(four, [first, first + 1, first + 2, first + 3]);
    }
}

/// Launches that are over are counted, and the time in which there was one.
pub fn launches_are_counted(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    let before = bench.device.counters();
    for _ in 0..10 {
        bench.device.launch(bench.launch(&info, "narrow", &[])).unwrap();
    }
    bench.sync().unwrap();
    let after = bench.device.counters();
    assert_eq!(after.launches, before.launches + 10);
    assert!(after.busy_ns > before.busy_ns, "{before:?} {after:?}");
}

/// What kernels print has come when they are waited for.
pub fn printed_text_comes_before_the_end(open: Open) {
    let bench = Bench::new(open);
    let info = bench.load();
    bench.device.launch(Launch { grid: [3, 1, 1], ..bench.launch(&info, "speaking", &[]) }).unwrap();
    bench.sync().unwrap();
    let printed = bench.host.printed();
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["block 0", "block 1", "block 2"]);
}
