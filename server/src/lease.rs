//! Leases, as a server keeps them: who is admitted, what they may use, and what they do use.
//!
//! The [`LeaseTable`] is the daemon's. The broker's orders come in by [`LeaseTable::apply`], whoever fetches them; what the
//! leases use goes out by [`LeaseTable::report`]. What is enforced while an application runs stands in the
//! [ledger](crate::ledger), which its process shares: the table enters a lease there with its first session, and strikes it
//! off with its last.
//!
//! A lease is known from a token, from the orders, or from both; the higher version counts. It ends when orders lack it that
//! are not older than those which its token names, and never because the broker is silent. What has ended is remembered until
//! its tokens have run out.
//!
//! A broker may ask for a proof of leases that it does not know. They go on while it asks, and [`LeaseTable::proofs`] shows
//! their tokens.

mod process;
mod record;
#[cfg(test)]
mod tests;

use crate::ledger::{Ledger, Terms, monotonic_ns};
use process::{Process, Terminations};
use record::Record;
use rgpu_control::LeaseId;
use rgpu_control::api::{LeaseProof, LeaseReport, Orders, Peer};
use rgpu_control::proof::{Binding, Moment, Verifier};
use rgpu_control::token::{CLOCK_SKEW_S, Grant, LeaseClaims, PublicKey, TokenError};
use rgpu_control::unix_time;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether a lease's time is over.
const LOOK: Duration = Duration::from_secs(1);

/// The leases that this server serves, or has ended lately.
pub struct LeaseTable {
    ledger: Arc<Ledger>,
    /// How many devices there are.
    devices: u32,
    /// When the table was made, by the clocks that proofs are checked by.
    begun: (Instant, Moment),
    inner: Mutex<Inner>,
    tell: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

#[derive(Default)]
struct Inner {
    node: String,
    verifier: Option<Verifier>,
    /// For how long a lease goes on whose time is over, unless a later end is heard of.
    grace: Duration,
    /// The latest orders' version.
    applied: u64,
    leases: HashMap<LeaseId, Record>,
    /// Those that have ended, and until when their tokens could be presented.
    ended: HashMap<LeaseId, u64>,
    /// Those of them that the broker has not yet confirmed to have heard of, and of which nothing is left, with what they used.
    unconfirmed: BTreeMap<LeaseId, LeaseReport>,
    /// Those that the broker wants to have proved.
    to_prove: HashSet<LeaseId>,
}

/// Why a lease is not served. It is said on both sides: to the program whose session is refused, and in the server's log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// The broker's key is not known yet.
    #[error("the server has not reached its broker yet: try again in a moment")]
    NoIdentity,
    /// The hello brings no lease.
    #[error("it wants a lease: start the program with `rgpu run --broker URL`")]
    Missing,
    /// Its token is no good, or the lease has ended.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// It gives a device that is not there.
    #[error("the lease gives device {device} of this server ({node}), which has {devices}")]
    NoDevice {
        /// The device's number.
        device: u32,
        /// The server's node.
        node: String,
        /// How many devices the server has.
        devices: u32,
    },
    /// The ledger has no entry left.
    #[error("the server serves too many leases at once")]
    TooMany,
}

/// Somebody who has shown a good lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The lease that was admitted.
    pub lease: LeaseId,
    /// Whose it is.
    pub tenant: String,
    /// What it gives of this server, in the order of the program's ordinals.
    pub terms: Vec<Terms>,
    claims: LeaseClaims,
    token: String,
}

impl Admission {
    /// Whether what travels for it is to be encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.claims.encrypt
    }
}

impl LeaseTable {
    /// A table without leases, for the devices of a ledger.
    pub fn new(ledger: Arc<Ledger>, devices: u32) -> Arc<Self> {
        let grace = Duration::from_secs(CLOCK_SKEW_S);
        let (inner, tell) = (Mutex::new(Inner { grace, ..Inner::default() }), Mutex::new(None));
        let now = Instant::now();
        Arc::new(Self { ledger, devices, begun: (now, Moment::since(now)), inner, tell })
    }

    /// Sets for how long a lease goes on whose time is over, unless a later end is heard of. A server that has a broker gives it
    /// long, because the broker may be away; for others the tolerance of clocks is enough.
    pub fn set_grace(&self, grace: Duration) {
        self.lock().grace = grace;
    }

