//! Claims that cannot be leased, and callers that make no sense: the engine's own place says why, and no lease is left.

use std::io::Write;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, ensure};
use rgpu_kubernetes_testing::apiserver::{Allocate, Claim};
use rgpu_kubernetes_testing::kubelet::Version;
use rgpu_test_runner::Test;
use serde_json::json;

use super::{Bench, SOON};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("kubernetes::claims_that_cannot_be_leased_say_why_and_leave_nothing", claims),
        Test::new("kubernetes::a_claim_waits_for_gpus_until_its_scheduler_gives_up", waiting),
        Test::new("kubernetes::garbage_and_wrong_claims_are_refused_by_the_plugin", garbage),
    ]
}

fn claims() -> Result<()> {
    let mut bench = Bench::new()?;
    let _controller = bench.controller()?;
    let (_node, plugin) = bench.registered("one", &[])?;
    let device = bench.device()?;
    let part = |device| Allocate { device, size: Some(("0", "500m")) };
    let larger = Allocate { device: &device, size: Some(("1073741824", "500m")) };
    let parameters =
        |field: &str| json!({"apiVersion": "rgpu.dev/v1", "kind": "LeaseParameters", field: "odd"});
    let cases: [(&str, Vec<Allocate>, _, &str, &str); 6] = [
        (
            "too-many",
            vec![Allocate { device: &device, size: Some(("0", "1")) }; 3],
            None,
            "Impossible",
            "refuses the lease",
        ),
        ("unlike", vec![part(&device), larger], None, "Invalid", "one lease"),
        ("unknown", vec![part("no-such-gpu")], None, "NotFound", "no-such-gpu"),
        (
            "too-much",
            vec![Allocate { device: &device, size: Some(("8Ti", "1")) }],
            None,
            "Impossible",
            "refuses the lease",
        ),
        ("misspelt", vec![part(&device)], Some(parameters("profil")), "Invalid", "profil"),
        ("no-profile", vec![part(&device)], Some(parameters("profile")), "Refused", "odd"),
    ];
    let mut made = Vec::new();
    for (name, devices, config, reason, words) in cases {
        let claim = bench.api.create_claim(name, devices.len())?;
        bench.api.allocate(&claim, &devices, "s0", config)?;
        let why = bench.wait_condition(&claim, "LeaseRefused", "True", reason)?;
        ensure!(why.contains(words), "{name}: {why}");
        ensure!(
            bench.api.condition(&claim, "LeaseGranted").is_some_and(|(status, ..)| status == "False"),
            "{name}"
        );
        let refused = bench
            .kubelet
            .prepare_one(&plugin, &claim)?
            .err()
            .with_context(|| format!("{name} is prepared"))?;
        ensure!(
            refused.contains(words) || reason == "NotFound" && refused.contains(name),
            "{name}: {refused}"
        );
        made.push(claim);
    }
    ensure!(bench.leases()?.is_empty(), "{:?}", bench.leases());
    for claim in &made {
        bench.api.deallocate(claim)?;
        bench.api.delete_claim(claim)?;
    }
    rgpu_tests::process::wait_until("the claims are gone", SOON, || {
        made.iter().all(|claim| bench.api.claim(claim).is_none())
    })?;
    bench.no_complaints()
}

