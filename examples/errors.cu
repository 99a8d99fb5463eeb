// Errors: bad launches, bad arguments, out of memory, and an illegal address, which sticks. The last one happens in
// a child process of its own (started anew: CUDA does not survive a fork), so that the parent can go on.
#define EXAMPLE "errors"
#include "common/check.h"

#include <sys/wait.h>
#include <unistd.h>

__global__ void nothing() {}

__global__ void too_greedy(int* out) {
    extern __shared__ int memory[];
    memory[threadIdx.x] = 1;
    out[threadIdx.x] = memory[threadIdx.x];
}

__global__ void stray(int* place, long long distance) { place[distance + threadIdx.x] = 1; }

__global__ void read_null(int* out, const int* in) { *out = *in; }

__global__ void add_one(int* data) { data[threadIdx.x] += 1; }

static int illegal_address(const char* kind) {
    DeviceArray<int> data(256);
    data.zero();
    add_one<<<1, 256>>>(data);
    CHECK(cudaDeviceSynchronize());
    if (strcmp(kind, "null") == 0)
        read_null<<<1, 1>>>(data, nullptr);
    else if (strcmp(kind, "host") == 0)
        read_null<<<1, 1>>>(data, new int(5));
    else
        stray<<<1, 32>>>(data, 1ll << 40);
    CHECK(cudaGetLastError());
    EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    // Everything fails the same way from here on, and asking for the last error does not mend it.
    int host;
    EXPECT_ERROR(cudaMemcpy(&host, data, sizeof host, cudaMemcpyDeviceToHost), cudaErrorIllegalAddress);
    cudaGetLastError();
    int* more;
    EXPECT_ERROR(cudaMalloc(&more, 64), cudaErrorIllegalAddress);
    add_one<<<1, 256>>>(data);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    printf("%s: child saw what it should\n", EXAMPLE);
    fflush(stdout);
    return 0;
}

int main(int argc, char** argv) {
    if (argc > 1) return illegal_address(argv[1]);

    // Children first: at this time the parent has not touched CUDA.
    for (const char* kind : {"far", "null", "host"}) {
        pid_t child = fork();
        REQUIRE(child >= 0, "cannot fork");
        if (child == 0) {
            execl("/proc/self/exe", argv[0], kind, (char*)nullptr);
            _exit(127);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
                "the child with the illegal address (%s) ended with status %#x", kind, status);
    }

    REQUIRE(cudaGetLastError() == cudaSuccess, "an error at the beginning");
    // The runtime of 12.x looks at a launch's shape itself; that of 13.x asks the driver, which has no error of its own for it.
    const cudaError_t IMPOSSIBLE = CUDART_VERSION >= 13000 ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
    // Impossible launches are reported at once, and forgotten once asked for.
    nothing<<<1, 2000>>>();
    REQUIRE(cudaPeekAtLastError() == IMPOSSIBLE, "2000 threads: %s",
            cudaGetErrorName(cudaPeekAtLastError()));
    EXPECT_ERROR(cudaGetLastError(), IMPOSSIBLE);
    CHECK(cudaGetLastError());
    nothing<<<0, 32>>>();
    EXPECT_ERROR(cudaGetLastError(), IMPOSSIBLE);
    nothing<<<dim3(1, 70000), 32>>>();
    EXPECT_ERROR(cudaGetLastError(), IMPOSSIBLE);
    nothing<<<1, dim3(1, 1, 65)>>>();
    EXPECT_ERROR(cudaGetLastError(), IMPOSSIBLE);
    DeviceArray<int> data(256);
    too_greedy<<<1, 32, 1 << 20>>>(data);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);

    int* p = nullptr;
    EXPECT_ERROR(cudaMalloc(&p, (size_t)1 << 46), cudaErrorMemoryAllocation);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorMemoryAllocation);
    size_t free_bytes = 0, total = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    REQUIRE(free_bytes > 0 && free_bytes <= total, "%zu of %zu bytes are free", free_bytes, total);
    EXPECT_ERROR(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
    cudaGetLastError();
    // What does fit is still to be had.
    CHECK(cudaMalloc(&p, 16 << 20));
    CHECK(cudaMemset(p, 1, 16 << 20));
    CHECK(cudaFree(p));

    EXPECT_ERROR(cudaFree((void*)0x1234), cudaErrorInvalidValue);
    cudaGetLastError();
    CHECK(cudaFree(nullptr));
    EXPECT_ERROR(cudaMemcpy(data, nullptr, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    cudaGetLastError();
    EXPECT_ERROR(cudaSetDevice(1000), cudaErrorInvalidDevice);
    cudaGetLastError();
    int own;
    EXPECT_ERROR(cudaMemcpyToSymbol((const void*)&own, &own, sizeof own), cudaErrorInvalidSymbol);
    cudaGetLastError();
    REQUIRE(strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress") == 0, "a wrong error name");
    REQUIRE(strlen(cudaGetErrorString(cudaErrorIllegalAddress)) > 0, "no error text");
    // After all this the device still computes.
    data.zero();
    add_one<<<1, 256>>>(data);
    CHECK(cudaGetLastError());
    for (int v : data.download()) REQUIRE(v == 1, "an element is %d", v);
    return ok("all errors were the right ones");
}
