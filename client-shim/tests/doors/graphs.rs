//! Nodes of graphs whose parameters a program asks for, changes, and sets again.

use std::ffi::c_void;

use super::*;

/// `CUDA_KERNEL_NODE_PARAMS_v2`; `cudaKernelNodeParams` is its beginning.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParams {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: Handle,
    context: Handle,
}

impl KernelParams {
    fn nothing() -> Self {
        let null = std::ptr::null_mut();
        let (arguments, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        Self {
            function: null,
            grid: [1; 3],
            block: [1; 3],
            shared: 0,
            arguments,
            extra,
            kernel: null,
            context: null,
        }
    }
}

type AddNode<T> = unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, *const T) -> u32;
type NodeParams<T> = unsafe extern "C" fn(Handle, *mut T) -> u32;
type ExecParams<T> = unsafe extern "C" fn(Handle, Handle, *mut T) -> u32;
type NodeAttribute = unsafe extern "C" fn(Handle, u32, *mut [u64; 8]) -> u32;

/// A graph with one node that launches the kernel, with a value.
struct OneNode {
    launcher: Launcher,
    graph: Handle,
    node: Handle,
}

impl OneNode {
    fn new(value: u32) -> Self {
        let launcher = Launcher::new();
        let (mut graph, mut node) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut at = launcher.at;
        let mut value = value;
        let mut arguments = [(&raw mut at).cast::<c_void>(), (&raw mut value).cast()];
        let params = KernelParams {
            function: launcher.function,
            arguments: arguments.as_mut_ptr(),
            ..KernelParams::nothing()
        };
        // SAFETY: these are the types of the functions of these names; the arguments are the kernel's.
        unsafe {
            let library = launcher.library;
            assert_eq!(library.symbol::<GetFor<Handle, u32>>("cuGraphCreate")(&mut graph, 0), 0);
            let add: AddNode<KernelParams> = library.symbol("cuGraphAddKernelNode_v2");
            assert_eq!(add(&mut node, graph, std::ptr::null(), 0, &params), 0);
        }
        Self { launcher, graph, node }
    }

    fn instantiate(&self) -> Handle {
        let mut exec = std::ptr::null_mut();
        type Instantiate = unsafe extern "C" fn(*mut Handle, Handle, u64) -> u32;
        // SAFETY: the type of the function of this name.
        let code = unsafe {
            self.launcher.library.symbol::<Instantiate>("cuGraphInstantiateWithFlags")(
                &mut exec, self.graph, 0,
            )
        };
        assert_eq!(code, 0);
        exec
    }

    /// What the graph writes when it is launched.
    fn launch(&self, exec: Handle) -> u32 {
        // SAFETY: the type of the function of this name.
        let launch = unsafe {
            self.launcher.library.symbol::<unsafe extern "C" fn(Handle, Handle) -> u32>("cuGraphLaunch")
        };
        // SAFETY: as above.
        assert_eq!(unsafe { launch(exec, std::ptr::null_mut()) }, 0);
        self.launcher.written()
    }
}

/// The names that the doors have for the same.
const DOORS: [[&str; 3]; 2] = [
    ["cuGraphKernelNodeGetParams_v2", "cuGraphKernelNodeSetParams_v2", "cuGraphExecKernelNodeSetParams_v2"],
    ["cudaGraphKernelNodeGetParams", "cudaGraphKernelNodeSetParams", "cudaGraphExecKernelNodeSetParams"],
];

