//! [`Device`], call by call: each goes to the server that it concerns.

use std::sync::atomic::Ordering::Relaxed;

use rgpu_device::telemetry::{Group, Telemetry};
use rgpu_device::tensor_map::TENSOR_MAP_BYTES;
use rgpu_device::{
    AddressPlan, Code, CopySink, Counters, Device, DeviceInfo, Done, Error, Handle, HostData, HostSource,
    HostTarget, Launch, LibraryCall, Limit, MemOp, MemoryInfo, MemoryKind, MemoryNote, ModuleInfo, Ordinal,
    PreparedLaunch, Range, Region, Result, Target,
};

use super::Several;
use crate::remote::device_impl::PREPARED_BYTES;

/// Where in a prepared launch its server stands, behind what the connection needs.
const SERVER: usize = 63;
const _: () = assert!(PREPARED_BYTES <= SERVER);

impl Several {
    /// A target's server, and how that knows it.
    fn target(&self, target: Target) -> Result<(usize, Target)> {
        Ok(match target {
            Target::Device(ordinal) => {
                let spot = self.spot(ordinal)?;
                (spot.server, Target::Device(spot.local))
            }
            Target::Stream(stream) => {
                let (server, stream) = self.stream(stream)?;
                (server, Target::Stream(stream))
            }
            Target::Event(event) => (self.event(event)?, Target::Event(event)),
        })
    }

    /// Allocates mirrored memory with every server. It counts as memory of the ordinal, and of the first device of each
    /// other server.
    fn allocate_everywhere(&self, ordinal: Ordinal, addr: u64, size: u64) -> Result<()> {
        let home = self.spot(ordinal)?;
        for (index, server) in self.servers.iter().enumerate() {
            let local = if index == home.server { home.local } else { 0 };
            if let Err(error) = server.remote.mem_alloc(local, addr, size, MemoryKind::Mirrored) {
                for (before, server) in self.servers.iter().enumerate().take(index) {
                    let local = if before == home.server { home.local } else { 0 };
                    let _ = server.remote.mem_free(local, addr, None);
                }
                return Err(error);
            }
        }
        self.mirrored.lock().insert(addr, (ordinal, size));
        self.gates.mirrors.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Frees what [`Several::allocate_everywhere`] has allocated; with `but`, that server has freed it already.
    fn free_everywhere(&self, ordinal: Ordinal, addr: u64, but: Option<usize>) -> Result<()> {
        let home = self.spot(ordinal)?;
        self.gates.mirrors.fetch_sub(1, Relaxed);
        let mut result = Ok(());
        for (index, server) in self.servers.iter().enumerate().filter(|(index, _)| Some(*index) != but) {
            let local = if index == home.server { home.local } else { 0 };
            result = result.and(server.remote.mem_free(local, addr, None));
        }
        result
    }
}

impl Device for Several {
    fn infos(&self) -> Vec<DeviceInfo> {
        self.infos.clone()
    }

    /// The plan was agreed when connecting; the proposal is ignored.
    fn reserve(&self, _proposal: Range) -> Result<AddressPlan> {
        Ok(self.plan.clone())
    }

    fn mem_alloc(&self, ordinal: Ordinal, addr: u64, size: u64, kind: MemoryKind) -> Result<()> {
        if kind == MemoryKind::Mirrored {
            return self.allocate_everywhere(ordinal, addr, size);
        }
        let (remote, local) = self.at(ordinal)?;
        remote.mem_alloc(local, addr, size, kind)
    }

    fn mem_free(&self, ordinal: Ordinal, addr: u64, stream: Option<Handle>) -> Result<()> {
        self.wait_for_jobs();
        let mirrored = self.mirrored.lock().remove(&addr);
        if let Some((owner, _)) = mirrored {
            return self.free_everywhere(owner, addr, None);
        }
        let (remote, local) = self.at(ordinal)?;
        let stream = stream.map(|stream| self.stream(stream)).transpose()?.map(|(_, stream)| stream);
        remote.mem_free(local, addr, stream)
    }

    fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo> {
        let (remote, local) = self.at(ordinal)?;
        remote.mem_info(local)
    }

    fn tensor_map(&self, ordinal: Ordinal, map: &[u8; TENSOR_MAP_BYTES]) -> Result<[u8; TENSOR_MAP_BYTES]> {
        let (remote, local) = self.at(ordinal)?;
        remote.tensor_map(local, map)
    }

