//! The broker's process: sockets, connections, and how it stops.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rgpu_control::token::PrivateKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::api::{self, Parts, Shared};
use crate::config::{Config, ConfigError};
use crate::door::{AddressFull, Door, Place, Room};
use crate::engine::{Engine, Settings, StartError, SystemClock};
use crate::metrics::Metrics;
use crate::setup::{self, SetupError};
use crate::standby::{self, Peer, Standby};
use crate::store::{SqliteStore, Store, StoreError};
use crate::tls::{self, TlsError};

/// How long a connection may be idle at least, and how long a client may take to say which request it has. Where leases are renewed
/// less often, it is the time between renewals, and a little more: a connection lasts as long as it is needed.
const IDLE_TIME: Duration = Duration::from_secs(75);
/// The longest that a connection may be idle.
const MAX_IDLE_TIME: Duration = Duration::from_secs(3600);
/// How long a connection may be open before it has brought a first request.
const FIRST_REQUEST_TIME: Duration = Duration::from_secs(10);
/// So many connections may wait to be accepted.
const MOST_UNACCEPTED: u32 = 1 << 16;
/// How long a TLS handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long requests may take to end when the broker stops.
const STOP_TIME: Duration = Duration::from_secs(1);

/// How long a broker waits at its start for another one that is stopping, and has the state still.
const OTHERS_END: Duration = Duration::from_secs(20);

/// Why the broker doesn't run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The key.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The files for encrypted connections.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The state.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The address.
    #[error("cannot listen on {listen}: {why}")]
    Listen {
        /// What was asked for.
        listen: String,
        /// What is the matter.
        why: String,
    },
    /// The peer's address, or its certificates.
    #[error("peer: {0}")]
    Peer(#[from] rgpu_control::ClientError),
    /// The system.
    #[error("the broker cannot run: {0}")]
    System(#[from] io::Error),
}

/// A broker that runs in this process.
pub struct Server {
    // Dropped last.
    runtime: Option<Runtime>,
    engine: Engine,
    key: PrivateKey,
    address: SocketAddr,
    encrypted: bool,
    metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a broker that is active; requests are answered from then on.
    pub fn start(config: &Config) -> Result<Self, ServeError> {
        Self::start_in(config, 0)
    }

    /// The same in a later epoch than the state's, where that is an earlier one.
    fn start_in(config: &Config, epoch: u64) -> Result<Self, ServeError> {
        raise_file_limit();
        let key = setup::read_key(&config.data_dir)?;
        let acceptor = config.tls.as_ref().map(tls::server_config).transpose()?.map(TlsAcceptor::from);
        let encrypted = acceptor.is_some();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)))
            .thread_name("rgpu-broker")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(listen(config))?;
        let address = listener.local_addr()?;
        let store = SqliteStore::open_within(&setup::state_path(&config.data_dir), OTHERS_END)?;
        let engine = Engine::start(
            Settings { epoch, ..config.settings()? },
            key.clone(),
            Box::new(store),
            Arc::new(SystemClock::new()),
        )?;
        let (stop, stopping) = watch::channel(false);
        let metrics = Arc::new(Metrics::default());
        let shared = Shared::new(Parts {
            engine: engine.clone(),
            key: key.public(),
            metrics: metrics.clone(),
            node_switches: config.node_switches.clone(),
            open_metrics: config.open_metrics,
            max_per_token: config.max_requests_per_token,
            stopping: stopping.clone(),
        });
        let context = ConnectionContext {
            acceptor,
            router: api::router(&shared),
            metrics: metrics.clone(),
            idle: idle_time(config),
        };
        let accepting = Some(runtime.spawn(accept(listener, Door::new(room(config)), context, stopping)));
        Ok(Self { runtime: Some(runtime), engine, key, address, encrypted, metrics, stop, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.encrypted { "https" } else { "http" }, self.address)
    }

    /// The key that tokens are signed with.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// The engine behind the API: the state, and everything that can be done with it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Stops: accepts nothing more, answers what is under way, and closes the state.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.stop.send_replace(true);
        if let Some(accepting) = self.accepting.take() {
            // Its own time limit is shorter.
            let _ = runtime.block_on(async { timeout(STOP_TIME + STOP_TIME / 2, accepting).await });
        }
        self.engine.stop();
        // What still runs is a request that hangs: it ends here.
        runtime.shutdown_timeout(Duration::from_millis(100));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a broker until it is told to stop by SIGTERM or SIGINT. Prints one line with its address. Where it has a peer, it is active
