//! The process that serves one application.
//!
//! The daemon starts it with three descriptors: the connection, a memory file that says what to do, and the
//! [ledger](crate::ledger).

use crate::confine;
use crate::convert;
use crate::inventory::{path_bytes, path_from};
use crate::ledger::{Ledger, Slot};
use crate::local::is_local;
use crate::observer::Observed;
use crate::options::{DeviceKind, DeviceSpec};
use crate::pacer::LedgerPacer;
use crate::peer::{Channel, Identity};
use crate::session::{Session, initial_credit};
use crate::store::Store;
use rgpu_device::{AddressPlan, Code, Device, DeviceInfo, Host, Pacer, Range, Seat};
use rgpu_nvidia::{self as nvidia, NvidiaDevice};
use rgpu_protocol::hello::{
    self, FEATURE_OBSERVE, FEATURE_PEERS, FEATURE_RDMA, FEATURE_SHARED_MEMORY, FEATURE_TRACE, Hello,
    HelloAnswer, HelloExtras, HelloSeat, MAJOR, MAX_HELLO, PREFIX_BYTES, Prefix, Status,
};
use rgpu_protocol::transport::tls::Handed;
use rgpu_protocol::transport::{Offer, Rdma, RdmaInfo, Ready, Shm, Tcp, Tls, Transport};
use rgpu_protocol::wire::{DecodeError, Reader, Wire};
use std::fs::File;
use std::io::{self, IoSlice, Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Where the connection is.
pub(crate) const CONNECTION: i32 = 3;
/// Where the [`Orders`] are.
pub(crate) const ORDERS: i32 = 4;
/// Where the ledger is.
pub(crate) const LEDGER: i32 = 5;
/// Where the socket is that leads to the [store](crate::store), if there is one.
pub(crate) const STORE: i32 = 6;
/// Where the channel is by which other servers come, if they may.
pub(crate) const PEERS: i32 = 7;

/// How often a client may propose another range.
const MAX_PROPOSALS: usize = 100;
/// How long it may think about it.
const PROPOSAL_TIME: Duration = Duration::from_secs(10);

/// Makes the device that executes an application's calls. With a pacer, it holds back as that says.
pub type OpenDevice =
    fn(&DeviceSpec, Arc<dyn Host>, Option<Arc<dyn Pacer>>) -> rgpu_device::Result<Arc<dyn Device>>;

/// What the daemon tells.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Orders {
    pub device: DeviceSpec,
    /// The percentage of the multiprocessors that the process can use.
    pub ceiling: u32,
    pub slot: u32,
    pub daemon: u32,
    pub peer: String,
    pub hello: Hello,
    /// What an RDMA client has sent, where RDMA is offered.
    pub rdma: Vec<u8>,
    /// The protocol's minor version that the client speaks.
    pub minor: u16,
    /// Which of the application's servers this is.
    pub seat: HelloSeat,
    /// Whether there is a store of images, and which.
    pub extras: HelloExtras,
    /// Where copies may go straight to other servers: what its keys are made of.
    pub peers: Option<Identity>,
    /// Where the connection is encrypted: what it takes to go on with it.
    pub tls: Option<Handed>,
}

