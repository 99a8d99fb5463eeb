// The driver API's graphs: captured, built by hand, asked about, changed, and launched.
// rgpu-libcuda: a stand-in for the driver's library is made for linking
#define EXAMPLE "driver_graphs"
#include "common/driver.h"

static const char* ptx = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry multiply(.param .u64 data, .param .u32 factor)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r5, [factor];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    mul.lo.u32 %r3, %r2, %r5;
    st.global.u32 [%rd3], %r3;
    ret;
}
)";

static void CUDA_CB count(void* data) { ++*(int*)data; }

int main() {
    const int n = 100;
    CU(cuInit(0));
    CUcontext context;
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    CUmodule module;
    CUfunction multiply;
    CU(cuModuleLoadData(&module, ptx));
    CU(cuModuleGetFunction(&multiply, module, "multiply"));
    CUdeviceptr data;
    CU(cuMemAlloc(&data, n * sizeof(int)));
    CUstream stream, side;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CUevent fork, join;
    CU(cuEventCreate(&fork, 0));
    CU(cuEventCreate(&join, 0));
    int* result;
    CU(cuMemAllocHost((void**)&result, n * sizeof(int)));
    int calls = 0;

    // Captured: a fill, then a kernel beside a host function, then a copy back. Nothing runs before it is launched.
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU(cuMemsetD32Async(data, 7, n, stream));
    CU(cuEventRecord(fork, stream));
    CU(cuStreamWaitEvent(side, fork, 0));
    unsigned factor = 3;
    void* arguments[] = {&data, &factor};
    CU(cuLaunchKernel(multiply, 1, 1, 1, n, 1, 1, 0, stream, arguments, nullptr));
    CU(cuLaunchHostFunc(side, count, &calls));
    CU(cuEventRecord(join, side));
    CU(cuStreamWaitEvent(stream, join, 0));
    CU(cuMemcpyDtoHAsync(result, data, n * sizeof(int), stream));
    CUstreamCaptureStatus status;
    CU(cuStreamIsCapturing(side, &status));
    REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the second stream takes no part");
    CUgraph graph;
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuStreamIsCapturing(stream, &status));
    REQUIRE(status == CU_STREAM_CAPTURE_STATUS_NONE && calls == 0, "status %d, %d calls", status, calls);
    size_t count_of_nodes = 0;
    CU(cuGraphGetNodes(graph, nullptr, &count_of_nodes));
    REQUIRE(count_of_nodes == 4, "%zu nodes were captured", count_of_nodes);
    std::vector<CUgraphNode> nodes(count_of_nodes);
    CU(cuGraphGetNodes(graph, nodes.data(), &count_of_nodes));
    CUgraphExec executable;
    CU(cuGraphInstantiate(&executable, graph, 0));
    for (int r = 1; r <= 3; r++) {
        CU(cuGraphLaunch(executable, stream));
        CU(cuStreamSynchronize(stream));
        REQUIRE(calls == r, "the host function was called %d times", calls);
        for (int i = 0; i < n; i++) REQUIRE(result[i] == 21, "element %d is %d", i, result[i]);
    }

    // The kernel's node is found by its type, told what it does, and made to do something else.
    CUgraphNode kernel = nullptr;
    for (CUgraphNode node : nodes) {
        CUgraphNodeType type;
        CU(cuGraphNodeGetType(node, &type));
        if (type == CU_GRAPH_NODE_TYPE_KERNEL) kernel = node;
    }
    REQUIRE(kernel, "there is no kernel among the nodes");
    CUDA_KERNEL_NODE_PARAMS params;
    CU(cuGraphKernelNodeGetParams(kernel, &params));
    REQUIRE(params.func == multiply && params.blockDimX == n, "the node does something else");
    REQUIRE(*(unsigned*)params.kernelParams[1] == 3, "the factor is %u", *(unsigned*)params.kernelParams[1]);
    factor = 5;
    params.kernelParams = arguments;
    params.extra = nullptr;
    CU(cuGraphExecKernelNodeSetParams(executable, kernel, &params));
    CU(cuGraphLaunch(executable, stream));
    CU(cuStreamSynchronize(stream));
    REQUIRE(result[n - 1] == 35, "after the change: %d", result[n - 1]);

    // By hand: fill, multiply, and copy back, with an edge too many at first.
    CUgraph own;
    CU(cuGraphCreate(&own, 0));
    CUgraphNode fill_node, kernel_node, copy_node, host_node;
    CUDA_MEMSET_NODE_PARAMS fill = {};
    fill.dst = data;
    fill.elementSize = 4;
    fill.value = 2;
    fill.width = n;
    fill.height = 1;
    CU(cuGraphAddMemsetNode(&fill_node, own, nullptr, 0, &fill, context));
    CU(cuGraphAddKernelNode(&kernel_node, own, &fill_node, 1, &params));
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = data;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = result;
    copy.WidthInBytes = n * sizeof(int);
    copy.Height = copy.Depth = 1;
    CU(cuGraphAddMemcpyNode(&copy_node, own, &kernel_node, 1, &copy, context));
    CUDA_HOST_NODE_PARAMS host = {};
    host.fn = count;
    host.userData = &calls;
    CU(cuGraphAddHostNode(&host_node, own, &copy_node, 1, &host));
    size_t dependencies = 0;
#if CUDA_VERSION >= 13000
    CU(cuGraphNodeGetDependencies(copy_node, nullptr, nullptr, &dependencies));
#else
    CU(cuGraphNodeGetDependencies(copy_node, nullptr, &dependencies));
#endif
    REQUIRE(dependencies == 1, "the copy comes after %zu nodes", dependencies);
    CUgraphExec second;
    CU(cuGraphInstantiate(&second, own, 0));
    int before = calls;
    CU(cuGraphLaunch(second, stream));
    CU(cuStreamSynchronize(stream));
    REQUIRE(result[0] == 10 && calls == before + 1, "by hand: %d, %d calls", result[0], calls - before);
    CUgraphExecUpdateResultInfo info;
    CUresult updated = cuGraphExecUpdate(second, graph, &info);
    REQUIRE(updated == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE && info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS,
            "a graph of another shape was accepted: %d", updated);

    // Waiting for a stream breaks its capture.
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUresult refused = cuStreamSynchronize(stream);
    REQUIRE(refused == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "waiting in a capture gave %d", refused);
    CUgraph broken;
    refused = cuStreamEndCapture(stream, &broken);
    REQUIRE(refused == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "ending a broken capture gave %d", refused);

    CU(cuGraphExecDestroy(executable));
    CU(cuGraphExecDestroy(second));
    CU(cuGraphDestroy(graph));
    CU(cuGraphDestroy(own));
    CU(cuMemFreeHost(result));
    CU(cuMemFree(data));
    return ok("4 nodes captured, 4 by hand, %d calls", calls);
}
