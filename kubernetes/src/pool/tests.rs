use serde_json::json;

use super::*;

fn node(name: &str, state: &str) -> api::Node {
    let node = json!({
        "name": name, "state": state, "address": "a:1", "cpu_milli": 1, "memory_mib": 1, "nic_mbps": 25_000,
        "nic_in_mbps": 0, "nic_out_mbps": 0, "heard_s": 0.0, "version": "0", "devices": 1, "leases": 0, "tls": true,
        "peers": [{"node": "x", "rtt_us": 40}],
    });
    serde_json::from_value(node).unwrap()
}

fn device(node: &str, model: &str, gib: u64, alone: bool) -> api::Device {
    let device = json!({
        "node": node, "index": 0, "model": model, "uuid": "u", "memory": gib << 30, "partitionable": true, "alone": alone,
        "compute_capability": "8.0", "software": false, "granted_milli": 0, "granted_memory": 0, "leases": [], "available": true,
        "load": {"index": 0, "utilization_percent": 0, "memory_used": 0, "peak_memory": 0, "power_w": null},
    });
    serde_json::from_value(device).unwrap()
}

fn spec(slice: &ResourceSlice) -> serde_json::Value {
    serde_json::to_value(&slice.spec).unwrap()
}

#[test]
fn gpus_of_a_model_are_one_device_with_what_one_claim_can_take() {
    let nodes = [node("n0", "ready"), node("n1", "ready"), node("n2", "lost")];
    let devices = ["n0", "n1", "n2"].map(|name| device(name, "NVIDIA H100", 80, false));
    let pool = Pool::of(&nodes, &devices);
    let slices = pool.slices();
    let [slice] = &slices[..] else { panic!("{slices:?}") };
    let spec = spec(slice);
    assert_eq!((&spec["allNodes"], &spec["pool"]["resourceSliceCount"]), (&json!(true), &json!(1)));
    let device = &spec["devices"][0];
    assert_eq!((&device["name"], &device["allowMultipleAllocations"]), (&json!("nvidia-h100"), &json!(true)));
    // The lost node's GPU is not offered.
    assert_eq!(device["capacity"]["share"]["value"], "2");
    assert_eq!(device["capacity"]["memory"]["value"], (160u64 << 30).to_string());
    assert_eq!(device["capacity"]["memory"]["requestPolicy"]["validRange"]["max"], (80u64 << 30).to_string());
    assert_eq!(device["capacity"]["share"]["requestPolicy"]["validRange"]["min"], "1m");
    assert_eq!(device["attributes"]["encryption"]["bool"], true);
    assert_eq!(device["attributes"]["distanceMicroseconds"]["int"], 40);
    assert_eq!(device["attributes"]["computeCapability"]["version"], "8.0.0");
    assert_eq!(
        (&device["bindingConditions"], &device["bindsToNode"]),
        (&json!(["LeaseGranted"]), &json!(true))
    );
    assert_eq!((pool.model("nvidia-h100"), pool.model("other")), (Some("NVIDIA H100"), None));
}

#[test]
fn partitions_are_devices_of_their_own_and_a_counter_says_how_many_are_there() {
    let nodes = [node("n0", "ready"), node("n1", "draining")];
    let model = "A100 MIG 1g.10gb";
    let devices =
        [device("n0", model, 10, true), device("n0", model, 10, true), device("n1", model, 10, true)];
    let pool = Pool::of(&nodes, &devices);
    let slices = pool.slices();
    let [counters, partitions] = &slices[..] else { panic!("{slices:?}") };
    let (counters, partitions) = (spec(counters), spec(partitions));
    assert!(
        counters.get("devices").is_none() && partitions.get("sharedCounters").is_none(),
        "one of the two each"
    );
    assert_eq!(counters["sharedCounters"][0]["counters"]["instances"]["value"], "2");
    let names: Vec<_> =
        partitions["devices"].as_array().unwrap().iter().map(|device| &device["name"]).collect();
    // Names stay while a node is away: those in use must not vanish.
    assert_eq!(names, ["a100-mig-1g-10gb--0", "a100-mig-1g-10gb--1", "a100-mig-1g-10gb--2"]);
    assert_eq!(partitions["devices"][1]["consumesCounters"][0]["counterSet"], "a100-mig-1g-10gb");
    assert!(partitions["devices"][1].get("allowMultipleAllocations").is_none());
    assert_eq!(pool.model("a100-mig-1g-10gb--2"), Some(model));
}

#[test]
fn models_of_one_label_and_many_models_are_told_apart() {
    let nodes = [node("n0", "ready")];
    let alike = [device("n0", "A 100", 1, false), device("n0", "A-100", 1, false)];
    let pool = Pool::of(&nodes, &alike);
    let names: Vec<String> = pool.kinds.keys().cloned().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| pool.model(name).is_some()));
    let many: Vec<_> = (0..150).map(|n| device("n0", &format!("model {n}"), 1, false)).collect();
    let slices = Pool::of(&nodes, &many).slices();
    assert_eq!(slices.len(), 3);
    assert!(slices.iter().all(|slice| slice.spec.pool.resource_slice_count == 3));
    let long = device("n0", &"long ".repeat(50), 1, false);
    let pool = Pool::of(&nodes, &[long]);
    assert!(pool.kinds.keys().all(|name| name.len() <= LONGEST_KIND), "{:?}", pool.kinds.keys());
    assert!(Pool::of(&nodes, &[]).slices().is_empty());
}
