//! The daemon, with real processes: this very program is also the daemon and the application's process.

#[expect(dead_code, reason = "the other test program uses more of it")]
mod mock;
mod pipe;

use mock::MockDevice;
use pipe::PipeConnector;
use rgpu_control::token::{Claims, Grant, LeaseClaims, PrivateKey};
use rgpu_control::{LeaseId, proof, unix_time};
use rgpu_device::{
    Code, Device, Host, HostData, HostSource, HostTarget, Launch, MemoryKind, Region, Result, Target,
};
use rgpu_protocol::hello::{self, Hello, HelloAnswer, Prefix, Status};
use rgpu_protocol::transport::{CONNECTORS, Choice, Connectors, Shm, Tcp, local_name};
use rgpu_remote::{ConnectOptions, Credential, Remote};
use rgpu_server::app::OpenDevice;
use rgpu_server::{DeviceSpec, Options};
use rgpu_test_runner::{Skip, Test};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MEMORY: u64 = 64 << 20;

/// The transports that these tests know: one more than there are, and before all others.
const WITH_PIPE: Connectors = &[&PipeConnector, CONNECTORS[0], CONNECTORS[1], CONNECTORS[2]];
/// Makes a daemon one that knows no pipe.
const WITHOUT_PIPE: &str = "transports:all but the pipe";

/// How long anything may take; only something that hangs takes that long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the tests connect through shared memory.
static OVER_SHM: AtomicBool = AtomicBool::new(false);

/// A connection on which anything may be said.
trait Raw: Read + Write {
    fn finish(&mut self);
}

