//! `RGPU_TRACE=FILE`: every call with its times, here and at the server, for Chrome's and Perfetto's trace viewers.
//!
//! The file is an array of events in Chrome's JSON format, one a line. Where tracing is off, a call pays for one look at
//! a static, and a branch. What the server has measured comes with its answers and is told in the server's time; it is
//! kept until the end, when the [clocks](Clocks) are known best.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;
use rgpu_protocol::calls::CALL_NAMES;
use rgpu_protocol::frame::Traced;
use serde::Serialize;

/// The environment variable that names the file.
const VARIABLE: &str = "RGPU_TRACE";
/// So many of the server's records are kept until the end; what is more is written as it comes.
const MAX_KEPT: usize = 1 << 20;

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

/// An event of Chrome's trace format. Fields that a kind of event does not have are left out.
#[derive(Debug, Serialize)]
struct Event<'a> {
    name: &'a str,
    /// The category of a span.
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    /// The kind of event: [`SPAN`] or [`METADATA`].
    ph: &'static str,
    /// When a span began, and how long it took, in microseconds.
    #[serde(flatten)]
    times: Option<Times>,
    pid: u64,
    tid: u64,
    args: Args<'a>,
}

/// An event with a beginning and a duration ("complete" in the format's words).
const SPAN: &str = "X";
/// The name of a process or a thread.
const METADATA: &str = "M";

#[derive(Debug, Clone, Copy, Serialize)]
struct Times {
    ts: f64,
    dur: f64,
}

impl Times {
    /// From nanoseconds.
    fn new(start: u64, end: u64) -> Self {
        let micros = |ns: u64| ns as f64 / 1000.0;
        Self { ts: micros(start), dur: micros(end.saturating_sub(start)) }
    }
}

/// What viewers show beside an event.
#[derive(Debug, Default, Serialize)]
struct Args<'a> {
    /// Of a process or a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// What a call of the program has returned, where that is not success.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<u32>,
    /// The call's number in the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
}

impl Args<'_> {
    fn sequence(sequence: u64) -> Self {
        Self { sequence: Some(sequence), ..Self::default() }
    }
}

/// Whose time a span shows: a thread of a process, as the viewers group them.
#[derive(Debug, Clone, Copy)]
struct Track {
    pid: u64,
    tid: u64,
}

impl Track {
    /// The calling thread of this program.
    fn here() -> Self {
        Self { pid: client_pid(), tid: thread() }
    }

    /// A thread of the server: 0 executes calls, what follows are its streams.
    fn server(tid: u64) -> Self {
        Self { pid: server_pid(), tid }
    }
}

struct Trace {
    name: String,
    file: BufWriter<File>,
    /// Whether the file could not be written, which was said.
    cut_off: bool,
    any: bool,
    clocks: Clocks,
    /// Calls that were asked, by sequence number, until both sides' times are known.
    asked: HashMap<u64, Asked>,
    /// What came from the server.
    kept: Vec<Traced>,
    /// When each stream of the server finished its last work, in the server's time.
    streams: HashMap<u64, u64>,
    /// Calls that were dispatched and whose work is not known to be finished: call and time of dispatch.
    dispatched: HashMap<u64, (u16, u64)>,
}

/// A call that was asked.
#[derive(Debug, Clone, Copy)]
struct Asked {
    sent: u64,
    received: Option<u64>,
    /// When the server began with it, and answered.
    server: Option<(u64, u64)>,
}

/// How the server's clock stands to ours, by the round trip that took least.
///
/// A call is sent at `c0`, dispatched at `s1`, answered at `s2`, and its answer received at `c3`. If both ways take
/// equally long, the server's clock is ahead by `((s1 - c0) + (s2 - c3)) / 2`; the error is at most half of what the round trip
/// took without the server's work.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clocks {
    best: Option<(u64, i64)>,
}

impl Clocks {
    /// Learns from a round trip.
    pub fn learn(&mut self, [c0, s1, s2, c3]: [u64; 4]) {
        let delay = c3.saturating_sub(c0).saturating_sub(s2.saturating_sub(s1));
        let (out, back) = (s1 as i64 - c0 as i64, s2 as i64 - c3 as i64);
        let ahead = out / 2 + back / 2;
        if self.best.is_none_or(|(least, _)| delay < least) {
            self.best = Some((delay, ahead));
        }
    }

    /// A time of the server's in our time.
    pub fn ours(&self, theirs: u64) -> u64 {
        let ahead = self.best.map_or(0, |(_, ahead)| ahead);
        (theirs as i64 - ahead).max(0) as u64
    }
}

/// The time in nanoseconds.
pub fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Whether calls are traced.
#[inline(always)]
pub fn is_on() -> bool {
    STATE.load(Relaxed) != OFF && is_really_on()
}

/// The time, if calls are traced; else 0.
#[inline(always)]
pub fn start() -> u64 {
    if is_on() { now() } else { 0 }
}

