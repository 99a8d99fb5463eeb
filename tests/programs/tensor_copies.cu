// Bulk copies of tensors of one to five dimensions, compared with the CPU: boxes that reach out of the tensor, every kind of
// element and swizzle, elements that are left out, stores and reductions, pixels for convolutions, maps that kernels change.
// rgpu-nvcc: -gencode arch=compute_90a,code=[sm_90a,compute_90a]
#define EXAMPLE "tensor_copies"
#include "common/tma.cuh"

// What one copy is to do, and where.
struct Copy {
    int at[5];
    int distance[3];
    uint32_t bytes, tx;
};

#define LOAD(dims, list, ...)                                                                                            \
    asm volatile("cp.async.bulk.tensor." dims                                                                            \
                 ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, " list "], [%2];" ::"r"(to),       \
                 "l"(map), "r"(bar), __VA_ARGS__                                                                         \
                 : "memory")
#define STORE(dims, list, ...)                                                                                           \
    asm volatile("cp.async.bulk.tensor." dims ".global.shared::cta.tile.bulk_group [%1, " list "], [%0];" ::"r"(to),      \
                 "l"(map), __VA_ARGS__                                                                                   \
                 : "memory")
#define ADD(dims, list, ...)                                                                                             \
    asm volatile("cp.reduce.async.bulk.tensor." dims ".global.shared::cta.add.tile.bulk_group [%1, " list "], [%0];" ::   \
                     "r"(to),                                                                                            \
                 "l"(map), __VA_ARGS__                                                                                   \
                 : "memory")

extern __shared__ char raw[];

// The first address of shared memory that is a multiple of 1024.
__device__ char* window() {
    uint32_t at = shared_address(raw);
    return raw + ((at + 1023) / 1024 * 1024 - at);
}

// Loads a box and hands out its bytes as they lie in shared memory.
template <int RANK, bool PIXELS>
__global__ void load(const __grid_constant__ CUtensorMap given, const CUtensorMap* other, Copy c, char* out) {
    __shared__ uint64_t barrier;
    const CUtensorMap* map = other ? other : &given;
    char* tile = window();
    uint32_t to = shared_address(tile), bar = shared_address(&barrier);
    for (uint32_t i = threadIdx.x; i < c.bytes; i += blockDim.x) tile[i] = 0x55;
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        barriers_ready();
        asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
        if (other) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
    }
    __syncthreads();
    asm volatile("fence.proxy.async;" ::: "memory");
    if (threadIdx.x == 0) {
        barrier_arrive_expect(&barrier, c.tx);
        short w = c.distance[0], h = c.distance[1], d = c.distance[2];
        if (PIXELS && RANK == 3)
            asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2], {%6};" ::"r"(to), "l"(map), "r"(bar), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "h"(w) : "memory");
        else if (PIXELS && RANK == 4)
            asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to), "l"(map), "r"(bar), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "h"(w), "h"(h) : "memory");
        else if (PIXELS && RANK == 5)
            asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(to), "l"(map), "r"(bar), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]), "h"(w), "h"(h), "h"(d) : "memory");
        else if (RANK == 1) LOAD("1d", "{%3}", "r"(c.at[0]));
        else if (RANK == 2) LOAD("2d", "{%3, %4}", "r"(c.at[0]), "r"(c.at[1]));
        else if (RANK == 3) LOAD("3d", "{%3, %4, %5}", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]));
        else if (RANK == 4) LOAD("4d", "{%3, %4, %5, %6}", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]));
        else LOAD("5d", "{%3, %4, %5, %6, %7}", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]));
    }
    barrier_wait(&barrier, 0);
    for (uint32_t i = threadIdx.x; i < c.bytes; i += blockDim.x) out[i] = tile[i];
}

