//! Operation graphs: what a program's descriptors come to.

use rgpu_libraries::{DnnGraph, DnnNode, DnnNodeKind, DnnTensor, DnnType, NO_TENSOR};

use super::super::{Result, Status};
use super::attribute::{Attribute, name};
use super::descriptor::{State, finalized, sort};
use crate::core::error;

/// A graph whose tensors have no places yet.
pub(in super::super) struct Graph {
    /// What is sent, once the tensors' addresses are filled in.
    pub(super) form: DnnGraph,
    /// The program's number for each tensor, and whether the program gives it: by address or by value.
    pub(super) tensors: Vec<(i64, Given)>,
}

/// How a tensor's place is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// The program names its address.
    Address,
    /// The program names where its one element lies in the host's memory.
    Value,
    /// Nobody but the graph sees it.
    Inside,
}

fn number(state: &State, name: u32) -> Option<i64> {
    state.get(name).and_then(Attribute::number)
}

fn is_set(state: &State, name: u32) -> bool {
    number(state, name).is_some_and(|flag| flag != 0)
}

/// A type of tensors that is understood.
fn type_of(state: &State) -> Result<DnnType> {
    let number = number(state, name::TENSOR_TYPE).ok_or(Status::BadParam)?;
    u32::try_from(number).ok().and_then(DnnType::from_number).ok_or_else(|| {
        error::say_once(&format!("cuDNN: tensors of the type {number} are not implemented"));
        Status::NotSupported
    })
}

fn words(state: &State, name: u32) -> Vec<i64> {
    state.get(name).map(Attribute::words).unwrap_or_default()
}

/// Whether a tensor's attributes make one.
pub(super) fn check_tensor(state: &State) -> Result<()> {
    type_of(state)?;
    let (dims, strides) = (words(state, name::TENSOR_DIMENSIONS), words(state, name::TENSOR_STRIDES));
    let sane = dims.len() == strides.len() && (1..=8).contains(&dims.len());
    if !sane || dims.iter().any(|&length| length < 1) || strides.iter().any(|&stride| stride < 0) {
        return Err(Status::BadParam);
    }
    if number(state, name::TENSOR_VECTOR).is_some_and(|count| count > 1) {
        error::say_once("cuDNN: tensors whose elements are vectors are not implemented");
        return Err(Status::NotSupported);
    }
    Ok(())
}

impl Graph {
    /// What the operations of a graph's descriptor come to.
    pub(super) fn new(state: &State) -> Result<Self> {
        let mut graph = Self { form: DnnGraph::default(), tensors: Vec::new() };
        for handle in words(state, name::GRAPH_OPERATIONS) {
            let node = graph.node(&finalized(handle as usize)?)?;
            graph.form.nodes.push(node);
        }
        if graph.form.nodes.is_empty() { Err(Status::BadParam) } else { Ok(graph) }
    }

    /// The place of the tensor that an operation's attribute names; [`NO_TENSOR`] where it names none.
    fn tensor(&mut self, operation: &State, name: u32) -> Result<u32> {
        if operation.get(name).is_none_or(|attribute| attribute.count() == 0) {
            return Ok(NO_TENSOR);
        }
        let tensor = operation.descriptor(name)?;
        if tensor.sort != sort::TENSOR {
            return Err(Status::BadParam);
        }
        let id = number(&tensor, name::TENSOR_ID).ok_or(Status::BadParam)?;
        if let Some(place) = self.tensors.iter().position(|(known, _)| *known == id) {
            return Ok(place as u32);
        }
        let given = if is_set(&tensor, name::TENSOR_BY_VALUE) {
            Given::Value
        } else if is_set(&tensor, name::TENSOR_VIRTUAL) {
            Given::Inside
        } else {
            Given::Address
        };
        self.form.tensors.push(DnnTensor {
            addr: 0,
            kind: type_of(&tensor)?,
            dims: words(&tensor, name::TENSOR_DIMENSIONS),
            strides: words(&tensor, name::TENSOR_STRIDES),
            value: None,
        });
        self.tensors.push((id, given));
        Ok(self.tensors.len() as u32 - 1)
    }

