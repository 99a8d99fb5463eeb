//! What is to be placed: jobs made of tasks, and what each task asks for.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Device, WHOLE};
use crate::error::Error;
use crate::ids::{CapabilitySet, DeviceKind, JobId, ModelSet, NodeId, ProfileId};

/// A job: its tasks start together or not at all (gang scheduling).
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The caller's number.
    pub id: JobId,
    /// Its name, unique among jobs that wait or run.
    pub name: String,
    /// When it was submitted, in seconds.
    pub submit_s: f64,
    /// The tasks, at least one.
    pub tasks: Vec<Task>,
    /// How it behaves.
    pub profile: ProfileId,
    /// By this factor the profile's times are longer for this job; 1 as a rule.
    pub scale: f64,
    /// The service-level objective τ: the completion time (from start to end, in seconds) that it is to keep.
    pub goal_s: Option<f64>,
    /// The deadline: how long after its submission (in seconds) it is to have ended.
    pub deadline_s: Option<f64>,
    /// The importance z of the objective, from 1 (the most important) to 10 (not at all).
    pub importance: f64,
}

impl Job {
    /// A job of one task, submitted at 0, of profile 0, without an objective.
    pub fn new(id: JobId, name: impl Into<String>, task: Task) -> Job {
        Job {
            id,
            name: name.into(),
            submit_s: 0.0,
            tasks: vec![task],
            profile: ProfileId(0),
            scale: 1.0,
            goal_s: None,
            deadline_s: None,
            importance: 1.0,
        }
    }

    /// The moment (in seconds of the caller's time) by which it is to have ended; infinite if it has no deadline.
    pub fn due_s(&self) -> f64 {
        self.deadline_s.map_or(f64::INFINITY, |deadline| self.submit_s + deadline)
    }

    /// Checks every number and reference, and that the job would fit into the empty cluster, its devices
    /// being local or remote if `disaggregated`, else all local.
    pub fn check(&self, cluster: &Cluster, profiles: usize, disaggregated: bool) -> Result<(), Error> {
        let of = || format!("job {:?}", self.name);
        let range = |what, value: String, must| Err(Error::Range { what, of: of(), value, must });
        if self.tasks.is_empty() {
            return range("the number of tasks", "0".into(), "at least 1");
        }
        if !self.submit_s.is_finite() || self.submit_s < 0.0 {
            return range("submit_s", self.submit_s.to_string(), "a time, not before 0");
        }
        if !self.scale.is_finite() || self.scale <= 0.0 {
            return range("scale", self.scale.to_string(), "greater than 0");
        }
        if let Some(goal) = self.goal_s
            && (!goal.is_finite() || goal <= 0.0)
        {
            return range("goal_s", goal.to_string(), "greater than 0");
        }
        if let Some(deadline) = self.deadline_s
            && (!deadline.is_finite() || deadline <= 0.0)
        {
            return range("deadline_s", deadline.to_string(), "greater than 0");
        }
        if !(1.0..=10.0).contains(&self.importance) {
            return range("importance", self.importance.to_string(), "from 1 to 10");
        }
        if self.profile.index() >= profiles {
            return Err(Error::Dangling { from: of(), what: "profile", name: self.profile.0.to_string() });
        }
        for task in &self.tasks {
            task.check(self, cluster, disaggregated)?;
        }
        self.check_totals(cluster)
    }

