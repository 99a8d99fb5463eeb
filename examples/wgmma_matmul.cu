// A product of matrices as capability 9.0 computes it: one warp loads swizzled tiles by tensor maps into a ring, four multiply them by wgmma.
// rgpu-nvcc: -gencode arch=compute_90a,code=[sm_90a,compute_90a]
#define EXAMPLE "wgmma_matmul"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/tma.cuh"

// A block's part of the product, how much is multiplied at a time, and tiles that are on their way.
constexpr int BM = 64, BN = 128, BK = 64, STAGES = 3;
constexpr int TILE_A = BM * BK, TILE_B = BN * BK;
constexpr int SHARED_BYTES = STAGES * (TILE_A + TILE_B) * 2 + 1024;

#define ACCUMULATORS \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
    "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
    "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
    "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
    "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
    "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
    "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
    "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])

// d += a b, of 64 by 16 and 16 by 128 numbers, where the second matrix lies column by column (0) or row by row (1).
template <typename T, int BY_ROWS>
__device__ void multiply(float (&d)[64], uint64_t a, uint64_t b);

#define MULTIPLY(T, NAME, BY_ROWS)                                                                 \
    template <>                                                                                    \
    __device__ __forceinline__ void multiply<T, BY_ROWS>(float (&d)[64], uint64_t a, uint64_t b) { \
        asm volatile(                                                                              \
            "wgmma.mma_async.sync.aligned.m64n128k16.f32." NAME "." NAME " "                       \
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "              \
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "     \
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "     \
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "    \
            "%64, %65, 1, 1, 1, 0, " #BY_ROWS ";"                                                  \
            : ACCUMULATORS                                                                         \
            : "l"(a), "l"(b));                                                                     \
    }
MULTIPLY(__half, "f16", 0)
MULTIPLY(__half, "f16", 1)
MULTIPLY(__nv_bfloat16, "bf16", 0)
MULTIPLY(__nv_bfloat16, "bf16", 1)

// c = a b. BY_ROWS says how b lies in memory: as n rows of k numbers (0), or as k rows of n numbers (1).
template <typename T, int BY_ROWS>
__global__ void __launch_bounds__(256) product(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                                               float* c, int m, int n, int k) {
    extern __shared__ char raw[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    T* a = (T*)(((uintptr_t)raw + 1023) / 1024 * 1024);
    T* b = a + STAGES * TILE_A;
    int row = blockIdx.y * BM, column = blockIdx.x * BN, group = threadIdx.x / 128, lane = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], 1);
        }
        barriers_ready();
    }
    __syncthreads();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (lane == 0) {
            for (int i = 0; i * BK < k; i++) {
                int stage = i % STAGES, round = i / STAGES;
                if (round > 0) barrier_wait(&empty[stage], (round - 1) & 1);
                barrier_arrive_expect(&full[stage], (TILE_A + TILE_B) * sizeof(T));
                load_tile(a + stage * TILE_A, &map_a, &full[stage], i * BK, row);
                if (BY_ROWS) {
                    // Two tiles beside each other: 64 numbers fill 128 bytes.
                    load_tile(b + stage * TILE_B, &map_b, &full[stage], column, i * BK);
                    load_tile(b + stage * TILE_B + TILE_B / 2, &map_b, &full[stage], column + 64, i * BK);
                } else {
                    load_tile(b + stage * TILE_B, &map_b, &full[stage], i * BK, column);
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float d[64] = {};
        for (int i = 0; i * BK < k; i++) {
            int stage = i % STAGES, round = i / STAGES;
            barrier_wait(&full[stage], round & 1);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            for (int part = 0; part < BK / 16; part++) {
                uint64_t of_a = describe(a + stage * TILE_A + part * 16, 16, 1024);
                uint64_t of_b = BY_ROWS ? describe(b + stage * TILE_B + part * 16 * 64, TILE_B, 1024)
                                        : describe(b + stage * TILE_B + part * 16, 16, 1024);
                multiply<T, BY_ROWS>(d, of_a, of_b);
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            // One thread speaks for all four warps, which have come this far together.
            if (lane == 0) barrier_arrive(&empty[stage]);
        }
        int first = row + lane / 32 * 16 + lane % 32 / 4;
        for (int i = 0; i < 64; i++) {
            int y = first + i / 2 % 2 * 8, x = column + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (y < m && x < n) c[y * n + x] = d[i];
        }
    }
}

EncodeTiled encode;

// A map of rows of numbers that loads tiles of 64 numbers, 128 bytes, and so many rows.
template <typename T>
CUresult map_of(CUtensorMap* map, T* matrix, int rows, int columns, int tile_rows) {
    bool half = sizeof(T) == 2 && std::is_same<T, __half>::value;
    cuuint64_t sizes[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[1] = {columns * sizeof(T)};
    cuuint32_t tile[2] = {64, (cuuint32_t)tile_rows}, steps[2] = {1, 1};
    return encode(map, half ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, matrix, sizes, strides, tile,
                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// Small whole numbers, of which sums are exact.
template <typename T>
std::vector<T> numbers(int count, Random& random) {
    std::vector<T> all(count);
    for (T& one : all) one = T((float)((int)random.below(9) - 4));
    return all;
}

template <typename T, int BY_ROWS>
void run(int m, int n, int k, Random& random) {
    auto a = numbers<T>(m * k, random), b = numbers<T>(n * k, random);
    DeviceArray<T> on_a(a), on_b(b);
    DeviceArray<float> on_c(m * n);
    CUtensorMap map_a, map_b;
    REQUIRE(map_of(&map_a, on_a.data, m, k, BM) == CUDA_SUCCESS, "no map of a");
    CUresult made = BY_ROWS ? map_of(&map_b, on_b.data, k, n, BK) : map_of(&map_b, on_b.data, n, k, BN);
    REQUIRE(made == CUDA_SUCCESS, "no map of b");
    CHECK(cudaFuncSetAttribute(product<T, BY_ROWS>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
    dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    product<T, BY_ROWS><<<grid, 256, SHARED_BYTES>>>(map_a, map_b, on_c.data, m, n, k);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    auto c = on_c.download();
    for (int y = 0; y < m; y++) {
        for (int x = 0; x < n; x++) {
            float sum = 0;
            for (int i = 0; i < k; i++) sum += (float)a[y * k + i] * (float)(BY_ROWS ? b[i * n + x] : b[x * k + i]);
            REQUIRE(c[y * n + x] == sum, "%d by %d by %d: row %d, column %d: %g instead of %g", m, n, k, y, x, c[y * n + x], sum);
        }
    }
}

int main() {
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    CHECK(cudaFree(0));
    encode = driver_function<EncodeTiled>("cuTensorMapEncodeTiled");
    CUtensorMap map;
    CUresult made = map_of(&map, (__half*)4096, 64, 64, 64);
    if (device.major < 9) {
        REQUIRE(made == CUDA_ERROR_NOT_SUPPORTED, "capability %d.%d has tensor maps: %d", device.major, device.minor, made);
        return ok("tensor maps are refused on a device of capability %d.%d", device.major, device.minor);
    }
    REQUIRE(made == CUDA_SUCCESS, "a tensor map cannot be made: %d", made);
    Random random(7);
    run<__half, 0>(128, 256, 256, random);
    run<__nv_bfloat16, 0>(64, 128, 320, random);
    run<__half, 1>(64, 256, 128, random);
    // Tiles that reach out of the matrices, where zeros are loaded.
    run<__nv_bfloat16, 1>(100, 200, 72, random);
    run<__half, 0>(72, 136, 40, random);
    return ok("5 products");
}
