//! Chapters 3 to 5 of Aaron Call's thesis *Leveraging Disaggregated Accelerators and Non-Volatile Memories to Improve the Efficiency
//! of Modern Datacenters* (Universitat Politècnica de Catalunya, 2022): NVMes that are composed and shared, and GPUs that are
//! partitioned, all over a network.
//!
//! What chapters 4 and 5 have in common is here: the applications ([`apps`]), the cluster and one simulation ([`experiment`]), the
//! ideal machine that says how much load there is ([`ideal`]), and what is measured ([`measured`]).

pub mod apps;
pub mod experiment;
pub mod ideal;
pub mod measured;
pub mod nvme;
pub mod published;
pub mod vgpu;

use self::experiment::Experiment;
use self::measured::Measured;
use crate::error::Result;
use crate::papers::Options;
use crate::parallel;
use crate::statistics::{deviation, mean};

/// The load factors that the thesis aims at.
pub const TARGETS: [f64; 5] = [0.9, 0.8, 0.7, 0.6, 0.5];

/// An experiment, and what came of it with each seed.
#[derive(Clone, Debug)]
pub struct Studied {
    /// What was simulated.
    pub experiment: Experiment,
    /// By seed.
    pub runs: Vec<Measured>,
}

impl Studied {
    /// The values of a measure, by seed.
    fn values(&self, value: impl Fn(&Measured) -> f64) -> Vec<f64> {
        self.runs.iter().map(value).collect()
    }

    /// The mean of a measure and its standard deviation over the seeds.
    pub fn mean(&self, value: impl Fn(&Measured) -> f64) -> (f64, f64) {
        let values = self.values(value);
        (mean(&values), deviation(&values))
    }

    /// The mean percentage of missed deadlines.
    pub fn missed(&self) -> f64 {
        self.mean(|run| run.missed_percent).0
    }
}

/// A mean and a standard deviation as text.
fn text((mean, deviation): (f64, f64), digits: usize) -> String {
    format!("{mean:.digits$} ±{deviation:.digits$}")
}

/// A table or a figure.
struct Part {
    /// The name by which people choose it.
    name: &'static str,
    /// What is simulated for it.
    experiments: fn() -> Vec<Experiment>,
    /// The report on what came of that.
    report: fn(&[Studied]) -> String,
}

/// The parts that were asked for.
fn chosen<'a>(parts: &'a [Part], options: &Options<'_>) -> impl Iterator<Item = &'a Part> {
    let wanted = options.part.map(str::to_owned);
    parts.iter().filter(move |part| wanted.as_deref().is_none_or(|wanted| wanted == part.name))
}

/// How many simulations that are; at least one, as parts can do without.
fn total(parts: &[Part], options: &Options<'_>) -> u64 {
    let experiments: usize = chosen(parts, options).map(|part| (part.experiments)().len()).sum();
    (experiments as u64 * options.seeds).max(1)
}

/// Runs parts and puts their reports together.
fn run_parts(parts: &[Part], options: &Options<'_>) -> Result<String> {
    let mut reports = Vec::new();
    for part in chosen(parts, options) {
        reports.push((part.report)(&study((part.experiments)(), options)?));
    }
    Ok(reports.join("\n"))
}

/// Runs every experiment with every seed.
fn study(experiments: Vec<Experiment>, options: &Options<'_>) -> Result<Vec<Studied>> {
    let work: Vec<(usize, u64)> = (0..experiments.len())
        .flat_map(|number| (1..=options.seeds).map(move |seed| (number, seed)))
        .collect();
    let runs = parallel::map(&work, options.threads, |(number, seed)| {
        let measured = experiments[*number].run(*seed)?;
        (options.progress)(1);
        Ok((*number, measured))
    })?;
    let mut studied: Vec<Studied> =
        experiments.into_iter().map(|experiment| Studied { experiment, runs: Vec::new() }).collect();
    for (number, run) in runs {
        studied[number].runs.push(run);
    }
    Ok(studied)
}
