//! Hosts in network namespaces, for tests: commands without any of rgpu's own variables, and tests that are skipped where no such
//! network can be had. The rest is [`rgpu_network`].

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use anyhow::Result;
use rgpu_test_runner::Skip;

use crate::product;

/// A bridge, and the hosts at it.
#[derive(Debug)]
pub struct Network(rgpu_network::Network);

impl Network {
    /// One without hosts. The test is skipped where namespaces, iproute2, or the shaping of links are not to be had.
    pub fn create() -> Result<Self> {
        skipped(rgpu_network::Network::create()).map(Self)
    }

    /// Another host, which reaches all others.
    pub fn host(&mut self, name: &str) -> Result<Host> {
        skipped(self.0.host(name)).map(Host)
    }
}

fn skipped<T>(made: rgpu_network::Result<T>) -> Result<T> {
    made.map_err(|e| match e {
        rgpu_network::Error::Impossible(_) => Skip(e.to_string()).into(),
        rgpu_network::Error::Failed(_) => e.into(),
    })
}

/// A host of a [`Network`].
#[derive(Debug, Clone)]
pub struct Host(rgpu_network::Host);

impl Host {
    /// A command that runs on this host, without any of rgpu's own variables.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = product::clean(program);
        self.0.place(&mut command);
        command
    }
}

impl Deref for Host {
    type Target = rgpu_network::Host;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Sends to a host as fast as its link allows, until it is dropped.
#[derive(Debug)]
pub struct Sender(Arc<AtomicBool>);

impl Sender {
    /// Starts sending.
    pub fn start(from: &Host, to: &Host) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let listener = to.enter(|| TcpListener::bind((to.address(), 0)))??;
        let target = listener.local_addr()?;
        std::thread::spawn(move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut buffer = vec![0; 256 << 10];
            while stream.read(&mut buffer)? > 0 {}
            Ok(())
        });
        let mut stream = from.enter(|| TcpStream::connect(target))??;
        let stopped = stop.clone();
        std::thread::spawn(move || {
            let buffer = vec![0; 64 << 10];
            while !stopped.load(SeqCst) && stream.write_all(&buffer).is_ok() {}
        });
        Ok(Self(stop))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
