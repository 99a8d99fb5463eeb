//! Opening the software GPU inside the program's own process (the Cargo feature `in-process`).

use std::sync::Arc;

use rgpu_control::kept::{Cache, Folder};
use rgpu_control::memory::Memory;
use rgpu_control::settings::{
    self, CHECK_VARIABLE, CODE_CACHE_BYTES, CODE_CACHE_VARIABLE, PROFILE_KERNELS_VARIABLE,
    SOFT_EXACT_BOUNDS_VARIABLE, SOFT_MEMORY_VARIABLE,
};
use rgpu_control::units::{self, parse_bytes, parse_capability};
use rgpu_device::{AddressPlan, Device, Host, Range};
use rgpu_softgpu::{Profile, SoftGpu};

use super::check;
use super::error::{self, Code, Error, Result, not_understood};

/// Opens a software GPU, and reserves the addresses of its memory.
pub(super) fn open(config: rgpu_softgpu::Config, host: Arc<dyn Host>) -> Result<(Arc<SoftGpu>, AddressPlan)> {
    let device = SoftGpu::open(config, host)?;
    let plan = reserve(&*device)?;
    Ok((device, plan))
}

/// Where machine code is kept for later programs, if it is.
pub(super) fn code_folder() -> Result<Option<Folder>> {
    let limit = match settings::text(CODE_CACHE_VARIABLE) {
        None => CODE_CACHE_BYTES,
        Some(value) => parse_bytes(&value).map_err(|_| not_understood(CODE_CACHE_VARIABLE, &value))?,
    };
    let Some(root) = settings::cache_directory().filter(|_| limit > 0) else { return Ok(None) };
    let folder = Cache::open(&root.join("code"), limit).and_then(|cache| Arc::new(cache).folder("kernels"));
    // A program runs without: somebody else's directory, or none that can be written.
    Ok(folder.map_err(|e| error::log(&format!("compiled kernels are not kept: {e}"))).ok())
}

/// Gives software GPUs their part of this machine's memory.
fn choose_memory(config: &mut rgpu_softgpu::Config) {
    let Some(machine) = Memory::look() else { return };
    config.memory_bytes_per_device = machine.of_software_gpus(config.devices);
    error::log(&format!(
        "memory of {} software GPU(s): {} each, of {} available ({SOFT_MEMORY_VARIABLE} says another)",
        config.devices,
        units::bytes(config.memory_bytes_per_device),
        units::bytes(machine.available)
    ));
}

/// A software GPU with what this library was built with, and its part of this machine's memory.
pub(super) fn config_of_machine() -> rgpu_softgpu::Config {
    let mut config = config();
    choose_memory(&mut config);
    config
}

/// A software GPU with what this library was built with.
pub(super) fn config() -> rgpu_softgpu::Config {
    #[allow(unused_mut, reason = "without the feature `libraries` there is nothing to add")]
    let mut config = rgpu_softgpu::Config::default();
    #[cfg(feature = "libraries")]
    {
        config.libraries = Some(rgpu_softlib::LIBRARIES);
    }
    config
}

/// The software GPU's settings: `RGPU_SOFT_MEMORY` (bytes; K, M, G), `RGPU_SOFT_WORKERS`, `RGPU_SOFT_MULTIPROCESSORS`, `RGPU_SOFT_DEVICES`,
/// `RGPU_SOFT_CC` (8.0).
pub(super) fn config_of_environment() -> Result<rgpu_softgpu::Config> {
    let mut config = config();
    let bad = not_understood;
    if let Ok(value) = std::env::var("RGPU_SOFT_WORKERS") {
        config.workers = value.parse().map_err(|_| bad("RGPU_SOFT_WORKERS", &value))?;
    }
    if let Ok(value) = std::env::var("RGPU_SOFT_MULTIPROCESSORS") {
        config.multiprocessors = value.parse().map_err(|_| bad("RGPU_SOFT_MULTIPROCESSORS", &value))?;
    }
    if let Ok(value) = std::env::var("RGPU_SOFT_DEVICES") {
        config.devices = value.parse().map_err(|_| bad("RGPU_SOFT_DEVICES", &value))?;
    }
    if let Ok(value) = std::env::var("RGPU_SOFT_CC") {
        config.compute_capability = parse_capability(&value).map_err(|_| bad("RGPU_SOFT_CC", &value))?;
    }
    config.exact_bounds = settings::is_on(SOFT_EXACT_BOUNDS_VARIABLE);
    config.check = check::of_environment()?;
    config.profile = settings::path(PROFILE_KERNELS_VARIABLE).map(|folder| Profile { folder });
    if config.check.is_some() && config.profile.is_some() {
        let text =
            format!("{CHECK_VARIABLE} and {PROFILE_KERNELS_VARIABLE} exclude each other: unset one of them");
        return Err(Error::new(Code::NoDevice, text));
    }
    config.kernel_limit = settings::kernel_limit().map_err(|text| Error::new(Code::NoDevice, text))?;
    match std::env::var(SOFT_MEMORY_VARIABLE) {
        Ok(value) => {
            let bytes = parse_bytes(&value).map_err(|_| bad(SOFT_MEMORY_VARIABLE, &value))?;
            config.memory_bytes_per_device = bytes;
        }
        Err(_) => choose_memory(&mut config),
    }
    Ok(config)
}

/// Where the arena of an in-process device may lie: between where the kernel puts programs and where it puts libraries.
const BASES: [u64; 14] = [
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
/// How many bytes of addresses it may use there.
const ARENA_BYTES: u64 = 4 << 40;

/// Has an in-process device reserve its addresses.
fn reserve(device: &dyn Device) -> Result<AddressPlan> {
    let mut refusal = None;
    for base in BASES {
        match device.reserve(Range { base, size: ARENA_BYTES }) {
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
    fn bytes_have_units() {
        assert_eq!(parse_bytes("4096").ok(), Some(4096));
        assert_eq!(parse_bytes("512m").ok(), Some(512 << 20));
        assert_eq!(parse_bytes(" 2 G ").ok(), Some(2 << 30));
        assert_eq!(parse_bytes("").ok(), None);
        assert_eq!(parse_bytes("many").ok(), None);
        assert_eq!(parse_bytes("99999999999G").ok(), None);
    }
}
