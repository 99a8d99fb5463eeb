// 100,000 launches of an empty kernel and one synchronise.
#define EXAMPLE "many_launches"
#include "common/check.h"

__global__ void nothing() {}

int main(int argc, char** argv) {
    int launches = argc > 1 ? atoi(argv[1]) : 100000;
    for (int i = 0; i < launches; i++) nothing<<<1, 1>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    return ok("%d launches", launches);
}
