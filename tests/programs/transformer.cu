// Steps of a transformer written against cuBLAS and cuBLASLt as frameworks write theirs: descriptors made and thrown away for every
// product, the stream and the math mode set again and again, an algorithm asked for each time. For counting what a step costs.
// Its result is compared with the host's.
// rgpu-nvcc: -ldl
#define EXAMPLE "transformer"
#include "common/check.h"

#include <dlfcn.h>

enum { TOKENS = 6, WIDTH = 16, HEADS = 2, HEAD = WIDTH / HEADS, LAYERS = 12 };

typedef struct Opaque* Object;

static void* find(const char* name) {
    static void* library = dlopen("libcublasLt.so.13", RTLD_NOW);
    static void* other = dlopen("libcublas.so.13", RTLD_NOW);
    void* found = dlsym(RTLD_DEFAULT, name);
    if (!found && library) found = dlsym(library, name);
    if (!found && other) found = dlsym(other, name);
    if (!found) fail("there is no %s", name);
    return found;
}

#define BLAS(name, types, ...)                                                                         \
    do {                                                                                               \
        static int(*call_) types = (int(*) types)find(#name);                                          \
        int status_ = call_(__VA_ARGS__);                                                              \
        if (status_ != 0) fail("%s:%d: %s gave %d", __FILE__, __LINE__, #name, status_);               \
    } while (0)

// One block for each column of `rows` numbers: mean 0 and variance 1.
__global__ void normalize(float* out, const float* in, int rows) {
    const float* column = in + blockIdx.x * rows;
    float sum = 0, squares = 0;
    for (int i = 0; i < rows; i++) sum += column[i];
    for (int i = 0; i < rows; i++) squares += (column[i] - sum / rows) * (column[i] - sum / rows);
    int i = threadIdx.x;
    if (i < rows) out[blockIdx.x * rows + i] = (column[i] - sum / rows) * rsqrtf(squares / rows + 1e-5f);
}

__global__ void softmax(float* data, int rows) {
    float* column = data + blockIdx.x * rows;
    float most = column[0], sum = 0;
    for (int i = 1; i < rows; i++) most = fmaxf(most, column[i]);
    for (int i = 0; i < rows; i++) sum += expf(column[i] - most);
    __syncthreads();
    int i = threadIdx.x;
    float value = i < rows ? expf(column[i] - most) / sum : 0;
    __syncthreads();
    if (i < rows) column[i] = value;
}

__global__ void add(float* to, const float* what, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] += what[i];
}

static std::vector<float> weights(int count, int seed) {
    std::vector<float> values(count);
    for (int i = 0; i < count; i++) values[i] = (float)((i * 31 + seed * 17 + i / 7) % 19 - 9) / 40;
    return values;
}

struct Linear {
    int in, out;
    std::vector<float> w, b;
    DeviceArray<float> dw, db;
    Linear(int in, int out, int seed)
        : in(in), out(out), w(weights(in * out, seed)), b(weights(out, seed + 1)), dw(w), db(b) {}
};

struct Layer {
    Linear qkv, projection, up, down;
    explicit Layer(int seed)
        : qkv(WIDTH, 3 * WIDTH, seed), projection(WIDTH, WIDTH, seed + 2), up(WIDTH, 4 * WIDTH, seed + 4),
          down(4 * WIDTH, WIDTH, seed + 6) {}
};

static Object handle;

static Object layout(int rows, int columns) {
    Object made;
    BLAS(cublasLtMatrixLayoutCreate, (Object*, int, uint64_t, uint64_t, int64_t), &made, 0, rows, columns, rows);
    return made;
}

// y = W x + b, with an activation where the epilogue says so.
static void linear(Linear& l, float* x, float* y, int epilogue, cudaStream_t stream) {
    Object what, preference, a = layout(l.in, l.out), b = layout(l.in, TOKENS), d = layout(l.out, TOKENS);
    BLAS(cublasLtMatmulDescCreate, (Object*, int, int), &what, 68, 0);
    int transposed = 1;
    float* bias = l.db;
    BLAS(cublasLtMatmulDescSetAttribute, (Object, int, const void*, size_t), what, 3, &transposed, sizeof transposed);
    BLAS(cublasLtMatmulDescSetAttribute, (Object, int, const void*, size_t), what, 7, &epilogue, sizeof epilogue);
    BLAS(cublasLtMatmulDescSetAttribute, (Object, int, const void*, size_t), what, 8, &bias, sizeof bias);
    BLAS(cublasLtMatmulPreferenceCreate, (Object*), &preference);
    uint64_t result[12];
    int count = 0;
    BLAS(cublasLtMatmulAlgoGetHeuristic, (Object, Object, Object, Object, Object, Object, Object, int, void*, int*), handle, what, a, b, d, d,
         preference, 1, result, &count);
    float one = 1, zero = 0;
    BLAS(cublasLtMatmul,
         (Object, Object, const void*, const void*, Object, const void*, Object, const void*, const void*, Object, void*, Object, const void*,
          void*, size_t, cudaStream_t),
         handle, what, &one, (float*)l.dw, a, x, b, &zero, y, d, y, d, result, nullptr, 0, stream);
    BLAS(cublasLtMatmulPreferenceDestroy, (Object), preference);
    BLAS(cublasLtMatmulDescDestroy, (Object), what);
    for (Object made : {a, b, d}) BLAS(cublasLtMatrixLayoutDestroy, (Object), made);
}

// Products of all heads at once.
static void heads(int op, int m, int n, int k, float alpha, float* a, int lda, long long stride_a, float* b, int ldb, long long stride_b,
                  float* c, int ldc, long long stride_c, cudaStream_t stream) {
    float zero = 0;
    int mode;
    BLAS(cublasSetStream_v2, (Object, cudaStream_t), handle, stream);
    BLAS(cublasGetMathMode, (Object, int*), handle, &mode);
    BLAS(cublasSetMathMode, (Object, int), handle, 3);
    BLAS(cublasGemmStridedBatchedEx,
         (Object, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int, long long, const void*, void*,
          int, int, long long, int, int, int),
         handle, op, 0, m, n, k, &alpha, a, 0, lda, stride_a, b, 0, ldb, stride_b, &zero, c, 0, ldc, stride_c, HEADS, 68, -1);
    BLAS(cublasSetMathMode, (Object, int), handle, mode);
}

typedef std::vector<float> Values;

static Values on_host(const Linear& l, const Values& x, bool gelu) {
    Values y(l.out * TOKENS);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < l.out; i++) {
            double sum = l.b[i];
            for (int j = 0; j < l.in; j++) sum += (double)l.w[j + i * l.in] * x[j + t * l.in];
            if (gelu) sum = 0.5 * sum * (1 + tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
            y[i + t * l.out] = (float)sum;
        }
    return y;
}

static Values normalized(const Values& x) {
    Values y(x.size());
    for (int t = 0; t < TOKENS; t++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < WIDTH; i++) sum += x[i + t * WIDTH];
        for (int i = 0; i < WIDTH; i++) squares += pow(x[i + t * WIDTH] - sum / WIDTH, 2);
        for (int i = 0; i < WIDTH; i++) y[i + t * WIDTH] = (float)((x[i + t * WIDTH] - sum / WIDTH) / sqrt(squares / WIDTH + 1e-5));
    }
    return y;
}

