//! Meetings of streams that are on different servers.
//!
//! A stream that takes part is asked to be held ([`Remote::hold_later`]). When all have got there, and whatever else is
//! waited for has happened, a thread does what is to be done, and lets them go on. A server that is lost counts as
//! having got there, with an error, so that the others are not held for ever.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::{Condvar, Mutex};
use rgpu_device::{Code, Done, Error, Handle, Result};

use crate::remote::Remote;
use crate::threads::{guard_value, spawn_quiet};

/// Ids of holds from here on are not those by which a single connection holds its streams.
const HOLDS: u64 = 1 << 61;
/// More threads than this are not started: then meetings wait for each other, which they can, because what is done at one
/// depends on no other.
const MOST_THREADS: usize = 16;

/// What is done when all have arrived, given the first error of those that have failed to.
pub(super) type Job = Box<dyn FnOnce(Result<()>) + Send>;

/// What is done at a meeting.
pub(super) enum Business {
    /// It puts work on streams of its own: see [`Gates::wait_for_jobs`].
    Job(Job),
    /// It does nothing that could be held up.
    Brief(Job),
}

/// Streams that wait for each other.
struct Meeting {
    number: u64,
    missing: AtomicUsize,
    failure: Mutex<Option<Error>>,
    /// Server and hold of those that have arrived.
    held: Mutex<Vec<(usize, u64)>>,
    job: Mutex<Option<Job>>,
}

/// All meetings of a program.
pub(super) struct Gates {
    servers: Vec<Arc<Remote>>,
    next: AtomicU64,
    /// Meetings that have not ended.
    open: Mutex<Open>,
    ended: Condvar,
    workers: Mutex<Workers>,
    /// How many streams are held or about to be, on whatever server.
    any: AtomicUsize,
    /// How many mirrored allocations there are, kept here for those who look at `any`, too.
    pub mirrors: AtomicUsize,
}

#[derive(Default)]
struct Open {
    jobs: BTreeSet<u64>,
    /// How many streams of each server are held or about to be.
    gates: Vec<usize>,
}

/// Both ends of a queue of meetings.
type Meetings = (Sender<Arc<Meeting>>, Arc<Mutex<Receiver<Arc<Meeting>>>>);

#[derive(Default)]
struct Workers {
    idle: usize,
    started: usize,
    queue: Option<Meetings>,
}

impl Gates {
    pub(super) fn new(servers: Vec<Arc<Remote>>) -> Arc<Self> {
        let gates = vec![0; servers.len()];
        Arc::new(Self {
            servers,
            next: AtomicU64::new(1),
            open: Mutex::new(Open { jobs: BTreeSet::new(), gates }),
            ended: Condvar::new(),
            workers: Mutex::default(),
            any: AtomicUsize::new(0),
            mirrors: AtomicUsize::new(0),
        })
    }

    fn remote(&self, server: usize) -> Option<&Arc<Remote>> {
        self.servers.get(server)
    }

    /// Holds streams (of servers) until all of them have got there and `others` is done, and then `business`. `others`
    /// is given something to call back.
    pub(super) fn meet(
        self: &Arc<Self>,
        streams: &[(usize, Handle)],
        others: Option<&mut dyn FnMut(Done)>,
        business: Business,
    ) {
        let number = self.next.fetch_add(1, Relaxed);
        self.any.fetch_add(streams.len(), SeqCst);
        {
            let mut open = self.open.lock();
            streams.iter().for_each(|(server, _)| open.gates[*server] += 1);
            if let Business::Job(_) = &business {
                open.jobs.insert(number);
            }
        }
        let (Business::Job(job) | Business::Brief(job)) = business;
        let meeting = Arc::new(Meeting {
            number,
            missing: AtomicUsize::new(streams.len() + usize::from(others.is_some())),
            failure: Mutex::default(),
            held: Mutex::default(),
            job: Mutex::new(Some(job)),
        });
        if let Some(others) = others {
            others(self.arrival(&meeting, None));
        }
        for (server, stream) in streams {
            let id = HOLDS | self.next.fetch_add(1, Relaxed);
            let done = self.arrival(&meeting, Some((*server, id)));
            match self.remote(*server) {
                Some(remote) => remote.hold_later(*stream, id, done),
                None => done(Err(Code::Unknown.into())),
            }
        }
    }

