// Tensor maps, barriers with transactions, bulk copies and wgmma, as programs for capability 9.0 write them in PTX.
#pragma once
#include <cuda.h>

#include "check.h"

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
using EncodeIm2col = decltype(&cuTensorMapEncodeIm2col);

// An entry point of the driver, as programs get it that are not linked with it.
template <typename F>
F driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
#else
    CHECK(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
#endif
    REQUIRE(function && found == cudaDriverEntryPointSuccess, "the driver has no %s", name);
    return (F)function;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

// Barriers are set up; the copies' unit sees them.
__device__ __forceinline__ void barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1, 0x989680;\n"
        "@done bra.uni over;\n"
        "bra.uni again;\n"
        "over:\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void load_tile(void* to, const CUtensorMap* map, uint64_t* barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
        : "memory");
}

// Describes a matrix in shared memory whose rows of 128 bytes are swizzled.
__device__ __forceinline__ uint64_t describe(const void* matrix, uint32_t leading, uint32_t stride) {
    uint64_t start = (shared_address(matrix) & 0x3ffff) >> 4;
    return start | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | (uint64_t)1 << 62;
}
