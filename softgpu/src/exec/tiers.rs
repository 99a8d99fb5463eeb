//! Which code of a kernel is run: each kernel begins in the first tier, and one that has taken long enough gets code for vectors of threads,
//! kept by an earlier process or made in the background. What then takes less time per block is run.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::contained::contained;
use super::modules::Module;
use super::worker::spawn_masked;
use crate::compile::vector::{self, Mode};

/// What a kernel has to have taken of the processors before code is looked for that an earlier process has kept: several times what that takes.
const LOOKED_FOR: u64 = 1_000_000;
/// Then it is looked for even if fewer launches than [`TRIALS`] have told how fast the first tier is.
const LOOKED_FOR_AT_ONCE: u64 = 10_000_000;
/// What it has to have taken before it earns code that is made now: about what making that takes, of most kernels.
const EARNED: u64 = 40_000_000;
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

/// A trial of both tiers by turns: launches of one kernel may take very different times, so only those count against each other that come
/// close after each other.
#[derive(Debug, Default)]
struct Trial {
    /// Launches that are still to be made, as threads and as vectors.
    left: [AtomicU32; 2],
    /// What those have taken for each block that were made, in picoseconds: together, and the one that took longest, which may have been interrupted.
    taken: [(AtomicU64, AtomicU64); 2],
    /// What came of the last one, if there was one.
    verdict: AtomicVerdict,
    /// Launches since then, and after how many there is another one.
    since: AtomicU32,
    again: AtomicU32,
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
        self.since.store(0, Relaxed);
    }

    /// Whether the next launch is to run as vectors, as far as that is known.
    fn prefers_vectors(&self) -> Option<bool> {
        let [threads, vectors] = [0, 1].map(|tier: usize| self.left[tier].load(Relaxed));
        if threads + vectors > 0 { Some(vectors >= threads) } else { self.verdict.get() }
    }

    /// Notes a launch; true if it is time for another trial.
    fn note(&self, blocks: u64, ns: u64, vectors: bool) -> bool {
        let tier = usize::from(vectors);
        let took_part = self.left[tier].fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if took_part {
            let one = ns.saturating_mul(1000) / blocks.max(1);
            self.taken[tier].0.fetch_add(one, Relaxed);
            self.taken[tier].1.fetch_max(one, Relaxed);
            if self.left.iter().all(|left| left.load(Relaxed) == 0) {
                let [threads, vectors] = [0, 1].map(|tier: usize| {
                    let (all, longest) = &self.taken[tier];
                    all.load(Relaxed).saturating_sub(longest.load(Relaxed))
                });
                self.verdict.set(vectors.saturating_mul(100) <= threads.saturating_mul(100 + TOLERANCE));
            }
            return false;
        }
        let again = self.again.load(Relaxed);
        self.since.fetch_add(1, Relaxed) + 1 == again.max(AGAIN)
    }
}

/// Whether a kernel is to run as vectors; at first that is not known.
#[derive(Debug, Default)]
struct AtomicVerdict(AtomicU32);

impl AtomicVerdict {
    fn get(&self) -> Option<bool> {
        self.0.load(Relaxed).checked_sub(1).map(|vectors| vectors == 1)
    }

    fn set(&self, vectors: bool) {
        self.0.store(1 + u32::from(vectors), Relaxed);
    }
}

/// What a kernel has earned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Earned {
    /// That code for vectors is looked for that an earlier process has kept.
    Look,
    /// That it is made, if there is none and that takes no more than so many nanoseconds.
    Compile(u64),
}

/// What is known of a kernel's tiers.
#[derive(Debug, Default)]
pub(super) struct Tiers {
    /// Nanoseconds of processors that it has taken in the first tier.
    spent: AtomicU64,
    /// Whether code that is kept was asked for, and whether code was ordered to be made.
    asked: [AtomicBool; 2],
    /// What making code takes, in nanoseconds, if that is known to be more than [`EARNED`].
    costs: AtomicU64,
    threads: Speed,
    vectors: Speed,
    trial: Trial,
}

impl Tiers {
    /// Whether a launch is to run as vectors, where there is code for that.
    pub(super) fn prefers_vectors(&self, mode: Mode) -> bool {
        let (slow, fast) = (self.threads.best.load(Relaxed), self.vectors.best.load(Relaxed));
        let launches = self.vectors.launches.load(Relaxed);
        if mode == Mode::First || launches < TRIALS {
            return true;
        }
        if let Some(vectors) = self.trial.prefers_vectors() {
            return vectors;
        }
        if slow == 0 {
            return launches < BLIND_TRIALS;
        }
        fast.saturating_mul(100) <= slow.saturating_mul(100 + TOLERANCE)
    }

    /// Making code takes so many nanoseconds: it is not made before the kernel has taken as long.
    pub(super) fn postpone(&self, nanoseconds: u64) {
        self.costs.store(nanoseconds, Relaxed);
        self.asked[1].store(false, Relaxed);
    }

    /// Blocks of a kernel have taken so many nanoseconds of processors. What it has earned by that, if anything.
    fn note(&self, blocks: u64, ns: u64, vectors: bool) -> Option<Earned> {
        let speed = if vectors { &self.vectors } else { &self.threads };
        speed.note(blocks, ns);
        self.judge(blocks, ns, vectors);
        if vectors {
            return None;
        }
        self.spent.fetch_add(ns, Relaxed);
        self.earns(0)
    }

