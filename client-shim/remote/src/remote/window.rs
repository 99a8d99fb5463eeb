//! How many calls are on their way to streams.
//!
//! A server that has too much undone stops reading, and then nobody's call gets through. So a thread that posts work to a
//! stream waits here, *before* its call takes a place in the session's order, while [`STREAM_CALLS`] calls of its stream
//! or [`SESSION_CALLS`] of the session are not known to be done; other threads' calls go on meanwhile. For the bytes that calls
//! carry see [`super::bulk`].
//!
//! Calls are counted in runs of one stream's, so that counting one costs next to nothing. How far a stream has got is known
//! from [marks](Mark) that are posted every few thousand calls. The server answers them by notices, which somebody reads
//! when a window is full, or when there is something to read anyway: no round trip comes of it. A server that knows no marks gets none,
//! and nobody waits here.
//!
//! While a host function is outstanding nobody waits here: it may be waiting for what the very thread does next that posts.
//! The server's own limit does not hold then, either.

use super::incoming::Waiter;
use parking_lot::Mutex;
use rgpu_device::Handle;
use rgpu_protocol::numbers::NumberMap;
use rgpu_protocol::{SESSION_CALLS, STREAM_CALLS};
use std::sync::Arc;

/// So many calls of a stream are admitted at once.
const RUN: u64 = 256;
/// After so many calls of a stream the server is asked to say when they are done.
pub(super) const MARK: u64 = 4096;
const _: () = assert!(STREAM_CALLS.is_multiple_of(MARK) && MARK.is_multiple_of(RUN));
/// After so many calls of streams that were destroyed.
const MARK_GONE: u64 = 64;
/// No stream has this handle.
const NO_STREAM: Handle = Handle::MAX;
/// How many streams have runs at the same time, beside the one that was used last.
const RUNS: usize = 8;
const _: () = assert!((1 + RUNS as u64) * RUN + MARK_GONE < SESSION_CALLS);

/// Calls of one stream that may be posted without asking anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub stream: Handle,
    /// How many more.
    pub left: u64,
}

impl Run {
    const NONE: Self = Self { stream: NO_STREAM, left: 0 };
}

/// The runs of the streams that were used last.
#[derive(Debug)]
pub(super) struct Runs {
    /// The one that was used last.
    last: Run,
    /// Those before, and which of them is the next to go.
    others: [Run; RUNS],
    next: usize,
}

impl Default for Runs {
    fn default() -> Self {
        Self { last: Run::NONE, others: [Run::NONE; RUNS], next: 0 }
    }
}

impl Runs {
    /// Counts a call to a stream. False where there must be [another run](super::link::Link::next_run) first.
    #[inline(always)]
    pub(super) fn take(&mut self, stream: Handle) -> bool {
        if self.last.stream != stream && !self.turn_to(stream) {
            return false;
        }
        let (left, none) = self.last.left.overflowing_sub(1);
        if none {
            return false;
        }
        self.last.left = left;
        true
    }

    /// Makes a stream's run the last one. False where it has none.
    #[inline(never)]
    fn turn_to(&mut self, stream: Handle) -> bool {
        match self.others.iter_mut().find(|run| run.stream == stream) {
            Some(run) => {
                std::mem::swap(run, &mut self.last);
                true
            }
            None => false,
        }
    }

    /// A stream's run.
    pub(super) fn of(&mut self, stream: Handle) -> Option<&mut Run> {
        self.all().find(|run| run.stream == stream)
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Run> {
        self.others.iter_mut().chain([&mut self.last])
    }

    /// Puts in a stream's run, which has none. The one that has to go for it is to be given back.
    pub(super) fn put(&mut self, run: Run) -> Run {
        let before = std::mem::replace(&mut self.last, run);
        if before == Run::NONE {
            return before;
        }
        let place = &mut self.others[self.next];
        self.next = (self.next + 1) % RUNS;
        std::mem::replace(place, before)
    }
}

/// What was posted to streams and is not known to be done.
#[derive(Default)]
pub(super) struct Window {
    pub state: Mutex<Undone>,
}

/// Calls that are not known to be done.
#[derive(Default)]
pub(super) struct Undone {
    /// Whether the server knows marks.
    pub open: bool,
    /// Whether the session is over.
    pub over: bool,
    /// Calls of all streams, those that are gone included.
    pub total: u64,
    pub streams: NumberMap<Handle, Stream>,
    /// Calls of streams that are gone, for which no mark has been posted.
    pub gone: u64,
    /// The last mark's number.
    pub mark: u64,
    /// Which calls a mark stands for: the stream, if it is not gone, and how many.
    pub marks: NumberMap<u64, (Handle, u64)>,
    pub waiting: Vec<Arc<Waiter>>,
}

/// A stream's part of them.
#[derive(Default)]
pub(super) struct Stream {
    pub undone: u64,
    /// The part of it for which no mark has been posted.
    pub unmarked: u64,
}

impl Undone {
    pub(super) fn admits(&self, stream: Handle) -> bool {
        let undone = self.streams.get(&stream).map_or(0, |s| s.undone);
        undone + RUN <= STREAM_CALLS && self.total + RUN <= SESSION_CALLS
    }

    pub(super) fn begin(&mut self, stream: Handle) -> Run {
        let its = self.streams.entry(stream).or_default();
        its.undone += RUN;
        its.unmarked += RUN;
        self.total += RUN;
        Run { stream, left: RUN }
    }

