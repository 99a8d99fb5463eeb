// Prices of options: exponentials, logarithms and roots in single precision.
#include "pair.h"

BOTH inline float normal(float d) {
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float tail = 0.39894228f * expf(-0.5f * d * d) *
                 (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
    return d > 0 ? 1.0f - tail : tail;
}
BOTH inline float call(float price, float strike, float years) {
    const float rate = 0.02f, volatility = 0.3f;
    float root = sqrtf(years), d1 = (logf(price / strike) + (rate + 0.5f * volatility * volatility) * years) / (volatility * root);
    float d2 = d1 - volatility * root;
    return price * normal(d1) - strike * expf(-rate * years) * normal(d2);
}

#ifdef __CUDACC__
__global__ void prices(size_t n, const float* price, const float* strike, const float* years, float* calls) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) calls[i] = call(price[i], strike[i], years[i]);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-4);
    size_t n = pair.size(1 << 20);
    auto price = pair.uniform<float>(n, 1, 5, 30), strike = pair.uniform<float>(n, 2, 1, 100), years = pair.uniform<float>(n, 3, 0.25, 10);
    std::vector<float> calls(n);
#ifdef __CUDACC__
    Device<float> dp(price), ds(strike), dy(years), dc(n);
    pair.time([&] { prices<<<blocks(n, 256), 256>>>(n, dp, ds, dy, dc); });
    calls = dc.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) calls[i] = call(price[i], strike[i], years[i]);
    });
#endif
    return pair.finish(calls);
}
