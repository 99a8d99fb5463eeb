//! Factorisations, eigenvalues and singular values, by cuSOLVER: its 64-bit interface where that has what is asked for.

mod more;

use super::bench::Room;
use super::table::*;
use super::values::{invalid, letter, long, part, refused, short};
use rgpu_device::{Code, Result};
use rgpu_libraries::{
    Batch, Cholesky, DataType, HermitianEigen, Lu, Operation, Qr, Svd, Task, Transpose, Vectors,
};

const STATUS: Statuses = Statuses {
    prefix: "CUSOLVER_STATUS_",
    known: &[
        (1, "NOT_INITIALIZED", Code::NotInitialized),
        (2, "ALLOC_FAILED", Code::OutOfMemory),
        (3, "INVALID_VALUE", Code::InvalidValue),
        (4, "ARCH_MISMATCH", Code::NotSupported),
        (5, "MAPPING_ERROR", Code::LaunchFailed),
        (6, "EXECUTION_FAILED", Code::LaunchFailed),
        (7, "INTERNAL_ERROR", Code::LaunchFailed),
        (8, "MATRIX_TYPE_NOT_SUPPORTED", Code::NotSupported),
        (9, "NOT_SUPPORTED", Code::NotSupported),
        (11, "INVALID_LICENSE", Code::NotSupported),
        (31, "INVALID_WORKSPACE", Code::LaunchFailed),
    ],
};

