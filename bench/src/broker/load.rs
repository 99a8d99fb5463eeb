//! Clients: leases that are asked for, renewed and released, each when it is due.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rgpu_control::api::{LeaseRequest, LeaseState, TokenRequest};
use rgpu_control::token::{PrivateKey, Role};
use rgpu_control::{Broker, ClientError, LeaseId, Tls};

use super::Options;
use super::nodes::{DEVICE_MEMORY, Nodes};
use crate::Failure;

/// From when a lease is due to be asked for until it is granted.
pub(super) const GRANT: &str = "grant";
const RENEWAL: &str = "renewal";
const RELEASE: &str = "release";
const HEARTBEAT: &str = "heartbeat";

/// As many tenants ask.
const TENANTS: usize = 4;
/// From as many machines.
const MACHINES: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Ask(u64),
    Renew(LeaseId, usize),
    Release(LeaseId, usize),
}

#[derive(Debug, Default)]
struct Queue {
    actions: BinaryHeap<Reverse<(Instant, Action)>>,
    over: bool,
}

#[derive(Debug, Default)]
struct Results {
    grants: Vec<u64>,
    renewals: Vec<u64>,
    releases: Vec<u64>,
    failures: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    results: Mutex<Results>,
    measuring: Arc<AtomicBool>,
    asked: AtomicU64,
    granted: AtomicU64,
    gap: Duration,
    hold: Duration,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clients.
#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    heartbeats: Arc<Mutex<Vec<u64>>>,
}

/// What was measured.
pub(super) struct Measured {
    /// Nanoseconds, by what was done.
    pub kinds: Vec<(&'static str, Vec<u64>)>,
    /// What failed, and how often.
    pub failures: Vec<(String, u64)>,
}

/// Tokens of the tenants that ask.
fn tenants(admin: &Broker) -> Result<Vec<String>, Failure> {
    let issued = (0..TENANTS).map(|tenant| {
        let request = TokenRequest { role: Role::Tenant, name: format!("bench-{tenant}"), valid_s: 86_400 };
        admin.issue_token(&request).map(|issued| issued.token)
    });
    issued.collect::<Result<_, ClientError>>().map_err(|e| Failure::new(format!("Preparing clients: {e}")))
}

/// Asks for the leases that stay, with as many clients as ask later. Answers how many were granted in a second, where any were asked for.
pub(super) fn stand(options: &Options, url: &str, admin: &Broker) -> Result<Option<f64>, Failure> {
    if options.standing == 0 {
        return Ok(None);
    }
    let failed = |e: ClientError| Failure::new(format!("Asking for standing leases: {e}"));
    let tokens = tenants(admin)?;
    let next = AtomicU64::new(0);
    let began = Instant::now();
    let ask = |worker: usize| -> Result<(), Failure> {
        let broker = Broker::new(url, &tokens[worker % TENANTS], &Tls::default()).map_err(failed)?;
        let holder = PrivateKey::generate().public().to_text();
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= options.standing.into() {
                return Ok(());
            }
            let request = LeaseRequest {
                gpus: 1,
                memory: DEVICE_MEMORY / 8,
                share_milli: 250,
                wait_s: 60,
                ..LeaseRequest::new(format!("standing-{number}"), machine(number), holder.clone())
            };
            let lease = broker.request_lease(&request).map_err(failed)?;
            if lease.state != LeaseState::Active {
                return Err(Failure::new(format!(
                    "A standing lease is {}: {}",
                    lease.state.name(),
                    lease.reason
                )));
            }
        }
    };
    std::thread::scope(|scope| {
        let ask = &ask;
        let workers: Vec<_> =
            (0..options.workers as usize).map(|worker| scope.spawn(move || ask(worker))).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(Failure::new("A client ended by a panic")))
        })
    })?;
    Ok(Some(f64::from(options.standing) / began.elapsed().as_secs_f64()))
}

impl Load {
    /// Starts asking.
    pub(super) fn start(
        options: &Options,
        url: &str,
        admin: &Broker,
        nodes: &Nodes,
    ) -> Result<Self, Failure> {
        let failed = |e: ClientError| Failure::new(format!("Preparing clients: {e}"));
        let tokens = tenants(admin)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            results: Mutex::default(),
            measuring: nodes.measuring(),
            asked: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            gap: Duration::from_secs(60) / options.leases_per_minute,
            hold: Duration::try_from_secs_f64(options.hold)
                .map_err(|e| Failure::new(format!("--hold {}: {e}", options.hold)))?,
        });
        shared.add(Instant::now(), Action::Ask(0));
        let mut threads = Vec::new();
        for _ in 0..options.workers {
            // All tenants of a client share its connection.
            let broker = Broker::new(url, "", &Tls::default()).map_err(failed)?;
            let brokers: Vec<Broker> = tokens.iter().map(|token| broker.with_token(token)).collect();
            let shared = shared.clone();
            threads.push(std::thread::spawn(move || shared.work(&brokers)));
        }
        Ok(Self { shared, threads, heartbeats: nodes.samples() })
    }

    /// Whether times count from now on.
    pub(super) fn measure(&self, measure: bool) {
        self.shared.measuring.store(measure, Relaxed);
    }

    /// How far it is, for people.
    pub(super) fn state(&self) -> String {
        let (asked, granted) = (self.shared.asked.load(Relaxed), self.shared.granted.load(Relaxed));
        format!("{asked} leases asked for, {granted} granted")
    }

    /// Releases what is held, and tells what was measured.
    pub(super) fn finish(self) -> Measured {
        locked(&self.shared.queue).over = true;
        self.shared.changed.notify_all();
        for thread in self.threads {
            let _ = thread.join(); // a thread that panicked has said so
        }
        let results = std::mem::take(&mut *locked(&self.shared.results));
        let heartbeats = std::mem::take(&mut *locked(&self.heartbeats));
        Measured {
            kinds: vec![
                (GRANT, results.grants),
                (RENEWAL, results.renewals),
                (RELEASE, results.releases),
                (HEARTBEAT, heartbeats),
            ],
            failures: results.failures.into_iter().collect(),
        }
    }
}