    fn memset(&self, stream: Handle, region: Region, value: u32, element: u32) -> Result<()> {
        self.fill(stream, region, value, element)
    }

    fn copy_to_device(&self, stream: Handle, dst: Region, host_addr: u64, data: HostData) -> Result<()> {
        self.send(stream, dst, host_addr, data, false)
    }

    fn copy_to_device_blocking(
        &self,
        stream: Handle,
        dst: Region,
        host_addr: u64,
        src: HostSource,
    ) -> Result<()> {
        self.send(stream, dst, host_addr, HostData::Borrowed(src), true)
    }

    fn copy_from_device(&self, stream: Handle, src: Region, host_addr: u64, sink: Box<dyn CopySink>) {
        match self.stream(stream) {
            Ok((server, local)) if self.place(&src).is_none_or(|spot| spot.server == server) => {
                self.remote(server).copy_from_device(local, src, host_addr, sink);
            }
            Ok(_) => {
                let text = "Memory of another server than the stream's is copied to addresses alone";
                sink.done(Err(Error::new(Code::NotSupported, text)));
            }
            Err(error) => sink.done(Err(error)),
        }
    }

    fn copy_from_device_into(&self, stream: Handle, src: Region, dst: HostTarget, done: Done) {
        let (server, local) = match self.stream(stream) {
            Ok(found) => found,
            Err(error) => return done(Err(error)),
        };
        match self.place(&src).filter(|spot| spot.server != server) {
            None => self.remote(server).copy_from_device_into(local, src, dst, done),
            Some(spot) => self.receive_later(stream, (spot, src), dst, done),
        }
    }

    fn copy_from_device_blocking(&self, stream: Handle, src: Region, dst: HostTarget) -> Result<()> {
        let (server, local) = self.stream(stream)?;
        match self.place(&src).filter(|spot| spot.server != server) {
            None => {
                let result = self.remote(server).copy_from_device_blocking(local, src, dst);
                self.settle(result)
            }
            Some(spot) => self.receive(stream, (spot, src), dst),
        }
    }

    fn copy_on_device(&self, stream: Handle, dst: Region, src: Region) -> Result<()> {
        self.copy(stream, dst, src)
    }

    fn module_load(
        &self,
        ordinal: Ordinal,
        module: Handle,
        image: &[u8],
        managed: &[(String, u64)],
    ) -> Result<ModuleInfo> {
        let spot = self.spot(ordinal)?;
        let info = self.remote(spot.server).module_load(spot.local, module, image, managed)?;
        self.modules.insert(module, ordinal);
        self.note_variables(spot.server, module, &info);
        Ok(info)
    }

    fn module_begin(&self, ordinal: Ordinal, module: Handle, image: &[u8], unproven: bool) -> Result<bool> {
        let (remote, local) = self.at(ordinal)?;
        let begun = remote.module_begin(local, module, image, unproven)?;
        if begun {
            self.modules.insert(module, ordinal);
        }
        Ok(begun)
    }

    fn module_function(&self, module: Handle, number: u32, name: &str) -> Result<()> {
        self.module(module)?.0.module_function(module, number, name)
    }

    fn module_info(&self, module: Handle) -> Result<ModuleInfo> {
        let (remote, server) = self.module(module)?;
        let info = remote.module_info(module)?;
        self.note_variables(server, module, &info);
        Ok(info)
    }

    fn module_unload(&self, module: Handle) -> Result<()> {
        let (remote, _) = self.module(module)?;
        self.wait_for_jobs();
        self.modules.remove(module);
        self.elsewhere.write().retain(|_, (_, _, owner)| *owner != module);
        remote.module_unload(module)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        let (server, stream) = self.stream(launch.stream)?;
        self.before_looking((server, stream))?;
        self.remote(server).launch(Launch { stream, ..launch })
    }

    fn prepare_launch(&self, launch: Launch<'_>) -> Option<PreparedLaunch> {
        let (server, stream) = self.stream(launch.stream).ok()?;
        let mut prepared = self.remote(server).prepare_launch(Launch { stream, ..launch })?;
        prepared.form[SERVER] = server as u8;
        Some(prepared)
    }

