//! Products of matrices with what is done to them before they are stored, by cuBLASLt.

use super::bench::Room;
use super::blas::{STATUS, compute_type};
use super::table::*;
use super::values::{DEVICE, Given, HOST, long, mode, refused};
use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{Activation, AddMatrices, BiasGradient, Matmul, Matrix, Operation, Scalar};
use std::collections::HashMap;
use std::ffi::c_void;

functions! {
    create(*mut Object): one "cublasLtCreate";
    property(u32, *mut i32): one "cublasLtGetProperty";
    matmul(
        Object, Object, Factor, Address, Object, Address, Object, Factor, Address, Object, Address, Object,
        *const Algorithm, Address, usize, Object
    ): one "cublasLtMatmul";
    heuristic(
        Object, Object, Object, Object, Object, Object, Object, i32, *mut Found, *mut i32
    ): one "cublasLtMatmulAlgoGetHeuristic";
    matmul_create(*mut Object, u32, u32): one "cublasLtMatmulDescCreate";
    matmul_set(Object, u32, *const c_void, usize): one "cublasLtMatmulDescSetAttribute";
    matmul_destroy(Object): one "cublasLtMatmulDescDestroy";
    layout_create(*mut Object, u32, u64, u64, i64): one "cublasLtMatrixLayoutCreate";
    layout_set(Object, u32, *const c_void, usize): one "cublasLtMatrixLayoutSetAttribute";
    layout_destroy(Object): one "cublasLtMatrixLayoutDestroy";
    preference_create(*mut Object): one "cublasLtMatmulPreferenceCreate";
    preference_set(Object, u32, *const c_void, usize): one "cublasLtMatmulPreferenceSetAttribute";
    preference_destroy(Object): one "cublasLtMatmulPreferenceDestroy";
    transform(
        Object, Object, Factor, Address, Object, Factor, Address, Object, Address, Object, Object
    ): one "cublasLtMatrixTransform";
    transform_create(*mut Object, u32): one "cublasLtMatrixTransformDescCreate";
    transform_set(Object, u32, *const c_void, usize): one "cublasLtMatrixTransformDescSetAttribute";
    transform_destroy(Object): one "cublasLtMatrixTransformDescDestroy";
}

/// `cublasLtMatmulAlgo_t`
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Algorithm([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Found {
    algorithm: Algorithm,
    /// Bytes that it works in.
    room: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// Attributes, by the name of what has them.
mod attribute {
    /// Of a product: where its factors lie.
    pub(super) const POINTER_MODE: u32 = 2;
    pub(super) const OP_A: u32 = 3;
    pub(super) const OP_B: u32 = 4;
    pub(super) const EPILOGUE: u32 = 7;
    pub(super) const BIAS: u32 = 8;
    pub(super) const BIAS_STRIDE: u32 = 10;
    pub(super) const KEPT: u32 = 11;
    pub(super) const KEPT_LD: u32 = 12;
    pub(super) const KEPT_STRIDE: u32 = 13;
    pub(super) const KEPT_TYPE: u32 = 22;
    pub(super) const BIAS_TYPE: u32 = 26;
    /// Of a layout.
    pub(super) const ORDER: u32 = 1;
    pub(super) const COUNT: u32 = 5;
    pub(super) const STRIDE: u32 = 6;
    /// Of a preference.
    pub(super) const ROOM: u32 = 1;
    pub(super) const ALIGNMENT_A: u32 = 5;
    /// Of a transform.
    pub(super) const TRANSFORM_POINTER_MODE: u32 = 1;
    pub(super) const TRANSFORM_OP_A: u32 = 2;
    pub(super) const TRANSFORM_OP_B: u32 = 3;
}

/// Bits of `CUBLASLT_MATMUL_DESC_EPILOGUE`.
mod epilogue {
    pub(super) const DEFAULT: u32 = 1;
    pub(super) const RELU: u32 = 2;
    pub(super) const BIAS: u32 = 4;
    pub(super) const DRELU: u32 = 8;
    pub(super) const BGRAD: u32 = 16;
    pub(super) const GELU: u32 = 32;
    pub(super) const DGELU: u32 = 64;
    pub(super) const AUX: u32 = 128;
    pub(super) const BGRAD_A: u32 = 256;
    pub(super) const BGRAD_B: u32 = 512;
}

/// `CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO`
const VECTOR_AND_ZERO: u32 = 3;
/// `CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST`
const VECTOR_AND_HOST: u32 = 4;
/// Bytes that products may work in. NVIDIA advises this much for its largest GPUs.
const ROOM: u64 = 32 << 20;
/// How many products' algorithms are kept.
const KEPT: usize = 1024;

/// A handle in the current context, and what was found out with it.
pub(super) struct Lt {
    handle: Object,
    /// By the product without its addresses, and by how those are aligned: what is to be done, and in how much room.
    algorithms: HashMap<Vec<u8>, (Algorithm, usize)>,
}

/// A descriptor, destroyed in the end.
struct Described<'a> {
    object: Object,
    set: &'a Entry<unsafe extern "C" fn(Object, u32, *const c_void, usize) -> Status>,
    destroy: &'a Entry<unsafe extern "C" fn(Object) -> Status>,
}

impl Described<'_> {
    fn set<T: Copy>(&self, attribute: u32, value: T) -> Result<()> {
        let function = self.set.get()?;
        // SAFETY: the value is as long as it says, and copied before the call returns.
        let status = unsafe { function(self.object, attribute, (&raw const value).cast(), size_of::<T>()) };
        STATUS.check(self.set.name, status)
    }
}

impl Drop for Described<'_> {
    fn drop(&mut self) {
        if let Ok(destroy) = self.destroy.get() {
            // SAFETY: it was created, and nothing uses it any more: calls read descriptors before they return.
            unsafe { destroy(self.object) };
        }
    }
}

