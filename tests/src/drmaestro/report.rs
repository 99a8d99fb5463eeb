//! The paper's tables 2 and 3: published, simulated, and lived; and what the simulator is worth for single jobs.

use rgpu_simulator::papers::drmaestro::{Experiment, POLICIES, Scenario};
use rgpu_simulator::report::{Summary, align};
use rgpu_simulator::statistics::{deviation, mean, quantile};
use rgpu_simulator::{JobOutcome, Outcome};

use super::Plan;
use super::live::Lived;

/// One policy: simulated and lived.
#[derive(Debug)]
pub struct Compared {
    /// Which of [`POLICIES`].
    pub policy: usize,
    /// The gist of the simulation.
    pub simulated: Summary,
    /// The gist of what happened.
    pub lived: Summary,
    /// Jobs whose device the broker chose elsewhere than was planned: local instead of remote, or the other way round.
    pub otherwise: usize,
    /// Of each job: simulated and lived.
    pub jobs: Vec<[Times; 2]>,
}

/// A job's times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// From its start to its end.
    pub run_s: f64,
    /// From its submission to its end.
    pub completion_s: f64,
}

impl Compared {
    pub(super) fn new(policy: usize, experiment: &Experiment, simulated: Outcome, lived: Lived) -> Compared {
        let summary = |outcome: &Outcome| Summary::new(&experiment.cluster, &experiment.jobs, outcome);
        let jobs = experiment.jobs.iter().zip(simulated.jobs.iter().zip(&lived.outcome.jobs));
        let jobs = jobs.filter_map(|(job, (simulated, lived))| {
            let times = |outcome: &JobOutcome| {
                let completion_s = outcome.end?.since(job.at).seconds();
                Some(Times { run_s: outcome.run()?.seconds(), completion_s })
            };
            Some([times(simulated)?, times(lived)?])
        });
        let jobs = jobs.collect();
        let (simulated, otherwise) = (summary(&simulated), lived.otherwise);
        Compared { policy, simulated, lived: summary(&lived.outcome), otherwise, jobs }
    }

    /// Mean and standard deviation of |live − predicted| / live over the jobs.
    pub fn error(&self, of: fn(&Times) -> f64) -> (f64, f64) {
        let errors: Vec<f64> = self
            .jobs
            .iter()
            .map(|[simulated, lived]| (of(lived) - of(simulated)).abs() / of(lived))
            .collect();
        (mean(&errors), deviation(&errors))
    }

    /// The gist in a line, in seconds of this run.
    pub fn line(&self) -> String {
        format!(
            "{}: makespan {:.1} s ({:.1} s simulated), {} objectives missed ({}), remote {:.1}% ({:.1}%), {} jobs otherwise than planned",
            POLICIES[self.policy],
            self.lived.makespan_s,
            self.simulated.makespan_s,
            self.lived.violations,
            self.simulated.violations,
            self.lived.remote_percent,
            self.simulated.remote_percent,
            self.otherwise,
        )
    }

