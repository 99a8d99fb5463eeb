//! Sparse matrices, by cuSPARSE.

use super::bench::Room;
use super::table::*;
use super::values::{Given, invalid, long, mode, refused, short};
use rgpu_device::{Code, Result};
use rgpu_libraries::{
    DataType, DenseCount, DenseMatrix, DenseToSparse, Iota, Operation, SampledProduct, Scalar, SparseConvert,
    SparseFormat, SparseMatrix, SparseProduct, SparseToDense, Transpose,
};

const STATUS: Statuses = Statuses {
    prefix: "CUSPARSE_STATUS_",
    known: &[
        (1, "NOT_INITIALIZED", Code::NotInitialized),
        (2, "ALLOC_FAILED", Code::OutOfMemory),
        (3, "INVALID_VALUE", Code::InvalidValue),
        (4, "ARCH_MISMATCH", Code::NotSupported),
        (5, "MAPPING_ERROR", Code::LaunchFailed),
        (6, "EXECUTION_FAILED", Code::LaunchFailed),
        (7, "INTERNAL_ERROR", Code::LaunchFailed),
        (8, "MATRIX_TYPE_NOT_SUPPORTED", Code::NotSupported),
        (10, "NOT_SUPPORTED", Code::NotSupported),
        (11, "INSUFFICIENT_RESOURCES", Code::OutOfMemory),
    ],
};

functions! {
    property(u32, *mut i32): one "cusparseGetProperty";
    create(*mut Object): one "cusparseCreate";
    set_stream(Object, Object): one "cusparseSetStream";
    set_mode(Object, u32): one "cusparseSetPointerMode";
    create_csr(
        *mut Object, i64, i64, i64, Address, Address, Address, u32, u32, u32, u32
    ): one "cusparseCreateCsr";
    create_csc(
        *mut Object, i64, i64, i64, Address, Address, Address, u32, u32, u32, u32
    ): one "cusparseCreateCsc";
    create_coo(*mut Object, i64, i64, i64, Address, Address, Address, u32, u32, u32): one "cusparseCreateCoo";
    destroy_sparse(Object): one "cusparseDestroySpMat";
    create_dense(*mut Object, i64, i64, i64, Address, u32, u32): one "cusparseCreateDnMat";
    destroy_dense(Object): one "cusparseDestroyDnMat";
    create_vector(*mut Object, i64, Address, u32): one "cusparseCreateDnVec";
    destroy_vector(Object): one "cusparseDestroyDnVec";
    times_matrix_size(
        Object, u32, u32, Factor, Object, Object, Factor, Object, u32, u32, *mut usize
    ): one "cusparseSpMM_bufferSize";
    times_matrix(
        Object, u32, u32, Factor, Object, Object, Factor, Object, u32, u32, Address
    ): one "cusparseSpMM";
    times_vector_size(
        Object, u32, Factor, Object, Object, Factor, Object, u32, u32, *mut usize
    ): one "cusparseSpMV_bufferSize";
    times_vector(Object, u32, Factor, Object, Object, Factor, Object, u32, u32, Address): one "cusparseSpMV";
    sampled_size(
        Object, u32, u32, Factor, Object, Object, Factor, Object, u32, u32, *mut usize
    ): one "cusparseSDDMM_bufferSize";
    sampled(
        Object, u32, u32, Factor, Object, Object, Factor, Object, u32, u32, Address
    ): one "cusparseSDDMM";
    to_dense_size(Object, Object, Object, u32, *mut usize): one "cusparseSparseToDense_bufferSize";
    to_dense(Object, Object, Object, u32, Address): one "cusparseSparseToDense";
    to_sparse_size(Object, Object, Object, u32, *mut usize): one "cusparseDenseToSparse_bufferSize";
    to_sparse_analysis(Object, Object, Object, u32, Address): one "cusparseDenseToSparse_analysis";
    to_sparse(Object, Object, Object, u32, Address): one "cusparseDenseToSparse_convert";
    sparse_size(Object, *mut i64, *mut i64, *mut i64): one "cusparseSpMatGetSize";
    place_csr(Object, Address, Address, Address): one "cusparseCsrSetPointers";
    place_csc(Object, Address, Address, Address): one "cusparseCscSetPointers";
    place_coo(Object, Address, Address, Address): one "cusparseCooSetPointers";
    rows_to_offsets(Object, Address, i32, i32, Address, u32): one "cusparseXcoo2csr";
    offsets_to_rows(Object, Address, i32, i32, Address, u32): one "cusparseXcsr2coo";
    turn_size(
        Object, i32, i32, i32, Address, Address, Address, Address, Address, Address, u32, u32, u32, u32, *mut usize
    ): one "cusparseCsr2cscEx2_bufferSize";
    turn(
        Object, i32, i32, i32, Address, Address, Address, Address, Address, Address, u32, u32, u32, u32, Address
    ): one "cusparseCsr2cscEx2";
    iota(Object, i32, Address): one "cusparseCreateIdentityPermutation";
}

