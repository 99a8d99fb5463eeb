//! A session: an application's calls, read, executed in order, answered.
//!
//! One thread reads and dispatches. It never waits for the device: answers that take time are sent from the
//! device's callbacks. It stops reading only when there is [too much undone](pressure). A second thread
//! watches for the application's end and shows that the server is alive while it is busy; a third one, if
//! there is mirrored memory, collects what the device changed there before an answer goes out, because that
//! cannot be done inside the device's callback. A fourth one, once there are any, sends [long copies](bulk) to the host. Each link
//! to [another server](exchange) has one, too.

mod answers;
mod bulk;
mod calls;
mod copies;
mod exchange;
mod helpers;
mod host;
mod lending;
mod memory;
pub use memory::initial_credit;
mod modules;
mod notes;
mod outgoing;
mod overuse;
mod pressure;
mod recall;
mod refusals;
mod telemetry;
mod tracer;
mod variables;

use crate::desk::Counter;
use crate::ledger::{Ledger, Slot, monotonic_ns};
use crate::peer::{Channel, Identity};
use crate::store::Store;
use calls::Dispatcher;
use exchange::Exchange;
use host::WireHost;
use outgoing::Outgoing;
use overuse::Overuse;
use pressure::Pressure;
use recall::Recall;
use rgpu_device::telemetry::BusyMeter;
use rgpu_device::{Device, Host};
use rgpu_protocol::calls::{Call, CopyToDevice};
use rgpu_protocol::frame::{HEARTBEAT, Kind};
use rgpu_protocol::reader::{FrameReader, ReadError};
use rgpu_protocol::transport::{Ready, Transport};
use rgpu_protocol::wire::{DecodeError, Wire};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// After the application has hung up, the reader gets so long to find that out by itself.
const GRACE: Duration = Duration::from_millis(300);

/// So many bytes of calls are put aside while the image of a module is waited for.
const MAX_PUT_ASIDE: usize = 1 << 30;

/// A connection on which the session has not begun yet.
pub struct Session {
    transport: Arc<dyn Transport>,
    out: Arc<Outgoing>,
    pressure: Arc<Pressure>,
    host: Arc<WireHost>,
    store: Option<Arc<Store>>,
    counter: Option<Arc<Counter>>,
    exchange: Option<Arc<Exchange>>,
    traced: bool,
    /// The protocol's minor version that the client speaks.
    minor: u16,
    /// Whether the client maps the memory that is one for both sides.
    one_memory: bool,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The application said goodbye.
    Goodbye,
    /// The application closed the connection, or died.
    Closed,
    /// The connection failed.
    Failed(String),
    /// The application sent something malformed.
    Malformed(String),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Goodbye => f.write_str("the application has finished"),
            Self::Closed => f.write_str("the application has gone"),
            Self::Failed(why) => write!(f, "the connection failed: {why}"),
            Self::Malformed(why) => write!(f, "malformed frame: {why}"),
        }
    }
}

/// What the threads of a session share.
#[derive(Default)]
struct Activity {
    /// Frames read.
    frames: AtomicU64,
    /// Asked calls without an answer.
    unanswered: AtomicU64,
    /// Whether a frame is being executed.
    busy: AtomicBool,
    /// Bytes that came straight from other servers.
    from_peers: AtomicU64,
    /// Whether the reader has finished.
    finished: AtomicBool,
}

