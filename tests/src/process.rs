//! Processes with time limits, and what can be read about them.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How long a program may take before it counts as hanging. Far more than any should need.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Its status; after a kill for lateness, the kill's.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
    /// Whether it had to be killed.
    pub late: bool,
}

impl Finished {
    /// Fails unless the program ended by itself with status 0.
    pub fn success(self) -> Result<Self> {
        ensure!(!self.late, "it hung, and was killed after {:?}\n{}", self.took, self.output());
        ensure!(self.status.success(), "it ended with {}\n{}", self.status, self.output());
        Ok(self)
    }

    /// Fails unless the program ended by itself with this status.
    pub fn expect_code(self, code: i32) -> Result<Self> {
        ensure!(!self.late, "it hung, and was killed after {:?}\n{}", self.took, self.output());
        let status = self.status;
        ensure!(status.code() == Some(code), "it ended with {status} instead of {code}\n{}", self.output());
        Ok(self)
    }

    /// Everything that it wrote, cut to what a person wants to read.
    pub fn output(&self) -> String {
        let cut = |s: &str| {
            let from = s.len().saturating_sub(3000);
            s[(from..=s.len()).find(|&i| s.is_char_boundary(i)).unwrap_or(s.len())..].to_owned()
        };
        format!("stdout: {}\nstderr: {}", cut(self.stdout.trim_end()), cut(self.stderr.trim_end()))
    }
}

/// A program that is running in a process group of its own; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
    readers: Vec<std::thread::JoinHandle<String>>,
    started: Instant,
}

impl Running {
    /// Starts a program whose output is collected.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("Starting {:?}", command.get_program()))?;
        fn collect(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
            std::thread::spawn(move || {
                let mut bytes = vec![];
                let _ = from.read_to_end(&mut bytes); // what arrived before an error still counts
                String::from_utf8_lossy(&bytes).into_owned()
            })
        }
        let stdout = collect(child.stdout.take().context("No pipe")?);
        let stderr = collect(child.stderr.take().context("No pipe")?);
        Ok(Self { child: Some(child), readers: vec![stdout, stderr], started: Instant::now() })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes no pointers; the child hasn't been waited for, so the id is still its own.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(None)))
    }

    /// Waits for its end, and kills its process group where that takes longer than `limit`.
    pub fn finish_within(mut self, limit: Duration) -> Result<Finished> {
        let mut child = self.child.take().context("Waited for twice")?;
        let deadline = self.started + limit;
        let mut late = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() >= deadline {
                late = true;
                kill_group(&child);
                break child.wait()?;
            }
            std::thread::sleep(Duration::from_millis(4));
        };
        let took = self.started.elapsed();
        if !late {
            // Descendants that were left behind would keep the pipes open.
            let patience = Instant::now() + Duration::from_secs(5);
            while self.readers.iter().any(|r| !r.is_finished()) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(4));
            }
            kill_group_of(child.id());
        }
        let mut texts = self.readers.drain(..).map(|r| r.join().unwrap_or_default());
        let (stdout, stderr) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        Ok(Finished { status, stdout, stderr, took, late })
    }

    /// Waits for its end.
    pub fn finish(self) -> Result<Finished> {
        self.finish_within(PATIENCE)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            kill_group(child);
            let _ = child.wait(); // there is nobody to tell
        }
    }
}

fn kill_group(child: &Child) {
    kill_group_of(child.id());
}

fn kill_group_of(pid: u32) {
    // SAFETY: kill takes no pointers. The group was made by us and is named after our own child.
    unsafe { libc::kill(-(pid as i32), libc::SIGKILL) };
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Result<Finished> {
    Running::start(command)?.finish()
}

/// The signal that ended a program, if one did.
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// A process's proportional set size in bytes.
pub fn pss(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("Reading {path}"))?;
    let line = text.lines().find(|l| l.starts_with("Pss:")).context("No Pss line")?;
    let kib: u64 = line.split_whitespace().nth(1).context("No Pss value")?.parse()?;
    Ok(kib << 10)
}

/// A process's peak resident size in bytes.
pub fn peak_resident(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find(|l| l.starts_with("VmHWM:")).context("No VmHWM line")?;
    let kib: u64 = line.split_whitespace().nth(1).context("No VmHWM value")?.parse()?;
    Ok(kib << 10)
}

/// The ids of the processes below one, at any depth.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut parents = vec![];
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in parentheses may contain anything.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let state = fields.next();
        if let Some(parent) = fields.next().and_then(|p| p.parse::<u32>().ok())
            && state != Some("Z")
        {
            parents.push((id, parent));
        }
    }
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|p| p.1 == parent).map(|p| p.0));
        next += 1;
    }
    found.remove(0);
    found
}

/// Waits until something holds; fails with `what` where it doesn't within `limit`.
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Result<Duration> {
    let start = Instant::now();
    while !holds() {
        ensure!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(start.elapsed())
}
