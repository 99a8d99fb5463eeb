// Pointers inside structures: passed by value, stored in device memory, and followed there.
#define EXAMPLE "struct_pointers"
#include "common/check.h"

struct Node {
    Node* next;
    int value;
};

struct View {
    char tag;
    const double* values;
    short stride;
    struct {
        int* counters;
        unsigned char offset;
    } inner[2];
    double scale;
};

struct alignas(16) Wide {
    float4 v;
    long long big;
    unsigned char bytes[37];
};

__global__ void use(View view, Wide wide, char small, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = view.values[i * view.stride] * view.scale + wide.v.z + (double)wide.big + wide.bytes[i % 37] + small +
             view.tag;
    atomicAdd(view.inner[i % 2].counters + view.inner[i % 2].offset, 1);
}

__global__ void link(Node* nodes, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) nodes[i] = {i + 7 < n ? &nodes[i + 7] : nullptr, i};
}

__global__ void walk(const Node* const* heads, long long* sums, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    long long sum = 0;
    for (const Node* p = heads[i]; p; p = p->next) sum += p->value;
    sums[i] = sum;
}

int main() {
    const int n = 2000;
    std::vector<double> values(n * 3);
    for (size_t i = 0; i < values.size(); i++) values[i] = (double)i * 0.5;
    DeviceArray<double> dvalues(values), dout(n);
    DeviceArray<int> dcounters(8);
    dcounters.zero();
    View view = {};
    view.tag = 3;
    view.values = dvalues;
    view.stride = 3;
    view.inner[0] = {dcounters, 2};
    view.inner[1] = {dcounters + 4, 1};
    view.scale = 0.25;
    Wide wide = {};
    wide.v = make_float4(1, 2, 3, 4);
    wide.big = 1ll << 40;
    for (int i = 0; i < 37; i++) wide.bytes[i] = (unsigned char)(200 + i);
    use<<<(n + 127) / 128, 128>>>(view, wide, (char)-5, dout, n);
    CHECK(cudaGetLastError());
    std::vector<double> out = dout.download();
    for (int i = 0; i < n; i++) {
        double e = values[i * 3] * 0.25 + 3 + (double)(1ll << 40) + wide.bytes[i % 37] - 5 + 3;
        REQUIRE(out[i] == e, "element %d is %.17g instead of %.17g", i, out[i], e);
    }
    std::vector<int> counters = dcounters.download();
    REQUIRE(counters[2] == n / 2 && counters[5] == n / 2, "counters are %d and %d", counters[2], counters[5]);

    DeviceArray<Node> nodes(n);
    link<<<(n + 255) / 256, 256>>>(nodes, n);
    std::vector<const Node*> heads;
    for (int i = 0; i < 7; i++) heads.push_back(nodes + i);
    DeviceArray<const Node*> dheads(heads);
    DeviceArray<long long> dsums(7);
    walk<<<1, 32>>>(dheads, dsums, 7);
    CHECK(cudaGetLastError());
    std::vector<long long> sums = dsums.download();
    for (int i = 0; i < 7; i++) {
        long long e = 0;
        for (int k = i; k < n; k += 7) e += k;
        REQUIRE(sums[i] == e, "list %d sums to %lld instead of %lld", i, sums[i], e);
    }
    return ok("%d elements, 7 lists", n);
}
