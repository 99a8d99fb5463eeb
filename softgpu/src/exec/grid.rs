//! One kernel being executed.

use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rgpu_device::{Error, Host, Ordinal};

use super::check::Checker;
use super::count::Counts;
use super::device_runtime::{About, Descendant, Launches};
use super::heap::Heap;
use super::modules::{Cost, Module};
use super::{tiers, warp};
use crate::abi::{CLUSTER_STRIDE, Kernel, Place, Vectors, WARP, WIDTHS};
use crate::compile::vector;

/// Output of kernels is handed on when so much has come together, or the kernel has ended.
const OUTPUT: usize = 64 << 10;

/// A kernel that takes one worker no longer than this is not worth waking another one for.
const SMALL: Duration = Duration::from_micros(20);

/// A worker gets this part of what would be its own share of the blocks that are left.
const SHARES: u64 = 8;

/// A time's nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What a launch comes to when its turn has come.
pub(super) struct GridSpec {
    /// The compiled kernel.
    pub kernel: Arc<Kernel>,
    /// The key of the stream that waits for it.
    pub stream: u64,
    /// The device ordinal it runs on.
    pub ordinal: Ordinal,
    /// Lower ones go first.
    pub priority: i32,
    /// The number of the launch (`%gridid`).
    pub id: u64,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z, which divide the grid; none where nobody has asked for clusters.
    pub cluster: Option<[u32; 3]>,
    /// Dynamic shared memory in bytes.
    pub dynamic_shared: u32,
    /// Bytes of local memory from one thread to the next.
    pub local_stride: u64,
    /// The parameter slot it occupies, and the address of the parameters.
    pub params: (u64, u64),
    /// Address of the workspace of a cooperative launch, or 0.
    pub workspace: u64,
    /// Whether all blocks may wait for each other.
    pub cooperative: bool,
    /// Where the kernels' `malloc` takes from.
    pub heap: Arc<Heap>,
    /// Where printed text goes.
    pub host: Arc<dyn Host>,
    /// The module that the kernel is from, and its number there.
    pub origin: (Arc<Module>, u32),
    /// What it is told of its device.
    pub about: Arc<About>,
    /// Bytes of stack of a thread, as the program has set them.
    pub stack: u64,
    /// What it launches itself, if anything.
    pub launches: Mutex<Option<Box<Launches>>>,
    /// What to say where it has run for too long, if there is a limit.
    pub too_long: Option<Arc<str>>,
    /// What looks at it, if anything does.
    pub checker: Option<Arc<Checker>>,
}

/// A kernel that is being executed: what was launched, and how far it is.
pub(super) struct Grid {
    spec: GridSpec,
    /// Whether threads ever stop before their end.
    pub has_cuts: bool,
    /// Whether there are operations of a warp.
    pub has_warp_cuts: bool,
    /// How many threads of a group run at once, in blocks that begin from now on; 0 where they run one by one.
    lanes: AtomicUsize,
    /// Whether some of its blocks ran as vectors, and others did not.
    mixed: AtomicBool,
    /// When its blocks could be begun.
    begun: Instant,
    /// Whether one worker runs it to its end, and others leave it alone. Never where blocks may wait for each other: these
    /// hold places, which they must get in the order in which kernels were started.
    alone: AtomicBool,
    waits: bool,
    /// How many clusters there are, of one block each where nobody has asked for larger ones. They are what is begun and ended.
    total: u64,
    /// Blocks of a cluster.
    each: u64,
    next: AtomicU64,
    finished: AtomicU64,
    /// How many let all others go first.
    held: AtomicU64,
    abort: AtomicBool,
    bad: AtomicBool,
    error: Mutex<Option<Error>>,
    output: Mutex<Vec<u8>>,
    counts: Mutex<Counts>,
}

/// How many threads of a grid's groups run at once: there is code for that, which is to be run, and they lie in rows of the block. 0 where there is
/// none.
fn lanes_of(spec: &GridSpec) -> usize {
    let there = |lanes: &usize| {
        let fits = |vectors: &Vectors| u64::from(vectors.local_bytes) <= spec.local_stride;
        lie_in_rows(spec.block, *lanes) && spec.kernel.vectors_of(*lanes).is_some_and(fits)
    };
    let (mode, tiers) = (vector::mode(), spec.origin.0.tiers(spec.origin.1));
    let prefers =
        |from: usize, to: usize| from == 0 || tiers.is_none_or(|tiers| tiers.prefers_larger(mode, from, to));
    let next = |from: usize, to: usize| if prefers(from, to) { to } else { from };
    let lanes = WIDTHS.into_iter().filter(there).fold(0, next);
    if tiers.is_none_or(|tiers| tiers.prefers_vectors(mode)) { lanes } else { 0 }
}

