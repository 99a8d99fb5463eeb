// Kernels of which it is known what `rgpu profile-kernels` has to count in them: the lines that the test looks at end in a name.
// The argument `none` launches nothing, and `child` runs the program once more as another process.
// rgpu-nvcc: -lineinfo
#define EXAMPLE "profiled"
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"

__global__ void clean(const float* in, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] + 1.0f;  // clean
}

__global__ void strided(const float* in, float* out) {
    int i = threadIdx.x;
    float value = in[i * 32];  // read far apart
    out[i] = value;            // write side by side
}

__device__ float polynomial(float x) {
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k < 8; k++) sum = sum * x + __int_as_float(0x3f800000 + k);  // inlined
    return sum;
}

__global__ void divergent(float* out) {
    int i = threadIdx.x;
    float value = 1.0f;
    if (i % 4 == 0) {
        value = polynomial(i);  // a quarter
    }
    out[i] = value;  // together
}

__global__ void banks(int* out, int stride) {
    __shared__ int tile[32 * 32];
    tile[threadIdx.x * stride] = threadIdx.x;  // one bank
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];  // all banks
}

int main(int argc, char** argv) {
    bool child = argc > 1 && strcmp(argv[1], "child") == 0;
    float *in, *out;
    CHECK(cudaMalloc(&in, 1024 * sizeof(float)));
    CHECK(cudaMalloc(&out, 1024 * sizeof(float)));
    CHECK(cudaMemset(in, 0, 1024 * sizeof(float)));
    float value = 1.0f;
    if (argc < 2 || child) {
        cudaStream_t stream;
        CHECK(cudaStreamCreate(&stream));
        for (int n = 0; n < 3; n++) clean<<<4, 256>>>(in, out);
        CHECK(cudaMemcpy(&value, out + 1023, sizeof value, cudaMemcpyDeviceToHost));
        strided<<<1, 32>>>(in, out);
        divergent<<<1, 64, 0, stream>>>(out);
        CHECK(cudaStreamSynchronize(stream));
        banks<<<1, 32>>>((int*)out, 32);
        CHECK(cudaDeviceSynchronize());
    }
    REQUIRE(value == 1.0f, "the sum is %g", value);
    if (child) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            execl(argv[0], argv[0], (char*)nullptr);
            _exit(127);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        REQUIRE(status == 0, "the child ended with %d", status);
    }
    return ok("%g", value);
}
