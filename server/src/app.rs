//! The process that serves one application.
//!
//! The daemon starts it with a few descriptors: the connection, a memory file that says what to do, and what maps the
//! [ledger](crate::ledger). Where the client speaks TLS, the process begins earlier: it does the handshake and hears the hello
//! before the daemon decides, and gets the rest [afterwards](crate::handshake).

mod handshake;

use crate::confine;
use crate::convert;
use crate::desk::Counter;
use crate::device_spec::{DeviceKind, DeviceSpec};
use crate::greeting::{ANSWER_TIME, hear_any, say};
use crate::ledger::{Descriptors, Ledger, Slot};
use crate::observer::Observed;
use crate::orders::{
    Begin, CONNECTION, LEDGER_OWN, LEDGER_RULES, LEDGER_USAGE, LINE, ORDERS, Orders, PEERS, STORE,
};
use crate::pacer::LedgerPacer;
use crate::peer::Channel;
use crate::session::{Session, initial_credit};
use crate::store::Store;
use rgpu_device::{AddressPlan, Check, Code, Device, DeviceInfo, Host, Pacer, Range, Seat, attribute};
use rgpu_nvidia::{self as nvidia, NvidiaDevice};
use rgpu_protocol::calls::{Call, MemOps};
use rgpu_protocol::hello::{
    self, FEATURE_CHECK, FEATURE_OBSERVE, FEATURE_ONE_MEMORY, FEATURE_PEERS, FEATURE_TRACE, Hello,
    HelloAnswer, HelloCheck, HelloSeat, MAJOR, Status,
};
use rgpu_protocol::sys::SignalSet;
use rgpu_protocol::transport::pass::MAX_PASSED;
use rgpu_protocol::transport::{
    Accepted, CONNECTORS, Choice, Connectors, Finish, Stream, Transport, offered,
};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// How often a client may propose another range.
const MAX_PROPOSALS: usize = 100;

/// Makes the device that executes an application's calls. With a pacer, it holds back as that says.
pub type OpenDevice =
    fn(&DeviceSpec, Arc<dyn Host>, Option<Arc<dyn Pacer>>) -> rgpu_device::Result<Arc<dyn Device>>;

/// The main function of `rgpu __app-server`.
pub fn app_server_main() -> ExitCode {
    let open: OpenDevice = |spec, host, pacer| match spec.kind {
        DeviceKind::Nvidia => NvidiaDevice::open(&nvidia_config(spec), host, pacer),
        DeviceKind::Software | DeviceKind::Auto => {
            Ok(rgpu_softgpu::SoftGpu::open_paced(software_config(spec), host, pacer)?)
        }
    };
    app_server_with(open, CONNECTORS)
}

/// How the software GPU is opened for applications.
pub(crate) fn software_config(spec: &DeviceSpec) -> rgpu_softgpu::Config {
    rgpu_softgpu::Config {
        devices: spec.count,
        numbers: spec.numbers.clone(),
        memory_bytes_per_device: spec.memory,
        workers: spec.workers as usize,
        multiprocessors: spec.multiprocessors,
        exact_bounds: spec.exact_bounds,
        compute_capability: spec.compute_capability,
        identity: spec.identity,
        own_process: true,
        check: spec.check,
        // The daemon has looked at it when it was started.
        kernel_limit: rgpu_control::settings::kernel_limit().unwrap_or_default(),
        #[cfg(feature = "libraries")]
        libraries: Some(rgpu_softlib::LIBRARIES),
        ..rgpu_softgpu::Config::default()
    }
}

/// How the NVIDIA driver is opened for applications.
pub(crate) fn nvidia_config(spec: &DeviceSpec) -> nvidia::Config {
    let first = || (0..spec.count).collect();
    nvidia::Config {
        driver: spec.driver.clone(),
        libraries: spec.libraries.clone(),
        devices: Some(if spec.numbers.is_empty() { first() } else { spec.numbers.clone() }),
        memory: (spec.memory > 0).then_some(spec.memory),
        expected: spec.visible.iter().filter_map(|name| nvidia::parse_uuid(name)).collect(),
    }
}

/// [`app_server_main`] with a device and transports of the caller's choice; the latter are those of the daemon's
/// [options](crate::Options::connectors).
pub fn app_server_with(open: OpenDevice, connectors: Connectors) -> ExitCode {
    match serve_one(open, connectors) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // Started by hand, most likely: a daemon sees to it that there is nothing to go wrong.
            eprintln!("rgpu: {}: {e}; it is started by `rgpu serve`", crate::APP_SERVER_COMMAND);
            ExitCode::FAILURE
        }
    }
}

