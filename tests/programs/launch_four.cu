// Launches of a kernel with four arguments, for counting what one costs.
#define EXAMPLE "launch_four"
#include "common/check.h"

__global__ void scale(float* out, const float* in, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * by;
}

int main(int argc, char** argv) {
    int launches = argc > 1 ? atoi(argv[1]) : 1000;
    std::vector<float> host(32, 1.0f);
    DeviceArray<float> in(host), out(32);
    for (int i = 0; i < launches; i++) scale<<<1, 32>>>(out, in, 32, float(i));
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host.data(), out, 32 * sizeof(float), cudaMemcpyDeviceToHost));
    REQUIRE(launches == 0 || host[31] == float(launches - 1), "got %f", host[31]);
    return ok("%d launches", launches);
}
