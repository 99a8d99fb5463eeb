// A 5x5 stencil with weights in constant memory and a halo in shared memory, iterated.
#define EXAMPLE "stencil2d_constant"
#include "common/check.h"

constexpr int RADIUS = 2, SIDE = 2 * RADIUS + 1, BLOCK = 16;

__constant__ float weights[SIDE][SIDE];
__constant__ int limits[2] = {-1, -1};

__global__ void stencil(const float* in, float* out) {
    __shared__ float tile[BLOCK + 2 * RADIUS][BLOCK + 2 * RADIUS];
    int width = limits[0], height = limits[1];
    int x0 = blockIdx.x * BLOCK, y0 = blockIdx.y * BLOCK;
    for (int y = threadIdx.y; y < BLOCK + 2 * RADIUS; y += BLOCK)
        for (int x = threadIdx.x; x < BLOCK + 2 * RADIUS; x += BLOCK) {
            int gx = min(max(x0 + x - RADIUS, 0), width - 1), gy = min(max(y0 + y - RADIUS, 0), height - 1);
            tile[y][x] = in[gy * width + gx];
        }
    __syncthreads();
    int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0;
#pragma unroll
    for (int dy = 0; dy < SIDE; dy++)
#pragma unroll
        for (int dx = 0; dx < SIDE; dx++)
            sum = fmaf(weights[dy][dx], tile[threadIdx.y + dy][threadIdx.x + dx], sum);
    out[y * width + x] = sum;
}

int main() {
    const int width = 251, height = 187, steps = 6;
    Random random(5);
    float host_weights[SIDE][SIDE];
    for (auto& row : host_weights)
        for (float& w : row) w = random.unit() / 12.5f;
    int host_limits[2] = {width, height};
    CHECK(cudaMemcpyToSymbol(weights, host_weights, sizeof host_weights));
    CHECK(cudaMemcpyToSymbol(limits, &host_limits[1], sizeof(int), sizeof(int)));
    CHECK(cudaMemcpyToSymbol(limits, &host_limits[0], sizeof(int), 0));
    std::vector<float> field(width * height), next(width * height);
    for (float& f : field) f = random.unit();
    DeviceArray<float> a(field), b(field.size());
    dim3 grid((width + BLOCK - 1) / BLOCK, (height + BLOCK - 1) / BLOCK), block(BLOCK, BLOCK);
    for (int s = 0; s < steps; s++) {
        stencil<<<grid, block>>>(s % 2 ? b : a, s % 2 ? a : b);
        CHECK(cudaGetLastError());
    }
    std::vector<float> got = (steps % 2 ? b : a).download();
    for (int s = 0; s < steps; s++) {
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++) {
                float sum = 0;
                for (int dy = 0; dy < SIDE; dy++)
                    for (int dx = 0; dx < SIDE; dx++) {
                        int gx = std::min(std::max(x + dx - RADIUS, 0), width - 1);
                        int gy = std::min(std::max(y + dy - RADIUS, 0), height - 1);
                        sum = fmaf(host_weights[dy][dx], field[gy * width + gx], sum);
                    }
                next[y * width + x] = sum;
            }
        field.swap(next);
    }
    for (size_t i = 0; i < field.size(); i++)
        REQUIRE(got[i] == field[i], "cell %zu is %.9g instead of %.9g", i, got[i], field[i]);
    return ok("%dx%d, %d steps", width, height, steps);
}
