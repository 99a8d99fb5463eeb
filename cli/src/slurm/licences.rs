//! How many of Slurm's licences are for jobs: as many thousandths of GPUs as the broker could give to jobs of this cluster.

use rgpu_control::LeaseId;
use rgpu_control::api::{Device, Lease, LeaseState};

/// Thousandths of GPUs that a lease has.
pub(super) fn milli(lease: &Lease) -> u64 {
    lease.grants.iter().map(|grant| u64::from(grant.share_milli)).sum()
}

/// Thousandths of GPUs that jobs of this cluster have or can get: what nobody has of the devices that can be granted, and what the
/// cluster's own leases have.
pub(super) fn usable(devices: &[Device], own: &[&Lease]) -> u64 {
    let holds = |lease: &Lease| matches!(lease.state, LeaseState::Active | LeaseState::Ending);
    let own_of = |device: &Device| -> u64 {
        let leases = own.iter().filter(|lease| holds(lease));
        let grants = leases.flat_map(|lease| &lease.grants);
        let here = grants.filter(|grant| grant.node == device.node && grant.device == device.report.index);
        here.map(|grant| u64::from(grant.share_milli)).sum()
    };
    let of = |device: &Device| 1000u64.saturating_sub(device.granted_milli.into()) + own_of(device);
    devices.iter().filter(|device| device.available).map(of).sum()
}

/// What an administrator reads of a job's lease.
pub(super) fn account(lease: LeaseId, milli: u64, seconds: u64) -> String {
    format!("rgpu lease={lease} gpu_milli={milli} gpu_seconds={}", milli * seconds / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_control::token::Grant;

    fn device(index: u32, granted_milli: u32, available: bool) -> Device {
        let text = serde_json::json!({
            "node": "n", "index": index, "uuid": "u", "model": "m", "memory": 1u64 << 30, "partitionable": true, "software": true,
            "compute_capability": "8.0", "load": {"index": index, "utilization_percent": 0, "memory_used": 0},
            "granted_milli": granted_milli, "granted_memory": 0, "leases": [], "available": available,
        });
        serde_json::from_value(text).unwrap()
    }

    fn lease(state: LeaseState, device: u32, share_milli: u16) -> Lease {
        let grant = Grant { node: "n".into(), device, memory: 0, share_milli };
        let text = serde_json::json!({
            "id": LeaseId(1), "name": "", "tenant": "", "state": state.name(), "reason": "", "version": 1, "submitted": 0,
            "granted": 1, "expires": 2, "grants": [grant], "servers": [], "transport": "auto", "client_node": "", "remote": 0,
            "usage": [], "sessions": 0,
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn jobs_can_have_what_is_free_and_what_they_have() {
        let devices = [device(0, 600, true), device(1, 1000, true), device(2, 0, false)];
        assert_eq!(usable(&devices, &[]), 400);
        let own = [lease(LeaseState::Active, 0, 250), lease(LeaseState::Ending, 1, 1000)];
        let own: Vec<&Lease> = own.iter().collect();
        assert_eq!((usable(&devices, &own), milli(own[0])), (400 + 250 + 1000, 250));
        // What is lost is no more to be had.
        let lost = [lease(LeaseState::Active, 2, 500), lease(LeaseState::Ended, 0, 500)];
        assert_eq!(usable(&devices, &lost.iter().collect::<Vec<_>>()), 400);
        assert_eq!(
            account(LeaseId(7), 1500, 10),
            "rgpu lease=0000000000000007 gpu_milli=1500 gpu_seconds=15"
        );
    }
}
