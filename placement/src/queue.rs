//! Jobs that wait, the longest waiting first, so that none starves.

use std::collections::HashMap;
use std::sync::Arc;

use crate::decisions::Decisions;
use crate::error::Error;
use crate::ids::JobId;
use crate::job::Job;

/// A waiting job.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The job as it was submitted.
    pub job: Arc<Job>,
    /// In how many rounds it was left unscheduled: the paper's counter W of equation 8.
    pub rounds: u32,
}

/// The jobs that wait, in the order of their total waiting time (ties: of their numbers).
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Sorted by [`key`].
    waiting: Vec<Waiting>,
    names: HashMap<String, JobId>,
}

fn key(job: &Job) -> (u64, JobId) {
    // Times are finite and not negative, whose bits are ordered as they are.
    (job.submit_s.to_bits(), job.id)
}

impl Queue {
    /// An empty queue.
    pub fn new() -> Queue {
        Queue::default()
    }

    /// Adds a job (that [`Job::check`] finds right); one whose name or number waits already is refused.
    pub fn push(&mut self, job: Arc<Job>) -> Result<(), Error> {
        if self.names.contains_key(&job.name) {
            return Err(Error::Duplicate { what: "job", name: job.name.clone() });
        }
        // Arrivals come in order, as a rule.
        let at = match self.waiting.last() {
            Some(last) if key(&last.job) >= key(&job) => {
                self.waiting.partition_point(|w| key(&w.job) < key(&job))
            }
            _ => self.waiting.len(),
        };
        if self.waiting.get(at).is_some_and(|w| w.job.id == job.id) {
            return Err(Error::Duplicate { what: "job", name: format!("number {}", job.id.0) });
        }
        self.names.insert(job.name.clone(), job.id);
        self.waiting.insert(at, Waiting { job, rounds: 0 });
        Ok(())
    }

    /// Adds a job that was left in so many rounds already (of a queue that this one replaces).
    pub fn push_waited(&mut self, job: Arc<Job>, rounds: u32) -> Result<(), Error> {
        let key_of = key(&job);
        self.push(job)?;
        let at = self.waiting.partition_point(|w| key(&w.job) < key_of);
        self.waiting[at].rounds = rounds;
        Ok(())
    }

    /// The waiting jobs, the longest waiting first: what [`Policy::schedule`](crate::Policy::schedule) wants.
    pub fn waiting(&self) -> &[Waiting] {
        &self.waiting
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the placed jobs out; one more round waited is counted for each job that was left.
    pub fn apply(&mut self, decisions: &Decisions) {
        let sorted = |ids: &mut dyn Iterator<Item = JobId>| {
            let mut ids: Vec<JobId> = ids.collect();
            ids.sort_unstable();
            ids
        };
        let left = sorted(&mut decisions.left.iter().map(|(id, _)| *id));
        for waiting in &mut self.waiting {
            if left.binary_search(&waiting.job.id).is_ok() {
                waiting.rounds = waiting.rounds.saturating_add(1);
            }
        }
        if !decisions.placed.is_empty() {
            let placed = sorted(&mut decisions.placed.iter().map(|(id, _)| *id));
            self.take(|id| placed.binary_search(&id).is_ok());
        }
    }

    /// Takes one job out (cancelled, or placed by hand).
    pub fn remove(&mut self, id: JobId) -> Option<Arc<Job>> {
        let job = self.waiting.iter().find(|waiting| waiting.job.id == id).map(|w| w.job.clone());
        self.take(|other| other == id);
        job
    }

    fn take(&mut self, which: impl Fn(JobId) -> bool) {
        let names = &mut self.names;
        self.waiting.retain(|waiting| {
            let gone = which(waiting.job.id);
            if gone {
                names.remove(&waiting.job.name);
            }
            !gone
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::{Reason, Work};
    use crate::job::Task;

    fn job(id: u32, submit_s: f64) -> Arc<Job> {
        Arc::new(Job { submit_s, ..Job::new(JobId(id), format!("j{id}"), Task::default()) })
    }

    #[test]
    fn the_longest_waiting_comes_first() {
        let mut queue = Queue::new();
        for (id, submit) in [(2, 5.0), (1, 1.0), (3, 5.0), (0, 9.0)] {
            queue.push(job(id, submit)).unwrap();
        }
        let order: Vec<u32> = queue.waiting().iter().map(|w| w.job.id.0).collect();
        assert_eq!(order, [1, 2, 3, 0]);
        assert!(matches!(queue.push(job(3, 2.0)), Err(Error::Duplicate { .. })));
        assert_eq!(queue.len(), 4);
    }

    #[test]
    fn counts_rounds_and_takes_what_is_placed() {
        let mut queue = Queue::new();
        queue.push(job(0, 0.0)).unwrap();
        queue.push(job(1, 0.0)).unwrap();
        let decisions = Decisions {
            placed: vec![(JobId(0), crate::Placement { tasks: Vec::new() })],
            left: vec![(JobId(1), Reason::NoRoom)],
            work: Work::default(),
        };
        queue.apply(&decisions);
        queue.apply(&Decisions { placed: Vec::new(), ..decisions });
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.waiting()[0].rounds, 2);
        assert_eq!(queue.remove(JobId(1)).unwrap().name, "j1");
        assert!(queue.remove(JobId(1)).is_none());
        queue.push(job(0, 3.0)).unwrap();
        queue.push_waited(job(2, 1.0), 7).unwrap();
        assert_eq!(queue.waiting().iter().map(|w| w.rounds).collect::<Vec<_>>(), [7, 0]);
    }
}
