//! What NVML says about the machine's GPUs.
//!
//! NVML's library is opened when something is first asked of it, by its full path, because rgpu's own library poses as
//! it, too. Which functions there are depends on the driver; one that is missing, or that answers with an
//! error, leaves its metric out. Functions and structures are those of the public header `nvml.h`.

use super::mig::call;
use parking_lot::Mutex;
use rgpu_device::telemetry::{Group, Metric, Telemetry, Text};
use rgpu_device::{Code, Error, Ordinal, Result};
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The library's name, beside the driver's.
pub(crate) const FILE: &str = "libnvidia-ml.so.1";
/// The longest text that NVML gives.
const TEXT_BYTES: usize = 96;
/// The most links that a GPU has.
const LINKS: u32 = 18;
/// Fields that monitoring programs read by number: ECC modes and totals, retired pages, memory's temperature, energy,
/// NVLink's speed and count, PCIe's replays, NVLink's throughput, remapped rows, PCIe's errors, power, and thresholds.
const FIELDS: &[(u32, u32)] = &[(1, 6), (29, 31), (82, 83), (90, 95), (138, 147), (173, 198), (230, 230)];

/// A function's results: a number of 32 or of 64 bits.
#[derive(Clone, Copy)]
enum Width {
    Narrow,
    Wide,
}
use Width::{Narrow, Wide};

