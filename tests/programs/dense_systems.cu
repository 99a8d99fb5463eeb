// Symmetric systems that are not definite, eigenvalues of matrices that are not symmetric, and least squares without a solution, by the
// functions' names and types alone.
// rgpu-nvcc: -ldl
// rgpu-cuda12: for one of the ways in which tests run it
#define EXAMPLE "dense_systems"
#include "common/check.h"

#include <complex>

#include "library_calls.h"

static Object handle;

enum { F64 = 1, C64 = 5, N = 5 };

// A x = b with a symmetric A whose diagonal is zero.
static void symmetric() {
    Values a(N * N), x = random_values(N, 2), b(N);
    Values below = random_values(N * N, 1);
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++) a[i + j * N] = i == j ? 0 : below[std::max(i, j) + std::min(i, j) * N];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) b[i] += a[i + j * N] * x[j];
    for (int fill : {0, 1}) {
        List<double> on_a(a), on_b(b);
        List<int> pivots{std::vector<int>(N)}, info({7});
        int size = 0;
        CALL(cusolverDnDsytrf_bufferSize, (Object, int, double*, int, int*), handle, N, on_a.data, N, &size);
        List<double> work{Values(size)};
        CALL(cusolverDnDsytrf, (Object, int, int, double*, int, int*, double*, int, int*), handle, fill, N, on_a.data, N,
             pivots.data, work.data, size, info.data);
        REQUIRE(info.get()[0] == 0, "info is %d", info.get()[0]);
        std::vector<int64_t> wide;
        for (int pivot : pivots.get()) wide.push_back(pivot);
        List<int64_t> on_wide(wide);
        size_t device = 0, host = 0;
        CALL(cusolverDnXsytrs_bufferSize,
             (Object, int, int64_t, int64_t, int, void*, int64_t, int64_t*, int, void*, int64_t, size_t*, size_t*), handle, fill, N,
             1, F64, on_a.data, N, on_wide.data, F64, on_b.data, N, &device, &host);
        List<char> room{std::vector<char>(device)};
        CALL(cusolverDnXsytrs,
             (Object, int, int64_t, int64_t, int, void*, int64_t, int64_t*, int, void*, int64_t, void*, size_t, void*, size_t, int*),
             handle, fill, N, 1, F64, on_a.data, N, on_wide.data, F64, on_b.data, N, room.data, device, nullptr, host, info.data);
        Values got = on_b.get();
        for (int i = 0; i < N; i++) REQUIRE(fabs(got[i] - x[i]) < 1e-9, "unknown %d is %g, not %g", i, got[i], x[i]);
    }
}

// A v = w v.
static void eigenvalues() {
    Values a = random_values(N * N, 3);
    List<double> on_a(a), vectors{Values(N * N)};
    List<std::complex<double>> values{std::vector<std::complex<double>>(N)};
    List<int> info({7});
    Object parameters;
    CALL(cusolverDnCreateParams, (Object*), &parameters);
    size_t device = 0, host = 0;
    CALL(cusolverDnXgeev_bufferSize,
         (Object, Object, int, int, int64_t, int, void*, int64_t, int, void*, int, void*, int64_t, int, void*, int64_t, int, size_t*,
          size_t*),
         handle, parameters, 0, 1, N, F64, on_a.data, N, C64, values.data, F64, nullptr, 1, F64, vectors.data, N, F64, &device, &host);
    List<char> room{std::vector<char>(device)};
    CALL(cusolverDnXgeev,
         (Object, Object, int, int, int64_t, int, void*, int64_t, int, void*, int, void*, int64_t, int, void*, int64_t, int, void*,
          size_t, void*, size_t, int*),
         handle, parameters, 0, 1, N, F64, on_a.data, N, C64, values.data, F64, nullptr, 1, F64, vectors.data, N, F64, room.data,
         device, nullptr, host, info.data);
    REQUIRE(info.get()[0] == 0, "info is %d", info.get()[0]);
    auto w = values.get();
    Values v = vectors.get();
    for (int k = 0; k < N; k++) {
        std::complex<double> value = w[k];
        for (int i = 0; i < N; i++) {
            // A pair's vectors are the real and the imaginary part of the first one.
            auto of = [&](int row) -> std::complex<double> {
                if (value.imag() == 0) return v[row + k * N];
                int first = value.imag() > 0 ? k : k - 1;
                std::complex<double> both(v[row + first * N], v[row + (first + 1) * N]);
                return value.imag() > 0 ? both : std::conj(both);
            };
            std::complex<double> sum = 0;
            for (int j = 0; j < N; j++) sum += a[i + j * N] * of(j);
            REQUIRE(std::abs(sum - value * of(i)) < 1e-9, "row %d of vector %d is off by %g", i, k, std::abs(sum - value * of(i)));
        }
    }
    CALL(cusolverDnDestroyParams, (Object), parameters);
}

// Least squares whose matrix's columns depend on each other have no solution, and say so.
static void dependent_columns() {
    enum { ROWS = 3, COLUMNS = 2 };
    List<double> a({3, 4, 0, 3, 4, 0}), b({1, 1, 1}), x({7, 7});
    List<int> info({7});
    size_t bytes = 0;
    int iterations = 7;
    CALL(cusolverDnDDgels_bufferSize, (Object, int, int, int, double*, int, double*, int, double*, int, void*, size_t*), handle, ROWS,
         COLUMNS, 1, a.data, ROWS, b.data, ROWS, x.data, COLUMNS, nullptr, &bytes);
    List<char> work{std::vector<char>(bytes)};
    CALL(cusolverDnDDgels, (Object, int, int, int, double*, int, double*, int, double*, int, void*, size_t, int*, int*), handle, ROWS,
         COLUMNS, 1, a.data, ROWS, b.data, ROWS, x.data, COLUMNS, work.data, bytes, &iterations, info.data);
    REQUIRE(info.get()[0] == 2, "info is %d", info.get()[0]);
    for (double value : x.get()) REQUIRE(value == 7, "there is a solution %g", value);
}

int main() {
    CALL(cusolverDnCreate, (Object*), &handle);
    symmetric();
    eigenvalues();
    dependent_columns();
    CALL(cusolverDnDestroy, (Object), handle);
    return ok("symmetric systems, eigenvalues and least squares");
}
