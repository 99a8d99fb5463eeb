// cuBLAS and cuBLASLt: products, vectors and triangular matrices on several streams, with factors and results of the host and of the
// device, batches, epilogues, and a graph. The toolkit need not have the libraries: what is called is declared here, and found where
// the dynamic loader finds it.
// rgpu-nvcc: -ldl
// rgpu-cuda12: for one of the ways in which tests run it
#define EXAMPLE "cublas"
#include "common/check.h"

#include <dlfcn.h>

typedef struct cublasContext* Handle;
typedef struct Opaque* Object;

static void* library;

// The function of this name; without the library there is nothing to be shown.
static void* find(const char* name) {
    void* found = dlsym(RTLD_DEFAULT, name);
    if (!found && library) found = dlsym(library, name);
    if (!found) fail("there is no %s", name);
    return found;
}

#define BLAS(name, types, ...)                                                                         \
    do {                                                                                               \
        static int(*call_) types = (int(*) types)find(#name);                                          \
        int status_ = call_(__VA_ARGS__);                                                              \
        if (status_ != 0) fail("%s:%d: %s gave %d", __FILE__, __LINE__, #name, status_);               \
    } while (0)

#define EXPECT_STATUS(expected, name, types, ...)                                                      \
    do {                                                                                               \
        int status_ = ((int(*) types)find(#name))(__VA_ARGS__);                                        \
        if (status_ != (expected)) fail("%s:%d: %s gave %d", __FILE__, __LINE__, #name, status_);      \
    } while (0)

typedef float F;
typedef const float* In;
#define GEMM (Handle, int, int, int, int, int, In, In, int, In, int, In, F*, int)

static std::vector<float> numbers(int count, int seed) {
    std::vector<float> values(count);
    for (int i = 0; i < count; i++) values[i] = (float)((i * 7 + seed * 5) % 9 - 4);
    return values;
}

struct Matrix {
    std::vector<float> host;
    DeviceArray<float> device;
    Matrix(int count, int seed) : host(numbers(count, seed)), device(count) { put(); }
    void put() { CHECK(cudaMemcpy(device, host.data(), host.size() * 4, cudaMemcpyHostToDevice)); }
    std::vector<float> get() {
        std::vector<float> values(host.size());
        CHECK(cudaMemcpy(values.data(), device, values.size() * 4, cudaMemcpyDeviceToHost));
        return values;
    }
    operator float*() { return device; }
};

static void same(const std::vector<float>& got, const std::vector<float>& expected, const char* what) {
    for (size_t i = 0; i < expected.size(); i++)
        REQUIRE(fabsf(got[i] - expected[i]) <= 1e-4f * fmaxf(1, fabsf(expected[i])), "%s: %g at %zu instead of %g", what, got[i],
                i, expected[i]);
}

static std::vector<float> product(const float* a, const float* b, int m, int n, int k, bool turned) {
    std::vector<float> c(m * n);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++)
            for (int l = 0; l < k; l++) c[i + j * m] += (turned ? a[l + i * k] : a[i + l * m]) * b[l + j * k];
    return c;
}

int main() {
    for (const char* name : {"libcublas.so.13", "libcublas.so.12"})
        if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    const int m = 33, n = 20, k = 17;
    const float one = 1, zero = 0, two = 2, half = 0.5f, minus = -1;
    Matrix a(m * k * 3, 1), b(k * n * 3, 2), c(m * n * 3, 3);

    Handle handle = nullptr;
    BLAS(cublasCreate_v2, (Handle*), &handle);
    int version = 0;
    BLAS(cublasGetVersion_v2, (Handle, int*), handle, &version);
    REQUIRE(version >= 12000, "version %d", version);

    // Products, with a transposed factor, and what makes no sense.
    BLAS(cublasSgemm_v2, GEMM, handle, 0, 0, m, n, k, &one, a, m, b, k, &zero, c, m);
    same(c.get(), product(a.host.data(), b.host.data(), m, n, k, false), "sgemm");
    BLAS(cublasSgemm_v2, GEMM, handle, 1, 0, m, n, k, &one, a, k, b, k, &zero, c, m);
    same(c.get(), product(a.host.data(), b.host.data(), m, n, k, true), "sgemm of a transposed matrix");
    EXPECT_STATUS(7, cublasSgemm_v2, GEMM, handle, 0, 0, m, n, k, &one, a, m - 1, b, k, &zero, c, m);
    EXPECT_STATUS(7, cublasSgemm_v2, GEMM, handle, 0, 0, m, n, k, nullptr, a, m, b, k, &zero, c, m);
    EXPECT_STATUS(1, cublasSgemm_v2, GEMM, nullptr, 0, 0, m, n, k, &one, a, m, b, k, &zero, c, m);

    // Batches, one behind the other and by their addresses.
    typedef long long Stride;
    BLAS(cublasSgemmStridedBatched,
         (Handle, int, int, int, int, int, In, In, int, Stride, In, int, Stride, In, F*, int, Stride, int), handle, 0, 0, m, n, k,
         &one, a, m, m * k, b, k, k * n, &zero, c, m, m * n, 3);
    std::vector<float> all;
    for (int i = 0; i < 3; i++) {
        auto one_of_them = product(a.host.data() + i * m * k, b.host.data() + i * k * n, m, n, k, false);
        all.insert(all.end(), one_of_them.begin(), one_of_them.end());
    }
    same(c.get(), all, "a strided batch");
    c.put();
    std::vector<float*> places;
    for (int i = 0; i < 3; i++) places.push_back((float*)a + i * m * k);
    for (int i = 0; i < 3; i++) places.push_back((float*)b + i * k * n);
    for (int i = 0; i < 3; i++) places.push_back((float*)c + i * m * n);
    DeviceArray<float*> lists(9);
    CHECK(cudaMemcpy(lists, places.data(), 9 * sizeof(float*), cudaMemcpyHostToDevice));
    float** list = lists;
    BLAS(cublasSgemmBatched, (Handle, int, int, int, int, int, In, float**, int, float**, int, In, float**, int, int), handle, 0, 0,
         m, n, k, &one, list, m, list + 3, k, &zero, list + 6, m, 3);
    same(c.get(), all, "a batch by addresses");

    // Results in the host's memory, and in the device's.
    float dot = 0, expected = 0;
    for (int i = 0; i < n; i++) expected += a.host[i] * b.host[2 * i];
    BLAS(cublasSdot_v2, (Handle, int, In, int, In, int, F*), handle, n, a, 1, b, 2, &dot);
    REQUIRE(dot == expected, "sdot gave %g instead of %g", dot, expected);
    int greatest = 0;
    BLAS(cublasIsamax_v2, (Handle, int, In, int, int*), handle, 9, a, 1, &greatest);
    REQUIRE(fabsf(a.host[greatest - 1]) == 4, "isamax gave %d", greatest);
    DeviceArray<float> results(2);
    BLAS(cublasSetPointerMode_v2, (Handle, int), handle, 1);
    BLAS(cublasSdot_v2, (Handle, int, In, int, In, int, F*), handle, n, a, 1, b, 2, (float*)results);
    BLAS(cublasSscal_v2, (Handle, int, In, F*, int), handle, 1, (float*)results, (float*)results, 1);
    BLAS(cublasSetPointerMode_v2, (Handle, int), handle, 0);
    CHECK(cudaMemcpy(&dot, results, 4, cudaMemcpyDeviceToHost));
    REQUIRE(dot == expected * expected, "sdot and sscal gave %g", dot);

    // A matrix and a vector, an update, and a triangular matrix: solving undoes multiplying.
    Matrix x(n, 5), y(m, 6), square(n * n, 7);
    for (int i = 0; i < n; i++) square.host[i + i * n] = 30;
    square.put();
    BLAS(cublasSgemv_v2, (Handle, int, int, int, In, In, int, In, int, In, F*, int), handle, 0, m, n, &two, c, m, x, 1, &minus, y, 1);
    std::vector<float> expected_y(m);
    for (int i = 0; i < m; i++) {
        expected_y[i] = -y.host[i];
        for (int j = 0; j < n; j++) expected_y[i] += 2 * all[i + j * m] * x.host[j];
    }
    same(y.get(), expected_y, "sgemv");
    y.put();
    BLAS(cublasSger_v2, (Handle, int, int, In, In, int, In, int, F*, int), handle, m, n, &half, y, 1, x, 1, c, m);
    std::vector<float> updated(all.begin(), all.begin() + m * n);
    for (int i = 0; i < m * n; i++) updated[i] += 0.5f * y.host[i % m] * x.host[i / m];
    same(c.get(), updated, "sger");
    Matrix right(n * n, 8), out(n * n, 9);
    BLAS(cublasStrmm_v2, (Handle, int, int, int, int, int, int, In, In, int, In, int, F*, int), handle, 0, 1, 1, 0, n, n, &two, square, n,
         right, n, out, n);
    BLAS(cublasStrsm_v2, (Handle, int, int, int, int, int, int, In, In, int, F*, int), handle, 0, 1, 1, 0, n, n, &half, square, n, out, n);
    same(out.get(), right.host, "strmm and strsm");

    // Two streams, joined by an event; and the same captured in a graph and launched twice.
    cudaStream_t first, second;
    cudaEvent_t done;
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreate(&second));
    CHECK(cudaEventCreate(&done));
    auto work = [&] {
        BLAS(cublasSetStream_v2, (Handle, cudaStream_t), handle, first);
        BLAS(cublasSgemm_v2, GEMM, handle, 0, 0, n, n, n, &one, square, n, right, n, &zero, out, n);
        CHECK(cudaEventRecord(done, first));
        CHECK(cudaStreamWaitEvent(second, done, 0));
        BLAS(cublasSetStream_v2, (Handle, cudaStream_t), handle, second);
        BLAS(cublasSaxpy_v2, (Handle, int, In, In, int, F*, int), handle, n * n, &one, out, 1, square, 1);
        CHECK(cudaEventRecord(done, second));
        CHECK(cudaStreamWaitEvent(first, done, 0));
    };
    auto step = [&](std::vector<float>& value) {
        auto sum = product(value.data(), right.host.data(), n, n, n, false);
        for (int i = 0; i < n * n; i++) value[i] += sum[i];
    };
    for (float& value : right.host) value /= 64;
    right.put();
    std::vector<float> value = square.host;
    CHECK(cudaDeviceSynchronize());
    work();
    CHECK(cudaStreamSynchronize(first));
    step(value);
    same(square.get(), value, "two streams");
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    work();
    CHECK(cudaStreamEndCapture(first, &graph));
    // For a program a library's work is kernels, whose attributes it may ask for: none is in a cluster.
    cudaGraphNode_t nodes[16];
    size_t many = 16, kernels = 0;
    CHECK(cudaGraphGetNodes(graph, nodes, &many));
    for (size_t i = 0; i < many; i++) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(nodes[i], &type));
        if (type != cudaGraphNodeTypeKernel) continue;
        cudaLaunchAttributeValue attribute;
        CHECK(cudaGraphKernelNodeGetAttribute(nodes[i], cudaLaunchAttributeClusterDimension, &attribute));
        REQUIRE(attribute.clusterDim.x <= 1, "a product in clusters of %u blocks", attribute.clusterDim.x);
        kernels++;
    }
    REQUIRE(kernels > 0, "no kernel in a graph of products");
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; i++) {
        CHECK(cudaGraphLaunch(executable, first));
        step(value);
    }
    CHECK(cudaStreamSynchronize(first));
    same(square.get(), value, "a graph");
    BLAS(cublasSetStream_v2, (Handle, cudaStream_t), handle, nullptr);

    // cuBLASLt: a row-major product with a bias for each column and a ReLU, as frameworks ask for it.
    Object product_of, layout_a, layout_b, layout_d, preference;
    BLAS(cublasLtMatmulDescCreate, (Object*, int, int), &product_of, 68, 0);
    BLAS(cublasLtMatrixLayoutCreate, (Object*, int, uint64_t, uint64_t, int64_t), &layout_a, 0, n, n, n);
    BLAS(cublasLtMatrixLayoutCreate, (Object*, int, uint64_t, uint64_t, int64_t), &layout_b, 0, n, n, n);
    BLAS(cublasLtMatrixLayoutCreate, (Object*, int, uint64_t, uint64_t, int64_t), &layout_d, 0, n, n, n);
    BLAS(cublasLtMatmulPreferenceCreate, (Object*), &preference);
    int epilogue = 6, transposed = 1;
    float* bias = x;
    BLAS(cublasLtMatmulDescSetAttribute, (Object, int, const void*, size_t), product_of, 3, &transposed, sizeof transposed);
    BLAS(cublasLtMatmulDescSetAttribute, (Object, int, const void*, size_t), product_of, 7, &epilogue, sizeof epilogue);
    BLAS(cublasLtMatmulDescSetAttribute, (Object, int, const void*, size_t), product_of, 8, &bias, sizeof bias);
    struct {
        uint64_t algorithm[8];
        size_t workspace;
        int state;
        float waves;
        int reserved[4];
    } found;
    int count = 0;
    BLAS(cublasLtMatmulAlgoGetHeuristic, (Handle, Object, Object, Object, Object, Object, Object, int, void*, int*), handle, product_of,
         layout_a, layout_b, layout_d, layout_d, preference, 1, &found, &count);
    REQUIRE(count == 1, "%d algorithms", count);
    std::vector<float> left = square.get();
    BLAS(cublasLtMatmul,
         (Handle, Object, const void*, const void*, Object, const void*, Object, const void*, const void*, Object, void*, Object, const void*,
          void*, size_t, cudaStream_t),
         handle, product_of, &minus, (float*)square, layout_a, (float*)right, layout_b, &zero, (float*)out, layout_d, (float*)out, layout_d,
         found.algorithm, nullptr, 0, nullptr);
    auto activated = product(left.data(), right.host.data(), n, n, n, true);
    for (int i = 0; i < n * n; i++) activated[i] = fmaxf(0, x.host[i % n] - activated[i]);
    same(out.get(), activated, "cublasLtMatmul");

    // What is not implemented says so; NVIDIA's own asks for arguments.
    {
        using Function = int (*)(Handle);
        int status = ((Function)find("cublasUint8gemmBias"))(handle);
        REQUIRE(status == 15 || status == 7, "cublasUint8gemmBias gave %d", status);
    }
    BLAS(cublasDestroy_v2, (Handle), handle);
    return ok("products, vectors, triangles, batches, two streams, a graph and an epilogue");
}
