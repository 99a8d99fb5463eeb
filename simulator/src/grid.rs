//! Policies × workloads × seeds: one table and two plots for each workload, beside each other in one report.
//!
//! A cell is one simulation as [`Study::run`] does it. What a cell's policy can never place is said in that cell; the others
//! go on.

use std::path::Path;

use rgpu_placement::PolicyConfig;
use serde_json::{Value, json};

use crate::engine::{Progress, Rounds};
use crate::error::{Error, Result};
use crate::parallel;
use crate::plot::{Plot, Series, cdf};
use crate::report::{Summary, gpus_over_time, write};
use crate::statistics::{deviation, mean};
use crate::study::{Input, Source, Study, create};

/// A workload of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// What reports and files call it: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// What it is, for the report.
    pub about: String,
    /// What to load. The seed is replaced by the grid's.
    pub input: Input,
}

/// A policy of the grid.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What reports call it: the policy's name and what is set of it.
    pub name: String,
    /// The policy and its settings. The seed is replaced by the grid's.
    pub config: PolicyConfig,
}

/// What is to be simulated.
#[derive(Clone, Debug)]
pub struct Grid {
    /// The workloads.
    pub loads: Vec<Load>,
    /// The policies.
    pub variants: Vec<Variant>,
    /// Seeds 1 to this: of made-up jobs, of arrival times, and of policies that draw lots.
    pub seeds: u64,
    /// When the scheduler is called.
    pub rounds: Rounds,
}

/// One simulation of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The number of the workload.
    pub load: usize,
    /// The number of the policy.
    pub variant: usize,
    /// The seed.
    pub seed: u64,
    /// What came of it, or why it could not be simulated.
    pub result: Result<Ran, String>,
}

/// What a cell that was simulated keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Makespan, waiting times and the rest.
    pub summary: Summary,
    /// The GPUs given over time.
    pub gpus: Series,
    /// From submission to start, in seconds, of the jobs that started.
    pub waits_s: Vec<f64>,
}

/// A grid whose workloads are loaded.
pub struct Loaded<'a> {
    grid: &'a Grid,
    /// By workload and seed.
    studies: Vec<Vec<Result<Study, String>>>,
}

/// A number of the summary that the report has a column for.
struct Column {
    name: &'static str,
    value: fn(&Summary) -> f64,
    decimals: usize,
}

const COLUMNS: [Column; 8] = [
    Column { name: "makespan [s]", value: |summary| summary.makespan_s, decimals: 1 },
    Column { name: "wait [s]", value: |summary| summary.mean_wait_s, decimals: 2 },
    Column { name: "99th percentile [s]", value: |summary| summary.p99_wait_s, decimals: 1 },
    Column { name: "slow-down", value: |summary| summary.mean_slowdown, decimals: 3 },
    Column { name: "violations", value: |summary| summary.violations as f64, decimals: 1 },
    Column { name: "GPUs [%]", value: |summary| summary.gpu_percent, decimals: 2 },
    Column { name: "remote [%]", value: |summary| summary.remote_percent, decimals: 2 },
    Column { name: "never ended", value: |summary| (summary.jobs - summary.ended) as f64, decimals: 1 },
];

impl Grid {
    /// Loads the workloads with every seed. A file that cannot be read ends it; a workload that makes no sense on its cluster
    /// is told in its cells.
    pub fn load(&self) -> Result<Loaded<'_>> {
        if self.seeds == 0 {
            return Err(Error::Option("At least one seed is needed".into()));
        }
        if self.loads.is_empty() || self.variants.is_empty() {
            return Err(Error::Option("At least one workload and one policy are needed".into()));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        for (i, load) in self.loads.iter().enumerate() {
            if load.name.is_empty() || load.name.starts_with('.') || !load.name.chars().all(plain) {
                return Err(Error::Option(format!(
                    "{:?} cannot be a workload's name, which files are called by: letters, digits, -, _ and . can",
                    load.name
                )));
            }
            if self.loads[..i].iter().any(|other| other.name == load.name) {
                return Err(Error::Option(format!("Two workloads are named {:?}", load.name)));
            }
        }
        for (i, variant) in self.variants.iter().enumerate() {
            if self.variants[..i].iter().any(|other| other.name == variant.name) {
                return Err(Error::Option(format!("The policy {:?} is there twice", variant.name)));
            }
        }
        let study = |load: &Load, seed| {
            let mut input = Input { seed, ..load.input.clone() };
            if let Source::MadeUp(workload) = &mut input.jobs {
                workload.seed = seed;
            }
            match Study::load(&input) {
                Err(error @ Error::Read { .. }) => Err(error),
                Err(error) => Ok(Err(error.to_string())),
                Ok(study) => Ok(Ok(study)),
            }
        };
        let of_load = |load| (1..=self.seeds).map(|seed| study(load, seed)).collect::<Result<Vec<_>>>();
        Ok(Loaded { grid: self, studies: self.loads.iter().map(of_load).collect::<Result<_>>()? })
    }
}

