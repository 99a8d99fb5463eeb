// Launches of a kernel with four arguments, for counting what one costs; with `driver`, by cuLaunchKernel.
#define EXAMPLE "launch_four"
#include "common/check.h"
#include <cuda.h>
#include <cstring>

__global__ void scale(float* out, const float* in, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * by;
}

// The driver's cuLaunchKernel, without linking to the driver.
static decltype(&cuLaunchKernel) driver_launch() {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 13000
    CHECK(cudaGetDriverEntryPointByVersion("cuLaunchKernel", &found, 12000, cudaEnableDefault, &result));
#else
    CHECK(cudaGetDriverEntryPoint("cuLaunchKernel", &found, cudaEnableDefault, &result));
#endif
    REQUIRE(found != nullptr, "cuLaunchKernel was not found: %d", int(result));
    return reinterpret_cast<decltype(&cuLaunchKernel)>(found);
}

int main(int argc, char** argv) {
    int launches = argc > 1 ? atoi(argv[1]) : 1000;
    bool driver = argc > 2 && strcmp(argv[2], "driver") == 0;
    std::vector<float> host(32, 1.0f);
    DeviceArray<float> in(host), out(32);
    if (driver) {
        auto launch = driver_launch();
        cudaFunction_t function;
        CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(scale)));
        float *to = out, *from = in;
        int n = 32;
        for (int i = 0; i < launches; i++) {
            float by = float(i);
            void* args[] = {&to, &from, &n, &by};
            CUresult done = launch(reinterpret_cast<CUfunction>(function), 1, 1, 1, 32, 1, 1, 0, nullptr, args, nullptr);
            REQUIRE(done == CUDA_SUCCESS, "launch %d: %d", i, int(done));
        }
    } else {
        for (int i = 0; i < launches; i++) scale<<<1, 32>>>(out, in, 32, float(i));
    }
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host.data(), out, 32 * sizeof(float), cudaMemcpyDeviceToHost));
    REQUIRE(launches == 0 || host[31] == float(launches - 1), "got %f", host[31]);
    return ok("%d launches", launches);
}
