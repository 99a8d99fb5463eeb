//! What both doors ask of streams that are being captured.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint};

use crate::abi::types::{GraphEdgeData, GraphRef, NodeRef};
use crate::abi::{In, Out};
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
    let info = capture::info(stream)?;
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
    // SAFETY: the program says that so many are there.
    capture::set_frontier(stream, &unsafe { nodes.list(count) }?, flags == 1)
}

/// Exchanges the thread's mode for another.
pub(crate) fn exchange(mode: Out<c_int>) -> Result<()> {
    let new = mode.get()?;
    Mode::from_number(new)?;
    mode.set(THREAD_MODE.try_with(|m| m.replace(new)).unwrap_or(0))
}