/// A matrix whose lines lie as they say.
struct Shape<'a> {
    matrix: &'a Matrix,
    rows: u64,
    columns: u64,
    by_rows: bool,
    count: u64,
}

impl Table {
    fn layout(&self, shape: &Shape<'_>) -> Result<Described<'_>> {
        let mut object = std::ptr::null_mut();
        let (table, ld) = (self, long(shape.matrix.ld)?);
        call!(table.layout_create(&mut object, shape.matrix.kind as u32, shape.rows, shape.columns, ld))?;
        let made = Described { object, set: &self.layout_set[0], destroy: &self.layout_destroy[0] };
        if shape.by_rows {
            made.set(attribute::ORDER, 1u32)?;
        }
        if shape.count != 1 {
            let count = i32::try_from(shape.count).map_err(|_| Error::from(Code::InvalidValue))?;
            made.set(attribute::COUNT, count)?;
            made.set(attribute::STRIDE, shape.matrix.stride)?;
        }
        Ok(made)
    }
}

/// Major version, minor version and what comes then.
pub(super) fn version(table: &Table) -> Result<u32> {
    assembled(10_000, |which, part| call!(table.property(which, part)))
}

/// What is done to a product before it is stored.
fn epilogue_of(work: &Matmul) -> u32 {
    let mut bits = match work.activation {
        Activation::None => 0,
        Activation::Relu => epilogue::RELU,
        Activation::Gelu => epilogue::GELU,
        Activation::ReluGradient => epilogue::DRELU,
        Activation::GeluGradient => epilogue::DGELU,
    };
    if work.kept.addr != 0 {
        bits |= epilogue::AUX;
    }
    // Where D lies by rows, its operands have changed places.
    bits |= match (work.gradient, work.by_column) {
        (BiasGradient::None, _) if work.bias.addr != 0 => epilogue::BIAS,
        (BiasGradient::None, _) => 0,
        (BiasGradient::OfResult, _) => epilogue::BGRAD,
        (BiasGradient::OfA, false) | (BiasGradient::OfB, true) => epilogue::BGRAD_A,
        (BiasGradient::OfB, false) | (BiasGradient::OfA, true) => epilogue::BGRAD_B,
    };
    if bits == 0 { epilogue::DEFAULT } else { bits }
}

/// The greatest power of two, up to 256, that divides an address.
fn alignment(addr: u64) -> u32 {
    1 << addr.trailing_zeros().min(8)
}

/// What a product is, whatever memory it is done in.
fn key(work: &Matmul) -> Vec<u8> {
    let mut form = work.clone();
    let addresses = [&mut form.a.addr, &mut form.b.addr, &mut form.c.addr, &mut form.d.addr];
    let alignments: Vec<u8> =
        addresses.into_iter().map(|addr| alignment(std::mem::take(addr)).ilog2() as u8).collect();
    for other in [&mut form.bias.addr, &mut form.kept.addr, &mut form.alpha_vector] {
        *other = u64::from(*other != 0);
    }
    for factor in [&mut form.alpha, &mut form.beta] {
        // Whether C is read may matter; how large a factor is does not.
        let is_zero = factor.addr == 0 && factor.value == [0.0; 2];
        *factor = Scalar { value: [f64::from(u8::from(!is_zero)), 0.0], addr: u64::from(factor.addr != 0) };
    }
    let mut key = Operation::Matmul(form).written().1;
    key.extend(alignments);
    key
}

impl Lt {
    /// A new handle in the current context.
    pub(super) fn new(table: &Table) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        call!(table.create(&mut handle))?;
        Ok(Self { handle, algorithms: HashMap::new() })
    }