/// What the daemon has given the process for the client that it serves.
struct Given {
    stream: Stream,
    orders: Orders,
    ledger: Descriptors,
    store: OwnedFd,
    peers: OwnedFd,
}

/// What there is to do; `None` where there is no client to serve, after all.
fn begin() -> io::Result<Option<Given>> {
    // SAFETY: these are the daemon's to give, and nobody else here has taken them.
    let [connection, begin] = unsafe { [take(CONNECTION)?, take(ORDERS)?] };
    let begin = Begin::take(begin)?;
    if has_gone(begin.daemon()) {
        return Err(io::Error::other("the daemon has gone"));
    }
    match begin {
        Begin::Orders(mut orders) => {
            // SAFETY: as above.
            let ledger = unsafe {
                Descriptors { rules: take(LEDGER_RULES)?, usage: take(LEDGER_USAGE)?, own: take(LEDGER_OWN)? }
            };
            // SAFETY: as above.
            let [store, peers] = unsafe { [take(STORE)?, take(PEERS)?] };
            let needs = needs(&orders.device);
            let processors =
                wall_in(orders.daemon, needs, &orders.limits, orders.walled.then_some(orders.slot))?;
            orders.settle(processors);
            let stream = Stream::resume(connection, orders.peer.clone())?;
            Ok(Some(Given { stream, orders: *orders, ledger, store, peers }))
        }
        Begin::Handshake(start) => {
            // SAFETY: as above.
            let line = unsafe { take(LINE)? };
            handshake::begin(connection, line, start)
        }
    }
}

/// Builds of the second wall what needs no opened device, and tells what the software GPU would ask the system afterwards: how many
/// processors there are. With a number, the process becomes the user of that number.
fn wall_in(
    daemon: u32,
    needs: confine::Needs,
    limits: &confine::Limits,
    number: Option<u32>,
) -> io::Result<u32> {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    if needs == confine::Needs::Nothing {
        // The software GPU may be asked to use a library, which could not be opened later.
        rgpu_softgpu::open_before_confinement();
    }
    confine::limit(limits)?;
    if let (confine::Needs::Nothing, Some(number)) = (needs, number) {
        // The daemon has said what is missing.
        confine::walls::build(number, limits);
        // A new user takes the signal at the daemon's end away for a moment.
        if has_gone(daemon) {
            return Err(io::Error::other("the daemon has gone"));
        }
    }
    confine::hide()?;
    Ok(processors)
}

fn serve_one(open: OpenDevice, connectors: Connectors) -> io::Result<()> {
    let Some(Given { stream, mut orders, ledger, store, peers: others }) = begin()? else {
        return Ok(());
    };
    let ledger = Arc::new(Ledger::join(ledger, orders.slot as usize)?);
    let connection = Connection::accept(stream, connectors, &orders);
    let peers = if orders.peers.is_some() { FEATURE_PEERS } else { 0 };
    let asked_for = orders.hello.features & (FEATURE_OBSERVE | FEATURE_CHECK);
    let mut features = connection.feature | peers | asked_for;
    let mut session = begin_session(&connection, &mut orders, store, others)?;
    let slot = orders.slot as usize;
    let stats = ledger.slot(slot);
    end_on_sigterm(session.farewell(), stats)?;
    let refuse = |reason: String, text: String| {
        stats.set_reason(&reason);
        // A client that has gone need not be told.
        let _ = say(&*connection.hello, &HelloAnswer::refused(Status::Unavailable, text));
        Ok(())
    };
    if orders.hello.features & FEATURE_CHECK != 0 {
        match check(&orders.check) {
            Some(check) => orders.device.check = Some(check),
            None => {
                let text = "it is of an older release of rgpu, which knows fewer tools of `rgpu check`";
                return refuse("the application asks for tools that are not known".into(), text.into());
            }
        }
    }
    let (device, plan) = match open_device(open, &session, &ledger, &connection, &orders) {
        Ok(opened) => opened,
        Err(e) => return refuse(format!("the device could not be opened: {}", e.message), e.message),
    };
    let credit = match looks_only(&orders) {
        true => vec![0; plan.devices.len()],
        false => initial_credit(&ledger, slot, orders.device.count),
    };
    let files = memory_files(&*device, &connection, &orders);
    if files.shared.is_some() {
        features |= FEATURE_ONE_MEMORY;
        session.has_one_memory();
    }
    let answer = HelloAnswer {
        status: Status::Accepted as u32,
        message: String::new(),
        features,
        devices: described(device.infos(), &ledger, slot, orders.minor),
        plan: convert::plan(&plan),
        credit: credit.clone(),
    };
    // Before anything of the application's is executed.
    if let Err(e) = confine::confine(needs(&orders.device)) {
        let text = format!("the process could not be confined: {e}");
        return refuse(text.clone(), text);
    }
    stats.begun.store(1, std::sync::atomic::Ordering::SeqCst);
    say(&*connection.hello, &(answer, orders.extras))?;
    if let Some(finish) = connection.finish {
        finish.finish(&*connection.hello, &files.all(), Instant::now() + ANSWER_TIME)?;
    }
    session.run(device, ledger.clone(), slot, &credit, move || {
        stats.set_reason("the application has gone");
        exit();
    });
    exit();
}

