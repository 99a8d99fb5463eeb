// π by random points, each thread with a generator of its own.
#include "pair.h"

const int POINTS = 256;

BOTH inline unsigned inside(uint32_t seed) {
    uint32_t state = seed * 747796405u + 2891336453u;
    unsigned count = 0;
    for (int point = 0; point < POINTS; point++) {
        state = state * 1664525u + 1013904223u;
        float x = (state >> 8) * (1.0f / 16777216.0f);
        state = state * 1664525u + 1013904223u;
        float y = (state >> 8) * (1.0f / 16777216.0f);
        count += x * x + y * y < 1.0f;
    }
    return count;
}

#ifdef __CUDACC__
__global__ void all(size_t n, unsigned* out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = inside(uint32_t(i));
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-6);
    size_t n = pair.size(65536);
    std::vector<unsigned> out(n);
#ifdef __CUDACC__
    Device<unsigned> dout(n);
    pair.time([&] { all<<<blocks(n, 256), 256>>>(n, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) out[i] = inside(uint32_t(i));
    });
#endif
    return pair.finish(out);
}
