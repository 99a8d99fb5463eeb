//! The submitting thread: it takes work in the order of the calls and gives it to the driver.
//!
//! A thread of its own, because the driver makes callers wait now and then (a full queue, pageable memory), and
//! because mirrored memory may have to be fetched from the program first. Callers never wait for it.

use super::addresses;
use super::core::{Belongings, Core, Event, Item, Launch, LibraryWork, Op, Stream};
use super::libraries::Bench;
use super::memory::Allocation;
use super::meter;
use super::mirror::Area;
use super::staging::{Marker, Markers, Staging};
use super::sys;
use super::transfer;
use super::wait::Wait;
use rgpu_device::{Code, Error, Ordinal, Result};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// What the thread knows about a stream.
struct Lane {
    stream: Arc<Stream>,
    /// A point in it, if nothing was submitted since.
    end: Option<Arc<Marker>>,
    /// Up to which gate it waits.
    gates: u64,
}

/// A point that all work has to wait for which is submitted later.
struct Gate {
    number: u64,
    marker: Arc<Marker>,
    /// The stream it is in.
    key: u64,
}

/// The thread's own state.
pub(crate) struct Submitter {
    core: Arc<Core>,
    lanes: HashMap<u64, Lane>,
    /// Streams that everything which comes later on others has to wait for.
    fenced: Vec<Arc<Stream>>,
    gates: Vec<Gate>,
    next_gate: u64,
    /// By number, what work in a released place must wait for.
    releases: HashMap<u64, Vec<(u64, Arc<Marker>)>>,
    /// By stream: what operations of libraries work with there.
    benches: HashMap<u64, Bench>,
    /// Those of streams that were destroyed, with the streams' ordinals and ends.
    spare: Vec<(Ordinal, Bench, Arc<Marker>)>,
    /// Waits of the operation at hand that somebody is told about. They begin once it counts as submitted, so that
    /// whoever is told does not find it under way.
    told: Vec<Wait>,
}

