//! One pass over waiting jobs: batch by batch, in their order.

use std::collections::HashMap;

use super::view::View;
use super::{phases, solo};
use crate::error::Error;
use crate::job::{Job, Task};
use crate::placement::Placement;
use crate::policy::{Decisions, Reason};
use crate::queue::Waiting;

/// Jobs in one batch, as a rule. More would find slightly cheaper placements in great crowds, in much more time.
pub(super) const BATCH: usize = 512;

/// Jobs that are the same to the model.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Class<'a> {
    tasks: &'a [Task],
    profile: u32,
    numbers: [u64; 3],
}

impl<'a> Class<'a> {
    pub(super) fn of(job: &'a Job) -> Class<'a> {
        let goal = job.goal_s.unwrap_or(0.0);
        Class {
            tasks: &job.tasks,
            profile: job.profile.0,
            numbers: [job.scale.to_bits(), goal.to_bits(), job.importance.to_bits()],
        }
    }
}

/// Places what it can, in `decisions`; the others come back in their order, each with the reason. A batch has up to so many
/// jobs; with one, each job takes what is best for it, and none can come before one that stands before it.
pub(super) fn run<'w>(
    view: &mut View<'_>,
    waiting: impl IntoIterator<Item = &'w Waiting>,
    most: usize,
    decisions: &mut Decisions,
) -> Result<Vec<(&'w Waiting, Reason)>, Error> {
    // Why a class was left, and after how many rounds of waiting: who waited less needn't try again, because
    // during a pass, resources get only scarcer and the network only busier.
    let mut given_up: HashMap<Class<'_>, (Reason, u32)> = HashMap::new();
    let mut left = Vec::new();
    let mut rest = waiting.into_iter();
    loop {
        let mut batch: Vec<&Waiting> = Vec::new();
        let mut budget = view.budget();
        for waiting in rest.by_ref() {
            if let Some((reason, rounds)) = given_up.get(&Class::of(&waiting.job))
                && waiting.rounds <= *rounds
            {
                left.push((waiting, reason.clone()));
                continue;
            }
            if !view.plenty(&waiting.job) {
                given_up.insert(Class::of(&waiting.job), (Reason::NoRoom, u32::MAX));
                left.push((waiting, Reason::NoRoom));
                continue;
            }
            budget.spend(&waiting.job);
            batch.push(waiting);
            if batch.len() >= most || budget.is_spent() {
                break;
            }
        }
        if batch.is_empty() {
            return Ok(left);
        }
        let mut outcomes: Vec<Option<Placement>> = vec![None; batch.len()];
        if batch.len() > 1 || batch[0].job.tasks.len() > 1 {
            phases::place(view, &batch, &mut outcomes)?;
        }
        for (waiting, outcome) in batch.into_iter().zip(outcomes) {
            let job = &waiting.job;
            let class = Class::of(job);
            let placed = match (outcome, given_up.get(&class)) {
                (Some(placement), _) => Ok(placement),
                (None, Some((reason, rounds))) if waiting.rounds <= *rounds => Err(reason.clone()),
                (None, _) => solo::place(view, waiting),
            };
            match placed {
                Ok(placement) => decisions.placed.push((job.id, placement)),
                Err(reason) => {
                    let rounds = match reason {
                        Reason::Postponed { .. } | Reason::Disturbing => waiting.rounds,
                        _ => u32::MAX,
                    };
                    given_up.insert(class, (reason.clone(), rounds));
                    left.push((waiting, reason));
                }
            }
        }
    }
}
