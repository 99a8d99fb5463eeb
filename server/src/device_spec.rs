//! Which devices a server gives to applications: what `--device`, `--memory` and their like say. All of the server looks at
//! it, so it looks at nothing of the server.

use rgpu_control::settings;
use std::path::PathBuf;
use std::str::FromStr;

/// How the name of an instance of a partitioned GPU begins.
pub(crate) const INSTANCE: &str = "MIG-";

/// How an administrator wants NVIDIA devices to be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partition {
    /// Instances of partitioned GPUs as they are; whole GPUs by the multi-process service where it runs, else by pacing.
    #[default]
    Auto,
    /// By pacing alone, instances as well.
    Pacing,
    /// Whole GPUs by the multi-process service, which has to run.
    Mps,
    /// Instances of partitioned GPUs, and no whole ones.
    Mig,
}

/// Whether a name, as `CUDA_VISIBLE_DEVICES` takes it, is an instance's.
pub(crate) fn is_instance(name: &str) -> bool {
    name.starts_with(INSTANCE)
}

/// What executes applications' calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum DeviceKind {
    /// The software GPU.
    #[default]
    Software = 0,
    /// The machine's NVIDIA driver.
    Nvidia = 1,
    /// The NVIDIA driver where there is one with a GPU, else the software GPU. Settled before the server
    /// listens.
    Auto = 2,
}

impl DeviceKind {
    /// The kind with this number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [Self::Software, Self::Nvidia, Self::Auto].into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Which device applications get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSpec {
    /// What executes their calls.
    pub kind: DeviceKind,
    /// How many device ordinals an application sees; 0 means all that there are, and one software GPU.
    pub count: u32,
    /// Memory of each in bytes, shared by all applications; 0 means all that an NVIDIA GPU has to offer, and
    /// what [`rgpu_control::memory`] says for a software GPU.
    pub memory: u64,
    /// Worker threads of each application's software GPU; 0 means one for each core.
    pub workers: u32,
    /// Multiprocessors that a software GPU says it has; 0 means one for each worker.
    pub multiprocessors: u32,
    /// Whether a software GPU faults in the first page of 4 KiB beside an allocation, and not only in other pages of 2 MiB, as GPUs do.
    pub exact_bounds: bool,
    /// Compute capability of a software GPU, major and minor.
    pub compute_capability: (u32, u32),
    /// The NVIDIA driver's library. Without it the machine's driver is looked for.
    pub driver: Option<PathBuf>,
    /// Folders in which the NVIDIA device's mathematical libraries are looked for before the usual ones.
    pub libraries: Vec<PathBuf>,
    /// Which of the machine's devices they are, by ordinal: as many as `count` says, or none for the first ones.
    pub numbers: Vec<u32>,
    /// How NVIDIA devices are divided among leases.
    pub partition: Partition,
    /// The devices' names as `CUDA_VISIBLE_DEVICES` takes them, where the driver shows a process only those that are named
    /// there; none where it shows all in its own order.
    pub visible: Vec<String>,
    /// Serve NVIDIA devices on which kernels can follow pointers into all memory of the application's process.
    pub allow_host_pointers: bool,
    /// What tells this server's software GPUs apart from other servers'; 0 for none.
    pub identity: u64,
    /// What kernels are looked at for, where the application asks for that.
    pub check: Option<rgpu_device::Check>,
}

impl DeviceSpec {
    /// The same, of which an application gets only these devices, in this order.
    pub fn only(&self, numbers: Vec<u32>) -> Self {
        let count = numbers.len() as u32;
        if !self.visible.is_empty() {
            let named = numbers.iter().filter_map(|number| self.visible.get(*number as usize).cloned());
            return Self { count, visible: named.collect(), numbers: Vec::new(), ..self.clone() };
        }
        let own = |number: &u32| self.numbers.get(*number as usize).copied().unwrap_or(*number);
        Self { count, numbers: numbers.iter().map(own).collect(), ..self.clone() }
    }

    /// Whether a device is an instance of a partitioned GPU.
    pub(crate) fn is_instance(&self, device: usize) -> bool {
        self.visible.get(device).is_some_and(|name| is_instance(name))
    }
}

/// The most ordinals that are supported.
pub(crate) const MAX_DEVICES: u32 = 16;
/// Memory of a software GPU where nothing else was said.
pub(crate) const SOFTWARE_MEMORY: u64 = settings::SOFTWARE_MEMORY;

impl Default for DeviceSpec {
    fn default() -> Self {
        Self {
            kind: DeviceKind::Software,
            count: 1,
            memory: SOFTWARE_MEMORY,
            workers: 0,
            multiprocessors: 0,
            exact_bounds: false,
            compute_capability: settings::SOFTWARE_CAPABILITY,
            driver: None,
            libraries: Vec::new(),
            numbers: Vec::new(),
            partition: Partition::Auto,
            visible: Vec::new(),
            allow_host_pointers: false,
            identity: 0,
            check: None,
        }
    }
}

/// Why a text names no devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceSpecError {
    /// There is no such kind of device.
    #[error(
        "device `{0}` is not known; there is `software`, `nvidia` (each also with `:N` for N of them), and `auto`"
    )]
    Device(String),
    /// There cannot be so many devices.
    #[error("`{0}` does not name a number of devices from 1 to {MAX_DEVICES}")]
    Count(String),
}

/// `software` or `software:N`, `nvidia` or `nvidia:N`, `auto`. (`softgpu` is `software`.)
impl FromStr for DeviceSpec {
    type Err = DeviceSpecError;
    fn from_str(text: &str) -> Result<Self, DeviceSpecError> {
        let (kind, count) = match text.split_once(':') {
            Some((kind, count)) => (kind, Some(count)),
            None => (text, None),
        };
        let kind = match kind {
            "software" | "softgpu" => DeviceKind::Software,
            "nvidia" => DeviceKind::Nvidia,
            "auto" if count.is_none() => DeviceKind::Auto,
            _ => return Err(DeviceSpecError::Device(text.to_owned())),
        };
        let count = match count.map(str::parse) {
            None => 0,
            Some(Ok(count @ 1..=MAX_DEVICES)) => count,
            _ => return Err(DeviceSpecError::Count(text.to_owned())),
        };
        Ok(Self { kind, count, memory: 0, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted() {
        let parsed = |text: &str| text.parse::<DeviceSpec>().map(|spec| (spec.kind, spec.count)).ok();
        assert_eq!(parsed("software"), Some((DeviceKind::Software, 0)));
        assert_eq!(parsed("softgpu:4"), Some((DeviceKind::Software, 4)));
        assert_eq!(parsed("nvidia:2"), Some((DeviceKind::Nvidia, 2)));
        assert_eq!(parsed("auto"), Some((DeviceKind::Auto, 0)));
        for wrong in ["software:0", "software:17", "software:x", "nvidia:", "auto:1", "radeon", ""] {
            assert!(parsed(wrong).is_none(), "{wrong}");
        }
    }
}
