//! Requests for leases, as programs make them.

use crate::api::LeaseRequest;

impl LeaseRequest {
    /// A request for one whole device, whichever; nothing else is wished for.
    pub fn new(name: String, machine: String, holder: String) -> Self {
        Self {
            name,
            gpus: 1,
            memory: 0,
            share_milli: 1000,
            models: Vec::new(),
            machine,
            node: None,
            holder,
            transport: "auto".into(),
            profile: None,
            scale: None,
            goal_s: None,
            importance: None,
            traffic_mbps: None,
            wait_s: 0,
            now_or_never: false,
            encrypt: false,
        }
    }
}
