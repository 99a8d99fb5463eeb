// The order of copies, kernels and host functions over the same pinned, mapped, registered and managed memory.
#define EXAMPLE "memory_order"
#include "common/check.h"

#include <thread>

const int N = 5000, BYTES = N * sizeof(int);

__managed__ int variable[1000] = {7, 8, 9};

__global__ void set(int* out, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value + i;
}

__global__ void add(int* out, const int* in, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + value;
}

// Keeps a stream busy for a while without changing anything.
__global__ void dawdle(int* data, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = data[i];
    for (int k = 0; k < rounds; k++) x = x * 1664525 + 1013904223;
    if (x == 12345) data[i] = -1 - data[i];
}

static void is(const char* what, const int* data, int value) {
    for (int i = 0; i < N; i++)
        REQUIRE(data[i] == value + i, "%s: element %d is %d, not %d", what, i, data[i], value + i);
}

static void finish(cudaStream_t stream) { CHECK(cudaStreamSynchronize(stream)); }

static void to_device(int* dst, const int* src, cudaStream_t stream) {
    CHECK(cudaMemcpyAsync(dst, src, BYTES, cudaMemcpyHostToDevice, stream));
}

static void to_host(int* dst, const int* src, cudaStream_t stream) {
    CHECK(cudaMemcpyAsync(dst, src, BYTES, cudaMemcpyDeviceToHost, stream));
}

#define SET(stream, out, value) set<<<20, 256, 0, stream>>>(out, N, value)
#define ADD(stream, out, in, value) add<<<20, 256, 0, stream>>>(out, in, N, value)

static void pinned(int* a, int* b, cudaStream_t s, cudaStream_t t) {
    int *p, *q, on_stack;
    cudaEvent_t event;
    CHECK(cudaMallocHost(&p, BYTES));
    CHECK(cudaHostAlloc(&q, BYTES, cudaHostAllocMapped));
    CHECK(cudaEventCreate(&event));

    SET(0, q, 100);
    CHECK(cudaMemcpy(&on_stack, a, sizeof on_stack, cudaMemcpyDeviceToHost));
    is("mapped, after a synchronous copy", q, 100);

    SET(s, a, 5);
    dawdle<<<20, 256, 0, s>>>(a, N, 20000);
    to_host(p, a, s);
    to_device(b, p, s);
    ADD(s, b, b, 1);
    to_host(q, b, s);
    finish(s);
    is("there", p, 5);
    is("there and back", q, 6);

    memset(p, 0, BYTES);
    SET(s, a, 50);
    to_host(p, a, s);
    CHECK(cudaEventRecord(event, s));
    CHECK(cudaStreamWaitEvent(t, event, 0));
    to_device(b, p, t);
    to_host(q, b, t);
    while (cudaStreamQuery(t) == cudaErrorNotReady) {}
    is("from one stream to another", q, 50);

    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < N; i++) p[i] = round * 10 + i;
        ADD(s, q, p, 3);
        CHECK(cudaEventRecord(event, s));
        while (cudaEventQuery(event) == cudaErrorNotReady) {}
        is("host and kernel take turns", q, round * 10 + 3);
    }

    SET(s, p, 900);
    to_device(a, p, s);
    to_host(q, a, s);
    finish(s);
    is("a kernel's bytes, copied", q, 900);

    SET(s, a, 70);
    to_host(p, a, s);
    ADD(s, b, p, 1);
    to_host(q, b, s);
    finish(s);
    is("copied bytes, read by a kernel", q, 71);

    CHECK(cudaLaunchHostFunc(s, [](void* at) { for (int i = 0; i < N; i++) ((int*)at)[i] = 333 + i; }, p));
    to_device(a, p, s);
    ADD(s, b, p, 1);
    finish(s);
    to_host(q, a, s);
    finish(s);
    is("a host function's bytes, copied", q, 333);
    to_host(q, b, s);
    finish(s);
    is("a host function's bytes, read by a kernel", q, 334);

    SET(s, q, 61);
    CHECK(cudaLaunchHostFunc(s, [](void* at) { is("a kernel's bytes in a host function", (int*)at, 61); }, q));
    finish(s);
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFreeHost(p));
    CHECK(cudaFreeHost(q));
}

static void registered(int* a, int* b, cudaStream_t s) {
    std::vector<int> memory(N + 3), result(N);
    int *host = memory.data() + 3, *device;
    CHECK(cudaHostRegister(host, BYTES, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&device, host, 0));
    for (int i = 0; i < N; i++) host[i] = i + 1;
    ADD(0, device, device, 10);
    CHECK(cudaDeviceSynchronize());
    is("registered", host, 11);

    SET(s, device, 400);
    to_device(a, host, s);
    finish(s);
    CHECK(cudaMemcpy(result.data(), a, BYTES, cudaMemcpyDeviceToHost));
    is("registered, a kernel's bytes, copied", result.data(), 400);
    is("registered, a kernel's bytes", host, 400);

    SET(s, device, 1);
    SET(s, a, 77);
    to_host(host, a, s);
    ADD(s, b, device, 1);
    finish(s);
    is("registered, copied over a kernel's bytes", host, 77);
    CHECK(cudaMemcpy(result.data(), b, BYTES, cudaMemcpyDeviceToHost));
    is("registered, copied bytes, read by a kernel", result.data(), 78);
    CHECK(cudaHostUnregister(host));
}

