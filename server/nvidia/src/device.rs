//! [`NvidiaDevice`] as a [`Device`].

use super::core::{
    Core, Event, HandleTables, Launch as LaunchOp, LibraryWork, Op, Stream, find_event, find_stream,
};
use super::memory::{CheckedRegion, Table};
use super::modules::{self, Kernel};
use super::{NvidiaDevice, addresses, meter};
use parking_lot::Mutex;
use rgpu_device::telemetry::{Group, Telemetry};
use rgpu_device::tensor_map::{TENSOR_MAP_BYTES, TensorMap};
use rgpu_device::{
    AddressPlan, Code, CopySink, Counters, Device, DeviceInfo, Done, Error, FIRST_STREAM, Handle, HostData,
    Launch, LibraryCall, Limit, MemOp, MemoryInfo, MemoryKind, ModuleInfo, Ordinal, Range, Region, Result,
    Seat, Target,
};
use rgpu_libraries::Operation;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// So long freed memory is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(Code::InvalidValue, what))
}

fn table(state: &mut HandleTables) -> Result<&mut Table> {
    state
        .table
        .as_mut()
        .ok_or_else(|| Error::new(Code::NotInitialized, "The device's addresses are not reserved yet"))
}

/// Checks a launch against what the device and the kernel can do; says how many bytes of its parameters the kernel takes.
fn check_launch(core: &Core, ordinal: Ordinal, kernel: &Kernel, launch: &Launch<'_>) -> Result<usize> {
    let limits = &core.gpu(ordinal)?.limits;
    let bytes = limits.check(&kernel.info, launch)?;
    if launch.cooperative {
        core.enter(ordinal)?;
        let threads = launch.block.iter().product();
        let resident = core.driver.occupancy(kernel.raw, threads, launch.shared_bytes)?;
        limits.check_cooperative(&kernel.info, launch.grid, resident)?;
    }
    Ok(bytes)
}

impl NvidiaDevice {
    /// Checks a copy and finds its stream, under the lock; then enqueues it.
    fn transfer(
        &self,
        stream: Handle,
        bytes: Option<u64>,
        make: impl FnOnce(&mut HandleTables) -> Result<Op>,
    ) -> Result<()> {
        let core = &self.core;
        let mut state = core.state.lock();
        let stream = core.stream(&state, stream)?;
        let op = make(&mut state)?;
        if bytes != Some(0) {
            core.enqueue_on(stream, op);
        }
        Ok(())
    }

    fn push(&self, stream: Handle, op: impl FnOnce(&mut HandleTables) -> Result<Op>) -> Result<()> {
        self.transfer(stream, None, op)
    }

    /// Whether an event's most recent record has been reached.
    fn event_is_done(&self, event: &Event) -> Result<bool> {
        if event.pending.load(SeqCst) > 0 {
            return Ok(false);
        }
        match event.latest.lock().clone() {
            Some(marker) => {
                self.core.enter(event.ordinal)?;
                self.core.note(event.ordinal, self.core.driver.event_is_done(marker.raw))
            }
            None => Ok(true),
        }
    }

    /// Zeroes what of an allocation may hold something else.
    fn clear(&self, ordinal: Ordinal, parts: &[Range]) -> Result<()> {
        let core = &self.core;
        let belongings = core.enter(ordinal)?;
        for part in parts {
            core.driver.fill(part.base, 0, 4, part.size / 4, belongings.side)?;
        }
        if parts.is_empty() { Ok(()) } else { core.driver.stream_synchronize(belongings.side) }
    }

