//! The list of transports, and what users choose of it.

use super::connector::{Connector, Connectors};
use super::kind::Kind;
use super::rdma::RdmaConnector;
use super::shm::ShmConnector;
use super::stream::Carrier;
use super::tcp::TcpConnector;
use std::str::FromStr;

/// All transports, the best first: without a word from the user the first that both ends have is used.
pub const CONNECTORS: Connectors = &[&ShmConnector, &RdmaConnector, &TcpConnector];

/// Which transport a user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The best that both ends have.
    #[default]
    Auto,
    /// This one, or none.
    Only(Kind),
}

impl Choice {
    /// Whether this transport is allowed.
    pub fn allows(self, kind: Kind) -> bool {
        self == Self::Auto || self == Self::Only(kind)
    }

    /// The name that a user has written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Only(kind) => kind.name(),
        }
    }

    /// Those of a list that are allowed.
    pub fn of(self, list: Connectors) -> impl Iterator<Item = &'static dyn Connector> {
        list.iter().copied().filter(move |connector| self.allows(connector.kind()))
    }

    /// Whether any that is allowed runs over such a stream.
    pub fn needs(self, list: Connectors, carrier: Carrier) -> bool {
        self.of(list).any(|connector| connector.runs_over(carrier))
    }

    /// The help text of an option that takes one, which begins with `what` it is for.
    pub fn help(what: &str) -> String {
        let each =
            CONNECTORS.iter().map(|connector| format!("{} ({})", connector.kind(), connector.summary()));
        let each: Vec<String> = each.collect();
        format!("{what}: {}, or {} for the best of them that works", each.join(", "), Self::Auto.name())
    }

    /// What can be written, in one sentence: "auto, shm, rdma and tcp".
    pub fn names(last: &str) -> String {
        let mut names = vec![Self::Auto.name()];
        names.extend(CONNECTORS.iter().map(|connector| connector.kind().name()));
        let end = names.pop().unwrap_or_default();
        format!("{} {last} {end}", names.join(", "))
    }
}

/// A text that names no transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no transport: there are {names}", names = Choice::names("and"))]
pub struct UnknownTransport(String);

impl FromStr for Choice {
    type Err = UnknownTransport;
    fn from_str(text: &str) -> Result<Self, UnknownTransport> {
        if text == Self::Auto.name() {
            return Ok(Self::Auto);
        }
        let found = CONNECTORS.iter().find(|connector| connector.kind().name() == text);
        found.map(|connector| Self::Only(connector.kind())).ok_or_else(|| UnknownTransport(text.to_owned()))
    }
}

/// Server: the connector whose offer is taken of a hello that has come over such a stream, if there is any: the first of the
/// list, of those that are allowed, whose feature bit the client has set.
pub fn offered(
    list: Connectors,
    choice: Choice,
    carrier: Carrier,
    features: u64,
) -> Option<&'static dyn Connector> {
    choice.of(list).find(|connector| connector.runs_over(carrier) && connector.feature() & features != 0)
}

/// The feature bits of a list.
pub fn features(list: Connectors) -> u64 {
    list.iter().fold(0, |all, connector| all | connector.feature())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello;

    #[test]
    fn each_has_a_name_and_a_feature_bit_of_its_own() {
        let others = hello::OTHER_FEATURES;
        let mut seen = others;
        for connector in CONNECTORS {
            assert_eq!(connector.feature() & seen, 0, "{connector:?}");
            assert!(connector.feature().count_ones() <= 1, "{connector:?}");
            seen |= connector.feature();
            assert_eq!(connector.kind().name().parse(), Ok(Choice::Only(connector.kind())));
        }
        assert_eq!(features(CONNECTORS), seen & !others);
        assert_eq!("auto".parse(), Ok(Choice::Auto));
        let error = "pigeon".parse::<Choice>().unwrap_err().to_string();
        assert_eq!(error, "`pigeon` is no transport: there are auto, shm, rdma and tcp");
    }

    #[test]
    fn the_wire_has_the_bits_that_it_always_had() {
        let bit = |name: &str| CONNECTORS.iter().find(|c| c.kind().name() == name).unwrap().feature();
        assert_eq!((bit("tcp"), bit("rdma"), bit("shm")), (0, 4, 64));
    }

    #[test]
    fn an_offer_is_taken_where_it_can_run_and_is_allowed() {
        let (shm, rdma) = (ShmConnector, RdmaConnector);
        let all = shm.feature() | rdma.feature();
        let taken =
            |choice, carrier| offered(CONNECTORS, choice, carrier, all).map(|connector| connector.kind());
        assert_eq!(taken(Choice::Auto, Carrier::Local), Some(shm.kind()));
        assert_eq!(taken(Choice::Auto, Carrier::Tcp), Some(rdma.kind()));
        // Neither is encrypted.
        assert_eq!(taken(Choice::Auto, Carrier::Tls), None);
        assert_eq!(taken(Choice::Only(TcpConnector.kind()), Carrier::Tcp), None);
        assert_eq!(taken(Choice::Only(shm.kind()), Carrier::Tcp), None);
        assert_eq!(offered(CONNECTORS, Choice::Auto, Carrier::Tcp, 0).map(|c| c.kind()), None);
    }
}
