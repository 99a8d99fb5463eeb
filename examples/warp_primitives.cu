// Votes, matches, reductions over a warp, active masks, and shuffles in part of a warp.
// rgpu-nvcc: -arch=sm_80
#define EXAMPLE "warp_primitives"
#include "common/check.h"

constexpr int RESULTS = 16;

__global__ void primitives(const int* in, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    const unsigned all = 0xffffffffu;
    int v = in[i];
    unsigned* o = out + i * RESULTS;
    o[0] = __ballot_sync(all, v & 1);
    o[1] = __any_sync(all, v == 13);
    o[2] = __all_sync(all, v >= 0);
    o[3] = __match_any_sync(all, v % 4);
    int same = 0;
    o[4] = __match_all_sync(all, blockIdx.x % 2 ? v : 7, &same);
    o[5] = same;
    o[6] = __reduce_add_sync(all, v);
    o[7] = __reduce_min_sync(all, v);
    o[8] = __reduce_max_sync(all, v);
    o[9] = __reduce_xor_sync(all, (unsigned)v);
    // Part of the warp, in a branch.
    o[10] = 0;
    if (lane % 3 == 0) {
        unsigned mask = 0x49249249u;
        o[10] = __ballot_sync(mask, v > 50) | (unsigned)__shfl_sync(mask, v, 3) << 1;
        __syncwarp(mask);
    }
    o[11] = __shfl_up_sync(all, v, 3, 8);
    o[12] = __shfl_sync(all, v, lane * 5 + 1, 16);
    o[13] = __shfl_xor_sync(all, v, 9);
    o[14] = __popc(__activemask());
    // Both sides of a branch meet at a warp barrier.
    __shared__ int shared[64];
    if (lane < 16)
        shared[threadIdx.x % 64] = v;
    else
        shared[threadIdx.x % 64] = -v;
    __syncwarp();
    o[15] = shared[(threadIdx.x ^ 16) % 64];
}

int main() {
    const int n = 64 * 6;
    Random random(15);
    std::vector<int> in(n);
    for (int& v : in) v = (int)random.below(100);
    for (int i = 64; i < 96; i++) in[i] = 13;  // one warp of equals, in an even block
    for (int i = 96; i < 128; i++) in[i] = 5;
    DeviceArray<int> din(in);
    DeviceArray<unsigned> dout(n * RESULTS);
    primitives<<<n / 64, 64>>>(din, dout);
    CHECK(cudaGetLastError());
    std::vector<unsigned> got = dout.download();
    for (int i = 0; i < n; i++) {
        const int *w = &in[i & ~31], lane = i % 32, v = in[i];
        unsigned e[RESULTS] = {};
        int least = w[0], most = w[0];
        e[2] = 1;
        bool same = true;
        for (int k = 0; k < 32; k++) {
            e[0] |= (unsigned)(w[k] & 1) << k;
            e[1] |= w[k] == 13;
            e[2] &= w[k] >= 0;
            e[3] |= (unsigned)(w[k] % 4 == v % 4) << k;
            same &= w[k] == w[0];
            e[6] += w[k];
            least = std::min(least, w[k]);
            most = std::max(most, w[k]);
            e[9] ^= w[k];
            if (k % 3 == 0 && lane % 3 == 0) e[10] |= (unsigned)(w[k] > 50) << k;
        }
        same |= i / 64 % 2 == 0;
        e[4] = same ? 0xffffffffu : 0;
        e[5] = same;
        e[7] = least;
        e[8] = most;
        if (lane % 3 == 0) e[10] |= (unsigned)w[3] << 1;
        e[11] = lane % 8 >= 3 ? w[lane - 3] : v;
        e[12] = w[(lane & 16) | ((lane * 5 + 1) & 15)];
        e[13] = w[lane ^ 9];
        e[14] = 32;
        e[15] = lane < 16 ? -w[lane ^ 16] : w[lane ^ 16];
        for (int r = 0; r < RESULTS; r++)
            REQUIRE(got[i * RESULTS + r] == e[r], "result %d of thread %d is %#x instead of %#x", r, i,
                    got[i * RESULTS + r], e[r]);
    }
    return ok("%d results in %d threads", RESULTS, n);
}
