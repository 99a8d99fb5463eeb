//! A client with the addresses of two brokers, which are a test's own: they say what they are told.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;

use super::*;

/// What a broker answers.
#[derive(Clone, Copy)]
enum Says {
    /// An empty list of nodes, as an active broker does.
    Nodes,
    /// That it stands by.
    StandsBy,
    /// That the token is no good, which is an answer.
    Unauthorized,
    /// Nothing: it takes the connection and closes it.
    Nothing,
}

struct Fake {
    address: SocketAddr,
    says: Arc<Mutex<Says>>,
    asked: Arc<AtomicUsize>,
}

impl Fake {
    fn new(says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (says, asked) = (Arc::new(Mutex::new(says)), Arc::new(AtomicUsize::new(0)));
        let (told, count) = (says.clone(), asked.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let _head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                count.fetch_add(1, Relaxed);
                let problem = |code: ErrorCode| {
                    let error = Problem { code, message: "said by a test".into() };
                    serde_json::to_string(&ErrorBody { error }).unwrap()
                };
                let (status, header, body) = match *told.lock().unwrap() {
                    Says::Nodes => ("200 OK", String::new(), "[]".to_owned()),
                    Says::StandsBy => (
                        "503 Service Unavailable",
                        format!("{STANDBY_HEADER}: 1\r\n"),
                        problem(ErrorCode::Unavailable),
                    ),
                    Says::Unauthorized => {
                        ("401 Unauthorized", String::new(), problem(ErrorCode::Unauthorized))
                    }
                    Says::Nothing => continue,
                };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{header}\r\n"
                );
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        });
        Self { address, says, asked }
    }

    fn says(&self, what: Says) {
        *self.says.lock().unwrap() = what;
    }

    fn asked(&self) -> usize {
        self.asked.swap(0, Relaxed)
    }
}

fn both(a: &Fake, b: &Fake) -> Broker {
    let url = format!("http://{}, http://{}/", a.address, b.address);
    Broker::new(&url, "t", &Tls::default()).unwrap()
}

#[test]
fn the_one_that_answers_is_asked_first_from_then_on() {
    let (a, b) = (Fake::new(Says::StandsBy), Fake::new(Says::Nodes));
    let broker = both(&a, &b);
    assert!(broker.nodes().unwrap().is_empty());
    assert_eq!((a.asked(), b.asked()), (1, 1));
    assert!(broker.url().ends_with(&b.address.port().to_string()));
    // A copy knows it, too.
    broker.clone().nodes().unwrap();
    assert_eq!((a.asked(), b.asked()), (0, 1));
    // They change places.
    a.says(Says::Nodes);
    b.says(Says::StandsBy);
    broker.nodes().unwrap();
    assert_eq!((a.asked(), b.asked()), (1, 1));
    assert!(broker.url().ends_with(&a.address.port().to_string()));
    broker.nodes().unwrap();
    assert_eq!((a.asked(), b.asked()), (1, 0));
}

#[test]
fn one_that_is_gone_is_passed_over() {
    let (a, b) = (Fake::new(Says::Nothing), Fake::new(Says::Nodes));
    assert!(both(&a, &b).nodes().is_ok());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{gone},http://{}", b.address);
    assert!(Broker::new(&url, "t", &Tls::default()).unwrap().nodes().is_ok());
}

#[test]
fn a_refusal_is_an_answer_and_nobody_else_is_asked() {
    let (a, b) = (Fake::new(Says::Unauthorized), Fake::new(Says::Nodes));
    let error = both(&a, &b).nodes().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Unauthorized));
    assert_eq!(b.asked(), 0);
}

#[test]
fn where_none_is_active_it_is_said_that_the_other_one_is_gone() {
    let (a, b) = (Fake::new(Says::StandsBy), Fake::new(Says::Nothing));
    let error = both(&a, &b).nodes().unwrap_err();
    // What the one that is gone says by that is worth more than that the other one stands by.
    assert!(
        matches!(&error, ClientError::Unreachable { broker, .. } if broker.contains(&b.address.port().to_string())),
        "{error:?}"
    );
    assert!(error.is_passing());
    let (a, b) = (Fake::new(Says::StandsBy), Fake::new(Says::StandsBy));
    let error = both(&a, &b).nodes().unwrap_err();
    assert!(error.is_passing() && error.code() == Some(ErrorCode::Unavailable), "{error:?}");
    assert_eq!((a.asked(), b.asked()), (1, 1));
}
