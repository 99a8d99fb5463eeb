// Does what it is told, a command a line on standard input, or separated by commas as its arguments, and answers each
// with a line on standard output:
//
//   count                  count N
//   info D                 info FREE TOTAL PROPERTIES' TOTAL (in MiB)
//   alloc D MIB            alloc ERROR
//   free                   free ERROR
//   launch D               launch ERROR (the result is checked)
//   work D WARM SECONDS    work COUNT MS: kernels of equal work; those of the first WARM seconds are not counted
//   copy D MIB TIMES       copy ERROR MS
//   move A B               move ERROR: A's memory is copied to B and compared
//   sleep SECONDS          sleep
//   quit
#define EXAMPLE "puppet"
#include "common/check.h"

#include <chrono>
#include <sstream>
#include <string>
#include <thread>

__global__ void add(const int* a, int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i] * 3 + i;
}

// A few milliseconds of one processor core.
__global__ void spin(unsigned* out, int rounds) {
    unsigned x = threadIdx.x + blockIdx.x * blockDim.x;
    for (int i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u;
    if (x == 12345u) *out = x;
}

static double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static cudaError_t launch(int device) {
    const int n = 10000;
    std::vector<int> a(n), b(n);
    for (int i = 0; i < n; i++) a[i] = i ^ 0x55;
    int *da = nullptr, *db = nullptr;
    cudaError_t e = cudaSetDevice(device);
    if (e == cudaSuccess) e = cudaMalloc(&da, n * sizeof(int));
    if (e == cudaSuccess) e = cudaMalloc(&db, n * sizeof(int));
    if (e == cudaSuccess) e = cudaMemcpy(da, a.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    if (e == cudaSuccess) {
        add<<<(n + 127) / 128, 128>>>(da, db, n);
        e = cudaGetLastError();
    }
    if (e == cudaSuccess) e = cudaMemcpy(b.data(), db, n * sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(da);
    cudaFree(db);
    for (int i = 0; e == cudaSuccess && i < n; i++) REQUIRE(b[i] == a[i] * 3 + i, "element %d is %d", i, b[i]);
    return e;
}

static std::vector<std::pair<int, void*>> held;

static std::string execute(const std::string& line) {
    std::istringstream in(line);
    std::ostringstream out;
    std::string what;
    in >> what;
    out << what;
    auto named = [&](cudaError_t e) {
        cudaGetLastError();
        out << ' ' << cudaGetErrorName(e);
    };
    int device = 0;
    if (what == "count") {
        int count = -1;
        cudaError_t e = cudaGetDeviceCount(&count);
        if (e == cudaSuccess) out << ' ' << count;
        else named(e);
    } else if (what == "info") {
        in >> device;
        size_t free = 0, total = 0;
        cudaDeviceProp properties;
        cudaError_t e = cudaSetDevice(device);
        if (e == cudaSuccess) e = cudaMemGetInfo(&free, &total);
        if (e == cudaSuccess) e = cudaGetDeviceProperties(&properties, device);
        if (e == cudaSuccess) out << ' ' << (free >> 20) << ' ' << (total >> 20) << ' ' << (properties.totalGlobalMem >> 20);
        else named(e);
    } else if (what == "alloc") {
        size_t mib = 0;
        in >> device >> mib;
        void* p = nullptr;
        cudaError_t e = cudaSetDevice(device);
        if (e == cudaSuccess) e = cudaMalloc(&p, mib << 20);
        if (e == cudaSuccess) {
            held.push_back({device, p});
            e = cudaMemset(p, 7, mib << 20);
        }
        named(e);
    } else if (what == "free") {
        cudaError_t e = cudaSuccess;
        for (auto& [at, p] : held) {
            cudaError_t one = cudaSetDevice(at);
            if (one == cudaSuccess) one = cudaFree(p);
            if (e == cudaSuccess) e = one;
        }
        held.clear();
        named(e);
    } else if (what == "launch") {
        in >> device;
        named(launch(device));
    } else if (what == "work") {
        double warm = 0, seconds = 0;
        in >> device >> warm >> seconds;
        CHECK(cudaSetDevice(device));
        DeviceArray<unsigned> sink(1);
        long count = 0;
        double start = now() + warm, end = start + seconds, first = 0, last = 0;
        for (;;) {
            spin<<<8, 64>>>(sink, 4000);
            cudaError_t e = cudaDeviceSynchronize();
            if (e != cudaSuccess) {
                named(e);
                return out.str();
            }
            last = now();
            if (last < start) continue;
            if (first == 0) first = last;
            else count++;
            if (last >= end) break;
        }
        out << ' ' << count << ' ' << (long)((last - first) * 1000);
    } else if (what == "copy") {
        size_t mib = 0;
        int times = 0;
        in >> device >> mib >> times;
        std::vector<char> host(mib << 20, 5);
        void* p = nullptr;
        double start = now();
        cudaError_t e = cudaSetDevice(device);
        if (e == cudaSuccess) e = cudaMalloc(&p, mib << 20);
        for (int i = 0; e == cudaSuccess && i < times; i++) e = cudaMemcpy(p, host.data(), mib << 20, cudaMemcpyHostToDevice);
        if (e == cudaSuccess) e = cudaDeviceSynchronize();
        cudaFree(p);
        named(e);
        out << ' ' << (long)((now() - start) * 1000);
    } else if (what == "move") {
        int to = 0;
        in >> device >> to;
        const int n = 100000;
        std::vector<int> a(n), b(n);
        for (int i = 0; i < n; i++) a[i] = i * 7;
        int *da = nullptr, *db = nullptr;
        cudaError_t e = cudaSetDevice(device);
        if (e == cudaSuccess) e = cudaMalloc(&da, n * sizeof(int));
        if (e == cudaSuccess) e = cudaMemcpy(da, a.data(), n * sizeof(int), cudaMemcpyHostToDevice);
        if (e == cudaSuccess) e = cudaSetDevice(to);
        if (e == cudaSuccess) e = cudaMalloc(&db, n * sizeof(int));
        if (e == cudaSuccess) e = cudaMemcpyPeer(db, to, da, device, n * sizeof(int));
        if (e == cudaSuccess) e = cudaMemcpy(b.data(), db, n * sizeof(int), cudaMemcpyDeviceToHost);
        REQUIRE(e != cudaSuccess || a == b, "what arrived is something else");
        cudaFree(db);
        cudaSetDevice(device);
        cudaFree(da);
        named(e);
    } else if (what == "sleep") {
        double seconds = 0;
        in >> seconds;
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    } else {
        fail("unknown command `%s`", line.c_str());
    }
    return out.str();
}

int main(int argc, char** argv) {
    std::string line, all;
    for (int i = 1; i < argc; i++) all += std::string(i > 1 ? " " : "") + argv[i];
    std::istringstream given(all);
    while (true) {
        if (argc > 1) {
            if (!std::getline(given, line, ',')) break;
        } else {
            line.clear();
            int c;
            while ((c = getchar()) != EOF && c != '\n') line += (char)c;
            if (c == EOF && line.empty()) break;
        }
        if (line == "quit") break;
        printf("%s\n", execute(line).c_str());
        fflush(stdout);
    }
    return ok("did what it was told");
}
