// The shape of a simulation step: 139 small launches, then four bytes read back to decide what comes next.
// An argument says how many steps; 20 without.
#define EXAMPLE "many_small_kernels"
#include "common/check.h"

__global__ void mix(unsigned* state, int n, unsigned step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) state[i] = state[i] * 1664525u + step;
}

__global__ void fold(const unsigned* state, int n, unsigned* out) {
    unsigned sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) sum ^= state[i];
    for (int d = 16; d > 0; d /= 2) sum ^= __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x == 0) *out = sum;
}

int main(int argc, char** argv) {
    const int n = 300, steps = argc > 1 ? std::atoi(argv[1]) : 20;
    std::vector<unsigned> state(n);
    for (int i = 0; i < n; i++) state[i] = i;
    DeviceArray<unsigned> dstate(state), dout(1);
    unsigned salt = 1;
    for (int s = 0; s < steps; s++) {
        for (int k = 0; k < 138; k++) mix<<<3, 128>>>(dstate, n, salt + k);
        fold<<<1, 32>>>(dstate, n, dout);
        unsigned got = 0;
        CHECK(cudaMemcpy(&got, dout, sizeof got, cudaMemcpyDeviceToHost));
        unsigned expected = 0;
        for (auto& v : state) {
            for (int k = 0; k < 138; k++) v = v * 1664525u + salt + k;
            expected ^= v;
        }
        REQUIRE(got == expected, "step %d gave %u instead of %u", s, got, expected);
        salt = got | 1;
    }
    return ok("%d steps of 139 launches", steps);
}