impl Session {
    /// A session on a connection whose hello was read.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        let out = Arc::new(Outgoing::new(transport.clone()));
        let pressure = Arc::new(Pressure::default());
        let host = Arc::new(WireHost::new(out.clone(), pressure.clone()));
        Self {
            transport,
            out,
            pressure,
            host,
            store: None,
            counter: None,
            exchange: None,
            traced: false,
            minor: 0,
            one_memory: false,
        }
    }

    /// Whether the client wants to know when its calls are executed.
    pub fn trace(&mut self, on: bool) {
        self.traced = on;
    }

    /// Which minor version of the protocol the client speaks; the first one, unless said.
    pub fn client_speaks(&mut self, minor: u16) {
        self.minor = minor;
    }

    /// The client maps the memory that is one for both sides, and may allocate such.
    pub fn has_one_memory(&mut self) {
        self.one_memory = true;
    }

    /// Images of modules and compiled kernels are taken from there, and kept there.
    pub fn keep_images(&mut self, store: Store) {
        let store = Arc::new(store);
        self.host.keep_code_in(store.clone());
        self.store = Some(store);
    }

    /// Memory may be lent to the tenant's other sessions, and borrowed from them.
    pub fn ask_at(&mut self, counter: Arc<Counter>) {
        self.counter = Some(counter);
    }

    /// Copies may go straight to other servers, and come from there.
    pub fn meet_peers(&mut self, channel: Channel, identity: Identity) {
        self.exchange = Some(Exchange::new(channel, identity));
    }

    /// What the device is to ask.
    pub fn host(&self) -> Arc<dyn Host> {
        self.host.clone()
    }

    /// A way to tell the client that the server stops, from another thread.
    pub fn farewell(&self) -> impl Fn(&str) + Send + use<> {
        let out = self.out.clone();
        move |reason: &str| out.goodbye(reason)
    }

    /// Executes calls until the session ends. `granted` is the credit that the hello's answer gave.
    /// `hung_up` is called, on another thread, when the application has gone but the reader is stuck:
    /// a process of its own exits then.
    pub fn run(
        self,
        device: Arc<dyn Device>,
        ledger: Arc<Ledger>,
        slot: usize,
        granted: &[u64],
        hung_up: impl FnOnce() + Send + 'static,
    ) -> End {
        let activity = Arc::new(Activity::default());
        let watcher = {
            let (transport, out, activity) = (self.transport.clone(), self.out.clone(), activity.clone());
            let (host, pressure, device) = (self.host.clone(), self.pressure.clone(), device.clone());
            let mut recall = Recall::new(ledger.clone(), slot, granted.len() as u32, self.minor);
            let mut overuse = Overuse::new(ledger.clone(), slot);
            let body = move || {
                watch(&*transport, &out, &activity, &*device, &mut recall, &mut overuse);
                let slot = recall.stats();
                if activity.finished.load(SeqCst) {
                    return;
                }
                slot.set_ending();
                std::thread::sleep(GRACE);
                if !activity.finished.load(SeqCst) {
                    out.end();
                    host.end();
                    pressure.end();
                    hung_up();
                }
            };
            std::thread::Builder::new().name("watcher".into()).stack_size(256 << 10).spawn(body)
        };
        let slot_stats = ledger.slot(slot);
        let mut dispatcher = Dispatcher::new(
            device.clone(),
            self.out.clone(),
            self.host.clone(),
            self.pressure.clone(),
            memory::Account::new(ledger, slot, granted),
            activity.clone(),
        );
        dispatcher.modules.minor = self.minor;
        dispatcher.one_memory = self.one_memory;
        dispatcher.lending.counter = self.counter.clone();
        dispatcher.keep_images(self.store.clone());
        dispatcher.meet_peers(self.exchange.clone());
        if self.traced {
            self.out.trace();
        }
        let end = match watcher {
            Ok(_) => self.read(&mut dispatcher, &activity, slot_stats),
            Err(e) => End::Failed(format!("no thread could be started: {e}")),
        };
        activity.finished.store(true, SeqCst);
        slot_stats.set_ending();
        match &end {
            End::Malformed(_) | End::Failed(_) => self.out.goodbye(&end.to_string()),
            End::Goodbye | End::Closed => self.out.end(),
        }
        if let (End::Goodbye, Some(store)) = (&end, &self.store) {
            store.finish();
        }
        note(&*device, slot_stats, &self.out);
        slot_stats.set_reason(&end.to_string());
        self.host.end();
        self.pressure.end();
        if let Some(exchange) = &self.exchange {
            exchange.end();
        }
        self.transport.shutdown();
        end
    }

    fn read(&self, dispatcher: &mut Dispatcher, activity: &Activity, stats: &Slot) -> End {
        let mut frames = FrameReader::default();
        let (mut body, mut payload) = (Vec::new(), Vec::new());
        let (mut put_aside, mut put_aside_bytes) = (VecDeque::new(), 0);
        let mut expected = 0;
        loop {
            activity.busy.store(false, Relaxed);
            let mut wait = || self.transport.wait(Ready::READ, None, None).map(drop);
            let result = frames.header(&*self.transport, &mut wait).and_then(|header| {
                body.clear();
                payload.clear();
                let length = header.length as usize;
                // A copy's bytes go to a buffer of their own, which the device can keep.
                let arguments = match header.call {
                    CopyToDevice::NUMBER => length.min(CopyToDevice::MIN_BYTES),
                    _ => length,
                };
                frames.body(&*self.transport, &mut wait, arguments, &mut body)?;
                let rest = length - arguments;
                let due = header.kind == Kind::Call && header.sequence == expected + 1;
                if due && header.call == CopyToDevice::NUMBER && put_aside.is_empty() {
                    activity.busy.store(true, Relaxed);
                    if let Some(placed) = dispatcher.place(&body, rest) {
                        let (mut addr, mut left) = (placed.dst.addr, rest);
                        while left > 0 {
                            // SAFETY: the device lets this memory be written, and it is as long as the payload.
                            let n = unsafe { frames.body_at(&*self.transport, &mut wait, addr, left) }?;
                            addr += n as u64;
                            left -= n;
                        }
                        dispatcher.placed(&placed);
                        return Ok((header, true));
                    }
                }
                frames.body(&*self.transport, &mut wait, rest, &mut payload)?;
                Ok((header, false))
            });
            let (header, done) = match result {
                Ok(result) => result,
                Err(ReadError::Closed) => return End::Closed,
                Err(ReadError::Io(e)) if e.kind() == std::io::ErrorKind::ConnectionReset => {
                    return End::Closed;
                }
                Err(ReadError::Io(e)) => return End::Failed(e.to_string()),
                Err(ReadError::Malformed(e)) => return End::Malformed(e.to_string()),
            };
            activity.busy.store(true, Relaxed);
            activity.frames.fetch_add(1, Relaxed);
            stats.bytes_in.store(frames.received() + activity.from_peers.load(Relaxed), Relaxed);
            expected += 1;
            if header.kind != Kind::Call || header.sequence != expected {
                let text = format!("a call numbered {expected} was due, not {header:?}");
                return End::Malformed(text);
            }
            if done {
                continue;
            }
            if dispatcher.must_wait(header.call) {
                // For the image of a module; what this frame asks for may rely on it.
                put_aside_bytes += body.len() + payload.len();
                if put_aside_bytes > MAX_PUT_ASIDE {
                    return End::Malformed("it sends everything but the image that it was asked for".into());
                }
                put_aside.push_back((header, std::mem::take(&mut body), std::mem::take(&mut payload)));
                continue;
            }
            let mut next = Some((header, std::mem::take(&mut body), std::mem::take(&mut payload)));
            while let Some((header, mut arguments, mut bulk)) = next {
                match dispatcher.dispatch(header, &mut arguments, &mut bulk) {
                    Ok(()) => {}
                    Err(calls::Stop::Goodbye) => return End::Goodbye,
                    Err(calls::Stop::Malformed(e)) => {
                        let name =
                            rgpu_protocol::calls::CALL_NAMES.get(usize::from(header.call)).unwrap_or(&"");
                        return End::Malformed(format!("{name} (call {}): {e}", header.call));
                    }
                }
                (body, payload) = (arguments, bulk);
                next = match put_aside.front() {
                    Some((header, ..)) if !dispatcher.must_wait(header.call) => put_aside.pop_front(),
                    _ => None,
                };
            }
            if put_aside.is_empty() {
                put_aside_bytes = 0;
            }
            // One large frame does not cost memory for ever.
            if body.capacity() > 256 << 10 {
                body = Vec::new();
            }
        }
    }
}

