//! Which faults can have ended which program: those of the node that it ran on, while it ran.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rgpu_control::LEASE_VARIABLE;
use rgpu_control::ticket::Ticket;

/// A fault that programs of a node feel. Those that no program may feel, such as a node without its broker, are none.
#[derive(Debug)]
struct Fault {
    node: String,
    from: Instant,
    /// When the node is as before; nothing while it is not.
    until: Option<Instant>,
}

/// The faults that programs may feel.
#[derive(Debug, Default)]
pub(super) struct Touched(Mutex<Vec<Fault>>);

impl Touched {
    /// Does something to a node that its programs may feel, and notes from when to when.
    pub(super) fn during<T>(&self, node: &str, fault: impl FnOnce() -> Result<T>) -> Result<T> {
        let at = {
            let mut faults = self.0.lock().expect("no thread panics");
            faults.push(Fault { node: node.into(), from: Instant::now(), until: None });
            faults.len() - 1
        };
        let done = fault();
        self.0.lock().expect("no thread panics")[at].until = Some(Instant::now());
        done
    }

    /// Whether one of the faults met a program that ended at `end`.
    pub(super) fn excuses(&self, life: &Life, end: Instant) -> bool {
        let faults = self.0.lock().expect("no thread panics");
        faults.iter().any(|fault| {
            let overlaps = fault.from <= end && fault.until.is_none_or(|until| until >= life.from);
            overlaps && life.nodes.contains(&fault.node)
        })
    }
}

/// Where a program runs, and since when.
#[derive(Debug)]
pub(super) struct Life {
    nodes: Vec<String>,
    from: Instant,
}

impl Life {
    /// What the ticket of a running process says, and the system of its start. The ticket that a program has begun with
    /// is renewed, but never replaced by one for other servers.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).context("Reading its environment")?;
        let prefix = format!("{LEASE_VARIABLE}=");
        let ticket = environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(prefix.as_bytes()))
            .context("it has no lease")?;
        let ticket = Ticket::read(&PathBuf::from(String::from_utf8_lossy(ticket).into_owned()))?;
        let nodes = ticket.servers.into_iter().map(|server| server.node).collect();
        let age = age(pid)?;
        let from = Instant::now().checked_sub(age).context("it is older than the machine")?;
        Ok(Self { nodes, from })
    }

    /// The names of its nodes.
    pub(super) fn place(&self) -> String {
        self.nodes.join(", ")
    }
}

/// For how long a process has been running, to a hundredth of a second, rounded up.
fn age(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may contain anything; the start is the 20th field after it.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields.split_whitespace().nth(19).context("it has no start")?.parse()?;
    // SAFETY: sysconf takes no pointers.
    let rate = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let started = Duration::from_millis(ticks * 1000 / rate);
    // SAFETY: a timespec is plain numbers, for which zeroes are valid.
    let mut now: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a timespec of our own that outlives the call.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    anyhow::ensure!(read == 0, "the system does not tell the time since it started");
    Ok(Duration::new(now.tv_sec as u64, now.tv_nsec as u32).saturating_sub(started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_excuses_the_programs_that_it_met() {
        let touched = Touched::default();
        let before = Instant::now();
        touched
            .during("s0", || {
                std::thread::sleep(Duration::from_millis(2));
                Ok(())
            })
            .unwrap();
        let after = Instant::now() + Duration::from_millis(1);
        let life = |node: &str, from| Life { nodes: vec![node.into()], from };
        assert!(touched.excuses(&life("s0", before), after), "it ran meanwhile");
        assert!(!touched.excuses(&life("s1", before), after), "it ran elsewhere");
        assert!(!touched.excuses(&life("s0", after), after + Duration::from_secs(1)), "it began later");
        assert!(!touched.excuses(&life("s0", before), before), "it had ended before");
    }

    #[test]
    fn a_fault_that_lasts_excuses_until_it_is_over() {
        let touched = Touched::default();
        let begins = |from: Instant| Life { nodes: vec!["s0".into()], from };
        touched
            .during("s0", || {
                assert!(touched.excuses(&begins(Instant::now()), Instant::now()));
                Ok(())
            })
            .unwrap();
        let late = Instant::now() + Duration::from_millis(1);
        assert!(!touched.excuses(&begins(late), late));
        assert!(touched.during("s1", || -> Result<()> { anyhow::bail!("it cannot be done") }).is_err());
        let s1 = Life { nodes: vec!["s1".into()], from: late };
        assert!(!touched.excuses(&s1, late), "a fault that failed is over as well");
    }

    #[test]
    fn a_process_is_as_old_as_it_is() {
        let start = Instant::now();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let age = age(child.id());
        let longest = start.elapsed() + Duration::from_millis(20); // a tick, twice
        child.kill().unwrap();
        child.wait().unwrap();
        let age = age.unwrap();
        assert!(age >= Duration::from_millis(30) && age <= longest, "{age:?} of {longest:?}");
    }
}
