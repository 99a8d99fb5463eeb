//! Streams, events and the order of work.
//!
//! Each stream is a queue whose head alone may be running. A piece of work carries the points in other
//! streams that it waits for, so that "has this been reached" is answered by a look at a queue's head.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rgpu_device::{Code, Done, Error, ErrorState, FIRST_STREAM, Handle, Ordinal, Result};
use rustc_hash::FxHashMap;

use super::launch::LaunchWork;
use super::library::LibraryWork;
use super::transfer::Transfer;
use super::words::Words;

/// Room for more work than this is given back when a stream has none left.
const LONG_QUEUE: usize = 1024;

/// The internal name of a stream; never used twice.
pub(super) type Key = u64;

/// A point in a stream: reached when all its work up to the number is done.
pub(super) type Point = (Key, u64);

/// What a piece of work is.
pub(super) enum Work {
    /// A kernel.
    Launch(Box<LaunchWork>),
    /// A copy or fill.
    Transfer(Box<Transfer>),
    /// An operation of a mathematical library.
    Library(Box<LibraryWork>),
    /// The record of an event.
    Record(Arc<Event>),
    /// A function of the program.
    HostFunc(u64),
    /// Operations on words of memory.
    Words(Box<Words>),
    /// Nothing: a place to wait.
    Wait,
}

struct Item {
    number: u64,
    after: Vec<Point>,
    /// Whether it is among the ready ones.
    queued: bool,
    /// None while it is running.
    work: Option<Work>,
}

struct Stream {
    ordinal: Ordinal,
    blocking: bool,
    legacy: bool,
    priority: i32,
    destroyed: bool,
    queue: VecDeque<Item>,
    /// Streams whose head waits for this one.
    followers: Vec<Key>,
    waits: Vec<(u64, Arc<Mutex<Waiting>>)>,
}

/// An event.
#[derive(Default)]
pub(super) struct Event {
    /// The ordinal it belongs to.
    pub ordinal: Ordinal,
    /// Whether it keeps time.
    pub timing: bool,
    state: Mutex<EventState>,
}

#[derive(Default)]
struct EventState {
    /// The most recent record.
    recorded: Option<Point>,
    /// When it was reached.
    reached: Option<(u64, Instant)>,
}

struct Waiting {
    left: usize,
    ordinal: Ordinal,
    done: Option<Done>,
}

/// What is to be done once no lock is held.
#[derive(Default)]
pub(super) struct Actions {
    done: Vec<(Done, Result<()>)>,
    functions: Vec<u64>,
    cancelled: Vec<(Transfer, Error)>,
    /// A stream waits for a word of memory.
    pub(super) looks_for_words: bool,
}

impl Actions {
    /// Does it.
    pub(super) fn run(self, host: &dyn rgpu_device::Host) {
        for (transfer, error) in self.cancelled {
            transfer.cancel(error);
        }
        for (done, result) in self.done {
            done(result);
        }
        for id in self.functions {
            host.host_func(id);
        }
    }
}

/// All streams and events of an application.
pub(super) struct Streams {
    streams: FxHashMap<Key, Stream>,
    handles: FxHashMap<Handle, Key>,
    events: FxHashMap<Handle, Arc<Event>>,
    errors: Vec<ErrorState>,
    /// Streams whose head can be carried out by a worker.
    pub ready: VecDeque<Key>,
    functions: FxHashMap<u64, Key>,
    /// Operations on words that wait for one, by their stream.
    pub(super) words: FxHashMap<Key, Box<Words>>,
    gates: Vec<Point>,
    /// An empty list of streams to be advanced, whose room is used again.
    keys: Vec<Key>,
    next_key: Key,
    next_number: u64,
}

impl Streams {
    /// The legacy streams of some devices.
    pub(super) fn new(devices: u32) -> Self {
        let mut streams = Self {
            streams: FxHashMap::default(),
            handles: FxHashMap::default(),
            events: FxHashMap::default(),
            errors: vec![ErrorState::default(); devices as usize],
            ready: VecDeque::new(),
            functions: FxHashMap::default(),
            words: FxHashMap::default(),
            gates: Vec::new(),
            keys: Vec::new(),
            next_key: 0,
            next_number: 1,
        };
        for ordinal in 0..devices {
            streams.insert(u64::from(ordinal), ordinal, true, true, 0);
        }
        streams
    }

