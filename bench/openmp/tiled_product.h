// Both halves of a product of matrices with tiles of both in shared memory.
#pragma once
#include "pair.h"

const int TILE = 16;

#ifdef __CUDACC__
template <class Real> __global__ void product(int n, const Real* a, const Real* b, Real* c) {
    __shared__ Real left[TILE][TILE], right[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    Real sum = 0;
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

// Matrices with about so many rows.
template <class Real> int tiled_product(int argc, char** argv, double tolerance, size_t rows) {
    Pair pair(argc, argv, tolerance);
    int n = int(pair.side(rows, 3, TILE));
    auto a = pair.uniform<Real>(size_t(n) * n, 1), b = pair.uniform<Real>(size_t(n) * n, 2);
    std::vector<Real> c(size_t(n) * n);
#ifdef __CUDACC__
    Device<Real> da(a), db(b), dc(c);
    dim3 threads(TILE, TILE), grid(n / TILE, n / TILE);
    pair.time([&] { product<Real><<<grid, threads>>>(n, da, db, dc); });
    c = dc.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (int by = 0; by < n; by += TILE)
            for (int bx = 0; bx < n; bx += TILE) {
                Real sums[TILE][TILE] = {};
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