#[cold]
fn is_really_on() -> bool {
    if STATE.load(Relaxed) == UNKNOWN {
        open();
    }
    STATE.load(Relaxed) == ON
}

fn open() {
    let mut trace = TRACE.lock();
    if STATE.load(Relaxed) != UNKNOWN {
        return;
    }
    let name = rgpu_protocol::sys::variable_of_a_file(VARIABLE);
    let name = name.and_then(|name| name.into_string().ok()).unwrap_or_default();
    if name.is_empty() {
        return STATE.store(OFF, Relaxed);
    }
    let name = name.replace("%p", &std::process::id().to_string());
    match File::create(&name) {
        Ok(file) => {
            *trace = Some(Trace::new(name, file));
            if let Some(trace) = trace.as_mut() {
                let program = std::env::current_exe().unwrap_or_default();
                let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
                trace.name_process(client_pid(), &program);
                trace.name_process(server_pid(), "rgpu server");
                trace.name_thread(server_pid(), 0, "calls");
            }
            STATE.store(ON, Relaxed);
        }
        Err(e) => {
            say(&format!("cannot write {name}: {e}"));
            STATE.store(OFF, Relaxed);
        }
    }
}

/// In a forked child: the file is the parent's.
pub fn abandon() {
    let _ = STATE.compare_exchange(ON, OFF, Relaxed, Relaxed);
    if let Some(mut trace) = TRACE.try_lock() {
        std::mem::forget(trace.take());
    }
}

/// The program has made a call that began at `start`.
#[cold]
pub fn api(name: &str, start: u64, code: u32) {
    let end = now();
    with(|trace| {
        let args = Args { error: (code != 0).then_some(code), ..Args::default() };
        trace.span(name, "api", Track::here(), (start, end), args);
    });
}

/// A call was sent that nobody waits for.
#[cold]
pub fn posted(call: u16, sequence: u64, start: u64) {
    let end = now();
    with(|trace| {
        trace.span(name_of(call), "posted", Track::here(), (start, end), Args::sequence(sequence));
    });
}

/// A call was sent that is answered.
#[cold]
pub fn asked(sequence: u64, start: u64) {
    with(|trace| {
        trace.asked.insert(sequence, Asked { sent: start, received: None, server: None });
    });
}

/// An answer has come.
#[cold]
pub fn answered(call: u16, sequence: u64) {
    let end = now();
    with(|trace| {
        if let Some(asked) = trace.asked.get_mut(&sequence) {
            asked.received = Some(end);
            let start = asked.sent;
            trace.learn(sequence);
            trace.span(name_of(call), "asked", Track::here(), (start, end), Args::sequence(sequence));
        }
    });
}

/// The server has measured something.
#[cold]
pub fn measured(records: Vec<Traced>) {
    with(|trace| {
        for record in records {
            if record.kind != Traced::ANSWERED {
                trace.kept.push(record);
            } else if let Some(asked) = trace.asked.get_mut(&record.sequence) {
                asked.server = Some((record.start, record.end));
                trace.learn(record.sequence);
            }
        }
        if trace.kept.len() >= MAX_KEPT {
            trace.write_kept();
        }
    });
}

/// Writes the end of the file.
#[cold]
pub fn close() {
    if let Some(mut trace) = TRACE.lock().take() {
        trace.end();
    }
    STATE.store(OFF, Relaxed);
}

/// Says something on stderr, in one piece; a closed stderr is no reason to fail.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("rgpu: {VARIABLE}: {text}\n").as_bytes());
}

fn with(f: impl FnOnce(&mut Trace)) {
    if let Some(trace) = TRACE.lock().as_mut() {
        f(trace);
    }
}

fn client_pid() -> u64 {
    u64::from(std::process::id())
}

/// A number that no process has.
fn server_pid() -> u64 {
    client_pid() + (1 << 32)
}

fn thread() -> u64 {
    // SAFETY: plain system call.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

fn name_of(call: u16) -> &'static str {
    CALL_NAMES.get(usize::from(call)).copied().unwrap_or("?")
}

impl Trace {
    fn new(name: String, file: File) -> Self {
        Self {
            name,
            file: BufWriter::with_capacity(256 << 10, file),
            cut_off: false,
            any: false,
            clocks: Clocks::default(),
            asked: Default::default(),
            kept: Vec::new(),
            streams: Default::default(),
            dispatched: Default::default(),
        }
    }

    /// Writes what is left, and the end of the file.
    fn end(&mut self) {
        self.write_kept();
        self.write(|file| file.write_all(b"\n]\n").and_then(|()| file.flush()));
    }

    /// Writes to the file, until that fails. The program has nothing to do with it, but who reads the file has.
    fn write(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) {
        if self.cut_off {
            return;
        }
        if let Err(error) = write(&mut self.file) {
            self.cut_off = true;
            say(&format!("{} is not complete: {error}", self.name));
        }
    }

