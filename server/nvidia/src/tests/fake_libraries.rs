//! Libraries in this process, behind the fake driver: they note how they are called. Products of 32-bit matrices are
//! computed, in the order of the driver's stream.

use super::fake::compute;
use crate::libraries::{Address, Factor, Object, Status};
use crate::sys::Stream;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::c_void;

/// What the libraries know.
#[derive(Default)]
pub(super) struct Books {
    /// Calls in order, with their arguments.
    pub log: Vec<String>,
    /// What these functions answer instead of working.
    pub fail: HashMap<&'static str, Status>,
    /// Functions that the libraries do not have.
    pub missing: Vec<&'static str>,
    objects: usize,
    /// By cuBLAS's handle: its stream, and whether factors lie on the device.
    handles: HashMap<usize, (usize, bool)>,
}

static BOOKS: Mutex<Option<Books>> = Mutex::new(None);

/// Looks at the libraries' books, or changes them.
pub(super) fn books<T>(look: impl FnOnce(&mut Books) -> T) -> T {
    look(BOOKS.lock().get_or_insert_with(Books::default))
}

/// An argument as the log has it.
trait Shown {
    fn shown(&self) -> String;
}

macro_rules! plain {
    ($($t:ty)*) => { $(impl Shown for $t { fn shown(&self) -> String { self.to_string() } })* };
}
plain!(i8 i32 i64 u32 usize f32 f64);

impl Shown for Address {
    fn shown(&self) -> String {
        if *self < 4096 { self.to_string() } else { format!("{self:#x}") }
    }
}

/// Objects are numbered from 1; the rest are streams.
impl Shown for Object {
    fn shown(&self) -> String {
        let number = *self as usize;
        if number < 4096 { format!("#{number}") } else { format!("{number:#x}") }
    }
}

/// Factors on the host are read as far as they go, which is 8 bytes at least: the device's own numbers are 16 long.
impl Shown for Factor {
    fn shown(&self) -> String {
        match *self as usize {
            0 => "null".into(),
            addr @ 0x3000_0000_0000..0x4000_0000_0000 => format!("device {addr:#x}"),
            // SAFETY: the device under test passes a place of that length.
            _ => format!("host {:#x}", unsafe { self.cast::<u64>().read_unaligned() }),
        }
    }
}

fn note(name: &'static str, arguments: &[&dyn Shown]) -> Status {
    let arguments: Vec<String> = arguments.iter().map(|argument| argument.shown()).collect();
    books(|books| {
        books.log.push(format!("{name}({})", arguments.join(", ")));
        books.fail.get(name).copied().unwrap_or(0)
    })
}

fn fresh() -> Object {
    books(|books| {
        books.objects += 1;
        std::ptr::without_provenance_mut(books.objects)
    })
}

/// Functions that note their arguments, and then do something.
macro_rules! fakes {
    ($($symbol:ident($($name:ident: $type:ty),*) [$($shown:ident)*] $body:block)*) => {
        $(#[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn $symbol($($name: $type),*) -> Status {
            $(let _ = &$name;)*
            match note(stringify!($symbol), &[$(&$shown),*]) {
                // SAFETY: the device under test passes valid places.
                #[allow(unused_unsafe)]
                0 => unsafe { $body },
                status => status,
            }
        })*
        fn symbol(name: &str) -> *const c_void {
            match name { $(stringify!($symbol) => $symbol as *const c_void,)* _ => std::ptr::null() }
        }
    };
}

/// Where the functions are found.
pub(super) fn find(name: &str) -> *const c_void {
    if books(|books| books.missing.contains(&name)) { std::ptr::null() } else { functions::find(name) }
}

/// Elements of a matrix that is used as it is, or transposed.
fn element(addr: u64, ld: i64, op: u32, row: i64, column: i64) -> f32 {
    let (row, column) = if op == 0 { (row, column) } else { (column, row) };
    // SAFETY: the device under test gives matrices that are so long.
    unsafe { (addr as *const f32).offset((column * ld + row) as isize).read() }
}

