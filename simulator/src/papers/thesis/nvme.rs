//! Chapters 3 and 4: NVMes that are composed and shared, in a pool or attached to nodes.

use rgpu_placement::DeviceKind;

use super::apps::{App, profiles};
use super::experiment::{Experiment, FIRST_FIT, Infrastructure, NODES};
use super::measured::Measured;
use super::published::{self, Row};
use super::{Part, Studied, TARGETS, run_parts, text, total};
use crate::papers::{Paper, Report};
use crate::report::align;

/// The paper's row.
pub(in crate::papers) const PAPER: Paper = Paper {
    name: "nvme",
    about: "Disaggregated NVMe: composition and sharing by models of performance (chapters 3 and 4 of the thesis)",
    parts: &[
        "4.3",
        "4.3-even",
        "4.4",
        "4.4-even",
        "4.5",
        "4.5-even",
        "figure-3.7",
        "figure-4.5",
        "figure-4.6",
        "figure-4.7",
        "figure-4.10",
        "figure-4.11",
    ],
    unit: "simulations",
    total: |options| total(&PARTS, options),
    run: |options| Ok(Report { text: run_parts(&PARTS, options)?, ..Report::default() }),
};

/// The thesis's policy of chapter 4.
const AWARE: &str = "disaggregation-aware";

