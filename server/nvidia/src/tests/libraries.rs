//! What operations of libraries come to: calls of the server's own libraries, with exactly these arguments.

use super::fake::{turn, with};
use super::fake_libraries::books;
use super::{MIB, Setup, setup};
use rgpu_device::{Code, Device, LibraryCall, Result, Target};
use rgpu_libraries::{
    Activation, AddMatrices, Arguments, Batch, Cholesky, Combination, Combine, DataType, DenseMatrix,
    Distribution, Fft, FftLayout, Fill, Gemm, Generator, Library, Matmul, Matrix, MatrixVector, Random,
    RankK, RankUpdate, Reduce, Reduction, Scalar, Side, SparseMatrix, SparseProduct, SparseSort, Structure,
    Task, Transpose, Triangular, Vector,
};

/// A device with 2 MiB of memory at its first address, and libraries with empty books.
struct Bench {
    setup: Setup,
    /// The driver's number of the legacy stream.
    _turn: super::fake::Turn,
}

fn bench() -> Bench {
    let turn = turn();
    let setup = setup();
    setup.alloc(setup.base, 2 * MIB);
    Bench { setup, _turn: turn }
}

impl Bench {
    fn post(&self, work: &impl Arguments) -> Result<()> {
        self.post_on(0, work)
    }

    fn post_on(&self, stream: u64, work: &impl Arguments) -> Result<()> {
        let (operation, params) = work.written();
        self.setup.device.library(LibraryCall { stream, operation, params: &params })
    }

    fn sync(&self) -> Result<()> {
        self.setup.sync(Target::Device(0))
    }

    /// What the libraries were called for an operation on the legacy stream, but for setting up handles.
    fn calls(&self, work: &impl Arguments) -> Vec<String> {
        books(|books| books.log.clear());
        self.post(work).unwrap();
        self.sync().unwrap();
        let mut log = books(|books| std::mem::take(&mut books.log));
        log.retain(|call| {
            let setup = ["Create", "SetStream", "PointerMode", "Destroy"];
            !setup.iter().any(|part| call.contains(part))
        });
        log
    }

    /// The one call of an operation.
    fn call(&self, work: &impl Arguments) -> String {
        let calls = self.calls(work);
        assert_eq!(calls.len(), 1, "{calls:?}");
        calls.into_iter().next().unwrap()
    }

    fn at(&self, offset: u64, kind: DataType, ld: u64) -> Matrix {
        Matrix { addr: self.setup.base + offset, kind, ld, stride: 0 }
    }

    fn vector(&self, offset: u64, kind: DataType, inc: i64) -> Vector {
        Vector { addr: self.setup.base + offset, kind, inc, stride: 0 }
    }

    fn gemm(&self) -> Gemm {
        Gemm {
            op_a: Transpose::Transposed,
            op_b: Transpose::Adjoint,
            m: 4,
            n: 5,
            k: 6,
            alpha: Scalar::real(1.0),
            a: self.at(0, DataType::F16, 7),
            b: self.at(0x1000, DataType::F16, 8),
            beta: Scalar::real(0.5),
            c: self.at(0x2000, DataType::F16, 9),
            compute: DataType::F32,
            batch: Batch::Strided,
            count: 1,
        }
    }
}

#[test]
fn products_of_matrices() {
    let bench = bench();
    // 1 is 0x3f800000, and a half is 0x3f000000; 68 is CUBLAS_COMPUTE_32F, and 2 CUDA_R_16F.
    let one = "cublasGemmEx_64(#1, 1, 2, 4, 5, 6, host 0x3f800000, 0x300000000000, 2, 7, 0x300000001000, 2, 8, \
               host 0x3f000000, 0x300000002000, 2, 9, 68, -1)";
    assert_eq!(bench.call(&bench.gemm()), one);
    let mut strided = Gemm { count: 3, ..bench.gemm() };
    (strided.a.stride, strided.b.stride, strided.c.stride) = (100, 0, 300);
    assert_eq!(
        bench.call(&strided),
        "cublasGemmStridedBatchedEx_64(#1, 1, 2, 4, 5, 6, host 0x3f800000, 0x300000000000, 2, 7, 100, \
         0x300000001000, 2, 8, 0, host 0x3f000000, 0x300000002000, 2, 9, 300, 3, 68, -1)"
    );
    let pointers = Gemm { count: 3, batch: Batch::Pointers, compute: DataType::F16, ..bench.gemm() };
    // In halves, so are the factors: 0x3c00 and 0x3800.
    assert_eq!(
        bench.call(&pointers),
        "cublasGemmBatchedEx_64(#1, 1, 2, 4, 5, 6, host 0x3c00, 0x300000000000, 2, 7, 0x300000001000, 2, 8, \
         host 0x3800, 0x300000002000, 2, 9, 3, 64, -1)"
    );
    let at = bench.setup.base;
    books(|books| books.log.clear());
    bench
        .post(&Gemm { alpha: Scalar::device(at + 64), beta: Scalar::device(at + 68), ..bench.gemm() })
        .unwrap();
    bench.sync().unwrap();
    let log = books(|books| books.log.clone());
    assert_eq!(log[..2], ["cublasSetStream_v2(#1, #1)", "cublasSetPointerMode_v2(#1, 1)"]);
    assert!(log[2].contains("device 0x300000000040") && log[2].contains("device 0x300000000044"), "{log:?}");
}

