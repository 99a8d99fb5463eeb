//! Graphs: making them by hand, and asking about them. What they are is in [`crate::graph`].

use std::ffi::{c_int, c_uint, c_void};

use super::copy::copy_box_of;
use super::entry::{api, enter};
use super::types::{Dim3, Extent, KernelNodeParams, Memcpy3DParms, MemcpyNodeParams, PitchedPtr, kind};
use crate::abi::types::{
    AttributeValue, EventRef, GraphEdgeData, GraphNodeParams, GraphRef, HostFn, HostNodeParams,
    MemAllocNodeParams, MemsetParams, NodeRef, node_type,
};
use crate::abi::{CStrArg, In, Out};
use crate::core::error::{invalid, not_implemented};
use crate::core::{Code, Config, CopyBox, CopySide, Direction, Params, Result, current};
use crate::doors::graph::{
    Payload, add, add_general, alloc_node, alloc_params, check_edges, copy_attributes, create_condition,
    dot_print, event_of, event_op, fill_node, fill_params, get_attribute, host_node, list_edges,
    list_edges_to, list_nodes, memory_attribute, pairs, payload, set_attribute, set_memory_attribute,
    set_payload,
};
use crate::doors::ordinal;
use crate::graph::{self, HostCall, Kernel, Op};

// SAFETY: numbers and addresses.
unsafe impl Payload for KernelNodeParams {}
// SAFETY: numbers and addresses.
unsafe impl Payload for MemcpyNodeParams {}

/// What a kernel node does.
pub(super) fn kernel(params: &KernelNodeParams) -> Result<Op> {
    let (core, context) = enter()?;
    if params.func.is_null() {
        return Err(Code::InvalidDeviceFunction.into());
    }
    let function = core.function_for(&context, params.func)?;
    let config = Config {
        grid: params.grid.into(),
        block: params.block.into(),
        shared_bytes: params.shared_bytes,
        cooperative: false,
        cluster: [0; 3],
    };
    let given = if params.kernel_params.is_null() && !params.extra.is_null() {
        Params::Extra(params.extra.cast_const().cast())
    } else {
        Params::Pointers(params.kernel_params.cast_const().cast())
    };
    // SAFETY: the program passes the kernel's arguments, as the call demands.
    Ok(Op::Kernel(unsafe { Kernel::new(function, params.func as usize, config, given) }?))
}

/// What a 3D copy node does.
pub(super) fn copy_node(params: &Memcpy3DParms) -> Result<Op> {
    Ok(Op::Copy(copy_box_of(params)?, Direction::from_number(params.kind as u32)?))
}

/// What a plain copy node does.
pub(super) fn copy_1d(dst: usize, src: usize, count: usize, kind: c_int) -> Result<Op> {
    let place =
        |addr: usize| CopySide { addr: addr as u64, row_pitch: count as u64, slice_pitch: count as u64 };
    let what = CopyBox { dst: place(dst), src: place(src), width: count as u64, height: 1, depth: 1 };
    Ok(Op::Copy(what, Direction::from_number(kind as u32)?))
}

/// What a copy to or from a variable does.
pub(super) fn copy_symbol(
    symbol: *const c_void,
    offset: usize,
    other: usize,
    count: usize,
    to_symbol: bool,
    kind: c_int,
) -> Result<Op> {
    let (core, context) = enter()?;
    let (addr, size) = core.symbol_for(&context, symbol)?;
    if (offset as u64).checked_add(count as u64).is_none_or(|end| end > size) {
        return Err(invalid("the copy reaches over the end of the variable"));
    }
    let place = addr as usize + offset;
    if to_symbol { copy_1d(place, other, count, kind) } else { copy_1d(other, place, count, kind) }
}

