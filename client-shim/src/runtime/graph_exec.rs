//! Executable graphs: instantiating, changing and launching them.

use std::ffi::{c_int, c_uint, c_void};

use super::entry::{api, enter_stream};
use super::graph::{copy_1d, copy_node, copy_symbol, general, kernel};
use super::types::{KernelNodeParams, Memcpy3DParms};
use crate::abi::types::{
    EventRef, GraphExecRef, GraphExecUpdateResultInfo, GraphInstantiateParams, GraphNodeParams, GraphRef,
    HostNodeParams, MemsetParams, NodeRef, StreamRef, node_type,
};
use crate::abi::{In, Out};
use crate::core::error::{invalid, not_implemented};
use crate::core::{Code, Error, Result};
use crate::doors::graph::{event_op, fill_node, host_node, payload};
use crate::graph::{self, Mismatch};

/// `cudaGraphExecUpdateResult`s.
const UPDATE_TOPOLOGY_CHANGED: c_int = 2;
const UPDATE_KIND_CHANGED: c_int = 3;
/// `cudaGraphInstantiateFlagDeviceLaunch`.
const DEVICE_LAUNCH: u64 = 4;

/// Instantiates a graph.
pub(super) fn instantiate_graph(out: Out<GraphExecRef>, graph: GraphRef, flags: u64) -> Result<()> {
    out.check()?;
    if flags & DEVICE_LAUNCH != 0 {
        return Err(not_implemented("a graph that is launched by the device"));
    }
    if flags & !0xf != 0 {
        return Err(invalid("unknown flags"));
    }
    out.set(graph::instantiate(graph, flags)?)
}

/// Makes an executable graph do what a graph does, and says by `told` whether that went and which node is in its way.
pub(super) fn update(exec: GraphExecRef, graph: GraphRef, told: impl FnOnce(c_int, NodeRef)) -> Result<()> {
    let (result, node) = match graph::exec_update(exec, graph)? {
        Ok(()) => (0, 0),
        Err(Mismatch::Topology) => (UPDATE_TOPOLOGY_CHANGED, 0),
        Err(Mismatch::Kind(node)) => (UPDATE_KIND_CHANGED, node),
    };
    told(result, node);
    if result == 0 {
        return Ok(());
    }
    Err(Error::new(Code::GraphExecUpdateFailure, "the graphs have different shapes"))
}

