// A matrix product by tiles in shared memory, with sides that are no multiple of the tile.
#define EXAMPLE "matmul_tiled"
#include "common/check.h"

constexpr int TILE = 16;

__global__ void multiply(const float* a, const float* b, float* c, int rows, int inner, int cols) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < inner; t += TILE) {
        tile_a[threadIdx.y][threadIdx.x] =
            row < rows && t + threadIdx.x < inner ? a[row * inner + t + threadIdx.x] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] =
            t + threadIdx.y < inner && col < cols ? b[(t + threadIdx.y) * cols + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum = fmaf(tile_a[threadIdx.y][k], tile_b[k][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < rows && col < cols) c[row * cols + col] = sum;
}

int main() {
    const int rows = 203, inner = 150, cols = 177;
    Random random(2);
    std::vector<float> a(rows * inner), b(inner * cols);
    for (float& x : a) x = random.unit() - 0.5f;
    for (float& x : b) x = random.unit() - 0.5f;
    DeviceArray<float> da(a), db(b), dc(rows * cols);
    dim3 grid((cols + TILE - 1) / TILE, (rows + TILE - 1) / TILE), block(TILE, TILE);
    multiply<<<grid, block>>>(da, db, dc, rows, inner, cols);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::vector<float> c = dc.download();
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float sum = 0;
            for (int k = 0; k < inner; k++) sum = fmaf(a[i * inner + k], b[k * cols + j], sum);
            // Padding adds fma(0, 0, sum), which changes nothing: the results are the same to the bit.
            REQUIRE(c[i * cols + j] == sum, "c[%d][%d] is %.9g instead of %.9g", i, j, c[i * cols + j], sum);
        }
    return ok("%dx%d times %dx%d", rows, inner, inner, cols);
}
