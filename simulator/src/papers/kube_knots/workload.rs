//! The applications of table I and when their pods come. What the paper only draws is fixed here, once; `docs/profiles.md` has the
//! source of each number.

use rgpu_placement::Rng;

use crate::statistics::exponential;

/// Memory of a P100 in MiB.
pub(super) const MEMORY_MIB: f64 = 16_384.0;

/// A part of a run, during which an application's use of its device doesn't change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phase {
    /// How long it lasts with the device alone, in ms.
    pub ms: f64,
    /// SM utilisation in percent.
    pub sm: f64,
    /// Memory in MiB.
    pub memory_mib: f64,
    /// MB/s from the host.
    pub rx_mb_s: f64,
    /// MB/s to the host.
    pub tx_mb_s: f64,
}

/// An application, and how it behaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct App {
    /// Its name in table I.
    pub name: &'static str,
    /// Whether it is a latency-critical query.
    pub query: bool,
    /// Its time alone in ms.
    ms: f64,
    /// SM utilisation in percent while it computes, and while it peaks.
    sm: [f64; 2],
    /// What its owner asks for, in MiB.
    asked_mib: f64,
    /// After which part of the computation it peaks.
    peak_at: f64,
}

const GIB: f64 = 1024.0;

const fn batch(name: &'static str, ms: f64, sm: [f64; 2], asked_gib: f64, peak_at: f64) -> App {
    App { name, query: false, ms, sm, asked_mib: asked_gib * GIB, peak_at }
}

const fn query(name: &'static str, ms: f64, sm: f64) -> App {
    App { name, query: true, ms, sm: [sm, sm], asked_mib: 0.1 * MEMORY_MIB, peak_at: 0.0 }
}

/// All applications.
pub(super) static APPS: [App; 15] = [
    batch("leukocyte", 1200.0, [55.0, 95.0], 3.0, 0.7),
    batch("heartwall", 900.0, [50.0, 90.0], 3.0, 0.3),
    batch("particlefilter", 600.0, [35.0, 90.0], 4.0, 0.5),
    batch("mummergpu", 800.0, [45.0, 80.0], 6.0, 0.1),
    batch("pathfinder", 400.0, [25.0, 80.0], 2.0, 0.2),
    batch("lud", 500.0, [20.0, 90.0], 2.0, 0.6),
    batch("kmeans", 700.0, [30.0, 85.0], 3.0, 0.4),
    batch("streamcluster", 1000.0, [25.0, 90.0], 2.5, 0.8),
    batch("myocyte", 600.0, [3.0, 60.0], 1.0, 0.5),
    query("face", 90.0, 40.0),
    query("key", 15.0, 30.0),
    query("chl", 30.0, 30.0),
    query("ner", 30.0, 30.0),
    query("pos", 20.0, 30.0),
    query("imc", 90.0, 50.0),
];

/// A row of table I.
#[derive(Debug)]
pub(super) struct Mix {
    /// Its number, from 1.
    pub number: usize,
    batch: &'static [&'static str],
    queries: &'static [&'static str],
    /// How much device time is asked for, as a part of what ten devices have when nothing is shared.
    load: f64,
    /// The coefficient of variation of the times between arrivals.
    variation: f64,
}

/// Table I. Load and variation are printed as HIGH, MED and LOW; the numbers are ours.
pub(super) static MIXES: [Mix; 3] = [
    Mix {
        number: 1,
        batch: &["leukocyte", "heartwall", "particlefilter", "mummergpu"],
        queries: &["face", "key"],
        load: 0.8,
        variation: 0.5,
    },
    Mix {
        number: 2,
        batch: &["pathfinder", "lud", "kmeans", "streamcluster"],
        queries: &["chl", "ner", "pos"],
        load: 0.6,
        variation: 1.0,
    },
    Mix {
        number: 3,
        batch: &["particlefilter", "streamcluster", "lud", "myocyte"],
        queries: &["imc", "face"],
        load: 0.4,
        variation: 2.0,
    },
];

/// Four pods of five are queries: the Pareto principle of section III.
const QUERIES: f64 = 0.8;

/// One run of an application.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    /// Which of [`APPS`].
    pub app: usize,
    /// When it comes, in ms.
    pub arrival_ms: u64,
    /// What its owner asks for, in MiB.
    pub asked_mib: f64,
    /// What it does.
    pub phases: Vec<Phase>,
}

