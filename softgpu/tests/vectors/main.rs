//! Kernels for vectors of threads compute, bit for bit, what they compute for one thread after another. Each tier runs in a
//! process of its own, because the tier is chosen once for a process: this very program, which the environment tells what to do.

#[expect(dead_code, reason = "the other test program uses more of it")]
#[path = "../kept_code/mod.rs"]
mod kept_code;

mod faults;

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rgpu_device::texture::{
    AddressMode, ChannelKind, TEXTURE_HEADER_BYTES, TexelFormat, TextureFlags, TextureHeader, TextureKind,
};
use rgpu_device::{Device, HostData, HostTarget, Launch, MemoryKind, Range, Region, Target};
use rgpu_softgpu::compile::vector;
use rgpu_softgpu::{Config, SoftGpu};
use rgpu_test_runner::{Skip, Test};

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
    ("structures", |n| line(n, 256), 0),
    ("integers", |n| line(n, 256), 0),
    ("calls", |n| line(n, 256), 0),
    ("strided", |_| ([5, 1, 1], [256, 1, 1]), 0),
    // Blocks of one warp, of half of one, of several, and of one that is not whole.
    ("warps", |n| line(n, 32), 0),
    ("warps", |n| line(n, 16), 0),
    ("warps", |n| line(n, 96), 0),
    ("warps", |n| line(n, 40), 0),
    ("before", |n| line(n, 128), 0),
    ("sums", |n| line(n, 128), 0),
    ("sums", |n| line(n, 50), 0),
    ("textures", |n| line(n, 128), 0),
    // Threads of a block wait in several places.
    ("arms", |_| ([9, 1, 1], [256, 1, 1]), 5),
    ("arms", |_| ([9, 1, 1], [48, 1, 1]), 0),
    ("first_warp", |_| ([9, 1, 1], [256, 1, 1]), 5),
    ("first_warp", |_| ([9, 1, 1], [32, 1, 1]), 0),
    ("leaving", |n| line(n, 256), 0),
    ("leaving", |n| line(n, 128), 0),
    ("parting", |n| line(n, 256), 0),
    ("parting", |n| line(n, 64), 0),
    ("tiles", |n| line(n, 256), 5),
    ("tiles", |n| line(n, 96), 0),
    ("votes", |n| line(n, 256), 5),
    ("votes", |n| line(n, 40), 0),
    ("several", |n| line(n, 256), 5),
    ("several", |n| line(n, 96), 0),
    ("parts_of_warps", |n| line(n, 256), 5),
    ("parts_of_warps", |n| line(n, 32), 0),
    ("parts_of_warps", |n| line(n, 64), 0),
    // Values of whole blocks, and addresses of other basic blocks.
    ("blockwide", |n| line(n, 256), 5),
    ("blockwide", |n| line(n, 96), 0),
    ("blockwide", |n| line(n, 40), 0),
    ("by_memory", |n| line(n, 256), 5),
    ("by_memory", |n| line(n, 32), 0),
    ("addresses", |n| line(n, 256), 5),
    ("last_address", |n| line(n, 128), 5),
    // Comparisons that the ends of a group decide.
    ("ends", |n| line(n, 256), 0),
    ("ends", |n| line(n, 48), 0),
    // Indices that are kept inside.
    ("clamped", |n| line(n, 256), 0),
    ("clamped", |n| line(n, 48), 0),
    // What a block has in one place is not known before its threads have let others go first.
    ("yielding_first", |n| line(n, 256), 0),
    ("yielding_first", |n| line(n, 96), 0),
    ("wide_structures", |n| line(n, 128), 0),
    ("wide_structures", |n| line(n, 24), 0),
    ("stored_and_loaded", |n| line(n, 128), 0),
    // Loops with several beginnings.
    ("beginnings", |n| line(n, 128), 5),
    ("beginnings", |n| line(n, 96), 0),
    ("beginnings", |n| line(n, 40), 0),
    // What a warp accesses as one.
    ("as_one", |n| line(n, 128), 0),
    ("as_one", |n| line(n, 32), 0),
    // Of vectors that are stored meanwhile, no parts are loaded.
    ("passing_vectors", |_| ([4, 1, 1], [96, 1, 1]), 0),
    // Blocks that groups of threads do not divide, and rows shorter than a group.
    ("saxpy", |n| line(n, 77), 0),
    ("divergent", |n| line(n, 101), 0),
    ("scattered", |n| line(n, 5), 0),
    ("structures", |n| line(n, 60), 0),
    ("integers", |n| line(n, 60), 0),
    ("strided", |_| ([2, 1, 1], [1024, 1, 1]), 0),
    ("strided", |_| ([7, 1, 1], [77, 1, 1]), 0),
    ("strided", |_| ([3, 1, 1], [96, 1, 1]), 0),
    ("stencil", |n| ([1024 / 4, n.div_ceil(1024 * 8).max(1), 1], [4, 8, 1]), 0),
];

