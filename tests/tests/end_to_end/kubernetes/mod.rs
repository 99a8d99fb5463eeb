//! The Kubernetes driver: its processes, with a broker and servers, an API server of the tests' own, and a client that does
//! with the plugins' sockets what a kubelet does. No part of Kubernetes runs here.

mod bad;
mod claims;
mod device_plugin;
mod restarts;
mod tenants;

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::{Lease, LeaseState};
use rgpu_control::settings::BROKER_INSECURE_VARIABLE;
use rgpu_control::token::Role;
use rgpu_control::{BROKER_TOKEN_VARIABLE, BROKER_VARIABLE};
use rgpu_kubernetes_testing::apiserver::{Allocate, ApiServer, Claim};
use rgpu_kubernetes_testing::cdi::Container;
use rgpu_kubernetes_testing::kubelet::{Kubelet, Plugin};
use rgpu_kubernetes_testing::manifests;
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::debian::Packages;
use rgpu_tests::process::{self, Finished, wait_until};
use rgpu_tests::product::clean;

use crate::context::{plain, product};

/// How soon something must be noticed. Only tells hanging from working.
const SOON: Duration = Duration::from_secs(60);

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests = claims::tests();
    tests.extend(restarts::tests());
    tests.extend(bad::tests());
    tests.extend(device_plugin::tests());
    tests.extend(tenants::tests());
    tests
}

/// The driver: beside the product, or where `cargo test --workspace` has put it.
pub(crate) fn driver() -> Result<PathBuf> {
    let name = "rgpu-kubernetes";
    let own = std::env::current_exe()?;
    let built = own.parent().and_then(|deps| deps.parent()).map(|folder| folder.join(name));
    let places = [Some(product()?.directory().join(name)), built];
    let found = places.into_iter().flatten().find(|path| path.exists());
    found.ok_or_else(|| Skip("it needs the driver: cargo build -p rgpu-kubernetes".into()).into())
}

/// A part of the driver; killed when dropped.
struct Part {
    child: Child,
    log: PathBuf,
}

impl Part {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to end, and waits for that.
    fn end(mut self) -> Result<()> {
        // SAFETY: kill takes no pointers; the child hasn't been waited for, so the id is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let mut status = None;
        wait_until("a part of the driver ends", SOON, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })?;
        ensure!(status.is_some_and(|status| status.success()), "{status:?}: {}", self.log());
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() || std::env::var_os("RGPU_TEST_KEEP").is_some() {
            println!("{}:\n{}", self.log.display(), self.log());
        }
    }
}

/// A cluster with two GPUs of 2 GiB, an API server with the manifests' rights, and a kubelet.
struct Bench {
    api: ApiServer,
    kubelet: Kubelet,
    cluster: Cluster,
    /// As what the driver speaks to the broker.
    role: Role,
    parts: usize,
}

impl Bench {
    fn new() -> Result<Self> {
        driver()?;
        let mut setup = Setup::servers(2);
        // What nobody renews is gone within a test's patience.
        setup.lease_ttl_s = 30;
        Self::with(&setup)
    }