impl Raw for TcpStream {
    fn finish(&mut self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

impl Raw for UnixStream {
    fn finish(&mut self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(rgpu_server::APP_SERVER_COMMAND) => {
            let open: OpenDevice = |spec, host, _| Ok(MockDevice::new(host, spec.memory));
            return rgpu_server::app::app_server_with(open, WITH_PIPE);
        }
        Some("serve") => return serve(arguments.get(2)),
        _ => {}
    }
    let tests: &'static [(&str, fn())] = &[
        ("a_session_has_a_process_of_its_own", a_session_has_a_process_of_its_own),
        ("an_application_server_is_confined", an_application_server_is_confined),
        ("a_process_is_gone_with_its_client", a_process_is_gone_with_its_client),
        ("memory_of_the_dead_returns", memory_of_the_dead_returns),
        ("garbage_costs_no_process", garbage_costs_no_process),
        ("a_crowd_at_the_door_keeps_nobody_out", a_crowd_at_the_door_keeps_nobody_out),
        ("a_server_stops_before_a_crowd", a_server_stops_before_a_crowd),
        ("other_versions_are_refused", other_versions_are_refused),
        (
            "shared_memory_of_another_build_is_refused_in_words",
            shared_memory_of_another_build_is_refused_in_words,
        ),
        ("a_token_is_asked_for", a_token_is_asked_for),
        ("a_lease_is_asked_for", a_lease_is_asked_for),
        ("programs_of_a_lease_share_what_it_gives", programs_of_a_lease_share_what_it_gives),
        ("stopping_tells_the_clients", stopping_tells_the_clients),
        ("a_full_server_says_so", a_full_server_says_so),
        ("a_forked_child_leaves_the_session_alone", a_forked_child_leaves_the_session_alone),
        ("closed_descriptors_are_an_error", closed_descriptors_are_an_error),
        ("a_transport_is_a_file_and_an_entry_of_a_list", a_transport_is_a_file_and_an_entry_of_a_list),
    ];
    let ways = [("tcp", Tcp::KIND), ("shm", Shm::KIND)];
    let all = ways.into_iter().flat_map(|(over, kind)| {
        // One at a time: over which transport they connect is said to all of the program.
        tests.iter().map(move |(name, test)| {
            Test::alone(format!("{over}::{name}"), move || {
                OVER_SHM.store(kind == Shm::KIND, SeqCst);
                test();
                Ok(())
            })
        })
    });
    let walls = || Ok(an_ordinary_user_can_make_walls()?);
    let walls = Test::alone("walls::an_ordinary_user_can_make_them", walls);
    rgpu_test_runner::main(all.chain([walls]).collect())
}

fn serve(file: Option<&String>) -> ExitCode {
    let connectors = if file.is_some_and(|file| file == WITHOUT_PIPE) { CONNECTORS } else { WITH_PIPE };
    let file = file.filter(|file| *file != WITHOUT_PIPE);
    let key = file.and_then(|file| file.strip_prefix("key:"));
    let options = Options {
        connectors,
        device: DeviceSpec { memory: MEMORY, ..DeviceSpec::default() },
        token_file: file.filter(|_| key.is_none()).map(Into::into),
        broker_key: key.map(|key| (key.into(), "n0".into())),
        max_sessions: 9,
        ..Options::default()
    };
    match rgpu_server::serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

struct Daemon {
    process: Child,
    address: String,
}

impl Daemon {
    fn start(token_file: Option<&str>) -> Self {
        Self::try_start(Command::new(std::env::current_exe().unwrap()), token_file).unwrap()
    }

    fn try_start(mut command: Command, token_file: Option<&str>) -> std::io::Result<Self> {
        command.arg("serve").args(token_file).env("RGPU_SECRET", "x").stdout(Stdio::piped());
        let die_with_the_test = || {
            // SAFETY: a plain system call.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            Ok(())
        };
        // SAFETY: the closure makes one system call.
        unsafe { command.pre_exec(die_with_the_test) };
        let mut process = command.spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("rgpu: listening on ").unwrap().to_owned();
        Ok(Self { process, address })
    }

    fn connect(&self) -> Arc<Remote> {
        self.try_connect("").unwrap()
    }

    fn try_connect(&self, token: &str) -> Result<Arc<Remote>> {
        self.connect_with(token.into())
    }

    fn connect_with(&self, credential: Credential) -> Result<Arc<Remote>> {
        let kind = if OVER_SHM.load(SeqCst) { Shm::KIND } else { Tcp::KIND };
        let options =
            ConnectOptions { credential, transport: Some(Choice::Only(kind)), ..ConnectOptions::default() };
        Remote::connect(&self.address, options, Arc::new(Silent))
    }

    fn raw(&self) -> Box<dyn Raw> {
        if !OVER_SHM.load(SeqCst) {
            return Box::new(TcpStream::connect(&self.address).unwrap());
        }
        Box::new(self.local())
    }

    fn local(&self) -> UnixStream {
        UnixStream::connect_addr(&local(&self.address)).unwrap()
    }

    /// The daemon's children that are alive.
    fn children(&self) -> Vec<u32> {
        let pid = self.process.id();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let read =
            |t: std::fs::DirEntry| std::fs::read_to_string(t.path().join("children")).unwrap_or_default();
        let text: String = tasks.flatten().map(read).collect();
        text.split_whitespace().map(|p| p.parse().unwrap()).collect()
    }

    fn wait_for_children(&self, count: usize) -> Vec<u32> {
        let end = Instant::now() + PATIENCE;
        loop {
            let children = self.children();
            if children.len() == count {
                return children;
            }
            assert!(Instant::now() < end, "there are {} processes, not {count}", children.len());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Silent;

impl Host for Silent {
    fn print(&self, _: &[u8]) {}
    fn fetch(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Code::IllegalAddress.into())
    }
    fn host_func(&self, _: u64) {}
}

fn launch(params: &[u8]) -> Launch<'_> {
    Launch {
        stream: 0,
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

fn a_session_has_a_process_of_its_own() {
    let daemon = Daemon::start(None);
    assert!(daemon.children().is_empty());
    let sessions: Vec<_> = (0..8).map(|_| daemon.connect()).collect();
    let children = daemon.wait_for_children(8);
    for (i, session) in sessions.iter().enumerate() {
        assert_eq!(session.infos()[0].name, "mock");
        for _ in 0..=i {
            session.launch(launch(&[])).unwrap();
        }
        session.synchronize_blocking(Target::Device(0)).unwrap();
        assert_eq!(session.counters().launches, i as u64 + 1);
    }
    // The death of one is an error for its client, and nothing to the others.
    // SAFETY: the process is the daemon's child, alive.
    unsafe { libc::kill(children[3] as i32, libc::SIGKILL) };
    daemon.wait_for_children(7);
    let failed = sessions.iter().filter(|s| s.mem_info(0).is_err()).count();
    assert_eq!(failed, 1);
    drop(sessions);
    daemon.wait_for_children(0);
    daemon.connect().synchronize_blocking(Target::Device(0)).unwrap();
}

fn an_application_server_is_confined() {
    let daemon = Daemon::start(None);
    let session = daemon.connect();
    // The mock tries what a hostile kernel might, and tells what it could do.
    let error = session.module_load(0, 1, b"probe", &[]).unwrap_err();
    assert_eq!(error.message, "possible: thread, memory");
    let child = daemon.wait_for_children(1)[0];
    let environment = std::fs::read_to_string(format!("/proc/{child}/environ")).unwrap();
    assert!(!environment.contains("RGPU_SECRET"));
    let open: Vec<_> = std::fs::read_dir(format!("/proc/{child}/fd"))
        .unwrap()
        .map(|entry| std::fs::read_link(entry.unwrap().path()))
        .collect();
    // Neither is it a capability nor a way to look into it.
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap();
    let field =
        |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    assert_eq!(field("CapEff:"), "0000000000000000", "{status}");
    assert_eq!(field("NoNewPrivs:"), "1");
    // Besides the usual three: the program's connection, the way to the daemon's desk, and what shared memory needs.
    let most = if OVER_SHM.load(SeqCst) { 7 } else { 5 };
    assert!(open.len() <= most, "{} descriptors are open: {open:?}", open.len());
}

fn a_process_is_gone_with_its_client() {
    let daemon = Daemon::start(None);
    let session = daemon.connect();
    // An endless kernel, in which the reader itself is stuck.
    session.launch(launch(b"for ever")).unwrap();
    session.flush().unwrap();
    daemon.wait_for_children(1);
    std::thread::sleep(Duration::from_millis(100));
    session.goodbye();
    daemon.wait_for_children(0);
}

fn memory_of_the_dead_returns() {
    let daemon = Daemon::start(None);
    let (one, two) = (daemon.connect(), daemon.connect());
    let take = |s: &Remote, size| s.mem_alloc(0, s.plan().devices[0].base, size, MemoryKind::Device);
    take(&one, MEMORY / 2).unwrap();
    assert_eq!(take(&two, MEMORY * 3 / 4).unwrap_err().code, Code::OutOfMemory);
    let child = daemon.wait_for_children(2)[0];
    // SAFETY: the process is the daemon's child, alive.
    unsafe { libc::kill(child as i32, libc::SIGKILL) };
    daemon.wait_for_children(1);
    // Whichever died, the other can have nearly everything, as soon as the daemon has cleared its slot.
    let end = Instant::now() + PATIENCE;
    let one_lives = one.mem_info(0).is_ok();
    let (survivor, most) = if one_lives { (&one, MEMORY / 2) } else { (&two, MEMORY * 3 / 4) };
    while survivor.mem_info(0).unwrap().free < most {
        assert!(Instant::now() < end, "the memory did not return");
        std::thread::sleep(Duration::from_millis(5));
    }
    if !one_lives {
        take(&two, most).unwrap();
    }
}

fn garbage_costs_no_process() {
    let daemon = Daemon::start(None);
    let good = hello::message(&Hello::default());
    let mut x = 88172645463325252u64;
    let mut random = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    for round in 0..200 {
        let mut bytes = good.clone();
        if round % 2 == 0 {
            bytes = (0..random() % 300).map(|_| random() as u8).collect();
        } else {
            // The lengths inside do not add up any more, or the magic is another.
            // (Another minor version is no garbage.)
            let at = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11][random() as usize % 10];
            bytes[at] ^= (random() as u8) | 0x80;
        }
        let mut stream = daemon.raw();
        let _ = stream.write_all(&bytes);
        stream.finish();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(daemon.children().is_empty());
    // Many that say nothing do not keep others out for long.
    let _silent: Vec<_> = (0..20).map(|_| daemon.raw()).collect();
    daemon.connect().synchronize_blocking(Target::Device(0)).unwrap();
}

/// A process in a file system with nothing in it, in namespaces that are not this process's.
fn is_walled_in(child: u32) -> bool {
    let empty = std::fs::read_dir(format!("/proc/{child}/root")).unwrap().next().is_none();
    let apart = |name: &str| {
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
        of(&child.to_string()) != of("self")
    };
    empty && ["net", "ipc", "uts", "mnt"].into_iter().all(apart)
}

fn an_ordinary_user_can_make_walls() -> std::result::Result<(), Skip> {
    // SAFETY: a plain system call.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        return Err(Skip("only root can look into a process behind its walls".into()));
    }
    // A service's user.
    for user in [None, Some(990)] {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--net", "--mount", "true"]);
        if let Some(user) = user {
            unshare.uid(user).gid(user);
        }
        if !unshare.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Err(Skip(format!("the system lets user {user:?} make no namespaces")));
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let daemon = match Daemon::try_start(command, None) {
            Ok(daemon) => daemon,
            Err(e) => return Err(Skip(format!("user {user:?} cannot run this program: {e}"))),
        };
        let options =
            ConnectOptions { transport: Some(Choice::Only(Shm::KIND)), ..ConnectOptions::default() };
        // Also programs of other users share memory with a service.
        let session = Remote::connect(&daemon.address, options, Arc::new(Silent)).unwrap();
        session.synchronize_blocking(Target::Device(0)).unwrap();
        let child = daemon.wait_for_children(1)[0];
        assert!(is_walled_in(child), "user {user:?}");
        let limits = std::fs::read_to_string(format!("/proc/{child}/limits")).unwrap();
        let threads = limits.lines().find_map(|line| line.strip_prefix("Max processes")).unwrap();
        let threads: u32 = threads.split_whitespace().next().unwrap().parse().unwrap();
        assert!((512..8192).contains(&threads), "user {user:?}: {threads}");
    }
    Ok(())
}

/// So many clients of each kind stand at the door.
const CROWD: usize = 1000;

/// Lets this process, and daemons that it starts, have descriptors for a crowd.
fn allow_a_crowd() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with a valid place.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(16 << 10);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// Clients that say nothing, and clients that say what is no hello, or half of one.
fn crowd(daemon: &Daemon) -> Vec<Box<dyn Raw>> {
    let hello = hello::message(&Hello::default());
    let record = [22, 3, 1, 2, 0, 1];
    let words: [&[u8]; 5] = [b"", b"GET / HTTP/1.1\r\n", &hello[..hello.len() - 1], &hello[..5], &record];
    let garbage = (0..CROWD).map(|i| words[1 + i % 4]);
    let words = std::iter::repeat_n(words[0], CROWD).chain(garbage);
    words
        .map(|word| {
            let mut stream = daemon.raw();
            // The server may have let it go already.
            let _ = stream.write_all(word);
            stream
        })
        .collect()
}

fn a_crowd_at_the_door_keeps_nobody_out() {
    allow_a_crowd();
    let daemon = Daemon::start(None);
    let crowd = crowd(&daemon);
    let mut times = Vec::new();
    for newcomer in 0..50 {
        // Both those that come over the network and those of this machine, whichever the crowd is.
        let kind = if newcomer % 2 == 0 { Tcp::KIND } else { Shm::KIND };
        let options = ConnectOptions { transport: Some(Choice::Only(kind)), ..ConnectOptions::default() };
        let begun = Instant::now();
        let session = Remote::connect(&daemon.address, options, Arc::new(Silent)).unwrap();
        times.push(begun.elapsed());
        session.synchronize_blocking(Target::Device(0)).unwrap();
    }
    times.sort();
    println!(
        "{} newcomers: median {:?}, longest {:?}",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
    assert_eq!(crowd.len(), 2 * CROWD);
}

fn a_server_stops_before_a_crowd() {
    allow_a_crowd();
    let mut daemon = Daemon::start(None);
    let _session = daemon.connect();
    let _crowd = crowd(&daemon);
    let begun = Instant::now();
    // SAFETY: the daemon is this process's child, alive.
    unsafe { libc::kill(daemon.process.id() as i32, libc::SIGTERM) };
    while daemon.process.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the daemon does not stop");
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("stopped after {:?}", begun.elapsed());
}

/// Where a server on this machine listens for clients that can share memory with it.
fn local(address: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(local_name(&address.parse().unwrap())).unwrap()
}

/// How a server answers a hello, after which it says no more.
fn answer_to(bytes: &[u8], mut stream: impl Read + Write) -> HelloAnswer {
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let (prefix, body) = answer.split_at(hello::PREFIX_BYTES);
    let prefix = Prefix::parse(prefix.try_into().unwrap(), hello::MAX_HELLO_ANSWER).unwrap();
    HelloAnswer::parse(prefix, body).unwrap()
}

fn other_versions_are_refused() {
    let daemon = Daemon::start(None);
    let mut bytes = hello::message(&Hello::default());
    bytes[4] = 9;
    let answer = answer_to(&bytes, daemon.raw());
    assert_eq!(Status::from_number(answer.status), Status::Version);
    assert!(answer.message.contains("the client 9."), "{}", answer.message);
}

/// Makes a server one of an earlier build, which knows nothing of the present shared memory: clients that come to the address
/// that is returned have no word of that in their hello.
fn earlier_build_of(daemon: &Daemon) -> String {
    // The port is taken by this, so that nobody else has the name.
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    let listener = UnixListener::bind_addr(&local(&address)).unwrap();
    let server = daemon.address.clone();
    std::thread::spawn(move || {
        let _port = port;
        for client in listener.incoming() {
            let (mut client, mut server) =
                (client.unwrap(), UnixStream::connect_addr(&local(&server)).unwrap());
            let mut prefix = [0; hello::PREFIX_BYTES];
            client.read_exact(&mut prefix).unwrap();
            let length = Prefix::parse(&prefix, hello::MAX_HELLO).unwrap().length;
            let mut body = vec![0; length as usize];
            client.read_exact(&mut body).unwrap();
            let (mut hello, more) = Hello::parse_with_more(&body).unwrap();
            assert_ne!(hello.features & Shm::FEATURE, 0);
            hello.features &= !Shm::FEATURE;
            server.write_all(&hello::message(&(hello, more))).unwrap();
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    address
}

fn shared_memory_of_another_build_is_refused_in_words() {
    let daemon = Daemon::start(None);
    // A client of an earlier build.
    let earlier = Hello { features: Shm::EARLIER_FEATURE, ..Hello::default() };
    let answer = answer_to(&hello::message(&earlier), daemon.local());
    assert_eq!(Status::from_number(answer.status), Status::Unavailable);
    for words in
        ["its shared memory works otherwise", "the same release of rgpu on both sides", "--transport tcp"]
    {
        assert!(answer.message.contains(words), "{}", answer.message);
    }
    assert!(daemon.children().is_empty());
    // A server of an earlier build: who wants shared memory alone is told, and others do without it.
    let address = earlier_build_of(&daemon);
    let connect = |transport| {
        let options = ConnectOptions { transport: Some(transport), ..ConnectOptions::default() };
        Remote::connect(&address, options, Arc::new(Silent))
    };
    let message = connect(Choice::Only(Shm::KIND)).err().unwrap().message;
    for words in ["offers no shared memory that this release of rgpu knows", "use the same one on both sides"]
    {
        assert!(message.contains(words), "{message}");
    }
    let remote = connect(Choice::Auto).unwrap();
    remote.synchronize_blocking(Target::Device(0)).unwrap();
    // With the same build it is used.
    daemon.connect().synchronize_blocking(Target::Device(0)).unwrap();
}

/// What is called a pipe here is all that a new transport needs. It is negotiated as the others are.
fn a_transport_is_a_file_and_an_entry_of_a_list() {
    let connect = |daemon: &Daemon, transport| {
        let options =
            ConnectOptions { connectors: WITH_PIPE, transport: Some(transport), ..ConnectOptions::default() };
        Remote::connect(&daemon.address, options, Arc::new(Silent))
    };
    let (by_name, established) = (Choice::Only(PipeConnector::KIND), || pipe::ESTABLISHED.load(SeqCst));
    let daemon = Daemon::start(None);
    for choice in [Choice::Auto, by_name] {
        let before = established();
        let session = connect(&daemon, choice).unwrap();
        assert_eq!(established(), before + 1, "{choice:?}");
        for _ in 0..100 {
            session.launch(launch(&[])).unwrap();
        }
        session.synchronize_blocking(Target::Device(0)).unwrap();
        assert_eq!(session.counters().launches, 100);
        // Larger than what a socket holds, both ways.
        let (addr, size) = (session.plan().devices[0].base, 4 << 20);
        session.mem_alloc(0, addr, size, MemoryKind::Device).unwrap();
        let data: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        let (there, here) = (Region::linear(addr, size), Region::linear(data.as_ptr() as u64, size));
        // SAFETY: `data` is readable until the blocking copy back has returned.
        let source = unsafe { HostSource::new(here) };
        session.copy_to_device(0, there, here.addr, HostData::Borrowed(source)).unwrap();
        let mut back = vec![0u8; data.len()];
        let into = Region::linear(back.as_mut_ptr() as u64, size);
        // SAFETY: `back` is writable.
        let into = unsafe { HostTarget::new(into) };
        session.copy_from_device_blocking(0, there, into).unwrap();
        assert!(back == data);
        // The process is gone with its client, as over any transport.
        daemon.wait_for_children(1);
        session.goodbye();
        daemon.wait_for_children(0);
    }
    // A server that does not know it leaves the session where the hello was, and whoever wants nothing else is told.
    let before = established();
    let daemon = Daemon::start(Some(WITHOUT_PIPE));
    connect(&daemon, Choice::Auto).unwrap().synchronize_blocking(Target::Device(0)).unwrap();
    let message = connect(&daemon, by_name).err().unwrap().message;
    assert!(message.contains("offers no pipe; its log may say why"), "{message}");
    assert_eq!(established(), before);
}

fn a_token_is_asked_for() {
    let file = std::env::temp_dir().join(format!("rgpu-token-test-{}", std::process::id()));
    std::fs::write(&file, "s3cret\n").unwrap();
    let daemon = Daemon::start(file.to_str());
    for wrong in ["", "wrong", "s3cret\n"] {
        let error = daemon.try_connect(wrong).err().unwrap();
        assert!(error.message.contains("token"), "{}", error.message);
    }
    daemon.try_connect("s3cret").unwrap().synchronize_blocking(Target::Device(0)).unwrap();
    std::fs::remove_file(file).unwrap();
}

/// A broker, and a server that knows its key and is called n0.
struct Cluster {
    broker: PrivateKey,
    holder: PrivateKey,
    daemon: Daemon,
}

impl Cluster {
    fn start() -> Self {
        let broker = PrivateKey::generate();
        let file = std::env::temp_dir().join(format!("rgpu-key-test-{}", std::process::id()));
        std::fs::write(&file, broker.public().to_text()).unwrap();
        let daemon = Daemon::start(Some(&format!("key:{}", file.display())));
        std::fs::remove_file(file).unwrap();
        Self { broker, holder: PrivateKey::generate(), daemon }
    }

    fn lease(&self, memory: u64) -> LeaseClaims {
        LeaseClaims {
            lease: LeaseId::random(),
            version: 1,
            orders: 1,
            tenant: "ann".into(),
            not_before: unix_time(),
            expires: unix_time() + 60,
            holder: self.holder.public().to_text(),
            transport: "auto".into(),
            encrypt: false,
            grants: vec![Grant { node: "n0".into(), device: 0, memory, share_milli: 250 }],
        }
    }

    fn connect(&self, lease: &LeaseClaims) -> Result<Arc<Remote>> {
        let (token, holder) = (self.broker.sign(&Claims::Lease(lease.clone())), self.holder.clone());
        let prove = move |session, _: Option<&[u8; 32]>| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            proof::present(&token, &holder, session, "n0", now.as_millis() as u64)
        };
        self.daemon.connect_with(Credential::Made(Arc::new(prove)))
    }
}

fn a_lease_is_asked_for() {
    let cluster = Cluster::start();
    let refused = |result: Result<Arc<Remote>>, part: &str| {
        let error = result.err().unwrap();
        assert!(error.message.contains(part), "{}", error.message);
    };
    refused(cluster.daemon.try_connect(""), "wants a lease");
    refused(cluster.daemon.try_connect("s3cret"), "no token of rgpu's");
    let good = cluster.lease(MEMORY / 4);
    let session = cluster.connect(&good).unwrap();
    assert_eq!(session.infos().len(), 1);
    assert_eq!(session.infos()[0].total_memory, MEMORY / 4);
    assert_eq!(session.mem_info(0).unwrap().total, MEMORY / 4);
    assert_eq!(session.mem_info(0).unwrap().free, MEMORY / 4);
    refused(cluster.connect(&LeaseClaims { expires: unix_time() - 100, ..good.clone() }), "expired");
    let elsewhere = vec![Grant { node: "n1".into(), ..good.grants[0].clone() }];
    refused(
        cluster.connect(&LeaseClaims { grants: elsewhere, ..good.clone() }),
        "gives no device of this server",
    );
    let other = Cluster { broker: PrivateKey::generate(), ..cluster };
    refused(other.connect(&good), "forged");
}

fn programs_of_a_lease_share_what_it_gives() {
    let cluster = Cluster::start();
    let lease = cluster.lease(MEMORY / 2);
    let take = |s: &Remote, size| s.mem_alloc(0, s.plan().devices[0].base, size, MemoryKind::Device);
    let (one, two) = (cluster.connect(&lease).unwrap(), cluster.connect(&lease).unwrap());
    let other = cluster.connect(&cluster.lease(MEMORY)).unwrap();
    assert_eq!(take(&one, MEMORY).unwrap_err().code, Code::OutOfMemory);
    take(&one, MEMORY / 4).unwrap();
    one.synchronize_blocking(Target::Device(0)).unwrap();
    assert_eq!(two.mem_info(0).unwrap().total, MEMORY / 2);
    assert!(two.mem_info(0).unwrap().free <= MEMORY / 4);
    assert_eq!(take(&two, MEMORY * 3 / 8).unwrap_err().code, Code::OutOfMemory);
    // Another lease has no part in it, but in the device's memory.
    assert_eq!(take(&other, MEMORY * 7 / 8).unwrap_err().code, Code::OutOfMemory);
    // What the first one had is there as soon as it has ended, without a failure in between.
    drop(one);
    take(&two, MEMORY * 3 / 8).unwrap();
    two.synchronize_blocking(Target::Device(0)).unwrap();
}

fn stopping_tells_the_clients() {
    let mut daemon = Daemon::start(None);
    let session = daemon.connect();
    session.launch(launch(b"for ever")).unwrap();
    session.flush().unwrap();
    // SAFETY: the process is our child, alive.
    unsafe { libc::kill(daemon.process.id() as i32, libc::SIGTERM) };
    assert!(daemon.process.wait().unwrap().success());
    let error = session.synchronize_blocking(Target::Device(0)).unwrap_err();
    assert_eq!(error.code, Code::SystemNotReady);
    assert!(daemon.try_connect("").is_err());
}

/// This process's descriptors from 512 on, which are the library's.
fn high_descriptors() -> Vec<i32> {
    let name = |e: std::fs::DirEntry| e.file_name().to_str().unwrap().parse().unwrap();
    std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(name).filter(|fd| *fd >= 512).collect()
}

/// Waits until nothing is left of the sessions of other tests: threads of theirs may still be ending.
fn no_other_session() {
    let end = Instant::now() + PATIENCE;
    while !high_descriptors().is_empty() {
        assert!(Instant::now() < end, "descriptors are left over: {:?}", high_descriptors());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_forked_child_leaves_the_session_alone() {
    no_other_session();
    let daemon = Daemon::start(None);
    let session = daemon.connect();
    session.synchronize_blocking(Target::Device(0)).unwrap();
    assert!(!high_descriptors().is_empty());
    // SAFETY: the child does nothing but look at its descriptors and leave.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let left = high_descriptors().len();
        // SAFETY: ends the child alone.
        unsafe { libc::_exit(left as i32) };
    }
    let mut status = -1;
    // SAFETY: `status` is a valid place.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child held the parent's connection");
    session.launch(launch(&[])).unwrap();
    session.synchronize_blocking(Target::Device(0)).unwrap();
}

fn closed_descriptors_are_an_error() {
    no_other_session();
    let daemon = Daemon::start(None);
    let session = daemon.connect();
    session.synchronize_blocking(Target::Device(0)).unwrap();
    for fd in high_descriptors() {
        // SAFETY: what a program does that closes everything; the library must bear it.
        unsafe { libc::close(fd) };
    }
    // A server that has fallen asleep cannot be woken any more. Until it has, it finds in shared memory what is asked.
    let end = Instant::now() + PATIENCE;
    let error = loop {
        // With something to wait for, or else nobody is asked.
        match session.launch(launch(&[])).and_then(|()| session.synchronize_blocking(Target::Device(0))) {
            Err(error) => break error,
            Ok(()) => assert!(OVER_SHM.load(SeqCst) && Instant::now() < end, "nothing is wrong"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(error.code, Code::SystemNotReady);
    assert_eq!(session.launch(launch(&[])).unwrap_err().code, Code::SystemNotReady);
}

fn a_full_server_says_so() {
    let daemon = Daemon::start(None);
    let sessions: Vec<_> = (0..9).map(|_| daemon.connect()).collect();
    let error = daemon.try_connect("").err().unwrap();
    assert!(error.message.contains("limit"), "{}", error.message);
    drop(sessions);
    daemon.wait_for_children(0);
}