impl Loaded<'_> {
    /// How many jobs all simulations have together.
    pub fn jobs(&self) -> u64 {
        let jobs = self.studies.iter().flatten().flatten().map(|study| study.jobs.jobs.len() as u64);
        jobs.sum::<u64>() * self.grid.variants.len() as u64
    }

    /// Simulates all cells, on up to so many threads.
    pub fn run(&self, threads: usize, progress: &Progress<'_>) -> Result<Vec<Cell>> {
        let (loads, variants) = (0..self.grid.loads.len(), self.grid.variants.len());
        let cells: Vec<(usize, usize, u64)> = loads
            .flat_map(|load| (0..variants).map(move |variant| (load, variant)))
            .flat_map(|(load, variant)| (1..=self.grid.seeds).map(move |seed| (load, variant, seed)))
            .collect();
        parallel::map(&cells, threads, |&(load, variant, seed)| {
            let result = match &self.studies[load][seed as usize - 1] {
                Ok(study) => self.cell(study, variant, seed, progress),
                Err(why) => Err(why.clone()),
            };
            Ok(Cell { load, variant, seed, result })
        })
    }

    fn cell(&self, study: &Study, variant: usize, seed: u64, progress: &Progress<'_>) -> Result<Ran, String> {
        let Variant { name, config } = &self.grid.variants[variant];
        let config = config.clone().with_seed(seed);
        let told = |error: Error| error.to_string();
        let misfit = study.jobs.jobs.iter().find_map(|submission| {
            submission.job.check(&study.cluster, study.profiles.len(), config.disaggregates()).err()
        });
        if let Some(error) = misfit {
            progress(study.jobs.jobs.len());
            return Err(error.to_string());
        }
        let studied = study
            .run(std::slice::from_ref(&config), self.grid.rounds, &[], 1, None, progress)
            .map_err(told)?;
        let one = studied.into_iter().next().ok_or("nothing was simulated")?;
        let pairs = study.jobs.jobs.iter().zip(&one.outcome.jobs);
        let waits = pairs.filter_map(|(job, outcome)| Some(outcome.start?.since(job.at).seconds()));
        Ok(Ran { summary: one.summary, gpus: gpus_over_time(name, &one.outcome), waits_s: waits.collect() })
    }
}

