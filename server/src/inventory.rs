//! What devices the machine has, found out before the server listens.
//!
//! The daemon holds no device and loads no driver: a driver keeps memory, threads and descriptors in whatever process
//! has opened it. So a process of its own looks, tells, and ends.

use crate::convert;
use crate::device_spec::{DeviceKind, DeviceSpec, MAX_DEVICES, Partition, SOFTWARE_MEMORY, is_instance};
use crate::partition::Partitions;
use rgpu_control::memory::Memory;
use rgpu_control::units;
use rgpu_nvidia::{self as nvidia, Looked};
use rgpu_protocol::hello::DeviceInfo;
use rgpu_protocol::wire;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

/// The hidden subcommand under which the machine's NVIDIA devices are looked for.
pub const INVENTORY_COMMAND: &str = "__nvidia-devices";

/// What part of an NVIDIA device's memory is not promised to applications: each of them needs a context, which takes some
/// hundred MiB. How much it is depends on the driver and the GPU, and how many there will be is not known.
const OVERHEAD: u64 = 16;
/// What says which devices the driver shows a process.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// A device that was found: what it is, its name for `CUDA_VISIBLE_DEVICES` where that is needed, whether the memory is
/// known that was free, and how much, and whether kernels can follow pointers to host memory.
type Found = (DeviceInfo, (String, (bool, (u64, bool))));

/// Why NVIDIA devices could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// No process could be started that looks.
    #[error("a process could not be started: {0}")]
    Start(io::Error),
    /// It failed without saying why.
    #[error("the process that looked for them failed: {0}")]
    Failed(ExitStatus),
    /// It failed and said why: what the driver said, or that there is none.
    #[error("{0}")]
    Told(String),
    /// It said something that is no list of devices.
    #[error("the process that looked for them said something malformed: {0}")]
    Malformed(wire::DecodeError),
    /// It could not say what it had found.
    #[error("{0}")]
    Answer(io::Error),
    /// The driver works, and shows nothing.
    #[error("the NVIDIA driver has no device for this process")]
    NoDevice,
    /// A process that was shown these devices alone saw others.
    #[error("others were found")]
    Others,
    /// Devices that one process is shown at a time.
    #[error("{names} cannot be used: {why}")]
    Group {
        /// Their names, as `CUDA_VISIBLE_DEVICES` takes them.
        names: String,
        /// What went wrong.
        why: Box<InventoryError>,
    },
}

/// The machine's NVIDIA devices, as its driver or the one at `driver` tells.
///
/// # Errors
/// Why there are none.
pub fn nvidia_devices(driver: Option<&Path>) -> Result<Vec<DeviceInfo>, InventoryError> {
    Ok(look(driver)?.into_iter().map(|seen| seen.info).collect())
}

/// A device that another process has looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    /// What it is.
    pub info: DeviceInfo,
    /// Memory that was free, with one context made.
    pub free: Option<u64>,
    /// Its name for `CUDA_VISIBLE_DEVICES`, where a process is shown only devices that are named there.
    pub name: String,
    /// Whether kernels can follow pointers into all memory of the process.
    pub follows_host_pointers: bool,
}

/// Has another process look.
pub(crate) fn look(driver: Option<&Path>) -> Result<Vec<Seen>, InventoryError> {
    let mut command = inventory_command(driver);
    let devices: Vec<Found> = wire::from_bytes(&ask(&mut command)?).map_err(InventoryError::Malformed)?;
    let seen = |(info, (name, (known, (free, follows_host_pointers)))): Found| Seen {
        info,
        free: known.then_some(free),
        name,
        follows_host_pointers,
    };
    Ok(devices.into_iter().map(seen).collect())
}

fn inventory_command(driver: Option<&Path>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(INVENTORY_COMMAND).args(driver).stdin(Stdio::null());
    without_our_variables(&mut command);
    command
}

fn ask(command: &mut Command) -> Result<Vec<u8>, InventoryError> {
    let output = command.output().map_err(InventoryError::Start)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let text = text.trim().strip_prefix(PREFIX).unwrap_or(text.trim());
        return Err(match text {
            "" => InventoryError::Failed(output.status),
            text => InventoryError::Told(text.to_owned()),
        });
    }
    Ok(output.stdout)
}

/// How its failure begins, for people who start it by hand.
const PREFIX: &str = "rgpu: ";

