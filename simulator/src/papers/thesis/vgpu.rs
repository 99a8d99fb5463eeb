//! Chapter 5: GPUs that are divided among jobs, beside NVMes.

use super::apps::App;
use super::experiment::{Experiment, FIRST_FIT, Infrastructure};
use super::ideal::Load;
use super::nvme::{grid, nodes};
use super::{Part, Studied, TARGETS, run_parts, text, total};
use crate::papers::{Paper, Report};
use crate::report::align;

/// The paper's row.
pub(in crate::papers) const PAPER: Paper = Paper {
    name: "vgpu",
    about: "Partitioned and disaggregated GPUs beside NVMes (chapter 5 of the thesis)",
    parts: &["figure-5.5", "figure-5.6", "figure-5.7", "figure-5.8"],
    unit: "simulations",
    total: |options| total(&PARTS, options),
    run: |options| Ok(Report { text: run_parts(&PARTS, options)?, ..Report::default() }),
};

/// The policies compared: first-fit, that of chapter 4, that of chapter 5.
const POLICIES: [&str; 3] = [FIRST_FIT, "disaggregation-aware", "heterogeneity-aware"];

/// Table 5.3. The parts of the third scenario add up to 0.9 there; they are taken as proportions.
const SCENARIOS: [(&str, [f64; App::ALL.len()]); 3] = [
    ("S1 NVMe-intensive", [0.5, 0.2, 0.2, 0.1, 0.0]),
    ("S2 GPU-intensive", [0.1, 0.0, 0.1, 0.8, 0.0]),
    ("S3 mixed", [0.2, 0.2, 0.1, 0.4, 0.0]),
];

/// The load factors drawn.
const LOADS: [f64; 4] = [0.9, 0.8, 0.7, 0.6];
/// Overheads of a GPU over the network.
const OVERHEADS: [f64; 6] = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05];

static PARTS: [Part; 4] = [
    Part { name: "figure-5.5", experiments: by_splitting, report: splitting },
    Part {
        name: "figure-5.6",
        experiments: by_infrastructure,
        report: |studied| nodes("Figure 5.6", studied),
    },
    Part { name: "figure-5.7", experiments: by_load, report: loads },
    Part { name: "figure-5.8", experiments: by_overhead, report: overheads },
];

/// The defaults of table 5.2.
fn of_chapter_5(scenario: usize, target: f64, policy: &'static str) -> Experiment {
    let (name, mix) = SCENARIOS[scenario];
    Experiment { name, gpus: 1, ..Experiment::of_chapter_4(mix, target, policy) }
}

/// The three pools of GPUs that are compared: how many, and whether they are divided.
const POOLS: [(usize, bool, &str); 3] =
    [(1, false, "1 unsplittable"), (1, true, "1 splittable"), (2, false, "2 unsplittable")];

fn by_splitting() -> Vec<Experiment> {
    let mut experiments = Vec::new();
    for scenario in 0..SCENARIOS.len() {
        for policy in POLICIES {
            for target in TARGETS {
                for (gpus, splits, _) in POOLS {
                    experiments.push(Experiment { gpus, splits, ..of_chapter_5(scenario, target, policy) });
                }
            }
        }
    }
    experiments
}

fn splitting(studied: &[Studied]) -> String {
    let mut rows = vec![vec!["Figure 5.5, missed deadlines %".to_owned()]];
    rows[0].extend(POOLS.map(|(.., name)| name.to_owned()));
    for pools in studied.chunks(POOLS.len()) {
        let experiment = &pools[0].experiment;
        let mut row = vec![format!("{}, {} {}", experiment.name, experiment.target, experiment.policy)];
        row.extend(pools.iter().map(|one| text(one.mean(|run| run.missed_percent), 2)));
        rows.push(row);
    }
    align(&rows)
}

fn by_infrastructure() -> Vec<Experiment> {
    let mut experiments = Vec::new();
    for scenario in 0..SCENARIOS.len() {
        let one = of_chapter_5(scenario, 0.7, "heterogeneity-aware");
        experiments.push(Experiment { infrastructure: Infrastructure::Attached, ..one.clone() });
        experiments.push(one.clone());
        experiments.push(Experiment { splits: true, ..one });
    }
    experiments
}

/// The heterogeneous pool of section 5.4.3: three NVMes and a GPU that is not divided, at that load of the NVMes.
fn scarce(scenario: usize, target: f64, policy: &'static str) -> Experiment {
    Experiment { nvmes: 3, load: Load::Nvme, ..of_chapter_5(scenario, target, policy) }
}

fn by_load() -> Vec<Experiment> {
    let mut experiments = Vec::new();
    for scenario in 0..SCENARIOS.len() {
        for policy in POLICIES {
            experiments.extend(LOADS.map(|target| scarce(scenario, target, policy)));
        }
    }
    experiments
}

fn loads(studied: &[Studied]) -> String {
    let title = "Figure 5.7, missed deadlines %, by load factor of the NVMes";
    let table = grid(
        title,
        studied,
        |one| one.experiment.target.to_string(),
        |one| text(one.mean(|run| run.missed_percent), 2),
    );
    let mut rows = vec![vec![
        "fewer misses of heterogeneity-aware %".to_owned(),
        "than chapter 4's".into(),
        "than first-fit".into(),
    ]];
    for scenario in 0..SCENARIOS.len() {
        for (i, target) in LOADS.iter().enumerate() {
            let at = |policy: usize| studied[(scenario * POLICIES.len() + policy) * LOADS.len() + i].missed();
            let fewer = |policy: usize| match at(policy) {
                0.0 => String::new(),
                theirs => format!("{:.0}", (1.0 - at(2) / theirs) * 100.0),
            };
            rows.push(vec![format!("{}, {target}", SCENARIOS[scenario].0), fewer(1), fewer(0)]);
        }
    }
    format!("{table}\n{}", align(&rows))
}

fn by_overhead() -> Vec<Experiment> {
    let mut experiments = Vec::new();
    for scenario in 0..SCENARIOS.len() {
        for policy in POLICIES {
            let one = |overhead| Experiment { overhead, ..scarce(scenario, 0.8, policy) };
            experiments.extend(OVERHEADS.map(one));
        }
    }
    experiments
}

fn overheads(studied: &[Studied]) -> String {
    let title = "Figure 5.8, missed deadlines %, by overhead of a disaggregated GPU in % (load factor 0.8)";
    grid(
        title,
        studied,
        |one| format!("{:.0}", one.experiment.overhead * 100.0),
        |one| text(one.mean(|run| run.missed_percent), 2),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_gpu_serves_several() {
        let missed = |gpus, splits| {
            let one = Experiment { gpus, splits, ..of_chapter_5(2, 0.6, "heterogeneity-aware") };
            one.run(1).unwrap().missed_percent
        };
        assert!(missed(1, true) < missed(1, false) / 2.0);
    }
}
