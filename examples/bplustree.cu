// Queries of a B+ tree: single keys, and ranges of keys. The pattern is that of Rodinia's B+tree.
//
// Copies: for the single keys the records, the tree, where each query stands (two arrays) and the keys to the device, the
// results back; for the ranges the tree again, where each query's ends stand (four arrays), both ends, and the results' two arrays back.
// Launches: two, one for each kind of query. Each query is a block that goes down the tree from the root.
#define EXAMPLE "bplustree"
#include "common/pattern.h"

constexpr int ORDER = 32;

// An inner node's child i has keys from key[i] on; a leaf's place i is the record's number.
struct Node {
    int key[ORDER], child[ORDER], count;
};

// In every level, the thread whose key is the last that is not greater tells the others where to go.
__device__ void descend(const Node* nodes, int levels, int key, int* node, int* place) {
    for (int level = 0; level < levels; level++) {
        const Node& here = nodes[*node];
        int i = threadIdx.x;
        bool mine = i < here.count && here.key[i] <= key && (i + 1 == here.count || here.key[i + 1] > key);
        __syncthreads();
        if (mine) {
            *place = i;
            if (level + 1 < levels) *node = here.child[i];
        }
        __syncthreads();
    }
}

__global__ void find(const int* records, const Node* nodes, int levels, int* node, int* place, const int* keys, int* answers) {
    int q = blockIdx.x;
    descend(nodes, levels, keys[q], &node[q], &place[q]);
    if (threadIdx.x == 0) {
        const Node& leaf = nodes[node[q]];
        answers[q] = leaf.key[place[q]] == keys[q] ? records[leaf.child[place[q]]] : -1;
    }
}

__global__ void find_range(const Node* nodes, int levels, int* first, int* first_place, int* last, int* last_place,
                           const int* from, const int* to, int* begins, int* lengths) {
    int q = blockIdx.x;
    descend(nodes, levels, from[q], &first[q], &first_place[q]);
    descend(nodes, levels, to[q], &last[q], &last_place[q]);
    if (threadIdx.x == 0) {
        const Node &a = nodes[first[q]], &b = nodes[last[q]];
        begins[q] = a.child[first_place[q]] + (a.key[first_place[q]] < from[q]);
        lengths[q] = b.child[last_place[q]] + 1 - begins[q];
    }
}

int main(int argc, char** argv) {
    Arguments arguments(argc, argv);
    int elements = arguments.take("elements", 10'000, 1, 50'000'000), queries = arguments.take("queries", 500, 1, 1'000'000);
    arguments.end();
    Random random(29);
    // Keys 0, 3, 6, …, so that two of three queries find nothing.
    std::vector<int> records(elements);
    for (int& r : records) r = random.below(1'000'000);
    std::vector<Node> nodes;
    std::vector<std::pair<int, int>> below(elements); // key, and record or node
    for (int i = 0; i < elements; i++) below[i] = {3 * i, i};
    int levels = 0;
    do {
        std::vector<std::pair<int, int>> level;
        for (size_t at = 0; at < below.size(); at += ORDER) {
            Node node{};
            node.count = std::min<size_t>(ORDER, below.size() - at);
            for (int i = 0; i < node.count; i++) node.key[i] = below[at + i].first, node.child[i] = below[at + i].second;
            level.push_back({node.key[0], int(nodes.size())});
            nodes.push_back(node);
        }
        below = level;
        levels++;
    } while (below.size() > 1);
    std::vector<int> root(queries, int(nodes.size()) - 1), zero(queries), keys(queries), to(queries), minus(queries, -1);
    for (int q = 0; q < queries; q++) {
        keys[q] = random.below(3 * elements);
        to[q] = std::min<int64_t>(keys[q] + random.below(1000), int64_t(3) * elements - 1);
    }
    std::vector<int> answers, begins, lengths;
    {
        DeviceArray<int> drecords(records), dnode(root), dplace(zero), dkeys(keys), danswers(minus);
        DeviceArray<Node> dnodes(nodes);
        find<<<queries, ORDER>>>(drecords, dnodes, levels, dnode, dplace, dkeys, danswers);
        CHECK(cudaGetLastError());
        arguments.iterated();
        answers = danswers.download();
    }
    {
        DeviceArray<Node> dnodes(nodes);
        DeviceArray<int> first(root), first_place(zero), last(root), last_place(zero), dfrom(keys), dto(to);
        DeviceArray<int> dbegins(zero), dlengths(zero);
        find_range<<<queries, ORDER>>>(dnodes, levels, first, first_place, last, last_place, dfrom, dto, dbegins, dlengths);
        CHECK(cudaGetLastError());
        arguments.iterated();
        begins = dbegins.download();
        lengths = dlengths.download();
    }
    if (arguments.check)
        for (int q = 0; q < queries; q++) {
            int expected = keys[q] % 3 == 0 ? records[keys[q] / 3] : -1;
            int begin = (keys[q] + 2) / 3, length = to[q] / 3 + 1 - begin;
            REQUIRE(answers[q] == expected, "query %d found %d instead of %d", q, answers[q], expected);
            REQUIRE(begins[q] == begin && lengths[q] == length, "range %d is %d+%d instead of %d+%d", q, begins[q],
                    lengths[q], begin, length);
        }
    return finished(arguments, "keys and ranges found");
}
