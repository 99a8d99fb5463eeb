//! Runs random kernels, good and bad ones, with every wild address that somebody could think of, and looks whether any of
//! them gets out: reads what is not the device's, changes it, or ends the process. Around the arena, at low addresses and
//! in the process's own memory lie *canaries*: words that no kernel may see or change.
//!
//! A short run is one of the tests. `cargo xtask fuzz-kernels --count N` makes a long one. Everything follows from the
//! seed of a kernel; what goes wrong prints it, and the kernel.

mod generate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rgpu_device::{Code, Error, FunctionInfo, Range, Result};

use super::TestHost;
use crate::abi;
use crate::compile::vector::{self, Mode};
use crate::compile::{Environment, Program};
use crate::exec::Config;
use crate::exec::arena::Arena;
use crate::exec::block::Progress;
use crate::exec::block::team::{Next, Team};
use crate::exec::device_runtime::About;
use crate::exec::fault::Guard;
use crate::exec::grid::{Grid, GridSpec};
use crate::exec::heap::Heap;
use crate::exec::helpers;
use crate::exec::mirror::Mirror;
use crate::exec::modules::{Kernels, Module};
use crate::exec::slot::Slot;
pub(super) use generate::Random;
use generate::{PARAMS, TRACE};

/// Half a canary; the whole is this twice. No kernel can come to it by chance but once in four billion tries for each word.
const WORD: u32 = 0xA7C3_5E91;
const PAGE: u64 = 4096;
/// The kernels' memory.
const MEMORY: u64 = 32 << 10;
const THREADS: [u32; 4] = [1, 8, 32, 64];
/// Bytes of canaries on either side of the arena, and at each of the other places.
const SIDE: u64 = 64 << 10;

/// A stretch of words that nobody may see or change.
struct Canary {
    at: u64,
    size: u64,
}

impl Canary {
    /// At an address of its own, if that is free.
    fn place(at: u64, size: u64) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping that replaces nothing; it stays as long as the process.
        let got = unsafe { libc::mmap(at as *mut _, size as usize, access, flags, -1, 0) };
        (got as u64 == at).then(|| Self { at, size }.filled())
    }

    /// In memory that is there, and stays.
    fn over(words: &'static mut [u32]) -> Self {
        Self { at: words.as_ptr() as u64, size: size_of_val(words) as u64 }.filled()
    }

    fn filled(self) -> Self {
        for index in 0..self.size / 4 {
            // SAFETY: the stretch is this canary's own.
            unsafe { ((self.at + index * 4) as *mut u32).write_volatile(WORD) };
        }
        self
    }

    fn is_alive(&self) -> bool {
        // SAFETY: the stretch is this canary's own, and whoever writes it is what is looked for.
        let words = unsafe { std::slice::from_raw_parts(self.at as *const u64, (self.size / 8) as usize) };
        std::hint::black_box(words).iter().all(|&word| word == u64::from(WORD) << 32 | u64::from(WORD))
    }
}

struct NoKernels;

impl Kernels for NoKernels {
    fn kernel(&self, _index: u32) -> Result<Arc<abi::Kernel>> {
        Err(Error::from(Code::NotFound))
    }
}

/// What a run has come to.
#[derive(Debug, Default)]
struct Tally {
    compiled: u64,
    /// How many of these were compiled for vectors of threads, too.
    vectors: u64,
    refused: u64,
    executed: u64,
    outcomes: BTreeMap<String, u64>,
}

/// How a kernel got out.
#[derive(Debug)]
pub(super) struct Escape(pub String);

/// An arena with memory, and canaries around it.
pub(super) struct Rig {
    arena: Arc<Arena>,
    host: Arc<TestHost>,
    about: Arc<About>,
    heap: Arc<Heap>,
    module: Arc<Module>,
    guard: Box<Guard>,
    /// What serves faults beside allocations, as long as the guard may ask it.
    _mirror: Box<Mirror>,
    slot: Option<Box<Slot>>,
    pub memory: u64,
    globals: u64,
    canaries: Vec<Canary>,
    /// Addresses that a kernel has no business with, and some that it has.
    wild: Vec<u64>,
    tally: Tally,
}

/// Bytes for the variables of a module.
const GLOBALS: u64 = 64 << 10;

