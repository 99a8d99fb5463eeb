//! [`Device`], call by call.

use super::Remote;
use super::chunks::chunks;
use super::convert;
use super::direct;
use super::incoming::{CHECKED_FROM, Pending, Waiter};
use super::outgoing::{INLINE_BYTES, Payload, cut_image, encode_short};
use super::quiet;
use rgpu_device::telemetry::{Group, Telemetry};
use rgpu_device::tensor_map::{self, TENSOR_MAP_BYTES};
use rgpu_device::{
    AddressPlan, Code, CopySink, Counters, Device, DeviceInfo, Done, Error, Handle, HostData, HostSource,
    HostTarget, Launch, LibraryCall, Limit, MemOp, MemoryInfo, MemoryKind, MemoryNote, MemoryToken,
    ModuleInfo, Ordinal, PreparedLaunch, Range, Region, RegionCursor, Result, Target,
};
use rgpu_protocol::calls::{self as wire, Call};
use rgpu_protocol::frame::{HEADER_BYTES, MAX_BULK, runs};
use rgpu_protocol::wire::Wire;
use std::sync::Arc;

impl Remote {
    fn check_target(&self, target: Target) -> Result<()> {
        match target {
            Target::Device(ordinal) => self.link.errors.check(ordinal),
            Target::Stream(stream) => self.link.errors.check_stream(stream),
            Target::Event(_) => Ok(()),
        }
    }

    /// Lets an outcome that is good so far bring the pending error.
    fn settle<T>(&self, result: Result<T>) -> Result<T> {
        let value = result?;
        self.link.errors.take_pending()?;
        Ok(value)
    }

    /// A stream waits for something that may come with a later call, of whatever thread: until it has gone on, no thread waits
    /// before it sends.
    fn waits_for_more(&self, stream: Handle) -> Result<()> {
        self.link.attention_begins();
        self.link.bulk.host_func_begins();
        let link = self.link.clone();
        let done: Done = Box::new(move |_| {
            link.bulk.host_func_ends();
            link.attention_ends();
        });
        let call = wire::Synchronize { target: convert::target(Target::Stream(stream)) };
        self.link.ask_later(&call, Pending::Done(done)).map(drop)
    }

    /// Fails where the server knows no mathematical libraries.
    fn check_libraries(&self) -> Result<()> {
        if self.minor >= wire::Library::SINCE {
            return Ok(());
        }
        Err(Error::new(Code::NotSupported, "The server is too old for mathematical libraries"))
    }

    /// Fails where the server lends no memory.
    fn check_lending(&self) -> Result<()> {
        if self.minor >= wire::MemoryExport::SINCE {
            return Ok(());
        }
        let text = "The server is too old to share memory between processes (cuIpcGetMemHandle and its like)";
        Err(Error::new(Code::NotSupported, text))
    }

    /// Whether the device must be told where each byte lies in the host's memory.
    fn is_shared(&self, host_addr: u64) -> bool {
        self.plan.shared.contains(host_addr, 1)
    }

    fn send(&self, stream: Handle, dst: Region, src: Region, host_addr: u64) -> Result<()> {
        // What the device is told about host memory is an address alone, so each part must be one run.
        let shared = self.is_shared(host_addr);
        let parts = chunks(dst, src, shared);
        // Of a copy that is refused nothing is carried out, but the server knows parts alone.
        let whole = Range { base: dst.addr, size: dst.extent().unwrap_or(u64::MAX) };
        let own = self.plan.devices.iter().any(|range| range.overlaps(whole));
        if parts.len() > 1 && own && !self.credit.holds_for_sure(&dst) && !self.imported.holds(&dst) {
            let text = format!("The destination of a copy is not all allocated: {dst:?}");
            return Err(Error::new(Code::InvalidValue, text));
        }
        for (to, from) in parts {
            let at = host_addr.wrapping_add(from.addr.wrapping_sub(src.addr));
            let payload = Payload::Host(RegionCursor::new(from));
            let bytes = to.bytes().unwrap_or(0);
            self.link.admit(stream, bytes)?;
            self.link.admit_call(stream)?;
            let result = self.link.copy_to_device(stream, convert::region(to), at, payload);
            self.link.sent(stream, bytes).and(result)?;
        }
        Ok(())
    }

