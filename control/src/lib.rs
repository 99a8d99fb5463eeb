//! The control plane's contract: what the broker, the servers and the clients must agree on.
//!
//! - [`api`]: the bodies of the broker's REST API, and [`api::paths`], where they go.
//! - [`token`]: Ed25519 keys and what is signed with them. A *role token* says who somebody is towards the broker; a *lease
//!   token* says what a program may use, and is checked by servers without asking the broker.
//! - [`proof`]: what a program shows a server: a lease token, and the proof that it was issued to this program's holder.
//! - [`ticket`]: the file by which a program is told its lease.
//! - [`files`]: small files that several processes share.
//! - [`libraries`]: NVIDIA's libraries that `librgpu.so` stands in for.
//! - [`preload`]: how a program is made to load `librgpu.so`.
//! - [`request`]: requests for leases, and by what a broker knows a program again.
//! - [`settings`]: the environment variables that rgpu reads, and defaults that several crates must agree on.
//! - [`slurm`]: what the Slurm plugin and the commands that it runs agree on.
//! - [`units`]: sizes, times, rates and shares as people write them.
//! - [`Broker`] (feature `client`): the REST API, as blocking calls.
//!
//! Nothing here is on the data path. Times are seconds since 1970 (`u64`, UTC); memory is in bytes; shares of a device are
//! thousandths (1000 is a whole device); rates are Mbit/s (10^6 bits).

pub mod api;
#[cfg(feature = "client")]
mod client;
pub mod files;
mod id;
pub mod kept;
pub mod libraries;
pub mod memory;
pub mod preload;
pub mod proof;
pub mod request;
pub mod settings;
pub mod slurm;
pub mod ticket;
pub mod token;
pub mod units;

#[cfg(feature = "client")]
pub use client::{Broker, ClientError, Presented, Tls, presented};
pub use id::LeaseId;
pub use settings::{BROKER_TOKEN_VARIABLE, BROKER_VARIABLE, HARVEST_VARIABLE, LEASE_VARIABLE, NODE_VARIABLE};

/// Seconds since 1970.
pub fn unix_time() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
