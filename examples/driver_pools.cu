// The driver API's memory pools: the device's own and one of the program's, what they count, and who may use them.
// rgpu-libcuda: a stand-in for the driver's library is made for linking
#define EXAMPLE "driver_pools"
#include "common/driver.h"

static const char* ptx = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry count_up(.param .u64 data, .param .u32 first)
{
    .reg .b32 %r<7>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [first];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd2, %r5, 4;
    add.u64 %rd3, %rd1, %rd2;
    add.u32 %r6, %r5, %r1;
    st.global.u32 [%rd3], %r6;
    ret;
}
)";

static unsigned long long used(CUmemoryPool pool) {
    cuuint64_t bytes = 0;
    CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    return bytes;
}

int main() {
    const unsigned threads = 128, blocks = 40, n = threads * blocks;
    CU(cuInit(0));
    CUdevice device;
    CU(cuDeviceGet(&device, 0));
    int pools = 0;
    CU(cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device));
    REQUIRE(pools, "the device has no memory pools");
    CUcontext context;
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    CUmodule module;
    CUfunction count_up;
    CU(cuModuleLoadData(&module, ptx));
    CU(cuModuleGetFunction(&count_up, module, "count_up"));
    CUstream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    // A pool of the program's own, which keeps what it has.
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CUmemoryPool own, standard, current;
    CU(cuMemPoolCreate(&own, &properties));
    cuuint64_t threshold = ~0ull;
    CU(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    threshold = 0;
    CU(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    REQUIRE(threshold == ~0ull, "the threshold reads back as %llu", (unsigned long long)threshold);
    CU(cuDeviceGetDefaultMemPool(&standard, device));
    CU(cuDeviceGetMemPool(&current, device));
    REQUIRE(current == standard && current != own, "the current pool is not the default one");

    // Allocated, written, read and freed in the order of the stream; from the pool, and from the current one.
    std::vector<unsigned> host(n);
    for (unsigned round = 0; round < 8; round++) {
        CU(cuDeviceSetMemPool(device, round < 4 ? standard : own));
        CUdeviceptr data;
        unsigned first = 1000 * round;
        if (round % 2)
            CU(cuMemAllocFromPoolAsync(&data, n * sizeof(unsigned), own, stream));
        else
            CU(cuMemAllocAsync(&data, n * sizeof(unsigned), stream));
        bool from_own = round % 2 || round >= 4;
        REQUIRE((used(own) >= n * sizeof(unsigned)) == from_own, "round %u: the pool has %llu bytes in use", round, used(own));
        void* arguments[] = {&data, &first};
        CU(cuLaunchKernel(count_up, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr));
        CU(cuMemcpyDtoHAsync(host.data(), data, n * sizeof(unsigned), stream));
        // A pool may count what is freed without a stream for longer.
        if (round % 3 || from_own) {
            CU(cuMemFreeAsync(data, stream));
            CU(cuStreamSynchronize(stream));
        } else {
            CU(cuStreamSynchronize(stream));
            CU(cuMemFree(data));
        }
        for (unsigned i = 0; i < n; i++) REQUIRE(host[i] == first + i, "round %u: element %u is %u", round, i, host[i]);
        REQUIRE(used(own) == 0, "round %u: %llu bytes are still in use", round, used(own));
    }
    cuuint64_t high = 0;
    CU(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    REQUIRE(high >= n * sizeof(unsigned), "at most %llu bytes were in use", (unsigned long long)high);

    CUmemLocation place = {};
    place.type = CU_MEM_LOCATION_TYPE_DEVICE;
    place.id = device;
    CUmemAccess_flags access;
    CU(cuMemPoolGetAccess(&access, own, &place));
    REQUIRE(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the device's own access is %d", (int)access);
    CUmemAccessDesc same = {};
    same.location = place;
    same.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU(cuMemPoolSetAccess(own, &same, 1));
    REQUIRE(cuMemPoolDestroy(standard) == CUDA_ERROR_INVALID_VALUE, "a default pool can be destroyed");
    CU(cuMemPoolTrimTo(own, 0));
    CU(cuMemPoolDestroy(own));
    CU(cuDeviceGetMemPool(&current, device));
    REQUIRE(current == standard, "the default pool is not current again");
    CU(cuStreamDestroy(stream));
    CU(cuModuleUnload(module));
    CU(cuDevicePrimaryCtxRelease(device));
    return ok("8 rounds, at most %llu bytes in use", (unsigned long long)high);
}
