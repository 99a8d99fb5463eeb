//! The receiving end of a link.

use super::{CopyEnd, Surroundings, no_link};
use parking_lot::{Condvar, Mutex};
use rgpu_device::{Code, Done, Error, HostData, Region, RegionCursor, Result, Target};
use rgpu_protocol::frame::{Header, Kind, MAX_BULK, Part};
use rgpu_protocol::hello::{LinkAnswer, Status};
use rgpu_protocol::reader::{FrameReader, ReadError};
use rgpu_protocol::transport::{Ready, Tcp, Transport};
use rgpu_protocol::wire::DecodeError;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;

/// So many parts the device may be copying.
const UNDERWAY: usize = 8;
/// What is not wanted is read in pieces of this size.
const SCRAP: usize = 64 << 10;

/// See the module's text.
pub(super) struct Receiver {
    state: Mutex<ReceiverState>,
    changed: Condvar,
}

#[derive(Default)]
struct ReceiverState {
    tcp: Option<Arc<Tcp>>,
    /// Copies that the program has told of, and of which nothing has come yet.
    told: HashMap<u64, (Result<CopyEnd>, Done)>,
    over: bool,
}

/// A copy of which something has come.
struct Job {
    place: CopyEnd,
    /// Where the next byte goes.
    cursor: RegionCursor,
    /// Bytes of a part that the device is to copy when it is whole.
    gathered: Vec<u8>,
    copies: Arc<Copies>,
    failure: Option<Error>,
    done: Done,
}

/// Parts that the device copies.
#[derive(Default)]
struct Copies {
    state: Mutex<(usize, Option<Error>)>,
    changed: Condvar,
}

impl Receiver {
    /// Nobody has connected yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Condvar::new() })
    }

    /// Another server has connected. It is answered that the key is known here.
    pub(super) fn start(self: &Arc<Self>, tcp: Tcp, proof: [u8; 32], around: Arc<Surroundings>) {
        let tcp = Arc::new(tcp);
        {
            let mut state = self.state.lock();
            if state.over || state.tcp.is_some() {
                return;
            }
            state.tcp = Some(tcp.clone());
        }
        let its = self.clone();
        let body = move || {
            let answer = LinkAnswer { status: Status::Accepted as u32, proof, ..LinkAnswer::default() };
            let begun = tcp.probe_when_idle().and_then(|()| crate::greeting::say(&*tcp, &answer));
            let mut jobs = HashMap::new();
            let end = begun.map_err(ReadError::Io).and_then(|()| its.run(&tcp, &mut jobs, &around));
            tracing::debug!("a link from another server ends: {end:?}");
            its.close();
            jobs.into_values().for_each(|job: Job| (job.done)(Err(lost())));
        };
        if std::thread::Builder::new().name("receiver".into()).stack_size(256 << 10).spawn(body).is_err() {
            self.close();
        }
    }

    /// What comes as a transfer belongs there; or nowhere, where something is wrong with it.
    pub(super) fn receive(&self, transfer: u64, place: Result<CopyEnd>, done: Done) {
        let mut state = self.state.lock();
        let over = state.over;
        let failure = match state.told.entry(transfer) {
            Entry::Vacant(free) if !over => {
                free.insert((place, done));
                self.changed.notify_one();
                return;
            }
            Entry::Vacant(_) => lost(),
            Entry::Occupied(_) => {
                Error::new(Code::InvalidHandle, format!("The transfer {transfer} is under way"))
            }
        };
        drop(state);
        done(Err(failure));
    }

    /// What has not come fails.
    pub(super) fn close(&self) {
        let told = {
            let mut state = self.state.lock();
            state.over = true;
            state.tcp.iter().for_each(|tcp| tcp.shutdown());
            std::mem::take(&mut state.told)
        };
        self.changed.notify_one();
        told.into_values().for_each(|(_, done)| done(Err(lost())));
    }

    /// Waits until the program has told where a transfer belongs; nothing where it never will.
    fn told(&self, transfer: u64) -> Option<(Result<CopyEnd>, Done)> {
        let mut state = self.state.lock();
        loop {
            if state.over {
                return None;
            }
            if let Some(told) = state.told.remove(&transfer) {
                return Some(told);
            }
            self.changed.wait(&mut state);
        }
    }

    fn run(
        &self,
        tcp: &Tcp,
        jobs: &mut HashMap<u64, Job>,
        around: &Surroundings,
    ) -> std::result::Result<(), ReadError> {
        let mut frames = FrameReader::default();
        let mut wait = || tcp.wait(Ready::READ, None, None).map(drop);
        let mut counted = 0;
        loop {
            let header = frames.header(tcp, &mut wait)?;
            let part = Part::try_from(header.call)?;
            if header.kind != Kind::Part {
                return Err(
                    DecodeError::Unknown { what: "frame of a link", value: header.kind as u64 }.into()
                );
            }
            let transfer = header.sequence;
            let job = match jobs.remove(&transfer) {
                Some(job) => Some(job),
                None => self.told(transfer).map(|(place, done)| Job::new(place, done)),
            };
            let Some(mut job) = job else { return Err(ReadError::Closed) };
            let read = job.read(&header, &mut frames, tcp, &mut wait, around);
            let received = frames.received();
            around.received(received - std::mem::replace(&mut counted, received));
            match (read, part) {
                (Ok(()), Part::More) => drop(jobs.insert(transfer, job)),
                (Ok(()), Part::Last) => job.finish(around),
                (Ok(()), Part::Failed) => {
                    (job.done)(Err(no_link("The other server could not read what it was to send")));
                }
                (Err(e), _) => {
                    jobs.insert(transfer, job);
                    return Err(e);
                }
            }
        }
    }
}

