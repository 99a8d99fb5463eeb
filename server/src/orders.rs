//! What the daemon hands to the process that it starts for an application: descriptors, and how to [`Begin`].

use crate::confine::Limits;
use crate::device_spec::{DeviceKind, DeviceSpec};
use crate::handshake::Handshake;
use crate::inventory::{path_bytes, path_from};
use crate::peer::Identity;
use rgpu_protocol::hello::{Hello, HelloCheck, HelloExtras, HelloSeat};
use rgpu_protocol::sys;
use rgpu_protocol::wire::{DecodeError, Reader, Wire, from_bytes, to_bytes};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use zeroize::Zeroizing;

/// Where the connection is.
pub(crate) const CONNECTION: i32 = 3;
/// Where it is said how to [`Begin`].
pub(crate) const ORDERS: i32 = 4;
/// Where the ledger's rules are.
pub(crate) const LEDGER_RULES: i32 = 5;
/// Where the socket is that leads to the daemon's [desk](crate::desk), if there is one.
pub(crate) const STORE: i32 = 6;
/// Where the channel is by which other servers come, if they may.
pub(crate) const PEERS: i32 = 7;
/// Where the ledger's usage is, for reading.
pub(crate) const LEDGER_USAGE: i32 = 8;
/// Where the ledger's usage is, for mapping what the application's process may write.
pub(crate) const LEDGER_OWN: i32 = 9;
/// Where the [line](crate::handshake::Line) to the daemon is, in a process that begins with a handshake. It has nothing yet of
/// what is above but the connection.
pub(crate) const LINE: i32 = 5;

/// What a memory file with [`Orders`] begins with.
const ADMITTED: u8 = 0;
/// What one with a [`Handshake`] begins with.
const HANDSHAKE: u8 = 1;

/// With what a process begins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Begin {
    /// An application that is admitted.
    Orders(Box<Orders>),
    /// A client that speaks TLS, of whom no more is known.
    Handshake(Handshake),
}

impl Begin {
    /// The daemon's process.
    pub(crate) fn daemon(&self) -> u32 {
        match self {
            Self::Orders(orders) => orders.daemon,
            Self::Handshake(start) => start.daemon,
        }
    }

    /// As a memory file, which its reader [empties](Begin::take).
    pub(crate) fn to_file(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Orders(orders) => orders.to_file(),
            Self::Handshake(start) => memory_file(&[&[HANDSHAKE][..], &to_bytes(start)].concat()),
        }
    }

    /// Reads what a memory file holds, once.
    pub(crate) fn take(file: OwnedFd) -> io::Result<Self> {
        Self::parse(&read_once(file.into())?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes.split_first() {
            Some((&ADMITTED, _)) => Ok(Self::Orders(Box::new(Orders::parse(bytes)?))),
            Some((&HANDSHAKE, start)) => Ok(Self::Handshake(from_bytes(start)?)),
            Some((other, _)) => Err(DecodeError::Unknown { what: "A beginning", value: u64::from(*other) }),
            None => Err(DecodeError::Truncated { what: "A beginning", needed: 1, left: 0 }),
        }
    }
}

/// What the daemon tells the process that it starts for an application.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Orders {
    pub device: DeviceSpec,
    /// The percentage of the multiprocessors that the process can use.
    pub ceiling: u32,
    pub slot: u32,
    pub daemon: u32,
    pub limits: Limits,
    /// Whether the process is to have a user and namespaces of its own, as far as there can be such.
    pub walled: bool,
    pub peer: String,
    pub hello: Hello,
    /// What the client has sent for the transport that it offers; which one that is, the hello's features say.
    pub offer: Vec<u8>,
    /// The protocol's minor version that the client speaks.
    pub minor: u16,
    /// Which of the application's servers this is.
    pub seat: HelloSeat,
    /// What kernels are looked at for, if the hello's features say that they are.
    pub check: HelloCheck,
    /// Whether there is a desk where to ask for what the tenant has.
    pub desk: bool,
    /// Whether there is a store of images, and which.
    pub extras: HelloExtras,
    /// Where copies may go straight to other servers: what its keys are made of.
    pub peers: Option<Identity>,
    /// What a process that is running already adds to its environment; others are started with it.
    pub environment: Vec<(OsString, OsString)>,
}

