//! What can be measured of a device while it runs, and what monitoring programs ask about it.
//!
//! A [`Telemetry`] is a list of [`Metric`]s with their values. A metric that is not listed is one that the
//! device doesn't have, or doesn't tell: whoever asks for it gets "not supported", never a made-up number.

/// How often a metric changes, and what it costs to read: what is read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Group {
    /// Never changes.
    Identity = 0,
    /// Cheap to read, changes all the time.
    Load = 1,
    /// Settings and limits, which somebody may change.
    Settings = 2,
    /// Counters of errors and links, and what is slow to read.
    Details = 3,
}

impl Group {
    /// All of them, by number.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Load, Self::Settings, Self::Details];

    /// The group with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

macro_rules! metrics {
    ($($group:ident { $($(#[$doc:meta])* $name:ident = $number:literal,)* })*) => {
        /// Something that can be measured or told. Where NVML has the query, the units and numbers are NVML's.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Metric { $($($(#[$doc])* $name = $number,)*)* }

        impl Metric {
            /// What it is read together with.
            pub fn group(self) -> Group {
                match self { $($(Self::$name => Group::$group,)*)* }
            }
        }
    };
}

metrics! {
    Identity {
        /// PCI domain, bus, device, device id (with the vendor's), subsystem id: index 0 to 4.
        Pci = 1,
        /// `nvmlBrandType_t`.
        Brand = 2,
        /// `nvmlDeviceArchitecture_t`.
        Architecture = 3,
        /// CUDA cores.
        CoreCount = 4,
        /// Bits.
        MemoryBusWidth = 5,
        /// The number in `/dev/nvidiaN`.
        MinorNumber = 6,
        /// Interrupt number.
        Irq = 7,
        /// `nvmlDeviceGetBoardId`.
        BoardId = 8,
        /// Whether the board has several GPUs.
        MultiGpuBoard = 9,
        /// Highest clock by `nvmlClockType_t`, in MHz.
        MaxClock = 10,
        /// Link generation: of the system and device together (0), of the device (1).
        MaxPcieGeneration = 11,
        /// Lanes.
        MaxPcieWidth = 12,
        /// MB/s.
        MaxPcieSpeed = 13,
        /// Threshold in °C by `nvmlTemperatureThresholds_t`.
        TemperatureThreshold = 14,
        /// Lowest (0) and highest (1) power limit that can be set, in mW.
        PowerLimitRange = 15,
        /// In mW.
        PowerLimitDefault = 16,
        /// Number of fans.
        FanCount = 17,
        /// `nvmlDeviceAttributes_t`'s fields, in order.
        Attributes = 18,
        /// `nvmlDeviceGetMaxMigDeviceCount`.
        MaxMigDevices = 19,
        /// Adaptive clocking.
        AdaptiveClock = 20,
        /// `nvmlDeviceGetModuleId`.
        ModuleId = 21,
        /// NVLink's version by link.
        NvLinkVersion = 22,
        /// Clock event reasons that the device can report.
        SupportedClockEvents = 23,
    }
    Load {
        /// Bytes: of the whole device, as this application may use it.
        MemoryTotal = 101,
        /// Bytes that this application can still get.
        MemoryFree = 102,
        /// Bytes in use, by whomever.
        MemoryUsed = 103,
        /// Bytes that the driver keeps.
        MemoryReserved = 104,
        /// Bytes that this application has allocated.
        OwnMemory = 105,
        /// Percent of the last sample period in which a kernel was executing.
        GpuUtilization = 106,
        /// Percent of the last sample period in which memory was read or written.
        MemoryUtilization = 107,
        /// °C by `nvmlTemperatureSensors_t`.
        Temperature = 108,
        /// mW.
        PowerUsage = 109,
        /// mJ since the driver was loaded.
        Energy = 110,
        /// MHz by `nvmlClockType_t`.
        Clock = 111,
        /// `nvmlPstates_t`.
        PerformanceState = 112,
        /// `nvmlClocksEventReasons`.
        ClockEvents = 113,
        /// Percent by fan.
        FanSpeed = 114,
        /// Percent (0) and sample period in µs (1).
        EncoderUtilization = 115,
        /// Percent (0) and sample period in µs (1).
        DecoderUtilization = 116,
        /// Percent (0) and sample period in µs (1).
        JpegUtilization = 117,
        /// Percent (0) and sample period in µs (1).
        OfaUtilization = 118,
        /// Current link generation.
        PcieGeneration = 119,
        /// Current lanes.
        PcieWidth = 120,
    }
    Settings {
        /// 0 off, 1 on.
        PersistenceMode = 201,
        /// `nvmlComputeMode_t`.
        ComputeMode = 202,
        /// 0 off, 1 on.
        DisplayMode = 203,
        /// 0 off, 1 on.
        DisplayActive = 204,
        /// Current (0), pending (1) and default (2) mode.
        EccMode = 205,
        /// Current (0) and pending (1) mode.
        MigMode = 206,
        /// 0 off, 1 on.
        PowerManagementMode = 207,
        /// mW.
        PowerLimit = 208,
        /// mW.
        EnforcedPowerLimit = 209,
        /// MHz by `nvmlClockType_t`.
        ApplicationClock = 210,
        /// MHz by `nvmlClockType_t`.
        DefaultApplicationClock = 211,
        /// MHz by `nvmlClockType_t`.
        CustomerBoostClock = 212,
        /// `nvmlGpuVirtualizationMode_t`.
        VirtualizationMode = 213,
        /// Whether the firmware runs (0) and whether it does by default (1).
        GspFirmwareMode = 214,
        /// Bytes in all.
        Bar1Total = 215,
        /// Bytes free.
        Bar1Free = 216,
        /// Bytes in use.
        Bar1Used = 217,
        /// Current (0) and pending (1) operation mode.
        OperationMode = 218,
        /// 0 off, 1 on.
        AccountingMode = 219,
        /// `nvmlPowerSource_t`.
        PowerSource = 220,
    }
    Details {
        /// Errors by `nvmlMemoryErrorType_t` * 2 + `nvmlEccCounterType_t`.
        EccErrors = 301,
        /// Errors by (`nvmlMemoryErrorType_t` * 2 + `nvmlEccCounterType_t`) * 16 + `nvmlMemoryLocation_t`.
        EccErrorsAt = 302,
        /// Number of retired pages by `nvmlPageRetirementCause_t`.
        RetiredPages = 303,
        /// Whether pages wait to be retired.
        RetirementPending = 304,
        /// Correctable rows, uncorrectable rows, pending, failure: index 0 to 3.
        RemappedRows = 305,
        /// KB/s by `nvmlPcieUtilCounter_t`.
        PcieThroughput = 306,
        /// Replays.
        PcieReplays = 307,
        /// Reference time (even) and violation time (odd) in ns, by `nvmlPerfPolicyType_t` * 2.
        Violation = 308,
        /// 0 off, 1 on, by link.
        NvLinkState = 309,
        /// 0 or 1 by link * 16 + `nvmlNvLinkCapability_t`.
        NvLinkCapability = 310,
        /// Errors by link * 16 + `nvmlNvLinkErrorCounter_t`.
        NvLinkErrors = 311,
        /// The eight bytes of a field's value by field id.
        Field = 312,
        /// `nvmlValueType_t` by field id.
        FieldType = 313,
    }
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What is told in words. All of it belongs to [`Group::Identity`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Text { $($(#[$doc])* $name = $number,)* }
    };
}

texts! {
    /// The driver's version ("580.65.06").
    DriverVersion = 1,
    /// NVML's version.
    NvmlVersion = 2,
    /// The board's serial number.
    Serial = 3,
    /// The video BIOS's version.
    VbiosVersion = 4,
    /// The infoROM image's version.
    InforomImage = 5,
    /// An infoROM object's version by `nvmlInforomObject_t`.
    Inforom = 6,
    /// The board's part number.
    BoardPart = 7,
    /// The firmware's version.
    GspFirmware = 8,
}

fn key(number: u16, index: u32) -> u32 {
    u32::from(number) << 16 | index & 0xffff
}

/// Values of metrics at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Telemetry {
    /// Metric number times 65536 plus index, and value; ascending.
    pub values: Vec<(u32, u64)>,
    /// Text number times 65536 plus index, and text; ascending.
    pub texts: Vec<(u32, String)>,
}

fn put<T>(list: &mut Vec<(u32, T)>, key: u32, value: T) {
    match list.binary_search_by_key(&key, |entry| entry.0) {
        Ok(at) => list[at].1 = value,
        Err(at) => list.insert(at, (key, value)),
    }
}

impl Telemetry {
    /// From lists in any order, as they may come off a wire.
    pub fn from_lists(mut values: Vec<(u32, u64)>, mut texts: Vec<(u32, String)>) -> Self {
        values.sort_by_key(|entry| entry.0);
        texts.sort_by_key(|entry| entry.0);
        Self { values, texts }
    }

    /// Says a metric's value.
    pub fn set(&mut self, metric: Metric, index: u32, value: u64) {
        put(&mut self.values, key(metric as u16, index), value);
    }

    /// A metric's value, if it is known.
    pub fn get(&self, metric: Metric, index: u32) -> Option<u64> {
        let key = key(metric as u16, index);
        self.values.binary_search_by_key(&key, |entry| entry.0).ok().map(|at| self.values[at].1)
    }

    /// Says a text.
    pub fn set_text(&mut self, text: Text, index: u32, value: impl Into<String>) {
        put(&mut self.texts, key(text as u16, index), value.into());
    }

    /// A text, if it is known.
    pub fn text(&self, text: Text, index: u32) -> Option<&str> {
        let key = key(text as u16, index);
        self.texts.binary_search_by_key(&key, |entry| entry.0).ok().map(|at| self.texts[at].1.as_str())
    }
}

/// Turns a counter of busy time into percents of the time that passed.
#[derive(Debug, Clone, Copy, Default)]
pub struct BusyMeter {
    at_ns: u64,
    busy_ns: u64,
    percent: u32,
}

impl BusyMeter {
    /// The shortest period that is measured; asked sooner, the meter repeats itself.
    pub const PERIOD_NS: u64 = 200_000_000;

    /// A meter that begins at a time with a counter of zero.
    pub fn starting_at(now_ns: u64) -> Self {
        Self { at_ns: now_ns, busy_ns: 0, percent: 0 }
    }

    /// The share of the time since the last sample in which the device was busy, in percent. Both arguments only
    /// grow.
    pub fn sample(&mut self, now_ns: u64, busy_ns: u64) -> u32 {
        let passed = now_ns.saturating_sub(self.at_ns);
        if passed >= Self::PERIOD_NS {
            let busy = busy_ns.saturating_sub(self.busy_ns).min(passed);
            self.percent = (u128::from(busy) * 100 / u128::from(passed)) as u32;
            self.at_ns = now_ns;
            self.busy_ns = busy_ns;
        }
        self.percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_set_is_there() {
        let mut telemetry = Telemetry::default();
        telemetry.set(Metric::Clock, 1, 1980);
        telemetry.set(Metric::Clock, 0, 1200);
        telemetry.set(Metric::Clock, 1, 1755);
        telemetry.set_text(Text::Serial, 0, "1");
        assert_eq!(telemetry.get(Metric::Clock, 1), Some(1755));
        assert_eq!(telemetry.get(Metric::Clock, 2), None);
        assert_eq!(telemetry.text(Text::Serial, 0), Some("1"));
        assert_eq!(telemetry.text(Text::BoardPart, 0), None);
        let mut values = telemetry.values.clone();
        values.reverse();
        assert_eq!(Telemetry::from_lists(values, telemetry.texts.clone()), telemetry);
        assert_eq!(Metric::Clock.group(), Group::Load);
        assert_eq!(Group::from_number(3), Some(Group::Details));
        assert_eq!(Group::from_number(4), None);
    }

    #[test]
    fn shares_are_of_the_time_between_samples() {
        let mut meter = BusyMeter::starting_at(0);
        assert_eq!(meter.sample(1_000_000_000, 250_000_000), 25);
        // Too soon: the last one again.
        assert_eq!(meter.sample(1_000_000_001, 250_000_001), 25);
        assert_eq!(meter.sample(2_000_000_000, 1_250_000_000), 100);
        // A counter that runs ahead, or backwards, is kept within bounds.
        assert_eq!(meter.sample(3_000_000_000, 9_000_000_000), 100);
        assert_eq!(meter.sample(4_000_000_000, 1), 0);
    }
}
