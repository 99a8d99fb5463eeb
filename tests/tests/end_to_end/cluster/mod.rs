//! A broker, servers with software GPUs, and programs that run by leases: real processes, on the loopback interface or on
//! hosts in network namespaces.

mod commands;
mod drmaestro;
mod encrypted;
mod examples;
mod faults;
mod harvest;
mod join;
mod nvidia;
mod own;
mod partitions;
mod policy;
mod processors;
mod profile;
mod requests;
mod servers_lost;
mod state;
mod tokens;
mod waiting;
mod web;

use std::time::Duration;

use anyhow::Result;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::puppet::Puppet;
use rgpu_tests::cluster::{Cluster, Setup};

use crate::context::{plain, product};

/// How soon something must be noticed. Only tells hanging from working: the protocol gives up after 8 s of silence.
const SOON: Duration = Duration::from_secs(60);

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests = commands::tests();
    tests.extend(own::tests());
    tests.extend(join::tests());
    tests.extend(tokens::tests());
    tests.extend(encrypted::tests());
    tests.extend(partitions::tests());
    tests.extend(nvidia::tests());
    tests.extend(servers_lost::tests());
    tests.extend(state::tests());
    tests.extend(faults::tests());
    tests.extend(examples::tests());
    tests.extend(policy::tests());
    tests.extend(requests::tests());
    tests.extend(drmaestro::tests());
    tests.extend(profile::tests());
    tests.extend(waiting::tests());
    tests.extend(processors::tests());
    tests.extend(harvest::tests());
    tests.extend(web::tests());
    tests
}

fn on_loopback(setup: &Setup) -> Result<Cluster> {
    plain("puppet")?; // skipped where there is no compiler, before anything is started
    Cluster::on_loopback(product()?, setup)
}

/// On hosts in network namespaces; skipped where those cannot be made.
pub(crate) fn on_hosts(setup: &Setup) -> Result<Cluster> {
    plain("puppet")?;
    Cluster::on_hosts(product()?, setup)
}

/// Starts the puppet by `rgpu run` with these options.
fn puppet(cluster: &Cluster, tenant: &str, options: &[&str]) -> Result<Puppet> {
    let mut command = cluster.run(tenant, options)?;
    command.arg("--").arg(plain("puppet")?);
    Puppet::start(command)
}
