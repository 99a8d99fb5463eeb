//! The NVIDIA device over the driver of a real GPU, held to what every device is held to.
//!
//! `RGPU_TEST_DRIVER` names the driver's library. Without it there is nothing to be tested. Each case runs in a process of its own, as an
//! application's does: a kernel's fault ends with it, and what is written to standard output is the device's.

use rgpu_conformance::hardware::VARIABLE;
use rgpu_conformance::{CASES, Case, Needs, Subject, TestHost};
use rgpu_device::Range;
use rgpu_nvidia::{Config, NvidiaDevice};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The variable by which a process learns which case is its own.
const CASE: &str = "RGPU_TEST_CASE";
/// How long a case may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a machine with one GPU lacks, what NVIDIA's driver does not do, and cases for which programs that use the libraries are the better
/// test.
const LACKING: [Needs; 3] = [Needs::TwoDevices, Needs::Recovery, Needs::Libraries];

fn open(host: Arc<TestHost>) -> Subject {
    let driver = std::env::var_os(VARIABLE).expect("the parent has set it").into();
    let config = Config { driver: Some(driver), memory: Some(64 << 20), ..Config::default() };
    let device = NvidiaDevice::open(&config, host, None).expect("the driver can be opened");
    // Which addresses a driver has free is its own affair.
    let plan = (16..112).find_map(|n| device.reserve(Range { base: n << 40, size: 1 << 40 }).ok());
    let plan = plan.expect("some range of addresses is free");
    Subject { device, plan, posts: false, guard: Box::new(()) }
}

/// Whether a case passes, in a process of its own.
fn passes(case: &Case) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.env(CASE, case.name).stdout(Stdio::null());
    let mut child = command.spawn().expect("a process can be started");
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    eprintln!("{} does not end", case.name);
    let _ = child.kill();
    let _ = child.wait();
    false
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let case = CASES.iter().find(|case| case.name == name).expect("the parent names a case");
        (case.run)(open);
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(VARIABLE).is_none_or(|path| path.is_empty()) {
        println!("\nrunning 1 test\ntest on_a_gpu ... ignored, {VARIABLE} names no driver\n");
        println!("test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n");
        return ExitCode::SUCCESS;
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|text| !text.starts_with('-')).collect();
    let wanted = |case: &&Case| {
        let named = filters.is_empty() || filters.iter().any(|filter| case.name.contains(filter));
        named && !LACKING.contains(&case.needs)
    };
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    println!("\nrunning {} tests", cases.len());
    let mut failed = 0;
    for case in &cases {
        let passed = passes(case);
        println!("test {} ... {}", case.name, if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    let (verdict, passed) = (if failed == 0 { "ok" } else { "FAILED" }, cases.len() - failed);
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
