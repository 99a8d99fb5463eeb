// A matrix by a vector: a warp for each row, added up by shuffles.
#include "pair.h"

#ifdef __CUDACC__
__global__ void product(int rows, int columns, const float* a, const float* x, float* y) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
    for (int k = lane; k < columns; k += 32) sum += a[size_t(row) * columns + k] * x[k];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (lane == 0) y[row] = sum;
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-4);
    int rows = int(pair.size(2048)), columns = 2048;
    auto a = pair.uniform<float>(size_t(rows) * columns, 1), x = pair.uniform<float>(columns, 2);
    std::vector<float> y(rows);
#ifdef __CUDACC__
    Device<float> da(a), dx(x), dy(y);
    pair.time([&] { product<<<blocks(size_t(rows) * 32, 256), 256>>>(rows, columns, da, dx, dy); });
    y = dy.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (int row = 0; row < rows; row++) {
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int k = 0; k < columns; k++) sum += a[size_t(row) * columns + k] * x[k];
            y[row] = sum;
        }
    });
#endif
    return pair.finish(y);
}