impl Orders {
    /// Makes up for what only the process can know: how many processors there are.
    pub(crate) fn settle(&mut self, processors: u32) {
        if self.device.workers == 0 {
            self.device.workers = processors;
        }
    }

    /// As a message, which is overwritten when it is let go: it holds secrets.
    pub(crate) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = vec![ADMITTED];
        (self.device.count, self.device.workers).encode(&mut out);
        self.device.memory.encode(&mut out);
        self.device.compute_capability.encode(&mut out);
        (self.device.kind as u32).encode(&mut out);
        path_bytes(self.device.driver.as_deref()).encode(&mut out);
        let libraries = self.device.libraries.iter();
        libraries.map(|folder| path_bytes(Some(folder))).collect::<Vec<_>>().encode(&mut out);
        self.device.numbers.encode(&mut out);
        self.device.visible.encode(&mut out);
        (self.device.identity, (self.device.multiprocessors, self.device.exact_bounds)).encode(&mut out);
        self.ceiling.encode(&mut out);
        (self.slot, self.daemon).encode(&mut out);
        (self.limits.memory, (self.limits.threads, self.walled)).encode(&mut out);
        self.peer.encode(&mut out);
        self.hello.encode(&mut out);
        self.offer.encode(&mut out);
        self.minor.encode(&mut out);
        self.seat.encode(&mut out);
        self.check.encode(&mut out);
        self.desk.encode(&mut out);
        self.extras.encode(&mut out);
        let variables = self.environment.iter();
        let bytes = |text: &OsStr| text.as_bytes().to_vec();
        variables.map(|(name, value)| (bytes(name), bytes(value))).collect::<Vec<_>>().encode(&mut out);
        // Secrets come last, where there is room for them: what grew would leave a copy behind.
        let peers = self.peers.as_ref().map(|own| (own.session, own.root));
        out.reserve_exact(<Option<([u8; 16], [u8; 32])>>::MIN_BYTES);
        let mut out = Zeroizing::new(out);
        peers.encode(&mut out);
        out
    }

    /// As a memory file, which its reader [empties](Orders::take).
    pub(crate) fn to_file(&self) -> io::Result<OwnedFd> {
        memory_file(&self.to_bytes())
    }

    /// Reads the orders that a memory file holds, once.
    pub(crate) fn take(file: OwnedFd) -> io::Result<Self> {
        Self::parse(&read_once(file.into())?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        match u8::decode(&mut r)? {
            ADMITTED => {}
            other => return Err(DecodeError::Unknown { what: "A beginning", value: other.into() }),
        }
        let (count, workers) = Wire::decode(&mut r)?;
        let memory = Wire::decode(&mut r)?;
        let compute_capability = Wire::decode(&mut r)?;
        let kind: u32 = Wire::decode(&mut r)?;
        let kind = DeviceKind::from_number(kind)
            .ok_or(DecodeError::Unknown { what: "A kind of device", value: u64::from(kind) })?;
        let driver: Vec<u8> = Wire::decode(&mut r)?;
        let driver = path_from(&driver);
        let libraries: Vec<Vec<u8>> = Wire::decode(&mut r)?;
        let libraries = libraries.iter().filter_map(|folder| path_from(folder)).collect();
        let numbers = Wire::decode(&mut r)?;
        let visible = Wire::decode(&mut r)?;
        let (identity, (multiprocessors, exact_bounds)) = Wire::decode(&mut r)?;
        let ceiling = Wire::decode(&mut r)?;
        let device = DeviceSpec {
            kind,
            count,
            memory,
            workers,
            multiprocessors,
            compute_capability,
            driver,
            libraries,
            numbers,
            visible,
            identity,
            exact_bounds,
            ..DeviceSpec::default()
        };
        let (slot, daemon) = Wire::decode(&mut r)?;
        let (memory, (threads, walled)) = Wire::decode(&mut r)?;
        let limits = Limits { memory, threads };
        let peer = Wire::decode(&mut r)?;
        let hello = Wire::decode(&mut r)?;
        let offer = Wire::decode(&mut r)?;
        let minor = Wire::decode(&mut r)?;
        let seat = Wire::decode(&mut r)?;
        let check = Wire::decode(&mut r)?;
        let desk = Wire::decode(&mut r)?;
        let extras = Wire::decode(&mut r)?;
        let environment: Vec<(Vec<u8>, Vec<u8>)> = Wire::decode(&mut r)?;
        let text = OsString::from_vec;
        let environment = environment.into_iter().map(|(name, value)| (text(name), text(value))).collect();
        let peers: Option<([u8; 16], [u8; 32])> = Wire::decode(&mut r)?;
        let peers = peers.map(|(session, root)| Identity { session, root });
        r.finish()?;
        Ok(Self {
            device,
            ceiling,
            slot,
            daemon,
            limits,
            walled,
            peer,
            hello,
            offer,
            minor,
            seat,
            check,
            desk,
            extras,
            environment,
            peers,
        })
    }
}

