//! Loads the simulator's own CSV formats: clusters, switches, profiles and jobs (`docs/simulator.md`).

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rgpu_placement::spread::{AtScale, Spread};
use rgpu_placement::{
    Cluster, ClusterBuilder, DeviceKind, DeviceRequest, DeviceSpec, Error as PlacementError, Interference,
    Job, JobId, ModelSet, NodeId, NodeSpec, NumaSpec, Profile, ProfileId, Profiles, SwitchSpec, Task, WHOLE,
};

use crate::engine::WarmUp;
use crate::error::{Error, Result};
use crate::table::{Row, Table};
use crate::time::Micros;

const NODE: [&str; 3] = ["name", "cpu_milli", "memory_mib"];
const NODE_OPTIONAL: [&str; 17] = [
    "count",
    "nic_mbps",
    "switch",
    "numa",
    "gpus",
    "gpu_model",
    "gpu_memory_mib",
    "gpu_bus_mbps",
    "gpu_partitionable",
    "nvmes",
    "nvme_model",
    "nvme_memory_mib",
    "nvme_bus_mbps",
    "nvme_partitionable",
    "llc_ways",
    "memory_bandwidth",
    "comment",
];
const SWITCH: [&str; 2] = ["name", "uplink_mbps"];
const SWITCH_OPTIONAL: [&str; 2] = ["parent", "comment"];
const PROFILE: [&str; 2] = ["name", "local_seconds"];
const PROFILE_OPTIONAL: [&str; 11] = [
    "cpu_milli",
    "memory_mib",
    "gpus",
    "gpu_memory_mib",
    "network_share",
    "loaded_share",
    "transfer_mib",
    "host_share",
    "numa_slowdown",
    "spread",
    "comment",
];
const JOB: [&str; 1] = ["name"];
const JOB_OPTIONAL: [&str; 22] = [
    "arrival_s",
    "profile",
    "duration_s",
    "tasks",
    "cpu_milli",
    "memory_mib",
    "gpus",
    "gpu_milli",
    "gpu_memory_mib",
    "gpu_models",
    "gpu_traffic_mbps",
    "nvmes",
    "nvme_milli",
    "nvme_memory_mib",
    "nvme_traffic_mbps",
    "network_mbps",
    "goal_s",
    "deadline_s",
    "importance",
    "nodes",
    "warm_up",
    "comment",
];

/// Network time grows by this factor from a quiet to a fully loaded network, less one, where a profile has no
/// `loaded_share` (see `docs/profiles.md`).
pub(crate) const NETWORK_LOAD_FACTOR: f64 = 3.9;
/// Slow-down by a neighbour in the same node, for host shares of 1.
pub(crate) const HOST_CONTENTION: f64 = 0.15;

/// An application: how it behaves, and what it asks for where a job does not say otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// What a task of it asks for.
    pub task: Task,
    /// How long it takes, alone and local.
    pub alone: Micros,
}

/// A table of profiles and what their applications ask for.
#[derive(Clone, Debug)]
pub struct Applications {
    /// How they behave.
    pub profiles: Profiles,
    /// What they ask for, indexed by [`ProfileId`].
    pub applications: Vec<Application>,
}

impl Applications {
    /// The eight Rodinia programs of the DRMaestro paper.
    pub fn rodinia() -> Applications {
        let text = include_bytes!("../data/rodinia.csv");
        let table = Table::parse(Path::new("rodinia.csv"), text, &PROFILE, &PROFILE_OPTIONAL);
        table.and_then(|table| applications(&table)).expect("the built-in profiles are valid")
    }

    /// Loads a table of profiles.
    pub fn load(path: &Path) -> Result<Applications> {
        applications(&Table::read(path, &PROFILE, &PROFILE_OPTIONAL)?)
    }
}

