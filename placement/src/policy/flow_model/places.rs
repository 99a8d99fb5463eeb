//! Where devices for a request can come from: nodes that are alike are looked at as one.
//!
//! What a request for a device costs at a node follows from little: how much is free of the devices that suit it, the node's place in the
//! network and the load of its link, and what fragmentation weighs there. Nodes with the same of all that are a *group*, whose arcs
//! cost the same, whoever asks and from wherever; among them the lowest number comes first, as among all nodes that cost the same. So
//! a round looks at groups instead of nodes.
//!
//! The groups of a request are kept from round to round. A round compares each node with what it was in the round before, once, and
//! only nodes that are different are put into groups anew.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::view::{Arc, DeviceKey, NOTHING_SUITABLE, RuledOut, View};
use crate::cluster::{Cluster, WHOLE};
use crate::ids::{NodeId, SwitchId};
use crate::job::{DeviceRequest, Job, Task};

/// The groups of so many requests are kept that no round has asked for lately.
const KEPT: usize = 64;

/// What of a node can change between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    fingerprint: u64,
    link_mbps: u64,
    tolerated: u64,
}

impl Stamp {
    fn of(view: &mut View<'_>, node: NodeId) -> Stamp {
        let link = view.cluster.nic(node);
        let tolerated = view.tolerance(link).to_bits();
        Stamp {
            tolerated,
            fingerprint: view.usage.node(node).fingerprint,
            link_mbps: view.usage.link_mbps(link) + view.external[link.index()],
        }
    }
}

/// What nodes of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Common {
    /// A hash of what is free of the devices that suit the request, as far as that matters.
    free: u64,
    /// The bits of what fragmentation adds to the cost.
    rank: u64,
    capacity_mbps: u64,
    link_mbps: u64,
    tolerated: u64,
    switch: Option<SwitchId>,
}

/// The groups of one request.
#[derive(Clone, Debug, Default)]
struct Groups {
    /// How many of the changes these take account of.
    seen: usize,
    /// The fragmentation's generation in which they were made.
    generation: u64,
    /// When they were asked for the last time.
    round: u64,
    /// By node: its group, if it has a device that suits.
    of: Vec<Option<u32>>,
    groups: Vec<(Common, BTreeSet<NodeId>)>,
    numbers: HashMap<Common, u32>,
    unused: Vec<u32>,
}

impl Groups {
    fn put(&mut self, node: NodeId, common: Option<Common>) {
        let new = common.map(|common| match self.numbers.get(&common) {
            Some(number) => *number,
            None => {
                let number = self.unused.pop().unwrap_or(self.groups.len() as u32);
                match self.groups.get_mut(number as usize) {
                    Some(group) => group.0 = common,
                    None => self.groups.push((common, BTreeSet::new())),
                }
                self.numbers.insert(common, number);
                number
            }
        });
        let old = std::mem::replace(&mut self.of[node.index()], new);
        if old == new {
            return;
        }
        if let Some(number) = new {
            self.groups[number as usize].1.insert(node);
        }
        if let Some(number) = old {
            let (common, members) = &mut self.groups[number as usize];
            members.remove(&node);
            if members.is_empty() {
                self.numbers.remove(common);
                self.unused.push(number);
            }
        }
    }
}

/// What is kept of nodes and groups.
#[derive(Debug, Default)]
pub(super) struct Places {
    cluster: Option<std::sync::Arc<Cluster>>,
    stamps: Vec<Stamp>,
    /// Nodes that have changed, in the order in which that was seen, but for so many before them.
    changed: Vec<NodeId>,
    forgotten: usize,
    by_request: HashMap<DeviceRequest, Groups>,
    round: u64,
}