/// A scenario (table 4.2): its name and the parts of [`App::ALL`].
type Scenario = (&'static str, [f64; App::ALL.len()]);

/// High-bandwidth, high-capacity and high-compute.
const SCENARIOS: [Scenario; 3] = [
    ("S1 high-bandwidth", [0.7, 0.1, 0.2, 0.0, 0.0]),
    ("S2 high-capacity", [0.1, 0.7, 0.2, 0.0, 0.0]),
    ("S3 high-compute", [0.2, 0.1, 0.7, 0.0, 0.0]),
];

/// The mixes of section 4.4.6: *fio* instead of all, 70% and half of SMUFIN in the high-bandwidth scenario.
const MIXES: [Scenario; 3] = [
    ("M1 fio only", [0.0, 0.1, 0.2, 0.0, 0.7]),
    ("M2 70% fio", [0.21, 0.1, 0.2, 0.0, 0.49]),
    ("M3 half fio", [0.35, 0.1, 0.2, 0.0, 0.35]),
];

static PARTS: [Part; 12] = [
    Part { name: "4.3", experiments: || tabled(0, false), report: |studied| table(0, studied) },
    Part { name: "4.4", experiments: || tabled(1, false), report: |studied| table(1, studied) },
    Part { name: "4.5", experiments: || tabled(2, false), report: |studied| table(2, studied) },
    Part { name: "4.3-even", experiments: || tabled(0, true), report: |studied| table(0, studied) },
    Part { name: "4.4-even", experiments: || tabled(1, true), report: |studied| table(1, studied) },
    Part { name: "4.5-even", experiments: || tabled(2, true), report: |studied| table(2, studied) },
    Part { name: "figure-3.7", experiments: Vec::new, report: |_| five_instances() },
    Part {
        name: "figure-4.5",
        experiments: by_infrastructure,
        report: |studied| nodes("Figure 4.5", studied),
    },
    Part { name: "figure-4.6", experiments: by_load, report: switching },
    Part { name: "figure-4.7", experiments: by_deadline, report: deadlines },
    Part { name: "figure-4.10", experiments: by_devices, report: devices },
    Part { name: "figure-4.11", experiments: by_mix, report: mixes },
];

/// The rows of a table, in its order, with arrivals as a Poisson process or at equal intervals; after each first-fit row the same with jobs that take as long as measured.
fn tabled(scenario: usize, even: bool) -> Vec<Experiment> {
    let (name, mix) = SCENARIOS[scenario];
    let mut experiments = Vec::new();
    for target in TARGETS {
        for policy in [FIRST_FIT, AWARE] {
            for infrastructure in [Infrastructure::Disaggregated, Infrastructure::Attached] {
                let one = Experiment {
                    name,
                    infrastructure,
                    even,
                    ..Experiment::of_chapter_4(mix, target, policy)
                };
                if policy == FIRST_FIT {
                    experiments.push(Experiment { models: true, ..one.clone() });
                }
                experiments.push(one);
            }
        }
    }
    experiments
}

fn table(scenario: usize, studied: &[Studied]) -> String {
    let head = |first: &[&str]| first.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let mut missed = vec![head(&["load, policy", "missed %", "ours", "high priority %", "ours"])];
    let names = [
        "CPU", "ours", "BW", "ours", "cap.", "ours", "NVMe %", "ours", "wait s", "ours", "size", "ours",
        "sharing", "ours",
    ];
    let mut more = vec![[head(&["load, policy"]), head(&names)].concat()];
    let measures: [fn(&Measured) -> f64; 9] = [
        |run| run.cpu,
        |run| run.bandwidth,
        |run| run.capacity,
        |run| run.missed_percent,
        |run| run.missed_high_percent,
        |run| run.nvme_percent,
        |run| run.wait_s,
        |run| run.composed,
        |run| run.sharing,
    ];
    for one in studied {
        let experiment = &one.experiment;
        let attached = experiment.infrastructure == Infrastructure::Attached;
        let aware = experiment.policy == AWARE;
        let place = if attached { "PA " } else { "" };
        let name = match (aware, experiment.models) {
            (true, _) => "disaggregation-aware",
            (false, false) => "first-fit",
            (false, true) => "first-fit, measured times",
        };
        let label = format!("{} {place}{name}", experiment.target);
        // What the thesis has no row for is shown without anything published.
        let row: Option<&Row> = (aware || !experiment.models).then(|| {
            let target = TARGETS.iter().position(|target| *target == experiment.target).unwrap_or(0);
            &published::TABLES[scenario][target][usize::from(aware) * 2 + usize::from(attached)]
        });
        let cell = |measure: usize, digits: usize| {
            let there = row.map_or(String::new(), |row| format!("{:.digits$}", row[measure]));
            [there, text(one.mean(measures[measure]), digits)]
        };
        missed.push([vec![label.clone()], cell(3, 2).to_vec(), cell(4, 2).to_vec()].concat());
        let rest = [(0, 2), (1, 2), (2, 2), (5, 1), (6, 0), (7, 2), (8, 2)];
        let cells = rest.into_iter().flat_map(|(measure, digits)| cell(measure, digits));
        more.push([vec![label]].into_iter().flatten().chain(cells).collect());
    }
    let even =
        if studied.iter().any(|one| one.experiment.even) { ", arrivals at equal intervals" } else { "" };
    format!(
        "Table 4.{}, {}{even}\n\n{}\n{}",
        scenario + 3,
        SCENARIOS[scenario].0,
        align(&missed),
        align(&more)
    )
}

/// Figure 3.7: five instances of SMUFIN on one device, on two composed ones, and one apart from the other four.
fn five_instances() -> String {
    let Ok(profiles) = profiles(true, 0.0) else { return String::new() };
    let profile = profiles.get(App::Smufin.profile());
    let time = |composed, sharers| {
        let model = profile.sharing.as_ref().filter(|sharing| sharing.kind == DeviceKind::Nvme);
        model.map_or(0.0, |sharing| sharing.time(composed, sharers) * profile.local_s)
    };
    let rows = [
        ("Figure 3.7, five instances of SMUFIN", "seconds".to_owned()),
        ("a) all on one device", format!("{:.0}", time(1, 5))),
        ("b) all on two composed", format!("{:.0}", time(2, 5))),
        ("c) one on its own device", format!("{:.0}", time(1, 1))),
        ("   and four on another", format!("{:.0}", time(1, 4))),
    ];
    align(&rows.map(|(name, value)| vec![name.to_owned(), value]))
}

fn by_infrastructure() -> Vec<Experiment> {
    let (name, mix) = SCENARIOS[0];
    let one =
        |infrastructure| Experiment { name, infrastructure, ..Experiment::of_chapter_4(mix, 0.7, AWARE) };
    [Infrastructure::Disaggregated, Infrastructure::Attached].map(one).to_vec()
}

/// Jobs by node and application.
pub(super) fn nodes(figure: &str, studied: &[Studied]) -> String {
    let mut rows = vec![vec![format!("{figure}, jobs run in a node")]];
    rows[0].extend(App::ALL.map(|app| app.name().to_owned()));
    for one in studied {
        let experiment = &one.experiment;
        let place = match (experiment.infrastructure, experiment.splits) {
            (Infrastructure::Attached, _) => "attached",
            (_, true) => "disaggregated, split GPUs",
            _ => "disaggregated",
        };
        for node in 0..NODES {
            let mut row = vec![format!("{}, {place}, node {node}", experiment.name)];
            let count = |app: App| one.mean(|run| f64::from(run.by_node[node][app as usize])).0;
            row.extend(App::ALL.map(|app| format!("{:.0}", count(app))));
            rows.push(row);
        }
    }
    align(&rows)
}

fn by_load() -> Vec<Experiment> {
    let each = |(name, mix): Scenario| {
        TARGETS.map(|target| Experiment { name, ..Experiment::of_chapter_4(mix, target, AWARE) })
    };
    SCENARIOS.into_iter().flat_map(each).collect()
}

fn switching(studied: &[Studied]) -> String {
    let title = "Figure 4.6, jobs with NVMes placed by maximise-composition, %";
    grid(
        title,
        studied,
        |one| one.experiment.target.to_string(),
        |one| text(one.mean(|run| run.composing_percent), 0),
    )
}

fn both(name: &'static str, one: &Experiment) -> [Experiment; 2] {
    [FIRST_FIT, AWARE].map(|policy| Experiment { name, policy, models: policy != FIRST_FIT, ..one.clone() })
}

fn by_deadline() -> Vec<Experiment> {
    let factors = [1.0, 1.05, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0];
    let mut experiments = Vec::new();
    for (name, mix) in SCENARIOS {
        for tight in factors {
            experiments
                .extend(both(name, &Experiment { tight, ..Experiment::of_chapter_4(mix, 0.7, AWARE) }));
        }
    }
    experiments
}

fn deadlines(studied: &[Studied]) -> String {
    let factor = |one: &Studied| one.experiment.tight.to_string();
    let figure = |title: &str, measure: fn(&Measured) -> f64| {
        grid(title, studied, factor, |one| text(one.mean(measure), 2))
    };
    [
        figure("Figure 4.7, missed deadlines of high priority %, by deadline factor", |run| {
            run.missed_high_percent
        }),
        figure("Figure 4.8, jobs on a composition, by deadline factor", |run| run.sharing),
        figure("Figure 4.9, devices of a composition, by deadline factor", |run| run.composed),
    ]
    .join("\n")
}

fn by_devices() -> Vec<Experiment> {
    let mut experiments = Vec::new();
    for (name, mix) in SCENARIOS {
        for nvmes in (2..=10).rev() {
            let one =
                Experiment { nvmes, ideal_nvmes: Some(10), ..Experiment::of_chapter_4(mix, 0.7, AWARE) };
            experiments.extend(both(name, &one));
        }
    }
    experiments
}

fn devices(studied: &[Studied]) -> String {
    let title = "Figure 4.10, missed deadlines %, by number of NVMes";
    grid(
        title,
        studied,
        |one| one.experiment.nvmes.to_string(),
        |one| text(one.mean(|run| run.missed_percent), 1),
    )
}

fn by_mix() -> Vec<Experiment> {
    let mut experiments = Vec::new();
    for (name, mix) in MIXES {
        for target in TARGETS {
            experiments.extend(both(name, &Experiment::of_chapter_4(mix, target, AWARE)));
        }
    }
    experiments
}

fn mixes(studied: &[Studied]) -> String {
    let title = "Figure 4.11, missed deadlines %, by load factor";
    grid(
        title,
        studied,
        |one| one.experiment.target.to_string(),
        |one| text(one.mean(|run| run.missed_percent), 2),
    )
}

/// A row for each name and policy, and a column for each value of what is varied.
pub(super) fn grid(
    title: &str,
    studied: &[Studied],
    column: impl Fn(&Studied) -> String,
    cell: impl Fn(&Studied) -> String,
) -> String {
    let mut rows: Vec<Vec<String>> = vec![vec![title.to_owned()]];
    for one in studied {
        let name = format!("{}, {}", one.experiment.name, one.experiment.policy);
        let column = column(one);
        if !rows[0].contains(&column) {
            rows[0].push(column);
        }
        match rows.iter_mut().find(|row| row[0] == name) {
            Some(row) => row.push(cell(one)),
            None => rows.push(vec![name, cell(one)]),
        }
    }
    align(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixes_are_whole() {
        for (name, mix) in SCENARIOS.into_iter().chain(MIXES) {
            assert!((mix.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{name}");
        }
    }

    #[test]
    fn a_pool_is_better_than_attached_devices_and_a_model_than_none() {
        let (_, mix) = SCENARIOS[0];
        let missed = |policy, infrastructure| {
            let one = Experiment { infrastructure, ..Experiment::of_chapter_4(mix, 0.8, policy) };
            let measured = one.run(1).unwrap();
            assert!((measured.ideal - 0.8).abs() < 0.01, "{}", measured.ideal);
            measured.missed_percent
        };
        let (pool, attached) = (Infrastructure::Disaggregated, Infrastructure::Attached);
        assert!(missed(AWARE, pool) < missed(FIRST_FIT, pool) / 2.0);
        assert!(missed(AWARE, pool) < missed(AWARE, attached) / 2.0);
    }

    #[test]
    fn without_models_nobody_shares() {
        let (_, mix) = SCENARIOS[2];
        let measured = Experiment::of_chapter_4(mix, 0.6, FIRST_FIT).run(2).unwrap();
        assert_eq!(measured.composed, 1.0);
        assert!(measured.sharing <= 1.0 && measured.sharing > 0.8);
    }
}
