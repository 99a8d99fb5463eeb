//! The device over a fake driver: what a software GPU behind a real one does not do.

mod conformance;
mod fake;
mod fake_libraries;
mod kernels;
mod libraries;
mod own;

use super::libraries::Place;
use super::print::Printed;
use super::table::Table;
use super::{Config, NvidiaDevice};
use fake::{Symbols, release, turn, with};
use parking_lot::Mutex;
use rgpu_device::tensor_map::{Element, Shape, Swizzle, TensorMap, words_of};
use rgpu_device::{
    Code, CopySink, Device, Host, HostData, Launch, MemoryKind, ModuleInfo, Range, Region, Result, Target,
};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// An application whose mirrored memory is all one value.
#[derive(Default)]
struct App {
    value: Mutex<u8>,
    fetched: Mutex<Vec<u64>>,
    called: Mutex<Vec<u64>>,
}

impl Host for App {
    fn print(&self, _text: &[u8]) {}
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        self.fetched.lock().push(addr);
        buf.fill(*self.value.lock());
        Ok(())
    }
    fn host_func(&self, id: u64) {
        self.called.lock().push(id);
    }
}

struct Setup {
    device: Arc<NvidiaDevice>,
    app: Arc<App>,
    base: u64,
    shared: u64,
}

const IMAGE: &str = ".version 8.0\n.target sm_80\n.visible .global .align 8 .b8 x[16];\n\
    .visible .global .align 8 .b8 y[16];\n.visible .entry no() { ret; }\n\
    .visible .entry k(.param .u64 a, .param .u32 b) { ret; }\n";

fn open(without: &'static [&'static str]) -> Result<(Arc<NvidiaDevice>, Arc<App>)> {
    // SAFETY: the fake driver has the driver's interface.
    let table = unsafe { Table::load(&Symbols(without)) }?;
    let app = Arc::new(App::default());
    let device = NvidiaDevice::with_table(
        table,
        Some(Place::Test(fake_libraries::find)),
        &Config::default(),
        app.clone(),
        Printed::nothing(),
        None,
    )?;
    Ok((device, app))
}

fn setup() -> Setup {
    let (device, app) = open(&[]).unwrap();
    let proposal = Range { base: 0x3000_0000_0000, size: 1 << 40 };
    let plan = device.reserve(proposal).unwrap();
    assert_eq!(plan.devices[0].base, proposal.base);
    Setup { device, app, base: plan.devices[0].base, shared: plan.shared.base }
}

impl Setup {
    fn sync(&self, target: Target) -> Result<()> {
        let (send, receive) = channel();
        self.device.synchronize(target, Box::new(move |result| drop(send.send(result))));
        receive.recv_timeout(Duration::from_secs(60)).expect("whoever waits is told")
    }

    fn load(&self) -> ModuleInfo {
        self.device.module_load(0, 1, IMAGE.as_bytes(), &[]).unwrap()
    }

    fn launch(&self, stream: u64, pointer: u64) -> Result<()> {
        let mut params = [0; 12];
        params[..8].copy_from_slice(&pointer.to_le_bytes());
        self.device.launch(Launch {
            stream,
            module: 1,
            function: 0,
            grid: [2, 1, 1],
            block: [32, 1, 1],
            shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
            params: &params,
        })
    }

    fn alloc(&self, addr: u64, size: u64) {
        self.device.mem_alloc(0, addr, size, MemoryKind::Device).unwrap();
    }

    fn collect(&self) -> Vec<(u64, Vec<u8>)> {
        let mut runs = Vec::new();
        self.device.collect_shared_writes(&mut |addr, bytes| runs.push((addr, bytes.to_vec())));
        runs
    }

