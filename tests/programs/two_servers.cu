// Works on all devices at once, as programs with several GPUs do: kernels, copies between devices, events across devices,
// managed and mapped memory that all of them touch. Everything is checked on the CPU. `two_servers GROUPS` says which devices
// can reach each other's memory: "0011" are two pairs. `two_servers GROUPS wait` goes on until a device is lost.
#define EXAMPLE "two_servers"
#include "common/check.h"

#include <string>
#include <unistd.h>

__managed__ int total;
__device__ int offset;

__global__ void fill(int* to, int n, int first) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = first + i;
}

__global__ void twist(int* at, int n, int factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) at[i] = at[i] * factor + offset;
}

__global__ void every(int* at, int n, int step, int from, int add) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * step + from;
    if (i < n) at[i] += add;
}

__global__ void sum_up(const int* at, int n) {
    int mine = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) mine += at[i] & 15;
    atomicAdd(&total, mine);
}

__global__ void slow(int* at, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = at[i];
    for (int r = 0; r < rounds; r++) x = x * 1664525u + 1013904223u;
    at[i] = (int)x;
}

static unsigned slowly(unsigned x, int rounds) {
    for (int r = 0; r < rounds; r++) x = x * 1664525u + 1013904223u;
    return x;
}

const int N = 3 << 20;  // 12 MiB: several parts of a copy
const int THREADS = 256;
const int BLOCKS = (N + THREADS - 1) / THREADS;

struct Gpu {
    int* data;
    int* other;
    cudaStream_t stream;
    cudaEvent_t event;
};

static void on(int device) { CHECK(cudaSetDevice(device)); }

static void compare(const int* got, const char* what, int (*right)(int, int), int with) {
    for (int i = 0; i < N; i++)
        REQUIRE(got[i] == right(i, with), "%s: element %d is %d, not %d", what, i, got[i], right(i, with));
}

static void copies(std::vector<Gpu>& gpus, std::vector<int>& host) {
    int count = (int)gpus.size();
    for (int d = 0; d < count; d++) {
        on(d);
        fill<<<BLOCKS, THREADS, 0, gpus[d].stream>>>(gpus[d].data, N, 1000 * d);
        CHECK(cudaEventRecord(gpus[d].event, gpus[d].stream));
    }
    // Each device's array goes to the next one's, there and back, in streams alone.
    for (int d = 0; d < count; d++) {
        int next = (d + 1) % count;
        on(next);
        CHECK(cudaStreamWaitEvent(gpus[next].stream, gpus[d].event, 0));
        CHECK(cudaMemcpyPeerAsync(gpus[next].other, next, gpus[d].data, d, N * sizeof(int), gpus[next].stream));
        twist<<<BLOCKS, THREADS, 0, gpus[next].stream>>>(gpus[next].other, N, 3);
    }
    for (int d = 0; d < count; d++) {
        on(d);
        CHECK(cudaStreamSynchronize(gpus[d].stream));
        int before = (d + count - 1) % count;
        CHECK(cudaMemcpy(host.data(), gpus[d].other, N * sizeof(int), cudaMemcpyDeviceToHost));
        compare(host.data(), "peer copies in streams", [](int i, int b) { return (1000 * b + i) * 3 + 7; }, before);
    }
    // Without a stream, and while another device is current than the memory's.
    for (int d = 0; d < count; d++) {
        int next = (d + 1) % count;
        on(d);
        CHECK(cudaMemcpyPeer(gpus[next].other, next, gpus[d].data, d, N * sizeof(int)));
        CHECK(cudaMemcpy(host.data(), gpus[next].other, N * sizeof(int), cudaMemcpyDefault));
        compare(host.data(), "cudaMemcpyPeer", [](int i, int b) { return 1000 * b + i; }, d);
        std::fill(host.begin(), host.end(), d);
        CHECK(cudaMemcpy(gpus[next].other, host.data(), N * sizeof(int), cudaMemcpyDefault));
        CHECK(cudaMemcpy(gpus[d].other, gpus[next].other, N * sizeof(int), cudaMemcpyDefault));
        CHECK(cudaMemset(gpus[next].other, 0, sizeof(int)));
        CHECK(cudaDeviceSynchronize());
        on(next);
        twist<<<BLOCKS, THREADS>>>(gpus[next].other, N, 2);
        CHECK(cudaMemcpy(host.data(), gpus[next].other, N * sizeof(int), cudaMemcpyDeviceToHost));
        compare(host.data(), "another device's memory", [](int i, int d) { return (i ? 2 * d : 0) + 7; }, d);
        CHECK(cudaMemcpy(host.data(), gpus[d].other, N * sizeof(int), cudaMemcpyDeviceToHost));
        compare(host.data(), "copied over", [](int, int d) { return d; }, d);
    }
    // Boxes.
    int last = count - 1;
    on(0);
    CHECK(cudaMemset2D(gpus[0].other, 1024, 0, 512, N / 256));
    CHECK(cudaMemcpy2D(gpus[last].other, 1024, gpus[0].data, 1024, 512, N / 256, cudaMemcpyDefault));
    CHECK(cudaMemcpy2D(gpus[0].other, 1024, gpus[last].other, 1024, 512, N / 256, cudaMemcpyDefault));
    CHECK(cudaMemcpy2D(host.data(), 1024, gpus[0].other, 1024, 512, N / 256, cudaMemcpyDefault));
    for (int row = 0; row < N / 256; row += 97)
        for (int x = 0; x < 128; x++)
            REQUIRE(host[row * 256 + x] == row * 256 + x, "a box: row %d, %d: %d", row, x, host[row * 256 + x]);
}

