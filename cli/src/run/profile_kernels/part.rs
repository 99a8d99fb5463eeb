//! What processes have written down of their kernels, and all of it put together.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Failure;

/// Accesses to one kind of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// How often a thread made one.
    pub accesses: u64,
    /// How often a warp did.
    pub requests: u64,
    /// Sectors of 32 bytes (global memory), or turns of the banks (shared memory).
    pub transactions: u64,
    /// Bytes that were read.
    pub read: u64,
    /// Bytes that were written.
    pub written: u64,
    /// Bytes that atomic operations have changed.
    pub atomic: u64,
}

impl Memory {
    fn add(&mut self, other: &Self) {
        self.accesses += other.accesses;
        self.requests += other.requests;
        self.transactions += other.transactions;
        self.read += other.read;
        self.written += other.written;
        self.atomic += other.atomic;
    }

    /// Transactions of a request; `None` where there was none.
    pub(super) fn per_request(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.transactions as f64 / self.requests as f64)
    }
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Instructions that threads have executed.
    pub thread_instructions: u64,
    /// Instructions that warps have.
    pub warp_instructions: u64,
    /// Branches that warps have come to where lanes could go different ways.
    pub branches: u64,
    /// Those where they did.
    pub diverged: u64,
    #[serde(default)]
    pub global: Memory,
    #[serde(default)]
    pub shared: Memory,
    #[serde(default)]
    pub local: Memory,
    #[serde(default)]
    pub constant: Memory,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.thread_instructions += other.thread_instructions;
        self.warp_instructions += other.warp_instructions;
        self.branches += other.branches;
        self.diverged += other.diverged;
        self.global.add(&other.global);
        self.shared.add(&other.shared);
        self.local.add(&other.local);
        self.constant.add(&other.constant);
    }

    /// How many of a warp's lanes execute an instruction, on average; `None` where none was executed.
    pub(super) fn lanes(&self) -> Option<f64> {
        (self.warp_instructions > 0).then(|| self.thread_instructions as f64 / self.warp_instructions as f64)
    }
}

/// A line of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    /// The line of the PTX text.
    pub ptx_line: u32,
    /// The source line, and then those of the calls that it was inlined for, the innermost first; empty where that is not known.
    pub source: Vec<String>,
    #[serde(flatten)]
    pub counts: Counts,
}

#[derive(Deserialize)]
struct KernelPart {
    name: String,
    estimated: bool,
    lines: Vec<Line>,
}

#[derive(Deserialize)]
struct LaunchPart {
    kernel: usize,
    device: u32,
    stream: u64,
    begun_ns: u64,
    took_ns: u64,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    failed: bool,
}

/// What one process has written down.
#[derive(Deserialize)]
struct Part {
    pid: u32,
    program: String,
    launches_left_out: u64,
    kernels: Vec<KernelPart>,
    launches: Vec<LaunchPart>,
}

/// A kernel, in all processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Kernel {
    /// Its name, as the PTX text spells it.
    pub name: String,
    /// How often it was launched.
    pub launches: u64,
    /// How long all that took, in nanoseconds.
    pub total_ns: u64,
    /// The shortest launch.
    pub min_ns: u64,
    /// The longest launch.
    pub max_ns: u64,
    /// Whether what warps did was estimated from a sample somewhere.
    pub estimated: bool,
    /// All lines together.
    pub counts: Counts,
    /// Line by line.
    pub lines: Vec<Line>,
}

/// A launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Launch {
    /// The process.
    pub pid: u32,
    /// The kernel's name.
    pub kernel: String,
    pub device: u32,
    /// The stream's number in its process.
    pub stream: u64,
    /// When it began, in nanoseconds after the first.
    pub begun_ns: u64,
    pub took_ns: u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    pub failed: bool,
}

/// A process that has used the software GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Process {
    pub pid: u32,
    pub program: String,
}

/// All that was counted.
#[derive(Debug, Default, Serialize)]
pub(super) struct Profile {
    pub processes: Vec<Process>,
    /// Those that took longest first.
    pub kernels: Vec<Kernel>,
    /// In the order of their beginning.
    pub launches: Vec<Launch>,
    /// Launches that were too many to be written down one by one. They count in the lines of their kernels, but not in times.
    pub launches_left_out: u64,
    /// Processes that have not come to their end, so that nothing is known of their kernels.
    pub lost_processes: u64,
}

impl Profile {
    /// Reads a folder of parts. Only kernels of which `wanted` holds are looked at.
    pub(super) fn read(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Self, Failure> {
        let failed = |e: &dyn std::fmt::Display| {
            Failure::new(format!("Cannot read what kernels did, in {}: {e}", folder.display()))
        };
        let mut parts = Vec::new();
        let mut profile = Self::default();
        for entry in fs::read_dir(folder).map_err(|e| failed(&e))? {
            let path = entry.map_err(|e| failed(&e))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                profile.lost_processes += 1;
                continue;
            }
            let bytes = fs::read(&path).map_err(|e| failed(&e))?;
            parts.push(serde_json::from_slice::<Part>(&bytes).map_err(|e| failed(&e))?);
        }
        parts.sort_by_key(|part| part.pid);
        profile.gather(parts, wanted).map_err(|e| failed(&e))?;
        Ok(profile)
    }

