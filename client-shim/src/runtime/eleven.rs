//! What a runtime of CUDA 11 has otherwise than later ones: programs and libraries may have one linked in. Everything else there is as in 12.0.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use super::entry::api;
use super::entry_point::look_up;
use super::function::attributes_of;
use super::graph_exec::{instantiate_graph, update};
use super::types::FUNC_ATTRIBUTES_11_BYTES;
use super::version::RUNTIME_VERSION_12;
use crate::abi::types::{GraphExecRef, GraphRef, NodeRef};
use crate::abi::{CStrArg, Out};
use crate::doors::table::Address;

api! {
    /// `cudaFuncGetAttributes`, which knows nothing of clusters.
    fn get_attributes as "cudaFuncGetAttributes" (
        attributes: Out<[u8; FUNC_ATTRIBUTES_11_BYTES]>, symbol: *const c_void,
    ) {
        attributes.check()?;
        let full = attributes_of(symbol)?;
        // SAFETY: the shorter layout is the beginning of the longer one, which has no padding there.
        attributes.set(unsafe { std::mem::transmute_copy(&full) })
    }

    /// `cudaGetDriverEntryPoint`, which does not say why there is none.
    fn get_entry_point<const PT> as "cudaGetDriverEntryPoint" (
        symbol: CStrArg, function: Out<*mut c_void>, flags: u64,
    ) {
        let version = RUNTIME_VERSION_12.load(Ordering::Relaxed);
        look_up(symbol, function, version, flags, Out::unwanted(), PT)
    }

    /// `cudaGraphInstantiate`: where it fails, no node is named, and the log stays empty.
    fn instantiate as "cudaGraphInstantiate" (
        out: Out<GraphExecRef>, graph: GraphRef, node: Out<NodeRef>, log: Out<c_char>, size: usize,
    ) {
        node.set_if_wanted(NodeRef::default());
        if size > 0 {
            log.set_if_wanted(0);
        }
        instantiate_graph(out, graph, 0)
    }

    /// `cudaGraphExecUpdate`
    fn exec_update as "cudaGraphExecUpdate" (
        exec: GraphExecRef, graph: GraphRef, node: Out<NodeRef>, result: Out<c_int>,
    ) {
        update(exec, graph, |found, at| {
            node.set_if_wanted(at);
            result.set_if_wanted(found);
        })
    }
}

/// The function that only a runtime of CUDA 11 has under a name.
pub(super) fn find(name: &str) -> Option<Address> {
    Some(Address(match name {
        "cudaFuncGetAttributes" => get_attributes as *const (),
        "cudaGetDriverEntryPoint" => get_entry_point::<false> as *const (),
        "cudaGetDriverEntryPoint_ptsz" => get_entry_point::<true> as *const (),
        "cudaGraphInstantiate" => instantiate as *const (),
        "cudaGraphExecUpdate" => exec_update as *const (),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_attributes_end_where_clusters_begin() {
        assert_eq!(FUNC_ATTRIBUTES_11_BYTES, 52);
    }
}
