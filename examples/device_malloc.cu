// malloc and free, new and delete in kernels; a heap that is full gives null.
#define EXAMPLE "device_malloc"
#include "common/check.h"

struct Node {
    Node* next;
    int value;
};

__device__ Node* lists[128];

__global__ void build(int length) {
    Node* head = nullptr;
    for (int i = 0; i < length; i++) {
        Node* n = new Node;
        n->next = head;
        n->value = i * (int)threadIdx.x;
        head = n;
    }
    lists[threadIdx.x] = head;
}

__global__ void sum_and_free(int* sums) {
    int sum = 0;
    for (Node* n = lists[threadIdx.x]; n;) {
        Node* next = n->next;
        sum += n->value;
        delete n;
        n = next;
    }
    sums[threadIdx.x] = sum;
}

__global__ void fill(int* got, size_t piece) {
    int count = 0;
    void* last = nullptr;
    while (void* p = malloc(piece)) {
        *(void**)p = last;
        last = p;
        count++;
    }
    while (last) {
        void* before = *(void**)last;
        free(last);
        last = before;
    }
    *got = count;
}

int main() {
    const int threads = 128, length = 20;
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    DeviceArray<int> dsums(threads), dcount(1);
    build<<<1, threads>>>(length);
    sum_and_free<<<1, threads>>>(dsums);
    CHECK(cudaGetLastError());
    std::vector<int> sums = dsums.download();
    for (int t = 0; t < threads; t++) {
        int e = length * (length - 1) / 2 * t;
        REQUIRE(sums[t] == e, "list %d sums to %d instead of %d", t, sums[t], e);
    }
    for (int round = 0; round < 2; round++) {
        fill<<<1, 1>>>(dcount, 64 << 10);
        CHECK(cudaGetLastError());
        int count = dcount.download()[0];
        REQUIRE(count >= 100 && count <= 400, "round %d: %d pieces of 64 KiB fit into the heap", round, count);
    }
    return ok("%d lists", threads);
}