    fn read(&self, stream: u64, src: Region, host: u64) -> Receiver<Result<Vec<u8>>> {
        struct Sink(Vec<u8>, std::sync::mpsc::Sender<Result<Vec<u8>>>);
        impl CopySink for Sink {
            fn chunk(&mut self, pieces: &[&[u8]]) {
                pieces.iter().for_each(|piece| self.0.extend_from_slice(piece));
            }
            fn done(self: Box<Self>, result: Result<()>) {
                let Self(bytes, send) = *self;
                let _ = send.send(result.map(|()| bytes));
            }
        }
        let (send, receive) = channel();
        self.device.copy_from_device(stream, src, host, Box::new(Sink(Vec::new(), send)));
        receive
    }
}

fn code<T>(result: Result<T>) -> Option<Code> {
    result.err().map(|e| e.code)
}

fn log() -> Vec<String> {
    with(|fake| std::mem::take(&mut fake.log))
}

/// The driver is asked for what rgpu's map says; bytes that are no map are refused before.
#[test]
fn tensor_maps_are_the_drivers() {
    let _turn = turn();
    let it = setup();
    let map = TensorMap {
        address: it.base,
        rank: 2,
        sizes: [64, 32, 1, 1, 1],
        strides: [256, 0, 0, 0],
        steps: [1; 5],
        element: Element::F32,
        swizzle: Swizzle::None,
        promotion: 0,
        nan: false,
        shape: Shape::Tiled { size: [16, 8, 0, 0, 0] },
    };
    let words = words_of(&it.device.tensor_map(0, &map.to_bytes()).unwrap());
    assert_eq!(words[..6], [Element::F32 as u64, 2, it.base, 64, 16, 256]);
    assert_eq!(code(it.device.tensor_map(0, &[7; 128])), Some(Code::InvalidValue));
    assert_eq!(code(it.device.tensor_map(9, &map.to_bytes())), Some(Code::InvalidDevice));
}

#[test]
fn addresses_that_are_not_the_programs_are_refused() {
    let _turn = turn();
    let (device, _) = open(&[]).unwrap();
    let proposal = Range { base: 0x3000_0000_0000, size: 1 << 40 };
    with(|fake| fake.elsewhere = Some(0x5000_0000_0000));
    assert_eq!(code(device.reserve(proposal)), Some(Code::MapFailed));
    assert_eq!(code(device.reserve(Range { base: 0x3000_0000_0000, size: 1 << 20 })), Some(Code::MapFailed));
    assert_eq!(code(device.reserve(Range { base: 0, size: 1 << 40 })), Some(Code::InvalidValue));
    // Other addresses than were hinted at will do if they are the program's.
    with(|fake| fake.elsewhere = Some(0x3000_8000_0000));
    let plan = device.reserve(proposal).unwrap();
    assert_eq!(plan.devices[0].base, 0x3000_8000_0000);
    assert!(plan.whole.contains(plan.shared.base, plan.shared.size));
    assert!(plan.shared.base >= plan.devices[0].end() || plan.shared.end() <= plan.devices[0].base);
    assert_eq!(code(device.reserve(proposal)), Some(Code::IllegalState));
}

#[test]
fn older_drivers_are_made_do_with() {
    let _turn = turn();
    // The fake one has neither the newer cuDeviceGetUuid nor the calls that list kernels.
    let it = setup();
    assert_eq!(it.device.infos()[0].uuid, [9; 16]);
    let info = it.load();
    let names: Vec<_> = info.functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["k"], "what the driver does not know is left out");
    assert_eq!(info.functions[0].param_bytes(), 12);
    assert_eq!((info.functions[0].max_threads, info.functions[0].registers), (512, 4));
    assert_eq!(info.globals.iter().map(|g| (g.name.as_str(), g.size)).collect::<Vec<_>>(), [("x", 16)]);
    let error = open(&["cuMemCreate"]).err().unwrap();
    assert_eq!(error.code, Code::SharedObjectSymbolNotFound);
    assert!(error.message.contains("cuMemCreate"), "{error}");
    with(|fake| fake.memory = 0);
    assert_eq!(code(open(&[]).map(drop)), None);
}

