// Graphs whose nodes are graphs that are done or not, or again and again, as kernels decide: loops, choices, one in another, launched
// several times, filled by capture and by hand.
// rgpu-nvcc: -rdc=true
// rgpu-cudadevrt: kernels set conditions
#define EXAMPLE "conditional_graphs"
#include "common/check.h"

// A step towards 1: how many there were, and whether there is another.
__global__ void collatz(unsigned long long* number, int* steps, cudaGraphConditionalHandle again) {
    *number = *number % 2 ? 3 * *number + 1 : *number / 2;
    ++*steps;
    cudaGraphSetConditional(again, *number != 1);
}

// Which graph comes next, by what is left of a number.
__global__ void decide(const int* number, cudaGraphConditionalHandle choice, int by) {
    cudaGraphSetConditional(choice, *number % by);
}

// One round less, if there are any.
__global__ void down(int* left, cudaGraphConditionalHandle again) {
    if (threadIdx.x == 0) cudaGraphSetConditional(again, --*left > 0);
}

__global__ void set(int* to, int value) { *to = value; }
__global__ void add(int* to, int value) { *to += value; }

static cudaGraphNode_t node(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, cudaGraphNodeParams& params) {
    cudaGraphNode_t made;
#if CUDART_VERSION < 13000
    CHECK(cudaGraphAddNode(&made, graph, after.data(), after.size(), &params));
#else
    CHECK(cudaGraphAddNode(&made, graph, after.data(), nullptr, after.size(), &params));
#endif
    return made;
}

// A node of graphs that are chosen by a condition.
struct Choice {
    cudaGraphNode_t made;
    cudaGraph_t* graphs;

    Choice(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, cudaGraphConditionalHandle handle,
           cudaGraphConditionalNodeType type, unsigned size) {
        cudaGraphNodeParams params = {};
        params.type = cudaGraphNodeTypeConditional;
        params.conditional.handle = handle;
        params.conditional.type = type;
        params.conditional.size = size;
        made = node(graph, after, params);
        graphs = params.conditional.phGraph_out;
    }
};

template <typename... Arguments>
static cudaGraphNode_t kernel(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, void (*function)(Arguments...),
                              Arguments... arguments) {
    void* list[] = {&arguments...};
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeKernel;
    params.kernel.func = (void*)function;
    params.kernel.gridDim = params.kernel.blockDim = dim3(1);
    params.kernel.kernelParams = list;
    return node(graph, after, params);
}

static cudaGraphConditionalHandle handle(cudaGraph_t graph, unsigned value = 0, unsigned flags = 0) {
    cudaGraphConditionalHandle made;
    CHECK(cudaGraphConditionalHandleCreate(&made, graph, value, flags));
    return made;
}

static int steps_of(unsigned long long number) {
    int steps = 0;
    for (; number != 1; steps++) number = number % 2 ? 3 * number + 1 : number / 2;
    return steps;
}

int main() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    DeviceArray<unsigned long long> number(1);
    DeviceArray<int> steps(1), word(1), sum(1);
    auto launch = [&](cudaGraphExec_t exec) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
    };

    // A loop, captured into its graph. It begins each time, as its condition is set by each launch.
    {
        cudaGraph_t graph;
        CHECK(cudaGraphCreate(&graph, 0));
        auto again = handle(graph, 1, cudaGraphCondAssignDefault);
        Choice loop(graph, {}, again, cudaGraphCondTypeWhile, 1);
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(loop.made, &type));
        REQUIRE(type == cudaGraphNodeTypeConditional, "the node is of type %d", (int)type);
        CHECK(cudaStreamBeginCaptureToGraph(stream, loop.graphs[0], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
        collatz<<<1, 1, 0, stream>>>(number, steps, again);
        CHECK(cudaStreamEndCapture(stream, nullptr));
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (unsigned long long from : {27ull, 2ull, 871ull}) {
            number.upload({from});
            steps.upload({0});
            launch(exec);
            int got = steps.download()[0];
            REQUIRE(got == steps_of(from), "%llu came to 1 in %d steps", from, got);
        }
        // What is done on a condition belongs to its node, and such graphs are not copied.
        EXPECT_ERROR(cudaGraphDestroy(loop.graphs[0]), cudaErrorInvalidValue);
        cudaGraph_t copy;
        EXPECT_ERROR(cudaGraphClone(&copy, graph), cudaErrorNotSupported);
        cudaGetLastError();
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    }

    // A loop in the midst of what is captured: a kernel, as long as there is something left, and another kernel.
    {
        cudaStreamCaptureStatus status;
        cudaGraph_t graph;
        const cudaGraphNode_t* last;
        size_t count;
        auto captured = [&] {
#if CUDART_VERSION < 13000
            CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, &last, &count));
#else
            CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &last, nullptr, &count));
#endif
        };
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        captured();
        auto again = handle(graph);
        decide<<<1, 1, 0, stream>>>(word, again, 1000);
        captured();
        Choice loop(graph, {last, last + count}, again, cudaGraphCondTypeWhile, 1);
#if CUDART_VERSION < 13000
        CHECK(cudaStreamUpdateCaptureDependencies(stream, &loop.made, 1, cudaStreamSetCaptureDependencies));
#else
        CHECK(cudaStreamUpdateCaptureDependencies(stream, &loop.made, nullptr, 1, cudaStreamSetCaptureDependencies));
