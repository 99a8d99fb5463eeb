// A histogram in shared memory, merged by global atomics; and one of each atomic operation.
#define EXAMPLE "histogram_atomics"
#include "common/check.h"

constexpr int BINS = 256;

__global__ void histogram(const unsigned char* data, int n, unsigned* bins) {
    __shared__ unsigned local[BINS];
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

struct Operations {
    int add, sub, min, max, exchanged_sum, last;
    unsigned inc, dec, and_, or_, xor_;
    float sum;
    unsigned long long wide;
    double precise;
};

__global__ void operations(Operations* o) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&o->add, i);
    atomicSub(&o->sub, 2 * i);
    atomicMin(&o->min, -i);
    atomicMax(&o->max, i);
    atomicInc(&o->inc, 99);
    atomicDec(&o->dec, 49);
    atomicAnd(&o->and_, ~(1u << (i % 16)));
    atomicOr(&o->or_, 1u << (i % 20));
    atomicXor(&o->xor_, 1u << (i % 32));
    atomicAdd(&o->sum, 1.0f);
    atomicAdd(&o->wide, 1ull << 33);
#if __CUDA_ARCH__ >= 600
    atomicAdd(&o->precise, 0.25);
#endif
    atomicAdd(&o->exchanged_sum, atomicExch(&o->last, i));
}

int main() {
    const int n = 700001;
    Random random(4);
    std::vector<unsigned char> data(n);
    std::vector<unsigned> expected(BINS);
    for (auto& d : data) {
        d = (unsigned char)(random.below(16) * random.below(16));
        expected[d]++;
    }
    DeviceArray<unsigned char> ddata(data);
    DeviceArray<unsigned> dbins(BINS);
    dbins.zero();
    histogram<<<24, 192>>>(ddata, n, dbins);
    CHECK(cudaGetLastError());
    std::vector<unsigned> bins = dbins.download();
    for (int i = 0; i < BINS; i++)
        REQUIRE(bins[i] == expected[i], "bin %d holds %u instead of %u", i, bins[i], expected[i]);

    const int threads = 30 * 64;
    Operations start = {};
    start.and_ = 0xffffffffu;
    DeviceArray<Operations> doperations(std::vector<Operations>{start});
    operations<<<30, 64>>>(doperations);
    CHECK(cudaGetLastError());
    Operations o = doperations.download()[0];
    int all = threads * (threads - 1) / 2;
    REQUIRE(o.add == all, "add gave %d", o.add);
    REQUIRE(o.sub == -2 * all, "sub gave %d", o.sub);
    REQUIRE(o.min == -(threads - 1) && o.max == threads - 1, "min %d, max %d", o.min, o.max);
    REQUIRE(o.inc == threads % 100, "inc gave %u", o.inc);
    REQUIRE(o.dec == (50 - threads % 50) % 50, "dec gave %u", o.dec);
    REQUIRE(o.and_ == 0xffff0000u, "and gave %#x", o.and_);
    REQUIRE(o.or_ == 0xfffffu, "or gave %#x", o.or_);
    REQUIRE(o.xor_ == 0, "xor gave %#x", o.xor_);
    REQUIRE(o.sum == (float)threads, "float add gave %g", o.sum);
    REQUIRE(o.wide == (unsigned long long)threads << 33, "64-bit add gave %llu", o.wide);
    REQUIRE(o.precise == threads * 0.25, "double add gave %g", o.precise);
    REQUIRE(o.exchanged_sum + o.last == all, "exchanges lost something: %d", o.exchanged_sum + o.last);
    return ok("%d bytes in %d bins, %d threads of atomics", n, BINS, threads);
}
