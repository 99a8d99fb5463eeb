//! Connecting: the list of transports is walked until the server has accepted a session over one of them.

use super::fork::LOWEST_DESCRIPTOR;
use super::hello::{Answered, exchange};
use super::link::Link;
use super::options::ConnectOptions;
use super::reserve::{Reservation, candidates, next_free};
use super::{Remote, convert, credit, direct, images, imported, one_memory};
use parking_lot::Mutex;
use rgpu_device::{Check, Code, Error, Host, Range, Result, Seat};
use rgpu_protocol::calls::{Call, Mark, PeerExpect};
use rgpu_protocol::hello::{
    self, FEATURE_CHECK, FEATURE_OBSERVE, FEATURE_ONE_MEMORY, FEATURE_PEERS, FEATURE_TRACE, Hello,
    HelloCheck, HelloMore, HelloSeat, Status,
};
use rgpu_protocol::stats::Stats;
use rgpu_protocol::transport::{Choice, ConnectError, Connector, Dial, Established, Offer, Offered, Stream};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

impl Remote {
    /// Connects to `HOST:PORT`, reserving addresses on the way: one round trip after TCP's own.
    ///
    /// # Errors
    /// [`Code::SystemNotReady`] where the server cannot be reached or refuses, [`Code::OutOfMemory`] where no addresses are to
    /// be had, and [`Code::MapFailed`] where one of several servers refuses theirs; in words that say what to do.
    pub fn connect(address: &str, options: ConnectOptions, host: Arc<dyn Host>) -> Result<Arc<Self>> {
        let stats = Stats::from_environment();
        let result = connect(address, &options, &host, stats);
        if result.is_err() {
            stats.failures.fetch_add(1, Relaxed);
        }
        result
    }
}

fn not_ready(e: ConnectError) -> Error {
    Error::new(Code::SystemNotReady, e.to_string())
}

/// Offers the server one transport after the other, until a session begins.
fn connect(
    address: &str,
    options: &ConnectOptions,
    host: &Arc<dyn Host>,
    stats: &'static Stats,
) -> Result<Arc<Remote>> {
    let choice = options.choice()?;
    let by_name = choice != Choice::Auto;
    let begin = || {
        let end = Instant::now() + options.timeout;
        let dial = Dial::new(address, LOWEST_DESCRIPTOR, end, by_name, options.encrypt.as_ref(), stats);
        Ok::<_, Error>((Attempt::new(address, options, stats, end)?, dial))
    };
    let (mut attempt, mut dial) = begin()?;
    let mut declined = None;
    let mut walk = candidates_of(options, choice, &dial).map_err(not_ready)?.into_iter().peekable();
    while let Some(connector) = walk.next() {
        let Offered { stream, offer } = match connector.offer(&mut dial) {
            Ok(offered) => offered,
            Err(e @ ConnectError::NotHere(_)) => {
                declined = Some(e);
                continue;
            }
            Err(e) => return Err(not_ready(e)),
        };
        let answered = attempt.introduce(connector, &stream, &*offer)?;
        match attempt.establish(connector, stream, offer, &answered, by_name) {
            Ok(established) => return attempt.begin(established, answered, host.clone()),
            Err(ConnectError::Unusable { source, .. })
                if connector.may_miss() && !by_name && walk.peek().is_some() =>
            {
                let next = walk.peek().map_or("", |next| next.kind().title());
                warn(&format!(
                    "{} does not reach {address} ({source}): using {next}",
                    connector.kind().title()
                ));
                drop(attempt);
                (attempt, dial) = begin()?;
            }
            Err(e) => return Err(not_ready(e)),
        }
    }
    Err(not_ready(declined.unwrap_or_else(|| ConnectError::NotHere("There is no transport to use".into()))))
}

/// The connectors that are allowed and can run over what would be opened.
fn candidates_of(
    options: &ConnectOptions,
    choice: Choice,
    dial: &Dial<'_>,
) -> std::result::Result<Vec<&'static dyn Connector>, ConnectError> {
    let network = dial.network_carrier();
    let can_run = |connector: &&'static dyn Connector| {
        connector.runs_over(rgpu_protocol::transport::Carrier::Local) || connector.runs_over(network)
    };
    let found: Vec<_> = choice.of(options.connectors).filter(can_run).collect();
    match choice {
        Choice::Only(kind) if found.is_empty() && dial.encrypt.is_some() => {
            Err(ConnectError::CannotEncrypt { address: dial.address.to_owned(), kind })
        }
        _ => Ok(found),
    }
}

