// A product of matrices as it is first written: each thread a row by a column.
#include "pair.h"

#ifdef __CUDACC__
__global__ void product(int n, const float* a, const float* b, float* c) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-4);
    int n = int(pair.side(384, 3));
    auto a = pair.uniform<float>(size_t(n) * n, 1), b = pair.uniform<float>(size_t(n) * n, 2);
    std::vector<float> c(size_t(n) * n);
#ifdef __CUDACC__
    Device<float> da(a), db(b), dc(c);
    dim3 threads(16, 16), grid(blocks(n, 16), blocks(n, 16));
    pair.time([&] { product<<<grid, threads>>>(n, da, db, dc); });
    c = dc.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (int y = 0; y < n; y++) {
            float* row = &c[size_t(y) * n];
            std::fill(row, row + n, 0.0f);
            for (int k = 0; k < n; k++) {
                float left = a[size_t(y) * n + k];
                for (int x = 0; x < n; x++) row[x] += left * b[size_t(k) * n + x];
            }
        }
    });
#endif
    return pair.finish(c);
}
