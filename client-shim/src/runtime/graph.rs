//! Graphs: making them by hand, and asking about them. What they are is in [`crate::graph`].

use std::ffi::{OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;

use rgpu_device::Region;

use super::abi::{In, Out, api, c_string, enter};
use super::copy::copy_box_of;
use super::device::ordinal;
use super::types::{
    Dim3, EventRef, Extent, GraphEdgeData, GraphNodeParams, GraphRef, HostFn, HostNodeParams,
    KernelNodeParams, MemAllocNodeParams, MemLocation, MemPoolProps, Memcpy3DParms, MemcpyNodeParams,
    MemsetParams, NodeRef, PitchedPtr, kind, launch_attribute, location, node_type,
};
use crate::core::error::{invalid, not_implemented};
use crate::core::{Code, Config, CopyBox, CopySide, Direction, Error, Params, Result, current};
use crate::graph::{self, GraphAllocation, HostCall, Kernel, Op};

/// `cudaMemAllocationTypePinned`.
const PINNED: c_int = 1;

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

/// What a fill node does.
pub(crate) fn fill_node(params: &MemsetParams) -> Result<Op> {
    if !matches!(params.element_size, 1 | 2 | 4) {
        return Err(invalid("elements have 1, 2 or 4 bytes"));
    }
    let width = params.width.checked_mul(params.element_size as usize);
    let width = width.ok_or_else(|| invalid("a row is too long"))? as u64;
    let region = Region {
        addr: params.dst as u64,
        row_pitch: if params.height <= 1 { width } else { params.pitch as u64 },
        slice_pitch: 0,
        width,
        height: params.height as u64,
        depth: 1,
    };
    Ok(Op::Fill(region, params.value, params.element_size))
}

/// What a host node does.
pub(crate) fn host_node(params: &HostNodeParams) -> Result<Op> {
    let function = params.func.ok_or_else(|| invalid("the function is null"))?;
    Ok(Op::Host(HostCall { function, data: params.user_data }))
}

/// An allocation, made now; its address is filled in.
pub(crate) fn alloc_node(params: &mut MemAllocNodeParams) -> Result<Op> {
    let (core, context) = enter()?;
    let place = params.pool_props.location;
    if place.kind != location::DEVICE {
        return Err(not_implemented("a graph's allocation outside device memory"));
    }
    let ordinal = ordinal(core, place.id)?;
    let context = if ordinal == context.ordinal { context } else { core.primary_retain(ordinal)? };
    let allocation = GraphAllocation::new(core, &context, params.bytes as u64)?;
    params.ptr = allocation.addr as usize;
    Ok(Op::Alloc(allocation))
}

/// Adds a node after checking where its handle goes.
fn add(
    out: Out<NodeRef>,
    graph: GraphRef,
    dependencies: In<NodeRef>,
    count: usize,
    op: impl FnOnce() -> Result<Op>,
) -> Result<()> {
    out.check()?;
    graph::check(graph)?;
    let dependencies = dependencies.list(count)?;
    out.set(graph::add(graph, &dependencies, op()?)?)
}

/// Reads the beginning of a node's payload.
pub(crate) fn payload<T: Copy>(params: &GraphNodeParams) -> Result<T> {
    const { assert!(size_of::<T>() <= 29 * 8) };
    In((&raw const params.payload).cast::<T>()).get()
}

/// What a node of the general kind does. The parameters may be filled in.
pub(super) fn general(params: &mut GraphNodeParams) -> Result<Op> {
    Ok(match params.kind {
        node_type::KERNEL => kernel(&payload(params)?)?,
        node_type::MEMCPY => copy_node(&payload::<MemcpyNodeParams>(params)?.copy)?,
        node_type::MEMSET => fill_node(&payload(params)?)?,
        node_type::HOST => host_node(&payload(params)?)?,
        node_type::EMPTY => Op::Empty,
        node_type::WAIT_EVENT => Op::Wait(current()?.event(payload(params)?)?),
        node_type::EVENT_RECORD => Op::Record(current()?.event(payload(params)?)?),
        node_type::MEM_FREE => Op::Free(payload(params)?),
        node_type::MEM_ALLOC => {
            let mut alloc: MemAllocNodeParams = payload(params)?;
            let op = alloc_node(&mut alloc)?;
            Out((&raw mut params.payload).cast()).set_if_wanted(alloc);
            op
        }
        other => return Err(not_implemented(&format!("a graph node of type {other}"))),
    })
}

/// `cudaGraphAddNode`, of both versions.
fn add_general(
    out: Out<NodeRef>,
    graph: GraphRef,
    dependencies: In<NodeRef>,
    count: usize,
    params: Out<GraphNodeParams>,
) -> Result<()> {
    let mut given = params.get()?;
    if given.kind == node_type::GRAPH {
        out.check()?;
        let child: GraphRef = payload(&given)?;
        return out.set(graph::add_child(graph, &dependencies.list(count)?, child)?);
    }
    add(out, graph, dependencies, count, || general(&mut given))?;
    params.set(given)
}

/// Hands out a list as CUDA does: without a place for it only its length; else as much as there is room for,
/// the rest of the room cleared.
fn list<T: Copy>(
    items: &[T],
    count: Out<usize>,
    store: impl Fn(usize, Option<T>),
    wanted: bool,
) -> Result<()> {
    count.check()?;
    if wanted {
        let room = count.get()?;
        (0..room).for_each(|i| store(i, items.get(i).copied()));
        count.set(items.len().min(room))
    } else {
        count.set(items.len())
    }
}

/// Hands out nodes.
pub(crate) fn list_nodes(items: &[NodeRef], out: Out<NodeRef>, count: Out<usize>) -> Result<()> {
    list(items, count, |i, node| out.at(i).set_if_wanted(node.unwrap_or(0)), !out.0.is_null())
}

/// Hands out nodes with the data of the edges to them, which is always the default.
pub(crate) fn list_edges_to(
    items: &[NodeRef],
    out: Out<NodeRef>,
    data: Out<GraphEdgeData>,
    count: Out<usize>,
) -> Result<()> {
    list_nodes(items, out, count)?;
    if !out.0.is_null() {
        (0..count.get()?).for_each(|i| data.at(i).set_if_wanted(GraphEdgeData::default()));
    }
    Ok(())
}

/// Hands out edges.
pub(crate) fn list_edges(
    graph: GraphRef,
    from: Out<NodeRef>,
    to: Out<NodeRef>,
    data: Out<GraphEdgeData>,
    count: Out<usize>,
) -> Result<()> {
    if from.0.is_null() != to.0.is_null() {
        return Err(invalid("both ends of the edges must be wanted, or neither"));
    }
    let store = |i, edge: Option<(NodeRef, NodeRef)>| {
        let edge = edge.unwrap_or((0, 0));
        from.at(i).set_if_wanted(edge.0);
        to.at(i).set_if_wanted(edge.1);
        data.at(i).set_if_wanted(GraphEdgeData::default());
    };
    list(&graph::edges(graph)?, count, store, !from.0.is_null())
}

/// Pairs of nodes; edge data other than the default is refused.
pub(crate) fn pairs(
    from: In<NodeRef>,
    to: In<NodeRef>,
    data: In<GraphEdgeData>,
    count: usize,
) -> Result<Vec<(NodeRef, NodeRef)>> {
    check_edges(data, count)?;
    Ok(from.list(count)?.into_iter().zip(to.list(count)?).collect())
}

/// Refuses edges that start something before its predecessor has ended.
pub(crate) fn check_edges(data: In<GraphEdgeData>, count: usize) -> Result<()> {
    if !data.0.is_null() && data.list(count)?.iter().any(|edge| *edge != GraphEdgeData::default()) {
        return Err(not_implemented("a graph's programmatic edge"));
    }
    Ok(())
}

/// A kernel node's parts.
pub(crate) fn kernel_of(node: NodeRef) -> Result<Kernel> {
    match graph::op(node)? {
        Op::Kernel(kernel) => Ok(kernel),
        _ => Err(invalid("this is no kernel node")),
    }
}

/// An event node's event.
pub(crate) fn event_of(node: NodeRef, record: bool) -> Result<EventRef> {
    match (graph::op(node)?, record) {
        (Op::Record(event), true) | (Op::Wait(event), false) => Ok(event.raw),
        _ => Err(invalid("the node is of another kind")),
    }
}

/// An event node's work.
pub(crate) fn event_op(event: EventRef, record: bool) -> Result<Op> {
    let event = current()?.event(event)?;
    Ok(if record { Op::Record(event) } else { Op::Wait(event) })
}

/// Sets an attribute of a kernel node: what is not cooperation is a hint, but for clusters.
pub(crate) fn set_attribute(node: NodeRef, attribute: c_uint, value: [u64; 8]) -> Result<()> {
    let mut kernel = kernel_of(node)?;
    match attribute {
        launch_attribute::COOPERATIVE => {
            kernel.config.cooperative = value[0] as u32 != 0;
            graph::set_op(node, Op::Kernel(kernel))
        }
        launch_attribute::CLUSTER_DIMENSION => Err(not_implemented("a launch in clusters of blocks")),
        launch_attribute::ACCESS_POLICY_WINDOW
        | launch_attribute::CLUSTER_SCHEDULING
        | launch_attribute::PRIORITY
        | launch_attribute::MEM_SYNC_DOMAIN_MAP
        | launch_attribute::MEM_SYNC_DOMAIN
        | launch_attribute::PREFERRED_CARVEOUT => Ok(()),
        _ => Err(invalid("kernel nodes have no such attribute")),
    }
}

/// What a fill node does, as it was made.
pub(crate) fn fill_params(node: NodeRef) -> Result<MemsetParams> {
    let Op::Fill(region, value, element_size) = graph::op(node)? else {
        return Err(invalid("this is no fill node"));
    };
    Ok(MemsetParams {
        dst: region.addr as usize,
        pitch: region.row_pitch as usize,
        value,
        element_size,
        width: region.width as usize / element_size as usize,
        height: region.height as usize,
    })
}

/// What an allocating node does.
pub(crate) fn alloc_params(node: NodeRef) -> Result<MemAllocNodeParams> {
    let Op::Alloc(allocation) = graph::op(node)? else {
        return Err(invalid("this node allocates nothing"));
    };
    Ok(MemAllocNodeParams {
        pool_props: MemPoolProps {
            alloc_type: PINNED,
            handle_types: 0,
            location: MemLocation { kind: location::DEVICE, id: allocation.ordinal as c_int },
            security_attributes: 0,
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        },
        access_descs: std::ptr::null(),
        access_desc_count: 0,
        bytes: allocation.bytes as usize,
        ptr: allocation.addr as usize,
    })
}

/// Writes a graph's nodes with their kinds, and its edges, into a file.
pub(crate) fn dot_print(graph: GraphRef, path: In<c_char>) -> Result<()> {
    let path = c_string(path)?;
    let mut text = String::from("digraph cuda {\n");
    for node in graph::nodes(graph)? {
        text += &format!("  n{node:x} [label=\"{:?}\"];\n", graph::op(node)?.kind());
    }
    for (from, to) in graph::edges(graph)? {
        text += &format!("  n{from:x} -> n{to:x};\n");
    }
    text += "}\n";
    std::fs::write(OsStr::from_bytes(path.as_bytes()), text)
        .map_err(|e| Error::new(Code::OperatingSystem, format!("{}: {e}", path.to_string_lossy())))
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
        out.set(graph::add_child(graph, &after.list(count)?, child)?)
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
        add_general(out, graph, after, count, params)
    }

    /// `cudaGraphAddNode` of 13.x, `cudaGraphAddNode_v2` of 12.x
    fn add_node as "cudaGraphAddNode" (
        out: Out<NodeRef>, graph: GraphRef, after: In<NodeRef>, data: In<GraphEdgeData>, count: usize,
        params: Out<GraphNodeParams>,
    ) {
        check_edges(data, count)?;
        add_general(out, graph, after, count, params)
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
        list_edges(graph, from, to, Out(std::ptr::null_mut()), count)
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
        graph::add_edges(graph, &pairs(from, to, In(std::ptr::null()), count)?)
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
        graph::remove_edges(graph, &pairs(from, to, In(std::ptr::null()), count)?)
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
        let kernel = kernel_of(node)?;
        out.set(KernelNodeParams {
            func: kernel.symbol as *const c_void,
            grid: Dim3::from(kernel.config.grid),
            block: Dim3::from(kernel.config.block),
            shared_bytes: kernel.config.shared_bytes,
            kernel_params: kernel.pointers.as_ptr().cast_mut().cast(),
            extra: std::ptr::null_mut(),
        })
    }

    /// `cudaGraphKernelNodeSetParams`
    fn kernel_set_params as "cudaGraphKernelNodeSetParams" (node: NodeRef, params: In<KernelNodeParams>) {
        graph::set_op(node, kernel(&params.get()?)?)
    }

    /// `cudaGraphKernelNodeSetAttribute`: what is not cooperation is a hint, but for clusters.
    fn kernel_set_attribute as "cudaGraphKernelNodeSetAttribute" (
        node: NodeRef, attribute: c_uint, value: In<[u64; 8]>,
    ) {
        set_attribute(node, attribute, value.get()?)
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

    /// `cudaDeviceGetGraphMemAttribute`: what is used is what is reserved.
    fn get_mem_attribute as "cudaDeviceGetGraphMemAttribute" (device: c_int, attribute: c_int, out: Out<u64>) {
        out.check()?;
        ordinal(current()?, device)?;
        match attribute {
            0..=3 => out.set(graph::allocated_bytes()),
            _ => Err(invalid("no such attribute")),
        }
    }

    /// `cudaDeviceSetGraphMemAttribute`: the high-water marks can be reset, which they always are.
    fn set_mem_attribute as "cudaDeviceSetGraphMemAttribute" (device: c_int, attribute: c_int, value: In<u64>) {
        ordinal(current()?, device)?;
        match (attribute, value.get()?) {
            (1 | 3, 0) => Ok(()),
            _ => Err(invalid("this attribute cannot be set so")),
        }
    }

    /// `cudaDeviceGraphMemTrim`: nothing unused is kept.
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
    fn debug_dot_print as "cudaGraphDebugDotPrint" (graph: GraphRef, path: In<c_char>, _flags: c_uint) {
        dot_print(graph, path)
    }
}