// Stores a box from bytes as they lie in shared memory, or adds it to what is there.
template <int RANK, bool ADDS>
__global__ void store(const __grid_constant__ CUtensorMap given, Copy c, const char* in) {
    const CUtensorMap* map = &given;
    char* tile = window();
    uint32_t to = shared_address(tile);
    for (uint32_t i = threadIdx.x; i < c.bytes; i += blockDim.x) tile[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        if (ADDS) {
            if (RANK == 1) ADD("1d", "{%2}", "r"(c.at[0]));
            else if (RANK == 2) ADD("2d", "{%2, %3}", "r"(c.at[0]), "r"(c.at[1]));
            else ADD("3d", "{%2, %3, %4}", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]));
        } else {
            if (RANK == 1) STORE("1d", "{%2}", "r"(c.at[0]));
            else if (RANK == 2) STORE("2d", "{%2, %3}", "r"(c.at[0]), "r"(c.at[1]));
            else if (RANK == 3) STORE("3d", "{%2, %3, %4}", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]));
            else if (RANK == 4) STORE("4d", "{%2, %3, %4, %5}", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]));
            else STORE("5d", "{%2, %3, %4, %5, %6}", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]));
        }
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// Makes a map of zeros, in shared memory, by replacing its fields, and copies it to global memory.
__global__ void make_map(CUtensorMap* map, float* tensor, int width, int height, int tile_width, int tile_height) {
    __shared__ alignas(128) uint32_t made[32];
    made[threadIdx.x] = 0;
    __syncwarp();
    if (threadIdx.x == 0) {
        uint64_t at = shared_address(made), stride = width * 4;
        asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"l"(at), "l"(tensor) : "memory");
        asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 1;" ::"l"(at) : "memory");
        asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"l"(at), "r"(tile_width) : "memory");
        asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"l"(at), "r"(tile_height) : "memory");
        asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"l"(at), "r"(width) : "memory");
        asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"l"(at), "r"(height) : "memory");
        asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"l"(at), "l"(stride) : "memory");
        asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, %1;" ::"l"(at), "r"(1) : "memory");
        asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, %1;" ::"l"(at), "r"(1) : "memory");
        asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 7;" ::"l"(at) : "memory");
        asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"l"(at) : "memory");
        asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 2;" ::"l"(at) : "memory");
        asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 1;" ::"l"(at) : "memory");
    }
    __syncwarp();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(map),
                 "r"(shared_address(made))
                 : "memory");
}


// What the CPU knows of a tensor and of a box of it.
struct Tensor {
    int rank, element_bytes, swizzle;
    CUtensorMapDataType type;
    uint64_t sizes[5], strides[5];
    uint32_t box[5], steps[5];
    bool nan;
    std::vector<unsigned char> bytes;
};

EncodeTiled encode;
EncodeIm2col encode_im2col;

int span_of(int swizzle) { return swizzle == 0 ? 0 : 16 << swizzle; }

uint32_t place(int swizzle, uint32_t at) { return swizzle == 0 ? at : at ^ (((at >> 7) & ((1u << swizzle) - 1)) << 4); }

const struct { CUtensorMapDataType type; int bytes; uint64_t nan; } TYPES[] = {
    {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, 0},         {CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, 0},
    {CU_TENSOR_MAP_DATA_TYPE_UINT32, 4, 0},        {CU_TENSOR_MAP_DATA_TYPE_INT32, 4, 0},
    {CU_TENSOR_MAP_DATA_TYPE_UINT64, 8, 0},        {CU_TENSOR_MAP_DATA_TYPE_INT64, 8, 0},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, 1},       {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, 1},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8, 1},       {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, 1},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, 4, 1},
};

bool is_nan(const unsigned char* at, const Tensor& t) {
    if (t.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16) return (*(uint16_t*)at & 0x7fff) > 0x7c00;
    if (t.type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) return (*(uint16_t*)at & 0x7fff) > 0x7f80;
    if (t.element_bytes == 8) return std::isnan(*(double*)at);
    return std::isnan(*(float*)at);
}

