// Sparse systems of equations as programs solve them: by a direct solver, by a preconditioned conjugate gradient method whose incomplete
// factors are solved with as triangles, sums and products of sparse matrices, and least squares.
// rgpu-nvcc: -ldl
// rgpu-cuda12: for one of the ways in which tests run it
#define EXAMPLE "sparse_systems"
#include "common/check.h"

#include "library_calls.h"

enum { F64 = 1, I32 = 2, SIDE = 9, N = SIDE * SIDE };

// A matrix by rows, here and on the device.
struct Rows {
    std::vector<int> offsets{0}, columns;
    std::vector<double> values;
    int *on_offsets = nullptr, *on_columns = nullptr;
    double* on_values = nullptr;

    void end_row() { offsets.push_back((int)columns.size()); }

    void add(int column, double value) {
        columns.push_back(column);
        values.push_back(value);
    }

    void put() {
        size_t count = values.size();
        CHECK(cudaMalloc(&on_offsets, offsets.size() * sizeof(int)));
        CHECK(cudaMalloc(&on_columns, count * sizeof(int)));
        CHECK(cudaMalloc(&on_values, count * sizeof(double)));
        CHECK(cudaMemcpy(on_offsets, offsets.data(), offsets.size() * sizeof(int), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(on_columns, columns.data(), count * sizeof(int), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(on_values, values.data(), count * sizeof(double), cudaMemcpyHostToDevice));
    }

    // The matrix with its zeros.
    std::vector<double> dense(int width) const {
        std::vector<double> all((offsets.size() - 1) * width);
        for (size_t i = 0; i + 1 < offsets.size(); i++)
            for (int k = offsets[i]; k < offsets[i + 1]; k++) all[i * width + columns[k]] += values[k];
        return all;
    }

    Object described(int height, int width) {
        Object matrix;
        CALL(cusparseCreateCsr, (Object*, int64_t, int64_t, int64_t, void*, void*, void*, int, int, int, int), &matrix,
             height, width, (int64_t)values.size(), on_offsets, on_columns, on_values, I32, I32, 0, F64);
        return matrix;
    }

    ~Rows() {
        cudaFree(on_offsets);
        cudaFree(on_columns);
        cudaFree(on_values);
    }
};

// The five-point matrix of a square, which is positive definite.
static void five_points(Rows& a) {
    for (int i = 0; i < N; i++) {
        int x = i % SIDE, y = i / SIDE;
        if (y > 0) a.add(i - SIDE, -1);
        if (x > 0) a.add(i - 1, -1);
        a.add(i, 4);
        if (x + 1 < SIDE) a.add(i + 1, -1);
        if (y + 1 < SIDE) a.add(i + SIDE, -1);
        a.end_row();
    }
    a.put();
}

static std::vector<double> times(const Rows& a, const std::vector<double>& x) {
    std::vector<double> y(a.offsets.size() - 1);
    for (size_t i = 0; i < y.size(); i++)
        for (int k = a.offsets[i]; k < a.offsets[i + 1]; k++) y[i] += a.values[k] * x[a.columns[k]];
    return y;
}

static double dot(const std::vector<double>& x, const std::vector<double>& y) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); i++) sum += x[i] * y[i];
    return sum;
}

// The solution by one call of the direct solver, by rotations and by a triangle.
static void direct(Rows& a, const std::vector<double>& wanted, const std::vector<double>& b) {
    Object handle, description;
    CALL(cusolverSpCreate, (Object*), &handle);
    CALL(cusparseCreateMatDescr, (Object*), &description);
    DeviceArray<double> db(b), dx(b);
    std::vector<double> x(N);
    int singular = 77;
    CALL(cusolverSpDcsrlsvqr, (Object, int, int, Object, double*, int*, int*, double*, double, int, double*, int*), handle,
         N, (int)a.values.size(), description, a.on_values, a.on_offsets, a.on_columns, (double*)db, 1e-12, 0,
         (double*)dx, &singular);
    CHECK(cudaMemcpy(x.data(), (double*)dx, N * sizeof(double), cudaMemcpyDeviceToHost));
    REQUIRE(singular == -1, "the matrix is said to be singular in row %d", singular);
    for (int i = 0; i < N; i++) REQUIRE(fabs(x[i] - wanted[i]) < 1e-10, "unknown %d is %g, not %g", i, x[i], wanted[i]);
    CALL(cusolverSpDcsrlsvchol, (Object, int, int, Object, double*, int*, int*, double*, double, int, double*, int*),
         handle, N, (int)a.values.size(), description, a.on_values, a.on_offsets, a.on_columns, (double*)db, 1e-12, 0,
         (double*)dx, &singular);
    CHECK(cudaMemcpy(x.data(), (double*)dx, N * sizeof(double), cudaMemcpyDeviceToHost));
    REQUIRE(singular == -1, "the matrix is said not to be positive in row %d", singular);
    for (int i = 0; i < N; i++) REQUIRE(fabs(x[i] - wanted[i]) < 1e-10, "unknown %d is %g, not %g", i, x[i], wanted[i]);
    CALL(cusparseDestroyMatDescr, (Object), description);
    CALL(cusolverSpDestroy, (Object), handle);
}

