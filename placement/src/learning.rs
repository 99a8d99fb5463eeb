//! Profiles learnt from runs: what earlier runs of a program say about the next one.
//!
//! The model is that of a [`Profile`](crate::Profile): with ρ the remote share of the devices and l the load that others put on the network,
//! a run with input *g* takes
//!
//! ```text
//! seconds = local(g) · ((1 − ρ) + ρ · slowdown · (1 + sensitivity · l)) · noise
//! ```
//!
//! Unknown are the times `local(g)`, one for each input; the slowdown of a remote run on a quiet network; and the
//! sensitivity. What is known before the first run is what typical programs are like: the part of a run that the network takes is
//! log-normal, as fitted to the eight Rodinia programs of `docs/profiles.md`, and the sensitivity follows from it by the same factor as
//! there, within a factor of two. The traffic of remote runs says more: what the link was busy with cannot have taken less time than that.
//! The noise is log-normal with an unknown deviation of about 10%. From all of this follow, by Bayes' rule over a grid, the
//! expected values and how uncertain they are. With no run at all they are those of a typical program, not of an insensitive one.

use std::collections::BTreeMap;

/// A run of a program, as it was seen from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Which input it had: runs with the same number do the same work.
    pub input: u64,
    /// How long it took, in seconds, as if it had had whole devices ([`Run::seconds_on_whole_devices`]).
    pub seconds: f64,
    /// ρ: the share of its devices that were in other nodes.
    pub remote_share: f64,
    /// l: the mean traffic of others on the way to those, as a part of the capacity.
    pub load: f64,
    /// The mean traffic of the run with each of its remote devices, in Mbit/s, in the direction in which there was more.
    pub traffic_mbps: f64,
    /// What the way to them can carry, in Mbit/s.
    pub capacity_mbps: f64,
    /// The most device memory that it had, of one device, in MiB.
    pub memory_mib: f64,
    /// The share of a whole device's time that it used.
    pub share: f64,
}

impl Run {
    /// The time that a run would have taken with whole devices, from its time with a `share` (0 to 1) of each and the seconds of
    /// device time that it used of one: while it was held to the share, that time took `1 / share` as long.
    pub fn seconds_on_whole_devices(seconds: f64, device_s: f64, share: f64) -> f64 {
        let held = device_s * (1.0 / share.clamp(0.001, 1.0) - 1.0);
        (seconds - held).max(device_s).max(0.05 * seconds)
    }

    /// Whether all of it can be true of a run.
    fn is_sound(&self) -> bool {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let not_negative = |value: f64| value.is_finite() && value >= 0.0;
        positive(self.seconds)
            && (0.0..=1.0).contains(&self.remote_share)
            && [self.load, self.traffic_mbps, self.capacity_mbps, self.memory_mib, self.share]
                .into_iter()
                .all(not_negative)
    }
}

/// A quantity that is known within limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Uncertain {
    /// Its expected value.
    pub mean: f64,
    /// The standard deviation of what it may be.
    pub deviation: f64,
}

impl Uncertain {
    /// The mean of measured values, and how far a single one lies from it.
    fn of(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let count = values.clone().count();
        if count == 0 {
            return None;
        }
        let mean = values.clone().sum::<f64>() / count as f64;
        let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
        // Of a single value nothing is known but that it was: it may as well be half or twice that.
        let deviation = if count == 1 { mean / 2.0 } else { (squares / (count - 1) as f64).sqrt() };
        Some(Self { mean, deviation })
    }
}

/// What is known of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// How many runs that comes from.
    pub runs: usize,
    /// The time of a remote run on a quiet network, as a multiple of a local one's: at least 1.
    pub slowdown: Uncertain,
    /// By which part a remote run takes longer when others load the network to 100%.
    pub sensitivity: Uncertain,
    /// By input: the seconds of a local run.
    pub local_s: BTreeMap<u64, Uncertain>,
    /// Traffic with each remote device in Mbit/s on a quiet network, where a run was remote.
    pub traffic_mbps: Option<Uncertain>,
    /// The most device memory of one device, in MiB.
    pub memory_mib: Option<Uncertain>,
    /// The share of a device's time.
    pub share: Option<Uncertain>,
}

