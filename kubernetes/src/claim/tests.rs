use serde_json::{Value, json};

use super::*;

fn claim(allocation: Value) -> ResourceClaim {
    let object = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "u-1"},
        "spec": {},
        "status": {"allocation": allocation},
    });
    serde_json::from_value(object).unwrap()
}

fn result(device: &str, memory: &str, share: &str) -> Value {
    json!({"request": "gpus", "driver": "rgpu.dev", "pool": "rgpu", "device": device, "shareID": format!("{device}{share}"),
           "consumedCapacity": {"memory": memory, "share": share}})
}

fn error(allocation: Value) -> String {
    wanted(&claim(allocation)).unwrap().unwrap_err()
}

#[test]
fn an_allocation_says_what_to_lease() {
    let class =
        json!({"apiVersion": "rgpu.dev/v1", "kind": "LeaseParameters", "encrypt": true, "profile": "a"});
    let own = json!({"apiVersion": "rgpu.dev/v1", "kind": "LeaseParameters", "profile": "b"});
    let other = json!({"requests": ["disk"], "source": "FromClaim", "opaque": {"driver": "rgpu.dev", "parameters": {"x": 1}}});
    let with = |parameters: Value| json!({"source": "FromClass", "opaque": {"driver": "rgpu.dev", "parameters": parameters}});
    let allocation = json!({
        "allocationTimestamp": "2026-11-23T07:00:00Z",
        "devices": {"results": [
            result("h100", "4Gi", "250m"), result("h100", "4Gi", "250m"),
            {"request": "nic", "driver": "other.dev", "pool": "p", "device": "d"},
        ], "config": [with(class), with(own), other]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
    });
    let read = wanted(&claim(allocation.clone())).unwrap().unwrap();
    assert_eq!((read.devices.len(), read.memory, read.share_milli), (2, 4 << 30, 250));
    assert_eq!((read.claim.as_str(), read.node.as_deref()), ("ns/c", Some("n1")));
    assert_eq!((read.parameters.encrypt, read.parameters.profile.as_deref()), (Some(true), Some("b")));
    assert!(read.key.starts_with("kubernetes/u-1/") && read.key.len() < 128, "{}", read.key);
    // The same allocation has the same key, another one of the same claim another.
    assert_eq!(wanted(&claim(allocation.clone())).unwrap().unwrap().key, read.key);
    let mut later = allocation;
    later["allocationTimestamp"] = json!("2026-11-23T07:00:01Z");
    assert_ne!(wanted(&claim(later)).unwrap().unwrap().key, read.key);
}

#[test]
fn without_sizes_it_is_a_whole_device() {
    let bare = json!({"request": "gpus", "driver": "rgpu.dev", "pool": "rgpu", "device": "h100"});
    let read = wanted(&claim(json!({"devices": {"results": [bare]}}))).unwrap().unwrap();
    assert_eq!((read.memory, read.share_milli, read.node), (0, 1000, None));
}

#[test]
fn what_is_not_ours_or_not_allocated_wants_nothing() {
    assert!(wanted(&claim(Value::Null)).is_none());
    let other = json!({"request": "r", "driver": "other.dev", "pool": "p", "device": "d"});
    assert!(wanted(&claim(json!({"devices": {"results": [other]}}))).is_none());
}

#[test]
fn what_no_lease_can_be_is_refused_in_words() {
    let results = |list: Value| json!({"devices": {"results": list}});
    assert!(
        error(results(json!([result("h100", "1Gi", "1"), result("h200", "1Gi", "1")]))).contains("one lease")
    );
    assert!(error(results(json!([result("a", "1Gi", "1"), result("a", "2Gi", "1")]))).contains("one lease"));
    assert!(error(results(json!([result("a", "1Gi", "2")]))).contains("share"));
    assert!(error(results(json!([result("a", "much", "1")]))).contains("much"));
    let mut admin = result("a", "1Gi", "1");
    admin["adminAccess"] = json!(true);
    assert!(error(results(json!([admin]))).contains("adminAccess"));
    let mut pool = result("a", "1Gi", "1");
    pool["pool"] = json!("elsewhere");
    assert!(error(results(json!([pool]))).contains("elsewhere"));
    let odd =
        json!({"source": "FromClaim", "opaque": {"driver": "rgpu.dev", "parameters": {"encrpyt": true}}});
    let with = json!({"devices": {"results": [result("a", "1Gi", "1")], "config": [odd.clone()]}});
    assert!(error(with).contains("encrpyt"));
    let mut kind = odd;
    kind["opaque"]["parameters"] = json!({"encrypt": true});
    let with = json!({"devices": {"results": [result("a", "1Gi", "1")], "config": [kind]}});
    assert!(error(with).contains("LeaseParameters"));
}

#[test]
fn partitions_of_a_model_are_alike_though_their_names_differ() {
    let part =
        |n| json!({"request": "gpus", "driver": "rgpu.dev", "pool": "rgpu", "device": format!("mig--{n}")});
    let read = wanted(&claim(json!({"devices": {"results": [part(0), part(11)]}}))).unwrap().unwrap();
    assert_eq!((read.devices.len(), read.share_milli), (2, 1000));
}