/// or stands by, as the two agree.
pub fn serve(config: &Config) -> Result<(), ServeError> {
    let key = setup::read_key(&config.data_dir)?;
    let Some(peer) = Peer::of(config, &key)?.map(Arc::new) else {
        return run(Server::start(config)?, None, true).map(drop);
    };
    let mut config = config.clone();
    let (mut said, mut at_once) = (false, !config.standby);
    loop {
        let passive = Passive::start(&config, &key, &peer)?;
        // A free port that was asked for is kept.
        config.listen = passive.address.to_string();
        if !std::mem::replace(&mut said, true) {
            announce(&passive.url, &format!(" (its peer is {})", peer.url()))?;
        }
        let Some(epoch) = passive.wait(at_once)? else { return Ok(()) };
        let server = Server::start_in(&config, epoch)?;
        tracing::info!("active, in epoch {}", server.engine().epoch());
        if !run(server, Some((&peer, config.standby)), false)? {
            return Ok(());
        }
        at_once = false;
    }
}

/// Says where it listens: whoever waits for this line may stop the broker at once, by signals that are heeded by now.
fn announce(url: &str, more: &str) -> io::Result<()> {
    // In one step: who reads only the first line may be gone before a second one.
    let line = format!(
        "rgpu broker: listening on {url}{more}\nrgpu broker: the web page is {url}{}\n",
        crate::web::PATH
    );
    io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush())?;
    tracing::info!("listening on {url}{more}");
    Ok(())
}

/// Becomes ready when the process is told to stop. The signals are heeded from the call on.
fn told_to_stop() -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Runs an active broker until it is told to stop, or (true) until its peer has taken over.
fn run(server: Server, peer: Option<(&Arc<Peer>, bool)>, announced: bool) -> Result<bool, ServeError> {
    let (superseded, mut is_superseded) = watch::channel(false);
    let watching = match peer {
        None => None,
        Some((peer, yields)) => {
            let engine = server.engine().clone();
            let told = superseded.clone();
            let tell = move || {
                told.send_replace(true);
            };
            let metrics = server.metrics.clone();
            let answers = move |answers| metrics.peer_is_up(answers);
            Some(standby::watch_rival(peer.clone(), yields, move || engine.epoch(), answers, tell)?)
        }
    };
    let mut is_over = false;
    if let Some(runtime) = &server.runtime {
        is_over = runtime.block_on(async {
            let told = told_to_stop()?;
            if announced {
                announce(&server.url(), "")?;
            }
            tokio::select! {
                () = told => Ok::<bool, io::Error>(false),
                _ = is_superseded.wait_for(|over| *over) => Ok(true),
            }
        })?;
    }
    drop(watching);
    tracing::info!("stopping");
    server.stop();
    tracing::info!("stopped");
    Ok(is_over)
}

/// A broker that stands by.
struct Passive {
    runtime: Runtime,
    standby: Arc<Standby>,
    nodes: usize,
    address: SocketAddr,
    url: String,
    stop: Arc<std::sync::atomic::AtomicBool>,
}

