//! The hello: the first thing each side says.
//!
//! Both messages begin with 12 bytes that no version of the protocol will change: the magic, the major
//! and minor version, and the length of what follows. A server answers a hello of another major version
//! with [`Status::Version`] and a message, which every version can read: status and message stand first
//! in the answer.
//!
//! ```text
//! client                                server
//!   | -- Hello (range proposed) ----------> |
//!   | <------------ HelloAnswer (agreed) -- |    one round trip; calls may follow at once
//!   :                                       :
//!   | -- Hello (another range) -----------> |    only after Status::RangeRefused
//!   | <----------------------- HelloAnswer -|
//! ```

use crate::wire::{DecodeError, Reader, Result, Wire};
use rgpu_wire::records;

/// "RGPU", read as a little-endian number.
pub const MAGIC: u32 = u32::from_le_bytes(*b"RGPU");
/// The protocol's major version: both sides must have the same.
pub const MAJOR: u16 = 1;
/// The protocol's minor version: the smaller of both sides' is spoken.
pub const MINOR: u16 = 9;
/// The client wants to know when its calls are executed: see [`Notice::Trace`](crate::frame::Notice::Trace).
pub const FEATURE_TRACE: u64 = 2;
/// The session only looks: what the devices are, and what is measured of them. It gets no addresses and no memory, and
/// what would need them is refused.
pub const FEATURE_OBSERVE: u64 = 8;
/// In a hello: the program has several servers. In the answer: this one copies straight to and from others
/// ([`PeerExpect`](crate::calls::PeerExpect) and its kin).
pub const FEATURE_PEERS: u64 = 16;
/// This is no program, but another server that brings copies to a session. The credential is an introduction (see
/// `docs/protocol.md`), and the answer a [`LinkAnswer`]. Since minor version 3.
pub const FEATURE_LINK: u64 = 32;
/// In a hello: the client can have pinned and managed memory be one memory with the server's, where the transport passes memory
/// files. In the answer: the server passes one more of them, behind those of the devices: the shared range's, at offset 0 its
/// first byte; and it allows memory of kind 1 there (see [`MemAlloc`](crate::calls::MemAlloc)). Since minor version 7.
pub const FEATURE_ONE_MEMORY: u64 = 128;
/// In a hello: the client wants kernels to be looked at, as [`HelloMore::check`] says. In the answer: the server does so. A client
/// goes without it where an answer does not have it. Since minor version 9.
pub const FEATURE_CHECK: u64 = 256;
/// The feature bits that no transport may have: those above, and 1, which earlier releases' shared memory had. Each
/// transport's own bit stands with its [connector](crate::transport::Connector::feature).
pub const OTHER_FEATURES: u64 =
    1 | FEATURE_TRACE | FEATURE_OBSERVE | FEATURE_PEERS | FEATURE_LINK | FEATURE_ONE_MEMORY | FEATURE_CHECK;
/// Bytes of the part that no version changes.
pub const PREFIX_BYTES: usize = 12;
/// The longest hello that is accepted, without the prefix.
pub const MAX_HELLO: usize = 8 << 10;
/// The longest answer that is accepted, without the prefix.
pub const MAX_HELLO_ANSWER: usize = 256 << 10;

/// The part of a hello that no version changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Major version of the sender.
    pub major: u16,
    /// Minor version of the sender.
    pub minor: u16,
    /// Bytes that follow.
    pub length: u32,
}

impl Prefix {
    /// Decodes a prefix; `limit` bounds the length.
    pub fn parse(bytes: &[u8; PREFIX_BYTES], limit: usize) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let magic = u32::decode(&mut reader)?;
        if magic != MAGIC {
            return Err(DecodeError::Unknown { what: "protocol magic", value: magic.into() });
        }
        let (major, minor) = <(u16, u16)>::decode(&mut reader)?;
        let length = u32::decode(&mut reader)?;
        if length as usize > limit {
            let (length, limit) = (length.into(), limit as u64);
            return Err(DecodeError::OverLimit { what: "hello", length, limit });
        }
        Ok(Self { major, minor, length })
    }
}

