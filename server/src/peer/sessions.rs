//! The daemon's side: connects sessions with others', and hands what arrives to the session that waits for it.

use super::rule::{Rule, RuleError};
use super::{Ask, Channel, Identity, Introduction, REFUSAL, Tell, is_answer};
use crate::greeting::{hear_message, say};
use crate::lease::LeaseTable;
use parking_lot::Mutex;
use rgpu_control::LeaseId;
use rgpu_control::api::Peer;
use rgpu_control::token::random_bytes;
use rgpu_protocol::calls::PeerKey;
use rgpu_protocol::hello::{self, FEATURE_LINK, Hello, LinkAnswer, MAJOR, MAX_HELLO_ANSWER, Status};
use rgpu_protocol::transport::blocking::send_all;
use rgpu_protocol::transport::{Tcp, Transport};
use rgpu_protocol::wire::Reader;
use rgpu_protocol::wire::Wire;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long connecting may take.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// How long another server that is vouched for may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long the broker's orders are waited for, where a program is faster than they are.
const ORDERS_TIME: Duration = Duration::from_secs(2);
const ORDERS_LOOK: Duration = Duration::from_millis(20);
/// A session may have so many connections made at a time.
const MAX_PENDING: usize = 64;

/// Why a connection is not made, as the program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum LinkError {
    /// The daemon may not connect there.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// Whatever keeps a connection from being made is said in the same words.
    #[error("the other server does not answer this one")]
    Unreachable,
    /// Too many at a time.
    #[error("too many connections are being made at once")]
    Many,
    /// No thread could be started.
    #[error("the server has no thread left")]
    NoThread,
}

/// All sessions of a daemon that may have peers.
pub struct PeerSessions {
    rule: Rule,
    /// Who knows what the broker says of leases; with an agent, that comes by itself.
    leases: Arc<LeaseTable>,
    has_agent: bool,
    sessions: Mutex<HashMap<[u8; 16], Arc<PeerSession>>>,
}

/// A session that other servers can reach.
struct PeerSession {
    identity: Identity,
    lease: Option<LeaseId>,
    channel: Channel,
    pending: AtomicUsize,
}

/// A session's entry among those that other servers can reach, until it is dropped: then its keys are good no more.
pub struct Registration {
    all: Arc<PeerSessions>,
    own: Arc<PeerSession>,
}

impl Registration {
    /// What the session's process makes its keys of.
    pub fn identity(&self) -> &Identity {
        &self.own.identity
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.all.sessions.lock().remove(&self.own.identity.session);
        self.own.channel.shut();
    }
}

impl PeerSessions {
    /// No sessions yet.
    pub fn new(rule: Rule, leases: Arc<LeaseTable>, has_agent: bool) -> Arc<Self> {
        Arc::new(Self { rule, leases, has_agent, sessions: Mutex::default() })
    }

    /// Enters a session. The channel is for its process.
    pub fn open(self: &Arc<Self>, lease: Option<LeaseId>) -> io::Result<(Registration, Channel)> {
        let (channel, theirs) = Channel::pair()?;
        let own = Arc::new(PeerSession {
            identity: Identity::random(),
            lease,
            channel,
            pending: AtomicUsize::new(0),
        });
        let (all, its) = (self.clone(), own.clone());
        std::thread::Builder::new()
            .name("peers".into())
            .stack_size(128 << 10)
            .spawn(move || all.serve(&its))?;
        self.sessions.lock().insert(own.identity.session, own.clone());
        Ok((Registration { all: self.clone(), own }, theirs))
    }

    /// Makes the connections that a session's process asks for, until it has gone.
    fn serve(self: Arc<Self>, own: &Arc<PeerSession>) {
        while let Ok(Some((message, _))) = own.channel.receive() {
            let Ok(ask) = Ask::parse(&message) else { return };
            let link = ask.link;
            let failed = |why: LinkError| {
                let word = Tell::Failed { link, text: why.to_string() };
                let _ = own.channel.send(&word.to_bytes(), None);
            };
            if own.pending.fetch_add(1, SeqCst) >= MAX_PENDING {
                own.pending.fetch_sub(1, SeqCst);
                failed(LinkError::Many);
                continue;
            }
            let (all, its) = (self.clone(), own.clone());
            let body = move || {
                let made = all.connect(&its, &ask);
                its.pending.fetch_sub(1, SeqCst);
                let (word, tcp) = match made {
                    Ok(tcp) => (Tell::Connected { link }, Some(tcp)),
                    Err(why) => (Tell::Failed { link, text: why.to_string() }, None),
                };
                // A process that has gone needs nothing any more.
                let _ = its.channel.send(&word.to_bytes(), tcp.as_ref().map(Tcp::descriptor));
            };
            let thread = std::thread::Builder::new().name("peer".into()).stack_size(512 << 10).spawn(body);
            if let Err(e) = thread {
                own.pending.fetch_sub(1, SeqCst);
                tracing::error!("no thread could be started: {e}");
                failed(LinkError::NoThread);
            }
        }
    }