/// The main function of `rgpu __nvidia-devices [DRIVER]`.
pub fn inventory_main(driver: Option<&OsStr>) -> ExitCode {
    let driver = driver.map(Path::new);
    let visible = std::env::var(VISIBLE).ok();
    let looked = nvidia::look(driver, visible.as_deref()).map_err(|e| InventoryError::Told(e.message));
    let result = looked.and_then(|looked| {
        let found = match looked {
            Looked::Devices(devices) => devices.into_iter().map(found).collect(),
            Looked::Apart(names, groups) => apart(&names, &groups, |names| {
                let mut command = inventory_command(driver);
                ask(command.env(VISIBLE, names))
            })?,
        };
        io::stdout().write_all(&wire::to_bytes(&found)).map_err(InventoryError::Answer)
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{PREFIX}{why}");
            ExitCode::FAILURE
        }
    }
}

fn found(seen: nvidia::Seen) -> Found {
    let free = (seen.free.unwrap_or(0), seen.follows_host_pointers);
    (convert::device_info(seen.info), (seen.name, (seen.free.is_some(), free)))
}

/// Asks a process for each group of devices that one process can be shown, and puts the answers into the order of the names.
fn apart(
    names: &[String],
    groups: &[Vec<usize>],
    ask: impl Fn(&str) -> Result<Vec<u8>, InventoryError>,
) -> Result<Vec<Found>, InventoryError> {
    let mut all: Vec<Option<Found>> = vec![None; names.len()];
    for group in groups {
        let shown: Vec<&str> = group.iter().map(|at| names[*at].as_str()).collect();
        let shown = shown.join(",");
        let devices = ask(&shown).and_then(|bytes| {
            let devices: Vec<Found> = wire::from_bytes(&bytes).map_err(InventoryError::Malformed)?;
            if devices.len() == group.len() { Ok(devices) } else { Err(InventoryError::Others) }
        });
        let devices =
            devices.map_err(|why| InventoryError::Group { names: shown.clone(), why: Box::new(why) })?;
        for (at, device) in group.iter().zip(devices) {
            all[*at] = Some(device);
        }
    }
    Ok(all.into_iter().flatten().collect())
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

/// An application's process gets no variables but those that something in it reads: the environment lies in its memory.
pub(crate) fn with_few_variables(command: &mut Command, kind: DeviceKind) {
    command.env_clear();
    let kept = |text: &[u8]| match kind {
        // NVIDIA's driver and libraries: where they are, what they are told, where they keep what they have compiled.
        DeviceKind::Nvidia => {
            text.starts_with(b"CUDA_")
                || text.starts_with(b"NVIDIA_")
                || [&b"HOME"[..], b"LD_LIBRARY_PATH", b"PATH", b"TMPDIR", b"XDG_CACHE_HOME"].contains(&text)
        }
        DeviceKind::Software | DeviceKind::Auto => false,
    };
    use rgpu_control::settings::{KERNEL_LIMIT_VARIABLE, VECTORS_VARIABLE};
    let read = ["RUST_BACKTRACE", "LLVM_PROFILE_FILE", KERNEL_LIMIT_VARIABLE, VECTORS_VARIABLE];
    let always = |text: &[u8]| read.iter().any(|name| text == name.as_bytes());
    for (name, value) in std::env::vars_os() {
        if kept(name.as_bytes()) || always(name.as_bytes()) {
            command.env(name, value);
        }
    }
}

/// What a server has.
#[derive(Debug)]
pub struct Settled {
    /// The devices, with nothing left open.
    pub spec: DeviceSpec,
    /// How much memory each has to promise.
    pub capacity: Vec<u64>,
    /// What NVIDIA devices are; software GPUs are described by themselves.
    pub infos: Vec<DeviceInfo>,
    /// How they are divided.
    pub partitions: Partitions,
}

/// Settles what was left open: which kind of device, how many, how much memory each has to promise, and how it is divided.
pub fn settle(spec: DeviceSpec) -> io::Result<Settled> {
    settle_with(spec, look)
}

fn settle_with(
    mut spec: DeviceSpec,
    look: impl FnOnce(Option<&Path>) -> Result<Vec<Seen>, InventoryError>,
) -> io::Result<Settled> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    if spec.count > MAX_DEVICES {
        return Err(invalid(format!("There can be 1 to {MAX_DEVICES} devices, not {}", spec.count)));
    }
    if spec.kind == DeviceKind::Software && spec.driver.is_some() {
        return Err(invalid("--driver names an NVIDIA driver, which the software GPU has no use for".into()));
    }
    if spec.kind != DeviceKind::Software {
        let found = look(spec.driver.as_deref());
        let found = found.and_then(|devices| match devices.is_empty() {
            true => Err(InventoryError::NoDevice),
            false => Ok(devices),
        });
        match found {
            Ok(devices) => return settle_nvidia(spec, devices),
            // Whoever names a driver means it.
            Err(why) if spec.kind == DeviceKind::Nvidia || spec.driver.is_some() => {
                return Err(io::Error::new(io::ErrorKind::NotFound, why.to_string()));
            }
            Err(why) => {
                tracing::info!("using the software GPU, because there is no NVIDIA GPU: {why}");
                spec.kind = DeviceKind::Software;
            }
        }
    }
    spec.count = spec.count.max(1);
    if spec.memory == 0 {
        let machine = Memory::look();
        spec.memory = machine.map_or(SOFTWARE_MEMORY, |machine| machine.of_software_gpus(spec.count));
        let available = machine.map_or_else(String::new, |machine| {
            format!(", of {} available", units::bytes(machine.available))
        });
        tracing::info!(
            "memory of {} software GPU(s): {} each{available} (--memory says another)",
            spec.count,
            units::bytes(spec.memory)
        );
    }
    let capacity = vec![spec.memory; spec.count as usize];
    let partitions = Partitions::new(&spec, &capacity).map_err(|e| invalid(e.to_string()))?;
    Ok(Settled { spec, capacity, infos: Vec::new(), partitions })
}

