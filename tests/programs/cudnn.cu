// cuDNN's calls from before its backend API, by their functions' names and types alone: results against plain loops, and gradients
// against what differences of the results say.
// rgpu-nvcc: -ldl
// rgpu-cuda12: for one of the ways in which tests run it
#define EXAMPLE "cudnn"
#include "common/check.h"

#include <dlfcn.h>

#include <cstring>
#include <functional>

typedef void* Object;
typedef std::vector<double> Values;

static void* find(const char* name) {
    void* found = dlsym(RTLD_DEFAULT, name);
    if (!found) {
        void* library = dlopen("libcudnn.so.9", RTLD_NOW);
        if (library) found = dlsym(library, name);
    }
    if (!found) fail("there is no %s", name);
    return found;
}

// A call that has to give a status.
#define STATUS(expected, name, ...)                                                                    \
    do {                                                                                               \
        auto call_ = function(find(#name), __VA_ARGS__);                                               \
        if (call_ != (expected)) fail("%s:%d: %s gave %d", __FILE__, __LINE__, #name, call_);          \
    } while (0)
#define CALL(name, ...) STATUS(0, name, __VA_ARGS__)

template <class... Types>
static int function(void* address, Types... arguments) {
    return ((int (*)(Types...))address)(arguments...);
}

enum { F32 = 0, F64 = 1, NCHW = 0, NHWC = 1 };

static Object handle;
static const double one = 1, zero = 0;

// A tensor of 64-bit numbers on the device.
struct Tensor {
    Object form = nullptr;
    std::vector<int> dims;
    double* data = nullptr;

    Tensor(std::vector<int> dims_, int format = NCHW) : dims(dims_) {
        CALL(cudnnCreateTensorDescriptor, &form);
        CALL(cudnnSetTensorNdDescriptorEx, form, format, (int)F64, (int)dims.size(), (const int*)dims.data());
        CHECK(cudaMalloc(&data, size() * sizeof *data));
        CHECK(cudaMemset(data, 0xff, size() * sizeof *data));
    }
    Tensor(const Tensor&) = delete;
    ~Tensor() {
        CALL(cudnnDestroyTensorDescriptor, form);
        CHECK(cudaFree(data));
    }
    size_t size() const {
        size_t all = 1;
        for (int n : dims) all *= n;
        return all;
    }
    Tensor& set(const Values& values) {
        CHECK(cudaMemcpy(data, values.data(), size() * sizeof *data, cudaMemcpyHostToDevice));
        return *this;
    }
    Values get() const {
        Values values(size());
        CHECK(cudaMemcpy(values.data(), data, size() * sizeof *data, cudaMemcpyDeviceToHost));
        return values;
    }
};

static Values random_values(size_t count, int seed) {
    Random random(seed);
    Values values(count);
    for (double& value : values) value = 2 * random.unit() - 1;
    return values;
}

static void same(const char* what, const Values& found, const Values& expected, double tolerance = 1e-9) {
    REQUIRE(found.size() == expected.size(), "%s: %zu values", what, found.size());
    for (size_t i = 0; i < found.size(); i++)
        REQUIRE(std::abs(found[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i])),
                "%s: value %zu is %.12g instead of %.12g", what, i, found[i], expected[i]);
}

// A gradient against the differences of what it is the gradient of: f(x) is sum(weights * result(x)).
static void slopes(const char* what, Values x, const Values& weights, const Values& gradient,
                   const std::function<Values(const Values&)>& result) {
    auto f = [&] {
        Values y = result(x);
        double sum = 0;
        for (size_t i = 0; i < y.size(); i++) sum += y[i] * weights[i];
        return sum;
    };
    const double step = 1e-5;
    for (size_t i = 0; i < x.size(); i += 1 + x.size() / 16) {
        double before = x[i];
        x[i] = before + step;
        double above = f();
        x[i] = before - step;
        double below = f();
        x[i] = before;
        double expected = (above - below) / (2 * step);
        REQUIRE(std::abs(gradient[i] - expected) <= 1e-6 * (1 + std::abs(expected)),
                "%s: gradient %zu is %.10g instead of %.10g", what, i, gradient[i], expected);
    }
}

// A grouped convolution and its three gradients.
static void convolutions(int format) {
    enum { N = 2, C = 4, H = 6, W = 5, K = 6, G = 2, R = 3, S = 2 };
    Tensor x({N, C, H, W}, format), dx({N, C, H, W}, format);
    Object form, filter;
    CALL(cudnnCreateConvolutionDescriptor, &form);
    CALL(cudnnSetConvolutionGroupCount, form, (int)G);
    CALL(cudnnSetConvolution2dDescriptor, form, 1, 0, 2, 1, 1, 2, 1, (int)F64);
    CALL(cudnnCreateFilterDescriptor, &filter);
    CALL(cudnnSetFilter4dDescriptor, filter, (int)F64, (int)format, (int)K, C / G, (int)R, (int)S);
    int dims[4];
    CALL(cudnnGetConvolution2dForwardOutputDim, form, x.form, filter, dims, dims + 1, dims + 2, dims + 3);
    REQUIRE(dims[0] == N && dims[1] == K && dims[2] == 3 && dims[3] == 3, "an output of %d x %d x %d x %d", dims[0],
            dims[1], dims[2], dims[3]);
    Tensor y({N, K, 3, 3}, format), w({K, C / G, R, S}, format), dw({K, C / G, R, S}, format), dy({N, K, 3, 3}, format);
    Tensor bias({1, K, 1, 1}), dbias({1, K, 1, 1});
    size_t space = 1;
    CALL(cudnnGetConvolutionForwardWorkspaceSize, handle, x.form, filter, form, y.form, 1, &space);
    REQUIRE(space == 0, "a workspace of %zu bytes", space);
    struct {
        int algorithm, status;
        float time;
        size_t memory;
        int deterministic, math, reserved[3];
    } found;
    int count = 0;
    CALL(cudnnGetConvolutionForwardAlgorithm_v7, handle, x.form, filter, form, y.form, 1, &count, (void*)&found);
    REQUIRE(count == 1 && found.status == 0 && found.memory == 0, "%d algorithms", count);

    Values vx = random_values(x.size(), 1), vw = random_values(w.size(), 2), weights = random_values(y.size(), 3);
    auto at = [&](const std::vector<int>& d, int n, int c, int h, int v) {
        return format == NCHW ? ((n * d[1] + c) * d[2] + h) * d[3] + v : ((n * d[2] + h) * d[3] + v) * d[1] + c;
    };
    auto forward = [&](const Values& vx, const Values& vw) {
        x.set(vx);
        w.set(vw);
        CALL(cudnnConvolutionForward, handle, &one, x.form, x.data, filter, w.data, form, found.algorithm, (void*)0,
             (size_t)0, &zero, y.form, y.data);
        return y.get();
    };
    Values expected(y.size());
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++)
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < 3; j++) {
                    double sum = 0;
                    for (int c = 0; c < C / G; c++)
                        for (int r = 0; r < R; r++)
                            for (int s = 0; s < S; s++) {
                                int h = 2 * i - 1 + r, v = j + 2 * s;
                                if (h < 0 || h >= H || v < 0 || v >= W) continue;
                                int group = k / (K / G);
                                sum += vx[at(x.dims, n, group * (C / G) + c, h, v)] * vw[at(w.dims, k, c, r, s)];
                            }
                    expected[at(y.dims, n, k, i, j)] = sum;
                }
    same("a convolution", forward(vx, vw), expected);

    dy.set(weights);
    CALL(cudnnConvolutionBackwardData, handle, &one, filter, w.data, dy.form, dy.data, form, 1, (void*)0, (size_t)0,
         &zero, dx.form, dx.data);
    slopes("a convolution's input", vx, weights, dx.get(), [&](const Values& v) { return forward(v, vw); });
    forward(vx, vw);
    CALL(cudnnConvolutionBackwardFilter, handle, &one, x.form, x.data, dy.form, dy.data, form, 1, (void*)0, (size_t)0,
         &zero, filter, dw.data);
    slopes("a convolution's filter", vw, weights, dw.get(), [&](const Values& v) { return forward(vx, v); });
    CALL(cudnnConvolutionBackwardBias, handle, &one, dy.form, dy.data, &zero, dbias.form, dbias.data);
    Values sums(K);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++)
            for (int i = 0; i < 9; i++) sums[k] += weights[at(y.dims, n, k, i / 3, i % 3)];
    same("a bias's gradient", dbias.get(), sums);

    // With a bias, something that is added, and ReLU.
    Object relu;
    CALL(cudnnCreateActivationDescriptor, &relu);
    CALL(cudnnSetActivationDescriptor, relu, 1, 0, 0.0);
    Values vb = random_values(K, 4);
    bias.set(vb);
    const double half = 0.5;
    forward(vx, vw);
    CALL(cudnnConvolutionBiasActivationForward, handle, &one, x.form, x.data, filter, w.data, form, 1, (void*)0,
         (size_t)0, &half, dy.form, dy.data, bias.form, bias.data, relu, y.form, y.data);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++)
            for (int i = 0; i < 9; i++) {
                double& value = expected[at(y.dims, n, k, i / 3, i % 3)];
                value = std::max(0.0, value + vb[k] + half * weights[at(y.dims, n, k, i / 3, i % 3)]);
            }
    same("a convolution with all that may follow", y.get(), expected);

    // What does not fit is refused when it is asked for.
    STATUS(2000, cudnnConvolutionForward, handle, &one, y.form, y.data, filter, w.data, form, 1, (void*)0, (size_t)0,
           &zero, y.form, y.data);
    STATUS(2000, cudnnSetFilter4dDescriptor, filter, (int)F64, (int)format, 0, 1, 1, 1);
    CALL(cudnnDestroyActivationDescriptor, relu);
    CALL(cudnnDestroyFilterDescriptor, filter);
    CALL(cudnnDestroyConvolutionDescriptor, form);
}