    /// Ends leases whose time is over, from now on, as long as the table is used.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn watch_ends(self: &Arc<Self>) -> std::io::Result<()> {
        let table = Arc::downgrade(self);
        let watch = move || {
            while let Some(table) = table.upgrade() {
                table.end_overdue(monotonic_ns());
                drop(table);
                std::thread::sleep(LOOK);
            }
        };
        std::thread::Builder::new().name("lease-ends".into()).stack_size(128 << 10).spawn(watch).map(drop)
    }

    fn end_overdue(&self, now_ns: u64) {
        let (mut terminations, mut changed) = (Terminations::default(), false);
        {
            let mut inner = self.lock();
            let grace = inner.grace;
            let over = |record: &Record| record.ended.is_none() && record.is_over(now_ns, grace);
            let late: Vec<LeaseId> = inner
                .leases
                .iter()
                .filter(|(_, record)| over(record) && !record.sessions.is_empty())
                .map(|(id, _)| *id)
                .collect();
            for id in late {
                let why = "its time is over, and nobody has said that it was renewed";
                changed |= inner.finish(&self.ledger, id, why, &mut terminations);
            }
        }
        terminations.carry_out();
        if changed {
            self.tell();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on leases of this node are admitted, and they have to be signed with the private key that belongs to this one.
    /// Without an identity no lease is admitted.
    pub fn set_identity(&self, node: &str, broker: PublicKey) {
        let mut inner = self.lock();
        let same = inner.node == node && inner.verifier.as_ref().is_some_and(|v| v.broker() == broker);
        if !same {
            // The first one counts from the server's start: clocks differ a little.
            let since = if inner.verifier.is_none() { self.begun.1 } else { Moment::since(self.begun.0) };
            node.clone_into(&mut inner.node);
            inner.verifier = Some(Verifier::new(broker, node, since));
        }
    }

    /// Whether there is an identity.
    pub fn has_identity(&self) -> bool {
        self.lock().verifier.is_some()
    }

    /// Checks what a session's hello brings.
    ///
    /// # Errors
    /// Why it is refused, in words for both sides.
    pub fn admit(&self, credential: &[u8], session: u64) -> Result<Admission, LeaseError> {
        self.admit_bound(credential, session, None)
    }

    /// The same for a hello that came over the encrypted connection with this [binding](rgpu_control::proof::Binding).
    ///
    /// # Errors
    /// Why it is refused, in words for both sides.
    pub fn admit_bound(
        &self,
        credential: &[u8],
        session: u64,
        binding: Option<&Binding>,
    ) -> Result<Admission, LeaseError> {
        self.admit_at(credential, session, Moment::since(self.begun.0), binding)
    }

    fn admit_at(
        &self,
        credential: &[u8],
        session: u64,
        now: Moment,
        binding: Option<&Binding>,
    ) -> Result<Admission, LeaseError> {
        let mut inner = self.lock();
        let Inner { verifier, node, .. } = &mut *inner;
        let Some(verifier) = verifier else {
            return Err(LeaseError::NoIdentity);
        };
        if credential.is_empty() {
            return Err(LeaseError::Missing);
        }
        let claims = verifier.admit_bound(credential, session, now, binding)?;
        let node = node.clone();
        inner.check_not_ended(&claims)?;
        let terms = match inner.leases.get(&claims.lease) {
            Some(record) if record.version >= claims.version => record.terms.clone(),
            _ => self.terms(&node, &claims.grants)?,
        };
        let token = token_of(credential);
        Ok(Admission { lease: claims.lease, tenant: claims.tenant.clone(), terms, claims, token })
    }

    /// What grants give of this node.
    fn terms(&self, node: &str, grants: &[Grant]) -> Result<Vec<Terms>, LeaseError> {
        let own = grants.iter().filter(|grant| grant.node == node);
        own.map(|grant| match grant.device {
            device if device < self.devices => Ok(Terms {
                device,
                memory: grant.memory,
                share_milli: u32::from(grant.share_milli).clamp(1, 1000),
            }),
            device => Err(LeaseError::NoDevice { device, node: node.to_owned(), devices: self.devices }),
        })
        .collect()
    }

    /// A session with a lease begins in a slot.
    ///
    /// # Errors
    /// The lease has ended since it was admitted.
    pub fn begin(&self, admission: &Admission, slot: usize) -> Result<(), LeaseError> {
        let first = {
            let mut inner = self.lock();
            inner.prune(unix_time());
            inner.check_not_ended(&admission.claims)?;
            let claims = &admission.claims;
            let record = inner.leases.entry(claims.lease).or_insert_with(|| {
                Record::new(
                    claims.version,
                    claims.orders,
                    &claims.tenant,
                    claims.expires,
                    admission.terms.clone(),
                )
            });
            if record.token.is_none() || claims.expires >= record.expires {
                record.token = Some(admission.token.clone());
            }
            record.renew(claims.expires);
            if claims.version > record.version {
                record.change(&self.ledger, claims.lease, claims.version, admission.terms.clone());
            }
            let first = record.sessions.is_empty();
            let entry = match record.entry {
                Some(entry) => entry,
                None => {
                    let entry = self.ledger.take_lease(&record.terms, &record.used);
                    entry.ok_or(LeaseError::TooMany)?
                }
            };
            record.entry = Some(entry);
            record.enter_sizes(&self.ledger);
            record.sessions.insert(slot, None);
            self.ledger.bind(slot, entry);
            first
        };
        if first {
            self.tell();
        }
        Ok(())
    }

    /// The session's process has been started.
    pub fn started(&self, lease: LeaseId, slot: usize, pid: u32) {
        let process = match Process::open(pid) {
            Ok(process) => process,
            Err(e) => {
                tracing::error!("process {pid} cannot be watched: {e}");
                return;
            }
        };
        let mut terminations = Terminations::default();
        if let Some(record) = self.lock().leases.get_mut(&lease)
            && let Some(place) = record.sessions.get_mut(&slot)
        {
            match &record.ended {
                None => *place = Some(process),
                Some(why) => {
                    self.ledger.slot(slot).set_reason(why);
                    terminations.0.push(process);
                }
            }
        }
        terminations.carry_out();
    }

    /// The session in a slot is over, and its process gone: the slot is free for others.
    pub fn end(&self, lease: LeaseId, slot: usize) {
        let last = {
            let mut inner = self.lock();
            let Some(record) = inner.leases.get_mut(&lease) else {
                self.ledger.clear_slot(slot);
                return;
            };
            record.sessions.remove(&slot);
            let stats = self.ledger.slot(slot);
            record.bytes.0 += stats.bytes_in.load(SeqCst);
            record.bytes.1 += stats.bytes_out.load(SeqCst);
            let last = record.sessions.is_empty();
            self.ledger.clear_slot(slot);
            if last && let Some(entry) = record.entry.take() {
                record.used = record.used_in(&self.ledger, entry);
                self.ledger.clear_lease(entry);
            }
            if last && record.ended.is_some() {
                inner.remove_ended(lease);
            }
            last
        };
        if last {
            self.tell();
        }
    }

    /// Takes the broker's orders: leases of running sessions get the memory and share that stand there, and those that are not
    /// there any more are ended. Orders older than the latest ones are ignored.
    pub fn apply(&self, orders: &Orders) {
        let (mut terminations, mut changed) = (Terminations::default(), false);
        {
            let mut inner = self.lock();
            if orders.version <= inner.applied {
                return;
            }
            inner.applied = orders.version;
            let node = inner.node.clone();
            let mut named = HashSet::with_capacity(orders.leases.len());
            let to_prove: HashSet<LeaseId> = orders.prove.iter().copied().collect();
            changed |= to_prove.difference(&inner.to_prove).next().is_some();
            named.extend(&to_prove);
            inner.to_prove = to_prove;
            for order in &orders.leases {
                named.insert(order.lease);
                let terms = match self.terms(&node, &order.grants) {
                    Ok(terms) => terms,
                    Err(why) => {
                        tracing::error!("lease {} is not served: {why}", order.lease);
                        continue;
                    }
                };
                let Inner { leases, ended, .. } = &mut *inner;
                match leases.get_mut(&order.lease) {
                    Some(record) => {
                        record.ordered = true;
                        record.nodes.clone_from(&order.nodes);
                        record.renew(order.expires);
                        if order.version > record.version {
                            record.change(&self.ledger, order.lease, order.version, terms);
                        }
                        if order.version >= record.version {
                            // The broker wants to hear soon that it holds.
                            changed |= record.resize(&self.ledger, &order.sizes);
                        }
                    }
                    None if ended.contains_key(&order.lease) => {
                        tracing::warn!(
                            "lease {} was ended here, and the broker's orders name it again",
                            order.lease
                        );
                    }
                    None => {
                        let mut record =
                            Record::new(order.version, orders.version, &order.tenant, order.expires, terms);
                        record.ordered = true;
                        record.nodes.clone_from(&order.nodes);
                        record.sizes.clone_from(&order.sizes);
                        leases.insert(order.lease, record);
                    }
                }
            }
            let gone: Vec<LeaseId> = inner
                .leases
                .iter()
                .filter(|(id, r)| r.ended.is_none() && r.orders <= orders.version && !named.contains(id))
                .map(|(id, _)| *id)
                .collect();
            for id in gone {
                let why =
                    orders.ended.iter().find(|ended| ended.lease == id).map(|ended| ended.reason.as_str());
                let why = why.unwrap_or("it was given back or revoked, or not renewed in time");
                changed |= inner.finish(&self.ledger, id, why, &mut terminations);
            }
            inner.prune(unix_time());
        }
        terminations.carry_out();
        if changed {
            self.tell();
        }
    }

    /// The other nodes that a lease gives something of; nothing where no orders have named it.
    pub fn nodes_of(&self, lease: LeaseId) -> Option<Vec<Peer>> {
        let inner = self.lock();
        inner.leases.get(&lease).filter(|record| record.ordered).map(|record| record.nodes.clone())
    }

    /// The version of the latest orders that were applied; 0 before the first.
    pub fn applied(&self) -> u64 {
        self.lock().applied
    }

    /// What the leases use, and which of those that were to be ended have left nothing behind. The latter are told again until
    /// [`LeaseTable::confirmed`].
    pub fn report(&self) -> (Vec<LeaseReport>, Vec<LeaseId>) {
        self.report_at(monotonic_ns(), unix_time())
    }

    fn report_at(&self, now: u64, unix: u64) -> (Vec<LeaseReport>, Vec<LeaseId>) {
        let mut inner = self.lock();
        inner.prune(unix);
        let mut reports: Vec<LeaseReport> =
            inner.leases.iter_mut().map(|(id, record)| record.report(&self.ledger, *id, now)).collect();
        reports.sort_by_key(|report| report.lease);
        (reports, inner.unconfirmed.keys().copied().collect())
    }

    /// What shows that leases are served by right that the latest orders ask to have proved.
    pub fn proofs(&self) -> Vec<LeaseProof> {
        let inner = self.lock();
        let proof = |id: &LeaseId| {
            let record = inner.leases.get(id).filter(|record| record.ended.is_none())?;
            let grant = |terms: &Terms| Grant {
                node: inner.node.clone(),
                device: terms.device,
                memory: terms.memory,
                share_milli: terms.share_milli.min(1000) as u16,
            };
            Some(LeaseProof {
                lease: *id,
                token: record.token.clone()?,
                version: record.version,
                grants: record.terms.iter().map(grant).collect(),
                sizes: record.sizes.clone(),
            })
        };
        inner.to_prove.iter().filter_map(proof).collect()
    }

    /// What the leases used that [`LeaseTable::report`] tells have ended.
    pub fn used_by_ended(&self, ended: &[LeaseId]) -> Vec<LeaseReport> {
        let inner = self.lock();
        ended.iter().filter_map(|id| inner.unconfirmed.get(id).cloned()).collect()
    }

    /// The broker has heard that these leases have ended: they need not be told again.
    pub fn confirmed(&self, ended: &[LeaseId]) {
        let mut inner = self.lock();
        for lease in ended {
            inner.unconfirmed.remove(lease);
        }
    }

    /// Calls this, on any thread, when a lease's first session begins, its last one is gone, or it has ended: something that
    /// the broker should hear soon. It must not call the table.
    pub fn on_change(&self, tell: impl Fn() + Send + Sync + 'static) {
        *self.tell.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(tell));
    }

    fn tell(&self) {
        let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(tell) = tell {
            tell();
        }
    }
}

