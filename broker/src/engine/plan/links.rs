//! What loads the links of nodes besides leases.

use super::Planner;

/// Into so many steps a link's load is divided. What is measured fluctuates by more from heartbeat to heartbeat; and links that carry
/// about the same are then alike to the placement, which looks at nodes that are alike as one.
const LOAD_STEPS: u64 = 100;

/// Traffic rounded to the nearest step of a link's capacity.
fn in_steps(mbps: u64, capacity_mbps: u64) -> u64 {
    match capacity_mbps {
        0..LOAD_STEPS => mbps,
        _ => (mbps * LOAD_STEPS + capacity_mbps / 2) / capacity_mbps * capacity_mbps / LOAD_STEPS,
    }
}

impl Planner {
    /// Tells the model how much traffic on a node's link isn't the leases'.
    pub(super) fn measure(&mut self, name: &str) {
        let (Some(state), Some(&node)) = (&mut self.state, self.nodes.get(name)) else { return };
        let link = state.cluster().nic(node);
        let capacity = state.cluster().capacity_mbps(link);
        let measured = self.measured.get(name).copied().unwrap_or(0);
        // What programs here have with devices elsewhere is measured, too, and the model counts it already. More than the link can
        // carry is a matter of how it was measured.
        let external = in_steps(measured.saturating_sub(self.declared[node.index()]).min(capacity), capacity);
        if let Err(e) = state.set_external_mbps(link, external) {
            tracing::error!("{e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_come_in_steps_of_a_hundredth() {
        for (mbps, capacity, step) in [
            (0, 1000, 0),
            (4, 1000, 0),
            (5, 1000, 10),
            (994, 1000, 990),
            (996, 1000, 1000),
            (1000, 1000, 1000),
        ] {
            assert_eq!(in_steps(mbps, capacity), step, "{mbps} of {capacity}");
        }
        // Too slow a link for steps: as measured.
        assert_eq!(in_steps(7, 10), 7);
    }
}
