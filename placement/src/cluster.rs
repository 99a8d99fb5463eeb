//! What the cluster is made of; nothing here changes while jobs come and go.

mod alike;
mod spec;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::error::Error;
use crate::ids::{CapabilitySet, DeviceId, DeviceKind, LinkId, ModelId, ModelSet, NodeId, SwitchId};

pub(crate) use alike::Alike;
pub use spec::{DeviceSpec, NodeSpec, NumaSpec, SwitchSpec};

/// What one whole device counts: partitions are given in thousandths.
pub const WHOLE: u16 = 1000;

/// A node of a [`Cluster`].
#[derive(Clone, Debug)]
pub struct Node {
    /// The name, unique among things of its sort in the cluster.
    pub name: String,
    /// Thousandths of processor cores.
    pub cpu_milli: u64,
    /// Main memory in MiB.
    pub memory_mib: u64,
    /// The network interface's capacity in Mbit/s.
    pub nic_mbps: u64,
    /// The switch to which it is attached.
    pub switch: Option<SwitchId>,
    /// What it offers.
    pub offers: CapabilitySet,
    /// Ways of the last-level cache that can be given to jobs.
    pub llc_ways: u32,
    /// Memory bandwidth that can be given to jobs, in the unit of the profiles.
    pub memory_bandwidth: f64,
    pub(crate) regions: std::ops::Range<u32>,
    pub(crate) devices: std::ops::Range<u32>,
}

impl Node {
    /// The node's devices.
    pub fn devices(&self) -> impl DoubleEndedIterator<Item = DeviceId> + ExactSizeIterator + Clone + use<> {
        self.devices.clone().map(DeviceId)
    }

    /// How many NUMA regions it has.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }
}

/// A device of a [`Cluster`].
#[derive(Clone, Debug)]
pub struct Device {
    /// The node in which it is.
    pub node: NodeId,
    /// GPU or NVMe.
    pub kind: DeviceKind,
    /// The model, by its number among those of the cluster.
    pub model: ModelId,
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// Its bus in Mbit/s.
    pub bus_mbps: u64,
    /// Whether several jobs can share it.
    pub partitionable: bool,
    /// Whether a task that has it can have no other device of that kind of its node.
    pub alone: bool,
    /// What its node offers.
    pub offers: CapabilitySet,
    /// The NUMA region of its node to which it is attached.
    pub numa: u8,
}

/// A switch of a [`Cluster`].
#[derive(Clone, Debug)]
pub struct Switch {
    /// The name, unique among things of its sort in the cluster.
    pub name: String,
    /// The switch above.
    pub parent: Option<SwitchId>,
    /// Capacity towards the switch above.
    pub uplink_mbps: u64,
}

/// The whole cluster: checked when built, immutable afterwards.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) devices: Vec<Device>,
    pub(crate) regions: Vec<NumaSpec>,
    switches: Vec<Switch>,
    models: Vec<String>,
    capabilities: Vec<String>,
    names: HashMap<String, NodeId>,
    totals: Totals,
    greatest: Totals,
    /// Worked out when it is asked for.
    alike: OnceLock<Alike>,
}

/// Sums over the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Thousandths of cores.
    pub cpu_milli: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Devices of each kind.
    pub devices: [u64; DeviceKind::COUNT],
}

/// Puts a [`Cluster`] together; everything is checked by [`ClusterBuilder::build`].
#[derive(Clone, Debug, Default)]
pub struct ClusterBuilder {
    nodes: Vec<NodeSpec>,
    switches: Vec<SwitchSpec>,
    capabilities: Vec<String>,
}

impl ClusterBuilder {
    /// A cluster without nodes, switches or capabilities, to which these are then added.
    pub fn new() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// Adds a node.
    #[must_use]
    pub fn node(mut self, node: NodeSpec) -> ClusterBuilder {
        self.nodes.push(node);
        self
    }