/// What the client maps, too.
struct MemoryFiles {
    /// Behind the devices' memory, by ordinal.
    devices: Vec<RawFd>,
    /// Behind the memory that is one for both sides, where the client knows that.
    shared: Option<RawFd>,
}

impl MemoryFiles {
    fn all(&self) -> Vec<RawFd> {
        self.devices.iter().copied().chain(self.shared).collect()
    }
}

/// The memory files that the client is passed, where it is passed any.
fn memory_files(device: &dyn Device, connection: &Connection, orders: &Orders) -> MemoryFiles {
    let passes = connection.finish.as_ref().is_some_and(|finish| finish.passes_memory());
    let wants = passes && orders.minor >= MemOps::SINCE && orders.hello.features & FEATURE_ONE_MEMORY != 0;
    let devices = device.memory_files();
    // A message has room for so many, and the transport has some of its own.
    let room = devices.len() + 4 <= MAX_PASSED;
    MemoryFiles { devices, shared: device.shared_file().filter(|_| wants && room) }
}

/// Whether the daemon has gone.
fn has_gone(daemon: u32) -> bool {
    // SAFETY: plain system call.
    unsafe { libc::getppid() as u32 != daemon }
}

/// Whether the client has no part in the device.
fn looks_only(orders: &Orders) -> bool {
    orders.hello.features & FEATURE_OBSERVE != 0
}

/// The session, with the store and the channel to other servers that the daemon has given it. What there is no use for is
/// closed.
fn begin_session(
    connection: &Connection,
    orders: &mut Orders,
    store: OwnedFd,
    others: OwnedFd,
) -> io::Result<Session> {
    let mut session = Session::new(connection.session.clone());
    session.trace(orders.hello.features & FEATURE_TRACE != 0);
    session.client_speaks(orders.minor);
    match orders.desk {
        true => {
            let counter = Counter::new(store)?;
            if orders.extras.keeps_images {
                session.keep_images(Store::new(counter.clone()));
            }
            session.ask_at(counter);
        }
        false => drop(store),
    }
    match orders.peers.take() {
        Some(identity) => session.meet_peers(Channel::from(others), identity),
        None => drop(others),
    }
    Ok(session)
}

/// The device, and the addresses that it and the client have agreed on.
fn open_device(
    open: OpenDevice,
    session: &Session,
    ledger: &Arc<Ledger>,
    connection: &Connection,
    orders: &Orders,
) -> rgpu_device::Result<(Arc<dyn Device>, AddressPlan)> {
    let spec = &orders.device;
    let device = if looks_only(orders) {
        Arc::new(Observed::open(spec)?) as Arc<dyn Device>
    } else {
        let pacer = LedgerPacer::of(ledger, orders.slot as usize, orders.ceiling);
        open(spec, session.host(), pacer)?
    };
    if spec.check.is_some() && !device.wants_memory_notes() {
        let text = "its GPU cannot look at what kernels do, which only software GPUs do (`rgpu serve --device software`): use a server \
                    with one, or `rgpu check --in-process`";
        return Err(rgpu_device::Error::new(Code::NotSupported, text));
    }
    let plan = agree(&*connection.hello, &*device, &orders.hello, &orders.seat)?;
    Ok((device, plan))
}

/// What kernels are looked at for; `None` where it is not known.
fn check(asked: &HelloCheck) -> Option<Check> {
    let limit = (asked.limit < u64::MAX).then_some(asked.limit);
    Check::of_bits(asked.tools).map(|check| Check { limit, ..check })
}

