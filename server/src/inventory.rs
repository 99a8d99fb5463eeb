//! What devices the machine has, found out before the server listens.
//!
//! The daemon holds no device and loads no driver: a driver keeps memory, threads and descriptors in whatever process
//! has opened it. So a process of its own looks, tells, and ends.

use crate::convert;
use crate::nvidia;
use crate::options::{DeviceKind, DeviceSpec, MAX_DEVICES, SOFTWARE_MEMORY};
use rgpu_protocol::hello::DeviceInfo;
use rgpu_protocol::wire::{Reader, Wire};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The hidden subcommand under which the machine's NVIDIA devices are looked for.
pub const INVENTORY_COMMAND: &str = "__nvidia-devices";

/// What part of an NVIDIA device's memory is not promised to applications: what the driver needs for each of them.
const OVERHEAD: u64 = 16;

/// The machine's NVIDIA devices, as its driver or the one at `driver` tells; or why there are none.
pub fn nvidia_devices(driver: Option<&Path>) -> Result<Vec<DeviceInfo>, String> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(INVENTORY_COMMAND).args(driver).stdin(Stdio::null());
    without_our_variables(&mut command);
    let output = command.output().map_err(|e| format!("a process could not be started: {e}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let text = text.trim().strip_prefix(PREFIX).unwrap_or(text.trim());
        return Err(match text {
            "" => format!("the process that looked for them failed: {}", output.status),
            text => text.to_owned(),
        });
    }
    let mut reader = Reader::new(&output.stdout);
    let devices = Wire::decode(&mut reader).and_then(|devices| reader.finish().map(|()| devices));
    devices.map_err(|e| format!("the process that looked for them said something malformed: {e}"))
}

/// How its failure begins, for people who start it by hand.
const PREFIX: &str = "rgpu: ";

/// The main function of `rgpu __nvidia-devices [DRIVER]`.
pub fn inventory_main(driver: Option<&OsStr>) -> ExitCode {
    let result = nvidia::describe(driver.map(Path::new)).map_err(|e| e.message).and_then(|devices| {
        let devices: Vec<DeviceInfo> = devices.into_iter().map(convert::device_info).collect();
        let mut bytes = Vec::new();
        devices.encode(&mut bytes);
        io::stdout().write_all(&bytes).map_err(|e| e.to_string())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{PREFIX}{message}");
            ExitCode::FAILURE
        }
    }
}

/// Keeps from a process what is meant for programs that use GPUs through us.
pub(crate) fn without_our_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.as_bytes();
        if text.starts_with(b"RGPU_") || text == b"LD_PRELOAD" || text == b"LD_AUDIT" {
            command.env_remove(&name);
        }
    }
}

/// Settles what was left open: which kind of device, how many, and how much memory each has to promise.
pub fn settle(spec: DeviceSpec) -> io::Result<(DeviceSpec, Vec<u64>)> {
    settle_with(spec, nvidia_devices)
}

fn settle_with(
    mut spec: DeviceSpec,
    look: impl FnOnce(Option<&Path>) -> Result<Vec<DeviceInfo>, String>,
) -> io::Result<(DeviceSpec, Vec<u64>)> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if spec.count > MAX_DEVICES {
        return invalid(format!("There can be 1 to {MAX_DEVICES} devices, not {}", spec.count));
    }
    if spec.kind == DeviceKind::Software && spec.driver.is_some() {
        return invalid("--driver names an NVIDIA driver, which the software GPU has no use for".into());
    }
    if spec.kind != DeviceKind::Software {
        let found = look(spec.driver.as_deref());
        let found = found.and_then(|devices| match devices.is_empty() {
            true => Err("the NVIDIA driver has no device for this process".to_owned()),
            false => Ok(devices),
        });
        match found {
            Ok(devices) => return settle_nvidia(spec, &devices),
            // Whoever names a driver means it.
            Err(why) if spec.kind == DeviceKind::Nvidia || spec.driver.is_some() => {
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            }
            Err(why) => {
                tracing::info!("using the software GPU, because there is no NVIDIA GPU: {why}");
                spec.kind = DeviceKind::Software;
            }
        }
    }
    spec.count = spec.count.max(1);
    if spec.memory == 0 {
        spec.memory = SOFTWARE_MEMORY;
    }
    let capacity = vec![spec.memory; spec.count as usize];
    Ok((spec, capacity))
}

