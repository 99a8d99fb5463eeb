//! Hosts in network namespaces: each has an interface of its own, a veth pair's end whose other end is a port of a bridge.
//!
//! A namespace has no name and no process: an open descriptor keeps it. When the process that made it and what that started are
//! gone, however that came about, the kernel removes namespaces, interfaces and shaping. Root is needed, and iproute2.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Why there is no such network, or a part of it could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine, or this user, cannot have such networks: nothing has failed that was to be tested or measured.
    #[error("Networks of one's own cannot be had here: {0}")]
    Impossible(String),
    /// Something else went wrong.
    #[error("{0}")]
    Failed(String),
}

/// What the functions here return.
pub type Result<T> = std::result::Result<T, Error>;

/// Puts the calling thread into a namespace.
fn join(namespace: RawFd) -> std::io::Result<()> {
    // SAFETY: setns takes a descriptor and a number, and changes nothing of memory.
    match unsafe { libc::setns(namespace, libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A network namespace.
#[derive(Debug, Clone)]
struct Namespace(Arc<File>);

impl Namespace {
    /// A new one, with nothing but a loopback interface, which is up.
    fn create() -> Result<Self> {
        let made = std::thread::spawn(|| {
            // SAFETY: unshare takes a number; it concerns this thread alone, which ends here.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
            File::open("/proc/thread-self/ns/net")
        });
        let file = made.join().expect("the thread doesn't panic");
        let file = file.map_err(|e| Error::Impossible(format!("{e} (it needs root)")))?;
        let namespace = Self(Arc::new(file));
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name for `ip`, which is given a path.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    fn place(&self, command: &mut Command) {
        let namespace = self.0.clone();
        // SAFETY: between fork and exec, the closure makes one system call, and allocates nothing.
        unsafe { command.pre_exec(move || join(namespace.as_raw_fd())) };
    }

    fn tool(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(program);
        self.place(&mut command);
        let output = match command.args(arguments).stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(e) => return Err(Error::Impossible(format!("it needs {program} (iproute2): {e}"))),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        // What the kernel or this container doesn't allow is no failure of what is tested.
        let missing =
            ["not permitted", "not supported", "Unknown device type", "Specified qdisc", "No such file"];
        if !output.status.success() && missing.iter().any(|m| said.contains(m)) {
            return Err(Error::Impossible(format!("`{program} {}`: {said}", arguments.join(" "))));
        }
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::Failed(format!("`{program} {}`: {said}", arguments.join(" ")))),
        }
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        self.tool("ip", arguments)
    }
}

/// A bridge, and the hosts at it.
#[derive(Debug)]
pub struct Network {
    switch: Namespace,
    hosts: u8,
}

impl Network {
    /// One without hosts.
    ///
    /// # Errors
    /// [`Error::Impossible`] where namespaces, iproute2, or the shaping of links are not to be had.
    pub fn create() -> Result<Self> {
        let switch = Namespace::create()?;
        switch.ip(&["link", "add", "switch", "type", "bridge"])?;
        switch.ip(&["link", "set", "switch", "up"])?;
        switch.tool(
            "tc",
            &[
                "qdisc", "add", "dev", "switch", "root", "tbf", "rate", "1gbit", "burst", "64k", "latency",
                "9ms",
            ],
        )?;
        switch.tool("tc", &["qdisc", "del", "dev", "switch", "root"])?;
        Ok(Self { switch, hosts: 0 })
    }

    /// Another host, which reaches all others.
    ///
    /// # Errors
    /// Where there are too many, or the system refuses.
    pub fn host(&mut self, name: &str) -> Result<Host> {
        if self.hosts >= 250 {
            return Err(Error::Failed("A network has 250 hosts at most".into()));
        }
        self.hosts += 1;
        let host = Host {
            name: name.to_owned(),
            address: Ipv4Addr::new(10, 99, 0, self.hosts),
            port: format!("port{}", self.hosts),
            namespace: Namespace::create()?,
            switch: self.switch.clone(),
        };
        let own = host.namespace.path();
        self.switch
            .ip(&["link", "add", &host.port, "type", "veth", "peer", "name", "eth0", "netns", &own])?;
        self.switch.ip(&["link", "set", &host.port, "master", "switch", "up"])?;
        let address = format!("{}/24", host.address);
        host.namespace.ip(&["address", "add", &address, "dev", "eth0"])?;
        host.namespace.ip(&["link", "set", "eth0", "up"])?;
        Ok(host)
    }
}

/// A host of a [`Network`].
#[derive(Debug, Clone)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    port: String,
    namespace: Namespace,
    switch: Namespace,
}

impl Host {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Has a command run on this host, once it is started.
    pub fn place(&self, command: &mut Command) {
        self.namespace.place(command);
    }

    /// Does something on this host. Threads that are started by it are there, too.
    ///
    /// # Errors
    /// Where the host cannot be entered.
    pub fn enter<T: Send>(&self, what: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| join(self.namespace.0.as_raw_fd()).map(|()| what()));
            match inside.join() {
                Ok(done) => done.map_err(|e| Error::Failed(format!("Entering the host {}: {e}", self.name))),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Connects or disconnects it: nothing gets through any more, and nobody is told.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn connected(&self, connected: bool) -> Result<()> {
        self.switch.ip(&["link", "set", &self.port, if connected { "up" } else { "down" }])
    }

    /// Limits its link to so many Mbit/s in each direction.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn shape(&self, mbps: u32) -> Result<()> {
        let rate = format!("{mbps}mbit");
        // A burst that holds what passes in 4 ms, but no less than a segment of 64 KiB.
        let burst = (mbps / 8 * 4000).max(96 << 10).to_string();
        let limit = ["root", "tbf", "rate", &rate, "burst", &burst, "latency", "40ms"];
        for (namespace, device) in [(&self.namespace, "eth0"), (&self.switch, self.port.as_str())] {
            namespace.tool("tc", &[&["qdisc", "replace", "dev", device][..], &limit].concat())?;
        }
        Ok(())
    }
}
