// Variables of a module: initial values, symbols by address and size, copies both ways, and aliasing.
#define EXAMPLE "module_variables"
#include "common/check.h"

__device__ int counter = 41;
__device__ double table[100] = {1.5, 2.5, 3.5};
__constant__ short lookup[6] = {10, 20, 30, 40, 50, 60};
__device__ int* pointer_to_counter = &counter;
__device__ const char text[] = "written by the device";
static __device__ unsigned hidden;
namespace space {
__device__ float4 named = {1, 2, 3, 4};
}

__global__ void touch(char* out) {
    int i = threadIdx.x;
    if (i == 0) {
        (*pointer_to_counter)++;
        hidden = 0xabcd;
        space::named.w += space::named.x;
    }
    if (i < 100) table[i] = table[i] * 2 + lookup[i % 6];
    if (i < (int)sizeof text) out[i] = text[i];
}

int main() {
    size_t size = 0;
    CHECK(cudaGetSymbolSize(&size, table));
    REQUIRE(size == 100 * sizeof(double), "the table has %zu bytes", size);
    short replacement[2] = {-1, -2};
    CHECK(cudaMemcpyToSymbol(lookup, replacement, sizeof replacement, 3 * sizeof(short)));
    DeviceArray<char> out(64);
    touch<<<1, 128>>>(out);
    CHECK(cudaGetLastError());
    int count = 0;
    CHECK(cudaMemcpyFromSymbol(&count, counter, sizeof count));
    REQUIRE(count == 42, "the counter is %d", count);
    unsigned h = 0;
    CHECK(cudaMemcpyFromSymbol(&h, hidden, sizeof h));
    REQUIRE(h == 0xabcd, "the hidden variable is %#x", h);
    float4 named;
    CHECK(cudaMemcpyFromSymbol(&named, space::named, sizeof named));
    REQUIRE(named.w == 5 && named.y == 2, "the vector is %g %g %g %g", named.x, named.y, named.z, named.w);
    const double start[3] = {1.5, 2.5, 3.5};
    const short values[6] = {10, 20, 30, -1, -2, 60};
    double got[100];
    CHECK(cudaMemcpyFromSymbol(got, table, sizeof got));
    for (int i = 0; i < 100; i++) {
        double e = (i < 3 ? start[i] : 0) * 2 + values[i % 6];
        REQUIRE(got[i] == e, "table[%d] is %g instead of %g", i, got[i], e);
    }
    REQUIRE(strcmp(out.download().data(), "written by the device") == 0, "the text is wrong");
    void* address = nullptr;
    CHECK(cudaGetSymbolAddress(&address, table));
    double one = 123;
    CHECK(cudaMemcpy((double*)address + 7, &one, sizeof one, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyFromSymbol(&one, table, sizeof one, 7 * sizeof(double)));
    REQUIRE(one == 123, "table[7] is %g", one);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    int next = 7;
    CHECK(cudaMemcpyToSymbolAsync(counter, &next, sizeof next, 0, cudaMemcpyHostToDevice, stream));
    touch<<<1, 128, 0, stream>>>(out);
    CHECK(cudaMemcpyFromSymbolAsync(&count, counter, sizeof count, 0, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    REQUIRE(count == 8, "the counter is %d after the stream", count);
    CHECK(cudaStreamDestroy(stream));
    return ok("variables hold what they should");
}
