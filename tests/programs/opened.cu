// A library whose constructors and destructors use the GPU, opened and closed again and again: while the dynamic loader has its lock, which no thread
// of whoever runs the kernels may need then. The constructor's is the program's first work; later another thread works beside.
// rgpu-plugin: plugin opened/plugin.cu
#define EXAMPLE "opened"
#include "common/beside.h"
#include "common/check.h"

#include <dlfcn.h>

#include <atomic>
#include <string>
#include <thread>

__global__ void add(int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += 1;
}

static void open_and_close(const std::string& path, std::atomic<int>* ended) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library, "%s", dlerror());
    auto started = (int (*)(std::atomic<int>*))dlsym(library, "started");
    REQUIRE(started, "%s", dlerror());
    int value = started(ended);
    REQUIRE(value == 189, "the constructor computed %d", value);
    int before = *ended;
    REQUIRE(dlclose(library) == 0, "%s", dlerror());
    REQUIRE(*ended == before + 378, "the destructor computed %d", *ended - before);
}

int main() {
    const int rounds = 20, n = 5000;
    std::string path = beside("libopened_plugin.so");
    std::atomic<int> ended{0};
    open_and_close(path, &ended);
    std::atomic<bool> over{false};
    int done = 0;
    std::thread other([&] {
        DeviceArray<int> data(n);
        data.zero();
        do {
            add<<<(n + 255) / 256, 256>>>(data, n);
            done += 1;
            for (int v : data.download()) REQUIRE(v == done, "an element is %d instead of %d", v, done);
        } while (!over);
    });
    for (int round = 1; round < rounds; round++) open_and_close(path, &ended);
    over = true;
    other.join();
    return ok("%d times", rounds);
}
