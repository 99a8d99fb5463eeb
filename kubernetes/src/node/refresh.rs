//! Tickets stay good for as long as their claims are prepared.
//!
//! Nodes renew the leases that their pods use, beside the controller: when that is away, pods go on.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rgpu_control::api::{Lease, LeaseState};

use super::prepare::{Found, Preparer};
use crate::leases::{Asked, renewal};
use crate::store::Prepared;

/// How often it is looked what is due.
const TICK: Duration = Duration::from_millis(500);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(2);
/// How often it is asked whether a claim is there still, should the kubelet have forgotten to unprepare it.
const CLAIMS: Duration = Duration::from_secs(60);

/// Renews what is prepared, for ever.
pub(super) async fn keep(preparer: Preparer) {
    let mut due: HashMap<String, Due> = HashMap::new();
    loop {
        let all = preparer.store.all();
        due.retain(|id, _| all.iter().any(|prepared| prepared.id == *id));
        let now = Instant::now();
        let one = |prepared: Prepared| {
            let due = due.get(&prepared.id).copied().unwrap_or(Due { renew: now, check: now + CLAIMS });
            let preparer = &preparer;
            async move { (see_to(preparer, &prepared, due).await, prepared.id) }
        };
        // A broker or API server that does not answer holds up one round, not one claim after the other.
        let done = join_all(all.into_iter().map(one)).await;
        due.extend(done.into_iter().map(|(due, id)| (id, due)));
        tokio::time::sleep(TICK).await;
    }
}

/// When something is to be done for what is prepared.
#[derive(Clone, Copy)]
struct Due {
    renew: Instant,
    check: Instant,
}

async fn see_to(preparer: &Preparer, prepared: &Prepared, due: Due) -> Due {
    let now = Instant::now();
    if due.check <= now {
        if let Found::Bad(why) = preparer.find(&prepared.namespace, &prepared.name, &prepared.id).await {
            over(preparer, &why, prepared);
        }
        return Due { check: now + CLAIMS, ..due };
    }
    if due.renew <= now {
        let next = renewed(preparer, prepared).await;
        return Due { renew: Instant::now() + next, ..due };
    }
    due
}

/// Renews one; says when again.
async fn renewed(preparer: &Preparer, prepared: &Prepared) -> Duration {
    let renewed = preparer.leases.renew(prepared.lease).await;
    let asked = match renewed {
        Some(asked) => asked,
        // It has ended, and the claim may go on: the container's next program gets other GPUs.
        None => match preparer.find(&prepared.namespace, &prepared.name, &prepared.id).await {
            Found::Good(wanted) if wanted.key == prepared.key => {
                tracing::warn!(
                    "the lease {} of {} has ended; asking for another one",
                    prepared.lease,
                    wanted.claim
                );
                preparer.leases.obtain(&wanted, 0).await
            }
            Found::Good(_) | Found::Unknown(_) => return AGAIN,
            Found::Bad(why) => {
                over(preparer, &why, prepared);
                return AGAIN;
            }
        },
    };
    match asked {
        Asked::Has(lease) if lease.state == LeaseState::Active => write(preparer, prepared, &lease),
        Asked::Has(_) => AGAIN,
        Asked::Refused(problem) => {
            tracing::warn!("the lease of {}/{}: {}", prepared.namespace, prepared.name, problem.message);
            AGAIN
        }
        Asked::NotNow { message, .. } => {
            tracing::warn!("the lease {} is not renewed: {message}", prepared.lease);
            AGAIN
        }
    }
}

fn write(preparer: &Preparer, prepared: &Prepared, lease: &Lease) -> Duration {
    let Some(ticket) = preparer.leases.ticket(lease, &prepared.key) else { return AGAIN };
    match preparer.store.lock().and_then(|locked| locked.renew(prepared, &ticket)) {
        Ok(()) => renewal(lease),
        Err(e) => {
            tracing::error!("the ticket of {}/{} is not written: {e}", prepared.namespace, prepared.name);
            AGAIN
        }
    }
}

/// A claim that is not to have a lease any more, and that the kubelet has not taken back. Its lease is not renewed here any more, and ends
/// unless the controller has a use for it.
fn over(preparer: &Preparer, why: &str, prepared: &Prepared) {
    tracing::warn!("what was prepared is removed: {why}");
    if let Err(why) = preparer.unprepare(&prepared.id) {
        tracing::error!("{why}");
    }
}