/// Wraps a hello or its answer for sending.
pub fn message<T: Wire>(body: &T) -> Vec<u8> {
    let mut out = vec![0; PREFIX_BYTES];
    body.encode(&mut out);
    let length = (out.len() - PREFIX_BYTES) as u32;
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[4..6].copy_from_slice(&MAJOR.to_le_bytes());
    out[6..8].copy_from_slice(&MINOR.to_le_bytes());
    out[8..12].copy_from_slice(&length.to_le_bytes());
    out
}

/// How a server answers a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// The session begins.
    Accepted = 0,
    /// The major versions differ. The connection ends.
    Version = 1,
    /// The credential is missing or wrong. The connection ends.
    Credential = 2,
    /// The address range is not free on the server; another one may be proposed.
    RangeRefused = 3,
    /// The server cannot serve (too many sessions, the device failed to open, …). The connection ends.
    Unavailable = 4,
}

impl Status {
    /// The status with this number; unknown ones, from later versions, are [`Status::Unavailable`].
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Accepted,
            1 => Self::Version,
            2 => Self::Credential,
            3 => Self::RangeRefused,
            _ => Self::Unavailable,
        }
    }
}

records! {
    /// A span of addresses.
    Range {
        /// First address.
        base: u64,
        /// Length in bytes.
        size: u64,
    }
    /// What a client says first.
    Hello {
        /// Feature bits the client has: those of this module, and those of the transports that it offers.
        features: u64,
        /// The session's id, chosen at random by the client.
        session: u64,
        /// Proves that the client may use this server; empty where none is needed.
        credential: Vec<u8>,
        /// Name of the program, for people.
        program: String,
        /// Process id on the client's machine, for people.
        pid: u32,
        /// The addresses that the client has reserved.
        range: Range,
    }
    /// What cannot change about a device.
    DeviceInfo {
        /// Its name.
        name: String,
        /// Its UUID.
        uuid: [u8; 16],
        /// Memory that this application may use in all.
        total_memory: u64,
        /// Compute capability.
        compute_capability: (u32, u32),
        /// Driver version as CUDA counts.
        driver_version: u32,
        /// Whether PTX can be loaded.
        accepts_ptx: bool,
        /// Whether cubins can be loaded.
        accepts_cubin: bool,
        /// `CUdevice_attribute` numbers and values, ascending.
        attributes: Vec<(u32, i32)>,
    }
    /// What addresses mean.
    AddressPlan {
        /// Everything that is reserved.
        whole: Range,
        /// Device memory, by ordinal.
        devices: Vec<Range>,
        /// Memory that host and device both address.
        shared: Range,
    }
    /// How a server answers.
    HelloAnswer {
        /// A [`Status`].
        status: u32,
        /// For people; empty where accepted.
        message: String,
        /// Feature bits that both sides have.
        features: u64,
        /// The devices, by ordinal.
        devices: Vec<DeviceInfo>,
        /// What addresses mean.
        plan: AddressPlan,
        /// Bytes that may be allocated without asking, by ordinal.
        credit: Vec<u64>,
    }
}

records! {
    /// Which of a program's servers this is, where it has several. All of them are proposed the same addresses, and each
    /// uses the part of them that its seat gives it.
    HelloSeat {
        /// Counted from 0.
        index: u32,
        /// How many servers the program has; 0 means one.
        of: u32,
    }
}

records! {
    /// What kernels are to be looked at for, with [`FEATURE_CHECK`].
    HelloCheck {
        /// The tools: 1 memory, 2 what was never written, 4 races, 8 barriers, 16 memory that is left at the end.
        tools: u32,
        /// How many mistakes are to be told in words at most; of the others only how many there are.
        limit: u64,
    }
}

/// What follows a hello, since minor version 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HelloMore {
    /// What the server needs for the transport that is offered, if that needs anything.
    pub offer: Vec<u8>,
    /// Since minor version 2.
    pub seat: HelloSeat,
    /// Since minor version 9.
    pub check: HelloCheck,
}

