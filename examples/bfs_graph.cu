// Breadth-first search over a graph with a frontier queue that atomics fill and a flag read each level.
#define EXAMPLE "bfs_graph"
#include "common/check.h"

#include <queue>

__global__ void expand(const int* offsets, const int* edges, int* level, const int* frontier, int count, int* next,
                       int* next_count, int depth) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int node = frontier[i];
    for (int e = offsets[node]; e < offsets[node + 1]; e++)
        if (atomicCAS(&level[edges[e]], -1, depth) == -1) next[atomicAdd(next_count, 1)] = edges[e];
}

int main() {
    const int nodes = 30000;
    Random random(9);
    std::vector<int> offsets(nodes + 1), edges;
    for (int v = 0; v < nodes; v++) {
        offsets[v] = (int)edges.size();
        // A thin graph: some deep chains, some unreachable nodes, a few hubs.
        int degree = random.below(100) == 0 ? 40 : (int)random.below(4);
        for (int k = 0; k < degree; k++) {
            int span = 1 + (int)random.below(random.below(5) == 0 ? nodes : 50);
            edges.push_back((v + span) % nodes);
        }
    }
    offsets[nodes] = (int)edges.size();
    std::vector<int> expected(nodes, -1);
    std::queue<int> queue;
    expected[0] = 0;
    queue.push(0);
    while (!queue.empty()) {
        int v = queue.front();
        queue.pop();
        for (int e = offsets[v]; e < offsets[v + 1]; e++)
            if (expected[edges[e]] < 0) {
                expected[edges[e]] = expected[v] + 1;
                queue.push(edges[e]);
            }
    }
    DeviceArray<int> doffsets(offsets), dedges(edges), a(nodes), b(nodes), dcount(1);
    std::vector<int> start(nodes, -1);
    start[0] = 0;
    DeviceArray<int> dlevel(start);
    int count = 1, depth = 0, reached = 1;
    a.upload({0});
    int *frontier = a, *next = b;
    while (count > 0) {
        depth++;
        CHECK(cudaMemset(dcount, 0, sizeof(int)));
        expand<<<(count + 127) / 128, 128>>>(doffsets, dedges, dlevel, frontier, count, next, dcount, depth);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(&count, dcount, sizeof(int), cudaMemcpyDeviceToHost));
        reached += count;
        std::swap(frontier, next);
    }
    std::vector<int> level = dlevel.download();
    for (int v = 0; v < nodes; v++)
        REQUIRE(level[v] == expected[v], "node %d is at level %d instead of %d", v, level[v], expected[v]);
    return ok("%d of %d nodes reached in %d levels", reached, nodes, depth);
}