    /// Has both tiers tried by turns where what is known of them is near, and from time to time.
    fn judge(&self, blocks: u64, ns: u64, vectors: bool) {
        let tried = self.vectors.launches.load(Relaxed);
        if tried < TRIALS {
            return;
        }
        let (slow, fast) = (self.threads.best.load(Relaxed), self.vectors.best.load(Relaxed));
        let near = slow < fast.saturating_mul(CLEARLY) && fast < slow.saturating_mul(CLEARLY);
        let first = vectors && tried == TRIALS;
        if first && near || self.trial.note(blocks, ns, vectors) && slow != 0 {
            self.trial.begin();
        }
    }

    /// What it has earned with so many nanoseconds that are not noted yet; each thing once.
    fn earns(&self, more: u64) -> Option<Earned> {
        let spent = self.spent.load(Relaxed).saturating_add(more);
        let [looked, made] = &self.asked;
        let first = |asked: &AtomicBool| !asked.load(Relaxed) && !asked.swap(true, Relaxed);
        if spent >= self.costs.load(Relaxed).max(EARNED) && first(made) {
            // That looks first, too.
            looked.store(true, Relaxed);
            return Some(Earned::Compile(spent));
        }
        let tried = self.threads.launches.load(Relaxed) >= TRIALS;
        let enough = if tried { LOOKED_FOR } else { LOOKED_FOR_AT_ONCE };
        (spent >= enough && first(looked)).then_some(Earned::Look)
    }
}

/// Notes what a launch of a kernel has cost, and has code made that it has earned.
pub(super) fn note(module: &Arc<Module>, function: u32, blocks: u64, ns: u64, vectors: bool) {
    if vector::mode() != Mode::Auto {
        return;
    }
    let Some(tiers) = module.tiers(function) else { return };
    if let Some(earned) = tiers.note(blocks, ns, vectors) {
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
    tiers.asked[0].load(Relaxed)
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

    #[test]
    fn a_kernel_earns_vectors_once_and_keeps_them_only_if_they_are_faster() {
        let tiers = Tiers::default();
        assert_eq!(tiers.note(10, LOOKED_FOR / 2, false), None);
        assert_eq!(tiers.note(1_000, EARNED / 2, false), Some(Earned::Look));
        assert_eq!(
            tiers.earns(EARNED / 2),
            Some(Earned::Compile(EARNED + LOOKED_FOR / 2)),
            "it has taken long enough"
        );
        assert_eq!(tiers.note(1_000, EARNED, false), None, "it is asked for once");
        assert_eq!(Tiers::default().note(1_000, EARNED, false), Some(Earned::Compile(EARNED)), "at once");
        let long = Tiers::default();
        assert_eq!(long.note(1_000, EARNED, false), Some(Earned::Compile(EARNED)));
        long.postpone(10 * EARNED);
        assert_eq!(long.note(1_000, EARNED, false), None, "making it takes longer than it has taken");
        assert_eq!(long.earns(8 * EARNED), Some(Earned::Compile(10 * EARNED)), "now it has taken as long");
        let few = Tiers::default();
        let notes: Vec<_> = (0..TRIALS).map(|_| few.note(10, LOOKED_FOR, false)).collect();
        assert_eq!(notes[..], [None, None, None, Some(Earned::Look)]);
        assert!(tiers.prefers_vectors(Mode::Auto), "they are tried");
        (0..TRIALS).for_each(|_| _ = tiers.note(1_000, 2 * EARNED, true));
        assert!(!tiers.prefers_vectors(Mode::Auto), "they took four times as long");
        assert!(tiers.prefers_vectors(Mode::First), "whoever wants them first gets them");
        tiers.note(1_000, EARNED / 3, true);
        assert!(tiers.prefers_vectors(Mode::Auto), "another launch was faster");

        // Launches become longer and longer. Vectors take five times as long as threads would, which the shortest launches do not tell.
        let uneven = Tiers::default();
        let (mut turns, mut long) = ([0, 0], EARNED);
        let mut launch = || {
            let vectors = uneven.prefers_vectors(Mode::Auto);
            let times = if vectors { 5 } else { 1 };
            uneven.note(1_000, long * times, vectors);
            long += long / 10;
            turns[usize::from(vectors)] += 1;
            vectors
        };
        uneven.note(1_000, 4 * EARNED, false);
        (0..3 * TRIALS).for_each(|_| _ = launch());
        assert!(!launch(), "tried by turns, they were slower");
        (0..AGAIN).for_each(|_| _ = launch());
        assert_eq!(turns, [AGAIN + TRIALS, 2 * TRIALS + 1], "they are tried again after some time");

        let blind = Tiers::default();
        for _ in 0..BLIND_TRIALS {
            assert!(blind.prefers_vectors(Mode::Auto), "nothing else is known");
            blind.note(1_000, EARNED, true);
        }
        assert!(!blind.prefers_vectors(Mode::Auto), "one launch tells how fast the first tier is");
        blind.note(1_000, EARNED / 2, false);
        assert!(!blind.prefers_vectors(Mode::Auto), "that was faster");
    }
}
