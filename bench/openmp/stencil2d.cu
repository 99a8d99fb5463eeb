// Jacobi's iteration on a square: each cell becomes the mean of its four neighbours.
#include "pair.h"

const int STEPS = 10;

#ifdef __CUDACC__
__global__ void step(int n, const float* from, float* to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1) {
        int i = y * n + x;
        to[i] = 0.25f * (from[i - 1] + from[i + 1] + from[i - n] + from[i + n]);
    }
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-5);
    int n = int(pair.side(1024, 2));
    auto a = pair.uniform<float>(size_t(n) * n, 1), b = a;
#ifdef __CUDACC__
    Device<float> da(a), db(b);
    dim3 threads(32, 8), grid(blocks(n, 32), blocks(n, 8));
    pair.time([&] {
        for (int i = 0; i < STEPS; i += 2) {
            step<<<grid, threads>>>(n, da, db);
            step<<<grid, threads>>>(n, db, da);
        }
    });
    a = da.host();
#else
    auto step = [n](const float* from, float* to) {
#pragma omp parallel for
        for (int y = 1; y < n - 1; y++)
            for (int x = 1; x < n - 1; x++) {
                int i = y * n + x;
                to[i] = 0.25f * (from[i - 1] + from[i + 1] + from[i - n] + from[i + n]);
            }
    };
    pair.time([&] {
        for (int i = 0; i < STEPS; i += 2) {
            step(a.data(), b.data());
            step(b.data(), a.data());
        }
    });
#endif
    return pair.finish(a);
}