    fn check_totals(&self, cluster: &Cluster) -> Result<(), Error> {
        let totals = cluster.totals();
        let sum = |what: &str, need: u128, have: u64| {
            if need > u128::from(have) {
                return Err(Error::TooBig {
                    job: self.name.clone(),
                    why: format!("it wants {need} {what} in all, and there are {have}"),
                });
            }
            Ok(())
        };
        sum("milli-cores", self.tasks.iter().map(|t| u128::from(t.cpu_milli)).sum(), totals.cpu_milli)?;
        sum("MiB of memory", self.tasks.iter().map(|t| u128::from(t.memory_mib)).sum(), totals.memory_mib)?;
        for kind in DeviceKind::ALL {
            let milli: u128 = self
                .tasks
                .iter()
                .flat_map(|task| &task.devices)
                .filter(|request| request.kind == kind)
                .map(|request| u128::from(request.count) * u128::from(request.milli))
                .sum();
            let have = totals.devices[kind.index()] * u64::from(WHOLE);
            sum(if kind == DeviceKind::Gpu { "milli-GPUs" } else { "milli-NVMes" }, milli, have)?;
        }
        Ok(())
    }
}

/// A part of a job that runs in one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// Thousandths of cores.
    pub cpu_milli: u64,
    /// Main memory in MiB.
    pub memory_mib: u64,
    /// The devices that it wants.
    pub devices: Vec<DeviceRequest>,
    /// Mbit/s that it sends through its node's NIC besides the traffic to remote devices.
    pub network_mbps: u64,
    /// The nodes where it may run; empty: anywhere.
    pub only: Vec<NodeId>,
    /// The nodes where it would rather run (affinity).
    pub preferred: Vec<NodeId>,
}

impl Task {
    /// A task that wants cores and memory.
    pub fn new(cpu_milli: u64, memory_mib: u64) -> Task {
        Task { cpu_milli, memory_mib, ..Task::default() }
    }

    /// The task with another request for devices.
    #[must_use]
    pub fn with(mut self, request: DeviceRequest) -> Task {
        self.devices.push(request);
        self
    }

    /// The task with one more request: `count` whole GPUs of any model.
    #[must_use]
    pub fn with_gpus(self, count: u16) -> Task {
        self.with(DeviceRequest::gpus(count))
    }

    /// Thousandths of devices of that kind wanted in all.
    pub fn device_milli(&self, kind: DeviceKind) -> u64 {
        let of_kind = self.devices.iter().filter(|request| request.kind == kind);
        of_kind.map(|request| u64::from(request.count) * u64::from(request.milli)).sum()
    }

    /// Whether the task may run in the node.
    pub fn allows(&self, node: NodeId) -> bool {
        self.only.is_empty() || self.only.contains(&node)
    }

    fn check(&self, job: &Job, cluster: &Cluster, disaggregated: bool) -> Result<(), Error> {
        let of = || format!("job {:?}", job.name);
        for node in self.only.iter().chain(&self.preferred) {
            if node.index() >= cluster.nodes().len() {
                return Err(Error::Dangling { from: of(), what: "node", name: node.0.to_string() });
            }
        }
        for request in &self.devices {
            let fraction = request.milli < WHOLE && request.count == 1;
            if request.milli == 0 || request.count == 0 || !(fraction || request.milli == WHOLE) {
                return Err(Error::Range {
                    what: "a device request",
                    of: of(),
                    value: format!("{} times {} thousandths", request.count, request.milli),
                    must: "whole devices (1000), at least one, or a part (1 to 999) of a single one",
                });
            }
        }
        let too_big = |why: String| Err(Error::TooBig { job: job.name.clone(), why });
        let nodes = || {
            let all = if self.only.is_empty() { 0..cluster.nodes().len() as u32 } else { 0..0 };
            all.map(NodeId).chain(self.only.iter().copied())
        };
        let cpu_fits = |id: NodeId| {
            let node = cluster.node(id);
            node.cpu_milli >= self.cpu_milli && node.memory_mib >= self.memory_mib
        };
        if !nodes().any(cpu_fits) {
            return too_big(format!(
                "no node that it may use has {} milli-cores and {} MiB",
                self.cpu_milli, self.memory_mib
            ));
        }
        if disaggregated {
            for request in &self.devices {
                let have = request.together_in_all(cluster);
                if have < usize::from(request.count) {
                    let all = (0..cluster.nodes().len() as u32).map(NodeId);
                    let devices = cluster.devices().iter();
                    let each = devices.filter(|&device| request.suits(device)).count();
                    let mut why = format!("it wants {request}, and {each} such devices exist");
                    if each > have {
                        why += &format!(", of which one program can use {have} at a time");
                    }
                    return too_big(why + &request.unmet(cluster, all));
                }
            }
            return Ok(());
        }
        let local = |id: NodeId| {
            self.devices.iter().all(|request| request.together(cluster, id) >= usize::from(request.count))
        };
        if !nodes().any(|id| cpu_fits(id) && local(id)) {
            let unmet: String = self.devices.iter().map(|request| request.unmet(cluster, nodes())).collect();
            return too_big(format!("no node has its cores, memory and devices together{unmet}"));
        }
        Ok(())
    }
}