#[test]
fn devices_have_to_be_those_that_were_granted() {
    let _turn = turn();
    let infos = |expected: &[[u8; 16]]| {
        // SAFETY: the fake driver has the driver's interface.
        let driver = super::Driver::new(unsafe { Table::load(&Symbols(&[])) }.unwrap());
        super::info::describe_all(&driver, &Config { expected: expected.to_vec(), ..Config::default() })
    };
    assert_eq!(infos(&[]).unwrap().len(), 1);
    assert_eq!(infos(&[[9; 16]]).unwrap()[0].1.uuid, [9; 16]);
    let error = infos(&[[8; 16]]).unwrap_err();
    assert_eq!(error.code, Code::NoDevice);
    assert!(error.message.contains("[08, 08") && error.message.contains("[09, 09"), "{error}");
    // CUDA shows one instance of those that it is told of.
    let error = infos(&[[9; 16], [8; 16]]).unwrap_err();
    assert!(error.message.contains("1 devices where it was to show 2"), "{error}");
}

#[test]
fn attributes_that_the_driver_refuses_are_not_told() {
    let _turn = turn();
    with(|fake| fake.unknown_attribute = Some(39));
    let it = setup();
    let attributes = &it.device.infos()[0].attributes;
    assert!(attributes.iter().all(|(number, _)| *number != 39), "{attributes:?}");
    assert!(attributes.contains(&(38, 1)) && attributes.contains(&(40, 1)));
}

#[test]
fn who_looks_says_whether_kernels_reach_the_host() {
    let _turn = turn();
    let see = || {
        // SAFETY: the fake driver has the driver's interface.
        let driver = super::Driver::new(unsafe { Table::load(&Symbols(&[])) }.unwrap());
        super::see(&driver, None).unwrap()[0].follows_host_pointers
    };
    assert!(see());
    with(|fake| fake.unknown_attribute = Some(88));
    assert!(see(), "the other attribute is enough");
    with(|fake| fake.host_is_apart = true);
    assert!(!see());
    // Neither is anything that a program is told.
    let attributes = &setup().device.infos()[0].attributes;
    assert!(attributes.iter().all(|(number, _)| ![88, 100].contains(number)), "{attributes:?}");
}

#[test]
fn who_looks_says_what_is_free() {
    let _turn = turn();
    let see = |names| {
        // SAFETY: the fake driver has the driver's interface.
        let driver = super::Driver::new(unsafe { Table::load(&Symbols(&[])) }.unwrap());
        super::see(&driver, names)
    };
    let seen = see(None).unwrap();
    assert_eq!((seen[0].free, seen[0].name.as_str()), (Some(64 << 20), ""));
    let name = "MIG-09090909-0909-0909-0909-090909090909";
    assert_eq!(see(Some(vec![name.into()])).unwrap()[0].name, name);
    let other = "MIG-09090909-0909-0909-0909-090909090908";
    assert_eq!(code(see(Some(vec![other.into()]))), Some(Code::NoDevice));
    // A GPU that only another process may use.
    with(|fake| fake.fail.insert("cuDevicePrimaryCtxRetain", 46));
    assert_eq!(see(None).unwrap()[0].free, None);
}