    fn connect(&self, own: &PeerSession, ask: &Ask) -> Result<Tcp, LinkError> {
        let begun = Instant::now();
        let nodes = own.lease.map_or_else(Vec::new, |lease| self.nodes_of(lease, begun));
        let way = self.rule.way(&nodes, &ask.node, &ask.address)?;
        let limit = if way.vouched { CONNECT_TIME + ANSWER_TIME } else { CONNECT_TIME };
        let made = way.addresses.iter().map(|address| introduce(*address, &ask.key, begun + limit));
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for made in made {
            match made {
                Ok(tcp) => return Ok(tcp),
                Err(e) => last = e,
            }
        }
        tracing::info!("no copies go straight to {:?}: {last}", way.addresses);
        if !way.vouched {
            // Neither the time nor the words tell what is there.
            std::thread::sleep((begun + limit).saturating_duration_since(Instant::now()));
        }
        Err(LinkError::Unreachable)
    }

    /// The nodes that a lease gives something of. Orders may come a moment after the program does.
    fn nodes_of(&self, lease: LeaseId, begun: Instant) -> Vec<Peer> {
        loop {
            match self.leases.nodes_of(lease) {
                Some(nodes) => return nodes,
                None if !self.has_agent || begun.elapsed() > ORDERS_TIME => return Vec::new(),
                None => std::thread::sleep(ORDERS_LOOK),
            }
        }
    }

    /// Another server has connected, with this hello: hands the connection to the session that waits for it.
    pub fn arrive(&self, tcp: &Tcp, hello: &Hello, peer: &str) {
        let found = Introduction::parse(&hello.credential).and_then(|shown| {
            let own = self.sessions.lock().get(&shown.session).cloned()?;
            shown.knows(&own.identity.key(shown.number)).then_some((shown, own))
        });
        let handed = found.is_some_and(|(shown, own)| {
            let word = Tell::Arrived { number: shown.number, nonce: shown.nonce };
            own.channel.send(&word.to_bytes(), Some(tcp.descriptor())).is_ok()
        });
        if !handed {
            tracing::warn!("{peer}: refused: it has no key of a session");
            let _ = say(tcp, &refusal());
        }
    }
}

/// How keys that are not good are answered.
pub fn refusal() -> LinkAnswer {
    LinkAnswer { status: Status::Credential as u32, message: REFUSAL.into(), proof: [0; 32] }
}

