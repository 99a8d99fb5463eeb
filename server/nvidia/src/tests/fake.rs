//! A driver in this process that does little, but does it by the rules: memory is plain memory, streams are lists, and
//! tests say when a stream goes on, and what fails.

use super::kernels::Known;
use crate::sys::{
    Context, DeviceId, Event, Function, HostFn, LaunchConfig, Memcpy2d, Module, Status, Stream,
    TensorMapBytes,
};
use crate::table::{Resolver, Source};
use parking_lot::{Mutex, MutexGuard};
use rgpu_device::MemOp;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// What a fake kernel does with its parameters.
pub(super) type Body = fn(&[u8]);

#[derive(Default)]
pub(super) struct Fake {
    /// Calls in order, those that tests look at.
    pub log: Vec<String>,
    /// What these calls (by symbol) answer instead of working.
    pub fail: HashMap<&'static str, Status>,
    /// Reserved addresses are not those that were hinted at, but from here on.
    pub elsewhere: Option<u64>,
    /// Streams that do not go on.
    pub held: Vec<usize>,
    /// What kernels do that have no [known](super::kernels) name.
    pub body: Option<Body>,
    /// Bytes of physical memory.
    pub memory: usize,
    /// An attribute that the driver does not know.
    pub unknown_attribute: Option<i32>,
    /// Whether kernels can follow no pointers but the driver's own.
    pub host_is_apart: bool,
    /// Streams of which something is being done, by one thread each.
    running: Vec<usize>,
    /// Kernels' modules and names, by handle.
    functions: HashMap<usize, (usize, String)>,
    /// Variables, by module and name.
    globals: HashMap<(usize, String), (u64, usize)>,
    reserved: BTreeMap<u64, usize>,
    created: HashMap<u64, usize>,
    pub mapped: BTreeMap<u64, (usize, u64)>,
    /// By stream: what is still to be done, and how much was done in all.
    streams: HashMap<usize, (Vec<Work>, u64)>,
    /// By event: the stream, and how much of it must be done.
    events: HashMap<usize, (usize, u64)>,
    next: u64,
}

impl Known {
    /// The kernel of that name, if it is one that the driver knows.
    fn find(fake: &Fake, function: Function) -> Option<Self> {
        let (module, name) = fake.functions.get(&(function.0 as usize))?;
        let variable = |name: &str| fake.globals.get(&(*module, name.to_owned())).map_or(0, |g| g.0);
        Self::named(name, variable)
    }
}

enum Work {
    Copy(u64, u64, usize),
    /// A place and the bytes there.
    Fill(u64, Vec<u8>),
    Kernel(Body, Vec<u8>),
    /// A kernel by name, with its number of threads and its parameters.
    Known(Known, u64, Vec<u8>),
    Call(HostFn, usize),
    /// What a library does on the device.
    Library(Box<dyn FnOnce() + Send>),
    Wait(usize, u64),
    /// An operation on a word of memory.
    Word(MemOp),
    Nothing,
}

static FAKE: Mutex<Option<Fake>> = Mutex::new(None);
static TURN: Mutex<()> = Mutex::new(());

/// The one fake driver, for one test at a time.
pub(super) struct Turn {
    _guard: MutexGuard<'static, ()>,
}

/// Waits for the fake driver, and makes it new.
pub(super) fn turn() -> Turn {
    let guard = TURN.lock();
    for (at, size) in with(|fake| std::mem::take(&mut fake.reserved)) {
        // SAFETY: it was mapped by the fake driver, for a test that is over.
        unsafe { libc::munmap(at as *mut c_void, size) };
    }
    super::fake_libraries::books(|books| *books = super::fake_libraries::Books::default());
    *FAKE.lock() = Some(Fake { memory: 64 << 20, next: 0x1000, ..Fake::default() });
    Turn { _guard: guard }
}

/// Looks at the fake driver, or changes it.
pub(super) fn with<T>(look: impl FnOnce(&mut Fake) -> T) -> T {
    look(FAKE.lock().get_or_insert_with(Fake::default))
}

