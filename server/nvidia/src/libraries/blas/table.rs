//! cuBLAS's functions, with lengths of 64 bits wherever there are such.

use super::super::table::*;
use rgpu_device::Code;

/// What the functions answer.
pub(in super::super) const STATUS: Statuses = Statuses {
    prefix: "CUBLAS_STATUS_",
    known: &[
        (1, "NOT_INITIALIZED", Code::NotInitialized),
        (3, "ALLOC_FAILED", Code::OutOfMemory),
        (7, "INVALID_VALUE", Code::InvalidValue),
        (8, "ARCH_MISMATCH", Code::NotSupported),
        (11, "MAPPING_ERROR", Code::LaunchFailed),
        (13, "EXECUTION_FAILED", Code::LaunchFailed),
        (14, "INTERNAL_ERROR", Code::LaunchFailed),
        (15, "NOT_SUPPORTED", Code::NotSupported),
        (16, "LICENSE_ERROR", Code::NotSupported),
    ],
};

functions! {
    create(*mut Object): one "cublasCreate_v2";
    property(u32, *mut i32): one "cublasGetProperty";
    set_stream(Object, Object): one "cublasSetStream_v2";
    set_mode(Object, u32): one "cublasSetPointerMode_v2";

    axpy(Object, i64, Factor, u32, Address, u32, i64, Address, u32, i64, u32): one "cublasAxpyEx_64";
    scale(Object, i64, Factor, u32, Address, u32, i64, u32): one "cublasScalEx_64";
    scale_by_real_32(Object, i64, Factor, Address, i64): one "cublasCsscal_v2_64";
    scale_by_real_64(Object, i64, Factor, Address, i64): one "cublasZdscal_v2_64";
    copy(Object, i64, Address, u32, i64, Address, u32, i64): one "cublasCopyEx_64";
    swap(Object, i64, Address, u32, i64, Address, u32, i64): one "cublasSwapEx_64";
    rotate(Object, i64, Address, u32, i64, Address, u32, i64, Factor, Factor, u32, u32): one "cublasRotEx_64";
    rotate_complex(Object, i64, Address, i64, Address, i64, Factor, Factor): complex "cublas" "rot_v2_64";
    rotate_modified(Object, i64, Address, u32, i64, Address, u32, i64, Factor, u32, u32): one "cublasRotmEx_64";
    dot(Object, i64, Address, u32, i64, Address, u32, i64, Address, u32, u32): one "cublasDotEx_64";
    dot_conjugated(Object, i64, Address, u32, i64, Address, u32, i64, Address, u32, u32): one "cublasDotcEx_64";
    norm(Object, i64, Address, u32, i64, Address, u32, u32): one "cublasNrm2Ex_64";
    absolute_sum(Object, i64, Address, u32, i64, Address, u32, u32): one "cublasAsumEx_64";
    greatest(Object, i64, Address, u32, i64, Address): one "cublasIamaxEx_64";
    least(Object, i64, Address, u32, i64, Address): one "cublasIaminEx_64";
    greatest_short(Object, i32, Address, u32, i32, Address): one "cublasIamaxEx";
    least_short(Object, i32, Address, u32, i32, Address): one "cublasIaminEx";

    gemv(Object, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64): four "cublas" "gemv_v2_64";
    gemv_strided(
        Object, u32, i64, i64, Factor, Address, i64, i64, Address, i64, i64, Factor, Address, i64, i64, i64
    ): four "cublas" "gemvStridedBatched_64";
    gemv_batched(
        Object, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64, i64
    ): four "cublas" "gemvBatched_64";
    gemv_strided_narrow(
        Object, u32, i64, i64, Factor, Address, i64, i64, Address, i64, i64, Factor, Address, i64, i64, i64
    ): list "cublasHSHgemvStridedBatched_64" "cublasHSSgemvStridedBatched_64"
        "cublasTSTgemvStridedBatched_64" "cublasTSSgemvStridedBatched_64";
    gemv_batched_narrow(
        Object, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64, i64
    ): list "cublasHSHgemvBatched_64" "cublasHSSgemvBatched_64" "cublasTSTgemvBatched_64" "cublasTSSgemvBatched_64";
    gbmv(
        Object, u32, i64, i64, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64
    ): four "cublas" "gbmv_v2_64";
    symv(Object, u32, i64, Factor, Address, i64, Address, i64, Factor, Address, i64): four "cublas" "symv_v2_64";
    hemv(Object, u32, i64, Factor, Address, i64, Address, i64, Factor, Address, i64): complex "cublas" "hemv_v2_64";
    sbmv(Object, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64): real "cublas" "sbmv_v2_64";
    hbmv(
        Object, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64
    ): complex "cublas" "hbmv_v2_64";
    spmv(Object, u32, i64, Factor, Address, Address, i64, Factor, Address, i64): real "cublas" "spmv_v2_64";
    hpmv(Object, u32, i64, Factor, Address, Address, i64, Factor, Address, i64): complex "cublas" "hpmv_v2_64";
    trmv(Object, u32, u32, u32, i64, Address, i64, Address, i64): four "cublas" "trmv_v2_64";
    trsv(Object, u32, u32, u32, i64, Address, i64, Address, i64): four "cublas" "trsv_v2_64";
    tbmv(Object, u32, u32, u32, i64, i64, Address, i64, Address, i64): four "cublas" "tbmv_v2_64";
    tbsv(Object, u32, u32, u32, i64, i64, Address, i64, Address, i64): four "cublas" "tbsv_v2_64";
    tpmv(Object, u32, u32, u32, i64, Address, Address, i64): four "cublas" "tpmv_v2_64";
    tpsv(Object, u32, u32, u32, i64, Address, Address, i64): four "cublas" "tpsv_v2_64";
    ger(Object, i64, i64, Factor, Address, i64, Address, i64, Address, i64):
        list "cublasSger_v2_64" "cublasDger_v2_64" "cublasCgeru_v2_64" "cublasZgeru_v2_64";
    gerc(Object, i64, i64, Factor, Address, i64, Address, i64, Address, i64): complex "cublas" "gerc_v2_64";
    syr(Object, u32, i64, Factor, Address, i64, Address, i64): four "cublas" "syr_v2_64";
    her(Object, u32, i64, Factor, Address, i64, Address, i64): complex "cublas" "her_v2_64";
    spr(Object, u32, i64, Factor, Address, i64, Address): real "cublas" "spr_v2_64";
    hpr(Object, u32, i64, Factor, Address, i64, Address): complex "cublas" "hpr_v2_64";
    syr2(Object, u32, i64, Factor, Address, i64, Address, i64, Address, i64): four "cublas" "syr2_v2_64";
    her2(Object, u32, i64, Factor, Address, i64, Address, i64, Address, i64): complex "cublas" "her2_v2_64";
    spr2(Object, u32, i64, Factor, Address, i64, Address, i64, Address): real "cublas" "spr2_v2_64";
    hpr2(Object, u32, i64, Factor, Address, i64, Address, i64, Address): complex "cublas" "hpr2_v2_64";

    gemm(
        Object, u32, u32, i64, i64, i64, Factor, Address, u32, i64, Address, u32, i64, Factor, Address, u32, i64,
        u32, i32
    ): one "cublasGemmEx_64";
    gemm_strided(
        Object, u32, u32, i64, i64, i64, Factor, Address, u32, i64, i64, Address, u32, i64, i64, Factor,
        Address, u32, i64, i64, i64, u32, i32
    ): one "cublasGemmStridedBatchedEx_64";
    gemm_batched(
        Object, u32, u32, i64, i64, i64, Factor, Address, u32, i64, Address, u32, i64, Factor, Address, u32, i64,
        i64, u32, i32
    ): one "cublasGemmBatchedEx_64";
    symm(
        Object, u32, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64
    ): four "cublas" "symm_v2_64";
    hemm(
        Object, u32, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64
    ): complex "cublas" "hemm_v2_64";
    syrk(Object, u32, u32, i64, i64, Factor, Address, i64, Factor, Address, i64): four "cublas" "syrk_v2_64";
    herk(Object, u32, u32, i64, i64, Factor, Address, i64, Factor, Address, i64): complex "cublas" "herk_v2_64";
    syr2k(
        Object, u32, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64
    ): four "cublas" "syr2k_v2_64";
    her2k(
        Object, u32, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64
    ): complex "cublas" "her2k_v2_64";
    syrkx(
        Object, u32, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64
    ): four "cublas" "syrkx_64";
    herkx(
        Object, u32, u32, i64, i64, Factor, Address, i64, Address, i64, Factor, Address, i64
    ): complex "cublas" "herkx_64";
    trmm(
        Object, u32, u32, u32, u32, i64, i64, Factor, Address, i64, Address, i64, Address, i64
    ): four "cublas" "trmm_v2_64";
    trsm(
        Object, u32, u32, u32, u32, i64, i64, Factor, Address, i64, Address, i64
    ): four "cublas" "trsm_v2_64";
    trsm_batched(
        Object, u32, u32, u32, u32, i64, i64, Factor, Address, i64, Address, i64, i64
    ): four "cublas" "trsmBatched_64";
    geam(
        Object, u32, u32, i64, i64, Factor, Address, i64, Factor, Address, i64, Address, i64
    ): four "cublas" "geam_64";
    dgmm(Object, u32, i64, i64, Address, i64, Address, i64, Address, i64): four "cublas" "dgmm_64";
    getrf(Object, i32, Address, i32, Address, Address, i32): four "cublas" "getrfBatched";
    getri(Object, i32, Address, i32, Address, Address, i32, Address, i32): four "cublas" "getriBatched";
    getrs(
        Object, u32, i32, i32, Address, i32, Address, Address, i32, *mut i32, i32
    ): four "cublas" "getrsBatched";
    matinv(Object, i32, Address, i32, Address, i32, Address, i32): four "cublas" "matinvBatched";
}