    /// Adds nodes, which get their numbers in this order.
    #[must_use]
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = NodeSpec>) -> ClusterBuilder {
        self.nodes.extend(nodes);
        self
    }

    /// Adds a switch.
    #[must_use]
    pub fn switch(mut self, switch: SwitchSpec) -> ClusterBuilder {
        self.switches.push(switch);
        self
    }

    /// Makes a capability known that requests may need, whether or not a node offers it.
    #[must_use]
    pub fn capability(mut self, name: impl Into<String>) -> ClusterBuilder {
        self.capabilities.push(name.into());
        self
    }

    /// Checks everything and builds the cluster.
    pub fn build(self) -> Result<Cluster, Error> {
        if self.nodes.is_empty() {
            return Err(Error::EmptyCluster);
        }
        let (switches, switch_ids) = build_switches(self.switches)?;
        let mut cluster = Cluster {
            nodes: Vec::with_capacity(self.nodes.len()),
            devices: Vec::new(),
            regions: Vec::new(),
            switches,
            models: Vec::new(),
            capabilities: Vec::new(),
            names: HashMap::with_capacity(self.nodes.len()),
            totals: Totals::default(),
            greatest: Totals::default(),
            alike: OnceLock::new(),
        };
        for name in &self.capabilities {
            cluster.know(name)?;
        }
        for node in self.nodes {
            cluster.add(node, &switch_ids)?;
        }
        Ok(cluster)
    }
}

fn build_switches(specs: Vec<SwitchSpec>) -> Result<(Vec<Switch>, HashMap<String, SwitchId>), Error> {
    let mut ids = HashMap::new();
    for (i, spec) in specs.iter().enumerate() {
        if ids.insert(spec.name.clone(), SwitchId(i as u32)).is_some() {
            return Err(Error::Duplicate { what: "switch", name: spec.name.clone() });
        }
    }
    let mut switches = Vec::with_capacity(specs.len());
    for spec in specs {
        let parent = match &spec.parent {
            None => None,
            Some(parent) => Some(*ids.get(parent).ok_or_else(|| Error::Dangling {
                from: format!("switch {:?}", spec.name),
                what: "switch",
                name: parent.clone(),
            })?),
        };
        limit("uplink bandwidth", || format!("switch {:?}", spec.name), spec.uplink_mbps)?;
        switches.push(Switch { name: spec.name, parent, uplink_mbps: spec.uplink_mbps });
    }
    for first in &switches {
        let mut at = first.parent;
        for _ in 0..switches.len() {
            at = at.and_then(|id| switches[id.index()].parent);
        }
        if at.is_some() {
            return Err(Error::Cycle(first.name.clone()));
        }
    }
    Ok((switches, ids))
}

/// Sums over a whole cluster must fit 64 bits with much to spare.
const LIMIT: u64 = 1 << 40;

fn limit(what: &'static str, of: impl Fn() -> String, value: u64) -> Result<(), Error> {
    if value > LIMIT {
        return Err(Error::Range { what, of: of(), value: value.to_string(), must: "at most 2^40" });
    }
    Ok(())
}

