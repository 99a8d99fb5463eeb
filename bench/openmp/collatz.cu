// Steps until a number is one: divergent integer work.
#include "pair.h"

BOTH inline unsigned steps(uint64_t n) {
    unsigned count = 0;
    while (n != 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        count++;
    }
    return count;
}

#ifdef __CUDACC__
__global__ void all(size_t n, unsigned* out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = steps(i + 1);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    size_t n = pair.size(300000);
    std::vector<unsigned> out(n);
#ifdef __CUDACC__
    Device<unsigned> dout(n);
    pair.time([&] { all<<<blocks(n, 256), 256>>>(n, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for schedule(dynamic, 1024)
        for (size_t i = 0; i < n; i++) out[i] = steps(i + 1);
    });
#endif
    return pair.finish(out);
}