    /// Takes memory from the driver. What was freed is given back to it only when work no longer needs it, which is
    /// waited for where there is not enough.
    fn take_pieces(&self, ordinal: Ordinal, range: Range) -> Result<(Vec<u64>, Vec<Range>)> {
        let core = &self.core;
        let give_up = Instant::now() + PATIENCE;
        let releasing =
            |state: &HandleTables| state.table.as_ref().map_or(Vec::new(), |table| table.releasing.clone());
        loop {
            let before = releasing(&core.state.lock());
            match core.pieces.lock().take(ordinal, range) {
                Err(e) if e.code == Code::OutOfMemory && !before.is_empty() && Instant::now() < give_up => {}
                result => return result,
            }
            let mut state = core.state.lock();
            let now = releasing(&state);
            // Until something of that is released, there is nothing more to take.
            if before.iter().all(|release| now.contains(release)) {
                core.released.wait_until(&mut state, give_up);
            }
        }
    }

    fn back(&self, ordinal: Ordinal, range: Range, pending: &[(u64, Range)]) -> Result<Vec<u64>> {
        let core = &self.core;
        core.enter(ordinal)?;
        let (pieces, fresh) = self.take_pieces(ordinal, range)?;
        let mut parts = vec![range];
        // What is still in use is not touched, and rgpu's own library hands out zeros.
        let zero = fresh.into_iter().filter(|_| core.fresh_is_zero);
        for other in pending.iter().map(|(_, busy)| *busy).chain(zero) {
            parts = parts.into_iter().flat_map(|part| part.without(other)).collect();
        }
        if let Err(error) = self.clear(ordinal, &parts) {
            core.pieces.lock().give(&pieces);
            return Err(error);
        }
        Ok(pieces)
    }
}

impl Device for NvidiaDevice {
    fn infos(&self) -> Vec<DeviceInfo> {
        self.core.gpus.iter().map(|gpu| gpu.info.clone()).collect()
    }

    fn reserve(&self, proposal: Range) -> Result<AddressPlan> {
        self.reserve_seat(proposal, Seat::ALONE)
    }

    fn reserve_seat(&self, proposal: Range, seat: Seat) -> Result<AddressPlan> {
        let core = &self.core;
        if core.state.lock().table.is_some() {
            return Err(Error::new(Code::IllegalState, "The device's addresses are reserved already"));
        }
        let memory: Vec<u64> = core.gpus.iter().map(|gpu| gpu.info.total_memory).collect();
        let enter = |ordinal: usize| core.enter(ordinal as Ordinal).map(drop);
        let plan = addresses::reserve(&core.driver, proposal, seat, &memory, &enter)?;
        core.state.lock().table = Some(Table::new(plan.clone(), memory));
        Ok(plan)
    }

    fn mem_alloc(&self, ordinal: Ordinal, addr: u64, size: u64, kind: MemoryKind) -> Result<()> {
        let core = &self.core;
        core.check(ordinal)?;
        let (range, pending) = {
            let mut state = core.state.lock();
            let table = table(&mut state)?;
            let range = table.insert(ordinal, addr, size, kind)?;
            (range, table.overlapping_releases(range))
        };
        if kind == MemoryKind::Mirrored {
            core.mirror.add(core.fresh(), ordinal, range);
            return Ok(());
        }
        match core.note(ordinal, self.back(ordinal, range, &pending)) {
            Ok(pieces) => table(&mut core.state.lock())?.backed(addr, pieces),
            Err(error) => {
                table(&mut core.state.lock())?.remove(ordinal, addr)?;
                return Err(error);
            }
        }
        for (number, _) in pending {
            core.enqueue(ordinal, None, Op::GateOnRelease(number));
        }
        Ok(())
    }

    fn mem_free(&self, ordinal: Ordinal, addr: u64, stream: Option<Handle>) -> Result<()> {
        let core = &self.core;
        core.check(ordinal)?;
        let mut state = core.state.lock();
        let stream = stream.map(|stream| find_stream(&state, stream)).transpose()?;
        let allocation = table(&mut state)?.remove(ordinal, addr)?;
        let number = core.fresh();
        table(&mut state)?.releasing.push((number, allocation.range));
        let area = allocation.mirrored.then(|| core.mirror.remove(number, addr)).flatten();
        core.enqueue(ordinal, None, Op::Release { number, allocation, stream, area });
        Ok(())
    }

    fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo> {
        let core = &self.core;
        core.check(ordinal)?;
        core.enter(ordinal)?;
        let (free, _) = core.note(ordinal, core.driver.mem_info())?;
        let mut state = core.state.lock();
        let (room, total) = table(&mut state)?.room(ordinal);
        Ok(MemoryInfo { free: free.min(room), total })
    }

    fn tensor_map(&self, ordinal: Ordinal, map: &[u8; TENSOR_MAP_BYTES]) -> Result<[u8; TENSOR_MAP_BYTES]> {
        let core = &self.core;
        core.check(ordinal)?;
        core.enter(ordinal)?;
        let wanted = TensorMap::from_bytes(map)
            .ok_or_else(|| Error::new(Code::InvalidValue, "these bytes are no tensor map"))?;
        core.driver.tensor_map(&wanted)
    }

    fn memset(&self, stream: Handle, region: Region, value: u32, element: u32) -> Result<()> {
        region.check_fill(element)?;
        self.transfer(stream, region.bytes(), |state| {
            Ok(Op::Fill { to: table(state)?.place(region)?, value, element })
        })
    }

    fn copy_to_device(&self, stream: Handle, dst: Region, host_addr: u64, data: HostData) -> Result<()> {
        let have = data.check(&dst)?;
        self.transfer(stream, Some(have), |state| {
            Ok(Op::In { to: table(state)?.place(dst)?, host_addr, data })
        })
    }

    fn copy_from_device(&self, stream: Handle, src: Region, host_addr: u64, sink: Box<dyn CopySink>) {
        let core = &self.core;
        let mut state = core.state.lock();
        let checked: Result<(Arc<Stream>, CheckedRegion)> =
            core.stream(&state, stream).and_then(|stream| Ok((stream, table(&mut state)?.place(src)?)));
        match checked {
            Ok((stream, from)) => core.enqueue_on(stream, Op::Out { from, host_addr, sink }),
            Err(error) => {
                drop(state);
                sink.done(Err(error));
            }
        }
    }

    fn copy_on_device(&self, stream: Handle, dst: Region, src: Region) -> Result<()> {
        dst.check_copy(&src)?;
        self.transfer(stream, dst.bytes(), |state| {
            let table = table(state)?;
            Ok(Op::Across { to: table.place(dst)?, from: table.place(src)? })
        })
    }

    fn module_load(
        &self,
        ordinal: Ordinal,
        module: Handle,
        image: &[u8],
        managed: &[(String, u64)],
    ) -> Result<ModuleInfo> {
        let core = &self.core;
        core.check(ordinal)?;
        {
            let mut state = core.state.lock();
            table(&mut state)?;
            if state.modules.contains_key(&module) || !state.loading.insert(module) {
                return invalid(format!("The module handle {module:#x} is taken"));
            }
        }
        let loaded = modules::load(core, ordinal, module, image, managed);
        let mut state = core.state.lock();
        state.loading.remove(&module);
        let (loaded, info) = loaded?;
        state.modules.insert(module, Arc::new(loaded));
        let own: Vec<_> =
            info.globals.iter().filter(|g| g.kind != rgpu_device::GlobalKind::Managed).cloned().collect();
        table(&mut state)?.add_variables(ordinal, module, &own);
        Ok(info)
    }

