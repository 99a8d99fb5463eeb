// Device code in two files that call each other (nvcc -rdc=true): functions, variables and constants of the other file, a
// template and a variable's name that both have, strings that both print to nobody.
// rgpu-nvcc: -rdc=true
// rgpu-part: other separate_compilation/other.cu
#define EXAMPLE "separate_compilation"
#include "common/check.h"

#include "separate_compilation/both.h"

extern __device__ int table[4];
extern __constant__ float factors[2];
extern __device__ int other(int x);
int other_on_the_host(int x);
void fill_from_the_other(int* device_data, int n);

__device__ int counter = 0;

// The other file has one of this name, too.
static __device__ __noinline__ int own(int x) {
    if (x < 0) printf("not in the first file\n");
    return x + 1;
}

__global__ void combine(int* data, int n) {
    extern __shared__ int shared[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    shared[threadIdx.x] = i < n ? data[i] : 0;
    __syncthreads();
    if (i < n) {
        data[i] = own(shared[threadIdx.x]) + both<int>(i) + other(i) + table[i % 4] + (int)factors[i % 2];
        atomicAdd(&counter, 1);
    }
}

int main() {
    const int n = 1000;
    DeviceArray<int> data(n);
    fill_from_the_other(data, n);
    combine<<<(n + 127) / 128, 128, 128 * sizeof(int)>>>(data, n);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::vector<int> host = data.download();
    const int table_is[4] = {10, 20, 30, 40}, factors_are[2] = {5, 6};
    for (int i = 0; i < n; i++) {
        int e = (3 * i + 1) + 2 * i + other_on_the_host(i) + table_is[i % 4] + factors_are[i % 2];
        REQUIRE(host[i] == e, "element %d is %d instead of %d", i, host[i], e);
    }
    int counted = 0;
    CHECK(cudaMemcpyFromSymbol(&counted, counter, sizeof(counted)));
    REQUIRE(counted == 2 * n, "both files together counted %d", counted);
    return ok("%d elements by two files", n);
}
