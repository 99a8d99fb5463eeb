// Integers sorted by four bits at a time: blocks count digits, the counts are added up, the blocks move their elements.
#include "pair.h"
#ifndef __CUDACC__
#include <omp.h>
#endif

const int BITS = 4, DIGITS = 1 << BITS, PER_THREAD = 64;

#ifdef __CUDACC__
__global__ void count(size_t n, int shift, const uint32_t* from, unsigned* counts, unsigned threads) {
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= threads) return;
    unsigned own[DIGITS] = {};
    for (size_t i = size_t(t) * PER_THREAD, end = min(n, i + PER_THREAD); i < end; i++) own[from[i] >> shift & (DIGITS - 1)]++;
    for (int digit = 0; digit < DIGITS; digit++) counts[size_t(digit) * threads + t] = own[digit];
}
// One block: each thread a part, then the parts.
__global__ void offsets(unsigned n, unsigned* counts) {
    __shared__ unsigned sums[1024];
    unsigned part = (n + blockDim.x - 1) / blockDim.x, from = min(n, threadIdx.x * part), to = min(n, from + part), sum = 0;
    for (unsigned i = from; i < to; i++) sum += counts[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned distance = 1; distance < blockDim.x; distance *= 2) {
        unsigned before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    sum = threadIdx.x > 0 ? sums[threadIdx.x - 1] : 0;
    for (unsigned i = from; i < to; i++) {
        unsigned here = counts[i];
        counts[i] = sum;
        sum += here;
    }
}
__global__ void move(size_t n, int shift, const uint32_t* from, uint32_t* to, const unsigned* counts, unsigned threads) {
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= threads) return;
    unsigned own[DIGITS];
    for (int digit = 0; digit < DIGITS; digit++) own[digit] = counts[size_t(digit) * threads + t];
    for (size_t i = size_t(t) * PER_THREAD, end = min(n, i + PER_THREAD); i < end; i++) to[own[from[i] >> shift & (DIGITS - 1)]++] = from[i];
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    size_t n = pair.size(1 << 19);
    const auto unsorted = pair.words(n, 9);
    std::vector<uint32_t> values(n), other(n);
#ifdef __CUDACC__
    unsigned threads = blocks(n, PER_THREAD);
    Device<uint32_t> start(unsorted), a(n), b(n);
    Device<unsigned> counts(size_t(threads) * DIGITS);
    pair.time([&] {
        CHECK(cudaMemcpy(a, start, n * sizeof(uint32_t), cudaMemcpyDeviceToDevice));
        uint32_t *from = a, *to = b;
        for (int shift = 0; shift < 32; shift += BITS) {
            count<<<blocks(threads, 128), 128>>>(n, shift, from, counts, threads);
            offsets<<<1, 1024>>>(threads * DIGITS, counts);
            move<<<blocks(threads, 128), 128>>>(n, shift, from, to, counts, threads);
            std::swap(from, to);
        }
    });
    values = a.host();
#else
    pair.time([&] {
        values = unsorted;
        int all = omp_get_max_threads();
        std::vector<size_t> counts(size_t(all) * DIGITS);
        for (int shift = 0; shift < 32; shift += BITS) {
#pragma omp parallel num_threads(all)
            {
                int me = omp_get_thread_num();
                size_t own[DIGITS] = {}, from = n * me / all, to = n * (me + 1) / all;
                for (size_t i = from; i < to; i++) own[values[i] >> shift & (DIGITS - 1)]++;
                for (int digit = 0; digit < DIGITS; digit++) counts[size_t(digit) * all + me] = own[digit];
#pragma omp barrier
#pragma omp single
                {
                    size_t sum = 0;
                    for (auto& entry : counts) {
                        size_t here = entry;
                        entry = sum;
                        sum += here;
                    }
                }
                for (int digit = 0; digit < DIGITS; digit++) own[digit] = counts[size_t(digit) * all + me];
                for (size_t i = from; i < to; i++) other[own[values[i] >> shift & (DIGITS - 1)]++] = values[i];
            }
            values.swap(other);
        }
    });
#endif
    return pair.finish(values);
}
