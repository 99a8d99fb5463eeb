// A sparse matrix in compressed rows by a vector, a thread for each row.
#include "pair.h"

#ifdef __CUDACC__
__global__ void product(int rows, const int* starts, const int* columns, const double* values, const double* x, double* y) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0;
    for (int k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * x[columns[k]];
    y[row] = sum;
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-10);
    int rows = int(pair.size(200000));
    Numbers numbers(4);
    std::vector<int> starts{0}, columns;
    for (int row = 0; row < rows; row++) {
        int length = 4 + int(numbers.next() % 25);
        for (int k = 0; k < length; k++) columns.push_back(int(numbers.next() % unsigned(rows)));
        starts.push_back(int(columns.size()));
    }
    auto values = pair.uniform<double>(columns.size(), 1), x = pair.uniform<double>(rows, 2);
    std::vector<double> y(rows);
#ifdef __CUDACC__
    Device<int> ds(starts), dc(columns);
    Device<double> dv(values), dx(x), dy(y);
    pair.time([&] { product<<<blocks(rows, 128), 128>>>(rows, ds, dc, dv, dx, dy); });
    y = dy.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (int row = 0; row < rows; row++) {
            double sum = 0;
            for (int k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * x[columns[k]];
            y[row] = sum;
        }
    });
#endif
    return pair.finish(y);
}