Tensor any_tensor(int rank, Random& random, bool pixels) {
    Tensor t{};
    t.rank = rank;
    int kind = random.below(sizeof TYPES / sizeof *TYPES);
    t.type = TYPES[kind].type, t.element_bytes = TYPES[kind].bytes;
    t.swizzle = random.below(4);
    t.nan = TYPES[kind].nan && random.below(2);
    int row = 16 << random.below(t.swizzle ? t.swizzle + 1 : 4);
    t.box[0] = row / t.element_bytes;
    if (t.swizzle == 0 && random.below(3) == 0) t.box[0] = 48 / t.element_bytes;
    uint64_t stride = 0;
    for (int d = 0; d < rank; d++) {
        int most = rank >= 4 ? 6 : rank == 3 ? 12 : 60;
        t.sizes[d] = 1 + random.below(d == 0 ? 100 : most);
        if (d > 0) t.box[d] = 1 + random.below(rank >= 4 ? 4 : rank == 3 ? 8 : 40);
        t.steps[d] = d > 0 && random.below(2) ? 1 + random.below(pixels ? 2 : 4) : 1;
        t.strides[d] = d == 0 ? t.element_bytes : stride;
        uint64_t extent = d == 0 ? t.sizes[0] * t.element_bytes : stride * t.sizes[d];
        stride = (extent + 15) / 16 * 16 + 16 * random.below(3);
    }
    t.bytes.resize(stride);
    for (auto& byte : t.bytes) byte = random.next();
    if (t.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ)
        for (size_t i = 0; i + 4 <= t.bytes.size(); i += 4)
            if (random.below(3) == 0) *(uint32_t*)&t.bytes[i] &= 0x807fffff;
    return t;
}

// The element at some coordinates, or null where there is none.
const unsigned char* element(const Tensor& t, const int64_t* at) {
    uint64_t offset = 0;
    for (int d = 0; d < t.rank; d++) {
        if (at[d] < 0 || at[d] >= (int64_t)t.sizes[d]) return nullptr;
        offset += at[d] * t.strides[d];
    }
    return &t.bytes[offset];
}

// Compares a row of a box with what is in shared memory.
void compare_row(const Tensor& t, const std::vector<char>& shared, uint32_t at, int64_t* first, int count, const char* what) {
    for (int i = 0; i < count; i++, first[0]++) {
        const unsigned char* have = (const unsigned char*)&shared[place(t.swizzle, at + i * t.element_bytes)];
        const unsigned char* want = element(t, first);
        bool right;
        if (!want && t.nan) right = is_nan(have, t);
        else {
            uint64_t value = 0, found = 0;
            if (want) memcpy(&value, want, t.element_bytes);
            memcpy(&found, have, t.element_bytes);
            if (t.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ && !(value & 0x7f800000)) value &= 0x80000000;
            right = value == found;
        }
        REQUIRE(right, "%s, %d dimensions, type %d, swizzle %d: element %d of a row at %u is wrong", what, t.rank, t.type, t.swizzle, i, at);
    }
    first[0] -= count;
}

uint32_t pitch_of(const Tensor& t) { return std::max<uint32_t>(t.box[0] * t.element_bytes, span_of(t.swizzle)); }
uint32_t taken(const Tensor& t, int d) { return d == 0 ? t.box[0] : (t.box[d] + t.steps[d] - 1) / t.steps[d]; }

template <typename F>
void each_row(const Tensor& t, const Copy& c, F f) {
    uint32_t rows = 1;
    for (int d = 1; d < t.rank; d++) rows *= taken(t, d);
    for (uint32_t row = 0; row < rows; row++) {
        int64_t at[5] = {c.at[0]};
        uint32_t rest = row;
        for (int d = 1; d < t.rank; d++) {
            at[d] = c.at[d] + (int64_t)(rest % taken(t, d)) * t.steps[d];
            rest /= taken(t, d);
        }
        f(row * pitch_of(t), at);
    }
}

