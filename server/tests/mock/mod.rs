//! A device that keeps its memory in a table and executes everything at once, except where a test holds it.

use rgpu_device::*;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Addresses, and bytes there.
type Writes = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

#[derive(Default)]
struct MockState {
    /// Allocations: address and bytes.
    memory: HashMap<u64, Vec<u8>>,
    images: HashMap<Handle, Vec<u8>>,
    launches: u64,
    copied: u64,
    order: Vec<u64>,
    next_failure: Option<Error>,
    sticky: Option<Error>,
    text: Vec<u8>,
    increment: bool,
    /// Pages that kernels are fetching.
    fetches: Vec<(u64, JoinHandle<Result<Vec<u8>>>)>,
    writes: Writes,
    hold: HashSet<Handle>,
    held: Vec<Done>,
    copies_held: bool,
    waiting_for_copies: Vec<Done>,
    outcomes_held: bool,
    /// Copies to the host that are over, of which nobody was told.
    untold: Vec<Box<dyn CopySink>>,
    host_funcs: Vec<u64>,
    host_funcs_done: Vec<u64>,
    waiting_for_host_funcs: Vec<Done>,
}

/// See the module's text.
pub(crate) struct MockDevice {
    host: Arc<dyn Host>,
    total: u64,
    state: Mutex<MockState>,
    failed: Condvar,
}

