//! The connection as all threads of the program share it.
//!
//! Sending has one lock ([`Out`]), which is the order of the session. Reading has one *leader*: a thread
//! that waits for an answer of its own and meanwhile hands others theirs. When it has its answer, one of
//! the others becomes the leader; when nobody waits, the [service thread](service) reads if
//! something may arrive that cannot wait.
//!
//! A [`Link`] is composed of parts that know nothing of it, and can be tested without: what is [sent](super::outgoing) and
//! [received](super::incoming), the windows for [bytes](super::bulk) and [calls](super::window), what is
//! [quiet](super::quiet), memory [credit](super::credit), [images](super::images) of modules, and how the service thread is
//! [woken](super::service). The files of this folder are what it does with them.

mod between;
mod credit;
mod flow;
mod images;
mod known;
mod receive;
mod send;
mod service;

use between::between;

use super::bulk::Bulk;
use super::credit::Credit;
use super::errors::Errors;
use super::fork;
use super::images::Images;
use super::incoming::{Incoming, Pending, Waiter};
use super::outgoing::{INLINE_BYTES, Out, Payload, Urgent, is_short};
use super::service::Service;
use super::window::Window;
use parking_lot::Mutex;
use rgpu_device::{Code, Error, Host, Result};
use rgpu_protocol::SILENCE;
use rgpu_protocol::calls::Call;
use rgpu_protocol::numbers::NumberMap;
use rgpu_protocol::stats::Stats;
use rgpu_protocol::transport::Transport;
use rgpu_protocol::wire::from_bytes;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

/// A session's connection. See the module's text. Locks are taken in the order `out`, `incoming`, `state`.
pub(in crate::remote) struct Link {
    pub transport: Box<dyn Transport>,
    pub host: Arc<dyn Host>,
    pub stats: &'static Stats,
    pub errors: Errors,
    pub out: Mutex<Out>,
    /// What the server has asked for; see [`Link::answer`].
    pub urgent: Mutex<Vec<Urgent>>,
    pub urgent_waiting: AtomicBool,
    pub images: Images,
    /// Set once the session has begun.
    pub credit: OnceLock<Arc<Credit>>,
    /// What was sent to the device and is not known to be done.
    pub bulk: Bulk,
    /// Which calls were posted and are not known to be done.
    pub window: Window,
    pub incoming: Mutex<Incoming>,
    pub state: Mutex<Waiting>,
    /// What the device changed in mirrored memory, until the program's side takes it: bodies of notices,
    /// checked.
    pub shared_writes: Mutex<Vec<Vec<u8>>>,
    /// How many things there are because of which somebody must read even when nobody waits.
    attention: AtomicUsize,
    pub service: Service,
    /// For threads and callbacks that may outlive it.
    me: Weak<Self>,
    failure: OnceLock<Error>,
    ended: AtomicBool,
    /// Whether it has failed or ended: all that posting a call looks at.
    gone: AtomicBool,
}

/// Who waits for what.
#[derive(Default)]
pub(in crate::remote) struct Waiting {
    pub calls: NumberMap<u64, Pending>,
    /// Whether a thread is reading.
    leader: bool,
    /// Threads that wait without reading.
    followers: Vec<Arc<Waiter>>,
    /// Whether the session is over.
    over: bool,
}

impl Link {
    pub(super) fn new(
        transport: Box<dyn Transport>,
        host: Arc<dyn Host>,
        stats: &'static Stats,
    ) -> Result<Arc<Self>> {
        let service = Service::new().map_err(|e| {
            Error::new(Code::SystemNotReady, format!("Cannot create an event descriptor: {e}"))
        })?;
        transport.descriptors().into_iter().for_each(fork::close_in_children);
        let out = Out::new(transport.sends_without_system_call());
        Ok(Arc::new_cyclic(|link| Self {
            me: link.clone(),
            transport,
            host,
            stats,
            errors: Errors::default(),
            out: Mutex::new(out),
            urgent: Mutex::default(),
            urgent_waiting: AtomicBool::new(false),
            images: Images::default(),
            credit: OnceLock::new(),
            bulk: Bulk::default(),
            window: Window::default(),
            incoming: Mutex::default(),
            state: Mutex::default(),
            shared_writes: Mutex::default(),
            attention: AtomicUsize::new(0),
            service,
            failure: OnceLock::new(),
            ended: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }))
    }

