// A product of matrices of floats, with tiles of both in shared memory.
#include "pair.h"

const int TILE = 16;

#ifdef __CUDACC__
__global__ void product(int n, const float* a, const float* b, float* c) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    float sum = 0;
    for (int tile = 0; tile < n; tile += TILE) {
        left[threadIdx.y][threadIdx.x] = a[y * n + tile + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + x];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[y * n + x] = sum;
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-4);
    int n = int(pair.side(384, 3, TILE));
    auto a = pair.uniform<float>(size_t(n) * n, 1), b = pair.uniform<float>(size_t(n) * n, 2);
    std::vector<float> c(size_t(n) * n);
#ifdef __CUDACC__
    Device<float> da(a), db(b), dc(c);
    dim3 threads(TILE, TILE), grid(n / TILE, n / TILE);
    pair.time([&] { product<<<grid, threads>>>(n, da, db, dc); });
    c = dc.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (int by = 0; by < n; by += TILE)
            for (int bx = 0; bx < n; bx += TILE) {
                float sums[TILE][TILE] = {};
                for (int k = 0; k < n; k++)
                    for (int y = 0; y < TILE; y++)
                        for (int x = 0; x < TILE; x++) sums[y][x] += a[size_t(by + y) * n + k] * b[size_t(k) * n + bx + x];
                for (int y = 0; y < TILE; y++)
                    for (int x = 0; x < TILE; x++) c[size_t(by + y) * n + bx + x] = sums[y][x];
            }
    });
#endif
    return pair.finish(c);
}
