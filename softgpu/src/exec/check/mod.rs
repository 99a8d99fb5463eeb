//! Looking at what kernels do while they run, for `rgpu check`: whether their accesses stay in the program's memory, whether memory
//! was written before it is read, whether threads of a block use shared memory without waiting for each other, and whether barriers
//! are used as they may be.
//!
//! Kernels are compiled with calls before their accesses ([`crate::abi::Checks`]); these come to [`BlockChecker::access`]. An access
//! that is wrong is reported and goes to scratch memory of the block instead, where it reads zeros; the kernel goes on, so that its
//! other mistakes are found, too, and fails when it has ended.

mod map;
mod notes;
mod race;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rgpu_device::{Check, Code, Error, Host, Range, RegionCursor};

use super::block::Context;
use super::grid::Grid;
use super::heap::Heap;
use super::transfer::{CheckedRegion, Transfer};
use crate::abi::{
    Access, AccessKind, Block, CLUSTER_SHIFT, CLUSTER_STRIDE, Checks, RESERVED_SHARED_AT,
    RESERVED_SHARED_BYTES, Thread,
};
use map::{Bits, Found, Map};
use race::{Hazard, Race};
use report::Output;

/// Where in a block's window of shared memory wrong accesses go. No block has so much shared memory, and what is reserved lies
/// behind.
const SCRATCH_AT: u64 = 240 << 10;
/// How much that is: the widest access.
const SCRATCH_BYTES: usize = 64;

/// What kernels are compiled with, to be looked at so.
pub(super) fn compiled(check: &Check) -> Checks {
    Checks {
        memory: check.memory || check.initialised,
        shared: check.races,
        sync: check.barriers,
        counts: false,
    }
}

/// Where in a kernel something happens.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The block.
    pub block: &'a Block,
    /// The thread.
    pub thread: &'a Thread,
}

/// What is known of one device's memory and kernels, and what was found wrong with them.
pub(super) struct Checker {
    settings: Check,
    map: RwLock<Map>,
    /// Changes with the map.
    generation: AtomicU64,
    /// Whether there were more allocations than are remembered.
    forgetful: AtomicBool,
    output: Output,
    races: Mutex<BTreeMap<Between, Seen>>,
}

/// Hazards that are one to a reader: of one launch, between the same two lines.
type Between = (u64, Hazard, u32, u32);

/// How often, and an example.
struct Seen {
    count: u64,
    example: String,
}

/// A number with commas, as the reports have them.
fn commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn plural(number: u64) -> &'static str {
    if number == 1 { "" } else { "s" }
}

