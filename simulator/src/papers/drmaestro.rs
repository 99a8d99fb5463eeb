//! Experiments 2 to 5 of the DRMaestro paper: what disaggregation and network-awareness are worth against Firmament.
//!
//! What the paper prints is in [`SCENARIOS`]; what it only draws is in `docs/profiles.md`.

mod experiment;

use crate::engine::{Clock, Outcome, Progress};
use crate::error::Result;
use crate::formats::{Applications, Submission};
use crate::papers::{Options, Paper, Report};
use crate::parallel;
use crate::plot::{Plot, cdf, worst_to_best};
use crate::report::{Summary, align, gpus_over_time, normalised};
use crate::statistics::{deviation, mean};
use crate::workload::Mix;
pub use experiment::{Experiment, cluster, cluster_with, policy};

/// The paper's row.
pub(super) const PAPER: Paper = Paper {
    name: "drmaestro",
    about: "DRMaestro: disaggregation and network-awareness against Firmament (experiments 2 to 5)",
    parts: &["2", "3", "4", "5"],
    unit: "jobs",
    total: |options| scenarios(options.part).map(|scenario| scenario.jobs as u64 * options.seeds * 3).sum(),
    run: |options| {
        let compared = compare(options)?;
        Ok(Report { text: text(&compared), plots: figures(&compared), times: times(&compared) })
    },
};

/// What the paper prints about one number of jobs and machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// How many jobs are submitted.
    pub jobs: usize,
    /// How many machines the cluster has.
    pub machines: usize,
    /// How kinds of jobs are drawn.
    pub mix: Mix,
    /// The tables of makespans and of violations.
    pub tables: [u8; 2],
    /// Published makespans in seconds: Firmament, DRMaestro, DRMaestro with the network-aware policy.
    pub makespan_s: [f64; 3],
    /// Published ratios of makespans: Firmament's by DRMaestro's, without and with the network-aware policy.
    pub makespan_ratio: [f64; 2],
    /// Published numbers of jobs with violated QoS.
    pub violations: [u32; 3],
    /// Published ratios of these numbers.
    pub violation_ratio: [f64; 2],
}

/// The four scenarios, as printed.
pub const SCENARIOS: [Scenario; 4] = [
    Scenario {
        jobs: 128,
        machines: 4,
        mix: Mix::Normal,
        tables: [2, 3],
        makespan_s: [1145.16, 760.53, 744.61],
        makespan_ratio: [1.50, 1.54],
        violations: [106, 117, 112],
        violation_ratio: [0.91, 0.95],
    },
    Scenario {
        jobs: 512,
        machines: 4,
        mix: Mix::Normal,
        tables: [2, 3],
        makespan_s: [3413.27, 2690.08, 2593.50],
        makespan_ratio: [1.27, 1.32],
        violations: [445, 463, 431],
        violation_ratio: [0.96, 1.03],
    },
    Scenario {
        jobs: 512,
        machines: 16,
        mix: Mix::Uniform,
        tables: [4, 5],
        makespan_s: [1019.33, 842.58, 815.56],
        makespan_ratio: [1.21, 1.25],
        violations: [377, 382, 272],
        violation_ratio: [0.99, 1.39],
    },
    Scenario {
        jobs: 4096,
        machines: 128,
        mix: Mix::Uniform,
        tables: [4, 5],
        makespan_s: [1087.73, 972.20, 907.18],
        makespan_ratio: [1.12, 1.20],
        violations: [2160, 1310, 818],
        violation_ratio: [1.65, 2.64],
    },
];

/// The policies compared, in the order of the tables.
pub const POLICIES: [&str; 3] = ["firmament", "drmaestro", "drmaestro, network-aware"];

/// What one policy did in one scenario with one seed.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which of [`POLICIES`].
    pub policy: usize,
    /// The seed of the workload and of the policy.
    pub seed: u64,
    /// Makespan, violated objectives, waiting times and use of the devices.
    pub summary: Summary,
    /// All, of the first seed only.
    pub details: Option<(Vec<Submission>, Outcome)>,
    /// How long the rounds took, in microseconds, if there was a clock.
    pub times: Vec<u64>,
}

