//! Shares of the device's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rgpu_device::{Device, Ordinal, Pacer, Target};

use super::super::Config;
use super::kernels;
use super::{LEGACY, Rig};

/// Tells hanging from working.
const LIMIT: Duration = Duration::from_secs(120);

/// The share of a time that goes on only as it is used by all: nothing depends on how busy the machine is.
struct Share {
    clock: Arc<AtomicU64>,
    milli: u64,
    until: AtomicU64,
    used: AtomicU64,
    launches: AtomicU64,
}

impl Share {
    fn new(clock: &Arc<AtomicU64>, milli: u64) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self { clock: clock.clone(), milli, until: zero(), used: zero(), launches: zero() })
    }
}

impl Pacer for Share {
    fn delay(&self, _: Ordinal) -> Duration {
        Duration::from_nanos(self.until.load(SeqCst).saturating_sub(self.clock.load(SeqCst)))
    }

    fn is_limited(&self, _: Ordinal) -> bool {
        self.milli < 1000
    }

    fn used(&self, _: Ordinal, ns: u64) {
        self.until.fetch_add(ns * 1000 / self.milli, SeqCst);
        self.clock.fetch_add(ns, SeqCst);
        self.used.fetch_add(ns, SeqCst);
    }

    fn launched(&self, _: Ordinal, count: u64) {
        self.launches.fetch_add(count, SeqCst);
    }
}

fn rig(share: &Arc<Share>) -> Rig {
    let config = Config { memory_bytes_per_device: 64 << 20, workers: 2, ..Config::default() };
    Rig::paced(&[kernels::endless, kernels::number, kernels::reverse], config, Some(share.clone()))
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn endless_kernels_get_their_shares() {
    const TIME: u64 = 500_000_000;
    let clock = Arc::new(AtomicU64::new(0));
    let shares = [Share::new(&clock, 250), Share::new(&clock, 750)];
    let rigs = shares.each_ref().map(rig);
    let places = rigs.each_ref().map(|rig| {
        let at = rig.alloc(0, 4096);
        // Two blocks of one thread, for two workers: neither ever comes back to the executor.
        rig.launch(LEGACY, 0, 2, 1, &[at + 64, at]);
        at
    });
    wait_until("nothing is being used", || clock.load(SeqCst) >= TIME);
    let used = shares.each_ref().map(|share| share.used.load(SeqCst) as f64);
    let work = places.map(|at| {
        // SAFETY: allocated above; the kernel's threads only count there.
        (0..2u64).map(|i| unsafe { ((at + 64 + i * 64) as *const u64).read_volatile() }).sum::<u64>() as f64
    });
    for at in places {
        // SAFETY: allocated above; the kernel reads it.
        unsafe { (at as *mut u32).write_volatile(1) };
    }
    // With the first of them gone, nobody but the test moves the time on.
    wait_until("the kernels do not see that they are to end", || {
        clock.fetch_add(10_000_000, SeqCst);
        rigs.iter().all(|rig| rig.gpu.query(Target::Device(0)) == Ok(true))
    });
    let part = |of: [f64; 2]| of[0] / (of[0] + of[1]);
    assert!((part(used) - 0.25).abs() < 0.05, "{used:?}");
    // The work done is in proportion to that, as far as the processor is equally fast for both.
    assert!((part(work) - 0.25).abs() < 0.10, "{work:?} in {used:?}");
    assert_eq!(shares.map(|share| share.launches.load(SeqCst)), [1, 1]);
}

#[test]
fn short_kernels_are_held_back_between_blocks() {
    let clock = Arc::new(AtomicU64::new(0));
    let (share, rest) = (Share::new(&clock, 500), Share::new(&clock, 500));
    let rig = rig(&share);
    let data = rig.alloc(0, 1 << 20);
    let (mut launched, mut quiet) = (0, 0);
    // Nobody else uses anything, so the time does not go on: what is allowed is soon used up.
    wait_until("it is never held back", || {
        for (function, threads) in [(1, 64), (2, 256)] {
            rig.launch(LEGACY, function, 50, threads, &[data, 64]);
            launched += 1;
        }
        let before = share.launches.load(SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        // A device that a busy machine gives no time is quiet, too, but not held back.
        let held = share.launches.load(SeqCst) == before && before < launched && !share.delay(0).is_zero();
        quiet = if held { quiet + 1 } else { 0 };
        quiet == 5
    });
    assert!(share.launches.load(SeqCst) < launched && !share.delay(0).is_zero());
    // Others use their share: it goes on.
    wait_until("it never goes on", || {
        rest.used(0, 10_000_000);
        rig.gpu.query(Target::Device(0)) == Ok(true)
    });
    assert_eq!(share.launches.load(SeqCst), launched);
}

#[test]
fn a_whole_device_is_measured_and_not_held_back() {
    let clock = Arc::new(AtomicU64::new(0));
    let share = Share::new(&clock, 1000);
    let rig = rig(&share);
    let data = rig.alloc(0, 1 << 20);
    // Deep in debt, if it kept an account.
    share.until.store(u64::MAX / 2, SeqCst);
    for _ in 0..20 {
        rig.launch(LEGACY, 1, 1000, 64, &[data, 1]);
    }
    rig.sync().unwrap();
    rig.gpu.counters();
    assert!(share.used.load(SeqCst) > 0);
    assert_eq!(share.launches.load(SeqCst), 20);
}