    fn insert(&mut self, handle: Handle, ordinal: Ordinal, legacy: bool, blocking: bool, priority: i32) {
        let key = self.next_key;
        self.next_key += 1;
        let stream = Stream {
            ordinal,
            blocking,
            legacy,
            priority,
            destroyed: false,
            queue: VecDeque::new(),
            followers: Vec::new(),
            waits: Vec::new(),
        };
        self.streams.insert(key, stream);
        self.handles.insert(handle, key);
    }

    /// The errors of an ordinal.
    fn errors(&mut self, ordinal: Ordinal) -> Result<&mut ErrorState> {
        self.errors
            .get_mut(ordinal as usize)
            .ok_or_else(|| Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")))
    }

    /// Fails with what has gone wrong on an ordinal and is still to be told.
    pub(super) fn check(&mut self, ordinal: Ordinal) -> Result<()> {
        self.errors(ordinal)?.check()
    }

    /// The error that sticks to an ordinal: then none of its work is carried out.
    fn failed(&self, ordinal: Ordinal) -> Option<&Error> {
        self.errors.get(ordinal as usize)?.sticky()
    }

    /// Keeps an error of work until somebody can be told.
    fn keep(&mut self, ordinal: Ordinal, error: Error) {
        if let Ok(errors) = self.errors(ordinal) {
            errors.keep(error);
        }
    }

    /// Makes an error stick, unless there is one.
    pub(super) fn fail(&mut self, ordinal: Ordinal, error: Error) {
        if let Ok(errors) = self.errors(ordinal) {
            errors.fail(error);
        }
    }

    /// Creates a stream.
    pub(super) fn create(
        &mut self,
        ordinal: Ordinal,
        handle: Handle,
        blocking: bool,
        priority: i32,
    ) -> Result<()> {
        self.check(ordinal)?;
        if handle < FIRST_STREAM || self.handles.contains_key(&handle) {
            return Err(Error::new(Code::InvalidValue, format!("The stream handle {handle:#x} is taken")));
        }
        self.insert(handle, ordinal, false, blocking, priority);
        Ok(())
    }

    /// Destroys a stream once its work is done.
    pub(super) fn destroy(&mut self, handle: Handle) -> Result<()> {
        let key = self.find(handle)?;
        if handle < FIRST_STREAM {
            return Err(Error::new(Code::InvalidHandle, "The legacy stream cannot be destroyed"));
        }
        let ordinal = self.streams[&key].ordinal;
        self.handles.remove(&handle);
        let stream = self.streams.get_mut(&key).filter(|s| !s.queue.is_empty());
        match stream {
            Some(stream) => stream.destroyed = true,
            None => drop(self.streams.remove(&key)),
        }
        self.check(ordinal)
    }

    fn find(&self, handle: Handle) -> Result<Key> {
        self.handles.get(&handle).copied().ok_or_else(|| {
            Error::new(Code::InvalidHandle, format!("There is no stream with the handle {handle:#x}"))
        })
    }

    /// The stream's key and ordinal, if that has no error to tell.
    pub(super) fn open(&mut self, handle: Handle) -> Result<(Key, Ordinal)> {
        let key = self.find(handle)?;
        let ordinal = self.streams[&key].ordinal;
        self.check(ordinal)?;
        Ok((key, ordinal))
    }

    /// The priority of a stream.
    pub(super) fn priority(&self, key: Key) -> i32 {
        self.streams.get(&key).map_or(0, |s| s.priority)
    }

    fn end(&self, key: Key) -> Option<Point> {
        Some((key, self.streams.get(&key)?.queue.back()?.number))
    }

    /// Where every stream of an ordinal (or of all) that has work now ends.
    pub(super) fn ends(&self, ordinal: Option<Ordinal>) -> Vec<Point> {
        self.streams
            .iter()
            .filter(|(_, s)| ordinal.is_none_or(|o| o == s.ordinal))
            .filter_map(|(&key, _)| self.end(key))
            .collect()
    }

    /// Where one stream ends, if it has work.
    pub(super) fn end_of(&self, handle: Handle) -> Result<Option<Point>> {
        Ok(self.end(self.find(handle)?))
    }

    /// Whether a point has been reached.
    pub(super) fn reached(&self, (key, number): Point) -> bool {
        self.streams.get(&key).and_then(|s| s.queue.front()).is_none_or(|item| item.number > number)
    }

    /// Makes all work that is enqueued from now on wait for some points.
    pub(super) fn gate(&mut self, points: &[Point]) {
        self.gates.extend_from_slice(points);
    }

    /// Puts work at the end of a stream; `after` are further points that it waits for. True if it became
    /// the last of the ready ones.
    pub(super) fn push(&mut self, key: Key, work: Work, after: &[Point], actions: &mut Actions) -> bool {
        let Some(stream) = self.streams.get(&key) else { return false };
        let (ordinal, legacy, blocking) = (stream.ordinal, stream.legacy, stream.blocking);
        let mut points: Vec<Point> = after.iter().copied().filter(|&p| !self.reached(p)).collect();
        if legacy {
            let others =
                self.streams.iter().filter(|(k, s)| **k != key && s.ordinal == ordinal && s.blocking);
            points.extend(others.filter_map(|(&k, _)| self.end(k)));
        } else if blocking {
            points.extend(self.handles.get(&u64::from(ordinal)).and_then(|&k| self.end(k)));
        }
        if !self.gates.is_empty() {
            let gates = std::mem::take(&mut self.gates);
            self.gates = gates.into_iter().filter(|&p| !self.reached(p)).collect();
            points.extend_from_slice(&self.gates);
        }
        points.retain(|&(k, _)| k != key);
        let number = self.next_number;
        self.next_number += 1;
        if let Work::Record(event) = &work {
            event.state.lock().recorded = Some((key, number));
        }
        let Some(stream) = self.streams.get_mut(&key) else { return false };
        stream.queue.push_back(Item { number, after: points, queued: false, work: Some(work) });
        if stream.queue.len() == 1 {
            let mut keys = std::mem::take(&mut self.keys);
            keys.push(key);
            self.advance(keys, actions);
            return self.ready.back() == Some(&key);
        }
        false
    }

    /// Starts what can be started at the heads of some streams.
    fn advance(&mut self, mut keys: Vec<Key>, actions: &mut Actions) {
        while let Some(key) = keys.pop() {
            while let Some(stream) = self.streams.get_mut(&key) {
                let Some(item) = stream.queue.front_mut() else { break };
                if item.work.is_none() || item.queued {
                    break;
                }
                // Points are dropped from the list as they are reached.
                if let Some(&point) = item.after.last() {
                    if self.reached(point) {
                        if let Some(item) = self.streams.get_mut(&key).and_then(|s| s.queue.front_mut()) {
                            item.after.pop();
                        }
                    } else {
                        if let Some(other) = self.streams.get_mut(&point.0)
                            && !other.followers.contains(&key)
                        {
                            other.followers.push(key);
                        }
                        break;
                    }
                    continue;
                }
                let (number, ordinal) = (item.number, stream.ordinal);
                let Some(work) = item.work.take() else { break };
                let error = self.failed(ordinal).cloned();
                match (work, error) {
                    (Work::Transfer(transfer), Some(error)) => actions.cancelled.push((*transfer, error)),
                    (_, Some(_)) | (Work::Wait, None) => {}
                    (Work::Record(event), None) => {
                        event.state.lock().reached = Some((number, Instant::now()));
                    }
                    (Work::HostFunc(id), None) => {
                        self.functions.insert(id, key);
                        actions.functions.push(id);
                        break;
                    }
                    (Work::Words(mut words), None) => {
                        if !words.go_on() {
                            self.words.insert(key, words);
                            actions.looks_for_words = true;
                            break;
                        }
                    }
                    (work, None) => {
                        if let Some(item) = self.streams.get_mut(&key).and_then(|s| s.queue.front_mut()) {
                            item.work = Some(work);
                            item.queued = true;
                        }
                        self.ready.push_back(key);
                        break;
                    }
                }
                self.pop(key, &mut keys, actions);
            }
        }
        self.keys = keys;
    }

    /// Takes the head off a stream and finds out who was waiting for that.
    fn pop(&mut self, key: Key, keys: &mut Vec<Key>, actions: &mut Actions) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(item) = stream.queue.pop_front() else { return };
        if stream.queue.is_empty() && stream.queue.capacity() > LONG_QUEUE {
            stream.queue.shrink_to(LONG_QUEUE);
        }
        keys.append(&mut stream.followers);
        let number = item.number;
        let mut reached = Vec::new();
        stream.waits.retain(|(at, waiting)| {
            let keep = *at > number;
            if !keep {
                reached.push(waiting.clone());
            }
            keep
        });
        if stream.destroyed && stream.queue.is_empty() {
            self.streams.remove(&key);
        }
        for waiting in reached {
            let mut waiting = waiting.lock();
            waiting.left -= 1;
            if waiting.left == 0
                && let Some(done) = waiting.done.take()
            {
                actions.done.push((done, self.check(waiting.ordinal)));
            }
        }
    }

