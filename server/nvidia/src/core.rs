//! What the caller's threads, the submitting thread and the waiting thread share.

use super::driver::Driver;
use super::libraries::Libraries;
use super::memory::{Allocation, CheckedRegion, Pieces, Table};
use super::meter::Meter;
use super::mirror::{Area, Mirror};
use super::modules::Module;
use super::print::Printed;
use super::staging::{Marker, Markers, Staging};
use super::sys::{self, Context, DeviceId};
use super::wait::{Wait, Waits};
use parking_lot::{Condvar, Mutex};
use rgpu_device::{
    Code, CopySink, DeviceInfo, Done, Error, ErrorState, FIRST_STREAM, Handle, Host, HostData, LaunchLimits,
    MemOp, Ordinal, Pacer, Range, Result,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// What belongs to a context, and goes with it.
#[derive(Clone)]
pub(crate) struct Belongings {
    /// The primary context.
    pub context: Context,
    /// For the device's own work: it waits for nobody, and nobody for it.
    pub side: sys::Stream,
    /// Events that keep no time.
    pub plain: Arc<Markers>,
    /// Events that do.
    pub timed: Arc<Markers>,
    /// Pinned host buffers through which copies go.
    pub staging: Arc<Staging>,
}

/// One device.
pub(crate) struct Gpu {
    /// The driver's number of it.
    pub device: DeviceId,
    /// What is known about it.
    pub info: DeviceInfo,
    /// What is in its context.
    pub belongings: Mutex<Belongings>,
    /// What can be launched at most.
    pub limits: LaunchLimits,
    /// What has gone wrong and is still to be told.
    pub errors: Mutex<ErrorState>,
    /// How often it was reset.
    pub generation: AtomicU64,
    /// Whether kernels may have printed since the driver was last made to hand that out.
    pub may_have_printed: AtomicBool,
    /// Launches that were submitted, and of those, how many are known to be over.
    pub launches: Mutex<Launches>,
    /// Launches that are being measured.
    pub meter: Mutex<Meter>,
}

/// Counted launches.
#[derive(Default)]
pub(crate) struct Launches {
    /// How many pieces of work were handed to the driver.
    pub submitted: u64,
    /// Known to be over.
    pub finished: u64,
    /// Since when there was always one that is not known to be over.
    pub since: Option<Instant>,
    /// Time in which there was one, before that.
    pub busy_ns: u64,
}

impl Launches {
    /// Everything up to `until` is over.
    pub(crate) fn over(&mut self, until: u64) {
        self.finished = self.finished.max(until);
        if self.finished >= self.submitted
            && let Some(since) = self.since.take()
        {
            self.busy_ns += since.elapsed().as_nanos() as u64;
        }
    }

    /// The device was reset: launches that are not over by now never will be, and are not counted.
    pub(crate) fn abandoned(&mut self) {
        let finished = self.finished;
        self.submitted = finished;
        self.over(finished);
    }

    /// A launch was submitted.
    pub(crate) fn begun(&mut self) {
        self.submitted += 1;
        self.since.get_or_insert_with(Instant::now);
    }
}

/// A stream.
pub(crate) struct Stream {
    /// Never used twice.
    pub key: u64,
    /// The device it belongs to.
    pub ordinal: Ordinal,
    /// The driver's stream.
    pub raw: sys::Stream,
    /// Whether it is the legacy stream.
    pub legacy: bool,
    /// Work that was put on it and is not yet submitted.
    pub pending: AtomicU64,
}

/// An event.
pub(crate) struct Event {
    /// The device it belongs to.
    pub ordinal: Ordinal,
    /// Whether it keeps time.
    pub timing: bool,
    /// The most recent record that was submitted.
    pub latest: Mutex<Option<Arc<Marker>>>,
    /// Records that are not yet submitted.
    pub pending: AtomicU64,
}

/// A launch.
pub(crate) struct Launch {
    pub module: Arc<Module>,
    pub function: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub cooperative: bool,
    pub cluster: [u32; 3],
    pub params: Vec<u8>,
}

/// An operation of a mathematical library.
pub(crate) struct LibraryWork {
    pub operation: rgpu_libraries::Operation,
    /// Where its operands begin.
    pub addresses: Vec<u64>,
}

/// Work for the submitting thread.
pub(crate) enum Op {
    Launch(Box<Launch>),
    Library(Box<LibraryWork>),
    Words(Vec<MemOp>),
    Fill {
        to: CheckedRegion,
        value: u32,
        element: u32,
    },
    In {
        to: CheckedRegion,
        host_addr: u64,
        data: HostData,
    },
    Out {
        from: CheckedRegion,
        host_addr: u64,
        sink: Box<dyn CopySink>,
    },
    Across {
        to: CheckedRegion,
        from: CheckedRegion,
    },
    Record(Arc<Event>),
    Wait(Arc<Event>),
    HostFunction(u64),
    /// Whatever is submitted from now on waits for this stream.
    Fence,
    /// Whatever is submitted from now on waits for what a release waits for.
    GateOnRelease(u64),
    /// The stream goes.
    Destroy,
    /// Tells when some streams have got so far; all of the ordinal's without a stream.
    Sync(Done),
    /// Tells when an event's most recent record has been reached.
    SyncEvent(Arc<Event>, Done),
    /// Memory goes when all work is done that was submitted before.
    Release {
        number: u64,
        allocation: Allocation,
        stream: Option<Arc<Stream>>,
        area: Option<Arc<Area>>,
    },
    /// A module goes when all work is done.
    Unload(Handle, Arc<Module>),
    /// Destroys what is in a context.
    Reset(std::sync::mpsc::SyncSender<Result<()>>),
    /// Ends the thread.
    Stop,
}

/// An [`Op`] and where it belongs.
pub(crate) struct Item {
    /// When it was put in order: ascending.
    pub turn: u64,
    pub ordinal: Ordinal,
    pub generation: u64,
    pub stream: Option<Arc<Stream>>,
    pub op: Op,
}

/// Everything that callers name by handles.
pub(crate) struct HandleTables {
    pub streams: HashMap<Handle, Arc<Stream>>,
    pub events: HashMap<Handle, Arc<Event>>,
    pub modules: HashMap<Handle, Arc<Module>>,
    /// Streams that callers have destroyed, as long as something that was put on them is not submitted.
    pub destroyed: Vec<Arc<Stream>>,
    /// Modules that are being loaded.
    pub loading: HashSet<Handle>,
    pub table: Option<Table>,
}

/// A queue that one thread empties.
#[derive(Default)]
pub(crate) struct Queue {
    items: Mutex<VecDeque<Item>>,
    filled: Condvar,
    length: AtomicU64,
}

/// How often the submitting thread looks for work before it goes to sleep.
const SPINS: u32 = 200;

impl Queue {
    /// Puts an item at the end.
    pub(crate) fn push(&self, item: Item) {
        let mut items = self.items.lock();
        items.push_back(item);
        self.length.store(items.len() as u64, SeqCst);
        drop(items);
        self.filled.notify_one();
    }

    /// Takes the first item; waits for one.
    pub(crate) fn pop(&self) -> Item {
        for _ in 0..SPINS {
            if self.length.load(SeqCst) > 0 {
                break;
            }
            std::hint::spin_loop();
        }
        let mut items = self.items.lock();
        loop {
            if let Some(item) = items.pop_front() {
                self.length.store(items.len() as u64, SeqCst);
                return item;
            }
            self.filled.wait(&mut items);
        }
    }
}

/// One application's NVIDIA devices: what the caller's threads, the submitting thread and the waiting thread share.
pub(crate) struct Core {
    pub driver: Arc<Driver>,
    /// The machine's mathematical libraries.
    pub libraries: Libraries,
    pub host: Arc<dyn Host>,
    pub gpus: Vec<Gpu>,
    pub state: Mutex<HandleTables>,
    /// Memory was released: the table's list of what is being released has become shorter.
    pub released: Condvar,
    pub pieces: Mutex<Pieces>,
    pub queue: Queue,
    pub waits: Waits,
    pub mirror: Mirror,
    pub printed: Printed,
    /// Whether the driver's memory is zero when it is new.
    pub fresh_is_zero: bool,
    /// Ends of streams that were destroyed.
    pub orphans: Mutex<Vec<(Ordinal, Arc<Marker>)>>,
    /// Work that was enqueued and is not yet submitted.
    pub unsubmitted: AtomicU64,
    pub next: AtomicU64,
    /// What says how much of its time the device may use.
    pub pacer: Option<Arc<dyn Pacer>>,
    /// Copies to the host that were submitted and not yet handed on.
    pub copies_out: Arc<AtomicU64>,
    /// Host functions that streams wait for: their ordinal, and whether they have returned.
    pub functions: Mutex<HashMap<u64, (Ordinal, bool)>>,
    pub function_returned: Condvar,
    /// Modules that no work uses any more, and their ordinals: see [`Core::unload_idle`].
    pub unloads: Mutex<Vec<(Ordinal, Arc<Module>)>>,
}

impl Core {
    /// A number that was never used.
    pub(crate) fn fresh(&self) -> u64 {
        self.next.fetch_add(1, SeqCst)
    }

    /// The device with an ordinal.
    pub(crate) fn gpu(&self, ordinal: Ordinal) -> Result<&Gpu> {
        self.gpus
            .get(ordinal as usize)
            .ok_or_else(|| Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")))
    }

    /// The device, if no error sticks to it. An error of earlier work that was not yet told is told now.
    pub(crate) fn check(&self, ordinal: Ordinal) -> Result<&Gpu> {
        let gpu = self.gpu(ordinal)?;
        gpu.errors.lock().check()?;
        Ok(gpu)
    }

    /// Unloads the modules that no work uses any more. Not while a stream waits for a host function: the driver waits for all that streams
    /// have been given, and whoever calls this may be whom the function's end waits for. The last function to return sees to it then.
    pub(crate) fn unload_idle(&self) {
        // Locked until all are unloaded, so that no stream is given a function meanwhile.
        let functions = self.functions.lock();
        if !functions.is_empty() {
            return;
        }
        let modules = std::mem::take(&mut *self.unloads.lock());
        for (ordinal, module) in modules {
            let unloaded = self.enter(ordinal).and_then(|_| self.driver.module_unload(module.raw));
            if let Err(error) = self.note(ordinal, unloaded) {
                tracing::debug!("{error}");
            }
        }
    }

    /// Makes a device's context current on this thread.
    pub(crate) fn enter(&self, ordinal: Ordinal) -> Result<Belongings> {
        let belongings = self.gpu(ordinal)?.belongings.lock().clone();
        self.driver.enter(belongings.context)?;
        Ok(belongings)
    }

    /// Notes an error of a call that was made for an ordinal, if it sticks.
    pub(crate) fn note<T>(&self, ordinal: Ordinal, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && let Ok(gpu) = self.gpu(ordinal)
        {
            gpu.errors.lock().note(error);
        }
        result
    }

    /// Keeps an error of work that was submitted, until somebody can be told.
    pub(crate) fn keep(&self, ordinal: Ordinal, error: Error) {
        if let Ok(gpu) = self.gpu(ordinal) {
            gpu.errors.lock().keep(error);
        }
    }

    /// The stream behind a handle, if no error sticks to its device.
    pub(crate) fn stream(&self, state: &HandleTables, handle: Handle) -> Result<Arc<Stream>> {
        let stream = find_stream(state, handle)?;
        self.check(stream.ordinal)?;
        Ok(stream)
    }

    /// Puts work in order.
    pub(crate) fn enqueue(&self, ordinal: Ordinal, stream: Option<Arc<Stream>>, op: Op) {
        if let Some(stream) = &stream {
            stream.pending.fetch_add(1, SeqCst);
        }
        if let Op::Record(event) = &op {
            event.pending.fetch_add(1, SeqCst);
        }
        self.unsubmitted.fetch_add(1, SeqCst);
        let generation = self.gpus.get(ordinal as usize).map_or(0, |gpu| gpu.generation.load(SeqCst));
        self.queue.push(Item { turn: self.fresh(), ordinal, generation, stream, op });
    }

    /// Puts work on a stream.
    pub(crate) fn enqueue_on(&self, stream: Arc<Stream>, op: Op) {
        self.enqueue(stream.ordinal, Some(stream), op);
    }

    /// Whether all work of a stream is submitted and done; the stream's context must be current.
    pub(crate) fn stream_is_done(&self, stream: &Stream) -> Result<bool> {
        Ok(stream.pending.load(SeqCst) == 0 && self.driver.stream_is_done(stream.raw)?)
    }

    /// Whether all work of an ordinal's destroyed streams is done; its context must be current.
    pub(crate) fn destroyed_streams_are_done(&self, ordinal: Ordinal) -> Result<bool> {
        {
            let mut state = self.state.lock();
            state.destroyed.retain(|stream| stream.pending.load(SeqCst) > 0);
            if state.destroyed.iter().any(|stream| stream.ordinal == ordinal) {
                return Ok(false);
            }
        }
        // Ends are noted before a stream counts as submitted.
        let ends: Vec<_> = self.orphans.lock().iter().filter(|end| end.0 == ordinal).cloned().collect();
        for (_, end) in ends {
            if !end.is_gone() && !self.driver.event_is_done(end.raw)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// To be asked when something was found done: whether copies to the host that were done before have been
    /// handed on as well. Waits for that a little, but not for long.
    pub(crate) fn is_handed_on(&self) -> bool {
        if self.copies_out.load(SeqCst) == 0 {
            return true;
        }
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let then = Box::new(move |_: Result<()>| _ = send.send(()));
        // It is served after all that is done by now.
        self.waits.push(Wait { ordinal: 0, markers: Vec::new(), launches: 0, tells: false, then });
        receive.recv_timeout(std::time::Duration::from_millis(2)).is_ok()
    }

    /// Waits until nothing of a place is in use that was released before a turn.
    pub(crate) fn wait_for_releases(&self, range: Range, turn: u64) {
        let mut state = self.state.lock();
        let in_use = |table: &Table| table.overlapping_releases(range).iter().any(|release| release.0 < turn);
        while state.table.as_ref().is_some_and(in_use) {
            self.released.wait(&mut state);
        }
    }

    /// Whether nothing at all is under way.
    pub(crate) fn is_idle(&self) -> bool {
        if self.unsubmitted.load(SeqCst) != 0 {
            return false;
        }
        let streams: Vec<_> = self.state.lock().streams.values().cloned().collect();
        streams.iter().all(|stream| {
            self.enter(stream.ordinal).and_then(|_| self.stream_is_done(stream)).unwrap_or(true)
        })
    }
}

/// The stream behind a handle.
pub(crate) fn find_stream(state: &HandleTables, handle: Handle) -> Result<Arc<Stream>> {
    state.streams.get(&handle).cloned().ok_or_else(|| {
        let what = if handle < FIRST_STREAM { "legacy stream" } else { "stream" };
        Error::new(Code::InvalidHandle, format!("There is no {what} with the handle {handle:#x}"))
    })
}

/// The event behind a handle.
pub(crate) fn find_event(state: &HandleTables, handle: Handle) -> Result<Arc<Event>> {
    state.events.get(&handle).cloned().ok_or_else(|| {
        Error::new(Code::InvalidHandle, format!("There is no event with the handle {handle:#x}"))
    })
}