fn settle_nvidia(mut spec: DeviceSpec, mut devices: Vec<Seen>) -> io::Result<Settled> {
    let missing = |text: String| io::Error::new(io::ErrorKind::NotFound, text);
    if spec.partition == Partition::Mig {
        devices.retain(|seen| is_instance(&seen.name));
        if devices.is_empty() {
            let text = "--partition mig: no GPU of this machine is partitioned into instances (`nvidia-smi -L` lists them)";
            return Err(missing(text.into()));
        }
    }
    let there = devices.len().min(MAX_DEVICES as usize);
    if spec.count as usize > there {
        let text = format!("{} NVIDIA devices were asked for, but there are {there}", spec.count);
        return Err(missing(text));
    }
    spec.kind = DeviceKind::Nvidia;
    if spec.count == 0 {
        spec.count = there as u32;
    }
    devices.truncate(spec.count as usize);
    if let Some(seen) = devices.iter().find(|seen| seen.follows_host_pointers)
        && !spec.allow_host_pointers
    {
        return Err(missing(host_pointers(&seen.info.name)));
    }
    if devices.iter().any(|seen| !seen.name.is_empty()) {
        spec.visible = devices.iter().map(|seen| seen.name.clone()).collect();
    }
    let capacity: Vec<u64> = devices.iter().map(|seen| capacity(seen, spec.memory)).collect();
    let partitions = Partitions::new(&spec, &capacity)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))?;
    for (ordinal, seen) in devices.iter().enumerate() {
        let name = if seen.name.is_empty() { String::new() } else { format!(" ({})", seen.name) };
        tracing::info!(
            "device {ordinal}: {}{name}, {} MiB to promise, leases are held to their share by {}",
            seen.info.name,
            capacity[ordinal] >> 20,
            partitions.enforcer(ordinal)
        );
    }
    let infos = devices.into_iter().map(|seen| seen.info).collect();
    Ok(Settled { spec, capacity, infos, partitions })
}

/// Why a device is not served, and what to do about it.
fn host_pointers(name: &str) -> String {
    format!(
        "{name}: its driver lets kernels follow pointers into all memory of the process that started them (HMM or ATS), and so \
         into what rgpu keeps there. On machines where that is HMM, load the module nvidia_uvm with uvm_disable_hmm=1. Where \
         all programs are trusted, say --allow-host-pointers"
    )
}

