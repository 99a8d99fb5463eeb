//! The client's side of a session against the server's, in one process, over a real connection.

mod mock;
mod proxy;

use mock::MockDevice;
use proxy::Proxy;
use rgpu_device::{
    Check, Code, CopySink, Device, Error, FIRST_STREAM, Host, HostData, HostSource, HostTarget, Launch,
    MemoryKind, Region, Result, Target,
};
use rgpu_protocol::calls::{self as wire, Call};
use rgpu_protocol::frame::{HEADER_BYTES, Header, Kind, MAX_BULK, Notice};
use rgpu_protocol::hello::{self, Hello, HelloAnswer, Prefix, Status};
use rgpu_protocol::transport::{Tcp, Transport};
use rgpu_protocol::wire::to_bytes;
use rgpu_protocol::{BULK_WINDOW, SESSION_CALLS, STREAM_CALLS, STREAM_WINDOW};
use rgpu_remote::remote::script::{PATIENCE, Script, thread_number};
use rgpu_remote::{ConnectOptions, Remote};
use rgpu_server::ledger::Ledger;
use rgpu_server::session::{End, Session, initial_credit};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The program's side of the callbacks.
#[derive(Default)]
struct TestHost {
    printed: Mutex<Vec<u8>>,
    memory: Mutex<HashMap<u64, u8>>,
    host_funcs: Mutex<Vec<u64>>,
    run_host_func: Mutex<Option<mpsc::Sender<u64>>>,
}

impl Host for TestHost {
    fn print(&self, text: &[u8]) {
        self.printed.lock().unwrap().extend_from_slice(text);
    }
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        match self.memory.lock().unwrap().get(&addr) {
            Some(byte) => buf.fill(*byte),
            None => return Err(Code::IllegalAddress.into()),
        }
        Ok(())
    }
    fn host_func(&self, id: u64) {
        self.host_funcs.lock().unwrap().push(id);
        if let Some(run) = &*self.run_host_func.lock().unwrap() {
            run.send(id).unwrap();
        }
    }
}

struct Setup {
    remote: Arc<Remote>,
    host: Arc<TestHost>,
    device: Arc<MockDevice>,
    proxy: Proxy,
    server: JoinHandle<End>,
}

/// A server for one session, in a thread, that says that it speaks this minor version of the protocol.
fn serve(memory: u64, minor: u16, device: mpsc::Sender<Arc<MockDevice>>) -> (String, JoinHandle<End>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut prefix = [0; hello::PREFIX_BYTES];
        stream.read_exact(&mut prefix).unwrap();
        let prefix = Prefix::parse(&prefix, hello::MAX_HELLO).unwrap();
        let mut body = vec![0; prefix.length as usize];
        stream.read_exact(&mut body).unwrap();
        let hello = Hello::parse(&body).unwrap();
        let ledger = Arc::new(Ledger::new(&[memory]).unwrap());
        let slot = ledger.take_slot().unwrap();
        let credit = initial_credit(&ledger, slot, 1);
        let base = hello.range.base;
        let answer = HelloAnswer {
            status: Status::Accepted as u32,
            devices: vec![Default::default()],
            plan: hello::AddressPlan {
                whole: hello::Range { base, size: 1 << 33 },
                devices: vec![hello::Range { base, size: 1 << 32 }],
                shared: hello::Range { base: base + (1 << 32), size: 1 << 32 },
            },
            credit: credit.clone(),
            ..Default::default()
        };
        let mut answer = hello::message(&answer);
        answer[6..8].copy_from_slice(&minor.to_le_bytes());
        stream.write_all(&answer).unwrap();
        let tcp: Arc<dyn Transport> = Arc::new(Tcp::adopt(stream.into(), "client".into()).unwrap());
        let session = Session::new(tcp);
        let mock = MockDevice::new(session.host(), memory);
        device.send(mock.clone()).unwrap();
        session.run(mock, ledger, slot, &credit, || {})
    });
    (address, server)
}

fn setup_with(memory: u64) -> Setup {
    setup_speaking(memory, hello::MINOR)
}

fn setup_speaking(memory: u64, minor: u16) -> Setup {
    let (send, receive) = mpsc::channel();
    let (address, server) = serve(memory, minor, send);
    let proxy = Proxy::new(&address);
    let host = Arc::new(TestHost::default());
    let remote = Remote::connect(&proxy.address, ConnectOptions::default(), host.clone()).unwrap();
    Setup { remote, host, device: receive.recv().unwrap(), proxy, server }
}

fn setup() -> Setup {
    setup_with(1 << 30)
}

fn launch(stream: u64, params: &[u8]) -> Launch<'_> {
    Launch {
        stream,
        module: 1,
        function: 0,
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        cooperative: false,
        cluster: [0; 3],
        params,
    }
}

/// Memory of a test's own, which outlives the call that reads it: a forwarding device reads before it returns.
fn lent(region: Region) -> HostData {
    // SAFETY: as above.
    HostData::Borrowed(unsafe { HostSource::new(region) })
}

fn base(s: &Setup) -> u64 {
    s.remote.plan().devices[0].base
}