fn waiting() -> Result<()> {
    let mut bench = Bench::new()?;
    let _controller = bench.controller()?;
    let (_node, plugin) = bench.registered("one", &[])?;
    let first = bench.claim("first", 2, ("0", "1"))?;
    ensure!(bench.wait_granted(&first)?.grants.len() == 2, "{:?}", bench.leases());
    let [second, third] = [bench.claim("second", 1, ("0", "1"))?, bench.claim("third", 1, ("0", "1"))?];
    for claim in [&second, &third] {
        let why = bench.wait_condition(claim, "LeaseGranted", "False", "Waiting")?;
        ensure!(why.contains("waits"), "{why}");
    }
    let refused = bench.kubelet.prepare_one(&plugin, &second)?.err().context("it is prepared")?;
    ensure!(refused.contains("waiting"), "{refused}");
    ensure!(bench.leases()?.len() == 3, "{:?}", bench.leases());
    // The scheduler waits for the third no longer.
    bench.api.deallocate(&third)?;
    bench.cluster.wait("the third waits no more", SOON, |_| Ok(bench.leases()?.len() == 2))?;
    bench.api.deallocate(&first)?;
    bench.wait_granted(&second)?;
    // It is allocated anew, and nobody has seen it without an allocation in between.
    let before = bench.leases()?.remove(0);
    let device = bench.device()?;
    bench.api.allocate(&second, &[Allocate { device: &device, size: Some(("0", "125m")) }], "s1", None)?;
    bench.cluster.wait("the new allocation has a lease of its own", SOON, |_| {
        let now = bench.leases()?;
        Ok(now.len() == 1
            && now[0].id != before.id
            && now[0].grants.first().is_some_and(|grant| grant.share_milli == 125))
    })?;
    bench.wait_granted(&second)?;
    bench.api.deallocate(&second)?;
    bench.cluster.wait_idle(SOON)?;
    bench.no_complaints()
}

fn garbage() -> Result<()> {
    let mut bench = Bench::new()?;
    let _controller = bench.controller()?;
    let (node, plugin) = bench.registered("one", &[])?;
    for socket in [&plugin.registration, &plugin.endpoint] {
        for bytes in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 70_000], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00"]
        {
            // It may be closed before all is written.
            let _ = UnixStream::connect(socket)?.write_all(bytes);
        }
    }
    bench.kubelet.reject(&plugin, "no such plugin is wanted")?;
    ensure!(node.log().contains("no such plugin is wanted"), "{}", node.log());

    let claim = bench.claim("c", 1, ("0", "250m"))?;
    bench.wait_granted(&claim)?;
    let with =
        |name: &str, uid: &str| Claim { namespace: "default".into(), name: name.into(), uid: uid.into() };
    let unallocated = bench.api.create_claim("unallocated", 1)?;
    let cases = [
        (with("c", "../../etc"), "no UID"),
        (with("", &claim.uid), "no namespace, or no name"),
        (with("c", "ffffffff-0000-4000-8000-000000000000"), "another one now"),
        (with("missing", "eeeeeeee-0000-4000-8000-000000000000"), "there is no claim"),
        (unallocated, "not allocated"),
    ];
    for (wrong, words) in &cases {
        for version in [Version::Stable, Version::Beta] {
            let mut answer = bench.kubelet.prepare(&plugin, version, &[wrong])?;
            let why = answer.remove(&wrong.uid).context("no answer")?.err().context("it is prepared")?;
            ensure!(why.contains(words), "{wrong:?}: {why}");
        }
        let done = bench.kubelet.unprepare(&plugin, Version::Beta, &[wrong])?;
        ensure!(done[&wrong.uid].is_empty(), "{done:?}");
    }
    // Of several claims in one call, the good one is prepared.
    let mixed = bench.kubelet.prepare(&plugin, Version::Stable, &[&cases[3].0, &claim])?;
    ensure!(mixed[&claim.uid].is_ok() && mixed[&cases[3].0.uid].is_err(), "{mixed:?}");
    bench.kubelet.unprepare(&plugin, Version::Stable, &[&claim])?;

    // It is deleted while its pod is being started.
    bench.api.delete_claim(&claim)?;
    bench.api.deallocate(&claim)?;
    let late = bench.kubelet.prepare_one(&plugin, &claim)?.err().context("it is prepared")?;
    ensure!(late.contains("claim"), "{late}");
    bench.cluster.wait_idle(SOON)?;
    ensure!(std::fs::read_dir(bench.kubelet.cdi())?.next().is_none(), "a CDI description is left");
    bench.no_complaints()
}