#[test]
fn vectors_and_matrices() {
    let bench = bench();
    let (f16, f64, c32, c64) = (DataType::F16, DataType::F64, DataType::C32, DataType::C64);
    let axpy = Combine {
        what: Combination::Axpy,
        n: 10,
        alpha: Scalar::real(1.0),
        x: bench.vector(0, f16, -2),
        y: bench.vector(0x1000, f16, 3),
        ..Combine::default()
    };
    let expected =
        "cublasAxpyEx_64(#1, 10, host 0x3f800000, 0, 0x300000000000, 2, -2, 0x300000001000, 2, 3, 0)";
    assert_eq!(bench.call(&axpy), expected);
    // The norm of complex numbers is summed up in real ones.
    let norm = Reduce {
        what: Reduction::Norm,
        n: 10,
        x: bench.vector(0, c32, 1),
        result: bench.setup.base + 0x2000,
        compute: c32,
        ..Reduce::default()
    };
    assert_eq!(bench.call(&norm), "cublasNrm2Ex_64(#1, 10, 0x300000000000, 4, 1, 0x300000002000, 0, 0)");
    let greatest = Reduce { what: Reduction::Greatest, result_kind: DataType::I32, ..norm };
    assert_eq!(bench.call(&greatest), "cublasIamaxEx(#1, 10, 0x300000000000, 4, 1, 0x300000002000)");
    let product = MatrixVector {
        op: Transpose::Transposed,
        m: 3,
        n: 4,
        alpha: Scalar::real(2.0),
        a: bench.at(0, f64, 5),
        x: bench.vector(0x1000, f64, 1),
        y: bench.vector(0x2000, f64, 2),
        scalar: f64,
        compute: f64,
        count: 1,
        ..MatrixVector::default()
    };
    assert_eq!(
        bench.call(&product),
        "cublasDgemv_v2_64(#1, 1, 3, 4, host 0x4000000000000000, 0x300000000000, 5, 0x300000001000, 1, host 0x0, \
         0x300000002000, 2)"
    );
    let update = RankUpdate {
        structure: Structure::Hermitian,
        twice: true,
        fill: Fill::Upper,
        n: 4,
        alpha: Scalar::complex(1.0, 2.0),
        x: bench.vector(0, c64, 1),
        y: bench.vector(0x1000, c64, 2),
        a: bench.at(0x2000, c64, 6),
        scalar: c64,
        compute: c64,
        ..RankUpdate::default()
    };
    assert_eq!(
        bench.call(&update),
        "cublasZher2_v2_64(#1, 1, 4, host 0x3ff0000000000000, 0x300000000000, 1, 0x300000001000, 2, 0x300000002000, 6)"
    );
}

