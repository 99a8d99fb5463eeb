//! Graphs of tensors, by cuDNN's backend interface: descriptors of tensors and operations become a graph, for which
//! cuDNN proposes engines; the first one of which a plan can be made is taken, and the plan kept.

use super::bench::Room;
use super::table::*;
use super::values::{Number, refused};
use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{DataType, DnnGraph, DnnNode, DnnNodeKind, DnnTensor, DnnType, NO_TENSOR, Operation};
use std::ffi::c_void;

const STATUS: Statuses = Statuses {
    prefix: "CUDNN_STATUS_",
    known: &[
        (1001, "NOT_INITIALIZED", Code::NotInitialized),
        (1002, "SUBLIBRARY_VERSION_MISMATCH", Code::NotSupported),
        (1008, "SUBLIBRARY_LOADING_FAILED", Code::NotSupported),
        (2000, "BAD_PARAM", Code::InvalidValue),
        (2002, "BAD_PARAM_NULL_POINTER", Code::InvalidValue),
        (2003, "BAD_PARAM_MISALIGNED_POINTER", Code::InvalidValue),
        (2004, "BAD_PARAM_NOT_FINALIZED", Code::InvalidValue),
        (2005, "BAD_PARAM_OUT_OF_BOUND", Code::InvalidValue),
        (2006, "BAD_PARAM_SIZE_INSUFFICIENT", Code::InvalidValue),
        (2008, "BAD_PARAM_SHAPE_MISMATCH", Code::InvalidValue),
        (2010, "BAD_PARAM_ATTRIBUTE_TYPE", Code::InvalidValue),
        (3000, "NOT_SUPPORTED", Code::NotSupported),
        (3001, "NOT_SUPPORTED_GRAPH_PATTERN", Code::NotSupported),
        (3002, "NOT_SUPPORTED_SHAPE", Code::NotSupported),
        (3003, "NOT_SUPPORTED_DATA_TYPE", Code::NotSupported),
        (3004, "NOT_SUPPORTED_LAYOUT", Code::NotSupported),
        (3005, "NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER", Code::NotSupported),
        (3007, "NOT_SUPPORTED_ARCH_MISMATCH", Code::NotSupported),
        (3011, "NOT_SUPPORTED_PADDING", Code::NotSupported),
        (4003, "INTERNAL_ERROR_HOST_ALLOCATION_FAILED", Code::OutOfMemory),
        (4004, "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", Code::OutOfMemory),
    ],
};

functions! {
    property(u32, *mut i32): one "cudnnGetProperty";
    create(*mut Object): one "cudnnCreate";
    set_stream(Object, Object): one "cudnnSetStream";
    describe(u32, *mut Object): one "cudnnBackendCreateDescriptor";
    destroy(Object): one "cudnnBackendDestroyDescriptor";
    set(Object, u32, u32, i64, *const c_void): one "cudnnBackendSetAttribute";
    get(Object, u32, u32, i64, *mut i64, *mut c_void): one "cudnnBackendGetAttribute";
    finalize(Object): one "cudnnBackendFinalize";
    execute(Object, Object, Object): one "cudnnBackendExecute";
}

/// `cudnnBackendDescriptorType_t`
mod sort {
    pub(super) const POINTWISE: u32 = 0;
    pub(super) const CONVOLUTION: u32 = 1;
    pub(super) const ENGINE_CONFIG: u32 = 3;
    pub(super) const HEURISTIC: u32 = 4;
    pub(super) const PLAN: u32 = 5;
    pub(super) const CONVOLUTION_FORWARD: u32 = 10;
    pub(super) const CONVOLUTION_FILTER: u32 = 11;
    pub(super) const CONVOLUTION_DATA: u32 = 12;
    pub(super) const OPERATION_POINTWISE: u32 = 13;
    pub(super) const GRAPH: u32 = 15;
    pub(super) const PACK: u32 = 16;
    pub(super) const TENSOR: u32 = 17;
    pub(super) const MATMUL: u32 = 18;
    pub(super) const OPERATION_MATMUL: u32 = 19;
    pub(super) const REDUCTION: u32 = 21;
    pub(super) const OPERATION_REDUCTION: u32 = 22;
}