impl Checker {
    /// One that has seen nothing.
    pub(super) fn new(settings: Check, host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self {
            settings,
            map: RwLock::default(),
            generation: AtomicU64::new(0),
            forgetful: AtomicBool::new(false),
            output: Output::new(host, settings.limit),
            races: Mutex::default(),
        })
    }

    fn change<R>(&self, change: impl FnOnce(&mut Map) -> R) -> R {
        let result = change(&mut self.map.write());
        self.generation.fetch_add(1, Ordering::Release);
        result
    }

    /// The program may use these bytes from now on. Of memory that is `device` memory and really there (`backed`) it is known which bytes
    /// were written, if somebody wants to know; other memory counts as written.
    pub(super) fn allocated(&self, range: Range, device: bool, backed: impl FnOnce() -> bool) {
        let track = self.settings.initialised && device && backed();
        if !self.change(|map| map.add(range, device, track)) && !self.forgetful.swap(true, Ordering::Relaxed)
        {
            self.output.remark(&format!(
                "More than {} allocations at once: accesses outside of those that are known are not told of from here on",
                commas(map::MOST as u64)
            ));
        }
    }

    /// The number of the allocation at an address, to be freed later by [`Checker::free_later`].
    pub(super) fn number(&self, base: u64) -> Option<u64> {
        self.map.read().number(base)
    }

    /// Frees the allocation, unless another has taken its place.
    pub(super) fn free_later(&self, base: u64, number: u64) {
        self.change(|map| map.free(base, Some(number)));
    }

    /// The program has freed what is not allocated.
    pub(super) fn freed_wrongly(&self, address: u64) {
        if !self.settings.memory {
            return;
        }
        let what = match self.map.read().freed_at(address) {
            Some(size) => format!(
                "Address {address:#x} was freed before: a double free of an allocation of {} byte{}",
                commas(size),
                plural(size)
            ),
            None => format!("Address {address:#x} is not the beginning of an allocation"),
        };
        self.output.report(&[
            "Program hit cudaErrorInvalidValue (error 1) due to \"invalid argument\" on CUDA API call to cudaFree.".into(),
            format!("    {what}"),
        ]);
    }

    /// The program ends: says what it has not freed, and how many mistakes there were.
    pub(super) fn end(&self) {
        if self.settings.leaks {
            let (mut bytes, mut count) = (0u64, 0);
            let left: Vec<_> = self.map.read().left().collect();
            for (base, size) in left {
                (bytes, count) = (bytes.saturating_add(size), count + 1);
                self.output.report(&[format!("Leaked {} byte{} at {base:#x}", commas(size), plural(size))]);
            }
            self.output.remark(&format!(
                "LEAK SUMMARY: {} byte{} leaked in {count} allocation{}",
                commas(bytes),
                plural(bytes),
                plural(count)
            ));
        }
        self.output.settle();
    }

    fn mark(&self, at: u64, len: u64) {
        self.map.read().mark(at, len);
    }

    /// Something other than a kernel writes memory.
    pub(super) fn written(&self, range: Range) {
        if self.settings.initialised {
            self.mark(range.base, range.size);
        }
    }

    /// A copy or fill is made.
    pub(super) fn transferred(&self, transfer: &Transfer) {
        let (Transfer::Fill { to, .. } | Transfer::In { to, .. } | Transfer::Across { to, .. }) = transfer
        else {
            return;
        };
        let CheckedRegion { region, .. } = *to;
        let mut cursor = RegionCursor::new(region);
        while self.settings.initialised
            && let Some((at, run)) = cursor.run()
        {
            self.mark(at, run);
            cursor.advance(run);
        }
    }

    /// A kernel has ended. Its races are told; and it has failed if its accesses were wrong.
    pub(super) fn ended(&self, grid: &Grid, error: Option<Error>) -> Option<Error> {
        let races: Vec<_> = {
            let mut all = self.races.lock();
            let keys: Vec<Between> = all.keys().filter(|key| key.0 == grid.id).copied().collect();
            keys.into_iter().filter_map(|key| Some((key, all.remove(&key)?))).collect()
        };
        for ((_, hazard, first, second), Seen { count, example }) in races {
            let (before, after) = hazard.kinds();
            self.output.report(&[
                format!("Error: Race reported between {before} access at {}", at(grid, first)),
                format!(
                    "    and {after} access at {} [{} hazard{}]",
                    at(grid, second),
                    commas(count),
                    plural(count)
                ),
                format!("    first {example}"),
            ]);
        }
        let error = match error {
            Some(error) if error.code.is_sticky() => {
                let hung = self.settings.barriers && error.message.starts_with("Deadlock");
                let what = if hung {
                    "Barrier error detected. Divergent thread(s) in block"
                } else {
                    "Kernel failed"
                };
                self.output.report(&[format!("{what}."), format!("    {}", error.message)]);
                Some(error)
            }
            None if grid.has_bad_accesses() => {
                let what = format!("Invalid accesses were found in kernel {}", grid.kernel.name);
                Some(Error::new(Code::LaunchFailed, what))
            }
            other => other,
        };
        self.output.settle();
        error
    }
}

/// A place in a kernel, in words.
fn at(grid: &Grid, line: u32) -> String {
    let name = &grid.kernel.name;
    let source = grid.kernel.code.source(line).map_or_else(String::new, |source| format!(" in {source}"));
    format!("{name} (PTX line {line}){source}")
}

fn by(place: &Place<'_>) -> String {
    let ([x, y, z], [bx, by, bz]) = (place.thread.tid, place.block.ctaid);
    format!("    by thread ({x},{y},{z}) in block ({bx},{by},{bz})")
}

/// So many pairs of lines that race are told apart at once: more are of programs that make them on purpose.
const MOST_HAZARDS: usize = 16 << 10;

/// What looks at one resident block.
pub(super) struct BlockChecker {
    checker: Arc<Checker>,
    /// The allocation that was last accessed, and when that was known.
    last: Option<(Range, Option<Arc<Bits>>, u64)>,
    race: Option<Race>,
    doubt: Option<Doubt>,
}

/// A hazard that an access makes with another one before it.
#[derive(Clone, Copy)]
struct Pair {
    hazard: Hazard,
    other: race::Stamp,
    /// The block, the thread's number in it, and the place in its shared memory.
    ctaid: [u32; 3],
    index: usize,
    window: u64,
    line: u32,
}

/// Two writes of which the second is only about to be made: they are a hazard if it leaves something else than the first one did.
struct Doubt {
    pair: Pair,
    /// What was there; so many bytes of it count.
    was: [u8; SCRATCH_BYTES],
    address: u64,
    size: usize,
}

/// What is wrong with an access.
enum Wrong {
    Misaligned,
    /// Outside of everything; what is near, in words.
    Outside(Option<String>),
}

