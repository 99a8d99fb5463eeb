// Floyd and Warshall's shortest paths between all pairs.
#include "pair.h"

#ifdef __CUDACC__
__global__ void through(int n, int k, int* d) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) d[y * n + x] = min(d[y * n + x], d[y * n + k] + d[k * n + x]);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    int n = int(pair.side(256, 3));
    std::vector<int> start(size_t(n) * n);
    Numbers numbers(8);
    for (auto& distance : start) distance = numbers.next() % 8 == 0 ? int(numbers.next() % 1000) : 1000000;
    auto d = start;
#ifdef __CUDACC__
    Device<int> ds(start), dd(d);
    pair.time([&] {
        CHECK(cudaMemcpy(dd, ds, d.size() * sizeof(int), cudaMemcpyDeviceToDevice));
        for (int k = 0; k < n; k++) through<<<dim3(blocks(n, 32), blocks(n, 8)), dim3(32, 8)>>>(n, k, dd);
    });
    d = dd.host();
#else
    pair.time([&] {
        d = start;
        for (int k = 0; k < n; k++) {
#pragma omp parallel for
            for (int y = 0; y < n; y++) {
                int first = d[size_t(y) * n + k];
                for (int x = 0; x < n; x++) d[size_t(y) * n + x] = std::min(d[size_t(y) * n + x], first + d[size_t(k) * n + x]);
            }
        }
    });
#endif
    return pair.finish(d);
}
