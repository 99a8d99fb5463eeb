// The library. It does not know the driver's header.
#include <dlfcn.h>

#include <cstddef>

extern "C" {
void* cuInit;
void* cuDriverGetVersion;
void* cuMemAlloc_v2;

// Looks the functions up; the driver's version, or what went wrong.
int fill() {
    if (cuInit || cuDriverGetVersion || cuMemAlloc_v2) return -1;
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return -2;
    cuInit = dlsym(driver, "cuInit");
    cuDriverGetVersion = dlsym(driver, "cuDriverGetVersion");
    cuMemAlloc_v2 = dlsym(driver, "cuMemAlloc_v2");
    if (!cuInit || !cuDriverGetVersion || !cuMemAlloc_v2) return -3;
    if (((int (*)(unsigned))cuInit)(0) != 0) return -4;
    int version = 0;
    if (((int (*)(int*))cuDriverGetVersion)(&version) != 0) return -5;
    return version;
}

void** place() { return &cuDriverGetVersion; }
}
