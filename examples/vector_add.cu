// The sum of two vectors: the smallest whole CUDA program.
#define EXAMPLE "vector_add"
#include "common/check.h"

__global__ void add(const float* a, const float* b, float* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}

int main() {
    const int n = 1000003;
    std::vector<float> a(n), b(n), sum(n);
    Random random(1);
    for (int i = 0; i < n; i++) {
        a[i] = random.unit();
        b[i] = random.unit() * 1000;
    }
    float *da, *db, *dsum;
    CHECK(cudaMalloc(&da, n * sizeof(float)));
    CHECK(cudaMalloc(&db, n * sizeof(float)));
    CHECK(cudaMalloc(&dsum, n * sizeof(float)));
    CHECK(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    add<<<(n + 255) / 256, 256>>>(da, db, dsum, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(sum.data(), dsum, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        REQUIRE(sum[i] == a[i] + b[i], "element %d is %.9g instead of %.9g", i, sum[i], a[i] + b[i]);
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dsum));
    return ok("%d sums", n);
}