    /// Copies this process's memory straight into the device's, if client and server share that; false where it must be
    /// sent. With `now`, only if nothing is to be waited for.
    fn send_directly(&self, stream: Handle, dst: Region, src: Region, now: bool) -> Result<bool> {
        let bytes = dst.bytes().unwrap_or(0);
        // What is not allocated is refused by the server.
        // The server is to know what is written, where it looks whether it was.
        let unseen = self.check.is_none_or(|check| !check.initialised);
        if bytes < direct::SEND_FROM || !unseen || !self.credit.holds(&dst) {
            return Ok(false);
        }
        let Some(to) = self.direct.place(&dst) else { return Ok(false) };
        if !direct::is_readable(&RegionCursor::new(src)) {
            let text = "copy_to_device was given host memory that cannot be read";
            return Err(Error::new(Code::InvalidValue, text));
        }
        // SAFETY: one is the device's memory, the other was found readable.
        unsafe { self.link.copy_directly(&self.direct, stream, (to, src), now, false) }
    }

    /// Copies the device's memory straight into this process's, once the stream has got there, if client and server share
    /// it; false where it must be asked for.
    fn receive_directly(&self, stream: Handle, src: Region, dst: Region) -> Result<bool> {
        if src.bytes().unwrap_or(0) < direct::RECEIVE_FROM || !self.credit.holds(&src) {
            return Ok(false);
        }
        let Some(from) = self.direct.place(&src) else { return Ok(false) };
        if !direct::is_writable(dst) {
            let text = format!("{:#x} is not writable host memory", dst.addr);
            return Err(Error::new(Code::InvalidValue, text));
        }
        // SAFETY: one is the device's memory, the other was found writable.
        unsafe { self.link.copy_directly(&self.direct, stream, (dst, from), false, self.is_shared(dst.addr)) }
    }

    /// Copies a few bytes of the device's memory that lies in this process, if the stream is known to be done; false where
    /// it must be asked.
    fn receive_quietly(&self, stream: Handle, src: Region, dst: Region) -> bool {
        let bytes = src.width;
        if bytes >= quiet::COPY_BELOW || !src.is_run() || self.is_shared(dst.addr) {
            return false;
        }
        let Some(from) = self.direct.place_short(&src).filter(|_| self.credit.holds(&src)) else {
            return false;
        };
        // What is wrong with longer ones is found out by who receives them.
        if bytes >= CHECKED_FROM as u64 && !direct::is_writable(dst) {
            return false;
        }
        // SAFETY: one is the device's memory; the program vouches for the other, or it was found writable.
        unsafe { self.link.copy_quietly(stream, dst, from) }
    }

    /// Copies one run, or a region of memory that is not shared, into place; and waits.
    fn receive(&self, stream: Handle, src: Region, dst: Region) -> Result<()> {
        let waiter = Arc::new(Waiter::default());
        let call = wire::CopyFromDevice { stream, src: convert::region(src), host_addr: dst.addr };
        let pending = Pending::CopyFor(RegionCursor::new(dst), waiter.clone());
        let work = self.link.ask_with(&call, pending, &waiter)?;
        self.link.is_done(Target::Stream(stream), work);
        Ok(())
    }
}

/// Bytes of a brief launch, without its parameters.
const BRIEF: usize = HEADER_BYTES + <wire::LaunchBrief as Wire>::MIN_BYTES;

/// Of a prepared launch's form, so much is used.
pub(crate) const PREPARED_BYTES: usize = BRIEF;

/// The stream of a prepared launch.
#[inline]
pub(super) fn stream_of(prepared: &PreparedLaunch) -> Handle {
    let form = &prepared.form;
    let bytes = std::array::from_fn(|i| form[HEADER_BYTES + i]);
    u32::from_le_bytes(bytes).into()
}