    /// Takes the work at the head of a ready stream, to carry it out.
    pub(super) fn take(&mut self, key: Key) -> Option<Work> {
        self.streams.get_mut(&key)?.queue.front_mut().filter(|item| item.queued)?.work.take()
    }

    /// A look at the work at the head of a stream.
    pub(super) fn peek(&self, key: Key) -> Option<&Work> {
        self.streams.get(&key)?.queue.front()?.work.as_ref()
    }

    /// The work that was taken from a stream is done.
    pub(super) fn complete(&mut self, key: Key, result: Result<()>, actions: &mut Actions) {
        if let Err(error) = result
            && let Some(ordinal) = self.streams.get(&key).map(|s| s.ordinal)
        {
            self.keep(ordinal, error);
        }
        let mut keys = std::mem::take(&mut self.keys);
        keys.push(key);
        self.pop(key, &mut keys, actions);
        self.advance(keys, actions);
    }

    /// A host function has returned; true if it was waited for.
    pub(super) fn function_done(&mut self, id: u64, actions: &mut Actions) -> bool {
        let Some(key) = self.functions.remove(&id) else { return false };
        self.complete(key, Ok(()), actions);
        true
    }

    /// Looks at the words that streams wait for; whether any still waits. After an error of the device nothing is waited for.
    pub(super) fn look_at_words(&mut self, actions: &mut Actions) -> bool {
        let keys: Vec<Key> = self.words.keys().copied().collect();
        for key in keys {
            let failed = self.streams.get(&key).is_none_or(|s| self.failed(s.ordinal).is_some());
            if let Some(words) = self.words.get_mut(&key)
                && (failed || words.go_on())
            {
                self.words.remove(&key);
                self.complete(key, Ok(()), actions);
            }
        }
        !self.words.is_empty()
    }