/// Lets all streams go on.
pub(super) fn release() {
    with(|fake| fake.held.clear());
    pump();
}

impl Fake {
    fn fresh(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    fn push(&mut self, stream: Stream, work: Work) {
        self.streams.entry(stream.0 as usize).or_default().0.push(work);
    }

    fn is_done(&self, (stream, until): (usize, u64)) -> bool {
        self.streams.get(&stream).is_none_or(|s| s.1 >= until)
    }

    /// Takes work that can be done, from any stream.
    fn take(&mut self) -> Option<(usize, Work)> {
        let mut names: Vec<usize> = self.streams.keys().copied().collect();
        names.sort_unstable();
        for name in names {
            if self.held.contains(&name) || self.running.contains(&name) {
                continue;
            }
            let waits = match self.streams[&name].0.first() {
                None => continue,
                Some(Work::Wait(stream, until)) => !self.is_done((*stream, *until)),
                // SAFETY: words are valid by the driver's rules, which the device under test keeps.
                Some(Work::Word(op)) => op.waits() && !unsafe { op.carry_out() },
                Some(_) => false,
            };
            if !waits && let Some(stream) = self.streams.get_mut(&name) {
                self.running.push(name);
                return Some((name, stream.0.remove(0)));
            }
        }
        None
    }
}

/// Does what can be done. Not under the lock: host functions may take their time.
fn pump() {
    loop {
        let Some((stream, work)) = with(Fake::take) else { return };
        let finish = move || {
            with(|fake| {
                fake.streams.entry(stream).or_default().1 += 1;
                fake.running.retain(|running| *running != stream);
            });
        };
        // SAFETY: what was enqueued is valid by the driver's rules, which the device under test keeps.
        unsafe {
            match work {
                Work::Copy(dst, src, len) => std::ptr::copy(src as *const u8, dst as *mut u8, len),
                Work::Fill(dst, bytes) => std::ptr::copy(bytes.as_ptr(), dst as *mut u8, bytes.len()),
                Work::Kernel(body, params) => body(&params),
                Work::Known(known, threads, params) => {
                    let status = known.run(threads, &params);
                    if status != 0 {
                        // Whoever looks is told, until the context is reset.
                        let symbols = ["cuStreamQuery", "cuEventQuery", "cuMemGetInfo_v2"];
                        with(|fake| fake.fail.extend(symbols.map(|symbol| (symbol, status))));
                    }
                }
                Work::Call(call, argument) => {
                    // The stream goes on when it returns.
                    std::thread::spawn(move || {
                        call(argument as *mut c_void);
                        finish();
                        pump();
                    });
                    continue;
                }
                Work::Library(compute) => compute(),
                Work::Word(op) => drop(op.carry_out()),
                Work::Wait(..) | Work::Nothing => {}
            }
        }
        finish();
    }
}

/// Puts what a library does on a stream.
pub(super) fn compute(stream: Stream, compute: impl FnOnce() + Send + 'static) {
    enqueue("a library", stream, Work::Library(Box::new(compute)));
}

fn enqueue(name: &'static str, stream: Stream, work: Work) -> Status {
    if let Some(status) = with(|fake| fake.fail.get(name).copied()) {
        return status;
    }
    with(|fake| fake.push(stream, work));
    pump();
    0
}

macro_rules! fake {
    ($($symbol:ident($($name:ident: $type:ty),*) |$fake:ident| $body:block)*) => {
        $(unsafe extern "C" fn $symbol($($name: $type),*) -> Status {
            with(|$fake: &mut Fake| {
                let _ = &$fake;
                if let Some(status) = $fake.fail.get(stringify!($symbol)) { return *status; }
                // SAFETY: the device under test passes valid places.
                #[allow(unused_unsafe)]
                unsafe { $body }
            })
        })*
        fn plain(symbol: &str) -> *const c_void {
            match symbol { $(stringify!($symbol) => $symbol as *const c_void,)* _ => std::ptr::null() }
        }
    };
}

#[allow(non_snake_case)]
mod calls {
    use super::*;

