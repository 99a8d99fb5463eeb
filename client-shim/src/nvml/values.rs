//! Questions whose answer is a number or two: one row each.

use std::ffi::c_uint;

use rgpu_device::telemetry::Metric;

use super::handles::index;
use super::results::{Result, Return};
use super::types::{Device, EccCounts, Temperature, Violation, version};
use super::{Out, observer};

/// The number of a metric at an index; what the caller chooses must be below `limit`.
fn value(device: Device, metric: Metric, of: u32, limit: u32) -> Result<u64> {
    let device = index(device)?;
    if of >= limit {
        return Err(Return::INVALID_ARGUMENT);
    }
    observer::value(device, metric, of)
}

/// Defines functions from rows. `one` takes a place for the number at a fixed index; `two` takes two places, for those
/// at 0 and 1; `of` takes an index below a limit, and a place; `split` takes two indices, of which the first is
/// multiplied.
macro_rules! values {
    ($(one $one:ident $one_metric:ident [$at:literal] $one_type:ty;)*
     $(two $two:ident $two_metric:ident $two_type:ty;)*
     $(of $of:ident $of_metric:ident [$limit:literal] $of_type:ty;)*
     $(split $split:ident $split_metric:ident [$high:literal * $factor:literal + $low:literal] $split_type:ty;)*
    ) => {
        nvml! {
            $(fn $one(device: Device, place: Out<$one_type>) {
                place.set(value(device, Metric::$one_metric, $at, u32::MAX)? as $one_type)
            })*
            $(fn $two(device: Device, first: Out<$two_type>, second: Out<$two_type>) {
                let (a, b) = (value(device, Metric::$two_metric, 0, 2)?, value(device, Metric::$two_metric, 1, 2)?);
                first.set(a as $two_type)?;
                second.set(b as $two_type)
            })*
            $(fn $of(device: Device, of: c_uint, place: Out<$of_type>) {
                place.set(value(device, Metric::$of_metric, of, $limit)? as $of_type)
            })*
            $(fn $split(device: Device, high: c_uint, low: c_uint, place: Out<$split_type>) {
                if high >= $high || low >= $low {
                    return Err(Return::INVALID_ARGUMENT);
                }
                place.set(value(device, Metric::$split_metric, high * $factor + low, u32::MAX)? as $split_type)
            })*
        }
    };
}