impl Submitter {
    /// Nothing submitted yet.
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            lanes: HashMap::new(),
            fenced: Vec::new(),
            gates: Vec::new(),
            next_gate: 1,
            releases: HashMap::new(),
            benches: HashMap::new(),
            spare: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Until it is told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let item = self.core.queue.pop();
            if matches!(item.op, Op::Stop) {
                return;
            }
            let (ordinal, stream) = (item.ordinal, item.stream.clone());
            let event = match &item.op {
                Op::Record(event) => Some(event.clone()),
                _ => None,
            };
            if let Err(error) = self.submit(item) {
                self.core.keep(ordinal, error);
            }
            if let Some(event) = event {
                event.pending.fetch_sub(1, SeqCst);
            }
            if let Some(stream) = stream {
                stream.pending.fetch_sub(1, SeqCst);
            }
            self.core.unsubmitted.fetch_sub(1, SeqCst);
            self.told.drain(..).for_each(|wait| self.core.waits.push(wait));
        }
    }

    fn submit(&mut self, item: Item) -> Result<()> {
        let Item { turn, ordinal, generation, stream, op } = item;
        let core = self.core.clone();
        let gpu = core.gpu(ordinal)?;
        // What failed before is told where somebody waits for it; nothing is carried out.
        let failure = match (&op, gpu.errors.lock().sticky()) {
            (Op::Reset(_), _) => None,
            _ if gpu.generation.load(SeqCst) != generation => {
                Some(Error::new(Code::ContextIsDestroyed, "The device was reset"))
            }
            (_, Some(error)) => Some(error.clone()),
            _ => None,
        };
        if let Some(error) = failure {
            return self.refuse(ordinal, stream, op, error);
        }
        if let Op::Reset(reply) = op {
            // A context that has failed may not want to be entered any more.
            let _ = core.enter(ordinal);
            let belongings = gpu.belongings.lock().clone();
            let result = self.reset(ordinal, &belongings);
            let _ = reply.send(result);
            return Ok(());
        }
        let (belongings, markers) = match self.prepare(ordinal, stream.as_ref(), &op) {
            Ok(prepared) => prepared,
            Err(error) => {
                core.keep(ordinal, error.clone());
                return self.refuse(ordinal, stream, op, error);
            }
        };
        match op {
            Op::Sync(done) => {
                let launches = if stream.is_none() { gpu.launches.lock().submitted } else { 0 };
                self.told.push(Wait { ordinal, markers, launches, tells: true, then: done });
                return Ok(());
            }
            Op::SyncEvent(_, done) => {
                self.told.push(Wait { ordinal, markers, launches: 0, tells: true, then: done });
                return Ok(());
            }
            Op::Release { number, allocation, stream, area } => {
                // What takes the place waits for all of the device's work, or for one stream's.
                let order = match stream.map(|stream| (stream.key, self.mark(&stream, &belongings))) {
                    Some((key, Ok(marker))) => vec![(key, marker)],
                    _ => markers.iter().map(|marker| (0, marker.clone())).collect(),
                };
                self.releases.retain(|_, order| order.iter().any(|(_, marker)| !is_reached(&core, marker)));
                self.releases.insert(number, order);
                self.later(ordinal, markers, move |core| release_now(core, number, &allocation, area));
                return Ok(());
            }
            Op::Unload(handle, module) => {
                let unload = move |core: &Core| {
                    core.mirror.remove_variables(handle);
                    core.unloads.lock().push((ordinal, module));
                    core.unload_idle();
                };
                self.later(ordinal, markers, unload);
                return Ok(());
            }
            Op::GateOnRelease(number) => {
                for (key, marker) in self.releases.get(&number).cloned().unwrap_or_default() {
                    self.add_gate(key, marker);
                }
                return Ok(());
            }
            _ => {}
        }
        let Some(stream) = stream else { return Ok(()) };
        let on = transfer::On { core: &core, ordinal, stream: &stream, belongings: &belongings, turn };
        match op {
            Op::Launch(launch) => self.launch(&stream, *launch, turn),
            Op::Library(work) => self.library(&stream, &work, turn),
            Op::Words(ops) => core.driver.batch_mem_op(stream.raw, &ops),
            Op::Fill { to, value, element } => on.fill(to, value, element),
            Op::In { to, host_addr, data } => on.copy_in(to, host_addr, data),
            Op::Out { from, host_addr, sink } => {
                let wait = on.copy_out(from, host_addr, sink);
                self.told.push(wait);
                Ok(())
            }
            Op::Across { to, from } => on.copy_across(to, from),
            Op::Record(event) => self.record(&event, &stream, &belongings),
            Op::Wait(event) => {
                let marker = event.latest.lock().clone();
                match marker {
                    Some(marker) => core.driver.stream_wait(stream.raw, marker.raw),
                    None => Ok(()),
                }
            }
            Op::HostFunction(id) => self.host_function(&stream, id, &belongings),
            Op::Fence => {
                if !self.fenced.iter().any(|other| other.key == stream.key) {
                    self.fenced.push(stream);
                }
                Ok(())
            }
            Op::Destroy => {
                self.lanes.remove(&stream.key);
                if let (Some(bench), Some(end)) = (self.benches.remove(&stream.key), markers.first()) {
                    self.spare.push((ordinal, bench, end.clone()));
                }
                for end in markers {
                    if self.fenced.iter().any(|other| other.key == stream.key) {
                        self.add_gate(stream.key, end.clone());
                    }
                    core.orphans.lock().push((ordinal, end));
                }
                self.fenced.retain(|other| other.key != stream.key);
                core.driver.stream_destroy(stream.raw)
            }
            _ => Ok(()),
        }
    }

    /// What an operation needs before it is carried out: the context, and the points that it waits for.
    fn prepare(
        &mut self,
        ordinal: Ordinal,
        stream: Option<&Arc<Stream>>,
        op: &Op,
    ) -> Result<(Belongings, Vec<Arc<Marker>>)> {
        let belongings = self.core.enter(ordinal)?;
        let markers = match (op, stream) {
            (Op::Sync(_) | Op::Destroy, Some(stream)) => vec![self.mark(stream, &belongings)?],
            (Op::Sync(_) | Op::Unload(..), None) => self.mark_all(Some(ordinal))?,
            (Op::Release { .. }, _) => self.mark_all(None)?,
            (Op::SyncEvent(event, _), _) => event.latest.lock().clone().into_iter().collect(),
            (Op::Fence, _) | (_, None) => Vec::new(),
            (_, Some(stream)) => {
                self.pass_gates(stream)?;
                self.lane(stream).end = None;
                Vec::new()
            }
        };
        // Points in other devices' streams may have been needed.
        self.core.enter(ordinal)?;
        Ok((belongings, markers))
    }

    /// Tells whoever waits for an operation that it will not be carried out.
    fn refuse(&mut self, ordinal: Ordinal, stream: Option<Arc<Stream>>, op: Op, error: Error) -> Result<()> {
        match op {
            Op::Sync(done) | Op::SyncEvent(_, done) => {
                let then = Box::new(move |_: Result<()>| done(Err(error)));
                self.told.push(Wait { ordinal, markers: Vec::new(), launches: 0, tells: false, then });
            }
            Op::Out { sink, .. } => {
                let then = Box::new(move |_: Result<()>| sink.done(Err(error)));
                self.told.push(Wait { ordinal, markers: Vec::new(), launches: 0, tells: false, then });
            }
            Op::Destroy => {
                if let Some(stream) = stream {
                    self.lanes.remove(&stream.key);
                }
            }
            Op::Release { number, allocation, area, .. } => {
                release_now(&self.core, number, &allocation, area);
            }
            _ => {}
        }
        Ok(())
    }

    fn lane(&mut self, stream: &Arc<Stream>) -> &mut Lane {
        self.lanes.entry(stream.key).or_insert_with(|| Lane {
            stream: stream.clone(),
            end: None,
            // Gates that are older concern it as well.
            gates: 1,
        })
    }

    /// A point that is reached when everything is done that was submitted to a stream.
    fn mark(&mut self, stream: &Arc<Stream>, belongings: &Belongings) -> Result<Arc<Marker>> {
        // A point in the legacy stream covers other streams, too, which may have got work since.
        if let Some(end) = &self.lane(stream).end
            && !stream.legacy
        {
            return Ok(end.clone());
        }
        let marker = belongings.plain.take()?;
        self.core.driver.event_record(marker.raw, stream.raw)?;
        self.lane(stream).end = Some(marker.clone());
        Ok(marker)
    }

    /// Points in all streams of an ordinal, or of all ordinals.
    fn mark_all(&mut self, ordinal: Option<Ordinal>) -> Result<Vec<Arc<Marker>>> {
        let core = self.core.clone();
        core.orphans.lock().retain(|(_, marker)| !is_reached(&core, marker));
        let streams: Vec<_> = self.lanes.values().map(|lane| lane.stream.clone()).collect();
        let mut markers = Vec::new();
        for stream in streams {
            if ordinal.is_none_or(|o| o == stream.ordinal)
                && self.core.gpu(stream.ordinal).is_ok_and(|gpu| gpu.errors.lock().sticky().is_none())
            {
                let belongings = self.core.enter(stream.ordinal)?;
                markers.push(self.mark(&stream, &belongings)?);
            }
        }
        let orphans = core.orphans.lock();
        let orphans = orphans.iter().filter(|(o, _)| ordinal.is_none_or(|ordinal| *o == ordinal));
        markers.extend(orphans.map(|(_, marker)| marker.clone()));
        Ok(markers)
    }

    /// Does something once some points are reached, whatever has become of the device.
    fn later(&self, ordinal: Ordinal, markers: Vec<Arc<Marker>>, then: impl FnOnce(&Core) + Send + 'static) {
        let core = Arc::downgrade(&self.core);
        let then = Box::new(move |_: Result<()>| {
            if let Some(core) = core.upgrade() {
                then(&core);
            }
        });
        self.core.waits.push(Wait { ordinal, markers, launches: 0, tells: false, then });
    }

    fn add_gate(&mut self, key: u64, marker: Arc<Marker>) {
        if self.gates.len() >= 8 {
            let core = &self.core;
            self.gates.retain(|gate| !is_reached(core, &gate.marker));
        }
        self.gates.push(Gate { number: self.next_gate, marker, key });
        self.next_gate += 1;
    }

    /// Makes a stream wait for all gates that it does not wait for yet.
    fn pass_gates(&mut self, stream: &Arc<Stream>) -> Result<()> {
        // A fence becomes a gate when another stream gets work.
        if self.fenced.iter().any(|other| other.key != stream.key) {
            let (own, others) =
                std::mem::take(&mut self.fenced).into_iter().partition(|o| o.key == stream.key);
            self.fenced = own;
            let others: Vec<Arc<Stream>> = others;
            for other in others {
                let belongings = self.core.enter(other.ordinal)?;
                let marker = self.mark(&other, &belongings)?;
                self.add_gate(other.key, marker);
            }
        }
        let (next, passed) = (self.next_gate, self.lane(stream).gates);
        if passed < next {
            self.core.enter(stream.ordinal)?;
            for gate in self.gates.iter().filter(|gate| gate.number >= passed && gate.key != stream.key) {
                if !gate.marker.is_gone() {
                    self.core.driver.stream_wait(stream.raw, gate.marker.raw)?;
                }
            }
            self.lane(stream).gates = next;
        }
        self.core.enter(stream.ordinal)?;
        Ok(())
    }

    fn record(&mut self, event: &Event, stream: &Arc<Stream>, belongings: &Belongings) -> Result<()> {
        let markers = if event.timing { &belongings.timed } else { &belongings.plain };
        let marker = markers.take()?;
        self.core.driver.event_record(marker.raw, stream.raw)?;
        self.lane(stream).end = Some(marker.clone());
        *event.latest.lock() = Some(marker);
        Ok(())
    }

    /// The bench of a stream: its own, one that another stream has left, or a new one.
    fn take_bench(&mut self, stream: &Stream) -> Result<Bench> {
        if let Some(bench) = self.benches.remove(&stream.key) {
            return Ok(bench);
        }
        let Some(at) = self.spare.iter().position(|(ordinal, ..)| *ordinal == stream.ordinal) else {
            return Ok(Bench::default());
        };
        let (_, bench, end) = self.spare.swap_remove(at);
        if !end.is_gone() {
            self.core.driver.stream_wait(stream.raw, end.raw)?;
        }
        Ok(bench)
    }

    fn library(&mut self, stream: &Stream, work: &LibraryWork, turn: u64) -> Result<()> {
        let core = self.core.clone();
        let measured = meter::before(&core, stream.ordinal);
        let addresses: Vec<u8> = work.addresses.iter().flat_map(|addr| addr.to_le_bytes()).collect();
        core.mirror.before_kernel(&core, turn, &addresses)?;
        let belongings = core.enter(stream.ordinal)?;
        let timed = Timed { core: &core, stream, belongings: &belongings, measured };
        let start = timed.mark()?;
        let mut bench = self.take_bench(stream)?;
        let done = bench.run(&core.libraries, &core.driver, &work.operation, stream.raw);
        self.benches.insert(stream.key, bench);
        // Some of it may be under way even where it failed.
        timed.submitted(start)?;
        done
    }

    fn launch(&mut self, stream: &Stream, mut launch: Launch, turn: u64) -> Result<()> {
        let core = &self.core;
        let measured = meter::before(core, stream.ordinal);
        core.mirror.before_kernel(core, turn, &launch.params)?;
        let belongings = core.enter(stream.ordinal)?;
        let gpu = core.gpu(stream.ordinal)?;
        let kernel = &launch.module.kernels[launch.function as usize];
        let describe = |e: Error| {
            let text = format!("{} with grid {:?}, block {:?}", kernel.info.name, launch.grid, launch.block);
            Error::new(e.code, format!("{text}: {}", e.message))
        };
        {
            let mut allowed = kernel.dynamic_shared.lock();
            if launch.shared_bytes > *allowed {
                let attribute = sys::function_attribute::MAX_DYNAMIC_SHARED;
                core.driver
                    .set_function_attribute(kernel.raw, attribute, launch.shared_bytes)
                    .map_err(describe)?;
                *allowed = launch.shared_bytes;
            }
        }
        // The client has found out whether the program allows it.
        let blocks = launch.cluster.iter().fold(1u32, |n, side| n.saturating_mul(*side));
        if blocks > rgpu_device::PORTABLE_CLUSTER {
            let attribute = sys::function_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            core.driver.set_function_attribute(kernel.raw, attribute, 1).map_err(describe)?;
        }
        let timed = Timed { core, stream, belongings: &belongings, measured };
        let start = timed.mark()?;
        let (grid, block, shared) = (launch.grid, launch.block, launch.shared_bytes);
        let launched = if launch.cluster != [0; 3] {
            let shape = (grid, block, launch.cluster);
            let params = &mut launch.params;
            core.driver.launch_in_clusters(kernel.raw, shape, launch.cooperative, shared, stream.raw, params)
        } else if launch.cooperative {
            let base = launch.params.as_mut_ptr();
            let params: Vec<*mut c_void> = kernel
                .info
                .params
                .iter()
                .map(|param| base.wrapping_add(param.offset as usize).cast::<c_void>())
                .collect();
            core.driver.launch_cooperative(kernel.raw, grid, block, shared, stream.raw, &params)
        } else {
            core.driver.launch(kernel.raw, grid, block, shared, stream.raw, &mut launch.params)
        };
        launched.map_err(describe)?;
        if launch.module.prints {
            gpu.may_have_printed.store(true, SeqCst);
        }
        timed.submitted(start)
    }

    fn host_function(&mut self, stream: &Arc<Stream>, id: u64, belongings: &Belongings) -> Result<()> {
        let marker = self.mark(stream, belongings)?;
        let core = &self.core;
        core.functions.lock().insert(id, (stream.ordinal, false));
        let call = Call { core: Arc::downgrade(core), id, ordinal: stream.ordinal, marker };
        let argument = Box::into_raw(Box::new(call));
        // SAFETY: the function takes the box, once; the driver calls it at most once.
        let enqueued = unsafe { core.driver.host_func(stream.raw, host_function, argument.cast()) };
        let result = enqueued.inspect_err(|_| {
            core.functions.lock().remove(&id);
            // SAFETY: the driver has refused it, so nobody else takes it.
            drop(unsafe { Box::from_raw(argument) });
        });
        self.lane(stream).end = None;
        result
    }

    /// Destroys everything in a context. Callers have forgotten what was in it.
    fn reset(&mut self, ordinal: Ordinal, belongings: &Belongings) -> Result<()> {
        let core = self.core.clone();
        let gpu = core.gpu(ordinal)?;
        // Host functions that streams wait for will not be answered.
        core.functions.lock().values_mut().filter(|f| f.0 == ordinal).for_each(|f| f.1 = true);
        core.function_returned.notify_all();
        core.waits.abandon(ordinal);
        core.unloads.lock().retain(|(other, _)| *other != ordinal);
        self.lanes.retain(|_, lane| lane.stream.ordinal != ordinal);
        self.fenced.retain(|stream| stream.ordinal != ordinal);
        core.orphans.lock().retain(|(o, _)| *o != ordinal);
        belongings.plain.forget();
        belongings.timed.forget();
        belongings.staging.forget();
        self.gates.retain(|gate| !gate.marker.is_gone());
        // Handles and plans go with the context; to destroy them one by one could only fail.
        self.benches.retain(|key, _| self.lanes.contains_key(key));
        self.spare.retain(|(other, ..)| *other != ordinal);
        let result = core.driver.reset(gpu.device);
        // The caller has put what is to be freed into the queue's shape: allocations of the ordinal.
        let allocations = {
            let mut state = core.state.lock();
            state.table.as_mut().map(|table| table.remove_all(ordinal)).unwrap_or_default()
        };
        for allocation in allocations {
            if allocation.mirrored
                && let Some(area) = core.mirror.remove(core.fresh(), allocation.range.base)
            {
                core.mirror.discard(&core, &area);
            }
            core.pieces.lock().give(&allocation.pieces);
        }
        result?;
        core.driver.release(gpu.device)?;
        let fresh = open_context(&core.driver, gpu.device)?;
        let legacy = legacy_stream(&core, ordinal);
        *gpu.belongings.lock() = fresh;
        let ranges = {
            let mut state = core.state.lock();
            state.streams.insert(u64::from(ordinal), legacy);
            state.table.as_ref().map(|table| table.ranges(ordinal))
        };
        for range in ranges.into_iter().flatten() {
            addresses::reserve_again(&core.driver, range)?;
        }
        gpu.launches.lock().abandoned();
        gpu.meter.lock().forget();
        gpu.errors.lock().reset();
        Ok(())
    }
}