impl Wire for HelloMore {
    const MIN_BYTES: usize = <Vec<u8> as Wire>::MIN_BYTES;

    fn encode(&self, out: &mut Vec<u8>) {
        self.offer.encode(out);
        self.seat.encode(out);
        self.check.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let offer = Wire::decode(reader)?;
        let seat = if reader.left() == 0 { HelloSeat::default() } else { Wire::decode(reader)? };
        let check = if reader.left() == 0 { HelloCheck::default() } else { Wire::decode(reader)? };
        Ok(Self { offer, seat, check })
    }
}

records! {
    /// What follows an answer that accepts, since minor version 1.
    HelloExtras {
        /// Whether the server keeps images of modules for this client's tenant, and the beginnings (the first eight
        /// bytes, as a number) of the BLAKE3 hashes of those that it has.
        keeps_images: bool,
        /// See `keeps_images`.
        images: Vec<u64>,
    }
}

records! {
    /// How a session answers another server's hello ([`FEATURE_LINK`]).
    LinkAnswer {
        /// A [`Status`].
        status: u32,
        /// For people; empty where accepted.
        message: String,
        /// Where accepted: that the session knows the key.
        proof: [u8; 32],
    }
}

impl HelloAnswer {
    /// An answer that refuses the client, with the reason for people.
    pub fn refused(status: Status, message: impl Into<String>) -> Self {
        Self { status: status as u32, message: message.into(), ..Self::default() }
    }

    /// Decodes an answer from any version: one that is not [`Status::Accepted`] has just a status and a
    /// message that can be relied on.
    pub fn parse(prefix: Prefix, body: &[u8]) -> Result<Self> {
        Self::parse_with_extras(prefix, body).map(|(answer, _)| answer)
    }

    /// [`HelloAnswer::parse`], with what follows.
    pub fn parse_with_extras(prefix: Prefix, body: &[u8]) -> Result<(Self, HelloExtras)> {
        let mut reader = Reader::new(body);
        let status = u32::decode(&mut reader)?;
        let message = String::decode(&mut reader)?;
        if status != Status::Accepted as u32 || prefix.major != MAJOR {
            return Ok((Self { status, message, ..Self::default() }, HelloExtras::default()));
        }
        // A later minor version may have added fields, which are ignored.
        let mut reader = Reader::new(body);
        let answer = Self::decode(&mut reader)?;
        let extras =
            if reader.left() == 0 { HelloExtras::default() } else { HelloExtras::decode(&mut reader)? };
        Ok((answer, extras))
    }
}

impl Hello {
    /// Decodes a hello of this major version.
    pub fn parse(body: &[u8]) -> Result<Self> {
        Self::parse_with_more(body).map(|(hello, _)| hello)
    }

