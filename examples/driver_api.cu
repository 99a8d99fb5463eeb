// The driver API, with every function looked up at run time: by cuGetProcAddress, at the versions that the headers
// name, in a libcuda.so.1 opened by the program. Kernels come from a fat binary, a PTX file, and PTX in a string.
// rgpu-fatbin: kernels driver_api/kernels.cu
#define EXAMPLE "driver_api"
#include "common/beside.h"
#include "common/check.h"

#include <cuda.h>
#include <dlfcn.h>

#include <fstream>
#include <iterator>
#include <string>

typedef CUresult (*GetProcAddress)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
static GetProcAddress get_proc_address;

static void* find(const char* name, int version) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult status;
    CUresult r = get_proc_address(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    REQUIRE(r == CUDA_SUCCESS && function, "cuGetProcAddress(%s, %d): result %d, status %d", name, version, (int)r,
            (int)status);
    return function;
}

// The type comes from the header's declaration of the newest version (a macro maps the name to it).
#define DRIVER(name, version) static auto name##_found = (decltype(&name))find(#name, version)

#define CU(call)                                                                                 \
    do {                                                                                         \
        CUresult cu_result_ = (call);                                                            \
        if (cu_result_ != CUDA_SUCCESS) fail("%s:%d: %s: CUDA driver error %d", __FILE__, __LINE__, #call, (int)cu_result_); \
    } while (0)

static const char* written_by_hand = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry collatz(.param .u64 data, .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    add.s32 %r6, %r5, 1;
    mov.u32 %r7, 0;
LOOP:
    setp.eq.u32 %p2, %r6, 1;
    @%p2 bra STORE;
    and.b32 %r8, %r6, 1;
    setp.eq.u32 %p3, %r8, 0;
    shr.u32 %r9, %r6, 1;
    mad.lo.u32 %r10, %r6, 3, 1;
    selp.b32 %r6, %r9, %r10, %p3;
    add.s32 %r7, %r7, 1;
    bra LOOP;
STORE:
    st.global.u32 [%rd4], %r7;
DONE:
    ret;
}
)";

struct Params {
    CUdeviceptr in, out;
    int n;
};

