//! Which code of a kernel is run: each kernel begins in the first tier, and one that has taken long enough gets code for vectors of threads,
//! kept by an earlier process or made in the background. What then takes less time per block is run. So it is with code for larger groups of
//! threads: a kernel that has taken long enough in groups of one size gets code for groups of the next, too.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::contained::contained;
use super::modules::Module;
use super::worker::spawn_masked;
use crate::abi::{WARP, WIDTHS, width_index};
use crate::compile::vector::{self, Mode};

/// What a kernel has to have taken of the processors before code is looked for that an earlier process has kept: several times what that takes.
const LOOKED_FOR: u64 = 1_000_000;
/// Then it is looked for even if fewer launches than [`TRIALS`] have told how fast the first tier is.
const LOOKED_FOR_AT_ONCE: u64 = 10_000_000;
/// What it has to have taken before it earns code that is made now: about what making that takes, of most kernels.
const EARNED: u64 = 40_000_000;
/// What it has to have taken in groups of each size but the last before it earns code for groups of the next. That takes longer to make, and does not help all
/// kernels.
const EARNED_LARGER: u64 = 2 * EARNED;
/// Launches that tell how fast a tier is.
const TRIALS: u32 = 4;
/// Launches as vectors after which one is not, if none has told yet how fast the first tier is: where the first launch has gone over to vectors, it is not
/// known what it would have taken. Where vectors are much faster, that one launch must not count.
const BLIND_TRIALS: u32 = 16;
/// What a tier has to be faster by, launches of different times compared, so that it is chosen without a trial by turns.
const CLEARLY: u64 = 2;
/// Launches after a verdict before both tiers are tried again, for the first time. What a kernel does may depend on its data, and these may change.
const AGAIN: u32 = 128;
/// And how many times as many then, each time.
const LESS_OFTEN: u32 = 4;
/// A trial waits until launches since the last one have taken so many times what it is expected to cost.
const WORTH: u64 = 32;
/// How much longer code for vectors may seem to take before it is given up, in percent: measurements are never quite alike.
const TOLERANCE: u64 = 10;
/// LLVM uses much of it.
const STACK: usize = 16 << 20;

/// How fast one tier is.
#[derive(Debug, Default)]
struct Speed {
    launches: AtomicU32,
    /// The fewest nanoseconds per block of a launch, plus one; 0 if there was none.
    best: AtomicU64,
}

impl Speed {
    fn note(&self, blocks: u64, ns: u64) {
        self.launches.fetch_add(1, Relaxed);
        let one = (ns / blocks.max(1)).saturating_add(1);
        let best = self.best.load(Relaxed);
        if best == 0 || one < best {
            self.best.store(one, Relaxed);
        }
    }
}

/// A trial of two ways by turns: launches of one kernel may take very different times, so only those count against each other that come
/// close after each other.
#[derive(Debug, Default)]
struct Trial {
    /// Launches that are still to be made, by way.
    left: [AtomicU32; 2],
    /// What those have taken for each block that were made, in picoseconds: together, and the one that took longest, which may have been interrupted.
    taken: [(AtomicU64, AtomicU64); 2],
    /// What came of the last one, if there was one.
    verdict: AtomicVerdict,
    since: Since,
    /// After how many launches there is another one.
    again: AtomicU32,
}

/// Launches since a trial, their blocks, and the nanoseconds that they have taken.
#[derive(Debug, Default)]
struct Since {
    launches: AtomicU32,
    blocks: AtomicU64,
    ns: AtomicU64,
}

impl Trial {
    fn begin(&self) {
        for (left, (all, longest)) in self.left.iter().zip(&self.taken) {
            all.store(0, Relaxed);
            longest.store(0, Relaxed);
            left.store(TRIALS, Relaxed);
        }
        let again = self.again.load(Relaxed);
        self.again.store(if again == 0 { AGAIN } else { again.saturating_mul(LESS_OFTEN) }, Relaxed);
        let Since { launches, blocks, ns } = &self.since;
        launches.store(0, Relaxed);
        blocks.store(0, Relaxed);
        ns.store(0, Relaxed);
    }

    /// Whether the next launch is to go the second way, as far as that is known.
    fn prefers_second(&self) -> Option<bool> {
        let [first, second] = [0, 1].map(|way: usize| self.left[way].load(Relaxed));
        if first + second > 0 { Some(second >= first) } else { self.verdict.get() }
    }

