//! Graphs: making them by hand, asking about them, launching them. What they are is in [`crate::graph`].

use std::ffi::{c_char, c_int, c_void};

use super::copy::{from_3d, from_3d_value};
use super::stream::stream_of;
use super::types::*;
use super::*;
use crate::abi::launch::kernel_params as launch_params;
use crate::abi::types::{
    AttributeValue, GraphEdgeData, GraphExecUpdateResultInfo, GraphInstantiateParams, GraphNodeParams,
    HostNodeParams, MemAllocNodeParams, MemsetParams, node_type,
};
use crate::abi::{CStrArg, In, KernelArguments, Out};
use crate::core::error::invalid;
use crate::core::{Config, CopyBox, Direction};
use crate::doors::graph::{
    Payload, add, add_general, alloc_node, alloc_params, check_edges, copy_attributes, create_condition,
    dot_print, event_of, event_op, fill_node, fill_params, get_attribute, host_node, list_edges,
    list_edges_to, list_nodes, memory_attribute, pairs, payload, set_attribute, set_memory_attribute,
    set_payload,
};
use crate::graph::{self, HostCall, Kernel, Mismatch, Op};

/// `CUgraph`, `CUgraphNode`, `CUgraphExec`, `CUuserObject`.
type Raw = usize;

/// `CUhostFn`.
type HostFunction = unsafe extern "C" fn(data: *mut c_void);

/// `CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED` and `…_NODE_TYPE_CHANGED`.
const TOPOLOGY_CHANGED: i32 = 2;
const KIND_CHANGED: i32 = 3;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;

// SAFETY: numbers and addresses.
unsafe impl Payload for KernelNodeParams {}
// SAFETY: numbers and addresses.
unsafe impl Payload for MemcpyNodeParams {}
// SAFETY: numbers and addresses.
unsafe impl Payload for BatchMemOpNodeParams {}

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
        cluster: [0; 3],
    };
    let parameters = launch_params(first.parameters, first.extra)?;
    // SAFETY: the program passes what its kernel takes.
    Ok(Op::Kernel(unsafe { Kernel::new(function, raw, config, parameters) }?))
}

/// A kernel node's parameters as CUDA 11 has them.
fn old_kernel(core: &Core, given: In<KernelNodeParamsV1>) -> Result<Op> {
    let first = given.get()?;
    kernel(core, &KernelNodeParams { first, ..KernelNodeParams::default() })
}

/// What a copy node does.
fn copy_node(given: In<Memcpy3d>) -> Result<Op> {
    let (what, direction) = from_3d(given)?;
    Ok(Op::Copy(what, direction))
}

/// A node of any kind. The parameters may be filled in.
fn general(core: &Core, given: &mut GraphNodeParams) -> Result<Op> {
    Ok(match given.kind {
        node_type::KERNEL => kernel(core, &payload(given))?,
        node_type::MEMCPY => {
            let (what, direction) = from_3d_value(&payload::<MemcpyNodeParams>(given).copy)?;
            Op::Copy(what, direction)
        }
        node_type::MEMSET => fill_node(&payload(given))?,
        node_type::HOST => host_node(&payload(given))?,
        node_type::EMPTY => Op::Empty,
        node_type::WAIT_EVENT => event_op(payload(given), false)?,
        node_type::EVENT_RECORD => event_op(payload(given), true)?,
        node_type::BATCH_MEM_OP => mem_op::node(core, &payload(given))?,
        node_type::MEM_FREE => Op::Free(payload(given)),
        node_type::MEM_ALLOC => {
            core.driver_context()?;
            let mut alloc: MemAllocNodeParams = payload(given);
            let op = alloc_node(&mut alloc)?;
            set_payload(given, alloc);
            op
        }
        other => return Err(not_implemented(&format!("a graph node of type {other}"))),
    })
}

fn instantiate(core: &Core, out: Out<Raw>, graph: Raw, flags: u64) -> Result<()> {
    core.driver_context()?;
    out.check()?;
    if flags & DEVICE_LAUNCH != 0 {
        return Err(not_implemented("a graph that is launched by the device"));
    }
    if flags & !0xf != 0 {
        return Err(invalid("unknown flags"));
    }
    out.set(graph::instantiate(graph, flags)?)
}