    fake! {
        cuInit(_flags: c_uint) |fake| { 0 }
        cuDriverGetVersion(out: *mut c_int) |fake| { *out = 12020; 0 }
        cuGetErrorName(_status: Status, out: *mut *const c_char) |fake| { *out = c"FAKE".as_ptr(); 0 }
        cuGetErrorString(_status: Status, out: *mut *const c_char) |fake| { *out = c"a fake error".as_ptr(); 0 }
        cuDeviceGetCount(out: *mut c_int) |fake| { *out = 1; 0 }
        cuDeviceGet(out: *mut DeviceId, _ordinal: c_int) |fake| { *out = 7; 0 }
        cuDeviceGetName(out: *mut c_char, _len: c_int, _device: DeviceId) |fake| {
            std::ptr::copy(c"fake".as_ptr(), out, 5); 0
        }
        cuDeviceGetUuid(out: *mut [u8; 16], _device: DeviceId) |fake| { *out = [9; 16]; 0 }
        cuDeviceTotalMem_v2(out: *mut usize, _device: DeviceId) |fake| { *out = fake.memory; 0 }
        cuDeviceGetAttribute(out: *mut c_int, number: c_int, _device: DeviceId) |fake| {
            if fake.unknown_attribute == Some(number) {
                *out = 12345;
                return 1;
            }
            *out = match number {
                1..=3 => 1024,
                4 => 64,
                5..=7 => 65535,
                8 => 48 << 10,
                12 => 64 << 10,
                97 => 99 << 10,
                88 | 100 if fake.host_is_apart => 0,
                _ => 1,
            };
            0
        }
        cuDeviceCanAccessPeer(out: *mut c_int, _a: DeviceId, _b: DeviceId) |fake| { *out = 0; 0 }
        cuDevicePrimaryCtxRetain(out: *mut Context, _device: DeviceId) |fake| {
            *out = Context(fake.fresh() as *mut c_void); 0
        }
        cuDevicePrimaryCtxRelease_v2(_device: DeviceId) |fake| { 0 }
        cuDevicePrimaryCtxReset_v2(_device: DeviceId) |fake| {
            fake.log.push("reset".into());
            fake.fail.clear();
            fake.streams.clear();
            0
        }
        cuCtxSetCurrent(_context: Context) |fake| { 0 }
        cuCtxSetLimit(_limit: c_uint, value: usize) |fake| { if value > 1 << 30 { 1 } else { 0 } }
        cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |fake| {
            *free = fake.memory; *total = fake.memory; 0
        }
        cuMemGetAllocationGranularity(out: *mut usize, _prop: *const c_void, _option: c_uint) |fake| {
            *out = 2 << 20; 0
        }
        cuMemAddressReserve(out: *mut u64, size: usize, _align: usize, hint: u64, _flags: u64) |fake| {
            let hint = fake.elsewhere.unwrap_or(hint);
            fake.elsewhere = fake.elsewhere.map(|at| at + size as u64);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let at = libc::mmap(hint as *mut c_void, size, libc::PROT_NONE, flags, -1, 0);
            if at == libc::MAP_FAILED { return 2; }
            fake.reserved.insert(at as u64, size);
            *out = at as u64;
            0
        }
        cuMemAddressFree(at: u64, size: usize) |fake| {
            if fake.reserved.get(&at) != Some(&size) || fake.mapped.range(at..at + size as u64).next().is_some() {
                return 1;
            }
            fake.reserved.remove(&at);
            libc::munmap(at as *mut c_void, size);
            0
        }
        cuMemCreate(out: *mut u64, size: usize, _prop: *const c_void, _flags: u64) |fake| {
            if !size.is_multiple_of(2 << 20) { return 1; }
            if fake.created.values().sum::<usize>() + size > fake.memory { return 2; }
            let handle = fake.fresh();
            fake.created.insert(handle, size);
            *out = handle;
            0
        }
        cuMemRelease(handle: u64) |fake| {
            if fake.created.remove(&handle).is_some() { 0 } else { 1 }
        }
        cuMemMap(at: u64, size: usize, offset: usize, handle: u64, _flags: u64) |fake| {
            let reserved = fake.reserved.range(..=at).next_back();
            if offset != 0 || fake.created.get(&handle) != Some(&size)
                || reserved.is_none_or(|(b, s)| at + size as u64 > b + *s as u64)
                || fake.mapped.range(..at + size as u64).next_back().is_some_and(|(b, m)| b + m.0 as u64 > at)
            {
                return 1;
            }
            fake.mapped.insert(at, (size, handle));
            0
        }
        cuMemUnmap(at: u64, size: usize) |fake| {
            if fake.mapped.get(&at).map(|m| m.0) != Some(size) { return 1; }
            fake.mapped.remove(&at);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            libc::mmap(at as *mut c_void, size, libc::PROT_NONE, flags, -1, 0);
            0
        }
        cuMemSetAccess(at: u64, size: usize, _desc: *const c_void, _count: usize) |fake| {
            libc::mprotect(at as *mut c_void, size, libc::PROT_READ | libc::PROT_WRITE);
            // Whatever was there before.
            std::ptr::write_bytes(at as *mut u8, 0xAA, size);
            0
        }
        cuMemAllocAsync(out: *mut u64, size: usize, stream: Stream) |fake| {
            fake.log.push(format!("alloc {size} on {:#x}", stream.0 as usize));
            *out = libc::malloc(size) as u64; 0
        }
        cuMemFreeAsync(at: u64, stream: Stream) |fake| {
            fake.log.push(format!("free on {:#x}", stream.0 as usize));
            libc::free(at as *mut c_void); 0
        }
        cuMemHostAlloc(out: *mut *mut c_void, size: usize, _flags: c_uint) |fake| {
            *out = libc::malloc(size); 0
        }
        cuMemFreeHost(at: *mut c_void) |fake| { libc::free(at); 0 }
        cuModuleLoadDataEx(out: *mut Module, _image: *const c_void, _n: c_uint, _o: *const c_uint, _v: *const *mut c_void) |fake| {
            *out = Module(fake.fresh() as *mut c_void); 0
        }
        cuModuleUnload(_module: Module) |fake| { fake.log.push("unload".into()); 0 }
        cuModuleGetFunction(out: *mut Function, module: Module, name: *const c_char) |fake| {
            if CStr::from_ptr(name) == c"no" { return 500; }
            let function = fake.fresh();
            let name = CStr::from_ptr(name).to_str().unwrap().to_owned();
            fake.functions.insert(function as usize, (module.0 as usize, name));
            *out = Function(function as *mut c_void); 0
        }
        cuModuleGetGlobal_v2(out: *mut u64, size: *mut usize, module: Module, name: *const c_char) |fake| {
            let name = CStr::from_ptr(name).to_str().unwrap().to_owned();
            let key = (module.0 as usize, name);
            if !fake.globals.contains_key(&key) {
                let (bytes, value) = match &*key.1 {
                    "x" => (16, 0),
                    "start" => (4, 41),
                    "fixed" => (4, 7),
                    _ => return 500,
                };
                let place = libc::calloc(1, bytes).cast::<u32>();
                place.write(value);
                fake.globals.insert(key.clone(), (place as u64, bytes));
            }
            (*out, *size) = fake.globals[&key];
            0
        }
        cuFuncGetAttribute(out: *mut c_int, number: c_int, function: Function) |fake| {
            let name = fake.functions.get(&(function.0 as usize)).map_or("", |f| &*f.1);
            *out = match (number, name) {
                (0, "strict") => 32,
                (0, "narrow") => 64,
                (0, _) => 512,
                // Of clusters of blocks no kernel says anything.
                (10..=15, _) => 0,
                _ => number,
            };
            0
        }
        cuFuncSetAttribute(_function: Function, number: c_int, value: c_int) |fake| {
            fake.log.push(format!("attribute {number} {value}")); 0
        }
        cuOccupancyMaxActiveBlocksPerMultiprocessor(out: *mut c_int, _f: Function, _n: c_int, _s: usize) |fake| { *out = 4; 0 }
        cuStreamCreateWithPriority(out: *mut Stream, _flags: c_uint, _priority: c_int) |fake| {
            *out = Stream(fake.fresh() as *mut c_void); 0
        }
        cuStreamDestroy_v2(stream: Stream) |fake| { fake.log.push(format!("destroy {:?}", stream.0)); 0 }
        cuStreamWaitEvent(stream: Stream, event: Event, _flags: c_uint) |fake| {
            let (other, until) = fake.events.get(&(event.0 as usize)).copied().unwrap_or_default();
            fake.log.push(format!("{:#x} waits for {other:#x}", stream.0 as usize));
            fake.push(stream, Work::Wait(other, until));
            0
        }
        stream_query(stream: Stream) |fake| {
            let name = stream.0 as usize;
            let idle = fake.streams.get(&name).is_none_or(|s| s.0.is_empty()) && !fake.running.contains(&name);
            if idle { 0 } else { 600 }
        }
        cuEventCreate(out: *mut Event, _flags: c_uint) |fake| { *out = Event(fake.fresh() as *mut c_void); 0 }
        cuEventRecord(event: Event, stream: Stream) |fake| {
            let name = stream.0 as usize;
            fake.push(stream, Work::Nothing);
            let (open, done) = &fake.streams[&name];
            let until = done + open.len() as u64 + u64::from(fake.running.contains(&name));
            fake.events.insert(event.0 as usize, (name, until));
            0
        }
        event_query(event: Event) |fake| {
            if fake.events.get(&(event.0 as usize)).is_none_or(|e| fake.is_done(*e)) { 0 } else { 600 }
        }
        cuEventSynchronize(_event: Event) |fake| { 0 }
        cuEventElapsedTime(out: *mut f32, _start: Event, _end: Event) |fake| { *out = 1.5; 0 }
    }

