//! Nodes that are silent, and what that does and does not mean.
//!
//! Silence can have its reason at either end. So nothing is concluded from it where the broker itself is the more probable reason:
//! when its own loop was late (the process was stopped, the disk took seconds), and while most nodes are silent at the same time.
//! In both cases nodes then have the time that they have after a restart, and so do leases that could not be renewed.
//!
//! A node that counts as lost gets nothing new. Its leases stay what they are for as long as they are renewed: whoever is cut off
//! from the broker may well be served on. Only where somebody waits, a lease that has something of other nodes, too, ends, so that
//! those can be granted again. The devices of a lost node cannot be granted before it is back and has said what it serves.

use rgpu_control::LeaseId;
use rgpu_control::api::LeaseState;

use super::core::Core;
use super::live::{End, NodeEntry, NodeLive};

/// For so many times of a lease nothing is concluded from the silence of most nodes; of all nodes, never.
const TOGETHER_TTLS: u64 = 10;

impl Core {
    /// Does what is due.
    pub(super) fn tick(&mut self) {
        self.mind_own_pauses();
        let judging = self.judge_nodes();
        self.free_for_the_queue();
        self.refuse_unproven();
        self.teach();
        self.miss_deadlines();
        self.resize_leases();
        if judging {
            self.expire();
        }
    }

    /// Whoever was not heard while this loop stood still has its time anew.
    fn mind_own_pauses(&mut self) {
        let now = self.now();
        let Some(before) = self.ticked.replace(now) else { return };
        let pause = now.saturating_sub(before);
        if pause > self.settings.node_timeout_ms / 2 {
            let text = format!(
                "the broker stood still for {:.1} s: nothing is concluded from that",
                pause as f64 / 1e3
            );
            tracing::warn!("{text}");
            self.note("broker_paused", None, None, text);
            self.spare();
            if self.settings.rivals {
                // Nodes may follow another broker by now: nothing of theirs is granted before they are heard.
                self.nodes.values_mut().for_each(|node| node.live.silent = true);
                self.changes.topology = true;
            }
        }
    }

    /// All nodes that are not lost have their time anew, and all leases.
    fn spare(&mut self) {
        let now = self.now();
        for node in self.nodes.values_mut().filter(|node| !node.live.lost) {
            node.live.heard = node.live.heard.max(now);
        }
        let at = now + self.settings.lease_ttl_s * 1000;
        let due: Vec<LeaseId> = self.deadlines.range(..(at, LeaseId(0))).map(|(_, id)| *id).collect();
        for id in due {
            self.set_deadline(id, Some(at));
        }
    }

    /// Counts nodes as lost that have been silent for too long. False while nothing is concluded from silence.
    fn judge_nodes(&mut self) -> bool {
        let (now, limit) = (self.now(), self.settings.node_timeout_ms);
        // Those that fell silent together reach the limit one after the other, within two heartbeats.
        let nearly = limit.saturating_sub(2 * self.settings.heartbeat_ms).max(limit / 2);
        let silence = |live: &NodeLive| now.saturating_sub(live.heard);
        let counted: Vec<u64> =
            self.nodes.values().filter(|n| !n.live.lost).map(|n| silence(&n.live)).collect();
        let quiet = counted.iter().filter(|silence| **silence > nearly).count();
        let overdue = counted.iter().any(|silence| *silence > limit);
        let most = quiet * 2 > counted.len() && (overdue || self.together_since.is_some());
        let too_long = |since: u64| {
            quiet < counted.len()
                && now.saturating_sub(since) > TOGETHER_TTLS * self.settings.lease_ttl_s * 1000
        };
        let judging = match (most, self.together_since) {
            (true, Some(since)) => too_long(since),
            (true, None) => {
                self.together_since = Some(now);
                let text = format!(
                    "{quiet} of {} nodes fell silent together: nothing is concluded from that",
                    counted.len()
                );
                tracing::warn!("{text}");
                self.note("nodes_silent", None, None, text);
                false
            }
            (false, Some(_)) => {
                self.together_since = None;
                self.spare();
                true
            }
            (false, None) => true,
        };
        let unheard = |live: &NodeLive| now.saturating_sub(live.heard) > limit;
        if judging {
            let silent = |(name, node): (&String, &NodeEntry)| {
                let live = &node.live;
                // What is ending there could not be confirmed before, because that could not be stored.
                let again = live.lost && live.leases.iter().any(|id| self.is_unconfirmed(*id, name));
                (again || !live.lost && unheard(live)).then(|| name.clone())
            };
            let names: Vec<String> = self.nodes.iter().filter_map(silent).collect();
            for name in names {
                self.lose(&name, &format!("was not heard of for more than {:.1} s", limit as f64 / 1000.0));
            }
        } else {
            for node in self.nodes.values_mut().filter(|node| !node.live.lost && unheard(&node.live)) {
                if !std::mem::replace(&mut node.live.silent, true) {
                    self.changes.topology = true;
                }
            }
        }
        judging
    }

    fn is_unconfirmed(&self, id: LeaseId, node: &str) -> bool {
        self.leases.get(&id).is_some_and(|entry| {
            entry.record.state == LeaseState::Ending && entry.record.unconfirmed.iter().any(|n| n == node)
        })
    }

    /// Counts a node as lost. Its leases are renewed or expire, as others do; what is ending there counts as ended.
    pub(super) fn lose(&mut self, name: &str, why: &str) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if !std::mem::replace(&mut entry.live.lost, true) {
            (entry.live.clean, entry.live.followed) = (false, 0);
            why.clone_into(&mut entry.live.lost_why);
            self.changes.topology = true;
            self.note("node_lost", Some(name), None, format!("node {name} {why}"));
            self.count(|counters| counters.nodes_lost += 1);
        }
        let Some(entry) = self.nodes.get(name) else { return };
        for id in entry.live.leases.clone() {
            if self.is_unconfirmed(id, name) {
                self.remember_gone(id, name);
                self.confirm(name, id);
            }
        }
    }

    /// A node's server stops: what it served is over with it.
    pub(super) fn leave_cluster(&mut self, name: &str) {
        let why = "was stopped";
        self.lose(name, why);
        let Some(entry) = self.nodes.get(name) else { return };
        for id in entry.live.leases.clone() {
            self.end(id, End::Revoked, &format!("node {name} {why}"));
            self.confirm(name, id);
            self.forget_gone(name, |gone| gone == id);
        }
    }

    /// Where somebody waits, leases end that have something of a lost node, and something of others that could be granted.
    fn free_for_the_queue(&mut self) {
        if self.counters.waiting == 0 || !self.nodes.values().any(|node| node.live.lost) {
            return;
        }
        let lost = |name: &str| self.nodes.get(name).is_none_or(|node| node.live.lost);
        let torn = self.nodes.iter().filter(|(_, node)| node.live.lost).flat_map(|(name, node)| {
            let entries = node.live.leases.iter().filter_map(|id| self.leases.get(id));
            let torn = entries.filter(|entry| {
                entry.record.state == LeaseState::Active
                    && entry.record.nodes().into_iter().any(|node| !lost(node))
            });
            torn.map(move |entry| (entry.record.id, format!("node {name} {}", node.live.lost_why)))
        });
        let torn: Vec<(LeaseId, String)> = torn.collect();
        for (id, why) in torn {
            self.end(id, End::Revoked, &why);
        }
    }
}