    fn module_unload(&self, module: Handle) -> Result<()> {
        let core = &self.core;
        let mut state = core.state.lock();
        let Some(loaded) = state.modules.remove(&module) else {
            return Err(Error::new(Code::InvalidHandle, format!("There is no module {module:#x}")));
        };
        table(&mut state)?.remove_variables(module);
        let ordinal = loaded.ordinal;
        core.enqueue(ordinal, None, Op::Unload(module, loaded));
        drop(state);
        core.check(ordinal).map(drop)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        let core = &self.core;
        let (stream, module) = {
            let mut state = core.state.lock();
            table(&mut state)?;
            (core.stream(&state, launch.stream)?, state.modules.get(&launch.module).cloned())
        };
        let ordinal = stream.ordinal;
        let Some(module) = module.filter(|m| m.ordinal == ordinal) else {
            return Err(Error::new(
                Code::InvalidHandle,
                format!("There is no module {:#x} on device {ordinal}", launch.module),
            ));
        };
        let Some(kernel) = module.kernels.get(launch.function as usize) else {
            return Err(Error::new(
                Code::InvalidHandle,
                format!("The module has no kernel number {}", launch.function),
            ));
        };
        let bytes = check_launch(core, ordinal, kernel, &launch)?;
        let params = launch.params[..bytes].to_vec();
        let op = LaunchOp {
            module,
            function: launch.function,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            cooperative: launch.cooperative,
            cluster: launch.cluster,
            params,
        };
        core.enqueue_on(stream, Op::Launch(Box::new(op)));
        Ok(())
    }

    fn library(&self, call: LibraryCall<'_>) -> Result<()> {
        let core = &self.core;
        let operation = Operation::read(call.operation, call.params)
            .map_err(|error| Error::new(Code::InvalidValue, format!("An operation of a library: {error}")))?;
        let addresses = operation.addresses();
        let mut state = core.state.lock();
        let stream = core.stream(&state, call.stream)?;
        let table = table(&mut state)?;
        // The libraries see to the rest: what is not mapped behind an operand's first byte is their kernels' error.
        let wrong = addresses.iter().find_map(|addr| table.place(Region::linear(*addr, 1)).err());
        if let Some(error) = wrong {
            let error =
                Error::new(Code::IllegalAddress, format!("An operation of a library: {}", error.message));
            drop(state);
            return core.note(stream.ordinal, Err(error));
        }
        core.enqueue_on(stream, Op::Library(Box::new(LibraryWork { operation, addresses })));
        Ok(())
    }

    fn mem_ops(&self, stream: Handle, ops: &[MemOp]) -> Result<()> {
        if ops.len() > MemOp::MOST {
            return invalid(format!("{} memory operations are more than {} at once", ops.len(), MemOp::MOST));
        }
        self.push(stream, |state| {
            for op in ops.iter().filter(|op| op.width() > 0) {
                if table(state)?.place(Region::linear(op.addr, op.width()))?.mirrored {
                    let text = "a stream's memory operation (cuStreamWaitValue and its like) on host memory of which the device has \
                                a copy of its own";
                    return Err(Error::new(Code::NotSupported, text));
                }
            }
            Ok(Op::Words(ops.to_vec()))
        })
    }

    fn library_version(&self, ordinal: Ordinal, library: u32) -> Result<u32> {
        let core = &self.core;
        core.check(ordinal)?;
        core.enter(ordinal)?;
        core.libraries.version(library)
    }

    fn stream_create(&self, ordinal: Ordinal, stream: Handle, blocking: bool, priority: i32) -> Result<()> {
        let core = &self.core;
        core.check(ordinal)?;
        let taken = || invalid(format!("The stream handle {stream:#x} is taken"));
        if stream < FIRST_STREAM || core.state.lock().streams.contains_key(&stream) {
            return taken();
        }
        core.enter(ordinal)?;
        let raw = core.note(ordinal, core.driver.stream_create(blocking, priority))?;
        let made = Stream {
            key: core.fresh(),
            ordinal,
            raw,
            legacy: false,
            pending: std::sync::atomic::AtomicU64::new(0),
        };
        core.state.lock().streams.insert(stream, Arc::new(made));
        Ok(())
    }

    fn stream_destroy(&self, stream: Handle) -> Result<()> {
        let core = &self.core;
        let mut state = core.state.lock();
        let found = find_stream(&state, stream)?;
        if stream < FIRST_STREAM {
            return Err(Error::new(Code::InvalidHandle, "The legacy stream cannot be destroyed"));
        }
        state.streams.remove(&stream);
        state.destroyed.retain(|stream| stream.pending.load(SeqCst) > 0);
        state.destroyed.push(found.clone());
        let ordinal = found.ordinal;
        core.enqueue_on(found, Op::Destroy);
        drop(state);
        core.check(ordinal).map(drop)
    }

