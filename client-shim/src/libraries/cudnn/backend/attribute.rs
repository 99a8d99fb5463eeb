//! Attributes: their names, their types, and what is in them.

use std::ffi::c_void;

use super::super::{Result, Status};

/// The numbers of attributes (`cudnnBackendAttributeName_t`) that are understood.
pub(super) mod name {
    pub(in super::super) const POINTWISE_MODE: u32 = 0;
    pub(in super::super) const RELU_LOWER: u32 = 3;
    pub(in super::super) const RELU_UPPER: u32 = 4;
    pub(in super::super) const RELU_SLOPE: u32 = 5;
    pub(in super::super) const ELU_ALPHA: u32 = 6;
    pub(in super::super) const SOFTPLUS_BETA: u32 = 7;
    pub(in super::super) const SWISH_BETA: u32 = 8;
    pub(in super::super) const CONV_MODE: u32 = 101;
    pub(in super::super) const DILATIONS: u32 = 102;
    pub(in super::super) const STRIDES: u32 = 103;
    pub(in super::super) const POST_PADDINGS: u32 = 104;
    pub(in super::super) const PRE_PADDINGS: u32 = 105;
    pub(in super::super) const HEURISTIC_GRAPH: u32 = 201;
    pub(in super::super) const HEURISTIC_RESULTS: u32 = 202;
    pub(in super::super) const CONFIG_ENGINE: u32 = 300;
    pub(in super::super) const CONFIG_KNOBS: u32 = 302;
    pub(in super::super) const CONFIG_WORKSPACE: u32 = 303;
    pub(in super::super) const CONFIG_SHARED_MEMORY: u32 = 304;
    pub(in super::super) const PLAN_CONFIG: u32 = 401;
    pub(in super::super) const PLAN_WORKSPACE: u32 = 402;
    pub(in super::super) const POINTWISE: u32 = 750;
    pub(in super::super) const POINTWISE_X: u32 = 751;
    pub(in super::super) const POINTWISE_B: u32 = 752;
    pub(in super::super) const POINTWISE_Y: u32 = 753;
    pub(in super::super) const POINTWISE_ALPHA: [u32; 2] = [754, 755];
    pub(in super::super) const POINTWISE_DX: u32 = 756;
    pub(in super::super) const POINTWISE_DY: u32 = 757;
    pub(in super::super) const POINTWISE_T: u32 = 758;
    pub(in super::super) const GRAPH_OPERATIONS: u32 = 801;
    pub(in super::super) const GRAPH_ENGINES: u32 = 802;
    pub(in super::super) const TENSOR_TYPE: u32 = 901;
    pub(in super::super) const TENSOR_DIMENSIONS: u32 = 902;
    pub(in super::super) const TENSOR_STRIDES: u32 = 903;
    pub(in super::super) const TENSOR_VECTOR: u32 = 904;
    pub(in super::super) const TENSOR_ID: u32 = 906;
    pub(in super::super) const TENSOR_VIRTUAL: u32 = 907;
    pub(in super::super) const TENSOR_BY_VALUE: u32 = 908;
    pub(in super::super) const PACK_IDS: u32 = 1000;
    pub(in super::super) const PACK_POINTERS: u32 = 1001;
    pub(in super::super) const ENGINE_GRAPH: u32 = 1300;
    pub(in super::super) const ENGINE_INDEX: u32 = 1301;
    pub(in super::super) const ENGINE_KNOBS: u32 = 1302;
    pub(in super::super) const ENGINE_NUMERICAL_NOTES: u32 = 1303;
    pub(in super::super) const ENGINE_BEHAVIOUR_NOTES: u32 = 1305;
    pub(in super::super) const MATMUL_A: u32 = 1520;
    pub(in super::super) const MATMUL_B: u32 = 1521;
    pub(in super::super) const MATMUL_C: u32 = 1522;
    pub(in super::super) const REDUCTION_OPERATOR: u32 = 1600;
    pub(in super::super) const REDUCTION_X: u32 = 1610;
    pub(in super::super) const REDUCTION_Y: u32 = 1611;
    pub(in super::super) const REDUCTION: u32 = 1612;
}