/// A wish for devices of one kind. Each device of it is a "sub-task" of the flow model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceRequest {
    /// GPU or NVMe.
    pub kind: DeviceKind,
    /// How many different devices.
    pub count: u16,
    /// Thousandths of each: [`WHOLE`], or less if `count` is 1. A device that cannot be partitioned is taken
    /// whole.
    pub milli: u16,
    /// Device memory wanted of each, in MiB; 0 does not care.
    pub memory_mib: u64,
    /// The models that will do.
    pub models: ModelSet,
    /// What the devices' nodes must offer.
    pub needs: CapabilitySet,
    /// The only node whose devices will do; `None`: any.
    pub node: Option<NodeId>,
    /// Mbit/s that each device's calls and copies put on the network if it is remote.
    pub traffic_mbps: u64,
}

impl DeviceRequest {
    /// `count` whole GPUs of any model, without traffic.
    pub fn gpus(count: u16) -> DeviceRequest {
        DeviceRequest {
            kind: DeviceKind::Gpu,
            count,
            milli: WHOLE,
            memory_mib: 0,
            models: ModelSet::ANY,
            needs: CapabilitySet::NONE,
            node: None,
            traffic_mbps: 0,
        }
    }

    /// A part of one GPU of any model.
    pub fn part(milli: u16) -> DeviceRequest {
        DeviceRequest { milli, ..DeviceRequest::gpus(1) }
    }

    /// Whether a device is of the right kind and model, and in the right node, whatever that offers.
    fn is_like(&self, device: &Device) -> bool {
        device.kind == self.kind
            && self.models.contains(device.model)
            && device.memory_mib >= self.memory_mib
            && self.node.is_none_or(|node| node == device.node)
    }

    /// Whether a device would do, were all of it free.
    fn suits(&self, device: &Device) -> bool {
        self.is_like(device) && device.offers.has_all(self.needs)
    }

    /// How many of a node's devices one task could use at a time for this request, were all of them free.
    pub(crate) fn together(&self, cluster: &Cluster, node: NodeId) -> usize {
        let devices = cluster.node(node).devices().filter(|&device| self.suits(cluster.device(device)));
        cluster.usable_together(devices)
    }

    /// How many devices of all nodes a program could use at a time for this request, were all of them free.
    fn together_in_all(&self, cluster: &Cluster) -> usize {
        if let Some(node) = self.node {
            return if node.index() < cluster.nodes().len() { self.together(cluster, node) } else { 0 };
        }
        let groups = cluster.alike().groups().iter();
        groups.map(|members| members.len() * self.together(cluster, members[0])).sum()
    }

