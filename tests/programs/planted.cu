// Mistakes of kernels, one of each kind, for `rgpu check` to find: the argument says which. The line that is at fault ends in the
// kind's name.
// rgpu-nvcc: -lineinfo
#define EXAMPLE "planted"
#include "common/check.h"

__device__ __noinline__ void store(int* place, int value) {
    *place = value;  // called
}

__global__ void beyond(int* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= count) out[i] = i;  // beyond
}

__global__ void calls(int* out) { store(out + 16 + threadIdx.x, 1); }

__global__ void misaligned(char* out) {
    *(int*)(out + 2) = 1;  // misaligned
}

__global__ void use(int* out) {
    out[threadIdx.x] = 1;  // freed
}

__global__ void own(int* out, int distance) {
    int values[4] = {1, 2, 3, (int)threadIdx.x};
    int* far = values + distance;
    far[out[0]] = 5;  // local
    out[0] = values[out[1]];
}

__global__ void shared_beyond(int* out) {
    extern __shared__ int memory[];
    memory[threadIdx.x] = out[0];  // shared
    __syncthreads();
    out[0] = memory[0];
}

__global__ void read(const int* in, int* out) {
    out[threadIdx.x] = in[threadIdx.x];  // uninitialised
}

__global__ void race(int* out) {
    __shared__ int memory[96];
    memory[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = memory[95 - threadIdx.x];  // race
}

__global__ void no_race(int* out) {
    __shared__ int memory[128];
    memory[threadIdx.x] = threadIdx.x;
    __syncthreads();
    int value = memory[127 - threadIdx.x];
    __syncthreads();
    memory[threadIdx.x] = value;
    __syncwarp();
    out[threadIdx.x] = memory[threadIdx.x ^ 1];
}

__global__ void divergent(int* out) {
    if (threadIdx.x < 16) return;
    __syncthreads();  // divergent
    out[threadIdx.x] = 1;
}

__global__ void mask(int* out) {
    if (threadIdx.x >= 16) return;
    __syncwarp(0xffff0000u);  // mask
    out[threadIdx.x] = 1;
}

__global__ void endless(volatile int* in) {
    while (*in == 0) {  // endless
    }
}

__global__ void insist(int* in) {
    if (*in == 0) __trap();  // trap
}

int main(int argc, char** argv) {
    const char* kind = argc > 1 ? argv[1] : "none";
    auto is = [&](const char* other) { return strcmp(kind, other) == 0; };
    int* data;
    CHECK(cudaMalloc(&data, 100 * sizeof(int)));
    if (!is("uninitialised")) CHECK(cudaMemset(data, 0, 100 * sizeof(int)));
    if (is("beyond")) beyond<<<1, 128>>>(data, 100);
    if (is("called")) calls<<<4, 96>>>(data);
    if (is("misaligned")) misaligned<<<1, 1>>>((char*)data);
    if (is("freed")) {
        int* other;
        CHECK(cudaMalloc(&other, 1 << 20));
        CHECK(cudaFree(other));
        use<<<1, 1>>>(other);
    }
    if (is("local")) own<<<1, 1>>>(data, 1 << 22);
    if (is("shared")) shared_beyond<<<1, 33, 128>>>(data);
    if (is("uninitialised")) read<<<1, 1>>>(data + 7, data + 9);
    if (is("race")) race<<<1, 96>>>(data);
    if (is("divergent")) divergent<<<1, 64>>>(data);
    if (is("mask")) mask<<<1, 32>>>(data);
    if (is("endless")) endless<<<1, 1>>>(data);
    if (is("trap")) insist<<<2, 32>>>(data);
    if (is("double")) {
        int* other;
        CHECK(cudaMalloc(&other, 4));
        CHECK(cudaFree(other));
        EXPECT_ERROR(cudaFree(other), cudaErrorInvalidValue);
    }
    if (is("none")) {
        int* more;
        CHECK(cudaMalloc(&more, 128 * sizeof(int)));
        no_race<<<2, 128>>>(more);
        beyond<<<1, 128>>>(data, 99);
        read<<<1, 100>>>(data, more);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaFree(more));
    }
    cudaError_t ended = cudaDeviceSynchronize();
    printf("planted: %s\n", cudaGetErrorName(ended));
    if (!is("leak")) cudaFree(data);
    return 0;
}