impl Shared {
    fn add(&self, due: Instant, action: Action) {
        locked(&self.queue).actions.push(Reverse((due, action)));
        self.changed.notify_one();
    }

    /// The next action, once it is due. After the end, only what gives leases back, at once.
    fn next(&self) -> Option<(Instant, Action)> {
        let mut queue = locked(&self.queue);
        loop {
            if queue.over {
                while let Some(Reverse((_, action))) = queue.actions.pop() {
                    if matches!(action, Action::Release(..)) {
                        return Some((Instant::now(), action));
                    }
                }
                return None;
            }
            let now = Instant::now();
            queue = match queue.actions.peek() {
                Some(Reverse((due, _))) if *due <= now => {
                    let Reverse((due, action)) = queue.actions.pop()?;
                    // Asking goes on at its pace, however long this one takes.
                    if let Action::Ask(number) = action {
                        queue.actions.push(Reverse((due + self.gap, Action::Ask(number + 1))));
                    }
                    self.changed.notify_one();
                    return Some((due, action));
                }
                Some(Reverse((due, _))) => {
                    let wait = *due - now;
                    self.changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    self.changed
                        .wait_timeout(queue, Duration::from_millis(100))
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    fn work(&self, brokers: &[Broker]) {
        let holder = PrivateKey::generate().public().to_text();
        while let Some((due, action)) = self.next() {
            let measured = self.measuring.load(Relaxed);
            let done = match action {
                Action::Ask(number) => self.ask(brokers, number, &holder),
                Action::Renew(id, tenant) => brokers[tenant].renew(id).map(drop),
                Action::Release(id, tenant) => brokers[tenant].release(id),
            };
            let took = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if !measured {
                continue;
            }
            let mut results = locked(&self.results);
            match (done, action) {
                (Err(e), _) => {
                    let what = format!("{}: {e}", action.name());
                    // Ids and times would make each failure a kind of its own.
                    let what: String =
                        what.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
                    *results.failures.entry(what).or_default() += 1;
                }
                (Ok(()), Action::Ask(_)) => results.grants.push(took),
                (Ok(()), Action::Renew(..)) => results.renewals.push(took),
                (Ok(()), Action::Release(..)) => results.releases.push(took),
            }
        }
    }

    fn ask(&self, brokers: &[Broker], number: u64, holder: &str) -> Result<(), ClientError> {
        self.asked.fetch_add(1, Relaxed);
        let tenant = number as usize % TENANTS;
        let lease = brokers[tenant].request_lease(&request(number, holder))?;
        let asked = Instant::now();
        self.add(asked + self.hold, Action::Release(lease.id, tenant));
        if lease.state != LeaseState::Active {
            let why = format!("not granted within a minute, but {}: {}", lease.state.name(), lease.reason);
            return Err(ClientError::Setup(why));
        }
        self.granted.fetch_add(1, Relaxed);
        self.add(asked + self.hold / 2, Action::Renew(lease.id, tenant));
        Ok(())
    }
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Ask(_) => GRANT,
            Self::Renew(..) => RENEWAL,
            Self::Release(..) => RELEASE,
        }
    }
}

/// The id of a client's machine, by whose beginning the broker knows it.
fn machine(number: u64) -> String {
    format!("{:08x}-of-the-benchmark", number % MACHINES)
}

/// Requests of several kinds, in an order that is the same in every run.
fn request(number: u64, holder: &str) -> LeaseRequest {
    // SplitMix64: neighbouring numbers give unrelated ones.
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^= mixed >> 31;
    let (gpus, share_milli, memory) = match mixed % 10 {
        0..=3 => (1, 250, DEVICE_MEMORY / 8),
        4..=6 => (1, 500, DEVICE_MEMORY / 4),
        7..=8 => (1, 1000, 0),
        _ => (2, 1000, 0),
    };
    let machine = machine(mixed >> 40);
    LeaseRequest {
        gpus,
        memory,
        share_milli,
        models: if mixed >> 32 & 3 == 0 { vec!["A100".into()] } else { Vec::new() },
        transport: "tcp".into(),
        traffic_mbps: Some(10),
        wait_s: 60,
        ..LeaseRequest::new(format!("bench-{number}"), machine, holder.to_owned())
    }
}