    /// Calls `done` when all points have been reached.
    pub(super) fn wait(&mut self, points: &[Point], ordinal: Ordinal, done: Done, actions: &mut Actions) {
        let points: Vec<Point> = points.iter().copied().filter(|&p| !self.reached(p)).collect();
        if points.is_empty() {
            actions.done.push((done, self.check(ordinal)));
            return;
        }
        let waiting = Arc::new(Mutex::new(Waiting { left: points.len(), ordinal, done: Some(done) }));
        for (key, number) in points {
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.waits.push((number, waiting.clone()));
            }
        }
    }

    /// Creates an event.
    pub(super) fn event_create(&mut self, ordinal: Ordinal, handle: Handle, timing: bool) -> Result<()> {
        self.check(ordinal)?;
        if self.events.contains_key(&handle) {
            return Err(Error::new(Code::InvalidValue, format!("The event handle {handle:#x} is taken")));
        }
        self.events.insert(handle, Arc::new(Event { ordinal, timing, ..Event::default() }));
        Ok(())
    }

    /// Destroys an event.
    pub(super) fn event_destroy(&mut self, handle: Handle) -> Result<()> {
        let event = self.event(handle)?;
        self.events.remove(&handle);
        self.check(event.ordinal)
    }

    /// An event.
    pub(super) fn event(&self, handle: Handle) -> Result<Arc<Event>> {
        self.events.get(&handle).cloned().ok_or_else(|| {
            Error::new(Code::InvalidHandle, format!("There is no event with the handle {handle:#x}"))
        })
    }

    /// The most recent record of an event.
    pub(super) fn recorded(&self, event: &Event) -> Option<Point> {
        event.state.lock().recorded
    }

    /// Milliseconds between two events.
    pub(super) fn elapsed(&mut self, start: Handle, end: Handle) -> Result<f32> {
        let (start, end) = (self.event(start)?, self.event(end)?);
        self.check(start.ordinal)?;
        if start.ordinal != end.ordinal {
            return Err(Error::new(Code::InvalidHandle, "The events are of different devices"));
        }
        let moment = |event: &Event| {
            let state = event.state.lock();
            let Some((_, number)) = state.recorded.filter(|_| event.timing) else {
                return Err(Error::new(
                    Code::InvalidHandle,
                    "The event was never recorded, or was created without timing",
                ));
            };
            match state.reached {
                Some((at, moment)) if at == number => Ok(moment),
                _ => Err(Error::new(Code::NotReady, "The event has not been reached yet")),
            }
        };
        let (start, end) = (moment(&start)?, moment(&end)?);
        let milliseconds = match end.checked_duration_since(start) {
            Some(duration) => duration.as_secs_f64() * 1e3,
            None => -(start - end).as_secs_f64() * 1e3,
        };
        Ok(milliseconds as f32)
    }

    /// Drops all work of an ordinal that has not begun. Its kernels are the caller's to end.
    pub(super) fn abandon(&mut self, ordinal: Ordinal, actions: &mut Actions) {
        let error = Error::new(Code::ContextIsDestroyed, "The device was reset");
        self.fail(ordinal, error);
        let streams = &self.streams;
        self.ready.retain(|key| streams.get(key).is_some_and(|s| s.ordinal != ordinal));
        let keys: Vec<Key> =
            self.streams.iter().filter(|(_, s)| s.ordinal == ordinal).map(|(&key, _)| key).collect();
        let functions: Vec<u64> =
            self.functions.iter().filter(|(_, key)| keys.contains(key)).map(|(&id, _)| id).collect();
        for id in functions {
            self.function_done(id, actions);
        }
        for key in &keys {
            if self.words.remove(key).is_some() {
                self.complete(*key, Ok(()), actions);
            }
        }
        for key in &keys {
            if let Some(stream) = self.streams.get_mut(key) {
                for item in &mut stream.queue {
                    item.after.clear();
                    item.queued = false;
                }
            }
        }
        self.advance(keys, actions);
    }

    /// Whether an ordinal has no work left.
    pub(super) fn is_idle(&self, ordinal: Ordinal) -> bool {
        self.streams.values().all(|s| s.ordinal != ordinal || s.queue.is_empty())
    }

    /// Destroys an idle ordinal's streams and events, and clears its error.
    pub(super) fn reset(&mut self, ordinal: Ordinal) {
        let streams = &mut self.streams;
        self.handles.retain(|&handle, key| {
            let goes = handle >= FIRST_STREAM && streams.get(key).is_some_and(|s| s.ordinal == ordinal);
            if goes {
                streams.remove(key);
            }
            !goes
        });
        self.events.retain(|_, event| event.ordinal != ordinal);
        if let Ok(errors) = self.errors(ordinal) {
            errors.reset();
        }
    }

    /// The ordinal of a stream that has work.
    pub(super) fn ordinal_of_key(&self, key: Key) -> Ordinal {
        self.streams.get(&key).map_or(0, |s| s.ordinal)
    }

    /// The ordinal of a stream, without regard to errors.
    pub(super) fn ordinal_of(&self, handle: Handle) -> Result<Ordinal> {
        Ok(self.streams[&self.find(handle)?].ordinal)
    }
}
