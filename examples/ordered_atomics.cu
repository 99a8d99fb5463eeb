// Threads of a block that hand plain data to each other by ordered atomic variables, latches and semaphores of CUDA's C++ library.
#define EXAMPLE "ordered_atomics"
#include "common/check.h"

#include <cuda/atomic>
#include <cuda/latch>
#include <cuda/semaphore>

const int WARPS = 8, THREADS = WARPS * 32, BLOCKS = 6;
const auto BLOCK = cuda::thread_scope_block;

// Warp after warp adds to one word, when it has its turn.
__global__ void turns(int* out) {
    __shared__ int sum;
    __shared__ cuda::atomic<int, BLOCK> turn;
    int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        new (&turn) cuda::atomic<int, BLOCK>(0);
        sum = blockIdx.x;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        while (turn.load(cuda::memory_order_acquire) != warp) {}
        sum += 10 * warp + 1;
        turn.store(warp + 1, cuda::memory_order_release);
    }
    if (threadIdx.x == THREADS - 1) {
        while (turn.load() != WARPS) {}
        out[blockIdx.x] = sum;
    }
}

// All threads write, and count down; then one reads what all have written.
__global__ void counted(int* out) {
    __shared__ int values[THREADS];
    __shared__ alignas(cuda::latch<BLOCK>) char place[sizeof(cuda::latch<BLOCK>)];
    auto latch = (cuda::latch<BLOCK>*)place;
    if (threadIdx.x == 0) new (latch) cuda::latch<BLOCK>(THREADS);
    __syncthreads();
    values[threadIdx.x] = threadIdx.x * (blockIdx.x + 1);
    if (threadIdx.x != 77) {
        latch->count_down();
        return;
    }
    latch->arrive_and_wait();
    int sum = 0;
    for (int value : values) sum += value;
    out[blockIdx.x] = sum;
}

// A semaphore that lets one thread of the block in at a time.
__global__ void guarded(int* out) {
    __shared__ int sum, most;
    __shared__ alignas(cuda::binary_semaphore<BLOCK>) char place[sizeof(cuda::binary_semaphore<BLOCK>)];
    auto semaphore = (cuda::binary_semaphore<BLOCK>*)place;
    if (threadIdx.x == 0) {
        new (semaphore) cuda::binary_semaphore<BLOCK>(1);
        sum = most = 0;
    }
    __syncthreads();
    semaphore->acquire();
    sum += threadIdx.x;
    most = max(most, (int)threadIdx.x);
    semaphore->release();
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum + most;
}

int main() {
    DeviceArray<int> out(3 * BLOCKS);
    turns<<<BLOCKS, THREADS>>>(out);
    CHECK(cudaGetLastError());
    counted<<<BLOCKS, THREADS>>>(out.data + BLOCKS);
    CHECK(cudaGetLastError());
    guarded<<<BLOCKS, THREADS>>>(out.data + 2 * BLOCKS);
    CHECK(cudaGetLastError());
    std::vector<int> got = out.download();
    for (int block = 0; block < BLOCKS; block++) {
        int all = THREADS * (THREADS - 1) / 2, turned = block + 10 * WARPS * (WARPS - 1) / 2 + WARPS;
        REQUIRE(got[block] == turned, "turns: %d instead of %d", got[block], turned);
        int value = got[BLOCKS + block];
        REQUIRE(value == all * (block + 1), "counted: %d instead of %d", value, all * (block + 1));
        value = got[2 * BLOCKS + block];
        REQUIRE(value == all + THREADS - 1, "guarded: %d instead of %d", value, all + THREADS - 1);
    }
    return ok("%d blocks, by turns, latches and semaphores", BLOCKS);
}
