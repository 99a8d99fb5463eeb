// fork before the first CUDA call: both compute. fork after it: the child's calls fail, the parent's go on.
#define EXAMPLE "fork_both_orders"
#include "common/check.h"

#include <sys/wait.h>
#include <unistd.h>

__global__ void square(int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = i * i;
}

static void compute() {
    const int n = 1000;
    DeviceArray<int> data(n);
    square<<<(n + 127) / 128, 128>>>(data, n);
    CHECK(cudaGetLastError());
    std::vector<int> got = data.download();
    for (int i = 0; i < n; i++) REQUIRE(got[i] == i * i, "process %d: element %d is %d", (int)getpid(), i, got[i]);
}

static void expect_success(pid_t child, const char* which) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child, "cannot wait");
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the %s child ended with status %#x", which, status);
}

int main() {
    pid_t children[2];
    for (pid_t& child : children) {
        child = fork();
        REQUIRE(child >= 0, "cannot fork");
        if (child == 0) {
            compute();
            return 0;
        }
    }
    compute();
    for (pid_t child : children) expect_success(child, "early");

    int* mine;
    CHECK(cudaMalloc(&mine, 4096));
    for (int way = 0; way < 2; way++) {
        pid_t child = fork();
        REQUIRE(child >= 0, "cannot fork");
        if (child == 0) {
            int* p = nullptr;
            EXPECT_ERROR(cudaMalloc(&p, 16), cudaErrorInitializationError);
            EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorInitializationError);
            square<<<1, 32>>>(p, 32);
            EXPECT_ERROR(cudaGetLastError(), cudaErrorInitializationError);
            // With and without the program's exit handlers.
            if (way == 0) exit(0);
            _exit(0);
        }
        expect_success(child, "late");
        compute();
    }
    CHECK(cudaMemset(mine, 1, 4096));
    CHECK(cudaFree(mine));
    return ok("3 processes computed, 2 were refused");
}