struct Quiet {
    code: kept_code::Code,
}

impl rgpu_device::Host for Quiet {
    fn kept_code(&self, name: &[u8; 32]) -> Option<Vec<u8>> {
        self.code.find(name)
    }
    fn keep_code(&self, name: &[u8; 32], code: &[u8]) {
        self.code.keep(name, code);
    }
    fn print(&self, _: &[u8]) {}
    fn fetch(&self, _: u64, buf: &mut [u8]) -> rgpu_device::Result<()> {
        buf.fill(0);
        Ok(())
    }
    fn host_func(&self, _: u64) {}
}

/// A texture and another one of the input, and between them a surface of the output.
fn headers(input: u64, output: u64) -> Vec<u8> {
    let single = |channels| TexelFormat::new(ChannelKind::Float, 32, channels).unwrap();
    let plane = |base, channels, size: [u32; 3]| {
        TextureHeader::plain(TextureKind::Plane, single(channels), base, size, [2048, 0])
    };
    let mut textures =
        [plane(input, 1, [512, 300, 0]), plane(output, 1, [512, 512, 0]), plane(input, 2, [256, 70, 0])];
    textures[0].flags.linear = true;
    textures[1].flags.surface = true;
    textures[2].flags = TextureFlags { linear: true, normalized: true, ..TextureFlags::default() };
    textures[2].address = [AddressMode::Mirror, AddressMode::Wrap, AddressMode::Clamp];
    textures.iter().flat_map(TextureHeader::to_bytes).collect()
}

/// A kernel with its memory.
struct Ready {
    gpu: Arc<SoftGpu>,
    function: u32,
    shape: ([u32; 3], [u32; 3]),
    params: Vec<u8>,
    output: Range,
}

impl Ready {
    fn new(row: &Row, n: u32) -> Self {
        let config = Config { memory_bytes_per_device: 256 << 20, workers: 2, ..Config::default() };
        let code = std::env::var_os(FOLDER).map(kept_code::Code::of).unwrap_or_default();
        let gpu: Arc<SoftGpu> = SoftGpu::open(config, Arc::new(Quiet { code })).unwrap();
        // Below where the program itself lies.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let base = 0x1800_0000_0000 + ((NEXT.fetch_add(1, Ordering::Relaxed) % 48) << 40);
        let plan = gpu.reserve(Range { base, size: 1 << 40 }).unwrap();
        let memory = plan.devices[0].base;
        let bytes = 4 * u64::from(n.max(512 * 512));
        gpu.mem_alloc(0, memory, 2 * bytes + 4096, MemoryKind::Device).unwrap();
        let module = gpu.module_load(0, 7, PTX, &[]).unwrap();
        let numbers = (0..bytes / 4).flat_map(|i| ((i * 7919 % 1000) as f32 / 250.0).to_le_bytes());
        let input: Vec<u8> = numbers.collect();
        gpu.copy_to_device(0, Region::linear(memory, bytes), 0, HostData::Owned(input)).unwrap();
        let output = Range { base: memory + bytes, size: bytes };
        let zeros = HostData::Owned(vec![0; bytes as usize]);
        gpu.copy_to_device(0, Region::linear(output.base, bytes), 0, zeros).unwrap();
        let behind = Region::linear(output.end(), 3 * TEXTURE_HEADER_BYTES as u64);
        gpu.copy_to_device(0, behind, 0, HostData::Owned(headers(memory, output.base))).unwrap();
        let mut params = memory.to_le_bytes().to_vec();
        params.extend(output.base.to_le_bytes());
        params.extend(n.to_le_bytes());
        let function = module.functions.iter().position(|f| f.name == row.0).unwrap() as u32;
        Self { gpu, function, shape: row.1(n), params, output }
    }

