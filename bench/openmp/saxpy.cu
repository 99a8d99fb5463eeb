// y = a x + y: a stream through memory.
#include "pair.h"

#ifdef __CUDACC__
__global__ void saxpy(size_t n, float a, const float* x, float* y) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-5);
    size_t n = pair.size(8 << 20);
    auto x = pair.uniform<float>(n, 1), y = pair.uniform<float>(n, 2);
#ifdef __CUDACC__
    Device<float> dx(x), dy(y);
    pair.time([&] { saxpy<<<blocks(n, 256), 256>>>(n, 0.25f, dx, dy); });
    y = dy.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) y[i] = 0.25f * x[i] + y[i];
    });
#endif
    return pair.finish(y);
}