    /// Notes a launch; true if it is time for another trial, in which a block is expected to take so many nanoseconds more. Its launches are
    /// expected to be as large as those since the last one were on average, whatever the size of this one.
    fn note(&self, blocks: u64, ns: u64, second: bool, more: u64) -> bool {
        let way = usize::from(second);
        let took_part = self.left[way].fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if took_part {
            let one = ns.saturating_mul(1000) / blocks.max(1);
            self.taken[way].0.fetch_add(one, Relaxed);
            self.taken[way].1.fetch_max(one, Relaxed);
            if self.left.iter().all(|left| left.load(Relaxed) == 0) {
                let [first, second] = [0, 1].map(|way: usize| {
                    let (all, longest) = &self.taken[way];
                    all.load(Relaxed).saturating_sub(longest.load(Relaxed))
                });
                self.verdict.set(second.saturating_mul(100) <= first.saturating_mul(100 + TOLERANCE));
            }
            return false;
        }
        let again = self.again.load(Relaxed).max(AGAIN);
        let launches = self.since.launches.fetch_add(1, Relaxed) + 1;
        let blocks = self.since.blocks.fetch_add(blocks, Relaxed).saturating_add(blocks);
        let taken = self.since.ns.fetch_add(ns, Relaxed).saturating_add(ns);
        let costs =
            more.saturating_mul(blocks / u64::from(launches.max(1))).saturating_mul(u64::from(TRIALS));
        // Of several that find it is time, one begins it.
        launches >= again
            && taken >= costs.saturating_mul(WORTH)
            && self.since.launches.compare_exchange(launches, 0, Relaxed, Relaxed).is_ok()
    }
}

/// Whether launches are to go the second way; at first that is not known.
#[derive(Debug, Default)]
struct AtomicVerdict(AtomicU32);

impl AtomicVerdict {
    fn get(&self) -> Option<bool> {
        self.0.load(Relaxed).checked_sub(1).map(|second| second == 1)
    }

    fn set(&self, second: bool) {
        self.0.store(1 + u32::from(second), Relaxed);
    }
}

/// What is known of two ways to run a kernel, of which the second is expected to be faster.
#[derive(Debug, Default)]
struct Choice {
    ways: [Speed; 2],
    trial: Trial,
}

impl Choice {
    /// Whether the next launch is to go the second way.
    fn prefers_second(&self) -> bool {
        let [slow, fast] = &self.ways;
        let launches = fast.launches.load(Relaxed);
        if launches < TRIALS {
            return true;
        }
        if let Some(second) = self.trial.prefers_second() {
            return second;
        }
        match slow.best.load(Relaxed) {
            0 => launches < BLIND_TRIALS,
            slow => fast.best.load(Relaxed).saturating_mul(100) <= slow.saturating_mul(100 + TOLERANCE),
        }
    }

    /// Blocks have taken so many nanoseconds of processors. Has both ways tried by turns where what is known of them is near, and from time to time.
    fn note(&self, blocks: u64, ns: u64, second: bool) {
        self.ways[usize::from(second)].note(blocks, ns);
        let tried = self.ways[1].launches.load(Relaxed);
        if tried < TRIALS {
            return;
        }
        let [slow, fast] = [0, 1].map(|way: usize| self.ways[way].best.load(Relaxed));
        let near = slow < fast.saturating_mul(CLEARLY) && fast < slow.saturating_mul(CLEARLY);
        let first = second && tried == TRIALS;
        if first && near || slow != 0 && self.trial.note(blocks, ns, second, slow.abs_diff(fast)) {
            self.trial.begin();
        }
    }
}

/// What a kernel has earned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Earned {
    /// That code for vectors is looked for that an earlier process has kept.
    Look,
    /// That it is made for groups of so many threads, if there is none and that takes no more than so many nanoseconds.
    Compile(usize, u64),
}

/// What a kernel pays for code with.
#[derive(Debug, Default)]
struct Account {
    /// Nanoseconds of processors that it has taken without.
    spent: AtomicU64,
    /// What making code takes, in nanoseconds, if that is known to be more than what is asked of all kernels.
    costs: AtomicU64,
    /// Whether code was ordered to be made.
    ordered: AtomicBool,
}

