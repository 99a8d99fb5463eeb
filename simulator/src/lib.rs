//! Event-driven simulation of clusters and traces, calling the very same `rgpu-placement` policies that the broker calls.
//!
//! Time is simulated, in integers; randomness comes from seeds. The same input gives the same bytes out. Whoever
//! wants to know how long a scheduler thinks passes a [`Clock`], which no result depends on.

pub mod allocation;
mod allocation_report;
mod engine;
mod error;
mod events;
mod formats;
pub mod grid;
mod openb;
pub mod papers;
pub mod parallel;
mod plot;
pub mod report;
pub mod statistics;
pub mod study;
mod table;
mod time;
mod workload;

pub use allocation_report::{PUBLISHED, Trials, Tried};
pub use engine::{Clock, JobOutcome, Outcome, Progress, Rounds, Sample, Setup, WarmUp, run};
pub use error::{Error, Result};
pub use formats::{Application, Applications, Jobs, Submission, load_cluster, load_jobs};
pub use openb::{Assumptions, Pod, load_nodes, load_pods};
pub use plot::{Plot, Series, cdf, worst_to_best};
pub use time::{Micros, Work};
pub use workload::{Mix, Workload, poisson_arrivals};
