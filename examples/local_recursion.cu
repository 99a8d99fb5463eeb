// Stacks of device threads: recursion, function pointers, virtual functions, and arrays indexed at run time.
#define EXAMPLE "local_recursion"
#include "common/check.h"

__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

__device__ __noinline__ void sort(int* a, int low, int high) {
    if (low >= high) return;
    int pivot = a[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (a[i] < pivot) i++;
        while (a[j] > pivot) j--;
        if (i <= j) {
            int t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
    }
    sort(a, low, j);
    sort(a, i, high);
}

typedef int (*Operation)(int, int);
__device__ int plus(int a, int b) { return a + b; }
__device__ int minus(int a, int b) { return a - b; }
__device__ int times(int a, int b) { return a * b; }
__device__ Operation operations[3] = {plus, minus, times};

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    float side;
    __device__ explicit Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Rectangle : Shape {
    float a, b;
    __device__ Rectangle(float x, float y) : a(x), b(y) {}
    __device__ float area() const override { return a * b; }
};

__global__ void run(const int* in, int* sorted, int* results, float* areas) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int local[24];
    for (int i = 0; i < 24; i++) local[i] = in[t * 24 + i];
    sort(local, 0, 23);
    for (int i = 0; i < 24; i++) sorted[t * 24 + i] = local[i];
    results[t * 2] = ackermann(2, t % 7);
    results[t * 2 + 1] = operations[t % 3](t, 5);
    char storage[64] __attribute__((aligned(16)));
    Shape* shape = t % 2 ? (Shape*)new (storage) Square((float)t) : (Shape*)new (storage) Rectangle((float)t, 2.0f);
    areas[t] = shape->area();
}

int main() {
    const int n = 200;
    Random random(16);
    std::vector<int> in(n * 24);
    for (int& v : in) v = (int)random.below(1000);
    DeviceArray<int> din(in), dsorted(n * 24), dresults(n * 2);
    DeviceArray<float> dareas(n);
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
    run<<<n / 40, 40>>>(din, dsorted, dresults, dareas);
    CHECK(cudaGetLastError());
    std::vector<int> sorted = dsorted.download(), results = dresults.download();
    std::vector<float> areas = dareas.download();
    for (int t = 0; t < n; t++) {
        std::sort(&in[t * 24], &in[t * 24] + 24);
        for (int i = 0; i < 24; i++)
            REQUIRE(sorted[t * 24 + i] == in[t * 24 + i], "thread %d: place %d holds %d", t, i, sorted[t * 24 + i]);
        REQUIRE(results[t * 2] == 2 * (t % 7) + 3, "ackermann(2, %d) is %d", t % 7, results[t * 2]);
        int e = t % 3 == 0 ? t + 5 : t % 3 == 1 ? t - 5 : t * 5;
        REQUIRE(results[t * 2 + 1] == e, "operation %d gave %d instead of %d", t % 3, results[t * 2 + 1], e);
        float area = t % 2 ? (float)t * t : t * 2.0f;
        REQUIRE(areas[t] == area, "area %d is %g instead of %g", t, areas[t], area);
    }
    return ok("%d threads", n);
}
