//! Collective operations among processes, as NCCL has them, on the processor: how ranks find each other, and what
//! they send each other.
//!
//! Nothing here knows of CUDA. Whose memory it is that operations read and write says the caller ([`Memory`]).
//!
//! 1. One process [opens a rendezvous](rendezvous::announce): a listener for a limited time, and a [`UniqueId`] with its address and a
//!    secret. The program carries the id to all ranks.
//! 2. Each rank [joins](Group::join): it proves that it knows the secret, says where it listens itself, and is told where the others do.
//! 3. Each two ranks have a connection: TCP, or a pair of sockets within one process, so that one loop serves both. There, too, both
//!    prove that they know the secret.
//! 4. [`Group::perform`] does one operation. All ranks do the same ones in the same order; every message says which one it belongs to, and a
//!    rank that does another one is an error, not a wrong result.
//!
//! A reduction's elements are shared out: each rank gets its share from all others, adds it up in the order of ranks,
//! and sends it to all others. So each rank sends and receives as much as in a ring, in two steps instead of twice
//! the number of ranks; all ranks get the same bits; and they do not depend on how long the operation is. 16-bit
//! numbers are added in 32 bits and rounded once.
//!
//! What is sent is neither encrypted nor signed, as NCCL's is not.

mod element;
mod exchange;
mod failure;
mod group;
mod handshake;
mod id;
pub mod interfaces;
mod reduce;
pub mod rendezvous;
mod socket;
#[cfg(test)]
mod tests;
mod wait;
mod wire;
mod work;

pub use element::Element;
pub use failure::Failure;
pub use group::{Group, Joining};
pub use id::{ID_BYTES, UniqueId};
pub use reduce::{Factor, Operator, Reduction};
pub use wait::Stop;
pub use wire::{Entry, Header, Join, Process};
pub use work::{Memory, Transfer, Work};

/// The result of what may fail here.
pub type Result<T> = std::result::Result<T, Failure>;
