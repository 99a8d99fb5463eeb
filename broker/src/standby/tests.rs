//! Tests of standing by, with a peer that says what a test tells it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::AtomicUsize;

use super::*;

/// How long anything may take; only something that hangs takes that long.
const LONG: Duration = Duration::from_secs(60);

/// A broker's health and nodes, over HTTP.
struct FakePeer {
    url: String,
    /// What it says; nothing at all where there is none.
    health: Arc<Mutex<Option<Health>>>,
    asked: Arc<AtomicUsize>,
}

fn health(epoch: u64, standby: bool) -> Health {
    Health {
        status: "ok".into(),
        version: "0".into(),
        uptime_s: 1,
        public_key: String::new(),
        epoch,
        standby,
    }
}

impl FakePeer {
    fn new(said: Option<Health>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (health, asked) = (Arc::new(Mutex::new(said)), Arc::new(AtomicUsize::new(0)));
        let (said, count) = (health.clone(), asked.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let path = lines.next().unwrap_or_default();
                let _head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                count.fetch_add(1, SeqCst);
                let Some(health) = said.lock().clone() else { continue };
                let body = if path.contains(paths::HEALTH) {
                    serde_json::to_string(&health).unwrap()
                } else {
                    "[]".into()
                };
                let length = body.len();
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n");
                // A watcher that has ended does not read it.
                let _ = write!(stream, "{head}content-type: application/json\r\n\r\n{body}");
            }
        });
        Self { url, health, asked }
    }

    fn peer(&self, key: &PrivateKey) -> Arc<Peer> {
        Arc::new(Peer { url: self.url.clone(), tls: Tls::default(), key: key.clone() })
    }

    /// Waits until it was asked so many times more.
    fn wait_asked(&self, more: usize) {
        let (until, began) = (self.asked.load(SeqCst) + more, Instant::now());
        while self.asked.load(SeqCst) < until {
            assert!(began.elapsed() < LONG, "nobody asks");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn node_token(key: &PrivateKey, role: Role, name: &str, expires: u64) -> HeaderMap {
    let now = unix_time();
    let claims = RoleClaims { role, name: name.into(), not_before: now - 60, expires };
    let mut headers = HeaderMap::new();
    let value = format!("Bearer {}", key.sign(&Claims::Role(claims)));
    headers.insert(header::AUTHORIZATION, value.parse().unwrap());
    headers
}

fn ask(standby: &Arc<Standby>, headers: HeaderMap) -> Response {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(answer(State(standby.clone()), Uri::from_static("/v1/nodes/n/heartbeat"), headers))
}

#[test]
fn only_nodes_with_a_good_token_have_a_vote_and_each_has_one() {
    let (key, other) = (PrivateKey::generate(), PrivateKey::generate());
    let standby = Standby::new(FakePeer::new(None).peer(&key), key.clone(), 0);
    let later = unix_time() + 60;
    let answered = ask(&standby, HeaderMap::new());
    assert_eq!(answered.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answered.headers().contains_key(STANDBY_HEADER));
    ask(&standby, node_token(&key, Role::Tenant, "t", later));
    ask(&standby, node_token(&key, Role::Admin, "a", later));
    ask(&standby, node_token(&other, Role::Node, "forged", later));
    ask(&standby, node_token(&key, Role::Node, "expired", unix_time() - 59));
    assert_eq!(standby.votes(), 0);
    for name in ["n0", "n1", "n0", "n0"] {
        ask(&standby, node_token(&key, Role::Node, name, later));
    }
    assert_eq!(standby.votes(), 2);
}

#[test]
fn a_vote_is_forgotten_where_its_node_comes_no_more() {
    let key = PrivateKey::generate();
    let standby = Standby::new(FakePeer::new(None).peer(&key), key, 0);
    let now = Instant::now();
    standby.votes.lock().insert("n0".into(), now);
    standby.votes.lock().insert("n1".into(), now + Duration::from_secs(3));
    assert_eq!(standby.votes_at(now + VOTE - Duration::from_millis(1)), 2);
    assert_eq!(standby.votes_at(now + VOTE), 1);
    assert_eq!(standby.votes_at(now + VOTE + Duration::from_secs(3)), 0);
}

#[test]
fn a_place_is_taken_after_a_silence_by_more_than_half_of_the_nodes() {
    let long = SILENCE;
    let short = SILENCE - Duration::from_millis(1);
    for (silence, votes, nodes, expected) in [
        (long, 2, 3, true),
        (long, 1, 2, false), // half is not more than half
        (long, 1, 3, false),
        (long, 1, 1, true),
        (long, 0, 0, false), // nobody has come
        (long, 1, 0, true),  // the peer has never told of any
        (short, 3, 3, false),
    ] {
        assert_eq!(takes_over(silence, votes, nodes), expected, "{silence:?}: {votes} of {nodes}");
    }
}

#[test]
fn a_broker_yields_to_a_later_epoch_and_to_the_same_one_if_it_began_by_standing_by() {
    for (said, yields, expected) in [
        (health(4, false), false, true),
        (health(3, false), false, false),
        (health(3, false), true, true),
        (health(2, false), true, false),
        (health(9, true), true, false), // who stands by takes nothing
    ] {
        assert_eq!(supersedes(&said, 3, yields), expected, "{said:?}, {yields}");
    }
}

#[test]
fn a_watched_rival_that_takes_over_is_told_of_once() {
    let key = PrivateKey::generate();
    let rival = FakePeer::new(Some(health(3, false)));
    let told = Arc::new(AtomicUsize::new(0));
    let tell = told.clone();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let answers = heard.clone();
    let watch = watch_rival(
        rival.peer(&key),
        false,
        || 3,
        move |up| answers.lock().push(up),
        move || {
            tell.fetch_add(1, SeqCst);
        },
    )
    .unwrap();
    // Silence, the same epoch, and a broker that stands by are no reason.
    rival.wait_asked(1);
    *rival.health.lock() = None;
    rival.wait_asked(1);
    *rival.health.lock() = Some(health(9, true));
    rival.wait_asked(2);
    assert_eq!(told.load(SeqCst), 0);
    *rival.health.lock() = Some(health(4, false));
    let began = Instant::now();
    while told.load(SeqCst) == 0 {
        assert!(began.elapsed() < LONG, "nobody tells");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(heard.lock().contains(&true) && heard.lock().contains(&false), "{heard:?}");
    drop(watch);
    assert_eq!(told.load(SeqCst), 1);
}

#[test]
fn a_dead_peers_place_is_taken_with_its_nodes_votes_in_the_next_epoch() {
    let key = PrivateKey::generate();
    let peer = FakePeer::new(Some(health(6, false)));
    let standby = Standby::new(peer.peer(&key), key.clone(), 2);
    let stop = Arc::new(AtomicBool::new(false));
    let waiting = {
        let (standby, stop) = (standby.clone(), stop.clone());
        std::thread::spawn(move || standby.wait(false, 2, &stop))
    };
    // Its epoch and its nodes, of which it has none: what was known of those before is replaced.
    peer.wait_asked(2);
    *peer.health.lock() = None;
    peer.wait_asked(1);
    assert!(!waiting.is_finished(), "a moment's silence is no death");
    let voter = node_token(&key, Role::Node, "n0", unix_time() + 600);
    let began = Instant::now();
    while !waiting.is_finished() {
        assert!(began.elapsed() < LONG, "it does not take over");
        ask(&standby, voter.clone());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(waiting.join().unwrap(), Some(7));
}

#[test]
fn at_once_means_unless_the_peer_is_active() {
    let key = PrivateKey::generate();
    let stop = AtomicBool::new(false);
    for said in [None, Some(health(5, true))] {
        let heard = said.as_ref().map_or(2, |health| health.epoch);
        let standby = Standby::new(FakePeer::new(said).peer(&key), key.clone(), 2);
        assert_eq!(standby.wait(true, 0, &stop), Some(heard));
    }
    let active = FakePeer::new(Some(health(5, false)));
    let standby = Standby::new(active.peer(&key), key.clone(), 2);
    let stop = Arc::new(AtomicBool::new(false));
    let ends = stop.clone();
    let waiting = std::thread::spawn(move || standby.wait(true, 0, &ends));
    active.wait_asked(3);
    stop.store(true, SeqCst);
    assert_eq!(waiting.join().unwrap(), None);
}
