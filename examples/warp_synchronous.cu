// Code from before __syncwarp(): the lanes of a warp count on running abreast, as they did on every device of that time and still do on
// today's. No barrier and no operation of the warp stands between what one lane writes and another one reads. Each shape stood in
// many programs, in this form or nearly.
#define EXAMPLE "warp_synchronous"
#include "common/check.h"

const int BLOCKS = 6, THREADS = 128, WARPS = THREADS / 32;

// The last steps of the old SDK's reduction.
__global__ void reduce(const int* in, int* out) {
    __shared__ volatile int sums[THREADS];
    int tid = threadIdx.x;
    sums[tid] = in[blockIdx.x * THREADS + tid];
    __syncthreads();
    if (tid < 64) sums[tid] += sums[tid + 64];
    __syncthreads();
    if (tid < 32) {
        sums[tid] += sums[tid + 32];
        sums[tid] += sums[tid + 16];
        sums[tid] += sums[tid + 8];
        sums[tid] += sums[tid + 4];
        sums[tid] += sums[tid + 2];
        sums[tid] += sums[tid + 1];
    }
    if (tid == 0) out[blockIdx.x] = sums[0];
}

// The same by a function with a pointer, as the SDK has it.
__device__ void last_steps(volatile int* sums, int tid) {
    sums[tid] += sums[tid + 32];
    sums[tid] += sums[tid + 16];
    sums[tid] += sums[tid + 8];
    sums[tid] += sums[tid + 4];
    sums[tid] += sums[tid + 2];
    sums[tid] += sums[tid + 1];
}

__global__ void reduce_by_pointer(const int* in, int* out) {
    extern __shared__ int dynamic[];
    int tid = threadIdx.x;
    dynamic[tid] = in[blockIdx.x * THREADS + tid];
    __syncthreads();
    for (int half = THREADS / 2; half > 32; half >>= 1) {
        if (tid < half) dynamic[tid] += dynamic[tid + half];
        __syncthreads();
    }
    if (tid < 32) last_steps(dynamic, tid);
    if (tid == 0) out[blockIdx.x] = dynamic[0];
}

// Each warp's inclusive sums (Kogge and Stone), with branches.
__global__ void scan(const int* in, int* out) {
    __shared__ volatile int sums[THREADS];
    int tid = threadIdx.x, lane = tid & 31, all = blockIdx.x * THREADS + tid;
    sums[tid] = in[all];
    if (lane >= 1) sums[tid] = sums[tid - 1] + sums[tid];
    if (lane >= 2) sums[tid] = sums[tid - 2] + sums[tid];
    if (lane >= 4) sums[tid] = sums[tid - 4] + sums[tid];
    if (lane >= 8) sums[tid] = sums[tid - 8] + sums[tid];
    if (lane >= 16) sums[tid] = sums[tid - 16] + sums[tid];
    out[all] = sums[tid];
}

// The same in a loop, with zeros before each warp's numbers in place of branches.
__global__ void scan_in_a_loop(const int* in, int* out) {
    __shared__ volatile int padded[WARPS * 64];
    int tid = threadIdx.x, all = blockIdx.x * THREADS + tid;
    int at = 2 * tid - (tid & 31);
    padded[at] = 0;
    at += 32;
    padded[at] = in[all];
#pragma unroll 1
    for (int distance = 1; distance < 32; distance <<= 1) padded[at] = padded[at] + padded[at - distance];
    out[all] = padded[at];
}

// Each warp sorts 64 numbers (Batcher's bitonic network), two of them for each lane.
__global__ void sort(const int* in, int* out) {
    __shared__ volatile int keys[WARPS * 64];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    volatile int* mine = keys + warp * 64;
    int first = (blockIdx.x * WARPS + warp) * 64;
    mine[lane] = in[first + lane];
    mine[lane + 32] = in[first + lane + 32];
    for (int size = 2; size <= 64; size <<= 1) {
        bool up = (lane & (size / 2)) == 0;
        for (int stride = size / 2; stride > 0; stride >>= 1) {
            int at = 2 * lane - (lane & (stride - 1));
            int a = mine[at], b = mine[at + stride];
            if ((a > b) == (up || size == 64)) {
                mine[at] = b;
                mine[at + stride] = a;
            }
        }
    }
    out[first + lane] = mine[lane];
    out[first + lane + 32] = mine[lane + 32];
}