/// The numbers of types (`cudnnBackendAttributeType_t`) whose elements are looked into.
pub(super) mod kind {
    pub(in super::super) const INT64: u32 = 3;
    pub(in super::super) const FLOAT: u32 = 4;
    pub(in super::super) const DOUBLE: u32 = 5;
    pub(in super::super) const DESCRIPTOR: u32 = 15;
    pub(in super::super) const INT32: u32 = 23;
    const BOOLEAN: u32 = 2;
    const CHAR: u32 = 24;
    const FRACTION: u32 = 26;

    /// Bytes of an element; `None` for a type that there is not.
    pub(super) fn bytes(kind: u32) -> Option<usize> {
        match kind {
            BOOLEAN | CHAR => Some(1),
            0 | INT64 | DOUBLE | 6 | DESCRIPTOR => Some(8),
            FRACTION => Some(16),
            1..=33 => Some(4),
            _ => None,
        }
    }
}

/// What a program has set.
#[derive(Debug, Clone)]
pub(super) struct Attribute {
    /// The elements' type.
    pub(super) kind: u32,
    /// The elements.
    pub(super) bytes: Vec<u8>,
}

/// Most elements of an attribute.
const MOST: i64 = 1 << 16;

impl Attribute {
    /// Copies elements of the program's.
    ///
    /// # Safety
    /// `elements` points to so many of this type, unless there are none.
    pub(super) unsafe fn read(kind: u32, count: i64, elements: *const c_void) -> Result<Self> {
        let (Some(size), 0..=MOST) = (kind::bytes(kind), count) else { return Err(Status::BadParam) };
        let length = size * count as usize;
        if length > 0 && elements.is_null() {
            return Err(Status::NullPointer);
        }
        let mut bytes = vec![0; length];
        if length > 0 {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(elements.cast::<u8>(), bytes.as_mut_ptr(), length) };
        }
        Ok(Self { kind, bytes })
    }

    /// One 64-bit integer.
    pub(super) fn int64(value: i64) -> Self {
        Self { kind: kind::INT64, bytes: value.to_ne_bytes().to_vec() }
    }

    /// One 32-bit integer.
    pub(super) fn int32(value: i32) -> Self {
        Self { kind: kind::INT32, bytes: value.to_ne_bytes().to_vec() }
    }

    /// Nothing of a type.
    pub(super) fn none(kind: u32) -> Self {
        Self { kind, bytes: Vec::new() }
    }

    /// How many elements there are.
    pub(super) fn count(&self) -> usize {
        self.bytes.len() / kind::bytes(self.kind).unwrap_or(1)
    }

    /// The elements as integers, addresses or handles of 8 bytes.
    pub(super) fn words(&self) -> Vec<i64> {
        self.bytes
            .chunks_exact(8)
            .map(|word| i64::from_ne_bytes(word.try_into().unwrap_or_default()))
            .collect()
    }

    /// The first element as an enumeration's number, a truth value, or an integer.
    pub(super) fn number(&self) -> Option<i64> {
        match kind::bytes(self.kind)? {
            1 => self.bytes.first().map(|&byte| byte.into()),
            4 => self.bytes.first_chunk().map(|word| i32::from_ne_bytes(*word).into()),
            _ => self.bytes.first_chunk().map(|word| i64::from_ne_bytes(*word)),
        }
    }

    /// The first element as a real number.
    pub(super) fn real(&self) -> Option<f64> {
        match self.kind {
            kind::FLOAT => self.bytes.first_chunk().map(|word| f32::from_ne_bytes(*word).into()),
            kind::DOUBLE => self.bytes.first_chunk().map(|word| f64::from_ne_bytes(*word)),
            _ => None,
        }
    }
}
