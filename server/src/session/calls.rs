//! The dispatch: a method for each row of the table of calls.

use super::Activity;
use super::bulk::{APART_FROM, BulkSender, Job};
use super::exchange::Exchange;
use super::host::{HOLD, OWN, WireHost};
use super::memory::Account;
use super::modules::Modules;
use super::outgoing::{CopySender, Outgoing};
use super::pressure::{Intake, Pressure};
use crate::convert;
use crate::store::{Hash, Store};
use parking_lot::Mutex;
use rgpu_device::telemetry::Group;
use rgpu_device::{
    Code, Device, Error, FIRST_STREAM, Handle, HostData, Limit, MemoryKind, Ordinal, Region, Result, Target,
};
use rgpu_protocol::calls::{self as wire, *};
use rgpu_protocol::frame::{Header, MAX_BULK, Notice, RUN_HEADER_BYTES, encode_run};
use rgpu_protocol::numbers::NumberMap;
use rgpu_protocol::wire::{DecodeError, Wire};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};

/// The longest image of a module.
const MAX_IMAGE: usize = 1 << 30;

/// Why reading ends.
pub enum Stop {
    Goodbye,
    Malformed(String),
}

/// What an asked call has come to.
pub(super) enum Reply<T> {
    Now(Result<T>),
    /// A callback sends the answer.
    Later,
}

impl<T> From<Result<T>> for Reply<T> {
    fn from(result: Result<T>) -> Self {
        Self::Now(result)
    }
}

/// Sends answers from wherever they come.
#[derive(Clone)]
pub(super) struct Answerer {
    pub(super) device: Arc<dyn Device>,
    pub(super) out: Arc<Outgoing>,
    pub(super) activity: Arc<Activity>,
    /// The thread that collects shared writes, once there is one.
    collector: Arc<Mutex<Option<mpsc::Sender<Answer>>>>,
}

struct Answer {
    call: u16,
    sequence: u64,
    ordinal: u32,
    result: Result<()>,
    /// What the answer carries where the call has not failed.
    value: &'static [u8],
}

impl Answerer {
    fn send(&self, answer: Answer) {
        let Answer { call, sequence, ordinal, result, value } = answer;
        self.activity.unanswered.fetch_sub(1, Relaxed);
        let encode = |out: &mut Vec<u8>| out.extend_from_slice(value);
        self.out.answer(call, sequence, ordinal, result.map(|()| encode));
    }

    fn collect(&self) {
        // What changed may be many runs of a few bytes, which share a frame.
        let mut body = Vec::new();
        self.device.collect_shared_writes(&mut |addr, bytes| {
            for (i, part) in bytes.chunks(MAX_BULK).enumerate() {
                if !body.is_empty() && body.len() + RUN_HEADER_BYTES + part.len() > MAX_BULK {
                    self.out.notice(Notice::SharedWrites, 0, &[&body]);
                    body.clear();
                }
                encode_run(&mut body, addr + (i * MAX_BULK) as u64, part);
            }
        });
        if !body.is_empty() {
            self.out.notice(Notice::SharedWrites, 0, &[&body]);
        }
    }

    /// Answers a call that makes the device's writes visible. May be called by the device, so nothing
    /// is asked of the device here.
    fn finish(&self, answer: Answer) {
        let collector = self.collector.lock().clone();
        match collector {
            Some(collector) => {
                // A copy's bytes need not wait for what is collected.
                self.out.flush();
                drop(collector.send(answer));
            }
            None => self.send(answer),
        }
    }
}

/// Shorter payloads are not worth making room for.
const IN_PLACE_FROM: usize = 64 << 10;

/// A copy whose bytes are received in place.
pub struct Placed {
    pub dst: rgpu_device::Region,
    host_addr: u64,
    id: u64,
}

