// The product of two vectors: a reduction over a block's shared memory.
#include "pair.h"

#ifdef __CUDACC__
__global__ void dot(size_t n, const float* x, const float* y, float* partial) {
    __shared__ float sums[256];
    float sum = 0;
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += stride) sum += x[i] * y[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}
#endif

int main(int argc, char** argv) {
    // One sum of eight million small numbers loses more than many partial sums do.
    Pair pair(argc, argv, 5e-3);
    size_t n = pair.size(8 << 20);
    auto x = pair.uniform<float>(n, 1), y = pair.uniform<float>(n, 2);
    std::vector<float> result(1);
#ifdef __CUDACC__
    Device<float> dx(x), dy(y), partial(128);
    pair.time([&] { dot<<<128, 256>>>(n, dx, dy, partial); });
    for (float part : partial.host()) result[0] += part;
#else
    pair.time([&] {
        float sum = 0;
#pragma omp parallel for simd reduction(+ : sum)
        for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
        result[0] = sum;
    });
#endif
    return pair.finish(result);
}