values! {
    one nvmlDeviceGetAccountingMode AccountingMode[0] u32;
    one nvmlDeviceGetAdaptiveClockInfoStatus AdaptiveClock[0] u32;
    one nvmlDeviceGetBoardId BoardId[0] u32;
    one nvmlDeviceGetCurrPcieLinkGeneration PcieGeneration[0] u32;
    one nvmlDeviceGetCurrPcieLinkWidth PcieWidth[0] u32;
    one nvmlDeviceGetCurrentClocksEventReasons ClockEvents[0] u64;
    one nvmlDeviceGetCurrentClocksThrottleReasons ClockEvents[0] u64;
    one nvmlDeviceGetDefaultEccMode EccMode[2] u32;
    one nvmlDeviceGetDisplayActive DisplayActive[0] u32;
    one nvmlDeviceGetDisplayMode DisplayMode[0] u32;
    one nvmlDeviceGetEnforcedPowerLimit EnforcedPowerLimit[0] u32;
    one nvmlDeviceGetFanSpeed FanSpeed[0] u32;
    one nvmlDeviceGetGpuMaxPcieLinkGeneration MaxPcieGeneration[1] u32;
    one nvmlDeviceGetIrqNum Irq[0] u32;
    one nvmlDeviceGetMaxPcieLinkGeneration MaxPcieGeneration[0] u32;
    one nvmlDeviceGetMaxPcieLinkWidth MaxPcieWidth[0] u32;
    one nvmlDeviceGetMemoryBusWidth MemoryBusWidth[0] u32;
    one nvmlDeviceGetMinorNumber MinorNumber[0] u32;
    one nvmlDeviceGetModuleId ModuleId[0] u32;
    one nvmlDeviceGetMultiGpuBoard MultiGpuBoard[0] u32;
    one nvmlDeviceGetNumFans FanCount[0] u32;
    one nvmlDeviceGetNumGpuCores CoreCount[0] u32;
    one nvmlDeviceGetPcieReplayCounter PcieReplays[0] u32;
    one nvmlDeviceGetPcieLinkMaxSpeed MaxPcieSpeed[0] u32;
    one nvmlDeviceGetPerformanceState PerformanceState[0] u32;
    one nvmlDeviceGetPersistenceMode PersistenceMode[0] u32;
    one nvmlDeviceGetPowerManagementDefaultLimit PowerLimitDefault[0] u32;
    one nvmlDeviceGetPowerManagementLimit PowerLimit[0] u32;
    one nvmlDeviceGetPowerManagementMode PowerManagementMode[0] u32;
    one nvmlDeviceGetPowerSource PowerSource[0] u32;
    one nvmlDeviceGetPowerState PerformanceState[0] u32;
    one nvmlDeviceGetPowerUsage PowerUsage[0] u32;
    one nvmlDeviceGetRetiredPagesPendingStatus RetirementPending[0] u32;
    one nvmlDeviceGetSupportedClocksEventReasons SupportedClockEvents[0] u64;
    one nvmlDeviceGetSupportedClocksThrottleReasons SupportedClockEvents[0] u64;
    one nvmlDeviceGetTotalEnergyConsumption Energy[0] u64;
    one nvmlDeviceGetVirtualizationMode VirtualizationMode[0] u32;
    two nvmlDeviceGetDecoderUtilization DecoderUtilization u32;
    two nvmlDeviceGetEccMode EccMode u32;
    two nvmlDeviceGetEncoderUtilization EncoderUtilization u32;
    two nvmlDeviceGetGpuOperationMode OperationMode u32;
    two nvmlDeviceGetGspFirmwareMode GspFirmwareMode u32;
    two nvmlDeviceGetJpgUtilization JpegUtilization u32;
    two nvmlDeviceGetMigMode MigMode u32;
    two nvmlDeviceGetOfaUtilization OfaUtilization u32;
    two nvmlDeviceGetPowerManagementLimitConstraints PowerLimitRange u32;
    of nvmlDeviceGetApplicationsClock ApplicationClock[4] u32;
    of nvmlDeviceGetClockInfo Clock[4] u32;
    of nvmlDeviceGetDefaultApplicationsClock DefaultApplicationClock[4] u32;
    of nvmlDeviceGetFanSpeed_v2 FanSpeed[64] u32;
    of nvmlDeviceGetMaxClockInfo MaxClock[4] u32;
    of nvmlDeviceGetMaxCustomerBoostClock CustomerBoostClock[4] u32;
    of nvmlDeviceGetNvLinkState NvLinkState[18] u32;
    of nvmlDeviceGetNvLinkVersion NvLinkVersion[18] u32;
    of nvmlDeviceGetPcieThroughput PcieThroughput[2] u32;
    of nvmlDeviceGetTemperature Temperature[1] u32;
    of nvmlDeviceGetTemperatureThreshold TemperatureThreshold[8] u32;
    split nvmlDeviceGetNvLinkCapability NvLinkCapability[18 * 16 + 6] u32;
    split nvmlDeviceGetNvLinkErrorCounter NvLinkErrors[18 * 16 + 5] u64;
    split nvmlDeviceGetTotalEccErrors EccErrors[2 * 2 + 2] u64;
}

/// The functions below, apart from the rows because their shapes are their own.
pub(super) mod shaped {
    use super::*;