int main() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(library, "%s", dlerror());
    get_proc_address = (GetProcAddress)dlsym(library, "cuGetProcAddress_v2");
    REQUIRE(get_proc_address, "%s", dlerror());

    DRIVER(cuInit, 2000);
    DRIVER(cuDriverGetVersion, 2020);
    DRIVER(cuDeviceGet, 2000);
    DRIVER(cuDeviceGetCount, 2000);
    DRIVER(cuDeviceGetName, 2000);
    DRIVER(cuDeviceGetAttribute, 2000);
    DRIVER(cuDevicePrimaryCtxRetain, 7000);
    DRIVER(cuDevicePrimaryCtxRelease, 11000);
    DRIVER(cuCtxSetCurrent, 4000);
    DRIVER(cuCtxGetCurrent, 4000);
    DRIVER(cuCtxSynchronize, 2000);
    DRIVER(cuModuleLoad, 2000);
    DRIVER(cuModuleLoadData, 2000);
    DRIVER(cuModuleUnload, 2000);
    DRIVER(cuModuleGetFunction, 2000);
    DRIVER(cuModuleGetGlobal, 3020);
    DRIVER(cuMemAlloc, 3020);
    DRIVER(cuMemFree, 3020);
    DRIVER(cuMemcpyHtoD, 3020);
    DRIVER(cuMemcpyDtoH, 3020);
    DRIVER(cuMemcpyDtoHAsync, 3020);
    DRIVER(cuMemcpyDtoDAsync, 3020);
    DRIVER(cuMemsetD32, 3020);
    DRIVER(cuMemsetD32Async, 3020);
    DRIVER(cuPointerGetAttribute, 4000);
    DRIVER(cuLaunchHostFunc, 10000);
    DRIVER(cuLaunchKernel, 4000);
    DRIVER(cuFuncGetAttribute, 2020);
    DRIVER(cuStreamCreate, 2000);
    DRIVER(cuStreamSynchronize, 2000);
    DRIVER(cuStreamDestroy, 4000);
    DRIVER(cuEventCreate, 2000);
    DRIVER(cuEventRecord, 2000);
    DRIVER(cuEventSynchronize, 2000);
    DRIVER(cuEventDestroy, 4000);
    DRIVER(cuGetErrorName, 6000);

    // A name that does not exist, and one that is newer than what is asked for.
    void* function = (void*)1;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult r = get_proc_address("cuMakeCoffee", &function, 12000, 0, &status);
    REQUIRE(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND && function == nullptr, "a made-up name: %d, status %d", (int)r,
            (int)status);
    r = get_proc_address("cuLaunchKernelEx", &function, 5000, 0, &status);
    REQUIRE(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT && function == nullptr, "too old a version: %d, status %d",
            (int)r, (int)status);

    int version = 0, count = 0, threads = 0;
    REQUIRE(cuDeviceGetCount_found(&count) == CUDA_ERROR_NOT_INITIALIZED, "a call before cuInit was answered");
    CU(cuInit_found(0));
    CU(cuDriverGetVersion_found(&version));
    REQUIRE(version >= 11000, "the driver's version is %d", version);
    CU(cuDeviceGetCount_found(&count));
    REQUIRE(count >= 1, "no device");
    CUdevice device;
    CU(cuDeviceGet_found(&device, 0));
    char name[100] = {};
    CU(cuDeviceGetName_found(name, sizeof name, device));
    REQUIRE(name[0], "the device has no name");
    CU(cuDeviceGetAttribute_found(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
    REQUIRE(threads >= 1024, "%d threads in a block", threads);
    CUcontext context, current;
    CUdeviceptr nothing;
    REQUIRE(cuMemAlloc_found(&nothing, 16) == CUDA_ERROR_INVALID_CONTEXT, "memory without a context");
    CU(cuDevicePrimaryCtxRetain_found(&context, device));
    CU(cuCtxSetCurrent_found(context));
    CU(cuCtxGetCurrent_found(&current));
    REQUIRE(current == context, "another context is current");

    const int n = 5000;
    std::vector<float> in(n), out(n);
    for (int i = 0; i < n; i++) in[i] = (float)i * 0.25f;
    CUdeviceptr din, dout, dints;
    CU(cuMemAlloc_found(&din, n * sizeof(float)));
    CU(cuMemAlloc_found(&dout, n * sizeof(float)));
    CU(cuMemAlloc_found(&dints, n * sizeof(int)));
    CU(cuMemcpyHtoD_found(din, in.data(), n * sizeof(float)));
    CUstream stream;
    CU(cuStreamCreate_found(&stream, CU_STREAM_NON_BLOCKING));
    CUevent event;
    CU(cuEventCreate_found(&event, CU_EVENT_DEFAULT));

    // The same kernels from a fat binary in memory, a PTX file in memory, and the fat binary by its path.
    for (int way = 0; way < 3; way++) {
        CUmodule module;
        std::string path = beside(way == 1 ? "driver_api_kernels.ptx" : "driver_api_kernels.fatbin");
        if (way == 2) {
            CU(cuModuleLoad_found(&module, path.c_str()));
        } else {
            std::ifstream file(path, std::ios::binary);
            std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
            REQUIRE(!image.empty(), "cannot read %s", path.c_str());
            CU(cuModuleLoadData_found(&module, image.c_str()));
        }
        CUfunction apply, reverse;
        CU(cuModuleGetFunction_found(&apply, module, "apply"));
        CU(cuModuleGetFunction_found(&reverse, module, "shared_reverse"));
        REQUIRE(cuModuleGetFunction_found(&reverse, module, "missing") == CUDA_ERROR_NOT_FOUND, "a missing kernel was found");
        CUdeviceptr scale, launches;
        size_t bytes = 0;
        CU(cuModuleGetGlobal_found(&scale, &bytes, module, "scale"));
        REQUIRE(bytes == sizeof(float), "the constant has %zu bytes", bytes);
        CU(cuModuleGetGlobal_found(&launches, nullptr, module, "launches"));
        float host_scale = 2.0f + (float)way;
        CU(cuMemcpyHtoD_found(scale, &host_scale, sizeof host_scale));

        Params p = {din, dout, n};
        double offset = 0.5;
        char tag = 3;
        void* arguments[] = {&p, &offset, &tag};
        CU(cuLaunchKernel_found(apply, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr));
        // The other way to pass parameters: one buffer.
        struct {
            Params p;
            double offset;
            char tag;
        } packed = {p, offset, tag};
        size_t packed_size = offsetof(decltype(packed), tag) + 1;
        void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_size,
                         CU_LAUNCH_PARAM_END};
        CU(cuLaunchKernel_found(apply, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, nullptr, extra));
        CU(cuMemcpyDtoHAsync_found(out.data(), dout, n * sizeof(float), stream));
        CU(cuEventRecord_found(event, stream));
        CU(cuEventSynchronize_found(event));
        for (int i = 0; i < n; i++) {
            float e = in[i] * host_scale + 0.5f + 3.0f;
            REQUIRE(out[i] == e, "way %d: element %d is %g instead of %g", way, i, out[i], e);
        }
        int launched = 0;
        CU(cuMemcpyDtoH_found(&launched, launches, sizeof launched));
        REQUIRE(launched == 2, "the kernel counted %d launches", launched);

        std::vector<int> order(200), reversed(200);
        for (int i = 0; i < 200; i++) order[i] = i;
        CU(cuMemcpyHtoD_found(dints, order.data(), 200 * sizeof(int)));
        CU(cuModuleGetFunction_found(&reverse, module, "shared_reverse"));
        void* one[] = {&dints};
        CU(cuLaunchKernel_found(reverse, 1, 1, 1, 200, 1, 1, 200 * sizeof(int), nullptr, one, nullptr));
        CU(cuMemcpyDtoH_found(reversed.data(), dints, 200 * sizeof(int)));
        for (int i = 0; i < 200; i++) REQUIRE(reversed[i] == 199 - i, "place %d holds %d", i, reversed[i]);
        CU(cuModuleUnload_found(module));
    }

    CUmodule module;
    CUfunction collatz;
    CU(cuModuleLoadData_found(&module, written_by_hand));
    CU(cuModuleGetFunction_found(&collatz, module, "collatz"));
    int most = 0;
    CU(cuFuncGetAttribute_found(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, collatz));
    REQUIRE(most > 0, "the kernel runs with no threads");
    CU(cuMemsetD32_found(dints, 0xffffffffu, n));
    int length = n - 5;
    void* two[] = {&dints, &length};
    CU(cuLaunchKernel_found(collatz, (n + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, two, nullptr));
    CU(cuCtxSynchronize_found());
    std::vector<int> steps(n);
    CU(cuMemcpyDtoH_found(steps.data(), dints, n * sizeof(int)));
    for (int i = 0; i < n; i++) {
        int e = 0;
        for (unsigned v = i + 1; v != 1; v = v % 2 ? 3 * v + 1 : v / 2) e++;
        if (i >= length) e = -1;
        REQUIRE(steps[i] == e, "%d takes %d steps instead of %d", i + 1, steps[i], e);
    }

    // A thread without a context: a stream that the program has made is told its work all the same, as in JAX's threads. Default streams
    // are of no context then.
    CUdeviceptr spare;
    CU(cuMemAlloc_found(&spare, n * sizeof(int)));
    CU(cuCtxSetCurrent_found(nullptr));
    for (CUstream other : {(CUstream) nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        r = cuLaunchKernel_found(collatz, 1, 1, 1, 64, 1, 1, 0, other, two, nullptr);
        REQUIRE(r == CUDA_ERROR_INVALID_CONTEXT, "a launch without a context gives %d", (int)r);
        r = cuStreamSynchronize_found(other);
        REQUIRE(r == CUDA_ERROR_INVALID_CONTEXT, "a wait without a context gives %d", (int)r);
    }
    REQUIRE(cuMemAlloc_found(&nothing, 16) == CUDA_ERROR_INVALID_CONTEXT, "memory without a context");
    int called = 0, type = 0;
    CU(cuMemsetD32Async_found(dints, 0xffffffffu, n, stream));
    for (int i = 0; i < 2; i++) CU(cuLaunchKernel_found(collatz, (n + 63) / 64, 1, 1, 64, 1, 1, 0, stream, two, nullptr));
    CU(cuMemcpyDtoDAsync_found(spare, dints, n * sizeof(int), stream));
    CU(cuMemcpyDtoHAsync_found(out.data(), spare, n * sizeof(int), stream));
    CU(cuLaunchHostFunc_found(stream, [](void* place) { *(int*)place = 7; }, &called));
    CU(cuEventRecord_found(event, stream));
    CU(cuStreamSynchronize_found(stream));
    REQUIRE(called == 7, "the host's function was not called");
    REQUIRE(memcmp(out.data(), steps.data(), n * sizeof(int)) == 0, "a thread without a context computes something else");
    CU(cuPointerGetAttribute_found(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dints));
    REQUIRE(type == CU_MEMORYTYPE_DEVICE, "the memory is of type %d", type);
    CU(cuModuleGetFunction_found(&collatz, module, "collatz"));
    CU(cuFuncGetAttribute_found(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, collatz));
    CU(cuMemFree_found(spare));
    CU(cuModuleUnload_found(module));
    CU(cuCtxSetCurrent_found(context));

    CUmodule bad;
    r = cuModuleLoadData_found(&bad, ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { brew.coffee %r1; }\n");
    REQUIRE(r == CUDA_ERROR_INVALID_PTX, "bad PTX gives %d", (int)r);
    const char* text = nullptr;
    CU(cuGetErrorName_found(CUDA_ERROR_INVALID_PTX, &text));
    REQUIRE(strcmp(text, "CUDA_ERROR_INVALID_PTX") == 0, "the error is called %s", text);
    REQUIRE(cuLaunchKernel_found(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS,
            "no kernel was launched");

    CU(cuStreamSynchronize_found(stream));
    CU(cuEventDestroy_found(event));
    CU(cuStreamDestroy_found(stream));
    CU(cuMemFree_found(din));
    CU(cuMemFree_found(dout));
    CU(cuMemFree_found(dints));
    CU(cuDevicePrimaryCtxRelease_found(device));
    return ok("%s, CUDA %d.%d", name, version / 1000, version % 1000 / 10);
}