impl Grid {
    /// The cells of a workload under a policy that were simulated, in the order of the seeds.
    fn ran<'c>(&self, cells: &'c [Cell], load: usize, variant: usize) -> Vec<&'c Ran> {
        let of_both = cells.iter().filter(|cell| cell.load == load && cell.variant == variant);
        of_both.filter_map(|cell| cell.result.as_ref().ok()).collect()
    }

    /// Why cells of a workload under a policy could not be simulated, each reason once.
    fn refused<'c>(&self, cells: &'c [Cell], load: usize, variant: usize) -> Vec<&'c str> {
        let of_both = cells.iter().filter(|cell| cell.load == load && cell.variant == variant);
        let mut why: Vec<&str> =
            of_both.filter_map(|cell| cell.result.as_ref().err()).map(String::as_str).collect();
        why.dedup();
        why
    }

    /// The report as Markdown: a table for each workload, with means and sample standard deviations over the seeds.
    pub fn markdown(&self, cells: &[Cell]) -> String {
        let mut text = format!(
            "# {} policies, {} workloads, {} seeds\n\nEach number is the mean over the seeds, ± the sample standard \
             deviation. The scheduler was called {}.\n",
            self.variants.len(),
            self.loads.len(),
            self.seeds,
            match self.rounds {
                Rounds::Every(interval) => format!("every {} s while jobs waited", interval.seconds()),
                Rounds::OnChange(_) => "whenever a job came or ended".to_owned(),
            }
        );
        for (load, about) in self.loads.iter().enumerate() {
            text += &format!("\n## {}\n\n{}.\n\n| policy | jobs |", about.name, about.about);
            COLUMNS.iter().for_each(|column| text += &format!(" {} |", column.name));
            text += &format!("\n|---|{}\n", "---|".repeat(COLUMNS.len() + 1));
            let mut refused = String::new();
            for (variant, named) in self.variants.iter().enumerate() {
                let ran = self.ran(cells, load, variant);
                for why in self.refused(cells, load, variant) {
                    refused += &format!("* `{}` was not simulated: {why}.\n", named.name);
                }
                if ran.is_empty() {
                    text += &format!("| `{}` |{}\n", named.name, " – |".repeat(COLUMNS.len() + 1));
                    continue;
                }
                text += &format!("| `{}` | {} |", named.name, ran[0].summary.jobs);
                for column in &COLUMNS {
                    let values: Vec<f64> = ran.iter().map(|ran| (column.value)(&ran.summary)).collect();
                    let decimals = column.decimals;
                    text += &format!(" {:.decimals$} ±{:.decimals$} |", mean(&values), deviation(&values));
                }
                text.push('\n');
            }
            if !refused.is_empty() {
                text += &format!("\n{refused}");
            }
            let any = (0..self.variants.len()).any(|variant| !self.ran(cells, load, variant).is_empty());
            if cfg!(feature = "plot") && any {
                for (file, what) in
                    [("gpus", "GPUs given, the first seed"), ("waits", "Waiting times, all seeds")]
                {
                    text += &format!("\n![{what}]({}-{file}.svg)\n", about.name);
                }
            }
        }
        text
    }

    /// All cells, and the means over the seeds, as JSON.
    pub fn json(&self, cells: &[Cell]) -> Value {
        let names = |load: usize, variant: usize| (&self.loads[load].name, &self.variants[variant].name);
        let run = |cell: &Cell| {
            let (load, variant) = names(cell.load, cell.variant);
            let mut value = match &cell.result {
                Ok(ran) => ran.summary.json(),
                Err(why) => json!({ "refused": why }),
            };
            value["workload"] = json!(load);
            value["policy"] = json!(variant);
            value["seed"] = json!(cell.seed);
            value
        };
        let mut means = Vec::new();
        for load in 0..self.loads.len() {
            for variant in 0..self.variants.len() {
                let ran = self.ran(cells, load, variant);
                let (workload, policy) = names(load, variant);
                let mut value = json!({ "workload": workload, "policy": policy, "seeds": ran.len() });
                for column in COLUMNS.iter().filter(|_| !ran.is_empty()) {
                    let values: Vec<f64> = ran.iter().map(|ran| (column.value)(&ran.summary)).collect();
                    value[column.name] = json!({ "mean": mean(&values), "deviation": deviation(&values) });
                }
                means.push(value);
            }
        }
        let loads: Vec<Value> =
            self.loads.iter().map(|load| json!({ "name": load.name, "about": load.about })).collect();
        json!({
            "workloads": loads,
            "policies": self.variants.iter().map(|variant| &variant.name).collect::<Vec<_>>(),
            "seeds": self.seeds,
            "runs": cells.iter().map(run).collect::<Vec<_>>(),
            "means": means,
        })
    }

    /// File names and plots: for each workload the GPUs given over time with the first seed, and the waiting times of all seeds.
    pub fn plots(&self, cells: &[Cell]) -> Vec<(String, Plot)> {
        let mut plots = Vec::new();
        for (load, named) in self.loads.iter().enumerate() {
            let (mut gpus, mut waits) = (Vec::new(), Vec::new());
            for (variant, policy) in self.variants.iter().enumerate() {
                let ran = self.ran(cells, load, variant);
                let Some(first) = ran.first() else { continue };
                gpus.push(first.gpus.clone());
                waits.push(cdf(
                    &policy.name,
                    ran.iter().flat_map(|ran| ran.waits_s.iter().copied()).collect(),
                ));
            }
            if gpus.is_empty() {
                continue;
            }
            let plot = |title: &str, x: &str, y: &str, series| Plot {
                title: format!("{title}: {}", named.name),
                x: x.into(),
                y: y.into(),
                steps: true,
                log_x: false,
                series,
            };
            plots.push((format!("{}-gpus.svg", named.name), plot("GPUs given", "time [s]", "GPUs", gpus)));
            let waits = plot("Waiting times", "time from submission to start [s]", "jobs [%]", waits);
            plots.push((format!("{}-waits.svg", named.name), waits));
        }
        plots
    }

    /// Writes `report.md`, `report.json` and the plots into a folder, which is made if it is not there.
    pub fn write(&self, folder: &Path, cells: &[Cell]) -> Result<()> {
        create(folder)?;
        write(&folder.join("report.md"), &self.markdown(cells))?;
        write(&folder.join("report.json"), &format!("{:#}\n", self.json(cells)))?;
        for (name, plot) in self.plots(cells).into_iter().filter(|_| cfg!(feature = "plot")) {
            plot.write(&folder.join(name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::openb::Assumptions;
    use crate::time::Micros;
    use crate::workload::{Mix, Workload};

    fn input(cluster: &str, jobs: Source) -> Input {
        Input {
            cluster: data(cluster),
            switches: None,
            profiles: None,
            jobs,
            rate: None,
            seed: 0,
            assumptions: Assumptions::default(),
        }
    }

    fn data(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
    }

    fn grid() -> Grid {
        let load = |name: &str, input| Load { name: name.into(), about: format!("The {name}"), input };
        let mix = Workload { jobs: 12, rate: 4.0, mix: Mix::Uniform, goal: Some(1.5), seed: 0 };
        let variant = |name: &str| Variant { name: name.into(), config: PolicyConfig::named(name).unwrap() };
        Grid {
            loads: vec![
                load("mix", input("cluster.csv", Source::MadeUp(mix))),
                load("pods", input("nodes-openb.csv", Source::File(data("pods-openb.csv")))),
                // These pods' jobs are for another cluster, which has nodes of these names.
                load("elsewhere", input("nodes-openb.csv", Source::File(data("jobs.csv")))),
            ],
            variants: ["drmaestro", "random", "fgd"].map(variant).to_vec(),
            seeds: 2,
            rounds: Rounds::Every(Micros(1_000_000)),
        }
    }

    /// All that a grid writes.
    fn written(grid: &Grid, threads: usize) -> (String, Vec<Cell>) {
        let loaded = grid.load().unwrap();
        let done = std::sync::atomic::AtomicUsize::new(0);
        let count = |jobs| {
            done.fetch_add(jobs, std::sync::atomic::Ordering::Relaxed);
        };
        let cells = loaded.run(threads, &count).unwrap();
        assert_eq!(done.into_inner() as u64, loaded.jobs());
        let mut text = grid.markdown(&cells) + &grid.json(&cells).to_string();
        for (name, plot) in grid.plots(&cells) {
            text += &format!("{name} {plot:?}");
        }
        (text, cells)
    }

    #[test]
    fn the_same_bytes_with_any_number_of_threads() {
        let (one, cells) = written(&grid(), 1);
        assert_eq!(written(&grid(), 3).0, one);
        assert_eq!(cells.len(), 3 * 3 * 2);
        let seeds: Vec<&Ran> = cells[..2].iter().map(|cell| cell.result.as_ref().unwrap()).collect();
        assert_ne!(seeds[0].summary, seeds[1].summary, "another seed makes up other jobs");
    }

    #[test]
    fn what_cannot_be_simulated_says_why_in_its_cell() {
        let grid = grid();
        let (_, cells) = written(&grid, 2);
        assert!(cells[..12].iter().all(|cell| cell.result.is_ok()));
        assert!(cells[12..].iter().all(|cell| cell.result.is_err()));
        let report = grid.markdown(&cells);
        let (simulated, refused) = report.split_once("## elsewhere").unwrap();
        assert!(!simulated.contains("was not simulated") && simulated.contains("![GPUs given"));
        assert!(refused.contains("* `fgd` was not simulated: ") && !refused.contains("![GPUs given"));
        assert_eq!(grid.plots(&cells).len(), 4);
        // A job that only remote devices can serve is refused to policies that give none.
        let folder = std::env::temp_dir().join(format!("rgpu-grid-{}", std::process::id()));
        create(&folder).unwrap();
        let (nodes, jobs) = (folder.join("nodes.csv"), folder.join("jobs.csv"));
        write(&nodes, "name,cpu_milli,memory_mib,count,nic_mbps,gpus\nn,8000,1000,2,10000,1\n").unwrap();
        write(&jobs, "name,duration_s,gpus,cpu_milli,memory_mib\nj,5,2,1000,1\n").unwrap();
        let mut two = grid.clone();
        two.loads = vec![Load {
            name: "two".into(),
            about: "One job".into(),
            input: Input { cluster: nodes, ..input("", Source::File(jobs)) },
        }];
        let cells = two.load().unwrap().run(1, &|_| {}).unwrap();
        let results: Vec<bool> = cells.iter().map(|cell| cell.result.is_ok()).collect();
        assert_eq!(results, [true, true, false, false, false, false]);
        two.write(&folder.join("out"), &cells).unwrap();
        assert!(std::fs::read_to_string(folder.join("out/report.md")).unwrap().contains("| `random` | – |"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn names_that_files_cannot_have_and_missing_files_are_refused() {
        let fails = |change: &dyn Fn(&mut Grid)| {
            let mut grid = grid();
            change(&mut grid);
            grid.load().err().unwrap().to_string()
        };
        assert!(fails(&|grid| grid.loads[0].name = "a/b".into()).contains("\"a/b\""));
        assert!(fails(&|grid| grid.loads[1].name = "mix".into()).contains("Two workloads"));
        assert!(fails(&|grid| grid.variants[1] = grid.variants[0].clone()).contains("twice"));
        assert!(fails(&|grid| grid.seeds = 0).contains("seed"));
        assert!(fails(&|grid| grid.loads[0].input.cluster = "nowhere.csv".into()).contains("nowhere.csv"));
    }
}