impl MockDevice {
    pub(crate) fn new(host: Arc<dyn Host>, total: u64) -> Arc<Self> {
        Arc::new(Self { host, total, state: Mutex::default(), failed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, MockState> {
        self.state.lock().unwrap()
    }

    pub(crate) fn launches(&self) -> u64 {
        self.lock().launches
    }

    /// Bytes that were copied to the device.
    pub(crate) fn copied(&self) -> u64 {
        self.lock().copied
    }

    /// The number in each launch's parameters.
    pub(crate) fn order(&self) -> Vec<u64> {
        self.lock().order.clone()
    }

    pub(crate) fn fail_next_launch(&self, error: Error) {
        self.lock().next_failure = Some(error);
    }

    pub(crate) fn wait_until_failed(&self) {
        let state = self.lock();
        drop(self.failed.wait_while(state, |s| s.next_failure.is_some()).unwrap());
    }

    pub(crate) fn print_at_launch(&self, text: &[u8]) {
        self.lock().text = text.to_vec();
    }

    pub(crate) fn increment_page_at_launch(&self) {
        self.lock().increment = true;
    }

    /// Synchronisations of the stream do not finish before `release`.
    pub(crate) fn hold(&self, stream: Handle) {
        self.lock().hold.insert(stream);
    }

    pub(crate) fn held(&self) -> usize {
        self.lock().held.len()
    }

    pub(crate) fn release(&self) {
        let held = {
            let mut state = self.lock();
            state.hold.clear();
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|done| done(Ok(())));
    }

    /// Copies to the device do not count as finished before `release_copies`.
    pub(crate) fn hold_copies(&self) {
        self.lock().copies_held = true;
    }

    pub(crate) fn release_copies(&self) {
        let held = {
            let mut state = self.lock();
            state.copies_held = false;
            std::mem::take(&mut state.waiting_for_copies)
        };
        held.into_iter().for_each(|done| done(Ok(())));
    }

    /// Copies to the host are made, and their streams go on, but their outcome is not told before `tell_outcomes`.
    pub(crate) fn hold_outcomes(&self) {
        self.lock().outcomes_held = true;
    }

    pub(crate) fn tell_outcomes(&self) {
        let untold = std::mem::take(&mut self.lock().untold);
        untold.into_iter().for_each(|sink| sink.done(Ok(())));
    }

    pub(crate) fn host_funcs_done(&self) -> Vec<u64> {
        self.lock().host_funcs_done.clone()
    }

    pub(crate) fn image(&self, module: Handle) -> Vec<u8> {
        self.lock().images[&module].clone()
    }

    /// The rows of a region.
    fn rows<'a>(state: &'a mut MockState, r: &Region) -> Result<Vec<&'a mut [u8]>> {
        let extent = r.extent().ok_or(Code::InvalidValue)?;
        let inside = |(base, bytes): &(&u64, &mut Vec<u8>)| {
            Range { base: **base, size: bytes.len() as u64 }.contains(r.addr, extent)
        };
        let (base, bytes) = state
            .memory
            .iter_mut()
            .find(inside)
            .ok_or_else(|| Error::new(Code::InvalidValue, "No such memory"))?;
        let mut rest = &mut bytes[(r.addr - base) as usize..];
        let mut rows = Vec::new();
        let mut at = 0;
        for y in 0..r.height * r.depth {
            let start = y / r.height * r.slice_pitch + y % r.height * r.row_pitch;
            let (_, tail) = rest.split_at_mut((start - at) as usize);
            let (row, tail) = tail.split_at_mut(r.width as usize);
            rows.push(row);
            (rest, at) = (tail, start + r.width);
        }
        Ok(rows)
    }
}

/// Whether a system call was carried out, or at least looked at: neither refused nor unknown.
fn passed(result: libc::c_long) -> bool {
    let refused = [libc::EPERM, libc::ENOSYS, libc::EACCES];
    result >= 0 || !refused.contains(&std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// Calls that no session has any use for, and that reach beyond the process.
fn calls_to_others() -> Vec<(&'static str, bool)> {
    let path = c"/tmp".as_ptr();
    // SAFETY: the daemon's process is only asked about or told nothing (signal 0); all pointers are null or to constants.
    unsafe {
        let daemon = libc::getppid();
        let zeros = [0u64; 16];
        // A code below 0 is one that a process may say to others.
        let mut queued = zeros;
        queued[1] = 0xffff_ffff;
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        let null = std::ptr::null::<u8>();
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let map = |protection| libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        let page = map(both);
        vec![
            (
                "signal with data",
                passed(libc::syscall(libc::SYS_rt_sigqueueinfo, daemon, 0, queued.as_ptr())),
            ),
            ("limits of others", passed(libc::syscall(libc::SYS_prlimit64, daemon, 0, null, &raw mut limit))),
            ("own limits", passed(libc::syscall(libc::SYS_setrlimit, libc::RLIMIT_STACK, zeros.as_ptr()))),
            ("shared memory of System V", passed(libc::syscall(libc::SYS_shmget, 0, 4096, 0o600))),
            ("attributes", passed(libc::syscall(libc::SYS_setxattr, path, c"user.x".as_ptr(), path, 1, 0))),
            ("trees", passed(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path, 0))),
            ("links", passed(libc::syscall(libc::SYS_readlink, path, page, 16))),
            ("userfaultfd", passed(libc::syscall(libc::SYS_userfaultfd, 0))),
            ("growing a mapping", passed(libc::syscall(libc::SYS_mremap, page, 4096, 8192, 1, 0))),
            ("writable code", passed(libc::mprotect(page, 4096, both | libc::PROT_EXEC).into())),
            ("mapped code", map(libc::PROT_READ | libc::PROT_EXEC) != libc::MAP_FAILED),
            ("signals for descriptors", passed(libc::fcntl(0, libc::F_SETOWN, daemon).into())),
            ("terminals", passed(libc::ioctl(2, libc::TIOCSTI, c"x".as_ptr()).into())),
            ("namespaces", passed(libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUTS))),
            // By the numbers of x32, where there are such.
            ("x32", passed(libc::syscall(0x4000_0000 + libc::SYS_getpid))),
        ]
    }
}

/// Whether some memory that this process shares with others can be taken away from under them.
fn cut_shared_memory() -> bool {
    (3..64).any(|fd| {
        // SAFETY: plain system calls on numbers; `about` is a valid place. What is cut is this process's own loss at worst.
        unsafe {
            let mut about: libc::stat = std::mem::zeroed();
            let file = libc::fstat(fd, &raw mut about) == 0 && about.st_mode & libc::S_IFMT == libc::S_IFREG;
            file && about.st_size > 0 && libc::ftruncate(fd, 0) == 0
        }
    })
}

/// Tries what a confined process must not be able to do, and what it must; says what is possible.
fn probe() -> Vec<&'static str> {
    let page = 4096;
    // SAFETY: a fresh mapping, and plain system calls that take no memory of ours.
    let (mapped, forked, killed) = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), page, protection, flags, -1, 0);
        let executable = libc::mprotect(at, page, libc::PROT_READ | libc::PROT_EXEC) == 0;
        let forked = libc::fork();
        if forked == 0 {
            libc::_exit(0);
        }
        (executable, forked > 0, libc::kill(libc::getppid(), 0) == 0)
    };
    let mut possible = calls_to_others();
    possible.extend([
        ("cutting shared memory", cut_shared_memory()),
        ("reading", std::fs::File::open("/proc/self/status").is_ok()),
        ("writing", std::fs::File::create("/tmp/rgpu-probe").is_ok()),
        ("deleting", std::fs::remove_file("/tmp/rgpu-probe").is_ok()),
        ("network", std::net::TcpListener::bind("127.0.0.1:0").is_ok()),
        ("program", std::process::Command::new("/bin/true").spawn().is_ok()),
        ("fork", forked),
        ("kill", killed),
        ("thread", std::thread::Builder::new().spawn(|| {}).is_ok_and(|t| t.join().is_ok())),
        ("memory", mapped),
    ]);
    possible.into_iter().filter(|p| p.1).map(|p| p.0).collect()
}

