//! Forwarding devices, held to what every device is held to: [`Remote`] over each way to a real server, and [`Several`] with two
//! of them. This very program is also the daemon and the applications' processes, which execute on software GPUs.

use rgpu_conformance::{Needs, Subject, TestHost, harness};
use rgpu_device::{Host, Result};
use rgpu_protocol::transport::{Choice, Kind, Shm, Tcp};
use rgpu_remote::several::{Application, Server, Several};
use rgpu_remote::{ConnectOptions, Remote};
use rgpu_server::{DeviceSpec, Options};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(rgpu_server::APP_SERVER_COMMAND) => return rgpu_server::app_server_main(),
        Some("serve") => return serve(arguments[2].parse().unwrap()),
        _ => {}
    }
    // A server that is built by itself has no mathematical libraries.
    let lacking: &[Needs] = if cfg!(feature = "libraries") { &[] } else { &[Needs::Libraries] };
    harness::run(
        &[("remote_over_tcp", over_tcp), ("remote_over_shm", over_shm), ("several", several)],
        lacking,
    )
}

/// A daemon with so many devices, until it is killed.
fn serve(devices: u32) -> ExitCode {
    let device = DeviceSpec { memory: 64 << 20, count: devices, workers: 2, ..DeviceSpec::default() };
    match rgpu_server::serve(Options { device, ..Options::default() }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// A daemon of a case's own.
struct Daemon {
    process: Child,
    address: String,
}

impl Daemon {
    fn start(devices: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["serve", &devices.to_string()]).stdout(Stdio::piped());
        let die_with_the_test = || {
            // SAFETY: a plain system call.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            Ok(())
        };
        // SAFETY: the closure makes one system call.
        unsafe { command.pre_exec(die_with_the_test) };
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("rgpu: listening on ").unwrap().to_owned();
        Self { process, address }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn remote(host: Arc<TestHost>, kind: Kind) -> Subject {
    let daemon = Daemon::start(2);
    let options = ConnectOptions { transport: Some(Choice::Only(kind)), ..ConnectOptions::default() };
    let device = Remote::connect(&daemon.address, options, host).unwrap();
    let plan = device.plan().clone();
    Subject { device, plan, posts: true, guard: Box::new(daemon) }
}

fn over_tcp(host: Arc<TestHost>) -> Subject {
    remote(host, Tcp::KIND)
}

fn over_shm(host: Arc<TestHost>) -> Subject {
    remote(host, Shm::KIND)
}

/// A program's side for several servers.
struct App(Arc<TestHost>);

impl Host for App {
    fn print(&self, text: &[u8]) {
        self.0.print(text);
    }
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        self.0.fetch(addr, buf)
    }
    fn host_func(&self, id: u64) {
        self.0.host_func(id);
    }
}

impl Application for App {
    fn store_mirrored(&self, addr: u64, bytes: &[u8]) {
        self.0.store(addr, bytes);
    }
}

fn several(host: Arc<TestHost>) -> Subject {
    let daemons = [Daemon::start(1), Daemon::start(1)];
    let servers = daemons.each_ref().map(|daemon| Server {
        address: daemon.address.clone(),
        node: String::new(),
        options: ConnectOptions::default(),
    });
    let device = Several::connect(&servers, Arc::new(App(host))).unwrap();
    let plan = device.plan().clone();
    Subject { device, plan, posts: true, guard: Box::new(daemons) }
}
