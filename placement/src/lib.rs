//! Which job gets which CPUs and GPUs, or waits: pure functions of (cluster, jobs, time).
//!
//! No clock, no I/O, no threads; randomness comes from a seed that the caller passes.
//!
//! - [`Cluster`]: nodes, devices, switches; built and checked once by a [`ClusterBuilder`].
//! - [`Job`], [`Task`], [`DeviceRequest`]: what is to be placed; [`Profile`]: how an application behaves.
//! - [`ClusterState`]: what runs now and what is free; completion times follow from it.
//! - [`learning`]: profiles from runs.
//! - [`part`]: whether a job gets a whole device or a part of it, by its deadline.
//! - [`Queue`]: what waits, longest first.
//! - [`Policy`]: looks at a state and at waiting jobs, and gives [`Decisions`]; the [`PolicyTable`] says which there are,
//!   and [`PolicyConfig`] builds one.
//! - [`series`], [`harvest`]: statistics of what was measured, and what they say about sharing a device; [`spread`]: what profiles
//!   say about spreading a job over nodes.
//!
//! `docs/placement.md` has the model and the contract in prose.

mod cluster;
pub mod cost;
mod decisions;
mod error;
pub mod flow;
pub mod harvest;
mod ids;
mod job;
pub mod learning;
mod observed;
pub mod part;
mod placement;
pub mod policy;
mod profile;
mod queue;
mod reach;
mod rng;
pub mod series;
mod sharing;
pub mod spread;
mod state;
mod usage;

pub use cluster::{
    Cluster, ClusterBuilder, Device, DeviceSpec, Node, NodeSpec, NumaSpec, Switch, SwitchSpec, Totals, WHOLE,
};
pub use error::{Error, Phase};
pub use ids::{
    CapabilitySet, DeviceId, DeviceKind, JobId, LinkId, ModelId, ModelSet, NodeId, ProfileId, SwitchId,
};
pub use job::{DeviceRequest, Job, Task};
pub use observed::{Observed, Size};
pub use placement::{Grant, Placement, RegionShare, TaskPlacement};
pub use policy::{Decisions, Explanation, Policy, PolicyConfig, PolicyKind, PolicyTable, Reason, Work};
pub use profile::{Conditions, Interference, Profile, Profiles};
pub use queue::{Queue, Waiting};
pub use reach::reachable;
pub use rng::Rng;
pub use sharing::Sharing;
pub use state::{ClusterState, Running};
pub use usage::Usage;