impl BlockChecker {
    /// For the blocks of a grid.
    pub(super) fn new(checker: Arc<Checker>, grid: &Grid) -> Self {
        let threads: u32 = grid.block.iter().product();
        let race = checker.settings.races.then(|| Race::new(threads as usize, shared_bytes(grid) as usize));
        Self { checker, last: None, race, doubt: None }
    }

    /// Tells of the two writes that were last in doubt, if they have turned out to be a hazard: no thread runs, or none since the second was made.
    pub(super) fn settle(&mut self, grid: &Grid) {
        let Some(Doubt { pair, was, address, size }) = self.doubt.take() else { return };
        // SAFETY: it lies in the block's shared memory, which is accessible, and no compiled code runs.
        let now = unsafe { std::slice::from_raw_parts(address as *const u8, size) };
        if now != &was[..size] {
            self.checker.hazard(grid, pair);
        }
    }

    /// Notes a hazard that an access to an address in the block's shared memory is about to make.
    fn hazard(&mut self, grid: &Grid, pair: Pair, address: u64, access: Access) {
        let size = access.size as usize;
        if pair.hazard != Hazard::WriteAfterWrite || access.kind != AccessKind::Write || size > SCRATCH_BYTES
        {
            return self.checker.hazard(grid, pair);
        }
        let mut was = [0; SCRATCH_BYTES];
        // SAFETY: as in `settle`; the whole access was found to lie there.
        was[..size].copy_from_slice(unsafe { std::slice::from_raw_parts(address as *const u8, size) });
        self.doubt = Some(Doubt { pair, was, address, size });
    }

    /// Another block begins.
    pub(super) fn begin(&mut self) {
        if let Some(race) = &mut self.race {
            race.begin();
        }
    }

    /// Threads of some warps, as bits of their lanes, have waited for each other; those in `arrived` only let others wait for them.
    pub(super) fn released(&mut self, lanes: &[u32], arrived: &[u32]) {
        if let Some(race) = &mut self.race {
            race.released(lanes, arrived);
        }
    }

    /// Lanes of a warp have waited for each other.
    pub(super) fn converged(&mut self, warp: usize, group: u32) {
        if let Some(race) = &mut self.race {
            race.converged(warp, group);
        }
    }

    /// Whether barriers are looked at.
    pub(super) fn of_barriers(&self) -> bool {
        self.checker.settings.barriers
    }

    /// A barrier, or an operation of a warp, is used as it must not be.
    pub(super) fn bad_barrier(&self, grid: &Grid, place: &Place<'_>, line: u32, what: &str) {
        self.checker.output.report(&[
            format!("Barrier error detected. {what}"),
            format!("    at {}", at(grid, line)),
            by(place),
        ]);
    }

    /// The kernel frees what is no allocation of its heap.
    pub(super) fn bad_free(&mut self, context: &Context, place: &Place<'_>, address: u64) {
        if self.checker.settings.memory {
            self.checker.output.report(&[
                "Malloc/Free error encountered: free of an address that is not allocated".into(),
                format!("    at {}", context.grid.kernel.name),
                by(place),
                format!("    Address {address:#x}"),
            ]);
        }
    }

