// Sines, cosines and hyperbolic tangents in single precision.
#include "pair.h"

#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif

BOTH inline float value(float x, float y) {
    return sinf(x) * cosf(y) + tanhf(x);
}

#ifdef __CUDACC__
__global__ void values(size_t n, const float* x, const float* y, float* out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = value(x[i], y[i]);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-3);
    size_t n = pair.size(1 << 20);
    auto x = pair.uniform<float>(n, 1, -3, 3), y = pair.uniform<float>(n, 2, -3, 3);
    std::vector<float> out(n);
#ifdef __CUDACC__
    Device<float> dx(x), dy(y), dout(n);
    pair.time([&] { values<<<blocks(n, 256), 256>>>(n, dx, dy, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) out[i] = value(x[i], y[i]);
    });
#endif
    return pair.finish(out);
}
