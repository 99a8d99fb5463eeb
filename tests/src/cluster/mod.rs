//! A cluster of real processes: a broker, servers with software GPUs, and clients, on this machine's loopback interface or on
//! hosts in network namespaces ([`network`]).

pub mod network;
pub mod puppet;
pub mod service;
pub mod watch;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::{Device, Lease, LeaseState, Node as NodeInfo};
use rgpu_control::settings::BROKER_INSECURE_VARIABLE;
use rgpu_control::token::{Claims, PrivateKey, Role, RoleClaims};
use rgpu_control::{BROKER_TOKEN_VARIABLE, BROKER_VARIABLE, Broker, ClientError, LeaseId, Tls, unix_time};

use crate::process;
use crate::product::{self, Product};
use network::{Host, Network};
use service::Service;

/// What a cluster is to be like.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Options of each server, beside those that every one gets.
    pub servers: Vec<Vec<String>>,
    /// What all servers have in their environment.
    pub environment: Vec<(String, String)>,
    /// More of the broker's configuration (TOML).
    pub config: String,
    /// Seconds for which a lease is good unless it is renewed.
    pub lease_ttl_s: u64,
    /// Seconds without a heartbeat after which a node is lost.
    pub node_timeout_s: u64,
    /// Where the broker listens on the loopback interface; 0 takes a free port.
    pub port: u16,
}

impl Setup {
    /// So many servers with one software GPU of 2 GiB each. Nobody is given up because the machine is slow: a lease that isn't
    /// given back, or a server that is lost, would be waited for in vain.
    pub fn servers(count: usize) -> Self {
        let options = ["--device", "software", "--memory", "2G"].map(str::to_owned).to_vec();
        Self {
            servers: vec![options; count],
            environment: Vec::new(),
            config: String::new(),
            lease_ttl_s: 600,
            node_timeout_s: 300,
            port: 0,
        }
    }

    /// Loses servers and ends leases as soon as a test that waits for that can bear, and no sooner: a server or a program
    /// that lives has to be heard within these times, however busy the machine is.
    pub fn impatient(mut self) -> Self {
        self.lease_ttl_s = 12;
        self.node_timeout_s = 8;
        self
    }

    /// Replaces the options of all servers.
    pub fn each(mut self, options: &[&str]) -> Self {
        for server in &mut self.servers {
            *server = options.iter().map(|&o| o.to_owned()).collect();
        }
        self
    }

    /// Adds to the servers' environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Adds to the broker's configuration.
    pub fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self
    }
}

/// A server of a cluster.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its host, where it has one of its own.
    pub host: Option<Host>,
    /// By which address it reaches the broker, where that is not the broker's own.
    pub via: Option<String>,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    service: Option<Service>,
}

impl Node {
    /// Its process.
    pub fn service(&mut self) -> Result<&mut Service> {
        self.service.as_mut().with_context(|| format!("{} is not running", self.name))
    }

    /// The processes that it has started for applications.
    pub fn application_servers(&self) -> Vec<u32> {
        self.service.as_ref().map_or_else(Vec::new, |service| process::descendants(service.pid()))
    }

    /// What it has written.
    pub fn log(&self) -> String {
        self.service.as_ref().map_or_else(String::new, Service::log_text)
    }
}

/// A broker and its servers; they end when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    product: Product,
    directory: PathBuf,
    key: PrivateKey,
    broker: Option<Service>,
    broker_host: Option<Host>,
    client_host: Option<Host>,
    port: u16,
    clients_via: Option<String>,
    ask_at: Option<String>,
    /// The servers, in the setup's order: `s0`, `s1`, ….
    pub nodes: Vec<Node>,
    network: Option<Network>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The servers first, so that they needn't tell a broker that isn't there.
        self.nodes.clear();
        self.broker = None;
        if std::thread::panicking() || std::env::var_os("RGPU_TEST_KEEP").is_some() {
            println!("what the cluster's processes kept is in {}", self.directory.display());
        } else {
            let _ = fs::remove_dir_all(&self.directory); // only tidiness
        }
    }
}

