//! What ranks say to the rendezvous and to each other. Everything has a fixed length, and numbers are little-endian.

use std::net::SocketAddr;
use std::sync::OnceLock;

use crate::id::{ADDRESS_BYTES, address_bytes, parse_address};

/// So many ranks there can be.
pub(crate) const MAX_RANKS: u32 = 4096;
/// How long what a rank says to the rendezvous is.
pub(crate) const JOIN_BYTES: usize = 8 + ENTRY_BYTES;
/// How long what the rendezvous says of a rank is.
pub(crate) const ENTRY_BYTES: usize = ADDRESS_BYTES + PROCESS_BYTES + 4;
/// How long the rendezvous' verdict is: a number, the communicator's name, or why not.
pub(crate) const VERDICT_BYTES: usize = 256;
/// How long the beginning of a message among ranks is.
pub(crate) const HEADER_BYTES: usize = 40;
const PROCESS_BYTES: usize = 20;
const DEVICE_AT: usize = ADDRESS_BYTES + PROCESS_BYTES;

/// Which process a rank is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process([u8; PROCESS_BYTES]);

impl Process {
    /// This one. A forked child is another one.
    pub fn this() -> Self {
        static RANDOM: OnceLock<[u8; 16]> = OnceLock::new();
        let random = RANDOM.get_or_init(|| {
            let mut bytes = [0; 16];
            // Without it, two machines' processes would have to have the same number to be confused.
            let _ = getrandom::fill(&mut bytes);
            bytes
        });
        let mut process = [0; PROCESS_BYTES];
        process[..16].copy_from_slice(random);
        process[16..].copy_from_slice(&std::process::id().to_le_bytes());
        Self(process)
    }

    /// As if it were another process.
    #[cfg(test)]
    pub(crate) fn pretended(number: u8) -> Self {
        Self([number; PROCESS_BYTES])
    }
}

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process.
    pub process: Process,
    /// Its device's number there.
    pub device: u32,
}

impl Entry {
    pub(crate) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..ADDRESS_BYTES].copy_from_slice(&address_bytes(self.address));
        bytes[ADDRESS_BYTES..DEVICE_AT].copy_from_slice(&self.process.0);
        bytes[DEVICE_AT..].copy_from_slice(&self.device.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (address, process) = bytes.get(..DEVICE_AT)?.split_at(ADDRESS_BYTES);
        let device = u32::from_le_bytes(bytes[DEVICE_AT..].try_into().ok()?);
        Some(Self { address: parse_address(address)?, process: Process(process.try_into().ok()?), device })
    }
}

/// What a rank says to the rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// The rank.
    pub rank: u32,
    /// How many ranks it expects.
    pub ranks: u32,
    /// Where it is.
    pub entry: Entry,
}

impl Join {
    /// The message.
    pub fn to_bytes(self) -> [u8; JOIN_BYTES] {
        let mut bytes = [0; JOIN_BYTES];
        bytes[..4].copy_from_slice(&self.rank.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.ranks.to_le_bytes());
        bytes[8..].copy_from_slice(&self.entry.to_bytes());
        bytes
    }

    /// What a message says; `None` where it makes no sense.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; JOIN_BYTES] = bytes.try_into().ok()?;
        let (rank, ranks) = (number(bytes, 0), number(bytes, 4));
        let entry = Entry::parse(&bytes[8..])?;
        (ranks <= MAX_RANKS && rank < ranks).then_some(Self { rank, ranks, entry })
    }
}

/// What the rendezvous answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All are there; the communicator's name. The table of ranks follows.
    Complete([u8; 16]),
    /// They will not come together.
    Refused(String),
}

impl Verdict {
    pub(crate) fn to_bytes(&self) -> [u8; VERDICT_BYTES] {
        let mut bytes = [0; VERDICT_BYTES];
        match self {
            Self::Complete(name) => {
                bytes[0] = 1;
                bytes[4..20].copy_from_slice(name);
            }
            Self::Refused(why) => {
                let room = VERDICT_BYTES - 4;
                let end = (0..=room.min(why.len())).rev().find(|&end| why.is_char_boundary(end)).unwrap_or(0);
                bytes[4..4 + end].copy_from_slice(&why.as_bytes()[..end]);
            }
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; VERDICT_BYTES]) -> Self {
        if bytes[0] == 1 {
            return Self::Complete(std::array::from_fn(|i| bytes[4 + i]));
        }
        let text = String::from_utf8_lossy(&bytes[4..]);
        Self::Refused(text.trim_end_matches('\0').to_owned())
    }
}

/// The beginning of a message among ranks: which operation it belongs to. Both sides know beforehand what it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which operation.
    pub operation: u8,
    /// The type of its elements.
    pub element: u8,
    /// How they are combined.
    pub operator: u8,
    /// Which of the operation's steps.
    pub step: u8,
    /// The rank that the operation is about.
    pub root: u32,
    /// How long the operation is.
    pub total: u64,
    /// How many messages went this way before.
    pub sequence: u64,
    /// How many bytes follow.
    pub bytes: u64,
}

const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"rgnc");

impl Header {
    /// The bytes.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&HEADER_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&[self.operation, self.element, self.operator, self.step]);
        bytes[8..12].copy_from_slice(&self.root.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.total.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// The header in these bytes; `None` where it is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().ok()?;
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let header = Self {
            operation: bytes[4],
            element: bytes[5],
            operator: bytes[6],
            step: bytes[7],
            root: number(bytes, 8),
            total: long(16),
            sequence: long(24),
            bytes: long(32),
        };
        (number(bytes, 0) == HEADER_MAGIC && number(bytes, 12) == 0).then_some(header)
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_back() {
        let entry = Entry { address: "10.0.0.1:99".parse().unwrap(), process: Process::this(), device: 2 };
        let join = Join { rank: 3, ranks: 4, entry };
        assert_eq!(Join::parse(&join.to_bytes()), Some(join));
        assert_eq!(Join::parse(&Join { rank: 4, ..join }.to_bytes()), None);
        assert_eq!(Join::parse(&Join { ranks: MAX_RANKS + 1, ..join }.to_bytes()), None);
        assert_eq!(Join::parse(&[0; 3]), None);
        for verdict in [Verdict::Complete([9; 16]), Verdict::Refused("no".into())] {
            assert_eq!(Verdict::parse(&verdict.to_bytes()), verdict);
        }
        let long = Verdict::parse(&Verdict::Refused("ü".repeat(300)).to_bytes());
        assert_eq!(long, Verdict::Refused("ü".repeat(126)));
        let header = Header {
            operation: 1,
            element: 2,
            operator: 3,
            step: 4,
            root: 5,
            total: 6,
            sequence: 7,
            bytes: 8,
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes), Some(header));
        assert_eq!(Header::parse(&bytes[..39]), None);
        assert_eq!(Header::parse(&[0; HEADER_BYTES]), None);
    }
}
