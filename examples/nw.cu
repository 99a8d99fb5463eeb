// The best global alignment of two sequences. The pattern is that of Rodinia's Needleman–Wunsch.
//
// Copies: two tables of (n+1)² integers to the device (what a match of each pair is worth, and the scores with their first row
// and column), the scores back at the end.
// Launches: one for each anti-diagonal of tiles, 2n/16 − 1 in all. Nothing is copied and nothing waited for between them.
#define EXAMPLE "nw"
#include "common/pattern.h"

constexpr int TILE = 16;

__global__ void align(const int* worth, int* score, int n, int penalty, int diagonal, int first) {
    __shared__ int cell[TILE + 1][TILE + 1];
    int bx = first + blockIdx.x, by = diagonal - bx, lane = threadIdx.x, pitch = n + 1;
    size_t corner = size_t(by) * TILE * pitch + bx * TILE;
    cell[0][lane + 1] = score[corner + lane + 1];
    cell[lane + 1][0] = score[corner + size_t(lane + 1) * pitch];
    if (lane == 0) cell[0][0] = score[corner];
    __syncthreads();
    for (int d = 0; d < 2 * TILE - 1; d++) {
        int x = lane, y = d - lane;
        if (y >= 0 && y < TILE) {
            int both = cell[y][x] + worth[corner + size_t(y + 1) * pitch + x + 1];
            cell[y + 1][x + 1] = max(both, max(cell[y][x + 1], cell[y + 1][x]) - penalty);
        }
        __syncthreads();
    }
    for (int y = 1; y <= TILE; y++) score[corner + size_t(y) * pitch + lane + 1] = cell[y][lane + 1];
}

int main(int argc, char** argv) {
    Arguments arguments(argc, argv);
    int n = arguments.take("n", 320, TILE, 46'000), penalty = arguments.take("penalty", 10, 0, 1000);
    arguments.end();
    REQUIRE(n % TILE == 0, "n is a multiple of %d, not %d", TILE, n);
    const size_t pitch = n + 1;
    Random random(7);
    std::vector<int> worth(pitch * pitch), score(pitch * pitch);
    for (int& w : worth) w = int(random.below(21)) - 10;
    for (int i = 0; i <= n; i++) score[i] = score[i * pitch] = -i * penalty;
    DeviceArray<int> dworth(worth), dscore(score);
    int tiles = n / TILE;
    for (int d = 0; d < 2 * tiles - 1; d++) {
        int first = std::max(0, d - tiles + 1), last = std::min(d, tiles - 1);
        align<<<last - first + 1, TILE>>>(dworth, dscore, n, penalty, d, first);
        CHECK(cudaGetLastError());
        arguments.iterated();
    }
    std::vector<int> got = dscore.download();
    if (arguments.check)
        for (int y = 1; y <= n; y++)
            for (int x = 1; x <= n; x++) {
                size_t at = y * pitch + x;
                int both = score[at - pitch - 1] + worth[at];
                score[at] = std::max(both, std::max(score[at - pitch], score[at - 1]) - penalty);
                REQUIRE(got[at] == score[at], "score %d,%d is %d instead of %d", x, y, got[at], score[at]);
            }
    return finished(arguments, "two sequences aligned");
}