    fn stream_wait_event(&self, stream: Handle, event: Handle) -> Result<()> {
        self.push(stream, |state| Ok(Op::Wait(find_event(state, event)?)))
    }

    fn fence(&self, stream: Handle) -> Result<()> {
        self.push(stream, |_| Ok(Op::Fence))
    }

    fn event_create(&self, ordinal: Ordinal, event: Handle, timing: bool) -> Result<()> {
        let core = &self.core;
        core.check(ordinal)?;
        let mut state = core.state.lock();
        if state.events.contains_key(&event) {
            return invalid(format!("The event handle {event:#x} is taken"));
        }
        let made = Event {
            ordinal,
            timing,
            latest: Mutex::new(None),
            pending: std::sync::atomic::AtomicU64::new(0),
        };
        state.events.insert(event, Arc::new(made));
        Ok(())
    }

    fn event_destroy(&self, event: Handle) -> Result<()> {
        let core = &self.core;
        let mut state = core.state.lock();
        let found = find_event(&state, event)?;
        state.events.remove(&event);
        drop(state);
        core.check(found.ordinal).map(drop)
    }

    fn event_record(&self, event: Handle, stream: Handle) -> Result<()> {
        let core = &self.core;
        let state = core.state.lock();
        let stream = core.stream(&state, stream)?;
        let event = find_event(&state, event)?;
        if event.ordinal != stream.ordinal {
            return Err(Error::new(Code::InvalidHandle, "The event and the stream are of different devices"));
        }
        core.enqueue_on(stream, Op::Record(event));
        Ok(())
    }

    fn event_elapsed(&self, start: Handle, end: Handle) -> Result<f32> {
        let core = &self.core;
        let (start, end) = {
            let state = core.state.lock();
            (find_event(&state, start)?, find_event(&state, end)?)
        };
        core.check(start.ordinal)?;
        if start.ordinal != end.ordinal {
            return Err(Error::new(Code::InvalidHandle, "The events are of different devices"));
        }
        if !start.timing || !end.timing {
            return Err(Error::new(Code::InvalidHandle, "An event keeps no time"));
        }
        for event in [&start, &end] {
            if event.pending.load(SeqCst) == 0 && event.latest.lock().is_none() {
                return Err(Error::new(Code::InvalidHandle, "An event was never recorded"));
            }
            if !self.event_is_done(event)? {
                return Err(Error::new(Code::NotReady, "An event has not been reached yet"));
            }
        }
        // One after the other: both may be the same event.
        let first = start.latest.lock().clone();
        let last = end.latest.lock().clone();
        let (Some(first), Some(last)) = (first, last) else { return Err(Code::InvalidHandle.into()) };
        core.note(start.ordinal, core.driver.event_elapsed(first.raw, last.raw))
    }

    fn synchronize(&self, target: Target, done: Done) {
        let core = &self.core;
        let found = || {
            let state = core.state.lock();
            Ok(match target {
                Target::Device(ordinal) => {
                    core.gpu(ordinal)?;
                    (ordinal, None, None)
                }
                Target::Stream(stream) => {
                    let stream = find_stream(&state, stream)?;
                    (stream.ordinal, Some(stream), None)
                }
                Target::Event(event) => {
                    let event = find_event(&state, event)?;
                    (event.ordinal, None, Some(event))
                }
            })
        };
        match found() {
            Ok((ordinal, stream, None)) => core.enqueue(ordinal, stream, Op::Sync(done)),
            Ok((ordinal, _, Some(event))) => core.enqueue(ordinal, None, Op::SyncEvent(event, done)),
            Err(error) => done(Err(error)),
        }
    }

