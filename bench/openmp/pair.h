// What each pair of programs shares: inputs, times, and the result in a form that two programs can be compared by.
//
// One file is two programs: nvcc compiles its CUDA half, g++ the other half, which does the same work with OpenMP. Both take
// the same input from here and print the same three lines: the shortest time of a run, a digest of the result, and how far
// apart two digests may be.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// A function that kernels and the C++ halves call.
#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif

// Numbers from a generator that is the same everywhere.
struct Numbers {
    uint64_t state;
    explicit Numbers(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 0x1234567ull) {}
    uint32_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return uint32_t(state >> 32);
    }
    // From 0 to 1.
    double unit() { return next() * (1.0 / 4294967296.0); }
};

class Pair {
  public:
    // `program [RUNS [SCALE]]`: how often the work is done, and by how much its size is multiplied.
    Pair(int argc, char** argv, double tolerance) : tolerance_(tolerance) {
        if (argc > 1) runs_ = std::max(1, atoi(argv[1]));
        if (argc > 2) scale_ = atof(argv[2]);
        if (!(scale_ > 0)) {
            fprintf(stderr, "usage: %s [RUNS [SCALE]]\n", argv[0]);
            exit(2);
        }
    }

    // A number of elements, scaled, rounded to a multiple of `step`.
    size_t size(size_t full, size_t step = 1) const {
        size_t n = size_t(double(full) * scale_ + 0.5);
        return std::max(step, n / step * step);
    }
    // The side of a square or a cube whose contents are scaled.
    size_t side(size_t full, int dimensions, size_t step = 1) const {
        size_t n = size_t(double(full) * std::pow(scale_, 1.0 / dimensions) + 0.5);
        return std::max(step, n / step * step);
    }

    template <class T> static std::vector<T> uniform(size_t n, uint64_t seed, double from = 0, double to = 1) {
        Numbers numbers(seed);
        std::vector<T> values(n);
        for (auto& value : values) value = T(from + (to - from) * numbers.unit());
        return values;
    }
    static std::vector<uint32_t> words(size_t n, uint64_t seed) {
        Numbers numbers(seed);
        std::vector<uint32_t> values(n);
        for (auto& value : values) value = numbers.next();
        return values;
    }

    // Does the work once to warm up and then as often as was asked; the shortest time counts.
    template <class Work> void time(Work work) {
        work();
        wait();
        for (int run = 0; run < runs_; run++) {
            auto start = std::chrono::steady_clock::now();
            work();
            wait();
            std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            seconds_ = std::min(seconds_, took.count());
        }
    }

    // Prints what was found. Each element counts by its place, so that exchanged elements show.
    template <class T> int finish(const std::vector<T>& result) const {
        double digest = 0;
        for (size_t i = 0; i < result.size(); i++) digest += double(result[i]) * (1.0 + double(i % 97) / 97.0);
        printf("seconds %.9f\ndigest %.17g\ntolerance %g\n", seconds_, digest, tolerance_);
        return 0;
    }

  private:
    int runs_ = 5;
    double scale_ = 1, seconds_ = 1e30, tolerance_;
    static void wait();
};

#ifdef __CUDACC__
#define CHECK(call)                                                                                              \
    do {                                                                                                         \
        cudaError_t check_error_ = (call);                                                                       \
        if (check_error_ != cudaSuccess) {                                                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_error_));     \
            exit(1);                                                                                             \
        }                                                                                                        \
    } while (0)

inline void Pair::wait() {
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

// Memory of the device, as long as this is there.
template <class T> class Device {
  public:
    explicit Device(size_t n) : size_(n) {
        CHECK(cudaMalloc(&data_, n * sizeof(T)));
        CHECK(cudaMemset(data_, 0, n * sizeof(T)));
    }
    explicit Device(const std::vector<T>& values) : size_(values.size()) {
        CHECK(cudaMalloc(&data_, size_ * sizeof(T)));
        CHECK(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
    }
    Device(const Device&) = delete;
    ~Device() { cudaFree(data_); }
    operator T*() const { return data_; }
    std::vector<T> host() const {
        std::vector<T> values(size_);
        CHECK(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }

  private:
    T* data_ = nullptr;
    size_t size_;
};

inline unsigned blocks(size_t n, unsigned threads) { return unsigned((n + threads - 1) / threads); }
#else
inline void Pair::wait() {}
#endif