/// A launch in its brief form, if it fits.
#[inline]
fn brief(launch: &Launch<'_>) -> Option<wire::LaunchBrief> {
    let Launch { stream, module, function, grid, block, shared_bytes, cooperative, cluster, .. } = *launch;
    let [x, y, z] = block;
    if cooperative || cluster != [0; 3] || (stream | module) >> 32 != 0 || (x | y | z) >> 16 != 0 {
        return None;
    }
    let block = block.map(|n| n as u16);
    Some(wire::LaunchBrief {
        stream: stream as u32,
        module: module as u32,
        function,
        grid,
        block,
        shared_bytes,
    })
}

impl Device for Remote {
    fn infos(&self) -> Vec<DeviceInfo> {
        self.infos.clone()
    }

    fn shares_memory(&self) -> bool {
        self.one_memory.is_some()
    }

    /// The plan was agreed when connecting; the proposal is ignored.
    fn reserve(&self, _proposal: Range) -> Result<AddressPlan> {
        Ok(self.plan.clone())
    }

    fn mem_alloc(&self, ordinal: Ordinal, addr: u64, size: u64, kind: MemoryKind) -> Result<()> {
        self.link.errors.check(ordinal)?;
        if kind == MemoryKind::Direct && self.one_memory.is_none() {
            let text = "Direct memory needs host and device on one machine, and a server that shares it; use mirrored memory";
            return Err(Error::new(Code::NotSupported, text));
        }
        self.plan.check_place(ordinal, addr, size, kind)?;
        self.credit.spend(&self.link, ordinal, addr, size, || {
            if let Some(memory) = self.one_memory.as_ref().filter(|_| kind == MemoryKind::Direct) {
                memory.open(ordinal, addr, size)?;
            }
            self.link.mem_alloc(ordinal, addr, size, kind as u32)
        })?;
        if kind == MemoryKind::Mirrored {
            self.mirrored.lock().insert(addr, ordinal);
            // SAFETY: the program's copy stays mapped at this address until the memory is freed.
            unsafe { self.link.transport.announce(addr, size) };
            self.link.attention_begins();
        }
        Ok(())
    }

    fn mem_free(&self, ordinal: Ordinal, addr: u64, stream: Option<Handle>) -> Result<()> {
        self.link.errors.check(ordinal)?;
        if self.imported.remove(addr) {
            return self.link.mem_free(ordinal, addr, stream);
        }
        let free = || {
            if let Some(memory) = &self.one_memory {
                memory.close(addr);
            }
            self.link.mem_free(ordinal, addr, stream)
        };
        if !self.credit.regain(&self.link, addr, free)? {
            return Err(Error::new(Code::InvalidValue, format!("No allocation starts at {addr:#x}")));
        }
        if self.mirrored.lock().remove(&addr).is_some() {
            self.link.transport.retire(addr);
            self.link.attention_ends();
        }
        Ok(())
    }

    fn export_memory(&self, ordinal: Ordinal, range: Range) -> Result<MemoryToken> {
        self.check_lending()?;
        self.link.errors.check(ordinal)?;
        self.link.memory_export(ordinal, range.base, range.size).map(MemoryToken)
    }

    fn withdraw_memory(&self, token: &MemoryToken) -> Result<()> {
        self.check_lending()?;
        self.link.memory_withdraw(token.0)
    }

    fn import_memory(&self, ordinal: Ordinal, place: Range, token: &MemoryToken) -> Result<()> {
        self.check_lending()?;
        self.link.errors.check(ordinal)?;
        self.plan.check_place(ordinal, place.base, place.size, MemoryKind::Device)?;
        self.link.memory_import(ordinal, place.base, place.size, token.0)?;
        self.imported.insert(ordinal, place);
        Ok(())
    }

    fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo> {
        self.link.errors.check(ordinal)?;
        let info = self.link.mem_info(ordinal)?;
        Ok(MemoryInfo { free: info.free, total: info.total })
    }

