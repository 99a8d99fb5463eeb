//! Graphs: making them by hand, asking about them, launching them. What they are is in [`crate::graph`].

use super::copy::from_3d;
use super::stream::stream_of;
use super::types::*;
use super::*;
use crate::core::error::invalid;
use crate::core::{Config, CopyBox, Direction, Params};
use crate::graph::{self, HostCall, Kernel, Mismatch, Op};
use crate::runtime::abi::{In, Out};
use crate::runtime::capture::unwanted;
use crate::runtime::graph::{
    alloc_node, alloc_params, check_edges, dot_print, event_of, event_op, fill_node, fill_params, host_node,
    kernel_of, list_edges, list_edges_to, list_nodes, pairs, payload, set_attribute,
};
use crate::runtime::types::{
    GraphEdgeData, GraphExecUpdateResultInfo, GraphInstantiateParams, GraphNodeParams, HostNodeParams,
    MemAllocNodeParams, MemsetParams, node_type,
};

/// `CUgraph`, `CUgraphNode`, `CUgraphExec`, `CUuserObject`.
type Raw = usize;

/// `CUhostFn`.
type HostFunction = unsafe extern "C" fn(data: *mut c_void);

/// `CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED` and `…_NODE_TYPE_CHANGED`.
const TOPOLOGY_CHANGED: i32 = 2;
const KIND_CHANGED: i32 = 3;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;

/// What a kernel node does.
fn kernel(core: &Core, given: &KernelNodeParams) -> Result<Op> {
    let context = match given.context as usize {
        0 => core.driver_context()?,
        raw => core.context(raw)?,
    };
    let first = &given.first;
    let raw = if first.function.is_null() { given.kernel } else { first.function } as usize;
    let function = core.function(&context, raw)?;
    let config = Config {
        grid: first.grid,
        block: first.block,
        shared_bytes: first.shared_mem_bytes,
        cooperative: false,
    };
    let parameters = match (first.parameters.is_null(), first.extra.is_null()) {
        (_, true) => Params::Pointers(first.parameters),
        (true, false) => Params::Extra(first.extra),
        (false, false) => return Err(invalid("a kernel node has both parameters and extra")),
    };
    // SAFETY: the program passes what its kernel takes.
    Ok(Op::Kernel(unsafe { Kernel::new(function, raw, config, parameters) }?))
}

/// A kernel node's parameters as CUDA 11 has them.
fn old_kernel(core: &Core, given: *const KernelNodeParamsV1) -> Result<Op> {
    let first = In(given).get()?;
    kernel(core, &KernelNodeParams { first, ..KernelNodeParams::default() })
}

/// What a copy node does.
fn copy_node(given: *const Memcpy3d) -> Result<Op> {
    let (what, direction) = from_3d(given)?;
    Ok(Op::Copy(what, direction))
}

/// A node of any kind. The parameters may be filled in.
fn general(core: &Core, given: &mut GraphNodeParams) -> Result<Op> {
    Ok(match given.kind {
        node_type::KERNEL => kernel(core, &payload(given)?)?,
        node_type::MEMCPY => copy_node(&payload::<MemcpyNodeParams>(given)?.copy)?,
        node_type::MEMSET => fill_node(&payload(given)?)?,
        node_type::HOST => host_node(&payload(given)?)?,
        node_type::EMPTY => Op::Empty,
        node_type::WAIT_EVENT => event_op(payload(given)?, false)?,
        node_type::EVENT_RECORD => event_op(payload(given)?, true)?,
        node_type::MEM_FREE => Op::Free(payload(given)?),
        node_type::MEM_ALLOC => {
            core.driver_context()?;
            let mut alloc: MemAllocNodeParams = payload(given)?;
            let op = alloc_node(&mut alloc)?;
            Out((&raw mut given.payload).cast()).set_if_wanted(alloc);
            op
        }
        other => return Err(not_implemented(&format!("a graph node of type {other}"))),
    })
}

/// Where a new node goes, and after which others it comes.
#[derive(Clone, Copy)]
struct Place(*mut Raw, Raw, *const Raw, usize);

/// Adds a node after checking where its handle goes.
fn add(Place(out, graph, after, count): Place, op: impl FnOnce() -> Result<Op>) -> Result<()> {
    Out(out).check()?;
    graph::check(graph)?;
    let after = In(after).list(count)?;
    set(out, graph::add(graph, &after, op()?)?)
}