// The SDK's histogram of 256 bins from before shared memory had atomic operations: a lane writes its tag with its count, and tries again where
// another lane's came through.
__device__ void add_tagged(volatile unsigned* histogram, unsigned bin, unsigned tag) {
    unsigned count;
    do {
        count = histogram[bin] & 0x07FFFFFFu;
        count = tag | (count + 1);
        histogram[bin] = count;
    } while (histogram[bin] != count);
}

__global__ void histogram(const unsigned* in, unsigned* out, int words) {
    __shared__ volatile unsigned counts[WARPS * 256];
    for (int i = threadIdx.x; i < WARPS * 256; i += THREADS) counts[i] = 0;
    __syncthreads();
    unsigned tag = threadIdx.x << 27;
    volatile unsigned* mine = counts + threadIdx.x / 32 * 256;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < words; i += gridDim.x * THREADS) {
        unsigned word = in[i];
        add_tagged(mine, word & 255, tag);
        add_tagged(mine, word >> 8 & 255, tag);
        add_tagged(mine, word >> 16 & 255, tag);
        add_tagged(mine, word >> 24, tag);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < 256; bin += THREADS) {
        unsigned sum = 0;
        for (int warp = 0; warp < WARPS; warp++) sum += counts[warp * 256 + bin] & 0x07FFFFFFu;
        atomicAdd(&out[bin], sum);
    }
}

// Lanes hand values to their neighbours, round by round, through memory of the block that is not volatile.
__global__ void hand_on(const int* in, int* out, int rounds) {
    __shared__ int belt[THREADS];
    int tid = threadIdx.x, from = (tid & ~31) | ((tid + 31) & 31), all = blockIdx.x * THREADS + tid;
    int value = in[all];
    for (int round = 0; round < rounds; round++) {
        belt[tid] = value;
        value = belt[from] + round;
    }
    out[all] = value;
}

