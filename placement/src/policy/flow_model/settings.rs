//! The settings of `drmaestro` and `firmament`.

use crate::ids::DeviceKind;
use crate::policy::PolicyConfig;
use crate::policy::setting::{Flag, Number, Setting};

/// Whether completion times are expected under the measured network load, and jobs postponed whose objective no
/// placement keeps.
pub static NETWORK_AWARE: Flag = Flag {
    name: "network_aware",
    about: "Whether the network's load counts",
    default: true,
    default_in_broker: true,
    otherwise: "unaware",
    in_broker: true,
};

/// The part of a link's capacity up to which remote devices may load it. Infinite: only links without any capacity are
/// ruled out.
pub static LINK_LIMIT: Number = Number {
    name: "link_limit",
    about: "Up to which part of its capacity a link is loaded with remote traffic",
    default: 1.0,
    range: 0.0..=1000.0,
    or_infinite: true,
    in_broker: true,
};

/// The greatest part of the devices' given thousandths, over the whole cluster, that may be remote.
pub static MAX_REMOTE_SHARE: Number = Number {
    name: "max_remote_share",
    about: "The share of devices that may be given remotely",
    default: 1.0,
    range: 0.0..=1.0,
    or_infinite: false,
    in_broker: true,
};

/// By which factor a remote device costs more than a local one of equal utility: P of equation 7.
pub static REMOTE_PREFERENCE: Number = Number {
    name: "remote_preference",
    about: "By which factor remote devices cost more",
    default: 1.25,
    range: 1.0..=1000.0,
    or_infinite: false,
    in_broker: true,
};

/// By which factor a node costs more that is not among a task's preferred ones.
pub static AFFINITY_PREFERENCE: Number = Number {
    name: "affinity_preference",
    about: "By which factor nodes cost more that a task does not prefer",
    default: 2.0,
    range: 1.0..=1000.0,
    or_infinite: false,
    in_broker: false,
};

/// By how much the cost of leaving a task unscheduled grows with every round, for a job as long as the mean; with the
/// cube of the length for others: W of equation 8.
pub static WAIT_WEIGHT: Number = Number {
    name: "wait_weight",
    about: "By how much it costs more with every round to leave a job waiting",
    default: 0.021,
    range: 0.0..=1000.0,
    or_infinite: false,
    in_broker: false,
};

/// A sliver is what a part of a device leaves over that is more than this part of a device, except where no other device
/// has the same amount left over. While more waits than there may be room for, jobs whose parts would leave slivers are
/// placed after those that leave none. 1: nothing is a sliver.
pub static MAX_SLIVER: Number = Number {
    name: "max_sliver",
    about: "While devices are scarce, jobs come last whose parts would leave over more than this part of a device",
    default: 0.04,
    range: 0.0..=1.0,
    or_infinite: false,
    in_broker: false,
};

/// After so many rounds of waiting, a job is placed in its turn, whatever it leaves over.
pub static SLIVER_ROUNDS: Number = Number {
    name: "sliver_rounds",
    about: "For so many rounds at most others may come first because of `max_sliver`",
    default: 60.0,
    range: 0.0..=1e9,
    or_infinite: true,
    in_broker: false,
};

/// Whether GPUs may come from other nodes than the task's.
pub static DISAGGREGATE_GPUS: Flag = Flag {
    name: "disaggregate_gpus",
    about: "Whether GPUs of other nodes may be given",
    default: true,
    default_in_broker: true,
    otherwise: "local-gpus",
    in_broker: false,
};

/// Whether NVMes may come from other nodes than the task's.
pub static DISAGGREGATE_NVMES: Flag = Flag {
    name: "disaggregate_nvmes",
    about: "Whether NVMes of other nodes may be given",
    default: true,
    default_in_broker: true,
    otherwise: "local-nvmes",
    in_broker: false,
};

/// Whether a part of a device is taken of the device of which most is free, among places that are equal otherwise, so that programs
/// share a device only where there are fewer devices than programs. Else parts fill up devices, so that others stay wholly free.
/// The published experiments do the latter.
pub static SPREAD: Flag = Flag {
    name: "spread",
    about: "Whether parts of devices go where most is free, instead of filling up devices",
    default: false,
    default_in_broker: true,
    otherwise: "spread",
    in_broker: true,
};