/// `CUSPARSE_INDEX_32I`, and with 1 more `CUSPARSE_INDEX_64I`.
const INDEX_32: u32 = 2;
/// `CUSPARSE_ORDER_COL`, and with 1 more `CUSPARSE_ORDER_ROW`.
const BY_COLUMNS: u32 = 1;
/// The algorithm that each function takes when it is not told.
const DEFAULT: u32 = 0;
/// `CUSPARSE_CSR2CSC_ALG_DEFAULT`
const TURNING: u32 = 1;

/// A handle of cuSPARSE, set up for the stream at hand.
pub(super) struct Sparse<'a> {
    table: &'a Table,
    handle: Object,
}

/// A descriptor, destroyed in the end: it is read before a call returns.
struct Described<'a> {
    object: Object,
    destroy: &'a Entry<unsafe extern "C" fn(Object) -> Status>,
}

impl Drop for Described<'_> {
    fn drop(&mut self) {
        if let Ok(destroy) = self.destroy.get() {
            // SAFETY: it was created, and nothing uses it any more.
            unsafe { destroy(self.object) };
        }
    }
}

/// A dense matrix that is to become a sparse one.
struct Analysed<'a> {
    dense: Described<'a>,
    sparse: Described<'a>,
    /// Where cuSPARSE works.
    place: Address,
}

/// A new handle in the current context.
pub(super) fn create(table: &Table) -> Result<Object> {
    made(|handle| call!(table.create(handle)))
}

/// Major version, minor version and what comes then.
pub(super) fn version(table: &Table) -> Result<u32> {
    assembled(1000, |which, part| call!(table.property(which, part)))
}

impl<'a> Sparse<'a> {
    /// Takes a handle, and lets it work on a stream.
    pub(super) fn on(table: &'a Table, handle: Object, stream: Object) -> Result<Self> {
        call!(table.set_stream(handle, stream))?;
        Ok(Self { table, handle })
    }

    /// Carries out one of cuSPARSE's operations.
    pub(super) fn run(&self, operation: &Operation, room: &mut Room<'_>) -> Result<()> {
        match operation {
            Operation::SparseProduct(work) if is_of_vectors(work) => self.times_vector(work, room),
            Operation::SparseProduct(work) => self.times_matrix(work, room),
            Operation::SampledProduct(work) => self.sampled(work, room),
            Operation::SparseToDense(work) => self.to_dense(work, room),
            Operation::SparseConvert(work) => self.convert(work, room),
            Operation::Iota(work) => self.iota(work),
            Operation::DenseCount(work) => self.count(work, room),
            Operation::DenseToSparse(work) => self.to_sparse(work, room),
            Operation::SparseSort(_) => {
                refused("sorting the places of a sparse matrix: cuSPARSE wants to know its rows and columns")
            }
            Operation::SparseVectors(_) => refused("operations of a sparse and a dense vector"),
            Operation::SparseSum(_) => refused("sums of sparse matrices"),
            Operation::SparseMultiply(_) => refused("products of two sparse matrices"),
            Operation::SparseCompress(_) => refused("sparse matrices without their small elements"),
            Operation::SparseSolve(_) => refused("systems with a sparse triangle"),
            Operation::SparseIncomplete(_) => refused("incomplete factorisations"),
            Operation::SparseSystem(_) => refused("systems with a sparse matrix"),
            Operation::BlockProduct(_) => refused("products with a matrix of blocks"),
            Operation::BlockSolve(_) => refused("systems with a triangle of blocks"),
            Operation::BlockIncomplete(_) => refused("incomplete factorisations of matrices of blocks"),
            Operation::BandSolve(_) => refused("systems with three or five diagonals"),
            Operation::DenseLines(_) => refused("counting what is not zero in each row or column"),
            other => invalid(format!("No operation of cuSPARSE: {other:?}")),
        }
    }