    /// What a run has left is given back.
    pub(super) fn end(&mut self, run: &mut Run) {
        let Run { stream, left } = std::mem::replace(run, Run::NONE);
        if left > 0 && self.open {
            if let Some(its) = self.streams.get_mut(&stream) {
                its.unmarked -= left;
            }
            self.done(stream, left);
        }
    }

    pub(super) fn done(&mut self, stream: Handle, calls: u64) {
        self.total -= calls;
        self.leave(stream, calls);
    }

    /// A stream has so many calls less.
    pub(super) fn leave(&mut self, stream: Handle, calls: u64) {
        if let Some(its) = self.streams.get_mut(&stream) {
            its.undone -= calls;
            if its.undone == 0 {
                self.streams.remove(&stream);
            }
        }
    }

    pub(super) fn unmarked(&self, stream: Handle) -> u64 {
        self.streams.get(&stream).map_or(0, |s| s.unmarked)
    }

    pub(super) fn take_unmarked(&mut self, stream: Handle) -> u64 {
        self.streams.get_mut(&stream).map_or(0, |s| std::mem::take(&mut s.unmarked))
    }

    /// A new mark's number, for calls of a stream that is there or of some that are gone.
    pub(super) fn new_mark(&mut self, stream: Handle, calls: u64) -> u64 {
        self.mark += 1;
        self.marks.insert(self.mark, (stream, calls));
        self.mark
    }

    /// A stream is about to be destroyed, and has no run. The number of the mark that is to be posted, if there is to be one.
    pub(super) fn forget(&mut self, stream: Handle) -> Option<u64> {
        let calls = self.take_unmarked(stream);
        self.leave(stream, calls);
        self.gone += calls;
        if self.gone < MARK_GONE {
            return None;
        }
        let calls = std::mem::take(&mut self.gone);
        Some(self.new_mark(NO_STREAM, calls))
    }

    /// The server has got to a mark. False where there is none of that number.
    pub(super) fn reached(&mut self, number: u64) -> bool {
        let Some((stream, calls)) = self.marks.remove(&number) else { return false };
        self.done(stream, calls);
        true
    }
}

impl Window {
    /// From now on calls are counted: the server knows marks. To be called before there are any.
    pub(super) fn open(&self) {
        self.state.lock().open = true;
    }

    /// The session is over. Who waits is to be woken.
    pub(super) fn end(&self) -> Vec<Arc<Waiter>> {
        let mut state = self.state.lock();
        state.over = true;
        std::mem::take(&mut state.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Undone {
        Undone { open: true, ..Undone::default() }
    }

    #[test]
    fn runs_are_counted_as_far_as_they_were_used() {
        let mut state = open();
        let mut runs = Runs::default();
        assert!(!runs.take(7));
        assert_eq!(runs.put(state.begin(7)), Run::NONE);
        assert!((0..10).all(|_| runs.take(7)));
        // Another stream has none.
        assert!(!runs.take(8));
        state.end(runs.of(7).unwrap());
        assert!(runs.of(7).is_none());
        assert_eq!((state.total, state.unmarked(7)), (10, 10));
        assert!(!runs.take(7));
        state.done(7, 10);
        assert!(state.total == 0 && state.streams.is_empty());
    }

    #[test]
    fn streams_take_turns_with_a_run_each() {
        let mut runs = Runs::default();
        let streams = 1 + RUNS as u64;
        for stream in 0..streams {
            assert_eq!(runs.put(Run { stream, left: RUN }), Run::NONE);
        }
        for _ in 0..RUN {
            assert!((0..streams).all(|stream| runs.take(stream)));
        }
        assert!((0..streams).all(|stream| !runs.take(stream) && runs.of(stream).is_some()));
        // One more, and one has to go.
        let gone = runs.put(Run { stream: streams, left: RUN });
        assert!(gone.stream < streams && runs.of(gone.stream).is_none());
        assert!(runs.take(streams));
        assert_eq!(runs.all().filter(|run| run.stream != NO_STREAM).count() as u64, streams);
    }

    #[test]
    fn a_full_stream_leaves_room_for_others_and_all_together_do_not() {
        let mut state = open();
        let fill = |state: &mut Undone, stream| {
            let mut runs = 0;
            while state.admits(stream) {
                state.begin(stream).left = 0;
                runs += 1;
            }
            runs * RUN
        };
        let streams = SESSION_CALLS / STREAM_CALLS;
        for stream in 0..streams {
            assert_eq!(fill(&mut state, stream), STREAM_CALLS);
        }
        assert_eq!(fill(&mut state, streams), 0);
        let calls = state.take_unmarked(0);
        let mark = state.new_mark(0, calls);
        assert!(state.reached(mark));
        assert_eq!(fill(&mut state, streams), STREAM_CALLS);
        // There is word of each mark once.
        assert!(!state.reached(mark) && !state.reached(mark + 1));
    }

    #[test]
    fn calls_of_streams_that_are_gone_still_count() {
        let mut state = open();
        let mut marks = Vec::new();
        for stream in 0..2 * MARK_GONE {
            // One call each.
            let mut run = Run { left: RUN - 1, ..state.begin(stream) };
            state.end(&mut run);
            marks.extend(state.forget(stream));
        }
        assert_eq!((state.total, state.streams.len(), marks.len()), (2 * MARK_GONE, 0, 2));
        // One that has a mark already: its word comes when the stream is gone.
        state.begin(1000);
        let calls = state.take_unmarked(1000);
        marks.push(state.new_mark(1000, calls));
        assert_eq!(state.forget(1000), None);
        assert!(marks.into_iter().all(|mark| state.reached(mark)));
        assert!(state.total == 0 && state.streams.is_empty() && state.marks.is_empty());
    }
}