    /// To be called when one of those that are waited for has arrived. Called by whoever reads a connection: no call to a
    /// server may be made, and nothing waited for.
    fn arrival(self: &Arc<Self>, meeting: &Arc<Meeting>, hold: Option<(usize, u64)>) -> Done {
        let (gates, meeting) = (self.clone(), meeting.clone());
        Box::new(move |result| {
            if let Err(error) = result {
                meeting.failure.lock().get_or_insert(error);
            }
            meeting.held.lock().extend(hold);
            if meeting.missing.fetch_sub(1, SeqCst) == 1 {
                gates.hand_out(meeting);
            }
        })
    }

    /// Has a thread hold the meeting.
    fn hand_out(self: &Arc<Self>, meeting: Arc<Meeting>) {
        let mut workers = self.workers.lock();
        let (sender, receiver) = workers
            .queue
            .get_or_insert_with(|| {
                let (sender, receiver) = channel();
                (sender, Arc::new(Mutex::new(receiver)))
            })
            .clone();
        let waiting = workers.idle;
        if waiting == 0 && workers.started < MOST_THREADS {
            let (gates, receiver) = (self.clone(), receiver.clone());
            let started = spawn_quiet("rgpu-meeting", move || {
                loop {
                    let next = receiver.lock().recv();
                    let Ok(meeting) = next else { return };
                    gates.hold(&meeting);
                    gates.workers.lock().idle += 1;
                }
            });
            match started {
                Ok(()) => workers.started += 1,
                Err(e) if workers.started == 0 => {
                    drop(workers);
                    let text = format!("Cannot start a thread that brings servers together: {e}");
                    meeting.failure.lock().get_or_insert(Error::new(Code::OperatingSystem, text));
                    // Nothing else can be done about it: the streams stay held, and waiting for them must fail.
                    self.give_up(&meeting);
                    return;
                }
                Err(_) => {}
            }
        } else if waiting > 0 {
            workers.idle -= 1;
        }
        drop(workers);
        // The receiver lives as long as the queue does.
        let _ = sender.send(meeting);
    }

    /// Does what is to be done, and lets the streams go on.
    fn hold(&self, meeting: &Meeting) {
        self.run_job(meeting);
        let held = std::mem::take(&mut *meeting.held.lock());
        let mut open = self.open.lock();
        held.iter().for_each(|(server, _)| open.gates[*server] -= 1);
        drop(open);
        self.any.fetch_sub(held.len(), SeqCst);
        for (server, id) in held {
            if let Some(remote) = self.remote(server) {
                // Failing means that the session is over.
                let _ = remote.release(id);
            }
        }
        self.open.lock().jobs.remove(&meeting.number);
        self.ended.notify_all();
    }

    fn run_job(&self, meeting: &Meeting) {
        let job = meeting.job.lock().take();
        let failure = meeting.failure.lock().take();
        if let Some(job) = job {
            guard_value((), || job(failure.map_or(Ok(()), Err)));
        }
    }

    fn give_up(&self, meeting: &Meeting) {
        self.run_job(meeting);
        for (server, _) in meeting.held.lock().drain(..) {
            if let Some(remote) = self.remote(server) {
                remote.goodbye();
            }
        }
        self.open.lock().jobs.remove(&meeting.number);
        self.ended.notify_all();
    }

    /// Whether some stream of a server is held, or will be.
    pub(super) fn any_at(&self, server: usize) -> bool {
        self.any.load(SeqCst) > 0 && self.open.lock().gates[server] > 0
    }

    /// Whether there is something to be done that has not ended.
    pub(super) fn has_jobs(&self) -> bool {
        !self.open.lock().jobs.is_empty()
    }

    /// Waits until all jobs have ended that there are now.
    pub(super) fn wait_for_jobs(&self) {
        let mut open = self.open.lock();
        let Some(last) = open.jobs.last().copied() else { return };
        while open.jobs.first().is_some_and(|first| *first <= last) {
            self.ended.wait(&mut open);
        }
    }
}
