//! The experiments of papers, repeated: what was published beside what comes of them here.
//!
//! Each paper is a module with a row in [`PAPERS`]. What a paper only draws, or leaves open, its module fixes once, with the
//! reason, for all its runs; `docs/profiles.md` has the sources.

mod cells;
pub mod drmaestro;
mod kube_knots;
mod sns;
pub mod thesis;

use crate::engine::{Clock, Progress};
use crate::error::{Error, Result};
use crate::plot::Plot;

/// A row of the table: a paper whose experiments can be repeated.
#[derive(Debug)]
pub struct Paper {
    /// The name by which people choose it.
    pub name: &'static str,
    /// Whose experiments these are and what they compare, in one line without a full stop.
    pub about: &'static str,
    /// The tables and figures that can be chosen one at a time.
    pub parts: &'static [&'static str],
    /// What progress is counted in.
    pub unit: &'static str,
    /// How many of these units a run with such options has.
    pub total: fn(&Options<'_>) -> u64,
    /// Runs the experiments. The options were checked.
    pub run: fn(&Options<'_>) -> Result<Report>,
}

/// All papers.
pub static PAPERS: &[Paper] =
    &[drmaestro::PAPER, thesis::nvme::PAPER, thesis::vgpu::PAPER, sns::PAPER, kube_knots::PAPER];

/// What is to be run, and how.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Only the experiments of this table or figure.
    pub part: Option<&'a str>,
    /// How many seeds.
    pub seeds: u64,
    /// How many simulations at once.
    pub threads: usize,
    /// Tells how long scheduling rounds take.
    pub clock: Option<&'a Clock<'a>>,
    /// Is told how many units were done.
    pub progress: &'a Progress<'a>,
}

/// What came of a paper's experiments.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Tables of published results and ours.
    pub text: String,
    /// The paper's figures: file names and plots.
    pub plots: Vec<(String, Plot)>,
    /// How long scheduling rounds took, in microseconds, by what was scheduled. Nothing else depends on it.
    pub times: Vec<(String, Vec<u64>)>,
}

impl Paper {
    /// The paper of this name.
    pub fn named(name: &str) -> Result<&'static Paper> {
        PAPERS.iter().find(|paper| paper.name == name).ok_or_else(|| {
            let names: Vec<&str> = PAPERS.iter().map(|paper| paper.name).collect();
            Error::Option(format!("There is no paper {name:?} here; there are {}", names.join(", ")))
        })
    }

    /// Checks the options, and says what is wrong with them.
    pub fn check(&self, options: &Options<'_>) -> Result<()> {
        if let Some(part) = options.part
            && !self.parts.contains(&part)
        {
            return Err(Error::Option(format!(
                "The experiments of {} have no table or figure {part:?}; they have {}",
                self.name,
                self.parts.join(", ")
            )));
        }
        if options.seeds == 0 {
            return Err(Error::Option("At least one seed is needed".into()));
        }
        Ok(())
    }

    /// Runs the experiments.
    pub fn run(&self, options: &Options<'_>) -> Result<Report> {
        self.check(options)?;
        (self.run)(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn papers_and_their_parts_are_checked() {
        for paper in PAPERS {
            assert!(std::ptr::eq(Paper::named(paper.name).unwrap(), paper));
            let good =
                Options { part: Some(paper.parts[0]), seeds: 1, threads: 1, clock: None, progress: &|_| {} };
            paper.check(&good).unwrap();
            assert!((paper.total)(&good) > 0, "{}", paper.name);
            let unknown = paper.check(&Options { part: Some("nothing"), ..good }).unwrap_err();
            assert!(unknown.to_string().contains(paper.parts[0]), "{unknown}");
            assert!(paper.check(&Options { seeds: 0, ..good }).is_err());
        }
        assert!(Paper::named("another").unwrap_err().to_string().contains("drmaestro"));
    }
}