#[test]
fn data_comes_back() {
    let s = setup();
    let addr = base(&s);
    let size = 5 << 20;
    s.remote.mem_alloc(0, addr, size, MemoryKind::Device).unwrap();
    let data: Vec<u8> = (0..size as usize).map(|i| (i * 7 % 251) as u8).collect();
    let from = lent(Region::linear(data.as_ptr() as u64, size));
    s.remote.copy_to_device(0, Region::linear(addr, size), data.as_ptr() as u64, from).unwrap();
    let mut back = vec![0u8; data.len()];
    let into = Region::linear(back.as_mut_ptr() as u64, size);
    // SAFETY: `back` is writable.
    let into = unsafe { HostTarget::new(into) };
    s.remote.copy_from_device_blocking(0, Region::linear(addr, size), into).unwrap();
    assert!(back == data);
    // Strided, both ways, with rows short and long.
    for width in [3u64, 700, 5000, 40_000] {
        let rows = 9;
        let pitch = width + 13;
        let dst = Region {
            addr,
            row_pitch: width * 2,
            slice_pitch: width * 2 * rows,
            width,
            height: rows,
            depth: 1,
        };
        let src = Region { addr: data.as_ptr() as u64, row_pitch: pitch, slice_pitch: pitch * rows, ..dst };
        s.remote.copy_to_device(0, dst, src.addr, lent(src)).unwrap();
        let mut back = vec![0u8; (pitch * rows) as usize];
        let into = Region { addr: back.as_mut_ptr() as u64, ..src };
        // SAFETY: `back` is writable.
        let into = unsafe { HostTarget::new(into) };
        s.remote.copy_from_device_blocking(0, dst, into).unwrap();
        for y in 0..rows as usize {
            let row = y * pitch as usize..y * pitch as usize + width as usize;
            assert!(back[row.clone()] == data[row.clone()], "width {width}, row {y}");
            assert!(back[row.end..(y + 1) * pitch as usize].iter().all(|b| *b == 0));
        }
    }
    drop(s.remote);
    assert_eq!(s.server.join().unwrap(), End::Goodbye);
}

#[test]
fn many_launches_take_few_round_trips_and_little_memory() {
    let s = setup();
    let before = s.proxy.asked();
    for i in 0..100_000u64 {
        s.remote.launch(launch(0, &i.to_le_bytes())).unwrap();
    }
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    assert_eq!(s.device.launches(), 100_000);
    assert_eq!(s.proxy.asked() - before, 1);
    // Word of how far the stream has got comes by itself, after each half of its window.
    let words = s.proxy.reached();
    assert!((100_000 - STREAM_CALLS..=100_000).contains(&(words * STREAM_CALLS / 2)), "{words} notices");
    let order = s.device.order();
    assert_eq!(order.len(), 100_000);
    assert!(order.iter().enumerate().all(|(i, n)| *n == i as u64));
}

#[test]
fn what_is_known_to_be_done_is_not_asked_again() {
    let s = setup();
    let own = FIRST_STREAM;
    let (legacy, device, other) = (Target::Stream(0), Target::Device(0), Target::Stream(own));
    let asked = |action: &dyn Fn()| {
        let before = s.proxy.asked();
        action();
        s.proxy.asked() - before
    };
    let wait = |target| s.remote.synchronize_blocking(target).unwrap();
    let work = |stream| s.remote.launch(launch(stream, &1u64.to_le_bytes())).unwrap();
    work(0);
    assert_eq!(asked(&|| wait(legacy)), 1);
    // There is no other stream, so this was the whole device.
    assert_eq!(asked(&|| (wait(legacy), wait(device), assert!(s.remote.query(legacy).unwrap())).0), 0);
    // What puts no work anywhere changes nothing.
    s.remote.mem_info(0).unwrap();
    assert_eq!(asked(&|| wait(device)), 0);
    work(0);
    assert_eq!(asked(&|| (wait(legacy), wait(legacy)).0), 1);

    // With a second stream, one that is done says nothing of the device, but the device says all of its streams.
    s.remote.stream_create(0, own, true, 0).unwrap();
    work(own);
    assert_eq!(asked(&|| (wait(legacy), wait(device), wait(other), wait(legacy)).0), 2);
    // Work on either may be what the other waits for.
    work(0);
    assert_eq!(asked(&|| (wait(other), wait(other), wait(legacy)).0), 2);

    // A copy that somebody else waits for is work.
    let addr = base(&s);
    s.remote.mem_alloc(0, addr, 4096, MemoryKind::Device).unwrap();
    s.remote.memset(0, Region::linear(addr, 4096), 0x5a, 1).unwrap();
    wait(device);
    let before = s.proxy.asked();
    let mut place = vec![0u8; 1000];
    let into = Region::linear(place.as_mut_ptr() as u64, 1000);
    let (send, receive) = mpsc::channel();
    let done = Box::new(move |r: Result<()>| send.send(r).unwrap());
    // SAFETY: `place` lives until the callback has come.
    let into = unsafe { HostTarget::new(into) };
    s.remote.copy_from_device_into(0, Region::linear(addr, 1000), into, done);
    wait(device);
    receive.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(s.proxy.asked() - before, 2);
    assert!(place.iter().all(|b| *b == 0x5a));

    // The device may have news of memory that both have, whenever it is asked.
    s.remote.mem_alloc(0, s.remote.plan().shared.base, 4096, MemoryKind::Mirrored).unwrap();
    assert_eq!(asked(&|| (wait(device), wait(device), wait(legacy)).0), 3);
}