fn applications(table: &Table) -> Result<Applications> {
    let mut profiles = Vec::new();
    let mut host_shares = Vec::new();
    let mut applications = Vec::new();
    let mut names = HashSet::new();
    for row in table.rows() {
        let name = row.name("name")?;
        if !names.insert(name) {
            return Err(row.error(format!("the profile {name:?} is there twice")));
        }
        if name == NEUTRAL {
            return Err(row.error(format!("the profile {NEUTRAL:?} is that of jobs that have none")));
        }
        let alone = row.seconds("local_seconds")?.unwrap_or_default();
        if alone == Micros(0) {
            return Err(row.error("local_seconds must be greater than 0"));
        }
        let share = |column| row.number(column, 0.0..=0.99);
        let quiet = share("network_share")?.unwrap_or(0.0);
        let sensitivity = match share("loaded_share")? {
            Some(loaded) if loaded < quiet => {
                return Err(row.error("loaded_share is less than network_share"));
            }
            Some(loaded) => Profile::sensitivity_from_shares(quiet, loaded),
            None => NETWORK_LOAD_FACTOR * quiet,
        };
        let local_s = alone.seconds();
        let remote_s = local_s / (1.0 - quiet);
        profiles.push(Profile {
            remote_s,
            sensitivity,
            numa_slowdown: row.number("numa_slowdown", 0.0..=10.0)?.unwrap_or(0.0),
            spread: spread(row)?,
            ..Profile::new(name, local_s)
        });
        host_shares.push(row.number("host_share", 0.0..=1.0)?);
        let transfer_mib = row.number("transfer_mib", 0.0..=1e12)?.unwrap_or(0.0);
        let gpus: u16 = row.optional("gpus")?.unwrap_or(0);
        let mut task =
            Task::new(row.optional("cpu_milli")?.unwrap_or(0), row.optional("memory_mib")?.unwrap_or(0));
        if gpus > 0 {
            // MiB to Mbit, over the time of a remote run, and divided among the devices.
            let traffic = transfer_mib * 8.388_608 / remote_s / f64::from(gpus);
            if traffic > 1e12 {
                return Err(row.error("transfer_mib is more than any network carries in that time"));
            }
            task = task.with(DeviceRequest {
                memory_mib: row.optional("gpu_memory_mib")?.unwrap_or(0),
                traffic_mbps: traffic.round() as u64,
                ..DeviceRequest::gpus(gpus)
            });
        }
        applications.push(Application { task, alone });
    }
    if profiles.is_empty() {
        return Err(Error::file(table.path(), "there are no profiles"));
    }
    let mut profiles =
        Profiles::new(profiles).map_err(|error| Error::file(table.path(), error.to_string()))?;
    for (victim, mine) in host_shares.iter().enumerate() {
        for (aggressor, other) in host_shares.iter().enumerate() {
            let (Some(mine), Some(other)) = (mine, other) else { continue };
            let node = HOST_CONTENTION * mine * other;
            let interference = Interference { node, ..Interference::default() };
            profiles
                .set_interference(ProfileId(victim as u32), ProfileId(aggressor as u32), interference)
                .map_err(|error| Error::file(table.path(), error.to_string()))?;
        }
    }
    Ok(Applications { profiles, applications })
}

/// What spreading does to a program: `scale:time:ways:bandwidth` for each scale factor, with spaces between.
fn spread(row: Row<'_>) -> Result<Option<Spread>> {
    let text = row.text("spread");
    if text.is_empty() {
        return Ok(None);
    }
    let at = |text: &str| {
        let [scale, time, ways, bandwidth] = text.split(':').collect::<Vec<_>>()[..] else { return None };
        let (scale, ways) = (scale.parse().ok()?, ways.parse().ok()?);
        Some(AtScale { scale, time: time.parse().ok()?, ways, bandwidth: bandwidth.parse().ok()? })
    };
    let scales = text.split_whitespace().map(|text| {
        at(text).ok_or_else(|| row.error(format!("{text:?} in spread is not scale:time:ways:bandwidth")))
    });
    let spread = Spread::new(scales.collect::<Result<_>>()?);
    spread.map(Some).map_err(|error| row.error(error.to_string()))
}

/// Loads a cluster, and its switches if there are any.
pub fn load_cluster(nodes: &Path, switches: Option<&Path>) -> Result<Cluster> {
    let nodes = Table::read(nodes, &NODE, &NODE_OPTIONAL)?;
    let switches = switches.map(|path| Table::read(path, &SWITCH, &SWITCH_OPTIONAL)).transpose()?;
    cluster(&nodes, switches.as_ref())
}