    /// Posts a call. How long that takes is not measured: looking at the clock would take as long.
    #[inline]
    pub(super) fn post<C: Call>(&self, call: &C, payload: Payload<'_>) -> Result<()> {
        let result = match payload {
            Payload::Bytes(bytes) if is_short::<C>() && bytes.len() <= INLINE_BYTES => {
                self.push_short(call, bytes)
            }
            payload => self.push(call, payload, None).map(drop),
        };
        self.stats.posted_calls.fetch_add(1, Relaxed);
        self.stats.count_call(C::NUMBER, 0);
        result
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask<C: Call>(&self, call: &C, payload: Payload<'_>) -> Result<C::Answer> {
        self.ask_after(call, payload).map(|(answer, _)| answer)
    }

    /// As [`Link::ask`]; says also [how much work](Out::work) there was before.
    pub(super) fn ask_after<C: Call>(&self, call: &C, payload: Payload<'_>) -> Result<(C::Answer, u64)> {
        let waiter = Arc::new(Waiter::default());
        let start = Instant::now();
        let mut work = 0;
        let pushed = self.push(call, payload, Some(Pending::Waiter(waiter.clone())));
        let result = pushed.and_then(|before| {
            work = before;
            self.wait_for(&waiter)
        });
        self.count_ask(C::NUMBER, start);
        let answer = from_bytes(&result?)
            .map_err(|e| self.fail(&format!("the answer to {} is malformed: {e}", C::NAME)))?;
        Ok((answer, work))
    }

    /// Asks, and leaves the answer to a callback.
    pub(super) fn ask_later<C: Call>(&self, call: &C, pending: Pending) -> Result<()> {
        let start = Instant::now();
        let result = self.push(call, Payload::NONE, Some(pending));
        self.count_ask(C::NUMBER, start);
        result.map(drop)
    }

    /// Asks something whose answer completes `pending`, which wakes `waiter`; and waits for that. Says
    /// [how much work](Out::work) there was before.
    pub(super) fn ask_with<C: Call>(&self, call: &C, pending: Pending, waiter: &Arc<Waiter>) -> Result<u64> {
        let start = Instant::now();
        let pushed = self.push(call, Payload::NONE, Some(pending));
        // A failure to send has completed `pending`, too.
        let result = self.wait_for(waiter);
        self.count_ask(C::NUMBER, start);
        result?;
        pushed
    }

    fn count_ask(&self, number: u16, start: Instant) {
        self.stats.round_trips.fetch_add(1, Relaxed);
        self.stats.count_call(number, start.elapsed().as_nanos() as u64);
    }

    /// Registers a call that is about to be sent.
    pub(super) fn expect(&self, sequence: u64, pending: Pending) -> Result<()> {
        let mut state = self.state.lock();
        if state.over {
            drop(state);
            let error = self.over();
            self.complete(pending, Err(error.clone()));
            return Err(error);
        }
        state.calls.insert(sequence, pending);
        Ok(())
    }

    /// Puts back what was taken out of [`Waiting::calls`].
    pub(super) fn expect_again(&self, sequence: u64, pending: Pending) {
        let _ = self.expect(sequence, pending);
    }

    /// Gives a waiting thread its outcome.
    pub(super) fn wake(&self, waiter: &Waiter, outcome: Result<Vec<u8>>) {
        waiter.outcome.lock().get_or_insert(outcome);
        waiter.done.store(true, SeqCst);
        // Under the lock, so that a thread that is about to sleep does not miss it.
        let _state = self.state.lock();
        waiter.changed.notify_all();
    }

    /// Waits for an outcome, reading the connection unless somebody else does.
    pub(super) fn wait_for(&self, waiter: &Arc<Waiter>) -> Result<Vec<u8>> {
        let mut state = self.state.lock();
        loop {
            if waiter.done.load(SeqCst) {
                let outcome = waiter.outcome.lock().take();
                return outcome.unwrap_or_else(|| Err(self.over()));
            }
            if state.over {
                // Whoever ended the session is completing all calls.
                drop(state);
                std::thread::yield_now();
                state = self.state.lock();
                continue;
            }
            if !state.leader {
                state.leader = true;
                drop(state);
                while !waiter.done.load(SeqCst) && !self.is_over() {
                    self.read_one();
                }
                self.stop_leading();
                state = self.state.lock();
                continue;
            }
            state.followers.push(waiter.clone());
            waiter.changed.wait(&mut state);
            state.followers.retain(|w| !Arc::ptr_eq(w, waiter));
        }
    }

    /// Becomes the leader, if there is none.
    pub(super) fn try_lead(&self) -> bool {
        let mut state = self.state.lock();
        !std::mem::replace(&mut state.leader, true)
    }

    /// Lets somebody else lead: a thread that waits, or else the service thread, if there is need.
    pub(super) fn stop_leading(&self) {
        if !self.hand_over() && self.needs_attention() {
            self.service.wake();
        }
    }

    /// Lets a thread that waits lead. False where none does.
    pub(super) fn hand_over(&self) -> bool {
        let mut state = self.state.lock();
        state.leader = false;
        let follower = state.followers.iter().find(|w| !w.done.load(SeqCst));
        follower.map(|f| f.changed.notify_all()).is_some()
    }

    /// Whether a thread is reading.
    pub(super) fn has_leader(&self) -> bool {
        self.state.lock().leader
    }

    /// Whether threads wait for the leader to make room.
    pub(super) fn has_followers(&self) -> bool {
        self.state.lock().followers.iter().any(|w| !w.done.load(SeqCst))
    }

    /// From now on somebody must read even when nobody waits; until [`Link::attention_ends`].
    pub(super) fn attention_begins(&self) {
        self.attention.fetch_add(1, SeqCst);
        if !self.start_service() {
            self.fail("no service thread could be started; is the limit on threads (`ulimit -u`) reached?");
        }
        self.service.wake();
    }

    /// Undoes one [`Link::attention_begins`].
    pub(super) fn attention_ends(&self) {
        let _ = self.attention.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }

    /// Whether somebody must read even when nobody waits.
    pub(super) fn needs_attention(&self) -> bool {
        self.attention.load(SeqCst) > 0
    }

    /// Whether the session is over.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// The error that every call reports once the session is over.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_over() { Err(self.over()) } else { Ok(()) }
    }

