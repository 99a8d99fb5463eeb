//! What is between `ncclGroupStart` and `ncclGroupEnd`: it begins together.

use std::cell::RefCell;
use std::sync::Arc;

use rgpu_collectives::{Transfer, Work};

use super::comm::{Comm, Task};
use super::status::{Failure, Result, Status, fail, missing, nccl};
use crate::core::Stream;

/// Something that a communicator is to do.
pub(super) enum Action {
    /// An operation of all ranks.
    Operation(Work),
    /// A message.
    Message(Transfer),
}

/// An action, and the stream that it is put on.
struct Call {
    comm: Arc<Comm>,
    stream: Arc<Stream>,
    action: Action,
}

/// What a thread has called since the outermost `ncclGroupStart`.
#[derive(Default)]
struct Pending {
    depth: u32,
    calls: Vec<Call>,
    /// Communicators whose ranks come together.
    starting: Vec<Arc<Comm>>,
    /// The first call that failed.
    failure: Option<Failure>,
}

thread_local! {
    /// Groups are the thread's, by NCCL's rules.
    static PENDING: RefCell<Pending> = RefCell::default();
}

fn with<T>(body: impl FnOnce(&mut Pending) -> T) -> Result<T> {
    PENDING
        .try_with(|pending| body(&mut pending.borrow_mut()))
        .map_err(|_| Failure { status: Status::InvalidUsage, why: "The thread is ending".into() })
}

/// Notes a call's failure, so that the end of its group tells of it, too.
pub(super) fn noting<T>(result: Result<T>) -> Result<T> {
    if let Err(failure) = &result {
        let _ = with(|pending| {
            if pending.depth > 0 && failure.status != Status::InProgress {
                pending.failure.get_or_insert_with(|| failure.clone());
            }
        });
    }
    result
}

/// Has a communicator do something: now, or at the end of the group.
pub(super) fn call(comm: Arc<Comm>, stream: Arc<Stream>, action: Action) -> Result<()> {
    let call = Call { comm, stream, action };
    let now = with(|pending| {
        if pending.depth == 0 {
            return Some(call);
        }
        pending.calls.push(call);
        None
    })?;
    now.map_or(Ok(()), |call| submit(vec![call]))
}

/// A communicator's ranks are coming together: waits for that now, or at the end of the group.
pub(super) fn started(comm: Arc<Comm>) -> Result<()> {
    let now = with(|pending| {
        if pending.depth == 0 {
            return Some(comm);
        }
        pending.starting.push(comm);
        None
    })?;
    now.map_or(Ok(()), |comm| await_all(&[comm]))
}

fn await_all(comms: &[Arc<Comm>]) -> Result<()> {
    let (blocking, others): (Vec<_>, Vec<_>) = comms.iter().partition(|comm| comm.blocking);
    // All of them, whatever becomes of the first.
    let results: Vec<_> = blocking.into_iter().map(|comm| comm.await_ready()).collect();
    results.into_iter().collect::<Result<()>>()?;
    if others.is_empty() { Ok(()) } else { fail(Status::InProgress, "Ranks are coming together") }
}

/// Gives each communicator what it is to do, as one job.
fn submit(calls: Vec<Call>) -> Result<()> {
    struct Part {
        comm: Arc<Comm>,
        streams: Vec<Arc<Stream>>,
        operations: Vec<Work>,
        messages: Vec<Transfer>,
    }
    let mut parts: Vec<Part> = Vec::new();
    for Call { comm, stream, action } in calls {
        let known = parts.iter().position(|part| Arc::ptr_eq(&part.comm, &comm));
        let at = known.unwrap_or_else(|| {
            parts.push(Part { comm, streams: Vec::new(), operations: Vec::new(), messages: Vec::new() });
            parts.len() - 1
        });
        let part = &mut parts[at];
        if !part.streams.iter().any(|known| known.handle == stream.handle) {
            part.streams.push(stream);
        }
        match action {
            Action::Operation(work) => part.operations.push(work),
            Action::Message(transfer) => part.messages.push(transfer),
        }
    }
    parts.into_iter().try_for_each(|part| {
        part.comm.enqueue(Task::Operations(part.operations, part.messages), &part.streams)
    })
}

/// Leaves a group; yields what was called in it if it was the outermost.
fn leave() -> Result<Option<Pending>> {
    with(|pending| match pending.depth {
        0 => fail(Status::InvalidUsage, "There is no group to end"),
        1 => Ok(Some(std::mem::take(pending))),
        _ => {
            pending.depth -= 1;
            Ok(None)
        }
    })?
}

nccl! {
    fn ncclGroupStart() {
        with(|pending| pending.depth += 1)
    }

    fn ncclGroupEnd() {
        let Some(pending) = leave()? else { return Ok(()) };
        if let Some(failure) = pending.failure {
            // What has begun to come together is waited for: the others do.
            let _ = await_all(&pending.starting);
            return Err(failure);
        }
        let ready = await_all(&pending.starting);
        submit(pending.calls)?;
        ready
    }

    /// Nothing is known of how long a group takes. The group ends, and nothing of it is done.
    fn ncclGroupSimulateEnd(_info: *mut u8) {
        leave()?;
        missing("ncclGroupSimulateEnd")
    }
}
