//! The sending end of a link.

use super::{CopyEnd, Surroundings, no_link};
use parking_lot::{Condvar, Mutex};
use rgpu_device::{CopySink, Done, Error, Handle, RegionCursor, Result};
use rgpu_protocol::frame::{Header, MAX_BULK, Part};
use rgpu_protocol::transport::{Ready, Tcp, Transport};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

/// The most pieces of a frame.
const PIECES: usize = 256;
/// So many parts of a copy the device is asked for ahead.
const AHEAD: u64 = 4;
/// Between two looks at whether the other machine still answers.
const LOOK: Duration = Duration::from_secs(1);

/// See the module's text.
pub(super) struct Sender {
    tcp: Tcp,
    queue: Mutex<VecDeque<Job>>,
    changed: Condvar,
    over: AtomicBool,
}

/// A copy that is to be sent, or whose beginning was.
struct Job {
    transfer: u64,
    /// Where it is, or what is wrong with that.
    place: Result<CopyEnd>,
    /// What is still to be read.
    cursor: RegionCursor,
    /// What the device was asked for.
    ordered: Option<Ordered>,
    done: Done,
}

/// A part that the device has brought, by its number.
type Brought = (u64, Result<Vec<u8>>);

/// Parts that the device brings. It makes them in order, but may tell of two of them the other way round.
struct Ordered {
    sender: mpsc::Sender<Brought>,
    parts: mpsc::Receiver<Brought>,
    /// Those that others are to be taken before.
    early: HashMap<u64, Result<Vec<u8>>>,
    asked: u64,
    taken: u64,
}

impl Ordered {
    fn new() -> Self {
        let (sender, parts) = mpsc::channel();
        Self { sender, parts, early: HashMap::new(), asked: 0, taken: 0 }
    }

    fn underway(&self) -> u64 {
        self.asked - self.taken
    }

    /// Where the next part is brought to.
    fn ask(&mut self) -> Box<Gather> {
        let number = self.asked;
        self.asked += 1;
        Box::new(Gather { number, bytes: Vec::new(), to: self.sender.clone() })
    }

    /// The next part. Every part is brought or fails: the device sees to it.
    fn take(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(part) = self.early.remove(&self.taken) {
                self.taken += 1;
                return part;
            }
            let (number, part) = self.parts.recv().map_err(|_| lost())?;
            self.early.insert(number, part);
        }
    }
}

/// How far a job has come.
enum Progress {
    More,
    Over,
    /// The device has failed to read.
    Failed(Error),
}