functions! {
    property(u32, *mut i32): one "cusolverGetProperty";
    create(*mut Object): one "cusolverDnCreate";
    create_params(*mut Object): one "cusolverDnCreateParams";
    create_eigen(*mut Object): one "cusolverDnCreateSyevjInfo";
    create_singular(*mut Object): one "cusolverDnCreateGesvdjInfo";
    set_stream(Object, Object): one "cusolverDnSetStream";

    potrf_size(
        Object, Object, u32, i64, u32, Address, i64, u32, *mut usize, *mut usize
    ): one "cusolverDnXpotrf_bufferSize";
    potrf(
        Object, Object, u32, i64, u32, Address, i64, u32, Address, usize, *mut u8, usize, Address
    ): one "cusolverDnXpotrf";
    potrs(Object, Object, u32, i64, i64, u32, Address, i64, u32, Address, i64, Address): one "cusolverDnXpotrs";
    potri_size(Object, u32, i32, Address, i32, *mut i32): four "cusolverDn" "potri_bufferSize";
    potri(Object, u32, i32, Address, i32, Address, i32, Address): four "cusolverDn" "potri";
    potrf_batched(Object, u32, i32, Address, i32, Address, i32): four "cusolverDn" "potrfBatched";
    potrs_batched(
        Object, u32, i32, i32, Address, i32, Address, i32, Address, i32
    ): four "cusolverDn" "potrsBatched";

    getrf_size(
        Object, Object, i64, i64, u32, Address, i64, u32, *mut usize, *mut usize
    ): one "cusolverDnXgetrf_bufferSize";
    getrf(
        Object, Object, i64, i64, u32, Address, i64, Address, u32, Address, usize, *mut u8, usize, Address
    ): one "cusolverDnXgetrf";
    getrs(
        Object, Object, u32, i64, i64, u32, Address, i64, Address, u32, Address, i64, Address
    ): one "cusolverDnXgetrs";
    getrf_short_size(Object, i32, i32, Address, i32, *mut i32): four "cusolverDn" "getrf_bufferSize";
    getrf_short(Object, i32, i32, Address, i32, Address, Address, Address): four "cusolverDn" "getrf";
    getrs_short(Object, u32, i32, i32, Address, i32, Address, Address, i32, Address): four "cusolverDn" "getrs";

    geqrf_size(
        Object, Object, i64, i64, u32, Address, i64, u32, Address, u32, *mut usize, *mut usize
    ): one "cusolverDnXgeqrf_bufferSize";
    geqrf(
        Object, Object, i64, i64, u32, Address, i64, u32, Address, u32, Address, usize, *mut u8, usize, Address
    ): one "cusolverDnXgeqrf";
    orgqr_size(Object, i32, i32, i32, Address, i32, Address, *mut i32):
        list "cusolverDnSorgqr_bufferSize" "cusolverDnDorgqr_bufferSize" "cusolverDnCungqr_bufferSize"
        "cusolverDnZungqr_bufferSize";
    orgqr(Object, i32, i32, i32, Address, i32, Address, Address, i32, Address):
        list "cusolverDnSorgqr" "cusolverDnDorgqr" "cusolverDnCungqr" "cusolverDnZungqr";
    ormqr_size(Object, u32, u32, i32, i32, i32, Address, i32, Address, Address, i32, *mut i32):
        list "cusolverDnSormqr_bufferSize" "cusolverDnDormqr_bufferSize" "cusolverDnCunmqr_bufferSize"
        "cusolverDnZunmqr_bufferSize";
    ormqr(Object, u32, u32, i32, i32, i32, Address, i32, Address, Address, i32, Address, i32, Address):
        list "cusolverDnSormqr" "cusolverDnDormqr" "cusolverDnCunmqr" "cusolverDnZunmqr";

    syevd_size(
        Object, Object, u32, u32, i64, u32, Address, i64, u32, Address, u32, *mut usize, *mut usize
    ): one "cusolverDnXsyevd_bufferSize";
    syevd(
        Object, Object, u32, u32, i64, u32, Address, i64, u32, Address, u32, Address, usize, *mut u8, usize, Address
    ): one "cusolverDnXsyevd";
    syevj_size(Object, u32, u32, i32, Address, i32, Address, *mut i32, Object, i32):
        list "cusolverDnSsyevjBatched_bufferSize" "cusolverDnDsyevjBatched_bufferSize"
        "cusolverDnCheevjBatched_bufferSize" "cusolverDnZheevjBatched_bufferSize";
    syevj(Object, u32, u32, i32, Address, i32, Address, Address, i32, Address, Object, i32):
        list "cusolverDnSsyevjBatched" "cusolverDnDsyevjBatched" "cusolverDnCheevjBatched" "cusolverDnZheevjBatched";
    gesvd_size(
        Object, Object, i8, i8, i64, i64, u32, Address, i64, u32, Address, u32, Address, i64, u32, Address, i64, u32,
        *mut usize, *mut usize
    ): one "cusolverDnXgesvd_bufferSize";
    gesvd(
        Object, Object, i8, i8, i64, i64, u32, Address, i64, u32, Address, u32, Address, i64, u32, Address, i64, u32,
        Address, usize, *mut u8, usize, Address
    ): one "cusolverDnXgesvd";
    gesvdj_size(
        Object, u32, i32, i32, i32, Address, i32, Address, Address, i32, Address, i32, *mut i32, Object
    ): four "cusolverDn" "gesvdj_bufferSize";
    gesvdj(
        Object, u32, i32, i32, i32, Address, i32, Address, Address, i32, Address, i32, Address, i32, Address, Object
    ): four "cusolverDn" "gesvdj";
    gesvdj_batched_size(
        Object, u32, i32, i32, Address, i32, Address, Address, i32, Address, i32, *mut i32, Object, i32
    ): four "cusolverDn" "gesvdjBatched_bufferSize";
    gesvdj_batched(
        Object, u32, i32, i32, Address, i32, Address, Address, i32, Address, i32, Address, i32, Address, Object, i32
    ): four "cusolverDn" "gesvdjBatched";

    sytrf_size(Object, i32, Address, i32, *mut i32): four "cusolverDn" "sytrf_bufferSize";
    sytrf(Object, u32, i32, Address, i32, Address, Address, i32, Address): four "cusolverDn" "sytrf";
    sytrs_size(
        Object, u32, i64, i64, u32, Address, i64, Address, u32, Address, i64, *mut usize, *mut usize
    ): one "cusolverDnXsytrs_bufferSize";
    sytrs(
        Object, u32, i64, i64, u32, Address, i64, Address, u32, Address, i64, Address, usize, *mut u8, usize, Address
    ): one "cusolverDnXsytrs";
    geev_size(
        Object, Object, u32, u32, i64, u32, Address, i64, u32, Address, u32, Address, i64, u32, Address, i64, u32,
        *mut usize, *mut usize
    ): one "cusolverDnXgeev_bufferSize";
    geev(
        Object, Object, u32, u32, i64, u32, Address, i64, u32, Address, u32, Address, i64, u32, Address, i64, u32,
        Address, usize, *mut u8, usize, Address
    ): one "cusolverDnXgeev";
    gebrd_size(Object, i32, i32, *mut i32): four "cusolverDn" "gebrd_bufferSize";
    gebrd(
        Object, i32, i32, Address, i32, Address, Address, Address, Address, Address, i32, Address
    ): four "cusolverDn" "gebrd";
    gels_size(Object, i32, i32, i32, Address, i32, Address, i32, Address, i32, Address, *mut usize):
        list "cusolverDnSSgels_bufferSize" "cusolverDnDDgels_bufferSize" "cusolverDnCCgels_bufferSize"
        "cusolverDnZZgels_bufferSize";
    gels(Object, i32, i32, i32, Address, i32, Address, i32, Address, i32, Address, usize, *mut i32, Address):
        list "cusolverDnSSgels" "cusolverDnDDgels" "cusolverDnCCgels" "cusolverDnZZgels";
}