impl Cluster {
    fn add(&mut self, spec: NodeSpec, switch_ids: &HashMap<String, SwitchId>) -> Result<(), Error> {
        let id = NodeId(self.nodes.len() as u32);
        let of = || format!("node {:?}", spec.name);
        limit("cpu_milli", of, spec.cpu_milli)?;
        limit("memory_mib", of, spec.memory_mib)?;
        limit("nic_mbps", of, spec.nic_mbps)?;
        if !spec.memory_bandwidth.is_finite() || spec.memory_bandwidth < 0.0 {
            let value = spec.memory_bandwidth.to_string();
            return Err(Error::Range { what: "memory_bandwidth", of: of(), value, must: "not negative" });
        }
        if self.names.insert(spec.name.clone(), id).is_some() {
            return Err(Error::Duplicate { what: "node", name: spec.name });
        }
        let switch = match &spec.switch {
            None => None,
            Some(name) => Some(*switch_ids.get(name).ok_or_else(|| Error::Dangling {
                from: of(),
                what: "switch",
                name: name.clone(),
            })?),
        };
        let regions = if spec.numa.is_empty() {
            vec![NumaSpec { cpu_milli: spec.cpu_milli, memory_mib: spec.memory_mib }]
        } else {
            for region in &spec.numa {
                limit("cpu_milli of a NUMA region", of, region.cpu_milli)?;
                limit("memory_mib of a NUMA region", of, region.memory_mib)?;
            }
            let cpu: u64 = spec.numa.iter().map(|region| region.cpu_milli).sum();
            let memory: u64 = spec.numa.iter().map(|region| region.memory_mib).sum();
            if (cpu, memory) != (spec.cpu_milli, spec.memory_mib) || spec.numa.len() > 256 {
                return Err(Error::Range {
                    what: "the sum over NUMA regions",
                    of: of(),
                    value: format!("{cpu} milli-cores and {memory} MiB"),
                    must: "the node's cores and memory, over at most 256 regions",
                });
            }
            spec.numa.clone()
        };
        let mut offers = CapabilitySet::NONE;
        for name in &spec.offers {
            offers = offers.with(self.know(name)?);
        }
        let first_device = self.devices.len() as u32;
        for device in &spec.devices {
            limit("device memory", of, device.memory_mib)?;
            limit("bus_mbps", of, device.bus_mbps)?;
            if usize::from(device.numa) >= regions.len() {
                return Err(Error::Dangling {
                    from: format!("a device of node {:?}", spec.name),
                    what: "NUMA region",
                    name: device.numa.to_string(),
                });
            }
            let model = self.intern(&device.model)?;
            self.devices.push(Device {
                node: id,
                kind: device.kind,
                model,
                memory_mib: device.memory_mib,
                bus_mbps: device.bus_mbps,
                partitionable: device.partitionable,
                alone: device.alone,
                offers,
                numa: device.numa,
            });
            self.totals.devices[device.kind.index()] += 1;
        }
        self.greatest.cpu_milli = self.greatest.cpu_milli.max(spec.cpu_milli);
        self.greatest.memory_mib = self.greatest.memory_mib.max(spec.memory_mib);
        for kind in DeviceKind::ALL {
            let count = spec.devices.iter().filter(|device| device.kind == kind).count() as u64;
            let greatest = &mut self.greatest.devices[kind.index()];
            *greatest = (*greatest).max(count);
        }
        let first_region = self.regions.len() as u32;
        self.regions.extend(regions);
        self.totals.cpu_milli += spec.cpu_milli;
        self.totals.memory_mib += spec.memory_mib;
        self.nodes.push(Node {
            name: spec.name,
            cpu_milli: spec.cpu_milli,
            memory_mib: spec.memory_mib,
            nic_mbps: spec.nic_mbps,
            switch,
            offers,
            llc_ways: spec.llc_ways,
            memory_bandwidth: spec.memory_bandwidth,
            regions: first_region..self.regions.len() as u32,
            devices: first_device..self.devices.len() as u32,
        });
        Ok(())
    }

    fn intern(&mut self, model: &str) -> Result<ModelId, Error> {
        if let Some(id) = self.model(model) {
            return Ok(id);
        }
        if self.models.len() >= ModelSet::LIMIT {
            return Err(Error::Range {
                what: "the number of device models",
                of: "the cluster".into(),
                value: (self.models.len() + 1).to_string(),
                must: "at most 64",
            });
        }
        self.models.push(model.to_owned());
        Ok(ModelId(self.models.len() as u8 - 1))
    }

    fn know(&mut self, capability: &str) -> Result<CapabilitySet, Error> {
        if let Some(known) = self.capability(capability) {
            return Ok(known);
        }
        if self.capabilities.len() >= CapabilitySet::LIMIT {
            return Err(Error::Range {
                what: "the number of capabilities",
                of: "the cluster".into(),
                value: (self.capabilities.len() + 1).to_string(),
                must: "at most 64",
            });
        }
        self.capabilities.push(capability.to_owned());
        Ok(CapabilitySet::only(self.capabilities.len() - 1))
    }