#[test]
fn matrices_with_a_structure() {
    let bench = bench();
    let c32 = DataType::C32;
    let rank = RankK {
        structure: Structure::Hermitian,
        op: Transpose::Adjoint,
        n: 3,
        k: 4,
        alpha: Scalar::real(1.0),
        a: bench.at(0, c32, 5),
        c: bench.at(0x1000, c32, 6),
        compute: c32,
        ..RankK::default()
    };
    let expected =
        "cublasCherk_v2_64(#1, 0, 2, 3, 4, host 0x3f800000, 0x300000000000, 5, host 0x0, 0x300000001000, 6)";
    assert_eq!(bench.call(&rank), expected);
    let b = bench.at(0x1000, DataType::F32, 7);
    let triangular = Triangular {
        solve: true,
        side: Side::Right,
        fill: Fill::Upper,
        op: Transpose::Transposed,
        unit: true,
        m: 3,
        n: 4,
        alpha: Scalar::real(1.0),
        a: bench.at(0, DataType::F32, 5),
        b: b.clone(),
        c: b,
        count: 1,
        ..Triangular::default()
    };
    assert_eq!(
        bench.call(&triangular),
        "cublasStrsm_v2_64(#1, 1, 1, 1, 1, 3, 4, host 0x3f800000, 0x300000000000, 5, 0x300000001000, 7)"
    );
    let sum = AddMatrices {
        op_b: Transpose::Transposed,
        m: 3,
        n: 4,
        alpha: Scalar::real(1.0),
        a: bench.at(0, DataType::F32, 5),
        beta: Scalar::real(0.5),
        b: bench.at(0x1000, DataType::F32, 6),
        c: bench.at(0x2000, DataType::F32, 7),
        count: 1,
        ..AddMatrices::default()
    };
    assert_eq!(
        bench.call(&sum),
        "cublasSgeam_64(#1, 0, 1, 3, 4, host 0x3f800000, 0x300000000000, 5, host 0x3f000000, 0x300000001000, 6, \
         0x300000002000, 7)"
    );
}

#[test]
fn products_with_what_follows_them() {
    let bench = bench();
    let work = Matmul {
        op_a: Transpose::Transposed,
        m: 4,
        n: 5,
        k: 6,
        alpha: Scalar::real(1.0),
        a: bench.at(0, DataType::Bf16, 7),
        b: bench.at(0x1010, DataType::Bf16, 8),
        c: bench.at(0x2000, DataType::Bf16, 9),
        d: bench.at(0x3000, DataType::Bf16, 9),
        compute: DataType::F32,
        bias: bench.vector(0x4000, DataType::F32, 1),
        activation: Activation::Gelu,
        kept: bench.at(0x5000, DataType::Bf16, 16),
        count: 2,
        ..Matmul::default()
    };
    let log = bench.calls(&work);
    let matmul = "cublasLtMatmul(#1, host 0x3f800000, 0x300000000000, 0x300000001010, host 0x0, 0x300000002000, \
                  0x300000003000, 5000)";
    assert_eq!(log.last().unwrap(), matmul);
    for expected in [
        // GELU, a bias, and what GELU keeps.
        "product 7 = 164",
        "product 8 = 0x300000004000",
        "product 26 = 0",
        "product 11 = 0x300000005000",
        "product 12 = 16",
        "product 3 = 1",
        "product 4 = 0",
        "product 2 = 0",
        // Two of them, a step apart.
        "layout 5 = 2",
        "layout 6 = 0",
        // B lies at a multiple of 16, A at one of 256.
        "preference 5 = 256",
        "preference 6 = 16",
    ] {
        assert!(log.iter().any(|line| line == expected), "{expected}: {log:#?}");
    }
    // Transposed, A has 6 rows and 4 columns.
    bench.post(&work).unwrap();
    bench.sync().unwrap();
    let log = books(|books| books.log.clone());
    assert!(log.iter().any(|line| line == "cublasLtMatrixLayoutCreate(14, 6, 4, 7)"), "{log:#?}");
    assert!(!log.iter().any(|line| line.contains("Heuristic")), "the algorithm is kept: {log:#?}");
    let room = with(|fake| fake.log.iter().filter(|line| line.starts_with("alloc")).count());
    assert_eq!(room, 1, "room is kept, too");
}

