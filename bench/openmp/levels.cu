// A graph searched by breadth, level after level, until nothing is new.
#include "pair.h"

#ifdef __CUDACC__
__global__ void next(int n, int level, const int* starts, const int* edges, int* levels, int* more) {
    int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= n || levels[node] != level) return;
    for (int k = starts[node]; k < starts[node + 1]; k++)
        if (levels[edges[k]] < 0) {
            levels[edges[k]] = level + 1;
            *more = 1;
        }
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    int n = int(pair.size(200000));
    Numbers numbers(6);
    std::vector<int> starts{0}, edges;
    for (int node = 0; node < n; node++) {
        int degree = 2 + int(numbers.next() % 6);
        for (int k = 0; k < degree; k++) edges.push_back(int(numbers.next() % unsigned(n)));
        starts.push_back(int(edges.size()));
    }
    std::vector<int> levels(n);
#ifdef __CUDACC__
    Device<int> ds(starts), de(edges), dl(n), more(1);
    pair.time([&] {
        CHECK(cudaMemset(dl, 0xff, n * sizeof(int)));
        CHECK(cudaMemset(dl, 0, sizeof(int)));
        for (int level = 0, again = 1; again; level++) {
            CHECK(cudaMemset(more, 0, sizeof(int)));
            next<<<blocks(n, 256), 256>>>(n, level, ds, de, dl, more);
            CHECK(cudaMemcpy(&again, more, sizeof again, cudaMemcpyDeviceToHost));
        }
    });
    levels = dl.host();
#else
    pair.time([&] {
        std::fill(levels.begin(), levels.end(), -1);
        levels[0] = 0;
        for (int level = 0, again = 1; again; level++) {
            again = 0;
#pragma omp parallel for reduction(| : again)
            for (int node = 0; node < n; node++) {
                if (levels[node] != level) continue;
                for (int k = starts[node]; k < starts[node + 1]; k++) {
                    int& other = levels[edges[k]];
                    int seen;
#pragma omp atomic read
                    seen = other;
                    if (seen < 0) {
#pragma omp atomic write
                        other = level + 1;
                        again = 1;
                    }
                }
            }
        }
    });
#endif
    return pair.finish(levels);
}
