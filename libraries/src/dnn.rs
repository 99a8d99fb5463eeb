//! Operations of cuDNN: graphs of convolutions, of what is computed element by element, of products and reductions, over tensors.

use rgpu_wire::records;

use crate::types::{DataType, numbered};

numbered! {
    /// The type of a tensor's elements, numbered as `cudnnDataType_t`.
    DnnType, "type of a tensor" {
        /// 32-bit floating point.
        #[default]
        F32 = 0,
        /// 64-bit floating point.
        F64 = 1,
        /// IEEE half precision.
        F16 = 2,
        /// 8-bit signed integers.
        I8 = 3,
        /// 32-bit signed integers.
        I32 = 4,
        /// 8-bit unsigned integers.
        U8 = 6,
        /// The upper half of 32-bit floating point.
        Bf16 = 9,
        /// 64-bit signed integers.
        I64 = 10,
        /// Truth values, a byte each.
        Bool = 11,
    }
    /// What a node computes.
    DnnNodeKind, "node of a graph of tensors" {
        /// `y = alpha conv(x, w) + beta y`.
        #[default]
        Convolution = 0,
        /// The gradient of a convolution's input `y` from that of its output `x`: `y = alpha conv'(x, w) + beta y`.
        ConvolutionData = 1,
        /// The gradient of a convolution's filter `y` from its input `x` and that of its output `w`.
        ConvolutionFilter = 2,
        /// `y = f(alpha x, beta w, t)`, element by element; `mode` is a `cudnnPointwiseMode_t`.
        Pointwise = 3,
        /// `y = x w` for each of a batch; the last two dimensions are the matrices'.
        Matmul = 4,
        /// The dimensions that are 1 in `y` are reduced; `mode` is a `cudnnReduceTensorOp_t`.
        Reduction = 5,
        /// Windows of `x` become their greatest element or their mean; `mode` is a `cudnnPoolingMode_t`.
        Pooling = 6,
        /// The gradient of the input `y` of a pooling: `x` is its input, `w` its output, `t` the gradient of its output.
        PoolingBackward = 7,
    }
}

impl DnnType {
    /// The same type among those that all libraries have; `None` for `u8` and booleans, which others lack.
    pub fn data_type(self) -> Option<DataType> {
        match self {
            DnnType::F32 => Some(DataType::F32),
            DnnType::F64 => Some(DataType::F64),
            DnnType::F16 => Some(DataType::F16),
            DnnType::Bf16 => Some(DataType::Bf16),
            DnnType::I8 => Some(DataType::I8),
            DnnType::I32 => Some(DataType::I32),
            DnnType::I64 => Some(DataType::I64),
            DnnType::U8 | DnnType::Bool => None,
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

/// No tensor.
pub const NO_TENSOR: u32 = u32::MAX;

records! {
    /// A tensor of a graph.
    DnnTensor {
        /// Where it lies; 0 for one that only nodes of the graph see, or that is given by value.
        addr: u64,
        /// Its elements' type.
        kind: DnnType,
        /// Its dimensions, the slowest first.
        dims: Vec<i64>,
        /// Elements from one to the next of each dimension.
        strides: Vec<i64>,
        /// Its only element, where it is given by value.
        value: Option<f64>,
    }
    /// A node of a graph. Tensors are named by their places in the graph's list.
    DnnNode {
        /// What is computed.
        kind: DnnNodeKind,
        /// Its first operand.
        x: u32,
        /// Its second operand, or [`NO_TENSOR`].
        w: u32,
        /// Its third operand, or [`NO_TENSOR`].
        t: u32,
        /// Its result.
        y: u32,
        /// A factor.
        alpha: f64,
        /// Another one.
        beta: f64,
        /// Which of its kind; for convolutions 0 if the filter is mirrored, as mathematics has it, and 1 if not.
        mode: u32,
        /// Padding before the first element of each spatial dimension.
        pre: Vec<i64>,
        /// Padding behind the last one.
        post: Vec<i64>,
        /// Steps of the window in each spatial dimension.
        stride: Vec<i64>,
        /// Distances of the window's elements in each spatial dimension; for pooling, the window's lengths.
        dilation: Vec<i64>,
        /// What an activation needs: its lower and upper bound, the slope below, and its coefficient.
        settings: [f64; 4],
    }
    /// A graph, whose nodes are done in their order.
    DnnGraph {
        /// The tensors.
        tensors: Vec<DnnTensor>,
        /// The nodes.
        nodes: Vec<DnnNode>,
    }
}
