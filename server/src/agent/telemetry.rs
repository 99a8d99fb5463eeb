//! What NVIDIA's management library measures of the devices. The daemon loads no driver, so a process of its own does, and
//! writes a line for each device and second: its number, percent of time busy, bytes used, milliwatts; `-` is what is not known.

use crate::device_spec::{DeviceKind, DeviceSpec};
use crate::inventory;
use parking_lot::Mutex;
use rgpu_control::api::DeviceReport;
use rgpu_device::telemetry::{Group, Metric};
use rgpu_nvidia as nvidia;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The hidden subcommand under which devices are measured.
pub const TELEMETRY_COMMAND: &str = "__nvidia-telemetry";

/// How often.
const EVERY: Duration = Duration::from_secs(1);

/// What was measured of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Measured {
    /// Percent of the time in which it was executing something.
    pub utilization_percent: Option<u32>,
    /// Bytes in use, by whomever.
    pub memory_used: Option<u64>,
    /// Power that the device draws, in watts; `None` where it does not say.
    pub power_w: Option<f64>,
}

/// The devices' latest values. Empty where there is nothing that measures.
pub(super) struct Telemetry {
    latest: Arc<Mutex<Vec<Measured>>>,
    child: Option<Child>,
}

impl Telemetry {
    /// Starts measuring NVIDIA devices; software GPUs have nothing that measures them.
    pub(super) fn start(spec: &DeviceSpec, devices: &[DeviceReport]) -> Self {
        let latest = Arc::new(Mutex::new(Vec::new()));
        if spec.kind != DeviceKind::Nvidia {
            return Self { latest, child: None };
        }
        let uuids: Vec<&str> = devices.iter().map(|device| device.uuid.as_str()).collect();
        let child = Self::spawn(spec, &uuids, latest.clone());
        let child = child.map_err(|e| tracing::warn!("the devices' load is not measured: {e}")).ok();
        Self { latest, child }
    }

    fn spawn(spec: &DeviceSpec, uuids: &[&str], latest: Arc<Mutex<Vec<Measured>>>) -> io::Result<Child> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(TELEMETRY_COMMAND).arg(uuids.join(",")).args(&spec.driver);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        inventory::without_our_variables(&mut command);
        let mut child = command.spawn()?;
        let stdout =
            child.stdout.take().ok_or_else(|| io::Error::other("the process has no standard output"))?;
        let body = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Some((index, measured)) = parse(&line) else { continue };
                let mut latest = latest.lock();
                if latest.len() <= index {
                    latest.resize(index + 1, Measured::default());
                }
                latest[index] = measured;
            }
            // Old values are worse than none.
            latest.lock().clear();
        };
        std::thread::Builder::new().name("agent-telemetry".into()).stack_size(128 << 10).spawn(body)?;
        Ok(child)
    }

    /// What was measured last of a device.
    pub(super) fn of(&self, index: usize) -> Measured {
        self.latest.lock().get(index).copied().unwrap_or_default()
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn parse(line: &str) -> Option<(usize, Measured)> {
    let mut fields = line.split_ascii_whitespace();
    let index = fields.next()?.parse().ok().filter(|index| *index < 64)?;
    let mut number = || fields.next()?.parse::<u64>().ok();
    let measured = Measured {
        utilization_percent: number().map(|percent| percent.min(100) as u32),
        memory_used: number(),
        power_w: number().map(|milliwatts| milliwatts as f64 / 1000.0),
    };
    Some((index, measured))
}

/// The main function of `rgpu __nvidia-telemetry UUID,… [DRIVER]`: ends when nobody reads any more.
pub fn telemetry_main(uuids: &str, driver: Option<&OsStr>) -> ExitCode {
    let uuids: Vec<[u8; 16]> = uuids.split(',').filter_map(nvidia::parse_uuid).collect();
    let count = uuids.len() as u32;
    let nvml = match nvidia::nvml(driver.map(Path::new), uuids) {
        Ok(nvml) => nvml,
        Err(e) => {
            eprintln!("rgpu: the devices' load is not measured: {}", e.message);
            return ExitCode::FAILURE;
        }
    };
    loop {
        let mut text = String::new();
        for ordinal in 0..count {
            let load = nvml.read(ordinal, Group::Load).unwrap_or_default();
            let _ = write!(text, "{ordinal}");
            for metric in [Metric::GpuUtilization, Metric::MemoryUsed, Metric::PowerUsage] {
                let _ = match load.get(metric, 0) {
                    Some(value) => write!(text, " {value}"),
                    None => write!(text, " -"),
                };
            }
            text.push('\n');
        }
        let mut stdout = io::stdout();
        if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let measured =
            Measured { utilization_percent: Some(97), memory_used: Some(1 << 30), power_w: Some(250.5) };
        assert_eq!(parse("1 97 1073741824 250500"), Some((1, measured)));
        let measured = Measured { memory_used: Some(5), ..Measured::default() };
        assert_eq!(parse("0 - 5 -"), Some((0, measured)));
        for odd in ["", "x 1 2 3", "-1 1 2 3", "64 1 2 3"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