/// Whether groups of so many threads lie in one row of a block each, but for what is left over. Nothing is left over of whole warps.
fn lie_in_rows(block: [u32; 3], lanes: usize) -> bool {
    let [x, y, z] = block.map(|n| n as usize);
    let threads = x * y * z;
    (y == 1 && z == 1 || x.is_multiple_of(lanes))
        && threads >= lanes
        && (lanes < WARP || threads.is_multiple_of(lanes))
}

impl Deref for Grid {
    type Target = GridSpec;
    fn deref(&self) -> &GridSpec {
        &self.spec
    }
}

impl Grid {
    /// A grid none of whose blocks has begun.
    #[inline]
    pub(super) fn new(spec: GridSpec) -> Self {
        let blocks = |sides: [u32; 3]| sides.iter().map(|&n| u64::from(n)).product::<u64>();
        let each = spec.cluster.map_or(1, blocks).max(1);
        let total = blocks(spec.grid) / each;
        let cost = spec.origin.0.cost(spec.origin.1);
        let small = total == 1
            || cost.and_then(|cost| cost.of(total * each)).is_some_and(|ns| ns <= nanoseconds(SMALL));
        let waits = spec.kernel.cuts.iter().any(|c| c.kind.yields());
        Self {
            alone: AtomicBool::new(small && !spec.cooperative && !waits),
            waits,
            begun: Instant::now(),
            has_cuts: !spec.kernel.cuts.is_empty(),
            has_warp_cuts: spec.kernel.cuts.iter().any(|c| warp::is_of_warp(c.kind)),
            lanes: AtomicUsize::new(lanes_of(&spec)),
            mixed: AtomicBool::new(false),
            spec,
            total,
            each,
            next: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            held: AtomicU64::new(0),
            abort: AtomicBool::new(false),
            bad: AtomicBool::new(false),
            error: Mutex::new(None),
            output: Mutex::new(Vec::new()),
            counts: Mutex::default(),
        }
    }

    /// How many blocks a cluster has.
    #[inline]
    pub(super) fn cluster_blocks(&self) -> u64 {
        self.each
    }

    /// The next clusters (or blocks without one) that nobody has begun, in order, for one of so many workers; none if there are none.
    ///
    /// Neighbours mostly use memory beside each other's, so a worker gets several of them: fewer the fewer are left, so that all
    /// workers end at about the same time. Blocks that may wait for others are given out one by one.
    pub(super) fn take(&self, workers: u64) -> Range<u64> {
        let share = |next: u64| {
            let left = self.total.saturating_sub(next);
            if self.waits { left.min(1) } else { left.div_ceil(SHARES * workers.max(1)) }
        };
        let mut next = self.next.load(Ordering::Relaxed);
        loop {
            let end = next + share(next);
            if end == next {
                return 0..0;
            }
            match self.next.compare_exchange_weak(next, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return next..end,
                Err(other) => next = other,
            }
        }
    }

    /// Whether all of them have begun.
    pub(super) fn exhausted(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.total
    }

