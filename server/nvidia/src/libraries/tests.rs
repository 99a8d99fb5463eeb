//! The tables, held to NVIDIA's headers and libraries where a developer has put those into the toolkit's cache,
//! beside the toolkit's own: headers in `cu12/include` or `cu13/include`, libraries in `cu12/lib` or `cu13/lib`.

use super::table::Row;
use super::{Libraries, Place, TABLES};
use crate::find::Library as Opened;
use rgpu_libraries::Library;
use std::ffi::CString;
use std::path::PathBuf;
use std::process::Command;

/// The header with the functions of each table.
const HEADERS: &[(&str, &str)] = &[
    ("cublas", "cublas_api.h"),
    ("cublaslt", "cublasLt.h"),
    ("cufft", "cufft.h"),
    ("curand", "curand.h"),
    ("cusolver", "cusolverDn.h"),
    ("cusparse", "cusparse.h"),
    ("cudnn", "cudnn_graph.h"),
];

/// A folder of a toolkit in the user's cache, for CUDA of that version.
fn toolkit(major: u32, folder: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let found = std::fs::read_dir(cache.join("rgpu")).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let folders = found.map(|toolkit| toolkit.join(format!("cu{major}/{folder}")));
    folders.filter(|folder| folder.is_dir()).max()
}

/// A header after the preprocessor, or nothing where it is not there.
fn header(major: u32, name: &str) -> Option<String> {
    let include = toolkit(major, "include")?;
    if !include.join(name).exists() {
        eprintln!("SKIPPED: {name} of CUDA {major} is not in the toolkit's cache");
        return None;
    }
    let mut command = Command::new("cc");
    let output = command
        .args(["-E", "-P", "-x", "c++", "-DCUBLASAPI=", "-I"])
        .arg(&include)
        .arg(include.join(name))
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// How an argument is handed over: as a pointer, a wide or a narrow integer, or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Pointer,
    Wide,
    Narrow,
    Char,
    Float,
    Double,
}

/// Handles and descriptors, which are pointers to what nobody sees.
const POINTERS: &[&str] = &[
    "cudaStream_t",
    "cublasHandle_t",
    "cublasLtHandle_t",
    "cublasLtMatmulDesc_t",
    "cublasLtMatrixLayout_t",
    "cublasLtMatmulPreference_t",
    "cublasLtMatrixTransformDesc_t",
    "cusolverDnHandle_t",
    "cusolverDnParams_t",
    "syevjInfo_t",
    "gesvdjInfo_t",
    "curandGenerator_t",
    "cusparseHandle_t",
    "cusparseSpMatDescr_t",
    "cusparseConstSpMatDescr_t",
    "cusparseDnMatDescr_t",
    "cusparseConstDnMatDescr_t",
    "cusparseDnVecDescr_t",
    "cusparseConstDnVecDescr_t",
    "cudnnHandle_t",
    "cudnnBackendDescriptor_t",
];

fn class_in_c(argument: &str) -> Class {
    if argument.contains(['*', '[']) {
        return Class::Pointer;
    }
    let words: Vec<&str> = argument.split_whitespace().filter(|word| *word != "const").collect();
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
    if has(POINTERS) {
        Class::Pointer
    } else if has(&["float"]) {
        Class::Float
    } else if has(&["double"]) {
        Class::Double
    } else if has(&["char"]) {
        Class::Char
    } else if has(&["int64_t", "uint64_t", "size_t", "long"]) {
        Class::Wide
    } else {
        Class::Narrow
    }
}

fn class_in_rust(argument: &str) -> Class {
    match argument {
        "Object" | "Address" | "Factor" => Class::Pointer,
        "i64" | "u64" | "usize" => Class::Wide,
        "i8" => Class::Char,
        "f32" => Class::Float,
        "f64" => Class::Double,
        "i32" | "u32" | "Plan" => Class::Narrow,
        other if other.starts_with('*') => Class::Pointer,
        other => panic!("{other} is no type of a table"),
    }
}