    #[inline]
    fn launch_prepared(&self, prepared: &PreparedLaunch, params: &[u8]) -> Result<()> {
        let server = usize::from(prepared.form[SERVER]);
        let Some(found) = self.servers.get(server) else { return Err(Code::InvalidValue.into()) };
        if self.gates.any_at(server) {
            let stream = found.remote.stream_of(prepared);
            self.before_looking((server, stream))?;
        }
        found.remote.launch_prepared(prepared, params)
    }

    fn library(&self, call: LibraryCall<'_>) -> Result<()> {
        let (server, stream) = self.stream(call.stream)?;
        self.before_looking((server, stream))?;
        self.remote(server).library(LibraryCall { stream, ..call })
    }

    fn mem_ops(&self, stream: Handle, ops: &[MemOp]) -> Result<()> {
        let (server, stream) = self.stream(stream)?;
        let part = self.servers[server].part;
        if let Some(op) = ops.iter().find(|op| !part.contains(op.addr, op.width()) && op.width() > 0) {
            let text = format!(
                "a stream's memory operation (cuStreamWaitValue and its like) on memory of another server's GPU, at {:#x}",
                op.addr
            );
            return Err(Error::new(Code::NotSupported, text));
        }
        self.before_looking((server, stream))?;
        self.remote(server).mem_ops(stream, ops)
    }

    fn library_version(&self, ordinal: Ordinal, library: u32) -> Result<u32> {
        let (remote, local) = self.at(ordinal)?;
        remote.library_version(local, library)
    }

    fn stream_create(&self, ordinal: Ordinal, stream: Handle, blocking: bool, priority: i32) -> Result<()> {
        let (remote, local) = self.at(ordinal)?;
        remote.stream_create(local, stream, blocking, priority)?;
        self.streams.insert(stream, ordinal);
        Ok(())
    }

    fn stream_destroy(&self, stream: Handle) -> Result<()> {
        let (server, _) = self.stream(stream)?;
        self.streams.remove(stream);
        self.remote(server).stream_destroy(stream)
    }

    fn stream_wait_event(&self, stream: Handle, event: Handle) -> Result<()> {
        let (server, local) = self.stream(stream)?;
        let other = self.event(event)?;
        if server == other {
            return self.remote(server).stream_wait_event(local, event);
        }
        self.wait_for_event((server, local), event, other);
        Ok(())
    }

    fn fence(&self, stream: Handle) -> Result<()> {
        self.wait_for_jobs();
        let (server, local) = self.stream(stream)?;
        self.remote(server).fence(local)
    }

    fn event_create(&self, ordinal: Ordinal, event: Handle, timing: bool) -> Result<()> {
        let (remote, local) = self.at(ordinal)?;
        remote.event_create(local, event, timing)?;
        self.events.insert(event, ordinal);
        Ok(())
    }

    fn event_destroy(&self, event: Handle) -> Result<()> {
        let server = self.event(event)?;
        self.events.remove(event);
        self.remote(server).event_destroy(event)
    }

    fn event_record(&self, event: Handle, stream: Handle) -> Result<()> {
        let (server, local) = self.stream(stream)?;
        if self.event(event)? != server {
            return Err(Error::new(Code::InvalidHandle, "The event and the stream are on different devices"));
        }
        self.remote(server).event_record(event, local)
    }

    fn event_elapsed(&self, start: Handle, end: Handle) -> Result<f32> {
        let server = self.event(start)?;
        if self.event(end)? != server {
            return Err(Error::new(Code::InvalidHandle, "The events are on different devices"));
        }
        self.remote(server).event_elapsed(start, end)
    }

    /// Waits for meetings before it returns, if there are any.
    fn synchronize(&self, target: Target, done: Done) {
        if let Target::Device(_) = target {
            self.wait_for_jobs();
        }
        match self.target(target) {
            Ok((server, target)) => self.remote(server).synchronize(target, done),
            Err(error) => done(Err(error)),
        }
    }

    fn synchronize_blocking(&self, target: Target) -> Result<()> {
        let (server, theirs) = self.target(target)?;
        if let Target::Device(_) = target {
            // Other servers' streams may be working with this device's memory.
            self.wait_for_jobs();
        }
        let result = self.remote(server).synchronize_blocking(theirs);
        self.settle(result)
    }

