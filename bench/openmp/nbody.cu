// Forces between all pairs of bodies, with tiles of bodies in shared memory.
#include "pair.h"

const int TILE = 128;

#ifdef __CUDACC__
__global__ void forces(int n, const float4* bodies, float4* out) {
    __shared__ float4 tile[TILE];
    float4 me = bodies[blockIdx.x * TILE + threadIdx.x];
    float fx = 0, fy = 0, fz = 0;
    for (int start = 0; start < n; start += TILE) {
        tile[threadIdx.x] = bodies[start + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < TILE; k++) {
            float4 other = tile[k];
            float x = other.x - me.x, y = other.y - me.y, z = other.z - me.z;
            float r = rsqrtf(x * x + y * y + z * z + 1e-4f), s = other.w * r * r * r;
            fx += s * x, fy += s * y, fz += s * z;
        }
        __syncthreads();
    }
    out[blockIdx.x * TILE + threadIdx.x] = make_float4(fx, fy, fz, 0);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 2e-3);
    int n = int(pair.side(4096, 2, TILE));
    auto bodies = pair.uniform<float>(size_t(n) * 4, 1);
    std::vector<float> out(bodies.size());
#ifdef __CUDACC__
    Device<float> db(bodies), dout(out);
    pair.time([&] { forces<<<n / TILE, TILE>>>(n, (const float4*)(float*)db, (float4*)(float*)dout); });
    out = dout.host();
#else
    std::vector<float> px(n), py(n), pz(n), mass(n);
    for (int i = 0; i < n; i++) px[i] = bodies[4 * i], py[i] = bodies[4 * i + 1], pz[i] = bodies[4 * i + 2], mass[i] = bodies[4 * i + 3];
    pair.time([&] {
#pragma omp parallel for
        for (int i = 0; i < n; i++) {
            float fx = 0, fy = 0, fz = 0;
#pragma omp simd reduction(+ : fx, fy, fz)
            for (int k = 0; k < n; k++) {
                float x = px[k] - px[i], y = py[k] - py[i], z = pz[k] - pz[i];
                float r = 1 / sqrtf(x * x + y * y + z * z + 1e-4f), s = mass[k] * r * r * r;
                fx += s * x, fy += s * y, fz += s * z;
            }
            out[4 * i] = fx, out[4 * i + 1] = fy, out[4 * i + 2] = fz;
        }
    });
#endif
    return pair.finish(out);
}