/// The arguments of a function in a preprocessed header.
fn prototype<'a>(header: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in header.match_indices(name) {
        let (before, after) = (&header[..at], header[at + name.len()..].trim_start());
        if before.ends_with(is_word) || !after.starts_with('(') {
            continue;
        }
        return Some(after[1..after.find(')')?].split(',').map(str::trim).collect());
    }
    None
}

fn compare(name: &str, header: &str, rows: &[Row]) -> usize {
    let mut compared = 0;
    let names = rows.iter().flat_map(|row| row.names.iter().map(move |name| (*name, row.arguments)));
    for (function, arguments) in names {
        let Some(found) = prototype(header, function) else { panic!("{name}'s header has no {function}") };
        let in_c: Vec<Class> = found.iter().map(|argument| class_in_c(argument)).collect();
        let in_rust: Vec<Class> = arguments.iter().map(|argument| class_in_rust(argument)).collect();
        assert_eq!(in_c, in_rust, "{function}({found:?})");
        compared += 1;
    }
    compared
}

#[test]
fn functions_take_what_their_headers_say() {
    let mut compared = 0;
    for major in [12, 13] {
        for (name, file) in HEADERS {
            let Some(text) = header(major, file) else { continue };
            let (_, rows) = TABLES.iter().find(|(table, _)| table == name).unwrap();
            compared += compare(name, &text, rows);
        }
    }
    eprintln!("{compared} functions were compared");
}

