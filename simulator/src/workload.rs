//! Makes up jobs: kinds drawn from a mix, arrivals from a Poisson process.

use rgpu_placement::{Job, JobId, ProfileId, Rng, Task};

use crate::formats::{Applications, Submission};
use crate::statistics::{exponential, normal};
use crate::time::Micros;

/// How the kinds of jobs are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Each kind equally likely.
    Uniform,
    /// From a normal distribution over the kinds in their order: mean in the middle, a deviation of a quarter of them,
    /// drawn again when outside.
    Normal,
}

/// Jobs to be made up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// How many jobs are made up.
    pub jobs: usize,
    /// Arrivals a second, in the mean; infinite: all at the beginning.
    pub rate: f64,
    /// How kinds are drawn.
    pub mix: Mix,
    /// The objective of each job, as a multiple of the time that it takes alone; `None`: no objective.
    pub goal: Option<f64>,
    /// For the draws.
    pub seed: u64,
}

impl Workload {
    /// Makes the jobs up, one task each, of all applications in the table.
    pub fn generate(&self, applications: &Applications) -> Vec<Submission> {
        let mut rng = Rng::new(self.seed);
        let kinds = applications.applications.len();
        let mut at = 0.0;
        let mut jobs = Vec::with_capacity(self.jobs);
        for number in 0..self.jobs {
            let kind = self.mix.draw(kinds, &mut rng);
            let gap = exponential(&mut rng);
            if self.rate.is_finite() {
                at += gap / self.rate;
            }
            let profile = ProfileId(kind as u32);
            let name = format!("{}-{number}", applications.profiles.get(profile).name);
            let mut job = Job::new(JobId(number as u32), name, Task::default());
            job.tasks = vec![applications.applications[kind].task.clone()];
            job.profile = profile;
            job.submit_s = Micros::from_seconds(at).seconds();
            job.goal_s = self.goal.map(|goal| applications.profiles.get(profile).local_s * goal);
            jobs.push(Submission::new(job, &applications.profiles));
        }
        jobs
    }
}

/// Gives the jobs new arrival times, in their order: a Poisson process.
pub fn poisson_arrivals(jobs: &mut [Submission], rate: f64, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut at = 0.0;
    for submission in jobs {
        at += exponential(&mut rng) / rate;
        submission.at = Micros::from_seconds(at);
        submission.job.submit_s = submission.at.seconds();
    }
}

impl Mix {
    fn draw(self, kinds: usize, rng: &mut Rng) -> usize {
        match self {
            Mix::Uniform => rng.below(kinds as u64) as usize,
            Mix::Normal => loop {
                let middle = (kinds as f64 - 1.0) / 2.0;
                let drawn = (middle + normal(rng) * kinds as f64 / 4.0).round();
                if (0.0..kinds as f64).contains(&drawn) {
                    return drawn as usize;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(mix: Mix) -> Vec<Submission> {
        Workload { jobs: 8000, rate: 16.0, mix, goal: Some(1.05), seed: 3 }.generate(&Applications::rodinia())
    }

    #[test]
    fn arrivals_and_kinds_are_as_asked_for() {
        for mix in [Mix::Uniform, Mix::Normal] {
            let jobs = workload(mix);
            assert_eq!(jobs, workload(mix));
            assert!((jobs[7999].at.seconds() - 500.0).abs() < 20.0);
            assert!(jobs.windows(2).all(|pair| pair[0].at <= pair[1].at));
            let count = |kind| jobs.iter().filter(|job| job.job.profile == ProfileId(kind)).count();
            let ends = count(0) + count(7);
            match mix {
                Mix::Uniform => assert!((1800..2200).contains(&ends), "{ends}"),
                Mix::Normal => assert!((500..1300).contains(&ends) && count(3) > 1300, "{ends}"),
            }
        }
    }
}