#endif
        add<<<1, 1, 0, stream>>>(sum, 100);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaStreamBeginCaptureToGraph(stream, loop.graphs[0], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
        add<<<1, 1, 0, stream>>>(sum, 1);
        down<<<1, 32, 0, stream>>>(word, again);
        CHECK(cudaStreamEndCapture(stream, nullptr));
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (int rounds : {0, 1, 9}) {
            word.upload({rounds});
            sum.upload({0});
            launch(exec);
            int got = sum.download()[0];
            REQUIRE(got == rounds + 100, "%d rounds and a hundred were %d", rounds, got);
        }
        // A stream that is captured cannot wait for what a kernel decides.
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        EXPECT_ERROR(cudaGraphLaunch(exec, stream), cudaErrorStreamCaptureUnsupported);
        cudaGraph_t nothing;
        EXPECT_ERROR(cudaStreamEndCapture(stream, &nothing), cudaErrorStreamCaptureInvalidated);
        cudaGetLastError();
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    }

    // Choices: of two and of three graphs, with more before and behind.
    {
        cudaGraph_t graph;
        CHECK(cudaGraphCreate(&graph, 0));
        auto odd = handle(graph), third = handle(graph);
        auto first = kernel(graph, {}, decide, (const int*)(int*)word, odd, 2);
        auto second = kernel(graph, {first}, decide, (const int*)(int*)word, third, 4);
        Choice either(graph, {second}, odd, cudaGraphCondTypeIf, 2);
        kernel(either.graphs[0], {}, add, (int*)sum, 1);
        kernel(either.graphs[1], {}, add, (int*)sum, 2);
        Choice one(graph, {either.made}, third, cudaGraphCondTypeSwitch, 3);
        for (int i = 0; i < 3; i++) kernel(one.graphs[i], {}, add, (int*)sum, 10 * (i + 1));
        kernel(graph, {one.made}, add, (int*)sum, 100);
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 8; i++) {
            word.upload({i});
            sum.upload({0});
            launch(exec);
            int expected = (i % 2 ? 1 : 2) + (i % 4 < 3 ? 10 * (i % 4 + 1) : 0) + 100;
            int got = sum.download()[0];
            REQUIRE(got == expected, "%d chose %d, and not %d", i, got, expected);
        }
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    }

    // A loop in a loop; what is between them begins the inner one again.
    {
        cudaGraph_t graph;
        CHECK(cudaGraphCreate(&graph, 0));
        auto outer_again = handle(graph, 1, cudaGraphCondAssignDefault);
        Choice outer(graph, {}, outer_again, cudaGraphCondTypeWhile, 1);
        auto inner_again = handle(outer.graphs[0]);
        auto begin = kernel(outer.graphs[0], {}, set, (int*)steps, 5);
        auto ready = kernel(outer.graphs[0], {begin}, decide, (const int*)(int*)steps, inner_again, 6);
        Choice inner(outer.graphs[0], {ready}, inner_again, cudaGraphCondTypeWhile, 1);
        auto more = kernel(inner.graphs[0], {}, add, (int*)sum, 1);
        kernel(inner.graphs[0], {more}, down, (int*)steps, inner_again);
        kernel(outer.graphs[0], {inner.made}, down, (int*)word, outer_again);
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (int rounds : {1, 3}) {
            word.upload({rounds});
            sum.upload({0});
            launch(exec);
            int got = sum.download()[0];
            REQUIRE(got == 5 * rounds, "%d rounds of five were %d", rounds, got);
        }
        // A node in a loop can be changed in what was instantiated, and left out.
        cudaGraphNodeParams params = {};
        int by = 7;
        int* to = sum;
        void* list[] = {&to, &by};
        params.type = cudaGraphNodeTypeKernel;
        params.kernel.func = (void*)add;
        params.kernel.gridDim = params.kernel.blockDim = dim3(1);
        params.kernel.kernelParams = list;
        CHECK(cudaGraphExecNodeSetParams(exec, more, &params));
        word.upload({2});
        sum.upload({0});
        launch(exec);
        REQUIRE(sum.download()[0] == 70, "the changed node made %d", sum.download()[0]);
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    }

    // Handles of other graphs, and lists of graphs that a choice does not have.
    {
        cudaGraph_t graph, other;
        CHECK(cudaGraphCreate(&graph, 0));
        CHECK(cudaGraphCreate(&other, 0));
        cudaGraphNodeParams params = {};
        params.type = cudaGraphNodeTypeConditional;
        params.conditional.handle = handle(other);
        params.conditional.type = cudaGraphCondTypeIf;
        params.conditional.size = 1;
        cudaGraphNode_t made;
        auto fails = [&](cudaGraph_t where) {
#if CUDART_VERSION < 13000
            EXPECT_ERROR(cudaGraphAddNode(&made, where, nullptr, 0, &params), cudaErrorInvalidValue);
#else
            EXPECT_ERROR(cudaGraphAddNode(&made, where, nullptr, nullptr, 0, &params), cudaErrorInvalidValue);
#endif
        };
        fails(graph);
        params.conditional.type = cudaGraphCondTypeWhile;
        params.conditional.size = 2;
        fails(other);
        cudaGetLastError();
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaGraphDestroy(other));
    }
    return ok("loops, choices and loops in loops, as kernels decided");
}
