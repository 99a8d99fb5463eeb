// Functions of NVIDIA's mathematical libraries by their names and types alone, so that a program needs none of their headers.
#pragma once

#include <dlfcn.h>

#include <vector>

typedef struct Opaque* Object;

static void* find(const char* name) {
    static const char* files[] = {"libcufft.so.12",    "libcufft.so.11",    "libcurand.so.10",
                                  "libcusolver.so.12", "libcusolver.so.11", "libcusparse.so.12"};
    void* found = dlsym(RTLD_DEFAULT, name);
    for (const char* file : files) {
        if (found) break;
        void* library = dlopen(file, RTLD_NOW);
        if (library) found = dlsym(library, name);
    }
    if (!found) fail("there is no %s", name);
    return found;
}

#define CALL(name, types, ...)                                                                         \
    do {                                                                                               \
        static int(*call_) types = (int(*) types)find(#name);                                          \
        int status_ = call_(__VA_ARGS__);                                                              \
        if (status_ != 0) fail("%s:%d: %s gave %d", __FILE__, __LINE__, #name, status_);               \
    } while (0)

// Numbers on the device.
template <class T>
struct List {
    T* data = nullptr;
    size_t size;
    explicit List(const std::vector<T>& values) : size(values.size()) {
        CHECK(cudaMalloc(&data, size * sizeof *data));
        CHECK(cudaMemcpy(data, values.data(), size * sizeof *data, cudaMemcpyHostToDevice));
    }
    List(const List&) = delete;
    ~List() { CHECK(cudaFree(data)); }
    std::vector<T> get() const {
        std::vector<T> values(size);
        CHECK(cudaMemcpy(values.data(), data, size * sizeof *data, cudaMemcpyDeviceToHost));
        return values;
    }
};

typedef std::vector<double> Values;

static inline Values random_values(size_t count, int seed) {
    Random random(seed);
    Values values(count);
    for (auto& value : values) value = 2 * random.unit() - 1;
    return values;
}
