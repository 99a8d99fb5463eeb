// Virtual memory: addresses reserved ahead, memory mapped into them piece by piece as an array grows, moved and given back.
// rgpu-libcuda: a stand-in for the driver's library is made for linking
#define EXAMPLE "virtual_memory"
#include "common/driver.h"

__global__ void fill(int* data, size_t n, int base) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        data[i] = base + (int)i;
}

__global__ void sum(const int* data, size_t n, unsigned long long* total) {
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        mine += data[i];
    atomicAdd(total, mine);
}

#define REFUSED(call, expected)                                                                  \
    do {                                                                                         \
        CUresult cu_result_ = (call);                                                            \
        REQUIRE(cu_result_ == (expected), "%s gave %d instead of %s", #call, cu_result_, #expected); \
    } while (0)

int main() {
    const int pieces = 5;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(0));
    int supported = 0;
    CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    REQUIRE(supported, "the device does not support virtual memory");

    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = 0;
    size_t granule = 0;
    CU(cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    REQUIRE(granule > 0 && granule % 65536 == 0, "the granularity is %zu", granule);
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

    CUdeviceptr base;
    CU(cuMemAddressReserve(&base, 2 * pieces * granule, 0, 0, 0));
    REFUSED(cuMemcpyHtoD(base, &granule, sizeof granule), CUDA_ERROR_INVALID_VALUE);

    // An array that grows without being copied, and kernels that see it as one.
    CUmemGenericAllocationHandle handles[pieces];
    unsigned long long* total;
    CHECK(cudaMalloc(&total, sizeof *total));
    for (int p = 0; p < pieces; p++) {
        CU(cuMemCreate(&handles[p], granule, &properties, 0));
        CU(cuMemMap(base + p * granule, granule, 0, handles[p], 0));
        CU(cuMemSetAccess(base + p * granule, granule, &access, 1));
        size_t n = (p + 1) * granule / sizeof(int);
        fill<<<64, 256>>>((int*)base, n, p);
        CHECK(cudaMemset(total, 0, sizeof *total));
        sum<<<64, 256>>>((const int*)base, n, total);
        CHECK(cudaGetLastError());
        unsigned long long got;
        CHECK(cudaMemcpy(&got, total, sizeof got, cudaMemcpyDeviceToHost));
        unsigned long long expected = (unsigned long long)n * (n - 1) / 2 + (unsigned long long)n * p;
        REQUIRE(got == expected, "%d pieces add up to %llu instead of %llu", p + 1, got, expected);
    }
    REFUSED(cuMemMap(base, granule, 0, handles[0], 0), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemAddressFree(base, 2 * pieces * granule), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemFree(base), CUDA_ERROR_INVALID_VALUE);

    // A copy across the seams between the pieces.
    std::vector<int> host(2 * granule / sizeof(int));
    size_t from = granule / 2 / sizeof(int);
    CHECK(cudaMemcpy(host.data(), (int*)base + from, host.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < host.size(); i++)
        REQUIRE(host[i] == (int)(from + i) + pieces - 1, "element %zu is %d", from + i, host[i]);

    // One piece moves to another address and keeps what is in it.
    unsigned long long flags = 0;
    CU(cuMemGetAccess(&flags, &access.location, base + granule));
    REQUIRE(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "access is %llu", flags);
    CU(cuMemUnmap(base + granule, granule));
    REFUSED(cuMemcpyDtoH(host.data(), base + granule, 4), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr elsewhere = base + (pieces + 1) * granule;
    CU(cuMemMap(elsewhere, granule, 0, handles[1], 0));
    CU(cuMemSetAccess(elsewhere, granule, &access, 1));
    CHECK(cudaMemcpy(host.data(), (void*)elsewhere, granule, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < granule / sizeof(int); i++)
        REQUIRE(host[i] == (int)(granule / sizeof(int) + i) + pieces - 1, "moved element %zu is %d", i, host[i]);

    // A piece outlives its handle for as long as it is mapped.
    CUmemGenericAllocationHandle again;
    CU(cuMemRetainAllocationHandle(&again, (void*)(elsewhere + 100)));
    REQUIRE(again == handles[1], "another handle");
    CUmemAllocationProp found = {};
    CU(cuMemGetAllocationPropertiesFromHandle(&found, again));
    REQUIRE(found.location.type == CU_MEM_LOCATION_TYPE_DEVICE && found.location.id == 0, "another place");
    CU(cuMemRelease(again));
    for (int p = 0; p < pieces; p++) CU(cuMemRelease(handles[p]));
    fill<<<8, 128>>>((int*)elsewhere, granule / sizeof(int), 7);
    CHECK(cudaDeviceSynchronize());
    CU(cuMemUnmap(elsewhere, granule));
    CU(cuMemUnmap(base, granule));
    CU(cuMemUnmap(base + 2 * granule, (pieces - 2) * granule));
    CU(cuMemAddressFree(base, 2 * pieces * granule));
    CHECK(cudaFree(total));
    return ok("%d pieces of %zu KiB", pieces, granule / 1024);
}
