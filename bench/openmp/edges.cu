// Sobel's edges of a picture of bytes.
#include "pair.h"

BOTH inline uint8_t edge(const uint8_t* c, int n) {
    int gx = c[-n + 1] + 2 * c[1] + c[n + 1] - c[-n - 1] - 2 * c[-1] - c[n - 1];
    int gy = c[n - 1] + 2 * c[n] + c[n + 1] - c[-n - 1] - 2 * c[-n] - c[-n + 1];
    int sum = (gx < 0 ? -gx : gx) + (gy < 0 ? -gy : gy);
    return uint8_t(sum > 255 ? 255 : sum);
}

#ifdef __CUDACC__
__global__ void edges(int n, const uint8_t* from, uint8_t* to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1) to[y * n + x] = edge(from + y * n + x, n);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    int n = int(pair.side(2048, 2, 4));
    auto words = pair.words(size_t(n) * n / 4, 2);
    std::vector<uint8_t> from(size_t(n) * n), to(from.size());
    memcpy(from.data(), words.data(), from.size());
#ifdef __CUDACC__
    Device<uint8_t> df(from), dt(to);
    pair.time([&] { edges<<<dim3(blocks(n, 32), blocks(n, 8)), dim3(32, 8)>>>(n, df, dt); });
    to = dt.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (int y = 1; y < n - 1; y++)
            for (int x = 1; x < n - 1; x++) to[size_t(y) * n + x] = edge(&from[size_t(y) * n + x], n);
    });
#endif
    return pair.finish(to);
}