/// `cudnnBackendAttributeType_t`
mod kind {
    pub(super) const HANDLE: u32 = 0;
    pub(super) const DATA_TYPE: u32 = 1;
    pub(super) const BOOLEAN: u32 = 2;
    pub(super) const INT64: u32 = 3;
    pub(super) const FLOAT: u32 = 4;
    pub(super) const DOUBLE: u32 = 5;
    pub(super) const POINTER: u32 = 6;
    pub(super) const CONVOLUTION_MODE: u32 = 7;
    pub(super) const HEURISTIC_MODE: u32 = 8;
    pub(super) const POINTWISE_MODE: u32 = 14;
    pub(super) const DESCRIPTOR: u32 = 15;
    pub(super) const REDUCTION_OPERATOR: u32 = 18;
}

/// `cudnnBackendAttributeName_t`
mod name {
    pub(super) const POINTWISE_MODE: u32 = 0;
    pub(super) const POINTWISE_PRECISION: u32 = 1;
    pub(super) const RELU_LOWER: u32 = 3;
    pub(super) const RELU_UPPER: u32 = 4;
    pub(super) const RELU_SLOPE: u32 = 5;
    pub(super) const ELU_ALPHA: u32 = 6;
    pub(super) const SOFTPLUS_BETA: u32 = 7;
    pub(super) const SWISH_BETA: u32 = 8;
    pub(super) const CONVOLUTION_COMPUTE: u32 = 100;
    pub(super) const CONVOLUTION_MODE: u32 = 101;
    pub(super) const DILATIONS: u32 = 102;
    pub(super) const STRIDES: u32 = 103;
    pub(super) const POST_PADDINGS: u32 = 104;
    pub(super) const PRE_PADDINGS: u32 = 105;
    pub(super) const SPATIAL_DIMENSIONS: u32 = 106;
    pub(super) const HEURISTIC_MODE: u32 = 200;
    pub(super) const HEURISTIC_GRAPH: u32 = 201;
    pub(super) const HEURISTIC_RESULTS: u32 = 202;
    pub(super) const PLAN_HANDLE: u32 = 400;
    pub(super) const PLAN_CONFIG: u32 = 401;
    pub(super) const PLAN_ROOM: u32 = 402;
    pub(super) const FORWARD: u32 = 700;
    pub(super) const BACKWARD_DATA: u32 = 706;
    pub(super) const BACKWARD_FILTER: u32 = 712;
    pub(super) const POINTWISE: u32 = 750;
    pub(super) const POINTWISE_X: u32 = 751;
    pub(super) const POINTWISE_B: u32 = 752;
    pub(super) const POINTWISE_Y: u32 = 753;
    pub(super) const POINTWISE_ALPHA: u32 = 754;
    pub(super) const POINTWISE_BETA: u32 = 755;
    pub(super) const POINTWISE_DX: u32 = 756;
    pub(super) const POINTWISE_DY: u32 = 757;
    pub(super) const POINTWISE_T: u32 = 758;
    pub(super) const GRAPH_HANDLE: u32 = 800;
    pub(super) const GRAPH_OPERATIONS: u32 = 801;
    pub(super) const TENSOR_ALIGNMENT: u32 = 900;
    pub(super) const TENSOR_TYPE: u32 = 901;
    pub(super) const TENSOR_DIMENSIONS: u32 = 902;
    pub(super) const TENSOR_STRIDES: u32 = 903;
    pub(super) const TENSOR_ID: u32 = 906;
    pub(super) const TENSOR_VIRTUAL: u32 = 907;
    pub(super) const TENSOR_BY_VALUE: u32 = 908;
    pub(super) const PACK_IDS: u32 = 1000;
    pub(super) const PACK_POINTERS: u32 = 1001;
    pub(super) const PACK_ROOM: u32 = 1003;
    pub(super) const MATMUL_COMPUTE: u32 = 1500;
    pub(super) const MATMUL_A: u32 = 1520;
    pub(super) const MATMUL_B: u32 = 1521;
    pub(super) const MATMUL_C: u32 = 1522;
    pub(super) const MATMUL: u32 = 1523;
    pub(super) const REDUCTION_OPERATOR: u32 = 1600;
    pub(super) const REDUCTION_COMPUTE: u32 = 1601;
    pub(super) const REDUCTION_X: u32 = 1610;
    pub(super) const REDUCTION_Y: u32 = 1611;
    pub(super) const REDUCTION: u32 = 1612;
}

