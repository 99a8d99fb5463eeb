//! Where a daemon connects to on behalf of a program.
//!
//! A program names the server that its copies are to go to. Were it believed, any program could have the daemon knock at any
//! door of the daemon's network, and learn what is there from how long that takes and what is said of it. So a daemon
//! connects only
//!
//! - to nodes among which the broker has spread the session's lease, at the address that the broker gives;
//! - to servers that whoever started it has named (`--peers`);
//! - where nothing was said, it has no broker, and it listens on a loopback address, to loopback addresses: whoever reaches such a
//!   daemon is on the machine, or uses a tunnel. As the latter should learn nothing of the machine, failing takes the same
//!   time whatever the reason, and is told in the same words.

use rgpu_control::api::Peer;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Ports below this are no rgpu server's, unless somebody says so.
const FIRST_PORT: u16 = 1024;

/// Servers that somebody has named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// All.
    Any,
    /// One, or all at a host.
    Host(String, Option<u16>),
}

/// `any`, `HOST` or `HOST:PORT`; with a port, an IPv6 address stands in brackets.
impl FromStr for Named {
    type Err = NamesNoServer;
    fn from_str(text: &str) -> Result<Self, NamesNoServer> {
        if text == "any" {
            return Ok(Self::Any);
        }
        let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, rest))) => (host, rest.strip_prefix(':')),
            _ if text.parse::<IpAddr>().is_ok() => (text, None),
            _ => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map(str::parse).transpose().ok();
        match port {
            Some(port) if !host.is_empty() && !host.contains(['/', ' ', ',']) => {
                Ok(Self::Host(host.to_owned(), port))
            }
            _ => Err(NamesNoServer(text.to_owned())),
        }
    }
}

/// A text that should name servers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no server: give HOST, HOST:PORT, or `any`")]
pub struct NamesNoServer(String);

/// Why a daemon does not connect somewhere; the program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Nobody but the program names that server.
    #[error("this server does not connect there: see --peers of `rgpu serve`")]
    NotAllowed,
    /// The name that was vouched for means nothing here.
    #[error("the other server's name has no address here")]
    NoAddress,
}

/// What holds for a daemon.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    /// Servers that were named.
    pub named: Vec<Named>,
    /// Whether the daemon has no broker, and listens on a loopback address, so that programs on the machine alone reach it.
    pub loopback: bool,
}

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The address's meanings.
    pub addresses: Vec<SocketAddr>,
    /// Whether somebody vouches for it; else the program must not learn why connecting fails.
    pub vouched: bool,
}

impl Rule {
    /// The way to a server that a program names. `nodes` are those of its lease.
    ///
    /// # Errors
    /// It is not allowed, or has no address.
    pub fn way(&self, nodes: &[Peer], node: &str, address: &str) -> Result<Way, RuleError> {
        if let Some(peer) = nodes.iter().find(|peer| !node.is_empty() && peer.node == node) {
            return resolve(&peer.address).map(|addresses| Way { addresses, vouched: true });
        }
        let literal = address.parse::<SocketAddr>().ok();
        for named in &self.named {
            let (host, port) = match named {
                Named::Any => return resolve(address).map(|addresses| Way { addresses, vouched: true }),
                Named::Host(host, port) => (host, *port),
            };
            let (their_host, their_port) = match (literal, address.rsplit_once(':')) {
                (Some(literal), _) => (literal.ip().to_string(), literal.port()),
                (None, Some((host, port))) => match port.parse() {
                    Ok(port) => (host.to_owned(), port),
                    Err(_) => continue,
                },
                (None, None) => continue,
            };
            if port.is_some_and(|port| port != their_port) {
                continue;
            }
            // A name that the program has chosen is never looked up: only those that were given, and are the same.
            let meanings = || resolve(&with_port(host, their_port)).unwrap_or_default();
            let addresses = if their_host.eq_ignore_ascii_case(host) {
                meanings()
            } else {
                meanings().into_iter().filter(|meaning| Some(*meaning) == literal).collect()
            };
            if !addresses.is_empty() {
                return Ok(Way { addresses, vouched: true });
            }
        }
        match literal {
            Some(literal) if self.is_here(literal) => Ok(Way { addresses: vec![literal], vouched: false }),
            _ => Err(RuleError::NotAllowed),
        }
    }