static void poolings() {
    enum { H = 5, W = 7 };
    for (int mode = 0; mode < 4; mode++) {
        Tensor x({2, 3, H, W}), dx({2, 3, H, W}), y({2, 3, 3, 3}), dy({2, 3, 3, 3});
        Object form;
        CALL(cudnnCreatePoolingDescriptor, &form);
        CALL(cudnnSetPooling2dDescriptor, form, mode, 0, 3, 2, 1, 0, 2, 2);
        int dims[4];
        CALL(cudnnGetPooling2dForwardOutputDim, form, x.form, dims, dims + 1, dims + 2, dims + 3);
        REQUIRE(dims[2] == 3 && dims[3] == 3, "a pooling to %d x %d", dims[2], dims[3]);
        Values vx = random_values(x.size(), 5), weights = random_values(y.size(), 6);
        auto forward = [&](const Values& v) {
            x.set(v);
            CALL(cudnnPoolingForward, handle, form, &one, x.form, x.data, &zero, y.form, y.data);
            return y.get();
        };
        Values expected;
        for (int plane = 0; plane < 6; plane++)
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < 3; j++) {
                    double sum = 0, most = -1e300;
                    int inside = 0;
                    for (int h = 2 * i - 1; h < 2 * i + 2; h++)
                        for (int w = 2 * j; w < 2 * j + 2; w++)
                            if (h >= 0 && h < H && w < W) {
                                double value = vx[(plane * H + h) * W + w];
                                sum += value, most = std::max(most, value), inside++;
                            }
                    expected.push_back(mode == 1 ? sum / 6 : mode == 2 ? sum / inside : most);
                }
        same("a pooling", forward(vx), expected);
        dy.set(weights);
        CALL(cudnnPoolingBackward, handle, form, &one, y.form, y.data, dy.form, dy.data, x.form, x.data, &zero, dx.form,
             dx.data);
        slopes("a pooling's gradient", vx, weights, dx.get(), forward);
        CALL(cudnnDestroyPoolingDescriptor, form);
    }
}

