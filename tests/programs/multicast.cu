// Tiles and bytes that one block loads into the shared memory of several blocks of its cluster, each of which waits at its own
// barrier for all that comes to it, round after round.
// rgpu-nvcc: -gencode arch=compute_90a,code=[sm_90a,compute_90a]
#define EXAMPLE "multicast"
#include <cooperative_groups.h>

#include "common/tma.cuh"

namespace cg = cooperative_groups;

constexpr int BLOCKS = 4, ROUNDS = 3, WIDTH = 32, HEIGHT = 8, WORDS = 16;
constexpr uint32_t TILE_BYTES = WIDTH * HEIGHT * 4, WORDS_BYTES = WORDS * 4;

// Whom the block of a rank sends to in a round: its own memory is not always among them, and in one case nobody's is.
__host__ __device__ uint16_t receivers(int rank, int round) {
    const uint16_t all[BLOCKS] = {0xf, 0x5, 0x6, 0x8};
    return round == 2 && rank == 3 ? 0 : all[(rank + round) % BLOCKS];
}

__global__ void __cluster_dims__(BLOCKS) exchange(const __grid_constant__ CUtensorMap map, const uint32_t* words, float* tiles_out,
                                                  uint32_t* words_out) {
    __shared__ alignas(128) float tiles[BLOCKS][HEIGHT * WIDTH];
    __shared__ alignas(16) uint32_t parts[BLOCKS][WORDS];
    __shared__ uint64_t barrier;
    auto cluster = cg::this_cluster();
    int rank = cluster.block_rank(), number = blockIdx.x / BLOCKS;
    for (int i = threadIdx.x; i < BLOCKS * HEIGHT * WIDTH; i += blockDim.x) tiles[0][i] = -1;
    for (int i = threadIdx.x; i < BLOCKS * WORDS; i += blockDim.x) parts[0][i] = ~0u;
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        barriers_ready();
    }
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t wanted = 0;
        for (int sender = 0; sender < BLOCKS; sender++)
            if (receivers(sender, round) >> rank & 1) wanted += TILE_BYTES + WORDS_BYTES;
        if (threadIdx.x == 0) barrier_arrive_expect(&barrier, wanted);
        asm volatile("fence.proxy.async;" ::: "memory");
        cluster.sync();
        if (threadIdx.x == 0) {
            uint16_t mask = receivers(rank, round);
            int y = ((number * BLOCKS + rank) * ROUNDS + round) * HEIGHT;
            uint64_t policy;
            asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], "
                "[%1, {%3, %4}], [%2], %5, %6;" ::"r"(shared_address(tiles[rank])),
                "l"(&map), "r"(shared_address(&barrier)), "r"(0), "r"(y), "h"(mask), "l"(policy)
                : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %3, [%2], %4;" ::"r"(
                    shared_address(parts[rank])),
                "l"(words + y / HEIGHT * WORDS), "r"(shared_address(&barrier)), "r"(WORDS_BYTES), "h"(mask)
                : "memory");
        }
        barrier_wait(&barrier, round & 1);
        int place = (blockIdx.x * ROUNDS + round) * BLOCKS;
        for (int i = threadIdx.x; i < BLOCKS * HEIGHT * WIDTH; i += blockDim.x) tiles_out[place * HEIGHT * WIDTH + i] = tiles[0][i];
        for (int i = threadIdx.x; i < BLOCKS * WORDS; i += blockDim.x) words_out[place * WORDS + i] = parts[0][i];
        // Nobody sends again, or ends, before all have read.
        cluster.sync();
    }
}

int main(int count, char** arguments) {
    const int clusters = 3, blocks = clusters * BLOCKS, sent = blocks * ROUNDS;
    std::vector<float> data(sent * HEIGHT * WIDTH);
    std::vector<uint32_t> words(sent * WORDS);
    for (size_t i = 0; i < data.size(); i++) data[i] = i;
    for (size_t i = 0; i < words.size(); i++) words[i] = i * 2654435761u;
    DeviceArray<float> tensor(data), tiles_out(sent * BLOCKS * HEIGHT * WIDTH);
    DeviceArray<uint32_t> on_words(words), words_out(sent * BLOCKS * WORDS);
    auto encode = driver_function<EncodeTiled>("cuTensorMapEncodeTiled");
    CUtensorMap map;
    cuuint64_t sizes[] = {WIDTH, (cuuint64_t)sent * HEIGHT}, strides[] = {WIDTH * 4};
    cuuint32_t box[] = {WIDTH, HEIGHT}, steps[] = {1, 1};
    REQUIRE(encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (float*)tensor, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS,
            "a good map was refused");
    for (int launch = 0; launch < (count > 1 ? atoi(arguments[1]) : 2); launch++) {
        tiles_out.zero(), words_out.zero();
        exchange<<<blocks, 64>>>(map, on_words, tiles_out, words_out);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        auto tiles = tiles_out.download();
        auto parts = words_out.download();
        for (int block = 0; block < blocks; block++)
            for (int sender = 0; sender < BLOCKS; sender++) {
                int last = -1;
                for (int round = 0; round < ROUNDS; round++) {
                    if (receivers(sender, round) >> block % BLOCKS & 1)
                        last = ((block / BLOCKS * BLOCKS + sender) * ROUNDS + round);
                    int place = (block * ROUNDS + round) * BLOCKS + sender;
                    for (int i = 0; i < HEIGHT * WIDTH; i++) {
                        float wanted = last < 0 ? -1 : data[last * HEIGHT * WIDTH + i], found = tiles[place * HEIGHT * WIDTH + i];
                        REQUIRE(found == wanted, "block %d, round %d, tile %d: %g instead of %g", block, round, sender, found, wanted);
                    }
                    for (int i = 0; i < WORDS; i++) {
                        uint32_t wanted = last < 0 ? ~0u : words[last * WORDS + i], found = parts[place * WORDS + i];
                        REQUIRE(found == wanted, "block %d, round %d, words %d: %x instead of %x", block, round, sender, found, wanted);
                    }
                }
            }
    }
    return ok("%d tiles to %d blocks", sent, blocks);
}
