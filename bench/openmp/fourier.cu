// Stockham's Fourier transform of many short signals: a block each, complex numbers in shared memory.
#include "pair.h"

const int POINTS = 256;

#ifdef __CUDACC__
__global__ void transform(const float2* from, float2* to) {
    __shared__ float2 data[2][POINTS];
    int t = threadIdx.x, now = 0;
    const float2* signal = from + size_t(blockIdx.x) * POINTS;
    data[0][t] = signal[t];
    data[0][t + POINTS / 2] = signal[t + POINTS / 2];
    __syncthreads();
    for (int half = 1; half < POINTS; half *= 2) {
        int k = t % half;
        float s, c;
        sincospif(-float(k) / half, &s, &c);
        float2 a = data[now][t], b = data[now][t + POINTS / 2];
        float2 turned = make_float2(b.x * c - b.y * s, b.x * s + b.y * c);
        int place = (t - k) * 2 + k;
        data[now ^ 1][place] = make_float2(a.x + turned.x, a.y + turned.y);
        data[now ^ 1][place + half] = make_float2(a.x - turned.x, a.y - turned.y);
        now ^= 1;
        __syncthreads();
    }
    to[size_t(blockIdx.x) * POINTS + t] = data[now][t];
    to[size_t(blockIdx.x) * POINTS + t + POINTS / 2] = data[now][t + POINTS / 2];
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 1e-3);
    size_t signals = pair.size(4096);
    auto from = pair.uniform<float>(signals * POINTS * 2, 1);
    std::vector<float> to(from.size());
#ifdef __CUDACC__
    Device<float> df(from), dt(to);
    pair.time([&] { transform<<<unsigned(signals), POINTS / 2>>>((const float2*)(float*)df, (float2*)(float*)dt); });
    to = dt.host();
#else
    std::vector<float> cosines(POINTS), sines(POINTS);
    for (int half = 1; half < POINTS; half *= 2)
        for (int k = 0; k < half; k++) {
            cosines[half + k] = float(cos(-M_PI * k / half));
            sines[half + k] = float(sin(-M_PI * k / half));
        }
    pair.time([&] {
#pragma omp parallel for
        for (size_t signal = 0; signal < signals; signal++) {
            float re[2][POINTS], im[2][POINTS];
            for (int i = 0; i < POINTS; i++) re[0][i] = from[(signal * POINTS + i) * 2], im[0][i] = from[(signal * POINTS + i) * 2 + 1];
            int now = 0;
            for (int half = 1; half < POINTS; half *= 2) {
                for (int group = 0; group < POINTS / 2; group += half)
                    for (int k = 0; k < half; k++) {
                        int t = group + k, place = group * 2 + k;
                        float c = cosines[half + k], s = sines[half + k], bx = re[now][t + POINTS / 2], by = im[now][t + POINTS / 2];
                        float x = bx * c - by * s, y = bx * s + by * c;
                        re[now ^ 1][place] = re[now][t] + x, im[now ^ 1][place] = im[now][t] + y;
                        re[now ^ 1][place + half] = re[now][t] - x, im[now ^ 1][place + half] = im[now][t] - y;
                    }
                now ^= 1;
            }
            for (int i = 0; i < POINTS; i++) to[(signal * POINTS + i) * 2] = re[now][i], to[(signal * POINTS + i) * 2 + 1] = im[now][i];
        }
    });
#endif
    return pair.finish(to);
}