#[test]
fn kernel_parameters_that_were_got_once_are_set_again_and_again() {
    for [get, set, set_exec] in DOORS {
        let graph = OneNode::new(7);
        let mut params = KernelParams::nothing();
        // SAFETY: these are the types of the functions of these names.
        let (get, set, set_exec): (NodeParams<_>, NodeParams<_>, ExecParams<_>) = unsafe {
            let library = graph.launcher.library;
            (library.symbol(get), library.symbol(set), library.symbol(set_exec))
        };
        // SAFETY: the lists that are handed out are as long as the kernel has parameters, and stay.
        unsafe {
            assert_eq!(get(graph.node, &mut params), 0);
            let shown = *params.arguments.add(1);
            assert_eq!(shown.cast::<u32>().read(), 7);
            for round in 100..150_u32 {
                let mut value = round;
                *params.arguments.add(1) = (&raw mut value).cast();
                params.grid = [round % 3 + 1, 1, 1];
                assert_eq!(set(graph.node, &mut params), 0);
                // What was handed out shows the node's own copies again, in the same place.
                value = 0;
                assert_eq!((*params.arguments.add(1), shown.cast::<u32>().read()), (shown, round), "{value}");
                // A graph of which something is left allocated takes the place of what was given up.
                let fillers: Vec<Box<[u8]>> = (0..8).map(|n| vec![0xEE; 4 << n].into_boxed_slice()).collect();
                assert_eq!(set(graph.node, &mut params), 0);
                assert_eq!(graph.launch(graph.instantiate()), round, "{}", fillers.len());
            }
            // A change of the copies takes effect with the next setting.
            shown.cast::<u32>().write(4711);
            assert_eq!(graph.launch(graph.instantiate()), 149);
            let exec = graph.instantiate();
            assert_eq!(set_exec(exec, graph.node, &mut params), 0);
            assert_eq!(graph.launch(exec), 4711);
            assert_eq!(graph.launch(graph.instantiate()), 149, "the node itself was not set");
            assert_eq!(get(graph.node, &mut params), 0);
            assert_eq!(shown.cast::<u32>().read(), 149);
            assert_eq!((params.grid, params.function), ([149 % 3 + 1, 1, 1], graph.launcher.function));
        }
    }
}

#[test]
fn a_kernel_nodes_attributes_survive_new_parameters() {
    let (first, second) = (OneNode::new(1), OneNode::new(2));
    // SAFETY: these are the types of the functions of these names; results are variables.
    unsafe {
        let library = first.launcher.library;
        let get: NodeAttribute = library.symbol("cuGraphKernelNodeGetAttribute");
        let set: NodeAttribute = library.symbol("cuGraphKernelNodeSetAttribute");
        let copy: unsafe extern "C" fn(Handle, Handle) -> u32 =
            library.symbol("cuGraphKernelNodeCopyAttributes");
        let get_by_runtime: NodeAttribute = library.symbol("cudaGraphKernelNodeGetAttribute");
        let value = |get: NodeAttribute, node: &OneNode, attribute| {
            let mut value = [9; 8];
            assert_eq!(get(node.node, attribute, &mut value), 0, "attribute {attribute}");
            value
        };
        // Cooperation, a priority, an access window, clusters of one block.
        let set_values = [(2, [1, 0, 0]), (8, [3, 0, 0]), (1, [0x1000, 64, 5]), (4, [1 << 32 | 1, 1, 0])];
        for (attribute, [a, b, c]) in set_values {
            assert_eq!(value(get, &first, attribute), [0; 8]);
            assert_eq!(set(first.node, attribute, &mut [a, b, c, 0, 0, 0, 0, 0]), 0);
        }
        assert_eq!(set(first.node, 13, &mut [1, 0, 0, 0, 0, 0, 0, 0]), NOT_SUPPORTED);
        assert_eq!(set(first.node, 3, &mut [0; 8]), INVALID_VALUE, "only streams have it");
        assert_eq!(get(first.node, 8, std::ptr::null_mut()), INVALID_VALUE);

        let mut params = KernelParams::nothing();
        assert_eq!(library.symbol::<NodeParams<_>>(DOORS[0][0])(first.node, &mut params), 0);
        assert_eq!(library.symbol::<NodeParams<_>>(DOORS[0][1])(first.node, &mut params), 0);
        assert_eq!(copy(second.node, first.node), 0);
        for (attribute, [a, b, c]) in set_values {
            for node in [&first, &second] {
                assert_eq!(value(get, node, attribute), [a, b, c, 0, 0, 0, 0, 0], "attribute {attribute}");
                assert_eq!(value(get_by_runtime, node, attribute)[0], a);
            }
        }
        // Cooperation is more than remembered: as many blocks cannot be there together.
        params.grid = [1 << 20, 1, 1];
        assert_eq!(library.symbol::<NodeParams<_>>(DOORS[0][1])(first.node, &mut params), 0);
        let exec = first.instantiate();
        let launch: unsafe extern "C" fn(Handle, Handle) -> u32 = library.symbol("cuGraphLaunch");
        assert_eq!(launch(exec, std::ptr::null_mut()), TOO_LARGE);
    }
}