    pub(super) unsafe extern "C" fn htod(dst: u64, src: *const c_void, len: usize, stream: Stream) -> Status {
        enqueue("cuMemcpyHtoDAsync_v2", stream, Work::Copy(dst, src as u64, len))
    }
    pub(super) unsafe extern "C" fn dtoh(dst: *mut c_void, src: u64, len: usize, stream: Stream) -> Status {
        enqueue("cuMemcpyDtoHAsync_v2", stream, Work::Copy(dst as u64, src, len))
    }
    pub(super) unsafe extern "C" fn dtod(dst: u64, src: u64, len: usize, stream: Stream) -> Status {
        enqueue("cuMemcpyDtoDAsync_v2", stream, Work::Copy(dst, src, len))
    }
    pub(super) unsafe extern "C" fn copy_2d(copy: *const Memcpy2d, stream: Stream) -> Status {
        // SAFETY: the device under test passes a valid place.
        let c = unsafe { *copy };
        let dst = if c.dst_kind == 1 { c.dst_host as u64 } else { c.dst_device };
        let src = if c.src_kind == 1 { c.src_host as u64 } else { c.src_device };
        for y in 0..c.height {
            let (dst, src) = (dst + (y * c.dst_pitch) as u64, src + (y * c.src_pitch) as u64);
            let status = enqueue("cuMemcpy2DAsync_v2", stream, Work::Copy(dst, src, c.width));
            if status != 0 {
                return status;
            }
        }
        0
    }
    pub(super) unsafe extern "C" fn set8(dst: u64, value: u8, count: usize, stream: Stream) -> Status {
        enqueue("cuMemsetD8Async", stream, Work::Fill(dst, vec![value; count]))
    }
    pub(super) unsafe extern "C" fn set16(dst: u64, value: u16, count: usize, stream: Stream) -> Status {
        enqueue("cuMemsetD16Async", stream, Work::Fill(dst, value.to_le_bytes().repeat(count)))
    }
    pub(super) unsafe extern "C" fn set32(dst: u64, value: u32, count: usize, stream: Stream) -> Status {
        enqueue("cuMemsetD32Async", stream, Work::Fill(dst, value.to_le_bytes().repeat(count)))
    }
    fn set_rows(dst: u64, pitch: usize, row: &[u8], height: usize, stream: Stream) -> Status {
        let rows = (0..height).map(|y| dst + (y * pitch) as u64);
        rows.map(|at| enqueue("cuMemsetD2DAsync", stream, Work::Fill(at, row.to_vec()))).max().unwrap_or(0)
    }
    pub(super) unsafe extern "C" fn set_2d8(
        at: u64,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
        on: Stream,
    ) -> Status {
        set_rows(at, pitch, &vec![value; width], height, on)
    }
    pub(super) unsafe extern "C" fn set_2d16(
        at: u64,
        pitch: usize,
        value: u16,
        width: usize,
        height: usize,
        on: Stream,
    ) -> Status {
        set_rows(at, pitch, &value.to_le_bytes().repeat(width), height, on)
    }
    pub(super) unsafe extern "C" fn set_2d32(
        at: u64,
        pitch: usize,
        value: u32,
        width: usize,
        height: usize,
        on: Stream,
    ) -> Status {
        set_rows(at, pitch, &value.to_le_bytes().repeat(width), height, on)
    }
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe extern "C" fn launch(
        function: Function,
        gx: c_uint,
        gy: c_uint,
        gz: c_uint,
        bx: c_uint,
        by: c_uint,
        bz: c_uint,
        shared: c_uint,
        stream: Stream,
        _params: *const *mut c_void,
        extra: *const *mut c_void,
    ) -> Status {
        // SAFETY: pairs of a tag and a place: the block, its size, the end; or nothing, for a kernel without parameters.
        let params = unsafe {
            if extra.is_null() {
                Vec::new()
            } else {
                let size = *(*extra.add(3)).cast::<usize>();
                std::slice::from_raw_parts((*extra.add(1)).cast::<u8>(), size).to_vec()
            }
        };
        let body = with(|fake| {
            fake.log.push(format!("launch {gx} {bx} {shared} on {:#x}", stream.0 as usize));
            fake.body.unwrap_or(|_| {})
        });
        let threads = [gx, gy, gz, bx, by, bz].into_iter().fold(1u64, |n, side| n * u64::from(side));
        let work = match with(|fake| Known::find(fake, function)) {
            Some(known) => Work::Known(known, threads, params),
            None => Work::Kernel(body, params),
        };
        enqueue("cuLaunchKernel", stream, work)
    }
    pub(super) unsafe extern "C" fn launch_ex(
        config: *const LaunchConfig,
        function: Function,
        params: *const *mut c_void,
        extra: *const *mut c_void,
    ) -> Status {
        // SAFETY: as the driver's caller promises. What the attributes say changes no result.
        unsafe {
            let LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes, stream, .. } = *config;
            launch(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, params, extra)
        }
    }
    /// A map that says what it was asked for: element, rank, address, the first size, box and stride.
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe extern "C" fn encode_tiled(
        map: *mut TensorMapBytes,
        element: c_uint,
        rank: c_uint,
        address: u64,
        sizes: *const u64,
        strides: *const u64,
        tile: *const c_uint,
        _steps: *const c_uint,
        _interleave: c_uint,
        _swizzle: c_uint,
        _promotion: c_uint,
        _fill: c_uint,
    ) -> Status {
        // SAFETY: as the driver's caller promises.
        let said =
            unsafe { [u64::from(element), u64::from(rank), address, *sizes, u64::from(*tile), *strides] };
        let bytes = said.into_iter().flat_map(u64::to_le_bytes);
        // SAFETY: as above.
        unsafe { (*map).0.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte) };
        0
    }
    /// Cooperative kernels do nothing.
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe extern "C" fn launch_cooperative(
        _function: Function,
        _gx: c_uint,
        _gy: c_uint,
        _gz: c_uint,
        _bx: c_uint,
        _by: c_uint,
        _bz: c_uint,
        _shared: c_uint,
        stream: Stream,
        _params: *const *mut c_void,
    ) -> Status {
        enqueue("cuLaunchCooperativeKernel", stream, Work::Nothing)
    }
    pub(super) unsafe extern "C" fn call(stream: Stream, call: HostFn, argument: *mut c_void) -> Status {
        enqueue("cuLaunchHostFunc", stream, Work::Call(call, argument as usize))
    }
    pub(super) unsafe extern "C" fn words(
        stream: Stream,
        count: c_uint,
        list: *mut [u64; 6],
        flags: c_uint,
    ) -> Status {
        // SAFETY: so many are there, by the driver's rules.
        let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
        let read = |[number, addr, value, flags, ..]: &[u64; 6]| {
            MemOp::new(*number as u32, *addr, *value, *flags as u32)
        };
        match list.iter().map(read).collect::<Result<Vec<_>, _>>() {
            Ok(ops) if flags == 0 => {
                let enqueued =
                    ops.into_iter().map(|op| enqueue("cuStreamBatchMemOp", stream, Work::Word(op)));
                enqueued.max().unwrap_or(0)
            }
            _ => 1,
        }
    }
    pub(super) unsafe extern "C" fn query_stream(stream: Stream) -> Status {
        pump();
        let failed = with(|fake| fake.fail.get("cuStreamQuery").copied());
        // SAFETY: a call of this module.
        failed.unwrap_or_else(|| unsafe { stream_query(stream) })
    }
    pub(super) unsafe extern "C" fn query_event(event: Event) -> Status {
        pump();
        let failed = with(|fake| fake.fail.get("cuEventQuery").copied());
        // SAFETY: a call of this module.
        failed.unwrap_or_else(|| unsafe { event_query(event) })
    }
    pub(super) unsafe extern "C" fn synchronize(stream: Stream) -> Status {
        loop {
            // SAFETY: a call of this module.
            match unsafe { query_stream(stream) } {
                600 => std::thread::yield_now(),
                status => return status,
            }
        }
    }
    pub(super) unsafe extern "C" fn unused() -> Status {
        801
    }

    pub(super) fn find(symbol: &str) -> *const c_void {
        match symbol {
            "cuMemcpyHtoDAsync_v2" => htod as *const c_void,
            "cuMemcpyDtoHAsync_v2" => dtoh as *const c_void,
            "cuMemcpyDtoDAsync_v2" => dtod as *const c_void,
            "cuMemcpy2DAsync_v2" => copy_2d as *const c_void,
            "cuMemsetD8Async" => set8 as *const c_void,
            "cuMemsetD16Async" => set16 as *const c_void,
            "cuMemsetD32Async" => set32 as *const c_void,
            "cuMemsetD2D8Async" => set_2d8 as *const c_void,
            "cuMemsetD2D16Async" => set_2d16 as *const c_void,
            "cuMemsetD2D32Async" => set_2d32 as *const c_void,
            "cuLaunchCooperativeKernel" => launch_cooperative as *const c_void,
            "cuLaunchKernel" => launch as *const c_void,
            "cuLaunchKernelEx" => launch_ex as *const c_void,
            "cuTensorMapEncodeTiled" => encode_tiled as *const c_void,
            "cuLaunchHostFunc" => call as *const c_void,
            "cuStreamSynchronize" => synchronize as *const c_void,
            "cuStreamBatchMemOp_v2" => words as *const c_void,
            "cuStreamQuery" => query_stream as *const c_void,
            "cuEventQuery" => query_event as *const c_void,
            "cuMemcpyPeerAsync" => unused as *const c_void,
            other => plain(other),
        }
    }
}

/// The fake driver's symbols, without some of them.
pub(super) struct Symbols(pub &'static [&'static str]);

impl Resolver for Symbols {
    fn find(&self, source: &Source) -> *const c_void {
        let symbol = source.symbol.to_str().unwrap();
        if self.0.contains(&symbol) { std::ptr::null() } else { calls::find(symbol) }
    }
}
