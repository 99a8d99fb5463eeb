//! Leases of which nothing can be read on the network.

use anyhow::{Result, ensure};
use rgpu_tests::cluster::Setup;
use rgpu_tests::process;
use rgpu_tests::product::{Stats, temporary};
use rgpu_tests::runner::Test;

use super::on_loopback;
use crate::context::plain;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::encrypted_leases_are_served_by_the_server_that_the_broker_knows", encrypted),
        Test::new("cluster::a_broker_can_require_encryption_and_servers_can_lack_it", lacking),
    ]
}

fn encrypted() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(2))?;
    for (options, sessions) in [(&["--transport", "tcp"][..], 0), (&["--transport", "tcp", "--encrypt"], 1)] {
        let file = temporary("stats.json");
        let mut command = cluster.run("ann", options)?;
        command.arg(format!("--stats=json:{}", file.display())).arg("--").arg(plain("vector_add")?);
        process::run(&mut command)?.success()?;
        let stats = Stats::take(&file)?;
        let told = stats.number("encrypted_sessions")?;
        ensure!(told == sessions, "{told} encrypted sessions with {options:?}: {}", stats.0);
    }
    // Two servers, each by its own certificate.
    let mut both = cluster.run("ann", &["--transport", "tcp", "--encrypt", "--gpus", "2"])?;
    process::run(both.arg("--").arg(plain("vector_add")?))?.success()?;
    Ok(())
}

fn lacking() -> Result<()> {
    let mut setup = Setup::servers(1);
    setup.servers[0].extend(["--tls".to_owned(), "off".to_owned()]);
    let cluster = on_loopback(&setup.config("encrypt = true"))?;
    let mut refused = cluster.run("ann", &[])?;
    let refused = process::run(refused.arg("--").arg(plain("vector_add")?))?;
    ensure!(!refused.status.success() && refused.stderr.contains("encrypt"), "{}", refused.output());
    Ok(())
}
