//! Watches a cluster while programs run, and notes whatever must never be.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Result, ensure};
use rgpu_control::api::{Device, Lease, LeaseState};

use super::Cluster;

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// How often the broker was asked.
    pub looks: u64,
    /// The most leases that were active at a time.
    pub most_active: usize,
    /// The most memory of one device that was in use, in bytes.
    pub most_memory: u64,
    wrong: Vec<String>,
}

/// Does `what` while the broker is asked every 100 ms; fails where a device had more granted or used than it has, or a lease
/// used more than it was granted, at any time.
pub fn while_watching<T>(cluster: &Cluster, what: impl FnOnce() -> Result<T>) -> Result<(T, Seen)> {
    let seen = Mutex::new(Seen::default());
    let over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                if let (Ok(devices), Ok(leases)) = (cluster.devices(), cluster.leases(false)) {
                    seen.lock().expect("no thread panics").look(&devices, &leases);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
        over.store(true, SeqCst);
        done
    });
    let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let seen = seen.into_inner().expect("no thread panics");
    ensure!(seen.looks > 0, "the broker could never be asked");
    ensure!(seen.wrong.is_empty(), "what must never be: {}", seen.wrong.join("; "));
    Ok((done, seen))
}

impl Seen {
    fn look(&mut self, devices: &[Device], leases: &[Lease]) {
        self.looks += 1;
        self.most_active =
            self.most_active.max(leases.iter().filter(|l| l.state == LeaseState::Active).count());
        for device in devices {
            let name = format!("{}/{}", device.node, device.report.index);
            let used = device.load.memory_used;
            self.most_memory = self.most_memory.max(used);
            if device.granted_memory > device.report.memory || device.granted_milli > 1000 {
                self.wrong.push(format!("{name} is granted beyond what it has: {device:?}"));
            }
            let peak = device.load.peak_memory;
            if used.max(peak) > device.report.memory {
                self.wrong.push(format!("{used} bytes of {name} are in use, and {peak} have been"));
            }
        }
        for lease in leases {
            for (grant, usage) in lease.grants.iter().zip(&lease.usage) {
                if usage.peak_memory.max(usage.memory) > grant.memory {
                    self.wrong.push(format!("lease {} uses {usage:?} of {grant:?}", lease.id));
                }
            }
        }
        self.wrong.truncate(20);
    }
}
