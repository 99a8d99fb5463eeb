//! Several servers as one [`Device`](rgpu_device::Device): their devices are the program's 0, 1, 2, … in the order in which the
//! servers are named.
//!
//! **Addresses.** All servers are proposed the same range; each carves what is its alone out of its own
//! [seat's](rgpu_device::Seat) part, so an address tells its server. Shared memory lies at the same addresses for all.
//!
//! **Handles** are the program's own choice and mean the same everywhere, except for the legacy streams, whose
//! handles are ordinals: each server counts its own from 0.
//!
//! **Mirrored memory** has one copy on the host and one with each server. It is allocated with all of them, and what the host
//! changes all are told to look at. What a device changed comes to the host's copy when its server is next waited for, and
//! from there goes to the others.
//!
//! **Between servers** nothing is ordered by itself, so work that concerns two of them is a *meeting* ([`gates`]): the
//! streams that take part stop when they get there, and when all have arrived something is done, after which they go on.
//! Nobody's call waits for that, except where CUDA waits, too, and where later work could otherwise come to stand in the way
//! of an earlier meeting ([`Several::wait_for_jobs`]).
//!
//! **When one server is lost** the program has lost part of its memory: all its calls fail from then on, as they do with a
//! single server.

mod connect;
mod device_impl;
mod gates;
mod straight;
mod transfer;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use rgpu_device::{
    AddressPlan, Code, Device, DeviceInfo, Error, FIRST_STREAM, Handle, Host, ModuleInfo, Ordinal, Range,
    Result,
};

use crate::remote::{CommonAddresses, ConnectOptions, Remote};
use gates::Gates;

/// Streams of our own have handles from here on, which no program's reach.
const OWN_STREAMS: Handle = 1 << 48;

/// A server, and how it is reached.
pub struct Server {
    /// Where the server listens, as `HOST:PORT`.
    pub address: String,
    /// Its name in its cluster; none where it is in none.
    pub node: String,
    /// What to show and how to connect.
    pub options: ConnectOptions,
}

/// A program that uses several servers: mirrored memory has one copy with it, and what one server's device changed there
/// is stored before the other servers are told to look at it.
pub trait Application: Host {
    /// Stores what a device changed in mirrored memory at `addr`. What lies outside of mirrored memory is left alone.
    fn store_mirrored(&self, addr: u64, bytes: &[u8]);
}

/// One of the servers, connected.
struct Member {
    remote: Arc<Remote>,
    /// Its part of the addresses.
    part: Range,
    /// The cluster's name for it, if it has one.
    node: String,
}

/// A device's place: which server, and by which ordinal that knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    server: usize,
    local: Ordinal,
}

/// Which device a handle belongs to.
#[derive(Default)]
struct Owners(RwLock<HashMap<Handle, Ordinal>>);

impl Owners {
    fn of(&self, handle: Handle, what: &str) -> Result<Ordinal> {
        let found = self.0.read().get(&handle).copied();
        found.ok_or_else(|| Error::new(Code::InvalidHandle, format!("There is no {what} {handle:#x}")))
    }

    fn insert(&self, handle: Handle, ordinal: Ordinal) {
        self.0.write().insert(handle, ordinal);
    }

    fn remove(&self, handle: Handle) {
        self.0.write().remove(&handle);
    }

    fn forget(&self, ordinal: Ordinal) {
        self.0.write().retain(|_, owner| *owner != ordinal);
    }
}

/// See the module's text.
pub struct Several {
    servers: Vec<Member>,
    /// By ordinal.
    spots: Vec<Spot>,
    plan: AddressPlan,
    infos: Vec<DeviceInfo>,
    host: Arc<dyn Application>,
    streams: Owners,
    events: Owners,
    modules: Owners,
    /// Host functions that have not returned, and whose they are.
    host_funcs: Mutex<HashMap<u64, usize>>,
    /// Variables that a driver has placed outside of the agreed addresses: size, server, module.
    elsewhere: RwLock<BTreeMap<u64, (u64, usize, Handle)>>,
    /// Mirrored allocations, with their ordinals and sizes.
    mirrored: Mutex<BTreeMap<u64, (Ordinal, u64)>>,
    gates: Arc<Gates>,
    /// Streams on which meetings do what they do.
    companions: Mutex<HashMap<(usize, Ordinal), Handle>>,
    next_stream: AtomicU64,
    /// Of something that nobody has waited for.
    pending: Mutex<Option<Error>>,
    links: straight::Links,
    me: Weak<Several>,
    _addresses: Option<CommonAddresses>,
}

impl Several {
    /// What was agreed about addresses.
    pub fn plan(&self) -> &AddressPlan {
        &self.plan
    }

    /// Which server each device is of.
    pub fn groups(&self) -> Vec<usize> {
        self.spots.iter().map(|spot| spot.server).collect()
    }

