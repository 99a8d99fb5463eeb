// Prefix sums: each block's in shared memory, then the blocks', then both together.
#include "pair.h"
#ifndef __CUDACC__
#include <omp.h>
#endif

#ifdef __CUDACC__
__global__ void scan(size_t n, const uint32_t* in, uint32_t* out, uint32_t* sums) {
    __shared__ uint32_t part[2][512];
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    int now = 0;
    part[0][threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned distance = 1; distance < blockDim.x; distance *= 2) {
        uint32_t value = part[now][threadIdx.x];
        if (threadIdx.x >= distance) value += part[now][threadIdx.x - distance];
        now ^= 1;
        part[now][threadIdx.x] = value;
        __syncthreads();
    }
    if (i < n) out[i] = part[now][threadIdx.x];
    if (sums && threadIdx.x == blockDim.x - 1) sums[blockIdx.x] = part[now][threadIdx.x];
}
__global__ void add(size_t n, uint32_t* out, const uint32_t* sums) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n && blockIdx.x > 0) out[i] += sums[blockIdx.x - 1];
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    size_t n = pair.size(4 << 20);
    auto in = pair.words(n, 3);
    for (auto& value : in) value &= 15;
    std::vector<uint32_t> out(n);
#ifdef __CUDACC__
    size_t first = blocks(n, 512), second = blocks(first, 512);
    Device<uint32_t> di(in), result(n), sums(first), of_sums(first), tops(second), of_tops(second);
    pair.time([&] {
        scan<<<first, 512>>>(n, di, result, sums);
        scan<<<second, 512>>>(first, sums, of_sums, tops);
        scan<<<blocks(second, 512), 512>>>(second, tops, of_tops, nullptr);
        add<<<second, 512>>>(first, of_sums, of_tops);
        add<<<first, 512>>>(n, result, of_sums);
    });
    out = result.host();
#else
    pair.time([&] {
        std::vector<uint32_t> sums(omp_get_max_threads() + 1);
#pragma omp parallel
        {
            int me = omp_get_thread_num(), all = omp_get_num_threads();
            size_t from = n * me / all, to = n * (me + 1) / all;
            uint32_t sum = 0;
            for (size_t i = from; i < to; i++) out[i] = sum += in[i];
            sums[me + 1] = sum;
#pragma omp barrier
            uint32_t before = 0;
            for (int other = 1; other <= me; other++) before += sums[other];
            for (size_t i = from; i < to; i++) out[i] += before;
        }
    });
#endif
    return pair.finish(out);
}
