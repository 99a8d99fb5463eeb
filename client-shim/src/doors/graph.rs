//! Graphs as both doors offer them: nodes and edges in the program's own lists, and what nodes of the kinds do whose
//! parameters the two APIs share.

use std::ffi::{OsStr, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rgpu_device::Region;

use super::ordinal;
use super::stream::DEFAULT_DOMAIN_MAP;
use crate::abi::launch::{check_updatable, cluster_of, cluster_value};
use crate::abi::types::{
    AttributeValue, ChildGraphParams, ConditionalNodeParams, EventRef, GraphEdgeData, GraphNodeParams,
    GraphRef, HostNodeParams, MemAllocNodeParams, MemLocation, MemPoolProps, MemsetParams, NodeRef,
    launch_attribute, location, node_type,
};
use crate::abi::{CStrArg, In, Out};
use crate::core::error::{invalid, not_implemented};
use crate::core::{Code, Context, Core, Error, Result, current};
use crate::graph::{self, Choice, GraphAllocation, HostCall, Kernel, Op};

/// `cudaMemAllocationTypePinned`.
const PINNED: c_int = 1;
/// `cudaGraphCondAssignDefault`.
const ASSIGN_DEFAULT: c_uint = 1;
/// `cudaGraphChildGraphOwnershipClone`.
const OWNERSHIP_CLONE: c_int = 0;
/// `cudaGraphChildGraphOwnershipMove`.
const OWNERSHIP_MOVE: c_int = 1;

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
    let core = current()?;
    let context = core.runtime_context()?;
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

/// `cudaDeviceGetGraphMemAttribute`: bytes that launches have allocated, and that nodes keep for that, now and at most.
pub(crate) fn memory_attribute(core: &Core, device: c_int, attribute: c_int, out: Out<u64>) -> Result<()> {
    out.check()?;
    let marks = core.graph_allocations.marks(ordinal(core, device)?);
    let value = usize::try_from(attribute).ok().and_then(|attribute| marks.get(attribute));
    out.set(*value.ok_or_else(|| invalid("no such attribute"))?)
}

/// `cudaDeviceSetGraphMemAttribute`: the high-water marks can be reset.
pub(crate) fn set_memory_attribute(
    core: &Core,
    device: c_int,
    attribute: c_int,
    value: In<u64>,
) -> Result<()> {
    let ordinal = ordinal(core, device)?;
    match (attribute, value.get()?) {
        (which @ (1 | 3), 0) => core.graph_allocations.reset_mark(ordinal, which as usize),
        _ => return Err(invalid("this attribute cannot be set so")),
    }
    Ok(())
}

/// Adds a node after checking where its handle goes.
pub(crate) fn add(
    out: Out<NodeRef>,
    graph: GraphRef,
    dependencies: In<NodeRef>,
    count: usize,
    op: impl FnOnce() -> Result<Op>,
) -> Result<()> {
    out.check()?;
    graph::check(graph)?;
    // SAFETY: the program says that so many are there.
    let dependencies = unsafe { dependencies.list(count) }?;
    out.set(graph::add(graph, &dependencies, op()?)?)
}

/// `cudaGraphAddNode`, where `op` says what a node does that has no graphs of its own. The parameters may be filled in.
pub(crate) fn add_general(
    out: Out<NodeRef>,
    graph: GraphRef,
    dependencies: In<NodeRef>,
    count: usize,
    params: Out<GraphNodeParams>,
    op: impl FnOnce(&mut GraphNodeParams) -> Result<Op>,
) -> Result<()> {
    let mut given = params.get()?;
    if !matches!(given.kind, node_type::GRAPH | node_type::CONDITIONAL) {
        add(out, graph, dependencies, count, || op(&mut given))?;
        return params.set(given);
    }
    out.check()?;
    // SAFETY: the program says that so many are there.
    let dependencies = unsafe { dependencies.list(count) }?;
    if given.kind == node_type::GRAPH {
        let ChildGraphParams { graph: child, ownership } = payload(&given);
        let moved = match ownership {
            OWNERSHIP_CLONE => false,
            OWNERSHIP_MOVE => true,
            other => return Err(invalid(format!("{other} is no ownership of a child graph"))),
        };
        return out.set(graph::add_child(graph, &dependencies, child, moved)?);
    }
    // The program is told what graphs will be done as the condition says.
    let mut wanted: ConditionalNodeParams = payload(&given);
    let choice = Choice::new(wanted.kind, wanted.size)?;
    let (node, place) = graph::add_conditional(graph, &dependencies, wanted.handle, choice, wanted.size)?;
    wanted.graphs = place;
    set_payload(&mut given, wanted);
    params.set(given)?;
    out.set(node)
}

/// `cudaGraphConditionalHandleCreate`, in a context.
pub(crate) fn create_condition(
    out: Out<u64>,
    graph: GraphRef,
    context: &Arc<Context>,
    value: c_uint,
    flags: c_uint,
) -> Result<()> {
    out.check()?;
    if flags & !ASSIGN_DEFAULT != 0 {
        return Err(invalid("unknown flags"));
    }
    out.set(current()?.create_condition(graph, context, value, flags == ASSIGN_DEFAULT)?)
}

/// What a node of some kind takes, as it lies in [`GraphNodeParams`].
///
/// # Safety
/// Whatever bytes the program puts there are a value.
pub(crate) unsafe trait Payload: Copy {}
// SAFETY: numbers.
unsafe impl Payload for usize {}
// SAFETY: numbers.
unsafe impl Payload for u64 {}
// SAFETY: numbers.
unsafe impl Payload for ChildGraphParams {}
// SAFETY: numbers and an address.
unsafe impl Payload for MemsetParams {}
// SAFETY: an address, and a function that may be null; it is the program's own, which answers for it.
unsafe impl Payload for HostNodeParams {}
// SAFETY: numbers and addresses.
unsafe impl Payload for MemAllocNodeParams {}
// SAFETY: numbers and addresses.
unsafe impl Payload for ConditionalNodeParams {}

/// Reads the beginning of a node's payload.
pub(crate) fn payload<T: Payload>(params: &GraphNodeParams) -> T {
    const { assert!(size_of::<T>() <= size_of::<[u64; 29]>()) };
    // SAFETY: there are so many bytes, and any are a value.
    unsafe { (&raw const params.payload).cast::<T>().read_unaligned() }
}

/// Writes the beginning of a node's payload.
pub(crate) fn set_payload<T: Payload>(params: &mut GraphNodeParams, value: T) {
    const { assert!(size_of::<T>() <= size_of::<[u64; 29]>()) };
    // SAFETY: there is so much room, and the payload is bytes.
    unsafe { (&raw mut params.payload).cast::<T>().write_unaligned(value) };
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
    // SAFETY: `list` stores no more than the program says that there is room for.
    let store = |i, node: Option<NodeRef>| unsafe { out.at(i) }.set_if_wanted(node.unwrap_or(0));
    list(items, count, store, !out.is_null())
}

/// Hands out nodes with the data of the edges to them, which is always the default.
pub(crate) fn list_edges_to(
    items: &[NodeRef],
    out: Out<NodeRef>,
    data: Out<GraphEdgeData>,
    count: Out<usize>,
) -> Result<()> {
    list_nodes(items, out, count)?;
    if !out.is_null() {
        // SAFETY: the program has room for as many as were handed out.
        (0..count.get()?).for_each(|i| unsafe { data.at(i) }.set_if_wanted(GraphEdgeData::default()));
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
    if from.is_null() != to.is_null() {
        return Err(invalid("both ends of the edges must be wanted, or neither"));
    }
    let store = |i, edge: Option<(NodeRef, NodeRef)>| {
        let edge = edge.unwrap_or((0, 0));
        // SAFETY: `list` stores no more than the program says that there is room for.
        let (from, to, data) = unsafe { (from.at(i), to.at(i), data.at(i)) };
        from.set_if_wanted(edge.0);
        to.set_if_wanted(edge.1);
        data.set_if_wanted(GraphEdgeData::default());
    };
    list(&graph::edges(graph)?, count, store, !from.is_null())
}

/// Pairs of nodes. Programmatic edges, by which a node may begin before its predecessor has ended, are edges like others here.
pub(crate) fn pairs(
    from: In<NodeRef>,
    to: In<NodeRef>,
    data: In<GraphEdgeData>,
    count: usize,
) -> Result<Vec<(NodeRef, NodeRef)>> {
    check_edges(data, count)?;
    // SAFETY: the program says that both lists have so many.
    let (from, to) = unsafe { (from.list(count)?, to.list(count)?) };
    Ok(from.into_iter().zip(to).collect())
}

/// Refuses edges of unknown kinds. One that is programmatic (`cudaGraphDependencyTypeProgrammatic`) allows a node to begin early, and asks
/// for nothing.
pub(crate) fn check_edges(data: In<GraphEdgeData>, count: usize) -> Result<()> {
    // SAFETY: the program says that so many are there, unless it gives none.
    let data = if data.is_null() { vec![] } else { unsafe { data.list(count) }? };
    if data.iter().any(|edge| edge.kind > GraphEdgeData::PROGRAMMATIC || edge.reserved != [0; 5]) {
        return Err(invalid("an edge of a graph has no known kind"));
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

/// An attribute of a kernel node.
pub(crate) fn get_attribute(node: NodeRef, attribute: c_uint, value: Out<AttributeValue>) -> Result<()> {
    let op = graph::op(node)?;
    let kernel = match &op {
        Op::Kernel(kernel) => Some(kernel),
        // A library's work is a kernel for the program, of which no more is said than that nothing is special about it.
        Op::Library(_) => None,
        _ => return Err(invalid("this is no kernel node")),
    };
    check_attribute(attribute)?;
    let hint = kernel.and_then(|kernel| kernel.hints.iter().find(|hint| hint.0 == attribute));
    let default = match attribute {
        launch_attribute::COOPERATIVE => kernel.is_some_and(|kernel| kernel.config.cooperative).into(),
        launch_attribute::MEM_SYNC_DOMAIN_MAP => DEFAULT_DOMAIN_MAP,
        _ => 0,
    };
    if let Some(kernel) = kernel
        && attribute == launch_attribute::CLUSTER_DIMENSION
    {
        return value.set(cluster_value(kernel.config.cluster));
    }
    value.set(hint.map_or([default, 0, 0, 0, 0, 0, 0, 0], |hint| hint.1))
}

/// Copies all attributes from one kernel node to another.
pub(crate) fn copy_attributes(to: NodeRef, from: NodeRef) -> Result<()> {
    let from = kernel_of(from)?;
    graph::change_kernel(to, &|kernel| kernel.take_attributes(&from))
}

/// Whether kernel nodes have an attribute.
fn check_attribute(attribute: c_uint) -> Result<()> {
    match attribute {
        launch_attribute::COOPERATIVE
        | launch_attribute::ACCESS_POLICY_WINDOW
        | launch_attribute::CLUSTER_DIMENSION
        | launch_attribute::CLUSTER_SCHEDULING
        | launch_attribute::PRIORITY
        | launch_attribute::MEM_SYNC_DOMAIN_MAP
        | launch_attribute::MEM_SYNC_DOMAIN
        | launch_attribute::PREFERRED_CLUSTER_DIMENSION
        | launch_attribute::DEVICE_UPDATABLE
        | launch_attribute::PREFERRED_CARVEOUT
        | launch_attribute::NVLINK_SCHEDULING => Ok(()),
        _ => Err(invalid(format!("kernel nodes have no attribute {attribute}"))),
    }
}

/// Sets an attribute of a kernel node: all but cooperation and clusters are hints.
pub(crate) fn set_attribute(node: NodeRef, attribute: c_uint, value: In<AttributeValue>) -> Result<()> {
    check_attribute(attribute)?;
    let value = value.get()?;
    if attribute == launch_attribute::DEVICE_UPDATABLE {
        check_updatable(&value)?;
    }
    graph::change_kernel(node, &|kernel| {
        if attribute == launch_attribute::COOPERATIVE {
            kernel.config.cooperative = value[0] as u32 != 0;
            return;
        }
        if attribute == launch_attribute::CLUSTER_DIMENSION {
            kernel.config.cluster = cluster_of(&value);
            return;
        }
        kernel.hints.retain(|hint| hint.0 != attribute);
        kernel.hints.push((attribute, value));
    })
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
pub(crate) fn dot_print(graph: GraphRef, path: &CStrArg) -> Result<()> {
    let path = path.c_str()?;
    let mut text = String::from("digraph cuda {\n");
    for node in graph::nodes(graph)? {
        text += &format!("  n{node:x} [label=\"{:?}\"];\n", graph::op(node)?.kind());
    }
    for (from, to) in graph::edges(graph)? {
        text += &format!("  n{from:x} -> n{to:x};\n");
    }
    text += "}\n";
    std::fs::write(OsStr::from_bytes(path.to_bytes()), text)
        .map_err(|e| Error::new(Code::OperatingSystem, format!("{}: {e}", path.to_string_lossy())))
}
