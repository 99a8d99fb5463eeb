// Closes every descriptor but the three standard ones, as daemons and shells do, between CUDA calls. What comes after
// may fail, but it must not hang or crash, and must not write into a descriptor that the program opened since.
#define EXAMPLE "close_all"
#include "common/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

__global__ void increment(int* data) { data[threadIdx.x]++; }

int main() {
    int* data;
    CHECK(cudaMalloc(&data, 256 * sizeof(int)));
    CHECK(cudaMemset(data, 0, 256 * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    for (int fd = 3; fd < 4096; fd++) close(fd);
    // A file under every number that was freed, so that a write in the dark would land in one of them.
    char path[] = "/tmp/rgpu-close-all-XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0, "no temporary file");
    unlink(path);
    int high = 0;
    for (int i = 0; i < 900; i++) high = dup(file);
    REQUIRE(high > 512, "descriptors reach only up to %d", high);
    increment<<<1, 256>>>(data);
    cudaError_t launch = cudaGetLastError(), synchronise = cudaDeviceSynchronize();
    int host[256];
    cudaError_t copy = cudaMemcpy(host, data, sizeof host, cudaMemcpyDeviceToHost);
    if (copy == cudaSuccess)
        for (int v : host) REQUIRE(v == 1, "the copy succeeded with %d", v);
    struct stat s;
    REQUIRE(fstat(file, &s) == 0, "the file is gone");
    REQUIRE(s.st_size == 0, "%lld bytes were written into the program's own file", (long long)s.st_size);
    ok("launch: %s, synchronise: %s, copy: %s", cudaGetErrorName(launch), cudaGetErrorName(synchronise),
       cudaGetErrorName(copy));
    return 0;
}