/// `C = alpha op(A) op(B) + beta C`, when the handle's stream has come to it.
#[allow(clippy::too_many_arguments)]
fn product(
    handle: Object,
    ops: [u32; 2],
    [m, n, k]: [i64; 3],
    [alpha, beta]: [Factor; 2],
    a: (u64, i64),
    b: (u64, i64),
    c: (u64, i64),
) {
    let (stream, on_device) = books(|books| books.handles[&(handle as usize)]);
    // SAFETY: factors of 32 bits lie there.
    let read = |factor: usize| unsafe { (factor as *const f32).read_unaligned() };
    let (alpha, beta) = (alpha as usize, beta as usize);
    let host = [alpha, beta].map(|factor| if on_device { 0.0 } else { read(factor) });
    compute(Stream(stream as *mut c_void), move || {
        let [alpha, beta] = if on_device { [read(alpha), read(beta)] } else { host };
        for column in 0..n {
            for row in 0..m {
                let terms =
                    (0..k).map(|i| element(a.0, a.1, ops[0], row, i) * element(b.0, b.1, ops[1], i, column));
                let sum: f32 = terms.sum();
                let place = (c.0 as *mut f32).wrapping_offset((column * c.1 + row) as isize);
                // SAFETY: as in `element`.
                unsafe { place.write(alpha * sum + beta * place.read()) };
            }
        }
    });
}

#[allow(non_snake_case)]
mod functions {
    use super::*;