    fn tensor_map(&self, ordinal: Ordinal, map: &[u8; TENSOR_MAP_BYTES]) -> Result<[u8; TENSOR_MAP_BYTES]> {
        self.link.errors.check(ordinal)?;
        if self.minor < wire::TensorMap::SINCE {
            return Err(Error::new(Code::NotSupported, "the server is older than tensor maps: update it"));
        }
        let made = self.link.tensor_map(ordinal, tensor_map::words_of(map))?;
        Ok(tensor_map::bytes_of(&made.map))
    }

    fn memset(&self, stream: Handle, region: Region, value: u32, element: u32) -> Result<()> {
        self.link.errors.check_stream(stream)?;
        region.check_fill(element)?;
        self.link.admit_call(stream)?;
        self.link.memset(stream, convert::region(region), value, element)
    }

    /// The bytes are read before this returns, borrowed ones too.
    fn copy_to_device(&self, stream: Handle, dst: Region, host_addr: u64, data: HostData) -> Result<()> {
        self.link.errors.check_stream(stream)?;
        data.check(&dst)?;
        match data {
            HostData::Owned(bytes) => {
                let packed = Region {
                    addr: bytes.as_ptr() as u64,
                    row_pitch: dst.width,
                    slice_pitch: dst.width * dst.height,
                    ..dst
                };
                self.send(stream, dst, packed, host_addr)
            }
            HostData::Borrowed(src) => {
                let src = src.region();
                if self.send_directly(stream, dst, src, true)? {
                    return Ok(());
                }
                self.send(stream, dst, src, host_addr)
            }
        }
    }

    fn copy_to_device_blocking(
        &self,
        stream: Handle,
        dst: Region,
        host_addr: u64,
        src: HostSource,
    ) -> Result<()> {
        self.link.errors.check_stream(stream)?;
        dst.check_copy(&src.region())?;
        if self.send_directly(stream, dst, src.region(), false)? {
            return self.settle(Ok(()));
        }
        self.copy_to_device(stream, dst, host_addr, HostData::Borrowed(src))
    }

    fn copy_from_device(&self, stream: Handle, src: Region, host_addr: u64, sink: Box<dyn CopySink>) {
        if let Err(e) = self.link.errors.check_stream(stream) {
            return sink.done(Err(e));
        }
        self.link.attention_begins();
        let sink = Box::new(Watched { sink, link: self.link.clone() });
        let call = wire::CopyFromDevice { stream, src: convert::region(src), host_addr };
        // A failure has completed the sink.
        let _ = self.link.ask_later(&call, Pending::Copy(sink));
    }

    fn copy_from_device_into(&self, stream: Handle, src: Region, dst: HostTarget, done: Done) {
        let dst = dst.region();
        if let Err(e) = self.link.errors.check_stream(stream).and_then(|()| dst.check_copy(&src)) {
            return done(Err(e));
        }
        let parts = if self.is_shared(dst.addr) { chunks(src, dst, true) } else { vec![(src, dst)] };
        let last = parts.len().saturating_sub(1);
        if parts.is_empty() {
            return done(Ok(()));
        }
        // Parts finish in order, because they are on one stream; the first failure is what counts.
        let failed = Arc::new(parking_lot::Mutex::new(None));
        let mut done = Some(done);
        for (i, (src, dst)) in parts.into_iter().enumerate() {
            let (link, failed) = (self.link.clone(), failed.clone());
            let done = if i == last { done.take() } else { None };
            self.link.attention_begins();
            let part_done: Done = Box::new(move |result| {
                link.attention_ends();
                let mut failed = failed.lock();
                if let Err(e) = result {
                    failed.get_or_insert(e);
                }
                if let Some(done) = done {
                    let outcome = match failed.take() {
                        Some(e) => Err(e),
                        None => link.errors.take_pending(),
                    };
                    drop(failed);
                    done(outcome);
                }
            });
            let call = wire::CopyFromDevice { stream, src: convert::region(src), host_addr: dst.addr };
            // A failure has completed the part.
            let _ = self.link.ask_later(&call, Pending::CopyInto(RegionCursor::new(dst), part_done));
        }
    }

