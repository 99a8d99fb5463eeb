//! What there is, and who has what.
//!
//! One thread makes all changes, in batches: a batch is one transaction of the store, and nobody sees it, or is answered, before
//! it is stored. What cannot be stored is taken back. A second thread runs placement rounds on its own view of the state; what it
//! finds is granted by the first, if it is still free.

mod adoption;
mod clock;
mod core;
mod counters;
mod deadlines;
mod events;
mod feed;
mod foreseen;
mod harvest;
mod history;
mod learnt;
mod leases;
mod live;
mod machines;
mod model;
mod nodes;
mod nvmes;
mod observations;
mod outstanding;
mod plan;
mod processors;
mod requests;
mod rounds;
mod series;
mod settings;
mod silence;
#[cfg(test)]
mod tests;
mod tokens;
mod traffic;
mod views;
mod withdrawn;
mod worker;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_control::token::{Claims, PrivateKey, PublicKey, Role, TENANT_SEPARATOR};
use rgpu_placement::policy::NETWORK_AWARE;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

pub use clock::{Clock, SystemClock};
pub use counters::{Counters, Histogram};
pub use events::Events;
pub use processors::{ProcessorSettings, ProfileProcessors};
pub(crate) use settings::{EVERY_TENANT, from_control, limits_of, setting};
pub use settings::{Limits, ProfileSettings, Settings};
pub use withdrawn::Withdrawn;

use self::clock::Timeline;
use self::core::Core;
use self::feed::Feed;
use self::live::Entry;
use crate::store::{Store, StoreError};
use leases::NOTHING_FREE;
use plan::Planner;
use worker::{Message, Op, Wake};

/// For so long the state counts as writable after it was written.
const HEALTH_MS: u64 = 1000;

/// The longest that a call waits for something to happen, in seconds.
const MAX_WAIT_S: u32 = 60;

/// Who asks: what a role token said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What they may do.
    pub role: Role,
    /// The tenant's, node's, engine's or administrator's name.
    pub name: String,
}

impl Caller {
    /// Whether the caller may see what is a tenant's.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        self.role == Role::Admin || self.role.acts_for(&self.name, tenant)
    }

    /// The tenant whose lease it is that the caller asks for.
    fn tenant(&self, request: &LeaseRequest) -> Result<String, Problem> {
        let Some(name) = &request.on_behalf_of else { return Ok(self.name.clone()) };
        if self.role != Role::Engine {
            let what =
                format!("on_behalf_of is {name:?}: only an engine asks for leases on behalf of others");
            return forbidden(self, &what);
        }
        if let Some(why) = crate::config::name_problem(name) {
            let text = format!("on_behalf_of is {name:?}, which is no tenant's name: {why}");
            return Err(problem(ErrorCode::BadRequest, text));
        }
        Ok(format!("{}{TENANT_SEPARATOR}{name}", self.name))
    }
}

/// Why the engine doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting makes no sense.
    #[error(transparent)]
    Settings(#[from] rgpu_placement::Error),
    /// The policy that was set through the API cannot be read back.
    #[error("the policy in the broker's state is damaged: {0}")]
    Policy(serde_json::Error),
    /// The list of withdrawn tokens cannot be read back.
    #[error("the list of withdrawn tokens in the broker's state is damaged: {0}")]
    Withdrawn(serde_json::Error),
    /// The state cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

/// The broker's state and everything that can be done with it. Clones are the same engine.
///
/// Methods that change something are async: they answer once the change is stored. Those that only look are not, and take
/// little time. All of them check what the caller may do.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

/// What the engine's clones and threads share.
struct Inner {
    settings: Arc<Settings>,
    key: PrivateKey,
    time: Timeline,
    core: Mutex<Core>,
    /// Role tokens that count no more: those of the state, without its lock.
    withdrawn: RwLock<Arc<Withdrawn>>,
    feed: Feed,
    changes: Mutex<Sender<Message>>,
    wakes: Mutex<Sender<Wake>>,
    /// A wake is under way.
    woken: AtomicBool,
    stopping: watch::Sender<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Inner {
    fn send(&self, op: Op) {
        // When the thread has stopped, the op is dropped, and whoever waits for its answer sees that.
        let _ = self.changes.lock().send(Message::Op(op));
    }

    fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            let _ = self.wakes.lock().send(Wake::Go);
        }
    }
}

