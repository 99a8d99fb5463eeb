//! Two brokers, of which one after the other is lost.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rgpu_control::{Broker, Tls};

use crate::cluster::service::Service;
use crate::cluster::{Cluster, Setup};
use crate::process;
use crate::product::{self, Product};

use super::{Chance, Run, Wrong};

/// How long a take-over may take before it counts as hanging. It takes a third of that where the machine has time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The two brokers.
#[derive(Debug)]
pub(super) struct Pair {
    urls: [String; 2],
    /// By number; the first one is the cluster's own.
    second: Option<Service>,
    config: PathBuf,
    product: Product,
}

/// A cluster with two brokers, which nodes and clients know.
pub(super) fn cluster(product: &Product, setup: Setup) -> Result<(Cluster, Pair)> {
    let free = || -> Result<u16> { Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
    let ports = [free()?, free()?];
    let urls = ports.map(|port| format!("http://127.0.0.1:{port}"));
    let (ttl, timeout) = (setup.lease_ttl_s, setup.node_timeout_s);
    let setup = Setup { port: ports[0], ..setup }.config(&format!("peer = {:?}\n", urls[1]));
    let mut cluster = Cluster::on_loopback(product, &setup)?;
    let place = cluster.directory().join("broker2");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(place.join("state"))?;
    let key = place.join("state/broker.key");
    fs::copy(cluster.state().join("broker.key"), &key)?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    let config = place.join("broker.toml");
    let text = format!(
        "listen = \"127.0.0.1:{}\"\ndata_dir = \"state\"\nheartbeat_ms = 500\nlease_ttl_s = {ttl}\n\
         node_timeout_s = {timeout}\npeer = {:?}\nstandby = true\n",
        ports[1], urls[0]
    );
    fs::write(&config, text)?;
    let mut pair = Pair { urls, second: None, config, product: product.clone() };
    pair.start_second()?;
    let both = pair.urls.join(",");
    cluster.clients_via(both.clone());
    cluster.ask_at(both.clone());
    for at in 0..cluster.nodes.len() {
        cluster.nodes[at].service()?.kill(true);
        cluster.nodes[at].via = Some(both.clone());
        cluster.start_node(at)?;
    }
    cluster.wait_ready()?;
    Ok((cluster, pair))
}

impl Pair {
    fn start_second(&mut self) -> Result<()> {
        let mut command: Command = product::clean(&self.product.rgpu());
        command.arg("broker").arg("--config").arg(&self.config);
        self.second = None;
        self.second = Some(Service::start("the second broker", command)?);
        Ok(())
    }

    /// Whether one is active; `None` where it does not answer.
    fn is_active(&self, which: usize) -> Option<bool> {
        let broker =
            Broker::new(&self.urls[which], "", &Tls::default()).ok()?.with_patience(Duration::from_secs(1));
        broker.health().ok().map(|health| !health.standby)
    }

    fn signal(&mut self, run: &Run, which: usize, signal: i32) -> Result<()> {
        match which {
            0 => run.cluster().broker()?.signal(signal),
            _ => self.second.as_ref().context("it is not running")?.signal(signal),
        }
        Ok(())
    }

    /// Loses the active one until the other one has taken over, and has it back.
    pub(super) fn disturb(&mut self, run: &Run, chance: &mut Chance) -> Result<(&'static str, Duration)> {
        let mut active = None;
        process::wait_until(
            "one of the two brokers is active, and the other one stands by",
            PATIENCE,
            || {
                let both = [self.is_active(0), self.is_active(1)];
                active = both.iter().position(|active| *active == Some(true));
                both.contains(&Some(true)) && both.contains(&Some(false))
            },
        )?;
        let active = active.context("none is")?;
        let stopped = chance.below(3) == 0;
        self.signal(run, active, if stopped { libc::SIGSTOP } else { libc::SIGKILL })?;
        let began = Instant::now();
        let taken = process::wait_until("the other broker takes over", PATIENCE, || {
            self.is_active(1 - active) == Some(true)
        });
        if let Err(e) = taken {
            run.report.wrong(Wrong::Hang, format!("{e:#}"));
        }
        let took = began.elapsed();
        std::thread::sleep(chance.millis(0, 5000));
        match (stopped, active) {
            (true, _) => self.signal(run, active, libc::SIGCONT)?,
            (false, 0) => run.cluster().start_broker()?,
            (false, _) => self.start_second()?,
        }
        Ok((if stopped { "stopped" } else { "killed" }, took))
    }

    /// What the second one has written.
    pub(super) fn log(&self) -> String {
        self.second.as_ref().map_or_else(String::new, Service::log_text)
    }
}