impl App {
    /// A run: lengths differ by up to a fifth, levels by up to a tenth.
    fn run(&self, app: usize, arrival_ms: u64, rng: &mut Rng) -> Pod {
        let ms = self.ms * (0.8 + 0.4 * rng.unit());
        let level = 0.9 + 0.2 * rng.unit();
        let phase = |part: f64, sm: f64, memory: f64, rx: f64, tx: f64| Phase {
            ms: ms * part,
            sm: (sm * level).min(100.0),
            memory_mib: memory * self.asked_mib,
            rx_mb_s: rx,
            tx_mb_s: tx,
        };
        let [base, peak] = self.sm;
        let phases = if self.query {
            // Weights and input come first; then it computes.
            vec![phase(0.3, 5.0, 0.5, 6000.0, 0.0), phase(0.7, base, 0.7, 50.0, 50.0)]
        } else {
            // Input, computation with one surge of 6% of the time, a burst of input ahead of it, results.
            let before = 0.78 * self.peak_at;
            vec![
                phase(0.10, 5.0, 0.25, 8000.0, 0.0),
                phase(before, base, 0.42, 20.0, 20.0),
                phase(0.02, base, 0.45, 8000.0, 0.0),
                phase(0.06, peak, 0.80, 20.0, 20.0),
                phase(0.78 - before, base, 0.45, 20.0, 20.0),
                phase(0.04, 5.0, 0.40, 0.0, 6000.0),
            ]
        };
        Pod { app, arrival_ms, asked_mib: self.asked_mib, phases }
    }
}

fn index(name: &str) -> usize {
    APPS.iter().position(|app| app.name == name).expect("table I names applications of the list")
}

fn mean_ms(names: &[&str]) -> f64 {
    names.iter().map(|name| APPS[index(name)].ms).sum::<f64>() / names.len() as f64
}

/// Draws a time with mean 1 and that coefficient of variation: Erlang's distribution below 1, two exponential ones with balanced
/// means above.
fn between(variation: f64, rng: &mut Rng) -> f64 {
    if variation <= 1.0 {
        let stages = (1.0 / (variation * variation)).round().max(1.0);
        return (0..stages as usize).map(|_| exponential(rng)).sum::<f64>() / stages;
    }
    let square = variation * variation;
    let first = 0.5 * (1.0 + ((square - 1.0) / (square + 1.0)).sqrt());
    let share = if rng.unit() < first { first } else { 1.0 - first };
    exponential(rng) / (2.0 * share)
}

/// The pods of a mix that come within so many seconds, in order, for that many devices.
pub(super) fn pods(mix: &Mix, seconds: f64, devices: usize, seed: u64) -> Vec<Pod> {
    let mut rng = Rng::new(seed);
    let mean = QUERIES * mean_ms(mix.queries) + (1.0 - QUERIES) * mean_ms(mix.batch);
    let gap_ms = mean / (mix.load * devices as f64);
    let mut pods = Vec::new();
    let mut now = 0.0;
    loop {
        now += gap_ms * between(mix.variation, &mut rng);
        if now >= seconds * 1000.0 {
            return pods;
        }
        let names = if rng.unit() < QUERIES { mix.queries } else { mix.batch };
        let app = index(names[rng.below(names.len() as u64) as usize]);
        pods.push(APPS[app].run(app, now as u64, &mut rng));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{deviation, mean};

    #[test]
    fn table_1_names_applications_and_runs_last_as_long_as_they_should() {
        let mut rng = Rng::new(1);
        for mix in &MIXES {
            assert!(mix.batch.iter().all(|name| !APPS[index(name)].query));
            assert!(mix.queries.iter().all(|name| APPS[index(name)].query));
        }
        for (i, app) in APPS.iter().enumerate() {
            let pod = app.run(i, 0, &mut rng);
            let ms: f64 = pod.phases.iter().map(|phase| phase.ms).sum();
            assert!((0.8..=1.2).contains(&(ms / app.ms)), "{}: {ms}", app.name);
            assert!(pod.phases.iter().all(|phase| phase.memory_mib <= 0.8 * pod.asked_mib + 1e-9));
        }
    }

    #[test]
    fn queries_are_four_of_five_and_take_about_a_fifth_of_the_time() {
        for mix in &MIXES {
            let pods = pods(mix, 200.0, 10, 1);
            let of = |query: bool| pods.iter().filter(move |pod| APPS[pod.app].query == query);
            let time = |query| of(query).flat_map(|pod| &pod.phases).map(|phase| phase.ms).sum::<f64>();
            let (all, short) = (time(true) + time(false), time(true));
            assert!((of(true).count() as f64 / pods.len() as f64 - 0.8).abs() < 0.03);
            assert!((0.10..0.40).contains(&(short / all)), "{}: {}", mix.number, short / all);
            assert!((all / 2e6 - mix.load).abs() < 0.1, "{}: {}", mix.number, all / 2e6);
        }
    }

    #[test]
    fn times_between_arrivals_vary_as_asked() {
        for variation in [0.5, 1.0, 2.0] {
            let mut rng = Rng::new(7);
            let draws: Vec<f64> = (0..100_000).map(|_| between(variation, &mut rng)).collect();
            assert!((mean(&draws) - 1.0).abs() < 0.03, "{}", mean(&draws));
            assert!((deviation(&draws) / variation - 1.0).abs() < 0.05, "{}", deviation(&draws));
        }
    }
}