#[test]
fn pieces_of_memory_are_shared_by_neighbours() {
    let _turn = turn();
    let it = setup();
    let mapped =
        || with(|fake| fake.mapped.iter().map(|(at, m)| (at - 0x3000_0000_0000, m.0)).collect::<Vec<_>>());
    it.alloc(it.base + MIB, 6 * MIB);
    assert_eq!(mapped(), [(0, 2 << 20), (2 << 20, 4 << 20), (6 << 20, 2 << 20)]);
    // Zeroed, though the driver gave dirty memory.
    let bytes = it.read(0, Region::linear(it.base + MIB, 6 * MIB), 0).recv().unwrap().unwrap();
    assert!(bytes.iter().all(|b| *b == 0) && bytes.len() == 6 << 20);
    it.alloc(it.base, MIB);
    it.alloc(it.base + 7 * MIB, 4096);
    assert_eq!(mapped().len(), 3);
    it.device.mem_free(0, it.base + MIB, None).unwrap();
    it.sync(Target::Device(0)).unwrap();
    assert_eq!(mapped(), [(0, 2 << 20), (6 << 20, 2 << 20)]);
    it.device.mem_free(0, it.base, None).unwrap();
    it.device.mem_free(0, it.base + 7 * MIB, None).unwrap();
    it.sync(Target::Device(0)).unwrap();
    assert_eq!(mapped(), []);
    // What does not fit leaves nothing behind.
    it.alloc(it.base + 8 * MIB, 40 * MIB);
    with(|fake| fake.memory = 60 << 20);
    let full = it.device.mem_alloc(0, it.base + 64 * MIB + 4096, 20 * MIB, MemoryKind::Device);
    assert_eq!(code(full), Some(Code::OutOfMemory));
    assert_eq!(mapped().len(), 1);
    assert_eq!(it.device.mem_info(0).unwrap().free, 24 * MIB);
    // What was just freed is to be had at once.
    it.device.mem_free(0, it.base + 8 * MIB, None).unwrap();
    it.alloc(it.base + 64 * MIB, 40 * MIB);
}

#[test]
fn released_memory_is_used_again_in_order() {
    let _turn = turn();
    let it = setup();
    it.alloc(it.base, 2 * MIB);
    it.device.stream_create(0, 0x100, false, 0).unwrap();
    it.device.memset(0x100, Region::linear(it.base, 4096), 1, 1).unwrap();
    it.sync(Target::Stream(0x100)).unwrap();
    assert_eq!(with(|fake| fake.mapped.len()), 1);
    it.device.memset(0x100, Region::linear(it.base, 4096), 2, 1).unwrap();
    it.device.mem_free(0, it.base, None).unwrap();
    it.alloc(it.base, 4096);
    it.device.memset(0, Region::linear(it.base, 4096), 3, 1).unwrap();
    let bytes = it.read(0, Region::linear(it.base, 4096), 0).recv().unwrap().unwrap();
    assert!(bytes.iter().all(|b| *b == 3));
    it.sync(Target::Device(0)).unwrap();
    assert_eq!(with(|fake| fake.mapped.len()), 1);
}

#[test]
fn errors_stick_or_are_told_once() {
    let _turn = turn();
    let it = setup();
    it.load();
    // A launch that the driver refuses is told to who waits next, once.
    with(|fake| fake.fail.insert("cuLaunchKernel", 701));
    it.launch(0, 0).unwrap();
    let error = it.sync(Target::Device(0)).unwrap_err();
    assert_eq!(error.code, Code::LaunchOutOfResources);
    assert!(error.message.contains("k with grid [2, 1, 1]"), "{error}");
    with(|fake| fake.fail.clear());
    it.sync(Target::Device(0)).unwrap();
    // What a kernel does wrong stays, until the device is reset; whoever waits is told, whichever call fails.
    for call in ["cuEventQuery", "cuEventRecord", "cuMemcpyDtoHAsync_v2", "cuStreamWaitEvent"] {
        it.device.event_create(0, 5, true).unwrap();
        it.device.event_record(5, 0).unwrap();
        it.sync(Target::Event(5)).unwrap();
        it.alloc(it.base, 4096);
        with(|fake| fake.fail.insert(call, 700));
        it.device.stream_wait_event(0, 5).unwrap();
        let copy = it.read(0, Region::linear(it.base, 8), 0).recv_timeout(Duration::from_secs(60));
        assert_eq!(code(copy.unwrap()), Some(Code::IllegalAddress), "{call}");
        assert_eq!(code(it.sync(Target::Device(0))), Some(Code::IllegalAddress), "{call}");
        assert_eq!(code(it.sync(Target::Event(5))), Some(Code::IllegalAddress), "{call}");
        assert_eq!(code(it.device.query(Target::Stream(0))), Some(Code::IllegalAddress), "{call}");
        assert_eq!(code(it.launch(0, 0)), Some(Code::IllegalAddress), "{call}");
        let more = it.device.mem_alloc(0, it.base + MIB, 4096, MemoryKind::Device);
        assert_eq!(code(more), Some(Code::IllegalAddress), "{call}");
        it.device.reset(0).unwrap();
        it.sync(Target::Device(0)).unwrap();
        assert_eq!(with(|fake| fake.mapped.len()), 0, "{call}");
        assert_eq!(code(it.launch(0, 0)), Some(Code::InvalidHandle), "{call}");
        it.load();
    }
}

