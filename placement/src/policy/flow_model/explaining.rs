//! Explanations of the flow model's decisions: the arcs that a job had when the round began.

use super::solo;
use super::view::{Arc, View};
use crate::error::Phase;
use crate::ids::{DeviceKind, NodeId};
use crate::job::{DeviceRequest, Job, Task};
use crate::policy::explain::{Candidate, Explanation, RuledOut, Step};
use crate::policy::{Decisions, outcome};
use crate::queue::Waiting;

/// Explains what was decided about a job. (The caller adds the policy's name and the time.)
pub(super) fn explain(view: &mut View<'_>, waiting: &Waiting, decisions: &Decisions) -> Explanation {
    let job = &waiting.job;
    let placement = decisions.placed.iter().find(|(id, _)| *id == job.id).map(|(_, placement)| placement);
    let unscheduled = (view.unscheduled(waiting), view.waited(waiting));
    let mut explanation = Explanation { job: job.name.clone(), ..Explanation::default() };
    explanation.outcome = match placement {
        Some(placement) => outcome(view.cluster, placement),
        None => match decisions.left.iter().find(|(id, _)| *id == job.id) {
            Some((_, reason)) => reason.to_string(),
            None => "not considered in this round".into(),
        },
    };
    for (number, task) in job.tasks.iter().enumerate() {
        let at = placement.map(|placement| &placement.tasks[number]);
        let key = view.server_key(task);
        let nodes: Vec<NodeId> = view.nodes().collect();
        let arcs = nodes.iter().map(|&node| view.server_arc(job, task, &key, node)).collect();
        let chosen: Vec<NodeId> = at.iter().map(|at| at.node).collect();
        let fixed: Vec<&DeviceRequest> = task.devices.iter().filter(|r| !view.disaggregated(r)).collect();
        let step = step_of(view, arcs, &fixed, &chosen);
        explanation.steps.push(Step { task: number, unscheduled: Some(unscheduled), ..step });
        let home =
            at.map(|at| at.node).or_else(|| solo::cheapest_home(view, job, task, &[]).map(|arc| arc.node));
        let Some(home) = home else { continue };
        for kind in DeviceKind::ALL {
            for (index, request) in task.devices.iter().enumerate() {
                if request.kind != kind || !view.disaggregated(request) {
                    continue;
                }
                let grants = at.iter().flat_map(|at| &at.grants);
                let granted = grants.filter(|grant| usize::from(grant.request) == index);
                let chosen: Vec<NodeId> =
                    granted.map(|grant| view.cluster.device(grant.device).node).collect();
                let step = devices_step(view, job, task, request, home, &chosen);
                let phase = Phase::Device(kind);
                explanation.steps.push(Step { phase, task: number, unscheduled: Some(unscheduled), ..step });
            }
        }
    }
    explanation
}

/// The step in which these requests' places are looked for. There is an arc, or the reason why there is none, for every node.
fn step_of(
    view: &View<'_>,
    arcs: Vec<Result<Arc, &'static str>>,
    requests: &[&DeviceRequest],
    chosen: &[NodeId],
) -> Step {
    let mut ruled_out = RuledOut::default();
    let mut fitting: Vec<Arc> = Vec::new();
    for (node, arc) in view.nodes().zip(arcs) {
        match arc {
            Ok(arc) => fitting.push(arc),
            Err(why) => ruled_out.add(why, view.cluster, node, requests.iter().copied()),
        }
    }
    let places = fitting.len();
    Step { candidates: candidates(view, fitting, chosen), places, ..step(ruled_out) }
}

/// The step in which a request's devices are looked for that may come from other nodes.
fn devices_step(
    view: &mut View<'_>,
    job: &Job,
    task: &Task,
    request: &DeviceRequest,
    home: NodeId,
    chosen: &[NodeId],
) -> Step {
    let mut ruled_out = RuledOut::default();
    let key = view.device_key(request);
    let mut arcs = view.device_arcs(job, task, request, key, home);
    let mut places = 0;
    for node in view.nodes() {
        match arcs.why_not(node) {
            None => places += 1,
            Some(why) => ruled_out.add(why, view.cluster, node, [request]),
        }
    }
    let mut fitting: Vec<Arc> = chosen.iter().filter_map(|&node| arcs.arc_to(node)).collect();
    fitting.extend(arcs.by_ref().filter(|arc| !chosen.contains(&arc.node)).take(Step::SHOWN));
    view.done(arcs);
    Step { candidates: candidates(view, fitting, chosen), places, ..step(ruled_out) }
}

fn step(ruled_out: RuledOut<'_>) -> Step {
    Step {
        phase: Phase::ServerCentric,
        task: 0,
        candidates: Vec::new(),
        places: 0,
        ruled_out: ruled_out.in_words(),
        unscheduled: None,
    }
}

/// The cheapest of these arcs, as people see them.
fn candidates(view: &View<'_>, mut fitting: Vec<Arc>, chosen: &[NodeId]) -> Vec<Candidate> {
    // The chosen ones are always shown.
    let first = |arc: &Arc| !chosen.contains(&arc.node);
    fitting.sort_by(|a, b| first(a).cmp(&first(b)).then(a.cost.total_cmp(&b.cost)).then(a.node.cmp(&b.node)));
    fitting.dedup_by_key(|arc| arc.node);
    fitting.truncate(Step::SHOWN);
    fitting.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.node.cmp(&b.node)));
    let candidates = fitting.iter().map(|arc| Candidate {
        place: view.cluster.node(arc.node).name.clone(),
        cost: arc.cost,
        expected_s: Some(arc.expected_s),
        load: arc.load,
        utility: Some(arc.utility),
        preference: arc.preference,
        chosen: chosen.contains(&arc.node),
    });
    candidates.collect()
}