fn simulate(
    scenario: &Scenario,
    index: usize,
    seed: u64,
    details: bool,
    clock: Option<&Clock<'_>>,
    progress: &Progress<'_>,
) -> Result<Run> {
    let cluster = cluster(scenario.machines)?;
    let experiment = Experiment::new(scenario, cluster, Applications::rodinia(), 1.0, seed)?;
    let (outcome, times) = experiment.simulate(index, seed, clock, progress)?;
    let summary = Summary::new(&experiment.cluster, &experiment.jobs, &outcome);
    Ok(Run { policy: index, seed, summary, details: details.then_some((experiment.jobs, outcome)), times })
}

/// A scenario and what came of it.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What was simulated.
    pub scenario: Scenario,
    /// For every seed and policy.
    pub runs: Vec<Run>,
}

/// The scenarios that a table (2 to 5) shows, or all.
fn scenarios(table: Option<&str>) -> impl Iterator<Item = Scenario> {
    let table = table.map(str::to_owned);
    SCENARIOS.into_iter().filter(move |scenario| {
        let shows = |table: &str| scenario.tables.iter().any(|number| number.to_string() == table);
        table.as_deref().is_none_or(shows)
    })
}

/// Runs the scenarios of the chosen table, or all.
pub fn compare(options: &Options<'_>) -> Result<Vec<Comparison>> {
    let Options { seeds, threads, clock, progress, .. } = *options;
    let scenarios: Vec<Scenario> = scenarios(options.part).collect();
    let mut work = Vec::new();
    for (number, scenario) in scenarios.iter().enumerate() {
        for seed in 1..=seeds {
            work.extend((0..POLICIES.len()).map(|policy| (number, scenario, seed, policy)));
        }
    }
    // The longest first, so that no thread is left with it at the end.
    work.sort_by_key(|(_, scenario, ..)| std::cmp::Reverse(scenario.jobs));
    let runs = parallel::map(&work, threads, |(number, scenario, seed, policy)| {
        Ok((*number, simulate(scenario, *policy, *seed, *seed == 1, clock, progress)?))
    })?;
    let mut comparisons: Vec<Comparison> =
        scenarios.into_iter().map(|scenario| Comparison { scenario, runs: Vec::new() }).collect();
    for (number, run) in runs {
        comparisons[number].runs.push(run);
    }
    Ok(comparisons)
}

/// A published ratio and ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// As printed in the paper.
    pub published: f64,
    /// Firmament's mean by DRMaestro's; infinite where DRMaestro's is 0.
    pub ours: f64,
    /// The standard deviation of the single seeds' ratios.
    pub spread: f64,
}

impl Cell {
    /// Whether ours is at least as good as the published, to the two digits printed.
    pub fn reached(&self) -> bool {
        self.ours + 0.005 >= self.published
    }

    fn text(&self) -> String {
        let mark = if self.reached() { "" } else { " (below)" };
        match self.ours.is_finite() {
            true => format!("{:.2} ±{:.2}{mark}", self.ours, self.spread),
            false => "no violations".into(),
        }
    }
}

impl Comparison {
    fn values(&self, policy: usize, value: impl Fn(&Summary) -> f64) -> Vec<f64> {
        self.runs.iter().filter(|run| run.policy == policy).map(|run| value(&run.summary)).collect()
    }

    fn cell(&self, policy: usize, published: f64, value: impl Fn(&Summary) -> f64 + Copy) -> Cell {
        let (theirs, mine) = (self.values(0, value), self.values(policy, value));
        let ratios: Vec<f64> = theirs
            .iter()
            .zip(&mine)
            .map(|(theirs, mine)| theirs / mine)
            .filter(|ratio| ratio.is_finite())
            .collect();
        Cell { published, ours: mean(&theirs) / mean(&mine), spread: deviation(&ratios) }
    }

    /// Ratios of makespans without and with network-awareness.
    pub fn makespan_cells(&self) -> [Cell; 2] {
        [1, 2].map(|i| self.cell(i, self.scenario.makespan_ratio[i - 1], |summary| summary.makespan_s))
    }