#[test]
fn results_by_rows_are_what_the_program_said() {
    let bench = bench();
    // D' = B' A', as the client writes a result that lies by rows.
    let work = Matmul {
        m: 5,
        n: 4,
        k: 6,
        alpha: Scalar::real(1.0),
        a: bench.at(0x1000, DataType::F32, 5),
        b: bench.at(0, DataType::F32, 6),
        c: bench.at(0x2000, DataType::F32, 5),
        d: bench.at(0x2000, DataType::F32, 5),
        bias: bench.vector(0x4000, DataType::F32, 1),
        by_column: true,
        count: 1,
        ..Matmul::default()
    };
    books(|books| books.log.clear());
    bench.post(&work).unwrap();
    bench.sync().unwrap();
    let log = books(|books| books.log.clone());
    let created: Vec<_> = log.iter().filter(|line| line.contains("LayoutCreate")).collect();
    assert_eq!(
        created,
        [
            "cublasLtMatrixLayoutCreate(0, 4, 6, 6)",
            "cublasLtMatrixLayoutCreate(0, 6, 5, 5)",
            "cublasLtMatrixLayoutCreate(0, 4, 5, 5)",
            "cublasLtMatrixLayoutCreate(0, 4, 5, 5)"
        ]
    );
    assert_eq!(log.iter().filter(|line| *line == "layout 1 = 1").count(), 4, "all lie by rows");
    assert!(log.last().is_some_and(|line| line.contains("Destroy")));
    let matmul = log.iter().find(|line| line.starts_with("cublasLtMatmul(")).unwrap();
    assert!(matmul.contains("0x300000000000, 0x300000001000"), "A before B: {matmul}");
}

#[test]
fn plans_of_transforms_are_kept() {
    let bench = bench();
    let layout = |addr, last| FftLayout { addr, pitch: [1, 4, last], stride: 1, distance: 4 * last };
    let base = bench.setup.base;
    let forward = Fft {
        n: [1, 4, 8],
        input: layout(base, 9),
        output: layout(base + 0x1000, 8),
        count: 3,
        ..Fft::default()
    };
    let log = bench.calls(&forward);
    assert_eq!(log[1], "cufftMakePlanMany64(1, 2, 1, 36, 1, 32, 41, 3)");
    assert_eq!(log[2], "n [4, 8] in [4, 9] out [4, 8]");
    assert_eq!(log.last().unwrap(), "cufftExecC2C(1, 0x300000000000, 0x300000001000, -1)");
    let mut inverse = Fft { transform: rgpu_libraries::Transform::Inverse, ..forward };
    inverse.input.addr += 0x2000;
    let log = bench.calls(&inverse);
    assert_eq!(log.last().unwrap(), "cufftExecC2C(1, 0x300000002000, 0x300000001000, 1)");
    assert!(!log.iter().any(|line| line.contains("MakePlan")), "{log:?}");
}

#[test]
fn generators_go_on_where_they_stopped() {
    let bench = bench();
    let uniform = |place, count| Random {
        generator: Generator::Philox,
        seed: 42,
        place,
        dimensions: 1,
        distribution: Distribution::UniformF32,
        addr: bench.setup.base,
        count,
        ..Random::default()
    };
    let log = |work: &Random| {
        books(|books| books.log.clear());
        bench.post(work).unwrap();
        bench.sync().unwrap();
        books(|books| books.log.clone())
    };
    let first = log(&uniform(0, 100));
    assert_eq!(
        first,
        [
            "curandCreateGenerator(161)",
            "curandSetPseudoRandomGeneratorSeed(#1, 42)",
            "curandSetStream(#1)",
            "curandGenerateUniform(#1, 0x300000000000, 100)"
        ]
    );
    let second = log(&uniform(100, 50));
    assert_eq!(second, ["curandSetStream(#1)", "curandGenerateUniform(#1, 0x300000000000, 50)"]);
    // Another place is another generator's; the first one still stands at 150.
    assert!(log(&uniform(1000, 2)).contains(&"curandSetGeneratorOffset(#2, 1000)".to_owned()));
    assert_eq!(log(&uniform(150, 1)).len(), 2);
    let twister = Random { generator: Generator::Mt19937, ..uniform(5, 10) };
    bench.post(&twister).unwrap();
    let error = bench.sync().unwrap_err();
    assert_eq!(error.code, Code::NotSupported);
    assert!(error.message.contains("MT19937"), "{error}");
    bench.sync().unwrap();
}

