//! What would let a waiting request begin now: changes of it, each tried with the policy that decides.

use std::sync::Arc;

use rgpu_control::LeaseId;
use rgpu_control::api::{Alternative, LeaseRequest, SettingValue};
use rgpu_control::units;
use rgpu_placement::policy::MAX_REMOTE_SHARE;
use rgpu_placement::{DeviceRequest, Error, Usage, WHOLE, Waiting};

use super::super::super::deadlines;
use super::super::super::model::MIB;
use super::Future;

/// Shares are proposed in steps of so many thousandths: a percent.
const STEP: u16 = 10;

/// A change that is tried.
struct Trial {
    request: LeaseRequest,
    change: &'static str,
    value: Option<u64>,
    text: String,
}

impl Future<'_> {
    /// The changes of a request with which it would be granted now, before anything has ended.
    pub(super) fn alternatives(&self, id: LeaseId) -> Result<Vec<Alternative>, Error> {
        let planner = self.planner;
        let Some(known) = planner.known.get(&id) else { return Ok(Vec::new()) };
        let Some(at) = self.waiting.iter().position(|waiting| waiting.job.id == known.job) else {
            return Ok(Vec::new());
        };
        let request = &known.record.request;
        let mut found: Vec<Alternative> = Vec::new();
        for trial in self.trials(request, &self.waiting[at]) {
            // Of fewer devices, the most are enough to know.
            let has_one = found.iter().any(|one| one.change == trial.change);
            // What is expected is worth the other half of the time.
            if self.is_late(0.5) || has_one {
                continue;
            }
            if self.would_begin(at, Some(&trial.request), None)? {
                let Trial { change, value, text, .. } = trial;
                found.push(Alternative { change: change.into(), value, text });
            }
        }
        let name = MAX_REMOTE_SHARE.name;
        let share = planner.policy_settings.settings.get(name);
        if share.is_some_and(|share| *share != SettingValue::Number(1.0))
            && self.would_begin(at, None, Some((name, SettingValue::Number(1.0))))?
        {
            let text = format!("an administrator who allows more remote GPUs (`{name}` of the policy)");
            found.push(Alternative { change: name.into(), value: None, text });
        }
        Ok(found)
    }

    /// What is worth trying.
    fn trials(&self, request: &LeaseRequest, waiting: &Waiting) -> Vec<Trial> {
        let Some(wish) = waiting.job.tasks.iter().flat_map(|task| &task.devices).next() else {
            return Vec::new();
        };
        let mut trials = Vec::new();
        let mut add = |request: LeaseRequest, change, value, text: String| {
            trials.push(Trial { request, change, value, text });
        };
        let free_mib = self.at_most(wish, |usage, device| usage.device_memory_mib(device));
        if request.memory > 0 && free_mib > 0 && free_mib * MIB < request.memory {
            let memory = free_mib * MIB;
            let text = format!("less memory: --gpu-memory {}MiB", free_mib);
            add(LeaseRequest { memory, ..request.clone() }, "memory", Some(memory), text);
        }
        let cluster = self.state.cluster();
        let follows = request.memory == 0;
        let share = self.at_most(wish, |usage, device| {
            let spec = cluster.device(device);
            // The greatest share whose part of the memory, rounded down to MiB, is free.
            let free_mib = usage.device_memory_mib(device);
            let of_memory = ((free_mib + 1) * u64::from(WHOLE) - 1) / spec.memory_mib.max(1);
            match (spec.partitionable, follows) {
                (false, _) => 0,
                (true, true) => of_memory.min(usage.device_milli(device).into()),
                (true, false) if usage.device_memory_mib(device) < wish.memory_mib => 0,
                (true, false) => usage.device_milli(device).into(),
            }
        });
        let share = (share as u16 / STEP) * STEP;
        if share > 0 && share < request.share_milli {
            let text = format!("a smaller share: --share {}", units::percent(share.into()));
            let smaller = LeaseRequest { share_milli: share, ..request.clone() };
            add(smaller, "share_milli", Some(share.into()), text);
        }
        for gpus in (1..request.gpus).rev() {
            let text = format!("fewer GPUs: --gpus {gpus}");
            add(LeaseRequest { gpus, ..request.clone() }, "gpus", Some(gpus.into()), text);
        }
        if !request.models.is_empty() {
            let text = "a GPU of another model: without --model".to_owned();
            add(LeaseRequest { models: Vec::new(), ..request.clone() }, "models", None, text);
        }
        if request.on_node.is_some() {
            let text = "a GPU of another node: without --on-node".to_owned();
            add(LeaseRequest { on_node: None, ..request.clone() }, "on_node", None, text);
        }
        if request.encrypt && !self.planner.settings.encrypt {
            let text = "a connection that is not encrypted: without --encrypt".to_owned();
            add(LeaseRequest { encrypt: false, ..request.clone() }, "encrypt", None, text);
        }
        if wish.traffic_mbps > 0 {
            let text = format!(
                "less traffic with remote GPUs: the links have not {} Mbit/s free for it (--traffic)",
                wish.traffic_mbps
            );
            add(LeaseRequest { traffic_mbps: Some(0), ..request.clone() }, "traffic_mbps", None, text);
        }
        if request.goal_s.is_some() {
            let text = "no goal: without --goal it would not be postponed".to_owned();
            add(LeaseRequest { goal_s: None, ..request.clone() }, "goal_s", None, text);
        }
        trials
    }

    /// The most that as many devices as a request wants have free of something: devices that would do if they were empty.
    fn at_most(&self, wish: &DeviceRequest, free: impl Fn(&Usage, rgpu_placement::DeviceId) -> u64) -> u64 {
        let (cluster, usage) = (self.state.cluster(), self.state.usage());
        let any = DeviceRequest { memory_mib: 0, ..wish.clone() };
        let empty = Usage::new(cluster, 0);
        let devices = (0..cluster.devices().len() as u32).map(rgpu_placement::DeviceId);
        let mut free: Vec<u64> = devices
            .filter(|device| empty.fits_device(cluster, *device, &any))
            .map(|device| free(usage, device))
            .collect();
        free.sort_unstable_by(|a, b| b.cmp(a));
        free.get(usize::from(wish.count.max(1)) - 1).copied().unwrap_or(0)
    }

    /// Whether the policy would let it begin now, with the request or a setting of the policy changed; whoever waits before it comes
    /// first.
    fn would_begin(
        &self,
        at: usize,
        request: Option<&LeaseRequest>,
        setting: Option<(&str, SettingValue)>,
    ) -> Result<bool, Error> {
        let planner = self.planner;
        let mut settings = planner.policy_settings.clone();
        if let Some((name, value)) = setting {
            settings.settings.insert(name.into(), value);
        }
        let mut waiting = self.waiting[..=at].to_vec();
        let job = waiting[at].job.clone();
        if let Some(request) = request
            && let Some(known) = planner.ids.get(&job.id).and_then(|id| planner.known.get(id))
        {
            let tenant = &known.record.tenant;
            let request =
                &deadlines::decided(request, known.choice.as_ref().map_or(WHOLE, |choice| choice.milli));
            let task = planner.task(self.state.cluster(), tenant, request, known.home, known.size.is_some());
            let changed = planner.profiles.job(tenant, request, job.id, job.name.clone(), job.submit_s, task);
            waiting[at].job = Arc::new(changed);
        }
        let decisions = planner.policy_like(&settings)?.schedule(&self.state, &waiting, self.now_s)?;
        Ok(decisions.placed.iter().any(|(placed, _)| *placed == job.id))
    }
}
