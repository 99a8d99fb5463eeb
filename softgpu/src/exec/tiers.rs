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
/// What it has to have taken before it earns code that is made now: about what making that takes.
const EARNED: u64 = 40_000_000;
/// Launches that tell how fast a tier is.
const TRIALS: u32 = 4;
/// Launches as vectors after which one is not, if none has told yet how fast the first tier is: where the first launch has gone over to vectors, it is not
/// known what it would have taken. Where vectors are much faster, that one launch must not count.
const BLIND_TRIALS: u32 = 16;
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

/// What a kernel has earned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Earned {
    /// That code for vectors is looked for that an earlier process has kept.
    Look,
    /// That it is made, if there is none.
    Compile,
}

/// What is known of a kernel's tiers.
#[derive(Debug, Default)]
pub(super) struct Tiers {
    /// Nanoseconds of processors that it has taken in the first tier.
    spent: AtomicU64,
    /// Whether code that is kept was asked for, and whether code was ordered to be made.
    asked: [AtomicBool; 2],
    threads: Speed,
    vectors: Speed,
}

impl Tiers {
    /// Whether a launch is to run as vectors, where there is code for that.
    pub(super) fn prefers_vectors(&self, mode: Mode) -> bool {
        let (slow, fast) = (self.threads.best.load(Relaxed), self.vectors.best.load(Relaxed));
        let launches = self.vectors.launches.load(Relaxed);
        if mode == Mode::First || launches < TRIALS {
            return true;
        }
        if slow == 0 {
            return launches < BLIND_TRIALS;
        }
        fast.saturating_mul(100) <= slow.saturating_mul(100 + TOLERANCE)
    }

    /// Blocks of a kernel have taken so many nanoseconds of processors. What it has earned by that, if anything.
    fn note(&self, blocks: u64, ns: u64, vectors: bool) -> Option<Earned> {
        if vectors {
            self.vectors.note(blocks, ns);
            return None;
        }
        self.threads.note(blocks, ns);
        self.spent.fetch_add(ns, Relaxed);
        self.earns(0)
    }

    /// What it has earned with so many nanoseconds that are not noted yet; each thing once.
    fn earns(&self, more: u64) -> Option<Earned> {
        let spent = self.spent.load(Relaxed).saturating_add(more);
        let [looked, made] = &self.asked;
        let first = |asked: &AtomicBool| !asked.load(Relaxed) && !asked.swap(true, Relaxed);
        if spent >= EARNED && first(made) {
            // That looks first, too.
            looked.store(true, Relaxed);
            return Some(Earned::Compile);
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
                    module.improve(function, earned == Earned::Compile);
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
        assert_eq!(tiers.earns(EARNED / 2), Some(Earned::Compile), "it has taken long enough");
        assert_eq!(tiers.note(1_000, EARNED, false), None, "it is asked for once");
        assert_eq!(Tiers::default().note(1_000, EARNED, false), Some(Earned::Compile), "at once");
        let few = Tiers::default();
        let notes: Vec<_> = (0..TRIALS).map(|_| few.note(10, LOOKED_FOR, false)).collect();
        assert_eq!(notes[..], [None, None, None, Some(Earned::Look)]);
        assert!(tiers.prefers_vectors(Mode::Auto), "they are tried");
        (0..TRIALS).for_each(|_| _ = tiers.note(1_000, EARNED, true));
        assert!(!tiers.prefers_vectors(Mode::Auto), "they took twice as long");
        assert!(tiers.prefers_vectors(Mode::First), "whoever wants them first gets them");
        tiers.note(1_000, EARNED / 3, true);
        assert!(tiers.prefers_vectors(Mode::Auto), "another launch was faster");

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
