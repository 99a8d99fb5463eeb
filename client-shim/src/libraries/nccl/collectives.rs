//! The operations' arguments.

use std::sync::Arc;

use rgpu_collectives::{Transfer, Work};

use super::comm::{self, Comm};
use super::group::{self, Action};
use super::memory::check;
use super::operators::{element, reduction};
use super::status::{Failure, Result, Status, fail, invalid, nccl};
use crate::core::{Stream, current};
use crate::graph::capture;

/// A call on a communicator and a stream.
struct Call {
    comm: Arc<Comm>,
    stream: Arc<Stream>,
    ranks: u32,
    own: u32,
}

impl Call {
    fn on(comm: usize, stream: usize) -> Result<Self> {
        let comm = comm::get(comm)?;
        comm.check()?;
        let stream = current()?.stream(&comm.context, stream, false)?;
        if stream.ordinal != comm.context.ordinal {
            return invalid(format!(
                "The stream is of device {}, the communicator of {}",
                stream.ordinal, comm.context.ordinal
            ));
        }
        if capture::is_capturing(&*stream) {
            let why = "NCCL's operations cannot be captured into graphs here";
            crate::core::error::say_once(why);
            return fail(Status::InvalidUsage, why);
        }
        let (own, ranks) = comm.state().place;
        Ok(Self { comm, stream, ranks, own })
    }

    /// So many bytes of so many elements, and of all ranks' if `all` says so.
    fn bytes(&self, count: usize, kind: u32, all: bool) -> Result<u64> {
        let ranks = if all { u64::from(self.ranks) } else { 1 };
        let bytes =
            (count as u64).checked_mul(element(kind)?.bytes() as u64).and_then(|n| n.checked_mul(ranks));
        bytes.filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or_else(|| Failure {
            status: Status::InvalidArgument,
            why: format!("{count} elements are more than there are addresses"),
        })
    }

    fn rank(&self, what: &str, rank: i32) -> Result<u32> {
        let found = u32::try_from(rank).ok().filter(|rank| *rank < self.ranks);
        found.map_or_else(|| invalid(format!("The {what} {rank} of {} ranks", self.ranks)), Ok)
    }

    fn check(&self, what: &str, addr: usize, bytes: u64) -> Result<()> {
        check(&self.comm, what, addr, bytes)
    }

    /// Has it done, now or with the group. Nothing is nothing to wait for, too.
    fn perform(self, count: usize, action: Action) -> Result<()> {
        if count == 0 { Ok(()) } else { group::call(self.comm, self.stream, action) }
    }

    fn operation(self, count: usize, work: Work) -> Result<()> {
        self.perform(count, Action::Operation(work))
    }

    fn message(self, is_send: bool, addr: usize, count: usize, kind: u32, peer: i32) -> Result<()> {
        let (peer, bytes) = (self.rank("peer", peer)?, self.bytes(count, kind, false)?);
        self.check(if is_send { "sendbuff" } else { "recvbuff" }, addr, bytes)?;
        self.perform(count, Action::Message(Transfer { is_send, peer, addr: addr as u64, bytes }))
    }
}

/// Has all get what the root has.
fn broadcast(call: Call, send: usize, recv: usize, count: usize, kind: u32, root: i32) -> Result<()> {
    let (root, bytes) = (call.rank("root", root)?, call.bytes(count, kind, false)?);
    if root == call.own {
        call.check("sendbuff", send, bytes)?;
    }
    call.check("recvbuff", recv, bytes)?;
    call.operation(count, Work::Broadcast { send: send as u64, recv: recv as u64, bytes, root })
}

/// Defines operations: their arguments, and what is done with a call that can be made.
macro_rules! operations {
    ($($name:ident($($arg:ident: $type:ty),*) |$call:ident| $body:block)*) => {
        nccl! {$(
            fn $name($($arg: $type,)* comm: usize, stream: usize) {
                group::noting(Call::on(comm, stream).and_then(|$call| $body))
            }
        )*}
    };
}