static void managed(int* a) {
    int *p, *q;
    std::vector<int> host(N);
    CHECK(cudaMallocManaged(&p, BYTES));
    CHECK(cudaMallocManaged(&q, BYTES));
    for (int i = 0; i < N; i++) p[i] = i;
    ADD(0, q, p, 2);
    ADD(0, p, q, 2);
    ADD(0, q, p, 2);
    CHECK(cudaDeviceSynchronize());
    is("managed, first", p, 4);
    is("managed, second", q, 6);
    CHECK(cudaMemcpy(host.data(), q, BYTES, cudaMemcpyDefault));
    is("managed to host", host.data(), 6);
    CHECK(cudaMemcpy(p, host.data(), BYTES, cudaMemcpyHostToDevice));
    is("host to managed", p, 6);
    ADD(0, a, p, 1);
    CHECK(cudaMemcpy(q, a, BYTES, cudaMemcpyDeviceToDevice));
    CHECK(cudaDeviceSynchronize());
    is("device to managed", q, 7);
    SET(0, p, 5);
    CHECK(cudaMemcpy(q, p, BYTES, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    is("managed to managed", q, 5);
    CHECK(cudaMemset(p, 0, BYTES));
    CHECK(cudaDeviceSynchronize());
    p[1] = 5;
    ADD(0, q, p, 0);
    CHECK(cudaDeviceSynchronize());
    REQUIRE(q[0] == 0 && q[1] == 5 && q[N - 1] == 0, "managed, filled: %d %d %d", q[0], q[1], q[N - 1]);
    CHECK(cudaFree(p));
    CHECK(cudaFree(q));

    variable[3] = 4;
    add<<<4, 250>>>(variable, variable, 1000, 1);
    CHECK(cudaDeviceSynchronize());
    REQUIRE(variable[0] == 8 && variable[3] == 5 && variable[999] == 1, "the variable starts %d", variable[0]);
}

// Copies so large that a server on the same machine does not send them.
static void large(cudaStream_t t) {
    const int n = 3 << 18;
    int *p, *q;
    std::vector<int> host(n);
    DeviceArray<int> a(n), b(n);
    CHECK(cudaHostAlloc(&p, n * sizeof(int), cudaHostAllocMapped));
    CHECK(cudaHostAlloc(&q, n * sizeof(int), cudaHostAllocMapped));
    auto all = [&](const char* what, const int* data, int value) {
        for (int i = 0; i < n; i++)
            REQUIRE(data[i] == value + i, "%s: element %d is %d, not %d", what, i, data[i], value + i);
    };
    const int blocks = n / 256;
    for (int i = 0; i < n; i++) p[i] = i;
    add<<<blocks, 256, 0, t>>>(q, p, n, 1);
    finish(t);
    all("large", q, 1);

    set<<<blocks, 256>>>(a.data, n, 40);
    CHECK(cudaMemcpy(p, a, n * sizeof(int), cudaMemcpyDeviceToHost));
    all("large, copied to pinned memory", p, 40);
    add<<<blocks, 256, 0, t>>>(q, p, n, 2);
    finish(t);
    all("large, copied bytes, read by a kernel", q, 42);

    set<<<blocks, 256, 0, t>>>(p, n, 900);
    finish(t);
    CHECK(cudaMemcpyAsync(b, p, n * sizeof(int), cudaMemcpyHostToDevice, t));
    CHECK(cudaMemcpyAsync(host.data(), b, n * sizeof(int), cudaMemcpyDeviceToHost, t));
    finish(t);
    all("large, a kernel's bytes, copied", host.data(), 900);
    set<<<blocks, 256, 0, t>>>(p, n, 901);
    CHECK(cudaMemcpyAsync(b, p, n * sizeof(int), cudaMemcpyHostToDevice, t));
    CHECK(cudaMemcpyAsync(q, b, n * sizeof(int), cudaMemcpyDeviceToHost, t));
    finish(t);
    all("large, a kernel's bytes, copied behind it", q, 901);
    CHECK(cudaFreeHost(p));
    CHECK(cudaFreeHost(q));
}

// Memory that is freed while kernels still use it is not given to anybody else.
static void reuse(cudaStream_t s) {
    int* result;
    CHECK(cudaMallocHost(&result, BYTES));
    for (int round = 0; round < 50; round++) {
        int *used, *other;
        CHECK(cudaMalloc(&used, BYTES));
        SET(s, used, round);
        to_host(result, used, s);
        CHECK(cudaFree(used));
        CHECK(cudaMalloc(&other, BYTES));
        CHECK(cudaMemset(other, 255, BYTES));
        finish(s);
        is("freed while in use", result, round);
        CHECK(cudaFree(other));
    }
    CHECK(cudaFreeHost(result));
}

static void thread(int which) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int round = 0; round < 30; round++) {
        int n = (which * 37 + round * 101) % 4000 + 1, *device, *host;
        CHECK(cudaMalloc(&device, n * sizeof(int)));
        CHECK(cudaMallocHost(&host, n * sizeof(int)));
        set<<<20, 256, 0, stream>>>(device, n, which);
        CHECK(cudaMemcpyAsync(host, device, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
        finish(stream);
        for (int i = 0; i < n; i++)
            REQUIRE(host[i] == which + i, "thread %d, round %d: element %d is %d", which, round, i, host[i]);
        CHECK(cudaFree(device));
        CHECK(cudaFreeHost(host));
    }
    CHECK(cudaStreamDestroy(stream));
}

int main() {
    DeviceArray<int> a(N), b(N);
    cudaStream_t s, t;
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    pinned(a, b, s, t);
    registered(a, b, s);
    managed(a);
    large(t);
    reuse(s);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) threads.emplace_back(thread, i);
    for (auto& each : threads) each.join();
    CHECK(cudaStreamDestroy(s));
    CHECK(cudaStreamDestroy(t));
    return ok("order kept in four kinds of memory");
}