/// A handle in the current context.
pub(super) struct Solver {
    handle: Object,
    params: Object,
    /// What the methods of Jacobi are told, for eigenvalues and for singular values.
    eigen: Object,
    singular: Object,
    /// Host memory that functions work in. What was given stays: work that is under way may use it.
    host: Vec<Vec<u64>>,
}

/// Major version, minor version and what comes then.
pub(super) fn version(table: &Table) -> Result<u32> {
    assembled(1000, |which, part| call!(table.property(which, part)))
}

/// The address of a problem's matrix, `number` strides behind the first.
fn behind(addr: u64, stride: i64, kind: DataType, number: u64) -> u64 {
    addr.wrapping_add((stride as u64).wrapping_mul(kind.bytes()).wrapping_mul(number))
}

/// Only so many problems are done one after the other.
const MOST: u64 = 4096;

impl Solver {
    /// A new handle in the current context.
    pub(super) fn new(table: &Table) -> Result<Self> {
        let [mut handle, mut params, mut eigen, mut singular] = [std::ptr::null_mut(); 4];
        call!(table.create(&mut handle))?;
        call!(table.create_params(&mut params))?;
        call!(table.create_eigen(&mut eigen))?;
        call!(table.create_singular(&mut singular))?;
        Ok(Self { handle, params, eigen, singular, host: Vec::new() })
    }

    /// Carries out one of cuSOLVER's operations.
    pub(super) fn run(
        &mut self,
        table: &Table,
        operation: &Operation,
        stream: Object,
        room: &mut Room<'_>,
    ) -> Result<()> {
        call!(table.set_stream(self.handle, stream))?;
        match operation {
            Operation::Cholesky(work) => self.cholesky(table, work, room),
            Operation::Lu(work) => self.lu(table, work, room),
            Operation::Qr(work) => self.qr(table, work, room),
            Operation::HermitianEigen(work) => self.eigen(table, work, room),
            Operation::Svd(work) => self.svd(table, work, room),
            Operation::Indefinite(work) => self.indefinite(table, work, room),
            Operation::Eigen(work) => self.any_eigen(table, work, room),
            Operation::Bidiagonal(work) => self.bidiagonal(table, work, room),
            Operation::LeastSquares(work) => self.least_squares(table, work, room),
            other => invalid(format!("No operation of cuSOLVER: {other:?}")),
        }
    }

    /// Host memory for a function to work in.
    fn host(&mut self, bytes: usize) -> *mut u8 {
        if bytes == 0 {
            return std::ptr::null_mut();
        }
        if self.host.last().is_none_or(|last| last.len() * 8 < bytes) {
            self.host.push(vec![0; bytes.div_ceil(8).next_power_of_two()]);
        }
        self.host.last_mut().map_or(std::ptr::null_mut(), |last| last.as_mut_ptr().cast())
    }

