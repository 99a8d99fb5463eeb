// The library that the program is linked with. Its constructor launches a kernel.
#include <cuda_runtime.h>

static __device__ int factor = 2;

// The same name as in the plugin: each image has its own.
static __global__ void scale(int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= factor;
}

static __global__ void start(int* out) { *out = 70 + 7; }

extern "C" int linked_started;
int linked_started = 0;

extern "C" int linked_double(int* data, int n) {
    scale<<<(n + 127) / 128, 128>>>(data, n);
    return (int)cudaGetLastError();
}

namespace {
struct Starter {
    Starter() {
        int* place;
        if (cudaMalloc(&place, sizeof(int)) != cudaSuccess) return;
        start<<<1, 1>>>(place);
        cudaMemcpy(&linked_started, place, sizeof(int), cudaMemcpyDeviceToHost);
        cudaFree(place);
    }
} starter;
}  // namespace
