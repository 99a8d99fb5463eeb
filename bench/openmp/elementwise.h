// Both halves of a program that computes a function of two numbers, element by element.
#pragma once
#include "pair.h"

#ifdef __CUDACC__
template <class Real, class Function> __global__ void values(size_t n, const Real* x, const Real* y, Real* out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = Function::value(x[i], y[i]);
}
#endif

// `Function::value` of so many pairs of numbers between two bounds.
template <class Real, class Function>
int elementwise(int argc, char** argv, double tolerance, size_t full, double from, double to) {
    Pair pair(argc, argv, tolerance);
    size_t n = pair.size(full);
    auto x = pair.uniform<Real>(n, 1, from, to), y = pair.uniform<Real>(n, 2, from, to);
    std::vector<Real> out(n);
#ifdef __CUDACC__
    Device<Real> dx(x), dy(y), dout(n);
    pair.time([&] { values<Real, Function><<<blocks(n, 256), 256>>>(n, dx, dy, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) out[i] = Function::value(x[i], y[i]);
    });
#endif
    return pair.finish(out);
}