    /// The nodes, indexed by [`NodeId`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The devices, indexed by [`DeviceId`].
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The switches, indexed by [`SwitchId`].
    pub fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// The names of the device models, indexed by [`ModelId`].
    pub fn models(&self) -> &[String] {
        &self.models
    }

    /// The model of that name, if any device is of it.
    pub fn model(&self, name: &str) -> Option<ModelId> {
        self.models.iter().position(|model| model == name).map(|i| ModelId(i as u8))
    }

    /// The set of the capability of that name alone, if it is known.
    pub fn capability(&self, name: &str) -> Option<CapabilitySet> {
        self.capabilities.iter().position(|known| known == name).map(CapabilitySet::only)
    }

    /// How many of these devices, all of one kind and node, one task can use at a time: those that it can use beside others,
    /// or one that it can only use alone.
    pub(crate) fn usable_together(&self, devices: impl Iterator<Item = DeviceId>) -> usize {
        let (mut several, mut one) = (0, 0);
        for device in devices {
            match self.device(device).alone {
                true => one = 1,
                false => several += 1,
            }
        }
        several.max(one)
    }

    /// The name of a capability that is needed and that a node doesn't offer, if there is one.
    pub fn lacking(&self, node: NodeId, needs: CapabilitySet) -> Option<&str> {
        let number = self.node(node).offers.lacking(needs).next()?;
        Some(self.capabilities.get(number).map_or("an unknown capability", String::as_str))
    }

    /// The node of that name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// The node with that number. Panics if it is another cluster's number.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The device with that number. Panics if it is another cluster's number.
    pub fn device(&self, id: DeviceId) -> &Device {
        &self.devices[id.index()]
    }

    /// Which nodes are alike.
    pub(crate) fn alike(&self) -> &Alike {
        self.alike.get_or_init(|| Alike::of(self))
    }

    /// One of each sort of device that there is: several of some sorts, but few where many nodes are alike.
    pub fn sorts_of_devices(&self) -> impl Iterator<Item = &Device> {
        let nodes = self.alike().groups().iter().filter_map(|members| members.first());
        nodes.flat_map(|&node| self.node(node).devices().map(|device| self.device(device)))
    }

    /// Sums over all nodes.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The greatest amount of each resource in one node, by which amounts are normalised (equation 5).
    pub fn greatest(&self) -> Totals {
        self.greatest
    }

    /// How many links there are: one NIC per node and one uplink per switch.
    pub fn links(&self) -> usize {
        self.nodes.len() + self.switches.len()
    }

    /// The link that is a node's NIC.
    pub fn nic(&self, node: NodeId) -> LinkId {
        LinkId(node.0)
    }

    /// The link between a switch and the one above it.
    pub fn uplink(&self, switch: SwitchId) -> LinkId {
        LinkId(self.nodes.len() as u32 + switch.0)
    }

    /// A link's capacity in Mbit/s, in each direction.
    pub fn capacity_mbps(&self, link: LinkId) -> u64 {
        match self.nodes.get(link.index()) {
            Some(node) => node.nic_mbps,
            None => self.switches[link.index() - self.nodes.len()].uplink_mbps,
        }
    }

