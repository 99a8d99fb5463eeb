//! Nodes that are built alike, of which there are few sorts in most clusters.

use std::collections::HashMap;

use super::{Cluster, Device};
use crate::ids::{CapabilitySet, DeviceKind, ModelId, NodeId, SwitchId};

/// The nodes by what they are: all of one group have the same devices, offer the same, and are at the same place in the network.
#[derive(Clone, Debug)]
pub(crate) struct Alike {
    groups: Vec<Vec<NodeId>>,
    of: Vec<u32>,
}

/// What matters of a device.
type About = (DeviceKind, ModelId, u64, bool, bool);

/// What nodes of one group have in common.
type Common = (Vec<About>, CapabilitySet, u64, Option<SwitchId>);

impl Alike {
    pub(super) fn of(cluster: &Cluster) -> Alike {
        let about = |device: &Device| {
            (device.kind, device.model, device.memory_mib, device.partitionable, device.alone)
        };
        let mut numbers: HashMap<Common, u32> = HashMap::new();
        let mut alike = Alike { groups: Vec::new(), of: Vec::with_capacity(cluster.nodes().len()) };
        for (node, id) in cluster.nodes().iter().zip(0..) {
            let devices = node.devices().map(|device| about(cluster.device(device)));
            let common = (devices.collect(), node.offers, node.nic_mbps, node.switch);
            let number = *numbers.entry(common).or_insert(alike.groups.len() as u32);
            match alike.groups.get_mut(number as usize) {
                Some(members) => members.push(NodeId(id)),
                None => alike.groups.push(vec![NodeId(id)]),
            }
            alike.of.push(number);
        }
        alike
    }

    /// The groups, each with its members in their order.
    pub(crate) fn groups(&self) -> &[Vec<NodeId>] {
        &self.groups
    }

    /// The groups without one node: of each that has others, the first of these, and how many they are.
    pub(crate) fn without(&self, node: NodeId) -> impl Iterator<Item = (NodeId, usize)> {
        let own = self.of.get(node.index()).copied();
        self.groups.iter().zip(0u32..).filter_map(move |(members, number)| {
            let first = members.iter().copied().find(|&member| member != node)?;
            Some((first, members.len() - usize::from(Some(number) == own)))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::cluster::{ClusterBuilder, DeviceSpec, NodeSpec};
    use crate::ids::NodeId;

    #[test]
    fn nodes_with_the_same_devices_at_the_same_place_are_alike() {
        let node = |name: &str, gpus, nic| {
            NodeSpec::new(name, 1, 1).with_nic(nic).with_devices(gpus, DeviceSpec::gpu("T4", 16))
        };
        let nodes = [
            node("a", 2, 10),
            node("b", 1, 10),
            node("c", 2, 10),
            node("d", 2, 20),
            node("e", 2, 10).offering("encryption"),
        ];
        let cluster = ClusterBuilder::new().nodes(nodes).build().unwrap();
        let alike = cluster.alike();
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(NodeId);
        assert_eq!(alike.groups(), [vec![a, c], vec![b], vec![d], vec![e]]);
        assert_eq!(alike.without(a).collect::<Vec<_>>(), [(c, 1), (b, 1), (d, 1), (e, 1)]);
        assert_eq!(alike.without(b).collect::<Vec<_>>(), [(a, 2), (d, 1), (e, 1)]);
        assert_eq!(cluster.sorts_of_devices().count(), 2 + 1 + 2 + 2);
    }
}