/// Until the application hangs up: shows signs of life, and keeps the counts.
fn watch(
    transport: &dyn Transport,
    out: &Outgoing,
    activity: &Activity,
    device: &dyn Device,
    recall: &mut Recall,
    overuse: &mut Overuse,
) {
    let slot = recall.stats();
    let mut seen = 0;
    let mut meter = BusyMeter::starting_at(monotonic_ns());
    loop {
        match transport.wait_for_hangup(Some(HEARTBEAT)) {
            Ok(false) => {}
            Ok(true) | Err(_) => return,
        }
        if activity.finished.load(SeqCst) || transport.is_unanswered() {
            return;
        }
        let now = monotonic_ns();
        slot.set_busy(meter.sample(now, device.counters().busy_ns), now);
        let frames = activity.frames.load(Relaxed);
        let active = frames != seen;
        seen = frames;
        if active || activity.busy.load(Relaxed) || activity.unanswered.load(Relaxed) > 0 {
            out.heartbeat();
        }
        if active {
            note(device, slot, out);
        }
        recall.look(out);
        if let Some(reason) = overuse.look(&device.memory_files(), device.shared_file()) {
            slot.set_reason(&reason);
            out.goodbye(&reason);
            return;
        }
    }
}

fn note(device: &dyn Device, slot: &Slot, out: &Outgoing) {
    slot.launches.store(device.counters().launches, Relaxed);
    slot.bytes_out.store(out.sent.load(Relaxed), Relaxed);
}

impl From<DecodeError> for calls::Stop {
    fn from(e: DecodeError) -> Self {
        Self::Malformed(e.to_string())
    }
}