    fn query(&self, target: Target) -> Result<bool> {
        let core = &self.core;
        let state = core.state.lock();
        let (ordinal, streams) = match target {
            Target::Device(ordinal) => {
                core.gpu(ordinal)?;
                let streams = state.streams.values().filter(|s| s.ordinal == ordinal).cloned().collect();
                (ordinal, streams)
            }
            Target::Stream(stream) => {
                let stream = find_stream(&state, stream)?;
                (stream.ordinal, vec![stream])
            }
            Target::Event(event) => {
                let event = find_event(&state, event)?;
                drop(state);
                core.check(event.ordinal)?;
                return Ok(self.event_is_done(&event)? && core.is_handed_on());
            }
        };
        drop(state);
        core.check(ordinal)?;
        core.enter(ordinal)?;
        for stream in streams {
            if !core.note(ordinal, core.stream_is_done(&stream))? {
                return Ok(false);
            }
        }
        if matches!(target, Target::Device(_))
            && !core.note(ordinal, core.destroyed_streams_are_done(ordinal))?
        {
            return Ok(false);
        }
        Ok(core.is_handed_on())
    }

    fn host_func(&self, stream: Handle, id: u64) -> Result<()> {
        self.push(stream, |_| Ok(Op::HostFunction(id)))
    }

    fn host_func_done(&self, id: u64) -> Result<()> {
        let core = &self.core;
        let known = match core.functions.lock().get_mut(&id) {
            Some(function) => !std::mem::replace(&mut function.1, true),
            None => false,
        };
        core.function_returned.notify_all();
        if known { Ok(()) } else { invalid(format!("No host function {id} is running")) }
    }

    fn invalidate_shared(&self) -> Result<()> {
        self.core.mirror.invalidate();
        Ok(())
    }

    fn collect_shared_writes(&self, sink: &mut dyn FnMut(u64, &[u8])) {
        self.core.mirror.collect(&self.core, sink);
    }

    fn set_limit(&self, ordinal: Ordinal, limit: Limit, value: u64) -> Result<()> {
        let core = &self.core;
        core.check(ordinal)?;
        core.enter(ordinal)?;
        core.note(ordinal, core.driver.set_limit(limit as u32, value))
    }

    fn reset(&self, ordinal: Ordinal) -> Result<()> {
        let core = &self.core;
        let gpu = core.gpu(ordinal)?;
        {
            let mut state = core.state.lock();
            gpu.generation.fetch_add(1, SeqCst);
            state.streams.retain(|_, stream| stream.ordinal != ordinal);
            state.destroyed.retain(|stream| stream.ordinal != ordinal);
            state.events.retain(|_, event| event.ordinal != ordinal);
            state.modules.retain(|_, module| module.ordinal != ordinal);
        }
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        core.enqueue(ordinal, None, Op::Reset(send));
        receive.recv().unwrap_or_else(|_| Err(Code::Unknown.into()))
    }

    fn counters(&self) -> Counters {
        let core = &self.core;
        let mut counters = Counters::default();
        for (ordinal, gpu) in core.gpus.iter().enumerate() {
            let until = gpu.launches.lock().submitted;
            if until > gpu.launches.lock().finished
                && self.query(Target::Device(ordinal as Ordinal)) == Ok(true)
            {
                gpu.launches.lock().over(until);
            }
            let launches = gpu.launches.lock();
            counters.launches += launches.finished;
            let open = launches.since.map_or(0, |since| since.elapsed().as_nanos() as u64);
            let busy_ns = launches.busy_ns + open;
            drop(launches);
            counters.busy_ns += busy_ns;
            meter::tell(core, ordinal as Ordinal, busy_ns);
        }
        counters
    }

    fn telemetry(&self, ordinal: Ordinal, group: Group) -> Result<Telemetry> {
        match self.nvml.get() {
            Some(nvml) => nvml.read(ordinal, group),
            None => Err(Code::NotSupported.into()),
        }
    }
}
