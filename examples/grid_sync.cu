// Blocks that wait for each other: a cooperative launch, synchronised over the whole grid.
#define EXAMPLE "grid_sync"
#include "common/check.h"

#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// Each step replaces every cell by a mix of its two neighbours: wrong wherever a block runs ahead.
__global__ void relax(unsigned* a, unsigned* b, int n, int steps) {
    cg::grid_group grid = cg::this_grid();
    for (int s = 0; s < steps; s++) {
        for (int i = grid.thread_rank(); i < n; i += grid.size())
            b[i] = a[(i + n - 1) % n] * 3u + a[(i + 1) % n] + (unsigned)s;
        grid.sync();
        unsigned* t = a;
        a = b;
        b = t;
    }
}

int main() {
    int supported = 0;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0));
    REQUIRE(supported, "the device has no cooperative launch");
    const int block = 128;
    int per_multiprocessor = 0;
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, relax, block, 0));
    int most = per_multiprocessor * properties.multiProcessorCount;
    REQUIRE(most > 0, "no block fits");
    int blocks = std::min(most, 12), n = 5000, steps = 21;
    std::vector<unsigned> field(n), next(n);
    Random random(7);
    for (auto& f : field) f = random.next();
    DeviceArray<unsigned> da(field), db(n);
    unsigned *a = da, *b = db;
    void* args[] = {&a, &b, &n, &steps};
    CHECK(cudaLaunchCooperativeKernel((const void*)relax, dim3(blocks), dim3(block), args, 0, 0));
    CHECK(cudaDeviceSynchronize());
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < n; i++)
            next[i] = field[(i + n - 1) % n] * 3u + field[(i + 1) % n] + (unsigned)s;
        field.swap(next);
    }
    std::vector<unsigned> got = (steps % 2 ? db : da).download();
    for (int i = 0; i < n; i++) REQUIRE(got[i] == field[i], "cell %d is %u instead of %u", i, got[i], field[i]);
    // More blocks than can be there at once cannot wait for each other.
    EXPECT_ERROR(cudaLaunchCooperativeKernel((const void*)relax, dim3(most + 1), dim3(block), args, 0, 0),
                 cudaErrorCooperativeLaunchTooLarge);
    cudaGetLastError();
    return ok("%d blocks of %d, %d steps", blocks, block, steps);
}
