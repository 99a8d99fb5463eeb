// Half precision: numbers of 16 bits are read, combined in pairs and written.
#include "pair.h"
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

#ifdef __CUDACC__
__global__ void combine(size_t n, const __half2* x, const __half2* y, __half2* out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = __hadd2(__hmul2(x[i], y[i]), x[i]);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-3);
    size_t n = pair.size(2 << 20, 2);
    auto x = pair.uniform<float>(n, 1), y = pair.uniform<float>(n, 2);
    std::vector<float> result(n);
#ifdef __CUDACC__
    std::vector<__half> hx(n), hy(n);
    for (size_t i = 0; i < n; i++) hx[i] = __float2half(x[i]), hy[i] = __float2half(y[i]);
    Device<__half> dx(hx), dy(hy), dout(n);
    pair.time([&] {
        combine<<<blocks(n / 2, 256), 256>>>(n / 2, (__half2*)(__half*)dx, (__half2*)(__half*)dy, (__half2*)(__half*)dout);
    });
    auto out = dout.host();
    for (size_t i = 0; i < n; i++) result[i] = __half2float(out[i]);
#else
    std::vector<_Float16> hx(n), hy(n), out(n);
    for (size_t i = 0; i < n; i++) hx[i] = _Float16(x[i]), hy[i] = _Float16(y[i]);
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) out[i] = _Float16(_Float16(hx[i] * hy[i]) + hx[i]);
    });
    for (size_t i = 0; i < n; i++) result[i] = float(out[i]);
#endif
    return pair.finish(result);
}