/// Executes calls, one after another.
pub struct Dispatcher {
    /// Whether device memory lies in this process at its addresses.
    pub(super) addressable: bool,
    /// How many times the session itself has held a stream.
    own_holds: u64,
    /// Sends long copies to the host, once there are any.
    bulk: Option<BulkSender>,
    pub(super) device: Arc<dyn Device>,
    pub(super) out: Arc<Outgoing>,
    host: Arc<WireHost>,
    pressure: Arc<Pressure>,
    pub(super) account: Account,
    intake: Intake,
    pub(super) answers: Arc<Answerer>,
    pub(super) activity: Arc<Activity>,
    /// Where copies go to other servers, if they may.
    pub(super) exchange: Option<Arc<Exchange>>,
    /// Which ordinal a created stream or event belongs to.
    streams: NumberMap<Handle, Ordinal>,
    events: NumberMap<Handle, Ordinal>,
    /// Parts of images that were sent ahead.
    pub(super) images: HashMap<Handle, Vec<u8>>,
    pub(super) modules: Modules,
    /// The ordinal that the current call is about.
    pub(super) ordinal: Ordinal,
    pub(super) sequence: u64,
    /// Its number.
    call: u16,
    stop: Option<Stop>,
}

/// What follows a call's arguments: in the same buffer, or, for a copy, in one of its own.
pub(super) struct Payload<'a> {
    body: &'a mut Vec<u8>,
    start: usize,
    apart: &'a mut Vec<u8>,
}

impl Payload<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        if self.apart.is_empty() { &self.body[self.start..] } else { self.apart }
    }

    fn take(self) -> Vec<u8> {
        if !self.apart.is_empty() {
            return std::mem::take(self.apart);
        }
        self.body.split_off(self.start)
    }
}

macro_rules! execute {
    ($self:ident, posted, $name:ident, $call:ident, $payload:ident, $number:literal) => {
        if let Err(e) = $self.$name($call, $payload) {
            $self.out.note_pending(&e, $self.ordinal);
        }
    };
    ($self:ident, asked, $name:ident, $call:ident, $payload:ident, $number:literal) => {{
        $self.activity.unanswered.fetch_add(1, Relaxed);
        if let Reply::Now(result) = $self.$name($call, $payload) {
            $self.activity.unanswered.fetch_sub(1, Relaxed);
            let encode = result.map(|value| move |out: &mut Vec<u8>| Wire::encode(&value, out));
            $self.out.answer($number, $self.sequence, $self.ordinal, encode);
        }
    }};
}

