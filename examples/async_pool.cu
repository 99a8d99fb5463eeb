// Stream-ordered allocation: cudaMallocAsync and cudaFreeAsync, with the default pool and one of the program's own.
#define EXAMPLE "async_pool"
#include "common/check.h"

__global__ void fill(int* data, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = value + i;
}

__global__ void accumulate(const int* data, int n, long long* sum) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        atomicAdd((unsigned long long*)sum, (unsigned long long)(long long)data[i]);
}

int main() {
    int pools = 0;
    CHECK(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, 0));
    REQUIRE(pools, "the device has no memory pools");
    const int n = 20000, rounds = 30;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    DeviceArray<long long> sum(1);
    sum.zero();
    long long expected = 0;
    for (int r = 0; r < rounds; r++) {
        int* data;
        CHECK(cudaMallocAsync(&data, n * sizeof(int), stream));
        fill<<<(n + 255) / 256, 256, 0, stream>>>(data, n, r);
        accumulate<<<4, 128, 0, stream>>>(data, n, sum);
        CHECK(cudaFreeAsync(data, stream));
        expected += (long long)n * r + (long long)n * (n - 1) / 2;
    }
    CHECK(cudaStreamSynchronize(stream));
    long long got = sum.download()[0];
    REQUIRE(got == expected, "the sum is %lld instead of %lld", got, expected);

    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    unsigned long long threshold = ~0ull;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    threshold = 0;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    REQUIRE(threshold == ~0ull, "the threshold reads back as %llu", threshold);
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    cudaMemPool_t own;
    CHECK(cudaMemPoolCreate(&own, &properties));
    int* data;
    CHECK(cudaMallocFromPoolAsync(&data, n * sizeof(int), own, stream));
    fill<<<(n + 255) / 256, 256, 0, stream>>>(data, n, 5);
    std::vector<int> host(n);
    CHECK(cudaMemcpyAsync(host.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(data, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++) REQUIRE(host[i] == 5 + i, "element %d is %d", i, host[i]);
    CHECK(cudaMemPoolTrimTo(own, 0));
    CHECK(cudaMemPoolDestroy(own));
    // Allocated in a stream, freed by cudaFree; and the other way round.
    CHECK(cudaMallocAsync(&data, 4096, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(data));
    CHECK(cudaMalloc(&data, 4096));
    CHECK(cudaFreeAsync(data, stream));
    CHECK(cudaStreamDestroy(stream));
    return ok("%d rounds", rounds);
}
