// Needleman and Wunsch's alignment of two sequences: a launch for each diagonal of tiles, a wavefront inside of each.
#include "pair.h"

const int TILE = 32, GAP = -4;

#ifdef __CUDACC__
__global__ void diagonal(int tiles, int d, const int8_t* a, const int8_t* b, int* score) {
    __shared__ int part[TILE + 1][TILE + 1];
    int n = tiles * TILE + 1, first = max(0, d - tiles + 1), by = first + blockIdx.x, bx = d - by, t = threadIdx.x;
    int y0 = by * TILE, x0 = bx * TILE;
    part[t + 1][0] = score[(y0 + t + 1) * n + x0];
    part[0][t + 1] = score[y0 * n + x0 + t + 1];
    if (t == 0) part[0][0] = score[y0 * n + x0];
    __syncthreads();
    for (int wave = 0; wave < 2 * TILE - 1; wave++) {
        int y = t, x = wave - t;
        if (x >= 0 && x < TILE) {
            int match = a[y0 + y] == b[x0 + x] ? 5 : -3;
            part[y + 1][x + 1] = max(part[y][x] + match, max(part[y][x + 1], part[y + 1][x]) + GAP);
        }
        __syncthreads();
    }
    for (int y = 0; y < TILE; y++) score[(y0 + y + 1) * n + x0 + t + 1] = part[y + 1][t + 1];
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    int tiles = int(pair.side(64, 2)), n = tiles * TILE + 1;
    Numbers numbers(12);
    std::vector<int8_t> a(n), b(n);
    for (auto& letter : a) letter = int8_t(numbers.next() % 4);
    for (auto& letter : b) letter = int8_t(numbers.next() % 4);
    std::vector<int> score(size_t(n) * n);
    for (int i = 0; i < n; i++) score[i] = score[size_t(i) * n] = i * GAP;
#ifdef __CUDACC__
    Device<int8_t> da(a), db(b);
    Device<int> ds(score);
    pair.time([&] {
        for (int d = 0; d < 2 * tiles - 1; d++) diagonal<<<std::min({d + 1, tiles, 2 * tiles - 1 - d}), TILE>>>(tiles, d, da, db, ds);
    });
    score = ds.host();
#else
    pair.time([&] {
        for (int d = 0; d < 2 * tiles - 1; d++) {
#pragma omp parallel for
            for (int by = std::max(0, d - tiles + 1); by <= std::min(d, tiles - 1); by++) {
                int y0 = by * TILE, x0 = (d - by) * TILE;
                for (int y = y0; y < y0 + TILE; y++)
                    for (int x = x0; x < x0 + TILE; x++) {
                        int match = a[y] == b[x] ? 5 : -3;
                        const int *up = &score[size_t(y) * n + x], *down = up + n;
                        score[size_t(y + 1) * n + x + 1] = std::max(up[0] + match, std::max(up[1], down[0]) + GAP);
                    }
            }
        }
    });
#endif
    return pair.finish(score);
}
