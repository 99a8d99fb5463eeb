// Integers sorted by a bitonic network, a launch for each of its steps.
#include "pair.h"

#ifdef __CUDACC__
__global__ void step(uint32_t* values, unsigned distance, unsigned length) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ distance;
    if (other <= i) return;
    uint32_t a = values[i], b = values[other];
    if (((i & length) == 0) == (a > b)) {
        values[i] = b;
        values[other] = a;
    }
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    size_t wanted = pair.size(1 << 17), n = 256;
    while (n * 2 <= wanted) n *= 2;
    const auto unsorted = pair.words(n, 9);
    auto values = unsorted;
#ifdef __CUDACC__
    Device<uint32_t> from(unsorted), dv(n);
    pair.time([&] {
        CHECK(cudaMemcpy(dv, from, n * sizeof(uint32_t), cudaMemcpyDeviceToDevice));
        for (unsigned length = 2; length <= n; length *= 2)
            for (unsigned distance = length / 2; distance > 0; distance /= 2) step<<<n / 256, 256>>>(dv, distance, length);
    });
    values = dv.host();
#else
    pair.time([&] {
        values = unsorted;
        for (unsigned length = 2; length <= n; length *= 2)
            for (unsigned distance = length / 2; distance > 0; distance /= 2) {
#pragma omp parallel for
                for (size_t start = 0; start < n; start += 2 * distance) {
                    bool up = (start & length) == 0;
                    for (size_t i = start; i < start + distance; i++) {
                        uint32_t a = values[i], b = values[i + distance];
                        values[i] = up ? std::min(a, b) : std::max(a, b);
                        values[i + distance] = up ? std::max(a, b) : std::min(a, b);
                    }
                }
            }
    });
#endif
    return pair.finish(values);
}