    fn is_here(&self, address: SocketAddr) -> bool {
        self.named.is_empty()
            && self.loopback
            && address.ip().to_canonical().is_loopback()
            && address.port() >= FIRST_PORT
    }
}

fn with_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn resolve(address: &str) -> Result<Vec<SocketAddr>, RuleError> {
    let found: Vec<_> = address.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    if found.is_empty() { Err(RuleError::NoAddress) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(list: &[&str]) -> Vec<Named> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn servers_are_named() {
        let host = |host: &str, port| Named::Host(host.into(), port);
        let expected = [
            Named::Any,
            host("gpu1", None),
            host("gpu1", Some(7070)),
            host("10.0.0.1", None),
            host("::1", None),
            host("::1", Some(7070)),
        ];
        assert_eq!(named(&["any", "gpu1", "gpu1:7070", "10.0.0.1", "::1", "[::1]:7070"]), expected);
        for wrong in ["", ":7070", "gpu1:x", "a b", "10.0.0.0/8", "[::1]:x", "gpu1:70700"] {
            assert!(wrong.parse::<Named>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_program_does_not_choose_where_a_daemon_connects() {
        let way = |rule: &Rule, address: &str| rule.way(&[], "", address).ok();
        let addresses = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let sure = |list: &[&str]| Some(Way { addresses: addresses(list), vouched: true });
        let nothing = Rule::default();
        for address in ["127.0.0.1:7070", "10.0.0.1:7070", "localhost:7070", "gpu1:7070", "x", ""] {
            assert_eq!(way(&nothing, address), None, "{address}");
        }
        let local = Rule { loopback: true, ..Rule::default() };
        let guess = |address: &str| Some(Way { addresses: addresses(&[address]), vouched: false });
        assert_eq!(way(&local, "127.0.0.1:7070"), guess("127.0.0.1:7070"));
        assert_eq!(way(&local, "[::1]:7070"), guess("[::1]:7070"));
        for address in ["127.0.0.1:22", "10.0.0.1:7070", "localhost:7070", "[::ffff:10.0.0.1]:7070"] {
            assert_eq!(way(&local, address), None, "{address}");
        }
        let rule = Rule { named: named(&["10.0.0.1", "10.0.0.2:7070"]), loopback: true };
        assert_eq!(way(&rule, "10.0.0.1:99"), sure(&["10.0.0.1:99"]));
        assert_eq!(way(&rule, "10.0.0.2:7070"), sure(&["10.0.0.2:7070"]));
        for address in ["10.0.0.2:7071", "10.0.0.3:7070", "127.0.0.1:7070"] {
            assert_eq!(way(&rule, address), None, "{address}");
        }
        let rule = Rule { named: named(&["localhost:7070"]), loopback: false };
        assert!(way(&rule, "localhost:7070").is_some_and(|way| way.vouched && !way.addresses.is_empty()));
        assert!(way(&rule, "127.0.0.1:7070").is_some() || way(&rule, "[::1]:7070").is_some());
        assert_eq!(
            way(&Rule { named: vec![Named::Any], loopback: false }, "10.9.9.9:1"),
            sure(&["10.9.9.9:1"])
        );
    }

    #[test]
    fn nodes_of_the_lease_are_where_the_broker_says() {
        let nodes = [Peer { node: "n1".into(), address: "10.0.0.5:7070".into() }];
        let rule = Rule::default();
        let way = |node: &str, address: &str| rule.way(&nodes, node, address).ok();
        let expected = Way { addresses: vec!["10.0.0.5:7070".parse().unwrap()], vouched: true };
        // Whatever the program takes its address to be.
        assert_eq!(way("n1", "127.0.0.1:7070"), Some(expected));
        assert_eq!((way("n2", "10.0.0.5:7070"), way("", "10.0.0.5:7070")), (None, None));
    }
}