static double activation(int mode, double x) {
    switch (mode) {
        case 0: return 1 / (1 + std::exp(-x));
        case 1: return std::max(x, 0.0);
        case 2: return std::tanh(x);
        case 3: return std::min(std::max(x, 0.0), 0.4);
        case 4: return x > 0 ? x : 0.4 * (std::exp(x) - 1);
        case 6: return x / (1 + std::exp(-x));
        default: return x;
    }
}

static void activations() {
    for (int mode = 0; mode < 7; mode++) {
        Tensor x({2, 3, 4, 5}), y({2, 3, 4, 5}), dx({2, 3, 4, 5}), dy({2, 3, 4, 5});
        Object form;
        CALL(cudnnCreateActivationDescriptor, &form);
        CALL(cudnnSetActivationDescriptor, form, mode, 0, 0.4);
        Values vx = random_values(x.size(), 7), weights = random_values(x.size(), 8), expected = vx;
        for (double& value : expected) value = activation(mode, value);
        auto forward = [&](const Values& v) {
            x.set(v);
            CALL(cudnnActivationForward, handle, form, &one, x.form, x.data, &zero, y.form, y.data);
            return y.get();
        };
        same("an activation", forward(vx), expected);
        dy.set(weights);
        CALL(cudnnActivationBackward, handle, form, &one, y.form, y.data, dy.form, dy.data, x.form, x.data, &zero,
             dx.form, dx.data);
        slopes("an activation's gradient", vx, weights, dx.get(), forward);
        CALL(cudnnDestroyActivationDescriptor, form);
    }
}

static void softmaxes() {
    enum { N = 2, C = 3, P = 4 };
    for (int algorithm = 0; algorithm < 3; algorithm++)
        for (int mode = 0; mode < 2; mode++) {
            Tensor x({N, C, 2, 2}), y({N, C, 2, 2}), dx({N, C, 2, 2}), dy({N, C, 2, 2});
            Values vx = random_values(x.size(), 9), weights = random_values(x.size(), 10), expected(x.size());
            auto forward = [&](const Values& v) {
                x.set(v);
                CALL(cudnnSoftmaxForward, handle, algorithm, mode, &one, x.form, x.data, &zero, y.form, y.data);
                return y.get();
            };
            for (int n = 0; n < N; n++)
                for (int i = 0; i < C * P; i++) {
                    double sum = 0;
                    for (int j = 0; j < C * P; j++)
                        if (mode == 0 || j % P == i % P) sum += std::exp(vx[n * C * P + j]);
                    double share = std::exp(vx[n * C * P + i]) / sum;
                    expected[n * C * P + i] = algorithm == 2 ? std::log(share) : share;
                }
            same("a softmax", forward(vx), expected);
            dy.set(weights);
            CALL(cudnnSoftmaxBackward, handle, algorithm, mode, &one, y.form, y.data, dy.form, dy.data, &zero, dx.form,
                 dx.data);
            slopes("a softmax's gradient", vx, weights, dx.get(), forward);
        }
}

