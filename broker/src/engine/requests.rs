//! Whether a request for a lease can be accepted: whether it makes sense, whether the cluster could ever serve it, and whether its tenant
//! may have it.

use rgpu_control::api::*;
use rgpu_control::token::{PublicKey, Role, TENANT_SEPARATOR};
use rgpu_placement::policy::LINK_LIMIT;
use rgpu_placement::{Cluster, DeviceRequest, Error, Job, JobId, NodeId, WHOLE, reachable};

use super::core::Core;
use super::deadlines;
use super::live::Held;
use super::model::{self, MIB};
use super::settings::{Settings, policy_config};
use super::{nvmes, problem};

/// The most devices that a lease can have: its token names them all.
pub(crate) const MAX_DEVICES: u16 = 16;

/// The most traffic that a request can name, in Mbit/s: a hundred terabits per second.
const MAX_TRAFFIC_MBPS: u64 = 100_000_000;

/// Refuses requests that are nonsense, whatever the state.
pub(crate) fn check_request(request: &LeaseRequest, settings: &Settings) -> Result<(), Problem> {
    let bad = |text: String| Err(problem(ErrorCode::BadRequest, text));
    if request.gpus > MAX_DEVICES || request.gpus == 0 && request.nvmes == 0 {
        return bad(format!("gpus is {}: a lease has from 1 to {MAX_DEVICES} devices", request.gpus));
    }
    if request.share_milli > WHOLE {
        return bad(format!(
            "share_milli is {}: a share is from 1 to 1000 thousandths, and 0 lets the broker choose",
            request.share_milli
        ));
    }
    deadlines::check(request)?;
    nvmes::check_request(request)?;
    if PublicKey::parse(&request.holder).is_none() {
        return bad("holder is no public key: 32 bytes in base64 (URL alphabet, no padding)".into());
    }
    if !["auto", "shm", "tcp", "rdma"].contains(&request.transport.as_str()) {
        return bad(format!("transport is {:?}: it is auto, shm, tcp or rdma", request.transport));
    }
    if request.encrypt && request.transport == "rdma" {
        return bad(
            "transport is \"rdma\", which cannot be encrypted, as it is asked for or required here".into()
        );
    }
    let long =
        |what: &str, text: &str, most: usize| match text.len() > most || text.contains(char::is_control) {
            true => bad(format!("{what} is too long, or has control characters: {most} bytes at most")),
            false => Ok(()),
        };
    long("name", &request.name, 256)?;
    long("machine", &request.machine, 128)?;
    request.on_node.iter().try_for_each(|node| long("on_node", node, 128))?;
    if request.models.len() > 64 {
        return bad(format!("models names {} models: 64 at most", request.models.len()));
    }
    request.models.iter().try_for_each(|model| long("a model's name", model, 128))?;
    if request.machine.is_empty() && request.node.is_none() {
        return bad("machine is empty: say which machine the program runs on, or name its node".into());
    }
    request.program.iter().try_for_each(|program| long("program", program, 256))?;
    request.key.iter().try_for_each(|key| long("key", key, 256))?;
    if let Some(name) = &request.profile
        && !settings.profiles.iter().any(|written| written.profile.name == *name)
    {
        return bad(format!("there is no profile {name:?} in the broker's configuration"));
    }
    if request.traffic_mbps.is_some_and(|mbps| mbps > MAX_TRAFFIC_MBPS) {
        return bad(format!(
            "traffic_mbps is {}: no network carries more than {MAX_TRAFFIC_MBPS} Mbit/s",
            request.traffic_mbps.unwrap_or_default()
        ));
    }
    if request.memory > 1 << 50 {
        return bad(format!("memory is {} bytes: no device has that much", request.memory));
    }
    Ok(())
}

/// Whether the devices that a job's program would use over the network are ones that the network can carry, were it idle. What it could
/// not, no round would ever grant.
fn check_traffic(cluster: &Cluster, job: &Job, limit: f64) -> Result<(), Error> {
    for task in &job.tasks {
        let Some(&home) = task.only.first() else { continue };
        for request in &task.devices {
            let reached = reachable(cluster, request, home, limit);
            if reached < usize::from(request.count) && request.traffic_mbps > 0 {
                let why = format!(
                    "each of its remote devices makes {} Mbit/s of traffic, and with the network idle its program could use {reached} \
                     of the {} that it wants: links are too slow, or loaded up to {limit} of their capacity at most (say less \
                     with --traffic)",
                    request.traffic_mbps, request.count
                );
                return Err(Error::TooBig { job: job.name.clone(), why });
            }
        }
    }
    Ok(())
}

impl Core {
    /// The node where a program runs.
    pub(super) fn home(&self, request: &LeaseRequest) -> Result<String, Problem> {
        if let Some(name) = request.on_node.as_ref().filter(|name| !self.nodes.contains_key(*name)) {
            let text = format!(
                "there is no node {name:?} whose devices could be given: name one of the cluster's, or none"
            );
            return Err(problem(ErrorCode::NotFound, text));
        }
        if let Some(name) = &request.node {
            if self.nodes.contains_key(name) {
                return Ok(name.clone());
            }
            let text = format!("there is no node {name:?}: name one of the cluster's, or none");
            return Err(problem(ErrorCode::NotFound, text));
        }
        if let Some(name) = self.node_on(&request.machine) {
            return Ok(name.to_owned());
        }
        let start: String = request.machine.chars().take(8).collect();
        Ok(format!("client-{start}"))
    }