    /// [`Hello::parse`], with what follows.
    pub fn parse_with_more(body: &[u8]) -> Result<(Self, HelloMore)> {
        // A later minor version may have added fields, which are ignored.
        let mut reader = Reader::new(body);
        let hello = Self::decode(&mut reader)?;
        let more = if reader.left() == 0 { HelloMore::default() } else { HelloMore::decode(&mut reader)? };
        Ok((hello, more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_refusal_is_readable_by_any_version() {
        let sent = message(&HelloAnswer::refused(Status::Version, "speaks 2.0"));
        let mut prefix: [u8; PREFIX_BYTES] = sent[..PREFIX_BYTES].try_into().unwrap();
        prefix[4] = 2;
        let prefix = Prefix::parse(&prefix, MAX_HELLO_ANSWER).unwrap();
        assert_eq!(prefix.major, 2);
        // Only status and message can be relied on: cut the rest off.
        let answer = HelloAnswer::parse(prefix, &sent[PREFIX_BYTES..PREFIX_BYTES + 8 + 10]).unwrap();
        assert_eq!((Status::from_number(answer.status), &*answer.message), (Status::Version, "speaks 2.0"));
    }

    #[test]
    fn other_protocols_are_told_apart() {
        assert!(Prefix::parse(b"GET / HTTP/1", MAX_HELLO).is_err());
        let mut big = [0xff; PREFIX_BYTES];
        big[..4].copy_from_slice(&MAGIC.to_le_bytes());
        assert!(matches!(Prefix::parse(&big, MAX_HELLO), Err(DecodeError::OverLimit { .. })));
    }

    proptest! {
        #[test]
        fn hellos_come_back(features: u64, session: u64, credential: Vec<u8>, program: String, base: u64) {
            let range = Range { base, size: 1 << 40 };
            let hello = Hello { features, session, credential, program, pid: 1, range };
            let sent = message(&hello);
            let prefix = Prefix::parse(sent[..PREFIX_BYTES].try_into().unwrap(), 1 << 20).unwrap();
            prop_assert_eq!(prefix.length as usize, sent.len() - PREFIX_BYTES);
            prop_assert_eq!(Hello::parse(&sent[PREFIX_BYTES..]).unwrap(), hello);
            for n in PREFIX_BYTES..sent.len() {
                prop_assert!(Hello::parse(&sent[PREFIX_BYTES..n]).is_err());
            }
        }

        #[test]
        fn what_follows_a_hello_comes_back(offer: Vec<u8>, index: u32, of: u32, tools: u32, limit: u64) {
            let more = HelloMore { offer, seat: HelloSeat { index, of }, check: HelloCheck { tools, limit } };
            let sent = message(&(Hello::default(), more.clone()));
            let body = &sent[PREFIX_BYTES..];
            prop_assert_eq!(Hello::parse_with_more(body).unwrap().1, more.clone());
            // Minor version 2 ends before what is looked for, and 1 before the seat.
            let (_, earlier) = Hello::parse_with_more(&body[..body.len() - 12]).unwrap();
            prop_assert_eq!(&earlier, &HelloMore { check: HelloCheck::default(), ..more.clone() });
            let (_, earlier) = Hello::parse_with_more(&body[..body.len() - 20]).unwrap();
            prop_assert_eq!(earlier, HelloMore { offer: more.offer, ..HelloMore::default() });
        }

        #[test]
        fn extras_come_back(images: Vec<u64>, keeps_images: bool) {
            let extras = HelloExtras { keeps_images, images };
            let accepted = HelloAnswer { credit: vec![5], ..Default::default() };
            let sent = message(&(accepted.clone(), extras.clone()));
            let prefix = Prefix::parse(sent[..PREFIX_BYTES].try_into().unwrap(), MAX_HELLO_ANSWER).unwrap();
            let body = &sent[PREFIX_BYTES..];
            prop_assert_eq!(HelloAnswer::parse_with_extras(prefix, body).unwrap(), (accepted.clone(), extras));
            prop_assert_eq!(HelloAnswer::parse(prefix, body).unwrap(), accepted.clone());
            let bare = message(&accepted);
            let (_, none) = HelloAnswer::parse_with_extras(prefix, &bare[PREFIX_BYTES..]).unwrap();
            prop_assert_eq!(none, HelloExtras::default());
        }

        #[test]
        fn answers_come_back(name: String, uuid: [u8; 16], attributes: Vec<(u32, i32)>, credit: Vec<u64>) {
            let device = DeviceInfo { name, uuid, attributes, ..Default::default() };
            let answer = HelloAnswer { devices: vec![device; 2], credit, ..Default::default() };
            let sent = message(&answer);
            let prefix = Prefix::parse(sent[..PREFIX_BYTES].try_into().unwrap(), 1 << 20).unwrap();
            prop_assert_eq!(HelloAnswer::parse(prefix, &sent[PREFIX_BYTES..]).unwrap(), answer);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, prefix: [u8; PREFIX_BYTES]) {
            let _ = Hello::parse(&bytes);
            let _ = Prefix::parse(&prefix, MAX_HELLO);
            let prefix = Prefix { major: MAJOR, minor: 0, length: 0 };
            let _ = HelloAnswer::parse(prefix, &bytes);
        }
    }
}