#[test]
fn order_holds_across_threads() {
    let s = setup();
    let next = Arc::new(Mutex::new(0u64));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (remote, next) = (s.remote.clone(), next.clone());
            std::thread::spawn(move || {
                for i in 0..2_000 {
                    {
                        let mut next = next.lock().unwrap();
                        remote.launch(launch(0, &next.to_le_bytes())).unwrap();
                        *next += 1;
                    }
                    if i % 100 == 0 {
                        remote.synchronize_blocking(Target::Stream(0)).unwrap();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    let order = s.device.order();
    assert_eq!(order.len(), 8_000);
    assert!(order.windows(2).all(|w| w[0] + 1 == w[1]));
}

#[test]
fn posted_calls_are_sent_soon_without_being_asked_for() {
    let s = setup();
    s.remote.launch(launch(0, &7u64.to_le_bytes())).unwrap();
    let end = Instant::now() + PATIENCE;
    while s.device.launches() == 0 {
        assert!(Instant::now() < end, "the launch was never sent");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn one_threads_waiting_delays_nobody() {
    let s = setup();
    s.device.hold(0x100);
    s.remote.stream_create(0, 0x100, true, 0).unwrap();
    let remote = s.remote.clone();
    let waiting = std::thread::spawn(move || remote.synchronize_blocking(Target::Stream(0x100)));
    while s.device.held() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..100 {
        s.remote.synchronize_blocking(Target::Stream(0)).unwrap();
        s.remote.mem_info(0).unwrap();
    }
    assert!(!waiting.is_finished());
    s.device.release();
    waiting.join().unwrap().unwrap();
}

#[test]
fn memory_is_taken_from_credit_until_it_is_out() {
    let s = setup_with(64 << 20);
    let (addr, mib) = (base(&s), 1 << 20);
    let before = s.proxy.asked();
    s.remote.mem_alloc(0, addr, 2 * mib, MemoryKind::Device).unwrap();
    s.remote.mem_free(0, addr, None).unwrap();
    assert_eq!(s.proxy.asked(), before, "an allocation within the credit asked");
    s.remote.mem_alloc(0, addr, 60 * mib, MemoryKind::Device).unwrap();
    let error = s.remote.mem_alloc(0, addr + (1 << 30), 5 * mib, MemoryKind::Device).unwrap_err();
    assert_eq!(error.code, Code::OutOfMemory);
    s.remote.mem_alloc(0, addr + (1 << 30), 4 * mib, MemoryKind::Device).unwrap();
    assert_eq!(s.remote.mem_info(0).unwrap().free, 0);
    s.remote.mem_free(0, addr, None).unwrap();
    assert_eq!(s.remote.mem_info(0).unwrap().free, 60 * mib);
    assert_eq!(s.remote.mem_free(0, addr, None).unwrap_err().code, Code::InvalidValue);
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
}

#[test]
fn errors_of_posted_calls_come_with_the_next_synchronisation() {
    let s = setup();
    s.device.fail_next_launch(Error::new(Code::InvalidValue, "first"));
    s.remote.launch(launch(0, &[0; 8])).unwrap();
    s.device.wait_until_failed();
    s.device.fail_next_launch(Error::new(Code::InvalidHandle, "second"));
    s.remote.launch(launch(0, &[0; 8])).unwrap();
    let error = s.remote.synchronize_blocking(Target::Device(0)).unwrap_err();
    assert_eq!((error.code, &*error.message), (Code::InvalidValue, "first"));
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    // A sticky one stays, for calls that are posted too, until the device is reset.
    s.device.fail_next_launch(Error::new(Code::IllegalAddress, "kernel `k` read 0x0"));
    s.remote.launch(launch(0, &[0; 8])).unwrap();
    let error = s.remote.synchronize_blocking(Target::Device(0)).unwrap_err();
    assert_eq!(error.code, Code::IllegalAddress);
    assert_eq!(s.remote.launch(launch(0, &[0; 8])).unwrap_err().code, Code::IllegalAddress);
    let addr = base(&s);
    assert_eq!(s.remote.mem_alloc(0, addr, 4096, MemoryKind::Device).unwrap_err().code, Code::IllegalAddress);
    s.remote.reset(0).unwrap();
    s.remote.launch(launch(0, &[0; 8])).unwrap();
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
}

#[test]
fn text_is_printed_before_its_kernel_is_finished() {
    let s = setup();
    s.device.print_at_launch(b"hello from a kernel\n");
    s.remote.launch(launch(0, &[0; 8])).unwrap();
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    assert_eq!(*s.host.printed.lock().unwrap(), b"hello from a kernel\n");
}

#[test]
fn host_functions_run_though_nobody_waits() {
    let s = setup();
    let (send, receive) = mpsc::channel();
    *s.host.run_host_func.lock().unwrap() = Some(send);
    s.remote.host_func(0, 42).unwrap();
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(42));
    s.remote.host_func_done(42).unwrap();
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    assert_eq!(s.device.host_funcs_done(), [42]);
}

#[test]
fn callbacks_come_though_nobody_waits() {
    let s = setup();
    let addr = base(&s);
    s.remote.mem_alloc(0, addr, 3 << 20, MemoryKind::Device).unwrap();
    s.remote.memset(0, Region::linear(addr, 3 << 20), 0x5a, 1).unwrap();
    let (send, receive) = mpsc::channel();
    let sync = send.clone();
    s.remote.synchronize(Target::Device(0), Box::new(move |r| sync.send(r.map(|()| Vec::new())).unwrap()));
    receive.recv_timeout(PATIENCE).unwrap().unwrap();
    struct Sink(Vec<u8>, mpsc::Sender<Result<Vec<u8>>>);
    impl CopySink for Sink {
        fn chunk(&mut self, pieces: &[&[u8]]) {
            pieces.iter().for_each(|p| self.0.extend_from_slice(p));
        }
        fn done(self: Box<Self>, result: Result<()>) {
            let Self(bytes, send) = *self;
            send.send(result.map(|()| bytes)).unwrap();
        }
    }
    s.remote.copy_from_device(0, Region::linear(addr, 3 << 20), 0, Box::new(Sink(Vec::new(), send.clone())));
    let bytes = receive.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(bytes.len() == 3 << 20 && bytes.iter().all(|b| *b == 0x5a));
    let mut place = vec![0u8; 3 << 20];
    let into = Region::linear(place.as_mut_ptr() as u64, 3 << 20);
    let done = Box::new(move |r: Result<()>| send.send(r.map(|()| Vec::new())).unwrap());
    // SAFETY: `place` lives until the callback has come.
    let into = unsafe { HostTarget::new(into) };
    s.remote.copy_from_device_into(0, Region::linear(addr, 3 << 20), into, done);
    receive.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(place.iter().all(|b| *b == 0x5a));
}

#[test]
fn whoever_hears_that_a_stream_has_gone_on_has_what_was_copied() {
    let s = setup();
    let addr = base(&s);
    s.remote.mem_alloc(0, addr, 4096, MemoryKind::Device).unwrap();
    s.remote.memset(0, Region::linear(addr, 4096), 0x5a, 1).unwrap();
    // The device has gone on with the stream, and is about to tell that the copy is over.
    s.device.hold_outcomes();
    let mut place = vec![0u8; 1000];
    let into = Region::linear(place.as_mut_ptr() as u64, 1000);
    let (send, receive) = mpsc::channel();
    let done = Box::new(move |r: Result<()>| send.send(r).unwrap());
    // SAFETY: `place` lives until the callback has come.
    let into = unsafe { HostTarget::new(into) };
    s.remote.copy_from_device_into(0, Region::linear(addr, 1000), into, done);
    s.remote.synchronize_blocking(Target::Stream(0)).unwrap();
    let seen = place.clone();
    s.device.tell_outcomes();
    receive.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(seen.iter().all(|b| *b == 0x5a), "the copy is over, and {seen:?} has arrived");
}

#[test]
fn mirrored_memory_is_fetched_and_written_back() {
    let s = setup();
    let addr = s.remote.plan().shared.base;
    s.host.memory.lock().unwrap().insert(addr, 0x11);
    s.remote.mem_alloc(0, addr, 8192, MemoryKind::Mirrored).unwrap();
    // The mock's kernel adds 1 to the page that its parameter names.
    s.device.increment_page_at_launch();
    s.remote.launch(launch(0, &addr.to_le_bytes())).unwrap();
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    let mut seen = Vec::new();
    s.remote.collect_shared_writes(&mut |at, bytes| seen.push((at, bytes.to_vec())));
    assert_eq!(seen, [(addr, vec![0x12; 4096])]);
    // A page that the host does not have is an error of the access.
    s.remote.launch(launch(0, &(addr + 4096).to_le_bytes())).unwrap();
    let error = s.remote.synchronize_blocking(Target::Device(0)).unwrap_err();
    assert_eq!(error.code, Code::IllegalAddress);
}

#[test]
fn long_images_arrive_whole() {
    let s = setup();
    let image: Vec<u8> = (0..3_500_000u32).map(|i| (i % 253) as u8).collect();
    let info = s.remote.module_load(0, 9, &image, &[("m".into(), 5)]).unwrap();
    assert_eq!(s.device.image(9), image);
    assert_eq!(info.functions[0].name, "mock");
    assert_eq!(s.remote.module_load(0, 10, b"", &[]).unwrap_err().code, Code::InvalidImage);
}

#[test]
fn a_lost_server_is_an_error_and_no_hang() {
    let s = setup();
    s.device.hold(0);
    let remote = s.remote.clone();
    let waiting = std::thread::spawn(move || remote.synchronize_blocking(Target::Stream(0)));
    while s.device.held() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    s.proxy.cut();
    assert_eq!(waiting.join().unwrap().unwrap_err().code, Code::SystemNotReady);
    assert_eq!(s.remote.launch(launch(0, &[])).unwrap_err().code, Code::SystemNotReady);
    assert_eq!(s.remote.mem_info(0).unwrap_err().code, Code::SystemNotReady);
    assert_eq!(s.server.join().unwrap(), End::Closed);
}

#[test]
fn silence_is_noticed_within_seconds() {
    let s = setup();
    s.proxy.stall();
    let start = Instant::now();
    let error = s.remote.synchronize_blocking(Target::Device(0)).unwrap_err();
    assert_eq!(error.code, Code::SystemNotReady);
    assert!(error.message.contains("silent"), "{}", error.message);
    assert!(start.elapsed() < 2 * PATIENCE);
}

#[test]
fn a_long_kernel_is_not_taken_for_silence() {
    let s = setup();
    s.device.hold(0);
    let (remote, device) = (s.remote.clone(), s.device.clone());
    let release = std::thread::spawn(move || {
        std::thread::sleep(rgpu_protocol::SILENCE + Duration::from_secs(2));
        device.release();
    });
    remote.synchronize_blocking(Target::Stream(0)).unwrap();
    release.join().unwrap();
}

#[test]
fn a_client_that_posts_faster_than_the_device_works_is_slowed() {
    let s = setup();
    let addr = base(&s);
    s.remote.mem_alloc(0, addr, 1 << 20, MemoryKind::Device).unwrap();
    s.device.hold_copies();
    let sent = Arc::new(AtomicU64::new(0));
    let poster = {
        let (remote, sent) = (s.remote.clone(), sent.clone());
        std::thread::spawn(move || {
            let data = vec![1u8; 1 << 20];
            for _ in 0..400 {
                let from = lent(Region::linear(data.as_ptr() as u64, 1 << 20));
                remote.copy_to_device(0, Region::linear(addr, 1 << 20), 0, from).unwrap();
                sent.fetch_add(1, SeqCst);
            }
        })
    };
    // For longer than a silent server would be borne: this one shows that it is alive.
    std::thread::sleep(rgpu_protocol::SILENCE + Duration::from_secs(2));
    let mut last = u64::MAX;
    while sent.load(SeqCst) != last {
        last = sent.load(SeqCst);
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(last < 200, "{last} MiB were taken in, though nothing was executed");
    s.device.release_copies();
    poster.join().unwrap();
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
}

/// Waits until so many bytes were copied to the device, and sees whether it stays at that.
fn wait_copied(device: &MockDevice, bytes: u64) {
    let end = Instant::now() + PATIENCE;
    while device.copied() < bytes && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(device.copied(), bytes);
}

/// Copies on a thread, by pieces of 1 MiB, to the first MiB of the device.
fn copy_much(s: &Setup, stream: u64, pieces: usize) -> JoinHandle<()> {
    let (remote, addr) = (s.remote.clone(), base(s));
    std::thread::spawn(move || {
        let data = vec![1u8; 1 << 20];
        for _ in 0..pieces {
            let from = lent(Region::linear(data.as_ptr() as u64, 1 << 20));
            remote.copy_to_device(stream, Region::linear(addr, 1 << 20), 0, from).unwrap();
        }
    })
}

#[test]
fn an_asked_call_does_not_wait_for_another_streams_bulk_data() {
    let s = setup();
    let addr = base(&s);
    s.remote.mem_alloc(0, addr, 1 << 20, MemoryKind::Device).unwrap();
    // Nothing that is put on these gets done.
    let streams = [0x100, 0x101, 0x102];
    for stream in streams {
        s.remote.stream_create(0, stream, true, 0).unwrap();
        s.device.hold(stream);
    }
    let first = copy_much(&s, streams[0], 256);
    wait_copied(&s.device, STREAM_WINDOW);
    let ask = || {
        let (answered, answers) = mpsc::channel();
        let remote = s.remote.clone();
        std::thread::spawn(move || {
            let mut bytes = [0u8; 4];
            let to = Region::linear(bytes.as_mut_ptr() as u64, 4);
            // SAFETY: the destination lives until the copy is over.
            let to = unsafe { HostTarget::new(to) };
            let copied = remote.copy_from_device_blocking(0, Region::linear(addr, 4), to);
            let info = remote.mem_info(0);
            answered.send(copied.and(info.map(|_| bytes)))
        });
        answers.recv_timeout(PATIENCE).expect("the call waits for another stream's data")
    };
    assert_eq!(ask(), Ok([1; 4]));
    assert_eq!(s.device.copied(), STREAM_WINDOW);
    // Other streams get through as well, as far as all together fit.
    let others = [copy_much(&s, streams[1], 256), copy_much(&s, streams[2], 256)];
    wait_copied(&s.device, BULK_WINDOW);
    assert_eq!(ask(), Ok([1; 4]));
    assert_eq!(s.device.copied(), BULK_WINDOW);
    s.device.release();
    others.into_iter().chain([first]).for_each(|copies| copies.join().unwrap());
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    assert_eq!(s.device.copied(), 3 * (256 << 20));
}

/// Waits until so many launches have arrived, and sees whether it stays at that.
fn wait_launched(device: &MockDevice, launches: u64) {
    let end = Instant::now() + PATIENCE;
    while device.launches() < launches && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(device.launches(), launches);
}

/// Launches on a thread, prepared and unprepared ones in turn, until one fails.
fn launch_many(s: &Setup, stream: u64, launches: u64) -> JoinHandle<Result<()>> {
    let remote = s.remote.clone();
    std::thread::spawn(move || {
        let prepared = remote.prepare_launch(launch(stream, b"x")).unwrap();
        (0..launches).try_for_each(|i| match i % 2 {
            0 => remote.launch_prepared(&prepared, b"x"),
            _ => remote.launch(launch(stream, b"x")),
        })
    })
}

/// A session with a module, and so many streams on which nothing gets done.
fn setup_stuck(streams: u64) -> (Setup, Vec<u64>) {
    let s = setup();
    s.remote.mem_alloc(0, base(&s), 4096, MemoryKind::Device).unwrap();
    s.remote.module_load(0, 1, b"image", &[]).unwrap();
    let streams: Vec<u64> = (0..streams).map(|i| 0x100 + i).collect();
    for &stream in &streams {
        s.remote.stream_create(0, stream, true, 0).unwrap();
        s.device.hold(stream);
    }
    (s, streams)
}

#[test]
fn an_asked_call_does_not_wait_for_another_streams_endless_calls() {
    let (s, streams) = setup_stuck(SESSION_CALLS / STREAM_CALLS + 1);
    let addr = base(&s);
    let before = s.proxy.asked();
    let ask = |launches: u64| {
        let (answered, answers) = mpsc::channel();
        let remote = s.remote.clone();
        std::thread::spawn(move || {
            let launched = (0..launches).try_for_each(|_| remote.launch(launch(0, b"x")));
            let mut bytes = [0u8; 4];
            let to = Region::linear(bytes.as_mut_ptr() as u64, 4);
            // SAFETY: the destination lives until the copy is over.
            let to = unsafe { HostTarget::new(to) };
            let copied = remote.copy_from_device_blocking(0, Region::linear(addr, 4), to);
            answered.send(launched.and(copied))
        });
        answers.recv_timeout(PATIENCE).expect("the call waits for another stream's calls")
    };
    let mut endless = vec![launch_many(&s, streams[0], 100_000)];
    wait_launched(&s.device, STREAM_CALLS);
    // Another thread's launches and copies get through, and of the endless ones none.
    assert_eq!(ask(1), Ok(()));
    assert_eq!(s.device.launches(), STREAM_CALLS + 1);
    // So do other streams' calls, as far as all together fit; and what is asked gets through all the same.
    endless.extend(streams[1..].iter().map(|&stream| launch_many(&s, stream, STREAM_CALLS)));
    let end = Instant::now() + PATIENCE;
    while s.device.launches() + 1024 < SESSION_CALLS && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ask(0), Ok(()));
    let taken = s.device.launches();
    assert!((SESSION_CALLS - 1024..=SESSION_CALLS + 1).contains(&taken), "{taken}");
    // Nobody has asked for word of the calls.
    assert_eq!(s.proxy.asked() - before, 2);
    s.device.release();
    endless.into_iter().for_each(|launches| launches.join().unwrap().unwrap());
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    assert_eq!(s.device.launches(), 1 + 100_000 + SESSION_CALLS);
}

#[test]
fn whoever_waits_to_post_learns_that_the_server_is_gone() {
    let (s, streams) = setup_stuck(1);
    let endless = launch_many(&s, streams[0], u64::MAX);
    wait_launched(&s.device, STREAM_CALLS);
    s.proxy.cut();
    assert_eq!(endless.join().unwrap().unwrap_err().code, Code::SystemNotReady);
    assert_eq!(s.remote.launch(launch(0, b"x")).unwrap_err().code, Code::SystemNotReady);
    assert_eq!(s.server.join().unwrap(), End::Closed);
}

#[test]
fn launches_do_not_wait_for_a_stream_that_may_wait_for_the_program() {
    let (s, streams) = setup_stuck(1);
    s.remote.host_func(streams[0], 7).unwrap();
    // The host function returns only when this thread has gone on.
    launch_many(&s, streams[0], 3 * STREAM_CALLS).join().unwrap().unwrap();
    s.remote.host_func_done(7).unwrap();
    s.device.release();
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    assert_eq!(s.device.launches(), 3 * STREAM_CALLS);
}

#[test]
fn an_older_server_looks_at_no_kernels() {
    let (send, _receive) = mpsc::channel();
    let (address, server) = serve(1 << 30, 8, send);
    let check = Check::of_tools("memcheck");
    let options = ConnectOptions { check, ..ConnectOptions::default() };
    let refused = Remote::connect(&address, options, Arc::new(TestHost::default())).err().unwrap();
    assert_eq!(refused.code, Code::SystemNotReady);
    assert!(refused.message.contains("is of an older release of rgpu"), "{}", refused.message);
    assert_eq!(server.join().unwrap(), End::Closed);
}

#[test]
fn an_older_server_gets_no_marks() {
    let s = setup_speaking(1 << 30, wire::Mark::SINCE - 1);
    s.remote.module_load(0, 1, b"image", &[]).unwrap();
    s.remote.stream_create(0, 0x100, true, 0).unwrap();
    s.device.hold(0x100);
    // Fewer than make the server itself stop.
    launch_many(&s, 0x100, 2 * STREAM_CALLS).join().unwrap().unwrap();
    s.remote.stream_destroy(0x100).unwrap();
    s.device.release();
    // Word of a mark would have come before this answer.
    s.remote.synchronize_blocking(Target::Stream(0)).unwrap();
    assert_eq!(s.device.launches(), 2 * STREAM_CALLS);
    assert_eq!(s.proxy.reached(), 0);
}

#[test]
fn copies_do_not_wait_for_a_stream_that_may_wait_for_the_program() {
    let s = setup();
    s.remote.mem_alloc(0, base(&s), 1 << 20, MemoryKind::Device).unwrap();
    s.remote.host_func(0, 7).unwrap();
    // The host function returns only when this thread has gone on.
    s.device.hold(0);
    let (copied, over) = mpsc::channel();
    let copies = copy_much(&s, 0, 100);
    std::thread::spawn(move || copied.send(copies.join()));
    over.recv_timeout(PATIENCE).expect("the copies wait for the host function").unwrap();
    s.remote.host_func_done(7).unwrap();
    s.device.release();
    s.remote.synchronize_blocking(Target::Device(0)).unwrap();
    assert_eq!(s.device.copied(), 100 << 20);
}

/// A session with a software GPU of one worker, on a connection that the test moves.
struct Scripted {
    script: Script,
    device: Arc<rgpu_softgpu::SoftGpu>,
    /// The first address of its memory, of which there is a GiB.
    base: u64,
    reader: libc::pid_t,
    server: JoinHandle<End>,
    sequence: u64,
}

impl Scripted {
    fn new() -> Self {
        let script = Script::default();
        let session = Session::new(Arc::new(script.clone()));
        let config = rgpu_softgpu::Config { workers: 1, ..Default::default() };
        let device = rgpu_softgpu::SoftGpu::open(config, session.host()).unwrap();
        let plan = device.reserve(rgpu_device::Range { base: 1 << 44, size: 1 << 40 }).unwrap();
        let ledger = Arc::new(Ledger::new(&[1 << 30]).unwrap());
        let slot = ledger.take_slot().unwrap();
        let credit = initial_credit(&ledger, slot, 1);
        let (number, numbers) = mpsc::channel();
        let its = device.clone();
        let server = std::thread::spawn(move || {
            number.send(thread_number()).unwrap();
            session.run(its, ledger, slot, &credit, || {})
        });
        let (base, reader) = (plan.devices[0].base, numbers.recv().unwrap());
        Self { script, device, base, reader, server, sequence: 0 }
    }

    fn call<C: Call>(&mut self, call: C) {
        self.sequence += 1;
        let arguments = to_bytes(&call);
        let header = Header {
            length: arguments.len() as u32,
            kind: rgpu_protocol::frame::Kind::Call,
            flags: 0,
            call: C::NUMBER,
            sequence: self.sequence,
        };
        self.script.deliver(&[&header.to_bytes()[..], &arguments].concat());
    }

    fn linear(&self, bytes: u64) -> wire::Region {
        let (row_pitch, slice_pitch) = (bytes, bytes);
        wire::Region { addr: self.base, row_pitch, slice_pitch, width: bytes, height: 1, depth: 1 }
    }

    fn alloc(&mut self, size: u64) {
        let (addr, kind) = (self.base, MemoryKind::Device as u32);
        self.call(wire::MemAlloc { ordinal: 0, addr, size, kind });
    }

    fn end(mut self) {
        self.call(wire::Goodbye {});
        assert_eq!(self.server.join().unwrap(), End::Goodbye);
    }
}

/// Whoever waits for a mark learns what becomes of it, whatever becomes of the stream, and sees that the server is alive.
#[test]
fn marks_are_answered_in_any_case() {
    let mut s = Scripted::new();
    s.script.allow(usize::MAX);
    s.call(wire::Mark { stream: 0x999, number: 1 });
    let notices = |s: &Scripted, notice: Notice| {
        let its = |h: &&Header| h.kind == Kind::Notice && h.call == notice as u16;
        s.script.sent().iter().filter(its).count()
    };
    let wait = |s: &Scripted, notice: Notice, count: usize| {
        let end = Instant::now() + PATIENCE;
        while notices(s, notice) < count {
            assert!(Instant::now() < end, "there is no {notice:?} number {count}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // A stream that does not exist has nothing to do.
    wait(&s, Notice::Reached, 1);
    for stream in [0x100, 0x101] {
        s.call(wire::StreamCreate { ordinal: 0, stream, blocking: false, priority: 0 });
        s.call(wire::HostFunc { stream, id: stream });
        s.call(wire::Mark { stream, number: 2 });
    }
    wait(&s, Notice::HostFunc, 2);
    // The second one comes though no calls do.
    wait(&s, Notice::Heartbeat, 2);
    assert_eq!(notices(&s, Notice::Reached), 1);
    // One that is destroyed goes on to its end.
    s.call(wire::StreamDestroy { stream: 0x100 });
    s.call(wire::HostFuncDone { id: 0x100 });
    wait(&s, Notice::Reached, 2);
    s.call(wire::Reset { ordinal: 0 });
    wait(&s, Notice::Reached, 3);
    s.end();
}

#[test]
fn a_short_copy_to_the_host_and_its_answer_are_sent_in_one_go() {
    let mut s = Scripted::new();
    s.script.allow(usize::MAX);
    s.alloc(4096);
    for copies in 1..=100 {
        s.call(wire::CopyFromDevice { stream: 0, src: s.linear(4), host_addr: 0 });
        s.script.wait_sent(2 * copies);
    }
    assert_eq!((s.script.sent().len(), s.script.sends()), (200, 100));
    s.end();
}

#[test]
fn a_long_copy_to_the_host_delays_neither_calls_nor_other_streams() {
    const BYTES: u64 = 64 << 20;
    let mut s = Scripted::new();
    s.alloc(BYTES);
    for stream in [0x100, 0x101] {
        s.call(wire::StreamCreate { ordinal: 0, stream, blocking: false, priority: 0 });
    }
    // Two frames of the copy get through, and half of the third.
    s.script.allow(2 * (HEADER_BYTES + MAX_BULK) + MAX_BULK / 2);
    s.call(wire::CopyFromDevice { stream: 0x100, src: s.linear(BYTES), host_addr: 0 });
    s.script.wait_sent(2);
    s.script.wait_stuck();
    // The only worker does another stream's work meanwhile.
    s.call(wire::MemSet { stream: 0x101, region: s.linear(1 << 20), value: 7, element: 4 });
    s.call(wire::MemInfo { ordinal: 0 });
    s.script.wait_busy(s.reader);
    let end = Instant::now() + PATIENCE;
    while !s.device.query(Target::Stream(0x101)).unwrap() {
        assert!(Instant::now() < end, "the other stream waits for the copy");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!s.device.query(Target::Stream(0x100)).unwrap());
    // And the answer goes out after the frame that was on its way.
    s.script.allow(usize::MAX);
    let frames = 2 + BYTES as usize / MAX_BULK;
    s.script.wait_sent(frames);
    let sent = s.script.sent();
    let answer = |number| {
        let its = |h: &Header| h.kind == rgpu_protocol::frame::Kind::Answer && h.call == number;
        sent.iter().position(its)
    };
    assert_eq!(answer(wire::MemInfo::NUMBER), Some(3));
    assert_eq!(answer(wire::CopyFromDevice::NUMBER), Some(frames - 1));
    assert_eq!(sent.len(), frames);
    s.end();
}

#[test]
fn malformed_answers_end_the_session() {
    let s = setup();
    s.proxy.garble();
    let error = s.remote.mem_info(0).unwrap_err();
    assert_eq!(error.code, Code::SystemNotReady);
    assert!(error.message.contains("malformed"), "{}", error.message);
}

#[test]
fn versions_that_differ_are_refused_in_words() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes =
            hello::message(&HelloAnswer::refused(Status::Version, "it speaks 7.0, the client 1.0"));
        bytes[4] = 7;
        stream.write_all(&bytes).unwrap();
        let _ = stream.read(&mut [0; 4096]);
    });
    let host = Arc::new(TestHost::default());
    let error = Remote::connect(&address, ConnectOptions::default(), host.clone()).err().unwrap();
    assert!(error.message.contains("7.0"), "{}", error.message);
    server.join().unwrap();
    // And a port where nobody listens.
    let error = Remote::connect(&address, ConnectOptions::default(), host).err().unwrap();
    assert!(error.message.contains("rgpu serve"), "{}", error.message);
}

#[test]
fn random_frames_end_the_session_and_nothing_else() {
    for seed in 1..40u64 {
        let (send, _receive) = mpsc::channel();
        let (address, server) = serve(1 << 20, hello::MINOR, send);
        let mut stream = TcpStream::connect(&address).unwrap();
        let hello = Hello { range: hello::Range { base: 1 << 44, size: 1 << 40 }, ..Hello::default() };
        stream.write_all(&hello::message(&hello)).unwrap();
        let mut x = seed;
        let mut random = move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        // Frames with good headers and random bodies, for ever shorter runs; the last is a bad header.
        for sequence in 1..=seed {
            let length = (random() % 200) as u32;
            let mut frame = Vec::new();
            frame.extend_from_slice(&length.to_le_bytes());
            frame.extend_from_slice(&[1, 0]);
            frame.extend_from_slice(&((random() % 33) as u16).to_le_bytes());
            frame.extend_from_slice(&sequence.to_le_bytes());
            frame.extend((0..length).map(|_| random() as u8));
            if stream.write_all(&frame).is_err() {
                break;
            }
        }
        let _ = stream.write_all(&[0xff; 64]);
        let end = server.join().unwrap();
        assert!(matches!(end, End::Malformed(_)), "seed {seed}: {end:?}");
    }
}
