// The edit distance of two texts by dynamic programming: one launch per anti-diagonal of tiles.
#define EXAMPLE "wavefront_dp"
#include "common/check.h"

constexpr int TILE = 32;

__global__ void tiles(const char* s, const char* t, int* table, int n, int m, int diagonal, int first) {
    __shared__ int cell[TILE + 1][TILE + 1];
    int bx = first + blockIdx.x, by = diagonal - bx;
    int x0 = bx * TILE, y0 = by * TILE, lane = threadIdx.x, pitch = n + 1;
    if (x0 + lane + 1 <= n) cell[0][lane + 1] = table[y0 * pitch + x0 + lane + 1];
    if (y0 + lane + 1 <= m) cell[lane + 1][0] = table[(y0 + lane + 1) * pitch + x0];
    if (lane == 0) cell[0][0] = table[y0 * pitch + x0];
    __syncthreads();
    for (int d = 0; d < 2 * TILE - 1; d++) {
        int x = lane, y = d - lane;
        if (y >= 0 && y < TILE && x0 + x < n && y0 + y < m) {
            int replaced = cell[y][x] + (s[x0 + x] != t[y0 + y]);
            cell[y + 1][x + 1] = min(replaced, min(cell[y][x + 1], cell[y + 1][x]) + 1);
        }
        __syncthreads();
    }
    for (int y = 0; y < TILE; y++)
        if (x0 + lane < n && y0 + y < m) table[(y0 + y + 1) * pitch + x0 + lane + 1] = cell[y + 1][lane + 1];
}

int main() {
    const int n = 451, m = 397;
    Random random(8);
    std::vector<char> s(n), t(m);
    for (char& c : s) c = "acgt"[random.below(4)];
    for (char& c : t) c = "acgt"[random.below(4)];
    std::vector<int> table((n + 1) * (m + 1), -1);
    for (int x = 0; x <= n; x++) table[x] = x;
    for (int y = 0; y <= m; y++) table[y * (n + 1)] = y;
    DeviceArray<char> ds(s), dt(t);
    DeviceArray<int> dtable(table);
    int columns = (n + TILE - 1) / TILE, rows = (m + TILE - 1) / TILE;
    for (int d = 0; d < columns + rows - 1; d++) {
        int first = std::max(0, d - rows + 1), last = std::min(d, columns - 1);
        tiles<<<last - first + 1, TILE>>>(ds, dt, dtable, n, m, d, first);
        CHECK(cudaGetLastError());
    }
    std::vector<int> got = dtable.download();
    for (int y = 1; y <= m; y++)
        for (int x = 1; x <= n; x++) {
            int* c = &table[y * (n + 1) + x];
            *c = std::min(c[-n - 2] + (s[x - 1] != t[y - 1]), std::min(c[-n - 1], c[-1]) + 1);
            REQUIRE(got[y * (n + 1) + x] == *c, "cell %d,%d is %d instead of %d", x, y, got[y * (n + 1) + x], *c);
        }
    return ok("%d by %d, distance %d", n, m, got.back());
}