    fakes! {
        cublasGetProperty(which: u32, out: *mut i32) [which] { *out = [12, 4, 5][which as usize]; 0 }
        cufftGetProperty(which: u32, out: *mut i32) [which] { *out = [11, 2, 3][which as usize]; 0 }
        cublasCreate_v2(out: *mut Object) [] { *out = fresh(); 0 }
        cublasSetStream_v2(handle: Object, stream: Object) [handle stream] {
            books(|books| books.handles.entry(handle as usize).or_default().0 = stream as usize);
            0
        }
        cublasSetPointerMode_v2(handle: Object, mode: u32) [handle mode] {
            books(|books| books.handles.entry(handle as usize).or_default().1 = mode == 1);
            0
        }
        cublasGemmEx_64(
            handle: Object, op_a: u32, op_b: u32, m: i64, n: i64, k: i64, alpha: Factor, a: Address, kind_a: u32,
            lda: i64,
            b: Address, kind_b: u32, ldb: i64, beta: Factor, c: Address, kind_c: u32, ldc: i64, compute: u32,
            algorithm: i32
        ) [handle op_a op_b m n k alpha a kind_a lda b kind_b ldb beta c kind_c ldc compute algorithm] {
            if [kind_a, kind_b, kind_c] == [0; 3] {
                product(handle, [op_a, op_b], [m, n, k], [alpha, beta], (a, lda), (b, ldb), (c, ldc));
            }
            0
        }
        cublasGemmStridedBatchedEx_64(
            handle: Object, op_a: u32, op_b: u32, m: i64, n: i64, k: i64, alpha: Factor, a: Address, kind_a: u32,
            lda: i64,
            stride_a: i64, b: Address, kind_b: u32, ldb: i64, stride_b: i64, beta: Factor, c: Address, kind_c: u32,
            ldc: i64,
            stride_c: i64, count: i64, compute: u32, algorithm: i32
        ) [handle op_a op_b m n k alpha a kind_a lda stride_a b kind_b ldb stride_b beta c kind_c ldc stride_c count
        compute
            algorithm] { 0 }
        cublasGemmBatchedEx_64(
            handle: Object, op_a: u32, op_b: u32, m: i64, n: i64, k: i64, alpha: Factor, a: Address, kind_a: u32,
            lda: i64,
            b: Address, kind_b: u32, ldb: i64, beta: Factor, c: Address, kind_c: u32, ldc: i64, count: i64,
            compute: u32,
            algorithm: i32
        ) [handle op_a op_b m n k alpha a kind_a lda b kind_b ldb beta c kind_c ldc count compute algorithm] { 0 }
        cublasAxpyEx_64(
            handle: Object, n: i64, alpha: Factor, kind: u32, x: Address, kind_x: u32, incx: i64, y: Address,
            kind_y: u32,
            incy: i64, compute: u32
        ) [handle n alpha kind x kind_x incx y kind_y incy compute] { 0 }
        cublasNrm2Ex_64(
            handle: Object, n: i64, x: Address, kind_x: u32, incx: i64, result: Address, kind: u32, compute: u32
        ) [handle n x kind_x incx result kind compute] { 0 }
        cublasIamaxEx(handle: Object, n: i32, x: Address, kind_x: u32, incx: i32, result: Address)
            [handle n x kind_x incx result] { 0 }
        cublasDgemv_v2_64(
            handle: Object, op: u32, m: i64, n: i64, alpha: Factor, a: Address, lda: i64, x: Address, incx: i64,
            beta: Factor,
            y: Address, incy: i64
        ) [handle op m n alpha a lda x incx beta y incy] { 0 }
        cublasZher2_v2_64(
            handle: Object, fill: u32, n: i64, alpha: Factor, x: Address, incx: i64, y: Address, incy: i64,
            a: Address, lda: i64
        ) [handle fill n alpha x incx y incy a lda] { 0 }
        cublasCherk_v2_64(
            handle: Object, fill: u32, op: u32, n: i64, k: i64, alpha: Factor, a: Address, lda: i64, beta: Factor,
            c: Address,
            ldc: i64
        ) [handle fill op n k alpha a lda beta c ldc] { 0 }
        cublasStrsm_v2_64(
            handle: Object, side: u32, fill: u32, op: u32, unit: u32, m: i64, n: i64, alpha: Factor, a: Address,
            lda: i64,
            b: Address, ldb: i64
        ) [handle side fill op unit m n alpha a lda b ldb] { 0 }
        cublasSgeam_64(
            handle: Object, op_a: u32, op_b: u32, m: i64, n: i64, alpha: Factor, a: Address, lda: i64, beta: Factor,
            b: Address,
            ldb: i64, c: Address, ldc: i64
        ) [handle op_a op_b m n alpha a lda beta b ldb c ldc] { 0 }

        cublasLtCreate(out: *mut Object) [] { *out = fresh(); 0 }
        cublasLtMatmulDescCreate(out: *mut Object, compute: u32, scale: u32) [compute scale] { *out = fresh(); 0 }
        cublasLtMatmulDescSetAttribute(of: Object, name: u32, value: *const c_void, bytes: usize) [] {
            attribute("product", of, name, value, bytes)
        }
        cublasLtMatmulDescDestroy(of: Object) [] { 0 }
        cublasLtMatrixLayoutCreate(out: *mut Object, kind: u32, rows: u64, columns: u64,
        ld: i64) [kind rows columns ld] {
            *out = fresh();
            0
        }
        cublasLtMatrixLayoutSetAttribute(of: Object, name: u32, value: *const c_void, bytes: usize) [] {
            attribute("layout", of, name, value, bytes)
        }
        cublasLtMatrixLayoutDestroy(of: Object) [] { 0 }
        cublasLtMatmulPreferenceCreate(out: *mut Object) [] { *out = fresh(); 0 }
        cublasLtMatmulPreferenceSetAttribute(of: Object, name: u32, value: *const c_void, bytes: usize) [] {
            attribute("preference", of, name, value, bytes)
        }
        cublasLtMatmulPreferenceDestroy(of: Object) [] { 0 }
        cublasLtMatmulAlgoGetHeuristic(
            handle: Object, product: Object, a: Object, b: Object, c: Object, d: Object, preference: Object, most: i32,
            found: *mut u64, count: *mut i32
        ) [handle product most] {
            // 64 bytes of algorithm, then how much room it takes, then its status.
            found.write_bytes(0, 12);
            found.write(77);
            found.add(8).write(5000);
            *count = 1;
            0
        }
        cublasLtMatmul(
            handle: Object, product: Object, alpha: Factor, a: Address, layout_a: Object, b: Address, layout_b: Object,
            beta: Factor, c: Address, layout_c: Object, d: Address, layout_d: Object, algorithm: *const u64,
            room: Address,
            bytes: usize, stream: Object
        ) [handle alpha a b beta c d bytes] {
            assert_eq!((*algorithm, room != 0), (77, true));
            0
        }

        cufftCreate(out: *mut i32) [] { *out = fresh() as i32; 0 }
        cufftDestroy(plan: i32) [plan] { 0 }
        cufftSetAutoAllocation(plan: i32, allocates: i32) [plan allocates] { 0 }
        cufftMakePlanMany64(
            plan: i32, rank: i32, n: *mut i64, pitch_in: *mut i64, stride_in: i64, distance_in: i64,
            pitch_out: *mut i64,
            stride_out: i64, distance_out: i64, kind: u32, count: i64, bytes: *mut usize
        ) [plan rank stride_in distance_in stride_out distance_out kind count] {
            let list = |at: *mut i64| std::slice::from_raw_parts(at, rank as usize).to_vec();
            let text = format!("n {:?} in {:?} out {:?}", list(n), list(pitch_in), list(pitch_out));
            books(|books| books.log.push(text));
            *bytes = 100;
            0
        }
        cufftSetStream(plan: i32, stream: Object) [plan] { 0 }
        cufftSetWorkArea(plan: i32, place: Address) [plan] { 0 }
        cufftExecC2C(plan: i32, from: Address, to: Address, direction: i32) [plan from to direction] { 0 }

        curandCreateGenerator(out: *mut Object, kind: u32) [kind] { *out = fresh(); 0 }
        curandDestroyGenerator(of: Object) [of] { 0 }
        curandSetStream(of: Object, stream: Object) [of] { 0 }
        curandSetPseudoRandomGeneratorSeed(of: Object, seed: u64) [of seed] { 0 }
        curandSetGeneratorOffset(of: Object, place: u64) [of place] { 0 }
        curandGenerateUniform(of: Object, to: Address, count: usize) [of to count] { 0 }
        curandGenerateNormalDouble(of: Object, to: Address, count: usize, a: f64, b: f64) [of to count a b] { 0 }

        cusolverDnCreate(out: *mut Object) [] { *out = fresh(); 0 }
        cusolverDnCreateParams(out: *mut Object) [] { *out = fresh(); 0 }
        cusolverDnCreateSyevjInfo(out: *mut Object) [] { *out = fresh(); 0 }
        cusolverDnCreateGesvdjInfo(out: *mut Object) [] { *out = fresh(); 0 }
        cusolverDnSetStream(handle: Object, stream: Object) [handle] { 0 }
        cusolverDnXpotrf_bufferSize(
            handle: Object, params: Object, fill: u32, n: i64, kind: u32, a: Address, lda: i64, compute: u32,
            device: *mut usize, host: *mut usize
        ) [handle fill n kind a lda compute] {
            (*device, *host) = (3000, 100);
            0
        }
        cusolverDnXpotrf(
            handle: Object, params: Object, fill: u32, n: i64, kind: u32, a: Address, lda: i64, compute: u32,
            room: Address,
            bytes: usize, memory: *mut u8, host: usize, info: Address
        ) [handle fill n kind a lda compute bytes host info] {
            assert!(room != 0 && !memory.is_null());
            memory.write_bytes(1, host);
            0
        }

        cusparseCreate(out: *mut Object) [] { *out = fresh(); 0 }
        cusparseSetStream(handle: Object, stream: Object) [handle] { 0 }
        cusparseSetPointerMode(handle: Object, mode: u32) [handle mode] { 0 }
        cusparseCreateCsr(
            out: *mut Object, rows: i64, columns: i64, stored: i64, offsets: Address, indices: Address, values: Address,
            kind_offsets: u32, kind_indices: u32, base: u32, kind: u32
        ) [rows columns stored offsets indices values kind_offsets kind_indices base kind] { *out = fresh(); 0 }
        cusparseDestroySpMat(of: Object) [] { 0 }
        cusparseCreateDnVec(out: *mut Object, length: i64, values: Address, kind: u32) [length values kind] {
            *out = fresh();
            0
        }
        cusparseDestroyDnVec(of: Object) [] { 0 }
        cusparseSpMV_bufferSize(
            handle: Object, op: u32, alpha: Factor, a: Object, x: Object, beta: Factor, y: Object, kind: u32,
            algorithm: u32,
            bytes: *mut usize
        ) [] { *bytes = 0; 0 }
        cusparseSpMV(
            handle: Object, op: u32, alpha: Factor, a: Object, x: Object, beta: Factor, y: Object, kind: u32,
            algorithm: u32,
            room: Address
        ) [handle op alpha beta kind algorithm room] { 0 }
    }

    /// Notes an attribute's value: four bytes or eight.
    fn attribute(what: &str, _of: Object, name: u32, value: *const c_void, bytes: usize) -> Status {
        let value = match bytes {
            // SAFETY: the value is so long.
            4 => u64::from(unsafe { value.cast::<u32>().read_unaligned() }),
            // SAFETY: the value is so long.
            8 => unsafe { value.cast::<u64>().read_unaligned() },
            _ => return 7,
        };
        books(|books| books.log.push(format!("{what} {name} = {}", value.shown())));
        0
    }

    pub(super) fn find(name: &str) -> *const c_void {
        symbol(name)
    }
}
