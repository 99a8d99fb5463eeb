//! Capturing streams into graphs.

use super::stream::stream_of;
use super::types::*;
use crate::abi::types::GraphEdgeData;
use crate::abi::{In, Out};
use crate::doors::capture::{capture_info, exchange, update};
use crate::doors::graph::check_edges;
use crate::graph::capture::{self, Mode};

door! {
    fn cuStreamBeginCapture<const PT>(stream: Opaque) |core| {
        let stream = stream_of(core, stream, PT)?;
        capture::begin(&stream, Mode::Global, None)
    }
    fn cuStreamBeginCapture_v2<const PT>(stream: Opaque, mode: i32) |core| {
        let stream = stream_of(core, stream, PT)?;
        capture::begin(&stream, Mode::from_number(mode)?, None)
    }
    fn cuStreamBeginCaptureToGraph<const PT>(
        stream: Opaque, graph: usize, after: In<usize>, data: In<GraphEdgeData>, count: usize, mode: i32,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        check_edges(data, count)?;
        // SAFETY: the program says that so many are there.
        let after = unsafe { after.list(count) }?;
        capture::begin(&stream, Mode::from_number(mode)?, Some((graph, after)))
    }
    fn cuStreamEndCapture<const PT>(stream: Opaque, graph: Out<usize>) |core| {
        let stream = stream_of(core, stream, PT)?;
        graph.set_if_wanted(0);
        graph.set_if_wanted(capture::end(&stream, !graph.is_null())?);
        Ok(())
    }
    fn cuStreamIsCapturing<const PT>(stream: Opaque, status: Out<i32>) |core| {
        status.set(capture::info(&stream_of(core, stream, PT)?)?.status)
    }
    fn cuStreamGetCaptureInfo<const PT>(
        stream: Opaque, status: Out<i32>, id: Out<u64>,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        capture_info(&stream, status, id, Out::unwanted(), Out::unwanted(), Out::unwanted(), Out::unwanted())
    }
    fn cuStreamGetCaptureInfo_v2<const PT>(
        stream: Opaque, status: Out<i32>, id: Out<u64>, graph: Out<usize>, nodes: Out<*const usize>,
        count: Out<usize>,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        capture_info(&stream, status, id, graph, nodes, Out::unwanted(), count)
    }
    fn cuStreamGetCaptureInfo_v3<const PT>(
        stream: Opaque, status: Out<i32>, id: Out<u64>, graph: Out<usize>, nodes: Out<*const usize>,
        data: Out<*const GraphEdgeData>, count: Out<usize>,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        capture_info(&stream, status, id, graph, nodes, data, count)
    }
    fn cuStreamUpdateCaptureDependencies<const PT>(
        stream: Opaque, nodes: In<usize>, count: usize, flags: u32,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        update(&stream, nodes, count, flags)
    }
    fn cuStreamUpdateCaptureDependencies_v2<const PT>(
        stream: Opaque, nodes: In<usize>, data: In<GraphEdgeData>, count: usize, flags: u32,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        check_edges(data, count)?;
        update(&stream, nodes, count, flags)
    }
    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) |core| {
        exchange(mode)
    }
}
