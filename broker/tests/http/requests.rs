//! Requests with a deadline, and for NVMe devices, as they go over the wire.

use rgpu_control::api::*;
use rgpu_control::token::Role;

use crate::support::{broker, heartbeat, registration, wish};

/// A request that leaves its share to the broker.
fn auto(estimate_s: f64, deadline_s: f64) -> LeaseRequest {
    LeaseRequest {
        memory: 0,
        share_milli: 0,
        estimate_s: Some(estimate_s),
        deadline_s: Some(deadline_s),
        machine: "machine-of-n0".into(),
        ..wish("timed")
    }
}

#[test]
fn deadlines_are_checked_and_choose_whole_devices_or_parts() {
    let bench = broker("");
    bench.add_node("n0");
    bench.add_node("n1");
    let ann = bench.client(Role::Tenant, "ann");
    for (request, words) in [
        (auto(10.0, -1.0), "over already"),
        (auto(10.0, 5.0), "no device keeps that deadline"),
        (LeaseRequest { deadline_s: None, ..auto(10.0, 1.0) }, "none is given"),
        (LeaseRequest { share_milli: 1001, ..auto(1.0, 10.0) }, "0 lets the broker choose"),
    ] {
        let refused = ann.request_lease(&request).unwrap_err();
        assert_eq!(refused.code(), Some(ErrorCode::BadRequest));
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let tight = ann.request_lease(&auto(1000.0, 1500.0)).unwrap();
    // In another node, where it takes somewhat longer than the fivefold.
    let lax = ann.request_lease(&auto(1000.0, 6000.0)).unwrap();
    assert_eq!((tight.grants[0].share_milli, lax.grants[0].share_milli), (1000, 200));
    assert_eq!((tight.deadline_kept, lax.deadline_kept), (Some(true), Some(true)));
    assert!(tight.deadline.unwrap() < lax.deadline.unwrap());
    // One more finds no whole device; it waits, and is told that its deadline can be kept no more when it is so.
    let waits = ann.request_lease(&LeaseRequest { wait_s: 0, ..auto(1000.0, 1000.0) }).unwrap();
    assert_eq!(waits.state, LeaseState::Waiting);
    let why = ann.explain(lax.id).unwrap();
    assert!(why.text.contains("expected to be kept") && why.text.contains("200/1000"), "{}", why.text);
    let told = loop {
        let lease = ann.lease(waits.id, 0).unwrap();
        if lease.deadline_kept == Some(false) {
            break lease;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(told.reason.contains("not expected to be kept"), "{}", told.reason);
}

#[test]
fn what_earlier_releases_send_means_what_it_did() {
    let bench = broker("");
    bench.add_node("n0");
    let token = bench.token(Role::Tenant, "ann");
    let holder = wish("old").holder;
    let body = format!(
        r#"{{"name":"old","gpus":1,"share_milli":250,"machine":"m","holder":"{holder}","wait_s":30}}"#
    );
    let answer = bench.ask("POST", paths::LEASES, &token, Some(&body));
    assert!((200..300).contains(&answer.status), "{answer:?}");
    for new in ["deadline", "nvmes"] {
        assert!(!answer.body.contains(new), "{new}: {answer:?}");
    }
}

#[test]
fn nvme_devices_are_offered_leased_and_said_to_be_attached() {
    let bench = broker("");
    let node = bench.client(Role::Node, "n0");
    let nvme = NvmeReport { name: "nvme0n1".into(), capacity: 1 << 40, bandwidth_mbps: 25_000 };
    let welcome = node.register(&Registration { nvmes: vec![nvme], ..registration("n0") }).unwrap();
    node.heartbeat("n0", &heartbeat(welcome.orders.version)).unwrap();
    let ann = bench.client(Role::Tenant, "ann");
    assert_eq!(ann.nodes().unwrap()[0].nvmes.len(), 1);
    let lease = ann.request_lease(&LeaseRequest { gpus: 0, nvmes: 1, ..wish("disk") }).unwrap();
    assert_eq!((lease.state, lease.nvmes[0].path.as_deref()), (LeaseState::Active, None), "{}", lease.reason);
    let orders = node.orders("n0", welcome.orders.version, 10).unwrap();
    assert_eq!(orders.leases[0].nvmes[0].device, "nvme0n1");
    let path = Some("/dev/nvme3n1".to_owned());
    let state = NvmeState { lease: lease.id, device: "nvme0n1".into(), path, failure: None };
    node.heartbeat("n0", &Heartbeat { nvmes: vec![state], ..heartbeat(orders.version) }).unwrap();
    assert_eq!(ann.lease(lease.id, 0).unwrap().nvmes[0].path.as_deref(), Some("/dev/nvme3n1"));
}
