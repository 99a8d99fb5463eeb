//! Explanations of the flow model's decisions: the arcs that a job had when the round began.

use super::solo;
use super::view::{Arc, View};
use crate::error::Phase;
use crate::ids::{DeviceKind, NodeId};
use crate::job::DeviceRequest;
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
        let step = |view: &View<'_>, phase, arcs, requests: &[&DeviceRequest], chosen: &[NodeId]| Step {
            task: number,
            unscheduled: Some(unscheduled),
            ..step_of(view, phase, arcs, requests, chosen)
        };
        let fixed: Vec<&DeviceRequest> = task.devices.iter().filter(|r| !view.disaggregated(r)).collect();
        explanation.steps.push(step(view, Phase::ServerCentric, arcs, &fixed, &chosen));
        let home =
            at.map(|at| at.node).or_else(|| solo::cheapest_home(view, job, task, &[]).map(|arc| arc.node));
        let Some(home) = home else { continue };
        for kind in DeviceKind::ALL {
            for (index, request) in task.devices.iter().enumerate() {
                if request.kind != kind || !view.disaggregated(request) {
                    continue;
                }
                let key = view.device_key(request);
                let arcs =
                    nodes.iter().map(|&node| view.device_arc(job, task, request, &key, home, node)).collect();
                let grants = at.iter().flat_map(|at| &at.grants);
                let granted = grants.filter(|grant| usize::from(grant.request) == index);
                let chosen: Vec<NodeId> =
                    granted.map(|grant| view.cluster.device(grant.device).node).collect();
                explanation.steps.push(step(view, Phase::Device(kind), arcs, &[request], &chosen));
            }
        }
    }
    explanation
}

/// The step in which these requests' places are looked for. There is an arc, or the reason why there is none, for every node.
fn step_of(
    view: &View<'_>,
    phase: Phase,
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
    // The chosen ones are always shown.
    let first = |arc: &Arc| !chosen.contains(&arc.node);
    fitting.sort_by(|a, b| first(a).cmp(&first(b)).then(a.cost.total_cmp(&b.cost)).then(a.node.cmp(&b.node)));
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
    Step {
        phase,
        task: 0,
        candidates: candidates.collect(),
        places,
        ruled_out: ruled_out.in_words(),
        unscheduled: None,
    }
}
