//! The controller: publishes the pool, and has a lease for each claim that was allocated from it.
//!
//! It keeps nothing that is not written elsewhere: what there is to do follows from claims, and a request for a lease is repeated with the
//! allocation's key. So it can be killed at any moment, and two at the same time do no harm.

mod claims;
mod conditions;
mod publish;

use std::time::Duration;

use anyhow::Context;
use kube::Client;

use crate::leases::{BrokerArguments, Leases};

/// Options of `rgpu-kubernetes controller`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    broker: BrokerArguments,
    /// How often the pool is compared with what the broker lists, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pool_every: u64,
}

/// Runs until it is told to end (SIGTERM).
///
/// # Errors
/// It cannot begin.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let leases = Leases::new(&arguments.broker)?;
    let client = Client::try_default().await.context("The API server's address is not known")?;
    let every = Duration::from_secs(arguments.pool_every);
    tracing::info!("the controller begins");
    tokio::select! {
        () = publish::keep(client.clone(), leases.clone(), every) => {}
        () = claims::keep(client, leases) => {}
        stopped = crate::stop::signal() => stopped?,
    }
    tracing::info!("the controller ends; leases go on, and nodes renew those that pods use");
    Ok(())
}
