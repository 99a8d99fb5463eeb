//! Capturing streams into graphs.

use std::ffi::{c_int, c_uint};

use super::entry::{api, enter_stream};
use crate::abi::types::{GraphEdgeData, GraphRef, NodeRef, StreamRef};
use crate::abi::{In, Out};
use crate::doors::capture::{capture_info, exchange, update};
use crate::doors::graph::check_edges;
use crate::graph::capture::{self, Mode};

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
        // SAFETY: the program says that so many are there.
        let after = unsafe { after.list(count) }?;
        capture::begin(&stream, Mode::from_number(mode)?, Some((graph, after)))
    }

    /// `cudaStreamEndCapture`
    fn end<const PT> as "cudaStreamEndCapture" (stream: StreamRef, graph: Out<GraphRef>) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        graph.set_if_wanted(0);
        graph.set_if_wanted(capture::end(&stream, !graph.is_null())?);
        Ok(())
    }

    /// `cudaStreamIsCapturing`
    fn is_capturing<const PT> as "cudaStreamIsCapturing" (stream: StreamRef, status: Out<c_int>) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        status.set(capture::info(&stream)?.status)
    }

    /// `cudaStreamGetCaptureInfo` of 12.x: status and number only.
    fn info_12<const PT> as "cudaStreamGetCaptureInfo" (stream: StreamRef, status: Out<c_int>, id: Out<u64>) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        capture_info(&stream, status, id, Out::unwanted(), Out::unwanted(), Out::unwanted(), Out::unwanted())
    }

    /// `cudaStreamGetCaptureInfo_v2`
    fn info_v2<const PT> as "cudaStreamGetCaptureInfo" (
        stream: StreamRef, status: Out<c_int>, id: Out<u64>, graph: Out<GraphRef>,
        dependencies: Out<*const NodeRef>, count: Out<usize>,
    ) {
        let (_, _, stream) = enter_stream(stream, PT)?;
        capture_info(&stream, status, id, graph, dependencies, Out::unwanted(), count)
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
