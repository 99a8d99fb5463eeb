//! What went wrong, for programs that ask (`cuLogs*`): the last messages, and functions of the program's that are told
//! each.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::error::{Result, invalid};

/// How many bytes of messages are kept, as the public header says of the driver's.
const KEPT: usize = 25_600;
/// Stands where earlier messages are missing.
const MISSING: &str = "(earlier messages are missing)\n";

/// `CUlogsCallback`.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, c_int, *mut c_char, usize);

/// `CU_LOG_LEVEL_ERROR`, the level of all messages here.
const ERROR: c_int = 0;

/// A function of the program's and what it is called with.
#[derive(Clone, Copy)]
struct Listener {
    handle: usize,
    function: Callback,
    data: *mut c_void,
}
// SAFETY: it is called on any thread that makes CUDA calls; the program knows.
unsafe impl Send for Listener {}

/// The messages and who wants them.
struct Logs {
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of the next message; they count up, and wrap.
    next: u32,
    listeners: Vec<Listener>,
    last_handle: usize,
}

static LOGS: Mutex<Logs> =
    Mutex::new(Logs { lines: VecDeque::new(), bytes: 0, next: 0, listeners: Vec::new(), last_handle: 0 });

thread_local! {
    /// Whether this thread is in a listener, whose own mistakes are told to nobody.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Logs {
    fn keep(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        self.next = self.next.wrapping_add(1);
        while self.bytes > KEPT {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }

    /// The lines from a message on, or all; whether earlier ones are missing.
    fn from(&self, start: Option<u32>) -> (impl DoubleEndedIterator<Item = &String>, bool) {
        let wanted = start.map_or(self.next as usize, |start| self.next.wrapping_sub(start) as usize);
        let there = wanted.min(self.lines.len());
        (self.lines.range(self.lines.len() - there..), wanted > there)
    }
}

/// Keeps a message and tells it to the program's functions.
pub(super) fn note(call: &str, message: &str) {
    let line = line(call, message);
    let listeners = {
        let mut logs = LOGS.lock();
        logs.keep(format!("{line}\n"));
        if logs.listeners.is_empty() {
            return;
        }
        logs.listeners.clone()
    };
    if TELLING.try_with(|telling| telling.replace(true)).unwrap_or(true) {
        return;
    }
    let mut text = line.into_bytes();
    let len = text.len();
    text.push(0);
    for listener in listeners {
        // SAFETY: the program's own function with the program's own data. The text ends in NUL and outlives the call.
        unsafe { (listener.function)(listener.data, ERROR, text.as_mut_ptr().cast(), len) };
    }
    let _ = TELLING.try_with(|telling| telling.set(false));
}

/// A message as CUDA's guide describes it: time (UTC), thread, source, level, call.
fn line(call: &str, message: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (now.as_secs() % 86_400, now.subsec_millis());
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    // SAFETY: it has no arguments and cannot fail.
    let thread = unsafe { libc::gettid() };
    let message = message.replace('\0', " ");
    format!("[{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}][{thread}][CUDA][E][{call}] {message}")
}

/// `cuLogsRegisterCallback`: the function's handle.
pub(crate) fn register(function: Callback, data: *mut c_void) -> usize {
    let mut logs = LOGS.lock();
    logs.last_handle += 1;
    let handle = logs.last_handle;
    logs.listeners.push(Listener { handle, function, data });
    handle
}

/// `cuLogsUnregisterCallback`
pub(crate) fn unregister(handle: usize) -> Result<()> {
    let mut logs = LOGS.lock();
    let index = logs.listeners.iter().position(|listener| listener.handle == handle);
    let index = index.ok_or_else(|| invalid("no function for messages has this handle"))?;
    logs.listeners.remove(index);
    Ok(())
}

/// `cuLogsCurrent`: the number of the next message.
pub(crate) fn current() -> u32 {
    LOGS.lock().next
}

/// All messages from one on that are still there, and the number of the next one.
pub(crate) fn all(start: Option<u32>) -> (String, u32) {
    let logs = LOGS.lock();
    let (lines, missing) = logs.from(start);
    let head = if missing && start.is_some() { MISSING } else { "" };
    (lines.fold(head.to_owned(), |text, line| text + line), logs.next)
}

/// As [`all`], in at most so many bytes: the newest messages, if not all fit. Fails where not even one does.
pub(crate) fn newest(start: Option<u32>, room: usize) -> Result<(String, u32)> {
    let (text, next) = all(start);
    if text.len() <= room {
        return Ok((text, next));
    }
    let logs = LOGS.lock();
    let mut left = room.saturating_sub(MISSING.len());
    let fits = |line: &&String| {
        let fits = line.len() <= left;
        left = left.saturating_sub(line.len());
        fits
    };
    let newest: Vec<&String> = logs.from(start).0.rev().take_while(fits).collect();
    if newest.is_empty() {
        return Err(invalid("the buffer is too small for a message"));
    }
    let text = newest.iter().rev().fold(MISSING.to_owned(), |text, line| text + line);
    Ok((text, logs.next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_messages_are_kept_and_numbered() {
        let mut logs =
            Logs { lines: VecDeque::new(), bytes: 0, next: u32::MAX, listeners: vec![], last_handle: 0 };
        for number in 0..1000 {
            logs.keep(format!("{number:99}\n"));
        }
        assert_eq!((logs.bytes, logs.lines.len(), logs.next), (25_600, 256, 999));
        let lines = |start| {
            let (lines, missing) = logs.from(start);
            (lines.map(|line| line.trim().parse::<u32>().unwrap()).collect::<Vec<_>>(), missing)
        };
        assert_eq!(lines(Some(997)), (vec![998, 999], false));
        assert_eq!(lines(Some(999)), (vec![], false));
        // The first number was before the counter wrapped.
        let (all, missing) = lines(Some(u32::MAX));
        assert_eq!((all.len(), all[0], missing), (256, 744, true));
        assert_eq!(lines(None).0.len(), 256);
    }

    #[test]
    fn a_message_says_where_it_comes_from() {
        let line = line("cuInit", "odd\0flags");
        let parts: Vec<&str> = line.split(['[', ']']).filter(|part| !part.is_empty()).collect();
        assert_eq!(parts[2..], ["CUDA", "E", "cuInit", " odd flags"]);
        assert_eq!((parts[0].len(), parts[0].matches(':').count()), (12, 2), "{line}");
    }
}