/// `CUDNN_HEUR_MODE_INSTANT` and `CUDNN_HEUR_MODE_FALLBACK`: whom to ask for engines, one after the other.
const MODES: [i32; 2] = [0, 2];
/// How many engines each may propose.
const PROPOSALS: usize = 16;
/// How many plans are kept for a stream.
const KEPT: usize = 64;
/// What addresses are taken to be a multiple of, where they are.
const ALIGNMENT: u64 = 16;

/// A new handle in the current context.
pub(super) fn create(table: &Table) -> Result<Object> {
    made(|handle| call!(table.create(handle)))
}

/// Major version, minor version and what comes then.
pub(super) fn version(table: &Table) -> Result<u32> {
    assembled(10_000, |which, part| call!(table.property(which, part)))
}

/// Descriptors that live as long as their maker wants them.
struct Descriptors<'a> {
    table: &'a Table,
    all: Vec<Object>,
}

impl<'a> Descriptors<'a> {
    fn new(table: &'a Table) -> Self {
        Self { table, all: Vec::new() }
    }

    fn make(&mut self, sort: u32) -> Result<Object> {
        let (table, mut object) = (self.table, std::ptr::null_mut());
        call!(table.describe(sort, &mut object))?;
        self.all.push(object);
        Ok(object)
    }

    /// Sets an attribute. Its elements are of the size that the kind says.
    fn set<T: Copy>(&self, object: Object, name: u32, kind: u32, values: &[T]) -> Result<()> {
        let table = self.table;
        call!(table.set(object, name, kind, values.len() as i64, values.as_ptr().cast()))
    }

    fn finalize(&self, object: Object) -> Result<Object> {
        let table = self.table;
        call!(table.finalize(object)).map(|()| object)
    }

    /// Lets the descriptors go on living, and says which they are.
    fn keep(mut self) -> Vec<Object> {
        std::mem::take(&mut self.all)
    }
}

impl Drop for Descriptors<'_> {
    fn drop(&mut self) {
        destroy(self.table, &self.all);
    }
}

/// Destroys descriptors, those that are made of others first.
fn destroy(table: &Table, objects: &[Object]) {
    for object in objects.iter().rev() {
        let _ = call!(table.destroy(*object));
    }
}

/// `cudnnDataType_t` of what is computed with.
fn compute_type(graph: &DnnGraph) -> DnnType {
    if graph.tensors.iter().any(|tensor| tensor.kind == DnnType::F64) { DnnType::F64 } else { DnnType::F32 }
}

/// Whether nobody but the graph sees a tensor.
fn is_virtual(tensor: &DnnTensor) -> bool {
    tensor.addr == 0 && tensor.value.is_none()
}

/// What a tensor's address is a multiple of.
fn alignment(tensor: &DnnTensor) -> u64 {
    if tensor.addr.is_multiple_of(ALIGNMENT) { ALIGNMENT } else { tensor.kind.bytes() }
}

/// What a graph is, wherever its tensors lie.
fn key(graph: &DnnGraph) -> Vec<u8> {
    let mut form = graph.clone();
    for tensor in &mut form.tensors {
        if tensor.addr != 0 {
            tensor.addr = alignment(tensor);
        }
        tensor.value = tensor.value.map(|_| 0.0);
    }
    Operation::DnnGraph(form).written().1
}

/// A number as it lies in memory.
fn number(value: f64, kind: DnnType) -> Number {
    Number::new([value, 0.0], kind.data_type().unwrap_or(DataType::I64))
}

/// A graph that is being described.
struct Builder<'a> {
    descriptors: Descriptors<'a>,
    handle: Object,
    compute: DnnType,
    tensors: Vec<Object>,
}

