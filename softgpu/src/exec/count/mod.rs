//! Counting what kernels do, for `rgpu profile-kernels`: how often each line is executed, by how many lanes of a warp at a time, and what
//! it reads and writes.
//!
//! Kernels are compiled with calls ([`crate::abi::counted`]) that come to [`BlockCounter`], which counts for one resident block.
//! When a block has ended, its counts are added to its launch's, and when that has, to those of its kernel, which are written down when
//! the program ends.

mod block;
mod part;
mod visits;

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rgpu_device::{Code, Error, Result};

use super::grid::{Grid, nanoseconds};
use crate::abi::Kernel;

pub(super) use block::BlockCounter;

/// The most launches that are written down one by one. Those beyond are counted in their kernels alone.
const MOST_LAUNCHES: usize = 1 << 20;

/// That a software GPU counts what kernels do.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The folder to which the process adds a file with what was counted, when it ends.
    pub folder: PathBuf,
}

/// Which memory an access went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    Global,
    Shared,
    Local,
    Constant,
}

/// What was counted of a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RegionCount {
    /// How often a thread came to it.
    pub threads: u64,
    /// How often a warp did.
    pub warps: u64,
    /// How often lanes of a warp that had come to it together went on to different places.
    pub diverged: u64,
}

/// What was counted of an access to one kind of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AccessCount {
    /// How often a thread made it.
    pub threads: u64,
    /// How often a warp did.
    pub requests: u64,
    /// How many sectors of 32 bytes (global memory) or turns of the banks (shared memory) that took.
    pub units: u64,
    /// Bytes that were read, written, and changed by atomic operations.
    pub bytes: [u64; 3],
}

/// All that was counted in a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// By region.
    pub regions: Vec<RegionCount>,
    /// By access, and there by [`Memory`].
    pub accesses: Vec<[AccessCount; 4]>,
    /// Whether what warps did was estimated from a sample somewhere.
    pub estimated: bool,
}

impl Counts {
    /// With nothing counted, in a kernel.
    fn of(kernel: &Kernel) -> Self {
        let (regions, accesses) =
            kernel.sites.as_ref().map_or((0, 0), |sites| (sites.regions.len(), sites.accesses.len()));
        Self {
            regions: vec![RegionCount::default(); regions],
            accesses: vec![Default::default(); accesses],
            estimated: false,
        }
    }

    /// Adds what was counted in the same kernel elsewhere.
    pub(super) fn add(&mut self, other: &Self) {
        self.regions.resize(other.regions.len().max(self.regions.len()), RegionCount::default());
        self.accesses.resize(other.accesses.len().max(self.accesses.len()), Default::default());
        for (sum, more) in self.regions.iter_mut().zip(&other.regions) {
            sum.threads += more.threads;
            sum.warps += more.warps;
            sum.diverged += more.diverged;
        }
        for (sum, more) in self.accesses.iter_mut().flatten().zip(other.accesses.iter().flatten()) {
            sum.threads += more.threads;
            sum.requests += more.requests;
            sum.units += more.units;
            sum.bytes.iter_mut().zip(more.bytes).for_each(|(sum, more)| *sum += more);
        }
        self.estimated |= other.estimated;
    }
}

/// A launch that has ended.
struct Ran {
    /// Its kernel's number.
    kernel: usize,
    device: u32,
    stream: u64,
    /// When it began, in nanoseconds of the system's monotonic clock, and how long it took.
    begun: u64,
    took: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    failed: bool,
}

#[derive(Default)]
struct State {
    launches: Vec<Ran>,
    /// How many launches there were that were not written down.
    more: u64,
    kernels: Vec<(Arc<Kernel>, Counts)>,
    numbers: HashMap<usize, usize>,
}

/// What a process's kernels did.
pub(super) struct Profiler {
    /// The file that is not whole yet.
    file: PathBuf,
    /// A moment, and what the system's monotonic clock said then.
    then: (Instant, u64),
    state: Mutex<State>,
}

/// Nanoseconds of the system's monotonic clock.
fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Profiler {
    /// One that has seen nothing. Its file is there from now on, so that it is known of processes that do not come to their end.
    pub(super) fn new(settings: &Profile) -> Result<Arc<Self>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let file = settings.folder.join(name);
        File::create(&file).map_err(|e| {
            Error::new(
                Code::OperatingSystem,
                format!("Cannot write what kernels do to {}: {e}", file.display()),
            )
        })?;
        Ok(Arc::new(Self { file, then: (Instant::now(), monotonic()), state: Mutex::default() }))
    }

    /// A kernel has ended.
    pub(super) fn ended(&self, grid: &Grid, failed: bool) {
        let took = nanoseconds(grid.begun().elapsed());
        let (moment, then) = self.then;
        let begun = then + nanoseconds(grid.begun().saturating_duration_since(moment));
        let counts = grid.take_counts();
        let state = &mut *self.state.lock();
        let next = state.kernels.len();
        // The kernel is kept, so that no other one gets its address.
        let number = *state.numbers.entry(Arc::as_ptr(&grid.kernel) as usize).or_insert(next);
        if number == next {
            state.kernels.push((grid.kernel.clone(), Counts::of(&grid.kernel)));
        }
        state.kernels[number].1.add(&counts);
        if state.launches.len() >= MOST_LAUNCHES {
            state.more += 1;
            return;
        }
        state.launches.push(Ran {
            kernel: number,
            device: grid.ordinal,
            stream: grid.stream,
            begun,
            took,
            grid: grid.grid,
            block: grid.block,
            shared: grid.dynamic_shared,
            failed,
        });
    }

    /// The program ends: writes down what was counted.
    pub(super) fn end(&self) {
        let text = part::text(&self.state.lock());
        let whole = self.file.with_extension("json");
        let write = |path: &Path| File::create(path)?.write_all(text.as_bytes());
        if let Err(error) = write(&self.file).and_then(|()| std::fs::rename(&self.file, &whole)) {
            eprintln!("rgpu: cannot write what kernels did to {}: {error}", whole.display());
        }
    }
}