/// Attributes of what a client of an older minor version than this has no calls for.
const SINCE: (u16, [u32; 6]) = (
    MemOps::SINCE,
    [
        attribute::CAN_USE_STREAM_MEM_OPS_V1,
        attribute::CAN_USE_64_BIT_STREAM_MEM_OPS_V1,
        attribute::CAN_USE_STREAM_WAIT_VALUE_NOR_V1,
        attribute::CAN_USE_64_BIT_STREAM_MEM_OPS,
        attribute::CAN_USE_STREAM_WAIT_VALUE_NOR,
        attribute::IPC_EVENT_SUPPORTED,
    ],
);

/// What the client, which speaks a minor version, is told of the devices: of their memory, a program with a lease sees what that
/// gives.
fn described(infos: Vec<DeviceInfo>, ledger: &Ledger, slot: usize, minor: u16) -> Vec<hello::DeviceInfo> {
    let described = |(mut info, ordinal): (DeviceInfo, u32)| {
        if minor < SINCE.0 {
            info.attributes.retain(|(number, _)| !SINCE.1.contains(number));
        }
        let most = ledger.cap(slot, ordinal);
        let total_memory = most.map_or(info.total_memory, |most| info.total_memory.min(most));
        convert::device_info(DeviceInfo { total_memory, ..info })
    };
    infos.into_iter().zip(0..).map(described).collect()
}

/// How the application is reached.
struct Connection {
    /// For the hello.
    hello: Arc<dyn Transport>,
    /// For what follows.
    session: Arc<dyn Transport>,
    /// The feature bit of the offer that was taken; 0 where the stream itself carries the session.
    feature: u64,
    /// Sends the client what it needs for its end.
    finish: Option<Box<dyn Finish>>,
}

impl Connection {
    /// Takes what the client offers over the stream, if that can be had here.
    fn accept(stream: Stream, connectors: Connectors, orders: &Orders) -> Self {
        // The daemon has left only what may be taken.
        let connector = offered(connectors, Choice::Auto, stream.carrier(), orders.hello.features);
        let accepted = connector.and_then(|connector| {
            let accepted = connector.accept(&stream, &orders.offer).unwrap_or_else(|e| {
                tracing::warn!("{}: no {}: {e}", orders.peer, connector.kind().title());
                None
            });
            accepted.map(|accepted| (connector.feature(), accepted))
        });
        let hello: Arc<dyn Transport> = Arc::from(stream.into_transport());
        match accepted {
            Some((feature, Accepted { session, finish })) => {
                Self { hello, session, feature, finish: Some(finish) }
            }
            None => Self { session: hello.clone(), hello, feature: 0, finish: None },
        }
    }
}

/// What the device needs of the system once the session has begun.
fn needs(spec: &DeviceSpec) -> confine::Needs {
    match spec.kind {
        DeviceKind::Nvidia if spec.driver.as_deref().is_some_and(nvidia::is_own) => {
            confine::Needs::MemoryFiles
        }
        DeviceKind::Nvidia => confine::Needs::Driver,
        DeviceKind::Software | DeviceKind::Auto => confine::Needs::Nothing,
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
                let next = hear(transport, Instant::now() + ANSWER_TIME).map_err(lost)?;
                range = Range { base: next.range.base, size: next.range.size };
                last = Some(e);
            }
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or_else(|| Code::MapFailed.into()))
}

/// Reads a hello of this version.
fn hear(transport: &dyn Transport, end: Instant) -> io::Result<Hello> {
    let (prefix, body) = hear_any(transport, end)?;
    if prefix.major != MAJOR {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "another protocol version"));
    }
    Hello::parse(&body).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Tells the client when the daemon stops, or ends its lease. Must be called before any other thread is started, so that
/// all of them leave the signal to this one.
fn end_on_sigterm(farewell: impl Fn(&str) + Send + 'static, stats: &'static Slot) -> io::Result<()> {
    let stop = SignalSet::of(&[libc::SIGTERM]);
    stop.block();
    let wait = move || {
        stop.wait();
        stats.set_ending();
        // The daemon may have said why.
        farewell(&stats.reason().unwrap_or_else(|| "the server was stopped".into()));
        exit();
    };
    std::thread::Builder::new().name("signals".into()).stack_size(128 << 10).spawn(wait).map(drop)
}
