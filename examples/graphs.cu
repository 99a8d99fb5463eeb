// Graphs: captured from streams that fork and join, built by hand, changed, and launched many times.
#define EXAMPLE "graphs"
#include "common/check.h"

__global__ void scale(int* data, int n, int factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= factor;
}

__global__ void add(int* out, const int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

static cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, cudaGraphNodeParams* params) {
#if CUDART_VERSION < 13000
    return cudaGraphAddNode(node, graph, nullptr, 0, params);
#else
    return cudaGraphAddNode(node, graph, nullptr, nullptr, 0, params);
#endif
}

static void CUDART_CB count(void* data) { ++*(int*)data; }

int main() {
    const int n = 3000, rounds = 10;
    std::vector<int> host(n), result(n);
    DeviceArray<int> a(n), b(n), sum(n);
    cudaStream_t stream, side;
    cudaEvent_t fork, join;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreate(&side));
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaEventCreate(&join));
    int* pinned;
    CHECK(cudaMallocHost(&pinned, n * sizeof(int)));
    int calls = 0;

    // Captured: two branches, which are joined, a host function, and a copy back.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    REQUIRE(status == cudaStreamCaptureStatusActive, "the stream is not capturing");
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    scale<<<(n + 127) / 128, 128, 0, stream>>>(a, n, 2);
    scale<<<(n + 127) / 128, 128, 0, side>>>(b, n, 3);
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    add<<<(n + 127) / 128, 128, 0, stream>>>(sum, a, b, n);
    CHECK(cudaLaunchHostFunc(stream, count, &calls));
    CHECK(cudaMemcpyAsync(pinned, sum, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    REQUIRE(nodes == 5, "%zu nodes were captured", nodes);
    std::vector<cudaGraphNode_t> captured(nodes);
    CHECK(cudaGraphGetNodes(graph, captured.data(), &nodes));
    int scales = 0, adds = 0;
    for (cudaGraphNode_t node : captured) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(node, &type));
        if (type != cudaGraphNodeTypeKernel) continue;
        cudaKernelNodeParams kernel = {};
        CHECK(cudaGraphKernelNodeGetParams(node, &kernel));
        scales += kernel.func == (void*)scale;
        adds += kernel.func == (void*)add;
    }
    REQUIRE(scales == 2 && adds == 1, "%d and %d kernels are told by their names", scales, adds);
    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));

    // Nothing has run yet.
    for (int i = 0; i < n; i++) host[i] = i;
    a.upload(host);
    b.upload(host);
    int two = 1, three = 1;
    for (int r = 0; r < rounds; r++) {
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
        two *= 2;
        three *= 3;
        for (int i = 0; i < n; i++) {
            int e = i * two + i * three;
            REQUIRE(pinned[i] == e, "captured, round %d: element %d is %d instead of %d", r, i, pinned[i], e);
        }
    }
    REQUIRE(calls == rounds, "the host function was called %d times", calls);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));

    // By hand: a set, then two kernels one after the other; then one of them gets another factor.
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t set, first, second;
    cudaMemsetParams fill = {};
    fill.dst = a.data;
    fill.value = 1;
    fill.elementSize = 4;
    fill.width = n;
    fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &fill));
    int* data = a;
    int length = n, five = 5, seven = 7;
    void* arguments[] = {&data, &length, &five};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void*)scale;
    kernel.gridDim = dim3((n + 127) / 128);
    kernel.blockDim = dim3(128);
    kernel.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&first, graph, &set, 1, &kernel));
    arguments[2] = &seven;
    CHECK(cudaGraphAddKernelNode(&second, graph, &first, 1, &kernel));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    seven = 1000;  // what a node takes, it took when it was added
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int v : a.download()) REQUIRE(v == 35, "by hand: an element is %d", v);
    int eleven = 11;
    arguments[2] = &eleven;
    CHECK(cudaGraphExecKernelNodeSetParams(executable, second, &kernel));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int v : a.download()) REQUIRE(v == 55, "changed: an element is %d", v);

    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));

    // A graph that becomes another one's child as it is: it and its nodes are known by their handles still, also to what is made of the parent.
    cudaGraph_t child, found;
    CHECK(cudaGraphCreate(&child, 0));
    CHECK(cudaGraphAddMemsetNode(&set, child, nullptr, 0, &fill));
    arguments[2] = &five;
    CHECK(cudaGraphAddKernelNode(&first, child, &set, 1, &kernel));
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNodeParams moved = {};
    moved.type = cudaGraphNodeTypeGraph;
    moved.graph.graph = child;
    moved.graph.ownership = cudaGraphChildGraphOwnershipMove;
    cudaGraphNode_t part;
    CHECK(add_node(&part, graph, &moved));
    CHECK(cudaGraphChildGraphNodeGetGraph(part, &found));
    REQUIRE(found == child, "another graph is the child");
    cudaGraph_t other;
    CHECK(cudaGraphCreate(&other, 0));
    cudaGraphNode_t none;
    EXPECT_ERROR(add_node(&none, other, &moved), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaGraphDestroy(child), cudaErrorInvalidValue);
    moved.graph.graph = graph;
    EXPECT_ERROR(add_node(&none, graph, &moved), cudaErrorInvalidValue);
    EXPECT_ERROR(add_node(&none, child, &moved), cudaErrorInvalidValue);
    CHECK(cudaGraphDestroy(other));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int v : a.download()) REQUIRE(v == 5, "moved: an element is %d", v);
    arguments[2] = &eleven;
    CHECK(cudaGraphExecKernelNodeSetParams(executable, first, &kernel));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int v : a.download()) REQUIRE(v == 11, "moved and changed: an element is %d", v);

    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    EXPECT_ERROR(cudaGraphDestroy(child), cudaErrorInvalidValue);
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaFreeHost(pinned));
    return ok("a captured graph %d times, one by hand 3 times", rounds);
}