/// One try to begin a session over one connection.
struct Attempt<'a> {
    address: &'a str,
    options: &'a ConnectOptions,
    stats: &'static Stats,
    /// When it has to be over.
    end: Instant,
    /// Chosen at random.
    session: u64,
    /// Ranges of addresses that were not proposed yet.
    untried: Box<dyn Iterator<Item = Range>>,
    /// The range that is proposed, unless there is none, or somebody else has reserved it.
    reservation: Option<Reservation>,
}

impl<'a> Attempt<'a> {
    fn new(
        address: &'a str,
        options: &'a ConnectOptions,
        stats: &'static Stats,
        end: Instant,
    ) -> Result<Self> {
        let mut untried = Box::new(candidates());
        let reserves = !options.observe && options.shared_range.is_none();
        let reservation = reserves.then(|| next_free(&mut untried)).transpose()?;
        Ok(Self { address, options, stats, end, session: random(), untried, reservation })
    }

    fn range(&self) -> Range {
        let reserved = self.reservation.as_ref().map(Reservation::range).unwrap_or_default();
        self.options.shared_range.map_or(reserved, |shared| shared.range)
    }

    /// What the server is to look at while kernels run.
    fn check(&self) -> Option<Check> {
        self.options.check.filter(|_| !self.options.observe)
    }

    fn refused(&self, code: Code, why: &str) -> Error {
        Error::new(code, format!("The server {} {why}", self.address))
    }

    /// Says hello, with other addresses as often as the server refuses them, until it accepts.
    fn introduce(
        &mut self,
        connector: &dyn Connector,
        stream: &Stream,
        offer: &dyn Offer,
    ) -> Result<Answered> {
        let credential = self.options.credential.for_session(self.session, stream.binding().as_ref());
        loop {
            let said = self.hello(connector, offer, &credential);
            let answered = exchange(stream.transport(), &said, self.end, self.stats)
                .map_err(|e| Error::new(Code::SystemNotReady, format!("{}: {e}", self.address)))?;
            let message = &answered.answer.message;
            match Status::from_number(answered.answer.status) {
                Status::Accepted if self.options.shared_range.is_some() && answered.minor < 2 => {
                    let why =
                        "is of an older release of rgpu, which serves no program together with other servers";
                    return Err(self.refused(Code::SystemNotReady, why));
                }
                Status::Accepted
                    if self.check().is_some() && answered.answer.features & FEATURE_CHECK == 0 =>
                {
                    let why = "is of an older release of rgpu, which does not look at what kernels do: use the same release of \
                               rgpu on both sides, or `rgpu check --in-process`";
                    return Err(self.refused(Code::SystemNotReady, why));
                }
                Status::Accepted => {
                    self.stats.sessions.fetch_add(1, Relaxed);
                    let encrypted = stream.transport().is_encrypted();
                    self.stats.encrypted.fetch_add(u64::from(encrypted), Relaxed);
                    return Ok(answered);
                }
                Status::RangeRefused => self.propose_another(message)?,
                Status::Version | Status::Credential | Status::Unavailable => {
                    return Err(self.refused(Code::SystemNotReady, &format!("refuses: {message}")));
                }
            }
        }
    }

    fn hello(&self, connector: &dyn Connector, offer: &dyn Offer, credential: &[u8]) -> Vec<u8> {
        let bit = |on: bool, feature: u64| if on { feature } else { 0 };
        let seat = self.options.shared_range.map_or(Seat::ALONE, |shared| shared.seat);
        let hello = Hello {
            features: connector.feature()
                | bit(crate::trace::is_on(), FEATURE_TRACE)
                | bit(self.options.observe, FEATURE_OBSERVE)
                | bit(self.reservation.is_some(), FEATURE_ONE_MEMORY)
                | bit(self.options.shared_range.is_some(), FEATURE_PEERS)
                | bit(self.check().is_some(), FEATURE_CHECK),
            session: self.session,
            credential: credential.to_vec(),
            program: program_name(),
            pid: std::process::id(),
            range: convert::wire_range(self.range()),
        };
        let seat = HelloSeat { index: seat.index, of: seat.of };
        let check = self.check().map_or_else(HelloCheck::default, |check| HelloCheck {
            tools: check.bits(),
            limit: check.limit.unwrap_or(u64::MAX),
        });
        hello::message(&(hello, HelloMore { offer: offer.bytes(), seat, check }))
    }

