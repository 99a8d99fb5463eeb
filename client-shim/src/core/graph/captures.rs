//! Capture: work that is put on a stream goes into a graph instead.
//!
//! [`Captures::divert`] is asked before something is executed; as long as nothing is being captured that is one
//! look at a counter. A capture begins in one stream, spreads to others that wait for an event recorded in
//! it, and must have come back to the first when it ends.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rgpu_device::Handle;

use super::op::Op;
use super::store::GraphStore;
use crate::core::error::{Code, Error, Result, invalid};
use crate::core::generation;
use crate::core::registry::{NumberMap, Raw};
use crate::core::stream::{Stream, StreamKind};

/// How strict a capture is about other calls, numbered as `cudaStreamCaptureMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No thread may make a call that could disturb the capture.
    Global = 0,
    /// The thread that began the capture may make no such call.
    ThreadLocal = 1,
    /// Any call is allowed, and any thread may end the capture.
    Relaxed = 2,
}

impl Mode {
    /// From the number of a `cudaStreamCaptureMode`; others are an invalid value.
    pub(crate) fn from_number(number: i32) -> Result<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(invalid("no such capture mode")),
        }
    }
}

/// A capture under way.
struct Capture {
    graph: Raw,
    origin: Handle,
    /// Whether the graph was the program's before, and stays so.
    given: bool,
    thread: std::thread::ThreadId,
    mode: Mode,
    /// The last nodes of streams that were destroyed meanwhile.
    left: Vec<Raw>,
    broken: bool,
}

/// A stream that takes part.
struct Captured {
    capture: u64,
    /// The nodes that the next one comes after.
    frontier: Vec<Raw>,
    /// Whether it waits for the legacy stream otherwise.
    blocking: bool,
}

/// What is being captured, and where.
#[derive(Default)]
struct CaptureState {
    captures: NumberMap<u64, Capture>,
    streams: NumberMap<Handle, Captured>,
    /// Events that were last recorded in a capture: which, and after which nodes.
    events: NumberMap<Raw, (u64, Vec<Raw>)>,
}

/// What a capture needs to know of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    handle: Handle,
    legacy: bool,
    /// Whether it waits for the legacy stream otherwise.
    blocking: bool,
}

impl From<&Stream> for Lane {
    fn from(stream: &Stream) -> Self {
        Self {
            handle: stream.handle,
            legacy: stream.kind == StreamKind::Legacy,
            blocking: stream.flags & 1 == 0,
        }
    }
}

impl From<&Arc<Stream>> for Lane {
    fn from(stream: &Arc<Stream>) -> Self {
        Self::from(&**stream)
    }
}

/// What `cudaStreamGetCaptureInfo` tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Info {
    /// 0 no capture, 1 under way, 2 broken.
    pub status: i32,
    /// A number of the capture's own.
    pub id: u64,
    /// Its graph so far.
    pub graph: Raw,
    /// The nodes that the stream's next one comes after.
    pub frontier: Vec<Raw>,
}

impl CaptureState {
    /// The capture that a stream takes part in, if it is in order.
    fn capture_of(&mut self, stream: Handle) -> Option<Result<u64>> {
        let id = self.streams.get(&stream)?.capture;
        let broken = self.captures.get(&id).is_none_or(|c| c.broken);
        Some(if broken { Err(Code::StreamCaptureInvalidated.into()) } else { Ok(id) })
    }

    fn break_capture(&mut self, id: u64) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.broken = true;
        }
    }
}

/// All captures under way.
pub(crate) struct Captures {
    graphs: Arc<GraphStore>,
    state: Mutex<CaptureState>,
    /// How many captures and captured events there are.
    active: AtomicUsize,
    next_id: AtomicU64,
}

impl Captures {
    /// Nothing is captured. What will be goes into `graphs`.
    pub(crate) fn new(graphs: Arc<GraphStore>) -> Self {
        Self { graphs, state: Mutex::default(), active: AtomicUsize::new(0), next_id: AtomicU64::new(1) }
    }

