// Sines, cosines and arcs in double precision.
#include "pair.h"

#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif

BOTH inline double value(double x, double y) {
    return sin(x) * cos(y) + atan2(x, y);
}

#ifdef __CUDACC__
__global__ void values(size_t n, const double* x, const double* y, double* out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = value(x[i], y[i]);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-9);
    size_t n = pair.size(1 << 18);
    auto x = pair.uniform<double>(n, 1, -3, 3), y = pair.uniform<double>(n, 2, -3, 3);
    std::vector<double> out(n);
#ifdef __CUDACC__
    Device<double> dx(x), dy(y), dout(n);
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
