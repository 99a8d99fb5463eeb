//! One job alone: every task and sub-task takes its cheapest arc, phase by phase.

use super::view::{Arc, View};
use crate::cost;
use crate::ids::{DeviceKind, NodeId};
use crate::job::{Job, Task};
use crate::placement::{Placement, TaskPlacement};
use crate::policy::Reason;
use crate::queue::Waiting;

/// Places a job (and takes its resources), or says why not (and takes nothing).
pub(super) fn place(view: &mut View<'_>, waiting: &Waiting) -> Result<Placement, Reason> {
    let job = &waiting.job;
    let mut placed: Vec<TaskPlacement> = Vec::with_capacity(job.tasks.len());
    for task in &job.tasks {
        match place_task(view, job, task) {
            Ok(at) => placed.push(at),
            Err(reason) => {
                view.take_back(job, &placed);
                return Err(reason);
            }
        }
    }
    accept(view, waiting, placed)
}

/// The last word on a job that has got everything: is it cheaper to leave it?
pub(super) fn accept(
    view: &mut View<'_>,
    waiting: &Waiting,
    placed: Vec<TaskPlacement>,
) -> Result<Placement, Reason> {
    let job = &waiting.job;
    let expected_s = view.expected_of(job, &placed);
    if view.settings.network_aware {
        let unscheduled = view.unscheduled(waiting);
        let mut cost = view.placing_cost(job, expected_s, 1.0);
        let mut reason = None;
        if cost::violates(job, expected_s) && can_keep_goal(view, job) {
            reason = Some(Reason::Postponed { expected_s, goal_s: job.goal_s.unwrap_or(expected_s) });
        }
        let harmed = view.has_harmed(job, &placed, expected_s) + usize::from(view.has_disturbed(&placed));
        if harmed > 0 {
            cost += view.unscheduled_at_first() * harmed as f64;
            reason = reason.or(Some(Reason::Disturbing));
        }
        if let Some(reason) = reason
            && cost > unscheduled
        {
            view.take_back(job, &placed);
            return Err(reason);
        }
    }
    let placement = Placement { tasks: placed };
    view.protect(job, &placement);
    Ok(placement)
}

/// Whether waiting can help at all: in the best of worlds, the job would keep its goal.
fn can_keep_goal(view: &View<'_>, job: &Job) -> bool {
    !cost::violates(job, view.profiles.get(job.profile).best_s() * job.scale)
}

/// How many servers are tried for a task whose devices the network of the cheapest ones cannot reach.
const MAX_HOMES: usize = 8;

/// Places a task where it is cheapest: where the links of a server cannot carry the traffic of all of its devices, which only shows when
/// they are taken one after the other, on the next cheapest server.
fn place_task(view: &mut View<'_>, job: &Job, task: &Task) -> Result<TaskPlacement, Reason> {
    let mut tried: Vec<NodeId> = Vec::new();
    loop {
        let home = cheapest_home(view, job, task, &tried);
        let home = match (home, tried.is_empty()) {
            (Some(home), _) => home.node,
            (None, true) => return Err(why_no_home(view, job, task)),
            (None, false) => return Err(Reason::NoBandwidth),
        };
        match place_at(view, job, task, home) {
            Err(Reason::NoBandwidth) if tried.len() + 1 < MAX_HOMES => tried.push(home),
            placed => return placed,
        }
    }
}

fn place_at(view: &mut View<'_>, job: &Job, task: &Task, home: NodeId) -> Result<TaskPlacement, Reason> {
    let Some(mut at) = view.take_server(job, task, home, true) else { return Err(Reason::NoRoom) };
    for kind in DeviceKind::ALL {
        for (number, request) in task.devices.iter().enumerate() {
            if request.kind != kind {
                continue;
            }
            let have = at.grants.iter().filter(|grant| usize::from(grant.request) == number).count();
            if let Err(reason) = place_devices(view, job, task, number as u16, have, &mut at) {
                view.usage.give_task(view.cluster, &at, task, job.profile);
                return Err(reason);
            }
        }
    }
    Ok(at)
}

/// The cheapest arc of the server-centric phase, but for those to some servers.
pub(super) fn cheapest_home(view: &mut View<'_>, job: &Job, task: &Task, but: &[NodeId]) -> Option<Arc> {
    let key = view.server_key(task);
    let mut best: Option<Arc> = None;
    for node in view.homes(task) {
        if !but.contains(&node)
            && let Ok(arc) = view.server_arc(job, task, &key, node)
            && best.is_none_or(|best| arc.cost < best.cost)
        {
            let milli: u64 = DeviceKind::ALL.into_iter().map(|kind| task.device_milli(kind)).sum();
            let remote = (arc.remote_share * milli as f64).round() as u64;
            let allowed = |kind| view.may_be_remote(kind, remote, task.device_milli(kind));
            if remote == 0 || task.devices.iter().all(|request| allowed(request.kind)) {
                best = Some(arc);
            }
        }
    }
    best
}

fn why_no_home(view: &mut View<'_>, job: &Job, task: &Task) -> Reason {
    let key = view.server_key(task);
    let (mut fits, mut bandwidth) = (false, false);
    for node in view.homes(task) {
        match view.server_arc(job, task, &key, node) {
            Ok(_) => fits = true,
            Err(why) => bandwidth |= why.contains("bandwidth"),
        }
    }
    match (fits, bandwidth) {
        (true, _) => Reason::RemoteShare,
        (_, true) => Reason::NoBandwidth,
        _ => Reason::NoRoom,
    }
}

/// Takes the devices that a request still lacks, the cheapest first.
fn place_devices(
    view: &mut View<'_>,
    job: &Job,
    task: &Task,
    number: u16,
    have: usize,
    at: &mut TaskPlacement,
) -> Result<(), Reason> {
    let request = &task.devices[usize::from(number)];
    let mut missing = usize::from(request.count) - have;
    if missing == 0 {
        return Ok(());
    }
    let key = view.device_key(request);
    let mut arcs = view.device_arcs(job, task, request, key, at.node);
    let mut bandwidth = arcs.reasons().any(|why| why.contains("bandwidth"));
    let mut limited = false;
    while missing > 0
        && let Some(arc) = arcs.next()
    {
        while missing > 0 {
            let milli = u64::from(request.milli);
            if arc.node != at.node && !view.may_be_remote(request.kind, milli, milli) {
                limited = true;
                break;
            }
            if !view.take_device(at, request, number, arc.node) {
                // What was taken before may have used up the links.
                let again = view.device_arc(job, task, request, &arcs.key, at.node, arc.node);
                bandwidth |= again.is_err_and(|why| why.contains("bandwidth"));
                break;
            }
            missing -= 1;
        }
    }
    view.done(arcs);
    match (missing, limited, bandwidth) {
        (0, ..) => Ok(()),
        (_, true, _) => Err(Reason::RemoteShare),
        (_, _, true) => Err(Reason::NoBandwidth),
        _ => Err(Reason::NoRoom),
    }
}
