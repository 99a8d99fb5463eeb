// The triad of the STREAM benchmark, in double precision, with a loop of grid's stride.
#include "pair.h"

#ifdef __CUDACC__
__global__ void triad(size_t n, double s, const double* b, const double* c, double* a) {
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += stride) a[i] = b[i] + s * c[i];
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-12);
    size_t n = pair.size(4 << 20);
    auto b = pair.uniform<double>(n, 1), c = pair.uniform<double>(n, 2);
    std::vector<double> a(n);
#ifdef __CUDACC__
    Device<double> da(n), db(b), dc(c);
    pair.time([&] { triad<<<128, 256>>>(n, 3.0, db, dc, da); });
    a = da.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) a[i] = b[i] + 3.0 * c[i];
    });
#endif
    return pair.finish(a);
}
