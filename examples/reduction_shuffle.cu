// Sums and maxima by warp shuffles, one float atomic and one compare-and-swap per block.
#define EXAMPLE "reduction_shuffle"
#include "common/check.h"

__device__ long long warp_sum(long long v) {
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
}

__device__ float warp_max(float v) {
    for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

__device__ void atomic_max(float* place, float v) {
    int* bits = (int*)place;
    int seen = *bits;
    while (__int_as_float(seen) < v) {
        int was = atomicCAS(bits, seen, __float_as_int(v));
        if (was == seen) break;
        seen = was;
    }
}

__global__ void reduce(const int* values, int n, unsigned long long* sum, float* max) {
    __shared__ long long sums[32];
    __shared__ float maxima[32];
    long long s = 0;
    float m = -1e30f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        s += values[i];
        m = fmaxf(m, (float)values[i] * 0.5f);
    }
    s = warp_sum(s);
    m = warp_max(m);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) {
        sums[warp] = s;
        maxima[warp] = m;
    }
    __syncthreads();
    if (warp == 0) {
        bool in = lane < (int)(blockDim.x + 31) / 32;
        s = warp_sum(in ? sums[lane] : 0);
        m = warp_max(in ? maxima[lane] : -1e30f);
        if (lane == 0) {
            atomicAdd(sum, (unsigned long long)s);
            atomic_max(max, m);
        }
    }
}

int main() {
    const int n = 500009;
    Random random(3);
    std::vector<int> values(n);
    long long sum = 0;
    float max = -1e30f;
    for (int& v : values) {
        v = (int)random.below(2000001) - 1000000;
        sum += v;
        max = fmaxf(max, (float)v * 0.5f);
    }
    DeviceArray<int> dvalues(values);
    DeviceArray<unsigned long long> dsum(std::vector<unsigned long long>{0});
    DeviceArray<float> dmax(std::vector<float>{-1e30f});
    reduce<<<40, 256>>>(dvalues, n, dsum, dmax);
    CHECK(cudaGetLastError());
    long long got = (long long)dsum.download()[0];
    float got_max = dmax.download()[0];
    REQUIRE(got == sum, "sum is %lld instead of %lld", got, sum);
    REQUIRE(got_max == max, "maximum is %.9g instead of %.9g", got_max, max);
    return ok("%d numbers", n);
}
