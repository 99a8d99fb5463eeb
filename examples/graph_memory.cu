// Memory that graphs allocate: freed by the graph, by the program, by another graph, and by the next launch.
#define EXAMPLE "graph_memory"
#include "common/check.h"

__global__ void fill(int* data, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = value + i;
}

__global__ void sum(const int* a, const int* b, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

const int N = 100000, BYTES = N * sizeof(int), BLOCKS = (N + 255) / 256;

static cudaGraphNode_t allocation(cudaGraph_t graph, int** data) {
    cudaMemAllocNodeParams params = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.bytesize = BYTES;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    *data = (int*)params.dptr;
    return node;
}

// A graph that allocates memory, and fills it.
static cudaGraph_t filling(int** data, int value) {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t before = allocation(graph, data), node;
    int n = N;
    void* arguments[] = {data, &n, &value};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void*)fill;
    kernel.gridDim = dim3(BLOCKS);
    kernel.blockDim = dim3(256);
    kernel.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&node, graph, &before, 1, &kernel));
    return graph;
}

static void holds(const int* data, int value) {
    std::vector<int> host(N);
    CHECK(cudaMemcpy(host.data(), data, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++)
        REQUIRE(host[i] == value + i, "element %d is %d, not %d", i, host[i], value + i);
}

static unsigned long long bytes(cudaGraphMemAttributeType attribute) {
    unsigned long long value;
    CHECK(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

int main() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    int launches = 0, *data;
    cudaGraphExec_t executable, other;
    cudaGraphNode_t node;

    // By the program, by another graph, and not at all.
    cudaGraph_t graph = filling(&data, 5), freeing;
    CHECK(cudaGraphCreate(&freeing, 0));
    CHECK(cudaGraphAddMemFreeNode(&node, freeing, nullptr, 0, data));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphInstantiate(&other, freeing, 0));
    for (int round = 0; round < 6; round++, launches++) {
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
        holds(data, 5);
        REQUIRE(bytes(cudaGraphMemAttrUsedMemCurrent) == BYTES, "in use: %llu", bytes(cudaGraphMemAttrUsedMemCurrent));
        EXPECT_ERROR(cudaGraphLaunch(executable, stream), cudaErrorInvalidValue);
        if (round % 3 == 0) CHECK(cudaFree(data));
        if (round % 3 == 1) CHECK(cudaFreeAsync(data, stream));
        if (round % 3 == 2) CHECK(cudaGraphLaunch(other, stream));
        REQUIRE(bytes(cudaGraphMemAttrUsedMemCurrent) == 0, "in use: %llu", bytes(cudaGraphMemAttrUsedMemCurrent));
    }
    EXPECT_ERROR(cudaFree(data), cudaErrorInvalidValue);
    REQUIRE(bytes(cudaGraphMemAttrUsedMemHigh) == BYTES, "in use at most: %llu", bytes(cudaGraphMemAttrUsedMemHigh));
    unsigned long long zero = 0;
    CHECK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
    REQUIRE(bytes(cudaGraphMemAttrUsedMemHigh) == 0, "in use at most: %llu", bytes(cudaGraphMemAttrUsedMemHigh));

    // What is allocated stays when the graph is gone.
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphExecDestroy(other));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(freeing));
    DeviceArray<int> elsewhere(N);
    CHECK(cudaMemset(elsewhere, 0, BYTES));
    holds(data, 5);
    CHECK(cudaFree(data));
    EXPECT_ERROR(cudaFree(data), cudaErrorInvalidValue);
    launches++;

    // The next launch frees what the one before has allocated.
    graph = filling(&data, 70);
    CHECK(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int round = 0; round < 3; round++, launches++) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    holds(data, 70);
    CHECK(cudaFreeAsync(data, stream));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));

    // Captured, and freed within the graph.
    int *a, *b;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&a, BYTES, stream));
    CHECK(cudaMallocAsync(&b, BYTES, stream));
    fill<<<BLOCKS, 256, 0, stream>>>(a, N, 100);
    fill<<<BLOCKS, 256, 0, stream>>>(b, N, 11);
    sum<<<BLOCKS, 256, 0, stream>>>(a, b, elsewhere, N);
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaFreeAsync(b, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int round = 0; round < 3; round++, launches++) {
        CHECK(cudaMemsetAsync(elsewhere, 0, BYTES, stream));
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
        std::vector<int> host = elsewhere.download();
        for (int i = 0; i < N; i++) REQUIRE(host[i] == 111 + 2 * i, "captured: element %d is %d", i, host[i]);
    }
    REQUIRE(bytes(cudaGraphMemAttrUsedMemCurrent) == 0, "in use: %llu", bytes(cudaGraphMemAttrUsedMemCurrent));
    CHECK(cudaDeviceGraphMemTrim(0));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return ok("graphs with memory of their own launched %d times", launches);
}
