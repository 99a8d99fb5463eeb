//! The software GPU with its libraries, held to what every device with libraries is held to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rgpu_conformance::{CASES, Needs, Subject, TestHost};
use rgpu_device::{Code, Device, Range};
use rgpu_softgpu::{Config, SoftGpu};

fn open(host: Arc<TestHost>) -> Subject {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let libraries = Some(rgpu_softlib::LIBRARIES);
    let config = Config { memory_bytes_per_device: 64 << 20, workers: 2, libraries, ..Config::default() };
    let device = SoftGpu::open(config, host).unwrap();
    // Addresses may be somebody else's.
    let plan = loop {
        let base = (8 + NEXT.fetch_add(1, Relaxed) % 64) << 40;
        match device.reserve(Range { base, size: 1 << 40 }) {
            Err(error) if error.code == Code::MapFailed => {}
            result => break result.unwrap(),
        }
    };
    Subject { device, plan, posts: false, guard: Box::new(()) }
}

#[test]
fn operations_of_libraries_are_as_on_every_device() {
    let cases: Vec<_> = CASES.iter().filter(|case| case.needs == Needs::Libraries).collect();
    assert!(!cases.is_empty());
    for case in cases {
        println!("{}", case.name);
        (case.run)(open);
    }
}