/// The old ways to instantiate also tell what is wrong, in words and with a node.
fn instantiate_old(
    core: &Core,
    out: Out<Raw>,
    graph: Raw,
    node: Out<Raw>,
    log: Out<c_char>,
    len: usize,
) -> Result<()> {
    node.set_if_wanted(0);
    let done = instantiate(core, out, graph, 0);
    if !log.is_null() && len > 0 {
        let text = done.as_ref().err().map_or(String::new(), |error| error.message.clone());
        // SAFETY: the program says that so many bytes are there.
        unsafe { log.set_text(len, &text) }?;
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
    let (found, arguments) = graph::shown_kernel(node)?;
    let first = KernelNodeParamsV1 {
        function: found.function.raw as Opaque,
        grid: found.config.grid,
        block: found.config.block,
        shared_mem_bytes: found.config.shared_bytes,
        // SAFETY: they point to the node's copies of its arguments.
        parameters: unsafe { KernelArguments::new(arguments as *const _) },
        extra: KernelArguments::NONE,
    };
    Ok(KernelNodeParams { first, ..KernelNodeParams::default() })
}

door! {
    fn cuGraphCreate(out: Out<Raw>, flags: u32) |core| {
        if flags != 0 || out.is_null() {
            return Err(Code::InvalidValue.into());
        }
        out.set(graph::create()?)
    }
    fn cuGraphDestroy(graph: Raw) |core| {
        graph::destroy(graph)
    }
    fn cuGraphClone(out: Out<Raw>, graph: Raw) |core| {
        out.check()?;
        out.set(graph::clone(graph)?)
    }
    fn cuGraphNodeFindInClone(out: Out<Raw>, node: Raw, clone: Raw) |core| {
        out.set(graph::find_in_clone(node, clone)?)
    }
    fn cuGraphAddEmptyNode(out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize) |core| {
        add(out, graph, after, count, || Ok(Op::Empty))
    }
    fn cuGraphAddKernelNode(
        out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, params: In<KernelNodeParamsV1>,
    ) |core| {
        add(out, graph, after, count, || old_kernel(core, params))
    }
    fn cuGraphAddKernelNode_v2(
        out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, params: In<KernelNodeParams>,
    ) |core| {
        add(out, graph, after, count, || kernel(core, &params.get()?))
    }
    fn cuGraphAddMemcpyNode(
        out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, params: In<Memcpy3d>, _context: Opaque,
    ) |core| {
        add(out, graph, after, count, || copy_node(params))
    }
    fn cuGraphAddMemsetNode(
        out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, params: In<MemsetParams>, _context: Opaque,
    ) |core| {
        add(out, graph, after, count, || fill_node(&params.get()?))
    }
    fn cuGraphAddHostNode(
        out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, params: In<HostNodeParams>,
    ) |core| {
        add(out, graph, after, count, || host_node(&params.get()?))
    }
    fn cuGraphAddChildGraphNode(out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, child: Raw) |core| {
        out.check()?;
        // SAFETY: the program says that so many are there.
        out.set(graph::add_child(graph, &unsafe { after.list(count) }?, child, false)?)
    }
    fn cuGraphAddEventRecordNode(out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, event: usize) |core| {
        add(out, graph, after, count, || event_op(event, true))
    }
    fn cuGraphAddEventWaitNode(out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, event: usize) |core| {
        add(out, graph, after, count, || event_op(event, false))
    }
    fn cuGraphAddMemAllocNode(
        out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, params: Out<MemAllocNodeParams>,
    ) |core| {
        core.driver_context()?;
        let mut given = params.get()?;
        add(out, graph, after, count, || alloc_node(&mut given))?;
        params.set(given)
    }
    fn cuGraphAddMemFreeNode(out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, address: DevicePtr) |core| {
        add(out, graph, after, count, || Ok(Op::Free(address)))
    }
    fn cuGraphAddNode(
        out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, params: Out<GraphNodeParams>,
    ) |core| {
        add_general(out, graph, after, count, params, |given| general(core, given))
    }
    fn cuGraphAddNode_v2(
        out: Out<Raw>, graph: Raw, after: In<Raw>, data: In<GraphEdgeData>, count: usize,
        params: Out<GraphNodeParams>,
    ) |core| {
        check_edges(data, count)?;
        add_general(out, graph, after, count, params, |given| general(core, given))
    }
    fn cuGraphAddBatchMemOpNode(
        out: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, params: In<BatchMemOpNodeParams>,
    ) |core| {
        add(out, graph, after, count, || mem_op::node(core, &params.get()?))
    }
    fn cuGraphConditionalHandleCreate(out: Out<u64>, graph: Raw, context: usize, value: u32, flags: u32) |core| {
        let context = if context == 0 { core.driver_context()? } else { core.context(context)? };
        create_condition(out, graph, &context, value, flags)
    }
    fn cuGraphDestroyNode(node: Raw) |core| {
        graph::destroy_node(node)
    }
    fn cuGraphNodeGetType(node: Raw, out: Out<i32>) |core| {
        out.set(graph::op(node)?.kind() as i32)
    }
    fn cuGraphGetNodes(graph: Raw, out: Out<Raw>, count: Out<usize>) |core| {
        list_nodes(&graph::nodes(graph)?, out, count)
    }
    fn cuGraphGetRootNodes(graph: Raw, out: Out<Raw>, count: Out<usize>) |core| {
        list_nodes(&graph::roots(graph)?, out, count)
    }
    fn cuGraphGetEdges(graph: Raw, from: Out<Raw>, to: Out<Raw>, count: Out<usize>) |core| {
        list_edges(graph, from, to, Out::unwanted(), count)
    }
    fn cuGraphGetEdges_v2(
        graph: Raw, from: Out<Raw>, to: Out<Raw>, data: Out<GraphEdgeData>, count: Out<usize>,
    ) |core| {
        list_edges(graph, from, to, data, count)
    }
    fn cuGraphNodeGetDependencies(node: Raw, out: Out<Raw>, count: Out<usize>) |core| {
        list_nodes(&graph::dependencies(node)?, out, count)
    }
    fn cuGraphNodeGetDependencies_v2(
        node: Raw, out: Out<Raw>, data: Out<GraphEdgeData>, count: Out<usize>,
    ) |core| {
        list_edges_to(&graph::dependencies(node)?, out, data, count)
    }
    fn cuGraphNodeGetDependentNodes(node: Raw, out: Out<Raw>, count: Out<usize>) |core| {
        list_nodes(&graph::dependents(node)?, out, count)
    }
    fn cuGraphNodeGetDependentNodes_v2(
        node: Raw, out: Out<Raw>, data: Out<GraphEdgeData>, count: Out<usize>,
    ) |core| {
        list_edges_to(&graph::dependents(node)?, out, data, count)
    }
    fn cuGraphAddDependencies(graph: Raw, from: In<Raw>, to: In<Raw>, count: usize) |core| {
        graph::add_edges(graph, &pairs(from, to, In::null(), count)?)
    }
    fn cuGraphAddDependencies_v2(
        graph: Raw, from: In<Raw>, to: In<Raw>, data: In<GraphEdgeData>, count: usize,
    ) |core| {
        graph::add_edges(graph, &pairs(from, to, data, count)?)
    }
    fn cuGraphRemoveDependencies(graph: Raw, from: In<Raw>, to: In<Raw>, count: usize) |core| {
        graph::remove_edges(graph, &pairs(from, to, In::null(), count)?)
    }
    fn cuGraphRemoveDependencies_v2(
        graph: Raw, from: In<Raw>, to: In<Raw>, data: In<GraphEdgeData>, count: usize,
    ) |core| {
        graph::remove_edges(graph, &pairs(from, to, data, count)?)
    }
    fn cuGraphChildGraphNodeGetGraph(node: Raw, out: Out<Raw>) |core| {
        match graph::op(node)? {
            Op::Child(child) => out.set(child),
            _ => Err(invalid("this is no child graph")),
        }
    }
    fn cuGraphKernelNodeGetParams(node: Raw, out: Out<KernelNodeParamsV1>) |core| {
        out.set(kernel_params(node)?.first)
    }
    fn cuGraphKernelNodeGetParams_v2(node: Raw, out: Out<KernelNodeParams>) |core| {
        out.set(kernel_params(node)?)
    }
    fn cuGraphKernelNodeSetParams(node: Raw, params: In<KernelNodeParamsV1>) |core| {
        graph::set_op(node, old_kernel(core, params)?)
    }
    fn cuGraphKernelNodeSetParams_v2(node: Raw, params: In<KernelNodeParams>) |core| {
        graph::set_op(node, kernel(core, &params.get()?)?)
    }
    fn cuGraphKernelNodeSetAttribute(node: Raw, attribute: u32, value: In<AttributeValue>) |core| {
        set_attribute(node, attribute, value)
    }
    fn cuGraphKernelNodeGetAttribute(node: Raw, attribute: u32, value: Out<AttributeValue>) |core| {
        get_attribute(node, attribute, value)
    }
    fn cuGraphKernelNodeCopyAttributes(to: Raw, from: Raw) |core| {
        copy_attributes(to, from)
    }
    fn cuGraphMemcpyNodeGetParams(node: Raw, out: Out<Memcpy3d>) |core| {
        match graph::op(node)? {
            Op::Copy(what, direction) => out.set(copy_params(&what, direction)),
            _ => Err(invalid("this is no copy node")),
        }
    }
    fn cuGraphMemcpyNodeSetParams(node: Raw, params: In<Memcpy3d>) |core| {
        graph::set_op(node, copy_node(params)?)
    }
    fn cuGraphMemsetNodeGetParams(node: Raw, out: Out<MemsetParams>) |core| {
        out.set(fill_params(node)?)
    }
    fn cuGraphMemsetNodeSetParams(node: Raw, params: In<MemsetParams>) |core| {
        graph::set_op(node, fill_node(&params.get()?)?)
    }
    fn cuGraphHostNodeGetParams(node: Raw, out: Out<HostNodeParams>) |core| {
        match graph::op(node)? {
            Op::Host(call) => out.set(HostNodeParams { func: Some(call.function), user_data: call.data }),
            _ => Err(invalid("this is no host node")),
        }
    }
    fn cuGraphHostNodeSetParams(node: Raw, params: In<HostNodeParams>) |core| {
        graph::set_op(node, host_node(&params.get()?)?)
    }
    fn cuGraphEventRecordNodeGetEvent(node: Raw, out: Out<usize>) |core| {
        out.set(event_of(node, true)?)
    }
    fn cuGraphEventRecordNodeSetEvent(node: Raw, event: usize) |core| {
        graph::set_op(node, event_op(event, true)?)
    }
    fn cuGraphEventWaitNodeGetEvent(node: Raw, out: Out<usize>) |core| {
        out.set(event_of(node, false)?)
    }
    fn cuGraphEventWaitNodeSetEvent(node: Raw, event: usize) |core| {
        graph::set_op(node, event_op(event, false)?)
    }
    fn cuGraphMemAllocNodeGetParams(node: Raw, out: Out<MemAllocNodeParams>) |core| {
        out.set(alloc_params(node)?)
    }
    fn cuGraphMemFreeNodeGetParams(node: Raw, out: Out<DevicePtr>) |core| {
        match graph::op(node)? {
            Op::Free(address) => out.set(address),
            _ => Err(invalid("this node frees nothing")),
        }
    }
    fn cuDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, out: Out<u64>) |core| {
        memory_attribute(core, device, attribute, out)
    }
    fn cuDeviceSetGraphMemAttribute(device: c_int, attribute: c_int, value: In<u64>) |core| {
        set_memory_attribute(core, device, attribute, value)
    }
    fn cuDeviceGraphMemTrim(device: c_int) |core| {
        // What no node has is not kept.
        ordinal(core, device).map(drop)
    }
    fn cuGraphNodeSetParams(node: Raw, params: Out<GraphNodeParams>) |core| {
        graph::set_op(node, general(core, &mut params.get()?)?)
    }
    fn cuGraphDebugDotPrint(graph: Raw, path: CStrArg, _flags: u32) |core| {
        dot_print(graph, &path)
    }

    fn cuGraphInstantiate(
        out: Out<Raw>, graph: Raw, node: Out<Raw>, log: Out<c_char>, len: usize,
    ) |core| {
        instantiate_old(core, out, graph, node, log, len)
    }
    fn cuGraphInstantiate_v2(
        out: Out<Raw>, graph: Raw, node: Out<Raw>, log: Out<c_char>, len: usize,
    ) |core| {
        instantiate_old(core, out, graph, node, log, len)
    }
    fn cuGraphInstantiateWithFlags(out: Out<Raw>, graph: Raw, flags: u64) |core| {
        instantiate(core, out, graph, flags)
    }
    fn cuGraphInstantiateWithParams<const PT>(
        out: Out<Raw>, graph: Raw, params: Out<GraphInstantiateParams>,
    ) |core| {
        let given = params.get()?;
        let done = instantiate(core, out, graph, given.flags);
        params.set(GraphInstantiateParams { error_node: 0, result: i32::from(done.is_err()), ..given })?;
        done
    }
    fn cuGraphExecGetFlags(exec: Raw, out: Out<u64>) |core| {
        out.set(graph::exec(exec)?.flags)
    }
    fn cuGraphExecDestroy(exec: Raw) |core| {
        graph::exec_destroy(exec)
    }
    fn cuGraphLaunch<const PT>(exec: Raw, stream: Opaque) |core| {
        let stream = stream_of(core, stream, PT)?;
        graph::exec(exec)?.launch(core, &stream)
    }
    fn cuGraphUpload<const PT>(exec: Raw, stream: Opaque) |core| {
        // There is nothing to prepare.
        stream_of(core, stream, PT)?;
        graph::exec(exec).map(drop)
    }
    fn cuGraphExecUpdate(exec: Raw, graph: Raw, node: Out<Raw>, result: Out<i32>) |core| {
        let (number, differs) = update(exec, graph)?;
        node.set_if_wanted(differs);
        result.set_if_wanted(number);
        updated(number)
    }
    fn cuGraphExecUpdate_v2(exec: Raw, graph: Raw, out: Out<GraphExecUpdateResultInfo>) |core| {
        let (result, error_node) = update(exec, graph)?;
        out.set_if_wanted(GraphExecUpdateResultInfo { result, error_node, error_from_node: 0 });
        updated(result)
    }
    fn cuGraphNodeSetEnabled(exec: Raw, node: Raw, enabled: u32) |core| {
        graph::exec(exec)?.set_enabled(node, enabled != 0)
    }
    fn cuGraphNodeGetEnabled(exec: Raw, node: Raw, out: Out<u32>) |core| {
        out.set(u32::from(graph::exec(exec)?.enabled(node)?))
    }
    fn cuGraphExecKernelNodeSetParams(exec: Raw, node: Raw, params: In<KernelNodeParamsV1>) |core| {
        graph::exec(exec)?.set(node, old_kernel(core, params)?)
    }
    fn cuGraphExecKernelNodeSetParams_v2(exec: Raw, node: Raw, params: In<KernelNodeParams>) |core| {
        graph::exec(exec)?.set(node, kernel(core, &params.get()?)?)
    }
    fn cuGraphExecMemcpyNodeSetParams(exec: Raw, node: Raw, params: In<Memcpy3d>, _context: Opaque) |core| {
        graph::exec(exec)?.set(node, copy_node(params)?)
    }
    fn cuGraphExecMemsetNodeSetParams(exec: Raw, node: Raw, params: In<MemsetParams>, _context: Opaque) |core| {
        graph::exec(exec)?.set(node, fill_node(&params.get()?)?)
    }
    fn cuGraphExecHostNodeSetParams(exec: Raw, node: Raw, params: In<HostNodeParams>) |core| {
        graph::exec(exec)?.set(node, host_node(&params.get()?)?)
    }
    fn cuGraphExecEventRecordNodeSetEvent(exec: Raw, node: Raw, event: usize) |core| {
        graph::exec(exec)?.set(node, event_op(event, true)?)
    }
    fn cuGraphExecEventWaitNodeSetEvent(exec: Raw, node: Raw, event: usize) |core| {
        graph::exec(exec)?.set(node, event_op(event, false)?)
    }
    fn cuGraphExecChildGraphNodeSetParams(exec: Raw, node: Raw, child: Raw) |core| {
        graph::exec_set_child(exec, node, child)
    }
    fn cuGraphExecNodeSetParams(exec: Raw, node: Raw, params: Out<GraphNodeParams>) |core| {
        let mut given = params.get()?;
        if given.kind == node_type::GRAPH {
            return graph::exec_set_child(exec, node, payload(&given));
        }
        graph::exec(exec)?.set(node, general(core, &mut given)?)
    }

    fn cuUserObjectCreate(
        out: Out<Raw>, data: *mut c_void, destroy: Option<HostFunction>, references: u32, flags: u32,
    ) |core| {
        out.check()?;
        let function = destroy.ok_or_else(|| invalid("the destructor is null"))?;
        if references == 0 || flags != 1 {
            return Err(invalid("an object needs references and CU_USER_OBJECT_NO_DESTRUCTOR_SYNC"));
        }
        out.set(graph::object_create(HostCall { function, data }, references)?)
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