    fn matrix(&self, of: &SparseMatrix) -> Result<Described<'a>> {
        let t = self.table;
        let (rows, columns, stored) = (long(of.rows)?, long(of.columns)?, long(of.stored)?);
        let (offsets, indices) =
            (INDEX_32 + u32::from(of.wide_offsets), INDEX_32 + u32::from(of.wide_indices));
        let (kind, base, mut object) = (of.kind as u32, of.base, std::ptr::null_mut());
        match of.format {
            SparseFormat::Csr => call!(t.create_csr(
                &mut object,
                rows,
                columns,
                stored,
                of.offsets,
                of.indices,
                of.values,
                offsets,
                indices,
                base,
                kind
            )),
            SparseFormat::Csc => call!(t.create_csc(
                &mut object,
                rows,
                columns,
                stored,
                of.offsets,
                of.indices,
                of.values,
                offsets,
                indices,
                base,
                kind
            )),
            SparseFormat::Coo => call!(t.create_coo(
                &mut object,
                rows,
                columns,
                stored,
                of.offsets,
                of.indices,
                of.values,
                indices,
                base,
                kind
            )),
        }?;
        Ok(Described { object, destroy: &t.destroy_sparse[0] })
    }

    fn dense(&self, of: &DenseMatrix) -> Result<Described<'a>> {
        let (t, mut object) = (self.table, std::ptr::null_mut());
        let order = BY_COLUMNS + u32::from(of.by_rows);
        let (rows, columns, ld) = (long(of.rows)?, long(of.columns)?, long(of.ld)?);
        call!(t.create_dense(&mut object, rows, columns, ld, of.addr, of.kind as u32, order))?;
        Ok(Described { object, destroy: &t.destroy_dense[0] })
    }

    fn vector(&self, of: &DenseMatrix) -> Result<Described<'a>> {
        let (t, mut object) = (self.table, std::ptr::null_mut());
        call!(t.create_vector(&mut object, long(of.rows)?, of.addr, of.kind as u32))?;
        Ok(Described { object, destroy: &t.destroy_vector[0] })
    }

    /// The factors, of which cuSPARSE is told whether they are on the host.
    fn factors(&self, alpha: &Scalar, beta: &Scalar, kind: DataType) -> Result<[Given; 2]> {
        let t = self.table;
        call!(t.set_mode(self.handle, mode(&[alpha, beta])?))?;
        Ok([alpha, beta].map(|factor| Given::new(factor, kind)))
    }

    fn times_vector(&self, work: &SparseProduct, room: &mut Room<'_>) -> Result<()> {
        let (t, h, kind, op) = (self.table, self.handle, work.c.kind, work.op_a as u32);
        let [alpha, beta] = self.factors(&work.alpha, &work.beta, kind)?;
        let (alpha, beta, kind) = (alpha.place(), beta.place(), kind as u32);
        let (a, x, y) = (self.matrix(&work.a)?, self.vector(&work.b)?, self.vector(&work.c)?);
        let (a, x, y, mut bytes) = (a.object, x.object, y.object, 0);
        call!(t.times_vector_size(h, op, alpha, a, x, beta, y, kind, DEFAULT, &mut bytes))?;
        let place = room.take(bytes as u64)?;
        call!(t.times_vector(h, op, alpha, a, x, beta, y, kind, DEFAULT, place))
    }

    fn times_matrix(&self, work: &SparseProduct, room: &mut Room<'_>) -> Result<()> {
        let (t, h, kind) = (self.table, self.handle, work.c.kind);
        let (op_a, op_b) = (work.op_a as u32, work.op_b as u32);
        let [alpha, beta] = self.factors(&work.alpha, &work.beta, kind)?;
        let (alpha, beta, kind) = (alpha.place(), beta.place(), kind as u32);
        let (a, b, c) = (self.matrix(&work.a)?, self.dense(&work.b)?, self.dense(&work.c)?);
        let (a, b, c, mut bytes) = (a.object, b.object, c.object, 0);
        call!(t.times_matrix_size(h, op_a, op_b, alpha, a, b, beta, c, kind, DEFAULT, &mut bytes))?;
        let place = room.take(bytes as u64)?;
        call!(t.times_matrix(h, op_a, op_b, alpha, a, b, beta, c, kind, DEFAULT, place))
    }

    fn sampled(&self, work: &SampledProduct, room: &mut Room<'_>) -> Result<()> {
        let (t, h, kind) = (self.table, self.handle, work.c.kind);
        let (op_a, op_b) = (work.op_a as u32, work.op_b as u32);
        let [alpha, beta] = self.factors(&work.alpha, &work.beta, kind)?;
        let (alpha, beta, kind) = (alpha.place(), beta.place(), kind as u32);
        let (a, b, c) = (self.dense(&work.a)?, self.dense(&work.b)?, self.matrix(&work.c)?);
        let (a, b, c, mut bytes) = (a.object, b.object, c.object, 0);
        call!(t.sampled_size(h, op_a, op_b, alpha, a, b, beta, c, kind, DEFAULT, &mut bytes))?;
        let place = room.take(bytes as u64)?;
        call!(t.sampled(h, op_a, op_b, alpha, a, b, beta, c, kind, DEFAULT, place))
    }

    fn to_dense(&self, work: &SparseToDense, room: &mut Room<'_>) -> Result<()> {
        let (t, h, mut bytes) = (self.table, self.handle, 0);
        let (a, b) = (self.matrix(&work.a)?, self.dense(&work.b)?);
        let (a, b) = (a.object, b.object);
        call!(t.to_dense_size(h, a, b, DEFAULT, &mut bytes))?;
        let place = room.take(bytes as u64)?;
        call!(t.to_dense(h, a, b, DEFAULT, place))
    }

    /// Looks where a dense matrix has elements; what the sparse one has for that is filled. How many there are
    /// cuSPARSE keeps in the descriptor.
    fn analyse(&self, from: &DenseMatrix, to: &SparseMatrix, room: &mut Room<'_>) -> Result<Analysed<'a>> {
        let (t, h, mut bytes) = (self.table, self.handle, 0);
        let empty = SparseMatrix { stored: 0, indices: 0, values: 0, ..to.clone() };
        let (dense, sparse) = (self.dense(from)?, self.matrix(&empty)?);
        call!(t.to_sparse_size(h, dense.object, sparse.object, DEFAULT, &mut bytes))?;
        let place = room.take(bytes as u64)?;
        call!(t.to_sparse_analysis(h, dense.object, sparse.object, DEFAULT, place))?;
        Ok(Analysed { dense, sparse, place })
    }

    /// The number of elements goes to device memory. cuSPARSE waits for the stream to know it.
    fn count(&self, work: &DenseCount, room: &mut Room<'_>) -> Result<()> {
        let t = self.table;
        let analysed = self.analyse(&work.a, &work.b, room)?;
        let (mut rows, mut columns, mut stored) = (0, 0, 0);
        call!(t.sparse_size(analysed.sparse.object, &mut rows, &mut columns, &mut stored))?;
        room.write_word(work.total, stored as u64)
    }

    fn to_sparse(&self, work: &DenseToSparse, room: &mut Room<'_>) -> Result<()> {
        let (t, h, b) = (self.table, self.handle, &work.b);
        let Analysed { dense, sparse, place } = self.analyse(&work.a, b, room)?;
        let (dense, object) = (dense.object, sparse.object);
        match b.format {
            SparseFormat::Csr => call!(t.place_csr(object, b.offsets, b.indices, b.values)),
            SparseFormat::Csc => call!(t.place_csc(object, b.offsets, b.indices, b.values)),
            SparseFormat::Coo => call!(t.place_coo(object, b.offsets, b.indices, b.values)),
        }?;
        call!(t.to_sparse(h, dense, object, DEFAULT, place))
    }

    fn convert(&self, work: &SparseConvert, room: &mut Room<'_>) -> Result<()> {
        let SparseConvert { a, b } = work;
        let (t, h) = (self.table, self.handle);
        if [a, b].iter().any(|matrix| matrix.wide_offsets || matrix.wide_indices) || a.base != b.base {
            return refused("such a sparse matrix in another format");
        }
        let (rows, columns, stored) =
            (short(a.rows)?, short(a.columns.min(i32::MAX as u64))?, short(a.stored)?);
        match (a.format, b.format) {
            (SparseFormat::Coo, SparseFormat::Csr) if b.indices == 0 && b.values == 0 => {
                call!(t.rows_to_offsets(h, a.offsets, stored, rows, b.offsets, a.base))
            }
            (SparseFormat::Csr, SparseFormat::Coo) if b.indices == 0 && b.values == 0 => {
                call!(t.offsets_to_rows(h, a.offsets, stored, rows, b.offsets, a.base))
            }
            (SparseFormat::Csr, SparseFormat::Csc) => {
                // `CUSPARSE_ACTION_NUMERIC`, or `CUSPARSE_ACTION_SYMBOLIC` where there are no values.
                let (copies, kind, mut bytes) = (u32::from(b.values != 0), a.kind as u32, 0);
                call!(t.turn_size(
                    h, rows, columns, stored, a.values, a.offsets, a.indices, b.values, b.offsets, b.indices,
                    kind, copies, a.base, TURNING, &mut bytes
                ))?;
                let place = room.take(bytes as u64)?;
                call!(t.turn(
                    h, rows, columns, stored, a.values, a.offsets, a.indices, b.values, b.offsets, b.indices,
                    kind, copies, a.base, TURNING, place
                ))
            }
            (from, to) => refused(format!("a sparse matrix in the format {to:?} made of one in {from:?}")),
        }
    }

    fn iota(&self, work: &Iota) -> Result<()> {
        let (t, count) = (self.table, short(work.count)?);
        call!(t.iota(self.handle, count, work.addr))
    }
}

/// Whether B and C have one column each, which lies without gaps.
fn is_of_vectors(work: &SparseProduct) -> bool {
    let is_vector = |matrix: &DenseMatrix| matrix.columns == 1 && !matrix.by_rows;
    work.op_b == Transpose::None && is_vector(&work.b) && is_vector(&work.c)
}
