// The heat equation in a cube, seven points, double precision.
#include "pair.h"

#ifdef __CUDACC__
__global__ void step(int n, double k, const double* from, double* to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1) return;
    size_t i = (size_t(z) * n + y) * n + x, plane = size_t(n) * n;
    to[i] = from[i] + k * (from[i - 1] + from[i + 1] + from[i - n] + from[i + n] + from[i - plane] + from[i + plane] - 6 * from[i]);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-10);
    int n = int(pair.side(160, 3));
    auto a = pair.uniform<double>(size_t(n) * n * n, 1), b = a;
#ifdef __CUDACC__
    Device<double> da(a), db(b);
    dim3 threads(32, 8), grid(blocks(n, 32), blocks(n, 8), n);
    pair.time([&] {
        step<<<grid, threads>>>(n, 0.1, da, db);
        step<<<grid, threads>>>(n, 0.1, db, da);
    });
    a = da.host();
#else
    auto step = [n](double k, const double* from, double* to) {
        size_t plane = size_t(n) * n;
#pragma omp parallel for
        for (int z = 1; z < n - 1; z++)
            for (int y = 1; y < n - 1; y++)
                for (int x = 1; x < n - 1; x++) {
                    size_t i = (size_t(z) * n + y) * n + x;
                    to[i] = from[i] + k * (from[i - 1] + from[i + 1] + from[i - n] + from[i + n] + from[i - plane] + from[i + plane] - 6 * from[i]);
                }
    };
    pair.time([&] {
        step(0.1, a.data(), b.data());
        step(0.1, b.data(), a.data());
    });
#endif
    return pair.finish(a);
}
