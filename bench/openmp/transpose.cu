// A matrix transposed through tiles in shared memory.
#include "pair.h"

const int TILE = 32;

#ifdef __CUDACC__
__global__ void transpose(int n, const float* from, float* to) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += 8) tile[threadIdx.y + i][threadIdx.x] = from[(y + i) * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += 8) to[(y + i) * n + x] = tile[threadIdx.x][threadIdx.y + i];
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    int n = int(pair.side(2048, 2, TILE));
    auto from = pair.uniform<float>(size_t(n) * n, 1);
    std::vector<float> to(from.size());
#ifdef __CUDACC__
    Device<float> df(from), dt(to);
    pair.time([&] { transpose<<<dim3(n / TILE, n / TILE), dim3(TILE, 8)>>>(n, df, dt); });
    to = dt.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (int by = 0; by < n; by += TILE)
            for (int bx = 0; bx < n; bx += TILE)
                for (int y = by; y < by + TILE; y++)
                    for (int x = bx; x < bx + TILE; x++) to[size_t(x) * n + y] = from[size_t(y) * n + x];
    });
#endif
    return pair.finish(to);
}