/// The logarithm of the network's time as a part of a local run's, over programs: mean and deviation of the eight programs of
/// `docs/profiles.md` (shares of 0.2% to 17%).
const NETWORK: (f64, f64) = (-3.63, 1.85);
/// How much longer network time is when others load the network fully, less one (`docs/profiles.md`).
const LOAD_FACTOR: f64 = 3.9;
/// The deviation of the logarithm of a program's own factor from that.
const LOAD_SPREAD: f64 = 0.7;
/// What the deviation of a run's time is taken for before any was measured, and how many runs that belief is worth.
const NOISE: (f64, f64) = (0.1, 4.0);
/// Points of the grid in each direction.
const POINTS: usize = 48;
/// The grid: network time as a part of a local run's, and sensitivity.
const NETWORK_RANGE: (f64, f64) = (1e-4, 30.0);
const SENSITIVITY_RANGE: (f64, f64) = (1e-4, 30.0);

/// Points between the limits, at equal ratios.
fn points((low, high): (f64, f64)) -> impl Iterator<Item = f64> + Clone {
    let step = (high / low).ln() / (POINTS - 1) as f64;
    (0..POINTS).map(move |i| low * (step * i as f64).exp())
}

/// What runs say of their program. Runs that cannot be true are left out.
pub fn estimate(runs: &[Run]) -> Estimate {
    let runs: Vec<Run> = runs.iter().copied().filter(Run::is_sound).collect();
    let remote = || runs.iter().filter(|run| run.remote_share > 0.0);
    // The link cannot have been busy for longer than the run: what it was busy with is the least that the network took.
    let busy = |run: &Run| {
        let busy = run.traffic_mbps * run.remote_share / run.capacity_mbps.max(1.0);
        (busy / (1.0 + LOAD_FACTOR * run.load)).min(0.95)
    };
    let least =
        remote().map(busy).map(|part| part / (1.0 - part)).sum::<f64>() / remote().count().max(1) as f64;
    let center = NETWORK.0.max(least.max(f64::MIN_POSITIVE).ln());
    let groups = groups(&runs);
    let (mut total, mut best) = (0.0, f64::NEG_INFINITY);
    let mut weighted = Vec::with_capacity(POINTS * POINTS);
    for network in points(NETWORK_RANGE) {
        let prior = -0.5 * ((network.ln() - center) / NETWORK.1).powi(2);
        let expected = LOAD_FACTOR * network / (1.0 + network);
        for sensitivity in points(SENSITIVITY_RANGE) {
            let factor = -0.5 * ((sensitivity / expected).ln() / LOAD_SPREAD).powi(2);
            let log = prior + factor + likelihood(&groups, 1.0 + network, sensitivity);
            best = f64::max(best, log);
            weighted.push((log, 1.0 + network, sensitivity));
        }
    }
    for (log, ..) in &mut weighted {
        *log = (*log - best).exp();
        total += *log;
    }
    let moments = |value: fn(f64, f64) -> f64| {
        let of = |power: i32| {
            weighted.iter().map(|(weight, r, s)| weight * value(*r, *s).powi(power)).sum::<f64>() / total
        };
        let mean = of(1);
        Uncertain { mean, deviation: (of(2) - mean * mean).max(0.0).sqrt() }
    };
    let (slowdown, sensitivity) = (moments(|r, _| r), moments(|_, s| s));
    let stretch = |run: &Run| stretch(run, slowdown.mean, sensitivity.mean);
    let local_s = groups.iter().map(|group| {
        let times = group.iter().map(|run| run.seconds / stretch(run));
        (group[0].input, Uncertain::of(times).unwrap_or_default())
    });
    Estimate {
        runs: runs.len(),
        slowdown,
        sensitivity,
        local_s: local_s.collect(),
        // A run that took longer because of others sent the same in more time.
        traffic_mbps: Uncertain::of(
            remote().map(|run| run.traffic_mbps * stretch(run) / stretch_alone(run, slowdown.mean)),
        ),
        memory_mib: Uncertain::of(runs.iter().map(|run| run.memory_mib)),
        share: Uncertain::of(runs.iter().map(|run| run.share)),
    }
}

