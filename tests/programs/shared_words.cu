// Words of memory that streams, running kernels and threads of the host hand to each other. With `one`, pinned and managed memory
// has to be one memory for both sides; with `two`, each side has a copy of its own, and what cannot be done with that is refused. With
// `steps N`, host and device change a page of managed memory in turn, for counting what that costs.
#define EXAMPLE "shared_words"
#include "common/check.h"
#include <atomic>
#include <cuda.h>
#include <thread>

static const int rounds = 1000;

// Waits for each odd number, and adds one.
__global__ void answer(unsigned* word, int n) {
    for (int i = 0; i < n; i++) {
        while (*(volatile unsigned*)word != 2u * i + 1) {}
        atomicAdd_system(word, 1u);
    }
}

// Waits for a flag that the host sets, and says what it has found beside it.
__global__ void wait_for_flag(volatile unsigned* flag, volatile unsigned* data, unsigned* out) {
    while (!*flag) {}
    __threadfence_system();
    *out = *data;
}

__global__ void count(unsigned* word) { atomicAdd_system(word, 1u); }

static void* driver(const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 13000
    CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
#else
    CHECK(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#endif
    REQUIRE(found != nullptr, "%s was not found: %d", name, int(result));
    return found;
}

#define DRIVER(name) static auto name##_found = (decltype(&name))driver(#name)
#define CU(call)                                                                  \
    do {                                                                          \
        CUresult result_ = (call);                                                \
        REQUIRE(result_ == CUDA_SUCCESS, "%s: driver error %d", #call, (int)result_); \
    } while (0)

static int attribute(cudaDeviceAttr which) {
    int value = -1;
    CHECK(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

static int driver_attribute(CUdevice_attribute which) {
    DRIVER(cuDeviceGetAttribute);
    int value = -1;
    CU(cuDeviceGetAttribute_found(&value, which, 0));
    return value;
}

static std::atomic<unsigned>* atomic_at(unsigned* word) { return reinterpret_cast<std::atomic<unsigned>*>(word); }

// A counter goes back and forth between a running kernel and this thread.
static void back_and_forth(unsigned* word) {
    answer<<<1, 1>>>(word, rounds);
    CHECK(cudaGetLastError());
    for (int i = 0; i < rounds; i++) {
        unsigned before = atomic_at(word)->fetch_add(1);
        REQUIRE(before == 2u * i, "round %d: the counter is %u", i, before);
        while (atomic_at(word)->load() != 2u * i + 2) std::this_thread::yield();
    }
    CHECK(cudaDeviceSynchronize());
    REQUIRE(*word == 2u * rounds, "the counter is %u", *word);
}

static void set_flag(unsigned* words) {
    DeviceArray<unsigned> out(1);
    wait_for_flag<<<1, 1>>>(words, words + 1, out);
    CHECK(cudaGetLastError());
    REQUIRE(cudaStreamQuery(0) == cudaErrorNotReady, "the kernel did not wait");
    words[1] = 77;
    atomic_at(words)->store(1);
    REQUIRE(out.download()[0] == 77, "the kernel saw %u", out.download()[0]);
}

// Atomic operations of many threads of both sides.
static void count_together(unsigned* word) {
    count<<<100, 100>>>(word);
    std::thread other([&] { for (int i = 0; i < 5000; i++) atomic_at(word)->fetch_add(1); });
    for (int i = 0; i < 5000; i++) atomic_at(word)->fetch_add(1);
    other.join();
    CHECK(cudaDeviceSynchronize());
    REQUIRE(*word == 20000, "counted %u", *word);
}

// What is freed and allocated again is zero, and each side's own.
static void again_and_again() {
    for (int i = 0; i < 50; i++) {
        unsigned *pinned, *managed;
        CHECK(cudaMallocHost(&pinned, 8192));
        CHECK(cudaMallocManaged(&managed, 8192));
        REQUIRE(pinned[5] == 0 && managed[6] == 0, "round %d: old bytes: %u, %u", i, pinned[5], managed[6]);
        pinned[5] = managed[6] = 1 + i;
        count<<<1, 32>>>(pinned + 5);
        CHECK(cudaMemcpyAsync(managed, pinned, 4096, cudaMemcpyDefault, 0));
        count<<<1, 32>>>(managed + 5);
        CHECK(cudaDeviceSynchronize());
        REQUIRE(pinned[5] == 33u + i && managed[5] == 65u + i, "round %d: %u, %u", i, pinned[5], managed[5]);
        CHECK(cudaFreeHost(pinned));
        CHECK(cudaFree(managed));
    }
}

// Streams wait for words of device memory and write some, whatever else is shared.
static void device_words() {
    DRIVER(cuStreamWaitValue32);
    DRIVER(cuStreamWriteValue32);
    DRIVER(cuStreamWaitValue64);
    DRIVER(cuStreamWriteValue64);
    DRIVER(cuStreamBatchMemOp);
    DeviceArray<unsigned> words(64);
    CHECK(cudaMemset(words, 0, 256));
    CUdeviceptr at = (CUdeviceptr)(unsigned*)words;
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CU(cuStreamWaitValue32_found(first, at, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuStreamWriteValue64_found(first, at + 8, 1ull << 40, 0));
    CU(cuStreamWaitValue64_found(second, at + 8, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
    count<<<1, 1, 0, second>>>(words + 4);
    CHECK(cudaGetLastError());
    REQUIRE(cudaStreamQuery(first) == cudaErrorNotReady, "nothing was waited for");
    REQUIRE(cudaStreamQuery(second) == cudaErrorNotReady, "the second stream did not wait");
    // More calls, and more bytes, than are in flight at a time: the stream waits for what comes after them.
    const size_t bytes = 16 << 20;
    char* much;
    CHECK(cudaMallocHost(&much, bytes));
    memset(much, 1, bytes);
    DeviceArray<char> to(bytes);
    for (int i = 0; i < 8; i++) CHECK(cudaMemcpyAsync(to, much, bytes, cudaMemcpyHostToDevice, i % 2 ? first : second));
    for (int i = 0; i < 20000; i++) count<<<1, 1, 0, second>>>(words + 5);
    CUstreamBatchMemOpParams ops[2] = {};
    ops[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[0].writeValue.address = at + 24;
    ops[0].writeValue.value = 9;
    ops[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[1].writeValue.address = at;
    ops[1].writeValue.value = 1;
    cudaStream_t third;
    CHECK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
    CU(cuStreamBatchMemOp_found(third, 2, ops, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeHost(much));
    auto got = words.download();
    REQUIRE(got[0] == 1 && got[3] == 256 && got[4] == 1 && got[5] == 20000 && got[6] == 9, "%u %u %u %u %u", got[0], got[3],
            got[4], got[5], got[6]);
    // A graph, captured.
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    CU(cuStreamWriteValue32_found(first, at + 32, 5, 0));
    CU(cuStreamWaitValue32_found(first, at + 32, 5, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cudaStreamEndCapture(first, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, first));
    CHECK(cudaDeviceSynchronize());
    REQUIRE(words.download()[8] == 5, "the graph wrote %u", words.download()[8]);
    // What is no memory is refused by the call.
    CUresult bad = cuStreamWaitValue32_found(first, at + (1 << 30), 1, 0);
    REQUIRE(bad == CUDA_ERROR_INVALID_VALUE, "a wait for nothing gave %d", (int)bad);
    bad = cuStreamWriteValue32_found(first, at + 2, 1, 0);
    REQUIRE(bad == CUDA_ERROR_INVALID_VALUE, "a word across words gave %d", (int)bad);
}

// Streams and words of pinned memory.
static void host_words(unsigned* words, bool one) {
    DRIVER(cuStreamWaitValue32);
    DRIVER(cuStreamWriteValue32);
    CUdeviceptr at = (CUdeviceptr)words;
    CUresult waits = cuStreamWaitValue32_found(0, at, 3, CU_STREAM_WAIT_VALUE_EQ);
    if (!one) {
        REQUIRE(waits == CUDA_ERROR_NOT_SUPPORTED, "waiting for a word of a copy gave %d", (int)waits);
        return;
    }
    REQUIRE(waits == CUDA_SUCCESS, "waiting for a word gave %d", (int)waits);
    CU(cuStreamWriteValue32_found(0, at + 4, 4, 0));
    REQUIRE(cudaStreamQuery(0) == cudaErrorNotReady && words[1] == 0, "the stream did not wait");
    atomic_at(words)->store(3);
    // Nobody waits by CUDA's calls.
    while (atomic_at(words + 1)->load() != 4) std::this_thread::yield();
    CHECK(cudaDeviceSynchronize());
}

static int take_turns(int steps) {
    unsigned* words;
    CHECK(cudaMallocManaged(&words, 4096));
    for (int i = 0; i < steps; i++) {
        words[0]++;
        count<<<1, 1>>>(words);
        CHECK(cudaDeviceSynchronize());
        REQUIRE(words[0] == 2u * i + 2, "step %d: %u", i, words[0]);
    }
    CHECK(cudaFree(words));
    return ok("%d steps", steps);
}

int main(int argc, char** argv) {
    if (argc > 2 && strcmp(argv[1], "steps") == 0) return take_turns(atoi(argv[2]));
    bool one = argc > 1 && strcmp(argv[1], "one") == 0;
    REQUIRE(attribute(cudaDevAttrConcurrentManagedAccess) == one && attribute(cudaDevAttrHostNativeAtomicSupported) == one,
            "memory that is said to be one: %d, %d", attribute(cudaDevAttrConcurrentManagedAccess),
            attribute(cudaDevAttrHostNativeAtomicSupported));
    REQUIRE(driver_attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 1 &&
                driver_attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR) == 1,
            "streams cannot wait for words");
    device_words();
    unsigned *pinned, *managed;
    CHECK(cudaMallocHost(&pinned, 4096));
    CHECK(cudaMallocManaged(&managed, 4096));
    memset(pinned, 0, 4096);
    memset(managed, 0, 4096);
    if (one) {
        back_and_forth(pinned);
        back_and_forth(managed);
        set_flag(pinned + 16);
        set_flag(managed + 16);
        count_together(pinned + 32);
        count_together(managed + 32);
    }
    host_words(pinned + 64, one);
    again_and_again();
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(managed));
    return ok("%s", one ? "one memory" : "two copies");
}