impl Cluster {
    /// Everything on the loopback interface.
    pub fn on_loopback(product: &Product, setup: &Setup) -> Result<Self> {
        Self::start(product, setup, None)
    }

    /// A host for the broker, one for each server, and one for clients.
    pub fn on_hosts(product: &Product, setup: &Setup) -> Result<Self> {
        Self::start(product, setup, Some(Network::create()?))
    }

    fn start(product: &Product, setup: &Setup, mut network: Option<Network>) -> Result<Self> {
        let directory = product::temporary("cluster");
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let mut host = |name: &str| network.as_mut().map(|n| n.host(name)).transpose();
        let (broker_host, client_host) = (host("broker")?, host("client")?);
        let nodes: Vec<Node> = setup
            .servers
            .iter()
            .enumerate()
            .map(|(i, options)| {
                let name = format!("s{i}");
                let (host, options, environment) = (host(&name)?, options.clone(), setup.environment.clone());
                Ok(Node { host, name, via: None, options, environment, service: None })
            })
            .collect::<Result<_>>()?;
        let mut cluster = Self {
            product: product.clone(),
            directory,
            key: PrivateKey::generate(), // until the broker has made its own
            broker: None,
            broker_host,
            client_host,
            port: setup.port,
            clients_via: None,
            ask_at: None,
            nodes,
            network,
        };
        cluster.initialize(setup)?;
        cluster.start_broker()?;
        for at in 0..cluster.nodes.len() {
            cluster.start_node(at)?;
        }
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// Where the cluster keeps its files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory of the broker's state and key.
    pub fn state(&self) -> PathBuf {
        self.directory.join("broker/state")
    }

    fn config_file(&self) -> PathBuf {
        self.directory.join("broker/broker.toml")
    }

    /// The broker's key, by which a test can sign what it likes.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// Has the broker make its key and configuration, and changes the times in that.
    fn initialize(&mut self, setup: &Setup) -> Result<()> {
        let place = self.directory.join("broker");
        let mut init = product::clean(&self.product.rgpu());
        process::run(init.args(["broker", "init"]).arg(&place))?.success().context("rgpu broker init")?;
        let key = fs::read_to_string(place.join("state/broker.key")).context("Reading the broker's key")?;
        self.key = PrivateKey::parse(&key).context("the broker's key is none")?;
        let listen = match &self.broker_host {
            Some(host) => format!("{}:7080", host.address()),
            None => "127.0.0.1:0".to_owned(),
        };
        let config = format!(
            "listen = {listen:?}\ninsecure = true\ndata_dir = \"state\"\nheartbeat_ms = 500\n\
             lease_ttl_s = {}\nnode_timeout_s = {}\n{}",
            setup.lease_ttl_s, setup.node_timeout_s, setup.config
        );
        fs::write(self.config_file(), config)?;
        Ok(())
    }

    fn on(&self, host: Option<&Host>, program: &Path) -> Command {
        host.map_or_else(|| product::clean(program), |host| host.command(program))
    }

    /// The command that starts the broker.
    pub fn broker_command(&self) -> Command {
        let mut command = self.on(self.broker_host.as_ref(), &self.product.rgpu());
        command.arg("broker").arg("--config").arg(self.config_file());
        if self.port != 0 && self.broker_host.is_none() {
            // A restarted broker is where servers and clients look for it.
            command.args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        }
        command
    }

    /// Starts the broker (again).
    pub fn start_broker(&mut self) -> Result<()> {
        self.start_broker_as(self.broker_command())
    }

    /// Starts the broker by a command that [`Cluster::broker_command`] made, and that was wrapped since.
    pub fn start_broker_as(&mut self, command: Command) -> Result<()> {
        self.broker = None;
        let service = Service::start("rgpu broker", command)?;
        let (_, port) = service.address().rsplit_once(':').context("No port")?;
        self.port = port.parse()?;
        self.broker = Some(service);
        Ok(())
    }

    /// The broker's process.
    pub fn broker(&mut self) -> Result<&mut Service> {
        self.broker.as_mut().context("The broker is not running")
    }

    /// What the broker has written.
    pub fn broker_log(&self) -> String {
        self.broker.as_ref().map_or_else(String::new, Service::log_text)
    }

    /// The broker's address.
    pub fn url(&self) -> String {
        match &self.broker_host {
            Some(host) => format!("http://{}:{}", host.address(), self.port),
            None => format!("http://127.0.0.1:{}", self.port),
        }
    }

    /// A role token, signed with the broker's key.
    pub fn token(&self, role: Role, name: &str) -> String {
        let now = unix_time();
        let claims = RoleClaims { role, name: name.into(), not_before: now - 60, expires: now + 3600 };
        self.key.sign(&Claims::Role(claims))
    }

    /// A file with a role token, that only this user can read.
    pub fn token_file(&self, role: Role, name: &str) -> Result<PathBuf> {
        let path = self.directory.join(format!("{}-{name}.token", role.name()));
        // In one step: others may be reading it.
        let new = self.directory.join(format!("{}.new", LeaseId::random()));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        std::io::Write::write_all(&mut file, self.token(role, name).as_bytes())?;
        fs::rename(new, &path)?;
        Ok(path)
    }

    /// Starts a server (again).
    pub fn start_node(&mut self, at: usize) -> Result<()> {
        let token = self.token_file(Role::Node, &self.nodes[at].name)?;
        let node = &self.nodes[at];
        let listen =
            node.host.as_ref().map_or("127.0.0.1:0".into(), |host| format!("{}:7070", host.address()));
        let mut command = self.on(node.host.as_ref(), &self.product.rgpu());
        command.args(["serve", "--listen", &listen, "--node", &node.name, "--image-cache-size", "0"]);
        let broker = node.via.clone().unwrap_or_else(|| self.url());
        command.args(["--broker", &broker, "--broker-token-file"]).arg(token).args(&node.options);
        command.env(BROKER_INSECURE_VARIABLE, "1");
        command.envs(node.environment.iter().map(|(name, value)| (name, value)));
        let name = format!("rgpu serve ({})", node.name);
        self.nodes[at].service = None;
        self.nodes[at].service = Some(Service::start(&name, command)?);
        Ok(())
    }

    /// Waits until all servers are there.
    pub fn wait_ready(&self) -> Result<()> {
        let all = self.nodes.len();
        self.wait("all servers are ready", Duration::from_secs(60), |cluster| {
            Ok(cluster.node_infos()?.iter().filter(|node| node.state == "ready").count() == all)
        })
    }

    /// Waits for something that asks the broker; where that fails, it is asked again.
    pub fn wait(
        &self,
        what: &str,
        limit: Duration,
        mut holds: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        let mut last = None;
        let waited = process::wait_until(what, limit, || match holds(self) {
            Ok(holds) => holds,
            Err(e) => {
                last = Some(e);
                std::thread::sleep(Duration::from_millis(50));
                false
            }
        });
        waited.map(drop).with_context(|| {
            let servers: Vec<String> =
                self.nodes.iter().map(|n| format!("{}: {}", n.name, n.log())).collect();
            format!("(the last error: {last:?})\nbroker: {}\n{}", self.broker_log(), servers.join("\n"))
        })
    }

    /// Asks the broker something, for whoever the token is of.
    pub fn ask<T: Send>(
        &self,
        token: &str,
        what: impl FnOnce(&Broker) -> Result<T, ClientError> + Send,
    ) -> Result<T> {
        let url = self.ask_at.clone().unwrap_or_else(|| self.url());
        // The hosts' network is the test's own.
        let broker = Broker::new(&url, token, &Tls { plain: true, ..Tls::default() })?;
        let answer = match &self.broker_host {
            Some(host) => host.enter(|| what(&broker))?,
            None => what(&broker),
        };
        Ok(answer?)
    }

    /// Asks the broker something, as an administrator.
    pub fn admin<T: Send>(&self, what: impl FnOnce(&Broker) -> Result<T, ClientError> + Send) -> Result<T> {
        self.ask(&self.token(Role::Admin, "root"), what)
    }

    /// Asks the broker something, as a tenant.
    pub fn tenant<T: Send>(
        &self,
        name: &str,
        what: impl FnOnce(&Broker) -> Result<T, ClientError> + Send,
    ) -> Result<T> {
        self.ask(&self.token(Role::Tenant, name), what)
    }

    /// The nodes, as the broker sees them.
    pub fn node_infos(&self) -> Result<Vec<NodeInfo>> {
        self.admin(Broker::nodes)
    }

    /// The devices, as the broker sees them.
    pub fn devices(&self) -> Result<Vec<Device>> {
        self.admin(Broker::devices)
    }

    /// All leases; with `ended`, those too that ended lately.
    pub fn leases(&self, ended: bool) -> Result<Vec<Lease>> {
        self.admin(move |broker| broker.leases(ended))
    }

    /// A lease.
    pub fn lease(&self, id: LeaseId) -> Result<Lease> {
        self.admin(move |broker| broker.lease(id, 0))
    }

    /// The only lease that isn't over.
    pub fn only_lease(&self) -> Result<Lease> {
        let mut leases = self.leases(false)?;
        leases.retain(|lease| lease.state != LeaseState::Ended);
        ensure!(leases.len() == 1, "{} leases instead of one: {leases:?}", leases.len());
        leases.pop().context("no lease")
    }

    /// Waits until nothing is leased, and nothing of the devices is granted or used.
    pub fn wait_idle(&self, limit: Duration) -> Result<()> {
        self.wait("everything is given back", limit, |cluster| {
            let used = |d: &Device| d.granted_memory > 0 || d.granted_milli > 0 || d.load.memory_used > 0;
            Ok(cluster.leases(false)?.is_empty() && !cluster.devices()?.iter().any(used))
        })
    }

    /// A command on the clients' host, for a tenant.
    pub fn client(&self, tenant: &str, arguments: &[&str]) -> Result<Command> {
        self.client_at(self.client_host.as_ref(), tenant, arguments)
    }

    /// A command on the clients' host, for an administrator.
    pub fn admins_client(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = self.client("root", arguments)?;
        command.env(BROKER_TOKEN_VARIABLE, self.token_file(Role::Admin, "root")?);
        Ok(command)
    }

    /// A command on a host, such as a node's, for a tenant.
    pub fn client_at(&self, host: Option<&Host>, tenant: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = self.on(host, &self.product.rgpu());
        let broker = self.clients_via.clone().unwrap_or_else(|| self.url());
        command.env(BROKER_VARIABLE, broker);
        command.env(BROKER_INSECURE_VARIABLE, "1");
        command.env(BROKER_TOKEN_VARIABLE, self.token_file(Role::Tenant, tenant)?);
        command.args(arguments);
        Ok(command)
    }

    /// From now on clients reach the broker by this URL.
    pub fn clients_via(&mut self, url: String) {
        self.clients_via = Some(url);
    }

    /// From now on the broker is asked here, in [`Cluster::ask`].
    pub fn ask_at(&mut self, url: String) {
        self.ask_at = Some(url);
    }

    /// Runs `rgpu broker` with these arguments and a file, for this cluster's broker.
    pub fn broker_tool(&self, arguments: &[&str], file: &Path) -> Result<()> {
        let mut command = product::clean(&self.product.rgpu());
        command.arg("broker").args(arguments).arg("--config").arg(self.config_file()).arg(file);
        process::run(&mut command)?.success().map(drop)
    }

    /// `rgpu run` with these options, on the clients' host; `--` and the program are to be added.
    pub fn run(&self, tenant: &str, options: &[&str]) -> Result<Command> {
        self.client(tenant, &[&["run"], options].concat())
    }

    /// Another host in the cluster's network.
    pub fn another_host(&mut self, name: &str) -> Result<Host> {
        self.network.as_mut().context("The cluster has no network of its own")?.host(name)
    }

    /// The clients' host.
    pub fn client_host(&self) -> Option<&Host> {
        self.client_host.as_ref()
    }
}