/// Checks constants by a C compiler.
fn constants(major: u32, headers: &[&str], list: &[(&str, i64)]) {
    let Some(include) = toolkit(major, "include") else { return };
    if let Some(missing) = headers.iter().find(|header| !include.join(header).exists()) {
        eprintln!("SKIPPED: {missing} of CUDA {major} is not in the toolkit's cache");
        return;
    }
    let mut text: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
    for (name, value) in list {
        text.push_str(&format!("_Static_assert({name} == {value}, \"{name}\");\n"));
    }
    let file =
        std::env::temp_dir().join(format!("rgpu-constants-{}-{major}-{}.c", std::process::id(), headers[0]));
    std::fs::write(&file, text).unwrap();
    let output = Command::new("cc")
        .args(["-fsyntax-only", "-x", "c", "-DCUBLASAPI=", "-I"])
        .arg(&include)
        .arg(&file)
        .output();
    let output = output.unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn numbers_are_those_of_the_headers() {
    for major in [12, 13] {
        constants(major, &["cublas_api.h"], BLAS);
        constants(major, &["cublas_api.h", "cublasLt.h"], BLAS_LT);
        constants(major, &["cufft.h"], FFT);
        constants(major, &["curand.h"], RAND);
        constants(major, &["cusolverDn.h"], SOLVER);
        constants(major, &["cusparse.h"], SPARSE);
        constants(major, &["cudnn_graph.h"], DNN);
    }
}

const BLAS: &[(&str, i64)] = &[
    ("CUBLAS_STATUS_ALLOC_FAILED", 3),
    ("CUBLAS_STATUS_EXECUTION_FAILED", 13),
    ("CUBLAS_STATUS_NOT_SUPPORTED", 15),
    ("CUBLAS_POINTER_MODE_HOST", 0),
    ("CUBLAS_POINTER_MODE_DEVICE", 1),
    ("CUBLAS_COMPUTE_16F", 64),
    ("CUBLAS_COMPUTE_32F", 68),
    ("CUBLAS_COMPUTE_64F", 70),
    ("CUBLAS_COMPUTE_32I", 72),
    ("CUBLAS_GEMM_DEFAULT", -1),
    ("CUBLAS_OP_T", 1),
    ("CUBLAS_OP_C", 2),
    ("CUBLAS_FILL_MODE_LOWER", 0),
    ("CUBLAS_FILL_MODE_UPPER", 1),
    ("CUBLAS_SIDE_RIGHT", 1),
    ("CUBLAS_DIAG_UNIT", 1),
    ("CUDA_R_32F", 0),
    ("CUDA_R_16F", 2),
    ("CUDA_R_16BF", 14),
    ("CUDA_C_64F", 5),
    ("CUDA_R_32I", 10),
];

const BLAS_LT: &[(&str, i64)] = &[
    ("CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO", 3),
    ("CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST", 4),
    ("CUBLASLT_MATMUL_DESC_POINTER_MODE", 2),
    ("CUBLASLT_MATMUL_DESC_TRANSA", 3),
    ("CUBLASLT_MATMUL_DESC_TRANSB", 4),
    ("CUBLASLT_MATMUL_DESC_EPILOGUE", 7),
    ("CUBLASLT_MATMUL_DESC_BIAS_POINTER", 8),
    ("CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE", 10),
    ("CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER", 11),
    ("CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD", 12),
    ("CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE", 13),
    ("CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE", 22),
    ("CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE", 26),
    ("CUBLASLT_MATRIX_LAYOUT_ORDER", 1),
    ("CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT", 5),
    ("CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET", 6),
    ("CUBLASLT_ORDER_ROW", 1),
    ("CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", 1),
    ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES", 5),
    ("CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES", 8),
    ("CUBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE", 1),
    ("CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA", 2),
    ("CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSB", 3),
    ("CUBLASLT_EPILOGUE_DEFAULT", 1),
    ("CUBLASLT_EPILOGUE_GELU_AUX_BIAS", 164),
    ("CUBLASLT_EPILOGUE_DRELU_BGRAD", 8 | 128 | 16),
    ("CUBLASLT_EPILOGUE_DGELU", 64 | 128),
    ("CUBLASLT_EPILOGUE_BGRADA", 256),
    ("CUBLASLT_EPILOGUE_BGRADB", 512),
    ("sizeof(cublasLtMatmulAlgo_t)", 64),
    ("sizeof(cublasLtMatmulHeuristicResult_t)", size_of::<super::blas_lt::Found>() as i64),
    ("__builtin_offsetof(cublasLtMatmulHeuristicResult_t, state)", 72),
];

const FFT: &[(&str, i64)] = &[
    ("CUFFT_C2C", 0x29),
    ("CUFFT_R2C", 0x2a),
    ("CUFFT_C2R", 0x2c),
    ("CUFFT_Z2Z", 0x69),
    ("CUFFT_D2Z", 0x6a),
    ("CUFFT_Z2D", 0x6c),
    ("CUFFT_FORWARD", -1),
    ("CUFFT_INVERSE", 1),
    ("CUFFT_NOT_SUPPORTED", 16),
    ("sizeof(cufftHandle)", 4),
];

const RAND: &[(&str, i64)] = &[
    ("CURAND_RNG_PSEUDO_XORWOW", 101),
    ("CURAND_RNG_PSEUDO_MRG32K3A", 121),
    ("CURAND_RNG_PSEUDO_MT19937", 142),
    ("CURAND_RNG_PSEUDO_PHILOX4_32_10", 161),
    ("CURAND_RNG_QUASI_SOBOL32", 201),
    ("CURAND_RNG_QUASI_SOBOL64", 203),
    ("CURAND_STATUS_LAUNCH_FAILURE", 201),
];

const SOLVER: &[(&str, i64)] = &[
    ("CUSOLVER_STATUS_NOT_SUPPORTED", 9),
    ("CUSOLVER_EIG_MODE_NOVECTOR", 0),
    ("CUSOLVER_EIG_MODE_VECTOR", 1),
    ("CUBLAS_FILL_MODE_UPPER", 1),
];

const SPARSE: &[(&str, i64)] = &[
    ("CUSPARSE_INDEX_32I", 2),
    ("CUSPARSE_INDEX_64I", 3),
    ("CUSPARSE_ORDER_COL", 1),
    ("CUSPARSE_ORDER_ROW", 2),
    ("CUSPARSE_INDEX_BASE_ONE", 1),
    ("CUSPARSE_SPMM_ALG_DEFAULT", 0),
    ("CUSPARSE_SPMV_ALG_DEFAULT", 0),
    ("CUSPARSE_SDDMM_ALG_DEFAULT", 0),
    ("CUSPARSE_SPARSETODENSE_ALG_DEFAULT", 0),
    ("CUSPARSE_CSR2CSC_ALG_DEFAULT", 1),
    ("CUSPARSE_ACTION_NUMERIC", 1),
    ("CUSPARSE_STATUS_NOT_SUPPORTED", 10),
];

const DNN: &[(&str, i64)] = &[
    ("CUDNN_STATUS_BAD_PARAM", 2000),
    ("CUDNN_STATUS_NOT_SUPPORTED", 3000),
    ("CUDNN_DATA_BFLOAT16", 9),
    ("CUDNN_BACKEND_ENGINECFG_DESCRIPTOR", 3),
    ("CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR", 4),
    ("CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR", 5),
    ("CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR", 10),
    ("CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR", 11),
    ("CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR", 12),
    ("CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR", 13),
    ("CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR", 15),
    ("CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR", 16),
    ("CUDNN_BACKEND_TENSOR_DESCRIPTOR", 17),
    ("CUDNN_BACKEND_MATMUL_DESCRIPTOR", 18),
    ("CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR", 19),
    ("CUDNN_BACKEND_REDUCTION_DESCRIPTOR", 21),
    ("CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR", 22),
    ("CUDNN_TYPE_HANDLE", 0),
    ("CUDNN_TYPE_BOOLEAN", 2),
    ("CUDNN_TYPE_VOID_PTR", 6),
    ("CUDNN_TYPE_CONVOLUTION_MODE", 7),
    ("CUDNN_TYPE_HEUR_MODE", 8),
    ("CUDNN_TYPE_POINTWISE_MODE", 14),
    ("CUDNN_TYPE_BACKEND_DESCRIPTOR", 15),
    ("CUDNN_TYPE_REDUCTION_OPERATOR_TYPE", 18),
    ("CUDNN_ATTR_POINTWISE_SWISH_BETA", 8),
    ("CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS", 106),
    ("CUDNN_ATTR_ENGINEHEUR_RESULTS", 202),
    ("CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG", 401),
    ("CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE", 402),
    ("CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC", 702),
    ("CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W", 703),
    ("CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY", 711),
    ("CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW", 715),
    ("CUDNN_ATTR_OPERATION_POINTWISE_TDESC", 758),
    ("CUDNN_ATTR_OPERATIONGRAPH_OPS", 801),
    ("CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT", 900),
    ("CUDNN_ATTR_TENSOR_UNIQUE_ID", 906),
    ("CUDNN_ATTR_TENSOR_IS_BY_VALUE", 908),
    ("CUDNN_ATTR_VARIANT_PACK_WORKSPACE", 1003),
    ("CUDNN_ATTR_OPERATION_MATMUL_DESC", 1523),
    ("CUDNN_ATTR_OPERATION_REDUCTION_DESC", 1612),
    ("CUDNN_HEUR_MODE_INSTANT", 0),
    ("CUDNN_HEUR_MODE_FALLBACK", 2),
];

#[test]
fn libraries_have_the_functions() {
    for major in [12, 13] {
        let Some(folder) = toolkit(major, "lib") else { continue };
        let place = Place::Machine(vec![folder.clone()], major * 1000);
        let libraries = Libraries::new(place);
        for (name, rows) in TABLES {
            let file =
                super::find::files(name, major * 1000).into_iter().find(|file| folder.join(file).exists());
            let Some(file) = file else {
                eprintln!("SKIPPED: {name} for CUDA {major} is not in the toolkit's cache");
                continue;
            };
            let library = Library::ALL.into_iter().find(|library| library.name().to_lowercase() == *name);
            let version = libraries.version(library.unwrap() as u32).unwrap();
            eprintln!("{file}: version {version}");
            let opened = Opened::open(&folder.join(file)).unwrap();
            for function in rows.iter().flat_map(|row| row.names) {
                let symbol = CString::new(*function).unwrap();
                assert!(!opened.symbol(&symbol).is_null(), "{file} has no {function}");
            }
        }
    }
}