fn cluster(nodes: &Table, switches: Option<&Table>) -> Result<Cluster> {
    let mut builder = ClusterBuilder::new();
    let mut switch_lines = HashMap::new();
    for row in switches.into_iter().flat_map(Table::rows) {
        let name = row.name("name")?.to_owned();
        if switch_lines.insert(name.clone(), row.line()).is_some() {
            return Err(row.error(format!("the switch {name:?} is there twice")));
        }
        let parent = Some(row.text("parent")).filter(|parent| !parent.is_empty()).map(str::to_owned);
        builder = builder.switch(SwitchSpec { name, parent, uplink_mbps: row.value("uplink_mbps")? });
    }
    let mut node_lines = HashMap::new();
    for row in nodes.rows() {
        for spec in node_specs(row)? {
            if let Some(before) = node_lines.insert(spec.name.clone(), row.line()) {
                return Err(row.error(format!("the node {:?} is already in line {before}", spec.name)));
            }
            builder = builder.node(spec);
        }
    }
    builder.build().map_err(|error| {
        let message = error.to_string();
        let named = |what: &str, lines: &HashMap<String, u64>| {
            lines
                .iter()
                .find(|(name, _)| message.contains(&format!("{what} {name:?}")))
                .map(|(_, line)| *line)
        };
        match (&error, switches) {
            (PlacementError::EmptyCluster, _) => Error::file(nodes.path(), "there are no nodes"),
            (PlacementError::Cycle(name), Some(switches)) => {
                Error::row(switches.path(), switch_lines.get(name).copied().unwrap_or(1), message)
            }
            _ => match (named("node", &node_lines), named("switch", &switch_lines), switches) {
                (Some(line), _, _) => Error::row(nodes.path(), line, message),
                (None, Some(line), Some(switches)) => Error::row(switches.path(), line, message),
                _ => Error::file(nodes.path(), message),
            },
        }
    })
}

/// The most nodes that one row may stand for, and the most devices of a node.
const MANY: u64 = 1_000_000;

fn node_specs(row: Row<'_>) -> Result<Vec<NodeSpec>> {
    let name = row.name("name")?;
    let mut spec = NodeSpec::new(name, row.value("cpu_milli")?, row.value("memory_mib")?)
        .with_nic(row.optional("nic_mbps")?.unwrap_or(0));
    spec.llc_ways = row.optional("llc_ways")?.unwrap_or(0);
    spec.memory_bandwidth = row.number("memory_bandwidth", 0.0..=1e6)?.unwrap_or(0.0);
    spec.switch = Some(row.text("switch")).filter(|switch| !switch.is_empty()).map(str::to_owned);
    let regions: u8 = row.optional("numa")?.unwrap_or(1);
    if regions == 0 {
        return Err(row.error("numa is 0, but a node has at least one region"));
    }
    if regions > 1 {
        let part = |whole: u64, i: u8| {
            let (n, i) = (u64::from(regions), u64::from(i));
            whole / n + u64::from(i < whole % n)
        };
        let (cpu, memory) = (spec.cpu_milli, spec.memory_mib);
        spec.numa =
            (0..regions).map(|i| NumaSpec { cpu_milli: part(cpu, i), memory_mib: part(memory, i) }).collect();
    }
    for (kind, count, model, memory, bus, partitionable) in [
        (DeviceKind::Gpu, "gpus", "gpu_model", "gpu_memory_mib", "gpu_bus_mbps", "gpu_partitionable"),
        (DeviceKind::Nvme, "nvmes", "nvme_model", "nvme_memory_mib", "nvme_bus_mbps", "nvme_partitionable"),
    ] {
        let count: u16 = row.optional(count)?.unwrap_or(0);
        let model = match row.text(model) {
            "" => kind.to_string(),
            name => name.to_owned(),
        };
        let device = DeviceSpec {
            kind,
            memory_mib: row.optional(memory)?.unwrap_or(0),
            bus_mbps: row.optional(bus)?.unwrap_or(126_000),
            partitionable: row.optional(partitionable)?.unwrap_or(true),
            ..DeviceSpec::gpu(model, 0)
        };
        // The first devices are in the first region, as a board's slots are.
        let numa = |i: u16| (u32::from(i) * u32::from(regions) / u32::from(count.max(1))) as u8;
        spec.devices.extend((0..count).map(|i| DeviceSpec { numa: numa(i), ..device.clone() }));
    }
    match row.optional::<u64>("count")? {
        None => Ok(vec![spec]),
        Some(count) if count > MANY => {
            Err(row.error(format!("count is {count}, but must be at most {MANY}")))
        }
        Some(count) => {
            Ok((0..count).map(|i| NodeSpec { name: format!("{name}-{i}"), ..spec.clone() }).collect())
        }
    }
}

impl Submission {
    /// The job, submitted at [`Job::submit_s`], taking what its profile and its scale say.
    pub fn new(job: Job, profiles: &Profiles) -> Submission {
        let alone = profiles.get(job.profile).local_s * job.scale;
        Submission { at: Micros::from_seconds(job.submit_s), alone: Micros::from_seconds(alone), job }
    }
}