/// Adds a node of any kind.
fn add_general(core: &Core, place: Place, params: *mut GraphNodeParams) -> Result<()> {
    let mut given = Out(params).get()?;
    let Place(out, graph, after, count) = place;
    if given.kind == node_type::GRAPH {
        Out(out).check()?;
        return set(out, graph::add_child(graph, &In(after).list(count)?, payload(&given)?)?);
    }
    add(place, || general(core, &mut given))?;
    set(params, given)
}

fn instantiate(out: *mut Raw, graph: Raw, flags: u64) -> Result<()> {
    Out(out).check()?;
    if flags & DEVICE_LAUNCH != 0 {
        return Err(not_implemented("a graph that is launched by the device"));
    }
    if flags & !0xf != 0 {
        return Err(invalid("unknown flags"));
    }
    set(out, graph::instantiate(graph, flags)?)
}

/// The old ways to instantiate also tell what is wrong, in words and with a node.
fn instantiate_old(out: *mut Raw, graph: Raw, node: *mut Raw, log: *mut c_char, len: usize) -> Result<()> {
    set_if_wanted(node, 0);
    let done = instantiate(out, graph, 0);
    if !log.is_null() && len > 0 {
        let text = done.as_ref().err().map_or(String::new(), |error| error.message.clone());
        set_text(log, len.min(i32::MAX as usize) as i32, &text)?;
    }
    done
}

/// Makes an executable graph do what another graph does: the result's number and the node that differs.
fn update(exec: Raw, graph: Raw) -> Result<(i32, Raw)> {
    Ok(match graph::exec_update(exec, graph)? {
        Ok(()) => (0, 0),
        Err(Mismatch::Topology) => (TOPOLOGY_CHANGED, 0),
        Err(Mismatch::Kind(node)) => (KIND_CHANGED, node),
    })
}

fn updated(result: i32) -> Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(Error::new(Code::GraphExecUpdateFailure, "the graphs have different shapes")),
    }
}

/// One side of a copy node as the program would describe it: kind, host address, device address.
fn side(addr: u64, device: Option<bool>) -> (u32, *mut c_void, DevicePtr) {
    match device {
        Some(true) => (MEMORYTYPE_DEVICE, std::ptr::null_mut(), addr),
        Some(false) => (MEMORYTYPE_HOST, addr as *mut c_void, 0),
        None => (MEMORYTYPE_UNIFIED, std::ptr::null_mut(), addr),
    }
}

/// A copy node's parameters.
fn copy_params(what: &CopyBox, direction: Direction) -> Memcpy3d {
    let (from, to) = match direction {
        Direction::HostToHost => (Some(false), Some(false)),
        Direction::HostToDevice => (Some(false), Some(true)),
        Direction::DeviceToHost => (Some(true), Some(false)),
        Direction::DeviceToDevice => (Some(true), Some(true)),
        Direction::Infer => (None, None),
    };
    let (src, dst) = (side(what.src.addr, from), side(what.dst.addr, to));
    let rows = |pitch: u64, slice: u64| slice.checked_div(pitch).unwrap_or(0).max(what.height) as usize;
    Memcpy3d {
        src_x_in_bytes: 0,
        src_y: 0,
        src_z: 0,
        src_lod: 0,
        src_memory_type: src.0,
        src_host: src.1,
        src_device: src.2,
        src_array: std::ptr::null_mut(),
        src_reserved: std::ptr::null_mut(),
        src_pitch: what.src.row_pitch as usize,
        src_height: rows(what.src.row_pitch, what.src.slice_pitch),
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_z: 0,
        dst_lod: 0,
        dst_memory_type: dst.0,
        dst_host: dst.1,
        dst_device: dst.2,
        dst_array: std::ptr::null_mut(),
        dst_reserved: std::ptr::null_mut(),
        dst_pitch: what.dst.row_pitch as usize,
        dst_height: rows(what.dst.row_pitch, what.dst.slice_pitch),
        width_in_bytes: what.width as usize,
        height: what.height as usize,
        depth: what.depth as usize,
    }
}

