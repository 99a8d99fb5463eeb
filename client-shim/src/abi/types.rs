//! The C types that both CUDA APIs have, under names of their own and with one layout, in the headers of 12.x and 13.x.
//!
//! Handles are `usize`: a program never looks behind them.

use std::ffi::{c_int, c_uint, c_void};

/// A `cudaStream_t`.
pub(crate) type StreamRef = usize;
/// A `cudaEvent_t`.
pub(crate) type EventRef = usize;
/// A `cudaMemPool_t`.
pub(crate) type PoolRef = usize;
/// A `cudaGraph_t`.
pub(crate) type GraphRef = usize;
/// A `cudaGraphNode_t`.
pub(crate) type NodeRef = usize;
/// A `cudaGraphExec_t`.
pub(crate) type GraphExecRef = usize;
/// A `cudaHostFn_t`.
pub(crate) type HostFn = unsafe extern "C" fn(*mut c_void);
/// A `cudaStreamCallback_t`.
pub(crate) type StreamCallback = unsafe extern "C" fn(StreamRef, c_int, *mut c_void);

/// `cudaLaunchAttribute`; the value is a union of 64 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_uint,
    pub(crate) pad: u32,
    pub(crate) value: AttributeValue,
}

/// `cudaLaunchAttributeValue`, a union of 64 bytes.
pub(crate) type AttributeValue = [u64; 8];

impl LaunchAttribute {
    /// The value's first four bytes, where most attributes have their number.
    pub(crate) fn first(&self) -> c_int {
        self.value[0] as u32 as c_int
    }
}

/// The `cudaLaunchAttributeID`s that mean something here.
pub(crate) mod launch_attribute {
    use std::ffi::c_uint;
    pub(crate) const IGNORE: c_uint = 0;
    pub(crate) const ACCESS_POLICY_WINDOW: c_uint = 1;
    pub(crate) const COOPERATIVE: c_uint = 2;
    pub(crate) const SYNCHRONIZATION_POLICY: c_uint = 3;
    pub(crate) const CLUSTER_DIMENSION: c_uint = 4;
    pub(crate) const CLUSTER_SCHEDULING: c_uint = 5;
    pub(crate) const PROGRAMMATIC_SERIALIZATION: c_uint = 6;
    pub(crate) const PROGRAMMATIC_EVENT: c_uint = 7;
    pub(crate) const PRIORITY: c_uint = 8;
    pub(crate) const MEM_SYNC_DOMAIN_MAP: c_uint = 9;
    pub(crate) const MEM_SYNC_DOMAIN: c_uint = 10;
    pub(crate) const PREFERRED_CLUSTER_DIMENSION: c_uint = 11;
    pub(crate) const LAUNCH_COMPLETION_EVENT: c_uint = 12;
    pub(crate) const DEVICE_UPDATABLE: c_uint = 13;
    pub(crate) const PREFERRED_CARVEOUT: c_uint = 14;
    pub(crate) const NVLINK_SCHEDULING: c_uint = 16;
}

/// `cudaMemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemLocation {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

/// `cudaMemLocationType`.
pub(crate) mod location {
    use std::ffi::c_int;
    pub(crate) const DEVICE: c_int = 1;
    pub(crate) const HOST: c_int = 2;
    pub(crate) const HOST_NUMA: c_int = 3;
    pub(crate) const HOST_NUMA_CURRENT: c_int = 4;
}

/// `cudaMemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemAccessDesc {
    pub(crate) location: MemLocation,
    pub(crate) flags: c_int,
}

/// `cudaMemPoolProps`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemPoolProps {
    pub(crate) alloc_type: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: MemLocation,
    pub(crate) security_attributes: usize,
    pub(crate) max_size: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}

/// `cudaMemsetParams` and its V2.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemsetParams {
    pub(crate) dst: usize,
    pub(crate) pitch: usize,
    pub(crate) value: c_uint,
    pub(crate) element_size: c_uint,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `cudaHostNodeParams` and its V2.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostNodeParams {
    pub(crate) func: Option<HostFn>,
    pub(crate) user_data: *mut c_void,
}