    /// What a product is computed by, and in how much room.
    fn algorithm(
        &mut self,
        table: &Table,
        work: &Matmul,
        product: &Described<'_>,
        [a, b, c, d]: [&Described<'_>; 4],
    ) -> Result<(Algorithm, usize)> {
        let key = key(work);
        if let Some(known) = self.algorithms.get(&key) {
            return Ok(*known);
        }
        let mut object = std::ptr::null_mut();
        call!(table.preference_create(&mut object))?;
        let preference =
            Described { object, set: &table.preference_set[0], destroy: &table.preference_destroy[0] };
        preference.set(attribute::ROOM, ROOM)?;
        let (first, second) = operands(work);
        for (which, addr) in
            (attribute::ALIGNMENT_A..).zip([first.addr, second.addr, work.c.addr, work.d.addr])
        {
            preference.set(which, alignment(addr))?;
        }
        let (mut found, mut count) = (Found::default(), 0);
        call!(table.heuristic(
            self.handle,
            product.object,
            a.object,
            b.object,
            c.object,
            d.object,
            preference.object,
            1,
            &mut found,
            &mut count
        ))?;
        if count < 1 {
            return refused("such a product: cuBLASLt has no algorithm for it");
        }
        STATUS.check("cublasLtMatmulAlgoGetHeuristic", found.state)?;
        if self.algorithms.len() >= KEPT {
            self.algorithms.clear();
        }
        self.algorithms.insert(key, (found.algorithm, found.room));
        Ok((found.algorithm, found.room))
    }

    /// `D = f(alpha op(A) op(B) + beta C + bias)`.
    pub(super) fn matmul(
        &mut self,
        table: &Table,
        work: &Matmul,
        stream: Object,
        room: &mut Room<'_>,
    ) -> Result<()> {
        let product = product(table, work)?;
        // What lies by rows was described as its transpose, with A and B exchanged.
        let rows = work.by_column;
        let (first, second) = operands(work);
        let (op_a, op_b) = if rows { (work.op_b, work.op_a) } else { (work.op_a, work.op_b) };
        let (m, n) = if rows { (work.n, work.m) } else { (work.m, work.n) };
        product.set(attribute::OP_A, op_a as u32)?;
        product.set(attribute::OP_B, op_b as u32)?;
        let turned =
            |op| matches!(op, rgpu_libraries::Transpose::Transposed | rgpu_libraries::Transpose::Adjoint);
        let shape = |matrix, (rows_of, columns), op| {
            let (rows_of, columns) = if turned(op) { (columns, rows_of) } else { (rows_of, columns) };
            Shape { matrix, rows: rows_of, columns, by_rows: rows, count: work.count }
        };
        let none = rgpu_libraries::Transpose::None;
        let a = table.layout(&shape(first, (m, work.k), op_a))?;
        let b = table.layout(&shape(second, (work.k, n), op_b))?;
        let c = table.layout(&shape(&work.c, (m, n), none))?;
        let d = table.layout(&shape(&work.d, (m, n), none))?;
        let (algorithm, bytes) = self.algorithm(table, work, &product, [&a, &b, &c, &d])?;
        let place = room.take(bytes as u64)?;
        let (alpha, beta) = (Given::new(&work.alpha, work.scalar), Given::new(&work.beta, work.scalar));
        let alpha = match work.alpha_vector {
            0 => alpha.place(),
            addr => std::ptr::without_provenance(addr as usize),
        };
        call!(table.matmul(
            self.handle,
            product.object,
            alpha,
            first.addr,
            a.object,
            second.addr,
            b.object,
            beta.place(),
            work.c.addr,
            c.object,
            work.d.addr,
            d.object,
            &algorithm,
            place,
            bytes,
            stream
        ))
    }

    /// `C = alpha op(A) + beta op(B)` of matrices of any types.
    pub(super) fn add(&mut self, table: &Table, work: &AddMatrices, stream: Object) -> Result<()> {
        let mut object = std::ptr::null_mut();
        call!(table.transform_create(&mut object, work.scalar as u32))?;
        let transform =
            Described { object, set: &table.transform_set[0], destroy: &table.transform_destroy[0] };
        let there = |matrix: &Matrix| matrix.addr != 0;
        let mut factors = Vec::new();
        if there(&work.a) {
            factors.push(&work.alpha);
        }
        if there(&work.b) {
            factors.push(&work.beta);
        }
        transform.set(attribute::TRANSFORM_POINTER_MODE, mode(&factors)?)?;
        transform.set(attribute::TRANSFORM_OP_A, work.op_a as u32)?;
        transform.set(attribute::TRANSFORM_OP_B, work.op_b as u32)?;
        let turned =
            |op| matches!(op, rgpu_libraries::Transpose::Transposed | rgpu_libraries::Transpose::Adjoint);
        let layout = |matrix, op| {
            let (rows, columns) = if turned(op) { (work.n, work.m) } else { (work.m, work.n) };
            table.layout(&Shape { matrix, rows, columns, by_rows: false, count: work.count })
        };
        let a = there(&work.a).then(|| layout(&work.a, work.op_a)).transpose()?;
        let b = there(&work.b).then(|| layout(&work.b, work.op_b)).transpose()?;
        let c = layout(&work.c, rgpu_libraries::Transpose::None)?;
        let (alpha, beta) = (Given::new(&work.alpha, work.scalar), Given::new(&work.beta, work.scalar));
        let object =
            |layout: &Option<Described<'_>>| layout.as_ref().map_or(std::ptr::null_mut(), |l| l.object);
        let factor = |matrix, given: &Given| if there(matrix) { given.place() } else { std::ptr::null() };
        call!(table.transform(
            self.handle,
            transform.object,
            factor(&work.a, &alpha),
            work.a.addr,
            object(&a),
            factor(&work.b, &beta),
            work.b.addr,
            object(&b),
            work.c.addr,
            c.object,
            stream
        ))
    }
}

/// A and B as cuBLASLt takes them.
fn operands(work: &Matmul) -> (&Matrix, &Matrix) {
    if work.by_column { (&work.b, &work.a) } else { (&work.a, &work.b) }
}

/// A product's descriptor, without what becomes of its operands.
fn product<'a>(table: &'a Table, work: &Matmul) -> Result<Described<'a>> {
    let mut object = std::ptr::null_mut();
    call!(table.matmul_create(&mut object, compute_type(work.compute)?, work.scalar as u32))?;
    let product = Described { object, set: &table.matmul_set[0], destroy: &table.matmul_destroy[0] };
    let pointers = match work.alpha_vector {
        0 => mode(&[&work.alpha, &work.beta])?,
        _ if work.beta.addr != 0 => {
            return refused("a vector of factors and another factor in device memory");
        }
        _ if work.beta.value == [0.0; 2] => VECTOR_AND_ZERO,
        _ => VECTOR_AND_HOST,
    };
    debug_assert!([HOST, DEVICE, VECTOR_AND_ZERO, VECTOR_AND_HOST].contains(&pointers));
    product.set(attribute::POINTER_MODE, pointers)?;
    let bits = epilogue_of(work);
    product.set(attribute::EPILOGUE, bits)?;
    if bits & (epilogue::BIAS | epilogue::BGRAD | epilogue::BGRAD_A | epilogue::BGRAD_B) != 0 {
        product.set(attribute::BIAS, work.bias.addr)?;
        if work.bias.kind != work.d.kind {
            product.set(attribute::BIAS_TYPE, work.bias.kind as u32)?;
        }
        if work.count != 1 {
            product.set(attribute::BIAS_STRIDE, work.bias.stride)?;
        }
    }
    if bits & epilogue::AUX != 0 {
        product.set(attribute::KEPT, work.kept.addr)?;
        product.set(attribute::KEPT_LD, long(work.kept.ld)?)?;
        if work.count != 1 {
            product.set(attribute::KEPT_STRIDE, work.kept.stride)?;
        }
        // What relu keeps are bits, which have no type.
        let bits_only = matches!(work.activation, Activation::Relu | Activation::ReluGradient);
        if !bits_only && work.kept.kind != work.d.kind {
            product.set(attribute::KEPT_TYPE, work.kept.kind as u32)?;
        }
    }
    Ok(product)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_told_apart_by_shape_and_alignment_alone() {
        let product = |m, addr| Matmul { m, a: Matrix { addr, ..Matrix::default() }, ..Matmul::default() };
        assert_eq!(key(&product(4, 0x1000)), key(&product(4, 0x2300)));
        assert_ne!(key(&product(4, 0x1000)), key(&product(5, 0x1000)));
        assert_ne!(key(&product(4, 0x1000)), key(&product(4, 0x1010)));
        let scaled = |alpha| Matmul { alpha, ..product(4, 0x1000) };
        assert_eq!(key(&scaled(Scalar::real(2.0))), key(&scaled(Scalar::real(3.0))));
        assert_ne!(key(&scaled(Scalar::real(2.0))), key(&scaled(Scalar::device(64))));
        assert_eq!([alignment(0x1000), alignment(0x30), alignment(7)], [256, 16, 1]);
    }
}