impl View<'_> {
    /// Compares all nodes with what they were the last time.
    pub(super) fn look_around(&mut self) {
        self.usage.follow();
        let places = &mut *self.places;
        let same = places.cluster.as_ref().is_some_and(|known| std::ptr::eq(&**known, self.cluster));
        if !same {
            let round = places.round;
            *places = Places { cluster: Some(self.state.cluster().clone()), round, ..Places::default() };
        }
        places.round += 1;
        let late = places.changed.len().saturating_sub(self.cluster.nodes().len());
        if late > 0 {
            // Whoever doesn't know of these yet is made anew.
            places.forgotten += late;
            places.changed.drain(..late);
        }
        let round = places.round;
        if places.by_request.len() > KEPT {
            places.by_request.retain(|_, groups| groups.round + 1 >= round);
        }
        if places.stamps.is_empty() {
            let stamps: Vec<Stamp> = self.nodes().map(|node| Stamp::of(self, node)).collect();
            self.places.stamps = stamps;
        } else {
            for node in self.nodes() {
                self.look_at(node);
            }
        }
    }

    fn look_at(&mut self, node: NodeId) {
        let stamp = Stamp::of(self, node);
        if std::mem::replace(&mut self.places.stamps[node.index()], stamp) != stamp {
            self.places.changed.push(node);
        }
    }

    /// The groups of a request as they are now. They are to be given back by [`View::keep`].
    fn groups(&mut self, key: &DeviceKey) -> Groups {
        for node in self.usage.changed() {
            self.look_at(node);
        }
        let request = key.request();
        let mut groups = self.places.by_request.remove(request).unwrap_or_default();
        let generation = self.fragmentation.generation();
        let all = self.cluster.nodes().len();
        let behind = (self.places.forgotten + self.places.changed.len()) - groups.seen;
        if groups.of.is_empty() || groups.generation != generation || behind > all {
            groups = Groups { of: vec![None; all], generation, ..Groups::default() };
            for node in self.nodes() {
                let common = self.common(key, node);
                groups.put(node, common);
            }
        } else {
            for at in groups.seen - self.places.forgotten..self.places.changed.len() {
                let node = self.places.changed[at];
                let common = self.common(key, node);
                groups.put(node, common);
            }
        }
        groups.seen = self.places.forgotten + self.places.changed.len();
        groups.round = self.places.round;
        groups
    }

    fn keep(&mut self, key: &DeviceKey, groups: Groups) {
        self.places.by_request.insert(key.request().clone(), groups);
    }

    /// What a node has in common with others of its group; `None` if it has no device that suits.
    fn common(&mut self, key: &DeviceKey, node: NodeId) -> Option<Common> {
        let request = key.request();
        self.work.looks += 1;
        if self.usage.node(node).device_milli[request.kind.index()] < u32::from(request.milli) {
            return None;
        }
        // Of which devices there are how many doesn't matter, but what each has free: a sliver may be spared or not.
        let mut free: Vec<(u16, bool)> = Vec::new();
        for device in self.cluster.node(node).devices() {
            if self.usage.fits_device(self.cluster, device, request) {
                let one = (self.usage.device_milli(device), self.cluster.device(device).partitionable);
                if !free.contains(&one) {
                    free.push(one);
                }
            }
        }
        if free.is_empty() {
            return None;
        }
        free.sort_unstable();
        if request.milli == WHOLE {
            free.clear();
        } else if self.settings.max_sliver >= WHOLE {
            free.drain(..free.len() - 1);
        }
        let hash = free.iter().fold(0, |hash, &(milli, partitionable)| {
            crate::rng::Rng::new(hash ^ (u64::from(milli) << 1 | u64::from(partitionable))).next_u64()
        });
        let rank = if self.spreads(request) { 0.0 } else { self.device_rank(key, node).unwrap_or(0.0) };
        let stamp = Stamp::of(self, node);
        let about = self.cluster.node(node);
        Some(Common {
            free: hash,
            rank: rank.to_bits(),
            capacity_mbps: about.nic_mbps,
            link_mbps: stamp.link_mbps,
            tolerated: stamp.tolerated,
            switch: about.switch,
        })
    }

    /// The arcs of one device wanted by a task that is in `home`, the cheapest first, and of those that cost the same that to the first
    /// node. What is done with the view meanwhile doesn't change them.
    pub(super) fn device_arcs(
        &mut self,
        job: &Job,
        task: &Task,
        request: &DeviceRequest,
        key: DeviceKey,
        home: NodeId,
    ) -> DeviceArcs {
        let mut arcs =
            DeviceArcs { key, home, groups: None, heap: BinaryHeap::new(), ruled_out: HashMap::new() };
        let mut looked_at = vec![(home, Place::Node(home))];
        match request.node {
            Some(node) if node == home || node.index() >= self.cluster.nodes().len() => {}
            Some(node) => looked_at.push((node, Place::Node(node))),
            None => {
                let groups = self.groups(&arcs.key);
                let numbered = groups.groups.iter().zip(0u32..);
                looked_at.extend(numbered.filter_map(|((_, members), number)| {
                    let first = members.iter().copied().find(|&node| node != home)?;
                    Some((first, Place::Group(number)))
                }));
                arcs.groups = Some(groups);
            }
        }
        for (node, place) in looked_at {
            match self.device_arc(job, task, request, &arcs.key, home, node) {
                Ok(arc) => arcs.heap.push(Reverse(Next { arc, place })),
                Err(why) => drop(arcs.ruled_out.insert(place, why)),
            }
        }
        #[cfg(test)]
        self.compare(&arcs, job, task, request);
        arcs
    }

    /// Ends the looking for devices.
    pub(super) fn done(&mut self, arcs: DeviceArcs) {
        if let Some(groups) = arcs.groups {
            self.keep(&arcs.key, groups);
        }
    }
}