impl Builder<'_> {
    fn tensor(&mut self, place: usize, tensor: &DnnTensor) -> Result<()> {
        let d = &mut self.descriptors;
        let object = d.make(sort::TENSOR)?;
        d.set(object, name::TENSOR_TYPE, kind::DATA_TYPE, &[tensor.kind as u32])?;
        d.set(object, name::TENSOR_DIMENSIONS, kind::INT64, &tensor.dims)?;
        d.set(object, name::TENSOR_STRIDES, kind::INT64, &tensor.strides)?;
        d.set(object, name::TENSOR_ID, kind::INT64, &[identity(place)])?;
        d.set(object, name::TENSOR_ALIGNMENT, kind::INT64, &[alignment(tensor) as i64])?;
        if tensor.value.is_some() {
            d.set(object, name::TENSOR_BY_VALUE, kind::BOOLEAN, &[1u8])?;
        } else if is_virtual(tensor) {
            d.set(object, name::TENSOR_VIRTUAL, kind::BOOLEAN, &[1u8])?;
        }
        self.tensors.push(d.finalize(object)?);
        Ok(())
    }

    /// Lets an operation use a tensor, if the node names one.
    fn uses(&self, operation: Object, name: u32, tensor: u32) -> Result<()> {
        if tensor == NO_TENSOR {
            return Ok(());
        }
        let Some(tensor) = self.tensors.get(tensor as usize) else {
            return Err(Error::new(Code::InvalidValue, "A node of a graph names a tensor that there is not"));
        };
        self.descriptors.set(operation, name, kind::DESCRIPTOR, &[*tensor])
    }

    /// A factor, which is as wide as what is computed with.
    fn factor(&self, operation: Object, name: u32, value: f64) -> Result<()> {
        let d = &self.descriptors;
        match self.compute {
            DnnType::F64 => d.set(operation, name, kind::DOUBLE, &[value]),
            _ => d.set(operation, name, kind::FLOAT, &[value as f32]),
        }
    }

    fn node(&mut self, node: &DnnNode) -> Result<Object> {
        let operation = match node.kind {
            DnnNodeKind::Convolution => {
                self.convolution(node, sort::CONVOLUTION_FORWARD, name::FORWARD, [704, 703, 705])
            }
            DnnNodeKind::ConvolutionData => {
                self.convolution(node, sort::CONVOLUTION_DATA, name::BACKWARD_DATA, [711, 709, 710])
            }
            DnnNodeKind::ConvolutionFilter => {
                self.convolution(node, sort::CONVOLUTION_FILTER, name::BACKWARD_FILTER, [716, 717, 715])
            }
            DnnNodeKind::Pointwise => self.pointwise(node),
            DnnNodeKind::Matmul => self.matmul(node),
            DnnNodeKind::Reduction => self.reduction(node),
            other => refused(format!("{other:?} in a graph of tensors")),
        }?;
        self.descriptors.finalize(operation)
    }

    fn convolution(&mut self, node: &DnnNode, sort: u32, first: u32, [x, w, y]: [u32; 3]) -> Result<Object> {
        let compute = self.compute as u32;
        let d = &mut self.descriptors;
        let form = d.make(sort::CONVOLUTION)?;
        d.set(form, name::CONVOLUTION_COMPUTE, kind::DATA_TYPE, &[compute])?;
        d.set(form, name::CONVOLUTION_MODE, kind::CONVOLUTION_MODE, &[node.mode])?;
        d.set(form, name::SPATIAL_DIMENSIONS, kind::INT64, &[node.stride.len() as i64])?;
        d.set(form, name::DILATIONS, kind::INT64, &node.dilation)?;
        d.set(form, name::STRIDES, kind::INT64, &node.stride)?;
        d.set(form, name::PRE_PADDINGS, kind::INT64, &node.pre)?;
        d.set(form, name::POST_PADDINGS, kind::INT64, &node.post)?;
        d.finalize(form)?;
        let operation = d.make(sort)?;
        // Each kind has its attributes one behind the other: alpha, beta, the convolution, and the tensors.
        d.set(operation, first + 2, kind::DESCRIPTOR, &[form])?;
        self.factor(operation, first, node.alpha)?;
        self.factor(operation, first + 1, node.beta)?;
        self.uses(operation, x, node.x)?;
        self.uses(operation, w, node.w)?;
        self.uses(operation, y, node.y)?;
        Ok(operation)
    }

    fn pointwise(&mut self, node: &DnnNode) -> Result<Object> {
        let compute = self.compute as u32;
        let d = &mut self.descriptors;
        let form = d.make(sort::POINTWISE)?;
        d.set(form, name::POINTWISE_MODE, kind::POINTWISE_MODE, &[node.mode])?;
        d.set(form, name::POINTWISE_PRECISION, kind::DATA_TYPE, &[compute])?;
        let [lower, upper, slope, coefficient] = node.settings;
        // Settings of other functions than the one at hand are not taken.
        let settings: &[(u32, f64)] = match node.mode {
            100 | 200 => &[(name::RELU_LOWER, lower), (name::RELU_UPPER, upper), (name::RELU_SLOPE, slope)],
            103 | 203 => &[(name::ELU_ALPHA, coefficient)],
            105 | 205 => &[(name::SOFTPLUS_BETA, coefficient)],
            106 | 206 => &[(name::SWISH_BETA, coefficient)],
            _ => &[],
        };
        for (name, value) in settings.iter().filter(|(_, value)| value.is_finite()) {
            d.set(form, *name, kind::DOUBLE, &[*value])?;
        }
        d.finalize(form)?;
        let operation = d.make(sort::OPERATION_POINTWISE)?;
        d.set(operation, name::POINTWISE, kind::DESCRIPTOR, &[form])?;
        let gradient = (200..300).contains(&node.mode);
        let (x, w, y) = if gradient {
            (name::POINTWISE_DY, name::POINTWISE_X, name::POINTWISE_DX)
        } else {
            (name::POINTWISE_X, name::POINTWISE_B, name::POINTWISE_Y)
        };
        self.uses(operation, x, node.x)?;
        self.uses(operation, w, node.w)?;
        self.uses(operation, name::POINTWISE_T, node.t)?;
        self.uses(operation, y, node.y)?;
        if !gradient {
            self.factor(operation, name::POINTWISE_ALPHA, node.alpha)?;
            if node.w != NO_TENSOR {
                self.factor(operation, name::POINTWISE_BETA, node.beta)?;
            }
        }
        Ok(operation)
    }

    fn matmul(&mut self, node: &DnnNode) -> Result<Object> {
        let compute = self.compute as u32;
        let d = &mut self.descriptors;
        let form = d.make(sort::MATMUL)?;
        d.set(form, name::MATMUL_COMPUTE, kind::DATA_TYPE, &[compute])?;
        d.finalize(form)?;
        let operation = d.make(sort::OPERATION_MATMUL)?;
        d.set(operation, name::MATMUL, kind::DESCRIPTOR, &[form])?;
        self.uses(operation, name::MATMUL_A, node.x)?;
        self.uses(operation, name::MATMUL_B, node.w)?;
        self.uses(operation, name::MATMUL_C, node.y)?;
        Ok(operation)
    }

    fn reduction(&mut self, node: &DnnNode) -> Result<Object> {
        let compute = self.compute as u32;
        let d = &mut self.descriptors;
        let form = d.make(sort::REDUCTION)?;
        d.set(form, name::REDUCTION_OPERATOR, kind::REDUCTION_OPERATOR, &[node.mode])?;
        d.set(form, name::REDUCTION_COMPUTE, kind::DATA_TYPE, &[compute])?;
        d.finalize(form)?;
        let operation = d.make(sort::OPERATION_REDUCTION)?;
        d.set(operation, name::REDUCTION, kind::DESCRIPTOR, &[form])?;
        self.uses(operation, name::REDUCTION_X, node.x)?;
        self.uses(operation, name::REDUCTION_Y, node.y)?;
        Ok(operation)
    }

    /// A plan by one of the engines that cuDNN proposes.
    fn plan(&mut self, graph: Object) -> Result<Object> {
        let mut why = None;
        for mode in MODES {
            for config in self.engines(graph, mode).unwrap_or_default() {
                match self.plan_by(config) {
                    Ok(plan) => return Ok(plan),
                    Err(error) => why = Some(error),
                }
            }
        }
        match why {
            Some(error) => Err(error),
            None => refused("such a graph of tensors: cuDNN proposes no engine for it"),
        }
    }

    fn engines(&mut self, graph: Object, mode: i32) -> Result<Vec<Object>> {
        let d = &mut self.descriptors;
        let heuristic = d.make(sort::HEURISTIC)?;
        d.set(heuristic, name::HEURISTIC_GRAPH, kind::DESCRIPTOR, &[graph])?;
        d.set(heuristic, name::HEURISTIC_MODE, kind::HEURISTIC_MODE, &[mode])?;
        d.finalize(heuristic)?;
        let mut configs = Vec::new();
        for _ in 0..PROPOSALS {
            configs.push(d.make(sort::ENGINE_CONFIG)?);
        }
        let (table, most, mut count) = (d.table, PROPOSALS as i64, 0);
        let place = configs.as_mut_ptr().cast();
        call!(table.get(heuristic, name::HEURISTIC_RESULTS, kind::DESCRIPTOR, most, &mut count, place))?;
        configs.truncate(usize::try_from(count).unwrap_or(0));
        Ok(configs)
    }

    fn plan_by(&mut self, config: Object) -> Result<Object> {
        let d = &mut self.descriptors;
        let plan = d.make(sort::PLAN)?;
        d.set(plan, name::PLAN_HANDLE, kind::HANDLE, &[self.handle])?;
        d.set(plan, name::PLAN_CONFIG, kind::DESCRIPTOR, &[config])?;
        d.finalize(plan)
    }
}

