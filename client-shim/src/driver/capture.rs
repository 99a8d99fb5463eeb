//! Capturing streams into graphs.

use super::stream::stream_of;
use super::types::*;
use super::*;
use crate::graph::capture::{self, Mode};
use crate::runtime::abi::{In, Out};
use crate::runtime::capture::{capture_info, exchange, unwanted, update};
use crate::runtime::graph::check_edges;
use crate::runtime::types::GraphEdgeData;

door! {
    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz(stream: Opaque) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        capture::begin(&stream, Mode::Global, None)
    }
    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(stream: Opaque, mode: i32) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        capture::begin(&stream, Mode::from_number(mode)?, None)
    }
    fn cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz(
        stream: Opaque, graph: usize, after: *const usize, data: *const GraphEdgeData, count: usize, mode: i32,
    ) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        check_edges(In(data), count)?;
        capture::begin(&stream, Mode::from_number(mode)?, Some((graph, In(after).list(count)?)))
    }
    fn cuStreamEndCapture / cuStreamEndCapture_ptsz(stream: Opaque, graph: *mut usize) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        set(graph, 0)?;
        set(graph, capture::end(&stream)?)
    }
    fn cuStreamIsCapturing / cuStreamIsCapturing_ptsz(stream: Opaque, status: *mut i32) |core, PER_THREAD| {
        set(status, capture::info(&stream_of(core, stream, PER_THREAD)?).status)
    }
    fn cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(
        stream: Opaque, status: *mut i32, id: *mut u64,
    ) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        capture_info(&stream, Out(status), Out(id), unwanted(), unwanted(), unwanted(), unwanted())
    }
    fn cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        stream: Opaque, status: *mut i32, id: *mut u64, graph: *mut usize, nodes: *mut *const usize,
        count: *mut usize,
    ) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        capture_info(&stream, Out(status), Out(id), Out(graph), Out(nodes), unwanted(), Out(count))
    }
    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        stream: Opaque, status: *mut i32, id: *mut u64, graph: *mut usize, nodes: *mut *const usize,
        data: *mut *const GraphEdgeData, count: *mut usize,
    ) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        capture_info(&stream, Out(status), Out(id), Out(graph), Out(nodes), Out(data), Out(count))
    }
    fn cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz(
        stream: Opaque, nodes: *const usize, count: usize, flags: u32,
    ) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        update(&stream, In(nodes), count, flags)
    }
    fn cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: Opaque, nodes: *const usize, data: *const GraphEdgeData, count: usize, flags: u32,
    ) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        check_edges(In(data), count)?;
        update(&stream, In(nodes), count, flags)
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut i32) |core| {
        exchange(Out(mode))
    }
}
