//! Random kernels by three ways: an interpreter that goes through the program with all threads in step, machine code for one thread
//! after another, and machine code for vectors of threads. What they leave has to be the same, bit for bit. Where `RGPU_TEST_DRIVER` names
//! the driver of a real GPU, that GPU is the third way instead of the vectors.
//!
//! Some are among the tests. `cargo xtask kernels --count N` compares as many as one likes. Everything follows from a kernel's seed. What
//! differs is made as small as it can be, and printed with the seed.

mod convert;
mod float;
mod interpret;
mod layout;
mod module;
mod ops;
mod program;
mod smaller;
mod together;
mod write;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::containment::{Random, Rig};
use crate::abi;
use crate::compile::vector::{self, Mode};
use crate::exec::block::Progress;
use interpret::{Launch, Left};
use layout::{ALL, APPROXIMATE_AT, RECORD, START};
use program::{COUNTER_BYTES, COUNTER_START, Program};
use rgpu_conformance::hardware::{self, Hardware, Shape};

/// Shapes of blocks: some of whole vectors and warps, most not.
const SHAPES: [[u32; 3]; 24] = [
    [1, 1, 1],
    [7, 1, 1],
    [8, 1, 1],
    [13, 1, 1],
    [16, 1, 1],
    [31, 1, 1],
    [32, 1, 1],
    [33, 1, 1],
    [40, 1, 1],
    [61, 1, 1],
    [64, 1, 1],
    [64, 1, 1],
    [96, 1, 1],
    [100, 1, 1],
    [128, 1, 1],
    [203, 1, 1],
    [16, 4, 1],
    [8, 3, 2],
    [5, 7, 1],
    [4, 4, 4],
    [24, 2, 2],
    [3, 3, 3],
    [32, 4, 1],
    [64, 2, 2],
];
/// Blocks of a grid at most.
const BLOCKS: u32 = 3;

/// Where things lie in the rig's memory.
const OUT: u64 = 256 + (ALL * START) as u64;
const OWN: u64 = OUT + (ALL * RECORD) as u64;
const COUNTS: u64 = OWN + (ALL * 32) as u64;
const MEMORY: u64 = (COUNTS + COUNTER_BYTES as u64).next_multiple_of(4096);
/// What is in memory that nothing was written to.
const UNTOUCHED: u8 = 0xEE;

/// Bits that a register may hold: all magnitudes, and the ends of each kind of number.
fn bits(random: &mut Random, bytes: usize, float: bool) -> u64 {
    let any = random.bits();
    let width = 8 * bytes as u32;
    let number = match (random.below(4), float, bytes) {
        (0, _, _) => any >> random.below(64),
        (1, true, 4) => u64::from(((any as i32 >> random.below(32)) as f32 * 0.25).to_bits()),
        (1, true, 8) => ((any as i64 >> random.below(64)) as f64 * 0.25).to_bits(),
        (1 | 2, true, 2) => (0x3000 + any % 0x1800) | any >> 20 & 0x8000,
        (2, true, 4) => any & 0x807F_FFFF | (120 + (any >> 40) % 16) << 23,
        (2, true, 8) => any & 0x800F_FFFF_FFFF_FFFF | (1000 + (any >> 53) % 48) << 52,
        (1, _, _) => {
            random.pick(&[0, 1, 31, 32, 0x7F, 0x80, 0x7FFF, 0x8000, !0, 1 << 31, (1 << 31) - 1, 1 << 63])
        }
        (2, _, _) => any % 40,
        _ => any,
    };
    number & (u64::MAX >> (64 - width))
}

/// One of a program's launches.
fn launch(random: &mut Random) -> Launch {
    use ops::Class;
    let block = random.pick(&SHAPES);
    let grid = 1 + random.below(BLOCKS as usize) as u32;
    let threads = (block[0] * block[1] * block[2] * grid) as usize;
    let mut input = vec![0; 256 + ALL * START];
    input[..256].chunks_exact_mut(8).for_each(|w| w.copy_from_slice(&bits(random, 8, false).to_le_bytes()));
    for class in Class::ALL {
        for register in 0..class.count() {
            for thread in 0..threads {
                let value = match class {
                    Class::P => random.bits() & 1,
                    _ => bits(random, class.bytes(), class.is_float()),
                };
                let place = 256 + layout::place_of(class, register, thread);
                input[place..place + class.bytes()].copy_from_slice(&value.to_le_bytes()[..class.bytes()]);
            }
        }
    }
    let own = (0..threads * 32).map(|_| (random.bits() >> random.below(8)) as u8).collect();
    let mut extra = [0; 64];
    extra.iter_mut().for_each(|byte| *byte = random.bits() as u8);
    Launch { grid, block, input, own, n: bits(random, 4, false) as u32, wide: bits(random, 8, false), extra }
}

