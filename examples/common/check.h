// What every example shares: failing with a reason, succeeding with a line, and numbers to compute with.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#ifndef EXAMPLE
#error "define EXAMPLE to the example's name before including check.h"
#endif

// Ends the program with the reason on standard error and status 1.
[[noreturn]] inline void fail(const char* format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: FAILED: ", EXAMPLE);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

// The line that says that the program's results were right.
inline int ok(const char* format, ...) {
    va_list args;
    va_start(args, format);
    printf("%s: ok ", EXAMPLE);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    return 0;
}

// A CUDA runtime call that has to succeed.
#define CHECK(call)                                                                                    \
    do {                                                                                               \
        cudaError_t check_error_ = (call);                                                             \
        if (check_error_ != cudaSuccess)                                                               \
            fail("%s:%d: %s: %s (%d: %s)", __FILE__, __LINE__, #call, cudaGetErrorName(check_error_),  \
                 (int)check_error_, cudaGetErrorString(check_error_));                                 \
    } while (0)

// A CUDA runtime call that has to fail in one particular way.
#define EXPECT_ERROR(call, expected)                                                                   \
    do {                                                                                               \
        cudaError_t check_error_ = (call);                                                             \
        if (check_error_ != (expected))                                                                \
            fail("%s:%d: %s gave %s (%d) instead of %s", __FILE__, __LINE__, #call,                    \
                 cudaGetErrorName(check_error_), (int)check_error_, #expected);                        \
    } while (0)

// Something that has to hold; the rest is a printf format and its arguments.
#define REQUIRE(condition, ...)                                                                        \
    do {                                                                                               \
        if (!(condition)) fail(__VA_ARGS__);                                                           \
    } while (0)

// xorshift64*: the same numbers on every machine.
struct Random {
    uint64_t state;
    explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 1) {}
    uint32_t next() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return (uint32_t)((state * 0x2545F4914F6CDD1Dull) >> 32);
    }
    uint32_t below(uint32_t n) { return (uint32_t)(((uint64_t)next() * n) >> 32); }
    float unit() { return (float)(next() >> 8) * (1.0f / 16777216.0f); }
};

// An array on the device that frees itself.
template <typename T>
struct DeviceArray {
    T* data = nullptr;
    size_t count = 0;
    explicit DeviceArray(size_t n) : count(n) { CHECK(cudaMalloc(&data, n * sizeof(T))); }
    explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) { upload(host); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    ~DeviceArray() { cudaFree(data); }
    void upload(const std::vector<T>& host) {
        CHECK(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    void zero() { CHECK(cudaMemset(data, 0, count * sizeof(T))); }
    std::vector<T> download() const {
        std::vector<T> host(count);
        CHECK(cudaMemcpy(host.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }
    operator T*() const { return data; }
};
