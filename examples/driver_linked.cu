// The driver API by linking with -lcuda, side by side with the runtime: one context, one set of addresses.
// rgpu-libcuda: a stand-in for the driver's library is made for linking
#define EXAMPLE "driver_linked"
#include "common/driver.h"

__global__ void add(int* data, int n, int by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += by;
}

static const char* ptx = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry square(.param .u64 data)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    mul.lo.u32 %r3, %r2, %r2;
    st.global.u32 [%rd3], %r3;
    ret;
}
)";

int main() {
    const int n = 256;
    CU(cuInit(0));
    CUdevice device;
    CU(cuDeviceGet(&device, 0));
    CUcontext primary, current;
    CU(cuDevicePrimaryCtxRetain(&primary, device));
    CU(cuCtxPushCurrent(primary));
    CUdeviceptr data;
    CU(cuMemAlloc(&data, n * sizeof(int)));
    CU(cuMemsetD32(data, 3, n));
    // The runtime uses what the driver API allocated, in the same context.
    add<<<1, n>>>((int*)data, n, 4);
    CHECK(cudaGetLastError());
    CU(cuCtxGetCurrent(&current));
    REQUIRE(current == primary, "the runtime changed the context");
    CUmodule module;
    CUfunction square;
    CU(cuModuleLoadDataEx(&module, ptx, 0, nullptr, nullptr));
    CU(cuModuleGetFunction(&square, module, "square"));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    void* arguments[] = {&data};
    CU(cuLaunchKernel(square, 1, 1, 1, n, 1, 1, 0, (CUstream)stream, arguments, nullptr));
    std::vector<int> host(n);
    CHECK(cudaMemcpyAsync(host.data(), (void*)data, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CU(cuStreamSynchronize((CUstream)stream));
    for (int i = 0; i < n; i++) REQUIRE(host[i] == 49, "element %d is %d", i, host[i]);
    // A kernel of the runtime, launched by the driver API.
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, (const void*)add));
    int count = n, by = -49;
    void* three[] = {&data, &count, &by};
    CU(cuLaunchKernel((CUfunction)function, 2, 1, 1, 128, 1, 1, 0, nullptr, three, nullptr));
    CU(cuMemcpyDtoH(host.data(), data, n * sizeof(int)));
    for (int i = 0; i < n; i++) REQUIRE(host[i] == 0, "element %d is %d at last", i, host[i]);
    CUdeviceptr base;
    size_t size;
    CU(cuMemGetAddressRange(&base, &size, data + 100));
    REQUIRE(base == data && size >= n * sizeof(int), "the address range is %#llx, %zu", base, size);
    CHECK(cudaStreamDestroy(stream));
    CU(cuModuleUnload(module));
    CU(cuMemFree(data));
    CU(cuCtxPopCurrent(&current));
    CU(cuDevicePrimaryCtxRelease(device));
    return ok("driver and runtime share a context");
}