impl Rig {
    /// Whether faults come exactly at the end of memory, of which there are so many bytes.
    pub(super) fn new(exact_bounds: bool, bytes: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0x2800_0000_0000);
        let base = NEXT.fetch_add(1 << 40, Ordering::Relaxed);
        let proposal = Range { base, size: 1 << 40 };
        let mut arena = Arena::reserve(proposal, 1, 64 << 20, 4).unwrap();
        if !exact_bounds {
            arena.have_scratch();
        }
        let arena = Arc::new(arena);
        arena.open_params().unwrap();
        let whole = arena.whole();
        let memory = arena.plan.devices[0].base;
        arena.map_device(0, Range { base: memory, size: bytes }).unwrap();
        let globals = arena.globals.base;
        arena.map_variables(Range { base: globals, size: GLOBALS }).unwrap();
        let heap = Arc::new(Heap::new(arena.clone(), arena.heaps[0]));
        let host = Arc::new(TestHost::default());
        let functions = vec![FunctionInfo::default()];
        let module = Arc::new(Module::new(0, functions, Box::new(NoKernels), None));
        let slot = Slot::open(arena.clone(), 0).unwrap();
        let mut canaries = vec![
            Canary::place(whole.base - SIDE, SIDE).unwrap(),
            Canary::place(whole.end(), SIDE).unwrap(),
            Canary::over(Box::leak(vec![0; 4096].into_boxed_slice())),
        ];
        // Where numbers that are no addresses would lead: offsets of shared memory, numbers of functions. Another test of this
        // process may have them already.
        for at in [1 << 16, 1 << 20, 1 << 32] {
            canaries.extend(Canary::place(at, SIDE));
        }
        let mut wild = vec![
            0,
            1,
            8,
            16,
            4095,
            4096,
            0xffff,
            !0,
            !7,
            1 << 63,
            1 << 47,
            (1 << 47) - 8,
            1 << 20,
            abi::FAULT_ADDRESS,
            abi::ARENA_MARGIN,
            0x7fff_ffff,
            0xffff_ffff,
            0xffff_fff0,
            whole.base,
            whole.base - 8,
            whole.base + abi::ARENA_MARGIN / 2,
            whole.end(),
            whole.end() - 8,
            whole.end() - abi::ARENA_MARGIN / 2 - 8,
            memory - 8,
            memory + bytes - 8,
            memory + bytes,
            memory - (2 << 20),
            memory + (2 << 20) - 8,
            globals - 8,
            globals + GLOBALS,
            slot.window,
            slot.window + (256 << 10),
            slot.window + (4 << 30),
            arena.param_slot(0),
            arena.param_slot(255),
            helpers::addresses().vprintf as u64,
            std::ptr::from_ref(&*host) as u64,
        ];
        for canary in &canaries {
            let end = canary.at + canary.size;
            wild.extend([
                canary.at,
                canary.at + 8,
                canary.at + 512,
                end - 8,
                end - 16,
                end - 4,
                canary.at - 65536,
            ]);
        }
        let stack = 0u64;
        wild.push(std::ptr::from_ref(&stack) as u64);
        let mirror = Box::new(Mirror::new(arena.clone(), host.clone()));
        let about = Arc::new(About::new(&Config::default(), 1));
        Self {
            guard: Guard::new(&raw const *mirror),
            _mirror: mirror,
            arena,
            host,
            heap,
            about,
            module,
            slot: Some(slot),
            memory,
            globals,
            canaries,
            wild,
            tally: Tally::default(),
        }
    }

    /// The kernel of a seed: without calls every other time, which keep a kernel from running for vectors of threads.
    fn text(seed: u64) -> String {
        generate::kernel(seed, seed.is_multiple_of(2))
    }

    /// Makes the kernel of a seed and launches it so many times.
    fn kernel(&mut self, seed: u64, launches: u64) -> std::result::Result<(), Escape> {
        let text = Self::text(seed);
        let kernel = match self.compile(&text) {
            Ok(kernel) => kernel,
            Err(error)
                if error.message.contains("a mistake in rgpu")
                    || error.message.contains("compiler failed") =>
            {
                return Err(Escape(format!("the compiler: {error}")));
            }
            Err(error) => {
                self.tally.refused += 1;
                *self.tally.outcomes.entry(format!("refused: {}", why(&error.message))).or_default() += 1;
                return Ok(());
            }
        };
        self.tally.compiled += 1;
        self.tally.vectors += u64::from(kernel.has_vectors());
        let mut random = Random(seed ^ 0x5bd1_e995);
        for _ in 0..launches {
            self.launch(&kernel, &mut random)?;
        }
        self.look()
    }

    pub(super) fn compile(&self, text: &str) -> Result<Arc<abi::Kernel>> {
        let module = rgpu_image::ptx::parse(text).map_err(|e| Error::new(Code::InvalidPtx, e.to_string()))?;
        let program = Program::new(module, 80)?;
        let mut next = self.globals;
        let mut globals = std::collections::HashMap::new();
        for global in program.globals() {
            next = next.next_multiple_of(global.align.max(16));
            globals.insert(global.name.clone(), next);
            // SAFETY: there is room for what the generator declares.
            unsafe { std::ptr::copy(global.bytes.as_ptr(), next as *mut u8, global.bytes.len()) };
            next += global.size;
        }
        let environment = Environment {
            arena: self.arena.whole(),
            globals,
            helpers: helpers::addresses(),
            checks: Default::default(),
        };
        program.link(environment).kernel(0)
    }

    fn word(&self, tame: bool, random: &mut Random) -> u64 {
        if tame && random.below(16) != 0 {
            return self.memory + ((random.bits() % 4096) & !15);
        }
        match random.below(8) {
            0..=3 => random.pick(&self.wild).wrapping_add(random.pick(&[0, 0, 0, 8, 16, !15, 4, 1 << 12])),
            4 => self.memory + ((random.bits() % MEMORY) & !7),
            5 => (random.bits() % 512) & !3,
            6 => (1 << 20) + random.bits() % (1 << 16),
            _ => random.bits(),
        }
    }

    /// One launch, with parameters and memory of its own.
    fn launch(&mut self, kernel: &Arc<abi::Kernel>, random: &mut Random) -> std::result::Result<(), Escape> {
        self.tally.executed += 1;
        let (threads, blocks) = (random.pick(&THREADS), random.pick(&[1, 1, 2, 4]));
        let params = self.params();
        // Many launches are mostly as they should be, so that kernels come far.
        let tame = random.below(4) != 0;
        for index in 0..PARAMS as u64 + 6 {
            let value = match index {
                0 => self.memory + 8192,
                // Which statements are skipped.
                13 => random.bits(),
                _ => self.word(tame, random),
            };
            // SAFETY: the parameter slot is open, and this rig's alone.
            unsafe { ((params + index * 8) as *mut u64).write(value) };
        }
        for _ in 0..8 {
            let (at, value) = (self.memory + ((random.bits() % 8192) & !7), self.word(tame, random));
            // SAFETY: the memory was mapped, and no kernel runs.
            unsafe { (at as *mut u64).write(value) };
        }
        let cluster = (blocks > 1).then_some([blocks, 1, 1]);
        let outcome = self.execute(kernel, blocks, cluster, [threads, 1, 1]);
        let name = match &outcome {
            Ok(progress) => format!("{progress:?}"),
            Err(error) => why(&error.message),
        };
        // The processor's stack is far from full in these kernels: what looks like it was an access outside of the arena.
        if name.contains("too many nested calls") {
            return Err(Escape(format!("an access that was not confined: {}", outcome.unwrap_err())));
        }
        *self.tally.outcomes.entry(name).or_default() += 1;
        self.read()
    }

    /// The address of the kernel's parameters.
    pub(super) fn params(&self) -> u64 {
        self.arena.param_slot(0)
    }

    /// Runs the blocks of a grid in their order, or all of them as one cluster, each up to its end or so often that it will not come any more.
    pub(super) fn execute(
        &mut self,
        kernel: &Arc<abi::Kernel>,
        blocks: u32,
        cluster: Option<[u32; 3]>,
        block: [u32; 3],
    ) -> Result<Progress> {
        let params = self.params();
        let missing = || Error::new(Code::Unknown, "the slot is gone");
        let mut slot = self.slot.take().ok_or_else(missing)?;
        let grid = Arc::new(Grid::new(GridSpec {
            kernel: kernel.clone(),
            stream: 0,
            ordinal: 0,
            priority: 0,
            id: self.tally.executed,
            grid: [blocks, 1, 1],
            block,
            cluster,
            dynamic_shared: 0,
            local_stride: (u64::from(kernel.local_bytes) + 2048).next_multiple_of(64) | 64,
            params: (0, params),
            workspace: 0,
            cooperative: false,
            heap: self.heap.clone(),
            host: self.host.clone(),
            origin: (self.module.clone(), 0),
            about: self.about.clone(),
            stack: 1024,
            launches: Default::default(),
            too_long: None,
            checker: None,
        }));
        let lanes = grid.lanes();
        if let Err(error) = slot.prepare(&grid, lanes) {
            self.slot = Some(slot);
            return Err(error);
        }
        let teams = if cluster.is_some() { 1 } else { blocks };
        let mut resident = Team::begin(slot, grid.clone(), 0, 1..u64::from(teams), (0, 1), lanes);
        let mut outcome = Ok(Progress::Yielded);
        'blocks: for index in 0..teams {
            if index > 0 && !matches!(resident.go_on(1), Next::Begun) {
                break;
            }
            for _ in 0..256 {
                outcome = resident.step(&mut self.guard);
                match outcome {
                    Ok(Progress::Yielded | Progress::Held(_) | Progress::Waiting) => {}
                    Ok(Progress::Finished) => continue 'blocks,
                    Err(_) => break,
                }
            }
            break;
        }
        grid.flush();
        self.slot = Some(resident.into_slot());
        outcome
    }

    /// Looks for canaries in what the kernel has left and printed.
    fn read(&self) -> std::result::Result<(), Escape> {
        let printed = std::mem::take(&mut *self.host.printed.lock());
        // SAFETY: the memory was mapped, and no kernel runs.
        let memory = unsafe { std::slice::from_raw_parts(self.memory as *const u32, (MEMORY / 4) as usize) };
        if let Some(at) = memory.iter().position(|&word| word == WORD) {
            return Err(Escape(format!(
                "a canary was read: it lies {} bytes into the kernel's memory",
                at * 4
            )));
        }
        if printed.is_empty() {
            return Ok(());
        }
        let raw = WORD.to_le_bytes();
        let text = String::from_utf8_lossy(&printed);
        let twice = u64::from(WORD) << 32 | u64::from(WORD);
        let said = [format!("{WORD:x}"), WORD.to_string(), (WORD as i32).to_string(), twice.to_string()];
        if printed.windows(4).any(|part| part == raw) || said.iter().any(|said| text.contains(said)) {
            return Err(Escape(format!("a canary was printed: {text}")));
        }
        Ok(())
    }

    /// Whether all canaries are as they were.
    pub(super) fn look(&self) -> std::result::Result<(), Escape> {
        match self.canaries.iter().find(|canary| !canary.is_alive()) {
            Some(canary) => Err(Escape(format!("a canary at {:#x} was changed", canary.at))),
            None => Ok(()),
        }
    }
}