static void batch_normalisations() {
    for (int mode = 0; mode < 2; mode++)
        for (int operations = 0; operations < 3; operations++) {
            Tensor x({5, 3, 2, 2}), y({5, 3, 2, 2}), dx({5, 3, 2, 2}), dy({5, 3, 2, 2}), z({5, 3, 2, 2}), dz({5, 3, 2, 2});
            std::vector<int> shape = mode == 0 ? std::vector<int>{1, 3, 2, 2} : std::vector<int>{1, 3, 1, 1};
            Tensor scale(shape), bias(shape), d_scale(shape), d_bias(shape);
            Tensor running_mean(shape), running_variance(shape), mean(shape), inverse(shape), derived({1});
            CALL(cudnnDeriveBNTensorDescriptor, derived.form, x.form, mode);
            Object relu;
            CALL(cudnnCreateActivationDescriptor, &relu);
            CALL(cudnnSetActivationDescriptor, relu, 1, 0, 0.0);
            const double epsilon = 1e-3, factor = 0.25;
            Values vx = random_values(x.size(), 11), weights = random_values(x.size(), 12);
            Values vs = random_values(scale.size(), 13), vb = random_values(scale.size(), 14);
            z.set(random_values(x.size(), 15));
            auto forward = [&](const Values& v, const Values& s, const Values& b) {
                x.set(v);
                scale.set(s);
                bias.set(b);
                running_mean.set(Values(mean.size(), 1.0));
                running_variance.set(Values(mean.size(), 2.0));
                CALL(cudnnBatchNormalizationForwardTrainingEx, handle, mode, operations, &one, &zero, x.form, x.data,
                     z.form, z.data, y.form, y.data, derived.form, scale.data, bias.data, factor, running_mean.data,
                     running_variance.data, epsilon, mean.data, inverse.data, relu, (void*)0, (size_t)0, (void*)0,
                     (size_t)0);
                return y.get();
            };
            Values vz = z.get(), found = forward(vx, vs, vb), expected(x.size());
            size_t groups = scale.size(), population = x.size() / groups;
            auto group = [&](size_t i) { return mode == 0 ? i % 12 : i / 4 % 3; };
            Values means(groups), variances(groups), old(groups), spread(groups), inverses(groups);
            for (size_t i = 0; i < x.size(); i++) means[group(i)] += vx[i] / population;
            for (size_t i = 0; i < x.size(); i++) variances[group(i)] += std::pow(vx[i] - means[group(i)], 2) / population;
            for (size_t i = 0; i < x.size(); i++) {
                size_t g = group(i);
                expected[i] = vs[g] * (vx[i] - means[g]) / std::sqrt(variances[g] + epsilon) + vb[g];
                if (operations == 2) expected[i] += vz[i];
                if (operations > 0) expected[i] = std::max(expected[i], 0.0);
            }
            for (size_t g = 0; g < groups; g++) {
                old[g] = 1 - factor + factor * means[g];
                spread[g] = 2 * (1 - factor) + factor * variances[g] * population / (population - 1);
                inverses[g] = 1 / std::sqrt(variances[g] + epsilon);
            }
            same("a batch normalisation", found, expected);
            same("a running mean", running_mean.get(), old);
            same("a running variance", running_variance.get(), spread);
            same("a mean", mean.get(), means);
            same("a deviation", inverse.get(), inverses);

            dy.set(weights);
            CALL(cudnnBatchNormalizationBackwardEx, handle, mode, operations, &one, &zero, &one, &zero, x.form, x.data,
                 y.form, y.data, dy.form, dy.data, dz.form, dz.data, dx.form, dx.data, derived.form, scale.data,
                 bias.data, d_scale.data, d_bias.data, epsilon, mean.data, inverse.data, relu, (void*)0, (size_t)0,
                 (void*)0, (size_t)0);
            Values by_x = dx.get(), by_scale = d_scale.get(), by_bias = d_bias.get();
            slopes("a batch normalisation's input", vx, weights, by_x, [&](const Values& v) { return forward(v, vs, vb); });
            slopes("a batch normalisation's scale", vs, weights, by_scale, [&](const Values& v) { return forward(vx, v, vb); });
            slopes("a batch normalisation's bias", vb, weights, by_bias, [&](const Values& v) { return forward(vx, vs, v); });

            x.set(vx);
            scale.set(vs);
            bias.set(vb);
            running_mean.set(means);
            running_variance.set(variances);
            CALL(cudnnBatchNormalizationForwardInference, handle, mode, &one, &zero, x.form, x.data, y.form, y.data,
                 derived.form, scale.data, bias.data, running_mean.data, running_variance.data, epsilon);
            if (operations == 0) same("a batch normalisation in use", y.get(), expected);
            CALL(cudnnDestroyActivationDescriptor, relu);
        }
}

static void neighbours() {
    for (unsigned count : {1u, 4u, 5u}) {
        enum { C = 7, P = 4 };
        Tensor x({2, C, 2, 2}), y({2, C, 2, 2}), dx({2, C, 2, 2}), dy({2, C, 2, 2});
        Object form;
        CALL(cudnnCreateLRNDescriptor, &form);
        CALL(cudnnSetLRNDescriptor, form, count, 0.5, 0.75, 2.0);
        Values vx = random_values(x.size(), 16), weights = random_values(x.size(), 17), expected(x.size());
        auto forward = [&](const Values& v) {
            x.set(v);
            CALL(cudnnLRNCrossChannelForward, handle, form, 0, &one, x.form, x.data, &zero, y.form, y.data);
            return y.get();
        };
        for (int i = 0; i < (int)x.size(); i++) {
            int c = i / P % C, before = ((int)count - 1) / 2;
            double sum = 0;
            for (int j = c - before; j < c - before + (int)count; j++)
                if (j >= 0 && j < C) sum += std::pow(vx[i + (j - c) * P], 2);
            expected[i] = vx[i] * std::pow(2 + 0.5 / count * sum, -0.75);
        }
        same("a normalisation by neighbours", forward(vx), expected);
        dy.set(weights);
        CALL(cudnnLRNCrossChannelBackward, handle, form, 0, &one, y.form, y.data, dy.form, dy.data, x.form, x.data,
             &zero, dx.form, dx.data);
        slopes("the gradient of a normalisation by neighbours", vx, weights, dx.get(), forward);
        CALL(cudnnDestroyLRNDescriptor, form);
    }
}

