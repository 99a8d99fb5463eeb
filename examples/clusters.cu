// Clusters of blocks, which reach each other's shared memory and wait for each other (compute capability 9.0).
// rgpu-nvcc: -gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=compute_90
#define EXAMPLE "clusters"
#include "common/check.h"

#include <cooperative_groups.h>
namespace cg = cooperative_groups;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define IN_CLUSTERS(sides) __cluster_dims__ sides
#define BODY(...) __VA_ARGS__
#else
// Devices without clusters refuse their launches, so that nobody gets here.
#define IN_CLUSTERS(sides)
#define BODY(...) { __trap(); }
#endif

// A histogram that is too large for one block's shared memory: each block of a cluster holds a part of it, for all of them.
__global__ void histogram(int* bins, const int* input, int n, int count, int per_block) BODY({
    extern __shared__ int part[];
    cg::cluster_group cluster = cg::this_cluster();
    for (int i = threadIdx.x; i < per_block; i += blockDim.x) part[i] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        int bin = min(max(input[i], 0), count - 1);
        int* there = cluster.map_shared_rank(part, bin / per_block);
        atomicAdd(there + bin % per_block, 1);
    }
    // Nobody ends before the others have added to its part.
    cluster.sync();
    int* mine = bins + cluster.block_rank() * per_block;
    for (int i = threadIdx.x; i < per_block; i += blockDim.x) atomicAdd(mine + i, part[i]);
})

// The sum of all numbers of each cluster, by addresses of 32 bits. Each block tells its successor the sum so far.
__global__ void IN_CLUSTERS((4, 1, 1)) sums(const unsigned* input, unsigned* output, int each) BODY({
    __shared__ unsigned own;
    __shared__ unsigned partial;
    unsigned rank, count, at, there, before = 0;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    if (threadIdx.x == 0) own = 0;
    __syncthreads();
    unsigned sum = 0;
    for (int i = threadIdx.x; i < each; i += blockDim.x) sum += input[(size_t)blockIdx.x * each + i];
    atomicAdd(&own, sum);
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x == 0) {
        // The blocks before this one have their own sums in the same place.
        asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(at) : "l"(&own));
        for (unsigned other = 0; other <= rank; other++) {
            unsigned value;
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(other));
            asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there) : "memory");
            before += value;
        }
        // To the next one, round the cluster.
        asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(at) : "l"(&partial));
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"((rank + 1) % count));
        asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(before) : "memory");
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x == 0) output[blockIdx.x] = partial;
})

// What a thread is told of its cluster.
struct Told {
    unsigned rank, blocks, thread, threads, x, y, z, sx, sy, sz, explicit_, id;
};

__global__ void ask(Told* told) BODY({
    cg::cluster_group cluster = cg::this_cluster();
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned x, y, z, nx, ny;
    asm("mov.u32 %0, %%clusterid.x; mov.u32 %1, %%clusterid.y; mov.u32 %2, %%clusterid.z;" : "=r"(x), "=r"(y), "=r"(z));
    asm("mov.u32 %0, %%nclusterid.x; mov.u32 %1, %%nclusterid.y;" : "=r"(nx), "=r"(ny));
    unsigned explicit_;
    asm("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }" : "=r"(explicit_));
    dim3 index = cluster.block_index(), size = cluster.dim_blocks();
    if (threadIdx.x == blockDim.x - 1)
        told[block] = {cluster.block_rank(), cluster.num_blocks(), cluster.thread_rank(), cluster.num_threads(),
                       index.x, index.y, index.z, size.x, size.y, size.z, explicit_, (z * ny + y) * nx + x};
})