/// A kernel node's parameters, which are the node's own copies.
fn kernel_params(node: Raw) -> Result<KernelNodeParams> {
    let found = kernel_of(node)?;
    let first = KernelNodeParamsV1 {
        function: found.function.raw as Opaque,
        grid: found.config.grid,
        block: found.config.block,
        shared_mem_bytes: found.config.shared_bytes,
        parameters: found.pointers.as_ptr().cast(),
        extra: std::ptr::null(),
    };
    Ok(KernelNodeParams { first, ..KernelNodeParams::default() })
}

door! {
    fn cuGraphCreate(out: *mut Raw, flags: u32) |core| {
        if flags != 0 || out.is_null() {
            return Err(Code::InvalidValue.into());
        }
        set(out, graph::create()?)
    }
    fn cuGraphDestroy(graph: Raw) |core| {
        graph::destroy(graph)
    }
    fn cuGraphClone(out: *mut Raw, graph: Raw) |core| {
        Out(out).check()?;
        set(out, graph::clone(graph)?)
    }
    fn cuGraphNodeFindInClone(out: *mut Raw, node: Raw, clone: Raw) |core| {
        set(out, graph::find_in_clone(node, clone)?)
    }
    fn cuGraphAddEmptyNode(out: *mut Raw, graph: Raw, after: *const Raw, count: usize) |core| {
        add(Place(out, graph, after, count), || Ok(Op::Empty))
    }
    fn cuGraphAddKernelNode(
        out: *mut Raw, graph: Raw, after: *const Raw, count: usize, params: *const KernelNodeParamsV1,
    ) |core| {
        add(Place(out, graph, after, count), || old_kernel(core, params))
    }
    fn cuGraphAddKernelNode_v2(
        out: *mut Raw, graph: Raw, after: *const Raw, count: usize, params: *const KernelNodeParams,
    ) |core| {
        add(Place(out, graph, after, count), || kernel(core, &In(params).get()?))
    }
    fn cuGraphAddMemcpyNode(
        out: *mut Raw, graph: Raw, after: *const Raw, count: usize, params: *const Memcpy3d, _context: Opaque,
    ) |core| {
        add(Place(out, graph, after, count), || copy_node(params))
    }
    fn cuGraphAddMemsetNode(
        out: *mut Raw, graph: Raw, after: *const Raw, count: usize, params: *const MemsetParams, _context: Opaque,
    ) |core| {
        add(Place(out, graph, after, count), || fill_node(&In(params).get()?))
    }
    fn cuGraphAddHostNode(
        out: *mut Raw, graph: Raw, after: *const Raw, count: usize, params: *const HostNodeParams,
    ) |core| {
        add(Place(out, graph, after, count), || host_node(&In(params).get()?))
    }
    fn cuGraphAddChildGraphNode(out: *mut Raw, graph: Raw, after: *const Raw, count: usize, child: Raw) |core| {
        Out(out).check()?;
        set(out, graph::add_child(graph, &In(after).list(count)?, child)?)
    }
    fn cuGraphAddEventRecordNode(out: *mut Raw, graph: Raw, after: *const Raw, count: usize, event: usize) |core| {
        add(Place(out, graph, after, count), || event_op(event, true))
    }
    fn cuGraphAddEventWaitNode(out: *mut Raw, graph: Raw, after: *const Raw, count: usize, event: usize) |core| {
        add(Place(out, graph, after, count), || event_op(event, false))
    }
    fn cuGraphAddMemAllocNode(
        out: *mut Raw, graph: Raw, after: *const Raw, count: usize, params: *mut MemAllocNodeParams,
    ) |core| {
        core.driver_context()?;
        let mut given = Out(params).get()?;
        add(Place(out, graph, after, count), || alloc_node(&mut given))?;
        set(params, given)
    }
    fn cuGraphAddMemFreeNode(out: *mut Raw, graph: Raw, after: *const Raw, count: usize, address: DevicePtr) |core| {
        add(Place(out, graph, after, count), || Ok(Op::Free(address)))
    }
    fn cuGraphAddNode(
        out: *mut Raw, graph: Raw, after: *const Raw, count: usize, params: *mut GraphNodeParams,
    ) |core| {
        add_general(core, Place(out, graph, after, count), params)
    }
    fn cuGraphAddNode_v2(
        out: *mut Raw, graph: Raw, after: *const Raw, data: *const GraphEdgeData, count: usize,
        params: *mut GraphNodeParams,
    ) |core| {
        check_edges(In(data), count)?;
        add_general(core, Place(out, graph, after, count), params)
    }
    fn cuGraphDestroyNode(node: Raw) |core| {
        graph::destroy_node(node)
    }
    fn cuGraphNodeGetType(node: Raw, out: *mut i32) |core| {
        set(out, graph::op(node)?.kind() as i32)
    }
    fn cuGraphGetNodes(graph: Raw, out: *mut Raw, count: *mut usize) |core| {
        list_nodes(&graph::nodes(graph)?, Out(out), Out(count))
    }
    fn cuGraphGetRootNodes(graph: Raw, out: *mut Raw, count: *mut usize) |core| {
        list_nodes(&graph::roots(graph)?, Out(out), Out(count))
    }
    fn cuGraphGetEdges(graph: Raw, from: *mut Raw, to: *mut Raw, count: *mut usize) |core| {
        list_edges(graph, Out(from), Out(to), unwanted(), Out(count))
    }
    fn cuGraphGetEdges_v2(
        graph: Raw, from: *mut Raw, to: *mut Raw, data: *mut GraphEdgeData, count: *mut usize,
    ) |core| {
        list_edges(graph, Out(from), Out(to), Out(data), Out(count))
    }
    fn cuGraphNodeGetDependencies(node: Raw, out: *mut Raw, count: *mut usize) |core| {
        list_nodes(&graph::dependencies(node)?, Out(out), Out(count))
    }
    fn cuGraphNodeGetDependencies_v2(
        node: Raw, out: *mut Raw, data: *mut GraphEdgeData, count: *mut usize,
    ) |core| {
        list_edges_to(&graph::dependencies(node)?, Out(out), Out(data), Out(count))
    }
    fn cuGraphNodeGetDependentNodes(node: Raw, out: *mut Raw, count: *mut usize) |core| {
        list_nodes(&graph::dependents(node)?, Out(out), Out(count))
    }
    fn cuGraphNodeGetDependentNodes_v2(
        node: Raw, out: *mut Raw, data: *mut GraphEdgeData, count: *mut usize,
    ) |core| {
        list_edges_to(&graph::dependents(node)?, Out(out), Out(data), Out(count))
    }
    fn cuGraphAddDependencies(graph: Raw, from: *const Raw, to: *const Raw, count: usize) |core| {
        graph::add_edges(graph, &pairs(In(from), In(to), In(std::ptr::null()), count)?)
    }
    fn cuGraphAddDependencies_v2(
        graph: Raw, from: *const Raw, to: *const Raw, data: *const GraphEdgeData, count: usize,
    ) |core| {
        graph::add_edges(graph, &pairs(In(from), In(to), In(data), count)?)
    }
    fn cuGraphRemoveDependencies(graph: Raw, from: *const Raw, to: *const Raw, count: usize) |core| {
        graph::remove_edges(graph, &pairs(In(from), In(to), In(std::ptr::null()), count)?)
    }
    fn cuGraphRemoveDependencies_v2(
        graph: Raw, from: *const Raw, to: *const Raw, data: *const GraphEdgeData, count: usize,
    ) |core| {
        graph::remove_edges(graph, &pairs(In(from), In(to), In(data), count)?)
    }
    fn cuGraphChildGraphNodeGetGraph(node: Raw, out: *mut Raw) |core| {
        match graph::op(node)? {
            Op::Child(child) => set(out, child),
            _ => Err(invalid("this is no child graph")),
        }
    }
    fn cuGraphKernelNodeGetParams(node: Raw, out: *mut KernelNodeParamsV1) |core| {
        set(out, kernel_params(node)?.first)
    }
    fn cuGraphKernelNodeGetParams_v2(node: Raw, out: *mut KernelNodeParams) |core| {
        set(out, kernel_params(node)?)
    }
    fn cuGraphKernelNodeSetParams(node: Raw, params: *const KernelNodeParamsV1) |core| {
        graph::set_op(node, old_kernel(core, params)?)
    }
    fn cuGraphKernelNodeSetParams_v2(node: Raw, params: *const KernelNodeParams) |core| {
        graph::set_op(node, kernel(core, &In(params).get()?)?)
    }
    fn cuGraphKernelNodeSetAttribute(node: Raw, attribute: u32, value: *const [u64; 8]) |core| {
        set_attribute(node, attribute, In(value).get()?)
    }
    fn cuGraphMemcpyNodeGetParams(node: Raw, out: *mut Memcpy3d) |core| {
        match graph::op(node)? {
            Op::Copy(what, direction) => set(out, copy_params(&what, direction)),
            _ => Err(invalid("this is no copy node")),
        }
    }
    fn cuGraphMemcpyNodeSetParams(node: Raw, params: *const Memcpy3d) |core| {
        graph::set_op(node, copy_node(params)?)
    }
    fn cuGraphMemsetNodeGetParams(node: Raw, out: *mut MemsetParams) |core| {
        set(out, fill_params(node)?)
    }
    fn cuGraphMemsetNodeSetParams(node: Raw, params: *const MemsetParams) |core| {
        graph::set_op(node, fill_node(&In(params).get()?)?)
    }
    fn cuGraphHostNodeGetParams(node: Raw, out: *mut HostNodeParams) |core| {
        match graph::op(node)? {
            Op::Host(call) => set(out, HostNodeParams { func: Some(call.function), user_data: call.data }),
            _ => Err(invalid("this is no host node")),
        }
    }
    fn cuGraphHostNodeSetParams(node: Raw, params: *const HostNodeParams) |core| {
        graph::set_op(node, host_node(&In(params).get()?)?)
    }
    fn cuGraphEventRecordNodeGetEvent(node: Raw, out: *mut usize) |core| {
        set(out, event_of(node, true)?)
    }
    fn cuGraphEventRecordNodeSetEvent(node: Raw, event: usize) |core| {
        graph::set_op(node, event_op(event, true)?)
    }
    fn cuGraphEventWaitNodeGetEvent(node: Raw, out: *mut usize) |core| {
        set(out, event_of(node, false)?)
    }
    fn cuGraphEventWaitNodeSetEvent(node: Raw, event: usize) |core| {
        graph::set_op(node, event_op(event, false)?)
    }
    fn cuGraphMemAllocNodeGetParams(node: Raw, out: *mut MemAllocNodeParams) |core| {
        set(out, alloc_params(node)?)
    }
    fn cuGraphMemFreeNodeGetParams(node: Raw, out: *mut DevicePtr) |core| {
        match graph::op(node)? {
            Op::Free(address) => set(out, address),
            _ => Err(invalid("this node frees nothing")),
        }
    }
    fn cuGraphNodeSetParams(node: Raw, params: *mut GraphNodeParams) |core| {
        graph::set_op(node, general(core, &mut Out(params).get()?)?)
    }
    fn cuGraphDebugDotPrint(graph: Raw, path: *const c_char, _flags: u32) |core| {
        dot_print(graph, In(path))
    }

    fn cuGraphInstantiate(
        out: *mut Raw, graph: Raw, node: *mut Raw, log: *mut c_char, len: usize,
    ) |core| {
        instantiate_old(out, graph, node, log, len)
    }
    fn cuGraphInstantiate_v2(
        out: *mut Raw, graph: Raw, node: *mut Raw, log: *mut c_char, len: usize,
    ) |core| {
        instantiate_old(out, graph, node, log, len)
    }
    fn cuGraphInstantiateWithFlags(out: *mut Raw, graph: Raw, flags: u64) |core| {
        instantiate(out, graph, flags)
    }
    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        out: *mut Raw, graph: Raw, params: *mut GraphInstantiateParams,
    ) |core, PT| {
        let given = Out(params).get()?;
        let done = instantiate(out, graph, given.flags);
        set(params, GraphInstantiateParams { error_node: 0, result: i32::from(done.is_err()), ..given })?;
        done
    }
    fn cuGraphExecGetFlags(exec: Raw, out: *mut u64) |core| {
        set(out, graph::exec(exec)?.flags)
    }
    fn cuGraphExecDestroy(exec: Raw) |core| {
        graph::exec_destroy(exec)
    }
    fn cuGraphLaunch / cuGraphLaunch_ptsz(exec: Raw, stream: Opaque) |core, PT| {
        let stream = stream_of(core, stream, PT)?;
        graph::exec(exec)?.launch(core, &stream)
    }
    fn cuGraphUpload / cuGraphUpload_ptsz(exec: Raw, stream: Opaque) |core, PT| {
        // There is nothing to prepare.
        stream_of(core, stream, PT)?;
        graph::exec(exec).map(drop)
    }
    fn cuGraphExecUpdate(exec: Raw, graph: Raw, node: *mut Raw, result: *mut i32) |core| {
        let (number, differs) = update(exec, graph)?;
        set_if_wanted(node, differs);
        set_if_wanted(result, number);
        updated(number)
    }
    fn cuGraphExecUpdate_v2(exec: Raw, graph: Raw, out: *mut GraphExecUpdateResultInfo) |core| {
        let (result, error_node) = update(exec, graph)?;
        set_if_wanted(out, GraphExecUpdateResultInfo { result, error_node, error_from_node: 0 });
        updated(result)
    }
    fn cuGraphNodeSetEnabled(exec: Raw, node: Raw, enabled: u32) |core| {
        graph::exec(exec)?.set_enabled(node, enabled != 0)
    }
    fn cuGraphNodeGetEnabled(exec: Raw, node: Raw, out: *mut u32) |core| {
        set(out, u32::from(graph::exec(exec)?.enabled(node)?))
    }
    fn cuGraphExecKernelNodeSetParams(exec: Raw, node: Raw, params: *const KernelNodeParamsV1) |core| {
        graph::exec(exec)?.set(node, old_kernel(core, params)?)
    }
    fn cuGraphExecKernelNodeSetParams_v2(exec: Raw, node: Raw, params: *const KernelNodeParams) |core| {
        graph::exec(exec)?.set(node, kernel(core, &In(params).get()?)?)
    }
    fn cuGraphExecMemcpyNodeSetParams(exec: Raw, node: Raw, params: *const Memcpy3d, _context: Opaque) |core| {
        graph::exec(exec)?.set(node, copy_node(params)?)
    }
    fn cuGraphExecMemsetNodeSetParams(exec: Raw, node: Raw, params: *const MemsetParams, _context: Opaque) |core| {
        graph::exec(exec)?.set(node, fill_node(&In(params).get()?)?)
    }
    fn cuGraphExecHostNodeSetParams(exec: Raw, node: Raw, params: *const HostNodeParams) |core| {
        graph::exec(exec)?.set(node, host_node(&In(params).get()?)?)
    }
    fn cuGraphExecEventRecordNodeSetEvent(exec: Raw, node: Raw, event: usize) |core| {
        graph::exec(exec)?.set(node, event_op(event, true)?)
    }
    fn cuGraphExecEventWaitNodeSetEvent(exec: Raw, node: Raw, event: usize) |core| {
        graph::exec(exec)?.set(node, event_op(event, false)?)
    }
    fn cuGraphExecNodeSetParams(exec: Raw, node: Raw, params: *mut GraphNodeParams) |core| {
        graph::exec(exec)?.set(node, general(core, &mut Out(params).get()?)?)
    }

    fn cuUserObjectCreate(
        out: *mut Raw, data: *mut c_void, destroy: Option<HostFunction>, references: u32, flags: u32,
    ) |core| {
        Out(out).check()?;
        let function = destroy.ok_or_else(|| invalid("the destructor is null"))?;
        if references == 0 || flags != 1 {
            return Err(invalid("an object needs references and CU_USER_OBJECT_NO_DESTRUCTOR_SYNC"));
        }
        set(out, graph::object_create(HostCall { function, data }, references)?)
    }
    fn cuUserObjectRetain(object: Raw, count: u32) |core| {
        graph::object_retain(object, count)
    }
    fn cuUserObjectRelease(object: Raw, count: u32) |core| {
        graph::object_release(object, count)
    }
    fn cuGraphRetainUserObject(graph: Raw, object: Raw, count: u32, flags: u32) |core| {
        if flags > 1 {
            return Err(invalid("unknown flags"));
        }
        graph::retain_object(graph, object, count, flags == 1)
    }
    fn cuGraphReleaseUserObject(graph: Raw, object: Raw, count: u32) |core| {
        graph::release_object(graph, object, count)
    }
}
