//! Signatures of functions, and the table through which they are called.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cranelift_codegen::ir::{self, types};
use cranelift_codegen::isa::CallConv;
use rgpu_device::Range;
use rgpu_image::ptx::ast::{Type, Variable};

use super::emit::int_class;
use super::vars::is_scalar;
use super::verify::{Argument, Callee};

/// What two functions have to agree on to be called in the same way: what is returned, and what is passed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    returns: Vec<Place>,
    params: Vec<Place>,
}

/// A parameter or result as far as calls are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// A value of so many bits, in an integer or a floating-point register.
    Value { bits: u32, float: bool },
    /// Bytes at an address.
    Bytes { size: u64, align: u32 },
}

impl Place {
    fn of(variable: &Variable) -> Self {
        if is_scalar(variable) {
            let float = matches!(variable.ty, Type::F32 | Type::F64);
            Self::Value { bits: variable.ty.bits(), float }
        } else {
            Self::Bytes { size: variable.size, align: variable.align }
        }
    }
}

impl Place {
    /// The type that passes it.
    fn class(self) -> ir::Type {
        match self {
            Self::Value { bits: 32, float: true } => types::F32,
            Self::Value { float: true, .. } => types::F64,
            Self::Value { bits, .. } => int_class(bits),
            Self::Bytes { .. } => types::I64,
        }
    }
}

impl Shape {
    /// Of a function or prototype.
    pub(super) fn of(params: &[Variable], returns: &[Variable]) -> Self {
        Self {
            returns: returns.iter().map(Place::of).collect(),
            params: params.iter().map(Place::of).collect(),
        }
    }

    /// How functions with this signature are called: with the thread, its block and the address of their frame in local
    /// memory, the addresses of the results that are no values, and the arguments. They return how the thread stopped,
    /// and the results that are values.
    pub(super) fn callee(&self) -> Callee {
        let mut signature = ir::Signature::new(CallConv::Fast);
        let mut arguments = vec![Argument::Thread, Argument::Block, Argument::Frame];
        signature.params.extend([ir::AbiParam::new(types::I64); 3]);
        signature.returns.push(ir::AbiParam::new(types::I32));
        for place in &self.returns {
            match *place {
                Place::Value { .. } => signature.returns.push(ir::AbiParam::new(place.class())),
                Place::Bytes { size, .. } => {
                    signature.params.push(ir::AbiParam::new(place.class()));
                    arguments.push(Argument::Bytes(size));
                }
            }
        }
        for place in &self.params {
            signature.params.push(ir::AbiParam::new(place.class()));
            arguments.push(match *place {
                Place::Value { .. } => Argument::Number,
                Place::Bytes { size, .. } => Argument::Bytes(size),
            });
        }
        Callee { signature, arguments }
    }
}

/// A function in the table of those that may be called through a pointer.
#[repr(C)]
pub(crate) struct TableEntry {
    /// Its machine code.
    pub code: AtomicU64,
    /// What its parameters and results look like; see [`Unit::shape`].
    pub shape: AtomicU32,
}

/// The table of a kernel: one entry for each function that is referred to by address, by its number.
pub(super) struct Table(Vec<TableEntry>);

impl Table {
    /// With no function in it.
    pub(super) fn new(count: usize) -> Arc<Self> {
        let entry = || TableEntry { code: AtomicU64::new(0), shape: AtomicU32::new(u32::MAX) };
        Arc::new(Self((0..count).map(|_| entry()).collect()))
    }

    /// Where it lies.
    pub(super) fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// The bytes that it takes.
    pub(super) fn range(&self) -> Range {
        Range { base: self.address(), size: size_of_val(&self.0[..]) as u64 }
    }

    /// How many entries it has.
    pub(super) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// Enters a function under its number.
    pub(super) fn set(&self, number: usize, code: u64, shape: u32) {
        let entry = &self.0[number];
        entry.code.store(code, Ordering::Relaxed);
        entry.shape.store(shape, Ordering::Relaxed);
    }
}