    /// Runs `f` with the state, and counts afterwards.
    fn with<T>(&self, f: impl FnOnce(&mut CaptureState) -> T) -> T {
        let mut state = self.state.lock();
        let result = f(&mut state);
        self.active.store(state.captures.len() + state.events.len(), Ordering::Relaxed);
        generation::begin_new();
        result
    }

    /// Whether anything is captured at all.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.active.load(Ordering::Relaxed) != 0
    }

    /// Whether the stream is being captured.
    pub(crate) fn is_capturing(&self, stream: impl Into<Lane>) -> bool {
        let stream = stream.into();
        self.is_any() && self.with(|state| state.streams.contains_key(&stream.handle))
    }

    /// If the stream is being captured, makes a node of what `op` yields: `Some` of how that went. `None` where the
    /// work is to be executed.
    pub(crate) fn divert(
        &self,
        stream: impl Into<Lane>,
        op: impl FnOnce() -> Result<Op>,
    ) -> Option<Result<()>> {
        let stream = stream.into();
        if !self.is_any() {
            return None;
        }
        let id = match self.with(|state| {
            if stream.legacy {
                // The legacy stream would have to wait for the captured ones.
                let ids: HashSet<u64> =
                    state.streams.values().filter(|s| s.blocking).map(|s| s.capture).collect();
                ids.iter().for_each(|id| state.break_capture(*id));
                return (!ids.is_empty()).then(|| Err(Code::StreamCaptureImplicit.into()));
            }
            state.capture_of(stream.handle)
        })? {
            Ok(id) => id,
            Err(error) => return Some(Err(error)),
        };
        Some(op().and_then(|op| {
            self.with(|state| {
                let capture = state.captures.get(&id).ok_or(Code::StreamCaptureInvalidated)?;
                let captured = state.streams.get_mut(&stream.handle).ok_or(Code::StreamCaptureInvalidated)?;
                let node = self.graphs.add(capture.graph, &captured.frontier, op)?;
                captured.frontier = vec![node];
                Ok(())
            })
        }))
    }

    /// Refuses a call that a captured stream does not allow, which also breaks the capture.
    pub(crate) fn refuse(&self, stream: impl Into<Lane>) -> Result<()> {
        let stream = stream.into();
        if !self.is_any() {
            return Ok(());
        }
        self.with(|state| match state.capture_of(stream.handle) {
            None => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(id)) => {
                state.break_capture(id);
                Err(Code::StreamCaptureUnsupported.into())
            }
        })
    }

    /// Refuses a call that would wait for everything, while anything is captured.
    pub(crate) fn refuse_any(&self) -> Result<()> {
        if !self.is_any() {
            return Ok(());
        }
        self.with(|state| {
            let ids: Vec<u64> = state.captures.keys().copied().collect();
            ids.iter().for_each(|id| state.break_capture(*id));
            if ids.is_empty() { Ok(()) } else { Err(Code::StreamCaptureUnsupported.into()) }
        })
    }

    /// Refuses to look at an event that was last recorded in a capture.
    pub(crate) fn refuse_event(&self, event: Raw) -> Result<()> {
        if !self.is_any() {
            return Ok(());
        }
        self.with(|state| match state.events.get(&event) {
            Some((id, _)) if state.captures.contains_key(id) => {
                let id = *id;
                state.break_capture(id);
                Err(Code::CapturedEvent.into())
            }
            _ => Ok(()),
        })
    }

    /// Recording an event: in a captured stream it marks a place in the graph. `None` where it is to be recorded.
    pub(crate) fn record(&self, event: Raw, stream: impl Into<Lane>) -> Option<Result<()>> {
        let stream = stream.into();
        if !self.is_any() {
            return None;
        }
        self.with(|state| match state.capture_of(stream.handle) {
            None => {
                state.events.remove(&event);
                None
            }
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(id)) => {
                let frontier =
                    state.streams.get(&stream.handle).map(|s| s.frontier.clone()).unwrap_or_default();
                state.events.insert(event, (id, frontier));
                Some(Ok(()))
            }
        })
    }

    /// Waiting for an event: a captured one draws the stream into its capture. `None` where the stream is to wait.
    pub(crate) fn wait(&self, stream: impl Into<Lane>, event: Raw) -> Option<Result<()>> {
        let stream = stream.into();
        if !self.is_any() {
            return None;
        }
        self.with(|state| {
            let own = state.capture_of(stream.handle);
            let marked = state.events.get(&event).filter(|(id, _)| state.captures.contains_key(id)).cloned();
            match (own, marked) {
                (None, None) => None,
                (Some(Err(error)), _) => Some(Err(error)),
                (Some(Ok(id)), None) => {
                    state.break_capture(id);
                    Some(Err(Code::StreamCaptureIsolation.into()))
                }
                (Some(Ok(id)), Some((other, _))) if id != other => {
                    state.break_capture(id);
                    state.break_capture(other);
                    Some(Err(Code::StreamCaptureMerge.into()))
                }
                (_, Some((id, nodes))) => {
                    if stream.legacy {
                        state.break_capture(id);
                        return Some(Err(Code::StreamCaptureImplicit.into()));
                    }
                    let captured = state.streams.entry(stream.handle).or_insert_with(|| Captured {
                        capture: id,
                        frontier: Vec::new(),
                        blocking: stream.blocking,
                    });
                    for node in nodes {
                        if !captured.frontier.contains(&node) {
                            captured.frontier.push(node);
                        }
                    }
                    Some(Ok(()))
                }
            }
        })
    }

    /// `cudaStreamBeginCapture`, into a graph of the program's own where one is given, after these nodes of it.
    pub(crate) fn begin(
        &self,
        stream: impl Into<Lane>,
        mode: Mode,
        into: Option<(Raw, Vec<Raw>)>,
    ) -> Result<()> {
        let stream = stream.into();
        if stream.legacy {
            return Err(Code::StreamCaptureUnsupported.into());
        }
        let given = into.is_some();
        let (graph, frontier) = match into {
            Some((graph, frontier)) => {
                self.graphs.check(graph)?;
                (graph, frontier)
            }
            None => (self.graphs.create(), Vec::new()),
        };
        let begun = self.with(|state| {
            if state.streams.contains_key(&stream.handle) {
                return Err(Code::IllegalState.into());
            }
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let thread = std::thread::current().id();
            state.captures.insert(
                id,
                Capture {
                    graph,
                    origin: stream.handle,
                    given,
                    thread,
                    mode,
                    left: Vec::new(),
                    broken: false,
                },
            );
            state
                .streams
                .insert(stream.handle, Captured { capture: id, frontier, blocking: stream.blocking });
            Ok(())
        });
        if begun.is_err() && !given {
            self.graphs.destroy(graph)?;
        }
        begun
    }

    /// `cudaStreamEndCapture`: the graph. It has to be `wanted`, but where it is the program's own.
    pub(crate) fn end(&self, stream: impl Into<Lane>, wanted: bool) -> Result<Raw> {
        let stream = stream.into();
        let (capture, frontiers) = self.with(|state| {
            let Some(captured) = state.streams.get(&stream.handle) else {
                return Err(Code::IllegalState.into());
            };
            let id = captured.capture;
            let capture = state.captures.get(&id).ok_or(Code::StreamCaptureInvalidated)?;
            if !wanted && !capture.given {
                return Err(invalid("there is no place for the captured graph"));
            }
            if capture.origin != stream.handle {
                state.break_capture(id);
                return Err(Code::StreamCaptureUnmatched.into());
            }
            if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
                return Err(Code::StreamCaptureWrongThread.into());
            }
            let capture = state.captures.remove(&id).ok_or(Code::StreamCaptureInvalidated)?;
            let mut frontiers = (Vec::new(), Vec::new());
            state.streams.retain(|handle, s| {
                if s.capture == id {
                    let to = if *handle == stream.handle { &mut frontiers.0 } else { &mut frontiers.1 };
                    to.append(&mut s.frontier);
                }
                s.capture != id
            });
            state.events.retain(|_, (capture, _)| *capture != id);
            Ok::<_, Error>((capture, frontiers))
        })?;
        let (own, others) = frontiers;
        let own: HashSet<Raw> = own.into_iter().collect();
        let joined = others.iter().chain(&capture.left).all(|node| self.graphs.reaches(*node, &own));
        let failure = if capture.broken {
            Code::StreamCaptureInvalidated
        } else if !joined {
            Code::StreamCaptureUnjoined
        } else {
            return Ok(capture.graph);
        };
        if !capture.given {
            self.graphs.destroy(capture.graph)?;
        }
        Err(failure.into())
    }

    /// What a stream takes part in. Of the legacy stream that cannot be said while one is captured that it waits for; that one's
    /// capture goes on.
    pub(crate) fn info(&self, stream: impl Into<Lane>) -> Result<Info> {
        let stream = stream.into();
        if !self.is_any() {
            return Ok(Info::default());
        }
        self.with(|state| {
            if stream.legacy && state.streams.values().any(|captured| captured.blocking) {
                return Err(Code::StreamCaptureImplicit.into());
            }
            let Some(captured) = state.streams.get(&stream.handle) else { return Ok(Info::default()) };
            let Some(capture) = state.captures.get(&captured.capture) else { return Ok(Info::default()) };
            Ok(Info {
                status: if capture.broken { 2 } else { 1 },
                id: captured.capture,
                graph: capture.graph,
                frontier: captured.frontier.clone(),
            })
        })
    }

    /// `cudaStreamUpdateCaptureDependencies`
    pub(crate) fn set_frontier(&self, stream: impl Into<Lane>, nodes: &[Raw], replace: bool) -> Result<()> {
        let stream = stream.into();
        self.with(|state| {
            state.capture_of(stream.handle).ok_or(Code::IllegalState)??;
            let captured = state.streams.get_mut(&stream.handle).ok_or(Code::IllegalState)?;
            if replace {
                captured.frontier.clear();
            }
            captured.frontier.extend(nodes);
            Ok(())
        })
    }

    /// A stream is destroyed. A capture that began with it is broken; one that it was drawn into goes on, and what it did last has to be
    /// joined all the same.
    pub(crate) fn forget_stream(&self, stream: impl Into<Lane>) {
        let stream = stream.into();
        if self.is_any() {
            self.with(|state| {
                let Some(captured) = state.streams.remove(&stream.handle) else { return };
                let Some(capture) = state.captures.get_mut(&captured.capture) else { return };
                if capture.origin == stream.handle {
                    capture.broken = true;
                } else {
                    capture.left.extend(captured.frontier);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(handle: Handle) -> Lane {
        Lane { handle, legacy: handle < 0x100, blocking: true }
    }

    /// One test tells the whole story.
    #[test]
    fn captures() {
        let graphs = Arc::new(GraphStore::default());
        let captures = Captures::new(graphs.clone());
        let (a, b, c, legacy) = (lane(0x1000), lane(0x1001), lane(0x1002), lane(0));
        let (fork, join) = (0x7001, 0x7002);
        assert!(captures.divert(a, || Ok(Op::Empty)).is_none());

        // A fork and a join.
        captures.begin(a, Mode::Global, None).unwrap();
        assert_eq!(captures.begin(a, Mode::Global, None).unwrap_err().code, Code::IllegalState);
        captures.divert(a, || Ok(Op::Empty)).unwrap().unwrap();
        captures.record(fork, a).unwrap().unwrap();
        captures.wait(b, fork).unwrap().unwrap();
        captures.divert(b, || Ok(Op::Empty)).unwrap().unwrap();
        captures.divert(a, || Ok(Op::Empty)).unwrap().unwrap();
        assert_eq!(captures.refuse_event(0x7003), Ok(()));
        captures.record(join, b).unwrap().unwrap();
        captures.wait(a, join).unwrap().unwrap();
        assert_eq!(captures.info(a).unwrap().frontier.len(), 2);
        assert_eq!(captures.info(legacy).unwrap_err().code, Code::StreamCaptureImplicit);
        captures.divert(a, || Ok(Op::Empty)).unwrap().unwrap();
        assert!(captures.divert(c, || Ok(Op::Empty)).is_none());
        // A graph that the program has no place for stays in the making.
        assert_eq!(captures.end(a, false).unwrap_err().code, Code::InvalidValue);
        let graph = captures.end(a, true).unwrap();
        assert_eq!((graphs.nodes(graph).unwrap().len(), graphs.edges(graph).unwrap().len()), (4, 4));
        assert_eq!((captures.info(b), captures.info(legacy)), (Ok(Info::default()), Ok(Info::default())));

        // Work that does not come back.
        captures.begin(a, Mode::Global, None).unwrap();
        captures.record(fork, a).unwrap().unwrap();
        captures.wait(b, fork).unwrap().unwrap();
        captures.divert(b, || Ok(Op::Empty)).unwrap().unwrap();
        assert_eq!(captures.end(a, true).unwrap_err().code, Code::StreamCaptureUnjoined);

        // A stream that was drawn in may go before the end, but not with work that does not come back.
        for joins in [true, false] {
            captures.begin(a, Mode::Global, None).unwrap();
            captures.record(fork, a).unwrap().unwrap();
            captures.wait(b, fork).unwrap().unwrap();
            captures.divert(b, || Ok(Op::Empty)).unwrap().unwrap();
            captures.record(join, b).unwrap().unwrap();
            captures.forget_stream(b);
            if joins {
                captures.wait(a, join).unwrap().unwrap();
            }
            captures.divert(a, || Ok(Op::Empty)).unwrap().unwrap();
            match captures.end(a, true) {
                Ok(graph) => assert_eq!((joins, graphs.nodes(graph).unwrap().len()), (true, 2)),
                Err(error) => assert_eq!((joins, error.code), (false, Code::StreamCaptureUnjoined)),
            }
        }
        // The one that it began with may not.
        let captured = captures;
        let captures = Captures::new(graphs.clone());
        captures.begin(c, Mode::Global, None).unwrap();
        captures.record(fork, c).unwrap().unwrap();
        captures.wait(b, fork).unwrap().unwrap();
        captures.forget_stream(c);
        let error = captures.divert(b, || Ok(Op::Empty)).unwrap().unwrap_err();
        assert_eq!(error.code, Code::StreamCaptureInvalidated);
        let captures = captured;

        // The legacy stream, and waiting for the stream, break a capture.
        captures.begin(a, Mode::Global, None).unwrap();
        let implicit = captures.divert(legacy, || Ok(Op::Empty)).unwrap().unwrap_err();
        assert_eq!(implicit.code, Code::StreamCaptureImplicit);
        assert_eq!(
            captures.divert(a, || Ok(Op::Empty)).unwrap().unwrap_err().code,
            Code::StreamCaptureInvalidated
        );
        assert_eq!(captures.end(a, true).unwrap_err().code, Code::StreamCaptureInvalidated);
        captures.begin(a, Mode::Relaxed, None).unwrap();
        assert_eq!(captures.refuse(a).unwrap_err().code, Code::StreamCaptureUnsupported);
        assert_eq!(captures.end(a, true).unwrap_err().code, Code::StreamCaptureInvalidated);

        // An event from outside.
        captures.begin(a, Mode::Relaxed, None).unwrap();
        assert_eq!(captures.wait(a, fork).unwrap().unwrap_err().code, Code::StreamCaptureIsolation);
        assert_eq!(captures.end(b, true).unwrap_err().code, Code::IllegalState);
        assert!(captures.end(a, true).is_err());
        assert!(!captures.is_any());
    }
}
