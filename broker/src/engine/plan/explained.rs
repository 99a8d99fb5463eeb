//! What made a decision, in the API's terms.

use rgpu_control::LeaseId;
use rgpu_control::api::{ExplanationCandidate, ExplanationStep, LeaseExplanation};
use rgpu_placement::Explanation;

use super::Planner;

impl Planner {
    /// An explanation in the API's terms.
    pub(super) fn explain(&self, id: LeaseId, explanation: &Explanation) -> LeaseExplanation {
        let outside = |name: &str| match name.strip_prefix('\u{0}') {
            None => name.to_owned(),
            // A client's place.
            Some(_) => self.nodes.get(name).map_or_else(String::new, |node| self.names[node.index()].clone()),
        };
        let mut plain = explanation.clone();
        for candidate in plain.steps.iter_mut().flat_map(|step| &mut step.candidates) {
            candidate.place = outside(&candidate.place);
        }
        if let Some(known) = self.known.get(&id)
            && let Some(state) = &self.state
        {
            let inside = &state.cluster().node(known.home).name;
            if inside.starts_with('\u{0}') {
                plain.outcome = plain.outcome.replace(inside.as_str(), &self.names[known.home.index()]);
            }
        }
        let steps = plain.steps.iter().map(|step| ExplanationStep {
            phase: step.phase.to_string(),
            places: step.places as u64,
            ruled_out: step.ruled_out.iter().map(|(why, n)| (why.clone(), *n as u64)).collect(),
            candidates: step
                .candidates
                .iter()
                .map(|candidate| ExplanationCandidate {
                    place: candidate.place.clone(),
                    cost: finite(candidate.cost),
                    expected_s: candidate.expected_s.filter(|s| s.is_finite()),
                    load: finite(candidate.load),
                    chosen: candidate.chosen,
                })
                .collect(),
            unscheduled_cost: step.unscheduled.map(|(cost, _)| finite(cost)),
        });
        LeaseExplanation {
            lease: id,
            steps: steps.collect(),
            text: plain.to_string(),
            policy: plain.policy.clone(),
            outcome: plain.outcome.clone(),
            estimate: None,
            blocked_by: Vec::new(),
            alternatives: Vec::new(),
        }
    }
}

/// JSON has no infinity.
fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { f64::MAX }
}