    fn completions(&self, at: usize) -> Vec<f64> {
        let mut times: Vec<f64> = self.jobs.iter().map(|pair| pair[at].completion_s).collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

/// All tables. Times are the paper's seconds: what was measured here, times the time scale.
pub fn text(compared: &[Compared], plan: &Plan) -> String {
    let scenario = plan.scenario();
    let [makespans, violations] = tables(compared, &scenario, plan.time_scale);
    [
        format!(
            "{} jobs on {} machines, time scale {}, seed {}\n",
            plan.jobs, scenario.machines, plan.time_scale, plan.seed
        ),
        align(&makespans),
        align(&violations),
        align(&worth(compared)),
        align(&quantiles(compared, plan.time_scale)),
    ]
    .join("\n")
}

fn header(names: &[&str]) -> Vec<Vec<String>> {
    vec![names.iter().map(|name| (*name).to_owned()).collect()]
}

fn known(value: f64, shown: impl Fn(f64) -> String) -> String {
    if value.is_finite() { shown(value) } else { "–".into() }
}

/// Tables 2 and 3.
fn tables(compared: &[Compared], scenario: &Scenario, time_scale: f64) -> [Vec<Vec<String>>; 2] {
    let mut makespans = header(&[
        "makespan",
        "published",
        "simulated",
        "live",
        "Firmament's by this: published",
        "simulated",
        "live",
    ]);
    let mut violations = header(&["missed objectives", "published", "simulated", "live"]);
    let firmament = compared.iter().find(|one| one.policy == 0);
    let published = scenario.makespan_ratio.iter().any(|ratio| ratio.is_finite());
    for one in compared {
        let ratio = |of: fn(&Compared) -> f64| {
            firmament.map_or("–".to_owned(), |firmament| format!("{:.2}", of(firmament) / of(one)))
        };
        let seconds = |seconds: f64| format!("{seconds:.1} s");
        makespans.push(vec![
            POLICIES[one.policy].to_owned(),
            known(scenario.makespan_s[one.policy], seconds),
            seconds(one.simulated.makespan_s * time_scale),
            seconds(one.lived.makespan_s * time_scale),
            match one.policy {
                0 => "1.00".to_owned(),
                policy => known(scenario.makespan_ratio[policy - 1], |ratio| format!("{ratio:.2}")),
            },
            ratio(|one| one.simulated.makespan_s),
            ratio(|one| one.lived.makespan_s),
        ]);
        violations.push(vec![
            POLICIES[one.policy].to_owned(),
            if published { scenario.violations[one.policy].to_string() } else { "–".into() },
            one.simulated.violations.to_string(),
            one.lived.violations.to_string(),
        ]);
    }
    [makespans, violations]
}

/// What the simulator is worth.
fn worth(compared: &[Compared]) -> Vec<Vec<String>> {
    let mut rows = header(&[
        "|live − simulated| / live",
        "run time, mean ± deviation",
        "completion, mean ± deviation",
        "makespan",
        "remote, live",
        "simulated",
        "GPUs given, live",
        "simulated",
        "otherwise than planned",
    ]);
    let percent = |part: f64| format!("{:.1}%", 100.0 * part);
    for one in compared {
        let both = |(mean, deviation): (f64, f64)| format!("{} ± {}", percent(mean), percent(deviation));
        let makespan = (one.lived.makespan_s - one.simulated.makespan_s).abs() / one.lived.makespan_s;
        rows.push(vec![
            POLICIES[one.policy].to_owned(),
            both(one.error(|times| times.run_s)),
            both(one.error(|times| times.completion_s)),
            percent(makespan),
            format!("{:.1}%", one.lived.remote_percent),
            format!("{:.1}%", one.simulated.remote_percent),
            format!("{:.1}%", one.lived.gpu_percent),
            format!("{:.1}%", one.simulated.gpu_percent),
            one.otherwise.to_string(),
        ]);
    }
    rows
}

/// Completion times, from submission to end.
fn quantiles(compared: &[Compared], time_scale: f64) -> Vec<Vec<String>> {
    let parts = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0];
    let mut rows = header(&["completion times [s]", "10%", "25%", "50%", "75%", "90%", "100%"]);
    for one in compared {
        for (at, kind) in ["simulated", "live"].into_iter().enumerate() {
            let times = one.completions(at);
            let mut row = vec![format!("{}, {kind}", POLICIES[one.policy])];
            row.extend(parts.map(|part| format!("{:.1}", quantile(&times, part) * time_scale)));
            rows.push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_simulator::papers::drmaestro::{SCENARIOS, cluster};
    use rgpu_simulator::{Applications, Micros};

    /// A simulation beside what a cluster would have done in which every job takes a quarter longer.
    fn compared(policy: usize) -> Compared {
        let scenario = SCENARIOS[0];
        let experiment =
            Experiment::new(&scenario, cluster(4).unwrap(), Applications::rodinia(), 1.0, 1).unwrap();
        let (simulated, _) = experiment.simulate(policy, 1, None, &|_| {}).unwrap();
        let mut outcome = simulated.clone();
        for job in &mut outcome.jobs {
            let run = job.run().unwrap().seconds();
            job.end = Some(job.start.unwrap().after(Micros::from_seconds(1.25 * run)));
        }
        Compared::new(policy, &experiment, simulated, Lived { outcome, otherwise: 3 })
    }

    #[test]
    fn errors_are_relative_to_what_happened() {
        let one = compared(1);
        let (mean, deviation) = one.error(|times| times.run_s);
        assert!((mean - 0.2).abs() < 1e-4 && deviation < 1e-4, "{mean} {deviation}");
        let (completion, _) = one.error(|times| times.completion_s);
        assert!(completion > 0.0 && completion < 0.2, "{completion}");
        assert_eq!(one.jobs.len(), 128);
    }

    #[test]
    fn the_tables_show_what_was_published_where_something_was() {
        let plan =
            |jobs| Plan { jobs, time_scale: 2.0, link_mbps: 200, seed: 1, policies: vec![0, 1], repeats: 1 };
        let both = [compared(0), compared(1)];
        let shown = text(&both, &plan(128));
        for expected in ["1145.2 s", "760.5 s", "1.50", "106", "117", "20.0% ± 0.0%"] {
            assert!(shown.contains(expected), "{expected}:\n{shown}");
        }
        let unpublished = text(&both, &plan(16));
        assert!(!unpublished.contains("1145") && unpublished.contains('–'), "{unpublished}");
    }
}
