// A kernel that never ends. The program says when it is running, and what becomes of it.
#define EXAMPLE "endless"
#include "common/check.h"

#include <unistd.h>

__global__ void endless(volatile int* flag) {
    while (*flag == 0) {
    }
}

int main() {
    DeviceArray<int> flag(1);
    flag.zero();
    CHECK(cudaDeviceSynchronize());
    endless<<<2, 64>>>(flag);
    CHECK(cudaGetLastError());
    fprintf(stderr, "running\n");
    cudaError_t error = cudaDeviceSynchronize();
    fprintf(stderr, "synchronise: %s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
    // From here on every call fails, and none hangs.
    int host = 0;
    if (error != cudaSuccess && cudaMemcpy(&host, flag, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess)
        fail("a copy succeeded after the loss");
    int* more;
    if (error != cudaSuccess && cudaMalloc(&more, 1 << 20) == cudaSuccess) fail("an allocation succeeded after the loss");
    _exit(error == cudaSuccess ? 0 : 3);
}
