//! A communicator's thread: its ranks come together, and then it does what the communicator is given.

use std::sync::Arc;

use rgpu_collectives::{Failure as F, Group, ID_BYTES, Joining, Memory, UniqueId};
use rgpu_device::Ordinal;
use rgpu_remote::threads::spawn_quiet;

use super::comm::{Comm, Phase, Task};
use super::setup;
use super::status::{Failure, Status};
use crate::core::{Code, Core, Direction, Error, Stream, Wait, current, error};

/// Starts the communicator's thread.
pub(super) fn start(comm: Arc<Comm>, joining: Joining) {
    let of = comm.clone();
    let started = spawn_quiet("rgpu-nccl", move || {
        error::guard_value((), || work(&of, &joining));
        // However it ended, nobody waits for it any more.
        of.drop_jobs();
        of.change(|state| {
            state.phase = Phase::Ended;
            let why = || Failure { status: Status::InternalError, why: "its thread has ended".into() };
            if !state.finalized {
                state.failure.get_or_insert_with(why);
            }
        });
    });
    if let Err(e) = started {
        comm.change(|state| {
            let why = format!("The communicator's thread cannot be started: {e}");
            state.failure = Some(Failure { status: Status::SystemError, why });
            state.phase = Phase::Ended;
        });
    }
}

fn work(comm: &Comm, joining: &Joining) {
    let joined = Group::join(joining, &comm.stop).map_err(Failure::from).and_then(|group| {
        let core = current()?;
        Ok((group, core, core.stream_create(&comm.context, 1, 0)?))
    });
    let (mut group, core, stream) = match joined {
        Ok(joined) => joined,
        Err(failure) => {
            if !comm.stop.is_raised() {
                error::say(&format!("ncclCommInitRank, rank {}: {}", joining.rank, failure.why));
            }
            return comm.fail(failure);
        }
    };
    comm.change(|state| {
        state.place = (group.rank(), group.ranks());
        state.phase = Phase::Ready;
    });
    let mut memory = DeviceMemory { core, stream: stream.clone() };
    while let Some((task, holds)) = comm.next() {
        let result = perform(&mut group, task, &mut memory, comm.context.ordinal);
        if let Err(failure) = result {
            report(comm, core, joining.rank, failure);
        }
        // Whoever waits for the stream shall find the failure.
        drop(holds);
        comm.done();
    }
    drop(group);
    if comm.context.is_alive() {
        let _ = core.stream_destroy(stream.raw);
    }
}

/// Says what has put an end to the communicator: to people, to who asks it, and to who waits for the device.
fn report(comm: &Comm, core: &Core, rank: u32, failure: F) {
    if failure == F::Stopped {
        return;
    }
    error::say(&format!("NCCL, rank {rank}: {failure}"));
    let message = format!("A collective operation has failed: {failure}");
    core.note_asynchronous(comm.context.ordinal, Error::new(Code::Unknown, message));
    comm.fail(failure.into());
}

fn perform(group: &mut Group, task: Task, memory: &mut DeviceMemory, device: Ordinal) -> Result<(), F> {
    match task {
        Task::Operations(works, transfers) => {
            works.iter().try_for_each(|work| group.perform(work, memory))?;
            if transfers.is_empty() { Ok(()) } else { group.transfer(&transfers, memory) }
        }
        Task::Split { color, key, child } => {
            let made = split(group, (color, key), child.is_some(), device);
            handed_on(child, made)
        }
        Task::Shrink { members, child } => {
            let made = meeting_of(group, &members, device).map(Some);
            handed_on(Some(child), made)
        }
    }
}

/// Starts what came of a communicator, or tells it that nothing did.
fn handed_on(child: Option<Arc<Comm>>, made: Result<Option<Joining>, F>) -> Result<(), F> {
    match (child, made) {
        (Some(child), Ok(Some(joining))) => {
            start(child, joining);
            Ok(())
        }
        (Some(child), Ok(None)) => {
            child.never_began("It has no ranks");
            Ok(())
        }
        (child, Err(failure)) => {
            if let Some(child) = child {
                child.never_began(&failure.to_string());
            }
            Err(failure)
        }
        (None, Ok(_)) => Ok(()),
    }
}

/// Finds the ranks of this color, and where they meet.
fn split(
    group: &mut Group,
    (color, key): (i32, i32),
    takes_part: bool,
    device: Ordinal,
) -> Result<Option<Joining>, F> {
    let mut mine = [0; 8];
    mine[..4].copy_from_slice(&color.to_le_bytes());
    mine[4..].copy_from_slice(&key.to_le_bytes());
    let all = group.tell_all(0, &mine)?;
    let number = |bytes: &[u8], at: usize| i32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let mut members: Vec<(i32, u32)> = (0..)
        .zip(&all)
        .filter(|(_, bytes)| takes_part && number(bytes, 0) == color)
        .map(|(rank, bytes)| (number(bytes, 4), rank))
        .collect();
    members.sort_unstable();
    // All take part in telling, those without a color, too.
    let leads = members.first().is_some_and(|(_, rank)| *rank == group.rank());
    let id = if leads { setup::announced()?.to_bytes() } else { [0; ID_BYTES] };
    let ids = group.tell_all(1, &id)?;
    let Some((_, leader)) = members.first() else { return Ok(None) };
    let id = parsed(&ids[*leader as usize])?;
    let own = members.iter().position(|(_, rank)| *rank == group.rank());
    Ok(own.map(|own| setup::joining(id, own as u32, members.len() as u32, device)))
}

/// Where these ranks meet, of which this is one.
fn meeting_of(group: &mut Group, members: &[u32], device: Ordinal) -> Result<Joining, F> {
    let leads = members.first() == Some(&group.rank());
    let mut id = if leads { setup::announced()?.to_bytes() } else { [0; ID_BYTES] };
    group.tell(members, &mut id)?;
    let own = members.iter().position(|rank| *rank == group.rank()).unwrap_or(0);
    Ok(setup::joining(parsed(&id)?, own as u32, members.len() as u32, device))
}

fn parsed(bytes: &[u8]) -> Result<UniqueId, F> {
    UniqueId::parse(bytes).ok_or_else(|| F::Disagreement("A rank's id makes no sense".into()))
}

/// A device's memory, and whatever else its kernels could use.
struct DeviceMemory {
    core: &'static Core,
    stream: Arc<Stream>,
}

impl DeviceMemory {
    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), String> {
        let copied = self.core.copy(&self.stream, to, from, bytes as u64, Direction::Infer, Wait::Sync);
        copied.map_err(|error| error.to_string())
    }
}

impl Memory for DeviceMemory {
    fn read(&mut self, from: u64, to: &mut [u8]) -> Result<(), String> {
        self.copy(to.as_mut_ptr() as u64, from, to.len())
    }

    fn write(&mut self, to: u64, from: &[u8]) -> Result<(), String> {
        self.copy(to, from.as_ptr() as u64, from.len())?;
        // What was sent is there when the stream is told so; the program's stream goes on after that.
        self.core.stream_synchronize(&self.stream).map_err(|error| error.to_string())
    }
}
