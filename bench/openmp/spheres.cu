// Rays against spheres: branches that depend on what each ray meets.
#include "pair.h"

const int SPHERES = 32;

BOTH inline float shade(float px, float py, const float* spheres) {
    float dx = px, dy = py, dz = 1.0f, length = sqrtf(dx * dx + dy * dy + dz * dz), light = 0, weight = 1;
    float ox = 0, oy = 0, oz = -4;
    dx /= length, dy /= length, dz /= length;
    for (int bounce = 0; bounce < 4; bounce++) {
        float near = 1e30f;
        int hit = -1;
        for (int s = 0; s < SPHERES; s++) {
            float x = spheres[4 * s] - ox, y = spheres[4 * s + 1] - oy, z = spheres[4 * s + 2] - oz, r = spheres[4 * s + 3];
            float along = x * dx + y * dy + z * dz;
            if (along < 0) continue;
            float apart = x * x + y * y + z * z - along * along;
            if (apart > r * r) continue;
            float t = along - sqrtf(r * r - apart);
            if (t > 1e-3f && t < near) near = t, hit = s;
        }
        if (hit < 0) return light + weight * (0.5f + 0.5f * dy);
        ox += near * dx, oy += near * dy, oz += near * dz;
        float r = spheres[4 * hit + 3];
        float nx = (ox - spheres[4 * hit]) / r, ny = (oy - spheres[4 * hit + 1]) / r, nz = (oz - spheres[4 * hit + 2]) / r;
        float against = dx * nx + dy * ny + dz * nz;
        dx -= 2 * against * nx, dy -= 2 * against * ny, dz -= 2 * against * nz;
        light += weight * 0.1f * float(hit % 5);
        weight *= 0.6f;
    }
    return light;
}

#ifdef __CUDACC__
__global__ void picture(int n, const float* spheres, float* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) out[y * n + x] = shade(2.0f * x / n - 1, 2.0f * y / n - 1, spheres);
}
#endif

int main(int argc, char** argv) {
    // Where rounding decides whether a ray meets a sphere, a few points differ.
    Pair pair(argc, argv, 5e-3);
    int n = int(pair.side(512, 2));
    auto spheres = pair.uniform<float>(4 * SPHERES, 17, -2, 2);
    for (int s = 0; s < SPHERES; s++) spheres[4 * s + 3] = 0.15f + 0.1f * fabsf(spheres[4 * s + 3]);
    std::vector<float> out(size_t(n) * n);
#ifdef __CUDACC__
    Device<float> ds(spheres), dout(n * size_t(n));
    pair.time([&] { picture<<<dim3(blocks(n, 32), blocks(n, 8)), dim3(32, 8)>>>(n, ds, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for schedule(dynamic, 8)
        for (int y = 0; y < n; y++)
            for (int x = 0; x < n; x++) out[size_t(y) * n + x] = shade(2.0f * x / n - 1, 2.0f * y / n - 1, spheres.data());
    });
#endif
    return pair.finish(out);
}