    /// Learns about the clocks, if all times of a call are known.
    fn learn(&mut self, sequence: u64) {
        if let Some(Asked { sent, received: Some(received), server: Some((begun, answered)) }) =
            self.asked.get(&sequence).copied()
        {
            self.asked.remove(&sequence);
            self.clocks.learn([sent, begun, answered, received]);
        }
    }

    fn write_kept(&mut self) {
        let clocks = self.clocks;
        let mut finished: Vec<(u64, u64, u64)> = Vec::new();
        for Traced { kind, call, sequence, stream, start, end } in std::mem::take(&mut self.kept) {
            match kind {
                Traced::DISPATCHED => {
                    self.dispatched.insert(sequence, (call, end));
                    let times = (clocks.ours(start), clocks.ours(end));
                    self.span(name_of(call), "server", Track::server(0), times, Args::sequence(sequence));
                }
                _ => finished.push((stream, sequence, end)),
            }
        }
        finished.sort_unstable();
        // A stream's work is done in order, whatever the order in which that was told.
        for i in (1..finished.len()).rev() {
            let (stream, _, end) = finished[i];
            if finished[i - 1].0 == stream {
                finished[i - 1].2 = finished[i - 1].2.min(end);
            }
        }
        for (stream, sequence, end) in finished {
            // It begins when it was dispatched and what was before it has finished.
            let Some((call, dispatched)) = self.dispatched.remove(&sequence) else { continue };
            if !self.streams.contains_key(&stream) {
                self.name_thread(server_pid(), stream + 1, &format!("stream {stream}"));
            }
            let before = self.streams.insert(stream, end).unwrap_or(0);
            let times = (clocks.ours(before.max(dispatched)), clocks.ours(end));
            let track = Track::server(stream + 1);
            self.span(name_of(call), "executed", track, times, Args::sequence(sequence));
        }
    }

    fn span(
        &mut self,
        name: &str,
        category: &'static str,
        Track { pid, tid }: Track,
        (start, end): (u64, u64),
        args: Args<'_>,
    ) {
        let times = Some(Times::new(start, end));
        self.event(&Event { name, cat: Some(category), ph: SPAN, times, pid, tid, args });
    }

    fn name_process(&mut self, pid: u64, name: &str) {
        self.metadata("process_name", pid, 0, name);
    }

    fn name_thread(&mut self, pid: u64, tid: u64, name: &str) {
        self.metadata("thread_name", pid, tid, name);
    }

    fn metadata(&mut self, what: &str, pid: u64, tid: u64, name: &str) {
        let args = Args { name: Some(name), ..Args::default() };
        self.event(&Event { name: what, cat: None, ph: METADATA, times: None, pid, tid, args });
    }

    /// Writes an event in a line of its own.
    fn event(&mut self, event: &Event<'_>) {
        let before: &[u8] = if self.any { b",\n" } else { b"[\n" };
        self.any = true;
        self.write(|file| file.write_all(before).and_then(|()| Ok(serde_json::to_writer(file, event)?)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_aligned_by_the_quickest_round_trip() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.ours(5), 5);
        // The server is 1,000,000 ahead. A slow and lopsided round trip first, then a quick and even one.
        clocks.learn([100, 1_000_900, 1_001_000, 1_050]);
        clocks.learn([2_000, 1_002_010, 1_002_050, 2_060]);
        assert_eq!(clocks.ours(1_002_030), 2_030);
        clocks.learn([3_000, 1_003_900, 1_004_000, 4_050]);
        assert_eq!(clocks.ours(1_002_030), 2_030);
        // A server that is behind.
        let mut clocks = Clocks::default();
        clocks.learn([1_000_000, 10, 20, 1_000_030]);
        assert_eq!(clocks.ours(15), 1_000_015);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_given_up() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut trace = Trace::new("/dev/full".to_owned(), file);
        trace.name_process(1, "p");
        assert!(!trace.cut_off, "nothing has left the buffer");
        trace.end();
        assert!(trace.cut_off);
        let mut calls = 0;
        trace.write(|_| {
            calls += 1;
            Ok(())
        });
        assert_eq!(calls, 0);
    }

    #[test]
    fn names_are_quoted() {
        let args = Args { error: Some(2), ..Args::default() };
        let name = "a\"b\\c\n";
        let times = Some(Times::new(1_234_567, 1_234_667));
        let event = Event { name, cat: Some("api"), ph: SPAN, times, pid: 1, tid: 2, args };
        let line = serde_json::to_string(&event).unwrap();
        let expected = r#"{"name":"a\"b\\c\n","cat":"api","ph":"X","ts":1234.567,"dur":0.1,"pid":1,"tid":2,"args":{"error":2}}"#;
        assert_eq!(line, expected);
    }

    #[test]
    fn what_an_event_does_not_have_is_left_out() {
        let args = Args { name: Some("p"), ..Args::default() };
        let event =
            Event { name: "process_name", cat: None, ph: METADATA, times: None, pid: 1, tid: 0, args };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(line, r#"{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"p"}}"#);
    }
}
