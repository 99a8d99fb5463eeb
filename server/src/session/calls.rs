//! The dispatch: a method for each row of the table of calls.

use super::Activity;
use super::answers::{Answer, Answerer, Due, Reply};
use super::bulk::BulkSender;
use super::exchange::Exchange;
use super::helpers::Helpers;
use super::host::WireHost;
use super::lending::Lending;
use super::memory::Account;
use super::modules::Modules;
use super::outgoing::Outgoing;
use super::pressure::{Intake, Pressure};
use crate::convert;
use crate::store::{Hash, Store};
use rgpu_device::telemetry::Group;
use rgpu_device::tensor_map;
use rgpu_device::{Code, Device, Error, FIRST_STREAM, Handle, Limit, MemoryKind, Ordinal, Result, Target};
use rgpu_protocol::calls::{self as wire, *};
use rgpu_protocol::frame::{Header, Notice};
use rgpu_protocol::numbers::NumberMap;
use rgpu_protocol::wire::{DecodeError, Wire};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};

/// The longest image of a module.
const MAX_IMAGE: usize = 1 << 30;

/// Why reading ends.
pub(super) enum Stop {
    Goodbye,
    Malformed(String),
}

/// Executes calls, one after another.
pub(super) struct Dispatcher {
    /// Whether device memory lies in this process at its addresses.
    pub(super) addressable: bool,
    /// How many times the session itself has held a stream.
    pub(super) own_holds: u64,
    /// Sends long copies to the host, once there are any.
    pub(super) bulk: Option<BulkSender>,
    pub(super) device: Arc<dyn Device>,
    pub(super) out: Arc<Outgoing>,
    pub(super) host: Arc<WireHost>,
    pub(super) pressure: Arc<Pressure>,
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
    pub(super) helpers: Helpers,
    pub(super) modules: Modules,
    /// Whether the client maps the memory that is one for both sides.
    pub(super) one_memory: bool,
    /// What is lent to the tenant's other sessions.
    pub(super) lending: Lending,
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

