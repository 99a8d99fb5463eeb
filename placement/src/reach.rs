//! What the network could carry for a request, were it idle.

use crate::cluster::Cluster;
use crate::ids::{LinkId, NodeId};
use crate::job::DeviceRequest;

/// How many of a request's devices a program in a node could use at most, were all devices free and all links idle, where links may be
/// loaded up to a part of their capacity. Where links above switches are shared, it may be fewer.
pub fn reachable(cluster: &Cluster, request: &DeviceRequest, home: NodeId, link_limit: f64) -> usize {
    // As `Usage::fits_path` counts.
    let carried = |link: LinkId| {
        let capacity = cluster.capacity_mbps(link) as f64 * link_limit;
        match request.traffic_mbps {
            _ if capacity <= 0.0 => 0,
            0 => usize::MAX,
            mbps => (capacity / mbps as f64) as usize,
        }
    };
    let mut nodes: Vec<(NodeId, usize)> = match request.node {
        // Only there is anything that would do.
        Some(node) => vec![(node, 1)],
        None => cluster.alike().without(home).collect(),
    };
    nodes.retain(|(node, _)| *node != home && node.index() < cluster.nodes().len());
    let remote = nodes.into_iter().fold(0usize, |sum, (node, count)| {
        let mut there = request.together(cluster, node);
        if there > 0 {
            cluster.for_path(home, node, |link| there = there.min(carried(link)));
        }
        sum.saturating_add(there.saturating_mul(count))
    });
    request.together(cluster, home).saturating_add(remote.min(carried(cluster.nic(home))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{ClusterBuilder, DeviceSpec, NodeSpec, SwitchSpec};

    /// Nodes with so many GPUs and so much network each, the last one behind a switch.
    fn cluster(nodes: &[(usize, u64)]) -> Cluster {
        let mut builder =
            ClusterBuilder::new().switch(SwitchSpec { name: "s".into(), parent: None, uplink_mbps: 50 });
        for (at, &(gpus, mbps)) in nodes.iter().enumerate() {
            let mut node = NodeSpec::new(format!("n{at}"), 0, 0).with_nic(mbps);
            node.devices = (0..gpus).map(|_| DeviceSpec::gpu("T4", 1024)).collect();
            node.switch = (at + 1 == nodes.len()).then(|| "s".into());
            builder = builder.node(node);
        }
        builder.build().unwrap()
    }

    fn count(cluster: &Cluster, home: u32, mbps: u64, limit: f64) -> usize {
        let request = DeviceRequest { traffic_mbps: mbps, ..DeviceRequest::gpus(1) };
        reachable(cluster, &request, NodeId(home), limit)
    }

    #[test]
    fn what_is_remote_has_to_pass_both_ends_and_what_is_between() {
        let cluster = cluster(&[(1, 100), (2, 80), (4, 1000)]);
        // No traffic: everything.
        assert_eq!(count(&cluster, 0, 0, 1.0), 7);
        // 40: two by the own link; the third node is behind an uplink of 50.
        assert_eq!(count(&cluster, 0, 40, 1.0), 1 + 2);
        assert_eq!(count(&cluster, 1, 40, 1.0), 2 + 2);
        // 60: one of each, and the own link takes one of them. Behind the switch nothing is reached.
        assert_eq!(count(&cluster, 0, 60, 1.0), 1 + 1);
        assert_eq!(count(&cluster, 2, 60, 1.0), 4);
        // The uplink takes one at a time, which is not seen: it is another one to each node.
        assert_eq!(count(&cluster, 2, 60, 2.0), 4 + 2);
        // More than the own link takes: what is local.
        assert_eq!(count(&cluster, 0, 101, 1.0), 1);
        assert_eq!(count(&cluster, 0, 0, 0.0), 1);
    }
}