api! {
    /// `cudaGraphInstantiate`, `cudaGraphInstantiateWithFlags`
    fn instantiate as "cudaGraphInstantiate" (out: Out<GraphExecRef>, graph: GraphRef, flags: u64) {
        instantiate_graph(out, graph, flags)
    }

    /// `cudaGraphInstantiateWithParams`
    fn instantiate_with_params<const PT> as "cudaGraphInstantiateWithParams" (
        out: Out<GraphExecRef>, graph: GraphRef, params: Out<GraphInstantiateParams>,
    ) {
        let given = params.get()?;
        let done = instantiate_graph(out, graph, given.flags);
        params.set(GraphInstantiateParams { error_node: 0, result: c_int::from(done.is_err()), ..given })?;
        done
    }

    /// `cudaGraphExecGetFlags`
    fn exec_get_flags as "cudaGraphExecGetFlags" (exec: GraphExecRef, out: Out<u64>) {
        out.check()?;
        out.set(graph::exec(exec)?.flags)
    }

    /// `cudaGraphExecDestroy`
    fn exec_destroy as "cudaGraphExecDestroy" (exec: GraphExecRef) {
        graph::exec_destroy(exec)
    }

    /// `cudaGraphLaunch`
    fn launch<const PT> as "cudaGraphLaunch" (exec: GraphExecRef, stream: StreamRef) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        graph::exec(exec)?.launch(core, &stream)
    }

    /// `cudaGraphUpload`: there is nothing to prepare.
    fn upload<const PT> as "cudaGraphUpload" (exec: GraphExecRef, stream: StreamRef) {
        enter_stream(stream, PT)?;
        graph::exec(exec).map(drop)
    }

    /// `cudaGraphExecUpdate`
    fn exec_update as "cudaGraphExecUpdate" (
        exec: GraphExecRef, graph: GraphRef, out: Out<GraphExecUpdateResultInfo>,
    ) {
        update(exec, graph, |result, node| {
            out.set_if_wanted(GraphExecUpdateResultInfo { result, error_node: node, error_from_node: 0 });
        })
    }

    /// `cudaGraphNodeSetEnabled`
    fn set_enabled as "cudaGraphNodeSetEnabled" (exec: GraphExecRef, node: NodeRef, enabled: c_uint) {
        graph::exec(exec)?.set_enabled(node, enabled != 0)
    }

    /// `cudaGraphNodeGetEnabled`
    fn get_enabled as "cudaGraphNodeGetEnabled" (exec: GraphExecRef, node: NodeRef, out: Out<c_uint>) {
        out.check()?;
        out.set(c_uint::from(graph::exec(exec)?.enabled(node)?))
    }

    /// `cudaGraphExecKernelNodeSetParams`
    fn exec_kernel as "cudaGraphExecKernelNodeSetParams" (
        exec: GraphExecRef, node: NodeRef, params: In<KernelNodeParams>,
    ) {
        graph::exec(exec)?.set(node, kernel(&params.get()?)?)
    }

    /// `cudaGraphExecMemcpyNodeSetParams`
    fn exec_memcpy as "cudaGraphExecMemcpyNodeSetParams" (
        exec: GraphExecRef, node: NodeRef, params: In<Memcpy3DParms>,
    ) {
        graph::exec(exec)?.set(node, copy_node(&params.get()?)?)
    }

    /// `cudaGraphExecMemcpyNodeSetParams1D`
    fn exec_memcpy_1d as "cudaGraphExecMemcpyNodeSetParams1D" (
        exec: GraphExecRef, node: NodeRef, dst: usize, src: usize, bytes: usize, kind: c_int,
    ) {
        graph::exec(exec)?.set(node, copy_1d(dst, src, bytes, kind)?)
    }

    /// `cudaGraphExecMemcpyNodeSetParamsToSymbol`
    fn exec_memcpy_to_symbol as "cudaGraphExecMemcpyNodeSetParamsToSymbol" (
        exec: GraphExecRef, node: NodeRef, symbol: *const c_void, src: usize, bytes: usize, offset: usize,
        kind: c_int,
    ) {
        graph::exec(exec)?.set(node, copy_symbol(symbol, offset, src, bytes, true, kind)?)
    }

    /// `cudaGraphExecMemcpyNodeSetParamsFromSymbol`
    fn exec_memcpy_from_symbol as "cudaGraphExecMemcpyNodeSetParamsFromSymbol" (
        exec: GraphExecRef, node: NodeRef, dst: usize, symbol: *const c_void, bytes: usize, offset: usize,
        kind: c_int,
    ) {
        graph::exec(exec)?.set(node, copy_symbol(symbol, offset, dst, bytes, false, kind)?)
    }

    /// `cudaGraphExecMemsetNodeSetParams`
    fn exec_memset as "cudaGraphExecMemsetNodeSetParams" (
        exec: GraphExecRef, node: NodeRef, params: In<MemsetParams>,
    ) {
        graph::exec(exec)?.set(node, fill_node(&params.get()?)?)
    }

    /// `cudaGraphExecHostNodeSetParams`
    fn exec_host as "cudaGraphExecHostNodeSetParams" (
        exec: GraphExecRef, node: NodeRef, params: In<HostNodeParams>,
    ) {
        graph::exec(exec)?.set(node, host_node(&params.get()?)?)
    }

    /// `cudaGraphExecEventRecordNodeSetEvent`
    fn exec_event_record as "cudaGraphExecEventRecordNodeSetEvent" (
        exec: GraphExecRef, node: NodeRef, event: EventRef,
    ) {
        graph::exec(exec)?.set(node, event_op(event, true)?)
    }

    /// `cudaGraphExecEventWaitNodeSetEvent`
    fn exec_event_wait as "cudaGraphExecEventWaitNodeSetEvent" (
        exec: GraphExecRef, node: NodeRef, event: EventRef,
    ) {
        graph::exec(exec)?.set(node, event_op(event, false)?)
    }

    /// `cudaGraphExecChildGraphNodeSetParams`
    fn exec_child as "cudaGraphExecChildGraphNodeSetParams" (
        exec: GraphExecRef, node: NodeRef, child: GraphRef,
    ) {
        graph::exec_set_child(exec, node, child)
    }

    /// `cudaGraphExecNodeSetParams`
    fn exec_node_set_params as "cudaGraphExecNodeSetParams" (
        exec: GraphExecRef, node: NodeRef, params: Out<GraphNodeParams>,
    ) {
        let mut given = params.get()?;
        if given.kind == node_type::GRAPH {
            return graph::exec_set_child(exec, node, payload(&given));
        }
        graph::exec(exec)?.set(node, general(&mut given)?)
    }
}