/// Work on a stream whose time may be measured.
struct Timed<'a> {
    core: &'a Core,
    stream: &'a Stream,
    belongings: &'a Belongings,
    measured: bool,
}

impl Timed<'_> {
    /// A point in the stream, if the time is measured.
    fn mark(&self) -> Result<Option<Arc<Marker>>> {
        if !self.measured {
            return Ok(None);
        }
        let marker = self.belongings.timed.take()?;
        self.core.driver.event_record(marker.raw, self.stream.raw)?;
        Ok(Some(marker))
    }

    /// The work was handed to the driver.
    fn submitted(&self, start: Option<Arc<Marker>>) -> Result<()> {
        let gpu = self.core.gpu(self.stream.ordinal)?;
        gpu.launches.lock().begun();
        if let (Some(start), Some(end)) = (start, self.mark()?) {
            gpu.meter.lock().submitted(start, end);
        }
        if let Some(pacer) = &self.core.pacer {
            pacer.launched(self.stream.ordinal, 1);
        }
        Ok(())
    }
}

/// Whether a point is reached, or can be reached no more.
fn is_reached(core: &Core, marker: &Marker) -> bool {
    marker.is_gone() || core.driver.event_is_done(marker.raw).unwrap_or(true)
}

/// Gives released memory back.
fn release_now(core: &Core, number: u64, allocation: &Allocation, area: Option<Arc<Area>>) {
    if let Some(area) = area {
        core.mirror.discard(core, &area);
    }
    // First the pieces, then the note: whoever sees no note finds them settled.
    core.pieces.lock().give(&allocation.pieces);
    if let Some(table) = &mut core.state.lock().table {
        table.releasing.retain(|r| r.0 != number);
    }
    core.released.notify_all();
}

