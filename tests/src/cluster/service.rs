//! A process that runs for as long as a test needs it, and says in a line where it listens.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

/// A service in a process group of its own; killed with all that it has started when dropped.
#[derive(Debug)]
pub struct Service {
    child: Child,
    name: String,
    address: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl Service {
    /// Starts a service, and waits until it says `listening on HOST:PORT`.
    pub fn start(name: &str, mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("Starting {name}"))?;
        let log = Arc::new(Mutex::new(vec![]));
        let (found, address) = mpsc::channel();
        let pipes: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().context("No pipe")?),
            Box::new(child.stderr.take().context("No pipe")?),
        ];
        for pipe in pipes {
            let (log, found) = (log.clone(), found.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    if let Some(address) = announced(&line) {
                        let _ = found.send(address); // later lines find nobody waiting
                    }
                    log.lock().expect("no thread panics").push(line);
                }
            });
        }
        drop(found);
        let mut service = Self { child, name: name.to_owned(), address: String::new(), log };
        match address.recv_timeout(Duration::from_secs(60)) {
            Ok(address) => service.address = address,
            Err(_) => bail!("{name} did not say where it listens:\n{}", service.log_text()),
        }
        Ok(service)
    }

    /// Where it listens: `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn log_text(&self) -> String {
        let log = self.log.lock().expect("no thread panics");
        let from = log.len().saturating_sub(200);
        log[from..].join("\n")
    }

    /// Whether it is running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to it alone.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes no pointers; the child hasn't been waited for, so the id is still its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Sends a signal to it and to all that it has started.
    pub fn signal_all(&self, signal: i32) {
        let started = process::descendants(self.child.id());
        self.signal(signal);
        for pid in started {
            // SAFETY: kill takes no pointers; these are processes that our own service started.
            unsafe { libc::kill(pid as i32, signal) };
        }
    }

    /// Kills it, and with `all` what it has started, too.
    pub fn kill(&mut self, all: bool) {
        if all {
            self.signal_all(libc::SIGKILL);
        } else {
            self.signal(libc::SIGKILL);
        }
        let _ = self.child.wait();
    }

    /// Waits for its end by itself.
    pub fn ends_within(&mut self, limit: Duration) -> Result<std::process::ExitStatus> {
        let mut status = None;
        process::wait_until(&format!("{} ends", self.name), limit, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })
        .with_context(|| self.log_text())?;
        status.context("No status")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.is_running() {
            self.signal_all(libc::SIGCONT); // stopped ones, too
            self.kill(true);
        }
        // What its processes have left behind in its group.
        // SAFETY: kill takes no pointers. The group was made by us and is named after our own child.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
    }
}

/// The address in a line such as `rgpu: listening on 127.0.0.1:7070`.
fn announced(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("listening on ")?;
    let word = rest.split_whitespace().next()?;
    let word =
        word.trim_start_matches("http://").trim_start_matches("https://").trim_end_matches(['.', ',', '/']);
    word.parse::<std::net::SocketAddr>().ok().filter(|a| a.port() != 0).map(|a| a.to_string())
}
