// Bit work: words are mixed, reversed and counted.
#include "pair.h"

BOTH inline uint32_t mix(uint32_t h) {
    for (int round = 0; round < 8; round++) {
        h ^= h >> 16;
        h *= 0x85ebca6bu;
        h ^= h >> 13;
        h *= 0xc2b2ae35u;
        h = h << 15 | h >> 17;
#ifdef __CUDA_ARCH__
        h += __popc(h) + __clz(h | 1);
#else
        h += __builtin_popcount(h) + __builtin_clz(h | 1);
#endif
    }
    return h;
}

#ifdef __CUDACC__
__global__ void all(size_t n, const uint32_t* in, uint32_t* out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = mix(in[i]);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    size_t n = pair.size(2 << 20);
    auto in = pair.words(n, 3);
    std::vector<uint32_t> out(n);
#ifdef __CUDACC__
    Device<uint32_t> di(in), dout(n);
    pair.time([&] { all<<<blocks(n, 256), 256>>>(n, di, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) out[i] = mix(in[i]);
    });
#endif
    return pair.finish(out);
}