macro_rules! dispatch {
    ($($(#[$doc:meta])* $number:literal $name:ident $record:ident $mode:ident $payload:ident since $since:literal
       ($($field:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// Executes one call. The body, and what was read apart from it, may be taken.
        pub fn dispatch(
            &mut self,
            header: Header,
            body: &mut Vec<u8>,
            apart: &mut Vec<u8>,
        ) -> std::result::Result<(), Stop> {
            self.ordinal = u32::MAX;
            self.sequence = header.sequence;
            self.call = header.call;
            let begun = self.out.tracer().map(|tracer| tracer.begins(header.sequence, is_asked(header.call)));
            match header.call {
                $($number => {
                    let (call, rest) = <$record as Call>::from_body(body)?;
                    let start = body.len() - rest.len();
                    let payload = Payload { body, start, apart };
                    execute!(self, $mode, $name, call, payload, $number);
                })*
                call => return Err(DecodeError::Unknown { what: "call", value: call.into() }.into()),
            }
            if let (Some(begun), Some(tracer)) = (begun, self.out.tracer())
                && tracer.dispatched(header.call, header.sequence, begun)
            {
                self.out.send_trace(tracer);
            }
            match self.stop.take() {
                Some(stop) => Err(stop),
                None => Ok(()),
            }
        }
    };
}

macro_rules! define_is_asked {
    ($($(#[$doc:meta])* $number:literal $name:ident $record:ident $mode:ident $payload:ident since $since:literal
       ($($field:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// Whether a call is answered.
        fn is_asked(call: u16) -> bool {
            match call {
                $($number => <$record as Call>::ASKED,)*
                _ => false,
            }
        }
    };
}
rgpu_protocol::for_each_call!(define_is_asked);

impl Dispatcher {
    pub fn new(
        device: Arc<dyn Device>,
        out: Arc<Outgoing>,
        host: Arc<WireHost>,
        pressure: Arc<Pressure>,
        account: Account,
        activity: Arc<Activity>,
    ) -> Self {
        let answers = Arc::new(Answerer {
            device: device.clone(),
            out: out.clone(),
            activity: activity.clone(),
            collector: Arc::default(),
        });
        Self {
            addressable: !device.memory_files().is_empty(),
            own_holds: 0,
            bulk: None,
            device,
            out,
            host,
            intake: Intake::new(pressure.clone()),
            pressure,
            modules: Modules::new(account.variables()),
            account,
            answers,
            activity,
            exchange: None,
            streams: NumberMap::default(),
            events: NumberMap::default(),
            images: HashMap::new(),
            ordinal: u32::MAX,
            sequence: 0,
            call: 0,
            stop: None,
        }
    }

    rgpu_protocol::for_each_call!(dispatch);

    pub(super) fn on_stream(&mut self, stream: Handle) {
        self.ordinal = if stream < FIRST_STREAM {
            stream as Ordinal
        } else {
            self.streams.get(&stream).copied().unwrap_or(u32::MAX)
        };
    }

    /// A call was put on a stream.
    fn took(&mut self, stream: Handle, bytes: u64, result: Result<()>) -> Result<()> {
        if result.is_ok() {
            self.intake.took(&self.device, stream, bytes);
            if self.out.tracer().is_some() {
                self.trace_end(stream);
            }
        }
        result
    }

    /// Records when what the current call put on a stream is done.
    #[cold]
    fn trace_end(&self, stream: Handle) {
        let (out, call, sequence) = (self.out.clone(), self.call, self.sequence);
        let done = move |_| {
            if let Some(tracer) = out.tracer()
                && tracer.finished(call, sequence, stream)
            {
                out.send_trace(tracer);
            }
        };
        self.device.synchronize(Target::Stream(stream), Box::new(done));
    }

    /// Where images of modules are kept.
    pub fn keep_images(&mut self, store: Option<Arc<Store>>) {
        self.modules.store = store;
    }

    /// Whether a call cannot be executed yet, because the image of a module is waited for.
    pub fn must_wait(&self, call: u16) -> bool {
        const AT_ONCE: [u16; 5] = [
            ModuleData::NUMBER,
            ModuleImage::NUMBER,
            FetchAnswer::NUMBER,
            HostFuncDone::NUMBER,
            Release::NUMBER,
        ];
        self.modules.is_waiting() && !AT_ONCE.contains(&call)
    }

    pub(super) fn malformed(&mut self, text: &str) {
        self.stop = Some(Stop::Malformed(text.to_owned()));
    }

    /// Makes answers wait for shared writes from now on.
    fn start_collector(&mut self) -> Result<()> {
        let mut collector = self.answers.collector.lock();
        if collector.is_some() {
            return Ok(());
        }
        let (send, receive) = mpsc::channel::<Answer>();
        let answers = Answerer { collector: Arc::default(), ..Answerer::clone(&self.answers) };
        std::thread::Builder::new()
            .name("collector".into())
            .spawn(move || {
                for answer in receive {
                    answers.collect();
                    answers.send(answer);
                }
            })
            .map_err(|e| Error::new(Code::OperatingSystem, format!("Cannot start a thread: {e}")))?;
        *collector = Some(send);
        Ok(())
    }

    fn mem_alloc(&mut self, call: MemAlloc, _: Payload<'_>) -> Result<()> {
        self.ordinal = call.ordinal;
        let kind = MemoryKind::try_from(call.kind)?;
        if kind == MemoryKind::Direct {
            return Err(Error::new(Code::NotSupported, "Direct memory needs one process"));
        }
        if kind == MemoryKind::Mirrored {
            self.start_collector()?;
        }
        self.account.set_aside(call.ordinal, call.size)?;
        let made = self.device.mem_alloc(call.ordinal, call.addr, call.size, kind);
        made.inspect_err(|_| self.account.give_up(call.ordinal, call.size))?;
        if kind == MemoryKind::Device && self.addressable {
            // SAFETY: it is mapped until it is released, and then that is told, too; work that was put on a stream before
            // and sends it meanwhile keeps it mapped.
            unsafe { self.out.transport.announce(call.addr, call.size) };
        }
        self.account.allocated(call.ordinal, call.addr, call.size, kind == MemoryKind::Mirrored);
        Ok(())
    }

    fn mem_free(&mut self, call: MemFree, _: Payload<'_>) -> Result<()> {
        self.ordinal = call.ordinal;
        self.out.transport.retire(call.addr);
        let result = self.device.mem_free(call.ordinal, call.addr, call.stream);
        // The client counts it as free in any case; what the device keeps, it keeps within its own limit.
        self.account.released(call.addr);
        result
    }

    fn mem_info(&mut self, call: MemInfo, _: Payload<'_>) -> Reply<wire::MemoryInfo> {
        self.ordinal = call.ordinal;
        let free = self.account.free(call.ordinal);
        let info = self.device.mem_info(call.ordinal);
        let total = |total: u64| self.account.total(call.ordinal).map_or(total, |most| total.min(most));
        info.map(|i| wire::MemoryInfo { free: i.free.min(free), total: total(i.total) }).into()
    }

    fn memset(&mut self, call: MemSet, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let r = self.device.memset(call.stream, convert::region(&call.region), call.value, call.element);
        self.took(call.stream, 0, r)
    }

    /// Where the payload of a `copy_to_device` with these arguments may be received, if the device lets it be written in
    /// place: to be called instead of the dispatch, when the call's turn has come.
    pub fn place(&mut self, arguments: &[u8], length: usize) -> Option<Placed> {
        if length < IN_PLACE_FROM {
            return None;
        }
        let (call, _) = CopyToDevice::from_body(arguments).ok()?;
        let dst = convert::region(&call.dst);
        if dst.bytes() != Some(length as u64) || !dst.is_contiguous() {
            return None;
        }
        let id = self.own_hold();
        let there = self.device.write_in_place(call.stream, dst, id);
        there.then_some(Placed { dst, host_addr: call.host_addr, id })
    }

    /// The payload has arrived there.
    pub fn placed(&mut self, placed: &Placed) {
        self.device.written_in_place(placed.dst, placed.host_addr, placed.id);
    }

    fn copy_to_device(&mut self, call: CopyToDevice, payload: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let dst = convert::region(&call.dst);
        let length = payload.bytes().len() as u64;
        if dst.bytes() != Some(length) {
            self.malformed("the payload is not as long as the destination says");
            return Ok(());
        }
        let data = HostData::Owned(payload.take());
        let r = self.device.copy_to_device(call.stream, dst, call.host_addr, data);
        self.took(call.stream, length, r)
    }

    fn copy_from_device(&mut self, call: CopyFromDevice, _: Payload<'_>) -> Reply<()> {
        self.on_stream(call.stream);
        let src = convert::region(&call.src);
        if let Some(bulk) = self.sender_for(&src) {
            let done = self.later(CopyFromDevice::NUMBER);
            self.send_apart(bulk, call.stream, src, done);
            return Reply::Later;
        }
        let (answers, sequence, ordinal) = (self.answers.clone(), self.sequence, self.ordinal);
        let done = Box::new(move |result| {
            let call = CopyFromDevice::NUMBER;
            answers.finish(Answer { call, sequence, ordinal, result, value: &[] });
        });
        let sink = CopySender::new(self.out.clone(), self.sequence, done);
        self.device.copy_from_device(call.stream, src, call.host_addr, Box::new(sink));
        Reply::Later
    }

    /// The thread that is to send a copy, if it is long and its memory can be read here. Where there is mirrored memory, the
    /// device must see what it sends.
    fn sender_for(&mut self, src: &Region) -> Option<BulkSender> {
        let apart = self.addressable
            && src.bytes().is_some_and(|n| n >= APART_FROM)
            && !self.account.has_mirrored()
            && self.account.holds(src);
        if apart && self.bulk.is_none() {
            self.bulk = BulkSender::start(self.out.clone()).ok();
        }
        if apart { self.bulk.clone() } else { None }
    }

    /// Holds the stream when it has got here, and sends the copy meanwhile.
    fn send_apart(&mut self, bulk: BulkSender, stream: Handle, from: Region, done: rgpu_device::Done) {
        let (id, sequence, device) = (self.own_hold(), self.sequence, self.device.clone());
        let ordinal = self.account.ordinal_of(from.addr);
        let reached = move |result: Result<()>| {
            if result.is_err() {
                return done(result);
            }
            // Who hears of the copy shall find it over.
            let then = Box::new(move |result: Result<()>| {
                let over = device.host_func_done(id);
                done(result.and(over));
            });
            // SAFETY: it lies in one allocation, whose release waits for the work that was put on streams before; a reset
            // closes the ordinal first.
            unsafe { bulk.send(Job { sequence, ordinal, from, then }) };
        };
        self.when_reached(stream, id, Box::new(reached));
    }

    /// An id by which the session itself holds a stream.
    fn own_hold(&mut self) -> u64 {
        self.own_holds += 1;
        OWN | self.own_holds
    }

    /// Calls `done` when the stream has got here, which then waits until the host function `id` is done; or with an error
    /// when it never will. False where the id is in use.
    fn when_reached(&mut self, stream: Handle, id: u64, done: rgpu_device::Done) -> bool {
        if !self.host.expect_hold(id, done) {
            return false;
        }
        let host = self.host.clone();
        let give_up = move |result: Result<()>| {
            if let Some(done) = host.take_hold(id) {
                done(result);
            }
        };
        match self.device.host_func(stream, id) {
            // A stream that fails never gets there.
            Ok(()) => self.device.synchronize(
                Target::Stream(stream),
                Box::new(move |result| give_up(result.and(Err(Code::Unknown.into())))),
            ),
            Err(e) => give_up(Err(e)),
        }
        true
    }

    /// A callback that answers the current call.
    pub(super) fn later(&self, call: u16) -> rgpu_device::Done {
        self.later_with(call, &[])
    }

    fn later_with(&self, call: u16, value: &'static [u8]) -> rgpu_device::Done {
        let (answers, sequence, ordinal) = (self.answers.clone(), self.sequence, self.ordinal);
        Box::new(move |result| {
            answers.finish(Answer { call, sequence, ordinal, result, value });
        })
    }

    fn copy_on_device(&mut self, call: CopyOnDevice, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let (dst, src) = (convert::region(&call.dst), convert::region(&call.src));
        let r = self.device.copy_on_device(call.stream, dst, src);
        self.took(call.stream, 0, r)
    }

    fn module_data(&mut self, call: ModuleData, payload: Payload<'_>) -> Result<()> {
        let staged: usize = self.images.values().map(Vec::len).sum();
        if staged + payload.bytes().len() > MAX_IMAGE {
            self.malformed("more than 1 GiB of module images were sent ahead");
            return Ok(());
        }
        self.images.entry(call.module).or_default().extend_from_slice(payload.bytes());
        Ok(())
    }

    fn module_load(&mut self, call: ModuleLoad, payload: Payload<'_>) -> Reply<wire::ModuleInfo> {
        self.ordinal = call.ordinal;
        let image = match self.images.remove(&call.module) {
            Some(mut image) => {
                image.extend_from_slice(payload.bytes());
                image
            }
            None => payload.take(),
        };
        let managed: Vec<(String, u64)> = call.managed.into_iter().map(|m| (m.name, m.addr)).collect();
        // Compiling takes its time, in which other threads' calls go on. Nobody names the module before
        // its answer is there.
        let answers = self.answers.clone();
        let (sequence, ordinal, module) = (self.sequence, self.ordinal, call.module);
        let store = self.modules.store.clone();
        let keeping = store.as_ref().map(Store::keeping);
        let variables = self.modules.variables.clone();
        let load = move || {
            let info = variables.load(&*answers.device, ordinal, module, &image, &managed);
            let well = info.is_ok();
            if !managed.is_empty() {
                // Their initial values.
                answers.collect();
            }
            answers.activity.unanswered.fetch_sub(1, Relaxed);
            let encode = info.map(|i| move |out: &mut Vec<u8>| convert::module_info(i).encode(out));
            answers.out.answer(ModuleLoad::NUMBER, sequence, ordinal, encode);
            if let (true, Some(store)) = (well, store) {
                let hash: Hash = *blake3::hash(&image).as_bytes();
                store.put(hash, &image);
            }
            drop(keeping);
        };
        match std::thread::Builder::new().name("module".into()).spawn(load) {
            Ok(_) => Reply::Later,
            Err(e) => {
                let text = format!("Cannot start a thread that compiles: {e}");
                Reply::Now(Err(Error::new(Code::OperatingSystem, text)))
            }
        }
    }

    fn module_unload(&mut self, call: ModuleUnload, _: Payload<'_>) -> Result<()> {
        if self.modules.forget(call.module) { self.device.module_unload(call.module) } else { Ok(()) }
    }

    fn launch_brief(&mut self, call: LaunchBrief, payload: Payload<'_>) -> Result<()> {
        let stream = call.stream.into();
        self.on_stream(stream);
        let module = call.module.into();
        let r = self.modules.kernel(module, call.function).and_then(|function| {
            self.device.launch(rgpu_device::Launch {
                stream,
                module,
                function,
                grid: call.grid,
                block: call.block.map(u32::from),
                shared_bytes: call.shared_bytes,
                cooperative: false,
                params: payload.bytes(),
            })
        });
        self.took(stream, 0, r)
    }

    fn launch(&mut self, call: wire::Launch, payload: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let function = self.modules.kernel(call.module, call.function)?;
        let r = self.device.launch(rgpu_device::Launch {
            stream: call.stream,
            module: call.module,
            function,
            grid: call.grid,
            block: call.block,
            shared_bytes: call.shared_bytes,
            cooperative: call.cooperative,
            params: payload.bytes(),
        });
        self.took(call.stream, 0, r)
    }

    fn stream_create(&mut self, call: StreamCreate, _: Payload<'_>) -> Result<()> {
        self.ordinal = call.ordinal;
        self.device.stream_create(call.ordinal, call.stream, call.blocking, call.priority)?;
        self.streams.insert(call.stream, call.ordinal);
        Ok(())
    }

    fn stream_destroy(&mut self, call: StreamDestroy, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        self.streams.remove(&call.stream);
        self.intake.forget(&self.device, call.stream);
        self.device.stream_destroy(call.stream)
    }

    fn stream_wait_event(&mut self, call: StreamWaitEvent, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let r = self.device.stream_wait_event(call.stream, call.event);
        self.took(call.stream, 0, r)
    }

    fn fence(&mut self, call: Fence, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        self.device.fence(call.stream)
    }

    fn event_create(&mut self, call: EventCreate, _: Payload<'_>) -> Result<()> {
        self.ordinal = call.ordinal;
        self.device.event_create(call.ordinal, call.event, call.timing)?;
        self.events.insert(call.event, call.ordinal);
        Ok(())
    }

    fn on_event(&mut self, event: Handle) {
        self.ordinal = self.events.get(&event).copied().unwrap_or(u32::MAX);
    }

    fn event_destroy(&mut self, call: EventDestroy, _: Payload<'_>) -> Result<()> {
        self.on_event(call.event);
        self.events.remove(&call.event);
        self.device.event_destroy(call.event)
    }

    fn event_record(&mut self, call: EventRecord, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let r = self.device.event_record(call.event, call.stream);
        self.took(call.stream, 0, r)
    }

    fn event_elapsed(&mut self, call: EventElapsed, _: Payload<'_>) -> Reply<f32> {
        self.on_event(call.start);
        self.device.event_elapsed(call.start, call.end).into()
    }

    fn target(&mut self, target: &wire::Target) -> Result<Target> {
        let target = convert::target(target)?;
        match target {
            Target::Device(ordinal) => self.ordinal = ordinal,
            Target::Stream(stream) => self.on_stream(stream),
            Target::Event(event) => self.on_event(event),
        }
        Ok(target)
    }

    fn synchronize(&mut self, call: Synchronize, _: Payload<'_>) -> Reply<()> {
        match self.target(&call.target) {
            Ok(target) => {
                self.device.synchronize(target, self.later(Synchronize::NUMBER));
                Reply::Later
            }
            Err(e) => Reply::Now(Err(e)),
        }
    }

    fn query(&mut self, call: Query, _: Payload<'_>) -> Reply<bool> {
        let result = self.target(&call.target).and_then(|target| self.device.query(target));
        if self.account.has_mirrored() && result == Ok(true) {
            self.answers.collect();
        }
        result.into()
    }

    fn host_func(&mut self, call: HostFunc, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        self.device.host_func(call.stream, call.id)
    }

    fn host_func_done(&mut self, call: HostFuncDone, _: Payload<'_>) -> Result<()> {
        self.pressure.answered();
        self.device.host_func_done(call.id)
    }

    fn hold(&mut self, call: Hold, _: Payload<'_>) -> Reply<bool> {
        self.on_stream(call.stream);
        let id = HOLD | (call.id & ((HOLD >> 1) - 1));
        // Other streams may be what this one waits for, so all must be idle.
        let idle = || self.device.query(Target::Device(self.ordinal));
        if call.now && idle() != Ok(true) {
            return Reply::Now(Ok(false));
        }
        let done = self.later_with(Hold::NUMBER, &[1]);
        if !self.when_reached(call.stream, id, done) {
            self.malformed("the hold's id is in use");
            return Reply::Now(Ok(false));
        }
        Reply::Later
    }

    fn release(&mut self, call: Release, _: Payload<'_>) -> Result<()> {
        self.pressure.answered();
        self.device.host_func_done(HOLD | (call.id & ((HOLD >> 1) - 1)))
    }

    fn invalidate_shared(&mut self, _: InvalidateShared, _: Payload<'_>) -> Result<()> {
        self.device.invalidate_shared()
    }

    fn collect_shared_writes(&mut self, _: CollectSharedWrites, _: Payload<'_>) -> Reply<()> {
        self.answers.collect();
        Reply::Now(Ok(()))
    }

    fn set_limit(&mut self, call: SetLimit, _: Payload<'_>) -> Reply<()> {
        self.ordinal = call.ordinal;
        let limit = Limit::try_from(call.limit);
        limit.and_then(|limit| self.device.set_limit(call.ordinal, limit, call.value)).into()
    }

    fn reset(&mut self, call: Reset, _: Payload<'_>) -> Reply<()> {
        self.ordinal = call.ordinal;
        self.modules.reset(call.ordinal);
        self.account.of(call.ordinal).into_iter().for_each(|addr| self.out.transport.retire(addr));
        let _closed = self.bulk.as_ref().map(|bulk| bulk.close(call.ordinal));
        let result = self.device.reset(call.ordinal);
        if result.is_ok() {
            self.account.reset(call.ordinal);
            self.streams.retain(|_, o| *o != call.ordinal);
            self.events.retain(|_, o| *o != call.ordinal);
        }
        result.into()
    }

    fn counters(&mut self, _: wire::Counters, _: Payload<'_>) -> Reply<DeviceCounters> {
        let counted = self.device.counters();
        Reply::Now(Ok(DeviceCounters { launches: counted.launches, busy_ns: counted.busy_ns }))
    }

    fn telemetry(&mut self, call: Telemetry, _: Payload<'_>) -> Reply<DeviceTelemetry> {
        self.ordinal = call.ordinal;
        let Some(group) = Group::from_number(call.group) else {
            let text = format!("There is no group {} of measurements", call.group);
            return Reply::Now(Err(Error::new(Code::InvalidValue, text)));
        };
        let memory = self.account.memory(call.ordinal);
        let busy = self.account.busy_percent();
        // Measuring may take its time, in which other threads' calls go on.
        let answers = self.answers.clone();
        let (sequence, ordinal) = (self.sequence, self.ordinal);
        let measure = move || {
            let measured = super::telemetry::measure(&*answers.device, ordinal, group, memory, busy);
            answers.activity.unanswered.fetch_sub(1, Relaxed);
            let encode = measured.map(|t| {
                move |out: &mut Vec<u8>| DeviceTelemetry { values: t.values, texts: t.texts }.encode(out)
            });
            answers.out.answer(Telemetry::NUMBER, sequence, ordinal, encode);
        };
        match std::thread::Builder::new().name("telemetry".into()).spawn(measure) {
            Ok(_) => Reply::Later,
            Err(e) => {
                let text = format!("Cannot start a thread that measures: {e}");
                Reply::Now(Err(Error::new(Code::OperatingSystem, text)))
            }
        }
    }

    fn credit_ask(&mut self, call: CreditAsk, _: Payload<'_>) -> Reply<u64> {
        self.ordinal = call.ordinal;
        self.account.ask(call.ordinal, call.bytes).into()
    }

    fn credit_return(&mut self, call: CreditReturn, _: Payload<'_>) -> Result<()> {
        self.ordinal = call.ordinal;
        self.account.give_back(call.ordinal, call.bytes)
    }

    fn fetch_answer(&mut self, call: FetchAnswer, payload: Payload<'_>) -> Result<()> {
        if !self.host.fetched(call.id, payload.bytes()) {
            self.malformed("a fetch was answered that was not asked, or with another length");
        }
        Ok(())
    }

    fn mark(&mut self, call: Mark, _: Payload<'_>) -> Result<()> {
        // Somebody may be waiting for word of it, and wants to see that the server is alive.
        self.activity.unanswered.fetch_add(1, Relaxed);
        let (out, activity, number) = (self.out.clone(), self.activity.clone(), call.number);
        self.intake.mark(&self.device, call.stream, move || {
            activity.unanswered.fetch_sub(1, Relaxed);
            out.notice(Notice::Reached, 0, &[&number.to_le_bytes()]);
        });
        Ok(())
    }

    fn goodbye(&mut self, _: Goodbye, _: Payload<'_>) -> Result<()> {
        self.stop = Some(Stop::Goodbye);
        Ok(())
    }
}