/// All of them are read by `drmaestro`.
pub(in crate::policy) static DRMAESTRO_SETTINGS: &[Setting] = &[
    Setting::Flag(&NETWORK_AWARE),
    Setting::Number(&LINK_LIMIT),
    Setting::Number(&MAX_REMOTE_SHARE),
    Setting::Number(&REMOTE_PREFERENCE),
    Setting::Number(&AFFINITY_PREFERENCE),
    Setting::Number(&WAIT_WEIGHT),
    Setting::Number(&MAX_SLIVER),
    Setting::Number(&SLIVER_ROUNDS),
    Setting::Flag(&DISAGGREGATE_GPUS),
    Setting::Flag(&DISAGGREGATE_NVMES),
    Setting::Flag(&SPREAD),
];

/// Where nothing is remote, there are fewer. (The cost of leaving a task unscheduled is measured by the worst placement
/// that there could be, into which the preference for local devices goes even so.)
pub(in crate::policy) static FIRMAMENT_SETTINGS: &[Setting] = &[
    Setting::Number(&REMOTE_PREFERENCE),
    Setting::Number(&AFFINITY_PREFERENCE),
    Setting::Number(&WAIT_WEIGHT),
    Setting::Flag(&SPREAD),
];

/// Whether any devices may be remote.
pub(in crate::policy) fn disaggregates(config: &PolicyConfig) -> bool {
    disaggregated(config).contains(&true)
}

/// By kind of device, whether it may be remote.
pub(in crate::policy) fn disaggregated(config: &PolicyConfig) -> [bool; DeviceKind::COUNT] {
    let mut disaggregated = [false; DeviceKind::COUNT];
    disaggregated[DeviceKind::Gpu.index()] = config.get(&DISAGGREGATE_GPUS);
    disaggregated[DeviceKind::Nvme.index()] = config.get(&DISAGGREGATE_NVMES);
    disaggregated
}

/// The settings as a round reads them.
#[derive(Clone, Debug)]
pub(crate) struct FlowSettings {
    /// By kind of device, whether it may be remote.
    pub disaggregated: [bool; DeviceKind::COUNT],
    /// What [`NETWORK_AWARE`] is set to.
    pub network_aware: bool,
    /// What [`LINK_LIMIT`] is set to.
    pub link_limit: f64,
    /// What [`MAX_REMOTE_SHARE`] is set to.
    pub max_remote_share: f64,
    /// What [`REMOTE_PREFERENCE`] is set to.
    pub remote_preference: f64,
    /// What [`AFFINITY_PREFERENCE`] is set to.
    pub affinity_preference: f64,
    /// What [`WAIT_WEIGHT`] is set to.
    pub wait_weight: f64,
    /// [`MAX_SLIVER`], in thousandths of a device.
    pub max_sliver: u16,
    /// What [`SLIVER_ROUNDS`] is set to; the greatest number for infinite.
    pub sliver_rounds: u32,
    /// What [`SPREAD`] is set to.
    pub spread: bool,
}

impl FlowSettings {
    /// Those of `drmaestro`.
    pub(crate) fn drmaestro(config: &PolicyConfig) -> FlowSettings {
        FlowSettings {
            disaggregated: disaggregated(config),
            network_aware: config.get(&NETWORK_AWARE),
            link_limit: config.get(&LINK_LIMIT),
            max_remote_share: config.get(&MAX_REMOTE_SHARE),
            remote_preference: config.get(&REMOTE_PREFERENCE),
            affinity_preference: config.get(&AFFINITY_PREFERENCE),
            wait_weight: config.get(&WAIT_WEIGHT),
            max_sliver: (config.get(&MAX_SLIVER) * f64::from(crate::WHOLE)).round() as u16,
            sliver_rounds: config.get(&SLIVER_ROUNDS) as u32,
            spread: config.get(&SPREAD),
        }
    }

    /// Those of `firmament`, which gives no remote devices, knows nothing of the network, and doesn't look at slivers.
    pub(crate) fn firmament(config: &PolicyConfig) -> FlowSettings {
        FlowSettings {
            disaggregated: [false; DeviceKind::COUNT],
            network_aware: false,
            max_sliver: crate::WHOLE,
            ..FlowSettings::drmaestro(config)
        }
    }

    /// The greatest preference factor that an arc can have.
    pub(crate) fn worst_preference(&self) -> f64 {
        self.remote_preference * self.affinity_preference
    }
}