/// A job to be submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// The job; [`Job::submit_s`] says when.
    pub job: Job,
    /// When it is submitted.
    pub at: Micros,
    /// How long it takes, alone and local.
    pub alone: Micros,
}

/// The jobs of a file.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// What is submitted, numbered from 0.
    pub jobs: Vec<Submission>,
    /// What runs from the beginning, numbered after the others.
    pub warm_up: Vec<WarmUp>,
}

/// Loads jobs for a cluster. Jobs may name the profiles of `applications`; those with only a duration get profiles
/// without any sensitivity, which are added.
pub fn load_jobs(path: &Path, cluster: &Cluster, applications: &mut Applications) -> Result<Jobs> {
    jobs(&Table::read(path, &JOB, &JOB_OPTIONAL)?, cluster, applications)
}

/// The name of the profile of jobs that have none.
const NEUTRAL: &str = "(none)";

fn jobs(table: &Table, cluster: &Cluster, applications: &mut Applications) -> Result<Jobs> {
    let mut submissions = Vec::with_capacity(table.rows().len());
    let mut warm_up = Vec::new();
    let mut names = HashSet::new();
    let neutral = applications.with_neutral();
    for row in table.rows() {
        let name = row.name("name")?;
        if !names.insert(name) {
            return Err(row.error(format!("the job {name:?} is there twice")));
        }
        let profile = match row.text("profile") {
            "" => None,
            profile => Some(
                neutral
                    .profiles
                    .find(profile)
                    .ok_or_else(|| row.error(format!("no profile is named {profile:?}")))?,
            ),
        };
        let duration = row.seconds("duration_s")?;
        let (profile, alone) = match (profile, duration) {
            (None, None) => return Err(row.error("neither a profile nor a duration_s is given")),
            (_, Some(Micros(0))) => return Err(row.error("duration_s must be greater than 0")),
            (Some(profile), duration) => {
                (profile, duration.unwrap_or(neutral.applications[profile.index()].alone))
            }
            (None, Some(duration)) => (neutral.profiles.find(NEUTRAL).unwrap_or_default(), duration),
        };
        let application = &neutral.applications[profile.index()];
        let task = task(row, cluster, &application.task)?;
        let tasks: u32 = row.optional("tasks")?.unwrap_or(1);
        if tasks == 0 || u64::from(tasks) > MANY {
            return Err(row.error(format!("tasks is {tasks}, but must be from 1 to {MANY}")));
        }
        let at = row.seconds("arrival_s")?.unwrap_or_default();
        let job = Job {
            submit_s: at.seconds(),
            tasks: vec![task; tasks as usize],
            profile,
            scale: alone.seconds() / application.alone.seconds(),
            goal_s: row.seconds("goal_s")?.map(Micros::seconds),
            deadline_s: row.seconds("deadline_s")?.map(Micros::seconds),
            importance: row.number("importance", 1.0..=10.0)?.unwrap_or(1.0),
            ..Job::new(JobId(submissions.len() as u32), name, Task::default())
        };
        job.check(cluster, neutral.profiles.len(), true).map_err(|error| row.error(error.to_string()))?;
        let submission = Submission { job, at, alone };
        match row.optional::<bool>("warm_up")?.unwrap_or(false) {
            false => submissions.push(submission),
            true => warm_up.push(WarmUp { node: warm_up_node(row, &submission)?, submission }),
        }
    }
    if submissions.is_empty() {
        return Err(Error::file(table.path(), "there are no jobs"));
    }
    for (number, warm) in (submissions.len()..).zip(&mut warm_up) {
        warm.submission.job.id = JobId(number as u32);
    }
    check_warm_up(table.path(), cluster, &warm_up)?;
    *applications = neutral;
    Ok(Jobs { jobs: submissions, warm_up })
}

/// The one node of a job that runs from the beginning.
fn warm_up_node(row: Row<'_>, submission: &Submission) -> Result<NodeId> {
    let task = &submission.job.tasks[0];
    match task.only.as_slice() {
        [node] if task.devices.is_empty() && submission.at == Micros(0) => Ok(*node),
        _ => Err(row.error("a warm-up job needs one node, no devices, and no arrival time")),
    }
}

/// Warm-up jobs must fit into their nodes all together.
fn check_warm_up(path: &Path, cluster: &Cluster, warm_up: &[WarmUp]) -> Result<()> {
    let mut used: HashMap<NodeId, (u128, u128)> = HashMap::new();
    for warm in warm_up {
        let sum = used.entry(warm.node).or_default();
        for task in &warm.submission.job.tasks {
            *sum = (sum.0 + u128::from(task.cpu_milli), sum.1 + u128::from(task.memory_mib));
        }
        let node = cluster.node(warm.node);
        if sum.0 > u128::from(node.cpu_milli) || sum.1 > u128::from(node.memory_mib) {
            let what = format!("the warm-up jobs of node {:?} exceed its cores or memory", node.name);
            return Err(Error::file(path, what));
        }
    }
    Ok(())
}

