//! What a placement does to others: to jobs whose traffic passes the same links, and to neighbours in a node.

use super::view::View;
use crate::cost;
use crate::ids::{LinkId, NodeId};
use crate::job::Job;
use crate::placement::{Placement, TaskPlacement};
use crate::state::Neighbour;

impl View<'_> {
    /// How much traffic a link may carry before a job breaks its objective. Only the network-aware policy asks.
    pub(super) fn tolerance(&mut self, link: LinkId) -> f64 {
        if !self.settings.network_aware {
            return f64::INFINITY;
        }
        let limit = &mut self.tolerated[link.index()];
        if limit.is_nan() {
            *limit = self.state.tolerated_mbps(link);
        }
        *limit
    }

    /// Whether so much more traffic between two nodes would make another job break an objective that it keeps as
    /// yet. Only the network-aware policy asks.
    pub(super) fn disturbs(&mut self, from: NodeId, to: NodeId, mbps: u64) -> bool {
        if !self.settings.network_aware || mbps == 0 {
            return false;
        }
        let mut disturbs = false;
        let (state, usage, tolerated) = (self.state, &self.usage, &mut self.tolerated);
        self.cluster.for_path(from, to, |link| {
            let limit = &mut tolerated[link.index()];
            if limit.is_nan() {
                *limit = state.tolerated_mbps(link);
            }
            let all = usage.link_mbps(link) + self.external[link.index()] + mbps;
            disturbs |= all as f64 > *limit;
        });
        disturbs
    }

    /// Takes note of what a job that was just placed tolerates. (Should it be taken back, the round is a little
    /// too careful; so it isn't, once accepted.)
    pub(super) fn protect(&mut self, job: &Job, placement: &Placement) {
        if !self.settings.network_aware {
            return;
        }
        self.settle(job, placement);
        if job.goal_s.is_none() {
            return;
        }
        for at in &placement.tasks {
            for grant in at.grants.iter().filter(|grant| grant.traffic_mbps > 0) {
                let to = self.cluster.device(grant.device).node;
                [at.node, to].into_iter().for_each(|node| self.usage.note(node));
                let (state, usage, tolerated) = (self.state, &self.usage, &mut self.tolerated);
                let external = self.external;
                self.cluster.for_path(at.node, to, |link| {
                    let limit = &mut tolerated[link.index()];
                    if limit.is_nan() {
                        *limit = state.tolerated_mbps(link);
                    }
                    let mbps = crate::state::tolerance_mbps(state, job, placement, link);
                    if mbps >= (usage.link_mbps(link) + external[link.index()]) as f64 {
                        *limit = limit.min(mbps);
                    }
                });
            }
        }
    }

    /// Makes a job that was just placed a neighbour of the others in its nodes.
    fn settle(&mut self, job: &Job, placement: &Placement) {
        if !self.profiles.any_interference() {
            return;
        }
        let (profiles, network_aware) = (self.profiles, self.settings.network_aware);
        let profile = profiles.get(job.profile);
        for at in &placement.tasks {
            let mut conditions = crate::state::conditions_at(self.cluster, at);
            let alone_s = cost::expected_s(job, profile, conditions, network_aware);
            conditions.interference = self.interference(job, at.node, alone_s);
            let newcomer = Neighbour::new(profiles, job, &conditions, 0.0, 1.0);
            let neighbours = self.neighbours_at(at.node);
            for neighbour in neighbours.iter_mut() {
                let part = (newcomer.remaining_s / neighbour.remaining_s).min(1.0);
                let more = profiles.interference(neighbour.profile, job.profile).node * part;
                // Whoever was sacrificed doesn't count any more.
                neighbour.slack = if more > neighbour.slack { f64::INFINITY } else { neighbour.slack - more };
            }
            neighbours.push(newcomer);
        }
    }

    /// How many neighbours a job that was just placed makes break their objectives.
    pub(super) fn has_harmed(&mut self, job: &Job, placed: &[TaskPlacement], expected_s: f64) -> usize {
        placed.iter().map(|at| self.harms(job, at.node, expected_s).0).sum()
    }

    /// Whether a job that was just placed (and is counted in the usage) makes another break its objective by its
    /// traffic.
    pub(super) fn has_disturbed(&mut self, placed: &[TaskPlacement]) -> bool {
        // Its own traffic is counted already; that of other tasks of the same job too.
        let mut disturbed = false;
        for at in placed {
            for grant in at.grants.iter().filter(|grant| grant.traffic_mbps > 0) {
                let to = self.cluster.device(grant.device).node;
                let (state, usage, tolerated) = (self.state, &self.usage, &mut self.tolerated);
                let external = self.external;
                self.cluster.for_path(at.node, to, |link| {
                    let limit = &mut tolerated[link.index()];
                    if limit.is_nan() {
                        *limit = state.tolerated_mbps(link);
                    }
                    disturbed |= (usage.link_mbps(link) + external[link.index()]) as f64 > *limit;
                });
            }
        }
        disturbed
    }

    /// What neighbours in a node add to a job's completion time there. The network-aware policy, which looks after
    /// them, counts on that they leave when they are done; others suppose that they stay.
    pub(super) fn interference(&mut self, job: &Job, node: NodeId, alone_s: f64) -> f64 {
        if !self.profiles.any_interference() {
            return 0.0;
        }
        if self.settings.network_aware {
            let profiles = self.profiles;
            let neighbours = self.neighbours_at(node).iter();
            return neighbours
                .map(|neighbour| {
                    let part = (neighbour.remaining_s / alone_s).min(1.0);
                    profiles.interference(job.profile, neighbour.profile).node * part
                })
                .sum();
        }
        let ids = (0..self.profiles.len() as u32).map(crate::ids::ProfileId);
        ids.map(|other| {
            f64::from(self.usage.tasks(node, other)) * self.profiles.interference(job.profile, other).node
        })
        .sum()
    }

    fn neighbours_at(&mut self, node: NodeId) -> &mut Vec<Neighbour> {
        let (state, now_s) = (self.state, self.now_s);
        self.neighbours[node.index()].get_or_insert_with(|| state.neighbours(node, now_s))
    }

    /// How many neighbours in a node would break their objectives because of a newcomer that runs for so long, and
    /// the greatest part of a neighbour's slack that it would use up without that. Only the network-aware policy
    /// asks.
    pub(super) fn harms(&mut self, job: &Job, node: NodeId, expected_s: f64) -> (usize, f64) {
        let (mut broken, mut used) = (0, 0.0);
        if !self.settings.network_aware || !self.profiles.any_interference() {
            return (broken, used);
        }
        let profiles = self.profiles;
        for neighbour in self.neighbours_at(node).iter() {
            let part = (expected_s / neighbour.remaining_s).min(1.0);
            let more = profiles.interference(neighbour.profile, job.profile).node * part;
            if more > neighbour.slack {
                broken += 1;
            } else if more > 0.0 {
                used = f64::max(used, more / neighbour.slack);
            }
        }
        (broken, used)
    }
}
