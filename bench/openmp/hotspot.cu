// Temperatures of a chip with a source of heat in each cell; blocks keep a tile with its border in shared memory.
#include "pair.h"

const int TILE = 16, STEPS = 4;

#ifdef __CUDACC__
__global__ void step(int n, const float* heat, const float* from, float* to) {
    __shared__ float tile[TILE + 2][TILE + 2];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    auto at = [&](int x, int y) { return from[min(max(y, 0), n - 1) * n + min(max(x, 0), n - 1)]; };
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    tile[ty][tx] = at(x, y);
    if (threadIdx.x == 0) tile[ty][0] = at(x - 1, y);
    if (threadIdx.x == TILE - 1) tile[ty][TILE + 1] = at(x + 1, y);
    if (threadIdx.y == 0) tile[0][tx] = at(x, y - 1);
    if (threadIdx.y == TILE - 1) tile[TILE + 1][tx] = at(x, y + 1);
    __syncthreads();
    if (x >= n || y >= n) return;
    float c = tile[ty][tx];
    float flow = (tile[ty][tx - 1] + tile[ty][tx + 1] - 2 * c) * 0.1f + (tile[ty - 1][tx] + tile[ty + 1][tx] - 2 * c) * 0.15f;
    to[y * n + x] = c + 0.5f * (heat[y * n + x] + flow + (80.0f - c) * 0.02f);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-5);
    int n = int(pair.side(1024, 2, TILE));
    auto heat = pair.uniform<float>(size_t(n) * n, 1), a = pair.uniform<float>(size_t(n) * n, 2, 70, 90), b = a;
#ifdef __CUDACC__
    Device<float> dh(heat), da(a), db(b);
    dim3 threads(TILE, TILE), grid(n / TILE, n / TILE);
    pair.time([&] {
        for (int i = 0; i < STEPS; i += 2) {
            step<<<grid, threads>>>(n, dh, da, db);
            step<<<grid, threads>>>(n, dh, db, da);
        }
    });
    a = da.host();
#else
    auto step = [&](const float* from, float* to) {
#pragma omp parallel for
        for (int y = 0; y < n; y++) {
            const float *up = from + size_t(std::max(y - 1, 0)) * n, *down = from + size_t(std::min(y + 1, n - 1)) * n;
            const float* row = from + size_t(y) * n;
            auto cell = [&](int x, int left, int right) {
                float c = row[x];
                float flow = (row[left] + row[right] - 2 * c) * 0.1f + (up[x] + down[x] - 2 * c) * 0.15f;
                to[size_t(y) * n + x] = c + 0.5f * (heat[size_t(y) * n + x] + flow + (80.0f - c) * 0.02f);
            };
            cell(0, 0, 1);
            for (int x = 1; x < n - 1; x++) cell(x, x - 1, x + 1);
            cell(n - 1, n - 2, n - 1);
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
