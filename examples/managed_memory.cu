// Managed memory: cudaMallocManaged and __managed__ variables, touched by host and device in turns.
#define EXAMPLE "managed_memory"
#include "common/check.h"

__managed__ int total = 5;
__managed__ int history[16];

struct Item {
    Item* next;
    int value;
};

__global__ void add(const int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&total, data[i]);
}

__global__ void raise(int* data, int n, int by, int round) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += by;
    if (i == 0) history[round] = total;
}

__global__ void walk(const Item* list, int* sum) {
    for (; list; list = list->next) *sum += list->value;
}

int main() {
    const int n = 30000, rounds = 5;
    int* data;
    CHECK(cudaMallocManaged(&data, n * sizeof(int)));
    REQUIRE(total == 5, "the variable starts at %d", total);
    for (int i = 0; i < n; i++) data[i] = i % 10;
    int expected = 5;
    for (int r = 0; r < rounds; r++) {
        add<<<(n + 255) / 256, 256>>>(data, n);
        raise<<<(n + 255) / 256, 256>>>(data, n, r, r);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < n; i++) expected += i % 10 + r * (r - 1) / 2;
        REQUIRE(total == expected, "round %d: the total is %d instead of %d", r, total, expected);
        REQUIRE(history[r] == total, "round %d: the history holds %d", r, history[r]);
        total += 1000;
        expected += 1000;
    }
    for (int i = 0; i < n; i++) REQUIRE(data[i] == i % 10 + 10, "element %d is %d", i, data[i]);

    // A list built by the host, followed by the device.
    Item* head = nullptr;
    int* sum;
    CHECK(cudaMallocManaged(&sum, sizeof(int)));
    *sum = 0;
    int list_sum = 0;
    for (int i = 0; i < 50; i++) {
        Item* item;
        CHECK(cudaMallocManaged(&item, sizeof(Item)));
        *item = {head, i * i};
        head = item;
        list_sum += i * i;
    }
    walk<<<1, 1>>>(head, sum);
    CHECK(cudaDeviceSynchronize());
    REQUIRE(*sum == list_sum, "the list sums to %d instead of %d", *sum, list_sum);
    while (head) {
        Item* next = head->next;
        CHECK(cudaFree(head));
        head = next;
    }

    // Copies and sets by the runtime go to managed memory too.
    CHECK(cudaMemset(data, 0, n * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) REQUIRE(data[i] == 0, "element %d is %d after cudaMemset", i, data[i]);
    std::vector<int> own(n, 9);
    CHECK(cudaMemcpy(data, own.data(), n * sizeof(int), cudaMemcpyDefault));
    raise<<<(n + 255) / 256, 256>>>(data, n, 1, 9);
    CHECK(cudaMemcpy(own.data(), data, n * sizeof(int), cudaMemcpyDefault));
    for (int i = 0; i < n; i++) REQUIRE(own[i] == 10, "element %d is %d after the copies", i, own[i]);
#if CUDART_VERSION >= 13000
    // What was said of a range is told again where it holds of all of it.
    const size_t page = 4096;
    cudaMemLocation near = {cudaMemLocationTypeDevice, 0}, host = {cudaMemLocationTypeHost, 0};
    auto number = [&](cudaMemRangeAttribute attribute, void* from, size_t bytes) {
        int value = -7;
        CHECK(cudaMemRangeGetAttribute(&value, sizeof(value), attribute, from, bytes));
        return value;
    };
    REQUIRE(number(cudaMemRangeAttributePreferredLocation, data, 4 * page) == cudaInvalidDeviceId, "a location is preferred");
    REQUIRE(number(cudaMemRangeAttributeLastPrefetchLocation, data, 4 * page) == cudaInvalidDeviceId, "it was prefetched");
    CHECK(cudaMemAdvise(data, 4 * page, cudaMemAdviseSetPreferredLocation, near));
    CHECK(cudaMemAdvise((char*)data + page, page, cudaMemAdviseSetReadMostly, near));
    CHECK(cudaMemAdvise(data, 2 * page, cudaMemAdviseSetAccessedBy, host));
    CHECK(cudaMemAdvise(data, page, cudaMemAdviseSetAccessedBy, near));
    CHECK(cudaMemPrefetchAsync(data, 2 * page, near, 0, 0));
    CHECK(cudaMemPrefetchAsync((char*)data + page, page, host, 0, 0));
    REQUIRE(number(cudaMemRangeAttributePreferredLocation, data, 4 * page) == 0, "the device is not preferred");
    REQUIRE(number(cudaMemRangeAttributePreferredLocation, data, 4 * page + 1) == cudaInvalidDeviceId, "a page more");
    REQUIRE(number(cudaMemRangeAttributeReadMostly, (char*)data + page, page) == 1, "the page is not mostly read");
    REQUIRE(number(cudaMemRangeAttributeReadMostly, data, 2 * page) == 0, "both pages are mostly read");
    REQUIRE(number(cudaMemRangeAttributeLastPrefetchLocation, (char*)data + page, 1) == cudaCpuDeviceId, "the page is not on the host");
    int kind = 0, everyone[3];
    void* answers[] = {&kind, everyone};
    size_t room[] = {sizeof(kind), sizeof(everyone)};
    cudaMemRangeAttribute asked[] = {cudaMemRangeAttributePreferredLocationType, cudaMemRangeAttributeAccessedBy};
    CHECK(cudaMemRangeGetAttributes(answers, room, asked, 2, data, page));
    REQUIRE(kind == cudaMemLocationTypeDevice, "the kind of the preferred location is %d", kind);
    REQUIRE(everyone[0] + everyone[1] == -1 && everyone[0] * everyone[1] == 0 && everyone[2] == cudaInvalidDeviceId,
            "accessed by %d, %d, %d", everyone[0], everyone[1], everyone[2]);
    CHECK(cudaMemAdvise(data, 4 * page, cudaMemAdviseUnsetPreferredLocation, near));
    REQUIRE(number(cudaMemRangeAttributePreferredLocation, data, page) == cudaInvalidDeviceId, "the preference stays");
    EXPECT_ERROR(cudaMemRangeGetAttribute(&kind, 2, cudaMemRangeAttributeReadMostly, data, page), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaMemRangeGetAttribute(&kind, 4, cudaMemRangeAttributeReadMostly, data, 1 << 30), cudaErrorInvalidValue);
    cudaGetLastError();

    // Hints about several ranges at once; what is discarded is written again.
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    void* ranges[] = {data, sum};
    size_t sizes[] = {n * sizeof(int), sizeof(int)}, firsts[] = {0, 1};
    cudaMemLocation places[] = {{cudaMemLocationTypeDevice, 0}, {cudaMemLocationTypeHost, 0}};
    CHECK(cudaMemPrefetchBatchAsync(ranges, sizes, 2, places, firsts, 2, 0, stream));
    REQUIRE(number(cudaMemRangeAttributeLastPrefetchLocation, data, n * sizeof(int)) == 0, "the batch was not heeded");
    REQUIRE(number(cudaMemRangeAttributeLastPrefetchLocationType, sum, 4) == cudaMemLocationTypeHost, "nor its second member");
    CHECK(cudaMemDiscardBatchAsync(ranges, sizes, 1, 0, stream));
    CHECK(cudaMemDiscardAndPrefetchBatchAsync(ranges, sizes, 1, places, firsts, 1, 0, stream));
    CHECK(cudaMemsetAsync(data, 0, n * sizeof(int), stream));
    CHECK(cudaStreamSynchronize(stream));
    REQUIRE(data[0] == 0 && data[n - 1] == 0 && *sum == list_sum, "hints have changed what is there");
    EXPECT_ERROR(cudaMemPrefetchBatchAsync(ranges, sizes, 2, places, firsts, 0, 0, stream), cudaErrorInvalidValue);
    cudaGetLastError();
    CHECK(cudaStreamDestroy(stream));
#endif
    CHECK(cudaFree(data));
    CHECK(cudaFree(sum));
    return ok("%d elements, %d rounds", n, rounds);
}