    fn copy_from_device_blocking(&self, stream: Handle, src: Region, dst: HostTarget) -> Result<()> {
        let dst = dst.region();
        self.link.errors.check_stream(stream)?;
        dst.check_copy(&src)?;
        if self.receive_quietly(stream, src, dst) || self.receive_directly(stream, src, dst)? {
            return self.settle(Ok(()));
        }
        if self.is_shared(dst.addr) && !dst.is_contiguous() {
            for (src, dst) in chunks(src, dst, true) {
                self.receive(stream, src, dst)?;
            }
            return self.settle(Ok(()));
        }
        let result = self.receive(stream, src, dst);
        self.settle(result)
    }

    fn copy_on_device(&self, stream: Handle, dst: Region, src: Region) -> Result<()> {
        self.link.errors.check_stream(stream)?;
        dst.check_copy(&src)?;
        self.link.admit_call(stream)?;
        self.link.copy_on_device(stream, convert::region(dst), convert::region(src))
    }

    fn module_load(
        &self,
        ordinal: Ordinal,
        module: Handle,
        image: &[u8],
        managed: &[(String, u64)],
    ) -> Result<ModuleInfo> {
        self.link.errors.check(ordinal)?;
        let (ahead, last) = cut_image(image);
        for part in ahead.chunks(MAX_BULK) {
            self.link.module_data(module, Payload::Bytes(part))?;
        }
        let managed =
            managed.iter().map(|(name, addr)| wire::Managed { name: name.clone(), addr: *addr }).collect();
        let info = self.link.module_load(ordinal, module, managed, Payload::Bytes(last))?;
        self.module_is_known(image);
        self.contents(module, info)
    }

    fn module_begin(&self, ordinal: Ordinal, module: Handle, image: &[u8], unproven: bool) -> Result<bool> {
        self.begin_module(ordinal, module, image, unproven)
    }

    fn module_function(&self, module: Handle, number: u32, name: &str) -> Result<()> {
        self.link.module_function(module, number, name.to_owned())
    }

    fn module_info(&self, module: Handle) -> Result<ModuleInfo> {
        self.ask_about_module(module)
    }

    fn module_unload(&self, module: Handle) -> Result<()> {
        self.link.module_unload(module)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.link.errors.check_stream(launch.stream)?;
        self.link.admit_call(launch.stream)?;
        if self.minor >= wire::LaunchBrief::SINCE
            && let Some(brief) = brief(&launch)
        {
            return self.link.post(&brief, Payload::Bytes(launch.params));
        }
        if launch.cluster != [0; 3] {
            if self.minor < wire::LaunchCluster::SINCE {
                let text =
                    "The server is of an older version of rgpu, which has no launches in clusters of blocks";
                return Err(Error::new(Code::NotSupported, text));
            }
            return self.link.launch_cluster(
                launch.stream,
                launch.module,
                launch.function,
                launch.grid,
                launch.block,
                launch.shared_bytes,
                launch.cooperative,
                launch.cluster,
                Payload::Bytes(launch.params),
            );
        }
        self.link.launch(
            launch.stream,
            launch.module,
            launch.function,
            launch.grid,
            launch.block,
            launch.shared_bytes,
            launch.cooperative,
            Payload::Bytes(launch.params),
        )
    }

    fn prepare_launch(&self, launch: Launch<'_>) -> Option<PreparedLaunch> {
        if self.minor < wire::LaunchBrief::SINCE || launch.params.len() > INLINE_BYTES {
            return None;
        }
        let frame = encode_short(&brief(&launch)?, 0, launch.params.len());
        let mut form = [0; _];
        form[..BRIEF].copy_from_slice(&frame[..BRIEF]);
        Some(PreparedLaunch { form })
    }

    #[inline]
    fn launch_prepared(&self, prepared: &PreparedLaunch, params: &[u8]) -> Result<()> {
        let stream = stream_of(prepared);
        if self.link.errors.is_any() {
            self.link.errors.check_stream(stream)?;
        }
        self.link.post_encoded::<wire::LaunchBrief, BRIEF>(stream, &prepared.form, params)
    }

