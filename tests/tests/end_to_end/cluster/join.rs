//! A cluster whose broker makes the certificates, and that machines and users join by a line.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::cluster::service::Service;
use rgpu_tests::process::{self, Finished};
use rgpu_tests::product::{clean, temporary};

use crate::context::{plain, product};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::a_line_joins_and_pins_the_broker", line),
        Test::new("cluster::bundles_bring_certificates_to_a_broker_that_asks_for_them", bundles),
    ]
}

/// A broker's directory, and the users' own files.
struct Made {
    directory: PathBuf,
}

impl Made {
    /// Sets up a broker that will listen on a port that is free now.
    fn new(options: &[&str]) -> Result<Self> {
        let made = Self { directory: temporary("join") };
        let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let directory = made.broker().display().to_string();
        let listen = free.to_string();
        let init = ["broker", "init", &directory, "--address", "127.0.0.1", "--listen", &listen];
        let said = made.rgpu(&[&init, options].concat())?.success()?.stdout;
        ensure!(said.contains("the authority:") && said.contains("Nodes and users join"), "{said}");
        Ok(made)
    }

    fn broker(&self) -> PathBuf {
        self.directory.join("broker")
    }

    fn config(&self) -> String {
        self.broker().join("broker.toml").display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = clean(&product()?.rgpu());
        command.args(arguments).env("XDG_CONFIG_HOME", self.directory.join("config"));
        command.env("RGPU_CLUSTER_DIR", self.directory.join("none"));
        Ok(command)
    }

    fn rgpu(&self, arguments: &[&str]) -> Result<Finished> {
        process::run(&mut self.command(arguments)?)
    }

    fn start(&self) -> Result<Service> {
        Service::start("the broker", self.command(&["broker", "--config", &self.config()])?)
    }

    /// `rgpu broker token` for somebody.
    fn token(&self, role: &str, name: &str, options: &[&str]) -> Result<Finished> {
        let config = self.config();
        let token = ["broker", "token", "--config", &config, "--role", role, "--name", name];
        self.rgpu(&[&token, options].concat())
    }

    /// What follows `rgpu join` in the line for somebody.
    fn line(&self, role: &str, name: &str) -> Result<String> {
        let said = self.token(role, name, &["--join"])?.success()?.stdout;
        Ok(said.trim().strip_prefix("rgpu join ").context("No line")?.to_owned())
    }

    /// A node's server that has joined in a folder.
    fn serve(&self, folder: &Path) -> Result<Service> {
        let folder = folder.display().to_string();
        let serve = ["serve", "--listen", "127.0.0.1:0", "--device", "software", "--memory", "256M"];
        Service::start("the node", self.command(&[&serve[..], &["--broker", &folder]].concat())?)
    }

    fn vector_add(&self) -> Result<()> {
        let mut command = self.command(&["run", "--wait", "60", "--"])?;
        process::run(command.arg(plain("vector_add")?))?.success().map(drop)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn line() -> Result<()> {
    let made = Made::new(&[])?;
    let broker = made.start()?;
    let line = made.line("node", "gpu-1")?;
    let folder = made.directory.join("node");
    let to_folder = folder.display().to_string();

    // Somebody else's fingerprint: nothing is kept.
    let (rest, digit) = line.split_at(line.len() - 1);
    let other = format!("{rest}{}", if digit == "0" { '1' } else { '0' });
    let refused = made.rgpu(&["join", &other, "--folder", &to_folder])?.expect_code(1)?;
    ensure!(refused.stderr.contains("no certificate with the fingerprint"), "{}", refused.output());
    // A token that is not the broker's, or damaged, and no fingerprint at all.
    let forged = line.replacen("rgpu1.", "rgpu1.A", 1);
    made.rgpu(&["join", &forged, "--folder", &to_folder])?.expect_code(2)?;
    let (unpinned, _) = line.split_once('#').context("The line has no fingerprint")?;
    let refused = made.rgpu(&["join", unpinned, "--folder", &to_folder])?.expect_code(1)?;
    ensure!(refused.stderr.contains("cannot be trusted"), "{}", refused.output());
    ensure!(!folder.exists(), "something was kept of what was refused");

    made.rgpu(&["join", &line, "--folder", &to_folder])?.success()?;
    let _node = made.serve(&folder)?;
    let none = made.rgpu(&["run", "--", "true"])?.expect_code(2)?;
    ensure!(none.stderr.contains("rgpu cluster up"), "{}", none.output());
    let joined = made.rgpu(&["join", &made.line("tenant", "ann")?])?.success()?;
    ensure!(joined.stdout.contains("as the tenant ann"), "{}", joined.output());
    made.vector_add()?;

    // A new certificate of the broker's: whoever has joined needs nothing new.
    drop(broker);
    made.rgpu(&["broker", "certificate", "--config", &made.config(), "--address", "127.0.0.1"])?.success()?;
    let _broker = made.start()?;
    made.vector_add()?;

    made.rgpu(&["join", "--forget"])?.success()?;
    made.rgpu(&["run", "--", "true"])?.expect_code(2).map(drop)
}

fn bundles() -> Result<()> {
    let made = Made::new(&["--client-certificates"])?;
    let _broker = made.start()?;
    let refused = made.token("tenant", "ann", &["--join"])?.expect_code(1)?;
    ensure!(refused.stderr.contains("--bundle"), "{}", refused.output());
    for (role, name, folder) in [("node", "gpu-1", "node"), ("tenant", "ann", "config/rgpu/user")] {
        let bundle = made.directory.join(name).display().to_string();
        made.token(role, name, &["--bundle", &bundle])?.success()?;
        let folder = made.directory.join(folder).display().to_string();
        made.rgpu(&["join", &bundle, "--folder", &folder])?.success()?;
    }
    let _node = made.serve(&made.directory.join("node"))?;
    made.vector_add()?;
    // Without the certificate the token alone is not enough.
    std::fs::remove_file(made.directory.join("config/rgpu/user/identity.pem"))?;
    let refused = made.rgpu(&["nodes"])?;
    ensure!(refused.status.code() != Some(0), "{}", refused.output());
    Ok(())
}