    fn cholesky(&mut self, t: &Table, work: &Cholesky, room: &mut Room<'_>) -> Result<()> {
        let (h, p, fill, kind) = (self.handle, self.params, u32::from(work.upper), work.a.kind as u32);
        let Cholesky { a, b, info, .. } = work;
        if work.batch == Batch::Pointers {
            let letter = letter(a.kind)?;
            let (n, columns, count) = (short(work.n)?, short(work.columns)?, short(work.count)?);
            let (lda, ldb) = (short(a.ld)?, short(b.ld)?);
            return match work.task {
                Task::Factor => call!(t.potrf_batched[letter](h, fill, n, a.addr, lda, *info, count)),
                Task::Solve => call!(t.potrs_batched[letter](
                    h, fill, n, columns, a.addr, lda, b.addr, ldb, *info, count
                )),
                other => refused(format!("{other:?} of a batch of Cholesky's factors")),
            };
        }
        if work.count != 1 {
            return refused("batches of Cholesky's factorisation without an array of pointers");
        }
        let (n, columns, lda, ldb) = (long(work.n)?, long(work.columns)?, long(a.ld)?, long(b.ld)?);
        match work.task {
            Task::Factor => {
                let (mut device, mut host) = (0, 0);
                call!(t.potrf_size(h, p, fill, n, kind, a.addr, lda, kind, &mut device, &mut host))?;
                let (place, memory) = (room.take(device as u64)?, self.host(host));
                call!(t.potrf(h, p, fill, n, kind, a.addr, lda, kind, place, device, memory, host, *info))
            }
            Task::Solve => {
                call!(t.potrs(h, p, fill, n, columns, kind, a.addr, lda, kind, b.addr, ldb, *info))
            }
            Task::Form => {
                let (letter, n, lda, mut size) = (letter(a.kind)?, short(work.n)?, short(a.ld)?, 0);
                call!(t.potri_size[letter](h, fill, n, a.addr, lda, &mut size))?;
                let place = room.take(elements(size, a.kind))?;
                call!(t.potri[letter](h, fill, n, a.addr, lda, place, size, *info))
            }
            Task::Apply => invalid("Cholesky's factors are not applied"),
        }
    }

    fn lu(&mut self, t: &Table, work: &Lu, room: &mut Room<'_>) -> Result<()> {
        if work.count > MOST {
            return refused(format!("more than {MOST} factorisations at a time"));
        }
        let pivots = work.m.min(work.n).wrapping_mul(if work.wide { 8 } else { 4 });
        for number in 0..work.count {
            let mut one = work.clone();
            one.a.addr = behind(work.a.addr, work.a.stride, work.a.kind, number);
            one.b.addr = behind(work.b.addr, work.b.stride, work.b.kind, number);
            one.pivots =
                if work.pivots == 0 { 0 } else { work.pivots.wrapping_add(pivots.wrapping_mul(number)) };
            one.info = if work.info == 0 { 0 } else { work.info.wrapping_add(4 * number) };
            if work.wide { self.lu_wide(t, &one, room) } else { self.lu_narrow(t, &one, room) }?;
        }
        Ok(())
    }

    fn lu_wide(&mut self, t: &Table, work: &Lu, room: &mut Room<'_>) -> Result<()> {
        let (h, p, kind) = (self.handle, self.params, work.a.kind as u32);
        let Lu { a, b, pivots, info, .. } = work;
        let (m, n, columns, lda, ldb) =
            (long(work.m)?, long(work.n)?, long(work.columns)?, long(a.ld)?, long(b.ld)?);
        match work.task {
            Task::Factor => {
                let (mut device, mut host) = (0, 0);
                call!(t.getrf_size(h, p, m, n, kind, a.addr, lda, kind, &mut device, &mut host))?;
                let (place, memory) = (room.take(device as u64)?, self.host(host));
                call!(
                    t.getrf(h, p, m, n, kind, a.addr, lda, *pivots, kind, place, device, memory, host, *info)
                )
            }
            Task::Solve => {
                let op = work.op as u32;
                call!(t.getrs(h, p, op, n, columns, kind, a.addr, lda, *pivots, kind, b.addr, ldb, *info))
            }
            other => invalid(format!("{other:?} of triangular factors")),
        }
    }

