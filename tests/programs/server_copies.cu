// Copies between devices that are on different servers, checked where they are: little passes through the program unless the
// copies do. `server_copies check` does all kinds of them and tells how many bytes that were, `server_copies loop` goes on in
// both directions until a device is lost, `server_copies time MIB COUNT` tells how long copies from device 0 to device 1 take.
#define EXAMPLE "server_copies"
#include "common/check.h"

#include <chrono>
#include <string>
#include <unistd.h>

__device__ unsigned bad;

__host__ __device__ unsigned char pattern(size_t i, unsigned seed) {
    return (unsigned char)(i * 131 + (i >> 8) * 17 + (i >> 16) * 29 + seed * 57);
}

__global__ void fill(unsigned char* at, size_t n, unsigned seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        at[i] = pattern(i, seed);
}

// Bytes first…first + n of `at` are those from `from` on of the pattern; what lies around them is `rest`.
__global__ void check(const unsigned char* at, size_t all, size_t first, size_t n, size_t from, unsigned seed, int rest) {
    unsigned wrong = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < all; i += (size_t)gridDim.x * blockDim.x) {
        if (i >= first && i < first + n) wrong += at[i] != pattern(i - first + from, seed);
        else if (rest >= 0) wrong += at[i] != rest;
    }
    if (wrong) atomicAdd(&bad, wrong);
}

// Rows of `width` bytes, `pitch` apart, that were cut out of a pattern with rows `from_pitch` apart.
__global__ void check_rows(const unsigned char* at, int width, int rows, size_t pitch, size_t from_pitch, unsigned seed) {
    for (int y = blockIdx.x; y < rows; y += gridDim.x)
        for (int x = threadIdx.x; x < width; x += blockDim.x)
            if (at[y * pitch + x] != pattern(y * from_pitch + x, seed)) atomicAdd(&bad, 1u);
}

const size_t SIZE = (8 << 20) + 12345;

struct Gpu {
    unsigned char *a, *b;
    cudaStream_t stream, other;
    cudaEvent_t event;
};

static size_t copied = 0;

static void on(int device) { CHECK(cudaSetDevice(device)); }

static void all_right(int device, const char* what) {
    on(device);
    CHECK(cudaDeviceSynchronize());
    unsigned wrong = 0;
    CHECK(cudaMemcpyFromSymbol(&wrong, bad, sizeof wrong));
    REQUIRE(wrong == 0, "%s: %u bytes are wrong on device %d", what, wrong, device);
}

static void odd_sizes(std::vector<Gpu>& gpus) {
    const size_t cases[][3] = {{0, 0, 1},      {1, 0, 1},          {0, 3, 4095},          {4097, 5, 65537},
                               {7, 7, 1 << 20}, {1, 2, (1 << 20) + 1}, {0, 0, SIZE},       {SIZE - 3, SIZE - 3, 3},
                               {12, 345, 0},   {333, 1 << 20, (5 << 20) + 77}};
    int count = (int)gpus.size();
    unsigned seed = 1;
    for (auto& one : cases) {
        size_t from = one[0], to = one[1], n = one[2];
        int source = seed % count, target = (seed + 1) % count;
        on(source);
        fill<<<64, 256>>>(gpus[source].a, SIZE, seed);
        on(target);
        CHECK(cudaMemset(gpus[target].b, 0xee, SIZE));
        CHECK(cudaMemcpyPeer(gpus[target].b + to, target, gpus[source].a + from, source, n));
        check<<<64, 256>>>(gpus[target].b, SIZE, to, n, from, seed, 0xee);
        all_right(target, "odd sizes");
        copied += n;
        seed++;
    }
}

// Everybody to the next and to the one before, at the same time.
static void all_at_once(std::vector<Gpu>& gpus) {
    int count = (int)gpus.size();
    for (int d = 0; d < count; d++) {
        on(d);
        fill<<<64, 256>>>(gpus[d].a, SIZE, 100 + d);
        CHECK(cudaDeviceSynchronize());
    }
    size_t half = SIZE / 2;
    for (int round = 0; round < 2; round++)
        for (int d = 0; d < count; d++) {
            int next = (d + 1) % count, before = (d + count - 1) % count;
            on(next);
            CHECK(cudaMemcpyPeerAsync(gpus[next].b, next, gpus[d].a, d, half, gpus[next].stream));
            on(before);
            CHECK(cudaMemcpyPeerAsync(gpus[before].b + half, before, gpus[d].a + half, d, SIZE - half, gpus[before].other));
            copied += SIZE;
        }
    for (int d = 0; d < count; d++) {
        int next = (d + 1) % count, before = (d + count - 1) % count;
        on(d);
        CHECK(cudaDeviceSynchronize());
        check<<<64, 256>>>(gpus[d].b, half, 0, half, 0, 100 + before, -1);
        check<<<64, 256>>>(gpus[d].b + half, SIZE - half, 0, SIZE - half, half, 100 + next, -1);
        all_right(d, "all at once");
    }
}

