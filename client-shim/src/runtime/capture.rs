//! Capturing streams into graphs.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint};

use super::abi::{In, Out, api, enter_stream};
use super::graph::check_edges;
use super::types::{GraphEdgeData, GraphRef, NodeRef, StreamRef};
use crate::core::error::invalid;
use crate::core::{Result, Stream};
use crate::graph::capture::{self, Mode};

thread_local! {
    /// `cudaThreadExchangeStreamCaptureMode`: global at first.
    static THREAD_MODE: Cell<c_int> = const { Cell::new(0) };
    /// The nodes that `cudaStreamGetCaptureInfo` last pointed this thread to, and data for the edges to them.
    static DEPENDENCIES: RefCell<(Vec<NodeRef>, Vec<GraphEdgeData>)> =
        const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Tells what a stream takes part in. The lists stay valid until the thread asks again.
pub(crate) fn capture_info(
    stream: &Stream,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<GraphRef>,
    dependencies: Out<*const NodeRef>,
    data: Out<*const GraphEdgeData>,
    count: Out<usize>,
) -> Result<()> {
    status.check()?;
    let info = capture::info(stream);
    status.set_if_wanted(info.status);
    if info.status != 1 {
        return Ok(());
    }
    id.set_if_wanted(info.id);
    graph.set_if_wanted(info.graph);
    count.set_if_wanted(info.frontier.len());
    let _ = DEPENDENCIES.try_with(|lists| {
        let mut lists = lists.borrow_mut();
        lists.1 = vec![GraphEdgeData::default(); info.frontier.len()];
        lists.0 = info.frontier;
        dependencies.set_if_wanted(lists.0.as_ptr());
        data.set_if_wanted(lists.1.as_ptr());
    });
    Ok(())
}

/// Changes what the stream's next node comes after.
pub(crate) fn update(stream: &Stream, nodes: In<NodeRef>, count: usize, flags: c_uint) -> Result<()> {
    if flags > 1 {
        return Err(invalid("unknown flags"));
    }
    capture::set_frontier(stream, &nodes.list(count)?, flags == 1)
}

/// No place for a result.
pub(crate) fn unwanted<T>() -> Out<T> {
    Out(std::ptr::null_mut())
}

/// Exchanges the thread's mode for another.
pub(crate) fn exchange(mode: Out<c_int>) -> Result<()> {
    let new = mode.get()?;
    Mode::from_number(new)?;
    mode.set(THREAD_MODE.try_with(|m| m.replace(new)).unwrap_or(0))
}

api! {
    /// `cudaStreamBeginCapture`
    fn begin<const PT> as "cudaStreamBeginCapture" (stream: StreamRef, mode: c_int) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        capture::begin(&stream, Mode::from_number(mode)?, None)
    }

    /// `cudaStreamBeginCaptureToGraph`
    fn begin_to_graph<const PT> as "cudaStreamBeginCaptureToGraph" (
        stream: StreamRef, graph: GraphRef, after: In<NodeRef>, data: In<GraphEdgeData>, count: usize, mode: c_int,
    ) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        check_edges(data, count)?;
        capture::begin(&stream, Mode::from_number(mode)?, Some((graph, after.list(count)?)))
    }

    /// `cudaStreamEndCapture`
    fn end<const PT> as "cudaStreamEndCapture" (stream: StreamRef, graph: Out<GraphRef>) {
        graph.check()?;
        let (_, _, stream) = enter_stream(stream, PT)?;
        graph.set_if_wanted(0);
        graph.set(capture::end(&stream)?)
    }

    /// `cudaStreamIsCapturing`
    fn is_capturing<const PT> as "cudaStreamIsCapturing" (stream: StreamRef, status: Out<c_int>) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        status.set(capture::info(&stream).status)
    }

    /// `cudaStreamGetCaptureInfo` of 12.x: status and number only.
    fn info_12<const PT> as "cudaStreamGetCaptureInfo" (stream: StreamRef, status: Out<c_int>, id: Out<u64>) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        capture_info(&stream, status, id, unwanted(), unwanted(), unwanted(), unwanted())
    }

    /// `cudaStreamGetCaptureInfo_v2`
    fn info_v2<const PT> as "cudaStreamGetCaptureInfo" (
        stream: StreamRef, status: Out<c_int>, id: Out<u64>, graph: Out<GraphRef>,
        dependencies: Out<*const NodeRef>, count: Out<usize>,
    ) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        capture_info(&stream, status, id, graph, dependencies, unwanted(), count)
    }

    /// `cudaStreamGetCaptureInfo` of 13.x, `cudaStreamGetCaptureInfo_v3` of 12.x
    fn info<const PT> as "cudaStreamGetCaptureInfo" (
        stream: StreamRef, status: Out<c_int>, id: Out<u64>, graph: Out<GraphRef>,
        dependencies: Out<*const NodeRef>, data: Out<*const GraphEdgeData>, count: Out<usize>,
    ) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        capture_info(&stream, status, id, graph, dependencies, data, count)
    }

    /// `cudaStreamUpdateCaptureDependencies` of 12.x
    fn update_12<const PT> as "cudaStreamUpdateCaptureDependencies" (
        stream: StreamRef, nodes: In<NodeRef>, count: usize, flags: c_uint,
    ) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        update(&stream, nodes, count, flags)
    }

    /// `cudaStreamUpdateCaptureDependencies` of 13.x, and with `_v2` of 12.x
    fn update_dependencies<const PT> as "cudaStreamUpdateCaptureDependencies" (
        stream: StreamRef, nodes: In<NodeRef>, data: In<GraphEdgeData>, count: usize, flags: c_uint,
    ) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        check_edges(data, count)?;
        update(&stream, nodes, count, flags)
    }

    /// `cudaThreadExchangeStreamCaptureMode`. Calls that a mode would forbid are allowed here.
    fn exchange_mode as "cudaThreadExchangeStreamCaptureMode" (mode: Out<c_int>) {
        exchange(mode)
    }
}