    /// Asks every server for what its devices have changed in mirrored memory.
    pub fn pull_shared_writes(&self) -> Result<()> {
        self.servers.iter().try_for_each(|server| server.remote.pull_shared_writes())
    }

    /// Ends the sessions at the program's exit. Never waits, unless calls are traced.
    pub fn goodbye(&self) {
        self.servers.iter().for_each(|server| server.remote.goodbye());
    }

    fn spot(&self, ordinal: Ordinal) -> Result<Spot> {
        let spot = self.spots.get(ordinal as usize).copied();
        spot.ok_or_else(|| Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")))
    }

    fn remote(&self, server: usize) -> &Arc<Remote> {
        &self.servers[server].remote
    }

    /// The server of a device, and the ordinal by which it knows the device.
    fn at(&self, ordinal: Ordinal) -> Result<(&Remote, Ordinal)> {
        let spot = self.spot(ordinal)?;
        Ok((self.remote(spot.server), spot.local))
    }

    /// A stream's server, and the handle by which it knows the stream.
    fn stream(&self, stream: Handle) -> Result<(usize, Handle)> {
        if stream < FIRST_STREAM {
            let unknown =
                |_| Error::new(Code::InvalidHandle, format!("There is no legacy stream {stream:#x}"));
            let spot = self.spot(stream as Ordinal).map_err(unknown)?;
            return Ok((spot.server, spot.local.into()));
        }
        Ok((self.spot(self.streams.of(stream, "stream")?)?.server, stream))
    }

    fn event(&self, event: Handle) -> Result<usize> {
        Ok(self.spot(self.events.of(event, "event")?)?.server)
    }

    fn module(&self, module: Handle) -> Result<(&Remote, usize)> {
        let server = self.spot(self.modules.of(module, "module")?)?.server;
        Ok((self.remote(server), server))
    }

    /// The device whose memory an address lies in; none where all servers have it, or nobody knows.
    fn home(&self, addr: u64) -> Option<Spot> {
        if let Some(ordinal) = self.plan.devices.iter().position(|range| range.contains(addr, 1)) {
            return self.spots.get(ordinal).copied();
        }
        // Its variables lie there, too.
        if let Some(server) = self.servers.iter().position(|server| server.part.contains(addr, 1)) {
            return Some(Spot { server, local: 0 });
        }
        let elsewhere = self.elsewhere.read();
        let (base, (size, server, _)) = elsewhere.range(..=addr).next_back()?;
        (addr - base < *size).then_some(Spot { server: *server, local: 0 })
    }

    /// Whether memory has a copy with every server.
    fn is_shared(&self, addr: u64) -> bool {
        self.plan.shared.contains(addr, 1)
    }

    fn has_mirrors(&self) -> bool {
        self.gates.mirrors.load(Relaxed) > 0
    }

    /// Remembers where a module's variables lie.
    fn note_variables(&self, server: usize, module: Handle, info: &ModuleInfo) {
        for variable in &info.globals {
            if !self.plan.whole.contains(variable.addr, variable.size) {
                self.elsewhere.write().insert(variable.addr, (variable.size.max(1), server, module));
            }
        }
    }

    /// The stream on which meetings work with a device's memory. It waits for no other stream.
    fn companion(&self, spot: Spot) -> Result<Handle> {
        let mut companions = self.companions.lock();
        if let Some(handle) = companions.get(&(spot.server, spot.local)) {
            return Ok(*handle);
        }
        let handle = OWN_STREAMS + self.next_stream.fetch_add(1, Relaxed);
        self.remote(spot.server).stream_create(spot.local, handle, false, 0)?;
        companions.insert((spot.server, spot.local), handle);
        Ok(handle)
    }

    /// Takes what a server's devices have changed in mirrored memory over into the host's copy.
    fn take_over(&self, server: usize) {
        self.remote(server).collect_shared_writes(&mut |addr, bytes| self.host.store_mirrored(addr, bytes));
    }

    /// Waits until every meeting that anything is done at is over, as of now. What is enqueued for all of a server's
    /// streams ([`Device::fence`]), or for whoever gets a place in memory next ([`Device::mem_free`]), would otherwise
    /// hold up the very work that it waits for.
    fn wait_for_jobs(&self) {
        self.gates.wait_for_jobs();
    }

    /// Keeps an error until somebody waits.
    fn fail_later(&self, error: Error) {
        self.pending.lock().get_or_insert(error);
    }

    /// Lets an outcome that is good so far bring the error that was kept.
    fn settle<T>(&self, result: Result<T>) -> Result<T> {
        let value = result?;
        match self.pending.lock().take() {
            Some(error) => Err(error),
            None => Ok(value),
        }
    }
}
