//! [`SoftGpu`] as a [`Device`].

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;

use rgpu_device::{
    AddressPlan, Code, CopySink, Counters, Device, DeviceInfo, Done, Error, GlobalKind, Handle, HostData,
    HostTarget, Launch, LibraryCall, Limit, MemOp, MemoryInfo, MemoryKind, MemoryNote, MemoryToken,
    ModuleInfo, Ordinal, Range, Region, Result, Seat, Target,
};

use super::SoftGpu;
use super::arena::Arena;
use super::heap::Heap;
use super::launch::{LaunchWork, MAX_STACK, STACK};
use super::lending;
use super::library::LibraryWork;
use super::look::wait_for;
use super::memory::{Memory, Owner, Refusal};
use super::mirror::Mirror;
use super::modules::{Checked, Module};
use super::shared::{DeviceState, Runtime};
use super::stream::{Actions, Key, Point, Work};
use super::transfer::Transfer;
use super::words::Words;
use super::{info, worker};
use crate::abi::Checks;
use crate::library::Libraries;

fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(Code::InvalidValue, what))
}

fn memory(state: &mut DeviceState) -> Result<&mut Memory> {
    state
        .memory
        .as_mut()
        .ok_or_else(|| Error::new(Code::NotInitialized, "The device's addresses are not reserved yet"))
}

impl SoftGpu {
    /// The points that a target covers, and its ordinal.
    fn points(&self, state: &DeviceState, target: Target) -> Result<(Vec<Point>, Ordinal)> {
        let streams = &state.streams;
        Ok(match target {
            Target::Device(ordinal) => {
                if ordinal >= self.shared.config.devices {
                    return Err(Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")));
                }
                (streams.ends(Some(ordinal)), ordinal)
            }
            Target::Stream(stream) => {
                (streams.end_of(stream)?.into_iter().collect(), streams.ordinal_of(stream)?)
            }
            Target::Event(event) => {
                let event = streams.event(event)?;
                (streams.recorded(&event).into_iter().collect(), event.ordinal)
            }
        })
    }

    /// Checks a copy and finds its stream, under the lock; then enqueues it.
    fn transfer(
        &self,
        stream: Handle,
        make: impl FnOnce(&mut DeviceState) -> Result<Transfer>,
    ) -> Result<()> {
        let mut state = self.shared.lock();
        let (key, _) = state.streams.open(stream)?;
        let transfer = make(&mut state)?;
        if transfer.bytes() == 0
            && let Transfer::Fill { .. } | Transfer::In { .. } | Transfer::Across { .. } = transfer
        {
            return Ok(());
        }
        self.shared.enqueue(state, key, Work::Transfer(Box::new(transfer)), &[]);
        Ok(())
    }

    /// Lets some work of a stream be waited for.
    fn push(&self, stream: Handle, work: Work, after: &[Point]) -> Result<()> {
        let mut state = self.shared.lock();
        let (key, _): (Key, _) = state.streams.open(stream)?;
        self.shared.enqueue(state, key, work, after);
        Ok(())
    }

    /// Has memory placed, waiting for what still uses the place. Work that is enqueued from then on waits for the points that are
    /// returned.
    fn place_patiently(
        &self,
        ordinal: Ordinal,
        mut place: impl FnMut(&mut Memory) -> std::result::Result<Vec<Point>, Refusal>,
    ) -> Result<()> {
        loop {
            let mut state = self.shared.lock();
            state.streams.check(ordinal)?;
            match place(memory(&mut state)?) {
                Ok(order) => {
                    state.streams.gate(&order);
                    return Ok(());
                }
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::Wait(points)) => {
                    // Memory that is not the device's alone, in a place that earlier work still uses: rare.
                    let (send, receive) = mpsc::sync_channel(1);
                    let mut actions = Actions::default();
                    let done = Box::new(move |_| _ = send.send(()));
                    state.streams.wait(&points, ordinal, done, &mut actions);
                    drop(state);
                    self.shared.act(actions);
                    let _ = receive.recv();
                    self.shared.settle(&mut self.shared.lock());
                }
            }
        }
    }

