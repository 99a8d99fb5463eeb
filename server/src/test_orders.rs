//! Orders of a broker, as tests write them.

use rgpu_control::LeaseId;
use rgpu_control::api::{LeaseOrder, Orders};

/// One for a lease that gives nothing.
pub(crate) fn order(lease: LeaseId) -> LeaseOrder {
    LeaseOrder {
        lease,
        version: 1,
        tenant: "ann".into(),
        holder: String::new(),
        expires: 0,
        grants: Vec::new(),
        nvmes: Vec::new(),
        sizes: Vec::new(),
        nodes: Vec::new(),
        processors: None,
    }
}

/// All of them, for these leases.
pub(crate) fn orders(version: u64, leases: Vec<LeaseOrder>) -> Orders {
    Orders { version, leases, ended: Vec::new(), peers: Vec::new(), prove: Vec::new() }
}
