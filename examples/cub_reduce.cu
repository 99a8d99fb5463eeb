// CUB: device-wide reduction, scan and selection, and a block-wide reduction inside a kernel.
#define EXAMPLE "cub_reduce"
#include "common/check.h"

#include <cub/cub.cuh>

struct IsOdd {
    __host__ __device__ bool operator()(int v) const { return v & 1; }
};

__global__ void by_block(const int* in, int* out, int n) {
    using Reduce = cub::BlockReduce<int, 128>;
    __shared__ typename Reduce::TempStorage storage;
    int i = blockIdx.x * 128 + threadIdx.x;
    int sum = Reduce(storage).Sum(i < n ? in[i] : 0);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// CUB's functions are called twice: for the size of their temporary storage, then to do the work.
template <typename F>
void with_storage(F call) {
    size_t bytes = 0;
    CHECK(call(nullptr, bytes));
    DeviceArray<char> storage(bytes);
    CHECK(call(storage.data, bytes));
    CHECK(cudaDeviceSynchronize());
}

int main() {
    const int n = 50021, blocks = (n + 127) / 128;
    Random random(13);
    std::vector<int> in(n);
    for (int& v : in) v = (int)random.below(20001) - 10000;
    DeviceArray<int> din(in), dout(n), dcount(1), dblocks(blocks);

    with_storage([&](void* s, size_t& b) { return cub::DeviceReduce::Sum(s, b, din.data, dout.data, n); });
    int sum = 0;
    for (int v : in) sum += v;
    REQUIRE(dout.download()[0] == sum, "the sum is %d instead of %d", dout.download()[0], sum);

    with_storage([&](void* s, size_t& b) { return cub::DeviceScan::ExclusiveSum(s, b, din.data, dout.data, n); });
    std::vector<int> out = dout.download();
    for (int i = 0, before = 0; i < n; before += in[i++])
        REQUIRE(out[i] == before, "prefix %d is %d instead of %d", i, out[i], before);

    with_storage([&](void* s, size_t& b) {
        return cub::DeviceSelect::If(s, b, din.data, dout.data, dcount.data, n, IsOdd());
    });
    std::vector<int> odd;
    for (int v : in)
        if (v & 1) odd.push_back(v);
    REQUIRE(dcount.download()[0] == (int)odd.size(), "%d odd numbers instead of %zu", dcount.download()[0], odd.size());
    out = dout.download();
    for (size_t i = 0; i < odd.size(); i++) REQUIRE(out[i] == odd[i], "odd number %zu is %d instead of %d", i, out[i], odd[i]);

    by_block<<<blocks, 128>>>(din, dblocks, n);
    CHECK(cudaGetLastError());
    std::vector<int> sums = dblocks.download();
    for (int b = 0; b < blocks; b++) {
        int e = 0;
        for (int i = b * 128; i < std::min(n, b * 128 + 128); i++) e += in[i];
        REQUIRE(sums[b] == e, "block %d sums to %d instead of %d", b, sums[b], e);
    }
    return ok("%d numbers, %zu of them odd", n, odd.size());
}
