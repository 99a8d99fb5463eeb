// A picture convolved with 5 × 5 weights from constant memory.
#include "pair.h"

#ifdef __CUDACC__
__constant__ float weights[25];
__global__ void convolve(int n, const float* from, float* to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 2 || y < 2 || x >= n - 2 || y >= n - 2) return;
    float sum = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++) sum += weights[(dy + 2) * 5 + dx + 2] * from[(y + dy) * n + x + dx];
    to[y * n + x] = sum;
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-4);
    int n = int(pair.side(1536, 2));
    auto from = pair.uniform<float>(size_t(n) * n, 1), w = pair.uniform<float>(25, 2);
    std::vector<float> to(from.size());
#ifdef __CUDACC__
    Device<float> df(from), dt(to);
    CHECK(cudaMemcpyToSymbol(weights, w.data(), sizeof weights));
    dim3 threads(32, 8), grid(blocks(n, 32), blocks(n, 8));
    pair.time([&] { convolve<<<grid, threads>>>(n, df, dt); });
    to = dt.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (int y = 2; y < n - 2; y++)
            for (int x = 2; x < n - 2; x++) {
                float sum = 0;
                for (int dy = -2; dy <= 2; dy++)
                    for (int dx = -2; dx <= 2; dx++) sum += w[(dy + 2) * 5 + dx + 2] * from[(y + dy) * n + x + dx];
                to[y * n + x] = sum;
            }
    });
#endif
    return pair.finish(to);
}
