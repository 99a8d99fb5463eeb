// Functions of NVIDIA's mathematical libraries by their names and types alone, so that a program needs none of their headers.
#pragma once

#include <dlfcn.h>

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