    fn with(setup: &Setup) -> Result<Self> {
        driver()?;
        let cluster = Cluster::on_loopback(product()?, setup)?;
        let api = ApiServer::start()?;
        for role in ["rgpu-controller", "rgpu-node"] {
            api.grant(role, &manifests::role(role)?);
        }
        let folder = cluster.directory().join("kubelet");
        let kubelet = Kubelet::new(&folder)?;
        let secret = cluster.directory().join("secret");
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&secret)?;
        fs::write(&secret, "a secret that controller and nodes share\n")?;
        Ok(Self { api, kubelet, cluster, role: Role::Engine, parts: 0 })
    }

    /// The folder of tickets and the library.
    fn state(&self) -> PathBuf {
        self.cluster.directory().join("state-of-the-node")
    }

    fn part(&mut self, arguments: &[&str], role: &str) -> Result<Part> {
        self.parts += 1;
        let folder = self.cluster.directory();
        let config = folder.join(format!("kubeconfig-{}", self.parts));
        fs::write(&config, self.api.kubeconfig(role))?;
        let log = folder.join(format!("part-{}.log", self.parts));
        let mut command = clean(&driver()?);
        command
            .args(arguments)
            .env("KUBECONFIG", config)
            .env(BROKER_VARIABLE, self.cluster.url())
            .env(BROKER_TOKEN_VARIABLE, self.cluster.token_file(self.role, "kubernetes")?)
            .env("RGPU_KUBERNETES_SECRET_FILE", folder.join("secret"))
            .env_remove(BROKER_INSECURE_VARIABLE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?);
        Ok(Part { child: command.spawn().context("Starting the driver")?, log })
    }

    fn controller(&mut self) -> Result<Part> {
        self.part(&["controller", "--pool-every", "1"], "rgpu-controller")
    }

    /// A plugin of the node.
    fn node(&mut self, instance: &str) -> Result<Part> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let options = [
            ("--registry", text(self.kubelet.registry())),
            ("--plugins", text(self.kubelet.plugins())),
            ("--cdi", text(self.kubelet.cdi())),
            ("--state", text(self.state())),
            ("--library", text(product()?.shim())),
            ("--instance", instance.to_owned()),
        ];
        let mut arguments = vec!["node"];
        arguments.extend(options.iter().flat_map(|(name, value)| [*name, value.as_str()]));
        self.part(&arguments, "rgpu-node")
    }

    /// The name in the pool of the GPUs, once they are published.
    fn device(&self) -> Result<String> {
        wait_until("the pool is published", SOON, || self.api.devices().len() == 1)
            .with_context(|| format!("{:?}", self.api.complaints()))?;
        let devices = self.api.devices();
        Ok(devices[0]["name"].as_str().context("a device has a name")?.to_owned())
    }

    /// A claim that was allocated so many parts of GPUs.
    fn claim(&self, name: &str, count: usize, size: (&str, &str)) -> Result<Claim> {
        self.claim_in("default", name, count, size)
    }

    /// The same in another namespace.
    fn claim_in(&self, namespace: &str, name: &str, count: usize, size: (&str, &str)) -> Result<Claim> {
        let device = self.device()?;
        let claim = self.api.create_claim_in(namespace, name, count)?;
        let devices = vec![Allocate { device: &device, size: Some(size) }; count];
        self.api.allocate(&claim, &devices, "s0", None)?;
        Ok(claim)
    }

    /// Waits for a condition to be as said, and returns its message.
    fn wait_condition(&self, claim: &Claim, kind: &str, status: &str, reason: &str) -> Result<String> {
        let mut message = String::new();
        wait_until(&format!("{} is {status} for {reason}", kind), SOON, || {
            self.api.condition(claim, kind).is_some_and(|(now, why, text)| {
                message = text;
                now == status && why == reason
            })
        })
        .with_context(|| format!("{:?}; refused: {:?}", self.api.claim(claim), self.api.complaints()))?;
        Ok(message)
    }

    /// Waits until a claim says that it has a lease which the broker has as well: for a moment after a claim is allocated anew it still
    /// names the one before.
    fn wait_granted(&self, claim: &Claim) -> Result<Lease> {
        let mut found = None;
        self.cluster.wait("the claim's lease is granted", SOON, |_| {
            self.wait_condition(claim, "LeaseGranted", "True", "Granted")?;
            let object = self.api.claim(claim).context("the claim is gone")?;
            let id = object["status"]["devices"][0]["data"]["lease"].as_str().unwrap_or_default();
            found = self.cluster.leases(false)?.into_iter().find(|lease| lease.id.to_string() == id);
            Ok(found.is_some())
        })?;
        found.context("no lease was found")
    }

    /// The leases that wait or are active.
    fn leases(&self) -> Result<Vec<Lease>> {
        let mut leases = self.cluster.leases(false)?;
        leases.retain(|lease| matches!(lease.state, LeaseState::Waiting | LeaseState::Active));
        Ok(leases)
    }

    /// A plugin that is registered.
    fn registered(&mut self, instance: &str, known: &[&Plugin]) -> Result<(Part, Plugin)> {
        let part = self.node(instance)?;
        let plugin = self.kubelet.register(known).with_context(|| part.log())?;
        Ok((part, plugin))
    }

    /// The API server has refused nothing as malformed or beyond rights.
    fn no_complaints(&self) -> Result<()> {
        let complaints = self.api.complaints();
        ensure!(complaints.is_empty(), "{complaints:?}");
        Ok(())
    }
}

/// Runs a program as a container runtime would with these edits: with the folders mounted, as another user, who has no rights here.
fn run_contained(container: &Container, program: &str) -> Result<Finished> {
    let bwrap = Packages::find(&["bubblewrap"], "bwrap").map_err(|e| Skip(format!("{e:#}")))?;
    let setpriv = Packages::find(&["util-linux"], "setpriv").map_err(|e| Skip(format!("{e:#}")))?;
    let mut command: Command = bwrap.command("bwrap")?;
    // Folders on the way are for all, as container runtimes make them.
    command.args(["--dev-bind", "/", "/", "--tmpfs", "/opt", "--perms", "0755", "--dir", "/opt/rgpu"]);
    for mount in &container.mounts {
        ensure!(mount.options.iter().any(|option| option == "ro"), "{mount:?}");
        command.arg("--ro-bind").arg(&mount.host_path).arg(&mount.container_path);
    }
    let program = plain(program)?;
    // Where the program lies, that user may not get.
    command.arg("--ro-bind").arg(&program).arg("/opt/program").arg("--");
    command.arg(setpriv.program("setpriv")?).args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--",
    ]);
    command.arg("env");
    command.args(container.environment.iter().map(|(name, value)| format!("{name}={value}")));
    command.arg("/opt/program");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RGPU_") {
            command.env_remove(name);
        }
    }
    process::run(&mut command)
}

/// Whether containers can be made here, with users of their own.
fn need_containers() -> Result<()> {
    // SAFETY: geteuid has no conditions.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Skip("it makes containers of other users, which needs root".into()).into());
    }
    plain("vector_add").map(drop)
}
