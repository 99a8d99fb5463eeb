//! What a program carries from one rank to all others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// How long an id is, which is NCCL's length.
pub const ID_BYTES: usize = 128;
/// How many bytes an address takes.
pub(crate) const ADDRESS_BYTES: usize = 24;

const MAGIC: [u8; 8] = *b"rgpuNCL\x01";
const SECRET_AT: usize = MAGIC.len() + ADDRESS_BYTES;
const FIXED_AT: usize = SECRET_AT + 32;

/// Where ranks meet, and the secret that they prove to know.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    /// Where the rendezvous is.
    pub address: SocketAddr,
    /// The secret.
    pub secret: [u8; 32],
    /// Whether the address is known beforehand, so that it is rank 0 that opens the rendezvous there, when it joins.
    pub fixed: bool,
}

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UniqueId({}, fixed: {})", self.address, self.fixed)
    }
}

impl UniqueId {
    /// The id as bytes.
    pub fn to_bytes(&self) -> [u8; ID_BYTES] {
        let mut bytes = [0; ID_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        bytes[MAGIC.len()..SECRET_AT].copy_from_slice(&address_bytes(self.address));
        bytes[SECRET_AT..FIXED_AT].copy_from_slice(&self.secret);
        bytes[FIXED_AT] = self.fixed.into();
        bytes
    }

    /// The id in these bytes; `None` where [`UniqueId::to_bytes`] has not made them.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ID_BYTES] = bytes.try_into().ok()?;
        let fixed = match bytes[FIXED_AT..].split_first()? {
            (fixed @ (0 | 1), rest) if rest.iter().all(|byte| *byte == 0) => *fixed == 1,
            _ => return None,
        };
        let (magic, rest) = bytes.split_at(MAGIC.len());
        let address = parse_address(&rest[..ADDRESS_BYTES])?;
        let secret = bytes[SECRET_AT..FIXED_AT].try_into().ok()?;
        (magic == MAGIC).then_some(Self { address, secret, fixed })
    }
}

/// Family (4 or 6), port, the address, and where it needs one a scope.
pub(crate) fn address_bytes(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[0] = 4;
            bytes[4..8].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes[0] = 6;
            bytes[4..20].copy_from_slice(&v6.ip().octets());
            bytes[20..].copy_from_slice(&v6.scope_id().to_be_bytes());
        }
    }
    bytes
}

/// The address in these bytes.
pub(crate) fn parse_address(bytes: &[u8]) -> Option<SocketAddr> {
    let bytes: &[u8; ADDRESS_BYTES] = bytes.try_into().ok()?;
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let v6: [u8; 16] = bytes[4..20].try_into().ok()?;
    let scope = u32::from_be_bytes(bytes[20..].try_into().ok()?);
    let address = match bytes[0] {
        4 => SocketAddr::new(IpAddr::V4(Ipv4Addr::new(v6[0], v6[1], v6[2], v6[3])), port),
        6 => SocketAddrV6::new(Ipv6Addr::from(v6), port, 0, scope).into(),
        _ => return None,
    };
    (port != 0 && address_bytes(address) == *bytes).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_and_others_are_refused() {
        for address in ["10.1.2.3:456", "[fe80::1%7]:1", "[2001:db8::5]:65535"] {
            let id = UniqueId { address: address.parse().unwrap(), secret: [7; 32], fixed: true };
            let bytes = id.to_bytes();
            assert_eq!(UniqueId::parse(&bytes), Some(id));
            for at in [0, 8, 9, FIXED_AT, ID_BYTES - 1] {
                let mut wrong = bytes;
                wrong[at] ^= 0x40;
                assert_eq!(UniqueId::parse(&wrong), None, "{at}");
            }
            assert_eq!(UniqueId::parse(&bytes[1..]), None);
        }
        assert_eq!(UniqueId::parse(&[0; ID_BYTES]), None);
    }
}