fn unsupported<T>() -> Result<T> {
    Err(Error::new(Code::NotSupported, "The mock does not do that"))
}

impl Device for MockDevice {
    fn infos(&self) -> Vec<DeviceInfo> {
        vec![DeviceInfo { name: "mock".into(), total_memory: self.total, ..DeviceInfo::default() }]
    }
    fn reserve(&self, proposal: Range) -> Result<AddressPlan> {
        let half = proposal.size / 2;
        Ok(AddressPlan {
            whole: proposal,
            devices: vec![Range { base: proposal.base, size: half }],
            shared: Range { base: proposal.base + half, size: half },
        })
    }
    fn mem_alloc(&self, _: Ordinal, addr: u64, size: u64, _: MemoryKind) -> Result<()> {
        self.lock().memory.insert(addr, vec![0; size as usize]);
        Ok(())
    }
    fn mem_free(&self, _: Ordinal, addr: u64, _: Option<Handle>) -> Result<()> {
        let freed = self.lock().memory.remove(&addr);
        freed.map(drop).ok_or_else(|| Code::InvalidValue.into())
    }
    fn mem_info(&self, _: Ordinal) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: self.total, total: self.total })
    }
    fn memset(&self, _: Handle, region: Region, value: u32, _: u32) -> Result<()> {
        Self::rows(&mut self.lock(), &region)?.into_iter().for_each(|row| row.fill(value as u8));
        Ok(())
    }
    fn copy_to_device(&self, _: Handle, dst: Region, _: u64, data: HostData) -> Result<()> {
        let HostData::Owned(bytes) = data else { return unsupported() };
        for (row, from) in
            Self::rows(&mut self.lock(), &dst)?.into_iter().zip(bytes.chunks(dst.width as usize))
        {
            row.copy_from_slice(from);
        }
        self.lock().copied += bytes.len() as u64;
        Ok(())
    }
    fn copy_from_device(&self, _: Handle, src: Region, _: u64, mut sink: Box<dyn CopySink>) {
        let rows = Self::rows(&mut self.lock(), &src)
            .map(|rows| rows.into_iter().map(|r| r.to_vec()).collect::<Vec<_>>());
        let result = rows.map(|rows| {
            let pieces: Vec<&[u8]> = rows.iter().map(|r| &r[..]).collect();
            sink.chunk(&pieces);
        });
        let mut state = self.lock();
        if state.outcomes_held && result.is_ok() {
            return state.untold.push(sink);
        }
        drop(state);
        sink.done(result);
    }
    fn copy_on_device(&self, _: Handle, _: Region, _: Region) -> Result<()> {
        unsupported()
    }
    fn module_load(
        &self,
        _: Ordinal,
        module: Handle,
        image: &[u8],
        _: &[(String, u64)],
    ) -> Result<ModuleInfo> {
        if image.is_empty() {
            return Err(Error::new(Code::InvalidImage, "The image is empty"));
        }
        if image == b"probe" {
            return Err(Error::new(Code::InvalidImage, format!("possible: {}", probe().join(", "))));
        }
        self.lock().images.insert(module, image.to_vec());
        let function = FunctionInfo { name: "mock".into(), ..FunctionInfo::default() };
        Ok(ModuleInfo { functions: vec![function], globals: Vec::new() })
    }
    fn module_unload(&self, _: Handle) -> Result<()> {
        Ok(())
    }
    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        if launch.params == b"for ever" {
            loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
        let mut state = self.lock();
        if let Some(error) = state.next_failure.take() {
            self.failed.notify_all();
            if error.code.is_sticky() {
                state.sticky = Some(error.clone());
            }
            return Err(error);
        }
        state.launches += 1;
        let number = launch.params.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        state.order.push(number);
        let text = std::mem::take(&mut state.text);
        let increment = state.increment;
        drop(state);
        if !text.is_empty() {
            self.host.print(&text);
        }
        if increment {
            // The reader must not wait for the answer that only it can read.
            let host = self.host.clone();
            let mut page = vec![0; 4096];
            let fetch = std::thread::spawn(move || host.fetch(number, &mut page).map(|()| page));
            self.lock().fetches.push((number, fetch));
        }
        Ok(())
    }
    fn stream_create(&self, _: Ordinal, _: Handle, _: bool, _: i32) -> Result<()> {
        Ok(())
    }
    fn stream_destroy(&self, _: Handle) -> Result<()> {
        Ok(())
    }
    fn stream_wait_event(&self, _: Handle, _: Handle) -> Result<()> {
        Ok(())
    }
    fn fence(&self, _: Handle) -> Result<()> {
        Ok(())
    }
    fn event_create(&self, _: Ordinal, _: Handle, _: bool) -> Result<()> {
        Ok(())
    }
    fn event_destroy(&self, _: Handle) -> Result<()> {
        Ok(())
    }
    fn event_record(&self, _: Handle, _: Handle) -> Result<()> {
        Ok(())
    }
    fn event_elapsed(&self, _: Handle, _: Handle) -> Result<f32> {
        Ok(1.5)
    }
    fn synchronize(&self, target: Target, done: Done) {
        let mut state = self.lock();
        let held = matches!(target, Target::Stream(s) if state.hold.contains(&s));
        if held {
            return state.held.push(done);
        }
        if state.copies_held {
            return state.waiting_for_copies.push(done);
        }
        if state.host_funcs.len() > state.host_funcs_done.len() {
            return state.waiting_for_host_funcs.push(done);
        }
        let (sticky, writes) = (state.sticky.clone(), state.writes.clone());
        let fetches = std::mem::take(&mut state.fetches);
        drop(state);
        if fetches.is_empty() {
            return done(sticky.map_or(Ok(()), Err));
        }
        // A kernel ends on a device's own thread.
        std::thread::spawn(move || {
            let finish = |(addr, fetch): (u64, JoinHandle<Result<Vec<u8>>>)| {
                let page = fetch.join().unwrap()?.iter().map(|b| b + 1).collect();
                writes.lock().unwrap().push((addr, page));
                Ok(())
            };
            done(fetches.into_iter().try_for_each(finish));
        });
    }
    fn query(&self, _: Target) -> Result<bool> {
        Ok(true)
    }
    fn host_func(&self, _: Handle, id: u64) -> Result<()> {
        self.lock().host_funcs.push(id);
        self.host.host_func(id);
        Ok(())
    }
    fn host_func_done(&self, id: u64) -> Result<()> {
        let mut state = self.lock();
        state.host_funcs_done.push(id);
        let waiting = std::mem::take(&mut state.waiting_for_host_funcs);
        drop(state);
        waiting.into_iter().for_each(|done| done(Ok(())));
        Ok(())
    }
    fn invalidate_shared(&self) -> Result<()> {
        Ok(())
    }
    fn collect_shared_writes(&self, sink: &mut dyn FnMut(u64, &[u8])) {
        let writes = self.lock().writes.clone();
        for (addr, bytes) in writes.lock().unwrap().drain(..) {
            sink(addr, &bytes);
        }
    }
    fn set_limit(&self, _: Ordinal, _: Limit, _: u64) -> Result<()> {
        Ok(())
    }
    fn reset(&self, _: Ordinal) -> Result<()> {
        self.lock().sticky = None;
        Ok(())
    }
    fn counters(&self) -> Counters {
        Counters { launches: self.lock().launches, busy_ns: 0 }
    }
}