#[test]
fn a_reset_abandons_what_is_waited_for() {
    let _turn = turn();
    let it = setup();
    it.alloc(it.base, 4096);
    with(|fake| fake.held.push(1));
    it.device.memset(0, Region::linear(it.base, 4096), 1, 1).unwrap();
    let copy = it.read(0, Region::linear(it.base, 4096), 0);
    let (send, receive) = channel();
    it.device.synchronize(Target::Device(0), Box::new(move |result| drop(send.send(result))));
    assert!(receive.recv_timeout(Duration::from_millis(50)).is_err());
    it.device.reset(0).unwrap();
    assert_eq!(code(copy.recv().unwrap()), Some(Code::ContextIsDestroyed));
    assert_eq!(code(receive.recv().unwrap()), Some(Code::ContextIsDestroyed));
    release();
    it.alloc(it.base, 4096);
    it.sync(Target::Device(0)).unwrap();
}

#[test]
fn a_fence_holds_up_other_streams() {
    let _turn = turn();
    let it = setup();
    it.load();
    it.alloc(it.base, 4096);
    it.device.stream_create(0, 0x100, false, 0).unwrap();
    it.launch(0x100, 0).unwrap();
    it.sync(Target::Device(0)).unwrap();
    let launch = log().pop().unwrap();
    let raw = launch.rsplit(' ').next().unwrap().to_owned();
    let bytes = HostData::Owned(vec![7; 16]);
    it.device.copy_to_device(0, Region::linear(it.base, 16), 0, bytes).unwrap();
    it.device.fence(0).unwrap();
    it.device.memset(0, Region::linear(it.base, 16), 1, 1).unwrap();
    it.launch(0x100, 0).unwrap();
    it.launch(0x100, 0).unwrap();
    it.sync(Target::Device(0)).unwrap();
    let launch = format!("launch 2 32 0 on {raw}");
    assert_eq!(log(), [format!("{raw} waits for 0x1"), launch.clone(), launch]);
}

#[test]
fn copies_are_cut_and_put_together() {
    let _turn = turn();
    let it = setup();
    it.alloc(it.base, 8 * MIB);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let dst = Region {
        addr: it.base,
        row_pitch: 1100,
        slice_pitch: 1_200_000,
        width: 1000,
        height: 1000,
        depth: 3,
    };
    it.device.copy_to_device(0, dst, 0, HostData::Owned(bytes.clone())).unwrap();
    assert!(it.read(0, dst, 0).recv().unwrap().unwrap() == bytes);
    let packed = Region::linear(it.base + 4 * MIB, 3_000_000);
    assert_eq!(code(it.device.copy_on_device(0, packed, dst)), Some(Code::InvalidValue), "another shape");
    let same = Region { row_pitch: 1000, slice_pitch: 1_000_000, addr: packed.addr, ..dst };
    it.device.copy_on_device(0, same, dst).unwrap();
    assert!(it.read(0, packed, 0).recv().unwrap().unwrap() == bytes);
    let short = HostData::Owned(vec![0; 10]);
    assert_eq!(code(it.device.copy_to_device(0, packed, 0, short)), Some(Code::InvalidValue));
    assert_eq!(it.read(0, Region::linear(it.base, 0), 0).recv().unwrap().unwrap(), [0u8; 0]);
}