impl Job {
    fn new(place: Result<CopyEnd>, done: Done) -> Self {
        let (place, failure) = match place {
            Ok(place) => (place, None),
            Err(error) => (CopyEnd { stream: 0, region: Region::default(), here: true }, Some(error)),
        };
        let cursor = RegionCursor::new(place.region);
        Self { place, cursor, gathered: Vec::new(), copies: Arc::default(), failure, done }
    }

    /// Reads a frame's bytes to where they belong. After a failure of the job's own they are read all the same: others come
    /// behind.
    fn read(
        &mut self,
        header: &Header,
        frames: &mut FrameReader,
        tcp: &Tcp,
        wait: &mut dyn FnMut() -> io::Result<()>,
        around: &Surroundings,
    ) -> std::result::Result<(), ReadError> {
        let mut left = header.length as usize;
        while left > 0 && self.failure.is_none() {
            if !self.place.here {
                left -= self.gather(left, frames, tcp, wait, around)?;
                continue;
            }
            let Some((addr, run)) = self.cursor.run() else {
                self.fail(Error::new(Code::InvalidValue, "The other server sends more than was to come"));
                break;
            };
            let most = left.min(usize::try_from(run).unwrap_or(usize::MAX));
            // SAFETY: it lay in one of the session's allocations of device memory, whose addresses nothing else of this process
            // uses. Kernels of a program that lets them use it meanwhile see one or the other byte.
            match unsafe { frames.body_at(tcp, wait, addr, most) } {
                Ok(n) => {
                    self.cursor.advance(n as u64);
                    left -= n;
                }
                Err(ReadError::Io(e)) if e.raw_os_error() == Some(libc::EFAULT) => {
                    self.fail(Error::new(Code::InvalidValue, "The memory was freed while it was copied to"));
                }
                Err(e) => return Err(e),
            }
        }
        let mut scrap = Vec::new();
        while left > 0 {
            let n = left.min(SCRAP);
            scrap.clear();
            frames.body(tcp, wait, n, &mut scrap)?;
            left -= n;
        }
        Ok(())
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Reads bytes of the part that is being gathered; a whole one goes to the device.
    fn gather(
        &mut self,
        left: usize,
        frames: &mut FrameReader,
        tcp: &Tcp,
        wait: &mut dyn FnMut() -> io::Result<()>,
        around: &Surroundings,
    ) -> std::result::Result<usize, ReadError> {
        let Some(part) = self.cursor.part(MAX_BULK as u64) else {
            self.fail(Error::new(Code::InvalidValue, "The other server sends more than was to come"));
            return Ok(0);
        };
        let whole = part.bytes().unwrap_or(0) as usize;
        let n = left.min(whole - self.gathered.len());
        frames.body(tcp, wait, n, &mut self.gathered)?;
        if self.gathered.len() == whole {
            let bytes = HostData::Owned(std::mem::take(&mut self.gathered));
            match around.device.copy_to_device(self.place.stream, part, 0, bytes) {
                Ok(()) => {
                    self.cursor.advance(whole as u64);
                    let copies = self.copies.clone();
                    copies.begin();
                    let done = Box::new(move |result| copies.end(result));
                    around.device.synchronize(Target::Stream(self.place.stream), done);
                    if let Some(error) = self.copies.wait_for_room() {
                        self.fail(error);
                    }
                }
                Err(error) => self.fail(error),
            }
        }
        Ok(n)
    }

    /// All has come.
    fn finish(mut self, around: &Surroundings) {
        if self.cursor.remaining() > 0 {
            self.fail(Error::new(Code::InvalidValue, "The other server has sent less than was to come"));
        }
        let result = self.failure.map_or(Ok(()), Err);
        let done = self.done;
        if self.place.here {
            return done(result);
        }
        let copies = self.copies;
        let then = Box::new(move |finished: Result<()>| {
            let failed = copies.state.lock().1.take();
            done(result.and(failed.map_or(Ok(()), Err)).and(finished));
        });
        around.device.synchronize(Target::Stream(self.place.stream), then);
    }
}

impl Copies {
    fn begin(&self) {
        self.state.lock().0 += 1;
    }

    fn end(&self, result: Result<()>) {
        let mut state = self.state.lock();
        state.0 -= 1;
        if let Err(error) = result {
            state.1.get_or_insert(error);
        }
        self.changed.notify_one();
    }

    /// Waits until the device has few enough parts; says what has failed.
    fn wait_for_room(&self) -> Option<Error> {
        let mut state = self.state.lock();
        while state.0 >= UNDERWAY {
            self.changed.wait(&mut state);
        }
        state.1.take()
    }
}

fn lost() -> Error {
    no_link("The connection from the other server is lost")
}