    fn lu_narrow(&mut self, t: &Table, work: &Lu, room: &mut Room<'_>) -> Result<()> {
        let (h, letter) = (self.handle, letter(work.a.kind)?);
        let Lu { a, b, pivots, info, .. } = work;
        let (m, n, columns, lda, ldb) =
            (short(work.m)?, short(work.n)?, short(work.columns)?, short(a.ld)?, short(b.ld)?);
        match work.task {
            Task::Factor => {
                let mut size = 0;
                call!(t.getrf_short_size[letter](h, m, n, a.addr, lda, &mut size))?;
                let place = room.take(elements(size, a.kind))?;
                call!(t.getrf_short[letter](h, m, n, a.addr, lda, place, *pivots, *info))
            }
            Task::Solve => {
                let op = work.op as u32;
                call!(t.getrs_short[letter](h, op, n, columns, a.addr, lda, *pivots, b.addr, ldb, *info))
            }
            other => invalid(format!("{other:?} of triangular factors")),
        }
    }

    fn qr(&mut self, t: &Table, work: &Qr, room: &mut Room<'_>) -> Result<()> {
        let (h, p, kind) = (self.handle, self.params, work.a.kind as u32);
        let Qr { a, c, tau, info, .. } = work;
        if work.task == Task::Factor {
            let (m, n, lda) = (long(work.m)?, long(work.n)?, long(a.ld)?);
            let (mut device, mut host) = (0, 0);
            call!(t.geqrf_size(h, p, m, n, kind, a.addr, lda, kind, *tau, kind, &mut device, &mut host))?;
            let (place, memory) = (room.take(device as u64)?, self.host(host));
            return call!(
                t.geqrf(h, p, m, n, kind, a.addr, lda, kind, *tau, kind, place, device, memory, host, *info)
            );
        }
        let letter = letter(a.kind)?;
        let (m, n, k, lda, ldc) =
            (short(work.m)?, short(work.n)?, short(work.k)?, short(a.ld)?, short(c.ld)?);
        let mut size = 0;
        match work.task {
            Task::Form => {
                call!(t.orgqr_size[letter](h, m, n, k, a.addr, lda, *tau, &mut size))?;
                let place = room.take(elements(size, a.kind))?;
                call!(t.orgqr[letter](h, m, n, k, a.addr, lda, *tau, place, size, *info))
            }
            Task::Apply => {
                let (side, op) = (u32::from(work.right), adjoint(work.op, a.kind));
                call!(t.ormqr_size[letter](h, side, op, m, n, k, a.addr, lda, *tau, c.addr, ldc, &mut size))?;
                let place = room.take(elements(size, a.kind))?;
                call!(t.ormqr[letter](
                    h, side, op, m, n, k, a.addr, lda, *tau, c.addr, ldc, place, size, *info
                ))
            }
            other => refused(format!("{other:?} of an orthogonal factorisation")),
        }
    }

    fn eigen(&mut self, t: &Table, work: &HermitianEigen, room: &mut Room<'_>) -> Result<()> {
        let HermitianEigen { a, values, info, .. } = work;
        let (h, vectors, fill) = (self.handle, u32::from(work.vectors), u32::from(work.upper));
        if work.count != 1 {
            let (letter, n, lda, count) = (letter(a.kind)?, short(work.n)?, short(a.ld)?, short(work.count)?);
            let (settings, mut size) = (self.eigen, 0);
            call!(t.syevj_size[letter](
                h, vectors, fill, n, a.addr, lda, *values, &mut size, settings, count
            ))?;
            let place = room.take(elements(size, a.kind))?;
            return call!(t.syevj[letter](
                h, vectors, fill, n, a.addr, lda, *values, place, size, *info, settings, count
            ));
        }
        let (p, n, lda) = (self.params, long(work.n)?, long(a.ld)?);
        let (kind, real) = (a.kind as u32, part(a.kind) as u32);
        let (mut device, mut host) = (0, 0);
        call!(t.syevd_size(
            h,
            p,
            vectors,
            fill,
            n,
            kind,
            a.addr,
            lda,
            real,
            *values,
            kind,
            &mut device,
            &mut host
        ))?;
        let (place, memory) = (room.take(device as u64)?, self.host(host));
        call!(t.syevd(
            h, p, vectors, fill, n, kind, a.addr, lda, real, *values, kind, place, device, memory, host,
            *info
        ))
    }

