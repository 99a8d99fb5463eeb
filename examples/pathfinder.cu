// The cheapest way down a grid, row by row. The pattern is that of Rodinia's Pathfinder.
//
// Copies: the whole grid (rows × columns integers) to the device at the beginning, one row back at the end.
// Launches: one for every `height` rows. Nothing is copied and nothing waited for between them.
#define EXAMPLE "pathfinder"
#include "common/pattern.h"

constexpr int BLOCK = 256;

// `steps` rows further, of which the block's ends are lost in each.
__global__ void descend(const int* wall, const int* from, int* to, int columns, int row, int steps) {
    __shared__ int best[2][BLOCK];
    int lane = threadIdx.x, x = blockIdx.x * (BLOCK - 2 * steps) + lane - steps;
    bool inside = x >= 0 && x < columns;
    best[0][lane] = inside ? from[x] : 0;
    __syncthreads();
    for (int s = 0; s < steps; s++) {
        const int* a = best[s % 2];
        if (inside && lane > s && lane < BLOCK - 1 - s) {
            int least = min(a[lane], min(x > 0 ? a[lane - 1] : a[lane], x < columns - 1 ? a[lane + 1] : a[lane]));
            best[(s + 1) % 2][lane] = least + wall[size_t(row + s) * columns + x];
        }
        __syncthreads();
    }
    if (inside && lane >= steps && lane < BLOCK - steps) to[x] = best[steps % 2][lane];
}

int main(int argc, char** argv) {
    Arguments arguments(argc, argv);
    int columns = arguments.take("columns", 5000, 1, 100'000'000);
    int rows = arguments.take("rows", 50, 2, 100'000), height = arguments.take("height", 20, 1, BLOCK / 2 - 1);
    arguments.end();
    Random random(11);
    std::vector<int> wall(size_t(rows) * columns);
    for (int& w : wall) w = random.below(10);
    std::vector<int> first(wall.begin(), wall.begin() + columns);
    DeviceArray<int> dwall(wall), a(first), b(columns);
    int *from = a, *to = b;
    for (int row = 1; row < rows; row += height) {
        int steps = std::min(height, rows - row), inner = BLOCK - 2 * steps;
        descend<<<(columns + inner - 1) / inner, BLOCK>>>(dwall, from, to, columns, row, steps);
        CHECK(cudaGetLastError());
        std::swap(from, to);
        arguments.iterated();
    }
    std::vector<int> got = (from == a.data ? a : b).download();
    if (arguments.check) {
        std::vector<int> best = first, after(columns);
        for (int row = 1; row < rows; row++) {
            for (int x = 0; x < columns; x++) {
                int least = std::min(best[x], std::min(best[std::max(x - 1, 0)], best[std::min(x + 1, columns - 1)]));
                after[x] = least + wall[size_t(row) * columns + x];
            }
            best.swap(after);
        }
        for (int x = 0; x < columns; x++)
            REQUIRE(got[x] == best[x], "column %d costs %d instead of %d", x, got[x], best[x]);
    }
    return finished(arguments, "the cheapest way found");
}