impl Sender {
    /// Takes over a connection.
    pub(super) fn start(tcp: Tcp, around: Arc<Surroundings>) -> io::Result<Arc<Self>> {
        tcp.probe_when_idle()?;
        let sender = Arc::new(Self {
            tcp,
            queue: Mutex::default(),
            changed: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let its = sender.clone();
        let body = move || its.run(&around);
        std::thread::Builder::new().name("sender".into()).stack_size(256 << 10).spawn(body)?;
        Ok(sender)
    }

    /// Sends a copy, a frame of each in turn.
    pub(super) fn send(&self, transfer: u64, place: Result<CopyEnd>, done: Done) {
        let mut queue = self.queue.lock();
        if self.over.load(SeqCst) {
            drop(queue);
            return done(Err(lost()));
        }
        let cursor =
            RegionCursor::new(place.as_ref().map_or_else(|_| Default::default(), |place| place.region));
        queue.push_back(Job { transfer, place, cursor, ordered: None, done });
        self.changed.notify_one();
    }

    /// What was not sent fails.
    pub(super) fn close(&self) {
        {
            let _queue = self.queue.lock();
            self.over.store(true, SeqCst);
        }
        self.changed.notify_one();
        self.tcp.shutdown();
    }

    fn run(&self, around: &Surroundings) {
        while let Some(mut job) = self.next() {
            match self.advance(&mut job, around) {
                Ok(Progress::More) => self.queue.lock().push_back(job),
                Ok(Progress::Over) => (job.done)(Ok(())),
                Ok(Progress::Failed(error)) => (job.done)(Err(error)),
                Err(e) => {
                    tracing::debug!("a link to another server is lost: {e}");
                    self.close();
                    (job.done)(Err(lost()));
                }
            }
        }
        let left = std::mem::take(&mut *self.queue.lock());
        left.into_iter().for_each(|job| (job.done)(Err(lost())));
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if self.over.load(SeqCst) {
                return None;
            }
            if let Some(job) = queue.pop_front() {
                return Some(job);
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Sends one frame.
    fn advance(&self, job: &mut Job, around: &Surroundings) -> io::Result<Progress> {
        match &job.place {
            Ok(CopyEnd { here: true, .. }) => self.send_from_memory(job, around),
            Ok(CopyEnd { stream, .. }) => {
                let stream = *stream;
                self.send_ordered(job, stream, around)
            }
            Err(error) => {
                let error = error.clone();
                self.give_up(job.transfer, error, around)
            }
        }
    }

    /// Tells the other server that a copy has failed.
    fn give_up(&self, transfer: u64, error: Error, around: &Surroundings) -> io::Result<Progress> {
        let header = Header::part(Part::Failed, 0, transfer).to_bytes();
        self.write(&mut [IoSlice::new(&header)], around)?;
        Ok(Progress::Failed(error))
    }

    fn send_from_memory(&self, job: &mut Job, around: &Surroundings) -> io::Result<Progress> {
        let cursor = &mut job.cursor;
        let (mut pieces, mut length) = (vec![IoSlice::new(&[])], 0);
        while let Some((addr, run)) = cursor.run()
            && length < MAX_BULK as u64
            && pieces.len() <= PIECES
        {
            let run = run.min(MAX_BULK as u64 - length);
            // SAFETY: it lay in one of the session's allocations, and only the operating system's kernel looks at it. Where a
            // program frees it meanwhile, or has a kernel write it, that is an error, or one or the other byte.
            let bytes = unsafe { std::slice::from_raw_parts(addr as *const u8, run as usize) };
            pieces.push(IoSlice::new(bytes));
            length += run;
            cursor.advance(run);
        }
        let last = cursor.remaining() == 0;
        let part = if last { Part::Last } else { Part::More };
        let header = Header::part(part, length as usize, job.transfer).to_bytes();
        pieces[0] = IoSlice::new(&header);
        self.write(&mut pieces, around)?;
        Ok(if last { Progress::Over } else { Progress::More })
    }

    /// Sends the next part that the device brings.
    fn send_ordered(&self, job: &mut Job, stream: Handle, around: &Surroundings) -> io::Result<Progress> {
        let ordered = job.ordered.get_or_insert_with(Ordered::new);
        while ordered.underway() < AHEAD
            && let Some(part) = job.cursor.part(MAX_BULK as u64)
        {
            around.device.copy_from_device(stream, part, 0, ordered.ask());
            job.cursor.advance(part.bytes().unwrap_or(0));
        }
        let bytes = if ordered.underway() > 0 { ordered.take() } else { Ok(Vec::new()) };
        match bytes {
            Ok(bytes) => {
                let last = ordered.underway() == 0 && job.cursor.remaining() == 0;
                let part = if last { Part::Last } else { Part::More };
                let header = Header::part(part, bytes.len(), job.transfer).to_bytes();
                self.write(&mut [IoSlice::new(&header), IoSlice::new(&bytes)], around)?;
                Ok(if last { Progress::Over } else { Progress::More })
            }
            Err(error) => self.give_up(job.transfer, error, around),
        }
    }

    fn write(&self, pieces: &mut [IoSlice<'_>], around: &Surroundings) -> io::Result<()> {
        let mut rest = pieces;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.tcp.send(rest) {
                Ok(n) => {
                    around.sent(n as u64);
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.tcp.wait(Ready::WRITE, None, Some(LOOK))?;
                    if self.over.load(SeqCst) || self.tcp.is_unanswered() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

fn lost() -> Error {
    no_link("The connection to the other server is lost")
}

/// Gathers a part that the device brings.
struct Gather {
    number: u64,
    bytes: Vec<u8>,
    to: mpsc::Sender<Brought>,
}

impl CopySink for Gather {
    fn chunk(&mut self, pieces: &[&[u8]]) {
        pieces.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
    }

    fn done(self: Box<Self>, result: Result<()>) {
        // Nobody waits for it where the link is lost.
        let Self { number, bytes, to } = *self;
        let _ = to.send((number, result.map(|()| bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_in_order_however_they_are_told_of() {
        let mut ordered = Ordered::new();
        let mut sinks: Vec<_> = (0..3).map(|_| ordered.ask()).collect();
        for (byte, sink) in sinks.iter_mut().enumerate() {
            sink.chunk(&[&[byte as u8; 2], &[7]]);
        }
        assert_eq!(ordered.underway(), 3);
        let third = sinks.pop().unwrap();
        sinks.into_iter().rev().for_each(|sink| sink.done(Ok(())));
        assert_eq!(ordered.take().unwrap(), [0, 0, 7]);
        assert_eq!(ordered.take().unwrap(), [1, 1, 7]);
        third.done(Err(lost()));
        assert!(ordered.take().is_err());
        assert_eq!(ordered.underway(), 0);
    }
}