    /// The mathematical libraries.
    fn libraries(&self) -> Result<&'static dyn Libraries> {
        self.shared.config.libraries.ok_or_else(|| {
            let what = "This software GPU was built without mathematical libraries";
            Error::new(Code::NotSupported, what)
        })
    }

    /// Takes a module's variables and handles away.
    fn drop_module(&self, state: &mut DeviceState, module: &Module) {
        let after = state.streams.ends(None);
        if let (Some(addr), Some(memory)) = (module.variables, state.memory.as_mut()) {
            // It is there: the module put it there.
            let _ = memory.release(module.ordinal, addr, |o| o == Owner::Module, after.clone(), after);
        }
        self.shared.settle(state);
    }

    /// Puts a module whose kernels come from somewhere else in place.
    #[cfg(test)]
    pub(super) fn insert_module(&self, handle: Handle, module: Module) {
        self.shared.loaded.lock().modules.insert(handle, Arc::new(module));
    }
}

impl Device for SoftGpu {
    fn infos(&self) -> Vec<DeviceInfo> {
        let config = &self.shared.config;
        (0..config.devices).map(|ordinal| info::describe(config, self.shared.workers, ordinal)).collect()
    }

    /// It runs in its caller's process, whoever that is.
    fn sees_host_memory(&self) -> bool {
        true
    }

    fn reserve(&self, proposal: Range) -> Result<AddressPlan> {
        self.reserve_seat(proposal, Seat::ALONE)
    }

    fn reserve_seat(&self, proposal: Range, seat: Seat) -> Result<AddressPlan> {
        let shared = &self.shared;
        if shared.runtime().is_ok() {
            return Err(Error::new(Code::IllegalState, "The device's addresses are reserved already"));
        }
        let config = &shared.config;
        let slots = shared.workers as u64 * worker::slots(shared.resident_blocks());
        let memory = config.memory_bytes_per_device;
        let mut arena = Arena::reserve_seat(proposal, seat, config.devices, memory, slots)?;
        // Several devices of one application have different files, which cannot all be the host's memory.
        if config.own_process && seat.is_alone() {
            arena.share_direct_memory();
        }
        if !config.exact_bounds {
            arena.have_scratch();
        }
        arena.open_params()?;
        let arena = Arc::new(arena);
        let heaps = arena.heaps.iter().map(|&range| Arc::new(Heap::new(arena.clone(), range))).collect();
        let mirror = Mirror::new(arena.clone(), shared.host.clone());
        shared.set_runtime(Runtime { arena: arena.clone(), mirror, heaps })?;
        let memory = Memory::new(arena.clone(), config.devices, config.memory_bytes_per_device);
        shared.lock().memory = Some(memory);
        Ok(arena.plan.clone())
    }

    fn memory_files(&self) -> Vec<i32> {
        self.shared.runtime().map_or_else(|_| Vec::new(), |runtime| runtime.arena.device_files())
    }

    fn shared_file(&self) -> Option<i32> {
        self.shared.runtime().ok()?.arena.direct_file().map(AsRawFd::as_raw_fd)
    }

    fn mem_alloc(&self, ordinal: Ordinal, addr: u64, size: u64, kind: MemoryKind) -> Result<()> {
        let runtime = self.shared.runtime()?;
        self.place_patiently(ordinal, |memory| memory.allocate(&runtime.mirror, ordinal, addr, size, kind))
    }

    fn mem_free(&self, ordinal: Ordinal, addr: u64, stream: Option<Handle>) -> Result<()> {
        let mut state = self.shared.lock();
        state.streams.check(ordinal)?;
        let after = state.streams.ends(None);
        let order = match stream {
            None => after.clone(),
            Some(stream) => state.streams.end_of(stream)?.into_iter().collect(),
        };
        memory(&mut state)?.release(ordinal, addr, Owner::is_callers, order, after)?;
        self.shared.settle(&mut state);
        Ok(())
    }

    fn lend_memory(&self, ordinal: Ordinal, range: Range) -> Result<(i32, u64)> {
        let mut state = self.shared.lock();
        state.streams.check(ordinal)?;
        memory(&mut state)?.lend(ordinal, range)
    }

