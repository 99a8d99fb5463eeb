// Conway's game of life: a stencil of bytes.
#include "pair.h"

#ifdef __CUDACC__
__global__ void step(int n, const uint8_t* from, uint8_t* to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    const uint8_t* c = from + y * n + x;
    int sum = c[-n - 1] + c[-n] + c[-n + 1] + c[-1] + c[1] + c[n - 1] + c[n] + c[n + 1];
    to[y * n + x] = sum == 3 || (sum == 2 && *c);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    int n = int(pair.side(1536, 2));
    auto words = pair.words(size_t(n) * n, 2);
    std::vector<uint8_t> a(words.size()), b;
    for (size_t i = 0; i < a.size(); i++) a[i] = words[i] >> 30 == 0;
    b = a;
#ifdef __CUDACC__
    Device<uint8_t> da(a), db(b);
    dim3 threads(64, 4), grid(blocks(n, 64), blocks(n, 4));
    pair.time([&] {
        step<<<grid, threads>>>(n, da, db);
        step<<<grid, threads>>>(n, db, da);
    });
    a = da.host();
#else
    auto step = [n](const uint8_t* from, uint8_t* to) {
#pragma omp parallel for
        for (int y = 1; y < n - 1; y++)
            for (int x = 1; x < n - 1; x++) {
                const uint8_t* c = from + size_t(y) * n + x;
                int sum = c[-n - 1] + c[-n] + c[-n + 1] + c[-1] + c[1] + c[n - 1] + c[n] + c[n + 1];
                to[size_t(y) * n + x] = (sum == 3) | ((sum == 2) & c[0]);
            }
    };
    pair.time([&] {
        step(a.data(), b.data());
        step(b.data(), a.data());
    });
#endif
    return pair.finish(a);
}