/// What memory holds before a launch.
fn before(launch: &Launch) -> Left {
    Left {
        records: vec![UNTOUCHED; ALL * RECORD],
        own: launch.own.clone(),
        counters: vec![COUNTER_START; COUNTER_BYTES],
    }
}

/// Where two results differ, in words.
fn difference(a: &Left, b: &Left, names: [&str; 2], launch: &Launch, approximations: bool) -> Option<String> {
    let word = |bytes: &[u8], at: usize| {
        bytes[at & !7..][..8].iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let tell = |what: &str, a: &[u8], b: &[u8], at: usize| {
        format!(
            "{what}: {} has {}, {} has {}; grid {}, block {:?}, n {:#x}",
            names[0],
            word(a, at),
            names[1],
            word(b, at),
            launch.grid,
            launch.block,
            launch.n,
        )
    };
    let differs = |a: &[u8], b: &[u8]| (a != b).then(|| (0..a.len()).find(|&at| a[at] != b[at])).flatten();
    let approximate = APPROXIMATE_AT * ALL..(APPROXIMATE_AT + 4) * ALL;
    let parts = [0..approximate.start, approximate.clone(), approximate.end..a.records.len()];
    for part in parts.into_iter().filter(|part| approximations || *part != approximate) {
        if let Some(at) = differs(&a.records[part.clone()], &b.records[part.clone()]) {
            let at = part.start + at;
            let names =
                ops::Class::ALL.into_iter().flat_map(|class| (0..class.count()).map(move |n| (class, n)));
            let holds = |&(class, n): &(ops::Class, usize)| {
                let first = layout::place_of(class, n, 0);
                (first..first + ALL * class.bytes()).contains(&at)
            };
            let what = match names.into_iter().find(holds) {
                Some((class, n)) => {
                    let thread = (at - layout::place_of(class, n, 0)) / class.bytes();
                    format!("{}{n} of thread {thread} of the grid", class.prefix())
                }
                None => format!("bytes {} of what threads leave, at {at}", at / ALL),
            };
            return Some(tell(&what, &a.records, &b.records, at));
        }
    }
    if let Some(at) = differs(&a.own, &b.own) {
        return Some(tell(
            &format!("own memory of thread {}, byte {}", at / 32, at % 32),
            &a.own,
            &b.own,
            at,
        ));
    }
    let at = differs(&a.counters, &b.counters)?;
    Some(tell(&format!("byte {at} of the counters"), &a.counters, &b.counters, at))
}

/// What a run has come to.
#[derive(Debug, Default)]
struct Tally {
    kernels: u64,
    /// How many of these there are for vectors of threads.
    vectors: u64,
    launches: u64,
}

struct Comparison {
    rig: Rig,
    tally: Tally,
    /// One of so many kernels is compiled for vectors of threads, too, which takes ten times as long as all else.
    every: u64,
    hardware: Option<Hardware>,
}

/// Parameters of a kernel whose memory begins at an address.
fn params(base: u64, launch: &Launch) -> Vec<u8> {
    let mut params = Vec::new();
    [0, OUT, OWN, COUNTS].iter().for_each(|at| params.extend((base + at).to_le_bytes()));
    params.extend(u64::from(launch.n).to_le_bytes());
    params.extend(launch.wide.to_le_bytes());
    params.extend(launch.extra);
    params
}

/// Runs a kernel on a GPU of NVIDIA's, and returns what it leaves.
fn launch_on(gpu: &Hardware, kernel: &hardware::Kernel, launch: &Launch) -> Result<Left, String> {
    let mut left = before(launch);
    gpu.write(0, &launch.input)?;
    gpu.write(OUT as usize, &left.records)?;
    gpu.write(OWN as usize, &left.own)?;
    gpu.write(COUNTS as usize, &left.counters)?;
    let shape = Shape { grid: [launch.grid, 1, 1], block: launch.block, shared: 0 };
    gpu.launch(kernel, shape, &params(gpu.memory(), launch))?;
    gpu.read(OUT as usize, &mut left.records)?;
    gpu.read(OWN as usize, &mut left.own)?;
    gpu.read(COUNTS as usize, &mut left.counters)?;
    Ok(left)
}

impl Comparison {
    fn vectors(&self, seed: u64) -> bool {
        self.hardware.is_none() && seed.is_multiple_of(self.every)
    }

    /// Makes the kernel of a seed, and compares so many launches of it.
    fn kernel(&mut self, seed: u64, launches: u64) -> Result<(), String> {
        let program = program::generate(seed);
        self.program(&program, seed, launches).map_err(|why| {
            if self.hardware.is_some() {
                println!("seed {seed}: {why}");
            }
            let (program, why) = self.smallest(program, seed, launches, why);
            format!("{}\n{program:?}\nDIFFERENT, seed {seed}: {why}", program.ptx().0)
        })
    }

    /// Takes away from a program what it differs without; for a minute at most where a driver compiles each attempt.
    fn smallest(
        &mut self,
        mut program: Program,
        seed: u64,
        launches: u64,
        mut why: String,
    ) -> (Program, String) {
        let (mut at, begun) = (0, Instant::now());
        while let Some(smaller) = program.smaller(at) {
            if self.hardware.is_some() && begun.elapsed() > Duration::from_secs(60) {
                break;
            }
            match self.program(&smaller, seed, launches) {
                Err(still) => (program, why) = (smaller, still),
                Ok(()) => at += 1,
            }
        }
        (program, why)
    }

    fn program(&mut self, program: &Program, seed: u64, launches: u64) -> Result<(), String> {
        let (text, used) = program.ptx();
        let compile = |mode: Mode| {
            vector::CHOSEN.set(Some(mode));
            self.rig.compile(&text).map_err(|error| format!("the compiler: {error}"))
        };
        let one = compile(Mode::Off)?;
        let mode = Mode::by_turns(seed / self.every);
        let many = if self.vectors(seed) { compile(mode)? } else { one.clone() };
        self.tally.kernels += 1;
        self.tally.vectors += u64::from(many.has_vectors());
        let load = |gpu: &Hardware| gpu.load(&text, "test").map_err(|why| format!("the GPU: {why}"));
        let real = self.hardware.as_ref().map(load).transpose()?;
        let mut random = Random(seed ^ 0x5bd1_e995);
        for _ in 0..launches {
            let launch = launch(&mut random);
            self.tally.launches += 1;
            if let (Some(gpu), Some(kernel)) = (&mut self.hardware, &real) {
                let wanted = interpret::expected(program, &used, &launch, before(&launch));
                let found = launch_on(gpu, kernel, &launch).or_else(|why| {
                    gpu.reset()?;
                    Err(format!("the GPU: {why}"))
                })?;
                let names = ["the interpreter", "the GPU"];
                if let Some(why) = difference(&wanted, &found, names, &launch, false) {
                    return Err(why);
                }
            }
            let wanted = interpret::expected(program, &used, &launch, before(&launch));
            let first = self.launch(&one, &launch).map_err(|why| format!("first tier: {why}"))?;
            let names = ["the interpreter", "the first tier"];
            if let Some(why) = difference(&wanted, &first, names, &launch, false) {
                return Err(why);
            }
            if !many.has_vectors() {
                continue;
            }
            let second = self.launch(&many, &launch).map_err(|why| format!("vectors: {why}"))?;
            if let Some(why) = difference(&first, &second, ["the first tier", "vectors"], &launch, true) {
                return Err(why);
            }
        }
        if let (Some(gpu), Some(kernel)) = (&self.hardware, real) {
            gpu.unload(kernel)?;
        }
        self.rig.look().map_err(|escape| escape.0)
    }

    /// Runs the kernel, and returns what it leaves.
    fn launch(&mut self, kernel: &Arc<abi::Kernel>, launch: &Launch) -> Result<Left, String> {
        let base = self.rig.memory;
        let mut left = before(launch);
        let copy = |at: u64, bytes: &[u8]| {
            // SAFETY: it lies in the rig's memory, which is mapped, and no kernel runs.
            unsafe { std::ptr::copy(bytes.as_ptr(), (base + at) as *mut u8, bytes.len()) };
        };
        copy(0, &launch.input);
        copy(OUT, &left.records);
        copy(OWN, &left.own);
        copy(COUNTS, &left.counters);
        let params = params(base, launch);
        // SAFETY: the parameter slot is open, and this rig's alone.
        unsafe { std::ptr::copy(params.as_ptr(), self.rig.params() as *mut u8, params.len()) };
        match self.rig.execute(kernel, launch.grid, None, launch.block) {
            Ok(Progress::Finished) => {}
            Ok(Progress::Yielded | Progress::Held(_) | Progress::Waiting) => {
                return Err("it does not end".into());
            }
            Err(error) => return Err(error.to_string()),
        }
        let read = |at: u64, bytes: &mut [u8]| {
            // SAFETY: as above.
            unsafe { std::ptr::copy((base + at) as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        };
        let mut input = vec![0; launch.input.len()];
        read(0, &mut input);
        if input != launch.input {
            return Err("what is only read has changed".into());
        }
        read(OUT, &mut left.records);
        read(OWN, &mut left.own);
        read(COUNTS, &mut left.counters);
        Ok(left)
    }
}

/// Compares kernels of seeds from `first` on.
fn run(first: u64, kernels: u64, launches: u64, every: u64, note: impl Fn(u64) + Send + 'static) -> Tally {
    super::as_on_a_worker(move || {
        let mut comparison = Comparison {
            rig: Rig::new(true, MEMORY),
            tally: Tally::default(),
            every,
            hardware: Hardware::asked(),
        };
        let begun = Instant::now();
        let mut told = begun;
        let mut different = 0;
        for seed in first..first + kernels {
            note(seed);
            if let Err(how) = comparison.kernel(seed, launches) {
                // The driver compiles for minutes until one is found: more than the first are shown.
                different += 1;
                if comparison.hardware.is_none() || different == 20 {
                    panic!("{how}");
                }
                println!("{how}");
            }
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                let tally = &comparison.tally;
                println!(
                    "{} kernels compared, {} of them for vectors, {} launches, in {} s",
                    tally.kernels,
                    tally.vectors,
                    tally.launches,
                    begun.elapsed().as_secs()
                );
            }
        }
        assert_eq!(different, 0, "so many kernels computed something else on the GPU");
        comparison.tally
    })
}

#[test]
fn random_kernels_compute_the_same_in_all_tiers() {
    let tally = run(1, 2000, 2, 20, |_| ());
    assert_eq!(tally.kernels, 2000);
    // Otherwise the kernels are badly chosen.
    assert!(vector::possible().is_err() || tally.vectors > 50, "{tally:?}");
}

/// Kernels that were compiled wrongly once.
#[test]
fn what_once_differed_does_not_any_more() {
    // A value that is only given along an edge behind a loop, which lanes leave at different times.
    run(1_000_113, 1, 2, 1, |_| ());
    // What a block has in one place was not taken anew behind a stop that the executor has to see to.
    run(90_129, 1, 2, 1, |_| ());
}

/// A result that is not the program's is noticed, and the program made smaller stays one.
#[test]
fn a_kernel_that_computes_something_else_is_noticed() {
    use ops::Class::V;
    use program::{Statement, Value};
    super::as_on_a_worker(|| {
        let find = |text: &str| ops::all().iter().position(|op| op.text.starts_with(text)).unwrap();
        let add = Statement::Compute {
            op: find("add.u32"),
            to: 5,
            args: vec![Value::Register(V, 1), Value::Constant(V, 7)],
            guard: None,
        };
        let program = Program { functions: Vec::new(), together: false, kernel: vec![add] };
        let other = program.smaller(0).unwrap();
        assert!(other.kernel.is_empty() && program.smaller(1).is_none());
        let mut comparison =
            Comparison { rig: Rig::new(true, MEMORY), tally: Tally::default(), every: 1, hardware: None };
        comparison.program(&program, 1, 3).unwrap();
        let (text, used) = program.ptx();
        let kernel = comparison.rig.compile(&text).unwrap();
        let launch = launch(&mut Random(1));
        let left = comparison.launch(&kernel, &launch).unwrap();
        let of = |program| interpret::expected(program, &used, &launch, before(&launch));
        assert_eq!(difference(&of(&program), &left, ["", ""], &launch, false), None);
        let why = difference(&of(&other), &left, ["a", "b"], &launch, false).unwrap();
        assert!(why.starts_with("v5 of thread 0"), "{why}");
    });
}

/// A long run, as `cargo xtask kernels` asks for it.
#[test]
#[ignore = "a long run: cargo xtask kernels"]
fn long_run() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let count = number("RGPU_FUZZ_COUNT", 1_000_000);
    let seed = number("RGPU_FUZZ_SEED", 1_000_000);
    let each = number("RGPU_FUZZ_EACH", 2);
    let begun = Instant::now();
    let tally =
        run(seed, count, each, 1, super::containment::watched(seed, |seed| program::generate(seed).ptx().0));
    println!(
        "{} kernels compared, {} of them for vectors, {} launches, 0 differences (seeds from {seed}), in {} s",
        tally.kernels,
        tally.vectors,
        tally.launches,
        begun.elapsed().as_secs()
    );
}

/// Prints the kernel of a seed, for whoever looks into what a long run has found.
#[test]
#[ignore = "prints one kernel: RGPU_FUZZ_SEED=N"]
fn show() {
    let seed = std::env::var("RGPU_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("{}", program::generate(seed).ptx().0);
}