/// How much longer than a local run a run takes.
fn stretch(run: &Run, slowdown: f64, sensitivity: f64) -> f64 {
    (1.0 - run.remote_share) + run.remote_share * slowdown * (1.0 + sensitivity * run.load)
}

/// The same without others.
fn stretch_alone(run: &Run, slowdown: f64) -> f64 {
    stretch(&Run { load: 0.0, ..*run }, slowdown, 0.0)
}

/// The runs by input.
fn groups(runs: &[Run]) -> Vec<Vec<Run>> {
    let mut groups: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    for run in runs {
        groups.entry(run.input).or_default().push(*run);
    }
    groups.into_values().collect()
}

/// The logarithm of how probable the runs' times are, but for a constant. The time of a local run of each input is whatever fits best, so a
/// single run of an input says nothing; the noise's deviation is integrated out, which leaves Student's distribution.
fn likelihood(groups: &[Vec<Run>], slowdown: f64, sensitivity: f64) -> f64 {
    let (mut squares, mut free) = (0.0, 0.0);
    for group in groups.iter().filter(|group| group.len() > 1) {
        let logs = group.iter().map(|run| (run.seconds / stretch(run, slowdown, sensitivity)).ln());
        let mean = logs.clone().sum::<f64>() / group.len() as f64;
        squares += logs.map(|log| (log - mean).powi(2)).sum::<f64>();
        free += (group.len() - 1) as f64;
    }
    let (noise, worth) = NOISE;
    -0.5 * (worth + free) * (1.0 + squares / (worth * noise * noise)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use proptest::prelude::*;

    fn run(seconds: f64, remote_share: f64, load: f64) -> Run {
        let (capacity_mbps, memory_mib, share) = (10_000.0, 100.0, 0.5);
        Run { input: 7, seconds, remote_share, load, traffic_mbps: 100.0, capacity_mbps, memory_mib, share }
    }

    #[test]
    fn a_program_never_seen_is_a_typical_one() {
        let unknown = estimate(&[]);
        // The mean sensitivity of the eight programs is 0.27.
        assert!((0.15..0.5).contains(&unknown.sensitivity.mean), "{unknown:?}");
        assert!((1.02..1.3).contains(&unknown.slowdown.mean), "{unknown:?}");
        assert!(unknown.sensitivity.deviation > 0.2, "{unknown:?}");
        assert!(unknown.local_s.is_empty() && unknown.memory_mib.is_none() && unknown.traffic_mbps.is_none());
    }

    #[test]
    fn one_run_says_how_long_it_takes_and_what_it_needs_and_no_more() {
        let once = estimate(&[run(20.0, 0.0, 0.0)]);
        let unknown = estimate(&[]);
        assert_eq!((once.slowdown, once.sensitivity), (unknown.slowdown, unknown.sensitivity));
        assert_eq!(once.local_s[&7], Uncertain { mean: 20.0, deviation: 10.0 });
        assert_eq!(once.memory_mib.unwrap().mean, 100.0);
        assert!(once.traffic_mbps.is_none());
    }

    #[test]
    fn three_runs_tell_a_sensitive_program_from_an_insensitive_one() {
        // NW: 31 s alone, 37 s remote, 61 s with others' traffic; HotSpot: 134 s wherever it is.
        let nw = estimate(&[run(31.0, 0.0, 0.0), run(37.3, 1.0, 0.0), run(60.8, 1.0, 1.0)]);
        let hotspot = estimate(&[run(134.0, 0.0, 0.0), run(134.3, 1.0, 0.0), run(135.3, 1.0, 1.0)]);
        assert!((0.4..0.8).contains(&nw.sensitivity.mean), "{nw:?}");
        assert!((1.1..1.3).contains(&nw.slowdown.mean), "{nw:?}");
        assert!(hotspot.sensitivity.mean < 0.1 && hotspot.slowdown.mean < 1.06, "{hotspot:?}");
        assert!((28.0..34.0).contains(&nw.local_s[&7].mean), "{nw:?}");
        assert!(nw.sensitivity.deviation < estimate(&[]).sensitivity.deviation);
    }

    #[test]
    fn traffic_that_fills_the_link_tells_of_a_sensitive_program_at_once() {
        let busy = Run { traffic_mbps: 6000.0, ..run(30.0, 1.0, 0.0) };
        let quiet = Run { traffic_mbps: 10.0, ..busy };
        let (busy, quiet) = (estimate(&[busy]).sensitivity.mean, estimate(&[quiet]).sensitivity.mean);
        assert!(busy > 1.5 && quiet < 0.5, "{busy} {quiet}");
    }

    #[test]
    fn inputs_have_times_of_their_own() {
        let small = |seconds, load| Run { input: 1, ..run(seconds, 1.0, load) };
        let large = |seconds, load| Run { input: 2, ..run(seconds, 1.0, load) };
        let both = estimate(&[small(1.0, 0.0), small(1.0, 1.0), large(50.0, 0.0), large(51.0, 1.0)]);
        assert!(both.sensitivity.mean < 0.15, "{both:?}");
        assert!(both.local_s[&2].mean > 30.0 * both.local_s[&1].mean);
    }

    #[test]
    fn a_share_of_a_device_is_accounted_for() {
        // Ten seconds of device time at a quarter take 40; five more on the processor.
        assert!((Run::seconds_on_whole_devices(45.0, 10.0, 0.25) - 15.0).abs() < 1e-9);
        assert_eq!(Run::seconds_on_whole_devices(45.0, 10.0, 1.0), 45.0);
        assert_eq!(Run::seconds_on_whole_devices(20.0, 10.0, 0.25), 10.0);
    }

    #[test]
    fn nonsense_is_left_out() {
        for bad in [
            run(f64::NAN, 1.0, 0.0),
            run(0.0, 1.0, 0.0),
            run(1.0, 2.0, 0.0),
            run(1.0, 1.0, -1.0),
            Run { traffic_mbps: f64::INFINITY, ..run(1.0, 1.0, 0.0) },
        ] {
            assert_eq!(estimate(&[bad]), estimate(&[]), "{bad:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Twelve noisy runs find what the truth was, within their own uncertainty (four deviations and a grid's step).
        #[test]
        fn the_truth_is_found(seed in 0u64..1000, network in 0.05f64..0.6, factor in 0.5f64..2.0) {
            let mut rng = Rng::new(seed);
            let sensitivity = LOAD_FACTOR * factor * network / (1.0 + network);
            let runs: Vec<Run> = (0..12).map(|i| {
                let load = f64::from(i % 4) / 3.0;
                let case = run(1.0, f64::from(u8::from(i % 3 != 0)), load);
                let noise = 1.0 + 0.02 * (rng.below(2001) as f64 / 1000.0 - 1.0);
                Run { seconds: 10.0 * noise * stretch(&case, 1.0 + network, sensitivity), ..case }
            }).collect();
            let found = estimate(&runs);
            let near = |found: Uncertain, truth: f64| (found.mean - truth).abs() <= 4.0 * found.deviation + 0.1 * truth;
            prop_assert!(near(found.slowdown, 1.0 + network), "{:?} {}", found.slowdown, 1.0 + network);
            prop_assert!(near(found.sensitivity, sensitivity), "{:?} {}", found.sensitivity, sensitivity);
            prop_assert!((found.local_s[&7].mean - 10.0).abs() < 1.0, "{:?}", found.local_s);
        }
    }
}
