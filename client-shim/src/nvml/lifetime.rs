//! Initialisation, errors, and what is said of the system.

use std::ffi::{c_char, c_int, c_uint};

use rgpu_device::telemetry::Text;

use super::results::{Result, Return};
use super::{Out, guard, observer, set_text};
use crate::abi::c_functions;

/// `NVML_INIT_FLAG_NO_GPUS`: no devices are no failure.
const NO_GPUS: u32 = 1;

c_functions! {
    /// `nvmlInit`.
    fn nvmlInit() -> u32 {
        guard("nvmlInit", || observer::initialize(true))
    }

    /// `nvmlInit_v2`.
    fn nvmlInit_v2() -> u32 {
        guard("nvmlInit_v2", || observer::initialize(true))
    }

    /// `nvmlInitWithFlags`.
    fn nvmlInitWithFlags(flags: c_uint) -> u32 {
        guard("nvmlInitWithFlags", || observer::initialize(flags & NO_GPUS == 0))
    }

    /// `nvmlShutdown`.
    fn nvmlShutdown() -> u32 {
        guard("nvmlShutdown", observer::shut_down)
    }

    /// `nvmlErrorString`: needs no initialisation.
    fn nvmlErrorString(result: c_uint) -> *const c_char {
        Return(result).text().as_ptr()
    }
}

/// The version of the driver behind the devices; where that is not NVIDIA's, it is rgpu's own.
fn driver_version() -> Result<String> {
    match observer::text(0, Text::DriverVersion, 0) {
        Err(Return::NOT_SUPPORTED) => Ok(env!("CARGO_PKG_VERSION").into()),
        other => other,
    }
}

fn cuda_version(place: Out<c_int>) -> Result<()> {
    let version = observer::infos()?.first().map_or(crate::doors::CUDA_VERSION, |info| info.driver_version);
    place.set(version as c_int)
}

/// The longest text that NVML gives as a version.
const VERSION_BYTES: usize = 80;

/// The name under which a process was started.
fn process_name(pid: u32) -> Result<String> {
    let from = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Return::NO_PERMISSION,
        _ => Return::NOT_FOUND,
    };
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(from)?;
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    if first.is_empty() {
        // A process of the kernel, or one that has ended.
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).map_err(from)?;
        return Ok(name.trim_end().to_owned());
    }
    Ok(String::from_utf8_lossy(first).into_owned())
}

nvml! {
    /// `nvmlSystemGetDriverVersion`.
    fn nvmlSystemGetDriverVersion(version: Out<c_char>, length: c_uint) {
        // SAFETY: the program says that so many bytes are there.
        unsafe { set_text(version, length, &driver_version()?) }
    }
    /// `nvmlSystemGetNVMLVersion`: the interface's version, then the driver's.
    fn nvmlSystemGetNVMLVersion(version: Out<c_char>, length: c_uint) {
        let text = match observer::text(0, Text::NvmlVersion, 0) {
            Err(Return::NOT_SUPPORTED) => format!("13.{}", driver_version()?),
            other => other?,
        };
        // SAFETY: the program says that so many bytes are there.
        unsafe { set_text(version, length, &text) }
    }
    /// `nvmlSystemGetCudaDriverVersion`.
    fn nvmlSystemGetCudaDriverVersion(version: Out<c_int>) {
        cuda_version(version)
    }
    /// `nvmlSystemGetCudaDriverVersion_v2`.
    fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) {
        cuda_version(version)
    }
    /// `nvmlSystemGetProcessName`: of a process on this machine.
    fn nvmlSystemGetProcessName(pid: c_uint, name: Out<c_char>, length: c_uint) {
        if name.is_null() || length == 0 {
            return Err(Return::INVALID_ARGUMENT);
        }
        let text = process_name(pid)?;
        let mut end = text.len().min(length as usize - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // SAFETY: the program says that so many bytes are there.
        unsafe { set_text(name, length, &text[..end]) }
    }
    /// `nvmlSystemGetDriverBranch`: only a driver of NVIDIA's has one, and it is not told.
    fn nvmlSystemGetDriverBranch(branch: Out<u32>, _length: c_uint) {
        branch.get()?;
        Err(Return::NOT_SUPPORTED)
    }
    /// `nvmlUnitGetCount`: S-class systems are not forwarded.
    fn nvmlUnitGetCount(count: Out<c_uint>) {
        count.set(0)
    }
    /// `nvmlGetExcludedDeviceCount`.
    fn nvmlGetExcludedDeviceCount(count: Out<c_uint>) {
        count.set(0)
    }
}

const _: () = assert!(env!("CARGO_PKG_VERSION").len() + 4 < VERSION_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_names() {
        let own = process_name(std::process::id()).unwrap();
        assert!(own.contains("rgpu"), "{own}");
        assert_eq!(process_name(0), Err(Return::NOT_FOUND));
    }
}
