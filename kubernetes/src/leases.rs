//! Claims' leases at the broker.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rgpu_control::api::{self, ErrorCode, Lease, LeaseRequest, LeaseState, Problem};
use rgpu_control::ticket::Ticket;
use rgpu_control::token::{PrivateKey, lifetime};
use rgpu_control::{Broker, ClientError, LeaseId, Tls};

use crate::claim::Wanted;
use crate::names::kind;
use crate::pool::Pool;

/// The shortest secret that keys are derived from, in bytes.
const SHORTEST_SECRET: usize = 16;
/// A lease is renewed at least this often: another party's renewal, or a changed lease, shows within this time.
const RENEWAL: Duration = Duration::from_secs(20);

/// For how long a lease is taken to be good whose token is not shown.
const UNTOLD: Duration = Duration::from_secs(60);

/// Where the broker is, and as whom it is spoken to.
#[derive(clap::Args, Debug, Clone)]
pub struct BrokerArguments {
    /// The broker, such as https://broker:7080; or several, separated by commas
    #[arg(long, env = "RGPU_BROKER", value_name = "URL")]
    pub broker: String,
    /// A file with an engine's token for the broker: leases are of tenants named by namespaces. Or with a tenant's, whose all leases
    /// are then. It is read again when it changes
    #[arg(long, env = "RGPU_BROKER_TOKEN_FILE", value_name = "FILE")]
    pub broker_token_file: PathBuf,
    /// Certificates that sign the broker's [default: the machine's own]
    #[arg(long, env = "RGPU_BROKER_CA", value_name = "FILE")]
    pub broker_ca: Option<PathBuf>,
    /// Speak to a broker on another machine without encryption: whoever is on the way can read the token
    #[arg(long)]
    pub broker_insecure: bool,
    /// A file with a secret of 16 bytes or more that the controller and all nodes share: leases' keys are made of it
    #[arg(long, env = "RGPU_KUBERNETES_SECRET_FILE", value_name = "FILE")]
    pub secret_file: PathBuf,
}

/// The broker, for the leases of claims.
#[derive(Clone)]
pub struct Leases(Arc<Inner>);

struct Inner {
    arguments: BrokerArguments,
    tls: Tls,
    secret: Vec<u8>,
    current: Mutex<Option<(String, Broker)>>,
}

/// What came of asking for a lease.
#[derive(Debug)]
pub enum Asked {
    /// It has this lease, which may wait still.
    Has(Box<Lease>),
    /// The broker will not give such a lease, in its words.
    Refused(Problem),
    /// Not now: the broker cannot be reached, or does not take this driver's token, or a limit is reached.
    NotNow {
        /// A word for programs.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

impl Leases {
    /// Reads the files. Nothing is sent yet.
    ///
    /// # Errors
    /// A file cannot be read, or is of no use.
    pub fn new(arguments: &BrokerArguments) -> anyhow::Result<Self> {
        let file = &arguments.secret_file;
        let secret = std::fs::read(file).map_err(|e| {
            anyhow::anyhow!("the secret for leases' keys, {}, cannot be read: {e}", file.display())
        })?;
        if secret.trim_ascii().len() < SHORTEST_SECRET {
            anyhow::bail!("the secret in {} is shorter than {SHORTEST_SECRET} bytes", file.display());
        }
        let mut tls = Tls::read(arguments.broker_ca.as_deref(), None)?;
        tls.plain = arguments.broker_insecure;
        let secret = secret.trim_ascii().to_vec();
        let leases =
            Self(Arc::new(Inner { arguments: arguments.clone(), tls, secret, current: Mutex::new(None) }));
        leases.broker()?;
        Ok(leases)
    }

    /// The broker, for whom the file's token names now.
    fn broker(&self) -> Result<Broker, ClientError> {
        let inner = &self.0;
        let file = &inner.arguments.broker_token_file;
        let token = std::fs::read_to_string(file).map_err(|e| {
            ClientError::Setup(format!("the broker's token, {}, cannot be read: {e}", file.display()))
        })?;
        let mut current = inner.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, broker)) = current.as_ref()
            && *known == token
        {
            return Ok(broker.clone());
        }
        let broker = Broker::new(&inner.arguments.broker, &token, &inner.tls)?;
        *current = Some((token, broker.clone()));
        Ok(broker)
    }