// One of the triangles of incomplete factors.
struct Triangle {
    Object matrix, system, from, to;

    void create(Object handle, Rows& factors, int upper, double* x, double* y) {
        double one = 1;
        int unit = !upper;
        size_t bytes = 77;
        matrix = factors.described(N, N);
        CALL(cusparseSpMatSetAttribute, (Object, int, void*, size_t), matrix, 0, &upper, sizeof upper);
        CALL(cusparseSpMatSetAttribute, (Object, int, void*, size_t), matrix, 1, &unit, sizeof unit);
        CALL(cusparseCreateDnVec, (Object*, int64_t, void*, int), &from, N, x, F64);
        CALL(cusparseCreateDnVec, (Object*, int64_t, void*, int), &to, N, y, F64);
        CALL(cusparseSpSV_createDescr, (Object*), &system);
        CALL(cusparseSpSV_bufferSize, (Object, int, void*, Object, Object, Object, int, int, Object, size_t*), handle, 0,
             &one, matrix, from, to, F64, 0, system, &bytes);
        CALL(cusparseSpSV_analysis, (Object, int, void*, Object, Object, Object, int, int, Object, void*), handle, 0, &one,
             matrix, from, to, F64, 0, system, nullptr);
    }

    void solve(Object handle) {
        double one = 1;
        CALL(cusparseSpSV_solve, (Object, int, void*, Object, Object, Object, int, int, Object), handle, 0, &one, matrix,
             from, to, F64, 0, system);
    }

    void destroy() {
        CALL(cusparseSpSV_destroyDescr, (Object), system);
        CALL(cusparseDestroySpMat, (Object), matrix);
        CALL(cusparseDestroyDnVec, (Object), from);
        CALL(cusparseDestroyDnVec, (Object), to);
    }
};

