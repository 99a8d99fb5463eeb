// cuFFT, cuRAND, cuSOLVER and cuSPARSE as programs use them, by their functions' names and types alone: a transform and a random
// stretch that are captured in a graph, factorisations whose results solve a system, products with a sparse matrix.
// rgpu-nvcc: -ldl
// rgpu-cuda12: for one of the ways in which tests run it
#define EXAMPLE "mathematics"
#include "common/check.h"

#include <complex>

#include "library_calls.h"

enum { C2C = 0x29, R2C = 0x2a, XORWOW = 101, PHILOX = 161, F32 = 0, F64 = 1, N = 24 };

// A transform there and back with random numbers in between, captured and launched three times.
static void transforms() {
    enum { LENGTH = 120, BATCH = 3 };
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    int plan = 0;
    CALL(cufftPlan1d, (int*, int, int, int), &plan, LENGTH, C2C, BATCH);
    CALL(cufftSetStream, (int, cudaStream_t), plan, stream);
    Object generator;
    CALL(curandCreateGenerator, (Object*, int), &generator, PHILOX);
    CALL(curandSetPseudoRandomGeneratorSeed, (Object, unsigned long long), generator, 0);
    CALL(curandSetStream, (Object, cudaStream_t), generator, stream);
    // Otherwise the first numbers are where NVIDIA's own allocates, which cannot be captured.
    CALL(curandGenerateSeeds, (Object), generator);

    std::vector<std::complex<float>> values(LENGTH * BATCH);
    Random random(1);
    for (auto& value : values) value = {random.unit(), random.unit()};
    std::complex<float>*data, *spectrum;
    unsigned* words;
    size_t bytes = values.size() * sizeof values[0];
    CHECK(cudaMalloc(&data, bytes));
    CHECK(cudaMalloc(&spectrum, bytes));
    CHECK(cudaMalloc(&words, 16 * sizeof *words));
    CHECK(cudaMemcpy(data, values.data(), bytes, cudaMemcpyHostToDevice));

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CALL(cufftExecC2C, (int, void*, void*, int), plan, data, spectrum, -1);
    CALL(cufftExecC2C, (int, void*, void*, int), plan, spectrum, data, 1);
    CALL(curandGenerate, (Object, unsigned*, size_t), generator, words, 16);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));

    std::vector<std::complex<float>> back(values.size()), spectra(values.size());
    CHECK(cudaMemcpy(back.data(), data, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(spectra.data(), spectrum, bytes, cudaMemcpyDeviceToHost));
    // Each time there and back multiplies by the number of values.
    double scale = pow((double)LENGTH, 3);
    for (size_t i = 0; i < values.size(); i++)
        REQUIRE(std::abs(back[i] / (float)scale - values[i]) < 1e-4, "value %zu did not come back", i);
    for (int b = 0; b < BATCH; b++)
        for (int k = 0; k < LENGTH; k += 7) {
            std::complex<double> sum = 0;
            for (int x = 0; x < LENGTH; x++)
                sum += std::complex<double>(values[b * LENGTH + x]) * std::polar(1.0, -2 * M_PI * k * x / LENGTH);
            std::complex<double> got = spectra[b * LENGTH + k];
            REQUIRE(std::abs(got / (double)(LENGTH * LENGTH) - sum) < 1e-3, "frequency %d of %d is wrong", k, b);
        }
    // What the algorithm's authors publish for a key and a counter of zeros. (What the graph gives depends on where its launches go on.)
    CALL(curandSetGeneratorOffset, (Object, unsigned long long), generator, 0);
    CALL(curandGenerate, (Object, unsigned*, size_t), generator, words, 16);
    CHECK(cudaStreamSynchronize(stream));
    unsigned first[4], wanted[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    CHECK(cudaMemcpy(first, words, sizeof first, cudaMemcpyDeviceToHost));
    REQUIRE(!memcmp(first, wanted, sizeof first), "the first words of Philox are %x %x", first[0], first[1]);
    CALL(curandDestroyGenerator, (Object), generator);
    CALL(cufftDestroy, (int), plan);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(data));
    CHECK(cudaFree(spectrum));
    CHECK(cudaFree(words));
}