fn settle_nvidia(mut spec: DeviceSpec, devices: &[DeviceInfo]) -> io::Result<(DeviceSpec, Vec<u64>)> {
    let there = devices.len().min(MAX_DEVICES as usize);
    if spec.count as usize > there {
        let text = format!("{} NVIDIA devices were asked for, but there are {there}", spec.count);
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    spec.kind = DeviceKind::Nvidia;
    if spec.count == 0 {
        spec.count = there as u32;
    }
    let chosen = &devices[..spec.count as usize];
    let capacity = chosen.iter().map(|device| match spec.memory {
        0 => device.total_memory - device.total_memory / OVERHEAD,
        limit => limit.min(device.total_memory),
    });
    let capacity: Vec<u64> = capacity.collect();
    for (ordinal, device) in chosen.iter().enumerate() {
        tracing::info!("device {ordinal}: {}, {} MiB to promise", device.name, capacity[ordinal] >> 20);
    }
    Ok((spec, capacity))
}

/// A path on its way to another process of ours.
pub(crate) fn path_bytes(path: Option<&Path>) -> Vec<u8> {
    path.map_or_else(Vec::new, |path| path.as_os_str().as_bytes().to_vec())
}

/// A path as it was before [`path_bytes`].
pub(crate) fn path_from(bytes: &[u8]) -> Option<PathBuf> {
    (!bytes.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> DeviceSpec {
        text.parse().unwrap()
    }

    fn two(_: Option<&Path>) -> Result<Vec<DeviceInfo>, String> {
        let device = DeviceInfo { total_memory: 16 << 30, ..DeviceInfo::default() };
        Ok(vec![device.clone(), device])
    }

    fn none(_: Option<&Path>) -> Result<Vec<DeviceInfo>, String> {
        Err("it was looked for everywhere".into())
    }

    #[test]
    fn auto_takes_what_there_is() {
        let (settled, capacity) = settle_with(spec("auto"), two).unwrap();
        assert_eq!((settled.kind, settled.count), (DeviceKind::Nvidia, 2));
        assert_eq!(capacity, [15 << 30, 15 << 30]);
        let (settled, capacity) = settle_with(spec("auto"), none).unwrap();
        assert_eq!((settled.kind, settled.count), (DeviceKind::Software, 1));
        assert_eq!(capacity, [SOFTWARE_MEMORY]);
        let (settled, _) = settle_with(spec("auto"), |_| Ok(Vec::new())).unwrap();
        assert_eq!(settled.kind, DeviceKind::Software);
    }

    #[test]
    fn what_was_asked_for_by_name_must_be_there() {
        let text = |result: io::Result<(DeviceSpec, Vec<u64>)>| result.unwrap_err().to_string();
        assert!(text(settle_with(spec("nvidia"), none)).contains("everywhere"));
        assert!(text(settle_with(spec("nvidia:3"), two)).contains("there are 2"));
        let named = DeviceSpec { driver: Some("/somewhere".into()), ..spec("auto") };
        assert!(text(settle_with(named, none)).contains("everywhere"));
        let odd = DeviceSpec { driver: Some("/somewhere".into()), ..spec("software") };
        assert!(text(settle_with(odd, two)).contains("--driver"));
        let limited = DeviceSpec { memory: 1 << 30, ..spec("nvidia:1") };
        assert_eq!(settle_with(limited, two).unwrap().1, [1 << 30]);
    }
}