impl Orders {
    /// As a message, which is overwritten when it is let go: it holds secrets.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Vec::new();
        (self.device.count, self.device.workers).encode(&mut out);
        self.device.memory.encode(&mut out);
        self.device.compute_capability.encode(&mut out);
        (self.device.kind as u32).encode(&mut out);
        path_bytes(self.device.driver.as_deref()).encode(&mut out);
        self.device.numbers.encode(&mut out);
        self.device.visible.encode(&mut out);
        self.ceiling.encode(&mut out);
        (self.slot, self.daemon).encode(&mut out);
        self.peer.encode(&mut out);
        self.hello.encode(&mut out);
        self.rdma.encode(&mut out);
        self.minor.encode(&mut out);
        self.seat.encode(&mut out);
        self.extras.encode(&mut out);
        // Secrets come last, where there is room for them: what grew would leave a copy behind.
        let tls = self.tls.as_ref().map(Handed::to_bytes).unwrap_or_default();
        let peers = self.peers.as_ref().map(|own| (own.session, own.root));
        out.reserve_exact(<Option<([u8; 16], [u8; 32])>>::MIN_BYTES + u32::MIN_BYTES + tls.len());
        let mut out = Zeroizing::new(out);
        peers.encode(&mut out);
        (tls.len() as u32).encode(&mut out);
        out.extend_from_slice(&tls);
        out
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let (count, workers) = Wire::decode(&mut r)?;
        let memory = Wire::decode(&mut r)?;
        let compute_capability = Wire::decode(&mut r)?;
        let kind: u32 = Wire::decode(&mut r)?;
        let kind = DeviceKind::from_number(kind)
            .ok_or(DecodeError::Unknown { what: "A kind of device", value: u64::from(kind) })?;
        let driver: Vec<u8> = Wire::decode(&mut r)?;
        let driver = path_from(&driver);
        let numbers = Wire::decode(&mut r)?;
        let visible = Wire::decode(&mut r)?;
        let ceiling = Wire::decode(&mut r)?;
        let device = DeviceSpec {
            kind,
            count,
            memory,
            workers,
            compute_capability,
            driver,
            numbers,
            visible,
            ..DeviceSpec::default()
        };
        let (slot, daemon) = Wire::decode(&mut r)?;
        let peer = Wire::decode(&mut r)?;
        let hello = Wire::decode(&mut r)?;
        let rdma = Wire::decode(&mut r)?;
        let minor = Wire::decode(&mut r)?;
        let seat = Wire::decode(&mut r)?;
        let extras = Wire::decode(&mut r)?;
        let peers: Option<([u8; 16], [u8; 32])> = Wire::decode(&mut r)?;
        let peers = peers.map(|(session, root)| Identity { session, root });
        let length = u32::decode(&mut r)? as usize;
        let tls = r.take(length, "An encrypted session")?;
        let tls = if tls.is_empty() { None } else { Some(Handed::parse(tls)?) };
        r.finish()?;
        Ok(Self { device, ceiling, slot, daemon, peer, hello, rdma, minor, seat, extras, peers, tls })
    }
}

/// The main function of `rgpu __app-server`.
pub fn app_server_main() -> ExitCode {
    app_server_with(|spec, host, pacer| match spec.kind {
        DeviceKind::Nvidia => NvidiaDevice::open(&nvidia_config(spec), host, pacer),
        DeviceKind::Software | DeviceKind::Auto => {
            Ok(rgpu_softgpu::SoftGpu::open_paced(software_config(spec), host, pacer)?)
        }
    })
}

/// How the software GPU is opened for applications.
pub(crate) fn software_config(spec: &DeviceSpec) -> rgpu_softgpu::Config {
    rgpu_softgpu::Config {
        devices: spec.count,
        numbers: spec.numbers.clone(),
        memory_bytes_per_device: spec.memory,
        workers: spec.workers as usize,
        compute_capability: spec.compute_capability,
        own_process: true,
        ..rgpu_softgpu::Config::default()
    }
}

/// How the NVIDIA driver is opened for applications.
pub(crate) fn nvidia_config(spec: &DeviceSpec) -> nvidia::Config {
    let first = || (0..spec.count).collect();
    nvidia::Config {
        driver: spec.driver.clone(),
        devices: Some(if spec.numbers.is_empty() { first() } else { spec.numbers.clone() }),
        memory: (spec.memory > 0).then_some(spec.memory),
        expected: spec.visible.iter().filter_map(|name| nvidia::parse_uuid(name)).collect(),
    }
}

/// [`app_server_main`] with a device of the caller's choice.
pub fn app_server_with(open: OpenDevice) -> ExitCode {
    match serve_one(open) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // Started by hand, most likely: a daemon sees to it that there is nothing to go wrong.
            eprintln!("rgpu: {}: {e}; it is started by `rgpu serve`", crate::APP_SERVER_COMMAND);
            ExitCode::FAILURE
        }
    }
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