    /// Ratios of violations without and with network-awareness.
    pub fn violation_cells(&self) -> [Cell; 2] {
        [1, 2]
            .map(|i| self.cell(i, self.scenario.violation_ratio[i - 1], |summary| summary.violations as f64))
    }
}

/// The comparison as text: ours beside the published.
pub fn text(comparisons: &[Comparison]) -> String {
    let header = |what: &str| {
        let names = ["jobs/machines", what, "published", "ours", "ratio published", "ours"];
        vec![names.map(str::to_owned).to_vec()]
    };
    let (mut makespans, mut violations) = (header("makespan"), header("violated QoS"));
    let mut more = vec![Summary::header()];
    more[0][0] = "means".into();
    for comparison in comparisons {
        let scenario = &comparison.scenario;
        let name = format!("{}/{}", scenario.jobs, scenario.machines);
        let (time_cells, count_cells) = (comparison.makespan_cells(), comparison.violation_cells());
        for (i, policy) in POLICIES.iter().enumerate() {
            let first = if i == 0 { name.clone() } else { String::new() };
            let ratio = |cells: &[Cell; 2]| match i {
                0 => [String::new(), String::new()],
                _ => [format!("{:.2}", cells[i - 1].published), cells[i - 1].text()],
            };
            let times = comparison.values(i, |summary| summary.makespan_s);
            let [published, ours] = ratio(&time_cells);
            makespans.push(vec![
                first.clone(),
                (*policy).into(),
                format!("{:.2} s", scenario.makespan_s[i]),
                format!("{:.2} ±{:.2} s", mean(&times), deviation(&times)),
                published,
                ours,
            ]);
            let counts = comparison.values(i, |summary| summary.violations as f64);
            let [published, ours] = ratio(&count_cells);
            violations.push(vec![
                first,
                (*policy).into(),
                scenario.violations[i].to_string(),
                format!("{:.1} ±{:.1}", mean(&counts), deviation(&counts)),
                published,
                ours,
            ]);
            let of = |value: fn(&Summary) -> f64| mean(&comparison.values(i, value));
            more.push(vec![
                format!("{name} {policy}"),
                format!("{:.0}/{}", of(|s| s.ended as f64), scenario.jobs),
                format!("{:.2}", of(|s| s.makespan_s)),
                format!("{:.1}", of(|s| s.violations as f64)),
                format!("{:.2}", of(|s| s.mean_wait_s)),
                format!("{:.2}", of(|s| s.p99_wait_s)),
                format!("{:.3}", of(|s| s.mean_slowdown)),
                format!("{:.1}", of(|s| s.gpu_percent)),
                format!("{:.1}", of(|s| s.remote_percent)),
                format!("{:.0}", of(|s| s.rounds as f64)),
                format!("{:.0}", of(|s| s.postponed as f64)),
            ]);
        }
    }
    [makespans, violations, more].map(|rows| align(&rows)).join("\n")
}

/// How long the scheduling rounds took, for each scenario and policy.
fn times(comparisons: &[Comparison]) -> Vec<(String, Vec<u64>)> {
    let mut times = Vec::new();
    for comparison in comparisons {
        let Scenario { jobs, machines, .. } = comparison.scenario;
        for (index, name) in POLICIES.iter().enumerate() {
            let of_policy = comparison.runs.iter().filter(|run| run.policy == index);
            let taken = of_policy.flat_map(|run| run.times.iter().copied()).collect();
            times.push((format!("{jobs}/{machines} {name}"), taken));
        }
    }
    times
}

