// The kernels of kernels.ptx, which is made of them by `nvcc -arch=compute_80 -ptx kernels.cu`.
#include <cassert>
#include <cstdio>

__device__ int counter = 5;
__device__ int *counter_at = &counter;
__constant__ int weights[4] = {1, 2, 3, 4};
__managed__ int managed[4] = {10, 20, 30, 40};

struct Sum {
    const int *in;
    int *out;
    int n;
};

// The sum of in[i] * weights[i % 4], through shuffles, a barrier, shared memory and an atomic.
extern "C" __global__ void weighted_sum(Sum sum) {
    extern __shared__ int partial[];
    int value = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < sum.n; i += gridDim.x * blockDim.x)
        value += sum.in[i] * weights[i % 4];
    for (int step = 16; step; step /= 2) value += __shfl_down_sync(~0u, value, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < blockDim.x / 32; i++) value += partial[i];
        atomicAdd(sum.out, value);
    }
}

extern "C" __global__ void greet(int x) {
    printf("%s %d: %.2f\n", "thread", threadIdx.x, x * 1.5);
    if (threadIdx.x == 0) {
        *counter_at += x;
        managed[1] += x;
    }
}

extern "C" __global__ void insist(int x) { assert(x == 3); }

extern "C" __global__ void borrow(int *out) {
    int *mine = (int *)malloc(64 * sizeof(int));
    mine[threadIdx.x] = threadIdx.x + 1;
    __syncthreads();
    out[threadIdx.x] = mine[threadIdx.x];
    free(mine);
}

extern "C" __global__ void spin(volatile int *until) {
    while (*until == 0) {}
}
