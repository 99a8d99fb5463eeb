//! Utility and cost: equations 6 to 8 of the paper, and where they had to be made precise.

use crate::error::Error;
use crate::job::Job;
use crate::profile::{Conditions, Profile};

/// Equation 6: how useful a completion time ϕ is for a goal τ and an importance z. At most 1; not negative as
/// long as the goal is kept; below that the more important the job (z = 1), the lower.
pub fn utility(expected_s: f64, goal_s: f64, importance: f64) -> f64 {
    let utility = (goal_s - expected_s) / goal_s;
    if utility >= 0.0 { utility } else { utility * ((10.0 - importance) / 9.0) }
}

/// Equation 7: what it costs to place a task where this utility is to be had, times the preference P (1 for a
/// preferred place, more for others).
pub fn arc_cost(utility: f64, preference: f64) -> f64 {
    (1.0 - utility) * preference
}

/// Equation 8: what it costs to leave a task unscheduled that has waited W. The paper leaves open which completion
/// time goes into it; it asks that the cost be higher than any placement at first. Here it is that of a placement that
/// just keeps the goal (utility 0) at the worst preference, plus one.
pub fn unscheduled_cost(worst_preference: f64, waited: f64) -> f64 {
    arc_cost(0.0, worst_preference) + 1.0 + waited
}

/// The completion time ϕ that a job can expect under such conditions, of which the network's load counts only if
/// the policy is network-aware.
pub fn expected_s(job: &Job, profile: &Profile, conditions: Conditions, network_aware: bool) -> f64 {
    let load = if network_aware { conditions.load } else { 0.0 };
    profile.completion_s(&Conditions { load, ..conditions }) * job.scale
}

/// The goal τ with which a job's costs are computed: its objective; without one, its best completion time.
pub fn goal_s(job: &Job, profile: &Profile) -> f64 {
    job.goal_s.unwrap_or_else(|| profile.best_s() * job.scale)
}

/// Whether a completion time breaks an objective whose importance is more than nothing.
pub fn violates(job: &Job, expected_s: f64) -> bool {
    // Times are sums of products; a goal of exactly the expected time must not fail by rounding.
    job.goal_s.is_some_and(|goal| expected_s > goal * (1.0 + 1e-9)) && job.importance < 10.0
}

/// A cost in the solver's integers.
pub fn to_units(cost: f64) -> Result<i64, Error> {
    if cost.is_nan() || cost < 0.0 {
        return Err(Error::Cost(cost));
    }
    crate::flow::CostScale::default().to_cost(cost).map_err(|_| Error::Cost(cost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::job::Task;

    #[test]
    fn equation_6_by_hand() {
        // Goal 100 s: done in 80 s is worth 0.2, in 100 s nothing.
        assert_eq!(utility(80.0, 100.0, 1.0), 0.2);
        assert_eq!(utility(100.0, 100.0, 5.0), 0.0);
        // In 150 s: -0.5 at full importance, (10 - 5.5) / 9 = half of it at z = 5.5, nothing at z = 10.
        assert_eq!(utility(150.0, 100.0, 1.0), -0.5);
        assert_eq!(utility(150.0, 100.0, 5.5), -0.25);
        assert_eq!(utility(150.0, 100.0, 10.0), 0.0);
    }

    #[test]
    fn equations_7_and_8_by_hand() {
        assert_eq!(arc_cost(0.2, 1.0), 0.8);
        assert_eq!(arc_cost(-0.5, 2.0), 3.0);
        // Never waited: 1.5 · (1 − 0) + 1; after ten rounds of 0.05, 0.5 more.
        assert_eq!(unscheduled_cost(1.5, 0.0), 2.5);
        assert_eq!(unscheduled_cost(1.5, 10.0 * 0.05), 3.0);
    }

    #[test]
    fn the_network_counts_only_if_it_is_looked_at() {
        let profile = Profile { sensitivity: 0.5, remote_s: 20.0, ..Profile::new("a", 10.0) };
        let mut job = Job::new(JobId(0), "a", Task::default());
        job.scale = 2.0;
        let conditions = Conditions { remote_share: 1.0, load: 0.4, ..Conditions::default() };
        assert_eq!(expected_s(&job, &profile, conditions, false), 40.0);
        assert_eq!(expected_s(&job, &profile, conditions, true), 48.0);
        assert_eq!(goal_s(&job, &profile), 20.0);
        assert!(!violates(&job, 1e9));
        job.goal_s = Some(45.0);
        assert!(violates(&job, 48.0) && !violates(&job, 45.0));
        job.importance = 10.0;
        assert!(!violates(&job, 48.0));
    }

    #[test]
    fn costs_that_do_not_fit_are_refused() {
        assert!(to_units(1.5).is_ok());
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(to_units(bad).is_err(), "{bad}");
        }
    }
}