    fn node(&mut self, operation: &State) -> Result<DnnNode> {
        match operation.sort {
            // Each kind has its attributes one behind the other: alpha, beta, the convolution, and the tensors.
            sort::CONVOLUTION_FORWARD => {
                self.convolution(operation, DnnNodeKind::Convolution, 700, [704, 703, 705])
            }
            sort::CONVOLUTION_DATA => {
                self.convolution(operation, DnnNodeKind::ConvolutionData, 706, [711, 709, 710])
            }
            sort::CONVOLUTION_FILTER => {
                self.convolution(operation, DnnNodeKind::ConvolutionFilter, 712, [716, 717, 715])
            }
            sort::POINTWISE => self.pointwise(operation),
            sort::MATMUL => Ok(DnnNode {
                kind: DnnNodeKind::Matmul,
                x: self.tensor(operation, name::MATMUL_A)?,
                w: self.tensor(operation, name::MATMUL_B)?,
                t: NO_TENSOR,
                y: self.tensor(operation, name::MATMUL_C)?,
                alpha: 1.0,
                ..DnnNode::default()
            }),
            sort::REDUCTION => {
                let reduction = operation.descriptor(name::REDUCTION)?;
                Ok(DnnNode {
                    kind: DnnNodeKind::Reduction,
                    x: self.tensor(operation, name::REDUCTION_X)?,
                    w: NO_TENSOR,
                    t: NO_TENSOR,
                    y: self.tensor(operation, name::REDUCTION_Y)?,
                    mode: number(&reduction, name::REDUCTION_OPERATOR).unwrap_or(0) as u32,
                    alpha: 1.0,
                    ..DnnNode::default()
                })
            }
            other => {
                error::say_once(&format!(
                    "cuDNN: operations of the descriptor type {other} are not implemented; the program gets \"not supported\""
                ));
                Err(Status::NotSupported)
            }
        }
    }

    fn convolution(
        &mut self,
        operation: &State,
        kind: DnnNodeKind,
        first: u32,
        [x, w, y]: [u32; 3],
    ) -> Result<DnnNode> {
        let form = operation.descriptor(first + 2)?;
        let factor = |name, default| operation.get(name).and_then(Attribute::real).unwrap_or(default);
        Ok(DnnNode {
            kind,
            x: self.tensor(operation, x)?,
            w: self.tensor(operation, w)?,
            t: NO_TENSOR,
            y: self.tensor(operation, y)?,
            alpha: factor(first, 1.0),
            beta: factor(first + 1, 0.0),
            mode: number(&form, name::CONV_MODE).unwrap_or(1) as u32,
            pre: words(&form, name::PRE_PADDINGS),
            post: words(&form, name::POST_PADDINGS),
            stride: words(&form, name::STRIDES),
            dilation: words(&form, name::DILATIONS),
            settings: [0.0; 4],
        })
    }

    fn pointwise(&mut self, operation: &State) -> Result<DnnNode> {
        let form = operation.descriptor(name::POINTWISE)?;
        let mode = number(&form, name::POINTWISE_MODE).ok_or(Status::BadParam)? as u32;
        let setting = |name, default| form.get(name).and_then(Attribute::real).unwrap_or(default);
        let coefficient = match mode {
            103 | 203 => setting(name::ELU_ALPHA, 1.0),
            105 | 205 => setting(name::SOFTPLUS_BETA, 1.0),
            _ => setting(name::SWISH_BETA, 1.0),
        };
        let factor = |name| operation.get(name).and_then(Attribute::real).unwrap_or(1.0);
        let gradient = (200..300).contains(&mode);
        let (x, w, y) = if gradient {
            (name::POINTWISE_DY, name::POINTWISE_X, name::POINTWISE_DX)
        } else {
            (name::POINTWISE_X, name::POINTWISE_B, name::POINTWISE_Y)
        };
        let mut second = self.tensor(operation, w)?;
        if gradient && second == NO_TENSOR {
            second = self.tensor(operation, name::POINTWISE_Y)?;
        }
        Ok(DnnNode {
            kind: DnnNodeKind::Pointwise,
            x: self.tensor(operation, x)?,
            w: second,
            t: self.tensor(operation, name::POINTWISE_T)?,
            y: self.tensor(operation, y)?,
            alpha: factor(name::POINTWISE_ALPHA[0]),
            beta: factor(name::POINTWISE_ALPHA[1]),
            mode,
            settings: [
                setting(name::RELU_LOWER, 0.0),
                setting(name::RELU_UPPER, f64::INFINITY),
                setting(name::RELU_SLOPE, 0.0),
                coefficient,
            ],
            ..DnnNode::default()
        })
    }
}