// A relay: each device works on what the one before it has left, and only events say when.
static void relay(std::vector<Gpu>& gpus, std::vector<int>& host) {
    int count = (int)gpus.size(), n = 1 << 14, rounds = 3;
    on(0);
    fill<<<n / THREADS, THREADS, 0, gpus[0].stream>>>(gpus[0].data, n, 5);
    for (int r = 0; r < rounds; r++)
        for (int d = 0; d < count; d++) {
            int next = (d + 1) % count;
            on(d);
            slow<<<n / THREADS, THREADS, 0, gpus[d].stream>>>(gpus[d].data, n, 2000);
            CHECK(cudaEventRecord(gpus[d].event, gpus[d].stream));
            on(next);
            CHECK(cudaStreamWaitEvent(gpus[next].stream, gpus[d].event, 0));
            CHECK(cudaMemcpyAsync(gpus[next].data, gpus[d].data, n * sizeof(int), cudaMemcpyDeviceToDevice, gpus[next].stream));
            // Nobody may overwrite what is being read.
            CHECK(cudaEventRecord(gpus[next].event, gpus[next].stream));
            on(d);
            CHECK(cudaStreamWaitEvent(gpus[d].stream, gpus[next].event, 0));
        }
    on(0);
    CHECK(cudaMemcpyAsync(host.data(), gpus[0].data, n * sizeof(int), cudaMemcpyDeviceToHost, gpus[0].stream));
    CHECK(cudaStreamSynchronize(gpus[0].stream));
    for (int i = 0; i < n; i++)
        REQUIRE((unsigned)host[i] == slowly(5 + i, 2000 * rounds * count), "relay: element %d is %d", i, host[i]);
}

// Memory that host and all devices share.
static void shared(std::vector<Gpu>& gpus) {
    int count = (int)gpus.size(), n = 1 << 16;
    int *managed, *mapped;
    on(0);
    CHECK(cudaMallocManaged(&managed, n * sizeof(int)));
    CHECK(cudaHostAlloc(&mapped, n * sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
    for (int i = 0; i < n; i++) managed[i] = mapped[i] = i;
    // Each device has elements of its own in every page; all work at the same time.
    for (int d = 0; d < count; d++) {
        on(d);
        every<<<n / THREADS, THREADS>>>(managed, n, count, d, 100 * (d + 1));
        every<<<n / THREADS, THREADS>>>(mapped, n, count, d, 200 * (d + 1));
    }
    for (int d = 0; d < count; d++) {
        on(d);
        CHECK(cudaDeviceSynchronize());
    }
    for (int i = 0; i < n; i++) {
        REQUIRE(managed[i] == i + 100 * (i % count + 1), "managed: element %d is %d", i, managed[i]);
        REQUIRE(mapped[i] == i + 200 * (i % count + 1), "mapped: element %d is %d", i, mapped[i]);
        managed[i] = mapped[i] = i;
    }
    // One after the other, and only events say when.
    for (int d = 0; d < count; d++) {
        on(d);
        if (d > 0) CHECK(cudaStreamWaitEvent(gpus[d].stream, gpus[d - 1].event, 0));
        slow<<<n / THREADS, THREADS, 0, gpus[d].stream>>>(managed, n, 50);
        slow<<<n / THREADS, THREADS, 0, gpus[d].stream>>>(mapped, n, 70);
        CHECK(cudaEventRecord(gpus[d].event, gpus[d].stream));
    }
    // What the last one has left, through its pinned memory, to the first.
    on(0);
    CHECK(cudaStreamWaitEvent(gpus[0].stream, gpus[count - 1].event, 0));
    CHECK(cudaMemcpyAsync(gpus[0].data, mapped, n * sizeof(int), cudaMemcpyDefault, gpus[0].stream));
    std::vector<int> host(n);
    CHECK(cudaMemcpyAsync(host.data(), gpus[0].data, n * sizeof(int), cudaMemcpyDefault, gpus[0].stream));
    CHECK(cudaStreamSynchronize(gpus[0].stream));
    for (int i = 0; i < n; i++) {
        REQUIRE((unsigned)managed[i] == slowly(i, 50 * count), "managed relay: element %d is %d", i, managed[i]);
        REQUIRE((unsigned)mapped[i] == slowly(i, 70 * count), "mapped relay: element %d is %d", i, mapped[i]);
        REQUIRE(host[i] == mapped[i], "copied from mapped memory: element %d is %d", i, host[i]);
    }
    // A managed variable is one variable.
    total = 0;
    int right = 0;
    for (int d = 0; d < count; d++) {
        on(d);
        sum_up<<<1, 64>>>(managed, n);
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < n; i++) right += managed[i] & 15;
        REQUIRE(total == right, "after device %d the managed variable is %d, not %d", d, total, right);
    }
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(mapped));
}