/// The epoch of a state.
pub(crate) fn epoch_in(kept: &crate::store::Kept) -> u64 {
    kept.settings.get(core::ORDERS).and_then(|text| text.parse().ok()).map_or(0, core::epoch_of)
}

/// A problem of that kind.
pub(crate) fn problem(code: ErrorCode, message: String) -> Problem {
    Problem { code, message }
}

fn forbidden<T>(caller: &Caller, what: &str) -> Result<T, Problem> {
    let text = format!("{what}, and this token is for the {} {:?}", caller.role.name(), caller.name);
    Err(problem(ErrorCode::Forbidden, text))
}

fn admin(caller: &Caller) -> Result<(), Problem> {
    match caller.role {
        Role::Admin => Ok(()),
        _ => forbidden(caller, "only administrators may do that"),
    }
}

fn user(caller: &Caller) -> Result<(), Problem> {
    match caller.role {
        Role::Admin | Role::Tenant | Role::Engine => Ok(()),
        Role::Node => forbidden(caller, "leases are for tenants"),
    }
}

/// Who decides about leases and programs, other than an engine: that only passes on what its tenants ask for.
fn owner(caller: &Caller) -> Result<(), Problem> {
    match caller.role {
        Role::Engine => forbidden(caller, "that is for tenants themselves"),
        _ => user(caller),
    }
}

fn node_itself(caller: &Caller, node: &str) -> Result<(), Problem> {
    match caller.role {
        Role::Admin => Ok(()),
        Role::Node if caller.name == node => Ok(()),
        _ => forbidden(caller, &format!("only the node {node:?} itself may do that")),
    }
}

fn is_stopping() -> Problem {
    problem(ErrorCode::Unavailable, "the broker is stopping; try again later".into())
}

/// A call that waits for a lease: as long as there is one, it may wait on.
struct Polling<'a> {
    inner: &'a Inner,
    id: LeaseId,
}

impl<'a> Polling<'a> {
    fn new(inner: &'a Inner, id: LeaseId) -> Self {
        if let Some(entry) = inner.core.lock().leases.get_mut(&id) {
            entry.live.pollers += 1;
        }
        Self { inner, id }
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let mut core = self.inner.core.lock();
        let Some(entry) = core.leases.get_mut(&self.id) else { return };
        entry.live.pollers = entry.live.pollers.saturating_sub(1);
        if entry.record.state == LeaseState::Waiting {
            core.keep_waiting(self.id);
        }
    }
}

impl Engine {
    /// Reads the state and starts the engine's threads. Leases are signed with `key`.
    pub fn start(
        settings: Settings,
        key: PrivateKey,
        mut store: Box<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Result<Engine, StartError> {
        let settings = Arc::new(settings);
        let trial = model::client_spec(&settings, "trial".into());
        model::cluster(&settings, std::iter::once(trial))?;
        let kept = store.load()?;
        let core = Core::restore(settings.clone(), clock, kept)?;
        let planner = Planner::new(settings.clone(), &core.policy, core.profiles.clone())?;
        let (changes, messages) = std::sync::mpsc::channel();
        let (wakes, woken) = std::sync::mpsc::channel();
        let inner = Arc::new(Inner {
            settings,
            key,
            time: core.time.clone(),
            withdrawn: RwLock::new(core.withdrawn.clone()),
            core: Mutex::new(core),
            feed: Feed::default(),
            changes: Mutex::new(changes),
            wakes: Mutex::new(wakes),
            woken: AtomicBool::new(false),
            stopping: watch::Sender::new(false),
            threads: Mutex::new(Vec::new()),
        });
        // What the start itself changes (such as the orders' version) is stored before anybody hears of it.
        worker::batch(&inner, &mut *store, vec![Box::new(|core| worker::begin(core))], true);
        if let Some(why) = &inner.core.lock().failing {
            return Err(StoreError::Write { place: "the store".into(), why: why.clone() }.into());
        }
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(body).map_err(StartError::Thread)
        };
        let (changing, placing) = (inner.clone(), inner.clone());
        let threads = vec![
            spawn("broker-changes", Box::new(move || worker::change(&changing, &messages, store)))?,
            spawn("broker-placement", Box::new(move || worker::place(&placing, planner, &woken)))?,
        ];
        *inner.threads.lock() = threads;
        inner.wake();
        Ok(Engine(inner))
    }