    /// Whether any block has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.next.load(Ordering::Relaxed) > 0
    }

    /// Roughly how many clusters have not begun.
    pub(super) fn remaining(&self) -> u64 {
        self.total.saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// When its blocks could be begun.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Whether its blocks may wait for others.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether one worker is to run it to its end.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Lets other workers begin blocks of it. True where that was not so before.
    pub(super) fn open(&self) -> bool {
        self.alone.swap(false, Ordering::Relaxed)
    }

    /// Whether it has turned out not to be small, after so many blocks. The clock is not looked at after each of them.
    pub(super) fn is_longer_than_thought(&self, blocks: u64) -> bool {
        self.is_alone() && blocks.is_power_of_two() && !self.exhausted() && self.begun.elapsed() > 2 * SMALL
    }

    /// What the kernel costs.
    pub(super) fn cost(&self) -> Option<&Cost> {
        self.origin.0.cost(self.origin.1)
    }

    /// The grid has ended whose blocks took turns: all of its time is taken for all its workers' time.
    pub(super) fn note_turns(&self, workers: u64) {
        if let Some(cost) = self.cost() {
            let helpers = if self.is_alone() { 1 } else { workers.min(self.total) };
            let ns = nanoseconds(self.begun.elapsed()).saturating_mul(helpers);
            cost.note(self.total * self.each, ns);
            if !self.mixed.load(Ordering::Relaxed) {
                self.note_tier(self.total * self.each, ns, self.lanes());
            }
        }
    }

    /// So many of its blocks have taken so many nanoseconds of processors, in groups of so many threads.
    pub(super) fn note_tier(&self, blocks: u64, ns: u64, lanes: usize) {
        let most = WIDTHS.into_iter().rfind(|lanes| lie_in_rows(self.block, *lanes)).unwrap_or(0);
        tiers::note(&self.origin.0, self.origin.1, blocks, ns, (lanes, most));
    }

    /// How many threads of a group run at once in a block that begins now; 0 where they run one by one.
    #[inline]
    pub(super) fn lanes(&self) -> usize {
        self.lanes.load(Ordering::Relaxed)
    }

    /// Whether groups of threads of a block that begins now run as vectors.
    fn has_vectors(&self) -> bool {
        self.lanes() != 0
    }

    /// Has a grid that runs for long get code for vectors, and its further blocks run so as soon as there is some.
    pub(super) fn improve(&self) {
        if self.has_vectors() {
            return;
        }
        let (module, function) = &self.origin;
        if tiers::note_running(module, *function, nanoseconds(self.begun.elapsed())) {
            let lanes = lanes_of(&self.spec);
            self.mixed.fetch_or(lanes != 0, Ordering::Relaxed);
            self.lanes.store(lanes, Ordering::Relaxed);
        }
    }

    /// Reports clusters as ended; true for the one who reports the last.
    pub(super) fn finish(&self, blocks: u64) -> bool {
        blocks > 0 && self.finished.fetch_add(blocks, Ordering::AcqRel) + blocks == self.total
    }

    /// A cluster lets all others go first that do not do so, too.
    pub(super) fn hold(&self) {
        self.held.fetch_add(1, Ordering::AcqRel);
    }

    /// It goes on.
    pub(super) fn let_go(&self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether all clusters have ended, or let others go first.
    pub(super) fn is_held_everywhere(&self) -> bool {
        // In this order: one that goes on and ends meanwhile is not counted twice.
        let finished = self.finished.load(Ordering::Acquire);
        finished + self.held.load(Ordering::Acquire) >= self.total
    }

    /// The coordinates of a block without a cluster.
    pub(super) fn coordinates(&self, index: u64) -> [u32; 3] {
        coordinates(index, self.grid)
    }

    /// Where the block of a rank stands in a cluster, whose shared memory lies there, and its coordinates.
    pub(super) fn place(&self, cluster: u64, rank: u32, shared_base: u64) -> ([u32; 3], Place) {
        let Some(nctaid) = self.cluster else {
            let ctaid = self.coordinates(cluster);
            return (ctaid, Place::alone(ctaid, self.grid, shared_base));
        };
        let count = std::array::from_fn(|i| self.grid[i] / nctaid[i]);
        let (id, ctaid) = (coordinates(cluster, count), coordinates(rank.into(), nctaid));
        let place = Place {
            id,
            count,
            ctaid,
            nctaid,
            rank,
            blocks: self.each as u32,
            explicit: 1,
            shared_offset: rank * CLUSTER_STRIDE,
            shared_base,
        };
        (std::array::from_fn(|i| id[i] * nctaid[i] + ctaid[i]), place)
    }

    /// Ends the grid as soon as its running blocks notice; with an error, unless it has one. True if the
    /// blocks that never began were the last.
    pub(super) fn abort(&self, error: Option<Error>) -> bool {
        if let Some(error) = error {
            self.error.lock().get_or_insert(error);
        }
        self.abort.store(true, Ordering::Release);
        let begun = self.next.swap(u64::MAX / 2, Ordering::Relaxed);
        self.finish(self.total.saturating_sub(begun))
    }

    /// Whether running blocks should end.
    pub(super) fn aborted(&self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }

    /// An access was found to be wrong.
    pub(super) fn note_bad_access(&self) {
        self.bad.store(true, Ordering::Relaxed);
    }

    /// Whether any was.
    pub(super) fn has_bad_accesses(&self) -> bool {
        self.bad.load(Ordering::Relaxed)
    }

    /// Adds what was counted in some of its blocks.
    pub(super) fn count(&self, counts: &Counts) {
        self.counts.lock().add(counts);
    }

    /// What was counted in it.
    pub(super) fn take_counts(&self) -> Counts {
        std::mem::take(&mut *self.counts.lock())
    }

    /// What went wrong.
    pub(super) fn take_error(&self) -> Option<Error> {
        self.error.lock().take()
    }

    /// What is left to do behind it, before its stream goes on.
    pub(super) fn take_descendants(&self) -> VecDeque<Descendant> {
        let launches = self.launches.lock().take();
        launches.map_or_else(VecDeque::new, |launches| launches.finish(&self.heap))
    }

    /// Text that the kernel printed.
    pub(super) fn print(&self, text: &[u8]) {
        let mut output = self.output.lock();
        output.extend_from_slice(text);
        if output.len() >= OUTPUT {
            self.host.print(&output);
            output.clear();
        }
    }

    /// Hands on what has been printed.
    pub(super) fn flush(&self) {
        let mut output = self.output.lock();
        if !output.is_empty() {
            self.host.print(&output);
            output.clear();
        }
    }
}

/// The coordinates of a number, x first, in something of this size.
fn coordinates(index: u64, size: [u32; 3]) -> [u32; 3] {
    let x = u64::from(size[0]);
    if index < x {
        return [index as u32, 0, 0];
    }
    let (rest, y) = (index / x, u64::from(size[1]));
    [(index % x) as u32, (rest % y) as u32, (rest / y) as u32]
}