// Conjugate gradients, with incomplete factors for a preconditioner; without it takes more steps.
static int conjugate_gradients(Object handle, Rows& a, const std::vector<double>& wanted, const std::vector<double>& b,
                               bool preconditioned) {
    Rows factors;
    five_points(factors);
    Object description, info;
    int bytes = 0, position = 77;
    void* buffer;
    CALL(cusparseCreateMatDescr, (Object*), &description);
    CALL(cusparseCreateCsrilu02Info, (Object*), &info);
    int count = (int)factors.values.size();
    CALL(cusparseDcsrilu02_bufferSize, (Object, int, int, Object, double*, int*, int*, Object, int*), handle, N, count,
         description, factors.on_values, factors.on_offsets, factors.on_columns, info, &bytes);
    CHECK(cudaMalloc(&buffer, bytes));
    CALL(cusparseDcsrilu02_analysis, (Object, int, int, Object, double*, int*, int*, Object, int, void*), handle, N, count,
         description, factors.on_values, factors.on_offsets, factors.on_columns, info, 1, buffer);
    CALL(cusparseXcsrilu02_zeroPivot, (Object, Object, int*), handle, info, &position);
    REQUIRE(position == -1, "row %d has no diagonal", position);
    CALL(cusparseDcsrilu02, (Object, int, int, Object, double*, int*, int*, Object, int, void*), handle, N, count,
         description, factors.on_values, factors.on_offsets, factors.on_columns, info, 1, buffer);
    CALL(cusparseXcsrilu02_zeroPivot, (Object, Object, int*), handle, info, &position);
    REQUIRE(position == -1, "pivot %d is zero", position);

    std::vector<double> x(N), r = b, z(N), p(N);
    DeviceArray<double> on_r(r), on_half(r), on_z(r);
    Triangle lower, upper;
    lower.create(handle, factors, 0, on_r, on_half);
    upper.create(handle, factors, 1, on_half, on_z);
    double rho = 0;
    int step = 0;
    for (; step < 200 && sqrt(dot(r, r)) > 1e-11; step++) {
        z = r;
        if (preconditioned) {
            CHECK(cudaMemcpy((double*)on_r, r.data(), N * sizeof(double), cudaMemcpyHostToDevice));
            lower.solve(handle);
            upper.solve(handle);
            CHECK(cudaMemcpy(z.data(), (double*)on_z, N * sizeof(double), cudaMemcpyDeviceToHost));
        }
        double next = dot(r, z), beta = step ? next / rho : 0;
        rho = next;
        for (int i = 0; i < N; i++) p[i] = z[i] + beta * p[i];
        std::vector<double> q = times(a, p);
        double alpha = rho / dot(p, q);
        for (int i = 0; i < N; i++) x[i] += alpha * p[i], r[i] -= alpha * q[i];
    }
    for (int i = 0; i < N; i++) REQUIRE(fabs(x[i] - wanted[i]) < 1e-9, "unknown %d is %g, not %g", i, x[i], wanted[i]);
    lower.destroy();
    upper.destroy();
    CALL(cusparseDestroyCsrilu02Info, (Object), info);
    CALL(cusparseDestroyMatDescr, (Object), description);
    CHECK(cudaFree(buffer));
    return step;
}