static Values layer_on_host(const Layer& layer, Values x) {
    Values qkv = on_host(layer.qkv, normalized(x), false), mixed(WIDTH * TOKENS);
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < TOKENS; t++) {
            double scores[TOKENS], sum = 0;
            for (int s = 0; s < TOKENS; s++) {
                scores[s] = 0;
                for (int i = 0; i < HEAD; i++)
                    scores[s] += qkv[h * HEAD + i + t * 3 * WIDTH] * qkv[WIDTH + h * HEAD + i + s * 3 * WIDTH] / sqrt((double)HEAD);
                sum += exp(scores[s]);
            }
            for (int i = 0; i < HEAD; i++)
                for (int s = 0; s < TOKENS; s++)
                    mixed[h * HEAD + i + t * WIDTH] += (float)(exp(scores[s]) / sum * qkv[2 * WIDTH + h * HEAD + i + s * 3 * WIDTH]);
        }
    Values projected = on_host(layer.projection, mixed, false);
    for (size_t i = 0; i < x.size(); i++) x[i] += projected[i];
    Values down = on_host(layer.down, on_host(layer.up, normalized(x), true), false);
    for (size_t i = 0; i < x.size(); i++) x[i] += down[i];
    return x;
}

int main(int argc, char** argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 10;
    std::vector<Layer*> layers;
    for (int i = 0; i < LAYERS; i++) layers.push_back(new Layer(10 * i));
    Values start = weights(WIDTH * TOKENS, 3), result(start.size());
    DeviceArray<float> x(start), normal(WIDTH * TOKENS), qkv(3 * WIDTH * TOKENS), scores(HEADS * TOKENS * TOKENS), mixed(WIDTH * TOKENS),
        branch(WIDTH * TOKENS), wide(4 * WIDTH * TOKENS);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    BLAS(cublasCreate_v2, (Object*), &handle);
    const int all = WIDTH * TOKENS;
    for (int step = 0; step < steps; step++) {
        CHECK(cudaMemcpyAsync(x, start.data(), all * 4, cudaMemcpyHostToDevice, stream));
        for (Layer* layer : layers) {
            float *q = qkv, *k = q + WIDTH, *v = k + WIDTH;
            normalize<<<TOKENS, 32, 0, stream>>>(normal, x, WIDTH);
            linear(layer->qkv, normal, qkv, 4, stream);
            heads(1, TOKENS, TOKENS, HEAD, 1 / sqrtf(HEAD), k, 3 * WIDTH, HEAD, q, 3 * WIDTH, HEAD, scores, TOKENS, TOKENS * TOKENS, stream);
            softmax<<<HEADS * TOKENS, 32, 0, stream>>>(scores, TOKENS);
            heads(0, HEAD, TOKENS, TOKENS, 1, v, 3 * WIDTH, HEAD, scores, TOKENS, TOKENS * TOKENS, mixed, WIDTH, HEAD, stream);
            linear(layer->projection, mixed, branch, 4, stream);
            add<<<(all + 63) / 64, 64, 0, stream>>>(x, branch, all);
            normalize<<<TOKENS, 32, 0, stream>>>(normal, x, WIDTH);
            linear(layer->up, normal, wide, 36, stream);
            linear(layer->down, wide, branch, 4, stream);
            add<<<(all + 63) / 64, 64, 0, stream>>>(x, branch, all);
        }
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(result.data(), x, all * 4, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    Values expected = start;
    for (Layer* layer : layers) expected = layer_on_host(*layer, expected);
    for (int i = 0; i < all; i++)
        REQUIRE(fabsf(result[i] - expected[i]) < 1e-3f * fmaxf(1, fabsf(expected[i])), "%g at %d instead of %g", result[i], i, expected[i]);
    BLAS(cublasDestroy_v2, (Object), handle);
    return ok("%d steps of %d layers", steps, LAYERS);
}