operations! {
    ncclAllReduce(send: usize, recv: usize, count: usize, kind: u32, operator: u32) |call| {
        let bytes = call.bytes(count, kind, false)?;
        let reduction = reduction(&call.comm, kind, operator)?;
        call.check("sendbuff", send, bytes)?;
        call.check("recvbuff", recv, bytes)?;
        let (send, recv) = (send as u64, recv as u64);
        call.operation(count, Work::AllReduce { send, recv, count: count as u64, reduction })
    }

    ncclReduce(send: usize, recv: usize, count: usize, kind: u32, operator: u32, root: i32) |call| {
        let (root, bytes) = (call.rank("root", root)?, call.bytes(count, kind, false)?);
        let reduction = reduction(&call.comm, kind, operator)?;
        call.check("sendbuff", send, bytes)?;
        if root == call.own {
            call.check("recvbuff", recv, bytes)?;
        }
        let (send, recv) = (send as u64, recv as u64);
        call.operation(count, Work::Reduce { send, recv, count: count as u64, reduction, root })
    }

    ncclReduceScatter(send: usize, recv: usize, count: usize, kind: u32, operator: u32) |call| {
        let (all, bytes) = (call.bytes(count, kind, true)?, call.bytes(count, kind, false)?);
        let reduction = reduction(&call.comm, kind, operator)?;
        call.check("sendbuff", send, all)?;
        call.check("recvbuff", recv, bytes)?;
        let (send, recv) = (send as u64, recv as u64);
        call.operation(count, Work::ReduceScatter { send, recv, count: count as u64, reduction })
    }

    ncclBroadcast(send: usize, recv: usize, count: usize, kind: u32, root: i32) |call| {
        broadcast(call, send, recv, count, kind, root)
    }

    ncclBcast(buffer: usize, count: usize, kind: u32, root: i32) |call| {
        broadcast(call, buffer, buffer, count, kind, root)
    }

    ncclAllGather(send: usize, recv: usize, count: usize, kind: u32) |call| {
        let (all, bytes) = (call.bytes(count, kind, true)?, call.bytes(count, kind, false)?);
        call.check("sendbuff", send, bytes)?;
        call.check("recvbuff", recv, all)?;
        call.operation(count, Work::AllGather { send: send as u64, recv: recv as u64, bytes })
    }

    ncclAlltoAll(send: usize, recv: usize, count: usize, kind: u32) |call| {
        let (all, bytes) = (call.bytes(count, kind, true)?, call.bytes(count, kind, false)?);
        call.check("sendbuff", send, all)?;
        call.check("recvbuff", recv, all)?;
        if send == recv && count > 0 {
            return invalid("AlltoAll has no form in place");
        }
        call.operation(count, Work::AllToAll { send: send as u64, recv: recv as u64, bytes })
    }

    ncclGather(send: usize, recv: usize, count: usize, kind: u32, root: i32) |call| {
        let (all, bytes) = (call.bytes(count, kind, true)?, call.bytes(count, kind, false)?);
        let root = call.rank("root", root)?;
        call.check("sendbuff", send, bytes)?;
        if root == call.own {
            call.check("recvbuff", recv, all)?;
        }
        call.operation(count, Work::Gather { send: send as u64, recv: recv as u64, bytes, root })
    }

    ncclScatter(send: usize, recv: usize, count: usize, kind: u32, root: i32) |call| {
        let (all, bytes) = (call.bytes(count, kind, true)?, call.bytes(count, kind, false)?);
        let root = call.rank("root", root)?;
        if root == call.own {
            call.check("sendbuff", send, all)?;
        }
        call.check("recvbuff", recv, bytes)?;
        call.operation(count, Work::Scatter { send: send as u64, recv: recv as u64, bytes, root })
    }

    ncclSend(send: usize, count: usize, kind: u32, peer: i32) |call| {
        call.message(true, send, count, kind, peer)
    }

    ncclRecv(recv: usize, count: usize, kind: u32, peer: i32) |call| {
        call.message(false, recv, count, kind, peer)
    }
}