int main(int argc, char** argv) {
    std::string groups = argc > 1 ? argv[1] : "01";
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    REQUIRE(count == (int)groups.size(), "%d devices instead of %zu", count, groups.size());
    std::vector<Gpu> gpus(count);
    std::vector<int> host(N);
    std::vector<std::string> places;
    for (int d = 0; d < count; d++) {
        on(d);
        CHECK(cudaMalloc(&gpus[d].data, N * sizeof(int)));
        CHECK(cudaMalloc(&gpus[d].other, N * sizeof(int)));
        CHECK(cudaStreamCreateWithFlags(&gpus[d].stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&gpus[d].event, cudaEventDisableTiming));
        int seven = 7;
        CHECK(cudaMemcpyToSymbol(offset, &seven, sizeof seven));
        cudaPointerAttributes about;
        CHECK(cudaPointerGetAttributes(&about, gpus[d].data));
        REQUIRE(about.device == d, "memory of device %d is said to be of %d", d, about.device);
        char place[32];
        CHECK(cudaDeviceGetPCIBusId(place, sizeof place, d));
        for (auto& other : places) REQUIRE(other != place, "two devices are at %s", place);
        places.push_back(place);
        for (int peer = 0; peer < count; peer++) {
            int can = -1;
            CHECK(cudaDeviceCanAccessPeer(&can, d, peer));
            int right = d != peer && groups[d] == groups[peer];
            REQUIRE(can == right, "device %d and peer %d: %d instead of %d", d, peer, can, right);
            if (groups[d] != groups[peer]) {
                EXPECT_ERROR(cudaDeviceEnablePeerAccess(peer, 0), cudaErrorPeerAccessUnsupported);
                cudaGetLastError();
            }
        }
    }
    copies(gpus, host);
    relay(gpus, host);
    shared(gpus);
    if (argc > 2) {
        fprintf(stderr, "waiting\n");
        cudaError_t error = cudaSuccess;
        for (int tries = 0; error == cudaSuccess && tries < 1200; tries++) {
            usleep(50000);
            for (int d = 0; d < count && error == cudaSuccess; d++) {
                on(d);
                error = cudaMemcpy(host.data(), gpus[d].data, sizeof(int), cudaMemcpyDeviceToHost);
            }
        }
        fprintf(stderr, "lost: %s\n", cudaGetErrorName(error));
        _exit(error == cudaErrorSystemNotReady ? 3 : 1);
    }
    // A reset of one device leaves the others alone.
    on(count - 1);
    CHECK(cudaDeviceReset());
    on(0);
    CHECK(cudaMemcpy(host.data(), gpus[0].other, sizeof(int), cudaMemcpyDeviceToHost));
    std::vector<int> again(1, 5);
    on(count - 1);
    DeviceArray<int> fresh(again);
    CHECK(cudaMemcpyPeer(gpus[0].other, 0, fresh, count - 1, sizeof(int)));
    CHECK(cudaMemcpy(host.data(), gpus[0].other, sizeof(int), cudaMemcpyDefault));
    REQUIRE(host[0] == 5, "after a reset: %d", host[0]);
    return ok("on %d devices", count);
}