    /// The name of what this request needs, and what a node with devices for it does not offer.
    pub(crate) fn lacks<'c>(&self, cluster: &'c Cluster, node: NodeId) -> Option<&'c str> {
        let lacking = cluster.lacking(node, self.needs)?;
        let mut devices = cluster.node(node).devices();
        devices.any(|device| self.is_like(cluster.device(device))).then_some(lacking)
    }

    /// Of these nodes, the ones that would have devices for this request and don't offer what it needs, in words.
    fn unmet(&self, cluster: &Cluster, nodes: impl Iterator<Item = NodeId>) -> String {
        let mut lacking: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for node in nodes {
            if let Some(what) = self.lacks(cluster, node) {
                lacking.entry(what).or_default().push(&cluster.node(node).name);
            }
        }
        lacking.iter().map(|(what, nodes)| format!("; it {}", not_offered(what, nodes))).collect()
    }
}

/// That something is needed which these nodes don't offer, in words.
pub(crate) fn not_offered(what: &str, nodes: &[&str]) -> String {
    /// How many nodes are named.
    const NAMED: usize = 3;
    match nodes {
        [one] => format!("needs {what}, which node {one} doesn't offer"),
        [named @ .., last] if nodes.len() <= NAMED => {
            format!("needs {what}, which nodes {} and {last} don't offer", named.join(", "))
        }
        _ => {
            let more = nodes.len().saturating_sub(NAMED);
            let named = nodes.get(..NAMED).unwrap_or(nodes).join(", ");
            format!("needs {what}, which nodes {named} and {more} more don't offer")
        }
    }
}

