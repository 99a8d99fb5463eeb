//! Kernels for vectors of threads compute, bit for bit, what they compute for one thread after another. Each tier runs in a
//! process of its own, because the tier is chosen once for a process.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rgpu_device::{Device, HostData, HostTarget, Launch, MemoryKind, Range, Region, Target};
use rgpu_softgpu::compile::vector;
use rgpu_softgpu::{Config, SoftGpu};

const PTX: &[u8] = concat!(include_str!("vectors.ptx"), "\0").as_bytes();

/// Name, blocks and threads of each kernel for so many numbers, and for a measurement how often it is run.
type Row = (&'static str, fn(u32) -> ([u32; 3], [u32; 3]), u32);

fn line(n: u32, threads: u32) -> ([u32; 3], [u32; 3]) {
    ([n.div_ceil(threads), 1, 1], [threads, 1, 1])
}

const KERNELS: &[Row] = &[
    ("saxpy", |n| line(n, 256), 20),
    ("stencil", |n| ([1024 / 32, n.div_ceil(1024 * 8).max(1), 1], [32, 8, 1]), 20),
    ("nbody", |n| line(n, 256), 1),
    ("transcendental", |n| line(n, 256), 5),
    ("mandelbrot", |n| line(n, 256), 1),
    ("matmul", |_| ([32, 32, 1], [16, 16, 1]), 2),
    ("reduction", |n| line(n, 256), 5),
    ("histogram", |n| line(n, 256), 5),
    ("shuffles", |n| line(n, 256), 5),
    ("divergent", |n| line(n, 256), 1),
    ("scattered", |n| line(n, 256), 5),
    ("early", |n| line(n, 256), 5),
    // Blocks that groups of threads do not divide, and rows shorter than a group.
    ("saxpy", |n| line(n, 77), 0),
    ("divergent", |n| line(n, 101), 0),
    ("scattered", |n| line(n, 5), 0),
    ("stencil", |n| ([1024 / 4, n.div_ceil(1024 * 8).max(1), 1], [4, 8, 1]), 0),
];

struct Quiet;

impl rgpu_device::Host for Quiet {
    fn print(&self, _: &[u8]) {}
    fn fetch(&self, _: u64, buf: &mut [u8]) -> rgpu_device::Result<()> {
        buf.fill(0);
        Ok(())
    }
    fn host_func(&self, _: u64) {}
}

/// What a kernel left, as one number, and the shortest time that it took.
fn run(row: &Row, n: u32, times: u32) -> (u64, Duration) {
    let config = Config { memory_bytes_per_device: 256 << 20, workers: 2, ..Config::default() };
    let gpu: Arc<SoftGpu> = SoftGpu::open(config, Arc::new(Quiet)).unwrap();
    static NEXT: AtomicU64 = AtomicU64::new(0x3800_0000_0000);
    let base = NEXT.fetch_add(1 << 40, Ordering::Relaxed);
    let plan = gpu.reserve(Range { base, size: 1 << 40 }).unwrap();
    let memory = plan.devices[0].base;
    let bytes = 4 * u64::from(n.max(512 * 512));
    gpu.mem_alloc(0, memory, 2 * bytes, MemoryKind::Device).unwrap();
    let module = gpu.module_load(0, 7, PTX, &[]).unwrap();
    let numbers = (0..bytes / 4).flat_map(|i| ((i * 7919 % 1000) as f32 / 250.0).to_le_bytes());
    let input: Vec<u8> = numbers.collect();
    gpu.copy_to_device(0, Region::linear(memory, bytes), 0, HostData::Owned(input)).unwrap();
    let zeros = HostData::Owned(vec![0; bytes as usize]);
    gpu.copy_to_device(0, Region::linear(memory + bytes, bytes), 0, zeros).unwrap();
    let mut params = memory.to_le_bytes().to_vec();
    params.extend((memory + bytes).to_le_bytes());
    params.extend(n.to_le_bytes());
    let function = module.functions.iter().position(|f| f.name == row.0).unwrap() as u32;
    let (grid, block) = row.1(n);
    let launch = || {
        let (stream, shared_bytes, cooperative) = (0, 0, false);
        let launch = Launch {
            stream,
            module: 7,
            function,
            grid,
            block,
            shared_bytes,
            cooperative,
            cluster: [0; 3],
            params: &params,
        };
        gpu.launch(launch).unwrap();
        gpu.synchronize_blocking(Target::Device(0)).unwrap();
    };
    launch();
    let mut best = Duration::from_secs(1 << 20);
    let mut output = vec![0u8; bytes as usize];
    let to = Region::linear(output.as_mut_ptr() as u64, bytes);
    // SAFETY: `output` outlives the call, which waits.
    let to = unsafe { HostTarget::new(to) };
    gpu.copy_from_device_blocking(0, Region::linear(memory + bytes, bytes), to).unwrap();
    for _ in 0..times {
        let begun = Instant::now();
        launch();
        best = best.min(begun.elapsed());
    }
    let hash = output.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash, best)
}

/// What the processes that the tests start are to do.
const WHAT: &str = "TEST_OF_VECTORS";

/// Runs in the processes that the tests start; by itself it has nothing to do.
#[test]
fn one_process() {
    let Ok(what) = std::env::var(WHAT) else { return };
    for row in KERNELS.iter().filter(|row| what == "compare" || row.2 > 0) {
        let before = vector::kernels();
        let (hash, time) = match &*what {
            "compare" => run(row, 20_011, 0),
            _ => run(row, 1 << 20, 3 * row.2),
        };
        let vectors = vector::kernels() > before;
        println!("\nkernel {} {hash:x} {} {vectors}", row.0, time.as_nanos());
    }
}

fn in_a_process(what: &str, tier: &str) -> Vec<(String, String, u64, bool)> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "vectors::one_process", "--nocapture"]);
    let output = command.env(WHAT, what).env(vector::VARIABLE, tier).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter_map(|line| line.strip_prefix("kernel "));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].into(), words[1].into(), words[2].parse().unwrap(), words[3] == "true")
        })
        .collect()
}

#[test]
fn both_tiers_compute_the_same() {
    if let Err(why) = vector::possible() {
        eprintln!("skipped: {why}");
        return;
    }
    let (one, many) = (in_a_process("compare", "off"), in_a_process("compare", "first"));
    assert_eq!((one.len(), many.len()), (KERNELS.len(), KERNELS.len()));
    for (one, many) in one.iter().zip(&many) {
        assert!(!one.3, "{} was compiled for vectors where that is off", one.0);
        assert!(many.3, "{} was not compiled for vectors", many.0);
        assert_eq!(one.1, many.1, "{}", one.0);
    }
}

/// Prints both tiers' times of a million numbers.
#[test]
#[ignore = "a measurement: cargo test --release -p rgpu-softgpu --test device -- --ignored --nocapture vectors::measure --exact"]
fn measure() {
    let (one, many) = (in_a_process("measure", "off"), in_a_process("measure", "first"));
    let mut product = 1.0;
    println!("| kernel | one thread after another, ms | vectors, ms | ratio |\n| --- | --- | --- | --- |");
    for (one, many) in one.iter().zip(&many) {
        let ratio = one.2 as f64 / many.2 as f64;
        product *= ratio;
        println!("| {} | {:.3} | {:.3} | {ratio:.2} |", one.0, one.2 as f64 / 1e6, many.2 as f64 / 1e6);
    }
    println!("geometric mean of the ratios: {:.2}", product.powf(1.0 / one.len() as f64));
}
