//! Long copies to the host, sent by a thread of their own.
//!
//! A device's thread that sends to the client waits for the network, and meanwhile executes nothing: a few long copies would
//! keep every other stream waiting. Where device memory lies in this process, the stream is held instead when the copy's
//! turn has come, and one thread sends what all held streams have to send: a frame of each in turn.

use super::outgoing::Outgoing;
use parking_lot::{Condvar, Mutex};
use rgpu_device::{Code, Error, Ordinal, Region, RegionCursor, Result};
use rgpu_protocol::frame::{MAX_BULK, Notice};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, mpsc};

/// Copies of fewer bytes are sent by the device's own thread.
pub(super) const APART_FROM: u64 = MAX_BULK as u64;
/// Rows of fewer bytes are gathered.
const SMALL: u64 = 8 << 10;
/// The most pieces of a frame.
const PIECES: usize = 512;

/// A copy whose turn has come.
pub(super) struct Job {
    /// The call's number.
    pub sequence: u64,
    /// The ordinal whose memory it reads.
    pub ordinal: Ordinal,
    /// Where the bytes lie.
    pub from: Region,
    /// What is to be done when they are sent, or will not be.
    pub then: Box<dyn FnOnce(Result<()>) + Send>,
}

/// Which memory is being read.
#[derive(Default)]
struct Reading {
    /// The ordinal of each copy that is not over.
    ordinals: Vec<Ordinal>,
    /// The ordinal whose memory is about to go.
    closed: Option<Ordinal>,
}

/// The thread's queue. It ends when nobody can put anything there any more.
#[derive(Clone)]
pub(super) struct BulkSender {
    jobs: mpsc::Sender<Job>,
    reading: Arc<(Mutex<Reading>, Condvar)>,
}

/// As long as it lives, no memory of an ordinal is read.
pub(super) struct Closed(Arc<(Mutex<Reading>, Condvar)>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.0.lock().closed = None;
    }
}

impl BulkSender {
    /// Starts the thread.
    pub(super) fn start(out: Arc<Outgoing>) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let reading = Arc::new((Mutex::new(Reading::default()), Condvar::new()));
        let its = reading.clone();
        std::thread::Builder::new().name("bulk".into()).stack_size(256 << 10).spawn(move || {
            run(&out, &queue, &its);
        })?;
        Ok(Self { jobs, reading })
    }

    /// Sends a copy's bytes, then calls `then`.
    ///
    /// # Safety
    /// The memory stays mapped until then, unless the ordinal is [closed](BulkSender::close).
    pub(super) unsafe fn send(&self, job: Job) {
        {
            let mut reading = self.reading.0.lock();
            if reading.closed != Some(job.ordinal) {
                reading.ordinals.push(job.ordinal);
                // The thread lives as long as this does.
                let _ = self.jobs.send(job);
                return;
            }
        }
        (job.then)(Err(Error::new(Code::ContextIsDestroyed, "The device was reset")));
    }

    /// Waits until no memory of an ordinal is read, and lets none be read until the result is dropped.
    pub(super) fn close(&self, ordinal: Ordinal) -> Closed {
        let (reading, changed) = &*self.reading;
        let mut reading = reading.lock();
        reading.closed = Some(ordinal);
        while reading.ordinals.contains(&ordinal) {
            changed.wait(&mut reading);
        }
        Closed(self.reading.clone())
    }
}

fn run(out: &Outgoing, jobs: &mpsc::Receiver<Job>, reading: &(Mutex<Reading>, Condvar)) {
    let mut open: VecDeque<(RegionCursor, Job)> = VecDeque::new();
    let begin = |job: Job| (RegionCursor::new(job.from), job);
    loop {
        if open.is_empty() {
            match jobs.recv() {
                Ok(job) => open.push_back(begin(job)),
                Err(_) => return,
            }
        }
        open.extend(jobs.try_iter().map(begin));
        let Some((mut cursor, job)) = open.pop_front() else { continue };
        send_frame(out, &mut cursor, job.sequence);
        if cursor.remaining() > 0 {
            open.push_back((cursor, job));
            continue;
        }
        {
            let mut reading = reading.0.lock();
            let its = reading.ordinals.iter().position(|o| *o == job.ordinal);
            its.map(|at| reading.ordinals.swap_remove(at));
        }
        reading.1.notify_all();
        (job.then)(Ok(()));
    }
}

/// Sends as much as goes into one frame.
fn send_frame(out: &Outgoing, cursor: &mut RegionCursor, sequence: u64) {
    let mut gathered = Vec::new();
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut length = 0;
    while let Some((addr, run)) = cursor.run()
        && length < MAX_BULK as u64
        && pieces.len() < PIECES
    {
        let run = run.min(MAX_BULK as u64 - length);
        let small = run < SMALL;
        if small != pieces.is_empty() && length > 0 {
            // Either kind goes into frames of its own.
            break;
        }
        // SAFETY: whoever put the job there vouches for the memory. Kernels of other streams may write it meanwhile; then
        // the program has a race, and gets one or the other byte.
        let bytes = unsafe { std::slice::from_raw_parts(addr as *const u8, run as usize) };
        if small {
            gathered.extend_from_slice(bytes);
        } else {
            pieces.push(bytes);
        }
        length += run;
        cursor.advance(run);
    }
    if pieces.is_empty() {
        pieces.push(&gathered);
    }
    out.notice(Notice::CopyData, sequence, &pieces);
}
