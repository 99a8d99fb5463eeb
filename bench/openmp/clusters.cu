// The step of k-means that looks for each point's nearest centre.
#include "pair.h"

const int CENTRES = 16, FEATURES = 16;

#ifdef __CUDACC__
__global__ void nearest(int n, const float* points, const float* centres, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int best = 0;
    float least = 1e30f;
    for (int c = 0; c < CENTRES; c++) {
        float sum = 0;
        for (int f = 0; f < FEATURES; f++) {
            float d = points[f * n + i] - centres[c * FEATURES + f];
            sum += d * d;
        }
        if (sum < least) least = sum, best = c;
    }
    out[i] = best;
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-4);
    int n = int(pair.size(200000));
    auto points = pair.uniform<float>(size_t(n) * FEATURES, 1), centres = pair.uniform<float>(CENTRES * FEATURES, 2);
    std::vector<int> out(n);
#ifdef __CUDACC__
    Device<float> dp(points), dc(centres);
    Device<int> dout(n);
    pair.time([&] { nearest<<<blocks(n, 256), 256>>>(n, dp, dc, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (int i = 0; i < n; i++) {
            int best = 0;
            float least = 1e30f;
            for (int c = 0; c < CENTRES; c++) {
                float sum = 0;
                for (int f = 0; f < FEATURES; f++) {
                    float d = points[size_t(f) * n + i] - centres[c * FEATURES + f];
                    sum += d * d;
                }
                if (sum < least) least = sum, best = c;
            }
            out[i] = best;
        }
    });
#endif
    return pair.finish(out);
}