/// The number by which a tensor is known.
fn identity(place: usize) -> i64 {
    place as i64 + 1
}

/// A plan in the current context.
struct Made {
    key: Vec<u8>,
    plan: Object,
    /// Bytes that it works in.
    room: u64,
    /// What it was made of, and itself.
    descriptors: Vec<Object>,
}

fn make(table: &Table, handle: Object, graph: &DnnGraph) -> Result<Made> {
    let (descriptors, compute) = (Descriptors::new(table), compute_type(graph));
    let mut builder = Builder { descriptors, handle, compute, tensors: Vec::new() };
    for (place, tensor) in graph.tensors.iter().enumerate() {
        builder.tensor(place, tensor)?;
    }
    let operations = graph.nodes.iter().map(|node| builder.node(node)).collect::<Result<Vec<_>>>()?;
    let d = &mut builder.descriptors;
    let object = d.make(sort::GRAPH)?;
    d.set(object, name::GRAPH_HANDLE, kind::HANDLE, &[handle])?;
    d.set(object, name::GRAPH_OPERATIONS, kind::DESCRIPTOR, &operations)?;
    d.finalize(object)?;
    let plan = builder.plan(object)?;
    let (mut room, mut count) = (0i64, 0);
    call!(table.get(plan, name::PLAN_ROOM, kind::INT64, 1, &mut count, (&raw mut room).cast()))?;
    Ok(Made { key: key(graph), plan, room: room.max(0) as u64, descriptors: builder.descriptors.keep() })
}

