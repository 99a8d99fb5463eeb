//! NVML: what nvidia-smi and its like ask.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::process::{self, Finished};
use rgpu_tests::product::Daemon;

use crate::context::{plain, product};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("nvml::queries_of_nvidia_smi_in_process", || {
            says_ok(run(product()?.run_in_process(), &[])?)
        }),
        Test::new("nvml::queries_of_nvidia_smi_over_tcp", forwarded),
        Test::new("nvml::queries_of_nvidia_smi_through_the_nvidia_device", through_nvidia),
        Test::new("nvml::hidden_devices_are_still_monitored", hidden),
        Test::new("nvml::without_a_server_there_is_no_driver", without_a_server),
    ]
}

fn run(mut command: Command, environment: &[(&str, &str)]) -> Result<Finished> {
    command.arg("--").arg(plain("nvml_queries")?).envs(environment.iter().copied());
    process::run(&mut command)
}

fn says_ok(finished: Finished) -> Result<()> {
    let finished = finished.success()?;
    ensure!(finished.stdout.contains("nvml_queries: ok"), "it was not content\n{}", finished.output());
    Ok(())
}

fn forwarded() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    says_ok(run(product()?.run(daemon.address()), &[])?)?;
    daemon.wait_until_idle(std::time::Duration::from_secs(60))?;
    Ok(())
}

/// The server asks the NVML of the driver that it uses: here rgpu's own library.
fn through_nvidia() -> Result<()> {
    let daemon = Daemon::start_over_driver(product()?)?;
    says_ok(run(product()?.run(daemon.address()), &[])?)
}

/// A script that prints how many devices NVML and CUDA count.
const COUNT: &str = "
import ctypes
nvml = ctypes.CDLL('libnvidia-ml.so.1')
cuda = ctypes.CDLL('libcuda.so.1')
def count(function):
    number = ctypes.c_uint(0)
    return function(ctypes.byref(number)), number.value
print('nvml', nvml.nvmlInit_v2(), *count(nvml.nvmlDeviceGetCount_v2))
print('cuda', cuda.cuInit(0), *count(cuda.cuDeviceGetCount))
print('nvml', *count(nvml.nvmlDeviceGetCount_v2), nvml.nvmlShutdown())
";

fn python() -> Result<&'static Path> {
    let path = Path::new("/usr/bin/python3");
    if path.exists() { Ok(path) } else { Err(Skip("it needs /usr/bin/python3".into()).into()) }
}

fn hidden() -> Result<()> {
    let mut command = product()?.run_in_process();
    command
        .args(["--devices", "2", "--"])
        .arg(python()?)
        .args(["-c", COUNT])
        .env("CUDA_VISIBLE_DEVICES", "0");
    let finished = process::run(&mut command)?.success()?;
    let expected = ["nvml 0 0 2", "cuda 0 0 1", "nvml 0 2 0"];
    ensure!(finished.stdout.lines().eq(expected), "it counts otherwise\n{}", finished.output());
    Ok(())
}

fn without_a_server() -> Result<()> {
    // Nothing listens on port 1.
    let mut command = product()?.run(([127, 0, 0, 1], 1).into());
    command.arg("--").arg(python()?).args(["-c", COUNT]);
    let finished = process::run(&mut command)?.success()?;
    let first = finished.stdout.lines().next().unwrap_or_default();
    ensure!(first == "nvml 9 1 0", "NVML begins without a device\n{}", finished.output());
    ensure!(finished.stderr.contains("127.0.0.1:1"), "nobody says why\n{}", finished.output());
    Ok(())
}