#[test]
fn copies_and_fills_are_set_to_what_was_got() {
    let launcher = Launcher::new();
    let library = launcher.library;
    let (mut graph, mut copy, mut fill, mut exec) =
        (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    let (first, second) = ([11_u32, 12, 13, 14], [21_u32, 22, 23, 24]);
    let mut at = 0_u64;
    // SAFETY: these are the types of the functions of these names; memory is as large as they are told.
    unsafe {
        assert_eq!(library.symbol::<GetFor<u64, usize>>("cuMemAlloc_v2")(&mut at, 32), 0);
        assert_eq!(library.symbol::<GetFor<Handle, u32>>("cuGraphCreate")(&mut graph, 0), 0);
        type AddCopy = unsafe extern "C" fn(
            *mut Handle,
            Handle,
            *const Handle,
            usize,
            u64,
            *const u32,
            usize,
            i32,
        ) -> u32;
        let add_copy: AddCopy = library.symbol("cudaGraphAddMemcpyNode1D");
        assert_eq!(add_copy(&mut copy, graph, std::ptr::null(), 0, at, first.as_ptr(), 16, 1), 0);
        // `cudaMemsetParams`: address, pitch, value and size of an element, width, height.
        let mut filled = [at + 16, 0, 7 | 4 << 32, 4, 1];
        let add_fill: AddNode<[u64; 5]> = library.symbol("cudaGraphAddMemsetNode");
        assert_eq!(add_fill(&mut fill, graph, &copy, 1, &filled), 0);
        type Instantiate = unsafe extern "C" fn(*mut Handle, Handle, u64) -> u32;
        let instantiate: Instantiate = library.symbol("cudaGraphInstantiateWithFlags");
        assert_eq!(instantiate(&mut exec, graph, 0), 0);
        let launch: unsafe extern "C" fn(Handle, Handle) -> u32 = library.symbol("cuGraphLaunch");
        let copy_out: CopyOut = library.symbol("cuMemcpyDtoH_v2");
        let result = |exec| {
            assert_eq!(launch(exec, std::ptr::null_mut()), 0);
            let mut all = [0_u32; 8];
            assert_eq!(copy_out(all.as_mut_ptr().cast(), at, 32), 0);
            all
        };
        assert_eq!(result(exec), [11, 12, 13, 14, 7, 7, 7, 7]);

        for (get, set, source) in [
            ("cudaGraphMemcpyNodeGetParams", "cudaGraphMemcpyNodeSetParams", 4),
            ("cuGraphMemcpyNodeGetParams", "cuGraphMemcpyNodeSetParams", 5),
        ] {
            // The source's address is the fifth word of `cudaMemcpy3DParms`, and the sixth of `CUDA_MEMCPY3D`.
            let mut words = [0_u64; 25];
            assert_eq!(library.symbol::<NodeParams<_>>(get)(copy, &mut words), 0);
            assert_eq!(words[source], first.as_ptr() as u64, "{get}");
            words[source] = second.as_ptr() as u64;
            assert_eq!(library.symbol::<NodeParams<_>>(set)(copy, &mut words), 0, "{set}");
            let exec_set = set.replace("Graph", "GraphExec");
            type SetFor = unsafe extern "C" fn(Handle, Handle, *mut [u64; 25], Handle) -> u32;
            // The runtime's function has no context, and does not look for one.
            let set_exec: SetFor = library.symbol(&exec_set);
            assert_eq!(set_exec(exec, copy, &mut words, std::ptr::null_mut()), 0, "{exec_set}");
            assert_eq!(result(exec)[..4], second);
            words[source] = first.as_ptr() as u64;
            assert_eq!(library.symbol::<NodeParams<_>>(set)(copy, &mut words), 0);
            let update: unsafe extern "C" fn(Handle, Handle, *mut [u64; 3]) -> u32 =
                library.symbol("cudaGraphExecUpdate");
            let mut info = [9; 3];
            assert_eq!((update(exec, graph, &mut info), info[0] as u32, info[1]), (0, 0, 0));
            assert_eq!(result(exec)[..4], first);
        }

        assert_eq!(library.symbol::<NodeParams<_>>("cuGraphMemsetNodeGetParams")(fill, &mut filled), 0);
        assert_eq!((filled[0], filled[2], filled[3], filled[4]), (at + 16, 7 | 4 << 32, 4, 1));
        filled[2] = 8 | 4 << 32;
        assert_eq!(library.symbol::<NodeParams<_>>("cuGraphMemsetNodeSetParams")(fill, &mut filled), 0);
        let set_exec: ExecParams<[u64; 5]> = library.symbol("cudaGraphExecMemsetNodeSetParams");
        assert_eq!(set_exec(exec, fill, &mut filled), 0);
        assert_eq!(result(exec)[4..], [8; 4]);
    }
}