// Blocks hand a number round: each waits at a barrier object in its own shared memory, on which the one before it arrives.
__global__ void relay(unsigned* output, int rounds) BODY({
    __shared__ unsigned long long barrier;
    __shared__ unsigned value;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), next = (rank + 1) % cluster.num_blocks();
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), slot = (unsigned)__cvta_generic_to_shared(&value), far, far_slot;
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(at), "r"(next));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far_slot) : "r"(slot), "r"(next));
    cluster.sync();
    if (threadIdx.x == 0) {
        unsigned number = 1;
        for (int round = 0; round < rounds; round++) {
            if (rank > 0 || round > 0) {
                unsigned parity = (rank > 0 ? round : round - 1) & 1, done = 0;
                while (!done)
                    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                                 : "=r"(done) : "r"(at), "r"(parity) : "memory");
                number = *(volatile unsigned*)&value;
            }
            number = number * 3 + rank;
            asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(far_slot), "r"(number) : "memory");
            asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(far) : "memory");
        }
        if (next == 0) *output = number;
    }
    cluster.sync();
})

// Asynchronous stores into the next block's shared memory, counted by its barrier.
__global__ void exchange(unsigned* output) BODY({
    __shared__ unsigned long long barrier;
    __shared__ __align__(16) unsigned box[64];
    __shared__ __align__(16) unsigned copy[64];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), next = (rank + 1) % cluster.num_blocks(), t = threadIdx.x;
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), mine = (unsigned)__cvta_generic_to_shared(box), far, there, place;
    unsigned from = (unsigned)__cvta_generic_to_shared(copy);
    box[t] = 0;
    copy[t] = rank * 1000 + t;
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(32u * 4 + 4 + 64) : "memory");
    }
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(at), "r"(next));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(next));
    cluster.sync();
    place = there + t * 4;
    if (t < 32)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(place), "r"(rank * 100 + t), "r"(far) : "memory");
    if (t == 0) {
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
                     ::"r"(there + 32 * 4), "r"(rank + 7), "r"(far) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];"
                     ::"r"(there + 48 * 4), "r"(from + 16 * 4), "r"(far) : "memory");
    }
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory");
    output[blockIdx.x * 64 + t] = *(volatile unsigned*)&box[t];
    cluster.sync();
})

static cudaLaunchAttribute shape(unsigned x, unsigned y, unsigned z) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = x;
    attribute.val.clusterDim.y = y;
    attribute.val.clusterDim.z = z;
    return attribute;
}

struct Shape {
    cudaLaunchAttribute attribute;
    cudaLaunchConfig_t config = {};
    Shape(dim3 grid, dim3 block, dim3 cluster, size_t shared = 0, cudaStream_t stream = 0) : attribute(shape(cluster.x, cluster.y, cluster.z)) {
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = shared;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
    }
    operator const cudaLaunchConfig_t*() const { return &config; }
};

static void check_histogram(unsigned cluster, cudaStream_t stream) {
    const int count = 3000, n = 40000;
    int per_block = (count + cluster - 1) / cluster;
    std::vector<int> input(n), expected(per_block * cluster);
    Random random(cluster);
    for (auto& value : input) {
        value = (int)random.below(count + 200) - 100;
        expected[std::min(std::max(value, 0), count - 1)]++;
    }
    DeviceArray<int> bins(std::vector<int>(per_block * cluster)), values(input);
    int *b = bins, *v = values;
    Shape launch(2 * cluster, 160, cluster, per_block * sizeof(int), stream);
    CHECK(cudaLaunchKernelEx(launch, histogram, b, (const int*)v, n, count, per_block));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<int> got = bins.download();
    for (size_t i = 0; i < expected.size(); i++)
        REQUIRE(got[i] == expected[i], "bin %zu has %d instead of %d in clusters of %u", i, got[i], expected[i], cluster);
}