/// The paper's figures that show results of these experiments, from the runs of the first seed: file names and plots.
pub fn figures(comparisons: &[Comparison]) -> Vec<(String, Plot)> {
    let mut figures = Vec::new();
    let mut times: Vec<(u8, &'static str, Vec<crate::plot::Series>)> =
        vec![(6, "4 machines", Vec::new()), (8, "16 and 128 machines", Vec::new())];
    for comparison in comparisons {
        let Scenario { jobs, machines, .. } = comparison.scenario;
        let number = match (jobs, machines) {
            (128, 4) => 4,
            (512, 4) => 5,
            (512, 16) => 7,
            _ => 9,
        };
        let title = format!("{jobs} jobs on {machines} machines");
        let details: Vec<(&str, &(Vec<Submission>, Outcome))> = comparison
            .runs
            .iter()
            .filter_map(|run| Some((POLICIES[run.policy], run.details.as_ref()?)))
            .collect();
        let plot = |what: &str, x: &str, y: &str, steps, log_x, series| Plot {
            title: format!("{what}, {title}"),
            x: x.into(),
            y: y.into(),
            steps,
            log_x,
            series,
        };
        let allocation = details.iter().map(|(name, (_, outcome))| gpus_over_time(name, outcome)).collect();
        let what = "GPUs allocated";
        figures.push((
            format!("figure-{number}-gpus.svg"),
            plot(what, "time [s]", "GPUs", true, false, allocation),
        ));
        let sorted = details
            .iter()
            .map(|(name, (jobs, outcome))| worst_to_best(*name, normalised(jobs, outcome)))
            .collect();
        let number = if jobs == 4096 { 10 } else { number };
        figures.push((
            format!("figure-{number}-job-times.svg"),
            plot(
                "Job time as a multiple of the time alone",
                "job, worst to best",
                "multiple",
                false,
                false,
                sorted,
            ),
        ));
        let group = usize::from(machines > 4);
        for (policy, name) in POLICIES.iter().enumerate() {
            let of_policy = comparison.runs.iter().filter(|run| run.policy == policy);
            let taken: Vec<f64> =
                of_policy.flat_map(|run| &run.times).map(|micros| *micros as f64 / 1000.0).collect();
            if !taken.is_empty() {
                times[group].2.push(cdf(format!("{name}, {jobs}/{machines}"), taken));
            }
        }
    }
    for (number, machines, series) in times {
        if !series.is_empty() {
            let plot = Plot {
                title: format!("Time of a scheduling round, {machines}"),
                x: "time [ms]".into(),
                y: "rounds [%]".into(),
                steps: true,
                log_x: true,
                series,
            };
            figures.push((format!("figure-{number}-scheduler-time.svg"), plot));
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ratios_are_those_of_the_published_numbers() {
        for scenario in SCENARIOS {
            for i in 0..2 {
                let makespan = scenario.makespan_s[0] / scenario.makespan_s[i + 1];
                assert!((makespan - scenario.makespan_ratio[i]).abs() < 0.015, "{makespan}");
                let violations = f64::from(scenario.violations[0]) / f64::from(scenario.violations[i + 1]);
                assert!((violations - scenario.violation_ratio[i]).abs() < 0.015, "{violations}");
            }
        }
    }

    #[test]
    fn half_of_the_cores_are_warm() {
        let cluster = cluster(4).unwrap();
        assert_eq!(cluster.totals().cpu_milli, 80_000);
        assert_eq!(cluster.totals().devices, [16, 0]);
    }

    #[test]
    fn the_smallest_scenario_runs_and_repeats() {
        let once = || simulate(&SCENARIOS[0], 1, 1, true, None, &|_| {}).unwrap();
        let run = once();
        assert_eq!((run.summary.jobs, run.summary.ended), (128, 128));
        assert!(run.summary.remote_percent > 0.0);
        let (_, outcome) = run.details.unwrap();
        assert_eq!(outcome.samples[0].cpu_milli, 40_000);
        assert_eq!(outcome, once().details.unwrap().1);
        let firmament = simulate(&SCENARIOS[0], 0, 1, false, None, &|_| {}).unwrap();
        assert_eq!(firmament.summary.remote_percent, 0.0);
        assert!(firmament.summary.gpu_percent <= 50.0 + 1e-9);
    }

    #[test]
    fn cells_are_compared_as_printed() {
        let cell = Cell { published: 1.20, ours: 1.196, spread: 0.1 };
        assert!(cell.reached());
        assert!(!Cell { ours: 1.19, ..cell }.reached());
        assert!(Cell { ours: f64::INFINITY, ..cell }.reached());
        assert_eq!(cell.text(), "1.20 ±0.10");
    }
}