impl Applications {
    /// The table with a neutral profile at its end, if it isn't there yet.
    fn with_neutral(&self) -> Applications {
        if self.profiles.find(NEUTRAL).is_some() {
            return self.clone();
        }
        let mut list: Vec<Profile> = self.profiles.iter().cloned().collect();
        list.push(Profile::new(NEUTRAL, 1.0));
        let mut profiles = Profiles::new(list).expect("names and numbers were checked before");
        for victim in (0..self.profiles.len() as u32).map(ProfileId) {
            for aggressor in (0..self.profiles.len() as u32).map(ProfileId) {
                let interference = self.profiles.interference(victim, aggressor);
                if interference != Interference::default() {
                    profiles
                        .set_interference(victim, aggressor, interference)
                        .expect("it was accepted before");
                }
            }
        }
        let mut applications = self.applications.clone();
        applications.push(Application { task: Task::default(), alone: Micros(1_000_000) });
        Applications { profiles, applications }
    }

    /// The profile of jobs that disturb nobody and are disturbed by nobody; added if it isn't there yet.
    pub fn neutral(&mut self) -> ProfileId {
        *self = self.with_neutral();
        self.profiles.find(NEUTRAL).expect("it was just added")
    }
}

fn task(row: Row<'_>, cluster: &Cluster, default: &Task) -> Result<Task> {
    let mut task = Task::new(
        row.optional("cpu_milli")?.unwrap_or(default.cpu_milli),
        row.optional("memory_mib")?.unwrap_or(default.memory_mib),
    );
    task.network_mbps = mbps(row, "network_mbps")?.unwrap_or(default.network_mbps);
    for name in row.text("nodes").split('|').filter(|name| !name.is_empty()) {
        let node: NodeId =
            cluster.find(name).ok_or_else(|| row.error(format!("no node is named {name:?}")))?;
        task.only.push(node);
    }
    let models = models(row, cluster)?;
    for (kind, count, milli, memory, traffic) in [
        (DeviceKind::Gpu, "gpus", "gpu_milli", "gpu_memory_mib", "gpu_traffic_mbps"),
        (DeviceKind::Nvme, "nvmes", "nvme_milli", "nvme_memory_mib", "nvme_traffic_mbps"),
    ] {
        let usual = default.devices.iter().find(|request| request.kind == kind);
        let milli: Option<u16> = row.optional(milli)?;
        let count: u16 = match (row.optional(count)?, usual, milli) {
            (Some(count), _, _) => count,
            (None, Some(usual), _) => usual.count,
            (None, None, Some(_)) => 1,
            (None, None, None) => 0,
        };
        if count == 0 {
            continue;
        }
        task = task.with(DeviceRequest {
            kind,
            milli: milli.or(usual.map(|usual| usual.milli)).unwrap_or(WHOLE),
            memory_mib: row.optional(memory)?.or(usual.map(|usual| usual.memory_mib)).unwrap_or(0),
            traffic_mbps: mbps(row, traffic)?.or(usual.map(|usual| usual.traffic_mbps)).unwrap_or(0),
            models: if kind == DeviceKind::Gpu { models } else { ModelSet::ANY },
            ..DeviceRequest::gpus(count)
        });
    }
    Ok(task)
}

/// A bandwidth; sums of many of them must fit 64 bits.
fn mbps(row: Row<'_>, column: &str) -> Result<Option<u64>> {
    match row.optional::<u64>(column)? {
        Some(value) if value > 1 << 40 => {
            Err(row.error(format!("{column} is {value}, but must be at most 2^40")))
        }
        other => Ok(other),
    }
}

fn models(row: Row<'_>, cluster: &Cluster) -> Result<ModelSet> {
    let text = row.text("gpu_models");
    if text.is_empty() {
        return Ok(ModelSet::ANY);
    }
    let mut models = ModelSet::EMPTY;
    for name in text.split('|') {
        let model = cluster.model(name).ok_or_else(|| row.error(format!("no device is a {name:?}")))?;
        models = models.with(model);
    }
    Ok(models)
}

#[cfg(test)]
#[path = "formats_tests.rs"]
mod tests;
