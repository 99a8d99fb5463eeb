//! A program that does what a test tells it: `tests/programs/puppet.cu`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

/// A running puppet, killed when dropped.
#[derive(Debug)]
pub struct Puppet {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    errors: Arc<Mutex<String>>,
}

impl Puppet {
    /// Starts a command that ends in the program, such as `rgpu run … -- puppet`.
    pub fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("Starting {:?}", command.get_program()))?;
        let input = child.stdin.take();
        let (line, output) = channel();
        let stdout = child.stdout.take().context("No pipe")?;
        std::thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    break;
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let (mut stderr, kept) = (child.stderr.take().context("No pipe")?, errors.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut buffer) {
                kept.lock().expect("no thread panics").push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Ok(Self { child, input, output, errors })
    }

    /// Tells it to do something, without waiting.
    pub fn tell(&mut self, command: &str) -> Result<()> {
        let input = self.input.as_mut().context("It was told to end")?;
        let told = writeln!(input, "{command}").and_then(|()| input.flush());
        told.with_context(|| format!("Telling `{command}`: {}", self.errors()))
    }

    /// The words of its next answer, without the first, which repeats the command.
    pub fn answer(&mut self, command: &str, limit: Duration) -> Result<Vec<String>> {
        let Ok(line) = self.output.recv_timeout(limit) else {
            let state = match self.child.try_wait()? {
                Some(status) => format!("it ended with {status}"),
                None => format!("it said nothing for {limit:?}"),
            };
            bail!("`{command}`: {state}\n{}", self.errors());
        };
        let mut words = line.split_whitespace().map(str::to_owned);
        let first = words.next().unwrap_or_default();
        anyhow::ensure!(command.starts_with(&first), "`{command}` was answered `{line}`");
        Ok(words.collect())
    }

    /// Tells it to do something, and waits for the answer.
    pub fn ask(&mut self, command: &str) -> Result<Vec<String>> {
        self.tell(command)?;
        self.answer(command, Duration::from_secs(90))
    }

    /// The error's name with which a command ended.
    pub fn error_of(&mut self, command: &str) -> Result<String> {
        self.ask(command)?.into_iter().next().with_context(|| format!("`{command}` got no answer"))
    }

    /// Does something that has to succeed.
    pub fn success(&mut self, command: &str) -> Result<()> {
        let error = self.error_of(command)?;
        anyhow::ensure!(error == "cudaSuccess", "`{command}`: {error}\n{}", self.errors());
        Ok(())
    }

    /// An answer that is numbers.
    pub fn numbers(&mut self, command: &str) -> Result<Vec<u64>> {
        let words = self.ask(command)?;
        let numbers = words.iter().map(|word| word.parse().ok()).collect::<Option<_>>();
        numbers.with_context(|| format!("`{command}` was answered {words:?}\n{}", self.errors()))
    }

    /// What it has written to standard error.
    pub fn errors(&self) -> String {
        self.errors.lock().expect("no thread panics").clone()
    }

    /// The process that was started (`rgpu run`).
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The program itself: the last in the chain of children.
    pub fn program_pid(&self) -> u32 {
        process::descendants(self.pid()).last().copied().unwrap_or_else(|| self.pid())
    }

    /// Sends a signal to the process that was started, and with `all` to the program, too.
    pub fn signal(&self, signal: i32, all: bool) {
        let started = if all { process::descendants(self.pid()) } else { vec![] };
        for pid in started.into_iter().chain([self.pid()]) {
            // SAFETY: kill takes no pointers; these are processes that we have started.
            unsafe { libc::kill(pid as i32, signal) };
        }
    }

    /// Waits for its end.
    pub fn end_within(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.input = None;
        let mut status = None;
        process::wait_until("the program ends", limit, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })
        .with_context(|| self.errors())?;
        status.context("No status")
    }

    /// Lets it end as it should.
    pub fn finish(mut self) -> Result<()> {
        let status = self.end_within(Duration::from_secs(30))?;
        anyhow::ensure!(status.success(), "it ended with {status}\n{}", self.errors());
        Ok(())
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL, true);
        // SAFETY: kill takes no pointers. The group was made by us and is named after our own child.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}