    fn gather(&mut self, parts: Vec<Part>, wanted: impl Fn(&str) -> bool) -> Result<(), &'static str> {
        let mut kernels: BTreeMap<String, Kernel> = BTreeMap::new();
        let mut lines: BTreeMap<(String, u32, Vec<String>), Counts> = BTreeMap::new();
        for part in parts {
            self.launches_left_out += part.launches_left_out;
            let mut streams: Vec<(u32, u64)> =
                part.launches.iter().map(|launch| (launch.device, launch.stream)).collect();
            streams.sort_unstable();
            streams.dedup();
            for launch in &part.launches {
                let kernel = part.kernels.get(launch.kernel).ok_or("a launch of no kernel")?;
                if !wanted(&kernel.name) {
                    continue;
                }
                let stream = streams.binary_search(&(launch.device, launch.stream)).unwrap_or(0) as u64;
                self.launches.push(Launch {
                    pid: part.pid,
                    kernel: kernel.name.clone(),
                    device: launch.device,
                    stream,
                    begun_ns: launch.begun_ns,
                    took_ns: launch.took_ns,
                    grid: launch.grid,
                    block: launch.block,
                    dynamic_shared: launch.dynamic_shared,
                    failed: launch.failed,
                });
            }
            for kernel in part.kernels.into_iter().filter(|kernel| wanted(&kernel.name)) {
                let sum = kernels.entry(kernel.name.clone()).or_insert_with(|| Kernel {
                    name: kernel.name.clone(),
                    launches: 0,
                    total_ns: 0,
                    min_ns: u64::MAX,
                    max_ns: 0,
                    estimated: false,
                    counts: Counts::default(),
                    lines: Vec::new(),
                });
                sum.estimated |= kernel.estimated;
                for line in kernel.lines {
                    sum.counts.add(&line.counts);
                    let key = (kernel.name.clone(), line.ptx_line, line.source);
                    lines.entry(key).or_default().add(&line.counts);
                }
            }
            self.processes.push(Process { pid: part.pid, program: part.program });
        }
        for ((name, ptx_line, source), counts) in lines {
            if let Some(kernel) = kernels.get_mut(&name) {
                kernel.lines.push(Line { ptx_line, source, counts });
            }
        }
        let first = self.launches.iter().map(|launch| launch.begun_ns).min().unwrap_or(0);
        for launch in &mut self.launches {
            launch.begun_ns -= first;
            if let Some(kernel) = kernels.get_mut(&launch.kernel) {
                kernel.launches += 1;
                kernel.total_ns += launch.took_ns;
                kernel.min_ns = kernel.min_ns.min(launch.took_ns);
                kernel.max_ns = kernel.max_ns.max(launch.took_ns);
            }
        }
        self.launches.sort_by_key(|launch| launch.begun_ns);
        self.kernels = kernels.into_values().collect();
        self.kernels.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        Ok(())
    }
}

impl Kernel {
    /// What a part of the kernel's instructions takes of its time: as much as warps have executed of them.
    pub(super) fn time_of(&self, counts: &Counts) -> f64 {
        self.total_ns as f64 * counts.warp_instructions as f64 / self.counts.warp_instructions.max(1) as f64
    }

    /// What was counted by source line, or by line of the PTX text where no other is known; the longest first.
    pub(super) fn by_source(&self) -> Vec<(String, Counts)> {
        let mut sums: BTreeMap<String, Counts> = BTreeMap::new();
        for line in &self.lines {
            sums.entry(line.place()).or_default().add(&line.counts);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by(|(a, x), (b, y)| y.warp_instructions.cmp(&x.warp_instructions).then_with(|| a.cmp(b)));
        sums
    }
}

impl Line {
    /// The source line, or that of the PTX text.
    pub(super) fn place(&self) -> String {
        self.source.first().cloned().unwrap_or_else(|| format!("PTX line {}", self.ptx_line))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const ONE: &str = r#"{"pid":7,"program":"/a","launches_left_out":0,"kernels":[
        {"name":"k","estimated":false,"lines":[
            {"ptx_line":3,"source":["in.h:1","a.cu:5"],"thread_instructions":96,"warp_instructions":3,"branches":0,"diverged":0,
             "global":{"accesses":32,"requests":1,"transactions":4,"read":128,"written":0,"atomic":0}},
            {"ptx_line":4,"source":["a.cu:6"],"thread_instructions":16,"warp_instructions":1,"branches":1,"diverged":1}]},
        {"name":"other","estimated":true,"lines":[]}],
        "launches":[{"kernel":0,"device":0,"stream":9,"begun_ns":1000,"took_ns":400,"grid":[1,1,1],"block":[32,1,1],"dynamic_shared":0,"failed":false}]}"#;

    /// A kernel in two processes.
    pub(in super::super) fn example() -> Profile {
        let one: Part = serde_json::from_str(ONE).unwrap();
        let two: Part =
            serde_json::from_str(&ONE.replace("\"pid\":7", "\"pid\":8").replace("1000", "1500")).unwrap();
        let mut profile = Profile::default();
        profile.gather(vec![one, two], |name| name == "k").unwrap();
        profile
    }

    #[test]
    fn parts_are_added_up() {
        let profile = example();
        assert_eq!(profile.processes.len(), 2);
        let [kernel] = &profile.kernels[..] else { panic!("{:?}", profile.kernels) };
        assert_eq!((kernel.launches, kernel.total_ns, kernel.min_ns, kernel.max_ns), (2, 800, 400, 400));
        assert_eq!((kernel.counts.thread_instructions, kernel.counts.warp_instructions), (224, 8));
        assert_eq!(kernel.counts.lanes(), Some(28.0));
        assert_eq!(kernel.counts.global.per_request(), Some(4.0));
        assert_eq!(profile.launches.iter().map(|l| l.begun_ns).collect::<Vec<_>>(), [0, 500]);
        let lines = kernel.by_source();
        assert_eq!(lines.iter().map(|(place, _)| place.as_str()).collect::<Vec<_>>(), ["in.h:1", "a.cu:6"]);
        assert_eq!(kernel.time_of(&lines[0].1), 600.0);
    }
}