    fn borrow_memory(&self, ordinal: Ordinal, place: Range, file: OwnedFd, offset: u64) -> Result<()> {
        lending::check(&file, Range { base: offset, size: place.size })?;
        self.place_patiently(ordinal, |memory| {
            memory.borrow(ordinal, place, &file, offset).map(|()| Vec::new())
        })
    }

    fn export_memory(&self, ordinal: Ordinal, range: Range) -> Result<MemoryToken> {
        let (file, offset) = self.lend_memory(ordinal, range)?;
        if let Some(checker) = &self.shared.checker {
            // By whoever opens it, which nobody sees here.
            checker.written(range);
        }
        self.shared.tickets.issue(file, offset, range.size)
    }

    fn withdraw_memory(&self, token: &MemoryToken) -> Result<()> {
        self.shared.tickets.withdraw(token);
        Ok(())
    }

    fn import_memory(&self, ordinal: Ordinal, place: Range, token: &MemoryToken) -> Result<()> {
        let (file, offset) = lending::redeem(token, place.size)?;
        self.borrow_memory(ordinal, place, file, offset)
    }

    fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo> {
        let mut state = self.shared.lock();
        state.streams.check(ordinal)?;
        Ok(memory(&mut state)?.info(ordinal))
    }

    fn memset(&self, stream: Handle, region: Region, value: u32, element: u32) -> Result<()> {
        region.check_fill(element)?;
        self.transfer(stream, |state| {
            Ok(Transfer::Fill { to: memory(state)?.place(region)?, value, element })
        })
    }

    fn copy_to_device(&self, stream: Handle, dst: Region, host_addr: u64, data: HostData) -> Result<()> {
        data.check(&dst)?;
        self.transfer(stream, |state| Ok(Transfer::In { to: memory(state)?.place(dst)?, host_addr, data }))
    }

    fn write_in_place(&self, stream: Handle, dst: Region, id: u64) -> bool {
        let mut state = self.shared.lock();
        let Ok((key, _)) = state.streams.open(stream) else { return false };
        let place = memory(&mut state).and_then(|memory| memory.place(dst));
        if place.map_or(true, |p| p.mirrored) || !dst.is_contiguous() || !state.streams.ends(None).is_empty()
        {
            return false;
        }
        let mut actions = Actions::default();
        state.streams.push(key, Work::HostFunc(id), &[], &mut actions);
        // Nothing was before it: it is running. Nobody needs to be told.
        true
    }

