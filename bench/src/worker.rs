//! The measuring process: makes CUDA calls as any program would, and times them.

use std::io::{BufRead, Write};
use std::time::Instant;

use rgpu_protocol::stats::{Snapshot, Stats};

use crate::Failure;
use crate::cuda::Driver;
use crate::task::{Asked, Reply, Task};

/// Memory for the small calls.
const SMALL: usize = 1 << 20;

/// Reads tasks from standard input, and writes replies to standard output, until the input ends.
pub(crate) fn main() -> Result<(), Failure> {
    let stats = Stats::from_environment();
    let driver = Driver::open();
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Failure::new(format!("Reading a task: {e}")))?;
        let task = serde_json::from_str(&line)
            .map_err(|e| Failure::new(format!("A task is malformed: {e}; `{line}`")))?;
        let before = stats.snapshot();
        let done = match &driver {
            Ok(driver) => execute(driver, &task),
            Err(e) => Err(Failure::new(e.to_string())),
        };
        let mut reply = done.unwrap_or_else(|e| Reply { error: Some(e.to_string()), ..Reply::default() });
        count(&mut reply, &before, &stats.snapshot());
        let text = serde_json::to_string(&reply).map_err(|e| Failure::new(e.to_string()))?;
        writeln!(output, "{text}").and_then(|()| output.flush()).map_err(|e| Failure::new(e.to_string()))?;
    }
    Ok(())
}

fn count(reply: &mut Reply, before: &Snapshot, after: &Snapshot) {
    reply.round_trips = after.round_trips - before.round_trips;
    reply.bytes_sent = after.bytes_sent - before.bytes_sent;
    reply.bytes_received = after.bytes_received - before.bytes_received;
}

fn execute(driver: &Driver, task: &Task) -> Result<Reply, Failure> {
    match *task {
        Task::Describe => describe(driver),
        Task::FirstCall => Ok(Reply { samples: vec![driver.first_call()], ..Reply::default() }),
        Task::Asked { call, count } => asked(driver, call, count),
        Task::Launches { count } => launches(driver, count),
        Task::Call { index, count } => call(driver, index, count),
        Task::Copies { to_device, pinned, bytes, count } => copies(driver, to_device, pinned, bytes, count),
    }
}

fn describe(driver: &Driver) -> Result<Reply, Failure> {
    let memory = driver.alloc(SMALL)?;
    let mut scratch = vec![0; SMALL];
    let calls = driver.named(&memory, &mut scratch).iter().map(|(name, _)| (*name).to_owned()).collect();
    Ok(Reply { device: driver.device_name()?, calls, ..Reply::default() })
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn asked(driver: &Driver, call: Asked, count: u32) -> Result<Reply, Failure> {
    let memory = driver.alloc(SMALL)?;
    let mut four = [0; 4];
    driver.to_device(&memory, &four)?;
    driver.to_host(&mut four, &memory)?;
    let mut samples = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        match call {
            Asked::FreeMemory => driver.free_memory().map(drop)?,
            Asked::FourBytes => driver.to_host(&mut four, &memory)?,
        }
        samples.push(nanoseconds(start));
    }
    Ok(Reply { samples, ..Reply::default() })
}

fn launches(driver: &Driver, count: u32) -> Result<Reply, Failure> {
    let memory = driver.alloc(SMALL)?;
    driver.launch(memory.at)?;
    driver.synchronize()?;
    let start = Instant::now();
    for _ in 0..count {
        driver.launch(memory.at)?;
    }
    let returned = nanoseconds(start);
    driver.synchronize()?;
    Ok(Reply { samples: vec![returned, nanoseconds(start)], ..Reply::default() })
}

fn call(driver: &Driver, index: usize, count: u32) -> Result<Reply, Failure> {
    let memory = driver.alloc(SMALL)?;
    let mut scratch = vec![0; SMALL];
    let mut calls = driver.named(&memory, &mut scratch);
    let (_, call) =
        calls.get_mut(index).ok_or_else(|| Failure::new(format!("There is no call number {index}")))?;
    call()?;
    driver.synchronize()?;
    let mut samples = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        call()?;
        samples.push(nanoseconds(start));
    }
    driver.synchronize()?;
    Ok(Reply { samples, ..Reply::default() })
}

fn copies(
    driver: &Driver,
    to_device: bool,
    pinned: bool,
    bytes: usize,
    count: u32,
) -> Result<Reply, Failure> {
    let memory = driver.alloc(bytes)?;
    let mut locked = pinned.then(|| driver.pinned(bytes)).transpose()?;
    let mut pageable = vec![1; if pinned { 0 } else { bytes }];
    if let Some(locked) = &mut locked {
        locked.bytes().fill(1);
    }
    let mut copy = || match (&mut locked, to_device) {
        (Some(locked), true) => driver.to_device_async(&memory, locked, bytes),
        (Some(locked), false) => driver.to_host(locked.bytes(), &memory),
        (None, true) => driver.to_device(&memory, &pageable),
        (None, false) => driver.to_host(&mut pageable, &memory),
    };
    // Once beforehand, so that every page on either side is there.
    copy()?;
    driver.synchronize()?;
    let start = Instant::now();
    for _ in 0..count {
        copy()?;
    }
    driver.synchronize()?;
    Ok(Reply { samples: vec![nanoseconds(start)], ..Reply::default() })
}
