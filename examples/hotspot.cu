// The temperature of a chip over time: a stencil, several steps a launch. The pattern is that of Rodinia's HotSpot.
//
// Copies: power and temperature (n² floats each) to the device at the beginning, the temperature back at the end.
// Launches: one for every `height` steps. Nothing is copied and nothing waited for between them.
// rgpu-nvcc: -fmad=false
#define EXAMPLE "hotspot"
#include "common/pattern.h"

constexpr int BLOCK = 16;
constexpr float RATE = 0.05f, ACROSS = 0.1f, DOWN = 0.12f, UP = 0.01f, AMBIENT = 80.0f;

__host__ __device__ inline float next(float t, float p, float n, float s, float w, float e) {
    return t + RATE * (p + (s + n - 2.0f * t) * DOWN + (e + w - 2.0f * t) * ACROSS + (AMBIENT - t) * UP);
}

// `steps` steps of a tile, of which the rim is lost in each.
__global__ void advance(const float* power, const float* from, float* to, int n, int steps) {
    __shared__ float tile[2][BLOCK][BLOCK];
    int inner = BLOCK - 2 * steps, lx = threadIdx.x, ly = threadIdx.y;
    int x = blockIdx.x * inner + lx - steps, y = blockIdx.y * inner + ly - steps;
    bool inside = x >= 0 && x < n && y >= 0 && y < n;
    float p = inside ? power[y * n + x] : 0;
    tile[0][ly][lx] = inside ? from[y * n + x] : 0;
    __syncthreads();
    for (int s = 0; s < steps; s++) {
        float(*a)[BLOCK] = tile[s % 2], (*b)[BLOCK] = tile[(s + 1) % 2];
        bool valid = lx > s && lx < BLOCK - 1 - s && ly > s && ly < BLOCK - 1 - s;
        if (inside && valid) {
            float t = a[ly][lx];
            b[ly][lx] = next(t, p, y > 0 ? a[ly - 1][lx] : t, y < n - 1 ? a[ly + 1][lx] : t,
                             x > 0 ? a[ly][lx - 1] : t, x < n - 1 ? a[ly][lx + 1] : t);
        }
        __syncthreads();
    }
    bool mine = lx >= steps && lx < BLOCK - steps && ly >= steps && ly < BLOCK - steps;
    if (inside && mine) to[y * n + x] = tile[steps % 2][ly][lx];
}

int main(int argc, char** argv) {
    Arguments arguments(argc, argv);
    int n = arguments.take("n", 200, 1, 16384), iterations = arguments.take("iterations", 12, 1, 1'000'000);
    int height = arguments.take("height", 2, 1, BLOCK / 2 - 1);
    arguments.end();
    Random random(3);
    std::vector<float> power(size_t(n) * n), field(power.size());
    for (float& p : power) p = random.unit();
    for (float& t : field) t = 320 + 10 * random.unit();
    DeviceArray<float> dpower(power), a(field), b(field.size());
    float *from = a, *to = b;
    for (int done = 0; done < iterations; done += height) {
        int steps = std::min(height, iterations - done), inner = BLOCK - 2 * steps;
        dim3 grid((n + inner - 1) / inner, (n + inner - 1) / inner), block(BLOCK, BLOCK);
        advance<<<grid, block>>>(dpower, from, to, n, steps);
        CHECK(cudaGetLastError());
        std::swap(from, to);
        arguments.iterated();
    }
    std::vector<float> got = (from == a.data ? a : b).download();
    if (arguments.check) {
        std::vector<float> after(field.size());
        for (int i = 0; i < iterations; i++) {
            for (int y = 0; y < n; y++)
                for (int x = 0; x < n; x++) {
                    const float* t = &field[size_t(y) * n + x];
                    after[size_t(y) * n + x] =
                        next(*t, power[size_t(y) * n + x], y > 0 ? t[-n] : *t, y < n - 1 ? t[n] : *t,
                             x > 0 ? t[-1] : *t, x < n - 1 ? t[1] : *t);
                }
            field.swap(after);
        }
        for (size_t i = 0; i < field.size(); i++)
            REQUIRE(got[i] == field[i], "cell %zu is %.9g instead of %.9g", i, got[i], field[i]);
    }
    return finished(arguments, "a chip heats up");
}
