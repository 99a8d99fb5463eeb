// How fast points of a plane escape: threads of a warp leave their loop after different numbers of rounds.
#include "pair.h"

const int ROUNDS = 256;

BOTH inline int rounds(float cx, float cy) {
    float x = 0, y = 0;
    int round = 0;
    for (; round < ROUNDS; round++) {
        float xx = x * x, yy = y * y;
        if (xx + yy > 4.0f) break;
        y = 2 * x * y + cy;
        x = xx - yy + cx;
    }
    return round;
}

#ifdef __CUDACC__
__global__ void picture(int n, int* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) out[y * n + x] = rounds(-2.0f + 3.0f * x / n, -1.5f + 3.0f * y / n);
}
#endif

int main(int argc, char** argv) {
    // Where rounding decides, a point counts a little more or less.
    Pair pair(argc, argv, 2e-3);
    int n = int(pair.side(640, 2));
    std::vector<int> out(size_t(n) * n);
#ifdef __CUDACC__
    Device<int> dout(out);
    pair.time([&] { picture<<<dim3(blocks(n, 32), blocks(n, 8)), dim3(32, 8)>>>(n, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for schedule(dynamic, 8)
        for (int y = 0; y < n; y++)
            for (int x = 0; x < n; x++) out[size_t(y) * n + x] = rounds(-2.0f + 3.0f * x / n, -1.5f + 3.0f * y / n);
    });
#endif
    return pair.finish(out);
}