/// The arcs of one device wanted, in the order of their costs.
#[cfg_attr(test, derive(Clone))]
pub(super) struct DeviceArcs {
    pub key: DeviceKey,
    home: NodeId,
    groups: Option<Groups>,
    heap: BinaryHeap<Reverse<Next>>,
    /// Why there is no arc.
    ruled_out: HashMap<Place, RuledOut>,
}

/// What was looked at as one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// The task's own node, or the only one that may be.
    Node(NodeId),
    /// A group, but for the task's own node.
    Group(u32),
}

/// The next arc to a place.
#[derive(Clone, Copy)]
struct Next {
    arc: Arc,
    place: Place,
}

impl Ord for Next {
    fn cmp(&self, other: &Next) -> Ordering {
        self.arc.cost.total_cmp(&other.arc.cost).then(self.arc.node.cmp(&other.arc.node))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Next) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Next) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

impl DeviceArcs {
    /// The first member of a group from one on, but for the task's own node.
    fn member(&self, group: u32, from: NodeId) -> Option<NodeId> {
        let members = &self.groups.as_ref()?.groups[group as usize].1;
        members.range(from..).copied().find(|&node| node != self.home)
    }

    fn place(&self, node: NodeId) -> Place {
        let groups = self.groups.as_ref().filter(|_| node != self.home);
        groups.and_then(|groups| groups.of[node.index()]).map_or(Place::Node(node), Place::Group)
    }

    /// Why there are no arcs to some of the places that were looked at.
    pub(super) fn reasons(&self) -> impl Iterator<Item = RuledOut> {
        self.ruled_out.values().copied()
    }

    /// Why there is no arc to a node; `None` if there is one. To be asked before any arc is taken.
    pub(super) fn why_not(&self, node: NodeId) -> Option<RuledOut> {
        let place = self.place(node);
        let grouped = matches!(place, Place::Group(_));
        match self.ruled_out.get(&place) {
            None if !grouped && self.arc_to(node).is_none() => Some(NOTHING_SUITABLE),
            why => why.copied(),
        }
    }

    /// The arc to a node, if there is one. To be asked before any arc is taken.
    pub(super) fn arc_to(&self, node: NodeId) -> Option<Arc> {
        let place = self.place(node);
        if place == Place::Node(node) && node != self.home && self.key.request().node != Some(node) {
            return None;
        }
        let next = self.heap.iter().find(|Reverse(next)| next.place == place)?;
        Some(Arc { node, ..next.0.arc })
    }
}

impl Iterator for DeviceArcs {
    type Item = Arc;

    fn next(&mut self) -> Option<Arc> {
        let Reverse(Next { arc, place }) = self.heap.pop()?;
        if let Place::Group(group) = place
            && let Some(node) = self.member(group, NodeId(arc.node.0 + 1))
        {
            self.heap.push(Reverse(Next { arc: Arc { node, ..arc }, place }));
        }
        Some(arc)
    }
}

#[cfg(test)]
impl View<'_> {
    /// Checks that there are the same arcs in the same order as where each node is looked at.
    fn compare(&mut self, arcs: &DeviceArcs, job: &Job, task: &Task, request: &DeviceRequest) {
        let looks = self.work.looks;
        let mut each: Vec<Arc> = Vec::new();
        for node in self.nodes() {
            let arc = self.device_arc(job, task, request, &arcs.key, arcs.home, node);
            assert_eq!(arcs.why_not(node), arc.err(), "of node {node:?}");
            assert_eq!(arcs.arc_to(node), arc.ok(), "to node {node:?}");
            each.extend(arc.ok());
        }
        self.work.looks = looks;
        each.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.node.cmp(&b.node)));
        assert_eq!(arcs.clone().collect::<Vec<Arc>>(), each);
    }
}
