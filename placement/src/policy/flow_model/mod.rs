//! `drmaestro` and `firmament`: the flow model, solved phase by phase.
//!
//! A round takes the waiting jobs in batches, the longest waiting first. For a batch, the first phase's network
//! decides in which node each task's server-centric resources are ([`phases`]); then, for each kind of
//! disaggregated device, a network decides from which node each sub-task (device) comes, the task's own node being
//! preferred. A job that misses anything is taken back as a whole, and is tried once more alone ([`solo`]), because
//! two gangs can keep each other from their last device. A network with a single task needs no solver: its
//! cheapest arc is its optimum.

mod explaining;
mod others;
mod pass;
mod phases;
mod places;
pub(super) mod settings;
mod slivers;
mod solo;
mod taking;
mod view;

use super::explain::{Explanation, Watched};
use super::fragmentation::Fragmentation;
use super::{Decisions, Policy, PolicyConfig};
use crate::cluster::WHOLE;
use crate::error::Error;
use crate::ids::JobId;
use crate::job::Job;
use crate::queue::Waiting;
use crate::state::ClusterState;
use crate::usage::Usage;
use places::Places;
use settings::FlowSettings;
use view::View;

/// Both policies: they differ in their settings.
#[derive(Debug)]
pub(super) struct FlowModel {
    name: &'static str,
    settings: FlowSettings,
    fragmentation: Fragmentation,
    learnt: Vec<bool>,
    /// How many jobs were seen, and how long they take alone in all.
    seen: u64,
    seen_work_s: f64,
    scratch: Option<Usage>,
    places: Places,
    watched: Watched,
}

impl FlowModel {
    /// The flow model with remote devices.
    pub(super) fn drmaestro(config: &PolicyConfig) -> FlowModel {
        FlowModel::new(config, FlowSettings::drmaestro(config))
    }

    /// The flow model with local devices only.
    pub(super) fn firmament(config: &PolicyConfig) -> FlowModel {
        FlowModel::new(config, FlowSettings::firmament(config))
    }

    fn new(config: &PolicyConfig, settings: FlowSettings) -> FlowModel {
        FlowModel {
            name: config.name(),
            settings,
            fragmentation: Fragmentation::new(&config.typical),
            learnt: Vec::new(),
            seen: 0,
            seen_work_s: 0.0,
            scratch: None,
            places: Places::default(),
            watched: Watched::default(),
        }
    }

    fn learn(&mut self, state: &ClusterState, job: &Job) {
        let i = job.id.index();
        if self.learnt.len() <= i {
            self.learnt.resize(i + 1, false);
        }
        if !std::mem::replace(&mut self.learnt[i], true) {
            job.tasks.iter().for_each(|task| self.fragmentation.observe(task));
            self.seen_work_s += state.profiles().get(job.profile).best_s() * job.scale;
            self.seen += 1;
        }
    }
}

impl Policy for FlowModel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn schedule(
        &mut self,
        state: &ClusterState,
        waiting: &[Waiting],
        now_s: f64,
    ) -> Result<Decisions, Error> {
        for waiting in waiting {
            self.learn(state, &waiting.job);
        }
        self.fragmentation.trim(state.cluster());
        let mut decisions = Decisions::default();
        let mean_work_s = self.seen_work_s / (self.seen.max(1) as f64);
        let mut view = View {
            cluster: state.cluster(),
            profiles: state.profiles(),
            external: state.external_mbps(),
            usage: super::scratch(&mut self.scratch, state),
            settings: &self.settings,
            fragmentation: &mut self.fragmentation,
            work: Default::default(),
            state,
            tolerated: vec![f64::NAN; state.cluster().links()],
            neighbours: vec![None; state.cluster().nodes().len()],
            now_s,
            places: &mut self.places,
            max_sliver: WHOLE,
            mean_work_s,
        };
        view.look_around();
        slivers::place(&mut view, waiting, &mut decisions)?;
        decisions.work = view.work;
        decisions.work.considered = waiting.len() as u64;
        let watched: Vec<&Waiting> = waiting.iter().filter(|w| self.watched.wants(w.job.id)).collect();
        if !watched.is_empty() {
            // The arcs as they were when the round began.
            view.usage.clone_from(state.usage());
            view.tolerated.fill(f64::NAN);
            view.neighbours.fill(None);
            view.max_sliver = WHOLE;
            view.look_around();
        }
        for waiting in watched {
            let explanation = explaining::explain(&mut view, waiting, &decisions);
            self.watched
                .record(waiting.job.id, Explanation { now_s, policy: self.name.to_owned(), ..explanation });
        }
        self.scratch = Some(view.usage);
        Ok(decisions)
    }

    fn watch(&mut self, job: JobId) {
        self.watched.watch(job);
    }

    fn unwatch(&mut self, job: JobId) {
        self.watched.unwatch(job);
    }

    fn explain(&self, job: JobId) -> Option<&Explanation> {
        self.watched.get(job)
    }
}