    fn library(&self, call: LibraryCall<'_>) -> Result<()> {
        self.check_libraries()?;
        if call.params.len() > MAX_BULK {
            return Err(Error::new(Code::InvalidValue, "The arguments of the operation are too long"));
        }
        self.link.errors.check_stream(call.stream)?;
        self.link.admit_call(call.stream)?;
        self.link.library(call.stream, call.operation, Payload::Bytes(call.params))
    }

    fn mem_ops(&self, stream: Handle, ops: &[MemOp]) -> Result<()> {
        if self.minor < wire::MemOps::SINCE {
            let text =
                "The server is too old for streams' memory operations (cuStreamWaitValue and its like)";
            return Err(Error::new(Code::NotSupported, text));
        }
        if ops.len() > MemOp::MOST {
            let text = format!("{} memory operations are more than {} at once", ops.len(), MemOp::MOST);
            return Err(Error::new(Code::InvalidValue, text));
        }
        self.link.errors.check_stream(stream)?;
        self.link.admit_call(stream)?;
        self.link.mem_ops(stream, ops.iter().map(convert::mem_op).collect())?;
        if ops.iter().any(MemOp::waits) { self.waits_for_more(stream) } else { Ok(()) }
    }

    fn library_version(&self, ordinal: Ordinal, library: u32) -> Result<u32> {
        self.check_libraries()?;
        let found = self.link.library_version(ordinal, library)?;
        if found.version == 0 { Err(Error::new(Code::NotSupported, found.why)) } else { Ok(found.version) }
    }

    fn stream_create(&self, ordinal: Ordinal, stream: Handle, blocking: bool, priority: i32) -> Result<()> {
        self.link.errors.check(ordinal)?;
        self.link.errors.stream_created(stream, ordinal);
        self.link.stream_create(ordinal, stream, blocking, priority)
    }

    fn stream_destroy(&self, stream: Handle) -> Result<()> {
        self.link.errors.check_stream(stream)?;
        self.link.errors.stream_destroyed(stream);
        self.link.bulk.forget(stream);
        self.link.forget_calls(stream)?;
        self.link.stream_destroy(stream)
    }

    fn stream_wait_event(&self, stream: Handle, event: Handle) -> Result<()> {
        self.link.errors.check_stream(stream)?;
        self.link.admit_call(stream)?;
        self.link.stream_wait_event(stream, event)
    }

    fn fence(&self, stream: Handle) -> Result<()> {
        self.link.errors.check_stream(stream)?;
        self.link.admit_call(stream)?;
        self.link.fence(stream)
    }

    fn event_create(&self, ordinal: Ordinal, event: Handle, timing: bool) -> Result<()> {
        self.link.errors.check(ordinal)?;
        self.link.event_create(ordinal, event, timing)
    }

    fn event_destroy(&self, event: Handle) -> Result<()> {
        self.link.event_destroy(event)
    }

    fn event_record(&self, event: Handle, stream: Handle) -> Result<()> {
        self.link.errors.check_stream(stream)?;
        self.link.admit_call(stream)?;
        self.link.event_record(event, stream)
    }

    fn event_elapsed(&self, start: Handle, end: Handle) -> Result<f32> {
        self.link.event_elapsed(start, end)
    }

    fn synchronize(&self, target: Target, done: Done) {
        if let Err(e) = self.check_target(target) {
            return done(Err(e));
        }
        self.link.attention_begins();
        let link = self.link.clone();
        let done: Done = Box::new(move |result| {
            link.attention_ends();
            done(result.and_then(|()| link.errors.take_pending()));
        });
        let call = wire::Synchronize { target: convert::target(target) };
        // A failure has completed the callback.
        let _ = self.link.ask_later(&call, Pending::Done(done));
    }

