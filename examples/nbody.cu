// n-body steps in float and double, and the mathematical functions against the host's.
#define EXAMPLE "nbody"
#include "common/check.h"

template <typename T>
struct Vec {
    T x, y, z;
};

template <typename T>
__device__ T inverse_root(T v);
template <>
__device__ float inverse_root(float v) {
    return rsqrtf(v);
}
template <>
__device__ double inverse_root(double v) {
    return rsqrt(v);
}

template <typename T>
__global__ void step(const Vec<T>* in, Vec<T>* out, Vec<T>* velocity, int n, T dt) {
    extern __shared__ __align__(16) unsigned char raw[];
    Vec<T>* tile = (Vec<T>*)raw;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Vec<T> p = i < n ? in[i] : Vec<T>{0, 0, 0};
    T ax = 0, ay = 0, az = 0;
    for (int base = 0; base < n; base += blockDim.x) {
        if (base + threadIdx.x < n) tile[threadIdx.x] = in[base + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < (int)blockDim.x && base + k < n; k++) {
            T dx = tile[k].x - p.x, dy = tile[k].y - p.y, dz = tile[k].z - p.z;
            T w = inverse_root<T>(dx * dx + dy * dy + dz * dz + (T)0.01);
            w = w * w * w;
            ax += dx * w;
            ay += dy * w;
            az += dz * w;
        }
        __syncthreads();
    }
    if (i >= n) return;
    Vec<T> v = velocity[i];
    v.x += ax * dt;
    v.y += ay * dt;
    v.z += az * dt;
    velocity[i] = v;
    out[i] = {p.x + v.x * dt, p.y + v.y * dt, p.z + v.z * dt};
}

template <typename T>
double run(int n, int steps, double tolerance) {
    const T dt = (T)0.001;
    Random random(10);
    std::vector<Vec<T>> start(n), zero(n, Vec<T>{0, 0, 0});
    for (auto& p : start) p = {(T)random.unit(), (T)random.unit(), (T)random.unit()};
    DeviceArray<Vec<T>> a(start), b(n), velocity(zero);
    for (int s = 0; s < steps; s++) {
        step<T><<<(n + 95) / 96, 96, 96 * sizeof(Vec<T>)>>>(s % 2 ? b : a, s % 2 ? a : b, velocity, n, dt);
        CHECK(cudaGetLastError());
    }
    std::vector<Vec<T>> got = (steps % 2 ? b : a).download();
    std::vector<Vec<double>> p(n), v(n, Vec<double>{0, 0, 0});
    for (int i = 0; i < n; i++) p[i] = {(double)start[i].x, (double)start[i].y, (double)start[i].z};
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++) {
                double dx = p[k].x - p[i].x, dy = p[k].y - p[i].y, dz = p[k].z - p[i].z;
                double w = 1 / std::sqrt(dx * dx + dy * dy + dz * dz + 0.01);
                w = w * w * w * dt;
                v[i].x += dx * w;
                v[i].y += dy * w;
                v[i].z += dz * w;
            }
        for (int i = 0; i < n; i++) {
            p[i].x += v[i].x * dt;
            p[i].y += v[i].y * dt;
            p[i].z += v[i].z * dt;
        }
    }
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double e = std::fabs(got[i].x - p[i].x) + std::fabs(got[i].y - p[i].y) + std::fabs(got[i].z - p[i].z);
        REQUIRE(e < tolerance, "body %d is off by %g", i, e);
        worst = std::max(worst, e);
    }
    return worst;
}

constexpr int FUNCTIONS = 22;

template <typename T>
__host__ __device__ void functions(T x, T* r) {
    using namespace std;
    r[0] = sin(x);
    r[1] = cos(x);
    r[2] = tan(x);
    r[3] = exp(x);
    r[4] = log(fabs(x) + (T)0.001);
    r[5] = sqrt(fabs(x));
    r[6] = pow(fabs(x), (T)1.3);
    r[7] = atan2(x, (T)0.7);
    r[8] = tanh(x);
    r[9] = erf(x);
    r[10] = cbrt(x);
    r[11] = asin(x / (T)21);
    r[12] = acos(x / (T)21);
    r[13] = sinh(x / 4);
    r[14] = log2(fabs(x) + 1);
    r[15] = exp2(x);
    r[16] = fmod(x, (T)1.7);
    r[17] = floor(x) + ceil(x) * 2 + trunc(x) * 4 + rint(x) * 8 + round(x) * 16;
    r[18] = hypot(x, (T)3);
    r[19] = log1p(fabs(x));
    r[20] = expm1(x / 8);
    r[21] = lgamma(fabs(x) + (T)0.5);
}

template <typename T>
__global__ void evaluate(const T* x, T* results, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) functions<T>(x[i], results + i * FUNCTIONS);
}

template <typename T>
void check_functions(double tolerance) {
    const int n = 4001;
    std::vector<T> x(n);
    for (int i = 0; i < n; i++) x[i] = (T)((i - n / 2) * 0.01);
    DeviceArray<T> dx(x), dresults(n * FUNCTIONS);
    evaluate<T><<<(n + 127) / 128, 128>>>(dx, dresults, n);
    CHECK(cudaGetLastError());
    std::vector<T> got = dresults.download();
    for (int i = 0; i < n; i++) {
        T expected[FUNCTIONS];
        functions<T>(x[i], expected);
        for (int f = 0; f < FUNCTIONS; f++) {
            double e = (double)expected[f], g = (double)got[i * FUNCTIONS + f];
            REQUIRE(std::fabs(g - e) <= tolerance * std::max(1.0, std::fabs(e)),
                    "function %d of %.9g is %.17g instead of %.17g", f, (double)x[i], g, e);
        }
    }
}

int main() {
    double single = run<float>(500, 5, 1e-4), twice = run<double>(300, 4, 1e-12);
    check_functions<float>(4e-6);
    check_functions<double>(4e-14);
    return ok("errors %.1e in float, %.1e in double; %d functions", single, twice, FUNCTIONS);
}