static void sums() {
    Tensor a({2, 3, 4, 5}), b({1, 3, 1, 1}), c({2, 3, 4, 5}), d({2, 3, 1, 1});
    Values va = random_values(a.size(), 18), vb = random_values(b.size(), 19), vc = random_values(c.size(), 20);
    const double two = 2, three = 3;
    for (int operation = 0; operation < 6; operation++) {
        Object form;
        CALL(cudnnCreateOpTensorDescriptor, &form);
        CALL(cudnnSetOpTensorDescriptor, form, operation, (int)F64, 0);
        for (double& value : va) value = std::abs(value);
        a.set(va), b.set(vb), c.set(vc);
        CALL(cudnnOpTensor, handle, form, &two, a.form, a.data, &three, b.form, b.data, &one, c.form, c.data);
        Values expected(c.size());
        for (size_t i = 0; i < c.size(); i++) {
            double x = 2 * va[i], y = 3 * vb[i / 20 % 3];
            double values[] = {x + y, x * y, std::min(x, y), std::max(x, y), std::sqrt(x), 1 - x};
            expected[i] = values[operation] + vc[i];
        }
        same("an operation of two tensors", c.get(), expected);
        CALL(cudnnDestroyOpTensorDescriptor, form);
    }
    c.set(vc);
    CALL(cudnnAddTensor, handle, &two, b.form, b.data, &three, c.form, c.data);
    Values expected(c.size());
    for (size_t i = 0; i < c.size(); i++) expected[i] = 2 * vb[i / 20 % 3] + 3 * vc[i];
    same("a sum", c.get(), expected);
    CALL(cudnnScaleTensor, handle, c.form, c.data, &two);
    for (double& value : expected) value *= 2;
    same("a multiple", c.get(), expected);
    CALL(cudnnSetTensor, handle, c.form, c.data, &three);
    same("a number everywhere", c.get(), Values(c.size(), 3.0));

    Object form;
    CALL(cudnnCreateReduceTensorDescriptor, &form);
    CALL(cudnnSetReduceTensorDescriptor, form, 7, (int)F64, 0, 0, 0);
    CALL(cudnnReduceTensor, handle, form, (void*)0, (size_t)0, (void*)0, (size_t)0, &one, a.form, a.data, &zero, d.form,
         d.data);
    Values norms(d.size());
    for (size_t i = 0; i < a.size(); i++) norms[i / 20] += va[i] * va[i];
    for (double& value : norms) value = std::sqrt(value);
    same("norms", d.get(), norms);
    CALL(cudnnDestroyReduceTensorDescriptor, form);

    // Another order of the same elements.
    Tensor turned({2, 3, 4, 5}, NHWC);
    CALL(cudnnTransformTensor, handle, &one, a.form, a.data, &zero, turned.form, turned.data);
    Values last(a.size());
    for (int i = 0; i < (int)a.size(); i++) last[(i / 60 * 20 + i % 20) * 3 + i / 20 % 3] = va[i];
    same("another order", turned.get(), last);
}

static void dropouts() {
    enum { COUNT = 20000 };
    Tensor x({1, 1, 1, COUNT}), y({1, 1, 1, COUNT}), dx({1, 1, 1, COUNT});
    Object form;
    size_t states = 0, kept = 0;
    CALL(cudnnDropoutGetStatesSize, handle, &states);
    CALL(cudnnDropoutGetReserveSpaceSize, x.form, &kept);
    void *state, *reserve;
    CHECK(cudaMalloc(&state, states));
    CHECK(cudaMalloc(&reserve, kept));
    CALL(cudnnCreateDropoutDescriptor, &form);
    // A float among the arguments has to be named as one.
    auto set = (int (*)(Object, Object, float, void*, size_t, unsigned long long))find("cudnnSetDropoutDescriptor");
    REQUIRE(set(form, handle, 0.25f, state, states, 7) == 0, "setting a dropout");
    x.set(Values(COUNT, 3.0));
    CALL(cudnnDropoutForward, handle, form, x.form, x.data, y.form, y.data, reserve, kept);
    CALL(cudnnDropoutBackward, handle, form, x.form, x.data, dx.form, dx.data, reserve, kept);
    Values found = y.get();
    same("a dropout's gradient", dx.get(), found);
    size_t zeros = 0;
    for (double value : found) {
        REQUIRE(value == 0 || std::abs(value - 4) < 1e-6, "an element is %g", value);
        zeros += value == 0;
    }
    REQUIRE(zeros > COUNT / 4 - 400 && zeros < COUNT / 4 + 400, "%zu of %d are zero", zeros, (int)COUNT);
    CALL(cudnnDropoutForward, handle, form, x.form, x.data, y.form, y.data, reserve, kept);
    REQUIRE(y.get() != found, "the same elements again");
    STATUS(2000, cudnnDropoutForward, handle, form, x.form, x.data, y.form, y.data, reserve, kept - 1);
    CALL(cudnnDestroyDropoutDescriptor, form);
    CHECK(cudaFree(state));
    CHECK(cudaFree(reserve));
}

// Device memory of so many 64-bit numbers.
struct Numbers {
    double* data = nullptr;
    size_t size;
    explicit Numbers(const Values& values) : size(values.size()) {
        CHECK(cudaMalloc(&data, (size + 1) * sizeof *data));
        set(values);
    }
    Numbers(const Numbers&) = delete;
    ~Numbers() { CHECK(cudaFree(data)); }
    void set(const Values& values) {
        CHECK(cudaMemcpy(data, values.data(), values.size() * sizeof *data, cudaMemcpyHostToDevice));
    }
    Values get() const {
        Values values(size);
        CHECK(cudaMemcpy(values.data(), data, size * sizeof *data, cudaMemcpyDeviceToHost));
        return values;
    }
};

// What differences of `loss` say of the gradient by the numbers of `of`.
static Values differences(Numbers& of, const std::function<double()>& loss) {
    Values at = of.get(), slopes(at.size());
    for (size_t i = 0; i < at.size(); i++) {
        double before = at[i], sides[2];
        for (int side : {0, 1}) {
            at[i] = before + (side ? 1e-6 : -1e-6);
            of.set(at);
            sides[side] = loss();
        }
        at[i] = before;
        slopes[i] = (sides[1] - sides[0]) / 2e-6;
    }
    of.set(at);
    return slopes;
}