/// The token in a credential that was checked.
fn token_of(credential: &[u8]) -> String {
    let text = String::from_utf8_lossy(credential);
    text.split_once('~').map_or(&*text, |(token, _)| token).to_owned()
}

impl Inner {
    /// Forgets leases whose tokens have run out and that no orders name: there is no broker, or it does not know them.
    fn prune(&mut self, unix: u64) {
        let over =
            |r: &Record| !r.ordered && r.ended.is_none() && r.expires.saturating_add(CLOCK_SKEW_S) < unix;
        self.leases.retain(|_, record| !record.sessions.is_empty() || !over(record));
        self.ended.retain(|_, until| *until >= unix);
    }

    fn check_not_ended(&self, claims: &LeaseClaims) -> Result<(), LeaseError> {
        let id = claims.lease;
        let known = self.leases.get(&id);
        let ended = self.ended.contains_key(&id)
            || known.is_some_and(|record| record.ended.is_some())
            // The orders would name it.
            || known.is_none() && self.applied > 0 && claims.orders <= self.applied;
        if ended { Err(TokenError::Ended(id).into()) } else { Ok(()) }
    }

    /// Ends a lease; true if nothing of it is left.
    fn finish(&mut self, ledger: &Ledger, id: LeaseId, why: &str, terminations: &mut Terminations) -> bool {
        let Some(record) = self.leases.get_mut(&id) else { return false };
        let text = format!("lease {id} has ended: {}", rgpu_control::units::printable(why));
        for (slot, process) in &mut record.sessions {
            ledger.slot(*slot).set_reason(&text);
            terminations.0.extend(process.take());
        }
        tracing::info!(tenant = record.tenant, sessions = record.sessions.len(), "{text}");
        record.ended = Some(text);
        if record.sessions.is_empty() {
            self.remove_ended(id);
            return true;
        }
        false
    }

    /// Nothing is left of a lease that has ended.
    fn remove_ended(&mut self, id: LeaseId) {
        if let Some(record) = self.leases.remove(&id) {
            self.ended.insert(id, record.expires.saturating_add(CLOCK_SKEW_S));
            self.unconfirmed.insert(id, record.last_report(id));
        }
    }
}