// Each warp stores a row of 16 numbers, and behind it the sum of each eight, where the other half of its lanes has stored before.
__global__ void row_with_sums(const int* in, int* out) {
    __shared__ int rows[THREADS / 32][32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, all = blockIdx.x * THREADS + threadIdx.x;
    int value = lane < 16 ? in[all] : 0, sum = value;
    for (int distance = 4; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    rows[warp][lane] = value;
    if (lane % 8 == 0 && lane < 16) rows[warp][16 + lane / 8] = sum;
    __syncthreads();
    out[all] = rows[warp][lane];
}

// As hand_on, but through global memory, by volatile accesses.
__global__ void hand_on_globally(const int* in, int* out, volatile int* belt, int rounds) {
    int tid = threadIdx.x, from = (tid & ~31) | ((tid + 31) & 31), first = blockIdx.x * THREADS;
    int value = in[first + tid];
    for (int round = 0; round < rounds; round++) {
        belt[first + tid] = value;
        value = belt[first + from] + round;
    }
    out[first + tid] = value;
}

// Critical sections that each lane of a warp enters: the lock is released in the loop's own branch, as it has to be where lanes run abreast.
__global__ void lock_with_flag(int* lock, int* count, int times) {
    for (int i = 0; i < times; i++) {
        bool done = false;
        while (!done) {
            if (atomicCAS(lock, 0, 1) == 0) {
                *(volatile int *)count = *(volatile int *)count + 1;
                __threadfence();
                atomicExch(lock, 0);
                done = true;
            }
        }
    }
}

// The other shape: what has to be done stands behind the loop that waits. It hangs on devices from before Volta, whose lanes have one
// program counter; later ones let the lane that has the lock go on.
__global__ void lock_before(int* lock, int* count, int times) {
    for (int i = 0; i < times; i++) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        *(volatile int *)count = *(volatile int *)count + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

// One lane after another, each of which waits for a word that the lane before it writes.
__global__ void one_after_another(volatile int* turn, int* order) {
    int lane = threadIdx.x;
    if (lane % 2 == 0) {
        while (turn[0] != lane) {
        }
        order[lane] = lane * 3;
        __threadfence();
        turn[0] = lane + 1;
    } else {
        while (turn[0] != lane) {
        }
        order[lane] = order[lane - 1] + 1;
        __threadfence();
        turn[0] = lane + 1;
    }
}

// Some lanes add up for much longer than others, which wait for them behind the loop.
__global__ void long_sums(const int* in, int* out) {
    __shared__ volatile int sums[THREADS + 16];
    int tid = threadIdx.x, lane = tid & 31;
    sums[tid] = 0;
    for (int i = 0; i < (lane & 7) * 300; i++) sums[tid] += in[(i + tid) % THREADS];
    if (lane < 16) {
        sums[tid] += sums[tid + 16];
        sums[tid] += sums[tid + 8];
        sums[tid] += sums[tid + 4];
        sums[tid] += sums[tid + 2];
        sums[tid] += sums[tid + 1];
    }
    if (lane == 0) out[tid / 32] = sums[tid];
}

// A lock that serves in the order of tickets, in memory of the block: lanes look at whose turn it is while one that has left the loop is to go on.
__global__ void tickets(int* value) {
    __shared__ int next, served;
    if (threadIdx.x == 0) next = served = 0;
    __syncthreads();
    int mine = atomicAdd(&next, 1);
    while (*(volatile int*)&served != mine) {
    }
    *(volatile int*)value = *(volatile int*)value * 3 + mine;
    __threadfence();
    *(volatile int*)&served = mine + 1;
}

// An image of 12 rows of 17 elements is renewed in place, a part as large as the block behind the other: each part is stored one turn later, behind the
// loads of the next one. All have read what is round theirs before one of them stores (Rodinia's leukocyte).
__global__ void renew(const int* in, int* out) {
    const int row = 17, size = 12 * row;
    __shared__ int image[size], buffer[THREADS];
    int tid = threadIdx.x, parts = (size + THREADS - 1) / THREADS, old = 0, at = 0;
    for (int i = tid; i < size; i += THREADS) image[i] = in[i] >> 8;
    __syncthreads();
    for (int part = 0; part < parts; part++) {
        old = at;
        at = part * THREADS + tid;
        int value = 0;
        if (at < size) {
            int up = at < row ? at : at - row, down = at + row >= size ? at : at + row;
            value = 2 * image[at] + image[up] + image[down];
        }
        if (part > 0 && old < size) image[old] = buffer[tid];
        if (part < parts - 1)
            buffer[tid] = value;
        else if (at < size)
            image[at] = value;
        __syncthreads();
    }
    for (int i = tid; i < size; i += THREADS) out[i] = image[i];
}

// A warp counts in a table, in which each lane then looks up two numbers, and squeezes what was counted into its beginning: an atomic operation has nobody
// wait, and all lanes have loaded before one of them stores (nsparse's products of sparse matrices).
__global__ void squeeze(const int* in, int* out, int* left) {
    __shared__ int table[WARPS][64], left_here[WARPS];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int i = lane; i < 64; i += 32) table[warp][i] = 0;
    if (lane == 0) left_here[warp] = 0;
    __syncthreads();
    for (int i = 0; i <= lane % 5; i++) {
        int place = in[threadIdx.x * 5 + i] & 63;
        if (__ballot_sync(__activemask(), place < 64) != 0) atomicAdd(&table[warp][place], 1);
    }
    int first = table[warp][lane], second = table[warp][lane + 32];
    out[threadIdx.x * 2] = first;
    out[threadIdx.x * 2 + 1] = second;
    for (int i = lane; i < 64; i += 32)
        if (table[warp][i] != 0) {
            int to = atomicAdd(&left_here[warp], 1);
            table[warp][to] = table[warp][i];
        }
    if (lane == 0) left[warp] = 0;
    int sum = 0;
    for (int i = lane; i < left_here[warp]; i += 32) sum += table[warp][i];
    for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(~0u, sum, by);
    if (lane == 0) left[warp] = sum;
}

// Runs a kernel, for at most so long that somebody still waits for it.
#define RUN(...)                       \
    do {                               \
        __VA_ARGS__;                   \
        CHECK(cudaGetLastError());     \
        CHECK(cudaDeviceSynchronize()); \
    } while (0)

// Tiles of four lanes leave a loop with a shuffle in different turns; behind it all lanes of the warp add up their numbers. And half of each warp shuffles by itself before that.
__global__ void scan_behind_tiles(const int* in, int* out) {
    __shared__ volatile int sums[2][WARPS][32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, value = in[threadIdx.x] & 0xffff;
    unsigned tile = 15u << (lane & ~3);
    for (int turn = 0; turn <= lane / 4 % 5; turn++) value += __shfl_xor_sync(tile, value, 1 + turn % 3);
    sums[0][warp][lane] = value;
    for (int by = 1; by < 32; by *= 2)
        if (lane >= by) sums[0][warp][lane] = sums[0][warp][lane] + sums[0][warp][lane - by];
    out[threadIdx.x] = sums[0][warp][lane];
    if (lane < 16) value += __shfl_xor_sync(0xffffu, value, 5);
    sums[1][warp][lane] = value;
    out[THREADS + threadIdx.x] = sums[1][warp][lane ^ 9];
}

// Rows of a block add up their numbers by halves, whose first length is known when the kernel runs, and which are laid out one after another. Not volatile, and no warp is cut by a row.
__global__ void sums_of_rows(const int* in, int* out) {
    __shared__ int sums[THREADS];
    int tid = threadIdx.y * blockDim.x + threadIdx.x;
    int half = blockDim.x / 2;
    sums[tid] = in[tid];
    if (threadIdx.x < half) {
#pragma unroll
        for (int distance = half; distance > 0; distance >>= 1) sums[tid] = sums[tid] + sums[tid + distance];
    }
    if (threadIdx.x == 0) out[threadIdx.y] = sums[tid];
}

// The prefix sum of Kogge and Stone as textbooks have it, with one barrier to a turn: behind it all threads read two elements, and those that have them store one. The length of the block
// is known when the kernel runs, or is a constant, so that the loop is unrolled.
template <bool is_constant> __global__ void kogge_stone(const int* in, int* out) {
    __shared__ int sums[THREADS];
    sums[threadIdx.x] = in[threadIdx.x];
#pragma unroll
    for (unsigned distance = 1; distance < (is_constant ? THREADS : blockDim.x); distance *= 2) {
        __syncthreads();
        if (threadIdx.x >= distance) sums[threadIdx.x] += sums[threadIdx.x - distance];
    }
    out[threadIdx.x] = sums[threadIdx.x];
}

// All warps read two rows, and the first one then stores to one of them.
__global__ void rows_then_one(const int* in, int* out) {
    __shared__ int rows[2][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp < 2) rows[warp][lane] = in[threadIdx.x] >> 8;
    __syncthreads();
    int sum = rows[0][lane] + warp * rows[1][lane];
    if (warp == 0) rows[0][lane] = 2 * sum;
    __syncthreads();
    out[threadIdx.x] = sum + rows[0][lane];
}

// All blocks divide their elements, and the first thread of the grid adds all of them up, behind a barrier of its block alone: others have begun as early, and it takes longer.
__global__ void shares(int count, int by, int* elements, int* sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) elements[i] /= by;
    __syncthreads();
    if (i == 0) {
        sums[0] = elements[0];
        for (int k = 1; k < count; k++) sums[k] = sums[k - 1] + elements[k];
    }
}

// The first block adds up what the first thread of each has stored.
__global__ void parts(const int* in, int* sums, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, all = 0;
    if (threadIdx.x == 0) sums[blockIdx.x] = in[i] & 0xff;
    if (blockIdx.x == 0) {
        for (int block = 0; block < gridDim.x; block++) all += sums[block];
        out[i] = all + threadIdx.x;
    }
}

// Xiao and Feng's barrier for all blocks of a grid: who comes late to look whether just all have come must not find that one has come to the next barrier already.
__device__ volatile int arrived;
__device__ void all_arrive(int goal) {
    if (threadIdx.x == 0) {
        atomicAdd((int*)&arrived, 1);
        while (arrived != goal) {}
    }
    __syncthreads();
}

// Blocks hand each other what they have, round and round.
__global__ void around(int rounds, volatile int* values) {
    int blocks = gridDim.x, own = blockIdx.x;
    for (int round = 0; round < rounds; round++) {
        if (threadIdx.x == 0) {
            values[(round + 1) % 2 * blocks + own] = values[round % 2 * blocks + (own + 1) % blocks] + own;
            __threadfence();
        }
        all_arrive((round + 1) * blocks);
    }
}

// The prefix sum of Kogge and Stone in memory of all blocks, which one block has to itself.
__global__ void kogge_stone_for_all(int* sums, int length) {
    int i = threadIdx.x;
    for (int distance = 1; distance < length; distance *= 2) {
        __syncthreads();
        if (i >= distance) sums[i] += sums[i - distance];
    }
}

// Each block has a row, and each thread divides its element by the first one.
__global__ void by_first(int* rows) {
    int* row = rows + blockIdx.x * blockDim.x;
    row[threadIdx.x] /= row[0];
}

// Rodinia's tracking of a heart's wall: all fill an array together, and then each adds up a row of it, from one to the next.
struct Rows {
    int *all, length, count;
};
__constant__ Rows rows_of_constants;
__global__ void filled(const int* in, int* out) {
    const Rows& rows = rows_of_constants;
    for (int i = threadIdx.x; i < rows.length * rows.count; i += blockDim.x) rows.all[i] = in[i % THREADS] & 0xff;
    for (int row = threadIdx.x; row < rows.count; row += blockDim.x) {
        int sum = 0;
        for (int i = row; i < rows.length * rows.count; i += rows.count) sum += rows.all[i];
        out[row] = sum;
    }
}

// SHOC's clusters: all clear the marks, and one sets one.
__global__ void marked(int* marks, int mark) {
    for (int i = threadIdx.x; i < THREADS; i += blockDim.x) marks[i] = 0;
    if (threadIdx.x == 0) marks[mark] = 1;
}

// Filters of cuSignal: a pipeline of as many stages as threads, which is filled first and then runs dry.
__global__ void pipeline(const int* in, int* out, int samples) {
    __shared__ int results[THREADS];
    int stage = threadIdx.x, stages = blockDim.x;
    results[stage] = 0;
    for (int i = 0; i < samples; i++) {
        __syncthreads();
        int next = 2 * (stage == 0 ? in[i] : results[stage - 1]) + stage;
        if (stage < stages - 1)
            results[stage] = next;
        else if (i >= stages - 1)
            out[i - (stages - 1)] = next;
    }
    for (int i = 0; i < stages; i++) {
        __syncthreads();
        if (stage > i) {
            int next = 2 * results[stage - 1] + stage;
            if (stage < stages - 1)
                results[stage] = next;
            else
                out[samples - (stages - 1) + i] = next;
        }
    }
}

// Each warp has a tile of its own, all of which its lanes look through: bodies that act on each other, say.
struct Body {
    int at, mass;
};
__global__ void tiles_of_warps(const int* in, int* out, int bodies) {
    __shared__ Body tile[THREADS];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, sum = 0;
    for (int begin = 0; begin < bodies; begin += 32) {
        tile[threadIdx.x] = Body{in[begin + lane] & 0xff, in[begin + lane] >> 8 & 0xf};
        for (int i = 0; i < min(32, bodies - begin); i++) sum += tile[warp * 32 + i].mass * (tile[warp * 32 + i].at + warp);
    }
    out[threadIdx.x] = sum;
}

// Each block has a row, and turns it back to front.
__global__ void back_to_front(int* rows) {
    int* row = rows + blockIdx.x * blockDim.x;
    int other = row[blockDim.x - 1 - threadIdx.x];
    row[threadIdx.x] = other;
}

// A ring: each thread adds the element of one some places before it to its own.
__global__ void ring(const int* in, int* out) {
    __shared__ int sums[THREADS];
    sums[threadIdx.x] = in[threadIdx.x] & 0xffff;
#pragma unroll 1
    for (int distance = 1; distance < THREADS; distance *= 2) {
        __syncthreads();
        sums[threadIdx.x] += sums[(threadIdx.x + THREADS - distance) % THREADS];
    }
    out[threadIdx.x] = sums[threadIdx.x];
}

static int checked = 0;

static void same(const char* what, int at, long got, long wanted) {
    REQUIRE(got == wanted, "%s: result %d is %ld, not %ld", what, at, got, wanted);
    checked++;
}

int main() {
    const int count = BLOCKS * THREADS * 2, all = BLOCKS * THREADS;
    int* out, *more;
    CHECK(cudaMallocManaged(&out, count * sizeof(int)));
    CHECK(cudaMallocManaged(&more, count * sizeof(int)));
    Random random(12345);
    std::vector<int> numbers(count);
    for (int& number : numbers) number = (int)(random.next() >> 8);
    DeviceArray<int> in(numbers);

    for (int way = 0; way < 2; way++) {
        const char* name = way == 0 ? "reduce" : "reduce_by_pointer";
        if (way == 0)
            RUN(reduce<<<BLOCKS, THREADS>>>(in, out));
        else
            RUN(reduce_by_pointer<<<BLOCKS, THREADS, THREADS * sizeof(int)>>>(in, out));
        for (int block = 0; block < BLOCKS; block++) {
            int sum = 0;
            for (int i = 0; i < THREADS; i++) sum += numbers[block * THREADS + i];
            same(name, block, out[block], sum);
        }
    }
    for (int way = 0; way < 2; way++) {
        if (way == 0)
            RUN(scan<<<BLOCKS, THREADS>>>(in, out));
        else
            RUN(scan_in_a_loop<<<BLOCKS, THREADS>>>(in, out));
        for (int i = 0, sum = 0; i < all; i++) {
            sum = i % 32 == 0 ? numbers[i] : sum + numbers[i];
            same(way == 0 ? "scan" : "scan_in_a_loop", i, out[i], sum);
        }
    }
    RUN(sort<<<BLOCKS, THREADS>>>(in, out));
    std::vector<int> sorted = numbers;
    for (int first = 0; first < count; first += 64) {
        std::sort(sorted.begin() + first, sorted.begin() + first + 64);
        for (int i = first; i < first + 64; i++) same("sort", i, out[i], sorted[i]);
    }
    for (int bin = 0; bin < 256; bin++) out[bin] = 0;
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    // Devices with a program counter for each lane lose counts here (an H100 does); a software GPU's lanes stay in step.
    bool in_step = device.major < 7 || strstr(device.name, "software");
    RUN(histogram<<<BLOCKS, THREADS>>>((unsigned*)in.data, (unsigned*)out, count));
    std::vector<int> bins(256);
    for (int number : numbers)
        for (int byte = 0; byte < 4; byte++) bins[(unsigned)number >> (8 * byte) & 255]++;
    for (int bin = 0; bin < 256 && in_step; bin++) same("histogram", bin, out[bin], bins[bin]);
    for (int way = 0; way < 2; way++) {
        const int rounds = 37;
        if (way == 0)
            RUN(hand_on<<<BLOCKS, THREADS>>>(in, out, rounds));
        else
            RUN(hand_on_globally<<<BLOCKS, THREADS>>>(in, out, more, rounds));
        for (int i = 0; i < all; i++) {
            int from = (i & ~31) | ((i + 32 * 32 - rounds) & 31);
            same(way == 0 ? "hand_on" : "hand_on_globally", i, out[i], numbers[from] + rounds * (rounds - 1) / 2);
        }
    }
    RUN(row_with_sums<<<BLOCKS, THREADS>>>(in, out));
    for (int i = 0; i < all; i++) {
        int lane = i & 31, wanted = lane < 16 ? numbers[i] : 0;
        for (int k = 0; k < 8 && (lane == 16 || lane == 17); k++) wanted += numbers[(i & ~31) + (lane - 16) * 8 + k];
        same("row_with_sums", i, out[i], wanted);
    }
    for (int way = 0; way < 2; way++) {
        const char* name = way == 0 ? "lock_with_flag" : "lock_before";
        out[0] = out[1] = 0;
        if (way == 0)
            RUN(lock_with_flag<<<2, 64>>>(out, out + 1, 3));
        else
            RUN(lock_before<<<2, 64>>>(out, out + 1, 3));
        same(name, 0, out[0], 0);
        same(name, 1, out[1], 2 * 64 * 3);
    }
    RUN(long_sums<<<1, THREADS>>>(in, out));
    for (int warp = 0; warp < WARPS; warp++) {
        unsigned wanted = 0;
        for (int tid = warp * 32; tid < warp * 32 + 32; tid++)
            for (int i = 0; i < (tid & 7) * 300; i++) wanted += numbers[(i + tid) % THREADS];
        same("long_sums", warp, out[warp], (int)wanted);
    }
    for (int threads : {2, 32, 96}) {
        unsigned wanted = 0;
        for (int i = 0; i < threads; i++) wanted = wanted * 3 + i;
        out[0] = 0;
        RUN(tickets<<<1, threads>>>(out));
        same("tickets", threads, out[0], (int)wanted);
    }
    RUN(renew<<<1, THREADS>>>(in, out));
    for (int i = 0; i < 12 * 17; i++) {
        int up = i < 17 ? i : i - 17, down = i + 17 >= 12 * 17 ? i : i + 17;
        same("renew", i, out[i], 2 * (numbers[i] >> 8) + (numbers[up] >> 8) + (numbers[down] >> 8));
    }
    RUN(squeeze<<<1, THREADS>>>(in, out, more));
    for (int warp = 0; warp < WARPS; warp++) {
        int counts[64] = {}, sum = 0;
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i <= lane % 5; i++) counts[numbers[(warp * 32 + lane) * 5 + i] & 63]++, sum++;
        for (int i = 0; i < 64; i++) same("squeeze", i, out[(warp * 32 + i % 32) * 2 + i / 32], counts[i]);
        same("squeezed", warp, more[warp], sum);
    }
    RUN(scan_behind_tiles<<<1, THREADS>>>(in, out));
    for (int warp = 0; warp < WARPS; warp++) {
        int values[32], next[32], sum = 0;
        for (int lane = 0; lane < 32; lane++) values[lane] = numbers[warp * 32 + lane] & 0xffff;
        for (int turn = 0; turn < 5; turn++) {
            for (int lane = 0; lane < 32; lane++)
                next[lane] = values[lane] + (turn <= lane / 4 % 5 ? values[lane ^ (1 + turn % 3)] : 0);
            std::copy(next, next + 32, values);
        }
        for (int lane = 0; lane < 32; lane++) {
            sum += values[lane];
            same("scan_behind_tiles", warp * 32 + lane, out[warp * 32 + lane], sum);
            int other = lane ^ 9;
            int wanted = values[other] + (other < 16 ? values[other ^ 5] : 0);
            same("scan_behind_tiles, halves", warp * 32 + lane, out[THREADS + warp * 32 + lane], wanted);
        }
    }
    for (int row = 2; row <= 32; row *= 2) {
        RUN(sums_of_rows<<<1, dim3(row, THREADS / row)>>>(in, out));
        for (int i = 0; i < THREADS / row; i++) {
            unsigned wanted = 0;
            for (int j = 0; j < row; j++) wanted += numbers[i * row + j];
            same("sums_of_rows", i, out[i], (int)wanted);
        }
    }
    for (int threads = 32; threads <= THREADS; threads *= 2) {
        for (bool is_constant : {false, true}) {
            if (is_constant && threads < THREADS) continue;
            RUN((is_constant ? kogge_stone<true> : kogge_stone<false>)<<<1, threads>>>(in, out));
            unsigned sum = 0;
            for (int i = 0; i < threads; i++) same("kogge_stone", i, out[i], (int)(sum += numbers[i]));
        }
    }
    RUN(rows_then_one<<<1, THREADS>>>(in, out));
    for (int i = 0; i < THREADS; i++) {
        int first = numbers[i % 32] >> 8, sum = first + i / 32 * (numbers[32 + i % 32] >> 8);
        same("rows_then_one", i, out[i], sum + 2 * first);
    }
    RUN(ring<<<1, THREADS>>>(in, out));
    int all_of_ring = 0;
    for (int i = 0; i < THREADS; i++) all_of_ring += numbers[i] & 0xffff;
    for (int i = 0; i < THREADS; i++) same("ring", i, out[i], all_of_ring);
    const int blocks = 4;
    for (int i = 0; i < THREADS; i++) more[i] = numbers[i] >> 8;
    RUN(shares<<<blocks, THREADS / blocks>>>(THREADS, 3, more, out));
    for (int i = 0, sum = 0; i < THREADS; i++) same("shares", i, out[i], sum += (numbers[i] >> 8) / 3);
    RUN(parts<<<blocks, THREADS / blocks>>>(in, more, out));
    int all_parts = 0;
    for (int block = 0; block < blocks; block++) all_parts += numbers[block * (THREADS / blocks)] & 0xff;
    for (int i = 0; i < THREADS / blocks; i++) same("parts", i, out[i], all_parts + i);
    const int rounds = 20;
    int passed_on[2][blocks] = {};
    for (int i = 0; i < 2 * blocks; i++) more[i] = 0;
    RUN(around<<<blocks, 64>>>(rounds, more));
    for (int round = 0; round < rounds; round++) {
        for (int own = 0; own < blocks; own++) passed_on[(round + 1) % 2][own] = passed_on[round % 2][(own + 1) % blocks] + own;
    }
    for (int own = 0; own < blocks; own++) same("around", own, more[rounds % 2 * blocks + own], passed_on[rounds % 2][own]);
    for (int i = 0; i < THREADS; i++) more[i] = numbers[i] >> 12;
    RUN(kogge_stone_for_all<<<1, THREADS>>>(more, THREADS));
    for (int i = 0, sum = 0; i < THREADS; i++) same("kogge_stone_for_all", i, more[i], sum += numbers[i] >> 12);
    for (int threads : {32, THREADS / blocks}) {
        for (int i = 0; i < blocks * threads; i++) more[i] = numbers[i] | 1;
        RUN(by_first<<<blocks, threads>>>(more));
        for (int i = 0; i < blocks * threads; i++) same("by_first", i, more[i], (numbers[i] | 1) / (numbers[i / threads * threads] | 1));
        for (int i = 0; i < blocks * threads; i++) more[i] = numbers[i];
        RUN(back_to_front<<<blocks, threads>>>(more));
        for (int i = 0; i < blocks * threads; i++) same("back_to_front", i, more[i], numbers[i / threads * threads + threads - 1 - i % threads]);
    }
    for (int bodies : {32, 50}) {
        RUN(tiles_of_warps<<<1, THREADS>>>(in, out, bodies));
        for (int i = 0; i < THREADS; i++) {
            int sum = 0;
            for (int body = 0; body < bodies; body++) sum += (numbers[body] >> 8 & 0xf) * ((numbers[body] & 0xff) + i / 32);
            same("tiles_of_warps", i, out[i], sum);
        }
    }
    const Rows rows{more, 7, 31};
    CHECK(cudaMemcpyToSymbol(rows_of_constants, &rows, sizeof rows));
    for (int threads : {32, THREADS / blocks}) {
        for (int i = 0; i < rows.length * rows.count; i++) more[i] = 0;
        RUN(filled<<<1, threads>>>(in, out));
        for (int row = 0; row < rows.count; row++) {
            int sum = 0;
            for (int i = row; i < rows.length * rows.count; i += rows.count) sum += numbers[i % THREADS] & 0xff;
            same("filled", row, out[row], sum);
        }
        for (int mark : {1, 40, THREADS - 1}) {
            RUN(marked<<<1, threads>>>(out, mark));
            for (int i = 0; i < THREADS; i++) same("marked", i, out[i], i == mark);
        }
        const int samples = 2 * THREADS;
        for (int i = 0; i < samples; i++) more[i] = numbers[i % THREADS] & 0xffff;
        RUN(pipeline<<<1, threads>>>(more, out, samples));
        for (int i = 0; i < samples; i++) {
            unsigned wanted = numbers[i % THREADS] & 0xffff;
            for (int stage = 0; stage < threads; stage++) wanted = 2 * wanted + stage;
            same("pipeline", i, out[i], (int)wanted);
        }
    }
    out[0] = 0;
    RUN(one_after_another<<<1, 32>>>(out, more));
    for (int lane = 0; lane < 32; lane++) same("one_after_another", lane, more[lane], lane / 2 * 6 + lane % 2);
    return ok("%d results", checked);
}