#[test]
fn factorisations_and_sparse_products() {
    let bench = bench();
    let (base, f64) = (bench.setup.base, DataType::F64);
    let cholesky = Cholesky {
        task: Task::Factor,
        upper: true,
        n: 6,
        a: bench.at(0, f64, 7),
        info: base + 0x1000,
        count: 1,
        ..Cholesky::default()
    };
    let log = bench.calls(&cholesky);
    assert_eq!(
        log.last().unwrap(),
        "cusolverDnXpotrf(#1, 1, 6, 1, 0x300000000000, 7, 1, 3000, 100, 0x300000001000)"
    );
    let vector = |addr, rows| DenseMatrix { addr, rows, columns: 1, ld: rows, ..DenseMatrix::default() };
    let product = SparseProduct {
        alpha: Scalar::real(1.0),
        a: SparseMatrix {
            rows: 3,
            columns: 4,
            stored: 5,
            offsets: base,
            indices: base + 0x100,
            values: base + 0x200,
            wide_indices: true,
            base: 1,
            ..SparseMatrix::default()
        },
        b: vector(base + 0x300, 4),
        c: vector(base + 0x400, 3),
        ..SparseProduct::default()
    };
    books(|books| books.log.clear());
    bench.post(&product).unwrap();
    bench.sync().unwrap();
    let log = books(|books| books.log.clone());
    let matrix = "cusparseCreateCsr(3, 4, 5, 0x300000000000, 0x300000000100, 0x300000000200, 2, 3, 1, 0)";
    assert!(log.iter().any(|line| line == matrix), "{log:#?}");
    assert!(
        log.iter().any(|line| line == "cusparseSpMV(#5, 0, host 0x3f800000, host 0x0, 0, 0, 0)"),
        "{log:#?}"
    );
    bench.post(&SparseSort { first: base, second: base + 64, count: 4, ..SparseSort::default() }).unwrap();
    let error = bench.sync().unwrap_err();
    assert!(error.code == Code::NotSupported && error.message.contains("sorting"), "{error}");
}

#[test]
fn what_a_library_answers_is_the_devices_error() {
    let bench = bench();
    let answer = |status| books(|books| _ = books.fail.insert("cublasGemmEx_64", status));
    answer(15);
    bench.post(&bench.gemm()).unwrap();
    let error = bench.sync().unwrap_err();
    assert_eq!(error.code, Code::NotSupported);
    assert!(
        error.message.contains("cublasGemmEx_64 on the server answered CUBLAS_STATUS_NOT_SUPPORTED"),
        "{error}"
    );
    bench.sync().unwrap();
    answer(13);
    bench.post(&bench.gemm()).unwrap();
    for _ in 0..2 {
        let error = bench.sync().unwrap_err();
        assert_eq!(error.code, Code::LaunchFailed);
        assert!(error.message.contains("CUBLAS_STATUS_EXECUTION_FAILED"), "{error}");
    }
    // Handles go with the context.
    bench.setup.device.reset(0).unwrap();
    bench.setup.alloc(bench.setup.base, 2 * MIB);
    books(|books| books.fail.clear());
    assert!(bench.call(&bench.gemm()).starts_with("cublasGemmEx_64(#2,"));
}

#[test]
fn what_cannot_be_asked_for_is_refused_by_name() {
    let bench = bench();
    bench.post(&Gemm { beta: Scalar::device(bench.setup.base), ..bench.gemm() }).unwrap();
    let error = bench.sync().unwrap_err();
    assert!(error.code == Code::NotSupported && error.message.contains("one is in device memory"), "{error}");
    drop(bench);

    let bench = self::bench();
    books(|books| books.missing.push("cublasGemmEx_64"));
    bench.post(&bench.gemm()).unwrap();
    let error = bench.sync().unwrap_err();
    assert!(error.message.contains("has no cublasGemmEx_64"), "{error}");
    assert_eq!(bench.setup.device.library_version(0, Library::Blas as u32).unwrap(), 120_405);
    assert_eq!(bench.setup.device.library_version(0, Library::Fft as u32).unwrap(), 11_203);
}

#[test]
fn streams_have_handles_of_their_own_and_leave_them_to_others() {
    let bench = bench();
    let device = &bench.setup.device;
    device.stream_create(0, 0x1001, false, 0).unwrap();
    bench.post(&bench.gemm()).unwrap();
    bench.post_on(0x1001, &bench.gemm()).unwrap();
    bench.sync().unwrap();
    let used = |handle: &str| books(|books| books.log.iter().filter(|call| call.starts_with(handle)).count());
    assert_eq!((used("cublasGemmEx_64(#1,"), used("cublasGemmEx_64(#2,")), (1, 1));
    device.stream_destroy(0x1001).unwrap();
    device.stream_create(0, 0x1002, false, 0).unwrap();
    bench.post_on(0x1002, &bench.gemm()).unwrap();
    bench.sync().unwrap();
    assert_eq!((used("cublasGemmEx_64(#2,"), used("cublasCreate")), (2, 2));
    assert!(
        with(|fake| fake.log.iter().any(|line| line.contains("waits for"))),
        "for the end of the first stream"
    );
}
