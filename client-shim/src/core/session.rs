//! Where the device is: in a server, or in this process. Both look the same from here on.

use std::sync::Arc;

use rgpu_device::{AddressPlan, Device, DeviceInfo, Range};
use rgpu_softgpu::SoftGpu;

use super::error::{Code, Error, Result};
use super::host::HostSide;
use super::servers;
use rgpu_remote::{Remote, Server, Several};

/// A device with its reserved addresses.
pub struct Session {
    /// The device.
    pub device: Arc<dyn Device>,
    /// How its addresses are used.
    pub plan: AddressPlan,
    /// The devices, by ordinal.
    pub infos: Vec<DeviceInfo>,
    /// What the device calls back.
    pub host: Arc<HostSide>,
    /// Whether host and device share an address space.
    pub in_process: bool,
    /// Which server each device is of; empty where there are not several.
    pub groups: Vec<usize>,
    goodbye: Box<dyn Fn() + Send + Sync>,
}

impl Session {
    /// Opens the session that [`super::process::use_in_process`] or else the environment asks for:
    /// `RGPU_IN_PROCESS=1`, `RGPU_LEASE=FILE` or `RGPU_SERVER=HOST:PORT,…`. It has the devices that `CUDA_VISIBLE_DEVICES` leaves visible.
    pub fn open() -> Result<Self> {
        let mut session = Self::with(false)?;
        if let Ok(visible) = std::env::var("CUDA_VISIBLE_DEVICES") {
            let count = visible_devices(&visible, session.infos.len())?;
            session.infos.truncate(count);
        }
        Ok(session)
    }

    /// A session with the same devices, hidden ones too, that a server lets only look at them: for monitoring.
    pub fn observe() -> Result<Self> {
        Self::with(true)
    }

    fn with(observe: bool) -> Result<Self> {
        if super::process::is_told_in_process() {
            return Self::in_process(rgpu_softgpu::Config::default());
        }
        if std::env::var("RGPU_IN_PROCESS").is_ok_and(|v| !matches!(v.as_str(), "" | "0")) {
            return Self::in_process(soft_config()?);
        }
        match &*servers::of_environment(observe)? {
            [] => Err(Error::new(
                Code::NoDevice,
                "no GPU: set RGPU_SERVER=HOST:PORT to use a server's, or RGPU_IN_PROCESS=1 for the software GPU",
            )),
            [server] => Self::remote(server),
            several => Self::several(several),
        }
    }

    fn several(servers: &[Server]) -> Result<Self> {
        let host = Arc::new(HostSide::new());
        let several = Several::connect(servers, host.clone())?;
        let (plan, groups) = (several.plan().clone(), several.groups());
        let (goodbye, puller) = (several.clone(), several.clone());
        host.set_pull(Box::new(move || {
            if let Err(error) = puller.pull_shared_writes() {
                super::error::log(&error.message);
            }
        }));
        let session = Self::new(several, plan, host, false, Box::new(move || goodbye.goodbye()))?;
        Ok(Self { groups, ..session })
    }

    fn remote(server: &Server) -> Result<Self> {
        let host = Arc::new(HostSide::new());
        let remote = Remote::connect(&server.address, server.options.clone(), host.clone())?;
        let plan = remote.plan().clone();
        let (goodbye, puller) = (remote.clone(), remote.clone());
        host.set_pull(Box::new(move || {
            if let Err(error) = puller.pull_shared_writes() {
                super::error::log(&error.message);
            }
        }));
        Self::new(remote, plan, host, false, Box::new(move || goodbye.goodbye()))
    }

    /// A session with a software GPU in this process.
    pub(super) fn in_process(config: rgpu_softgpu::Config) -> Result<Self> {
        let host = Arc::new(HostSide::new());
        let device = SoftGpu::open(config, host.clone())?;
        let plan = reserve(&*device)?;
        Self::new(device, plan, host, true, Box::new(|| {}))
    }