    /// Calls `visit` with each link that traffic between two nodes passes (none within a node).
    pub fn for_path(&self, a: NodeId, b: NodeId, mut visit: impl FnMut(LinkId)) {
        if a == b {
            return;
        }
        visit(self.nic(a));
        visit(self.nic(b));
        let (mut x, mut y) = (self.node(a).switch, self.node(b).switch);
        if x == y {
            return;
        }
        let depth = |mut at: Option<SwitchId>| {
            let mut depth = 0;
            while let Some(id) = at {
                depth += 1;
                at = self.switches[id.index()].parent;
            }
            depth
        };
        let (mut dx, mut dy) = (depth(x), depth(y));
        while x != y {
            let (side, other) = if dx >= dy { (&mut x, &mut dx) } else { (&mut y, &mut dy) };
            let Some(id) = *side else { return };
            visit(self.uplink(id));
            *side = self.switches[id.index()].parent;
            *other -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(name: &str, parent: Option<&str>) -> SwitchSpec {
        SwitchSpec { name: name.into(), parent: parent.map(Into::into), uplink_mbps: 1000 }
    }

    fn node(name: &str, switch: Option<&str>) -> NodeSpec {
        NodeSpec { switch: switch.map(Into::into), ..NodeSpec::new(name, 1000, 1024).with_nic(100) }
    }

    #[test]
    fn refuses_nonsense() {
        assert_eq!(ClusterBuilder::new().build().unwrap_err(), Error::EmptyCluster);
        let two = ClusterBuilder::new().node(node("a", None)).node(node("a", None));
        assert!(matches!(two.build(), Err(Error::Duplicate { what: "node", .. })));
        let lost = ClusterBuilder::new().node(node("a", Some("s")));
        assert!(matches!(lost.build(), Err(Error::Dangling { what: "switch", .. })));
        let round = ClusterBuilder::new()
            .node(node("a", Some("s")))
            .switch(switch("s", Some("t")))
            .switch(switch("t", Some("s")));
        assert!(matches!(round.build(), Err(Error::Cycle(_))));
        let mut numa = node("a", None);
        numa.numa = vec![NumaSpec { cpu_milli: 1, memory_mib: 1024 }];
        assert!(matches!(ClusterBuilder::new().node(numa).build(), Err(Error::Range { .. })));
        let huge = ClusterBuilder::new().node(NodeSpec::new("a", u64::MAX, 1));
        assert!(matches!(huge.build(), Err(Error::Range { what: "cpu_milli", .. })));
        let mut device = node("a", None).with_devices(1, DeviceSpec::gpu("T4", 1));
        device.devices[0].numa = 3;
        assert!(matches!(ClusterBuilder::new().node(device).build(), Err(Error::Dangling { .. })));
        let capable = (0..65).fold(node("a", None), |node, i| node.offering(i.to_string()));
        assert!(matches!(ClusterBuilder::new().node(capable).build(), Err(Error::Range { .. })));
    }

    #[test]
    fn capabilities_are_known_by_name() {
        let (a, b) = (node("a", None).offering("encryption"), node("b", None));
        let cluster = ClusterBuilder::new().capability("magic").nodes([a, b]).build().unwrap();
        let (encryption, magic) =
            (cluster.capability("encryption").unwrap(), cluster.capability("magic").unwrap());
        assert_eq!(cluster.capability("speed"), None);
        assert!(cluster.node(NodeId(0)).offers.has_all(encryption));
        assert_eq!(cluster.lacking(NodeId(0), encryption), None);
        assert_eq!(cluster.lacking(NodeId(1), encryption), Some("encryption"));
        assert_eq!(cluster.lacking(NodeId(0), encryption.with(magic)), Some("magic"));
        assert_eq!(cluster.lacking(NodeId(1), CapabilitySet::NONE), None);
    }

    #[test]
    fn paths_pass_the_uplinks_below_the_common_switch() {
        let cluster = ClusterBuilder::new()
            .switch(switch("row", None))
            .switch(switch("r0", Some("row")))
            .switch(switch("r1", Some("row")))
            .nodes([node("a", Some("r0")), node("b", Some("r0")), node("c", Some("r1")), node("d", None)])
            .build()
            .unwrap();
        let path = |a: &str, b: &str| {
            let mut links = Vec::new();
            cluster.for_path(cluster.find(a).unwrap(), cluster.find(b).unwrap(), |link| links.push(link.0));
            links.sort();
            links
        };
        // Links 0 to 3 are the NICs, 4 the row's uplink, 5 and 6 the racks'.
        assert_eq!(path("a", "a"), Vec::<u32>::new());
        assert_eq!(path("a", "b"), [0, 1]);
        assert_eq!(path("a", "c"), [0, 2, 5, 6]);
        assert_eq!(path("c", "d"), [2, 3, 4, 6]);
        assert_eq!(cluster.capacity_mbps(LinkId(0)), 100);
        assert_eq!(cluster.capacity_mbps(LinkId(5)), 1000);
    }
}