CUtensorMap map_of(const Tensor& t, void* data) {
    CUtensorMap map;
    CUresult made = encode(&map, t.type, t.rank, data, (const cuuint64_t*)t.sizes, (const cuuint64_t*)t.strides + 1, t.box, t.steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           (CUtensorMapFloatOOBfill)t.nan);
    REQUIRE(made == CUDA_SUCCESS, "no map of %d dimensions: %d", t.rank, made);
    return map;
}

template <int RANK, bool PIXELS>
std::vector<char> loaded(const CUtensorMap& map, const CUtensorMap* other, const Copy& c) {
    DeviceArray<char> out(c.bytes);
    CHECK(cudaFuncSetAttribute(load<RANK, PIXELS>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
    load<RANK, PIXELS><<<1, 64, c.bytes + 1024>>>(map, other, c, out);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    return out.download();
}

template <int RANK>
void tiles(Random& random, int times) {
    for (int round = 0; round < times; round++) {
        Tensor t = any_tensor(RANK, random, false);
        DeviceArray<unsigned char> data(t.bytes);
        Copy c{};
        uint32_t rows = 1;
        for (int d = 0; d < RANK; d++) {
            c.at[d] = (int)random.below(t.sizes[d] + t.box[d] + 4) - (int)t.box[d] - 2;
            if (d > 0) rows *= taken(t, d);
        }
        c.tx = rows * t.box[0] * t.element_bytes;
        c.bytes = rows * pitch_of(t);
        if (c.bytes > 190 << 10) continue;
        CUtensorMap map = map_of(t, data);
        auto shared = loaded<RANK, false>(map, nullptr, c);
        each_row(t, c, [&](uint32_t at, int64_t* first) { compare_row(t, shared, at, first, t.box[0], "a tile"); });
        // The same box back, with every byte changed.
        for (char& byte : shared) byte ^= 0x2a;
        DeviceArray<char> in(shared);
        CHECK(cudaFuncSetAttribute(store<RANK, false>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
        store<RANK, false><<<1, 64, c.bytes + 1024>>>(map, c, in);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        Tensor wanted = t;
        each_row(t, c, [&](uint32_t at, int64_t* first) {
            for (uint32_t i = 0; i < t.box[0]; i++) {
                int64_t one[5] = {first[0] + i, first[1], first[2], first[3], first[4]};
                unsigned char* to = (unsigned char*)element(wanted, one);
                if (to) memcpy(to, &shared[place(t.swizzle, at + i * t.element_bytes)], t.element_bytes);
            }
        });
        auto after = data.download();
        REQUIRE(after == wanted.bytes, "a stored tile of %d dimensions, type %d, swizzle %d", RANK, t.type, t.swizzle);
    }
}

template <int RANK>
void pixels(Random& random, int times) {
    for (int round = 0; round < times; round++) {
        Tensor t = any_tensor(RANK, random, true);
        for (int d = 1; d < RANK - 1; d++) t.sizes[d] += 3;
        uint64_t stride = (t.sizes[0] * t.element_bytes + 15) / 16 * 16;
        for (int d = 1; d < RANK; d++) {
            t.strides[d] = stride;
            stride *= t.sizes[d];
        }
        t.bytes.resize(stride);
        for (auto& byte : t.bytes) byte = random.next();
        t.steps[RANK - 1] = 1;
        int lower[3], upper[3], most[3] = {32767, 127, 15};
        for (int d = 0; d < RANK - 2; d++) {
            lower[d] = (int)random.below(3) - 2;
            upper[d] = (int)random.below(3) - 1 + lower[d] > most[RANK - 3] ? 0 : (int)random.below(4) - 2;
        }
        uint32_t count = 1 + random.below(60), channels = t.box[0];
        DeviceArray<unsigned char> data(t.bytes);
        CUtensorMap map;
        CUresult made = encode_im2col(&map, t.type, RANK, data, (const cuuint64_t*)t.sizes, (const cuuint64_t*)t.strides + 1, lower, upper,
                                      channels, count, t.steps, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)t.swizzle,
                                      CU_TENSOR_MAP_L2_PROMOTION_NONE, (CUtensorMapFloatOOBfill)t.nan);
        REQUIRE(made == CUDA_SUCCESS, "no map of pixels: %d", made);
        Copy c{};
        c.at[0] = random.below(t.sizes[0]) - random.below(3);
        c.at[RANK - 1] = random.below(t.sizes[RANK - 1]);
        for (int d = 0; d < RANK - 2; d++) {
            int positions = (int)t.sizes[d + 1] + upper[d] - lower[d];
            c.at[d + 1] = lower[d] + random.below(positions);
            c.distance[d] = random.below(4);
        }
        c.tx = count * channels * t.element_bytes;
        c.bytes = count * pitch_of(t);
        auto shared = loaded<RANK, true>(map, nullptr, c);
        // Pixel by pixel, as a convolution would go.
        int64_t at[5] = {c.at[0], c.at[1], c.at[2], c.at[3], c.at[4]};
        for (uint32_t pixel = 0; pixel < count; pixel++) {
            int64_t here[5] = {at[0], at[1], at[2], at[3], at[4]};
            for (int d = 0; d < RANK - 2; d++) here[d + 1] += c.distance[d];
            compare_row(t, shared, pixel * pitch_of(t), here, channels, "pixels");
            int d = 1;
            for (; d < RANK - 1; d++) {
                at[d] += t.steps[d];
                if (at[d] < (int64_t)t.sizes[d] + upper[d - 1]) break;
                at[d] = lower[d - 1];
            }
            if (d == RANK - 1) at[d]++;
        }
    }
}

// Sums and other combinations in place.
__global__ void bytes_out(const uint32_t* in, uint32_t* out, uint32_t* sums, uint32_t* most, uint16_t* halves, int count) {
    uint32_t* part = (uint32_t*)window();
    for (int i = threadIdx.x; i < count; i += blockDim.x) part[i] = in[blockIdx.x * count + i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t from = shared_address(part), bytes = count * 4;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + blockIdx.x * count), "r"(from), "r"(bytes) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(sums), "r"(from), "r"(bytes) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%0], [%1], %2;" ::"l"(most), "r"(from), "r"(bytes) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], %2;" ::"l"(halves), "r"(from), "r"(16) : "memory");
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(out), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

void combinations(Random& random) {
    const int count = 256, blocks = 8;
    std::vector<uint32_t> in(count * blocks), sums(count), most(count, 0x80000000);
    for (auto& one : in) one = random.next();
    // The first four words of each block are halves that sums of are exact: 1.0 and 2.0.
    for (int b = 0; b < blocks; b++)
        for (int i = 0; i < 4; i++) in[b * count + i] = 0x3c004000;
    DeviceArray<uint32_t> on_in(in), out(in.size()), on_sums(count), on_most(most);
    DeviceArray<uint16_t> halves(8);
    on_sums.zero(), halves.zero();
    bytes_out<<<blocks, 64, count * 4 + 1024>>>(on_in, out, on_sums, on_most, halves, count);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    REQUIRE(out.download() == in, "bytes were not copied out");
    for (int i = 0; i < count; i++)
        for (int b = 0; b < blocks; b++) {
            sums[i] += in[b * count + i];
            most[i] = std::max((int32_t)most[i], (int32_t)in[b * count + i]);
        }
    REQUIRE(on_sums.download() == sums && on_most.download() == most, "words were not combined as they should be");
    auto found = halves.download();
    for (int i = 0; i < 8; i++) REQUIRE(found[i] == (i % 2 ? 0x4800 : 0x4c00), "a half is %x", found[i]);
    // A tile that is added to a tensor.
    Tensor t = any_tensor(2, random, false);
    t.type = CU_TENSOR_MAP_DATA_TYPE_INT32, t.element_bytes = 4, t.nan = false, t.swizzle = 2;
    t.sizes[0] = 37, t.sizes[1] = 9, t.strides[0] = 4, t.strides[1] = 160, t.box[0] = 16, t.box[1] = 5, t.steps[1] = 1;
    t.bytes.assign(160 * 9, 3);
    DeviceArray<unsigned char> data(t.bytes);
    Copy c{};
    c.at[0] = 30, c.at[1] = -2, c.bytes = 5 * 64;
    std::vector<char> tile(c.bytes);
    for (uint32_t i = 0; i < c.bytes / 4; i++) *(uint32_t*)&tile[place(2, i * 4)] = i + 1;
    DeviceArray<char> on_tile(tile);
    store<2, true><<<1, 64, c.bytes + 1024>>>(map_of(t, data), c, on_tile);
    CHECK(cudaDeviceSynchronize());
    for (int y = 0; y < 5; y++)
        for (int x = 0; x < 16; x++) {
            int64_t at[5] = {c.at[0] + x, c.at[1] + y};
            if (auto* place = (uint32_t*)element(t, at)) *place += y * 16 + x + 1;
        }
    REQUIRE(data.download() == t.bytes, "a tile was not added to a tensor");
}

void made_by_a_kernel(Random& random) {
    Tensor t{};
    t.rank = 2, t.element_bytes = 4, t.swizzle = 2, t.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32, t.nan = true;
    t.sizes[0] = 40, t.sizes[1] = 11, t.strides[0] = 4, t.strides[1] = 160, t.box[0] = 16, t.box[1] = 6, t.steps[0] = t.steps[1] = 1;
    t.bytes.resize(160 * 11);
    for (auto& byte : t.bytes) byte = random.below(64);
    DeviceArray<unsigned char> data(t.bytes);
    DeviceArray<CUtensorMap> map(1);
    make_map<<<1, 32>>>(map, (float*)(unsigned char*)data, 40, 11, 16, 6);
    CHECK(cudaDeviceSynchronize());
    Copy c{};
    c.at[0] = 30, c.at[1] = 8, c.tx = c.bytes = 6 * 64;
    auto shared = loaded<2, false>(CUtensorMap{}, map, c);
    each_row(t, c, [&](uint32_t at, int64_t* first) { compare_row(t, shared, at, first, 16, "a map that a kernel made"); });
}

void refusals() {
    CUtensorMap map[2];
    cuuint64_t sizes[2] = {64, 64}, strides[1] = {256};
    cuuint32_t box[2] = {32, 8}, steps[2] = {1, 1};
    auto tiled = [&](void* to, int type, int rank, uint64_t address, int swizzle, int fill, int interleave = 0) {
        return encode((CUtensorMap*)to, (CUtensorMapDataType)type, rank, (void*)address, sizes, strides, box, steps,
                      (CUtensorMapInterleave)interleave, (CUtensorMapSwizzle)swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                      (CUtensorMapFloatOOBfill)fill);
    };
    const int F32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32, U32 = CU_TENSOR_MAP_DATA_TYPE_UINT32;
    auto wrong = [](CUresult result, const char* what) { REQUIRE(result == CUDA_ERROR_INVALID_VALUE, "%s: %d", what, result); };
    REQUIRE(tiled(map, F32, 2, 4096, 3, 1) == CUDA_SUCCESS, "a good map");
    wrong(tiled(nullptr, F32, 2, 4096, 3, 0), "no map");
    wrong(tiled(map, 99, 2, 4096, 3, 0), "no type");
    wrong(tiled(map, F32, 0, 4096, 3, 0), "no dimension");
    wrong(tiled(map, F32, 6, 4096, 3, 0), "six dimensions");
    wrong(tiled(map, F32, 2, 4104, 3, 0), "a tensor that is not aligned");
    wrong(tiled(map, F32, 2, 4096, 9, 0), "no swizzle");
    wrong(tiled(map, F32, 2, 4096, 2, 0), "rows longer than what is swizzled");
    wrong(tiled(map, U32, 2, 4096, 3, 1), "NaN as a whole number");
    wrong(tiled(map, F32, 2, 4096, 3, 2), "nothing to fill with");
    REQUIRE(tiled(map, F32, 2, 4096, 3, 0, 1) != CUDA_SUCCESS, "interleaved tensors of two dimensions");
    box[0] = 3, wrong(tiled(map, F32, 2, 4096, 0, 0), "12 bytes");
    box[0] = 260, wrong(tiled(map, F32, 2, 4096, 0, 0), "a large box");
    box[0] = 32, box[1] = 0, wrong(tiled(map, F32, 2, 4096, 3, 0), "an empty box");
    box[1] = 8, steps[1] = 9, wrong(tiled(map, F32, 2, 4096, 3, 0), "every ninth element");
    steps[1] = 1, strides[0] = 257, wrong(tiled(map, F32, 2, 4096, 3, 0), "a stride of 257 bytes");
    strides[0] = 1ull << 40, wrong(tiled(map, F32, 2, 4096, 3, 0), "a long stride");
    strides[0] = 256, sizes[1] = 0, wrong(tiled(map, F32, 2, 4096, 3, 0), "an empty tensor");
    sizes[1] = 64;
    // A map is given another tensor.
    auto replace = driver_function<decltype(&cuTensorMapReplaceAddress)>("cuTensorMapReplaceAddress");
    REQUIRE(tiled(map, F32, 2, 4096, 3, 0) == CUDA_SUCCESS && tiled(map + 1, F32, 2, 8192, 3, 0) == CUDA_SUCCESS, "good maps");
    REQUIRE(replace(map, (void*)8192) == CUDA_SUCCESS && !memcmp(map, map + 1, sizeof *map), "another address");
    wrong(replace(map, (void*)8200), "another address that is not aligned");
}

// Loads by a map or in a way that is wrong; what the launch ends with.
__global__ void bad_load(const __grid_constant__ CUtensorMap given, int offset, int shift) {
    __shared__ uint64_t barrier;
    const char* map = (const char*)&given + shift;
    if (threadIdx.x == 0) barrier_init(&barrier, 1);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %3}], [%2];" ::"r"(
                     shared_address(window()) + offset),
                 "l"(map), "r"(shared_address(&barrier)), "r"(0)
                 : "memory");
}

