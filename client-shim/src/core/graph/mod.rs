//! Graphs: work that is described once and launched many times, and its capture from streams.
//!
//! [`store::GraphStore`] owns the graphs and [`captures::Captures`] what is being captured; both are the [`Core`]'s. The doors
//! use the functions here and in [`capture`], which work on the process's core.
//!
//! [`Core`]: crate::core::Core

pub(crate) mod capture;
pub(crate) mod captures;
pub(crate) mod condition;
pub(crate) mod exec;
pub(crate) mod memory;
pub(crate) mod op;
pub(crate) mod store;

use std::sync::Arc;

pub(crate) use condition::Choice;
pub(crate) use exec::{Exec, Mismatch};
pub(crate) use memory::GraphAllocation;
pub(crate) use op::{HostCall, Kernel, Op};

use super::error::Result;
use super::process::{Core, current};
use super::registry::Raw;

/// Functions that are the process's core's graphs' methods of the same name.
macro_rules! of_the_core {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $($(#[$doc])* pub(crate) fn $name($($arg: $type),*) -> Result<$result> {
            current()?.graphs.$name($($arg),*)
        })*
    };
}

of_the_core! {
    /// `cudaGraphDestroy`
    fn destroy(graph: Raw) -> ();
    /// `cudaGraphNodeFindInClone`
    fn find_in_clone(node: Raw, clone: Raw) -> Raw;
    /// Whether there is a graph of this handle.
    fn check(graph: Raw) -> ();
    /// Adds a node to a graph, after the nodes it depends on: the node's handle. Dependencies of another graph, or given
    /// twice, are an invalid value.
    fn add(graph: Raw, dependencies: &[Raw], op: Op) -> Raw;
    /// `cudaGraphAddChildGraphNode`: the child is copied, or belongs to the node from now on where it is `moved`.
    fn add_child(graph: Raw, dependencies: &[Raw], child: Raw, moved: bool) -> Raw;
    /// Adds a node that does what so many new graphs do, as the condition of a handle says: its handle, and where the graphs' are.
    fn add_conditional(graph: Raw, dependencies: &[Raw], handle: u64, choice: Choice, graphs: u32) -> (Raw, usize);
    /// `cudaGraphDestroyNode`: the node's edges go with it.
    fn destroy_node(node: Raw) -> ();
    /// What a node does.
    fn op(node: Raw) -> Op;
    /// Makes a node do something else of its kind. A kernel's attributes stay what they are.
    fn set_op(node: Raw, op: Op) -> ();
    /// Changes a kernel node's attributes.
    fn change_kernel(node: Raw, change: &dyn Fn(&mut Kernel)) -> ();
    /// A kernel node's kernel, and the address of a list of pointers to copies of its arguments.
    fn shown_kernel(node: Raw) -> (Kernel, usize);
    /// `cudaGraphAddDependencies`
    fn add_edges(graph: Raw, edges: &[(Raw, Raw)]) -> ();
    /// `cudaGraphRemoveDependencies`
    fn remove_edges(graph: Raw, edges: &[(Raw, Raw)]) -> ();
    /// `cudaGraphGetNodes`
    fn nodes(graph: Raw) -> Vec<Raw>;
    /// `cudaGraphGetRootNodes`
    fn roots(graph: Raw) -> Vec<Raw>;
    /// `cudaGraphGetEdges`
    fn edges(graph: Raw) -> Vec<(Raw, Raw)>;
    /// `cudaGraphNodeGetDependencies`
    fn dependencies(node: Raw) -> Vec<Raw>;
    /// `cudaGraphNodeGetDependentNodes`
    fn dependents(node: Raw) -> Vec<Raw>;
    /// `cudaGraphInstantiate`: the handle of what can be launched.
    fn instantiate(graph: Raw, flags: u64) -> Raw;
    /// The executable graph behind a handle.
    fn exec(raw: Raw) -> Arc<Exec>;
    /// `cudaGraphExecDestroy`
    fn exec_destroy(raw: Raw) -> ();
    /// `cudaGraphExecUpdate`: the outer error is about the handles, the inner one about the graphs.
    fn exec_update(exec: Raw, graph: Raw) -> std::result::Result<(), Mismatch>;
    /// `cudaGraphExecChildGraphNodeSetParams`: an executable graph does in the place of a child graph's node what `child` does,
    /// which has to have the same shape as the node's graph.
    fn exec_set_child(exec: Raw, node: Raw, child: Raw) -> ();
    /// `cudaUserObjectRetain`
    fn object_retain(object: Raw, count: u32) -> ();
    /// `cudaUserObjectRelease`: the last reference destroys it.
    fn object_release(object: Raw, count: u32) -> ();
    /// `cudaGraphRetainUserObject`; with `moved` the caller's references become the graph's.
    fn retain_object(graph: Raw, object: Raw, count: u32, moved: bool) -> ();
    /// `cudaGraphReleaseUserObject`
    fn release_object(graph: Raw, object: Raw, count: u32) -> ();
}

/// `cudaGraphCreate`
pub(crate) fn create() -> Result<Raw> {
    Ok(current()?.graphs.create())
}

/// `cudaGraphClone`
pub(crate) fn clone(graph: Raw) -> Result<Raw> {
    current()?.graphs.clone_graph(graph)
}

/// `cudaUserObjectCreate`
pub(crate) fn object_create(destroy: HostCall, references: u32) -> Result<Raw> {
    Ok(current()?.graphs.object_create(destroy, references))
}

/// The program frees an address. True where that is all: its graph keeps the memory for its next launch.
///
/// # Errors
/// `InvalidValue` where it is a graph's, and no launch has allocated it since it was last freed.
pub(crate) fn take_back(core: &Core, addr: u64) -> Result<bool> {
    Ok(core.graph_allocations.end(addr)? == memory::Freeing::Kept)
}
