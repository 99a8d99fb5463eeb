// A sparse matrix times a vector: a thread per row, and a warp per row.
#define EXAMPLE "spmv_csr"
#include "common/check.h"

__global__ void by_thread(const int* offsets, const int* columns, const double* values, const double* x, double* y,
                          int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0;
    for (int k = offsets[row]; k < offsets[row + 1]; k++) sum += values[k] * x[columns[k]];
    y[row] = sum;
}

__global__ void by_warp(const int* __restrict__ offsets, const int* __restrict__ columns,
                        const double* __restrict__ values, const double* __restrict__ x, double* y, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    double sum = 0;
    for (int k = offsets[row] + lane; k < offsets[row + 1]; k += 32) sum += values[k] * __ldg(&x[columns[k]]);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (lane == 0) y[row] = sum;
}

int main() {
    const int rows = 5003;
    Random random(11);
    std::vector<int> offsets(1, 0), columns;
    std::vector<double> values, x(rows), expected(rows);
    for (double& v : x) v = random.unit() - 0.5;
    for (int r = 0; r < rows; r++) {
        int entries = random.below(50) == 0 ? 700 : (int)random.below(24);
        for (int k = 0; k < entries; k++) {
            columns.push_back((int)random.below(rows));
            values.push_back(random.unit() - 0.5);
            expected[r] += values.back() * x[columns.back()];
        }
        offsets.push_back((int)columns.size());
    }
    DeviceArray<int> doffsets(offsets), dcolumns(columns);
    DeviceArray<double> dvalues(values), dx(x), dy(rows);
    for (int way = 0; way < 2; way++) {
        CHECK(cudaMemset(dy, 0xff, rows * sizeof(double)));
        if (way == 0)
            by_thread<<<(rows + 255) / 256, 256>>>(doffsets, dcolumns, dvalues, dx, dy, rows);
        else
            by_warp<<<(rows * 32 + 127) / 128, 128>>>(doffsets, dcolumns, dvalues, dx, dy, rows);
        CHECK(cudaGetLastError());
        std::vector<double> y = dy.download();
        for (int r = 0; r < rows; r++)
            REQUIRE(std::fabs(y[r] - expected[r]) < 1e-12, "way %d: row %d is %.17g instead of %.17g", way, r, y[r],
                    expected[r]);
    }
    return ok("%d rows, %zu entries", rows, values.size());
}