fn serve_one(open: OpenDevice) -> io::Result<()> {
    let invalid = |e: DecodeError| io::Error::new(io::ErrorKind::InvalidData, e);
    // SAFETY: these are the daemon's to give, and nobody else here has taken them.
    let [connection, orders, ledger] = unsafe { [take(CONNECTION)?, take(ORDERS)?, take(LEDGER)?] };
    let mut orders = Orders::parse(&read_once(orders.into())?).map_err(invalid)?;
    // SAFETY: plain system call.
    if unsafe { libc::getppid() } as u32 != orders.daemon {
        return Err(io::Error::other("the daemon has gone"));
    }
    confine::limit()?;
    let ledger = Arc::new(Ledger::map(ledger)?);
    let handed = orders.tls.take();
    let (slot, spec) = (orders.slot as usize, &orders.device);
    let stats = ledger.slot(slot);
    let connection = Connection::new(connection, handed, &orders)?;
    let transport = connection.hello.clone();
    let mut session = Session::new(connection.session.clone());
    session.trace(orders.hello.features & FEATURE_TRACE != 0);
    session.client_speaks(orders.minor);
    // SAFETY: as above.
    let [store, others] = unsafe { [take(STORE)?, take(PEERS)?] };
    // What there is no use for is closed.
    match orders.extras.keeps_images {
        true => session.keep_images(Store::new(store)?),
        false => drop(store),
    }
    let peers = if orders.peers.is_some() { FEATURE_PEERS } else { 0 };
    match orders.peers {
        Some(identity) => session.meet_peers(Channel::from(others), identity),
        None => drop(others),
    }
    end_on_sigterm(session.farewell(), stats)?;

    // Who only looks has no part in the device.
    let observes = orders.hello.features & FEATURE_OBSERVE != 0;
    let device = if observes {
        Observed::open(spec).map(|device| Arc::new(device) as Arc<dyn Device>)
    } else {
        open(spec, session.host(), LedgerPacer::of(&ledger, slot, orders.ceiling))
    };
    let opened = device.and_then(|device| {
        let plan = agree(&*transport, &*device, &orders.hello, &orders.seat)?;
        Ok((device, plan))
    });
    let (device, plan) = match opened {
        Ok(opened) => opened,
        Err(e) => {
            stats.set_reason(&format!("the device could not be opened: {}", e.message));
            let _ = say(&*transport, &HelloAnswer::refused(Status::Unavailable, e.message));
            return Ok(());
        }
    };
    let credit =
        if observes { vec![0; plan.devices.len()] } else { initial_credit(&ledger, slot, spec.count) };
    // Of a device's memory, a program with a lease sees what that gives.
    let described = |info: DeviceInfo, ordinal: u32| {
        let total_memory =
            ledger.cap(slot, ordinal).map_or(info.total_memory, |most| info.total_memory.min(most));
        convert::device_info(DeviceInfo { total_memory, ..info })
    };
    let answer = HelloAnswer {
        status: Status::Accepted as u32,
        message: String::new(),
        features: connection.features() | peers | if observes { FEATURE_OBSERVE } else { 0 },
        devices: device.infos().into_iter().zip(0..).map(|(info, o)| described(info, o)).collect(),
        plan: convert::plan(&plan),
        credit: credit.clone(),
    };
    // Before anything of the application's is executed.
    if let Err(e) = confine::confine(files_needed(spec)) {
        let text = format!("the process could not be confined: {e}");
        stats.set_reason(&text);
        let _ = say(&*transport, &HelloAnswer::refused(Status::Unavailable, text));
        return Ok(());
    }
    stats.begun.store(1, std::sync::atomic::Ordering::SeqCst);
    say(&*transport, &(answer, orders.extras))?;
    if let Some(info) = connection.rdma {
        say_bytes(&*transport, &info.to_bytes())?;
    }
    if let Some(offer) = connection.offer {
        offer.send(transport.descriptor(), &device.memory_files())?;
    }
    session.run(device, ledger.clone(), slot, &credit, move || {
        stats.set_reason("the application has gone");
        exit();
    });
    exit();
}

/// How the application is reached.
struct Connection {
    /// For the hello.
    hello: Arc<dyn Transport>,
    /// For what follows.
    session: Arc<dyn Transport>,
    /// What the client needs for that.
    offer: Option<Offer>,
    /// Likewise, by RDMA.
    rdma: Option<RdmaInfo>,
}