impl Passive {
    fn start(config: &Config, key: &PrivateKey, peer: &Arc<Peer>) -> Result<Self, ServeError> {
        // What this broker knew when it was active.
        let state = setup::state_path(&config.data_dir);
        let kept = SqliteStore::open_within(&state, OTHERS_END)?.load()?;
        let standby = Standby::new(peer.clone(), key.clone(), crate::engine::epoch_in(&kept));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("rgpu-standby")
            .enable_all()
            .build()?;
        let acceptor = config.tls.as_ref().map(tls::server_config).transpose()?.map(TlsAcceptor::from);
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let listener = runtime.block_on(listen(config))?;
        let address = listener.local_addr()?;
        let router = standby.router();
        let metrics = Arc::new(Metrics::default());
        let context = ConnectionContext { acceptor, router, metrics, idle: idle_time(config) };
        let door = Door::new(room(config));
        let (never, stopping) = watch::channel(false);
        runtime.spawn(async move {
            accept(listener, door, context, stopping).await;
            drop(never);
        });
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (told, stops) = (runtime.block_on(async { told_to_stop() })?, stop.clone());
        runtime.spawn(async move {
            told.await;
            stops.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        Ok(Self {
            runtime,
            standby,
            nodes: kept.nodes.len(),
            address,
            url: format!("{scheme}://{address}"),
            stop,
        })
    }

    /// Waits until this broker is to be active. Its connections end then: who has one connects anew.
    fn wait(self, at_once: bool) -> Result<Option<u64>, ServeError> {
        let epoch = self.standby.wait(at_once, self.nodes, &self.stop);
        self.runtime.shutdown_timeout(Duration::from_secs(1));
        Ok(epoch)
    }
}

async fn listen(config: &Config) -> Result<TcpListener, ServeError> {
    let failed = |why: String| ServeError::Listen { listen: config.listen.clone(), why };
    let addresses: Vec<SocketAddr> =
        tokio::net::lookup_host(&config.listen).await.map_err(|e| failed(e.to_string()))?.collect();
    config.may_listen(&addresses).map_err(|e| failed(e.to_string()))?;
    let mut tried = Err(failed("it is no address".into()));
    for address in addresses {
        tried = bind(address).map_err(|e| failed(e.to_string()));
        if tried.is_ok() {
            break;
        }
    }
    tried
}

/// Listens at an address. All nodes of a cluster may come at once, such as after a start of the broker.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    // The system has a limit of its own (net.core.somaxconn).
    socket.listen(MOST_UNACCEPTED)
}

/// How long a connection may be idle.
fn idle_time(config: &Config) -> Duration {
    IDLE_TIME.max(Duration::from_secs(config.lease_ttl_s)).min(MAX_IDLE_TIME)
}

/// How many connections there may be.
fn room(config: &Config) -> Room {
    Room {
        total: config.max_connections,
        per_address: config.max_connections_per_address,
        first_request: FIRST_REQUEST_TIME,
    }
}

/// What a connection needs.
#[derive(Clone)]
struct ConnectionContext {
    acceptor: Option<TlsAcceptor>,
    router: Router,
    metrics: Arc<Metrics>,
    /// How long a connection may be idle.
    idle: Duration,
}

async fn accept(
    listener: TcpListener,
    door: Arc<Door>,
    context: ConnectionContext,
    mut stopping: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    loop {
        let next = async {
            let (stream, peer) = listener.accept().await?;
            Ok::<_, io::Error>((door.enter(peer).await, stream, peer))
        };
        let accepted = tokio::select! {
            next = next => next,
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((Ok(place), stream, peer)) => {
                let (context, watcher, place) = (context.clone(), graceful.watcher(), Arc::new(place));
                tokio::spawn(serve_until_over(stream, peer, context, watcher, place));
            }
            Ok((Err(AddressFull), _, peer)) => {
                tracing::warn!("{peer} is not served: its address has as many busy connections as may be");
            }
            Err(e) => {
                // Out of files, or the peer has gone already.
                tracing::warn!("a connection cannot be accepted: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    door.clear();
    if timeout(STOP_TIME, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end within {} s", STOP_TIME.as_secs());
    }
}

/// Serves a connection until it ends, or its place is over.
async fn serve_until_over(
    stream: TcpStream,
    peer: SocketAddr,
    context: ConnectionContext,
    watcher: Watcher,
    place: Arc<Place>,
) {
    tokio::select! {
        // What has come is read first: on a busy machine, a request may have waited here for longer than it may take to bring one.
        biased;
        () = connection(stream, peer, context, watcher, place.clone()) => {}
        () = place.over() => tracing::debug!("the connection with {peer} was closed: it said nothing"),
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    context: ConnectionContext,
    watcher: Watcher,
    place: Arc<Place>,
) {
    let _ = stream.set_nodelay(true);
    let _connected = context.metrics.connected();
    match context.acceptor.clone() {
        None => serve_connection(stream, peer, context, watcher, place).await,
        Some(acceptor) => match timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => serve_connection(stream, peer, context, watcher, place).await,
            Ok(Err(e)) => tracing::info!("{peer} got no encrypted connection: {e}"),
            Err(_) => tracing::info!("{peer} began no encrypted connection in time"),
        },
    }
}

async fn serve_connection<S>(
    stream: S,
    peer: SocketAddr,
    context: ConnectionContext,
    watcher: Watcher,
    place: Arc<Place>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(context.router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        place.heard();
        request.extensions_mut().insert(place.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(context.idle)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(e) = watcher.watch(connection).await {
        tracing::debug!("the connection with {peer} ended: {e}");
    }
}

/// As many open files as the system allows: each connection is one.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a variable of the type that the call fills in.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 || limit.rlim_cur == limit.rlim_max {
        return;
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above; the call only reads it.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        tracing::debug!("the limit of open files stays as it is: {}", io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use axum::routing::get;

    use super::*;

    /// A client has sent its request in time, but the broker was too busy to look at it until the time was over.
    #[test]
    fn a_request_that_waited_for_the_broker_is_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let time = Duration::from_millis(40);
        let door = Door::new(Room { total: 100, per_address: 100, first_request: time });
        // Where it is a matter of luck, one of these fails.
        for _ in 0..12 {
            let answer = runtime.block_on(async {
                let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
                let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let (stream, peer) = listener.accept().await.unwrap();
                let place = Arc::new(door.enter(peer).await.unwrap());
                let context = ConnectionContext {
                    acceptor: None,
                    router: Router::new().route("/", get(async || "well")),
                    metrics: Arc::new(Metrics::default()),
                    idle: IDLE_TIME,
                };
                let graceful = GracefulShutdown::new();
                let served = tokio::spawn(serve_until_over(stream, peer, context, graceful.watcher(), place));
                tokio::task::yield_now().await;
                client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
                // Nothing runs meanwhile.
                std::thread::sleep(3 * time);
                served.await.unwrap();
                let mut answer = String::new();
                client.read_to_string(&mut answer).map(|_| answer)
            });
            let answer = answer.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("well"), "{answer:?}");
        }
    }
}
