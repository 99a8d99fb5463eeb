// Kernels in libraries: one that the program is linked with, and one opened at run time. Each library has its own
// CUDA runtime inside when the runtime is linked statically.
// rgpu-library: linked dlopen_kernel/linked.cu
// rgpu-plugin: plugin dlopen_kernel/plugin.cu
#define EXAMPLE "dlopen_kernel"
#include "common/check.h"

#include <dlfcn.h>

#include <string>

// From the linked library; `linked_started` was computed on the device by the library's constructor.
extern "C" int linked_double(int* device_data, int n);
extern "C" int linked_started;

__global__ void increment(int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += 1;
}

int main() {
    const int n = 3000;
    REQUIRE(linked_started == 77, "the linked library's constructor computed %d", linked_started);
    DeviceArray<int> data(n);
    data.zero();
    int (*triple)(int*, int) = nullptr;
    std::string path(4096, 0);
    ssize_t length = -1;
    {
        // The plugin stands beside the program.
        Dl_info info;
        REQUIRE(dladdr((void*)&linked_double, &info) && info.dli_fname, "where is the linked library?");
        path = info.dli_fname;
        path = path.substr(0, path.rfind('/')) + "/libdlopen_kernel_plugin.so";
        length = (ssize_t)path.size();
    }
    REQUIRE(length > 0, "no path");
    int expected = 0;
    for (int round = 0; round < 3; round++) {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        REQUIRE(library, "%s", dlerror());
        triple = (int (*)(int*, int))dlsym(library, "plugin_triple");
        REQUIRE(triple, "%s", dlerror());
        increment<<<(n + 255) / 256, 256>>>(data, n);
        CHECK(cudaGetLastError());
        REQUIRE(linked_double(data, n) == 0, "the linked library failed");
        REQUIRE(triple(data, n) == 0, "the plugin failed");
        expected = (expected + 1) * 2 * 3;
        for (int v : data.download()) REQUIRE(v == expected, "round %d: an element is %d instead of %d", round, v, expected);
        REQUIRE(dlclose(library) == 0, "%s", dlerror());
    }
    return ok("kernels of three images, 3 rounds");
}