static void check_sums(int clusters) {
    const int each = 1000, blocks = clusters * 4;
    std::vector<unsigned> input(each * blocks);
    Random random(3);
    for (auto& value : input) value = random.next();
    DeviceArray<unsigned> values(input), output(blocks);
    unsigned *v = values, *o = output;
    // The kernel says itself how large its clusters are.
    sums<<<blocks, 96>>>(v, o, each);
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned> got = output.download();
    for (int block = 0; block < blocks; block++) {
        // The block before, round the cluster, has told the sum up to itself.
        int rank = block % 4, before = block - rank + (rank + 3) % 4;
        unsigned sum = 0;
        for (int i = (block - rank) * each; i < (before + 1) * each; i++) sum += input[i];
        REQUIRE(got[block] == sum, "block %d was told %u instead of %u", block, got[block], sum);
    }
}

static void check_queries(dim3 grid, dim3 cluster) {
    const unsigned threads = 33, blocks = grid.x * grid.y * grid.z, each = cluster.x * cluster.y * cluster.z;
    DeviceArray<Told> told(blocks);
    Told* t = told;
    CHECK(cudaLaunchKernelEx(Shape(grid, threads, cluster), ask, t));
    CHECK(cudaDeviceSynchronize());
    std::vector<Told> got = told.download();
    for (unsigned i = 0; i < blocks; i++) {
        unsigned bx = i % grid.x, by = i / grid.x % grid.y, bz = i / grid.x / grid.y;
        unsigned x = bx % cluster.x, y = by % cluster.y, z = bz % cluster.z;
        unsigned rank = (z * cluster.y + y) * cluster.x + x;
        unsigned id = (bz / cluster.z * (grid.y / cluster.y) + by / cluster.y) * (grid.x / cluster.x) + bx / cluster.x;
        Told want = {rank, each, rank * threads + threads - 1, each * threads, x, y, z, cluster.x, cluster.y, cluster.z, 1, id};
        REQUIRE(!memcmp(&got[i], &want, sizeof want), "block %u is told rank %u of %u, cluster %u, instead of %u of %u, %u", i,
                got[i].rank, got[i].blocks, got[i].id, rank, each, id);
    }
}

static void check_relay(unsigned cluster) {
    const int rounds = 5;
    DeviceArray<unsigned> output(1);
    unsigned* o = output;
    CHECK(cudaLaunchKernelEx(Shape(cluster, 32, cluster), relay, o, rounds));
    CHECK(cudaDeviceSynchronize());
    unsigned number = 1;
    for (int round = 0; round < rounds; round++)
        for (unsigned rank = 0; rank < cluster; rank++) number = number * 3 + rank;
    unsigned got = output.download()[0];
    REQUIRE(got == number, "the number is %u instead of %u after %d rounds", got, number, rounds);
}

static void check_exchange(unsigned cluster) {
    DeviceArray<unsigned> output(cluster * 2 * 64);
    unsigned* o = output;
    CHECK(cudaLaunchKernelEx(Shape(cluster * 2, 64, cluster), exchange, o));
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned> got = output.download();
    for (unsigned i = 0; i < got.size(); i++) {
        unsigned t = i % 64, from = (i / 64 % cluster + cluster - 1) % cluster;
        unsigned want = t < 32 ? from * 100 + t : t == 32 ? from + 7 : t < 48 ? 0 : from * 1000 + t - 32;
        REQUIRE(got[i] == want, "block %u has %u at %u instead of %u", i / 64, got[i], t, want);
    }
}

// A captured launch keeps its clusters, and a node's can be changed.
static void check_graph() {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamCreate(&stream));
    DeviceArray<unsigned> output(1);
    unsigned* o = output;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaLaunchKernelEx(Shape(4, 32, 4, 0, stream), relay, o, 2));
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphNode_t node;
    size_t nodes = 1;
    CHECK(cudaGraphGetNodes(graph, &node, &nodes));
    for (unsigned cluster : {4u, 2u}) {
        cudaLaunchAttributeValue value = {};
        if (cluster == 2) {
            value.clusterDim = {2, 1, 1};
            CHECK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
        }
        CHECK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
        REQUIRE(value.clusterDim.x == cluster, "the node's clusters have %u blocks instead of %u", value.clusterDim.x, cluster);
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        unsigned number = 1;
        for (int round = 0; round < 2; round++)
            for (unsigned rank = 0; rank < cluster; rank++) number = number * 3 + rank;
        unsigned got = output.download()[0];
        REQUIRE(got == number, "the graph's number is %u instead of %u", got, number);
        CHECK(cudaGraphExecDestroy(exec));
    }
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

