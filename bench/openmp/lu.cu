// A matrix is decomposed into two triangles, column by column: many small launches.
#include "pair.h"

#ifdef __CUDACC__
__global__ void scale(int n, int k, double* a) {
    int row = k + 1 + blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n) a[row * n + k] /= a[k * n + k];
}
__global__ void update(int n, int k, double* a) {
    int column = k + 1 + blockIdx.x * blockDim.x + threadIdx.x, row = k + 1 + blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) a[row * n + column] -= a[row * n + k] * a[k * n + column];
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-8);
    int n = int(pair.side(320, 3));
    auto start = pair.uniform<double>(size_t(n) * n, 1);
    for (int i = 0; i < n; i++) start[size_t(i) * n + i] += n;
    auto a = start;
#ifdef __CUDACC__
    Device<double> ds(start), da(a);
    pair.time([&] {
        CHECK(cudaMemcpy(da, ds, a.size() * sizeof(double), cudaMemcpyDeviceToDevice));
        for (int k = 0; k < n - 1; k++) {
            int left = n - 1 - k;
            scale<<<blocks(left, 128), 128>>>(n, k, da);
            update<<<dim3(blocks(left, 32), blocks(left, 8)), dim3(32, 8)>>>(n, k, da);
        }
    });
    a = da.host();
#else
    pair.time([&] {
        a = start;
        for (int k = 0; k < n - 1; k++) {
#pragma omp parallel for
            for (int row = k + 1; row < n; row++) {
                double factor = a[size_t(row) * n + k] /= a[size_t(k) * n + k];
                for (int column = k + 1; column < n; column++) a[size_t(row) * n + column] -= factor * a[size_t(k) * n + column];
            }
        }
    });
#endif
    return pair.finish(a);
}