    /// Why the session failed.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    fn over(&self) -> Error {
        self.failure.get().cloned().unwrap_or_else(|| {
            Error::new(Code::Deinitialized, "The program is exiting: its session with the server is over")
        })
    }

    /// The session has failed. Says why, once, and completes whatever is waited for.
    pub(super) fn fail(&self, reason: &str) -> Error {
        let text = format!("The connection to the server {} is lost: {reason}", self.transport.peer());
        let first = self.failure.set(Error::new(Code::SystemNotReady, text)).is_ok();
        self.gone.store(true, SeqCst);
        let error = self.over();
        if first && !self.ended.load(Relaxed) {
            self.stats.failures.fetch_add(1, Relaxed);
            let line = format!(
                "rgpu: {}. Every CUDA call of this process now returns error 802 (system not ready).\n",
                // The reason may be the server's own words.
                rgpu_control::units::printable(&error.message)
            );
            // One write, so that the line stays whole; a closed stderr is no reason to fail.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        self.end(&error);
        error
    }

    /// The program is about to end the session.
    pub(super) fn ends_now(&self) {
        self.ended.store(true, SeqCst);
        self.gone.store(true, SeqCst);
    }

    /// The program has ended the session.
    pub(super) fn end_quietly(&self) {
        self.end(&self.over());
    }

    fn end(&self, error: &Error) {
        let calls = {
            let mut state = self.state.lock();
            state.over = true;
            std::mem::take(&mut state.calls)
        };
        self.transport.shutdown();
        for pending in calls.into_values() {
            self.complete(pending, Err(error.clone()));
        }
        for waiter in self.window.end() {
            self.wake(&waiter, Err(error.clone()));
        }
        let state = self.state.lock();
        for follower in &state.followers {
            follower.changed.notify_all();
        }
        drop(state);
        self.service.wake();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.transport.descriptors().into_iter().for_each(fork::forget);
    }
}

/// What is said when the server is silent.
fn silence() -> String {
    format!(
        "the server has been silent for {} s; its machine or the network in between is down",
        SILENCE.as_secs()
    )
}