/// The plans of a stream, the one that was used last at the end.
#[derive(Default)]
pub(super) struct Plans(Vec<Made>);

impl Plans {
    /// Carries out a graph.
    pub(super) fn run(
        &mut self,
        table: &Table,
        handle: Object,
        graph: &DnnGraph,
        stream: Object,
        room: &mut Room<'_>,
    ) -> Result<()> {
        call!(table.set_stream(handle, stream))?;
        let key = key(graph);
        let made = match self.0.iter().position(|made| made.key == key) {
            Some(at) => self.0.remove(at),
            None => {
                if self.0.len() >= KEPT {
                    destroy(table, &self.0.remove(0).descriptors);
                }
                make(table, handle, graph)?
            }
        };
        let done = execute(table, handle, &made, graph, room);
        self.0.push(made);
        done
    }
}

/// Lets a plan work on a graph's tensors.
fn execute(table: &Table, handle: Object, made: &Made, graph: &DnnGraph, room: &mut Room<'_>) -> Result<()> {
    let values: Vec<_> = graph.tensors.iter().map(|t| number(t.value.unwrap_or(0.0), t.kind)).collect();
    let (mut ids, mut pointers) = (Vec::new(), Vec::new());
    for (place, tensor) in graph.tensors.iter().enumerate().filter(|(_, tensor)| !is_virtual(tensor)) {
        ids.push(identity(place));
        // What is given by value lies on the host, and is read in the call.
        pointers.push(match tensor.value {
            Some(_) => values[place].place(),
            None => std::ptr::without_provenance(tensor.addr as usize),
        });
    }
    let mut d = Descriptors::new(table);
    let pack = d.make(sort::PACK)?;
    d.set(pack, name::PACK_POINTERS, kind::POINTER, &pointers)?;
    d.set(pack, name::PACK_IDS, kind::INT64, &ids)?;
    let place: *const c_void = std::ptr::without_provenance(room.take(made.room)? as usize);
    d.set(pack, name::PACK_ROOM, kind::POINTER, &[place])?;
    d.finalize(pack)?;
    call!(table.execute(handle, made.plan, pack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_told_apart_by_form_and_alignment_alone() {
        let graph = |addr, value| DnnGraph {
            tensors: vec![DnnTensor { addr, value, dims: vec![2], strides: vec![1], ..DnnTensor::default() }],
            nodes: Vec::new(),
        };
        assert_eq!(key(&graph(0x1000, None)), key(&graph(0x2010, None)));
        assert_ne!(key(&graph(0x1000, None)), key(&graph(0x1004, None)));
        assert_ne!(key(&graph(0x1000, None)), key(&graph(0, None)));
        assert_eq!(key(&graph(0, Some(1.0))), key(&graph(0, Some(2.0))));
    }
}
