#include <cstdio>

#include "separate_compilation/both.h"

__device__ int table[4] = {10, 20, 30, 40};
__constant__ float factors[2] = {5, 6};
extern __device__ int counter;

static __device__ __noinline__ int own(int x) {
    if (x < 0) printf("not in the second file\n");
    return x + 7;
}

__device__ int other(int x) {
    return own(x) * both<int>(3);
}

int other_on_the_host(int x) {
    return (x + 7) * 6;
}

__global__ void fill(int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] = 3 * i;
        atomicAdd(&counter, 1);
    }
}

void fill_from_the_other(int* device_data, int n) {
    fill<<<(n + 63) / 64, 64>>>(device_data, n);
}