/// A memory file that holds these bytes.
fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(sys::memory_file(c"rgpu-orders")?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// What is in a memory file, which is empty then: its memory is overwritten, and given back.
fn read_once(mut file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    let length = file.metadata()?.len();
    let mut bytes = Zeroizing::new(vec![0; length as usize]);
    file.rewind()?;
    file.read_exact(&mut bytes)?;
    file.rewind()?;
    io::copy(&mut io::repeat(0).take(length), &mut file)?;
    file.set_len(0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_back() {
        let orders = Orders {
            device: DeviceSpec {
                kind: DeviceKind::Nvidia,
                count: 3,
                memory: 5,
                workers: 7,
                multiprocessors: 31,
                compute_capability: (9, 0),
                driver: Some("/lib/x".into()),
                libraries: vec!["/opt/a".into(), "/opt/b".into()],
                numbers: vec![2, 1],
                visible: vec!["GPU-x".into(), "MIG-y".into()],
                identity: 29,
                exact_bounds: true,
                ..DeviceSpec::default()
            },
            ceiling: 23,
            slot: 11,
            daemon: 13,
            limits: Limits { memory: 23, threads: 25 },
            walled: true,
            peer: "127.0.0.1:1".into(),
            hello: Hello { program: "a".into(), ..Hello::default() },
            offer: vec![15],
            minor: 2,
            seat: HelloSeat { index: 19, of: 21 },
            check: HelloCheck { tools: 27, limit: 33 },
            desk: true,
            extras: HelloExtras { keeps_images: true, images: vec![17] },
            peers: Some(Identity::random()),
            environment: vec![("CUDA_VISIBLE_DEVICES".into(), "GPU-x".into())],
        };
        let orders = Begin::Orders(Box::new(orders));
        let bytes = read_once(orders.to_file().unwrap().into()).unwrap();
        assert_eq!(Begin::parse(&bytes).unwrap(), orders);
        for end in 0..bytes.len() {
            assert!(Begin::parse(&bytes[..end]).is_err());
        }
        assert!(
            Orders::parse(b"").is_err() && Orders::parse(b"\x01").is_err() && Begin::parse(&[2]).is_err()
        );
    }

    #[test]
    fn orders_are_read_once() {
        let file = File::from(memory_file(b"secrets").unwrap());
        let mut other = file.try_clone().unwrap();
        assert_eq!(read_once(file).unwrap().as_slice(), b"secrets");
        other.rewind().unwrap();
        assert_eq!((other.metadata().unwrap().len(), other.read(&mut [0; 8]).unwrap()), (0, 0));
    }
}
