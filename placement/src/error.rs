//! What can be wrong with a cluster, a job or a step.

use crate::ids::{DeviceKind, JobId};

/// Why a cluster, a profile table, a job or a placement was refused. Nothing is changed when one is returned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is no node at all.
    #[error("The cluster has no nodes")]
    EmptyCluster,
    /// Two things of one sort have one name.
    #[error("Two {what}s are named {name:?}")]
    Duplicate {
        /// `node`, `switch`, `profile`, …
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Something refers to a thing that isn't there.
    #[error("{from} refers to the {what} {name:?}, which does not exist")]
    Dangling {
        /// Who refers.
        from: String,
        /// To what sort of thing.
        what: &'static str,
        /// The missing name (or number).
        name: String,
    },
    /// Switches whose uplinks go round in a circle.
    #[error("The uplinks of switch {0:?} lead back to itself")]
    Cycle(String),
    /// A number outside of its range.
    #[error("{what} of {of} is {value}, but must be {must}")]
    Range {
        /// The quantity.
        what: &'static str,
        /// Whose it is.
        of: String,
        /// The number given.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// The job can never run, even were the cluster empty.
    #[error("Job {job:?} can never run in this cluster: {why}")]
    TooBig {
        /// The job's name.
        job: String,
        /// Which demand is too great.
        why: String,
    },
    /// The job runs already.
    #[error("Job {0:?} runs already")]
    Running(JobId),
    /// The job doesn't run.
    #[error("Job {0:?} does not run")]
    NotRunning(JobId),
    /// A placement that does not fit: somebody wants more than is free, or less than was asked for.
    #[error("The placement of job {job:?} is wrong: {why}")]
    BadPlacement {
        /// The job's name.
        job: String,
        /// What is wrong.
        why: String,
    },
    /// No policy has this name.
    #[error("No policy is named {0:?}; there are {1}")]
    UnknownPolicy(String, String),
    /// No policy has a setting of this name.
    #[error("No policy has a setting {0:?}; there are {1}")]
    UnknownSetting(String, String),
    /// A policy's setting has a value of another type, or out of its limits.
    #[error("{name} is {value}: it must be {limits}")]
    Setting {
        /// The setting's name.
        name: &'static str,
        /// The value given.
        value: String,
        /// What it must be.
        limits: String,
    },
    /// Costs too great for the solver's integers.
    #[error("The cost {0} of an arc is negative, not a number, or too great")]
    Cost(f64),
    /// The flow solver failed: a defect, because the model's networks always have a solution.
    #[error("The flow network of the {phase} phase could not be solved: {why}")]
    Solver {
        /// Which phase.
        phase: Phase,
        /// What the solver said.
        why: String,
    },
}

/// The phases of the flow model, solved one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Processors, memory, and whatever isn't disaggregated.
    ServerCentric,
    /// One kind of disaggregated device.
    Device(DeviceKind),
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Phase::ServerCentric => f.write_str("server-centric"),
            Phase::Device(kind) => write!(f, "{kind}"),
        }
    }
}