impl Connection {
    fn features(&self) -> u64 {
        let shm = if self.offer.is_some() { FEATURE_SHARED_MEMORY } else { 0 };
        shm | if self.rdma.is_some() { FEATURE_RDMA } else { 0 }
    }

    fn new(connection: OwnedFd, handed: Option<Handed>, orders: &Orders) -> io::Result<Self> {
        let peer = orders.peer.clone();
        if !is_local(connection.as_raw_fd()) {
            let tcp = Tcp::adopt(connection, peer)?;
            tcp.probe_when_idle()?;
            if let Some(handed) = handed {
                let tls: Arc<dyn Transport> = Arc::new(Tls::resume(tcp, handed)?);
                return Ok(Self { hello: tls.clone(), session: tls, offer: None, rdma: None });
            }
            let rdma = RdmaInfo::parse(&orders.rdma).and_then(|client| {
                let made = Rdma::open(&tcp, 0).and_then(|rdma| rdma.connect(client).map(|()| rdma));
                made.map_err(|e| tracing::warn!("{}: no RDMA: {e}", orders.peer)).ok()
            });
            let tcp: Arc<dyn Transport> = Arc::new(tcp);
            return Ok(match rdma {
                Some(rdma) => {
                    let info = Some(rdma.info());
                    Self { hello: tcp, session: Arc::new(rdma), offer: None, rdma: info }
                }
                None => Self { hello: tcp.clone(), session: tcp, offer: None, rdma: None },
            });
        }
        let hello: Arc<dyn Transport> = Arc::new(Tcp::local(connection.try_clone()?, peer.clone()));
        if orders.hello.features & FEATURE_SHARED_MEMORY == 0 {
            return Ok(Self { session: hello.clone(), hello, offer: None, rdma: None });
        }
        let (shm, offer) = Shm::create(connection, peer)?;
        Ok(Self { hello, session: Arc::new(shm), offer: Some(offer), rdma: None })
    }
}

/// Which files the device needs from now on.
fn files_needed(spec: &DeviceSpec) -> confine::Files {
    // Our own library in the driver's place executes kernels in this very process.
    let is_own = spec.driver.as_deref().is_some_and(nvidia::is_own);
    match spec.kind {
        DeviceKind::Nvidia if !is_own => confine::Files::AsTheDriverNeeds,
        _ => confine::Files::None,
    }
}

/// Leaves at once: kernels may be running for ever, and there is nothing to clean up that the kernel of
/// the operating system does not.
fn exit() -> ! {
    // SAFETY: plain system call.
    unsafe { libc::_exit(0) }
}

/// # Safety
/// The descriptor must belong to nobody.
unsafe fn take(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain system calls.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::other("its descriptors are missing"));
    }
    // SAFETY: it is open, and passed on to the caller that it is nobody's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Agrees on a range, asking the client for others where one is not free here.
fn agree(
    transport: &dyn Transport,
    device: &dyn Device,
    hello: &Hello,
    seat: &HelloSeat,
) -> rgpu_device::Result<AddressPlan> {
    let seat = Seat { index: seat.index, of: seat.of.max(1) };
    if seat.index >= seat.of || seat.of > Seat::MOST {
        let text =
            format!("a program cannot have {} servers, of which this is number {}", seat.of, seat.index);
        return Err(rgpu_device::Error::new(Code::InvalidValue, text));
    }
    let mut range = Range { base: hello.range.base, size: hello.range.size };
    let mut last = None;
    for _ in 0..MAX_PROPOSALS {
        match device.reserve_seat(range, seat) {
            Ok(plan) => return Ok(plan),
            Err(e) if e.code == Code::MapFailed => {
                let lost = |e: io::Error| rgpu_device::Error::new(Code::OperatingSystem, e.to_string());
                let refusal = HelloAnswer::refused(Status::RangeRefused, e.message.clone());
                say(transport, &refusal).map_err(lost)?;
                let next = hear(transport, Instant::now() + PROPOSAL_TIME).map_err(lost)?;
                range = Range { base: next.range.base, size: next.range.size };
                last = Some(e);
            }
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or_else(|| Code::MapFailed.into()))
}

/// Sends a hello's answer.
pub(crate) fn say(transport: &dyn Transport, answer: &impl Wire) -> io::Result<()> {
    say_bytes(transport, &hello::message(answer))
}

fn say_bytes(transport: &dyn Transport, bytes: &[u8]) -> io::Result<()> {
    say_until(transport, bytes, Instant::now() + PROPOSAL_TIME)
}

/// Sends bytes, as long as there is time.
pub(crate) fn say_until(transport: &dyn Transport, bytes: &[u8], end: Instant) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        at += patiently(transport, Ready::WRITE, end, || transport.send(&[IoSlice::new(&bytes[at..])]))?;
    }
    Ok(())
}