impl std::fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.milli {
            WHOLE => write!(f, "{} {}", self.count, self.kind)?,
            milli => write!(f, "{milli}/1000 of a {}", self.kind)?,
        }
        if self.models != ModelSet::ANY {
            f.write_str(" of particular models")?;
        }
        if self.memory_mib != 0 {
            write!(f, " with {} MiB", self.memory_mib)?;
        }
        if self.node.is_some() {
            f.write_str(" of a particular node")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{ClusterBuilder, DeviceSpec, NodeSpec};

    fn cluster() -> Cluster {
        let gpu = || DeviceSpec::gpu("T4", 16);
        ClusterBuilder::new()
            .node(NodeSpec::new("a", 4000, 100).with_devices(1, gpu()))
            .node(NodeSpec::new("b", 1000, 100).with_devices(2, gpu()))
            .build()
            .unwrap()
    }

    fn check(job: &Job, disaggregated: bool) -> Result<(), Error> {
        job.check(&cluster(), 1, disaggregated)
    }

    #[test]
    fn refuses_nonsense() {
        let good = Job::new(JobId(0), "j", Task::new(1000, 10).with_gpus(1));
        check(&good, false).unwrap();
        let range = |job: Job| assert!(matches!(check(&job, true), Err(Error::Range { .. })), "{job:?}");
        range(Job { tasks: Vec::new(), ..good.clone() });
        range(Job { submit_s: -1.0, ..good.clone() });
        range(Job { submit_s: f64::NAN, ..good.clone() });
        range(Job { scale: 0.0, ..good.clone() });
        range(Job { goal_s: Some(f64::INFINITY), ..good.clone() });
        range(Job { deadline_s: Some(0.0), ..good.clone() });
        range(Job { importance: 11.0, ..good.clone() });
        for (count, milli) in [(0, WHOLE), (1, 0), (2, 500), (1, 1001)] {
            let request = DeviceRequest { count, milli, ..DeviceRequest::gpus(1) };
            range(Job { tasks: vec![Task::new(1, 1).with(request)], ..good.clone() });
        }
        let dangling = |job: Job| assert!(matches!(check(&job, true), Err(Error::Dangling { .. })));
        dangling(Job { profile: ProfileId(1), ..good.clone() });
        dangling(Job { tasks: vec![Task { only: vec![NodeId(2)], ..Task::default() }], ..good });
    }

    #[test]
    fn refuses_what_can_never_run() {
        let too_big = |task: Task, disaggregated| {
            let result = check(&Job::new(JobId(0), "j", task), disaggregated);
            assert!(matches!(&result, Err(Error::TooBig { .. })) || result.is_ok(), "{result:?}");
            result.is_err()
        };
        assert!(too_big(Task::new(5000, 1), true));
        assert!(too_big(Task::new(1, 101), true));
        assert!(too_big(Task::new(1, 1).with_gpus(4), true));
        // Four cores and two GPUs are in no node together.
        assert!(too_big(Task::new(4000, 1).with_gpus(2), false));
        assert!(!too_big(Task::new(4000, 1).with_gpus(2), true));
        let huge = DeviceRequest { memory_mib: 17, ..DeviceRequest::part(1) };
        assert!(too_big(Task::new(1, 1).with(huge), true));
        assert!(too_big(Task::new(u64::MAX, 1), true));
        // Each task fits, all of them together do not.
        let job = Job { tasks: vec![Task::new(3000, 1); 2], ..Job::new(JobId(0), "j", Task::default()) };
        assert!(matches!(check(&job, true), Err(Error::TooBig { .. })));
    }

    #[test]
    fn refuses_what_no_node_offers_and_says_so() {
        let gpu = || DeviceSpec::gpu("T4", 16);
        let node = |name: &str| NodeSpec::new(name, 1000, 100).with_devices(1, gpu());
        // The last one has nothing, so that what it doesn't offer is no matter.
        let plain = ["a", "b", "c", "d"].map(node).into_iter().chain([NodeSpec::new("e", 1000, 100)]);
        let builder = ClusterBuilder::new().capability("encryption").nodes(plain);
        let cluster = builder.clone().build().unwrap();
        let needs = cluster.capability("encryption").unwrap();
        let task = |count| Task::new(1, 1).with(DeviceRequest { needs, ..DeviceRequest::gpus(count) });
        for disaggregated in [false, true] {
            let job = Job::new(JobId(0), "j", task(1));
            let why = job.check(&cluster, 1, disaggregated).unwrap_err().to_string();
            let end = "it needs encryption, which nodes a, b, c and 1 more don't offer";
            assert!(why.ends_with(end), "{why}");
            let capable = builder.clone().node(node("f").offering("encryption")).build().unwrap();
            assert_eq!(job.check(&capable, 1, disaggregated), Ok(()));
            let two = Job::new(JobId(0), "j", task(2));
            assert!(two.check(&capable, 1, disaggregated).unwrap_err().to_string().contains("encryption"));
        }
        assert_eq!(not_offered("x", &["a"]), "needs x, which node a doesn't offer");
        assert_eq!(not_offered("x", &["a", "b", "c"]), "needs x, which nodes a, b and c don't offer");
    }

    #[test]
    fn counts_one_device_for_a_program_where_it_can_use_no_more() {
        let instance = DeviceSpec { alone: true, partitionable: false, ..DeviceSpec::gpu("1g.5gb", 5) };
        let node = |name: &str, whole| {
            NodeSpec::new(name, 1000, 100)
                .with_devices(2, instance.clone())
                .with_devices(whole, DeviceSpec::gpu("A100", 40))
        };
        let check = |nodes: [NodeSpec; 2], count, disaggregated| {
            let cluster = ClusterBuilder::new().nodes(nodes).build().unwrap();
            Job::new(JobId(0), "j", Task::new(1, 1).with_gpus(count)).check(&cluster, 1, disaggregated)
        };
        let divided = || [node("a", 0), node("b", 0)];
        check(divided(), 2, true).unwrap();
        let why = check(divided(), 3, true).unwrap_err().to_string();
        assert!(why.contains("4 such devices exist, of which one program can use 2 at a time"), "{why}");
        check(divided(), 1, false).unwrap();
        check(divided(), 2, false).unwrap_err();
        // Two whole ones, or an instance.
        let mixed = || [node("a", 2), node("b", 0)];
        check(mixed(), 3, true).unwrap();
        check(mixed(), 4, true).unwrap_err();
        check(mixed(), 2, false).unwrap();
        check(mixed(), 3, false).unwrap_err();
    }
}