    /// Stops: waiting calls are answered with 503, what is decided is stored, threads end. Leases go on. Blocks until that is done.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
        let threads = std::mem::take(&mut *self.0.threads.lock());
        let _ = self.0.wakes.lock().send(Wake::Stop);
        for thread in threads.into_iter().rev() {
            // The placement's thread comes first: it may wait for the other one.
            if thread.join().is_err() {
                tracing::error!("a defect: one of the engine's threads has panicked");
            }
            let _ = self.0.changes.lock().send(Message::Stop);
        }
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }

    /// Makes a change, and answers when it is stored.
    async fn write<T: Send + 'static>(
        &self,
        op: impl FnOnce(&mut Core) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        if *self.0.stopping.borrow() {
            return Err(is_stopping());
        }
        let (answer, answered) = oneshot::channel();
        self.0.send(Box::new(move |core| {
            let mark = core.mark();
            let result = op(core);
            if result.is_err() {
                core.roll_back(mark);
            }
            Box::new(move |stored| {
                let _ = answer.send(match (stored, result) {
                    (Err(problem), Ok(_)) => Err(problem),
                    (_, result) => result,
                });
            })
        }));
        answered.await.unwrap_or_else(|_| {
            Err(match *self.0.stopping.borrow() {
                true => is_stopping(),
                false => problem(ErrorCode::Internal, "the broker failed; its log has more".into()),
            })
        })
    }

    /// Waits until something changes, the time is over (false), or the engine stops.
    async fn wait(&self, changed: impl Future<Output = ()>, until: Instant) -> Result<bool, Problem> {
        let mut stopping = self.stopping();
        tokio::select! {
            () = changed => Ok(true),
            () = tokio::time::sleep_until(until) => Ok(false),
            _ = stopping.wait_for(|stopping| *stopping) => Err(is_stopping()),
        }
    }

    /// The key that tokens are checked with.
    pub fn public_key(&self) -> PublicKey {
        self.0.key.public()
    }

    /// Whether all is well. What nobody has written for a second is tried: a disk that is full is not noticed otherwise.
    pub async fn health(&self) -> Health {
        let known = {
            let core = self.0.core.lock();
            core.failing.is_some() || core.now().saturating_sub(core.stored_ms) < HEALTH_MS
        };
        if !known {
            let (tried, slow) = (self.0.time.clock.elapsed(), Duration::from_millis(2 * HEALTH_MS));
            let probe = self.write(|core| {
                core.probe = true;
                Ok(())
            });
            if tokio::time::timeout(slow, probe).await.is_err() {
                let status = format!("the state has not been written within {} s", slow.as_secs());
                return self.health_of(tried, Some(status));
            }
        }
        let core = self.0.core.lock();
        let (now, failing) = (core.time.clock.elapsed(), core.failing.clone());
        drop(core);
        self.health_of(now, failing)
    }

    fn health_of(&self, now: Duration, failing: Option<String>) -> Health {
        Health {
            status: failing.unwrap_or_else(|| "ok".into()),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: (now.as_millis() as u64).saturating_sub(self.0.time.started_ms) / 1000,
            public_key: self.public_key().to_text(),
            epoch: self.epoch(),
            standby: false,
        }
    }

    /// How often another broker has taken over before.
    pub fn epoch(&self) -> u64 {
        self.0.core.lock().epoch()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.0.core.lock().counters.clone()
    }

    /// The cluster in a few numbers.
    pub fn summary(&self, _caller: &Caller) -> Result<Summary, Problem> {
        Ok(self.0.core.lock().summary())
    }

    // ---- nodes ----

    /// A node introduces itself.
    pub async fn register(&self, caller: &Caller, node: Registration) -> Result<Welcome, Problem> {
        node_itself(caller, &node.name)?;
        nodes::check_registration(&node, &self.0.settings.switches)?;
        let heartbeat_ms = self.0.settings.heartbeat_ms;
        let public_key = self.public_key().to_text();
        let name = node.name.clone();
        self.write(move |core| core.register(node)).await?;
        let orders = self.0.core.lock().orders_for(&name)?;
        Ok(Welcome { public_key, heartbeat_ms, orders })
    }

    /// A node says how it is.
    pub async fn heartbeat(&self, caller: &Caller, node: &str, beat: Heartbeat) -> Result<Orders, Problem> {
        node_itself(caller, node)?;
        if *self.0.stopping.borrow() {
            return Err(is_stopping());
        }
        // Most heartbeats change nothing that is stored.
        let (consequences, orders, wake) = {
            let mut core = self.0.core.lock();
            let consequences = core.heard(node, beat)?;
            let nothing = consequences == nodes::Consequences::default();
            let orders = nothing.then(|| core.orders_for(node)).transpose()?;
            (consequences, orders, core.publish(&self.0.feed))
        };
        if wake {
            self.0.wake();
        }
        if let Some(orders) = orders {
            return Ok(orders);
        }
        let (name, key) = (node.to_owned(), self.public_key());
        self.write(move |core| {
            consequences.ended.iter().for_each(|id| core.confirm(&name, *id));
            if let Some(serves) = &consequences.serves {
                core.gone_there(&name, serves);
            }
            consequences.proofs.iter().for_each(|proof| core.adopt(&key, &name, proof));
            for (id, why) in &consequences.failed {
                core.end(*id, live::End::Revoked, why);
            }
            if consequences.leaving {
                core.leave_cluster(&name);
            }
            Ok(())
        })
        .await?;
        self.0.core.lock().orders_for(node)
    }

    /// A node's orders, once they are newer than `seen`, at the latest after `wait_s` seconds.
    pub async fn orders(
        &self,
        caller: &Caller,
        node: &str,
        seen: u64,
        wait_s: u32,
    ) -> Result<Orders, Problem> {
        node_itself(caller, node)?;
        let until = Instant::now() + Duration::from_secs(wait_s.min(MAX_WAIT_S).into());
        let changed: Arc<Notify> = {
            let core = self.0.core.lock();
            core.nodes.get(node).ok_or_else(|| nodes::no_node(node))?.live.changed.clone()
        };
        loop {
            let mut notified = std::pin::pin!(changed.notified());
            notified.as_mut().enable();
            {
                let core = self.0.core.lock();
                let entry = core.nodes.get(node).ok_or_else(|| nodes::no_node(node))?;
                let over = Instant::now() >= until;
                if !entry.live.present {
                    // It has not said what it serves since this broker started: orders that lack something of that would end it.
                    // Orders of version 0 are none.
                    if over {
                        return Ok(Orders {
                            version: 0,
                            leases: Vec::new(),
                            ended: Vec::new(),
                            peers: Vec::new(),
                            prove: Vec::new(),
                        });
                    }
                } else if entry.live.changed_at > seen || seen > core.orders || over {
                    return core.orders_for(node);
                }
            }
            self.wait(notified, until).await?;
        }
    }

    /// Whether a node gets new leases.
    pub async fn drain(&self, caller: &Caller, node: &str, drain: bool) -> Result<(), Problem> {
        admin(caller)?;
        let name = node.to_owned();
        self.write(move |core| core.drain(&name, drain)).await
    }

    /// Forgets a node that is lost, or drained and without leases.
    pub async fn remove_node(&self, caller: &Caller, node: &str) -> Result<(), Problem> {
        admin(caller)?;
        let name = node.to_owned();
        self.write(move |core| core.remove_node(&name)).await
    }

    /// The nodes, by name, and then the machines that are none but where programs run.
    pub fn nodes(&self, _caller: &Caller) -> Result<Vec<Node>, Problem> {
        Ok(self.0.core.lock().node_views())
    }

    /// The node of that name, whatever state it is in.
    pub fn node(&self, _caller: &Caller, name: &str) -> Result<Node, Problem> {
        let core = self.0.core.lock();
        let entry = core.nodes.get(name).ok_or_else(|| nodes::no_node(name))?;
        Ok(core.node_view(name, entry))
    }

    /// What a node measured over the last hour, or after a moment (in seconds since 1970).
    pub fn history(&self, _caller: &Caller, name: &str, since: u64) -> Result<NodeHistory, Problem> {
        self.0.core.lock().history(name, since)
    }

    /// The devices, by node and number.
    pub fn devices(&self, caller: &Caller) -> Result<Vec<Device>, Problem> {
        let core = self.0.core.lock();
        let mut devices = core.device_views();
        // That something is leased is for everybody to see, but not which lease of somebody else's.
        for device in &mut devices {
            device.leases.retain(|id| core.visible(caller, *id).is_ok());
        }
        Ok(devices)
    }

    // ---- leases ----

    /// A lease as the caller sees it: with its token, if it is theirs.
    fn signed(&self, caller: &Caller, core: &Core, entry: &Entry) -> (Lease, Option<Claims>) {
        let own = caller.role.acts_for(&caller.name, &entry.record.tenant);
        (core.lease_view(entry), own.then(|| core.claims(entry)).flatten())
    }

    /// Signs, without the lock.
    fn sign(&self, (mut lease, claims): (Lease, Option<Claims>)) -> Lease {
        lease.token = claims.map(|claims| self.0.key.sign(&claims));
        lease
    }

    /// A lease, as soon as it no longer waits, or when the time is over.
    async fn settled(&self, caller: &Caller, id: LeaseId, until: Instant) -> Result<Lease, Problem> {
        let changed = self.0.core.lock().visible(caller, id)?.live.changed.clone();
        let _polling = Polling::new(&self.0, id);
        loop {
            let mut notified = std::pin::pin!(changed.notified());
            notified.as_mut().enable();
            let seen = {
                let core = self.0.core.lock();
                let entry = core.visible(caller, id)?;
                let settled = entry.record.state != LeaseState::Waiting || Instant::now() >= until;
                settled.then(|| self.signed(caller, &core, entry))
            };
            if let Some(seen) = seen {
                return Ok(self.sign(seen));
            }
            self.wait(notified, until).await?;
        }
    }

    /// Asks for a lease. Answers when it is granted, or after `wait_s` seconds, when it goes on waiting. A lease that waits lapses
    /// when nobody has asked for it for as long as leases are good for.
    pub async fn request_lease(&self, caller: &Caller, mut request: LeaseRequest) -> Result<Lease, Problem> {
        user(caller)?;
        request.encrypt |= self.0.settings.encrypt;
        requests::check_request(&request, &self.0.settings)?;
        let now_or_never = request.now_or_never;
        let wait_s = if now_or_never { MAX_WAIT_S } else { request.wait_s.min(MAX_WAIT_S) };
        let until = Instant::now() + Duration::from_secs(wait_s.into());
        let (by, tenant) = (caller.clone(), caller.tenant(&request)?);
        let id = self.write(move |core| core.submit(&by, &tenant, request)).await?;
        let lease = self.settled(caller, id, until).await?;
        if now_or_never && lease.state != LeaseState::Active {
            if lease.state == LeaseState::Waiting {
                // No round has decided in all that time.
                self.release(caller, id).await?;
            }
            let text = match lease.reason.starts_with(NOTHING_FREE) {
                true => lease.reason,
                false => format!("{NOTHING_FREE}: {}", lease.reason),
            };
            return Err(problem(ErrorCode::Conflict, text));
        }
        Ok(lease)
    }

    /// A lease, once it no longer waits, at the latest after `wait_s` seconds.
    pub async fn lease(&self, caller: &Caller, id: LeaseId, wait_s: u32) -> Result<Lease, Problem> {
        user(caller)?;
        let until = Instant::now() + Duration::from_secs(wait_s.min(MAX_WAIT_S).into());
        self.settled(caller, id, until).await
    }

    /// The leases that the caller may see, the oldest first; with `all`, those too that ended lately. Without tokens.
    pub fn leases(&self, caller: &Caller, all: bool) -> Result<Vec<Lease>, Problem> {
        user(caller)?;
        Ok(self.0.core.lock().lease_views(caller, all))
    }

    /// Gives a lease more time.
    pub async fn renew(&self, caller: &Caller, id: LeaseId) -> Result<Lease, Problem> {
        user(caller)?;
        if *self.0.stopping.borrow() {
            return Err(is_stopping());
        }
        // Deadlines aren't stored: after a restart, every lease has all its time anew.
        let seen = {
            let mut core = self.0.core.lock();
            if core.is_new() && !core.leases.contains_key(&id) {
                let text = format!(
                    "the broker has just started, and does not know the lease {id} (yet): nodes may tell it. Try again in a moment"
                );
                return Err(problem(ErrorCode::Unavailable, text));
            }
            let entry = core.visible(caller, id)?;
            match entry.record.state {
                LeaseState::Waiting => core.keep_waiting(id),
                LeaseState::Active => {
                    let at = core.now() + self.0.settings.lease_ttl_s * 1000;
                    core.set_deadline(id, Some(at));
                }
                LeaseState::Ending | LeaseState::Ended => {
                    let text = format!("the lease {id} has ended: {}", entry.record.reason);
                    return Err(problem(ErrorCode::Conflict, text));
                }
            }
            core.counters.renewals += 1;
            let entry = core.visible(caller, id)?;
            self.signed(caller, &core, entry)
        };
        Ok(self.sign(seen))
    }

    /// Changes a lease's memory or share where it is.
    pub async fn change(&self, caller: &Caller, id: LeaseId, change: LeaseChange) -> Result<Lease, Problem> {
        owner(caller)?;
        let by = caller.clone();
        self.write(move |core| {
            core.visible(&by, id)?;
            core.change(id, &change)
        })
        .await?;
        let seen = {
            let core = self.0.core.lock();
            let entry = core.visible(caller, id)?;
            self.signed(caller, &core, entry)
        };
        Ok(self.sign(seen))
    }

    /// Gives a lease back. One that has ended already is no error.
    pub async fn release(&self, caller: &Caller, id: LeaseId) -> Result<(), Problem> {
        self.give_back(caller, id, false).await
    }

    /// Gives back a lease whose program has ended well: something is learnt from its run. One that has ended already is no error.
    pub async fn complete(&self, caller: &Caller, id: LeaseId) -> Result<(), Problem> {
        self.give_back(caller, id, true).await
    }

    async fn give_back(&self, caller: &Caller, id: LeaseId, completed: bool) -> Result<(), Problem> {
        user(caller)?;
        let by = caller.clone();
        self.write(move |core| {
            core.visible(&by, id)?;
            core.give_back(id, None, completed);
            Ok(())
        })
        .await
    }

    /// Gives a lease back that nobody will ever know of: whoever asked for it went away before it was answered.
    pub async fn abandon(&self, caller: &Caller, id: LeaseId) -> Result<(), Problem> {
        user(caller)?;
        let by = caller.clone();
        self.write(move |core| {
            core.visible(&by, id)?;
            core.give_back(id, Some("whoever asked for it went away"), false);
            Ok(())
        })
        .await
    }

    /// Why a lease is where it is, or waits.
    pub async fn explain(&self, caller: &Caller, id: LeaseId) -> Result<LeaseExplanation, Problem> {
        user(caller)?;
        // A lease that waits is decided about at least once in a round's interval; the answer doesn't wait for ever.
        let until = Instant::now() + Duration::from_millis(2 * self.0.settings.round_interval_ms + 500);
        let changed = self.0.core.lock().visible(caller, id)?.live.changed.clone();
        loop {
            let mut notified = std::pin::pin!(changed.notified());
            notified.as_mut().enable();
            {
                let mut core = self.0.core.lock();
                let (entry, now_s) = (core.visible(caller, id)?, core.now_s());
                let known = entry.record.state != LeaseState::Waiting || entry.live.is_explained(now_s);
                if known || Instant::now() >= until {
                    let explanation = core.explanation(caller, entry);
                    core.wanted.remove(&id);
                    return Ok(explanation);
                }
                if core.wanted.insert(id) {
                    self.0.feed.want(id);
                }
            }
            self.0.wake();
            self.wait(notified, until).await?;
        }
    }

    /// What waits, first; then what runs.
    pub fn jobs(&self, caller: &Caller) -> Result<Vec<Job>, Problem> {
        user(caller)?;
        Ok(self.0.core.lock().job_views(caller))
    }

    /// What the latest placement rounds came to, as far as the caller may see that; the oldest first.
    pub fn rounds(&self, caller: &Caller) -> Result<Vec<RoundOutcome>, Problem> {
        user(caller)?;
        Ok(self.0.core.lock().rounds.seen_by(caller))
    }

    /// What was learnt of programs: a tenant's own, or all.
    pub fn profiles(&self, caller: &Caller) -> Result<Vec<LearntProfile>, Problem> {
        owner(caller)?;
        let tenant = (caller.role != Role::Admin).then_some(caller.name.as_str());
        Ok(self.0.core.lock().learnt_views(tenant))
    }

    /// Forgets what was learnt of the caller's program; for an administrator, of all tenants' programs of that name.
    pub async fn forget_profile(&self, caller: &Caller, program: &str) -> Result<(), Problem> {
        owner(caller)?;
        let (by, name) = (caller.clone(), program.to_owned());
        self.write(move |core| {
            let is_meant = |(tenant, program): &(String, String)| {
                *program == name && (by.role == Role::Admin || *tenant == by.name)
            };
            let meant: Vec<_> =
                core.learnt.iter().map(|(program, _)| program.clone()).filter(is_meant).collect();
            if meant.is_empty() {
                return Err(problem(
                    ErrorCode::NotFound,
                    format!("nothing was learnt of a program {name:?}"),
                ));
            }
            meant.iter().for_each(|program| core.forget_program(program));
            Ok(())
        })
        .await
    }

    // ---- the rest ----

    /// The policies that there are, and how the one that decides is set.
    pub fn policies(&self, _caller: &Caller) -> Result<Policies, Problem> {
        Ok(self.0.core.lock().policies())
    }

    /// Sets the policy that decides from now on.
    pub async fn set_policy(&self, caller: &Caller, settings: PolicySettings) -> Result<Policies, Problem> {
        admin(caller)?;
        let config = settings::check_policy(&self.0.settings.policies, &settings)
            .map_err(|why| problem(ErrorCode::BadRequest, why.to_string()))?;
        self.write(move |core| {
            let aware = if config.get(&NETWORK_AWARE) { "aware" } else { "not aware" };
            let text = format!("the policy is {}, {aware} of the network", settings.name);
            core.put_policy(settings)?;
            core.changes.policy = true;
            core.note("policy_changed", None, None, text);
            Ok(())
        })
        .await?;
        Ok(self.0.core.lock().policies())
    }

    /// The events after number `since` and those to come; without it, only those to come.
    pub fn events(&self, caller: &Caller, since: Option<u64>) -> Result<Events, Problem> {
        let core = self.0.core.lock();
        Ok(Events {
            engine: self.clone(),
            caller: caller.clone(),
            last: since.unwrap_or_else(|| core.events.latest()),
            found: VecDeque::new(),
            latest: core.events.watch(),
        })
    }

    fn events_after(&self, number: u64, caller: &Caller) -> (VecDeque<Event>, u64) {
        self.0.core.lock().events.after(number, caller)
    }

    /// The tenants: those with leases or limits of their own.
    pub fn tenants(&self, caller: &Caller) -> Result<Vec<Tenant>, Problem> {
        admin(caller)?;
        Ok(self.0.core.lock().tenant_views())
    }

    /// Does what is due by the clock, and returns when the placement has looked at everything that has changed: for tests, whose
    /// clock is theirs.
    pub async fn settle(&self) {
        let _ = self
            .write(|core| {
                core.tick();
                Ok(())
            })
            .await;
        let (answer, answered) = oneshot::channel();
        let _ = self.0.wakes.lock().send(Wake::Ack(answer));
        let _ = answered.await;
    }
}
