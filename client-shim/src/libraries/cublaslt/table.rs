//! Every function of cuBLASLt, in the [form of all doors](crate::doors::table).

use super::{algorithm, descriptors, library, matmul, transform};
use crate::doors::table::entry_points;
use crate::libraries::cublas::status;

entry_points! {
    /// The functions, ascending by name.
    static TABLE refusing by status::refuse;
    cublasLtCreate 12000 [library::create];
    cublasLtDestroy 12000 [library::destroy];
    cublasLtDisableCpuInstructionsSetMask 12000 [library::disable_instructions];
    cublasLtEmulationDescCreate 13000 [unsupported];
    cublasLtEmulationDescDestroy 13000 [unsupported];
    cublasLtEmulationDescGetAttribute 13000 [unsupported];
    cublasLtEmulationDescInit_internal 13000 [unsupported];
    cublasLtEmulationDescSetAttribute 13000 [unsupported];
    cublasLtGetCudartVersion 12000 [library::get_cudart_version];
    cublasLtGetProperty 12000 [library::get_property];
    cublasLtGetStatusName 12000 [status::get_status_name];
    cublasLtGetStatusString 12000 [status::get_status_string];
    cublasLtGetVersion 12000 [library::get_version];
    cublasLtGroupedMatrixLayoutCreate 13000 [unsupported];
    cublasLtGroupedMatrixLayoutInit_internal 13000 [unsupported];
    cublasLtHeuristicsCacheGetCapacity 12000 [library::cache_get_capacity];
    cublasLtHeuristicsCacheSetCapacity 12000 [library::cache_set_capacity];
    cublasLtLoggerForceDisable 12000 [library::logger_disable];
    cublasLtLoggerOpenFile 12000 [library::logger_open_file];
    cublasLtLoggerSetCallback 12000 [library::logger_set_callback];
    cublasLtLoggerSetFile 12000 [library::logger_set_file];
    cublasLtLoggerSetLevel 12000 [library::logger_set_level];
    cublasLtLoggerSetMask 12000 [library::logger_set_mask];
    cublasLtMatmul 12000 [matmul::matmul];
    cublasLtMatmulAlgoCapGetAttribute 12000 [algorithm::capability_get];
    cublasLtMatmulAlgoCheck 12000 [algorithm::check];
    cublasLtMatmulAlgoConfigGetAttribute 12000 [algorithm::config_get];
    cublasLtMatmulAlgoConfigSetAttribute 12000 [algorithm::config_set];
    cublasLtMatmulAlgoGetHeuristic 12000 [algorithm::get_heuristic];
    cublasLtMatmulAlgoGetIds 12000 [algorithm::get_ids];
    cublasLtMatmulAlgoInit 12000 [algorithm::init];
    cublasLtMatmulDescCreate 12000 [descriptors::product_create];
    cublasLtMatmulDescDestroy 12000 [descriptors::product_destroy];
    cublasLtMatmulDescGetAttribute 12000 [descriptors::product_get];
    cublasLtMatmulDescInit_internal 12000 [descriptors::product_init];
    cublasLtMatmulDescSetAttribute 12000 [descriptors::product_set];
    cublasLtMatmulPreferenceCreate 12000 [descriptors::preference_create];
    cublasLtMatmulPreferenceDestroy 12000 [descriptors::preference_destroy];
    cublasLtMatmulPreferenceGetAttribute 12000 [descriptors::preference_get];
    cublasLtMatmulPreferenceInit_internal 12000 [descriptors::preference_init];
    cublasLtMatmulPreferenceSetAttribute 12000 [descriptors::preference_set];
    cublasLtMatrixLayoutCreate 12000 [descriptors::layout_create];
    cublasLtMatrixLayoutDestroy 12000 [descriptors::layout_destroy];
    cublasLtMatrixLayoutGetAttribute 12000 [descriptors::layout_get];
    cublasLtMatrixLayoutInit_internal 12000 [descriptors::layout_init];
    cublasLtMatrixLayoutSetAttribute 12000 [descriptors::layout_set];
    cublasLtMatrixTransform 12000 [transform::matrix_transform];
    cublasLtMatrixTransformDescCreate 12000 [descriptors::transform_create];
    cublasLtMatrixTransformDescDestroy 12000 [descriptors::transform_destroy];
    cublasLtMatrixTransformDescGetAttribute 12000 [descriptors::transform_get];
    cublasLtMatrixTransformDescInit_internal 12000 [descriptors::transform_init];
    cublasLtMatrixTransformDescSetAttribute 12000 [descriptors::transform_set];
}
