// Half and bfloat16 arithmetic: conversions, fma, packed operations, against the host's conversions.
// rgpu-nvcc: -arch=sm_80
#define EXAMPLE "half_precision"
#include "common/check.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void halves(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half a = __float2half(x[i]), b = __float2half(y[i]);
    float* o = out + i * 8;
    o[0] = __half2float(__hadd(a, b));
    o[1] = __half2float(__hmul(a, b));
    o[2] = __half2float(__hfma(a, b, a));
    o[3] = __hlt(a, b) ? 1.0f : 0.0f;
    __half2 p = __halves2half2(a, b), q = __hadd2(p, __half2half2(__float2half(1.0f)));
    o[4] = __low2float(q);
    o[5] = __high2float(q);
    o[6] = (float)__half2int_rz(__hmul(a, __float2half(16.0f)));
    o[7] = __half2float(__hmax(a, b));
}

__global__ void brains(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat16 a = __float2bfloat16(x[i]), b = __float2bfloat16(y[i]);
    out[i * 3] = __bfloat162float(a);
    out[i * 3 + 1] = __bfloat162float(__hfma(a, b, a));
    out[i * 3 + 2] = __bfloat162float(__hmax(a, b));
}

// Round a double to the format with the given bits of significand, ties to even.
static float rounded(double v, int significand, int least_exponent) {
    if (v == 0) return (float)v;
    int e;
    frexp(v, &e);
    int unit = std::max(e, least_exponent) - significand;
    return (float)ldexp(nearbyint(ldexp(v, -unit)), unit);
}

int main() {
    const int n = 20000;
    Random random(14);
    std::vector<float> x(n), y(n);
    for (int i = 0; i < n; i++) {
        x[i] = (random.unit() - 0.5f) * (i % 3 == 0 ? 1e-6f : 20.0f);
        y[i] = (random.unit() - 0.5f) * (i % 5 == 0 ? 1e-3f : 20.0f);
    }
    DeviceArray<float> dx(x), dy(y), dout(n * 8);
    halves<<<(n + 127) / 128, 128>>>(dx, dy, dout, n);
    CHECK(cudaGetLastError());
    std::vector<float> got = dout.download();
    auto h = [](double v) { return rounded(v, 11, -13); };
    for (int i = 0; i < n; i++) {
        double a = h(x[i]), b = h(y[i]);
        float e[8] = {h(a + b), h(a * b),   h(a * b + a),          a < b ? 1.0f : 0.0f, h(a + 1),
                      h(b + 1), 0,          (float)std::max(a, b)};
        e[6] = (float)(int)h(a * 16);
        for (int k = 0; k < 8; k++)
            REQUIRE(got[i * 8 + k] == e[k], "half operation %d of %.9g and %.9g is %.9g instead of %.9g", k, a, b,
                    got[i * 8 + k], e[k]);
    }
    brains<<<(n + 127) / 128, 128>>>(dx, dy, dout, n);
    CHECK(cudaGetLastError());
    got = dout.download();
    auto bf = [](double v) { return rounded(v, 8, -125); };
    for (int i = 0; i < n; i++) {
        double a = bf(x[i]), b = bf(y[i]);
        float e[3] = {(float)a, bf(fma(a, b, a)), (float)std::max(a, b)};
        for (int k = 0; k < 3; k++)
            REQUIRE(got[i * 3 + k] == e[k], "bfloat16 operation %d of %.9g and %.9g is %.9g instead of %.9g", k, a, b,
                    got[i * 3 + k], e[k]);
    }
    return ok("%d pairs", n);
}