    fn svd(&mut self, t: &Table, work: &Svd, room: &mut Room<'_>) -> Result<()> {
        if !work.adjoint {
            return self.jacobi(t, work, room);
        }
        if work.count != 1 {
            return refused("batches of singular values with adjoint right vectors");
        }
        let Svd { a, u, v, values, info, .. } = work;
        let job = |wanted: Vectors, at: u64| match wanted {
            Vectors::None => b'N' as i8,
            // In the place of the matrix.
            Vectors::Thin if at == a.addr => b'O' as i8,
            Vectors::Thin => b'S' as i8,
            Vectors::All => b'A' as i8,
        };
        let (h, p, left, right) = (self.handle, self.params, job(work.left, u.addr), job(work.right, v.addr));
        let (m, n, lda, ldu, ldv) =
            (long(work.m)?, long(work.n)?, long(a.ld)?, long(u.ld.max(1))?, long(v.ld.max(1))?);
        let (kind, real) = (a.kind as u32, part(a.kind) as u32);
        let (mut device, mut host) = (0, 0);
        call!(t.gesvd_size(
            h,
            p,
            left,
            right,
            m,
            n,
            kind,
            a.addr,
            lda,
            real,
            *values,
            kind,
            u.addr,
            ldu,
            kind,
            v.addr,
            ldv,
            kind,
            &mut device,
            &mut host
        ))?;
        let (place, memory) = (room.take(device as u64)?, self.host(host));
        call!(t.gesvd(
            h, p, left, right, m, n, kind, a.addr, lda, real, *values, kind, u.addr, ldu, kind, v.addr, ldv,
            kind, place, device, memory, host, *info
        ))
    }

    /// Singular values by the method of Jacobi, whose right vectors are columns.
    fn jacobi(&mut self, t: &Table, work: &Svd, room: &mut Room<'_>) -> Result<()> {
        let Svd { a, u, v, values, info, .. } = work;
        if work.left != work.right {
            return refused("left and right singular vectors of different numbers");
        }
        let (h, settings, letter) = (self.handle, self.singular, letter(a.kind)?);
        let (vectors, thin) = (u32::from(work.left != Vectors::None), i32::from(work.left == Vectors::Thin));
        let (m, n, lda, count) = (short(work.m)?, short(work.n)?, short(a.ld)?, short(work.count)?);
        let (ldu, ldv) = (short(u.ld.max(work.m))?, short(v.ld.max(work.n))?);
        let (a_at, u, v, mut size) = (a.addr, u.addr, v.addr, 0);
        if count == 1 {
            call!(t.gesvdj_size[letter](
                h, vectors, thin, m, n, a_at, lda, *values, u, ldu, v, ldv, &mut size, settings
            ))?;
            let place = room.take(elements(size, a.kind))?;
            return call!(t.gesvdj[letter](
                h, vectors, thin, m, n, a_at, lda, *values, u, ldu, v, ldv, place, size, *info, settings
            ));
        }
        if thin != 0 {
            return refused("batches of thin singular vectors");
        }
        call!(t.gesvdj_batched_size[letter](
            h, vectors, m, n, a_at, lda, *values, u, ldu, v, ldv, &mut size, settings, count
        ))?;
        let place = room.take(elements(size, a.kind))?;
        call!(t.gesvdj_batched[letter](
            h, vectors, m, n, a_at, lda, *values, u, ldu, v, ldv, place, size, *info, settings, count
        ))
    }
}

/// Bytes of so many elements.
fn elements(count: i32, kind: DataType) -> u64 {
    u64::from(count.unsigned_abs()) * kind.bytes()
}

/// How Q is used. Of real numbers the adjoint is the transpose, and goes by that name.
fn adjoint(op: Transpose, kind: DataType) -> u32 {
    match op {
        Transpose::Adjoint if !super::values::is_complex(kind) => Transpose::Transposed as u32,
        other => other as u32,
    }
}
