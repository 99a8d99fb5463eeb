// A template that both files instantiate: one of the two stays.
#pragma once

template <class T>
__device__ __noinline__ T both(T x) {
    return x + x;
}