/// `cudaMemAllocNodeParams` and its V2.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemAllocNodeParams {
    pub(crate) pool_props: MemPoolProps,
    pub(crate) access_descs: *const MemAccessDesc,
    pub(crate) access_desc_count: usize,
    pub(crate) bytes: usize,
    pub(crate) ptr: usize,
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`. Before 12.9 the ownership was reserved, and zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildGraphParams {
    pub(crate) graph: GraphRef,
    pub(crate) ownership: c_int,
}

/// `CUDA_CONDITIONAL_NODE_PARAMS`; `cudaConditionalNodeParams` is its beginning.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConditionalNodeParams {
    pub(crate) handle: u64,
    pub(crate) kind: c_uint,
    pub(crate) size: c_uint,
    pub(crate) graphs: usize,
    pub(crate) context: usize,
}

/// `cudaGraphEdgeData`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GraphEdgeData {
    pub(crate) from_port: u8,
    pub(crate) to_port: u8,
    pub(crate) kind: u8,
    pub(crate) reserved: [u8; 5],
}

impl GraphEdgeData {
    /// `cudaGraphDependencyTypeProgrammatic`.
    pub(crate) const PROGRAMMATIC: u8 = 1;
}

/// `cudaGraphInstantiateParams`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct GraphInstantiateParams {
    pub(crate) flags: u64,
    pub(crate) upload_stream: StreamRef,
    pub(crate) error_node: NodeRef,
    pub(crate) result: c_int,
}

/// `cudaGraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct GraphExecUpdateResultInfo {
    pub(crate) result: c_int,
    pub(crate) error_node: NodeRef,
    pub(crate) error_from_node: NodeRef,
}

/// `cudaGraphNodeParams`; what the payload is depends on the kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GraphNodeParams {
    pub(crate) kind: c_int,
    pub(crate) reserved0: [c_int; 3],
    pub(crate) payload: [u64; 29],
    pub(crate) reserved2: i64,
}

/// `cudaGraphNodeType`.
pub(crate) mod node_type {
    use std::ffi::c_int;
    pub(crate) const KERNEL: c_int = 0;
    pub(crate) const MEMCPY: c_int = 1;
    pub(crate) const MEMSET: c_int = 2;
    pub(crate) const HOST: c_int = 3;
    pub(crate) const GRAPH: c_int = 4;
    pub(crate) const EMPTY: c_int = 5;
    pub(crate) const WAIT_EVENT: c_int = 6;
    pub(crate) const EVENT_RECORD: c_int = 7;
    pub(crate) const MEM_ALLOC: c_int = 10;
    pub(crate) const MEM_FREE: c_int = 11;
    pub(crate) const BATCH_MEM_OP: c_int = 12;
    pub(crate) const CONDITIONAL: c_int = 13;
}

#[cfg(test)]
super::signature::structures!(MemLocation);

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    macro_rules! layout {
        ($type:ident, $size:literal, $($field:ident = $offset:literal),*) => {
            assert_eq!(size_of::<$type>(), $size, stringify!($type));
            $(assert_eq!(offset_of!($type, $field), $offset, concat!(stringify!($type), ".", stringify!($field)));)*
        };
    }

    // The numbers were printed by C programs compiled against the headers of 12.9 and 13.0.
    #[test]
    fn types_have_the_layouts_of_the_headers() {
        layout!(LaunchAttribute, 72, id = 0, value = 8);
        layout!(
            MemPoolProps,
            88,
            alloc_type = 0,
            handle_types = 4,
            location = 8,
            security_attributes = 16,
            max_size = 24
        );
        layout!(MemsetParams, 40, dst = 0, pitch = 8, value = 16, element_size = 20, width = 24, height = 32);
        layout!(HostNodeParams, 16, func = 0, user_data = 8);
        layout!(GraphInstantiateParams, 32, flags = 0, upload_stream = 8, error_node = 16, result = 24);
        layout!(GraphExecUpdateResultInfo, 24, result = 0, error_node = 8, error_from_node = 16);
        layout!(
            MemAllocNodeParams,
            120,
            pool_props = 0,
            access_descs = 88,
            access_desc_count = 96,
            bytes = 104,
            ptr = 112
        );
        layout!(GraphNodeParams, 256, kind = 0, payload = 16);
        layout!(GraphEdgeData, 8, from_port = 0, to_port = 1, kind = 2);
        layout!(MemAccessDesc, 12, location = 0, flags = 8);
        layout!(MemLocation, 8, kind = 0, id = 4);
    }
}
