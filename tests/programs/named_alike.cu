// A library that keeps the driver's functions in variables of the same names, and exports these: its references mean them, whatever
// has been loaded before, and so does whoever asks that library for them.
// rgpu-plugin: table named_alike/table.cu
#define EXAMPLE "named_alike"
#include "common/beside.h"
#include "common/check.h"

#include <dlfcn.h>

int main() {
    void* library = dlopen(beside("libnamed_alike_table.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library, "%s", dlerror());
    auto fill = (int (*)())dlsym(library, "fill");
    auto place = (void** (*)())dlsym(library, "place");
    REQUIRE(fill && place, "%s", dlerror());
    int version = 0;
    CHECK(cudaDriverGetVersion(&version));
    int told = fill();
    REQUIRE(told == version, "the library found version %d, the runtime %d", told, version);
    REQUIRE(dlsym(library, "cuDriverGetVersion") == place(), "the library's variable is not where it is looked for");
    DeviceArray<int> data(std::vector<int>{1, 2, 3});
    REQUIRE(data.download()[2] == 3, "the runtime does not work beside it");
    return ok("version %d", version);
}
