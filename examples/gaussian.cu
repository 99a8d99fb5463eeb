// Solving linear equations by Gaussian elimination, without pivoting. The pattern is that of Rodinia's Gaussian.
//
// Copies: the matrix, the multipliers (n² floats each) and the right side to the device at the beginning, all three back at the end.
// Launches: two for each column, 2(n − 1) in all; after each the host waits for the device: a round trip a launch.
#define EXAMPLE "gaussian"
#include "common/pattern.h"

constexpr int BLOCK = 256, SIDE = 16;

__global__ void multipliers(float* m, const float* a, int n, int t) {
    int row = t + 1 + blockIdx.x * BLOCK + threadIdx.x;
    if (row < n) m[size_t(row) * n + t] = a[size_t(row) * n + t] / a[size_t(t) * n + t];
}

__global__ void eliminate(const float* m, float* a, float* b, int n, int t) {
    int column = t + blockIdx.x * SIDE + threadIdx.x, row = t + 1 + blockIdx.y * SIDE + threadIdx.y;
    if (row >= n || column >= n) return;
    float multiplier = m[size_t(row) * n + t];
    a[size_t(row) * n + column] -= multiplier * a[size_t(t) * n + column];
    if (column == t) b[row] -= multiplier * b[t];
}

int main(int argc, char** argv) {
    Arguments arguments(argc, argv);
    int n = arguments.take("n", 48, 2, 20'000);
    arguments.end();
    Random random(19);
    std::vector<float> a(size_t(n) * n), b(n), m(a.size());
    for (float& x : a) x = random.unit() - 0.5f;
    // The diagonal dominates, so nothing needs to be exchanged.
    for (int i = 0; i < n; i++) a[size_t(i) * n + i] += n, b[i] = random.unit();
    DeviceArray<float> dm(m), da(a), db(b);
    for (int t = 0; t < n - 1; t++) {
        int left = n - t;
        multipliers<<<(left + BLOCK - 1) / BLOCK, BLOCK>>>(dm, da, n, t);
        CHECK(cudaDeviceSynchronize());
        eliminate<<<dim3((left + SIDE - 1) / SIDE, (left + SIDE - 1) / SIDE), dim3(SIDE, SIDE)>>>(dm, da, db, n, t);
        CHECK(cudaDeviceSynchronize());
        arguments.iterated();
    }
    m = dm.download();
    std::vector<float> upper = da.download(), x = db.download();
    for (int row = n - 1; row >= 0; row--) {
        for (int column = row + 1; column < n; column++) x[row] -= upper[size_t(row) * n + column] * x[column];
        x[row] /= upper[size_t(row) * n + row];
    }
    if (arguments.check)
        for (int row = 0; row < n; row++) {
            double sum = 0;
            for (int column = 0; column < n; column++) sum += double(a[size_t(row) * n + column]) * x[column];
            REQUIRE(agree(sum, b[row], 1e-4), "equation %d gives %.9g instead of %.9g", row, sum, b[row]);
        }
    return finished(arguments, "linear equations solved");
}
