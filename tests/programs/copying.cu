// Copies to and fro until something fails.
#define EXAMPLE "copying"
#include "common/check.h"

#include <unistd.h>

int main() {
    const size_t size = 64 << 20;
    std::vector<char> host(size, 1);
    DeviceArray<char> device(size);
    for (int i = 0;; i++) {
        cudaError_t up = cudaMemcpy(device, host.data(), size, cudaMemcpyHostToDevice);
        cudaError_t down = cudaMemcpy(host.data(), device, size, cudaMemcpyDeviceToHost);
        cudaError_t error = up != cudaSuccess ? up : down;
        if (error != cudaSuccess) {
            fprintf(stderr, "copy: %s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
            // No exit handlers: those are another program's test.
            _exit(3);
        }
        if (i == 1) fprintf(stderr, "running\n");
    }
}
