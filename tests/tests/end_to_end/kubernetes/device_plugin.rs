//! The device plugin of older clusters.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process::wait_until;

use super::{Bench, Part, SOON, need_containers, run_contained};
use crate::context::product;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("kubernetes::the_device_plugin_gives_each_container_a_lease_and_takes_it_back", plugin)]
}

impl Bench {
    fn device_plugin(&mut self) -> Result<Part> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let options = [
            ("--plugins", text(self.kubelet.device_plugins())),
            ("--pod-resources", text(self.kubelet.pod_resources())),
            ("--state", text(self.state())),
            ("--library", text(product()?.shim())),
            ("--node-name", "s1".into()),
            ("--count", "6".into()),
            ("--share", "50%".into()),
            ("--gpu-memory", "256MiB".into()),
            ("--grace", "2".into()),
        ];
        let mut arguments = vec!["device-plugin"];
        arguments.extend(options.iter().flat_map(|(name, value)| [*name, value.as_str()]));
        self.part(&arguments, "nobody")
    }
}

fn plugin() -> Result<()> {
    need_containers()?;
    let mut bench = Bench::new()?;
    let socket = bench.kubelet.device_plugins().join("rgpu.sock");
    // The plugin comes before the kubelet.
    let part = bench.device_plugin()?;
    bench.kubelet.serve()?;
    wait_until("the plugin registers", SOON, || bench.kubelet.registered().len() == 1)
        .with_context(|| part.log())?;
    ensure!(bench.kubelet.devices(&socket)?.len() == 6, "{:?}", bench.kubelet.devices(&socket));

    let container = bench.kubelet.allocate(&socket, &["rgpu-0"])?.map_err(anyhow::Error::msg)?;
    bench.kubelet.pod("a", &["rgpu-0"]);
    let finished = run_contained(&container, "vector_add")?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    let lease = bench.cluster.only_lease()?;
    ensure!((lease.grants[0].share_milli, lease.grants[0].memory) == (500, 256 << 20), "{lease:?}");
    // Nobody tells the plugin the pod's namespace.
    ensure!((lease.client_node.as_str(), lease.tenant.as_str()) == ("s1", "kubernetes"), "{lease:?}");

    // It is killed, and the kubelet is restarted: what pods have stays.
    drop(part);
    fs::remove_dir_all(bench.kubelet.device_plugins())?;
    fs::create_dir_all(bench.kubelet.device_plugins())?;
    bench.kubelet.serve()?;
    let _part = bench.device_plugin()?;
    wait_until("the plugin registers again", SOON, || bench.kubelet.registered().len() == 2)?;
    // A kubelet that is restarted empties the folder under a plugin that runs.
    fs::remove_file(&socket)?;
    wait_until("it registers once more", SOON, || bench.kubelet.registered().len() == 3 && socket.exists())?;
    ensure!(bench.cluster.only_lease()?.id == lease.id, "another lease");

    // All that there is is given: 4 halves; then the words say so, and nothing waits on.
    let rest = bench.kubelet.allocate(&socket, &["rgpu-1", "rgpu-2"])?.map_err(anyhow::Error::msg)?;
    ensure!(rest.environment == container.environment && rest.mounts != container.mounts, "{rest:?}");
    bench.kubelet.pod("b", &["rgpu-1", "rgpu-2"]);
    for wrong in [&["rgpu-9"][..], &["gpu"], &[]] {
        ensure!(bench.kubelet.allocate(&socket, wrong)?.is_err(), "{wrong:?} was given");
    }
    let many = bench.kubelet.allocate(&socket, &["rgpu-3", "rgpu-4", "rgpu-5"])?;
    ensure!(many.as_ref().is_err_and(|why| why.contains("refuses")), "{many:?}");
    ensure!(bench.leases()?.len() == 2, "{:?}", bench.leases());

    // A device that is given again is no other container's any more.
    bench.kubelet.allocate(&socket, &["rgpu-0"])?.map_err(anyhow::Error::msg)?;
    bench.cluster.wait("the earlier lease is given back", SOON, |cluster| {
        Ok(cluster.leases(false)?.iter().all(|one| one.id != lease.id) && bench.leases()?.len() == 2)
    })?;
    // Pods go.
    bench.kubelet.pod("a", &[]);
    bench.kubelet.pod("b", &[]);
    bench.cluster.wait_idle(SOON)?;
    ensure!(fs::read_dir(bench.state().join("claims"))?.next().is_none(), "a ticket is left");
    Ok(())
}