// Normal numbers of the device and of the host are the same but for how they are rounded, and have the mean and deviation that were asked for.
static void normals() {
    enum { COUNT = 100000 };
    Object device, host;
    CALL(curandCreateGenerator, (Object*, int), &device, XORWOW);
    CALL(curandCreateGeneratorHost, (Object*, int), &host, XORWOW);
    std::vector<double> here(COUNT), there(COUNT);
    DeviceArray<double> out(there);
    double* at = out;
    CALL(curandGenerateNormalDouble, (Object, double*, size_t, double, double), device, at, COUNT, 5, 2);
    CALL(curandGenerateNormalDouble, (Object, double*, size_t, double, double), host, here.data(), COUNT, 5, 2);
    CHECK(cudaMemcpy(there.data(), at, COUNT * sizeof(double), cudaMemcpyDeviceToHost));
    double sum = 0, squares = 0;
    for (int i = 0; i < COUNT; i++) {
        REQUIRE(fabs(here[i] - there[i]) < 1e-9, "number %d is %g here and %g there", i, here[i], there[i]);
        sum += here[i];
        squares += (here[i] - 5) * (here[i] - 5);
    }
    REQUIRE(fabs(sum / COUNT - 5) < 0.05 && fabs(squares / COUNT - 4) < 0.1, "mean %g", sum / COUNT);
    CALL(curandDestroyGenerator, (Object), device);
    CALL(curandDestroyGenerator, (Object), host);
}