    /// A session over an open device whose addresses are reserved.
    pub fn new(
        device: Arc<dyn Device>,
        plan: AddressPlan,
        host: Arc<HostSide>,
        in_process: bool,
        goodbye: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self> {
        let infos = device.infos();
        if infos.is_empty() {
            return Err(Error::new(Code::NoDevice, "The server has no device for this application"));
        }
        if plan.devices.len() < infos.len() {
            return Err(Error::new(Code::SystemNotReady, "The address plan leaves a device out"));
        }
        host.attach(device.clone());
        Ok(Self { device, plan, infos, host, in_process, groups: Vec::new(), goodbye })
    }

    /// Whether two devices are of the same server, or in this process.
    pub fn are_together(&self, a: u32, b: u32) -> bool {
        self.groups.get(a as usize) == self.groups.get(b as usize)
    }

    /// Says goodbye: what was posted is on its way when this returns. Doesn't wait for an answer.
    pub fn close(&self) {
        (self.goodbye)();
    }
}

/// How many devices `CUDA_VISIBLE_DEVICES` leaves visible: the list ends at its first invalid entry. Lists that hide or
/// reorder earlier devices are refused rather than misread.
fn visible_devices(list: &str, count: usize) -> Result<usize> {
    let mut visible = 0;
    for entry in list.split(',') {
        let Some(ordinal) = entry.trim().parse::<usize>().ok().filter(|ordinal| *ordinal < count) else {
            break;
        };
        if ordinal != visible {
            let text = format!("CUDA_VISIBLE_DEVICES={list}: only lists that begin 0,1,2 are supported");
            return Err(Error::new(Code::NoDevice, text));
        }
        visible += 1;
    }
    if visible == 0 {
        return Err(Error::new(Code::NoDevice, format!("CUDA_VISIBLE_DEVICES={list} hides every device")));
    }
    Ok(visible)
}

/// The software GPU's settings: `RGPU_SOFT_MEMORY` (bytes; K, M, G), `RGPU_SOFT_WORKERS`, `RGPU_SOFT_DEVICES`,
/// `RGPU_SOFT_CC` (8.0).
fn soft_config() -> Result<rgpu_softgpu::Config> {
    let mut config = rgpu_softgpu::Config::default();
    let bad =
        |name: &str, value: &str| Error::new(Code::NoDevice, format!("{name}={value} is not understood"));
    if let Ok(value) = std::env::var("RGPU_SOFT_MEMORY") {
        config.memory_bytes_per_device =
            parse_bytes(&value).ok_or_else(|| bad("RGPU_SOFT_MEMORY", &value))?;
    }
    if let Ok(value) = std::env::var("RGPU_SOFT_WORKERS") {
        config.workers = value.parse().map_err(|_| bad("RGPU_SOFT_WORKERS", &value))?;
    }
    if let Ok(value) = std::env::var("RGPU_SOFT_DEVICES") {
        config.devices = value.parse().map_err(|_| bad("RGPU_SOFT_DEVICES", &value))?;
    }
    if let Ok(value) = std::env::var("RGPU_SOFT_CC") {
        config.compute_capability =
            rgpu_control::units::parse_capability(&value).map_err(|_| bad("RGPU_SOFT_CC", &value))?;
    }
    Ok(config)
}

/// A number of bytes, as everywhere.
fn parse_bytes(text: &str) -> Option<u64> {
    rgpu_control::units::parse_bytes(text).ok()
}

/// Where the arena of an in-process device may lie: between where the kernel puts programs and where it puts libraries.
const PLACES: [u64; 14] = [
    0x2000_0000_0000,
    0x3000_0000_0000,
    0x2800_0000_0000,
    0x3800_0000_0000,
    0x4000_0000_0000,
    0x1400_0000_0000,
    0x4800_0000_0000,
    0x2400_0000_0000,
    0x3400_0000_0000,
    0x2c00_0000_0000,
    0x3c00_0000_0000,
    0x4400_0000_0000,
    0x4c00_0000_0000,
    0x5000_0000_0000,
];
/// How much it may use of a place.
const PLACE_SIZE: u64 = 4 << 40;

/// Has an in-process device reserve its addresses.
fn reserve(device: &dyn Device) -> Result<AddressPlan> {
    let mut refusal = None;
    for base in PLACES {
        match device.reserve(Range { base, size: PLACE_SIZE }) {
            Err(error) if error.code == Code::MapFailed => refusal = Some(error),
            other => return other,
        }
    }
    let why = refusal.map_or_else(String::new, |error| error.message);
    let advice = "is there a limit on address space (ulimit -v)?";
    Err(Error::new(Code::MapFailed, format!("Cannot reserve addresses for device memory: {why}; {advice}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_hidden_from_the_end() {
        assert_eq!(visible_devices("0", 2), Ok(1));
        assert_eq!(visible_devices("0, 1", 2), Ok(2));
        assert_eq!(visible_devices("0,-1,1", 2), Ok(1));
        assert!(visible_devices("", 2).is_err() && visible_devices("-1", 2).is_err());
        assert!(visible_devices("1", 2).unwrap_err().message.contains("supported"));
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("512m"), Some(512 << 20));
        assert_eq!(parse_bytes(" 2 G "), Some(2 << 30));
        assert_eq!(parse_bytes(""), None);
        assert_eq!(parse_bytes("many"), None);
        assert_eq!(parse_bytes("99999999999G"), None);
    }
}