impl Account {
    /// What it has spent, with so many nanoseconds that are not noted yet, if that is as much as is asked of all kernels and as making code takes;
    /// once.
    fn pays(&self, more: u64, least: u64) -> Option<u64> {
        let spent = self.spent.load(Relaxed).saturating_add(more);
        (spent >= self.costs.load(Relaxed).max(least) && once(&self.ordered)).then_some(spent)
    }
}

/// Whether something is done for the first time.
fn once(done: &AtomicBool) -> bool {
    !done.load(Relaxed) && !done.swap(true, Relaxed)
}

/// What is known of a kernel's tiers.
#[derive(Debug, Default)]
pub(super) struct Tiers {
    /// What it has spent in the first tier, and in groups of each size but the last: what it pays code for each size with.
    accounts: [Account; WIDTHS.len()],
    /// Whether code that is kept was asked for.
    looked: AtomicBool,
    /// Between threads and vectors.
    vectors: Choice,
    /// Between groups of each size and of the next.
    larger: [Choice; WIDTHS.len() - 1],
}

impl Tiers {
    /// Whether a launch is to run as vectors, where there is code for that.
    pub(super) fn prefers_vectors(&self, mode: Mode) -> bool {
        matches!(mode, Mode::First | Mode::Wide | Mode::Warp) || self.vectors.prefers_second()
    }

    /// Whether it is to run in groups of `to` threads rather than of `from`, the next smaller ones that there is code for.
    pub(super) fn prefers_larger(&self, mode: Mode, from: usize, to: usize) -> bool {
        if mode != Mode::Auto {
            return mode.at_once().contains(&to);
        }
        let from = width_index(from);
        // Which of these two is faster is not known. (What is kept may be lost one by one.)
        if from + 1 != width_index(to) {
            return false;
        }
        // That groups of a whole warp are faster is less to be expected, so how fast the others are is seen first.
        let is_known = self.larger[from].ways[0].launches.load(Relaxed) >= TRIALS;
        (is_known || to != WARP) && self.larger[from].prefers_second()
    }

    /// Making code for groups of so many threads takes so many nanoseconds: it is not made before the kernel has taken as long.
    pub(super) fn postpone(&self, lanes: usize, nanoseconds: u64) {
        let account = &self.accounts[width_index(lanes)];
        account.costs.store(nanoseconds, Relaxed);
        account.ordered.store(false, Relaxed);
    }

    /// Blocks of a kernel have taken so many nanoseconds of processors, in groups of so many threads, and could be in groups of `most`. What it has earned by
    /// that, if anything.
    fn note(&self, blocks: u64, ns: u64, (lanes, most): (usize, usize)) -> Option<Earned> {
        self.vectors.note(blocks, ns, lanes != 0);
        if lanes == 0 {
            self.accounts[0].spent.fetch_add(ns, Relaxed);
            return self.earns(0);
        }
        let index = width_index(lanes);
        if let Some(smaller) = index.checked_sub(1) {
            self.larger[smaller].note(blocks, ns, true);
        }
        let next = *WIDTHS.get(index + 1).filter(|next| **next <= most)?;
        self.larger[index].note(blocks, ns, false);
        let account = &self.accounts[index + 1];
        account.spent.fetch_add(ns, Relaxed);
        account.pays(0, EARNED_LARGER).map(|spent| Earned::Compile(next, spent))
    }

    /// What it has earned in the first tier with so many nanoseconds that are not noted yet; each thing once.
    fn earns(&self, more: u64) -> Option<Earned> {
        if let Some(spent) = self.accounts[0].pays(more, EARNED) {
            // That looks first, too.
            self.looked.store(true, Relaxed);
            return Some(Earned::Compile(WIDTHS[0], spent));
        }
        let tried = self.vectors.ways[0].launches.load(Relaxed) >= TRIALS;
        let enough = if tried { LOOKED_FOR } else { LOOKED_FOR_AT_ONCE };
        let spent = self.accounts[0].spent.load(Relaxed).saturating_add(more);
        (spent >= enough && once(&self.looked)).then_some(Earned::Look)
    }
}

/// Notes what a launch of a kernel has cost, in groups of so many threads, and has code made that it has earned. See [`Tiers`].
pub(super) fn note(module: &Arc<Module>, function: u32, blocks: u64, ns: u64, lanes: (usize, usize)) {
    if vector::mode() != Mode::Auto {
        return;
    }
    let Some(tiers) = module.tiers(function) else { return };
    if let Some(earned) = tiers.note(blocks, ns, lanes) {
        order(module, function, earned);
    }
}