    /// Whether the cluster could ever serve a tenant's request, were it empty.
    pub(super) fn check_possible(
        &mut self,
        tenant: &str,
        request: &LeaseRequest,
        home: &str,
    ) -> Result<u64, Problem> {
        let internal = |e: Error| problem(ErrorCode::Internal, e.to_string());
        if self.everything.is_none() {
            let nodes = self.nodes.values().map(|node| model::node_spec(&self.settings, &node.record, true));
            let client = model::client_spec(&self.settings, "\u{0}client".into());
            let all = model::cluster(&self.settings, nodes.chain([client])).map_err(internal)?;
            self.everything = Some(all);
        }
        let Some(cluster) = &self.everything else { unreachable!("it was just made") };
        let policy = policy_config(&self.settings.policies, &self.policy, 0).map_err(internal)?;
        let disaggregates = policy.disaggregates();
        let client = NodeId(cluster.nodes().len() as u32 - 1);
        let home = cluster.find(home).unwrap_or(client);
        let left_s = request.deadline_s.unwrap_or(f64::INFINITY);
        let chosen = self.profiles.part(cluster, tenant, request, home, left_s);
        let request = deadlines::decided(request, chosen);
        let request: &LeaseRequest = &request;
        let wish = model::device_request(cluster, request, self.profiles.traffic_mbps(tenant, request));
        let planned = wish.memory_mib * MIB;
        // The library places parts of several devices, but its check knows only whole ones.
        let checked = if wish.count > 1 { DeviceRequest { milli: WHOLE, ..wish } } else { wish };
        let wishes = [checked].into_iter().chain(nvmes::device_request(cluster, request));
        let task = model::task(wishes, home, disaggregates);
        let job = self.profiles.job(tenant, request, JobId(0), request.name.clone(), 0.0, task);
        let checked =
            job.check(cluster, self.profiles.profiles.len(), disaggregates).and_then(
                |()| match disaggregates {
                    true => check_traffic(cluster, &job, policy.get(&LINK_LIMIT)),
                    false => Ok(()),
                },
            );
        match checked {
            Ok(()) => Ok(planned),
            Err(Error::TooBig { .. }) if self.nodes.is_empty() && self.is_new() => {
                let text =
                    "the broker has just started, and no node has come to it yet: try again in a moment";
                Err(problem(ErrorCode::Unavailable, text.into()))
            }
            Err(Error::TooBig { mut why, .. }) => {
                if !request.models.is_empty() {
                    let models: Vec<&str> = cluster.models().iter().map(String::as_str).collect();
                    let models: Vec<&str> =
                        models.into_iter().filter(|model| !model.starts_with('\u{0}')).collect();
                    why += &format!(
                        " (asked for: {}; there are: {})",
                        request.models.join(", "),
                        models.join(", ")
                    );
                }
                if let Some(node) = &request.on_node {
                    why += &format!(" (asked for: devices of node {node:?} only)");
                }
                if request.encrypt {
                    why += " (servers encrypt connections by `rgpu serve --tls offer`)";
                }
                self.counters.impossible += 1;
                Err(problem(ErrorCode::Impossible, format!("this can never be granted: {why}")))
            }
            Err(e) => Err(problem(ErrorCode::BadRequest, e.to_string())),
        }
    }

    /// Whether a tenant may have so much more.
    pub(super) fn check_limits(
        &mut self,
        tenant: &str,
        milli: u64,
        memory: u64,
        leases: u64,
    ) -> Result<(), Problem> {
        // What was set for an engine's own name is for all of its tenants together.
        let engine = tenant.split_once(TENANT_SEPARATOR).map(|(engine, _)| engine);
        let engine = engine.filter(|engine| self.settings.tenants.contains_key(*engine));
        [tenant].into_iter().chain(engine).try_for_each(|name| self.check_limit(name, milli, memory, leases))
    }

    /// What counts against the limits of that name.
    pub(super) fn held(&self, name: &str) -> Held {
        if name.contains(TENANT_SEPARATOR) || !self.settings.tenants.contains_key(name) {
            return self.tenants.get(name).cloned().unwrap_or_default();
        }
        let named = self.tenants.range(name.to_owned()..).take_while(|(tenant, _)| tenant.starts_with(name));
        let own = named.filter(|(tenant, _)| Role::Engine.acts_for(name, tenant));
        own.fold(Held::default(), |sum, (_, held)| sum.and(held))
    }

    fn check_limit(&mut self, tenant: &str, milli: u64, memory: u64, leases: u64) -> Result<(), Problem> {
        let (limits, held) = (self.settings.limits_of(tenant), self.held(tenant));
        let sums = [
            ("thousandths of devices", limits.max_gpu_milli, held.gpu_milli + held.wanted_milli, milli),
            ("bytes of device memory", limits.max_memory, held.memory + held.wanted_memory, memory),
            ("leases", limits.max_leases, held.active + held.waiting + held.ending, leases),
        ];
        for (what, most, has, more) in sums {
            if let Some(most) = most
                && more > 0
                && has.saturating_add(more) > most
            {
                self.counters.limited += 1;
                let text = format!(
                    "the limit of tenant {tenant:?} is {most} {what} at a time: it has (or waits for) {has}, and this would be \
                     {more} more"
                );
                return Err(problem(ErrorCode::Limit, text));
            }
        }
        Ok(())
    }
}