/// Connects to another server, and makes sure that it knows the key.
fn introduce(address: SocketAddr, key: &PeerKey, end: Instant) -> io::Result<Tcp> {
    let odd = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let left = end.saturating_duration_since(Instant::now()).min(CONNECT_TIME);
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let stream = TcpStream::connect_timeout(&address, left)?;
    let tcp = Tcp::adopt(stream.into(), address.to_string())?;
    let shown = Introduction::new(key, random_bytes());
    let hello = Hello {
        features: FEATURE_LINK,
        credential: shown.to_credential(),
        program: "rgpu serve".into(),
        pid: std::process::id(),
        ..Hello::default()
    };
    send_all(&tcp, &hello::message(&hello), end)?;
    let (prefix, body) = hear_message(&tcp, MAX_HELLO_ANSWER, end)?;
    let answer = LinkAnswer::decode(&mut Reader::new(&body)).map_err(|e| odd(&e.to_string()))?;
    let known = prefix.major == MAJOR
        && answer.status == Status::Accepted as u32
        && is_answer(key, &shown.nonce, answer.proof);
    if known { Ok(tcp) } else { Err(odd("what answers there does not know the key")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::peer::answer;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    fn board(loopback: bool) -> Arc<PeerSessions> {
        let ledger = Arc::new(Ledger::new(&[1 << 20]).unwrap());
        let named = if loopback { vec![] } else { vec!["127.0.0.1".parse().unwrap()] };
        PeerSessions::new(Rule { named, loopback }, LeaseTable::new(ledger, 1), false)
    }

    /// What a daemon does with whatever connects.
    fn daemon(board: Arc<PeerSessions>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let tcp = Tcp::adopt(stream.unwrap().into(), "test".into()).unwrap();
                let end = Instant::now() + ANSWER_TIME;
                if let Ok((_, body)) = hear_message(&tcp, hello::MAX_HELLO, end) {
                    board.arrive(&tcp, &Hello::parse(&body).unwrap(), "test");
                }
            }
        });
        address
    }

    fn ask(channel: &Channel, address: SocketAddr, key: PeerKey) -> (Tell, bool) {
        let ask = Ask { link: 3, node: String::new(), address: address.to_string(), key };
        channel.send(&ask.to_bytes(), None).unwrap();
        let (word, descriptor) = channel.receive().unwrap().unwrap();
        (Tell::parse(&word).unwrap(), descriptor.is_some())
    }

    #[test]
    fn a_session_is_connected_with_the_one_whose_key_it_has() {
        let (receiving, sending) = (board(false), board(false));
        let address = daemon(receiving.clone());
        let (theirs, their_process) = receiving.open(None).unwrap();
        let (_ours, process) = sending.open(None).unwrap();
        let key = theirs.identity().key(1);
        let copy = key.clone();
        let answering = std::thread::spawn(move || {
            let (word, descriptor) = their_process.receive().unwrap().unwrap();
            let Tell::Arrived { number: 1, nonce } = Tell::parse(&word).unwrap() else { panic!("{word:?}") };
            let tcp = Tcp::adopt(descriptor.unwrap(), "test".into()).unwrap();
            let status = Status::Accepted as u32;
            say(&tcp, &LinkAnswer { status, proof: answer(&copy, &nonce), ..LinkAnswer::default() }).unwrap();
            their_process
        });
        assert_eq!(ask(&process, address, key.clone()), (Tell::Connected { link: 3 }, true));
        let _their_process = answering.join().unwrap();
        let refused = (Tell::Failed { link: 3, text: LinkError::Unreachable.to_string() }, false);
        // Keys of nobody, of another session, and of one that is over.
        assert_eq!(ask(&process, address, Identity::random().key(1)), refused);
        let wrong = PeerKey { session: key.session, ..Identity::random().key(1) };
        assert_eq!(ask(&process, address, wrong), refused);
        drop(theirs);
        assert_eq!(ask(&process, address, key), refused);
    }

    #[test]
    fn who_does_not_know_the_key_gets_no_connection() {
        // Somebody listens there who says yes to everything.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let tcp = Tcp::adopt(stream.unwrap().into(), "test".into()).unwrap();
                let heard = hear_message(&tcp, hello::MAX_HELLO, Instant::now() + ANSWER_TIME);
                let shown = Hello::parse(&heard.unwrap().1).unwrap().credential;
                let proof = Introduction::parse(&shown).unwrap().proof;
                let _ = say(&tcp, &LinkAnswer { proof, ..LinkAnswer::default() });
            }
        });
        let sending = board(false);
        let (_open, process) = sending.open(None).unwrap();
        let refused = (Tell::Failed { link: 3, text: LinkError::Unreachable.to_string() }, false);
        assert_eq!(ask(&process, address, Identity::random().key(1)), refused);
    }

    #[test]
    fn failing_takes_the_same_time_whatever_is_there() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let sending = board(true);
        let (_open, process) = sending.open(None).unwrap();
        for address in [silent.local_addr().unwrap(), closed] {
            let begun = Instant::now();
            let refused = (Tell::Failed { link: 3, text: LinkError::Unreachable.to_string() }, false);
            assert_eq!(ask(&process, address, Identity::random().key(1)), refused);
            assert!(begun.elapsed() >= CONNECT_TIME);
        }
    }

    #[test]
    fn a_session_that_ends_ends_its_threads_conversation() {
        let board = board(false);
        let (open, process) = board.open(None).unwrap();
        assert!(process.as_raw_fd() >= 0 && board.sessions.lock().len() == 1);
        drop(open);
        assert!(process.receive().unwrap().is_none() && board.sessions.lock().is_empty());
    }
}