    fn synchronize_blocking(&self, target: Target) -> Result<()> {
        self.check_target(target)?;
        if self.link.is_quiet(target) {
            return self.settle(Ok(()));
        }
        let call = wire::Synchronize { target: convert::target(target) };
        let result = self.link.ask_after(&call, Payload::NONE);
        self.settle(result.map(|((), work)| self.link.is_done(target, work)))
    }

    fn query(&self, target: Target) -> Result<bool> {
        self.check_target(target)?;
        if self.link.is_quiet(target) {
            return self.settle(Ok(true));
        }
        let call = wire::Query { target: convert::target(target) };
        let result = self.link.ask_after(&call, Payload::NONE);
        self.settle(result.map(|(done, work)| {
            if done {
                self.link.is_done(target, work);
            }
            done
        }))
    }

    fn host_func(&self, stream: Handle, id: u64) -> Result<()> {
        self.link.errors.check_stream(stream)?;
        self.link.attention_begins();
        self.link.bulk.host_func_begins();
        let result = self.link.host_func(stream, id).and_then(|()| self.link.flush());
        if result.is_err() {
            self.link.bulk.host_func_ends();
            self.link.attention_ends();
        }
        result
    }

    fn host_func_done(&self, id: u64) -> Result<()> {
        self.link.bulk.host_func_ends();
        self.link.attention_ends();
        self.link.host_func_done(id).and_then(|()| self.link.flush())
    }

    fn invalidate_shared(&self) -> Result<()> {
        self.link.invalidate_shared()
    }

    /// Hands out what came with answers so far; see [`Remote::pull_shared_writes`].
    fn collect_shared_writes(&self, sink: &mut dyn FnMut(u64, &[u8])) {
        // The lock is held meanwhile, so that a second thread returns only when the bytes are in place.
        for body in self.link.shared_writes.lock().drain(..) {
            runs(&body).flatten().for_each(|(addr, bytes)| sink(addr, bytes));
        }
    }

    fn set_limit(&self, ordinal: Ordinal, limit: Limit, value: u64) -> Result<()> {
        self.link.errors.check(ordinal)?;
        self.link.set_limit(ordinal, limit as u32, value)
    }

    fn reset(&self, ordinal: Ordinal) -> Result<()> {
        self.link.reset(ordinal)?;
        self.link.reset_calls(ordinal);
        self.link.errors.reset(ordinal);
        self.link.bulk.forget_all();
        self.credit.reset(ordinal);
        self.imported.forget(ordinal);
        if let Some(memory) = &self.one_memory {
            memory.close_all(ordinal);
        }
        self.mirrored.lock().retain(|addr, o| {
            let gone = *o == ordinal;
            if gone {
                self.link.transport.retire(*addr);
                self.link.attention_ends();
            }
            !gone
        });
        Ok(())
    }

    fn wants_memory_notes(&self) -> bool {
        self.check.is_some()
    }

    fn note_memory(&self, note: MemoryNote, done: Done) {
        self.tell_of_memory(&note, done);
    }

    fn note_memory_blocking(&self, note: MemoryNote) -> Result<()> {
        self.tell_of_memory_and_wait(&note)
    }

    fn counters(&self) -> Counters {
        let counted = self.link.counters().unwrap_or_default();
        Counters { launches: counted.launches, busy_ns: counted.busy_ns }
    }

    fn telemetry(&self, ordinal: Ordinal, group: Group) -> Result<Telemetry> {
        if self.minor < <wire::Telemetry as Call>::SINCE {
            return Err(Error::new(Code::NotSupported, "The server is too old to measure anything"));
        }
        let measured = self.link.telemetry(ordinal, group as u32)?;
        Ok(Telemetry::from_lists(measured.values, measured.texts))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.goodbye();
    }
}

/// A sink during whose life somebody must read.
struct Watched {
    sink: Box<dyn CopySink>,
    link: Arc<super::link::Link>,
}

impl CopySink for Watched {
    fn chunk(&mut self, pieces: &[&[u8]]) {
        self.sink.chunk(pieces);
    }

    fn done(self: Box<Self>, result: Result<()>) {
        self.link.attention_ends();
        self.sink.done(result);
    }
}