    fn written_in_place(&self, dst: Region, host_addr: u64, id: u64) {
        if let Some(checker) = &self.shared.checker {
            checker.written(Range { base: dst.addr, size: dst.bytes().unwrap_or(0) });
        }
        if let Ok(runtime) = self.shared.runtime()
            && !runtime.mirror.is_empty()
        {
            // SAFETY: the memory was found to be mapped, and stays so as long as the stream waits.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(dst.addr as *mut u8, dst.bytes().unwrap_or(0) as usize)
            };
            runtime.mirror.overlay(host_addr, bytes);
        }
        // It was put there by the call before.
        let _ = self.host_func_done(id);
    }

    fn copy_from_device(&self, stream: Handle, src: Region, host_addr: u64, sink: Box<dyn CopySink>) {
        let mut state = self.shared.lock();
        let checked = state.streams.open(stream).and_then(|(key, _)| {
            let from = memory(&mut state)?.place(src)?;
            Ok((key, from))
        });
        match checked {
            Ok((key, from)) => {
                let transfer = Transfer::Out { from, host_addr, sink };
                self.shared.enqueue(state, key, Work::Transfer(Box::new(transfer)), &[]);
            }
            Err(error) => {
                drop(state);
                sink.done(Err(error));
            }
        }
    }

    fn copy_from_device_blocking(&self, stream: Handle, src: Region, dst: HostTarget) -> Result<()> {
        let (send, receive) = mpsc::sync_channel(1);
        let done = Box::new(move |result| drop(send.send(result)));
        self.copy_from_device_into(stream, src, dst, done);
        wait_for(&receive)
    }

    fn copy_on_device(&self, stream: Handle, dst: Region, src: Region) -> Result<()> {
        dst.check_copy(&src)?;
        self.transfer(stream, |state| {
            let memory = memory(state)?;
            Ok(Transfer::Across { to: memory.place(dst)?, from: memory.place(src)? })
        })
    }

    fn module_load(
        &self,
        ordinal: Ordinal,
        module: Handle,
        image: &[u8],
        managed: &[(String, u64)],
    ) -> Result<ModuleInfo> {
        let runtime = self.shared.runtime()?;
        {
            let mut state = self.shared.lock();
            state.streams.check(ordinal)?;
            if self.shared.loaded.lock().modules.contains_key(&module) {
                return invalid(format!("The module handle {module:#x} is taken"));
            }
        }
        let checked = Checked::new(image, self.shared.config.compute_capability, managed)?;
        let room = {
            let mut state = self.shared.lock();
            let memory = memory(&mut state)?;
            for global in checked.globals().iter().filter(|g| g.kind == GlobalKind::Managed) {
                let addr = managed.iter().find(|(name, _)| *name == global.name).map_or(0, |m| m.1);
                if !memory.is_shared(addr, global.size) {
                    return invalid(format!(
                        "There is no shared memory for the managed variable {} at {addr:#x}",
                        global.name
                    ));
                }
            }
            if checked.size == 0 { None } else { Some(memory.allocate_module(ordinal, checked.size)?) }
        };
        let base = room.map_or(0, |r| r.base);
        let config = &self.shared.config;
        let counts = Checks { counts: config.profile.is_some(), ..Checks::default() };
        let checks = config.check.as_ref().map_or(counts, super::check::compiled);
        let placed = checked.place(
            base,
            (runtime.arena.whole(), checks),
            self.shared.host.clone(),
            |addr, bytes, kind| {
                let mut state = self.shared.lock();
                let place = memory(&mut state)?.place(Region::linear(addr, bytes.len() as u64))?;
                if kind == GlobalKind::Managed && place.mirrored {
                    runtime.mirror.write(addr, bytes)
                } else {
                    // SAFETY: the place was just checked, and the lock keeps it mapped.
                    unsafe { std::ptr::copy(bytes.as_ptr(), addr as *mut u8, bytes.len()) };
                    Ok(())
                }
            },
        );
        let mut state = self.shared.lock();
        let variables = room.map(|r| r.base);
        let (module_info, linked) = match placed {
            Ok(placed) => placed,
            Err(error) => {
                let module = Module::new(ordinal, Vec::new(), Box::new(NoKernels), variables);
                self.drop_module(&mut state, &module);
                return Err(error);
            }
        };
        let functions = module_info.functions.clone();
        if let Some(checker) = &self.shared.checker {
            for global in module_info.globals.iter().filter(|global| global.size > 0) {
                let range = Range { base: global.addr, size: global.size };
                checker.allocated(range, false, || false);
            }
        }
        let loaded = Arc::new(Module::new(ordinal, functions, Box::new(linked), variables));
        self.shared.loaded.lock().modules.insert(module, loaded);
        Ok(module_info)
    }

    fn module_unload(&self, module: Handle) -> Result<()> {
        let mut state = self.shared.lock();
        let Some(module) = self.shared.loaded.lock().modules.remove(&module) else {
            return Err(Error::new(Code::InvalidHandle, format!("There is no module {module:#x}")));
        };
        module.unload();
        self.drop_module(&mut state, &module);
        state.streams.check(module.ordinal)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        crate::compile::vector::note_launch();
        self.shared.runtime()?;
        let found = {
            let loaded = self.shared.loaded.lock();
            let module = loaded.modules.get(&launch.module);
            module.map(|module| (module.clone(), loaded.stack[module.ordinal as usize]))
        };
        // What takes longest is done before the lock is taken that the workers need; what is wrong with it is told after what is wrong with
        // the stream.
        let work = found.map(|(module, stack)| {
            let of = module.ordinal;
            (of, LaunchWork::new(&launch, module, stack, &self.shared.about.limits).map(Box::new))
        });
        let mut state = self.shared.lock();
        let (key, ordinal) = state.streams.open(launch.stream)?;
        match work {
            Some((of, Err(error))) if of == ordinal => Err(error),
            Some((of, Ok(work))) if of == ordinal && work.module.is_loaded() => {
                self.shared.enqueue(state, key, Work::Launch(work), &[]);
                Ok(())
            }
            _ => Err(Error::new(
                Code::InvalidHandle,
                format!("There is no module {:#x} on device {ordinal}", launch.module),
            )),
        }
    }

    fn library(&self, call: LibraryCall<'_>) -> Result<()> {
        self.shared.runtime()?;
        let plan = self.libraries()?.plan(call.operation, call.params)?;
        let mut state = self.shared.lock();
        let (key, ordinal) = state.streams.open(call.stream)?;
        match LibraryWork::new(plan, memory(&mut state)?) {
            Ok(work) => {
                self.shared.enqueue(state, key, Work::Library(Box::new(work)), &[]);
                Ok(())
            }
            Err(error) => {
                if error.code.is_sticky() {
                    state.streams.fail(ordinal, error.clone());
                }
                Err(error)
            }
        }
    }

    fn mem_ops(&self, stream: Handle, ops: &[MemOp]) -> Result<()> {
        let mut state = self.shared.lock();
        let (key, _) = state.streams.open(stream)?;
        let words = Words::new(memory(&mut state)?, ops, !self.shared.config.own_process)?;
        if let Some(checker) = &self.shared.checker {
            ops.iter().for_each(|op| checker.written(Range { base: op.addr, size: op.width() }));
        }
        self.shared.enqueue(state, key, Work::Words(Box::new(words)), &[]);
        Ok(())
    }

    fn library_version(&self, ordinal: Ordinal, library: u32) -> Result<u32> {
        if ordinal >= self.shared.config.devices {
            return Err(Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")));
        }
        self.libraries()?.version(library)
    }

    fn stream_create(&self, ordinal: Ordinal, stream: Handle, blocking: bool, priority: i32) -> Result<()> {
        self.shared.lock().streams.create(ordinal, stream, blocking, priority)
    }

    fn stream_destroy(&self, stream: Handle) -> Result<()> {
        self.shared.lock().streams.destroy(stream)
    }

    fn stream_wait_event(&self, stream: Handle, event: Handle) -> Result<()> {
        let mut state = self.shared.lock();
        let (key, _) = state.streams.open(stream)?;
        let event = state.streams.event(event)?;
        if let Some(point) = state.streams.recorded(&event) {
            self.shared.enqueue(state, key, Work::Wait, &[point]);
        }
        Ok(())
    }

    fn fence(&self, stream: Handle) -> Result<()> {
        let mut state = self.shared.lock();
        state.streams.open(stream)?;
        if let Some(point) = state.streams.end_of(stream)? {
            state.streams.gate(&[point]);
        }
        Ok(())
    }

    fn event_create(&self, ordinal: Ordinal, event: Handle, timing: bool) -> Result<()> {
        self.shared.lock().streams.event_create(ordinal, event, timing)
    }

    fn event_destroy(&self, event: Handle) -> Result<()> {
        self.shared.lock().streams.event_destroy(event)
    }

    fn event_record(&self, event: Handle, stream: Handle) -> Result<()> {
        let mut state = self.shared.lock();
        let (key, ordinal) = state.streams.open(stream)?;
        let event = state.streams.event(event)?;
        if event.ordinal != ordinal {
            return Err(Error::new(Code::InvalidHandle, "The event and the stream are of different devices"));
        }
        self.shared.enqueue(state, key, Work::Record(event), &[]);
        Ok(())
    }

    fn event_elapsed(&self, start: Handle, end: Handle) -> Result<f32> {
        self.shared.lock().streams.elapsed(start, end)
    }

    fn synchronize(&self, target: Target, done: Done) {
        let mut actions = Actions::default();
        let mut state = self.shared.lock();
        match self.points(&state, target) {
            Ok((points, ordinal)) => {
                state.streams.wait(&points, ordinal, done, &mut actions);
                drop(state);
                self.shared.act(actions);
            }
            Err(error) => {
                drop(state);
                done(Err(error));
            }
        }
    }

    fn synchronize_blocking(&self, target: Target) -> Result<()> {
        let (send, receive) = mpsc::sync_channel(1);
        self.synchronize(target, Box::new(move |result| drop(send.send(result))));
        wait_for(&receive)
    }

    fn query(&self, target: Target) -> Result<bool> {
        let mut state = self.shared.lock();
        let (points, ordinal) = self.points(&state, target)?;
        state.streams.check(ordinal)?;
        Ok(points.into_iter().all(|point| state.streams.reached(point)))
    }

    fn host_func(&self, stream: Handle, id: u64) -> Result<()> {
        self.push(stream, Work::HostFunc(id), &[])
    }

    fn host_func_done(&self, id: u64) -> Result<()> {
        let mut actions = Actions::default();
        let mut state = self.shared.lock();
        let known = state.streams.function_done(id, &mut actions);
        self.shared.settle(&mut state);
        self.shared.call_workers(&mut state);
        drop(state);
        self.shared.act(actions);
        if known { Ok(()) } else { invalid(format!("No host function {id} is running")) }
    }

    fn invalidate_shared(&self) -> Result<()> {
        self.shared.runtime()?.mirror.invalidate();
        Ok(())
    }

    fn collect_shared_writes(&self, sink: &mut dyn FnMut(u64, &[u8])) {
        if let Ok(runtime) = self.shared.runtime() {
            runtime.mirror.collect(sink);
        }
    }

    fn set_limit(&self, ordinal: Ordinal, limit: Limit, value: u64) -> Result<()> {
        let runtime = self.shared.runtime()?;
        let mut state = self.shared.lock();
        state.streams.check(ordinal)?;
        match limit {
            Limit::StackSize if value > MAX_STACK => {
                invalid(format!("A device thread's stack cannot have {value} bytes"))
            }
            Limit::StackSize => {
                self.shared.loaded.lock().stack[ordinal as usize] = value.next_multiple_of(16);
                Ok(())
            }
            // Text is handed on before the buffer could be full.
            Limit::PrintfFifoSize => Ok(()),
            Limit::MallocHeapSize => runtime.heaps[ordinal as usize].set_limit(value),
        }
    }

    fn reset(&self, ordinal: Ordinal) -> Result<()> {
        if ordinal >= self.shared.config.devices {
            return Err(Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")));
        }
        self.shared.abandon(ordinal);
        let mut state = self.shared.wait_until_idle(ordinal);
        {
            let mut loaded = self.shared.loaded.lock();
            let gone = loaded.modules.extract_if(|_, module| module.ordinal == ordinal);
            gone.for_each(|(_, module)| module.unload());
            loaded.stack[ordinal as usize] = STACK;
        }
        let after = state.streams.ends(None);
        if let Some(memory) = state.memory.as_mut() {
            for addr in memory.of(ordinal) {
                // It is there: the table just said so.
                let _ = memory.release(ordinal, addr, |_| true, after.clone(), after.clone());
            }
        }
        self.shared.settle(&mut state);
        if let Ok(runtime) = self.shared.runtime() {
            runtime.heaps[ordinal as usize].reset();
        }
        state.streams.reset(ordinal);
        Ok(())
    }

    fn wants_memory_notes(&self) -> bool {
        self.shared.checker.is_some() || self.shared.profiler.is_some()
    }

    fn note_memory(&self, note: MemoryNote, done: Done) {
        self.take_note(note, done);
    }

    fn counters(&self) -> Counters {
        self.shared.counters()
    }
}

/// The kernels of a module that could not be placed.
struct NoKernels;

impl super::modules::Kernels for NoKernels {
    fn kernel(&self, _index: u32) -> Result<Arc<crate::abi::Kernel>> {
        Err(Error::new(Code::NotFound, "The module was not loaded"))
    }
}