    /// The server has refused the range.
    fn propose_another(&mut self, why: &str) -> Result<()> {
        if self.options.observe {
            let text = "serves nobody who only looks: use the same release of rgpu";
            return Err(self.refused(Code::SystemNotReady, text));
        }
        if self.options.shared_range.is_some() {
            return Err(self.refused(Code::MapFailed, &format!("refuses addresses: {why}")));
        }
        self.reservation = None;
        let next = next_free(&mut self.untried).map_err(|e| {
            Error::new(e.code, format!("{} (the server refuses smaller ones: {why})", e.message))
        })?;
        self.reservation = Some(next);
        Ok(())
    }

    /// Makes this end of the transport that was offered, or does with the stream if the server has not taken it.
    fn establish(
        &self,
        connector: &dyn Connector,
        stream: Stream,
        offer: Box<dyn Offer>,
        answered: &Answered,
        by_name: bool,
    ) -> std::result::Result<Established, ConnectError> {
        let address = || self.address.to_owned();
        let feature = connector.feature();
        if answered.answer.features & feature == feature {
            let kind = connector.kind();
            return offer.finish(stream, self.end).map_err(|source| ConnectError::Unusable {
                address: address(),
                kind,
                source,
            });
        }
        if by_name {
            return Err(ConnectError::NotTaken { address: address(), lacks: connector.not_taken() });
        }
        Ok(stream.into())
    }

    /// The session begins.
    fn begin(self, established: Established, answered: Answered, host: Arc<dyn Host>) -> Result<Arc<Remote>> {
        let Established { transport, mut memory_files } = established;
        let Answered { minor, answer, extras } = answered;
        let plan = convert::plan(&answer.plan);
        let whole = plan.whole;
        let inside = |r: &Range| r.size == 0 || whole.contains(r.base, r.size);
        let agreed = self.range().contains(whole.base, whole.size)
            && plan.devices.iter().chain([&plan.shared]).all(inside)
            && plan.devices.len() == answer.devices.len()
            && plan.devices.len() == answer.credit.len();
        if !agreed {
            let why = "answered with an address plan that was not agreed";
            return Err(self.refused(Code::SystemNotReady, why));
        }
        let check = self.check();
        let reservation = self.reservation.map(|reservation| reservation.shrink(whole));
        let shared = if answer.features & FEATURE_ONE_MEMORY != 0 { memory_files.pop() } else { None };
        let one_memory = shared.filter(|_| reservation.is_some()).and_then(|file| {
            // SAFETY: the plan's shared range is in the reservation, and nobody knows of it yet.
            unsafe { one_memory::OneMemory::map(plan.shared, &file) }.ok()
        });
        let link = Link::new(transport, host, self.stats)?;
        if minor >= Mark::SINCE {
            link.window.open();
        }
        let credit = Arc::new(credit::Credit::new(answer.credit));
        let _ = link.credit.set(credit.clone());
        Ok(Arc::new(Remote {
            link,
            minor,
            meets_peers: answer.features & FEATURE_PEERS != 0 && minor >= PeerExpect::SINCE,
            infos: answer.devices.into_iter().map(convert::device_info).collect(),
            direct: direct::DirectMemory::new(&plan, &memory_files),
            plan,
            inventory: images::Inventory::new(extras),
            credit,
            mirrored: Mutex::default(),
            imported: imported::Imported::default(),
            one_memory,
            check,
            _reservation: reservation,
        }))
    }
}

/// Writes a line to stderr, in one piece; a closed stderr is no reason to fail.
fn warn(text: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), format!("rgpu: {text}\n").as_bytes());
}

fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: `bytes` is valid for 8 bytes. Failure leaves zeros, and the id is for people anyway.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    u64::from_le_bytes(bytes)
}

fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let mut name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.truncate((0..=128.min(name.len())).rev().find(|&n| name.is_char_boundary(n)).unwrap_or(0));
    name
}