void faults(const char* which) {
    Random random(3);
    Tensor t = any_tensor(2, random, false);
    t.box[1] = std::min(t.box[1], 16u);
    DeviceArray<unsigned char> data(t.bytes);
    CUtensorMap map = map_of(t, data);
    int offset = 0, shift = 0;
    cudaError_t wanted = cudaErrorIllegalInstruction;
    if (!strcmp(which, "garbage")) memset(&map, 0xa5, sizeof map);
    else if (!strcmp(which, "place")) offset = 64, wanted = cudaErrorMisalignedAddress;
    else if (!strcmp(which, "map")) shift = 16, wanted = cudaErrorMisalignedAddress;
    else if (!strcmp(which, "room")) offset = 1 << 20, wanted = cudaErrorIllegalAddress;
    else fail("no fault %s", which);
    bad_load<<<1, 1, 8192>>>(map, offset, shift);
    EXPECT_ERROR(cudaDeviceSynchronize(), wanted);
}

int main(int count, char** arguments) {
    CHECK(cudaFree(0));
    encode = driver_function<EncodeTiled>("cuTensorMapEncodeTiled");
    encode_im2col = driver_function<EncodeIm2col>("cuTensorMapEncodeIm2col");
    if (count == 3 && !strcmp(arguments[1], "--fault")) {
        faults(arguments[2]);
        return ok("%s", arguments[2]);
    }
    int times = count > 1 ? atoi(arguments[1]) : 12;
    Random random(count > 2 ? atoi(arguments[2]) : 11);
    refusals();
    tiles<1>(random, times), tiles<2>(random, times), tiles<3>(random, times), tiles<4>(random, times), tiles<5>(random, times);
    pixels<3>(random, times), pixels<4>(random, times), pixels<5>(random, times);
    combinations(random);
    made_by_a_kernel(random);
    return ok("%d boxes", times * 8);
}