    fn launch(&self) {
        let (stream, shared_bytes, cooperative) = (0, 0, false);
        let launch = Launch {
            stream,
            module: 7,
            function: self.function,
            grid: self.shape.0,
            block: self.shape.1,
            shared_bytes,
            cooperative,
            cluster: [0; 3],
            params: &self.params,
        };
        self.gpu.launch(launch).unwrap();
        self.gpu.synchronize_blocking(Target::Device(0)).unwrap();
    }

    /// What the kernel has left, as one number.
    fn hash(&self) -> u64 {
        let mut output = vec![0u8; self.output.size as usize];
        let to = Region::linear(output.as_mut_ptr() as u64, self.output.size);
        // SAFETY: `output` outlives the call, which waits.
        let to = unsafe { HostTarget::new(to) };
        let from = Region::linear(self.output.base, self.output.size);
        self.gpu.copy_from_device_blocking(0, from, to).unwrap();
        output.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// What a kernel left, as one number, and the shortest time that it took.
fn run(row: &Row, n: u32, times: u32) -> (u64, Duration) {
    let ready = Ready::new(row, n);
    ready.launch();
    let hash = ready.hash();
    let mut best = Duration::from_secs(1 << 20);
    for _ in 0..times {
        let begun = Instant::now();
        ready.launch();
        best = best.min(begun.elapsed());
    }
    (hash, best)
}

/// What the processes that the tests start are to do.
const WHAT: &str = "TEST_OF_VECTORS";
/// Where they keep machine code, if they do.
const FOLDER: &str = "TEST_OF_VECTORS_FOLDER";

fn main() -> ExitCode {
    if let Ok(what) = std::env::var(WHAT) {
        one_process(&what);
        return ExitCode::SUCCESS;
    }
    if std::env::args().nth(1).as_deref() == Some("measure") {
        measure();
        return ExitCode::SUCCESS;
    }
    rgpu_test_runner::main(vec![
        Test::new("both_tiers_compute_the_same", both_tiers_compute_the_same),
        Test::new(
            "kernels_go_over_to_vectors_and_leave_the_same",
            kernels_go_over_to_vectors_and_leave_the_same,
        ),
        Test::new(
            "processes_may_end_while_kernels_are_compiled",
            processes_may_end_while_kernels_are_compiled,
        ),
        Test::new("faults_of_groups_are_told_with_their_lines", faults::are_told_with_their_lines),
    ])
}

/// Runs in the processes that the tests start.
fn one_process(what: &str) {
    match what.split_once(' ') {
        Some(("end", after)) => return end(after.parse().unwrap()),
        _ if what == "change" => change(),
        _ if what == "faults" => return faults::tell(),
        _ => each(what == "compare"),
    }
    // What runs nothing says whether the library has been opened.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    println!("\nkernel - 0 0 {}", maps.contains("libLLVM"));
}

/// Launches every kernel, or every one that is measured.
fn each(all: bool) {
    for row in KERNELS.iter().filter(|row| all || row.2 > 0) {
        let before = vector::kernels();
        let (hash, time) = if all { run(row, 20_011, 0) } else { run(row, 1 << 20, 3 * row.2) };
        let vectors = vector::kernels() > before;
        println!("\nkernel {} {hash:x} {} {vectors}", row.0, time.as_nanos());
    }
}

/// Launches kernels until there is code for vectors of them, in groups of as many sizes as their blocks have: within a launch or between two. What a launch
/// leaves must not depend on that.
fn change() {
    for (name, sizes) in [("nbody", 3), ("matmul", 2)] {
        let row = KERNELS.iter().find(|row| row.0 == name).unwrap();
        let (before, until) = (vector::kernels(), Instant::now() + Duration::from_secs(60));
        let ready = Ready::new(row, 1 << 17);
        let mut hashes = Vec::new();
        let mut more = 3;
        while more > 0 && Instant::now() < until {
            ready.launch();
            hashes.push(ready.hash());
            more -= i32::from(vector::kernels() >= before + sizes);
        }
        hashes.dedup();
        let has_all = vector::kernels() >= before + sizes;
        println!("\nkernel {name} {:x} {} {has_all}", hashes[0], hashes.len());
    }
}

/// Ends the process so many milliseconds after a kernel has earned code for vectors, while that is being made.
fn end(after: u64) {
    let row = KERNELS.iter().find(|row| row.0 == "integers").unwrap();
    let (ready, until) = (Ready::new(row, 1 << 20), Instant::now() + Duration::from_millis(100));
    while Instant::now() < until {
        ready.launch();
    }
    std::thread::sleep(Duration::from_millis(after));
    std::process::exit(0);
}

/// Whether a process has opened libLLVM, with what it printed of kernels.
fn opened(mut lines: Vec<Line>) -> (bool, Vec<Line>) {
    let last = lines.pop().unwrap();
    assert_eq!(last.0, "-");
    (last.3, lines)
}

type Line = (String, String, u64, bool);

fn in_a_process(what: &str, tier: &str) -> Vec<Line> {
    in_a_process_that_keeps(what, tier, None)
}

fn in_a_process_that_keeps(what: &str, tier: &str, folder: Option<&kept_code::Folder>) -> Vec<Line> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if let Some(folder) = folder {
        command.env(FOLDER, folder.as_ref());
    }
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

fn both_tiers_compute_the_same() -> anyhow::Result<()> {
    vector::possible().map_err(Skip)?;
    let folder = kept_code::Folder::new("vectors");
    let (_, one) = opened(in_a_process("compare", "off"));
    for tier in ["first", "wide", "warp"] {
        compare(&one, tier, &folder);
    }
    Ok(())
}

/// Compares what threads left one by one with what they leave as vectors, and that with what comes of code that was kept.
fn compare(one: &[Line], tier: &str, folder: &kept_code::Folder) {
    let compared = || opened(in_a_process_that_keeps("compare", tier, Some(folder)));
    let (opens, many) = compared();
    let (opens_again, again) = compared();
    assert_eq!((opens, opens_again), (true, false), "what is kept is run without a libLLVM");
    assert_eq!(many.iter().map(|l| &l.1).collect::<Vec<_>>(), again.iter().map(|l| &l.1).collect::<Vec<_>>());
    assert!(again.iter().all(|line| line.3), "what was kept was not found");
    assert_eq!((one.len(), many.len()), (KERNELS.len(), KERNELS.len()));
    for (one, many) in one.iter().zip(&many) {
        assert!(!one.3, "{} was compiled for vectors where that is off", one.0);
        assert!(many.3, "{} was not compiled for vectors", many.0);
        assert_eq!(one.1, many.1, "{}", one.0);
    }
}

fn kernels_go_over_to_vectors_and_leave_the_same() -> anyhow::Result<()> {
    vector::possible().map_err(Skip)?;
    let folder = kept_code::Folder::new("vectors-change");
    // The second process finds what the first has compiled.
    for compiles in [true, false] {
        let (opens, lines) = opened(in_a_process_that_keeps("change", "auto", Some(&folder)));
        assert_eq!((opens, lines.len()), (compiles, 2));
        for (name, _, results, vectors) in lines {
            assert_eq!((results, vectors), (1, true), "{name}");
        }
    }
    Ok(())
}

fn processes_may_end_while_kernels_are_compiled() -> anyhow::Result<()> {
    for after in (0..200).step_by(20) {
        // That it ends well is looked at there.
        assert!(in_a_process(&format!("end {after}"), "auto").is_empty());
    }
    Ok(())
}

/// Prints both tiers' times of a million numbers: `cargo test --release -p rgpu-softgpu --test vectors -- measure`.
fn measure() {
    let (_, one) = opened(in_a_process("measure", "off"));
    let (_, many) = opened(in_a_process("measure", "first"));
    let mut product = 1.0;
    println!("| kernel | one thread after another, ms | vectors, ms | ratio |\n| --- | --- | --- | --- |");
    for (one, many) in one.iter().zip(&many) {
        let ratio = one.2 as f64 / many.2 as f64;
        product *= ratio;
        println!("| {} | {:.3} | {:.3} | {ratio:.2} |", one.0, one.2 as f64 / 1e6, many.2 as f64 / 1e6);
    }
    println!("geometric mean of the ratios: {:.2}", product.powf(1.0 / one.len() as f64));
}