    nvml! {
        /// `nvmlDeviceGetClock`: current, application's, its default, highest for customers.
        fn nvmlDeviceGetClock(device: Device, clock: c_uint, kind: c_uint, place: Out<c_uint>) {
            let metric = match kind {
                0 => Metric::Clock,
                1 => Metric::ApplicationClock,
                2 => Metric::DefaultApplicationClock,
                3 => Metric::CustomerBoostClock,
                _ => return Err(Return::INVALID_ARGUMENT),
            };
            place.set(value(device, metric, clock, 4)? as c_uint)
        }
        /// `nvmlDeviceGetComputeMode`: every CUDA device has one.
        fn nvmlDeviceGetComputeMode(device: Device, mode: Out<c_uint>) {
            /// `CU_DEVICE_ATTRIBUTE_COMPUTE_MODE`.
            const ATTRIBUTE: u32 = 20;
            let found = match value(device, Metric::ComputeMode, 0, 1) {
                Err(Return::NOT_SUPPORTED) => observer::info(index(device)?)?.attribute(ATTRIBUTE) as c_uint,
                other => other? as c_uint,
            };
            mode.set(found)
        }
        /// `nvmlDeviceGetTemperatureV`.
        fn nvmlDeviceGetTemperatureV(device: Device, place: Out<Temperature>) {
            let asked = place.get()?;
            if asked.version != version::<Temperature>(1) {
                return Err(Return::ARGUMENT_VERSION_MISMATCH);
            }
            let degrees = value(device, Metric::Temperature, asked.sensor, 1)? as i32;
            place.set(Temperature { degrees, ..asked })
        }
        /// `nvmlDeviceGetViolationStatus`.
        fn nvmlDeviceGetViolationStatus(device: Device, policy: c_uint, place: Out<Violation>) {
            if policy > 11 {
                return Err(Return::INVALID_ARGUMENT);
            }
            let get = |of| value(device, Metric::Violation, policy * 2 + of, u32::MAX);
            place.set(Violation { reference: get(0)?, time: get(1)? })
        }
        /// `nvmlDeviceGetMemoryErrorCounter`.
        fn nvmlDeviceGetMemoryErrorCounter(
            device: Device, kind: c_uint, counter: c_uint, location: c_uint, place: Out<u64>,
        ) {
            if kind > 1 || counter > 1 || location > 7 {
                return Err(Return::INVALID_ARGUMENT);
            }
            place.set(value(device, Metric::EccErrorsAt, (kind * 2 + counter) * 16 + location, u32::MAX)?)
        }
        /// `nvmlDeviceGetDetailedEccErrors`.
        fn nvmlDeviceGetDetailedEccErrors(
            device: Device, kind: c_uint, counter: c_uint, place: Out<EccCounts>,
        ) {
            if kind > 1 || counter > 1 {
                return Err(Return::INVALID_ARGUMENT);
            }
            let at = |location| value(device, Metric::EccErrorsAt, (kind * 2 + counter) * 16 + location, u32::MAX);
            place.set(EccCounts { l1: at(0)?, l2: at(1)?, memory: at(2)?, registers: at(3)? })
        }
        /// `nvmlDeviceGetRemappedRows`.
        fn nvmlDeviceGetRemappedRows(
            device: Device, correctable: Out<c_uint>, uncorrectable: Out<c_uint>, pending: Out<c_uint>,
            failure: Out<c_uint>,
        ) {
            let get = |of| value(device, Metric::RemappedRows, of, 4).map(|value| value as c_uint);
            let found = [get(0)?, get(1)?, get(2)?, get(3)?];
            correctable.set(found[0])?;
            uncorrectable.set(found[1])?;
            pending.set(found[2])?;
            failure.set(found[3])
        }
        /// `nvmlDeviceGetRetiredPages`: how many there are; their addresses are not told.
        fn nvmlDeviceGetRetiredPages(
            device: Device, cause: c_uint, count: Out<c_uint>, _addresses: Out<u64>,
        ) {
            let room = count.get()?;
            let found = value(device, Metric::RetiredPages, cause, 2)? as c_uint;
            count.set(found)?;
            match (found, room) {
                (0, _) => Ok(()),
                (_, 0) => Err(Return::INSUFFICIENT_SIZE),
                _ => Err(Return::NOT_SUPPORTED),
            }
        }
    }
}
