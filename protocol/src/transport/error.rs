//! Why a client has no connection.

use super::kind::Kind;
use super::settings::TRANSPORT_VARIABLE;
use std::io;

/// Why a client has no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// This transport is not to be had between these two machines. Another one may be.
    #[error("{0}")]
    NotHere(String),
    /// Nothing answers at the address.
    #[error("Cannot connect to the server {address}: {source}{}", advice(source))]
    Unreachable {
        /// `HOST:PORT`.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The program's data is to be encrypted, and this transport cannot be.
    #[error(
        "The connection to the server {address} is to be encrypted, and {} cannot be: leave out --transport {kind} \
         ({TRANSPORT_VARIABLE}) or --encrypt",
        kind.title()
    )]
    CannotEncrypt {
        /// `HOST:PORT`.
        address: String,
        /// What was asked for by name.
        kind: Kind,
    },
    /// The program's data is to be encrypted, and there is nothing to know the server by.
    #[error("The connection to the server {address} is to be encrypted: {missing}")]
    Untrusted {
        /// `HOST:PORT`.
        address: String,
        /// What is missing, and what to do.
        missing: String,
    },
    /// The TLS handshake has failed.
    #[error("No encrypted connection to the server {address}: {}", handshake(source))]
    Handshake {
        /// `HOST:PORT`.
        address: String,
        /// In words for people.
        source: io::Error,
    },
    /// A transport was asked for by name, and the server does not have it.
    #[error("The server {address} offers {lacks}")]
    NotTaken {
        /// `HOST:PORT`.
        address: String,
        /// See [`Connector::not_taken`](super::Connector::not_taken).
        lacks: String,
    },
    /// The server has taken an offer, and the transport does not come about.
    #[error("{address}: the server's {} cannot be used: {source}", kind.title())]
    Unusable {
        /// `HOST:PORT`.
        address: String,
        /// What was offered.
        kind: Kind,
        /// Why.
        source: io::Error,
    },
}

fn advice(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => "; is `rgpu serve` running there?",
        io::ErrorKind::TimedOut => "; is the address right, and no firewall in between?",
        _ => "",
    }
}

fn handshake(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => {
            "it closed the connection during the TLS handshake; its log says more".into()
        }
        _ => e.to_string(),
    }
}