/// The legacy stream of an ordinal.
pub(crate) fn legacy_stream(core: &Core, ordinal: Ordinal) -> Arc<Stream> {
    let key = core.fresh();
    Arc::new(Stream { key, ordinal, raw: sys::Stream::LEGACY, legacy: true, pending: Default::default() })
}

/// Takes a device's primary context, makes it current, and creates what is needed in it.
pub(crate) fn open_context(driver: &Arc<super::driver::Driver>, device: sys::DeviceId) -> Result<Belongings> {
    let context = driver.retain(device)?;
    driver.enter(context)?;
    Ok(Belongings {
        context,
        side: driver.stream_create(false, 0)?,
        plain: Markers::new(driver.clone(), false),
        timed: Markers::new(driver.clone(), true),
        staging: Staging::new(driver.clone()),
    })
}

/// What a host function needs to know.
struct Call {
    core: std::sync::Weak<Core>,
    id: u64,
    ordinal: Ordinal,
    /// Reached before it.
    marker: Arc<Marker>,
}

/// Called by the driver when a stream has reached a host function.
unsafe extern "C" fn host_function(argument: *mut c_void) {
    // SAFETY: `Submitter::host_function` passes the box on, once.
    let Call { core, id, ordinal, marker } = *unsafe { Box::from_raw(argument.cast::<Call>()) };
    let Some(core) = core.upgrade() else { return };
    // No panic may pass the driver.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // The program hears of it after all that it may look at: copies that are over, text that was printed.
        let host = core.host.clone();
        let then = Box::new(move |_: Result<()>| host.host_func(id));
        core.waits.push(Wait { ordinal, markers: vec![marker], launches: 0, tells: false, then });
        let mut functions = core.functions.lock();
        while functions.get(&id).is_some_and(|function| !function.1) {
            core.function_returned.wait(&mut functions);
        }
        functions.remove(&id);
        if functions.is_empty() && !core.unloads.lock().is_empty() {
            let weak = Arc::downgrade(&core);
            let then =
                Box::new(move |_: Result<()>| weak.upgrade().iter().for_each(|core| core.unload_idle()));
            core.waits.push(Wait { ordinal, markers: Vec::new(), launches: 0, tells: false, then });
        }
    }));
}
