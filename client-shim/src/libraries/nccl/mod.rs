//! The NCCL door: collective operations among ranks, each of which is a device of some program's.
//!
//! Ranks exchange what they have [in the programs' processes](rgpu_collectives), whatever their devices are and
//! wherever: threads of one process, processes with a device inside, with sessions at one server or at several. So
//! nothing is asked of a device but copies.
//!
//! A communicator has a thread here. An operation is put on the program's stream as a host function that does nothing
//! but hold the stream ([`Core::hold`](crate::core::Core::hold)) and tell the thread. That reads the operation's
//! memory, exchanges and writes, in a stream of its own, and lets go of the program's. So the thread of host
//! functions never waits for a peer; an operation of any size needs little memory of the host's; and one thread of a
//! program can drive several ranks.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `comm` | communicators: their state, their operations in order |
//! | `worker` | the communicator's thread |
//! | `group` | what is between `ncclGroupStart` and `ncclGroupEnd` |
//! | `setup` | how communicators are made |
//! | `queries` | what they tell of themselves, and how they end |
//! | `collectives` | the operations' arguments |
//! | `windows` | memory that is registered as a window |

#![allow(non_snake_case)]

mod collectives;
mod comm;
mod group;
mod memory;
mod operators;
mod queries;
mod setup;
mod status;
mod table;
mod windows;
mod worker;

use super::Door;
use crate::doors::table::Address;

/// The version whose interface this is.
const VERSION: i32 = 23007;

/// The door.
pub(super) const DOOR: Door = Door {
    name: "nccl",
    table: table::TABLE,
    prefixes: &["nccl", "pnccl"],
    // Profilers' names for the same functions.
    row_name: |function| function.strip_prefix('p').unwrap_or(function),
    kept: &[],
    unknown: Address(unknown as *const ()),
};

extern "C" fn unknown() -> u32 {
    status::refuse("A function of NCCL that is not known here")
}