// Solves a symmetric positive definite system in two ways, and finds the matrix's eigenvalues.
static void systems() {
    Object handle, parameters;
    CALL(cusolverDnCreate, (Object*), &handle);
    CALL(cusolverDnCreateParams, (Object*), &parameters);
    std::vector<double> a(N * N), right(N);
    Random random(2);
    for (int i = 0; i < N; i++) {
        right[i] = random.unit();
        for (int j = 0; j <= i; j++) a[i * N + j] = a[j * N + i] = random.unit() + (i == j ? N : 0);
    }
    int work = 0, status = -1;
    double *factor, *b, *values, *buffer;
    int *info;
    long long* pivots;
    size_t on_device = 0, on_host = 0;
    CHECK(cudaMalloc(&factor, N * N * sizeof *factor));
    CHECK(cudaMalloc(&b, N * sizeof *b));
    CHECK(cudaMalloc(&values, N * sizeof *values));
    CHECK(cudaMalloc(&info, sizeof *info));
    CHECK(cudaMalloc(&pivots, N * sizeof *pivots));
    std::vector<double> found(N);
    for (int way = 0; way < 2; way++) {
        CHECK(cudaMemcpy(factor, a.data(), N * N * sizeof(double), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(b, right.data(), N * sizeof(double), cudaMemcpyHostToDevice));
        if (way == 0) {
            CALL(cusolverDnDpotrf_bufferSize, (Object, int, int, double*, int, int*), handle, 0, N, factor, N, &work);
            CHECK(cudaMalloc(&buffer, work * sizeof *buffer));
            CALL(cusolverDnDpotrf, (Object, int, int, double*, int, double*, int, int*), handle, 0, N, factor, N,
                 buffer, work, info);
            CALL(cusolverDnDpotrs, (Object, int, int, int, double*, int, double*, int, int*), handle, 0, N, 1,
                 factor, N, b, N, info);
        } else {
            CALL(cusolverDnXgetrf_bufferSize,
                 (Object, Object, int64_t, int64_t, int, void*, int64_t, int, size_t*, size_t*), handle, parameters,
                 N, N, F64, factor, N, F64, &on_device, &on_host);
            CHECK(cudaMalloc(&buffer, on_device));
            CALL(cusolverDnXgetrf,
                 (Object, Object, int64_t, int64_t, int, void*, int64_t, long long*, int, void*, size_t, void*,
                  size_t, int*),
                 handle, parameters, N, N, F64, factor, N, pivots, F64, buffer, on_device, nullptr, on_host, info);
            CALL(cusolverDnXgetrs,
                 (Object, Object, int, int64_t, int64_t, int, void*, int64_t, long long*, int, void*, int64_t, int*),
                 handle, parameters, 0, N, 1, F64, factor, N, pivots, F64, b, N, info);
        }
        CHECK(cudaFree(buffer));
        CHECK(cudaMemcpy(&status, info, sizeof status, cudaMemcpyDeviceToHost));
        REQUIRE(status == 0, "way %d: info is %d", way, status);
        CHECK(cudaMemcpy(found.data(), b, N * sizeof(double), cudaMemcpyDeviceToHost));
        for (int i = 0; i < N; i++) {
            double sum = 0;
            for (int j = 0; j < N; j++) sum += a[j * N + i] * found[j];
            REQUIRE(fabs(sum - right[i]) < 1e-12, "way %d: row %d is off by %g", way, i, sum - right[i]);
        }
    }
    CHECK(cudaMemcpy(factor, a.data(), N * N * sizeof(double), cudaMemcpyHostToDevice));
    CALL(cusolverDnDsyevd, (Object, int, int, int, double*, int, double*, double*, int, int*), handle, 1, 0, N,
         factor, N, values, nullptr, 0, info);
    CHECK(cudaMemcpy(found.data(), values, N * sizeof(double), cudaMemcpyDeviceToHost));
    double trace = 0, sum = 0;
    for (int i = 0; i < N; i++) {
        trace += a[i * N + i];
        sum += found[i];
        REQUIRE(i == 0 || found[i - 1] <= found[i], "eigenvalues are not ascending");
    }
    REQUIRE(fabs(trace - sum) < 1e-9, "the eigenvalues' sum is %g, the trace %g", sum, trace);
    // A matrix that is not positive definite says which minor is not.
    a[5 * N + 5] = -1;
    CHECK(cudaMemcpy(factor, a.data(), N * N * sizeof(double), cudaMemcpyHostToDevice));
    CALL(cusolverDnDpotrf, (Object, int, int, double*, int, double*, int, int*), handle, 0, N, factor, N, nullptr, 0,
         info);
    CHECK(cudaMemcpy(&status, info, sizeof status, cudaMemcpyDeviceToHost));
    REQUIRE(status == 6, "info is %d", status);
    CALL(cusolverDnDestroyParams, (Object), parameters);
    CALL(cusolverDnDestroy, (Object), handle);
    for (void* memory : {(void*)factor, (void*)b, (void*)values, (void*)info, (void*)pivots}) CHECK(cudaFree(memory));
}

// A dense matrix becomes a sparse one, whose product with a vector is the dense one's.
static void sparse() {
    Object handle, dense, matrix, x, y;
    CALL(cusparseCreate, (Object*), &handle);
    std::vector<float> a(N * N), given(N), wanted(N), got(N);
    Random random(3);
    int stored = 0;
    for (int i = 0; i < N * N; i++) stored += (a[i] = random.below(5) ? 0 : (float)(1 + random.below(9))) != 0;
    for (int i = 0; i < N; i++) given[i] = (float)random.below(10);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) wanted[i] += 2 * a[i * N + j] * given[j];
    DeviceArray<float> da(a), dx(given), dy(got);
    int *offsets, *columns;
    float* elements;
    void* buffer;
    size_t bytes = 0;
    CHECK(cudaMalloc(&offsets, (N + 1) * sizeof *offsets));
    CALL(cusparseCreateDnMat, (Object*, int64_t, int64_t, int64_t, void*, int, int), &dense, N, N, N, (float*)da, F32, 2);
    CALL(cusparseCreateCsr, (Object*, int64_t, int64_t, int64_t, void*, void*, void*, int, int, int, int), &matrix, N,
         N, 0, offsets, nullptr, nullptr, 2, 2, 0, F32);
    CALL(cusparseDenseToSparse_bufferSize, (Object, Object, Object, int, size_t*), handle, dense, matrix, 0, &bytes);
    CHECK(cudaMalloc(&buffer, bytes));
    CALL(cusparseDenseToSparse_analysis, (Object, Object, Object, int, void*), handle, dense, matrix, 0, buffer);
    int64_t rows, cols, count;
    CALL(cusparseSpMatGetSize, (Object, int64_t*, int64_t*, int64_t*), matrix, &rows, &cols, &count);
    REQUIRE(rows == N && cols == N && count == stored, "%d elements, not %d", (int)count, stored);
    CHECK(cudaMalloc(&columns, count * sizeof *columns));
    CHECK(cudaMalloc(&elements, count * sizeof *elements));
    CALL(cusparseCsrSetPointers, (Object, void*, void*, void*), matrix, offsets, columns, elements);
    CALL(cusparseDenseToSparse_convert, (Object, Object, Object, int, void*), handle, dense, matrix, 0, buffer);
    CALL(cusparseCreateDnVec, (Object*, int64_t, void*, int), &x, N, (float*)dx, F32);
    CALL(cusparseCreateDnVec, (Object*, int64_t, void*, int), &y, N, (float*)dy, F32);
    float alpha = 2, beta = 0;
    CALL(cusparseSpMV, (Object, int, void*, Object, Object, void*, Object, int, int, void*), handle, 0, &alpha, matrix,
         x, &beta, y, F32, 0, nullptr);
    CHECK(cudaMemcpy(got.data(), (float*)dy, N * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) REQUIRE(got[i] == wanted[i], "row %d is %g, not %g", i, got[i], wanted[i]);
    CALL(cusparseDestroySpMat, (Object), matrix);
    CALL(cusparseDestroyDnMat, (Object), dense);
    CALL(cusparseDestroyDnVec, (Object), x);
    CALL(cusparseDestroyDnVec, (Object), y);
    CALL(cusparseDestroy, (Object), handle);
    CHECK(cudaFree(buffer));
    CHECK(cudaFree(offsets));
    CHECK(cudaFree(columns));
    CHECK(cudaFree(elements));
}

int main() {
    transforms();
    normals();
    systems();
    sparse();
    return ok("transforms, random numbers, factorisations and sparse matrices agree with sums made here");
}