/// How much of an NVIDIA device's memory is promised: what is free when the server starts, with a context made, less room for
/// more contexts. Whoever says a limit knows what else uses the device.
fn capacity(seen: &Seen, limit: u64) -> u64 {
    let total = seen.info.total_memory;
    match limit {
        0 => seen.free.unwrap_or(total).min(total).saturating_sub(total / OVERHEAD),
        limit => limit.min(total),
    }
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
    use crate::partition::Enforcer;

    fn spec(text: &str) -> DeviceSpec {
        text.parse().unwrap()
    }

    fn seen(free: Option<u64>, name: &str) -> Seen {
        let info = DeviceInfo { total_memory: 16 << 30, ..DeviceInfo::default() };
        Seen { info, free, name: name.into(), follows_host_pointers: false }
    }

    fn two(_: Option<&Path>) -> Result<Vec<Seen>, InventoryError> {
        Ok(vec![seen(None, ""), seen(Some(15 << 30), "")])
    }

    fn partitioned(_: Option<&Path>) -> Result<Vec<Seen>, InventoryError> {
        Ok(vec![seen(None, "GPU-a"), seen(None, "MIG-b"), seen(None, "MIG-c")])
    }

    fn none(_: Option<&Path>) -> Result<Vec<Seen>, InventoryError> {
        Err(InventoryError::Told("it was looked for everywhere".into()))
    }

    #[test]
    fn auto_takes_what_there_is() {
        let settled = settle_with(spec("auto"), two).unwrap();
        assert_eq!((settled.spec.kind, settled.spec.count), (DeviceKind::Nvidia, 2));
        // What is in use when the server starts is not promised, nor what contexts will need.
        assert_eq!(settled.capacity, [15 << 30, 14 << 30]);
        assert!(settled.spec.visible.is_empty() && settled.infos.len() == 2);
        let settled = settle_with(spec("auto"), none).unwrap();
        assert_eq!((settled.spec.kind, settled.spec.count), (DeviceKind::Software, 1));
        let least = Memory::look().map_or(SOFTWARE_MEMORY, |machine| machine.total.min(SOFTWARE_MEMORY));
        assert!(settled.capacity[0] >> 20 >= least >> 20 && settled.spec.memory == settled.capacity[0]);
        let settled = settle_with(spec("auto"), |_| Ok(Vec::new())).unwrap();
        assert_eq!(settled.spec.kind, DeviceKind::Software);
    }

    #[test]
    fn what_was_asked_for_by_name_must_be_there() {
        let text = |result: io::Result<Settled>| result.unwrap_err().to_string();
        assert!(text(settle_with(spec("nvidia"), none)).contains("everywhere"));
        assert!(text(settle_with(spec("nvidia:3"), two)).contains("there are 2"));
        let named = DeviceSpec { driver: Some("/somewhere".into()), ..spec("auto") };
        assert!(text(settle_with(named, none)).contains("everywhere"));
        let odd = DeviceSpec { driver: Some("/somewhere".into()), ..spec("software") };
        assert!(text(settle_with(odd, two)).contains("--driver"));
        let limited = DeviceSpec { memory: 1 << 30, ..spec("nvidia:1") };
        assert_eq!(settle_with(limited, two).unwrap().capacity, [1 << 30]);
        let divided = DeviceSpec { partition: Partition::Mig, ..spec("nvidia") };
        assert!(text(settle_with(divided, two)).contains("nvidia-smi -L"));
        let divided = DeviceSpec { partition: Partition::Pacing, ..spec("software") };
        assert!(text(settle_with(divided, two)).contains("--partition"));
    }

    #[test]
    fn devices_that_follow_host_pointers_are_for_the_trusted() {
        let one = |_: Option<&Path>| {
            Ok(vec![seen(None, ""), Seen { follows_host_pointers: true, ..seen(None, "") }])
        };
        for asked in ["auto", "nvidia"] {
            let error = settle_with(spec(asked), one).unwrap_err().to_string();
            assert!(error.contains("--allow-host-pointers") && error.contains("uvm_disable_hmm"), "{error}");
        }
        assert_eq!(settle_with(spec("nvidia:1"), one).unwrap().capacity.len(), 1);
        let allowed = DeviceSpec { allow_host_pointers: true, ..spec("auto") };
        assert_eq!(settle_with(allowed, one).unwrap().capacity.len(), 2);
    }

    #[test]
    fn instances_are_devices_of_their_own() {
        let settled = settle_with(spec("nvidia"), partitioned).unwrap();
        assert_eq!(settled.spec.visible, ["GPU-a", "MIG-b", "MIG-c"]);
        assert_eq!(settled.partitions.enforcer(2), Enforcer::Mig);
        let mig = DeviceSpec { partition: Partition::Mig, ..spec("nvidia:1") };
        let settled = settle_with(mig, partitioned).unwrap();
        assert_eq!((settled.spec.count, settled.spec.visible), (1, vec!["MIG-b".to_owned()]));
        assert_eq!(settled.capacity.len(), 1);
    }

    #[test]
    fn what_one_process_is_not_shown_several_are() {
        let names = ["MIG-b", "GPU-a", "MIG-c", "GPU-d"].map(str::to_owned);
        let groups = [vec![1, 3], vec![0], vec![2]];
        let device =
            |name: &str| -> Found { (DeviceInfo::default(), (name.to_owned(), (false, (0, false)))) };
        let answer = |shown: &str| Ok(wire::to_bytes(&shown.split(',').map(device).collect::<Vec<_>>()));
        let all = apart(&names, &groups, answer).unwrap();
        assert_eq!(all.iter().map(|(_, (name, _))| name.as_str()).collect::<Vec<_>>(), names);
        let fewer = |_: &str| Ok(wire::to_bytes(&vec![device("x")]));
        assert!(apart(&names, &groups, fewer).unwrap_err().to_string().contains("GPU-a,GPU-d"));
        let refused = |_: &str| Err(InventoryError::Told("no permission".into()));
        let error = apart(&names, &groups, refused).unwrap_err().to_string();
        assert!(error.contains("no permission"), "{error}");
    }
}
