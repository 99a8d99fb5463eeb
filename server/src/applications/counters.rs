//! What a process has used of the processors: its time, from `/proc`, and what their hardware has counted.

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};
use std::io;

/// Sums of what one or several processes have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Processor time in ms.
    pub(super) cpu_ms: u64,
    /// By [`EVENTS`]; `None` where it was not counted.
    pub(super) counts: [Option<u64>; EVENTS.len()],
}

/// What is counted: instructions, cycles, and accesses that the last-level cache did not have.
const EVENTS: [Hardware; 3] = [Hardware::INSTRUCTIONS, Hardware::CPU_CYCLES, Hardware::CACHE_MISSES];

impl Sums {
    /// The same and what somebody else has used.
    pub(super) fn plus(mut self, other: Self) -> Self {
        self.cpu_ms += other.cpu_ms;
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = match (*sum, count) {
                (None, None) => None,
                (sum, count) => Some(sum.unwrap_or(0).saturating_add(count.unwrap_or(0))),
            };
        }
        self
    }
}

/// The counters of a process, which count its threads and those that it starts.
pub(super) struct Counters(Vec<Option<Counter>>);

impl Counters {
    /// Counters of a process from now on; none where there are none.
    pub(super) fn open(process: u32) -> Self {
        Self(EVENTS.map(|event| open(event, process).ok()).into())
    }

    /// None: nothing is counted.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// Whether this machine's processors count for this server, tried on the server itself.
    ///
    /// # Errors
    /// Why they don't.
    pub(super) fn check() -> io::Result<()> {
        EVENTS.iter().try_for_each(|event| open(*event, std::process::id()).map(drop))
    }

    /// What a process, which must not have been waited for, and its counters say.
    pub(super) fn read(&mut self, process: u32) -> Sums {
        let mut sums = Sums { cpu_ms: cpu_ms(process).unwrap_or(0), ..Sums::default() };
        for (sum, counter) in sums.counts.iter_mut().zip(&mut self.0) {
            *sum = counter.as_mut().and_then(|counter| value(counter).ok());
        }
        sums
    }
}

fn open(event: impl Event, process: u32) -> io::Result<Counter> {
    let process = libc::pid_t::try_from(process).map_err(io::Error::other)?;
    let mut counter = Builder::new(event).observe_pid(process).any_cpu().inherit(true).build()?;
    counter.enable()?;
    Ok(counter)
}

/// What was counted, made up for the time in which other events had the hardware's counters.
fn value(counter: &mut Counter) -> io::Result<u64> {
    let data = counter.read_full()?;
    let times = data.time_enabled().zip(data.time_running());
    Ok(match times {
        Some((enabled, running)) if !running.is_zero() => {
            (u128::from(data.count()) * enabled.as_nanos() / running.as_nanos()) as u64
        }
        _ => data.count(),
    })
}

/// The processor time of a process and its threads in ms; also of one that has ended and was not waited for.
fn cpu_ms(process: u32) -> Option<u64> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<u64> {
    // The program's name, in brackets, may be anything. User and system time are fields 14 and 15 (`man 5 proc_pid_stat`).
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let sum = ticks()?.saturating_add(ticks()?);
    Some(sum.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;
    use std::process::Command;

    #[test]
    fn times_are_read_whatever_the_programs_name() {
        let text = "12 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        let per_second = rustix::param::clock_ticks_per_second();
        assert_eq!(parse_stat(text), Some(200 * 1000 / per_second));
        assert_eq!((parse_stat(""), parse_stat("1 (a) R 1")), (None, None));
    }

    #[test]
    fn a_process_that_has_ended_still_tells_its_time() {
        // The shell's own work: an eighth of a second at least is beyond any rounding.
        let text = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let mut child = Command::new("sh").args(["-c", text]).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let time = cpu_ms(child.id());
        child.wait().unwrap();
        assert!(time.is_some_and(|ms| ms >= 10), "{time:?}");
        assert_eq!(cpu_ms(child.id()), None);
    }

    #[test]
    fn sums_keep_what_was_not_counted_apart_from_nothing() {
        let a = Sums { cpu_ms: 1, counts: [None, Some(5), None] };
        let b = Sums { cpu_ms: 2, counts: [None, None, Some(1)] };
        assert_eq!(a.plus(b), Sums { cpu_ms: 3, counts: [None, Some(5), Some(1)] });
    }

    /// The system's own clock is counted by the same calls on machines without counters of hardware.
    #[test]
    fn threads_that_a_process_starts_are_counted_with_it() {
        let text = "read go; (i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done); read end";
        let mut child =
            Command::new("sh").args(["-c", text]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut counter = match open(Software::TASK_CLOCK, child.id()) {
            Ok(counter) => counter,
            Err(e) => {
                println!("skipped: this system lets nobody count: {e}");
                child.kill().unwrap();
                child.wait().unwrap();
                return;
            }
        };
        use std::io::Write;
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"go\nend\n").unwrap();
        child.wait().unwrap();
        assert!(value(&mut counter).unwrap() > 1_000_000, "a millisecond at least, most of it in the child");
    }
}