    pub(super) fn take(self) -> Vec<u8> {
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
        pub(super) fn dispatch(
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
    pub(super) fn new(
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
            one_memory: false,
            lending: Lending::default(),
            account,
            answers,
            activity,
            exchange: None,
            streams: NumberMap::default(),
            events: NumberMap::default(),
            images: HashMap::new(),
            helpers: Helpers::default(),
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
    pub(super) fn took(&mut self, stream: Handle, bytes: u64, result: Result<()>) -> Result<()> {
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
    pub(super) fn keep_images(&mut self, store: Option<Arc<Store>>) {
        self.modules.store = store;
    }

    /// Whether a call cannot be executed yet, because the image of a module is waited for.
    pub(super) fn must_wait(&self, call: u16) -> bool {
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
        let (send, receive) = mpsc::channel();
        let answers = Answerer { collector: Arc::default(), ..Answerer::clone(&self.answers) };
        std::thread::Builder::new()
            .name("collector".into())
            .spawn(move || {
                for due in receive {
                    answers.collect();
                    match due {
                        Due::Answer(answer) => answers.send(answer),
                        Due::HostFunction(id) => {
                            answers.out.notice(Notice::HostFunc, 0, &[&id.to_le_bytes()])
                        }
                    }
                }
            })
            .map_err(|e| Error::new(Code::OperatingSystem, format!("Cannot start a thread: {e}")))?;
        self.host.collect_before_functions(send.clone());
        *collector = Some(send);
        Ok(())
    }

    fn mem_alloc(&mut self, call: MemAlloc, _: Payload<'_>) -> Result<()> {
        self.ordinal = call.ordinal;
        let kind = MemoryKind::try_from(call.kind)?;
        if kind == MemoryKind::Direct && !self.one_memory {
            let text = "Memory that is one for both sides needs a client that maps it";
            return Err(Error::new(Code::NotSupported, text));
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

    fn tensor_map(&mut self, call: TensorMap, _: Payload<'_>) -> Reply<wire::MadeMap> {
        self.ordinal = call.ordinal;
        let made = self.device.tensor_map(call.ordinal, &tensor_map::bytes_of(&call.map));
        made.map(|map| wire::MadeMap { map: tensor_map::words_of(&map) }).into()
    }

    fn memset(&mut self, call: MemSet, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let r = self.device.memset(call.stream, convert::region(&call.region), call.value, call.element);
        self.took(call.stream, 0, r)
    }

    /// A callback that answers the current call.
    pub(super) fn later(&self, call: u16) -> rgpu_device::Done {
        self.later_with(call, &[])
    }

    pub(super) fn later_with(&self, call: u16, value: &'static [u8]) -> rgpu_device::Done {
        let (answers, sequence, ordinal) = (self.answers.clone(), self.sequence, self.ordinal);
        Box::new(move |result| {
            answers.finish(Answer { call, sequence, ordinal, result, value });
        })
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
        let (variables, refused) = (self.modules.variables.clone(), self.modules.refused.clone());
        let minor = self.modules.minor;
        let load = move || {
            let info = variables.load(&*answers.device, ordinal, module, &image, &managed);
            let well = info.as_ref().map(|info| refused.loaded(ordinal, module, info)).is_ok();
            if !managed.is_empty() {
                // Their initial values.
                answers.collect();
            }
            answers.activity.unanswered.fetch_sub(1, Relaxed);
            let encode = info.map(|i| move |out: &mut Vec<u8>| convert::module_info(i, minor).encode(out));
            answers.out.answer(ModuleLoad::NUMBER, sequence, ordinal, encode);
            if let (true, Some(store)) = (well, store) {
                let hash: Hash = *blake3::hash(&image).as_bytes();
                store.put(hash, &image);
            }
            drop(keeping);
        };
        match self.helpers.do_soon(load) {
            Ok(()) => Reply::Later,
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
                cluster: [0; 3],
                params: payload.bytes(),
            })
        });
        self.took(stream, 0, r)
    }

    fn launch(&mut self, call: wire::Launch, payload: Payload<'_>) -> Result<()> {
        let wire::Launch { stream, module, function, grid, block, shared_bytes, cooperative } = call;
        let cluster = [0; 3];
        self.launch_cluster(
            LaunchCluster { stream, module, function, grid, block, shared_bytes, cooperative, cluster },
            payload,
        )
    }

    fn launch_cluster(&mut self, call: LaunchCluster, payload: Payload<'_>) -> Result<()> {
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
            cluster: call.cluster,
            params: payload.bytes(),
        });
        self.took(call.stream, 0, r)
    }

    fn library(&mut self, call: Library, payload: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let call = rgpu_device::LibraryCall {
            stream: call.stream,
            operation: call.operation,
            params: payload.bytes(),
        };
        let r = self.device.library(call);
        self.took(call.stream, 0, r)
    }

    fn mem_ops(&mut self, call: MemOps, _: Payload<'_>) -> Result<()> {
        self.on_stream(call.stream);
        let ops = call.ops.iter().map(convert::mem_op).collect::<Result<Vec<_>>>()?;
        let r = self.device.mem_ops(call.stream, &ops);
        if r.is_ok() && ops.iter().any(rgpu_device::MemOp::waits) {
            self.waits_for_the_client(call.stream);
        }
        self.took(call.stream, 0, r)
    }

    /// A stream waits for something that may come with a later call: until it goes on, reading must, too.
    fn waits_for_the_client(&self, stream: Handle) {
        self.pressure.unanswered();
        let pressure = self.pressure.clone();
        self.device.synchronize(Target::Stream(stream), Box::new(move |_| pressure.answered()));
    }

    fn library_version(&mut self, call: LibraryVersionAsk, _: Payload<'_>) -> Reply<LibraryVersion> {
        self.ordinal = call.ordinal;
        let found = self.device.library_version(call.ordinal, call.library);
        Reply::Now(match found {
            Ok(version) => Ok(LibraryVersion { version, why: String::new() }),
            // There is no such library, or no such device.
            Err(error) if matches!(error.code, Code::InvalidValue | Code::InvalidDevice) => Err(error),
            // The device has not got it, for a reason that people want to read.
            Err(error) => Ok(LibraryVersion { version: 0, why: error.message }),
        })
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
        match self.helpers.do_soon(measure) {
            Ok(()) => Reply::Later,
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