// Work is passed on, and only streams and events say when.
static void in_order(std::vector<Gpu>& gpus) {
    int count = (int)gpus.size();
    size_t n = (1 << 20) + 4321;
    for (unsigned round = 0; round < 6; round++)
        for (int d = 0; d < count; d++) {
            int next = (d + 1) % count;
            unsigned seed = 1000 + round * 16 + d;
            on(d);
            fill<<<16, 256, 0, gpus[d].stream>>>(gpus[d].a, n, seed);
            CHECK(cudaEventRecord(gpus[d].event, gpus[d].stream));
            on(next);
            CHECK(cudaStreamWaitEvent(gpus[next].other, gpus[d].event, 0));
            CHECK(cudaMemcpyPeerAsync(gpus[next].b, next, gpus[d].a, d, n, gpus[next].other));
            check<<<16, 256, 0, gpus[next].other>>>(gpus[next].b, n, 0, n, 0, seed, -1);
            CHECK(cudaEventRecord(gpus[next].event, gpus[next].other));
            // Nobody may overwrite what is being read.
            on(d);
            CHECK(cudaStreamWaitEvent(gpus[d].stream, gpus[next].event, 0));
            copied += n;
        }
    for (int d = 0; d < count; d++) all_right(d, "in order");
}

static void boxes(std::vector<Gpu>& gpus) {
    const int cases[][3] = {{100, 2000, 256}, {8192, 200, 16384}, {5, 3, 64}};
    for (auto& one : cases) {
        int width = one[0], rows = one[1];
        size_t pitch = one[2], other = pitch + 512;
        on(0);
        fill<<<64, 256>>>(gpus[0].a, SIZE, 7);
        CHECK(cudaDeviceSynchronize());
        on(1);
        CHECK(cudaMemcpy2D(gpus[1].b, other, gpus[0].a, pitch, width, rows, cudaMemcpyDefault));
        check_rows<<<16, 64>>>(gpus[1].b, width, rows, other, pitch, 7);
        all_right(1, "boxes");
        copied += (size_t)width * rows;
    }
}

static void small_ones(std::vector<Gpu>& gpus) {
    on(0);
    fill<<<64, 256>>>(gpus[0].a, SIZE, 9);
    CHECK(cudaDeviceSynchronize());
    on(1);
    for (int i = 0; i < 50; i++) {
        CHECK(cudaMemcpyPeerAsync(gpus[1].b + i * 100, 1, gpus[0].a + i * 100, 0, 100, gpus[1].stream));
        copied += 100;
    }
    CHECK(cudaStreamSynchronize(gpus[1].stream));
    check<<<16, 64>>>(gpus[1].b, 5000, 0, 5000, 0, 9, -1);
    all_right(1, "small ones");
}

static int until_lost(std::vector<Gpu>& gpus) {
    int count = (int)gpus.size();
    cudaError_t error = cudaSuccess;
    for (int round = 0; error == cudaSuccess; round++) {
        for (int d = 0; d < count && error == cudaSuccess; d++) {
            int next = (d + 1) % count;
            error = cudaSetDevice(next);
            if (error == cudaSuccess) error = cudaMemcpyPeerAsync(gpus[next].b, next, gpus[d].a, d, SIZE, gpus[next].stream);
        }
        for (int d = 0; d < count && error == cudaSuccess; d++) {
            error = cudaSetDevice(d);
            if (error == cudaSuccess) error = cudaStreamSynchronize(gpus[d].stream);
        }
        if (round == 3) fprintf(stderr, "copying\n");
    }
    fprintf(stderr, "lost: %s\n", cudaGetErrorName(error));
    _exit(error == cudaErrorSystemNotReady ? 3 : 1);
}

static void timed(size_t mib, int times) {
    size_t n = mib << 20;
    unsigned char *from, *to;
    on(0);
    CHECK(cudaMalloc(&from, n));
    CHECK(cudaMemset(from, 1, n));
    CHECK(cudaDeviceSynchronize());
    on(1);
    CHECK(cudaMalloc(&to, n));
    CHECK(cudaMemset(to, 2, n));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyPeer(to, 1, from, 0, 1 << 20));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < times; i++) {
        auto start = std::chrono::steady_clock::now();
        CHECK(cudaMemcpyPeer(to, 1, from, 0, n));
        CHECK(cudaDeviceSynchronize());
        double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        printf("%zu MiB in %.1f ms: %.2f GiB/s\n", mib, s * 1000, mib / 1024.0 / s);
    }
}

int main(int argc, char** argv) {
    std::string mode = argc > 1 ? argv[1] : "check";
    if (mode == "time") {
        timed(argc > 2 ? atoi(argv[2]) : 256, argc > 3 ? atoi(argv[3]) : 5);
        return ok("timed");
    }
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    REQUIRE(count >= 2, "%d devices are too few", count);
    std::vector<Gpu> gpus(count);
    for (int d = 0; d < count; d++) {
        on(d);
        CHECK(cudaMalloc(&gpus[d].a, SIZE));
        CHECK(cudaMalloc(&gpus[d].b, SIZE));
        CHECK(cudaStreamCreateWithFlags(&gpus[d].stream, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&gpus[d].other, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&gpus[d].event, cudaEventDisableTiming));
    }
    if (mode == "loop") return until_lost(gpus);
    odd_sizes(gpus);
    all_at_once(gpus);
    in_order(gpus);
    boxes(gpus);
    small_ones(gpus);
    return ok("copied %zu bytes", copied);
}
