// How often each byte occurs: counters of a block in shared memory, by atomic operations.
#include "pair.h"

#ifdef __CUDACC__
__global__ void count(size_t n, const uint32_t* words, unsigned* bins) {
    __shared__ unsigned of_block[256];
    of_block[threadIdx.x] = 0;
    __syncthreads();
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += stride) {
        uint32_t word = words[i];
        for (int byte = 0; byte < 4; byte++) atomicAdd(&of_block[word >> 8 * byte & 255], 1);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], of_block[threadIdx.x]);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    size_t n = pair.size(2 << 20);
    auto words = pair.words(n, 7);
    std::vector<unsigned> bins(256);
#ifdef __CUDACC__
    Device<uint32_t> dw(words);
    Device<unsigned> db(bins);
    pair.time([&] {
        CHECK(cudaMemset(db, 0, 256 * sizeof(unsigned)));
        count<<<64, 256>>>(n, dw, db);
    });
    bins = db.host();
#else
    pair.time([&] {
        std::fill(bins.begin(), bins.end(), 0u);
#pragma omp parallel
        {
            unsigned own[256] = {};
#pragma omp for nowait
            for (size_t i = 0; i < n; i++)
                for (int byte = 0; byte < 4; byte++) own[words[i] >> 8 * byte & 255]++;
#pragma omp critical
            for (int bin = 0; bin < 256; bin++) bins[bin] += own[bin];
        }
    });
#endif
    return pair.finish(bins);
}
