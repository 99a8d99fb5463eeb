// A prefix sum with cooperative groups: tiles inside a block, then blocks one after the other.
#define EXAMPLE "scan_cooperative_groups"
#include "common/check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

__global__ void scan_blocks(const int* in, int* out, int* totals, int n) {
    __shared__ int sums[32];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    int i = block.group_index().x * block.size() + block.thread_rank();
    int value = i < n ? in[i] : 0;
    int sum = cg::inclusive_scan(tile, value);
    if (tile.thread_rank() == tile.size() - 1) sums[tile.meta_group_rank()] = sum;
    block.sync();
    if (tile.meta_group_rank() == 0) {
        int rank = tile.thread_rank();
        int before = rank < (int)tile.meta_group_size() ? sums[rank] : 0;
        int through = before;
        for (int d = 1; d < 32; d *= 2) {
            int other = tile.shfl_up(through, d);
            if (rank >= d) through += other;
        }
        sums[rank] = through - before;
    }
    block.sync();
    sum += sums[tile.meta_group_rank()];
    if (i < n) out[i] = sum;
    if (block.thread_rank() == block.size() - 1) totals[block.group_index().x] = sum;
}

__global__ void add_offsets(int* out, const int* offsets, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && blockIdx.x > 0) out[i] += offsets[blockIdx.x - 1];
}

__global__ void tile_sums(const int* in, int* out, int n) {
    auto quad = cg::tiled_partition<4>(cg::this_thread_block());
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = cg::reduce(quad, i < n ? in[i] : 0, cg::plus<int>());
    int most = cg::reduce(quad, i < n ? in[i] : -1000000, cg::greater<int>());
    if (i < n) out[i] = sum * 1000 + most;
    // Threads that meet in a branch form a group of their own.
    if (i < n && in[i] % 3 == 0) {
        cg::coalesced_group some = cg::coalesced_threads();
        int rank = some.thread_rank();
        out[i] += some.shfl(rank, 0) + (some.any(rank == 0) ? 0 : 5000000);
    }
}

int main() {
    const int n = 60001, block = 256, blocks = (n + block - 1) / block;
    Random random(6);
    std::vector<int> in(n);
    for (int& v : in) v = (int)random.below(200) - 100;
    DeviceArray<int> din(in), dout(n), dtotals(1024), dscanned(1024), dnothing(1);
    dtotals.zero();
    scan_blocks<<<blocks, block>>>(din, dout, dtotals, n);
    scan_blocks<<<1, 1024>>>(dtotals, dscanned, dnothing, blocks);
    add_offsets<<<blocks, block>>>(dout, dscanned, n);
    CHECK(cudaGetLastError());
    std::vector<int> out = dout.download();
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sum += in[i];
        REQUIRE(out[i] == sum, "prefix %d is %d instead of %d", i, out[i], sum);
    }
    tile_sums<<<blocks, block>>>(din, dout, n);
    CHECK(cudaGetLastError());
    out = dout.download();
    for (int i = 0; i < n; i++) {
        int s = 0, m = -1000000;
        for (int j = i & ~3; j < (i & ~3) + 4; j++) {
            s += j < n ? in[j] : 0;
            m = std::max(m, j < n ? in[j] : -1000000);
        }
        REQUIRE(out[i] == s * 1000 + m, "quad of %d gives %d instead of %d", i, out[i], s * 1000 + m);
    }
    return ok("%d prefixes", n);
}