    fn query(&self, target: Target) -> Result<bool> {
        let (server, theirs) = self.target(target)?;
        if matches!(target, Target::Device(_)) && self.gates.has_jobs() {
            return Ok(false);
        }
        let result = self.remote(server).query(theirs);
        self.settle(result)
    }

    fn host_func(&self, stream: Handle, id: u64) -> Result<()> {
        let (server, local) = self.stream(stream)?;
        self.host_funcs.lock().insert(id, server);
        let result = self.remote(server).host_func(local, id);
        if result.is_err() {
            self.host_funcs.lock().remove(&id);
        }
        result
    }

    fn host_func_done(&self, id: u64) -> Result<()> {
        let Some(server) = self.host_funcs.lock().remove(&id) else {
            return Err(Error::new(Code::InvalidValue, format!("No host function {id} is running")));
        };
        self.remote(server).host_func_done(id)
    }

    fn invalidate_shared(&self) -> Result<()> {
        self.servers.iter().try_for_each(|server| server.remote.invalidate_shared())
    }

    fn collect_shared_writes(&self, sink: &mut dyn FnMut(u64, &[u8])) {
        self.servers.iter().for_each(|server| server.remote.collect_shared_writes(sink));
    }

    fn set_limit(&self, ordinal: Ordinal, limit: Limit, value: u64) -> Result<()> {
        let (remote, local) = self.at(ordinal)?;
        remote.set_limit(local, limit, value)
    }

    fn reset(&self, ordinal: Ordinal) -> Result<()> {
        self.wait_for_jobs();
        let spot = self.spot(ordinal)?;
        let remote = self.remote(spot.server);
        remote.reset(spot.local)?;
        self.streams.forget(ordinal);
        self.events.forget(ordinal);
        self.modules.forget(ordinal);
        self.companions.lock().remove(&(spot.server, spot.local));
        let mirrored: Vec<_> = self.mirrored.lock().iter().map(|(addr, about)| (*addr, *about)).collect();
        let mut result = Ok(());
        for (addr, (owner, size)) in mirrored {
            if owner == ordinal {
                self.mirrored.lock().remove(&addr);
                result = result.and(self.free_everywhere(owner, addr, Some(spot.server)));
            } else if spot.local == 0 && self.spot(owner)?.server != spot.server {
                // This server's copy of what belongs to another's device.
                result = result.and(remote.mem_alloc(0, addr, size, MemoryKind::Mirrored));
            }
        }
        result
    }

    fn wants_memory_notes(&self) -> bool {
        self.servers.iter().any(|server| server.remote.wants_memory_notes())
    }

    /// Waits where something is freed at once, and at the end.
    fn note_memory(&self, note: MemoryNote, done: Done) {
        done(self.note_memory_blocking(note));
    }

    fn note_memory_blocking(&self, note: MemoryNote) -> Result<()> {
        let home = |addr: u64| self.servers.iter().position(|server| server.part.contains(addr, 1));
        let (home, note) = match note {
            MemoryNote::Allocated { range, .. } => (home(range.base), note),
            MemoryNote::Freed { base, stream } => {
                if stream.is_none() {
                    self.wait_for_jobs();
                }
                let stream = stream.and_then(|stream| self.stream(stream).ok());
                let own = stream.filter(|(server, _)| home(base) == Some(*server));
                (home(base), MemoryNote::Freed { base, stream: own.map(|(_, local)| local) })
            }
            MemoryNote::BadFree { address } => (home(address).or(Some(0)), note),
            MemoryNote::End => {
                self.wait_for_jobs();
                (None, note)
            }
        };
        match home {
            Some(server) => self.remote(server).note_memory_blocking(note),
            // All of them have it.
            None => self.servers.iter().try_for_each(|server| server.remote.note_memory_blocking(note)),
        }
    }

    fn counters(&self) -> Counters {
        let all = self.servers.iter().map(|server| server.remote.counters());
        all.fold(Counters::default(), |sum, one| Counters {
            launches: sum.launches + one.launches,
            busy_ns: sum.busy_ns + one.busy_ns,
        })
    }

    fn telemetry(&self, ordinal: Ordinal, group: Group) -> Result<Telemetry> {
        let (remote, local) = self.at(ordinal)?;
        remote.telemetry(local, group)
    }
}
