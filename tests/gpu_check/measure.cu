// Measures what forwarding changes, and prints one JSON object per result: {"what": …, "unit": …, "value": …}. The
// arguments choose what is measured and how much of it:
//     measure launches COUNT | latency COUNT | copies FROM TO | small COUNT
#define EXAMPLE "measure"
#include "common/check.h"

#include <time.h>

__global__ void nothing() {}
__global__ void step(float* data, int n, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * factor + 1.0f;
}

static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void result(const char* what, const char* unit, double value) {
    printf("{\"what\": \"%s\", \"unit\": \"%s\", \"value\": %.6g}\n", what, unit, value);
    fflush(stdout);
}

static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// How long a launch keeps the program, and how long it takes until the device has done it.
static void launches(int count) {
    for (int i = 0; i < 100; i++) nothing<<<1, 32>>>();
    CHECK(cudaDeviceSynchronize());
    double begin = now();
    for (int i = 0; i < count; i++) nothing<<<1, 32>>>();
    double posted = now();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    double done = now();
    result("a launch, to the program", "us", (posted - begin) / count * 1e6);
    result("a launch, until it is done", "us", (done - begin) / count * 1e6);
    result("launches per second", "1/s", count / (done - begin));
}

template <class Call>
static void latency_of(const char* what, int count, Call call) {
    for (int i = 0; i < 10; i++) call();
    std::vector<double> times;
    for (int i = 0; i < count; i++) {
        double begin = now();
        call();
        times.push_back(now() - begin);
    }
    result(what, "us", median(times) * 1e6);
}

static void latency(int count) {
    DeviceArray<int> data(1024);
    size_t free_bytes, total;
    int host[1024];
    CHECK(cudaDeviceSynchronize());
    latency_of("cudaMemGetInfo", count, [&] { CHECK(cudaMemGetInfo(&free_bytes, &total)); });
    latency_of("a launch and a synchronise", count, [&] {
        nothing<<<1, 32>>>();
        CHECK(cudaDeviceSynchronize());
    });
    latency_of("4 bytes to the host", count,
               [&] { CHECK(cudaMemcpy(host, data, 4, cudaMemcpyDeviceToHost)); });
    latency_of("4 bytes to the device", count,
               [&] { CHECK(cudaMemcpy(data, host, 4, cudaMemcpyHostToDevice)); });
    latency_of("a synchronise with nothing to do", count, [&] { CHECK(cudaDeviceSynchronize()); });
    latency_of("cudaMalloc and cudaFree of 1 MiB", count, [&] {
        void* memory;
        CHECK(cudaMalloc(&memory, 1 << 20));
        CHECK(cudaFree(memory));
    });
}

// Copies of one size, repeated until a hundredth of a second or so has passed; the middle of five rates.
static void copies_of(size_t size, char* device, char* host, const char* kind) {
    for (bool up : {true, false}) {
        auto copy = [&] {
            CHECK(up ? cudaMemcpy(device, host, size, cudaMemcpyHostToDevice)
                     : cudaMemcpy(host, device, size, cudaMemcpyDeviceToHost));
        };
        copy();
        CHECK(cudaDeviceSynchronize());
        double begin = now();
        copy();
        CHECK(cudaDeviceSynchronize());
        int repeats = (int)std::min(1000.0, std::max(1.0, 0.01 / (now() - begin)));
        std::vector<double> rates;
        for (int round = 0; round < 5; round++) {
            begin = now();
            for (int i = 0; i < repeats; i++) copy();
            // A copy to the device may still be under way when the call returns.
            CHECK(cudaDeviceSynchronize());
            rates.push_back((double)size * repeats / (now() - begin) / 1e9);
        }
        char what[96];
        snprintf(what, sizeof what, "%zu KiB %s, %s", size >> 10, up ? "to the device" : "to the host", kind);
        result(what, "GB/s", median(rates));
    }
}

static void copies(size_t from, size_t to) {
    char* device;
    CHECK(cudaMalloc(&device, to));
    char* pageable = (char*)malloc(to);
    REQUIRE(pageable, "no memory");
    memset(pageable, 1, to);
    for (size_t size = from; size <= to; size *= 4) copies_of(size, device, pageable, "pageable");
    free(pageable);
    char* pinned;
    CHECK(cudaMallocHost(&pinned, to));
    memset(pinned, 2, to);
    for (size_t size = from; size <= to; size *= 4) copies_of(size, device, pinned, "pinned");
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
}

// A solver's inner loop: kernels that depend on each other, and now and then a look at the result.
static void small(int count) {
    const int n = 4096;
    DeviceArray<float> data(n);
    data.zero();
    step<<<n / 256, 256>>>(data, n, 0.5f);
    CHECK(cudaDeviceSynchronize());
    float value = 0;
    double begin = now();
    for (int i = 1; i <= count; i++) {
        step<<<n / 256, 256>>>(data, n, 0.5f);
        if (i % 100 == 0) CHECK(cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost));
    }
    CHECK(cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost));
    double took = now() - begin;
    REQUIRE(fabsf(value - 2.0f) < 1e-3f, "the result is %g", value);
    result("a small kernel of a chain", "us", took / count * 1e6);
    result("the whole chain", "s", took);
}

int main(int argc, char** argv) {
    REQUIRE(argc >= 3, "say what to measure, and how much");
    size_t amount = strtoull(argv[2], nullptr, 0);
    if (!strcmp(argv[1], "launches"))
        launches((int)amount);
    else if (!strcmp(argv[1], "latency"))
        latency((int)amount);
    else if (!strcmp(argv[1], "copies"))
        copies(amount, argc > 3 ? strtoull(argv[3], nullptr, 0) : amount);
    else if (!strcmp(argv[1], "small"))
        small((int)amount);
    else
        fail("cannot measure %s", argv[1]);
    return 0;
}
