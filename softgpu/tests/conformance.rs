//! The software GPU, held to what every device is held to.

use rgpu_conformance::{Subject, TestHost};
use rgpu_device::{Code, Device, Range};
use rgpu_softgpu::{Config, SoftGpu};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn open(host: Arc<TestHost>) -> Subject {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let config = Config { devices: 2, memory_bytes_per_device: 64 << 20, workers: 2, ..Config::default() };
    let device = SoftGpu::open(config, host).unwrap();
    // Cases run side by side: each looks for addresses that are free, as programs do.
    let plan = loop {
        let base = (8 + NEXT.fetch_add(1, Relaxed) % 64) << 40;
        match device.reserve(Range { base, size: 1 << 40 }) {
            Err(error) if error.code == Code::MapFailed => {}
            result => break result.unwrap(),
        }
    };
    Subject { device, plan, posts: false, guard: Box::new(()) }
}

// Mathematical libraries are given to it: the crate that has them runs those cases.
rgpu_conformance::suite!(open, without: [Libraries]);