// Packed sequences through a network of two layers that goes both ways.
static void recurrent(int cell, int hidden, int outputs) {
    enum { STEPS = 3, COUNT = 2, INPUT = 3, LAYERS = 2, WAYS = 2, DOUBLE_BIAS = 2, PACKED = 1 };
    const int lengths[COUNT] = {3, 2}, rows = 5, wide = WAYS * outputs;
    Object network, x_form, y_form, dropout;
    CALL(cudnnCreateDropoutDescriptor, &dropout);
    CALL(cudnnSetDropoutDescriptor, dropout, handle, 0.0f, (void*)nullptr, (size_t)0, (unsigned long long)1);
    CALL(cudnnCreateRNNDescriptor, &network);
    CALL(cudnnSetRNNDescriptor_v8, network, 0, cell, (int)DOUBLE_BIAS, 1, 0, (int)F64, (int)F64, 0, (int)INPUT, hidden, outputs,
         (int)LAYERS, dropout, 0u);
    // A projection of what is no LSTM.
    STATUS(2000, cudnnSetRNNDescriptor_v8, network, 0, 3, (int)DOUBLE_BIAS, 1, 0, (int)F64, (int)F64, 0, (int)INPUT, 4, 2,
           (int)LAYERS, dropout, 0u);
    CALL(cudnnCreateRNNDataDescriptor, &x_form);
    CALL(cudnnCreateRNNDataDescriptor, &y_form);
    CALL(cudnnSetRNNDataDescriptor, x_form, (int)F64, (int)PACKED, (int)STEPS, (int)COUNT, (int)INPUT, (const int*)lengths,
         (void*)nullptr);
    CALL(cudnnSetRNNDataDescriptor, y_form, (int)F64, (int)PACKED, (int)STEPS, (int)COUNT, wide, (const int*)lengths,
         (void*)nullptr);
    size_t bytes = 0, work = 99, kept_bytes = 0;
    CALL(cudnnGetRNNWeightSpaceSize, handle, network, &bytes);
    CALL(cudnnGetRNNTempSpaceSizes, handle, network, 1, x_form, &work, &kept_bytes);
    Numbers weights(random_values(bytes / 8, cell + 1)), x(random_values(rows * INPUT, 2)), y(Values(rows * wide, 0));
    Numbers kept(Values(kept_bytes / 8, 0));
    Tensor h_form({LAYERS * WAYS, COUNT, outputs}), c_form({LAYERS * WAYS, COUNT, hidden});
    Numbers hx(random_values(h_form.size(), 3)), cx(random_values(c_form.size(), 4));
    Numbers hy(Values(h_form.size(), 0)), cy(Values(c_form.size(), 0));
    auto forward = [&](int trains) {
        CALL(cudnnRNNForward, handle, network, trains, (const int*)nullptr, x_form, (const double*)x.data, y_form, y.data,
             h_form.form, (const double*)hx.data, hy.data, c_form.form, (const double*)cx.data, cy.data, bytes,
             (const double*)weights.data, (size_t)0, (void*)nullptr, kept_bytes, trains ? kept.data : nullptr);
    };
    forward(1);
    // The first step of a network of one layer, by the matrices that the library names.
    if (cell == 1) {
        Object single, m_form, b_form;
        CALL(cudnnCreateRNNDescriptor, &single);
        CALL(cudnnSetRNNDescriptor_v8, single, 0, cell, (int)DOUBLE_BIAS, 0, 0, (int)F64, (int)F64, 0, (int)INPUT, hidden, hidden, 1,
             dropout, 0u);
        CALL(cudnnCreateTensorDescriptor, &m_form);
        CALL(cudnnCreateTensorDescriptor, &b_form);
        Values stored = weights.get(), in = x.get(), first = hx.get(), sums(COUNT * hidden, 0);
        for (int number = 0; number < 2; number++) {
            double *matrix = nullptr, *vector = nullptr;
            CALL(cudnnGetRNNWeightParams, handle, single, 0, bytes, (const void*)weights.data, number, m_form, &matrix, b_form,
                 &vector);
            int kind, count, dims[3], strides[3];
            CALL(cudnnGetTensorNdDescriptor, m_form, 3, &kind, &count, (int*)dims, (int*)strides);
            REQUIRE(count == 3 && dims[1] == hidden && dims[2] == (number ? hidden : (int)INPUT), "matrix %d", number);
            for (int b = 0; b < COUNT; b++)
                for (int i = 0; i < hidden; i++) {
                    sums[b * hidden + i] += stored[vector - weights.data + i];
                    for (int k = 0; k < dims[2]; k++)
                        sums[b * hidden + i] += stored[matrix - weights.data + i * dims[2] + k] *
                                                (number ? first[b * hidden + k] : in[b * INPUT + k]);
                }
        }
        Object one_form;
        CALL(cudnnCreateRNNDataDescriptor, &one_form);
        CALL(cudnnSetRNNDataDescriptor, one_form, (int)F64, (int)PACKED, (int)STEPS, (int)COUNT, hidden, (const int*)lengths,
             (void*)nullptr);
        Tensor state({1, COUNT, hidden});
        Numbers out(Values(rows * hidden, 0));
        CALL(cudnnRNNForward, handle, single, 0, (const int*)nullptr, x_form, (const double*)x.data, one_form, out.data, state.form,
             (const double*)hx.data, (double*)nullptr, (Object) nullptr, (const double*)nullptr, (double*)nullptr, bytes,
             (const double*)weights.data, (size_t)0, (void*)nullptr, (size_t)0, (void*)nullptr);
        Values got = out.get();
        for (auto& sum : sums) sum = tanh(sum);
        got.resize(sums.size());
        same("the first step of a network", got, sums, 1e-12);
        CALL(cudnnDestroyRNNDataDescriptor, one_form);
        CALL(cudnnDestroyRNNDescriptor, single);
        CALL(cudnnDestroyTensorDescriptor, m_form);
        CALL(cudnnDestroyTensorDescriptor, b_form);
    }
    Numbers dy(random_values(y.size, 5)), dhy(random_values(hy.size, 6)), dcy(random_values(cy.size, 7));
    Numbers dx(Values(x.size, 0)), dhx(Values(hx.size, 0)), dcx(Values(cx.size, 0)), dweights(Values(weights.size, 1));
    CALL(cudnnRNNBackwardData_v8, handle, network, (const int*)nullptr, y_form, (const double*)y.data, (const double*)dy.data,
         x_form, dx.data, h_form.form, (const double*)hx.data, (const double*)dhy.data, dhx.data, c_form.form,
         (const double*)cx.data, (const double*)dcy.data, dcx.data, bytes, (const double*)weights.data, (size_t)0,
         (void*)nullptr, kept_bytes, kept.data);
    CALL(cudnnRNNBackwardWeights_v8, handle, network, 0, (const int*)nullptr, x_form, (const double*)x.data, h_form.form,
         (const double*)hx.data, y_form, (const double*)y.data, bytes, dweights.data, (size_t)0, (void*)nullptr, kept_bytes,
         kept.data);
    STATUS(2000, cudnnRNNBackwardWeights_v8, handle, network, 0, (const int*)nullptr, x_form, (const double*)x.data, h_form.form,
           (const double*)hx.data, y_form, (const double*)y.data, bytes - 1, dweights.data, (size_t)0, (void*)nullptr,
           kept_bytes, kept.data);
    const bool lstm = cell == 2;
    auto dot = [](const Values& a, const Values& b) {
        double sum = 0;
        for (size_t i = 0; i < a.size(); i++) sum += a[i] * b[i];
        return sum;
    };
    Values slopes_y = dy.get(), slopes_h = dhy.get(), slopes_c = dcy.get();
    auto loss = [&] {
        forward(0);
        return dot(y.get(), slopes_y) + dot(hy.get(), slopes_h) + (lstm ? dot(cy.get(), slopes_c) : 0);
    };
    same("the gradient of a network's input", dx.get(), differences(x, loss), 1e-6);
    same("the gradient of a network's first states", dhx.get(), differences(hx, loss), 1e-6);
    if (lstm) same("the gradient of a network's first cells", dcx.get(), differences(cx, loss), 1e-6);
    // Some of the weights: what all of them are is the libraries' own tests' business.
    Values got = dweights.get(), all = weights.get();
    for (size_t i = 0; i < all.size(); i += 7) {
        Values changed = all;
        double sides[2];
        for (int side : {0, 1}) {
            changed[i] = all[i] + (side ? 1e-6 : -1e-6);
            weights.set(changed);
            sides[side] = loss();
        }
        double wanted = 1 + (sides[1] - sides[0]) / 2e-6;
        REQUIRE(fabs(got[i] - wanted) < 1e-6 * (1 + fabs(wanted)), "the gradient of weight %d is %g, not %g", (int)i, got[i], wanted);
    }
    CALL(cudnnDestroyRNNDataDescriptor, x_form);
    CALL(cudnnDestroyRNNDataDescriptor, y_form);
    CALL(cudnnDestroyRNNDescriptor, network);
    CALL(cudnnDestroyDropoutDescriptor, dropout);
}