    /// Looks at an access that a thread is going to make; where to make it.
    pub(super) fn access(
        &mut self,
        context: &Context,
        place: &Place<'_>,
        address: u64,
        access: Access,
    ) -> u64 {
        let grid = &*context.grid;
        self.settle(grid);
        let size = u64::from(access.size);
        // Blocks of a cluster reach each other's shared memory.
        let cluster = &place.block.cluster;
        let offset = address.wrapping_sub(cluster.shared_base);
        let mapped = offset < u64::from(cluster.blocks) << CLUSTER_SHIFT;
        let window = if mapped && cluster.blocks > 1 {
            offset & u64::from(CLUSTER_STRIDE - 1)
        } else {
            address.wrapping_sub(place.block.shared_base)
        };
        let own = !mapped || offset >> CLUSTER_SHIFT == u64::from(cluster.rank);
        let (memory, initialised) = (self.checker.settings.memory, self.checker.settings.initialised);
        let aligned = address.is_multiple_of(size.max(1));
        let (space, wrong) = if window < 1 << 32 {
            let inside = window + size <= shared_bytes(grid)
                || grid.kernel.reserved_shared
                    && window >= u64::from(RESERVED_SHARED_AT)
                    && window + size <= u64::from(RESERVED_SHARED_AT + RESERVED_SHARED_BYTES);
            if inside
                && own
                && let Some(race) = &mut self.race
            {
                let index = context.index_of(place.thread);
                if let Some((hazard, other)) = race.access(index, window as usize, access) {
                    let (ctaid, line) = (place.block.ctaid, access.line);
                    let pair = Pair { hazard, other, ctaid, index, window, line };
                    self.hazard(grid, pair, place.block.shared_base + window, access);
                }
            }
            ("shared", (!inside).then_some(Wrong::Outside(None)))
        } else if context.is_local(address) {
            let inside = address >= place.thread.local_base && address + size <= place.thread.local_end;
            ("local", (!inside).then_some(Wrong::Outside(None)))
        // Parameters, and behind them what the blocks of a cooperative launch wait with.
        } else if address.wrapping_sub(place.block.params) < super::arena::PARAM_SLOT {
            return address;
        } else {
            ("global", self.global(&grid.heap, address, size))
        };
        let wrong = if aligned { wrong } else { Some(Wrong::Misaligned) };
        if !memory && wrong.is_some() {
            return address;
        }
        let Some(wrong) = wrong else {
            if space == "global" && initialised {
                self.initialised(context, place, address, access);
            }
            return address;
        };
        let verb = match access.kind {
            AccessKind::Read => "read",
            AccessKind::Write => "write",
            AccessKind::Atomic | AccessKind::Barrier => "atomic",
        };
        let shown = if space == "shared" { window } else { address };
        let (what, near) = match wrong {
            Wrong::Misaligned => ("is misaligned", None),
            Wrong::Outside(near) => ("is out of bounds", near),
        };
        let mut lines = vec![
            format!("Invalid __{space}__ {verb} of size {size} byte{}", plural(size)),
            format!("    at {}", at(grid, access.line)),
            by(place),
            format!("    Address {shown:#x} {what}"),
        ];
        lines.extend(near.map(|near| format!("    {near}")));
        self.checker.output.report(&lines);
        grid.note_bad_access();
        let scratch = place.block.shared_base + SCRATCH_AT;
        // SAFETY: it lies in the block's window, which is accessible, and is nobody's.
        unsafe { (scratch as *mut u8).write_bytes(0, SCRATCH_BYTES) };
        scratch
    }

    /// Whether an access to global memory is wrong.
    fn global(&mut self, heap: &Heap, address: u64, size: u64) -> Option<Wrong> {
        let now = self.checker.generation.load(Ordering::Acquire);
        if let Some((range, _, known)) = &self.last
            && *known == now
            && range.contains(address, size)
        {
            return None;
        }
        self.last = None;
        let map = self.checker.map.read();
        match map.find(address, size) {
            Found::Inside(range, bits) => {
                self.last = Some((range, bits, now));
                None
            }
            Found::Throughout => None,
            Found::Outside => {
                match heap.contains(address, size) || self.checker.forgetful.load(Ordering::Relaxed) {
                    true => None,
                    false => Some(Wrong::Outside(map.near(address))),
                }
            }
        }
    }

    /// Looks whether memory was written that is read, and notes what is written.
    fn initialised(&mut self, context: &Context, place: &Place<'_>, address: u64, access: Access) {
        let Some((range, Some(bits), _)) = &self.last else { return };
        let (from, size) = (address - range.base, u64::from(access.size));
        if access.kind != AccessKind::Write && !bits.all(from, size) {
            self.checker.output.report(&[
                format!("Uninitialized __global__ memory read of size {size} byte{}", plural(size)),
                format!("    at {}", at(&context.grid, access.line)),
                by(place),
                format!("    Address {address:#x}"),
            ]);
        }
        if access.kind != AccessKind::Read {
            bits.set(from, size);
        }
    }
}

impl Checker {
    fn hazard(&self, grid: &Grid, Pair { hazard, other, ctaid, index, window, line }: Pair) {
        let mut races = self.races.lock();
        let key = (grid.id, hazard, other.line, line);
        if races.len() >= MOST_HAZARDS && !races.contains_key(&key) {
            return;
        }
        let seen = races.entry(key).or_insert_with(|| {
            let [x, y, _] = grid.block;
            let tid = |n: u32| format!("({},{},{})", n % x, n / x % y, n / x / y);
            let [bx, by, bz] = ctaid;
            let example = format!(
                "by threads {} and {} in block ({bx},{by},{bz}) at shared address {window:#x}",
                tid(other.thread.into()),
                tid(index as u32)
            );
            Seen { count: 0, example }
        });
        seen.count += 1;
    }
}

/// Bytes of shared memory that a block of a grid has.
fn shared_bytes(grid: &Grid) -> u64 {
    let fixed = u64::from(grid.kernel.static_shared);
    match grid.dynamic_shared {
        0 => fixed,
        dynamic => fixed.next_multiple_of(16) + u64::from(dynamic),
    }
}
