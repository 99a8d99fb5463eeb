// Allocates until the device is full, which is an error of its own; freeing makes room again.
#define EXAMPLE "fill_memory"
#include "common/check.h"

int main() {
    size_t before = 0, total = 0, after = 0;
    CHECK(cudaMemGetInfo(&before, &total));
    REQUIRE(before > 0 && before <= total, "%zu of %zu bytes are free", before, total);
    for (int round = 0; round < 3; round++) {
        std::vector<int*> pieces;
        int* p = nullptr;
        cudaError_t error;
        size_t piece = before / 4 >> 21 << 21;
        while ((error = cudaMalloc(&p, piece)) == cudaSuccess) {
            pieces.push_back(p);
            REQUIRE(pieces.size() <= 5, "%zu quarters fit", pieces.size());
            CHECK(cudaMemset(p, round, 1 << 20));
        }
        REQUIRE(error == cudaErrorMemoryAllocation, "a full device gives %s", cudaGetErrorName(error));
        REQUIRE(pieces.size() >= 3, "round %d: only %zu quarters fit", round, pieces.size());
        EXPECT_ERROR(cudaGetLastError(), cudaErrorMemoryAllocation);
        size_t full = 0;
        CHECK(cudaMemGetInfo(&full, &total));
        REQUIRE(full <= before - pieces.size() * piece, "%zu bytes are free on a full device", full);
        for (int* piece : pieces) CHECK(cudaFree(piece));
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemGetInfo(&after, &total));
    REQUIRE(after == before, "%zu bytes are free at last instead of %zu", after, before);
    return ok("%zu MiB filled three times", total >> 20);
}