// The loss of all sequences whose labels' probabilities can be added up by hand.
static void label_losses() {
    enum { STEPS = 2, SYMBOLS = 3 };
    // One sequence with the label 1: paths (1, 1), (0, 1) and (1, 0).
    const float p[STEPS][SYMBOLS] = {{0.5f, 0.25f, 0.25f}, {0.125f, 0.75f, 0.125f}};
    const double all = 0.25 * 0.75 + 0.5 * 0.75 + 0.25 * 0.125;
    Object form, loss;
    int dims[3] = {STEPS, 1, SYMBOLS}, strides[3] = {SYMBOLS, SYMBOLS, 1};
    CALL(cudnnCreateTensorDescriptor, &form);
    CALL(cudnnSetTensorNdDescriptor, form, (int)F32, 3, (const int*)dims, (const int*)strides);
    CALL(cudnnCreateCTCLossDescriptor, &loss);
    float *data, *gradient, *cost;
    int *labels, *length, *steps;
    CHECK(cudaMalloc(&data, sizeof p));
    CHECK(cudaMalloc(&gradient, sizeof p));
    CHECK(cudaMalloc(&cost, sizeof *cost));
    CHECK(cudaMalloc(&labels, sizeof *labels));
    CHECK(cudaMalloc(&length, sizeof *length));
    CHECK(cudaMalloc(&steps, sizeof *steps));
    const int one_label = 1, two_steps = STEPS, none = 0;
    CHECK(cudaMemcpy(data, p, sizeof p, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(labels, &one_label, sizeof *labels, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(length, &one_label, sizeof *length, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(steps, &two_steps, sizeof *steps, cudaMemcpyHostToDevice));
    // Of each symbol at each step: its probability, less the share of paths that have it there.
    const double shares[STEPS][SYMBOLS] = {{0.5 * 0.75 / all, 0.25 * 0.875 / all, 0}, {0.25 * 0.125 / all, 0.75 * 0.75 / all, 0}};
    for (bool on_device : {false, true}) {
        CALL(cudnnSetCTCLossDescriptor_v9, loss, (int)F32, 0, 0, 1);
        size_t size = 99;
        if (on_device) {
            CALL(cudnnGetCTCLossWorkspaceSize_v8, handle, 0, loss, form, form, &size);
            CALL(cudnnCTCLoss_v8, handle, 0, loss, form, (const void*)data, (const int*)labels, (const int*)length,
                 (const int*)steps, (void*)cost, form, (void*)gradient, size, (void*)nullptr);
        } else {
            CALL(cudnnGetCTCLossWorkspaceSize, handle, form, form, &one_label, &one_label, &two_steps, 0, loss, &size);
            STATUS(2000, cudnnCTCLoss, handle, form, (const void*)data, &none, &one_label, &two_steps, (void*)cost, form,
                   (void*)gradient, 0, loss, (void*)nullptr, size);
            CALL(cudnnCTCLoss, handle, form, (const void*)data, &one_label, &one_label, &two_steps, (void*)cost, form,
                 (void*)gradient, 0, loss, (void*)nullptr, size);
        }
        float got, slopes[STEPS][SYMBOLS];
        CHECK(cudaMemcpy(&got, cost, sizeof got, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(slopes, gradient, sizeof slopes, cudaMemcpyDeviceToHost));
        REQUIRE(fabs(got + log(all)) < 1e-6, "a loss of %g, not %g", got, -log(all));
        for (int t = 0; t < STEPS; t++)
            for (int k = 0; k < SYMBOLS; k++)
                REQUIRE(fabs(slopes[t][k] - (p[t][k] - shares[t][k])) < 1e-6, "the gradient at %d of %d is %g", t, k, slopes[t][k]);
        CHECK(cudaMemset(cost, 0, sizeof *cost));
    }
    CALL(cudnnDestroyCTCLossDescriptor, loss);
    CALL(cudnnDestroyTensorDescriptor, form);
    for (void* each : {(void*)data, (void*)gradient, (void*)cost, (void*)labels, (void*)length, (void*)steps}) CHECK(cudaFree(each));
}

// An image that is turned by a quarter, and the gradients.
static void spatial() {
    const int dims[4] = {1, 1, 3, 3};
    Object form;
    CALL(cudnnCreateSpatialTransformerDescriptor, &form);
    CALL(cudnnSetSpatialTransformerNdDescriptor, form, 0, (int)F64, 4, (const int*)dims);
    Tensor x({1, 1, 3, 3}), y({1, 1, 3, 3}), dx({1, 1, 3, 3});
    Numbers theta({0, 1, 0, -1, 0, 0}), grid(Values(18, 9)), dgrid(Values(18, 9)), dtheta(Values(6, 9));
    CALL(cudnnSpatialTfGridGeneratorForward, handle, form, (const void*)theta.data, (void*)grid.data);
    x.set({1, 2, 3, 4, 5, 6, 7, 8, 9});
    CALL(cudnnSpatialTfSamplerForward, handle, form, (const void*)&one, x.form, (const void*)x.data, (const void*)grid.data,
         (const void*)&zero, y.form, (void*)y.data);
    same("a turned image", y.get(), {7, 4, 1, 8, 5, 2, 9, 6, 3});
    Values dy = random_values(9, 8);
    y.set(dy);
    theta.set({0.3, 0.4, 0.05, -0.6, 0.2, 0.1});
    CALL(cudnnSpatialTfGridGeneratorForward, handle, form, (const void*)theta.data, (void*)grid.data);
    CALL(cudnnSpatialTfSamplerBackward, handle, form, (const void*)&one, x.form, (const void*)x.data, (const void*)&zero, dx.form,
         (void*)dx.data, (const void*)&one, y.form, (const void*)y.data, (const void*)grid.data, (const void*)&zero,
         (void*)dgrid.data);
    CALL(cudnnSpatialTfGridGeneratorBackward, handle, form, (const void*)dgrid.data, (void*)dtheta.data);
    Tensor out({1, 1, 3, 3});
    auto loss = [&] {
        CALL(cudnnSpatialTfGridGeneratorForward, handle, form, (const void*)theta.data, (void*)grid.data);
        CALL(cudnnSpatialTfSamplerForward, handle, form, (const void*)&one, x.form, (const void*)x.data, (const void*)grid.data,
             (const void*)&zero, out.form, (void*)out.data);
        Values values = out.get();
        double sum = 0;
        for (int i = 0; i < 9; i++) sum += values[i] * dy[i];
        return sum;
    };
    same("the gradient of an affine map", dtheta.get(), differences(theta, loss), 1e-6);
    STATUS(2002, cudnnSpatialTfGridGeneratorForward, handle, form, (const void*)nullptr, (void*)grid.data);
    CALL(cudnnDestroySpatialTransformerDescriptor, form);
}

// A captured sequence is launched as a graph.
static void captured() {
    Tensor x({1, 2, 2, 2}), y({1, 2, 2, 2});
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CALL(cudnnSetStream, handle, stream);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CALL(cudnnAddTensor, handle, &one, x.form, x.data, &one, y.form, y.data);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    x.set(Values(8, 2.0));
    y.set(Values(8, 1.0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    same("a graph", y.get(), Values(8, 7.0));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CALL(cudnnSetStream, handle, (cudaStream_t)0);
    CHECK(cudaStreamDestroy(stream));
}

int main() {
    CALL(cudnnCreate, &handle);
    convolutions(NCHW);
    convolutions(NHWC);
    poolings();
    activations();
    softmaxes();
    batch_normalisations();
    neighbours();
    sums();
    dropouts();
    recurrent(1, 2, 2);
    recurrent(2, 2, 2);
    recurrent(2, 3, 2);
    recurrent(3, 2, 2);
    label_losses();
    spatial();
    captured();
    STATUS(2000, cudnnAddTensor, handle, &one, (Object)0, (void*)0, &one, (Object)0, (void*)0);
    char why[64] = "";
    ((void (*)(char*, size_t))find("cudnnGetLastErrorString"))(why, sizeof why);
    REQUIRE(strstr(why, "cudnnAddTensor"), "the last error is \"%s\"", why);
    CALL(cudnnDestroy, handle);
    return ok("convolutions, poolings, activations, softmax, normalisations, sums, dropout, recurrent networks, CTC and spatial transformers");
}