/// A launch of a kernel that is not run as vectors has run for so many nanoseconds and goes on: has code made where it has earned it. Whether
/// other code may be there.
pub(super) fn note_running(module: &Arc<Module>, function: u32, ns: u64) -> bool {
    if vector::mode() != Mode::Auto {
        return false;
    }
    let Some(tiers) = module.tiers(function) else { return false };
    if let Some(earned) = tiers.earns(ns) {
        order(module, function, earned);
    }
    tiers.looked.load(Relaxed)
}

fn order(module: &Arc<Module>, function: u32, earned: Earned) {
    if let Some(compiler) = compiler() {
        // Where nobody compiles any more, the kernel stays as it is.
        let _ = compiler.lock().send((module.clone(), function, earned));
    }
}

type Order = (Arc<Module>, u32, Earned);

/// Who makes code in the background: one thread of the process.
fn compiler() -> Option<&'static Mutex<Sender<Order>>> {
    static COMPILER: OnceLock<Option<Mutex<Sender<Order>>>> = OnceLock::new();
    let start = || {
        let (sender, orders) = channel::<Order>();
        let body = move || {
            for (module, function, earned) in orders {
                // What fails leaves the kernel in its first tier.
                let _ = contained(|| {
                    module.improve(function, earned);
                    Ok(())
                });
            }
        };
        let started = spawn_masked("rgpu-compiler", STACK, &[], "compiling kernels", body);
        started.is_ok().then(|| Mutex::new(sender))
    };
    COMPILER.get_or_init(start).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads one by one, and vectors of a block that has no larger groups.
    const ONE: (usize, usize) = (0, 8);
    const VECTORS: (usize, usize) = (8, 8);

    #[test]
    fn a_kernel_earns_vectors_once_and_keeps_them_only_if_they_are_faster() {
        let tiers = Tiers::default();
        assert_eq!(tiers.note(10, LOOKED_FOR / 2, ONE), None);
        assert_eq!(tiers.note(1_000, EARNED / 2, ONE), Some(Earned::Look));
        assert_eq!(
            tiers.earns(EARNED / 2),
            Some(Earned::Compile(8, EARNED + LOOKED_FOR / 2)),
            "it has taken long enough"
        );
        assert_eq!(tiers.note(1_000, EARNED, ONE), None, "it is asked for once");
        assert_eq!(Tiers::default().note(1_000, EARNED, ONE), Some(Earned::Compile(8, EARNED)), "at once");
        let long = Tiers::default();
        assert_eq!(long.note(1_000, EARNED, ONE), Some(Earned::Compile(8, EARNED)));
        long.postpone(8, 10 * EARNED);
        assert_eq!(long.note(1_000, EARNED, ONE), None, "making it takes longer than it has taken");
        assert_eq!(long.earns(8 * EARNED), Some(Earned::Compile(8, 10 * EARNED)), "now it has taken as long");
        let few = Tiers::default();
        let notes: Vec<_> = (0..TRIALS).map(|_| few.note(10, LOOKED_FOR, ONE)).collect();
        assert_eq!(notes[..], [None, None, None, Some(Earned::Look)]);
        assert!(tiers.prefers_vectors(Mode::Auto), "they are tried");
        (0..TRIALS).for_each(|_| _ = tiers.note(1_000, 2 * EARNED, VECTORS));
        assert!(!tiers.prefers_vectors(Mode::Auto), "they took four times as long");
        assert!(tiers.prefers_vectors(Mode::First), "whoever wants them first gets them");
        tiers.note(1_000, EARNED / 3, VECTORS);
        assert!(tiers.prefers_vectors(Mode::Auto), "another launch was faster");

        // Launches become longer and longer. Vectors take five times as long as threads would, which the shortest launches do not tell.
        let uneven = Tiers::default();
        let (mut turns, mut long) = ([0, 0], EARNED);
        let mut launch = || {
            let vectors = uneven.prefers_vectors(Mode::Auto);
            let times = if vectors { 5 } else { 1 };
            uneven.note(1_000, long * times, if vectors { VECTORS } else { ONE });
            long += long / 10;
            turns[usize::from(vectors)] += 1;
            vectors
        };
        uneven.note(1_000, 4 * EARNED, ONE);
        (0..3 * TRIALS).for_each(|_| _ = launch());
        assert!(!launch(), "tried by turns, they were slower");
        (0..AGAIN).for_each(|_| _ = launch());
        assert_eq!(turns, [AGAIN + TRIALS, 2 * TRIALS + 1], "they are tried again after some time");

        // Vectors take a fifteenth: what trying the first tier again costs is a small part of what launches take.
        let far = Tiers::default();
        far.note(1_000, 15 * EARNED, ONE);
        let slow_of = |launches: u32| {
            let vectors = (0..launches).filter(|_| {
                let vectors = far.prefers_vectors(Mode::Auto);
                let (times, lanes) = if vectors { (1, VECTORS) } else { (15, ONE) };
                far.note(1_000, times * EARNED, lanes);
                vectors
            });
            launches as usize - vectors.count()
        };
        assert_eq!(slow_of(1_000), 0, "it is not worth it yet");
        assert_eq!(slow_of(1_000), TRIALS as usize, "it is tried again at last");

        // Every second launch is a small one, which tells nothing of what trying the first tier costs with the others.
        let mixed = Tiers::default();
        mixed.note(1_000, 15 * EARNED, ONE);
        for launch in 0..1_000 {
            let blocks = if launch % 2 == 0 { 1_000 } else { 1 };
            assert!(mixed.prefers_vectors(Mode::Auto), "it is not worth it after {launch} launches");
            mixed.note(blocks, EARNED * blocks / 1_000, VECTORS);
        }

        let blind = Tiers::default();
        for _ in 0..BLIND_TRIALS {
            assert!(blind.prefers_vectors(Mode::Auto), "nothing else is known");
            blind.note(1_000, EARNED, VECTORS);
        }
        assert!(!blind.prefers_vectors(Mode::Auto), "one launch tells how fast the first tier is");
        blind.note(1_000, EARNED / 2, ONE);
        assert!(!blind.prefers_vectors(Mode::Auto), "that was faster");
    }

    #[test]
    fn a_kernel_earns_larger_groups_as_vectors_and_keeps_them_only_if_they_are_faster() {
        for (from, to, mode) in [(8, 16, Mode::Wide), (16, 32, Mode::Warp)] {
            let earned = EARNED_LARGER;
            let (narrow, wide, half) = ((from, to), (to, to), earned / 2);
            let tiers = Tiers::default();
            assert_eq!(tiers.note(1_000, EARNED, ONE), Some(Earned::Compile(8, EARNED)));
            assert_eq!(tiers.note(1_000, 2 * earned, (from, from)), None, "its blocks have none");
            assert_eq!(tiers.note(1_000, half, narrow), None);
            assert_eq!(tiers.note(1_000, half, narrow), Some(Earned::Compile(to, earned)));
            assert_eq!(tiers.note(1_000, earned, narrow), None, "it is asked for once");
            tiers.postpone(to, 4 * earned);
            assert_eq!(tiers.note(1_000, earned, narrow), None, "making it takes longer than it has taken");
            assert_eq!(tiers.note(1_000, earned, narrow), Some(Earned::Compile(to, 4 * earned)));
            assert!(tiers.prefers_larger(Mode::Auto, from, to), "they are tried");
            (0..TRIALS).for_each(|_| _ = tiers.note(1_000, 2 * earned, wide));
            assert!(!tiers.prefers_larger(Mode::Auto, from, to), "they took four times as long");
            assert!(tiers.prefers_larger(mode, from, to), "whoever wants them gets them");
            assert!(tiers.prefers_vectors(mode));
        }
        let kept = Tiers::default();
        assert!(kept.prefers_larger(Mode::Auto, 8, 16), "code that an earlier process made is tried");
        let prefers = || {
            let larger = kept.prefers_larger(Mode::Auto, 16, 32);
            assert_eq!(kept.note(1_000, EARNED / 4, (if larger { 32 } else { 16 }, 32)), None);
            larger
        };
        let launches: Vec<_> = (0..2 * TRIALS).map(|_| prefers()).collect();
        let wanted: Vec<_> = (0..2 * TRIALS).map(|launch| launch >= TRIALS).collect();
        assert_eq!(launches, wanted, "how fast smaller groups are is seen before whole warps are tried");
        assert!(!kept.prefers_larger(Mode::Auto, 8, 32), "it is not known which is faster");
        assert!(kept.prefers_larger(Mode::Warp, 8, 32));
        assert!(!kept.prefers_larger(Mode::First, 8, 16));
    }
}