/// Reads a hello of this version.
fn hear(transport: &dyn Transport, end: Instant) -> io::Result<Hello> {
    let (prefix, body) = hear_any(transport, end)?;
    if prefix.major != MAJOR {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "another protocol version"));
    }
    Hello::parse(&body).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Reads a hello of any version.
pub(crate) fn hear_any(transport: &dyn Transport, end: Instant) -> io::Result<(Prefix, Vec<u8>)> {
    hear_message(transport, MAX_HELLO, end)
}

/// Reads a hello or an answer to one, of any version.
pub(crate) fn hear_message(
    transport: &dyn Transport,
    limit: usize,
    end: Instant,
) -> io::Result<(Prefix, Vec<u8>)> {
    let read = |into: &mut [u8]| {
        let mut at = 0;
        while at < into.len() {
            match patiently(transport, Ready::READ, end, || transport.recv(&mut into[at..]))? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                n => at += n,
            }
        }
        Ok(())
    };
    let mut bytes = [0; PREFIX_BYTES];
    read(&mut bytes)?;
    let prefix = Prefix::parse(&bytes, limit)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
    let mut body = vec![0; prefix.length as usize];
    read(&mut body)?;
    Ok((prefix, body))
}

fn patiently(
    transport: &dyn Transport,
    want: Ready,
    end: Instant,
    mut action: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match action() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                transport.wait(want, None, Some(left))?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Tells the client when the daemon stops, or ends its lease. Must be called before any other thread is started, so that
/// all of them leave the signal to this one.
fn end_on_sigterm(farewell: impl Fn(&str) + Send + 'static, stats: &'static Slot) -> io::Result<()> {
    // SAFETY: all zeros is a valid set, and it is filled before it is used.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid place.
    unsafe {
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    let wait = move || {
        let mut signal = 0;
        // SAFETY: both are valid places.
        unsafe { libc::sigwait(&set, &mut signal) };
        stats.set_ending();
        // The daemon may have said why.
        farewell(&stats.reason().unwrap_or_else(|| "the server was stopped".into()));
        exit();
    };
    std::thread::Builder::new().name("signals".into()).stack_size(128 << 10).spawn(wait).map(drop)
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
                compute_capability: (9, 0),
                driver: Some("/lib/x".into()),
                numbers: vec![2, 1],
                visible: vec!["GPU-x".into(), "MIG-y".into()],
                ..DeviceSpec::default()
            },
            ceiling: 23,
            slot: 11,
            daemon: 13,
            peer: "127.0.0.1:1".into(),
            hello: Hello { program: "a".into(), ..Hello::default() },
            rdma: vec![15],
            minor: 2,
            seat: HelloSeat { index: 19, of: 21 },
            extras: HelloExtras { keeps_images: true, images: vec![17] },
            peers: Some(Identity::random()),
            tls: None,
        };
        assert_eq!(Orders::parse(&orders.to_bytes()).unwrap(), orders);
        assert!(Orders::parse(b"").is_err());
    }

    #[test]
    fn orders_are_read_once() {
        let file = File::from(crate::daemon::memory_file(b"secrets").unwrap());
        let mut other = file.try_clone().unwrap();
        assert_eq!(read_once(file).unwrap().as_slice(), b"secrets");
        other.rewind().unwrap();
        assert_eq!((other.metadata().unwrap().len(), other.read(&mut [0; 8]).unwrap()), (0, 0));
    }
}