#[test]
fn host_functions_come_in_order() {
    let _turn = turn();
    let it = setup();
    it.alloc(it.base, 4096);
    let first = it.read(0, Region::linear(it.base, 4096), 0);
    it.device.host_func(0, 11).unwrap();
    it.device.memset(0, Region::linear(it.base, 4096), 5, 1).unwrap();
    while it.app.called.lock().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The copy before it was handed on before it was called; what follows it waits.
    assert!(first.try_recv().is_ok());
    assert_eq!(it.device.query(Target::Stream(0)), Ok(false));
    assert_eq!(code(it.device.host_func_done(12)), Some(Code::InvalidValue));
    it.device.host_func_done(11).unwrap();
    it.sync(Target::Stream(0)).unwrap();
    assert_eq!(it.device.query(Target::Stream(0)), Ok(true));
    assert_eq!(*it.app.called.lock(), [11]);
}

#[test]
fn a_module_is_not_unloaded_while_a_stream_waits_for_a_host_function() {
    let _turn = turn();
    let it = setup();
    it.load();
    let is_unloaded = || with(|fake| fake.log.iter().any(|call| call == "unload"));
    with(|fake| fake.held.push(1));
    it.launch(0, 0).unwrap();
    it.device.module_unload(1).unwrap();
    // The program's next function runs when the driver is to unload the module, for which it would wait for that function.
    it.device.stream_create(0, 0x100, false, 0).unwrap();
    it.device.host_func(0x100, 11).unwrap();
    while it.app.called.lock().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    release();
    it.sync(Target::Stream(0)).unwrap();
    assert!(!is_unloaded());
    it.device.host_func_done(11).unwrap();
    it.sync(Target::Stream(0x100)).unwrap();
    while !is_unloaded() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn mirrored_memory_is_fetched_when_kernels_can_reach_it() {
    let _turn = turn();
    let it = setup();
    it.load();
    let (near, far) = (it.shared, it.shared + MIB);
    for addr in [near, far] {
        it.device.mem_alloc(0, addr, 8192, MemoryKind::Mirrored).unwrap();
    }
    *it.app.value.lock() = 3;
    // A kernel that adds one to the bytes at 10..12 of what it is given.
    with(|fake| {
        fake.body = Some(|params| {
            let at = u64::from_le_bytes(params[..8].try_into().unwrap());
            if at != 0 {
                // SAFETY: the device has mapped it.
                unsafe { (at as *mut u8).add(10).cast::<[u8; 2]>().write([4, 4]) };
            }
        });
    });
    it.launch(0, 0).unwrap();
    it.sync(Target::Device(0)).unwrap();
    assert!(it.app.fetched.lock().is_empty(), "nobody knows its address");
    assert_eq!(it.collect(), []);
    it.launch(0, near).unwrap();
    it.sync(Target::Device(0)).unwrap();
    assert_eq!(*it.app.fetched.lock(), [near]);
    assert_eq!(it.collect(), [(near + 10, vec![4, 4])]);
    assert_eq!(it.collect(), []);
    // The host's turn: what it changed is fetched, and what it did not tell of is not.
    *it.app.value.lock() = 9;
    it.launch(0, 0).unwrap();
    it.sync(Target::Device(0)).unwrap();
    assert_eq!(it.app.fetched.lock().len(), 1);
    it.device.invalidate_shared().unwrap();
    it.launch(0, 0).unwrap();
    let seen = it.read(0, Region::linear(near, 16), 0).recv().unwrap().unwrap();
    assert_eq!(seen, [9; 16]);
    // An address in memory that is copied to the device counts.
    it.alloc(it.base, 4096);
    let pointer = HostData::Owned((far + 8).to_le_bytes().to_vec());
    it.device.copy_to_device(0, Region::linear(it.base, 8), 0, pointer).unwrap();
    it.launch(0, 0).unwrap();
    it.sync(Target::Device(0)).unwrap();
    assert_eq!(it.app.fetched.lock().last(), Some(&far));
    // Bytes that the device has changed replace those that were sent.
    it.launch(0, near).unwrap();
    let sent = HostData::Owned(vec![9; 16]);
    it.device.copy_to_device(0, Region::linear(it.base, 16), near, sent).unwrap();
    let seen = it.read(0, Region::linear(it.base, 16), 0).recv().unwrap().unwrap();
    assert_eq!(seen[8..14], [9, 9, 4, 4, 9, 9]);
    // A copy to the host makes the device look again.
    it.sync(Target::Device(0)).unwrap();
    it.collect();
    let before = it.app.fetched.lock().len();
    it.read(0, Region::linear(it.base, 16), near).recv().unwrap().unwrap();
    it.launch(0, near).unwrap();
    it.sync(Target::Device(0)).unwrap();
    assert_eq!(it.app.fetched.lock()[before..], [near]);
    for addr in [near, far] {
        it.device.mem_free(0, addr, None).unwrap();
    }
    it.device.mem_free(0, it.base, None).unwrap();
    it.sync(Target::Device(0)).unwrap();
    assert_eq!(with(|fake| fake.mapped.len()), 0);
}

#[test]
fn impossible_launches_are_refused_at_once() {
    let _turn = turn();
    let it = setup();
    it.load();
    let launch = |grid, block, shared_bytes, params: &[u8]| {
        it.device.launch(Launch {
            stream: 0,
            module: 1,
            function: 0,
            grid,
            block,
            shared_bytes,
            cooperative: false,
            cluster: [0; 3],
            params,
        })
    };
    let params = [0; 12];
    assert_eq!(code(launch([0, 1, 1], [1, 1, 1], 0, &params)), Some(Code::InvalidConfiguration));
    assert_eq!(code(launch([1, 1, 1], [1, 1, 65], 0, &params)), Some(Code::InvalidConfiguration));
    assert_eq!(code(launch([1, 1, 1], [1024, 2, 1], 0, &params)), Some(Code::InvalidConfiguration));
    assert_eq!(code(launch([1, 1, 1], [1024, 1, 1], 0, &params)), Some(Code::InvalidValue));
    assert_eq!(code(launch([1, 1, 1], [1, 1, 1], 99 << 10, &params)), Some(Code::InvalidValue));
    assert_eq!(code(launch([1, 1, 1], [1, 1, 1], 0, &params[..8])), Some(Code::InvalidValue));
    // More than the usual shared memory is asked for first, once.
    launch([1, 1, 1], [1, 1, 1], 64 << 10, &params).unwrap();
    launch([1, 1, 1], [1, 1, 1], 64 << 10, &params).unwrap();
    it.sync(Target::Device(0)).unwrap();
    assert_eq!(log().iter().filter(|line| line.starts_with("attribute 8 65536")).count(), 1);
    assert_eq!(it.device.counters().launches, 2);
}

#[test]
fn events_keep_time() {
    let _turn = turn();
    let it = setup();
    for (event, timing) in [(1, true), (2, true), (3, false)] {
        it.device.event_create(0, event, timing).unwrap();
    }
    it.sync(Target::Event(1)).unwrap();
    assert_eq!(code(it.device.event_elapsed(1, 2)), Some(Code::InvalidHandle));
    it.device.event_record(1, 0).unwrap();
    it.sync(Target::Event(1)).unwrap();
    with(|fake| fake.held.push(1));
    it.device.event_record(2, 0).unwrap();
    assert_eq!(code(it.device.event_elapsed(1, 2)), Some(Code::NotReady));
    assert_eq!(it.device.query(Target::Event(2)), Ok(false));
    release();
    it.sync(Target::Event(2)).unwrap();
    assert_eq!(it.device.event_elapsed(1, 2), Ok(1.5));
    assert_eq!(code(it.device.event_elapsed(1, 3)), Some(Code::InvalidHandle));
    assert_eq!(code(it.device.event_create(0, 1, true)), Some(Code::InvalidValue));
}
