//! What the placement is told of the state.
//!
//! The placement works on a view of its own. Whoever changes the state puts what is different into a queue, once it is stored, and
//! the placement takes all of the queue when it gets to it. Neither of them holds the engine's lock meanwhile, so that a round waits
//! for nobody's request, and no request for a round.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_control::LeaseId;
use rgpu_control::api::PolicySettings;
use rgpu_placement::harvest::Footprint;

use super::core::{Changes, Core};
use super::learnt::Program;
use super::model::ProfileTable;
use super::series::Measured;
use crate::store::{LeaseRecord, NodeRecord};

/// A lease, as a round looks at it.
pub(crate) struct Seen {
    pub id: LeaseId,
    /// `None` if it is gone.
    pub record: Option<Arc<LeaseRecord>>,
    pub submit_s: f64,
    pub granted_s: f64,
    pub rounds: u32,
    /// Of a lease that may be resized: the thousandths of its device that are set aside for it, or would be.
    pub set_aside_milli: Option<u16>,
}

/// What has changed since this was taken the last time.
#[derive(Default)]
pub(crate) struct News {
    /// The rest is not enough: nodes or devices have come or gone, and [`Core::everything`] is needed.
    pub incomplete: bool,
    /// All nodes (and whether their devices can be granted); then `leases` is complete, too.
    pub nodes: Option<Vec<(Arc<NodeRecord>, bool)>>,
    /// Leases that are different, in the order in which they became so; a lease can be here several times.
    pub leases: Vec<Seen>,
    /// Measured traffic of nodes, without what their own server makes.
    pub traffic: BTreeMap<String, u64>,
    /// What was measured of nodes' devices, where the policy wants that.
    pub measured: BTreeMap<String, Measured>,
    /// How programs use their device.
    pub footprints: BTreeMap<Program, Footprint>,
    /// The policy that decides, if it is another one.
    pub policy: Option<PolicySettings>,
    /// How programs behave, where `nodes` is there.
    pub profiles: Option<ProfileTable>,
    /// Whether it makes a round worthwhile.
    pub round: bool,
    /// Leases that wait, and whose explanation somebody wants.
    pub wanted: Vec<LeaseId>,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Feed(Mutex<News>);

impl Feed {
    /// Takes what there is.
    pub(super) fn take(&self) -> News {
        std::mem::take(&mut *self.0.lock())
    }

    /// Somebody wants the next decision about a lease to be explained.
    pub(super) fn want(&self, id: LeaseId) {
        let mut news = self.0.lock();
        news.wanted.push(id);
        news.round = true;
    }

    /// The placement's view is to be made anew.
    pub(super) fn renew(&self) {
        let mut news = self.0.lock();
        (news.incomplete, news.round) = (true, true);
    }
}

impl Core {
    /// Puts what is different into the queue. Says whether the placement should look at it soon.
    pub(super) fn publish(&mut self, feed: &Feed) -> bool {
        let Changes { leases, traffic, measured: series, footprints, topology, policy, round } =
            std::mem::take(&mut self.changes);
        let round = round || topology || policy;
        let observed = !series.is_empty() || !footprints.is_empty();
        if !round && leases.is_empty() && traffic.is_empty() && !observed {
            return false;
        }
        let seen: Vec<Seen> = leases.into_iter().map(|id| self.seen(id)).collect();
        let measured = |name: String| self.measured(&name).map(|mbps| (name, mbps));
        let traffic: Vec<(String, u64)> = traffic.into_iter().filter_map(measured).collect();
        let mut news = feed.0.lock();
        news.round |= round;
        if policy {
            news.policy = Some(self.policy.clone());
        }
        if topology {
            news.incomplete = true;
        }
        if news.incomplete {
            // Everything will be asked for.
            news.leases = Vec::new();
            news.traffic = BTreeMap::new();
            (news.measured, news.footprints) = (BTreeMap::new(), BTreeMap::new());
        } else {
            let known = &self.harvest.footprints;
            let footprints =
                footprints.into_iter().filter_map(|of| Some((of.clone(), known.get(&of)?.clone())));
            news.footprints.extend(footprints);
            news.measured.extend(series.into_iter().filter_map(|name| {
                let measured = self.measured_of(&name)?;
                Some((name, measured))
            }));
            news.leases.extend(seen);
            news.traffic.extend(traffic);
        }
        round
    }

    /// All of the state, and what is in the queue with it.
    pub(super) fn everything(&mut self, feed: &Feed) -> News {
        self.publish(feed);
        let News { round, wanted, .. } = feed.take();
        News {
            incomplete: false,
            nodes: Some(self.nodes.values().map(|node| (node.record.clone(), node.available())).collect()),
            leases: self.leases.keys().map(|id| self.seen(*id)).collect(),
            traffic: self
                .nodes
                .keys()
                .filter_map(|name| Some((name.clone(), self.measured(name)?)))
                .collect(),
            measured: self
                .nodes
                .keys()
                .filter_map(|name| Some((name.clone(), self.measured_of(name)?)))
                .collect(),
            footprints: self.harvest.footprints.clone(),
            policy: Some(self.policy.clone()),
            profiles: Some(self.profiles.clone()),
            round,
            wanted,
        }
    }

    fn seen(&self, id: LeaseId) -> Seen {
        let entry = self.leases.get(&id);
        Seen {
            id,
            record: entry.map(|entry| entry.record.clone()),
            submit_s: entry.map_or(0.0, |entry| entry.live.submit_s),
            granted_s: entry.map_or(0.0, |entry| entry.live.granted_s),
            rounds: entry.map_or(0, |entry| entry.live.rounds),
            set_aside_milli: entry.and_then(|entry| self.counted_milli(&entry.record)),
        }
    }

    /// A node's traffic that its own server doesn't make.
    fn measured(&self, name: &str) -> Option<u64> {
        Some(self.nodes.get(name)?.live.others.mbps())
    }
}