    /// Asks the broker something, on a thread that may wait.
    ///
    /// # Errors
    /// What the broker answers.
    pub async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Broker) -> Result<T, ClientError> + Send + 'static,
    ) -> Result<T, ClientError> {
        let this = self.clone();
        let asked = tokio::task::spawn_blocking(move || what(&this.broker()?)).await;
        asked.unwrap_or_else(|e| Err(ClientError::Setup(format!("asking the broker failed: {e}"))))
    }

    /// All GPUs that the broker lists.
    ///
    /// # Errors
    /// What the broker answers.
    pub async fn pool(&self) -> Result<Pool, ClientError> {
        self.ask(|broker| Ok(Pool::of(&broker.nodes()?, &broker.devices()?))).await
    }

    /// The private key of an allocation's lease. Whoever has the secret makes the same one, so it travels nowhere.
    pub fn key(&self, key: &str) -> PrivateKey {
        PrivateKey::derive(&self.0.secret, key)
    }

    /// The ticket of a granted lease.
    pub fn ticket(&self, lease: &Lease, key: &str) -> Option<Ticket> {
        Ticket::of(lease, &self.key(key))
    }

    /// The lease of an allocated claim: the one that somebody asked for with the same key, or a new one. Waits for its grant for up to
    /// `wait_s` seconds.
    pub async fn obtain(&self, wanted: &Wanted, wait_s: u32) -> Asked {
        let home = wanted.node.clone();
        let found = self.ask(move |broker| {
            let nodes = broker.nodes()?;
            Ok((Pool::of(&nodes, &broker.devices()?), home.filter(|home| knows(&nodes, home))))
        });
        let (pool, node) = match found.await {
            Ok(found) => found,
            Err(error) => return told(Err(error)),
        };
        let device = &wanted.devices[0].device;
        let Some(model) = pool.model(device) else {
            let message =
                format!("no node of the broker's has a GPU of the kind {:?} any more", kind(device));
            return Asked::Refused(Problem { code: ErrorCode::NotFound, message });
        };
        let parameters = &wanted.parameters;
        // A machine of its own for the broker, where it does not know the node by its name.
        let machine =
            blake3::hash(wanted.node.as_deref().unwrap_or("kubernetes").as_bytes()).to_hex().to_string();
        let holder = self.key(&wanted.key).public().to_text();
        let request = LeaseRequest {
            gpus: u16::try_from(wanted.devices.len()).unwrap_or(u16::MAX),
            memory: wanted.memory,
            share_milli: wanted.share_milli,
            models: vec![model.to_owned()],
            key: Some(wanted.key.clone()),
            encrypt: parameters.encrypt.unwrap_or(false),
            harvest: parameters.harvest.unwrap_or(false),
            program: parameters.program.clone(),
            profile: parameters.profile.clone(),
            traffic_mbps: parameters.traffic_mbps,
            wait_s,
            node,
            ..LeaseRequest::new(wanted.claim.chars().take(256).collect(), machine, holder)
        };
        let namespace = wanted.namespace.clone();
        let asked = self.ask(move |broker| {
            let on_behalf_of = broker.is_engines().then_some(namespace);
            broker.request_lease(&LeaseRequest { on_behalf_of, ..request })
        });
        told(asked.await)
    }

    /// Asks for a lease for a program of a node of Kubernetes; the broker is told the node where it knows one of that name.
    pub async fn request_for(&self, mut request: LeaseRequest, node: &str) -> Asked {
        let node = node.to_owned();
        let asked = self.ask(move |broker| {
            request.node = knows(&broker.nodes()?, &node).then_some(node);
            broker.request_lease(&request)
        });
        told(asked.await)
    }

    /// More time for a lease; `None` where it has ended.
    pub async fn renew(&self, id: LeaseId) -> Option<Asked> {
        let renewed = self.ask(move |broker| broker.renew(id)).await;
        match renewed.as_ref().map_err(ClientError::code) {
            Err(Some(ErrorCode::Conflict | ErrorCode::NotFound)) => None,
            _ => Some(told(renewed)),
        }
    }

    /// A lease as it is; `None` where the broker does not know it any more, or it is over.
    pub async fn look(&self, id: LeaseId) -> Option<Asked> {
        let found = self.ask(move |broker| broker.lease(id, 0)).await;
        match &found {
            Err(error) if error.code() == Some(ErrorCode::NotFound) => None,
            _ => Some(told(found)),
        }
    }

    /// Gives back all leases of a claim, also those of earlier allocations of it and those that wait.
    ///
    /// # Errors
    /// What the broker answers. Then they may be there still.
    pub async fn release_all(&self, uid: &str) -> Result<(), ClientError> {
        let start = format!("kubernetes/{uid}/");
        self.ask(move |broker| {
            let own = |lease: &&Lease| lease.key.as_ref().is_some_and(|key| key.starts_with(&start));
            for lease in broker.leases(false)?.iter().filter(own) {
                if matches!(lease.state, LeaseState::Active | LeaseState::Waiting) {
                    broker.release(lease.id)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Gives a lease back.
    ///
    /// # Errors
    /// What the broker answers.
    pub async fn release(&self, id: LeaseId) -> Result<(), ClientError> {
        match self.ask(move |broker| broker.release(id)).await {
            Err(error) if error.code() == Some(ErrorCode::NotFound) => Ok(()),
            other => other,
        }
    }
}

/// Whether a node of Kubernetes is one of the broker's by its name.
fn knows(nodes: &[api::Node], name: &str) -> bool {
    nodes.iter().any(|node| node.name == name && node.state != "client")
}

/// When a lease is to be renewed that the broker has just shown: after a third of its time, and soon enough to notice what others do to it.
pub fn renewal(lease: &Lease) -> Duration {
    let left = lease.token.as_deref().map_or(UNTOLD, lifetime);
    (left / 3).clamp(Duration::from_secs(1), RENEWAL)
}

fn told(answer: Result<Lease, ClientError>) -> Asked {
    let error = match answer {
        Ok(lease) => return Asked::Has(Box::new(lease)),
        Err(error) => error,
    };
    let message = error.to_string();
    match (&error, error.code()) {
        (_, Some(ErrorCode::Limit)) => Asked::NotNow { reason: "LimitReached", message },
        (_, Some(ErrorCode::Unauthorized | ErrorCode::Forbidden)) => {
            Asked::NotNow { reason: "DriverNotAuthorized", message }
        }
        _ if error.is_passing() => Asked::NotNow { reason: "BrokerUnavailable", message },
        (ClientError::Refused(problem), _) => Asked::Refused(problem.clone()),
        _ => Asked::NotNow { reason: "BrokerUnavailable", message },
    }
}