/// A function that gives one number; the names are tried in order.
struct One(Metric, u32, Width, &'static [&'static CStr]);
/// A function that gives two numbers, for indices 0 and 1.
struct Two(Metric, &'static CStr);
/// A function that gives a number for each index below a count.
struct Of(Metric, u32, &'static CStr);

const fn one(metric: Metric, name: &'static [&'static CStr]) -> One {
    One(metric, 0, Narrow, name)
}

const IDENTITY: &[One] = &[
    one(Metric::Brand, &[c"nvmlDeviceGetBrand"]),
    one(Metric::Architecture, &[c"nvmlDeviceGetArchitecture"]),
    one(Metric::CoreCount, &[c"nvmlDeviceGetNumGpuCores"]),
    one(Metric::MemoryBusWidth, &[c"nvmlDeviceGetMemoryBusWidth"]),
    one(Metric::MinorNumber, &[c"nvmlDeviceGetMinorNumber"]),
    one(Metric::Irq, &[c"nvmlDeviceGetIrqNum"]),
    one(Metric::BoardId, &[c"nvmlDeviceGetBoardId"]),
    one(Metric::MultiGpuBoard, &[c"nvmlDeviceGetMultiGpuBoard"]),
    one(Metric::MaxPcieGeneration, &[c"nvmlDeviceGetMaxPcieLinkGeneration"]),
    One(Metric::MaxPcieGeneration, 1, Narrow, &[c"nvmlDeviceGetGpuMaxPcieLinkGeneration"]),
    one(Metric::MaxPcieWidth, &[c"nvmlDeviceGetMaxPcieLinkWidth"]),
    one(Metric::MaxPcieSpeed, &[c"nvmlDeviceGetPcieLinkMaxSpeed"]),
    one(Metric::PowerLimitDefault, &[c"nvmlDeviceGetPowerManagementDefaultLimit"]),
    one(Metric::FanCount, &[c"nvmlDeviceGetNumFans"]),
    one(Metric::MaxMigDevices, &[c"nvmlDeviceGetMaxMigDeviceCount"]),
    one(Metric::AdaptiveClock, &[c"nvmlDeviceGetAdaptiveClockInfoStatus"]),
    one(Metric::ModuleId, &[c"nvmlDeviceGetModuleId"]),
    One(
        Metric::SupportedClockEvents,
        0,
        Wide,
        &[c"nvmlDeviceGetSupportedClocksEventReasons", c"nvmlDeviceGetSupportedClocksThrottleReasons"],
    ),
];
const IDENTITY_TWO: &[Two] = &[Two(Metric::PowerLimitRange, c"nvmlDeviceGetPowerManagementLimitConstraints")];
const IDENTITY_OF: &[Of] = &[
    Of(Metric::MaxClock, 4, c"nvmlDeviceGetMaxClockInfo"),
    Of(Metric::TemperatureThreshold, 8, c"nvmlDeviceGetTemperatureThreshold"),
    Of(Metric::NvLinkVersion, LINKS, c"nvmlDeviceGetNvLinkVersion"),
];

const LOAD: &[One] = &[
    one(Metric::PowerUsage, &[c"nvmlDeviceGetPowerUsage"]),
    One(Metric::Energy, 0, Wide, &[c"nvmlDeviceGetTotalEnergyConsumption"]),
    one(Metric::PerformanceState, &[c"nvmlDeviceGetPerformanceState"]),
    One(
        Metric::ClockEvents,
        0,
        Wide,
        &[c"nvmlDeviceGetCurrentClocksEventReasons", c"nvmlDeviceGetCurrentClocksThrottleReasons"],
    ),
    one(Metric::PcieGeneration, &[c"nvmlDeviceGetCurrPcieLinkGeneration"]),
    one(Metric::PcieWidth, &[c"nvmlDeviceGetCurrPcieLinkWidth"]),
];
const LOAD_TWO: &[Two] = &[
    Two(Metric::EncoderUtilization, c"nvmlDeviceGetEncoderUtilization"),
    Two(Metric::DecoderUtilization, c"nvmlDeviceGetDecoderUtilization"),
    Two(Metric::JpegUtilization, c"nvmlDeviceGetJpgUtilization"),
    Two(Metric::OfaUtilization, c"nvmlDeviceGetOfaUtilization"),
];
const LOAD_OF: &[Of] = &[
    Of(Metric::Temperature, 1, c"nvmlDeviceGetTemperature"),
    Of(Metric::Clock, 4, c"nvmlDeviceGetClockInfo"),
    Of(Metric::FanSpeed, 8, c"nvmlDeviceGetFanSpeed_v2"),
];

const SETTINGS: &[One] = &[
    one(Metric::PersistenceMode, &[c"nvmlDeviceGetPersistenceMode"]),
    one(Metric::ComputeMode, &[c"nvmlDeviceGetComputeMode"]),
    one(Metric::DisplayMode, &[c"nvmlDeviceGetDisplayMode"]),
    one(Metric::DisplayActive, &[c"nvmlDeviceGetDisplayActive"]),
    One(Metric::EccMode, 2, Narrow, &[c"nvmlDeviceGetDefaultEccMode"]),
    one(Metric::PowerManagementMode, &[c"nvmlDeviceGetPowerManagementMode"]),
    one(Metric::PowerLimit, &[c"nvmlDeviceGetPowerManagementLimit"]),
    one(Metric::EnforcedPowerLimit, &[c"nvmlDeviceGetEnforcedPowerLimit"]),
    one(Metric::VirtualizationMode, &[c"nvmlDeviceGetVirtualizationMode"]),
    one(Metric::AccountingMode, &[c"nvmlDeviceGetAccountingMode"]),
    one(Metric::PowerSource, &[c"nvmlDeviceGetPowerSource"]),
];
const SETTINGS_TWO: &[Two] = &[
    Two(Metric::EccMode, c"nvmlDeviceGetEccMode"),
    Two(Metric::MigMode, c"nvmlDeviceGetMigMode"),
    Two(Metric::GspFirmwareMode, c"nvmlDeviceGetGspFirmwareMode"),
    Two(Metric::OperationMode, c"nvmlDeviceGetGpuOperationMode"),
];
const SETTINGS_OF: &[Of] = &[
    Of(Metric::ApplicationClock, 4, c"nvmlDeviceGetApplicationsClock"),
    Of(Metric::DefaultApplicationClock, 4, c"nvmlDeviceGetDefaultApplicationsClock"),
    Of(Metric::CustomerBoostClock, 4, c"nvmlDeviceGetMaxCustomerBoostClock"),
];

const DETAILS: &[One] = &[
    one(Metric::RetirementPending, &[c"nvmlDeviceGetRetiredPagesPendingStatus"]),
    one(Metric::PcieReplays, &[c"nvmlDeviceGetPcieReplayCounter"]),
];
const DETAILS_OF: &[Of] = &[
    Of(Metric::PcieThroughput, 2, c"nvmlDeviceGetPcieThroughput"),
    Of(Metric::NvLinkState, LINKS, c"nvmlDeviceGetNvLinkState"),
];

const TEXTS: &[(Text, &CStr)] = &[
    (Text::Serial, c"nvmlDeviceGetSerial"),
    (Text::VbiosVersion, c"nvmlDeviceGetVbiosVersion"),
    (Text::InforomImage, c"nvmlDeviceGetInforomImageVersion"),
    (Text::BoardPart, c"nvmlDeviceGetBoardPartNumber"),
];
const SYSTEM_TEXTS: &[(Text, &CStr)] =
    &[(Text::DriverVersion, c"nvmlSystemGetDriverVersion"), (Text::NvmlVersion, c"nvmlSystemGetNVMLVersion")];

/// `nvmlDevice_t`
type Handle = *mut c_void;

/// `nvmlPciInfo_t` of version 3.
#[repr(C)]
struct PciInfo {
    legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem_id: u32,
    bus_id: [u8; 32],
}

/// `nvmlMemory_v2_t`
#[repr(C)]
struct Memory {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlFieldValue_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct FieldValue {
    field: u32,
    scope: u32,
    timestamp: i64,
    latency: i64,
    value_type: u32,
    result: u32,
    value: u64,
}

/// NVML, for an application's devices.
pub struct Nvml {
    library: PathBuf,
    uuids: Vec<[u8; 16]>,
    opened: Mutex<Option<Result<Opened>>>,
}

impl Nvml {
    /// NVML of the driver that was opened from `driver`, for devices with these UUIDs. Where that driver is rgpu's own
    /// library, that answers for NVML as well. Opens nothing yet.
    pub fn beside(driver: &Path, is_own: bool, uuids: Vec<[u8; 16]>) -> Self {
        let library = if is_own { driver.to_owned() } else { driver.with_file_name(FILE) };
        Self { library, uuids, opened: Mutex::new(None) }
    }

    /// One group of a device's metrics.
    pub fn read(&self, ordinal: Ordinal, group: Group) -> Result<Telemetry> {
        self.with(|opened| {
            let Some(device) = opened.devices.get(ordinal as usize).copied() else {
                return Err(Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")));
            };
            let Some(device) = device else {
                let text = format!("NVML does not know device {ordinal} by its UUID");
                return Err(Error::new(Code::NotSupported, text));
            };
            let mut telemetry = Telemetry::default();
            match group {
                Group::Identity => opened.identity(device, &mut telemetry),
                Group::Load => opened.load(device, &mut telemetry),
                Group::Settings => opened.settings(device, &mut telemetry),
                Group::Details => opened.details(device, &mut telemetry),
            }
            Ok(telemetry)
        })
    }

    fn with<T>(&self, body: impl FnOnce(&Opened) -> Result<T>) -> Result<T> {
        let mut opened = self.opened.lock();
        let opened = opened.get_or_insert_with(|| Opened::open(&self.library, &self.uuids));
        body(opened.as_ref().map_err(Clone::clone)?)
    }
}

/// NVML, initialised.
struct Opened {
    library: *mut c_void,
    devices: Vec<Option<Handle>>,
}

// SAFETY: NVML may be called from any thread; what the pointers mean is its own affair.
unsafe impl Send for Opened {}

impl Opened {
    fn open(library: &Path, uuids: &[[u8; 16]]) -> Result<Self> {
        let fail = |why: &str| {
            let text = format!("NVML ({}) cannot be used: {why}", library.display());
            Err(Error::new(Code::NotSupported, text))
        };
        let Ok(name) = CString::new(library.as_os_str().as_bytes()) else {
            return fail("its name has a NUL");
        };
        // SAFETY: the name ends in NUL; the library is the driver's companion.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return fail("it cannot be opened");
        }
        let mut opened = Self { library: handle, devices: Vec::new() };
        if !call!(opened, c"nvmlInit_v2", ()) {
            return fail("it does not start");
        }
        opened.devices = uuids.iter().map(|uuid| opened.device(uuid)).collect();
        Ok(opened)
    }

    fn symbol(&self, name: &CStr) -> *const c_void {
        // SAFETY: the library stays open, and the name ends in NUL.
        unsafe { libc::dlsym(self.library, name.as_ptr()) }
    }

    fn device(&self, uuid: &[u8; 16]) -> Option<Handle> {
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
        let mut found: Handle = std::ptr::null_mut();
        ["GPU", "MIG"].into_iter().find_map(|kind| {
            let name = CString::new(format!("{kind}-{parts}")).ok()?;
            let known = call!(self, c"nvmlDeviceGetHandleByUUID",
                (name.as_ptr() => *const c_char, &mut found => *mut Handle));
            (known && !found.is_null()).then_some(found)
        })
    }

    fn number(&self, device: Handle, name: &CStr, width: Width) -> Option<u64> {
        let (mut narrow, mut wide) = (0u32, 0u64);
        match width {
            Narrow => call!(self, name, (device => Handle, &mut narrow => *mut u32)).then_some(narrow.into()),
            Wide => call!(self, name, (device => Handle, &mut wide => *mut u64)).then_some(wide),
        }
    }

    fn rows(&self, device: Handle, out: &mut Telemetry, one: &[One], two: &[Two], of: &[Of]) {
        for One(metric, index, width, names) in one {
            if let Some(value) = names.iter().find_map(|name| self.number(device, name, *width)) {
                out.set(*metric, *index, value);
            }
        }
        for Two(metric, name) in two {
            let (mut first, mut second) = (0u32, 0u32);
            if call!(self, name, (device => Handle, &mut first => *mut u32, &mut second => *mut u32)) {
                out.set(*metric, 0, first.into());
                out.set(*metric, 1, second.into());
            }
        }
        for Of(metric, count, name) in of {
            for index in 0..*count {
                let mut value = 0u32;
                if call!(self, name, (device => Handle, index => u32, &mut value => *mut u32)) {
                    out.set(*metric, index, value.into());
                }
            }
        }
    }

    fn identity(&self, device: Handle, out: &mut Telemetry) {
        self.rows(device, out, IDENTITY, IDENTITY_TWO, IDENTITY_OF);
        // SAFETY: numbers and bytes, for which zeros are values.
        let mut pci: PciInfo = unsafe { std::mem::zeroed() };
        if call!(self, c"nvmlDeviceGetPciInfo_v3", (device => Handle, &mut pci => *mut PciInfo)) {
            let all = [pci.domain, pci.bus, pci.device, pci.device_id, pci.subsystem_id];
            for (index, value) in all.into_iter().enumerate() {
                out.set(Metric::Pci, index as u32, value.into());
            }
        }
        // Eight numbers of 32 bits and one of 64.
        let mut attributes = [0u64; 5];
        let place = attributes.as_mut_ptr();
        if call!(self, c"nvmlDeviceGetAttributes_v2", (device => Handle, place => *mut u64)) {
            for index in 0..8 {
                let half = attributes[index as usize / 2].to_ne_bytes();
                let value = if index % 2 == 0 { &half[..4] } else { &half[4..] };
                let value = value.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                out.set(Metric::Attributes, index, value);
            }
            out.set(Metric::Attributes, 8, attributes[4]);
        }
        let mut buffer = [0u8; TEXT_BYTES];
        let length = TEXT_BYTES as u32;
        for (text, name) in SYSTEM_TEXTS {
            let place = buffer.as_mut_ptr();
            if call!(self, name, (place => *mut u8, length => u32)) {
                out.set_text(*text, 0, until_nul(&buffer));
            }
        }
        for (text, name) in TEXTS {
            let place = buffer.as_mut_ptr();
            if call!(self, name, (device => Handle, place => *mut u8, length => u32)) {
                out.set_text(*text, 0, until_nul(&buffer));
            }
        }
        for object in 0..4 {
            let place = buffer.as_mut_ptr();
            if call!(self, c"nvmlDeviceGetInforomVersion",
                (device => Handle, object => u32, place => *mut u8, length => u32))
            {
                out.set_text(Text::Inforom, object, until_nul(&buffer));
            }
        }
        let place = buffer.as_mut_ptr();
        if call!(self, c"nvmlDeviceGetGspFirmwareVersion", (device => Handle, place => *mut u8)) {
            out.set_text(Text::GspFirmware, 0, until_nul(&buffer));
        }
    }

    fn load(&self, device: Handle, out: &mut Telemetry) {
        self.rows(device, out, LOAD, LOAD_TWO, LOAD_OF);
        let version = size_of::<Memory>() as u32 | 2 << 24;
        let mut memory = Memory { version, total: 0, reserved: 0, free: 0, used: 0 };
        if call!(self, c"nvmlDeviceGetMemoryInfo_v2", (device => Handle, &mut memory => *mut Memory)) {
            out.set(Metric::MemoryTotal, 0, memory.total);
            out.set(Metric::MemoryFree, 0, memory.free);
            out.set(Metric::MemoryUsed, 0, memory.reserved + memory.used);
            out.set(Metric::MemoryReserved, 0, memory.reserved);
        }
        let mut shares = [0u32; 2];
        let place = shares.as_mut_ptr();
        if call!(self, c"nvmlDeviceGetUtilizationRates", (device => Handle, place => *mut u32)) {
            out.set(Metric::GpuUtilization, 0, shares[0].into());
            out.set(Metric::MemoryUtilization, 0, shares[1].into());
        }
    }

    fn settings(&self, device: Handle, out: &mut Telemetry) {
        self.rows(device, out, SETTINGS, SETTINGS_TWO, SETTINGS_OF);
        let mut bar = [0u64; 3];
        let place = bar.as_mut_ptr();
        if call!(self, c"nvmlDeviceGetBAR1MemoryInfo", (device => Handle, place => *mut u64)) {
            out.set(Metric::Bar1Total, 0, bar[0]);
            out.set(Metric::Bar1Free, 0, bar[1]);
            out.set(Metric::Bar1Used, 0, bar[2]);
        }
    }

    fn details(&self, device: Handle, out: &mut Telemetry) {
        self.rows(device, out, DETAILS, &[], DETAILS_OF);
        let mut wide = 0u64;
        for kind in 0..2 {
            for counter in 0..2 {
                let at = kind * 2 + counter;
                if call!(self, c"nvmlDeviceGetTotalEccErrors",
                    (device => Handle, kind => u32, counter => u32, &mut wide => *mut u64))
                {
                    out.set(Metric::EccErrors, at, wide);
                }
                for location in 0..8 {
                    if call!(self, c"nvmlDeviceGetMemoryErrorCounter",
                        (device => Handle, kind => u32, counter => u32, location => u32, &mut wide => *mut u64))
                    {
                        out.set(Metric::EccErrorsAt, at * 16 + location, wide);
                    }
                }
            }
        }
        self.retired(device, out);
        for policy in [0, 1, 2, 3, 4, 5, 10, 11] {
            let mut times = [0u64; 2];
            let place = times.as_mut_ptr();
            if call!(self, c"nvmlDeviceGetViolationStatus",
                (device => Handle, policy => u32, place => *mut u64))
            {
                out.set(Metric::Violation, policy * 2, times[0]);
                out.set(Metric::Violation, policy * 2 + 1, times[1]);
            }
        }
        for link in
            (0..LINKS).filter(|link| out.get(Metric::NvLinkState, *link) == Some(1)).collect::<Vec<_>>()
        {
            let mut narrow = 0u32;
            for capability in 0..6 {
                if call!(self, c"nvmlDeviceGetNvLinkCapability",
                    (device => Handle, link => u32, capability => u32, &mut narrow => *mut u32))
                {
                    out.set(Metric::NvLinkCapability, link * 16 + capability, narrow.into());
                }
            }
            for counter in 0..5 {
                if call!(self, c"nvmlDeviceGetNvLinkErrorCounter",
                    (device => Handle, link => u32, counter => u32, &mut wide => *mut u64))
                {
                    out.set(Metric::NvLinkErrors, link * 16 + counter, wide);
                }
            }
        }
        self.fields(device, out);
    }

    /// Remapped rows, and how many pages are retired.
    fn retired(&self, device: Handle, out: &mut Telemetry) {
        let mut rows = [0u32; 4];
        let [a, b, c, d] = &mut rows;
        if call!(self, c"nvmlDeviceGetRemappedRows",
            (device => Handle, a => *mut u32, b => *mut u32, c => *mut u32, d => *mut u32))
        {
            for (index, value) in rows.into_iter().enumerate() {
                out.set(Metric::RemappedRows, index as u32, value.into());
            }
        }
        for cause in 0..2 {
            // Room for all that there can be.
            let mut pages = [0u64; 256];
            let mut count = pages.len() as u32;
            let place = pages.as_mut_ptr();
            if call!(self, c"nvmlDeviceGetRetiredPages",
                (device => Handle, cause => u32, &mut count => *mut u32, place => *mut u64))
            {
                out.set(Metric::RetiredPages, cause, count.into());
            }
        }
    }

    fn fields(&self, device: Handle, out: &mut Telemetry) {
        let empty =
            FieldValue { field: 0, scope: 0, timestamp: 0, latency: 0, value_type: 0, result: 3, value: 0 };
        let mut fields: Vec<FieldValue> = FIELDS
            .iter()
            .flat_map(|(first, last)| *first..=*last)
            .map(|field| FieldValue { field, ..empty })
            .collect();
        let (count, place) = (fields.len() as i32, fields.as_mut_ptr());
        if call!(self, c"nvmlDeviceGetFieldValues",
            (device => Handle, count => i32, place => *mut FieldValue))
        {
            for field in fields.iter().filter(|field| field.result == 0) {
                out.set(Metric::Field, field.field, field.value);
                out.set(Metric::FieldType, field.field, field.value_type.into());
            }
        }
    }
}

fn until_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_the_headers() {
        assert_eq!((size_of::<PciInfo>(), size_of::<Memory>(), size_of::<FieldValue>()), (68, 40, 40));
    }

    #[test]
    fn a_machine_without_nvml_says_so() {
        let nvml = Nvml::beside(Path::new("/nonexistent/libcuda.so.1"), false, vec![[0; 16]]);
        let error = nvml.read(0, Group::Load).unwrap_err();
        assert_eq!(error.code, Code::NotSupported);
        assert!(error.message.contains("/nonexistent/libnvidia-ml.so.1"), "{error}");
    }

    /// Every row belongs to the group that it is read with.
    #[test]
    fn rows_are_in_their_groups() {
        let all = [
            (Group::Identity, IDENTITY, IDENTITY_TWO, IDENTITY_OF),
            (Group::Load, LOAD, LOAD_TWO, LOAD_OF),
            (Group::Settings, SETTINGS, SETTINGS_TWO, SETTINGS_OF),
            (Group::Details, DETAILS, &[], DETAILS_OF),
        ];
        for (group, one, two, of) in all {
            let metrics =
                one.iter().map(|r| r.0).chain(two.iter().map(|r| r.0)).chain(of.iter().map(|r| r.0));
            metrics.for_each(|metric| assert_eq!(metric.group(), group, "{metric:?}"));
        }
    }
}