/// An error without what differs from kernel to kernel.
fn why(message: &str) -> String {
    let message = message.split(" in kernel").next().unwrap_or(message);
    let message = message.rsplit(": ").next().unwrap_or(message);
    let words = message.split_whitespace().take(6);
    words
        .map(|word| if word.contains(|c: char| c.is_ascii_digit()) { "N" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs kernels of seeds from `first` on until so many launches have been executed. Where the process dies, the parent
/// of a long run tells from `note` what was running.
fn run(
    exact_bounds: bool,
    vectors: bool,
    first: u64,
    launches: u64,
    each: u64,
    note: impl Fn(u64) + Send + 'static,
) -> Tally {
    super::as_on_a_worker(move || {
        let mut rig = Rig::new(exact_bounds, MEMORY);
        let begun = Instant::now();
        let mut told = begun;
        let mut seed = first;
        while rig.tally.executed < launches {
            note(seed);
            vector::CHOSEN.set(Some(if vectors { Mode::by_turns(seed / 2) } else { Mode::Off }));
            if let Err(Escape(how)) = rig.kernel(seed, each) {
                panic!("ESCAPE, seed {seed}: {how}\n{}", Rig::text(seed));
            }
            seed += 1;
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                println!(
                    "{} kernels compiled, {} refused, {} launches executed in {} s",
                    rig.tally.compiled,
                    rig.tally.refused,
                    rig.tally.executed,
                    begun.elapsed().as_secs()
                );
            }
        }
        rig.tally
    })
}

#[test]
fn random_kernels_neither_see_nor_change_what_is_not_theirs() {
    for exact_bounds in [true, false] {
        let tally = run(exact_bounds, false, 1, 20_000, 25, |_| ());
        // Otherwise the kernels are badly chosen.
        assert!(tally.compiled > 4 * tally.refused, "{tally:#?}");
        let finished = tally.outcomes.get("Finished").copied().unwrap_or(0);
        assert!(finished > 500 && finished < tally.executed / 2, "{tally:#?}");
    }
}

/// The same for vectors of threads, where the machine can have them.
#[test]
fn random_kernels_for_vectors_of_threads_neither_see_nor_change_what_is_not_theirs() {
    if vector::possible().is_err() {
        return;
    }
    for exact_bounds in [true, false] {
        let tally = run(exact_bounds, true, 1, 10_000, 50, |_| ());
        assert!(tally.vectors > tally.compiled / 10, "{tally:#?}");
        let finished = tally.outcomes.get("Finished").copied().unwrap_or(0);
        assert!(finished > 250 && finished < tally.executed / 2, "{tally:#?}");
    }
}

/// The canaries are seen where a kernel can see them: the search itself works.
#[test]
fn a_kernel_that_sees_a_canary_is_noticed() {
    super::as_on_a_worker(|| {
        let rig = Rig::new(true, MEMORY);
        rig.read().unwrap();
        rig.look().unwrap();
        // SAFETY: the memory was mapped, and no kernel runs.
        unsafe { ((rig.memory + TRACE as u64) as *mut u32).write(WORD) };
        assert!(rig.read().is_err());
        // SAFETY: as above.
        unsafe { ((rig.memory + TRACE as u64) as *mut u32).write(0) };
        rig.host.printed.lock().extend_from_slice(format!("|{WORD:x}|").as_bytes());
        assert!(rig.read().is_err());
        let canary = rig.canaries[2].at + PAGE;
        // SAFETY: the canary is the rig's.
        unsafe { (canary as *mut u8).write(0) };
        assert!(rig.look().is_err());
    });
}

/// What is told each seed of a long run when it begins. It notes the seed for who has started the run, and ends the process where a
/// kernel does not end: that is a mistake, too, and would otherwise be waited for in silence.
pub(super) fn watched(first: u64, text: fn(u64) -> String) -> impl Fn(u64) + Send + 'static {
    let place = std::env::var_os("RGPU_FUZZ_NOTE");
    let file = place.map(|place| std::fs::File::create(place).expect("the file for the seed can be made"));
    let progress = Arc::new(AtomicU64::new(first));
    let seen = progress.clone();
    // A GPU's driver takes its time, and what differs is made smaller by trying.
    let driver = std::env::var_os(rgpu_conformance::hardware::VARIABLE).is_some_and(|path| !path.is_empty());
    let patience = Duration::from_secs(if driver { 600 } else { 60 });
    std::thread::spawn(move || {
        let mut last = (u64::MAX, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = seen.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > patience {
                println!("HANG, seed {now}\n{}", text(now));
                std::process::abort();
            }
        }
    });
    move |seed| {
        progress.store(seed, Ordering::Relaxed);
        if let Some(file) = &file {
            // Nothing to be done about a seed that cannot be noted: only a crash would ask for it.
            let _ = std::os::unix::fs::FileExt::write_all_at(file, format!("{seed:<20}").as_bytes(), 0);
        }
    }
}

/// A long run, as `cargo xtask fuzz-kernels` asks for it.
#[test]
#[ignore = "a long run: cargo xtask fuzz-kernels"]
fn long_run() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let count = number("RGPU_FUZZ_COUNT", 1_000_000);
    let seed = number("RGPU_FUZZ_SEED", 1_000_000);
    let each = number("RGPU_FUZZ_EACH", 100);
    // As programs have it unless they ask for exact bounds.
    let vectors = std::env::var(vector::VARIABLE).is_ok_and(|value| value == "first");
    let tally = run(false, vectors, seed, count, each, watched(seed, Rig::text));
    println!("{tally:#?}");
    println!(
        "{} kernels compiled, {} refused, {} launches executed, 0 escapes (seeds from {seed})",
        tally.compiled, tally.refused, tally.executed
    );
}

/// Prints the kernel of a seed, for whoever looks into what a long run has found.
#[test]
#[ignore = "prints one kernel: RGPU_FUZZ_SEED=N"]
fn show() {
    let seed = std::env::var("RGPU_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("{}", Rig::text(seed));
}
