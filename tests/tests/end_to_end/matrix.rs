//! Every example in every way: in-process, through a server (by shared memory and by TCP in turn), and through a server
//! that drives its device by the NVIDIA driver's interface (for which our own library stands in); static and shared
//! runtime, CUDA 12 and 13; and eight at a time on one daemon.

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::examples::{self, Linking};
use rgpu_tests::process::{self, Finished};
use rgpu_tests::product::Daemon;
use rgpu_tests::toolkit::Version;

use crate::context::{driver_daemon, product, program, shared_daemon};

/// All examples in all ways.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![];
    let names: Vec<String> = match examples::all() {
        Ok(all) => all.into_iter().map(|e| e.name).collect(),
        Err(e) => return vec![Test::new("examples_can_be_listed", move || Err(e))],
    };
    for way in ["in_process", "server", "driver"] {
        for version in Version::ALL {
            for linking in Linking::ALL {
                // Each transport sees both runtimes and both ways of linking, without twice the time.
                let way = match (way, version == Version::Cuda13, linking == Linking::Static) {
                    ("server", true, true) | ("server", false, false) => "shm",
                    ("server", ..) => "tcp",
                    _ => way,
                };
                for name in &names {
                    let test = format!("examples::{way}::{}{}::{name}", linking.name(), version.major());
                    let name = name.clone();
                    tests.push(Test::new(test, move || example(&name, way, version, linking)));
                }
            }
        }
    }
    tests.push(Test::alone("eight_applications_at_once_on_one_daemon", move || eight_at_once(&names)));
    tests
}

/// Checks that a program ended well and said so.
pub(crate) fn says_ok(name: &str, finished: Finished) -> Result<()> {
    let finished = finished.success()?;
    ensure!(
        finished.stdout.lines().any(|l| l.starts_with(&format!("{name}: ok"))),
        "it did not say that its results are right\n{}",
        finished.output()
    );
    Ok(())
}

fn example(name: &str, way: &str, version: Version, linking: Linking) -> Result<()> {
    let program = program(name, version, linking)?;
    let mut command = match way {
        "shm" | "tcp" => product()?.run(shared_daemon()?),
        "driver" => product()?.run(driver_daemon()?),
        _ => product()?.run_in_process(),
    };
    if matches!(way, "shm" | "tcp") {
        command.args(["--transport", way]);
    }
    let finished = process::run(command.arg("--").arg(program))?;
    if way == "driver" && examples::OF_SOFTWARE_GPUS.contains(&name) {
        let refusal = "on an NVIDIA GPU is not implemented";
        ensure!(finished.output().contains(refusal), "it was not refused by name\n{}", finished.output());
        return Ok(());
    }
    says_ok(name, finished)
}

fn eight_at_once(names: &[String]) -> Result<()> {
    program("vector_add", Version::Cuda13, Linking::Static)?;
    let daemon = Daemon::start(product()?)?;
    // Each of eight threads runs its share of all examples, the shared runtime and the static in turn.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|t| {
                let address = daemon.address();
                scope.spawn(move || -> Result<()> {
                    for (i, name) in names.iter().enumerate().filter(|(i, _)| i % 8 == t) {
                        let program = program(name, Version::ALL[i / 8 % 2], Linking::ALL[i % 2])?;
                        let finished = process::run(product()?.run(address).arg("--").arg(program))?;
                        says_ok(name, finished).with_context(|| name.clone())?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|t| t.join().expect("no thread panics"))
    })?;
    daemon.wait_until_idle(std::time::Duration::from_secs(60))?;
    Ok(())
}
