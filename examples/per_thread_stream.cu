// Compiled for a default stream per host thread: two threads' default streams do not wait for each other.
// rgpu-nvcc: --default-stream per-thread
#define EXAMPLE "per_thread_stream"
#include "common/check.h"

#include <atomic>
#include <thread>

// Waits until the flag is set by a kernel in another thread's default stream: they have to run at the same time.
__global__ void wait_for(volatile int* flag, int* seen) {
    long long patience = 0;
    while (*flag == 0 && patience < 2000000000ll) patience++;
    *seen = *flag;
}

__global__ void set(volatile int* flag) { *flag = 1; }

__global__ void work(int* data, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        for (int r = 0; r < rounds; r++) data[i] = data[i] * 3 + r;
}

int main() {
    DeviceArray<int> flags(2);
    flags.zero();
    CHECK(cudaDeviceSynchronize());
    // Drivers load a kernel when it is first asked for, and may wait for what runs before they do.
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, wait_for));
    CHECK(cudaFuncGetAttributes(&attributes, set));
    std::thread waiter([&] {
        wait_for<<<1, 1>>>(flags, flags + 1);
        CHECK(cudaStreamSynchronize(0));
    });
    std::thread setter([&] {
        set<<<1, 1>>>(flags);
        CHECK(cudaStreamSynchronize(0));
    });
    setter.join();
    waiter.join();
    std::vector<int> got = flags.download();
    REQUIRE(got[1] == 1, "the threads' default streams waited for each other");

    const int n = 1000, threads = 4;
    std::atomic<int> wrong{0};
    std::vector<std::thread> all;
    for (int t = 0; t < threads; t++)
        all.emplace_back([&, t] {
            std::vector<int> mine(n);
            for (int i = 0; i < n; i++) mine[i] = i + t;
            DeviceArray<int> data(mine);
            for (int k = 0; k < 20; k++) work<<<(n + 255) / 256, 256>>>(data, n, 5);
            CHECK(cudaMemcpyAsync(mine.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost, cudaStreamPerThread));
            CHECK(cudaStreamSynchronize(cudaStreamPerThread));
            for (int i = 0; i < n; i++) {
                unsigned e = i + t;
                for (int k = 0; k < 100; k++) e = e * 3 + k % 5;
                if ((unsigned)mine[i] != e) wrong++;
            }
        });
    for (auto& t : all) t.join();
    REQUIRE(wrong == 0, "%d elements are wrong", wrong.load());
    return ok("%d threads with a default stream each", threads);
}