// What cannot be launched, and what can be asked.
static void check_limits() {
    DeviceArray<Told> told(64);
    Told* t = told;
    EXPECT_ERROR(cudaLaunchKernelEx(Shape(6, 32, 4), ask, t), cudaErrorInvalidClusterSize);
    EXPECT_ERROR(cudaLaunchKernelEx(Shape(16, 32, 16), ask, t), cudaErrorInvalidClusterSize);
    EXPECT_ERROR(cudaLaunchKernelEx(Shape(32, 32, 32), ask, t), cudaErrorInvalidClusterSize);
    DeviceArray<unsigned> numbers(8);
    unsigned* n = numbers;
    EXPECT_ERROR(cudaLaunchKernelEx(Shape(8, 32, 2), sums, (const unsigned*)n, n, 0), cudaErrorInvalidClusterSize);
    cudaGetLastError();
    int clusters = 0, size = 0;
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, ask, Shape(4, 32, 4)));
    REQUIRE(clusters > 0, "no cluster fits");
    CHECK(cudaOccupancyMaxPotentialClusterSize(&size, ask, Shape(8, 32, 1)));
    REQUIRE(size == 8, "the largest cluster has %d blocks", size);
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, sums));
    REQUIRE(attributes.requiredClusterWidth == 4 && attributes.requiredClusterHeight == 1 && attributes.requiredClusterDepth == 1,
            "the kernel's own cluster has width %d", attributes.requiredClusterWidth);
    EXPECT_ERROR(cudaFuncSetAttribute(sums, cudaFuncAttributeRequiredClusterWidth, 2), cudaErrorInvalidValue);
    cudaGetLastError();
    // A program may ask for more than every device has.
    CHECK(cudaFuncSetAttribute(ask, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    CHECK(cudaOccupancyMaxPotentialClusterSize(&size, ask, Shape(16, 32, 1)));
    if (size >= 16) check_queries(dim3(4, 4, 2), dim3(4, 4, 1));
    // What is set of a kernel holds for launches that say nothing.
    CHECK(cudaFuncSetAttribute(relay, cudaFuncAttributeRequiredClusterWidth, 2));
    CHECK(cudaFuncSetAttribute(relay, cudaFuncAttributeRequiredClusterHeight, 1));
    CHECK(cudaFuncSetAttribute(relay, cudaFuncAttributeRequiredClusterDepth, 1));
    relay<<<2, 32>>>(n, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    REQUIRE(numbers.download()[0] == (1 * 3 + 0) * 3 + 1, "the number is %u", numbers.download()[0]);
}

int main() {
    int supported = 0;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrClusterLaunch, 0));
    if (!supported) {
        DeviceArray<Told> told(2);
        Told* t = told;
        REQUIRE(cudaLaunchKernelEx(Shape(2, 32, 2), ask, t) != cudaSuccess, "a device without clusters has launched one");
        cudaGetLastError();
        return ok("no clusters on this device, and none is launched");
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (unsigned cluster : {1u, 2u, 4u, 8u}) check_histogram(cluster, stream);
    check_sums(5);
    check_queries(dim3(8, 1, 1), dim3(4, 1, 1));
    check_queries(dim3(4, 6, 4), dim3(2, 1, 2));
    check_queries(dim3(3, 4, 2), dim3(1, 2, 2));
    for (unsigned cluster : {1u, 2u, 8u}) check_relay(cluster);
    for (unsigned cluster : {2u, 3u, 8u}) check_exchange(cluster);
    check_graph();
    check_limits();
    CHECK(cudaStreamDestroy(stream));
    return ok("clusters of up to 16 blocks");
}