/// What a node of the general kind does. The parameters may be filled in.
pub(super) fn general(params: &mut GraphNodeParams) -> Result<Op> {
    Ok(match params.kind {
        node_type::KERNEL => kernel(&payload(params))?,
        node_type::MEMCPY => copy_node(&payload::<MemcpyNodeParams>(params).copy)?,
        node_type::MEMSET => fill_node(&payload(params))?,
        node_type::HOST => host_node(&payload(params))?,
        node_type::EMPTY => Op::Empty,
        node_type::WAIT_EVENT => Op::Wait(current()?.event(payload(params))?),
        node_type::EVENT_RECORD => Op::Record(current()?.event(payload(params))?),
        node_type::MEM_FREE => Op::Free(payload(params)),
        node_type::MEM_ALLOC => {
            let mut alloc: MemAllocNodeParams = payload(params);
            let op = alloc_node(&mut alloc)?;
            set_payload(params, alloc);
            op
        }
        other => return Err(not_implemented(&format!("a graph node of type {other}"))),
    })
}

api! {
    /// `cudaGraphCreate`
    fn create as "cudaGraphCreate" (out: Out<GraphRef>, flags: c_uint) {
        out.check()?;
        if flags != 0 {
            return Err(invalid("flags must be 0"));
        }
        out.set(graph::create()?)
    }

    /// `cudaGraphDestroy`
    fn destroy as "cudaGraphDestroy" (graph: GraphRef) {
        graph::destroy(graph)
    }

    /// `cudaGraphClone`
    fn clone as "cudaGraphClone" (out: Out<GraphRef>, graph: GraphRef) {
        out.check()?;
        out.set(graph::clone(graph)?)
    }

    /// `cudaGraphNodeFindInClone`
    fn find_in_clone as "cudaGraphNodeFindInClone" (out: Out<NodeRef>, node: NodeRef, clone: GraphRef) {
        out.check()?;
        out.set(graph::find_in_clone(node, clone)?)
    }

    /// `cudaGraphAddEmptyNode`
    fn add_empty as "cudaGraphAddEmptyNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize,
    ) {
        add(out, graph, after, count, || Ok(Op::Empty))
    }

    /// `cudaGraphAddKernelNode`
    fn add_kernel as "cudaGraphAddKernelNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, params: In<KernelNodeParams>,
    ) {
        add(out, graph, after, count, || kernel(&params.get()?))
    }

    /// `cudaGraphAddMemcpyNode`
    fn add_memcpy as "cudaGraphAddMemcpyNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, params: In<Memcpy3DParms>,
    ) {
        add(out, graph, after, count, || copy_node(&params.get()?))
    }

    /// `cudaGraphAddMemcpyNode1D`
    fn add_memcpy_1d as "cudaGraphAddMemcpyNode1D" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, dst: usize, src: usize, bytes: usize,
        kind: c_int,
    ) {
        add(out, graph, after, count, || copy_1d(dst, src, bytes, kind))
    }

    /// `cudaGraphAddMemcpyNodeToSymbol`
    fn add_memcpy_to_symbol as "cudaGraphAddMemcpyNodeToSymbol" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, symbol: *const c_void, src: usize,
        bytes: usize, offset: usize, kind: c_int,
    ) {
        add(out, graph, after, count, || copy_symbol(symbol, offset, src, bytes, true, kind))
    }

    /// `cudaGraphAddMemcpyNodeFromSymbol`
    fn add_memcpy_from_symbol as "cudaGraphAddMemcpyNodeFromSymbol" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, dst: usize, symbol: *const c_void,
        bytes: usize, offset: usize, kind: c_int,
    ) {
        add(out, graph, after, count, || copy_symbol(symbol, offset, dst, bytes, false, kind))
    }

    /// `cudaGraphAddMemsetNode`
    fn add_memset as "cudaGraphAddMemsetNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, params: In<MemsetParams>,
    ) {
        add(out, graph, after, count, || fill_node(&params.get()?))
    }

    /// `cudaGraphAddHostNode`
    fn add_host as "cudaGraphAddHostNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, params: In<HostNodeParams>,
    ) {
        add(out, graph, after, count, || host_node(&params.get()?))
    }

    /// `cudaGraphAddChildGraphNode`
    fn add_child as "cudaGraphAddChildGraphNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, child: GraphRef,
    ) {
        out.check()?;
        // SAFETY: the program says that so many are there.
        out.set(graph::add_child(graph, &unsafe { after.list(count) }?, child, false)?)
    }

    /// `cudaGraphAddEventRecordNode`
    fn add_event_record as "cudaGraphAddEventRecordNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, event: EventRef,
    ) {
        add(out, graph, after, count, || event_op(event, true))
    }

    /// `cudaGraphAddEventWaitNode`
    fn add_event_wait as "cudaGraphAddEventWaitNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, event: EventRef,
    ) {
        add(out, graph, after, count, || event_op(event, false))
    }

    /// `cudaGraphAddMemAllocNode`
    fn add_mem_alloc as "cudaGraphAddMemAllocNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, params: Out<MemAllocNodeParams>,
    ) {
        let mut given = params.get()?;
        add(out, graph, after, count, || alloc_node(&mut given))?;
        params.set(given)
    }

    /// `cudaGraphAddMemFreeNode`
    fn add_mem_free as "cudaGraphAddMemFreeNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, ptr: usize,
    ) {
        add(out, graph, after, count, || Ok(Op::Free(ptr as u64)))
    }

    /// `cudaGraphAddNode` of 12.x
    fn add_node_12 as "cudaGraphAddNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, count: usize, params: Out<GraphNodeParams>,
    ) {
        add_general(out, graph, after, count, params, general)
    }

    /// `cudaGraphAddNode` of 13.x, `cudaGraphAddNode_v2` of 12.x
    fn add_node as "cudaGraphAddNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, data: In<GraphEdgeData>, count: usize,
        params: Out<GraphNodeParams>,
    ) {
        check_edges(data, count)?;
        add_general(out, graph, after, count, params, general)
    }

    /// `cudaGraphConditionalHandleCreate`
    fn condition_create as "cudaGraphConditionalHandleCreate" (
        out: Out<u64>, graph: GraphRef, value: c_uint, flags: c_uint,
    ) {
        let (_, context) = enter()?;
        create_condition(out, graph, &context, value, flags)
    }

    /// `cudaGraphDestroyNode`
    fn destroy_node as "cudaGraphDestroyNode" (node: NodeRef) {
        graph::destroy_node(node)
    }

    /// `cudaGraphNodeGetType`
    fn node_get_type as "cudaGraphNodeGetType" (node: NodeRef, out: Out<c_int>) {
        out.check()?;
        out.set(graph::op(node)?.kind() as c_int)
    }

    /// `cudaGraphGetNodes`
    fn get_nodes as "cudaGraphGetNodes" (graph: GraphRef, out: Out<NodeRef>, count: Out<usize>) {
        list_nodes(&graph::nodes(graph)?, out, count)
    }

    /// `cudaGraphGetRootNodes`
    fn get_root_nodes as "cudaGraphGetRootNodes" (graph: GraphRef, out: Out<NodeRef>, count: Out<usize>) {
        list_nodes(&graph::roots(graph)?, out, count)
    }

    /// `cudaGraphGetEdges` of 12.x
    fn get_edges_12 as "cudaGraphGetEdges" (
        graph: GraphRef, from: Out<NodeRef>, to: Out<NodeRef>, count: Out<usize>,
    ) {
        list_edges(graph, from, to, Out::unwanted(), count)
    }

    /// `cudaGraphGetEdges` of 13.x, `cudaGraphGetEdges_v2` of 12.x
    fn get_edges as "cudaGraphGetEdges" (
        graph: GraphRef, from: Out<NodeRef>, to: Out<NodeRef>, data: Out<GraphEdgeData>, count: Out<usize>,
    ) {
        list_edges(graph, from, to, data, count)
    }

    /// `cudaGraphNodeGetDependencies` of 12.x
    fn get_dependencies_12 as "cudaGraphNodeGetDependencies" (
        node: NodeRef, out: Out<NodeRef>, count: Out<usize>,
    ) {
        list_nodes(&graph::dependencies(node)?, out, count)
    }

    /// `cudaGraphNodeGetDependencies` of 13.x, and with `_v2` of 12.x
    fn get_dependencies as "cudaGraphNodeGetDependencies" (
        node: NodeRef, out: Out<NodeRef>, data: Out<GraphEdgeData>, count: Out<usize>,
    ) {
        list_edges_to(&graph::dependencies(node)?, out, data, count)
    }

    /// `cudaGraphNodeGetDependentNodes` of 12.x
    fn get_dependents_12 as "cudaGraphNodeGetDependentNodes" (
        node: NodeRef, out: Out<NodeRef>, count: Out<usize>,
    ) {
        list_nodes(&graph::dependents(node)?, out, count)
    }

    /// `cudaGraphNodeGetDependentNodes` of 13.x, and with `_v2` of 12.x
    fn get_dependents as "cudaGraphNodeGetDependentNodes" (
        node: NodeRef, out: Out<NodeRef>, data: Out<GraphEdgeData>, count: Out<usize>,
    ) {
        list_edges_to(&graph::dependents(node)?, out, data, count)
    }

    /// `cudaGraphAddDependencies` of 12.x
    fn add_dependencies_12 as "cudaGraphAddDependencies" (
        graph: GraphRef, from: In<NodeRef>, to: In<NodeRef>, count: usize,
    ) {
        graph::add_edges(graph, &pairs(from, to, In::null(), count)?)
    }

    /// `cudaGraphAddDependencies` of 13.x, and with `_v2` of 12.x
    fn add_dependencies as "cudaGraphAddDependencies" (
        graph: GraphRef, from: In<NodeRef>, to: In<NodeRef>, data: In<GraphEdgeData>, count: usize,
    ) {
        graph::add_edges(graph, &pairs(from, to, data, count)?)
    }

    /// `cudaGraphRemoveDependencies` of 12.x
    fn remove_dependencies_12 as "cudaGraphRemoveDependencies" (
        graph: GraphRef, from: In<NodeRef>, to: In<NodeRef>, count: usize,
    ) {
        graph::remove_edges(graph, &pairs(from, to, In::null(), count)?)
    }

    /// `cudaGraphRemoveDependencies` of 13.x, and with `_v2` of 12.x
    fn remove_dependencies as "cudaGraphRemoveDependencies" (
        graph: GraphRef, from: In<NodeRef>, to: In<NodeRef>, data: In<GraphEdgeData>, count: usize,
    ) {
        graph::remove_edges(graph, &pairs(from, to, data, count)?)
    }

    /// `cudaGraphChildGraphNodeGetGraph`
    fn child_get_graph as "cudaGraphChildGraphNodeGetGraph" (node: NodeRef, out: Out<GraphRef>) {
        out.check()?;
        match graph::op(node)? {
            Op::Child(child) => out.set(child),
            _ => Err(invalid("this is no child graph")),
        }
    }

    /// `cudaGraphKernelNodeGetParams`: the pointers are to the node's own copies.
    fn kernel_get_params as "cudaGraphKernelNodeGetParams" (node: NodeRef, out: Out<KernelNodeParams>) {
        out.check()?;
        let (kernel, arguments) = graph::shown_kernel(node)?;
        out.set(KernelNodeParams {
            func: kernel.symbol as *const c_void,
            grid: Dim3::from(kernel.config.grid),
            block: Dim3::from(kernel.config.block),
            shared_bytes: kernel.config.shared_bytes,
            kernel_params: arguments as *mut *mut c_void,
            extra: std::ptr::null_mut(),
        })
    }

    /// `cudaGraphKernelNodeSetParams`
    fn kernel_set_params as "cudaGraphKernelNodeSetParams" (node: NodeRef, params: In<KernelNodeParams>) {
        graph::set_op(node, kernel(&params.get()?)?)
    }

    /// `cudaGraphKernelNodeSetAttribute`: all but cooperation and clusters are hints.
    fn kernel_set_attribute as "cudaGraphKernelNodeSetAttribute" (
        node: NodeRef, attribute: c_uint, value: In<AttributeValue>,
    ) {
        set_attribute(node, attribute, value)
    }

    /// `cudaGraphKernelNodeGetAttribute`
    fn kernel_get_attribute as "cudaGraphKernelNodeGetAttribute" (
        node: NodeRef, attribute: c_uint, value: Out<AttributeValue>,
    ) {
        get_attribute(node, attribute, value)
    }

    /// `cudaGraphKernelNodeCopyAttributes` of 12.x, whose header names the source first
    fn kernel_copy_attributes_12 as "cudaGraphKernelNodeCopyAttributes" (from: NodeRef, to: NodeRef) {
        copy_attributes(to, from)
    }

    /// `cudaGraphKernelNodeCopyAttributes` of 13.x
    fn kernel_copy_attributes as "cudaGraphKernelNodeCopyAttributes" (to: NodeRef, from: NodeRef) {
        copy_attributes(to, from)
    }

    /// `cudaGraphMemcpyNodeGetParams`: as copies between plain memory.
    fn memcpy_get_params as "cudaGraphMemcpyNodeGetParams" (node: NodeRef, out: Out<Memcpy3DParms>) {
        out.check()?;
        let Op::Copy(what, direction) = graph::op(node)? else {
            return Err(invalid("this is no copy node"));
        };
        let pitched = |place: CopySide| PitchedPtr {
            ptr: place.addr as usize,
            pitch: place.row_pitch as usize,
            xsize: what.width as usize,
            ysize: place.slice_pitch.checked_div(place.row_pitch).unwrap_or(0).max(what.height) as usize,
        };
        out.set(Memcpy3DParms {
            src_ptr: pitched(what.src),
            dst_ptr: pitched(what.dst),
            extent: Extent {
                width: what.width as usize,
                height: what.height as usize,
                depth: what.depth as usize,
            },
            kind: match direction {
                Direction::HostToHost => kind::HOST_TO_HOST,
                Direction::HostToDevice => kind::HOST_TO_DEVICE,
                Direction::DeviceToHost => kind::DEVICE_TO_HOST,
                Direction::DeviceToDevice => kind::DEVICE_TO_DEVICE,
                Direction::Infer => kind::DEFAULT,
            },
            ..Memcpy3DParms::default()
        })
    }

    /// `cudaGraphMemcpyNodeSetParams`
    fn memcpy_set_params as "cudaGraphMemcpyNodeSetParams" (node: NodeRef, params: In<Memcpy3DParms>) {
        graph::set_op(node, copy_node(&params.get()?)?)
    }

    /// `cudaGraphMemcpyNodeSetParams1D`
    fn memcpy_set_params_1d as "cudaGraphMemcpyNodeSetParams1D" (
        node: NodeRef, dst: usize, src: usize, bytes: usize, kind: c_int,
    ) {
        graph::set_op(node, copy_1d(dst, src, bytes, kind)?)
    }

    /// `cudaGraphMemcpyNodeSetParamsToSymbol`
    fn memcpy_set_params_to_symbol as "cudaGraphMemcpyNodeSetParamsToSymbol" (
        node: NodeRef, symbol: *const c_void, src: usize, bytes: usize, offset: usize, kind: c_int,
    ) {
        graph::set_op(node, copy_symbol(symbol, offset, src, bytes, true, kind)?)
    }

    /// `cudaGraphMemcpyNodeSetParamsFromSymbol`
    fn memcpy_set_params_from_symbol as "cudaGraphMemcpyNodeSetParamsFromSymbol" (
        node: NodeRef, dst: usize, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int,
    ) {
        graph::set_op(node, copy_symbol(symbol, offset, dst, bytes, false, kind)?)
    }

    /// `cudaGraphMemsetNodeGetParams`
    fn memset_get_params as "cudaGraphMemsetNodeGetParams" (node: NodeRef, out: Out<MemsetParams>) {
        out.check()?;
        out.set(fill_params(node)?)
    }

    /// `cudaGraphMemsetNodeSetParams`
    fn memset_set_params as "cudaGraphMemsetNodeSetParams" (node: NodeRef, params: In<MemsetParams>) {
        graph::set_op(node, fill_node(&params.get()?)?)
    }

    /// `cudaGraphHostNodeGetParams`
    fn host_get_params as "cudaGraphHostNodeGetParams" (node: NodeRef, out: Out<HostNodeParams>) {
        out.check()?;
        match graph::op(node)? {
            Op::Host(call) => out.set(HostNodeParams { func: Some(call.function), user_data: call.data }),
            _ => Err(invalid("this is no host node")),
        }
    }

    /// `cudaGraphHostNodeSetParams`
    fn host_set_params as "cudaGraphHostNodeSetParams" (node: NodeRef, params: In<HostNodeParams>) {
        graph::set_op(node, host_node(&params.get()?)?)
    }

    /// `cudaGraphEventRecordNodeGetEvent`
    fn record_get_event as "cudaGraphEventRecordNodeGetEvent" (node: NodeRef, out: Out<EventRef>) {
        out.check()?;
        out.set(event_of(node, true)?)
    }

    /// `cudaGraphEventRecordNodeSetEvent`
    fn record_set_event as "cudaGraphEventRecordNodeSetEvent" (node: NodeRef, event: EventRef) {
        graph::set_op(node, event_op(event, true)?)
    }

    /// `cudaGraphEventWaitNodeGetEvent`
    fn wait_get_event as "cudaGraphEventWaitNodeGetEvent" (node: NodeRef, out: Out<EventRef>) {
        out.check()?;
        out.set(event_of(node, false)?)
    }

    /// `cudaGraphEventWaitNodeSetEvent`
    fn wait_set_event as "cudaGraphEventWaitNodeSetEvent" (node: NodeRef, event: EventRef) {
        graph::set_op(node, event_op(event, false)?)
    }

    /// `cudaGraphMemAllocNodeGetParams`
    fn mem_alloc_get_params as "cudaGraphMemAllocNodeGetParams" (node: NodeRef, out: Out<MemAllocNodeParams>) {
        out.check()?;
        out.set(alloc_params(node)?)
    }

    /// `cudaGraphMemFreeNodeGetParams`
    fn mem_free_get_params as "cudaGraphMemFreeNodeGetParams" (node: NodeRef, out: Out<u64>) {
        out.check()?;
        match graph::op(node)? {
            Op::Free(addr) => out.set(addr),
            _ => Err(invalid("this node frees nothing")),
        }
    }

    /// `cudaGraphNodeSetParams`
    fn node_set_params as "cudaGraphNodeSetParams" (node: NodeRef, params: Out<GraphNodeParams>) {
        graph::set_op(node, general(&mut params.get()?)?)
    }

    /// `cudaDeviceGetGraphMemAttribute`
    fn get_mem_attribute as "cudaDeviceGetGraphMemAttribute" (device: c_int, attribute: c_int, out: Out<u64>) {
        memory_attribute(current()?, device, attribute, out)
    }

    /// `cudaDeviceSetGraphMemAttribute`
    fn set_mem_attribute as "cudaDeviceSetGraphMemAttribute" (device: c_int, attribute: c_int, value: In<u64>) {
        set_memory_attribute(current()?, device, attribute, value)
    }

    /// `cudaDeviceGraphMemTrim`: what no node has is not kept.
    fn mem_trim as "cudaDeviceGraphMemTrim" (device: c_int) {
        ordinal(current()?, device).map(drop)
    }

    /// `cudaUserObjectCreate`
    fn object_create as "cudaUserObjectCreate" (
        out: Out<usize>, data: *mut c_void, destroy: Option<HostFn>, references: c_uint, flags: c_uint,
    ) {
        out.check()?;
        let function = destroy.ok_or_else(|| invalid("the destructor is null"))?;
        if references == 0 || flags != 1 {
            return Err(invalid("an object needs references and cudaUserObjectNoDestructorSync"));
        }
        out.set(graph::object_create(HostCall { function, data }, references)?)
    }

    /// `cudaUserObjectRetain`
    fn object_retain as "cudaUserObjectRetain" (object: usize, count: c_uint) {
        graph::object_retain(object, count)
    }

    /// `cudaUserObjectRelease`
    fn object_release as "cudaUserObjectRelease" (object: usize, count: c_uint) {
        graph::object_release(object, count)
    }

    /// `cudaGraphRetainUserObject`
    fn retain_object as "cudaGraphRetainUserObject" (
        graph: GraphRef, object: usize, count: c_uint, flags: c_uint,
    ) {
        if flags > 1 {
            return Err(invalid("unknown flags"));
        }
        graph::retain_object(graph, object, count, flags == 1)
    }

    /// `cudaGraphReleaseUserObject`
    fn release_object as "cudaGraphReleaseUserObject" (graph: GraphRef, object: usize, count: c_uint) {
        graph::release_object(graph, object, count)
    }

    /// `cudaGraphDebugDotPrint`: nodes with their kinds, and edges.
    fn debug_dot_print as "cudaGraphDebugDotPrint" (graph: GraphRef, path: CStrArg, _flags: c_uint) {
        dot_print(graph, &path)
    }
}
