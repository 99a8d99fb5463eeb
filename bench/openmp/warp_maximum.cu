// The largest of many integers: warps that shuffle, and one atomic operation of each block.
#include "pair.h"

#ifdef __CUDACC__
__global__ void maximum(size_t n, const uint32_t* values, unsigned* largest) {
    __shared__ unsigned of_warps[8];
    unsigned best = 0;
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += stride) best = max(best, values[i] >> 1);
    for (int distance = 16; distance > 0; distance /= 2) best = max(best, __shfl_down_sync(~0u, best, distance));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x < 8) {
        best = of_warps[threadIdx.x];
        for (int distance = 4; distance > 0; distance /= 2) best = max(best, __shfl_down_sync(0xffu, best, distance));
        if (threadIdx.x == 0) atomicMax(largest, best);
    }
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    size_t n = pair.size(8 << 20);
    auto values = pair.words(n, 5);
    std::vector<unsigned> result(1);
#ifdef __CUDACC__
    Device<uint32_t> dv(values);
    Device<unsigned> largest(1);
    pair.time([&] { maximum<<<256, 256>>>(n, dv, largest); });
    result = largest.host();
#else
    pair.time([&] {
        unsigned best = 0;
#pragma omp parallel for reduction(max : best)
        for (size_t i = 0; i < n; i++) best = std::max(best, values[i] >> 1);
        result[0] = best;
    });
#endif
    return pair.finish(result);
}
