//! What communicators tell of themselves, and how they end.

use std::ffi::c_char;

use super::VERSION;
use super::comm::{self, Phase};
use super::status::{self, Out, Result, Status, fail, invalid, nccl};
use crate::abi::c_functions;
use crate::core::registry;

/// Number of `ncclCommMemStat_t`s.
const MEMORY_STATISTICS: u32 = 4;

/// Stores a number that a communicator has once its ranks have come together.
fn tell(comm: usize, out: Out<i32>, of: impl Fn((u32, u32)) -> u32) -> Result<()> {
    let comm = comm::get(comm)?;
    let state = comm.state();
    if state.phase == Phase::Starting {
        return invalid("The communicator is not ready yet");
    }
    out.set(of(state.place) as i32)
}

nccl! {
    fn ncclGetVersion(version: Out<i32>) {
        version.set(VERSION)
    }

    fn ncclCommCount(comm: usize, count: Out<i32>) {
        tell(comm, count, |(_, ranks)| ranks)
    }

    fn ncclCommUserRank(comm: usize, rank: Out<i32>) {
        tell(comm, rank, |(rank, _)| rank)
    }

    fn ncclCommCuDevice(comm: usize, device: Out<i32>) {
        let ordinal = comm::get(comm)?.context.ordinal;
        tell(comm, device, |_| ordinal)
    }

    fn ncclCommGetAsyncError(comm: usize, error: Out<u32>) {
        let comm = comm::get(comm)?;
        let state = comm.state();
        error.set(match (&state.failure, state.phase) {
            (Some(failure), _) => failure.status as u32,
            (None, Phase::Starting) => Status::InProgress as u32,
            (None, _) => 0,
        })
    }

    /// What was called is done when this returns.
    fn ncclCommFinalize(comm: usize) {
        let comm = comm::get(comm)?;
        comm.check()?;
        comm.change(|state| state.finalized = true);
        comm.flush();
        let failure = comm.state().failure.clone();
        failure.map_or(Ok(()), Err)
    }

    /// Work that was called is done to its end, as far as the others take part.
    fn ncclCommDestroy(comm: usize) {
        if comm == 0 {
            return Ok(());
        }
        let comm = comm::get(comm)?;
        comm.change(|state| state.finalized = true);
        comm.close();
        Ok(())
    }

    fn ncclCommAbort(comm: usize) {
        if comm == 0 {
            return Ok(());
        }
        comm::get(comm)?.abort();
        Ok(())
    }

    /// All memory may be used as it is, so there is nothing to remember.
    fn ncclCommRegister(comm: usize, buffer: *mut u8, size: usize, handle: Out<usize>) {
        comm::get(comm)?;
        if buffer.is_null() || size == 0 {
            return invalid("There is nothing to register");
        }
        handle.set(registry::fresh())
    }

    fn ncclCommDeregister(comm: usize, _handle: usize) {
        comm::get(comm).map(drop)
    }

    /// Communicators take no memory of devices.
    fn ncclCommMemStats(comm: usize, statistic: u32, value: Out<u64>) {
        comm::get(comm)?;
        if statistic >= MEMORY_STATISTICS {
            return fail(Status::InvalidArgument, format!("There is no statistic {statistic}"));
        }
        value.set(0)
    }
}

c_functions! {
    /// Why a communicator has failed, or else the thread's last call that did.
    fn ncclGetLastError(comm: usize) -> *const c_char {
        let failure = comm::get(comm).ok().and_then(|comm| comm.state().failure.clone());
        status::told(&failure.map_or_else(status::last, |failure| failure.why))
    }
}