// A product and a sum, whose numbers of elements nobody knows beforehand.
static void product_and_sum(Object handle, Rows& a) {
    Rows b;
    for (int i = 0; i < N; i++) {
        b.add((i * 7) % N, i + 1);
        b.end_row();
    }
    b.put();
    double one = 1, zero = 0, two = 2;
    Rows c;
    c.offsets.assign(N + 1, 0);
    CHECK(cudaMalloc(&c.on_offsets, (N + 1) * sizeof(int)));
    Object of_a = a.described(N, N), of_b = b.described(N, N), of_c = c.described(N, N), descriptor;
    size_t bytes = 0;
    void* buffer;
    CALL(cusparseSpGEMM_createDescr, (Object*), &descriptor);
    CALL(cusparseSpGEMM_workEstimation,
         (Object, int, int, void*, Object, Object, void*, Object, int, int, Object, size_t*, void*), handle, 0, 0, &one,
         of_a, of_b, &zero, of_c, F64, 0, descriptor, &bytes, nullptr);
    CALL(cusparseSpGEMM_compute,
         (Object, int, int, void*, Object, Object, void*, Object, int, int, Object, size_t*, void*), handle, 0, 0, &one,
         of_a, of_b, &zero, of_c, F64, 0, descriptor, &bytes, nullptr);
    CHECK(cudaMalloc(&buffer, bytes));
    CALL(cusparseSpGEMM_compute,
         (Object, int, int, void*, Object, Object, void*, Object, int, int, Object, size_t*, void*), handle, 0, 0, &one,
         of_a, of_b, &zero, of_c, F64, 0, descriptor, &bytes, buffer);
    int64_t rows, columns, count;
    CALL(cusparseSpMatGetSize, (Object, int64_t*, int64_t*, int64_t*), of_c, &rows, &columns, &count);
    REQUIRE(count == (int64_t)a.values.size(), "the product has %d elements, not %d", (int)count, (int)a.values.size());
    c.columns.resize(count), c.values.resize(count);
    CHECK(cudaMalloc(&c.on_columns, count * sizeof(int)));
    CHECK(cudaMalloc(&c.on_values, count * sizeof(double)));
    CALL(cusparseCsrSetPointers, (Object, void*, void*, void*), of_c, c.on_offsets, c.on_columns, c.on_values);
    CALL(cusparseSpGEMM_copy, (Object, int, int, void*, Object, Object, void*, Object, int, int, Object), handle, 0, 0,
         &one, of_a, of_b, &zero, of_c, F64, 0, descriptor);
    CHECK(cudaMemcpy(c.offsets.data(), c.on_offsets, (N + 1) * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(c.columns.data(), c.on_columns, count * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(c.values.data(), c.on_values, count * sizeof(double), cudaMemcpyDeviceToHost));
    std::vector<double> left = a.dense(N), right = b.dense(N), got = c.dense(N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++) sum += left[i * N + k] * right[k * N + j];
            REQUIRE(got[i * N + j] == sum, "element %d, %d is %g, not %g", i, j, got[i * N + j], sum);
        }

    // 2 A + C, in C's place for offsets.
    Object description;
    int stored = 0;
    CALL(cusparseCreateMatDescr, (Object*), &description);
    Rows d;
    d.offsets.assign(N + 1, 0);
    CHECK(cudaMalloc(&d.on_offsets, (N + 1) * sizeof(int)));
    CALL(cusparseXcsrgeam2Nnz, (Object, int, int, Object, int, int*, int*, Object, int, int*, int*, Object, int*, int*, void*),
         handle, N, N, description, (int)a.values.size(), a.on_offsets, a.on_columns, description, (int)count,
         c.on_offsets, c.on_columns, description, d.on_offsets, &stored, nullptr);
    d.columns.resize(stored), d.values.resize(stored);
    CHECK(cudaMalloc(&d.on_columns, stored * sizeof(int)));
    CHECK(cudaMalloc(&d.on_values, stored * sizeof(double)));
    CALL(cusparseDcsrgeam2,
         (Object, int, int, double*, Object, int, double*, int*, int*, double*, Object, int, double*, int*, int*, Object,
          double*, int*, int*, void*),
         handle, N, N, &two, description, (int)a.values.size(), a.on_values, a.on_offsets, a.on_columns, &one,
         description, (int)count, c.on_values, c.on_offsets, c.on_columns, description, d.on_values, d.on_offsets,
         d.on_columns, nullptr);
    CHECK(cudaMemcpy(d.offsets.data(), d.on_offsets, (N + 1) * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(d.columns.data(), d.on_columns, stored * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(d.values.data(), d.on_values, stored * sizeof(double), cudaMemcpyDeviceToHost));
    std::vector<double> all = d.dense(N);
    for (int i = 0; i < N * N; i++)
        REQUIRE(all[i] == 2 * left[i] + got[i], "element %d of the sum is %g, not %g", i, all[i], 2 * left[i] + got[i]);
    CALL(cusparseDestroyMatDescr, (Object), description);
    CALL(cusparseSpGEMM_destroyDescr, (Object), descriptor);
    for (Object matrix : {of_a, of_b, of_c}) CALL(cusparseDestroySpMat, (Object), matrix);
    CHECK(cudaFree(buffer));
}

// More equations than unknowns, which have a solution, and a square system; neither destroys its matrix.
static void least_squares() {
    enum { ROWS = 12, COLUMNS = 5, RIGHT = 2 };
    Object handle;
    CALL(cusolverDnCreate, (Object*), &handle);
    Random random(5);
    for (int rows : {(int)ROWS, (int)COLUMNS}) {
        std::vector<double> a(rows * COLUMNS), wanted(COLUMNS * RIGHT), b(rows * RIGHT), x(COLUMNS * RIGHT);
        for (auto& value : a) value = random.unit();
        for (int i = 0; i < COLUMNS; i++) a[i * rows + i] += 3;
        for (auto& value : wanted) value = random.unit();
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < RIGHT; j++)
                for (int k = 0; k < COLUMNS; k++) b[j * rows + i] += a[k * rows + i] * wanted[j * COLUMNS + k];
        DeviceArray<double> on_a(a), on_b(b), on_x(x);
        std::vector<int> numbers(COLUMNS + 1);
        DeviceArray<int> on_numbers(numbers);
        int *pivots = on_numbers, *info = pivots + COLUMNS, iterations = 77;
        size_t bytes = 0;
        void* work;
        if (rows == COLUMNS) {
            CALL(cusolverDnDSgesv_bufferSize,
                 (Object, int, int, double*, int, int*, double*, int, double*, int, void*, size_t*), handle, rows, RIGHT,
                 on_a, rows, pivots, on_b, rows, on_x, COLUMNS, nullptr, &bytes);
            CHECK(cudaMalloc(&work, bytes));
            CALL(cusolverDnDSgesv, (Object, int, int, double*, int, int*, double*, int, double*, int, void*, size_t, int*, int*),
                 handle, rows, RIGHT, on_a, rows, pivots, on_b, rows, on_x, COLUMNS, work, bytes, &iterations, info);
        } else {
            CALL(cusolverDnDDgels_bufferSize,
                 (Object, int, int, int, double*, int, double*, int, double*, int, void*, size_t*), handle, rows, COLUMNS,
                 RIGHT, on_a, rows, on_b, rows, on_x, COLUMNS, nullptr, &bytes);
            CHECK(cudaMalloc(&work, bytes));
            CALL(cusolverDnDDgels, (Object, int, int, int, double*, int, double*, int, double*, int, void*, size_t, int*, int*),
                 handle, rows, COLUMNS, RIGHT, on_a, rows, on_b, rows, on_x, COLUMNS, work, bytes, &iterations, info);
        }
        REQUIRE(iterations == 0, "%d iterations", iterations);
        std::vector<double> left(a.size());
        CHECK(cudaMemcpy(x.data(), (double*)on_x, x.size() * sizeof(double), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(left.data(), (double*)on_a, a.size() * sizeof(double), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < x.size(); i++)
            REQUIRE(fabs(x[i] - wanted[i]) < 1e-12, "unknown %d of %d equations is %g, not %g", (int)i, rows, x[i], wanted[i]);
        REQUIRE(left == a, "the matrix of %d equations has changed", rows);
        CHECK(cudaFree(work));
    }
    CALL(cusolverDnDestroy, (Object), handle);
}

// Two of three singular values of two matrices.
static void singular_values() {
    Object handle;
    CALL(cusolverDnCreate, (Object*), &handle);
    enum { ROWS = 4, COLUMNS = 3, RANK = 2, COUNT = 2 };
    Values a = random_values(ROWS * COLUMNS * COUNT, 4);
    List<double> on_a(a), s{Values(RANK * COUNT)}, u{Values(ROWS * RANK * COUNT)}, v{Values(COLUMNS * RANK * COUNT)};
    List<int> info({7, 7});
    int size = 0;
    double residuals[COUNT] = {-1, -1};
    CALL(cusolverDnDgesvdaStridedBatched_bufferSize,
         (Object, int, int, int, int, double*, int, long long, double*, long long, double*, int, long long, double*, int, long long, int*,
          int),
         handle, 1, RANK, ROWS, COLUMNS, on_a.data, ROWS, ROWS * COLUMNS, s.data, RANK, u.data, ROWS, ROWS * RANK, v.data, COLUMNS,
         COLUMNS * RANK, &size, COUNT);
    List<double> work{Values(size)};
    CALL(cusolverDnDgesvdaStridedBatched,
         (Object, int, int, int, int, double*, int, long long, double*, long long, double*, int, long long, double*, int, long long,
          double*, int, int*, double*, int),
         handle, 1, RANK, ROWS, COLUMNS, on_a.data, ROWS, ROWS * COLUMNS, s.data, RANK, u.data, ROWS, ROWS * RANK, v.data, COLUMNS,
         COLUMNS * RANK, work.data, size, info.data, residuals, COUNT);
    Values on_s = s.get(), on_u = u.get(), on_v = v.get();
    for (int p = 0; p < COUNT; p++) {
        double all = 0, some = 0;
        for (int i = 0; i < ROWS * COLUMNS; i++) all += a[p * ROWS * COLUMNS + i] * a[p * ROWS * COLUMNS + i];
        for (int k = 0; k < RANK; k++) {
            double value = on_s[p * RANK + k];
            some += value * value;
            for (int i = 0; i < ROWS; i++) {
                double sum = 0;
                for (int j = 0; j < COLUMNS; j++)
                    sum += a[p * ROWS * COLUMNS + i + j * ROWS] * on_v[p * COLUMNS * RANK + j + k * COLUMNS];
                double wanted = value * on_u[p * ROWS * RANK + i + k * ROWS];
                REQUIRE(fabs(sum - wanted) < 1e-9, "A v is %g, not %g", sum, wanted);
            }
        }
        // What is missing is the least singular value.
        REQUIRE(fabs(residuals[p] * residuals[p] - (all - some)) < 1e-9, "a residual of %g", residuals[p]);
    }
    CALL(cusolverDnDestroy, (Object), handle);
}
// A matrix of blocks of two rows: a product, its incomplete factors, which are all of its factors because no block is missing, and a solution with
// them; and a system with three diagonals.
static void blocks_and_bands(Object handle) {
    enum { BLOCKS = 2, SIZE = 2, ROWS = BLOCKS * SIZE, BY_COLUMN = 1 };
    Values a = random_values(ROWS * ROWS, 5), x = random_values(ROWS, 6), b(ROWS), stored;
    for (int i = 0; i < ROWS; i++) a[i * ROWS + i] += 4;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < ROWS; j++) b[i] += a[i * ROWS + j] * x[j];
    for (int block = 0; block < BLOCKS * BLOCKS; block++)
        for (int k = 0; k < SIZE * SIZE; k++)
            stored.push_back(a[(block / BLOCKS * SIZE + k % SIZE) * ROWS + block % BLOCKS * SIZE + k / SIZE]);
    List<double> values(stored), on_x(x), on_y{Values(ROWS)};
    List<int> offsets({0, 2, 4}), indices({0, 1, 0, 1});
    Object described, factors, lower, upper;
    CALL(cusparseCreateMatDescr, (Object*), &described);
    double one = 1, zero = 0;
    CALL(cusparseDbsrmv,
         (Object, int, int, int, int, int, const double*, Object, double*, int*, int*, int, double*, const double*, double*), handle,
         BY_COLUMN, 0, BLOCKS, BLOCKS, BLOCKS * BLOCKS, &one, described, values.data, offsets.data, indices.data, SIZE, on_x.data, &zero,
         on_y.data);
    Values got = on_y.get();
    for (int i = 0; i < ROWS; i++) REQUIRE(fabs(got[i] - b[i]) < 1e-12, "row %d is %g, not %g", i, got[i], b[i]);
    int bytes = 0, position = 7;
    CALL(cusparseCreateBsrilu02Info, (Object*), &factors);
    CALL(cusparseDbsrilu02_bufferSize, (Object, int, int, int, Object, double*, int*, int*, int, Object, int*), handle, BY_COLUMN, BLOCKS,
         BLOCKS * BLOCKS, described, values.data, offsets.data, indices.data, SIZE, factors, &bytes);
    List<char> buffer{std::vector<char>(bytes)};
    CALL(cusparseDbsrilu02_analysis, (Object, int, int, int, Object, double*, int*, int*, int, Object, int, void*), handle, BY_COLUMN, BLOCKS,
         BLOCKS * BLOCKS, described, values.data, offsets.data, indices.data, SIZE, factors, 0, buffer.data);
    CALL(cusparseDbsrilu02, (Object, int, int, int, Object, double*, int*, int*, int, Object, int, void*), handle, BY_COLUMN, BLOCKS,
         BLOCKS * BLOCKS, described, values.data, offsets.data, indices.data, SIZE, factors, 0, buffer.data);
    CALL(cusparseXbsrilu02_zeroPivot, (Object, Object, int*), handle, factors, &position);
    REQUIRE(position == -1, "pivot %d is zero", position);
    // L with ones on its diagonal, then U.
    List<double> on_z{Values(ROWS)};
    for (bool is_upper : {false, true}) {
        Object& info = is_upper ? upper : lower;
        double *from = is_upper ? on_z.data : on_y.data, *to = is_upper ? on_x.data : on_z.data;
        CALL(cusparseSetMatFillMode, (Object, int), described, (int)is_upper);
        CALL(cusparseSetMatDiagType, (Object, int), described, is_upper ? 0 : 1);
        CALL(cusparseCreateBsrsv2Info, (Object*), &info);
        CALL(cusparseDbsrsv2_bufferSize, (Object, int, int, int, int, Object, double*, int*, int*, int, Object, int*), handle, BY_COLUMN, 0,
             BLOCKS, BLOCKS * BLOCKS, described, values.data, offsets.data, indices.data, SIZE, info, &bytes);
        List<char> room{std::vector<char>(bytes)};
        CALL(cusparseDbsrsv2_analysis, (Object, int, int, int, int, Object, double*, int*, int*, int, Object, int, void*), handle, BY_COLUMN, 0,
             BLOCKS, BLOCKS * BLOCKS, described, values.data, offsets.data, indices.data, SIZE, info, 0, room.data);
        CALL(cusparseDbsrsv2_solve,
             (Object, int, int, int, int, const double*, Object, double*, int*, int*, int, Object, double*, double*, int, void*), handle,
             BY_COLUMN, 0, BLOCKS, BLOCKS * BLOCKS, &one, described, values.data, offsets.data, indices.data, SIZE, info, from, to, 0,
             room.data);
        CALL(cusparseXbsrsv2_zeroPivot, (Object, Object, int*), handle, info, &position);
        REQUIRE(position == -1, "pivot %d of a triangle is zero", position);
        CALL(cusparseDestroyBsrsv2Info, (Object), info);
    }
    got = on_x.get();
    for (int i = 0; i < ROWS; i++) REQUIRE(fabs(got[i] - x[i]) < 1e-12, "unknown %d is %g, not %g", i, got[i], x[i]);
    CALL(cusparseDestroyBsrilu02Info, (Object), factors);
    CALL(cusparseDestroyMatDescr, (Object), described);

    // -x(i-1) + 3 x(i) - x(i+1), for two right sides that are five apart.
    List<double> beside({-1, -1, -1, -1}), main_({3, 3, 3, 3}), right({2, 2, 2, 11, 0, 4, 2, 2, 4, 0});
    size_t room = 7;
    CALL(cusparseDgtsv2_bufferSizeExt, (Object, int, int, double*, double*, double*, double*, int, size_t*), handle, ROWS, 2, beside.data,
         main_.data, beside.data, right.data, 5, &room);
    // Its size can be asked for without any of that.
    CALL(cusparseDgtsv2_bufferSizeExt, (Object, int, int, double*, double*, double*, double*, int, size_t*), handle, ROWS, 2, nullptr,
         nullptr, nullptr, nullptr, 5, &room);
    CALL(cusparseDgtsv2, (Object, int, int, double*, double*, double*, double*, int, void*), handle, ROWS, 2, beside.data, main_.data,
         beside.data, right.data, 5, nullptr);
    Values solved = right.get();
    for (int column = 0; column < 2; column++)
        for (int i = 0; i < ROWS; i++) {
            const double* z = &solved[column * 5];
            double sum = 3 * z[i] - (i > 0 ? z[i - 1] : 0) - (i + 1 < ROWS ? z[i + 1] : 0);
            double wanted = column == 0 ? (i == 3 ? 11 : 2) : (i == 0 || i == 3 ? 4 : 2);
            REQUIRE(fabs(sum - wanted) < 1e-12, "equation %d of %d gives %g, not %g", i, column, sum, wanted);
        }
    // How many elements of each column of the matrix of blocks are not zero.
    List<double> dense({1, 0, 2, 0, 0, 3});
    List<int> counts({7, 7, 7});
    int total = 0;
    CALL(cusparseCreateMatDescr, (Object*), &described);
    CALL(cusparseDnnz, (Object, int, int, int, Object, double*, int, int*, int*), handle, 1, 2, 3, described, dense.data, 2, counts.data,
         &total);
    REQUIRE(total == 3 && counts.get() == std::vector<int>({1, 1, 1}), "%d elements are not zero", total);
    CALL(cusparseDestroyMatDescr, (Object), described);
}

int main() {
    Rows a;
    five_points(a);
    std::vector<double> wanted(N);
    Random random(4);
    for (auto& value : wanted) value = random.unit();
    std::vector<double> b = times(a, wanted);
    Object handle;
    CALL(cusparseCreate, (Object*), &handle);
    direct(a, wanted, b);
    int plain = conjugate_gradients(handle, a, wanted, b, false), better = conjugate_gradients(handle, a, wanted, b, true);
    REQUIRE(better < plain, "%d steps with a preconditioner, %d without", better, plain);
    product_and_sum(handle, a);
    blocks_and_bands(handle);
    CALL(cusparseDestroy, (Object), handle);
    least_squares();
    singular_values();
    return ok("direct and iterative solutions, products and sums of sparse matrices, blocks, bands, least squares, singular values");
}
