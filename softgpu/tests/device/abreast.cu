// Programs of single warps that count on their lanes going abreast: none of them has a barrier, as CUDA has wanted since Volta.
// abreast.ptx is made of this file: nvcc -ptx -arch=compute_80 abreast.cu
// and abreast_unoptimized.ptx, too: nvcc -ptx -arch=compute_80 -Xcicc -O0 abreast.cu -o abreast_unoptimized.ptx

#define KERNEL extern "C" __global__ void

__device__ int lane() { return threadIdx.x & 31; }

// A tree in shared memory that is not volatile.
KERNEL tree(int* data, int from) {
    __shared__ int s[256];
    int t = threadIdx.x, first = t & ~31;
    s[t] = data[blockIdx.x * blockDim.x + t];
#pragma unroll 1
    for (int d = from; d > 0; d /= 2)
        if (lane() < d) s[t] += s[t + d];
    data[blockIdx.x * blockDim.x + t] = s[first];
}

// The same with volatile accesses, as CUDA's samples had it.
KERNEL volatile_tree(int* data) {
    __shared__ volatile int s[64 + 16];
    int t = threadIdx.x;
    s[t] = data[t];
    s[t] = s[t] + s[t + 16];
    s[t] = s[t] + s[t + 8];
    s[t] = s[t] + s[t + 4];
    s[t] = s[t] + s[t + 2];
    s[t] = s[t] + s[t + 1];
    data[t] = s[t];
}

// Sums of all before, in global memory.
KERNEL scan(int* data, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int d = 1; d < width; d *= 2) {
        int before = lane() >= d ? data[i - d] : 0;
        data[i] += before;
    }
}

// Neighbours change places where they are in the wrong order: twice as many numbers as lanes.
KERNEL odd_even(int* data, int turns) {
    int* own = data + (blockIdx.x * blockDim.x + (threadIdx.x & ~31)) * 2;
#pragma unroll 1
    for (int turn = 0; turn < turns; turn++) {
        int i = 2 * lane() + (turn & 1);
        if (i + 1 < 64 && own[i] > own[i + 1]) {
            int large = own[i];
            own[i] = own[i + 1];
            own[i + 1] = large;
        }
    }
}

// Keeps odd numbers; where they go is counted in memory, and the result is read by other lanes than wrote it.
KERNEL compact(int* data, int* place, int* kept, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, first = i & ~31;
    int value = data[i], keep = value & 1;
    place[i] = keep;
#pragma unroll 1
    for (int d = 1; d < width; d *= 2) {
        int before = lane() >= d ? place[i - d] : 0;
        place[i] += before;
    }
    if (keep) kept[first + place[i] - 1] = value;
    data[i] = lane() < place[first + 31] ? kept[i] * 2 : -1;
}

// One lane writes a table, and all read it.
KERNEL produce(int* data, int* table, int seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, first = i & ~31;
    if (lane() == 31) {
        int value = seed;
        for (int k = 0; k < 32; k++) {
            value = value * 5 + k;
            table[first + k] = value;
        }
    }
    data[i] = table[i] - table[first + (lane() + 1) % 32];
}

// Sums of all, by partners whose numbers differ in one bit.
KERNEL butterfly(int* data, int from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int bit = from; bit > 0; bit /= 2) data[i] += data[i ^ bit];
}

// Each lane makes as many turns as its number says, and reads its neighbour's result behind the loop.
KERNEL uneven(int* data, int* steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = 0;
#pragma unroll 1
    for (int n = data[i]; n > 0; n--) value += n * n;
    steps[i] = value;
    data[i] = steps[i ^ 1];
}

// All elements of a row move one place up.
KERNEL shift(int* data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int next = lane() < 31 ? data[i + 1] : -1;
    data[i] = next;
    data[i] = data[i] + data[i ^ 1];
}

// What programs do mostly, and what nothing has to be added to.
KERNEL ordinary(int* data, const int* other, int* part, int n) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        data[i] = data[i] * 2 + other[n - 1 - i];
        part[i] += data[i];
        for (int k = 0; k < 4; k++) part[n + 4 * i + k] += part[n + 4 * i + 3 - k] + k;
    }
}

// Another one: a tree with barriers.
KERNEL barriers(int* data) {
    __shared__ int s[256];
    int t = threadIdx.x;
    s[t] = data[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    data[blockIdx.x * blockDim.x + t] = s[0];
}

// The first lane has so many turns more to make than the others that it lets these go first; then a tree without a barrier.
KERNEL late(int* data, int turns) {
    __shared__ volatile int s[64];
    int t = threadIdx.x, i = blockIdx.x * 32 + t;
    s[t] = data[i];
    s[t + 32] = 0;
#pragma unroll 1
    for (int n = t == 0 ? 0 : turns - 1; n < turns; n++) s[t] += 1;
    s[t] += s[t + 16];
    s[t] += s[t + 8];
    s[t] += s[t + 4];
    s[t] += s[t + 2];
    s[t] += s[t + 1];
    data[i] = s[0];
}

// A pipe of stages: each thread takes what the one before has put down in the round before, and puts down its own at once.
KERNEL pipe(int* data, int rounds) {
    __shared__ int s[32];
    int t = threadIdx.x;
    unsigned own = data[blockIdx.x * 32 + t];
    s[t] = own;
    __syncthreads();
#pragma unroll 1
    for (int n = 0; n < rounds; n++) {
        unsigned before = t > 0 ? s[t - 1] : n;
        s[t] = before * 3 + own;
        __syncthreads();
    }
    data[blockIdx.x * 32 + t] = s[t];
}

__device__ int sum_of_warp(int value) {
    for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(~0u, value, d);
    return value;
}

// What many programs have: a second use may begin to write while others still have to read the first one's result.
__device__ int sum_of_block(int value, int* s) {
    int t = threadIdx.x;
    value = sum_of_warp(value);
    if (lane() == 0) s[t / 32] = value;
    __syncthreads();
    if (t < 32) {
        value = sum_of_warp(t < blockDim.x / 32 ? s[t] : 0);
        if (t == 0) s[0] = value;
    }
    __syncthreads();
    return s[0];
}

KERNEL twice(int* data, int factor) {
    __shared__ int s[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = sum_of_block(data[i], s);
    data[i] = sum_of_block(data[i] * factor, s) - sum;
}

// The same in memory of the block whose size the launch says.
KERNEL twice_outside(int* data, int factor) {
    extern __shared__ int s_outside[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = sum_of_block(data[i], s_outside);
    data[i] = sum_of_block(data[i] * factor, s_outside) - sum;
}

// Sums of all before in shared memory, with a fence between two steps; then all read the last one.
KERNEL fenced(int* data, int last) {
    __shared__ int s[48];
    int t = threadIdx.x;
    s[t] = 0;
    s[t + 16] = data[blockIdx.x * blockDim.x + t];
    __threadfence_block();
    s[t + 16] += s[t + 15];
    __threadfence_block();
    s[t + 16] += s[t + 14];
    __threadfence_block();
    s[t + 16] += s[t + 12];
    __threadfence_block();
    s[t + 16] += s[t + 8];
    __threadfence_block();
    s[t + 16] += s[t];
    __threadfence_block();
    data[blockIdx.x * blockDim.x + t] = s[t + 15] + s[47] * last;
}

// A table is cleared, and then each lane counts at a place that data tell.
KERNEL hashed(int* data, int* table, int places) {
    int t = threadIdx.x;
    table += 256 * blockIdx.x;
    for (int k = t; k < places; k += 32) table[k] = 0;
    int place = ((data[blockIdx.x * 32 + t] % places) + places) % places;
    atomicAdd(&table[place], 1);
    __syncwarp();
    data[blockIdx.x * 32 + t] = table[place];
}

// All places are cleared, and then the first lane sets one.
KERNEL cleared(int* data, int* table, int place) {
    int t = threadIdx.x, n = blockDim.x;
    char* mask = (char*)(table + 256 * blockIdx.x);
    for (int k = 0; k + t < 97; k += n) mask[k + t] = 0;
    if (t == 0) mask[place] = 1;
    __syncthreads();
    data[blockIdx.x * n + t] = mask[place];
}

// All lanes store a node, and then the second one takes bits away from what the last but one has stored.
KERNEL released(int* data, int* nodes, int bits) {
    int t = threadIdx.x, value = data[blockIdx.x * 32 + t];
    int* node = nodes + 32 * blockIdx.x;
    asm volatile("st.global.relaxed.sys.u32 [%0], %1;" ::"l"(node + 31 - t), "r"(value));
    __threadfence();
    if (t == 1) atomicAnd(node + 1, bits);
    __syncwarp();
    data[blockIdx.x * 32 + t] = node[1];
}

// All lanes look at a number in each round, and then some raise it.
KERNEL raised(int* data, int rounds) {
    __shared__ int count;
    int t = threadIdx.x, own = data[blockIdx.x * 32 + t];
    if (t == 0) count = 0;
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        if (count >= 40) {
            __syncthreads();
            if (t == 0) count = 0;
            __syncthreads();
        }
        if ((own + round) % 3 == 0) atomicAdd(&count, 1);
        __syncthreads();
    }
    data[blockIdx.x * 32 + t] = count;
}

// All lanes of a warp read its first element, and then each writes one to which data lead, in each round.
KERNEL led(int* data, int rounds) {
    __shared__ int s[128];
    int t = threadIdx.x, lane = t & 31, i = blockIdx.x * blockDim.x + t, sum = 0;
    volatile int* own = s + (t >> 5) * 32;
    int place = ((data[i] % 32) + 32) % 32;
    for (int round = 0; round < rounds; round++) {
        own[lane] = 7;
        if (lane == 0) own[0] = 100 + round;
        int first = own[0];
        ((int*)own)[place] = 5;
        sum += first;
    }
    data[i] = sum;
}

// In each round the lanes that go one way count themselves, and the others do something else.
KERNEL gathered(int* data, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, own = data[i], sum = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
        if ((own >> round & 1) != 0)
            sum += __popc(__activemask()) << round % 8;
        else
            sum += data[i] % 7;
    }
    data[i] = sum;
}

// All threads clear their elements, and then the first lane of each warp stores results, also into what other warps clear.
KERNEL wiped(int* data, int rounds) {
    __shared__ int s[128];
    int t = threadIdx.x, warp = t >> 5, i = blockIdx.x * blockDim.x + t, own = data[i];
    for (int k = t; k < 128; k += blockDim.x) s[k] = -1;
    for (int round = 0; round < rounds; round++) {
        int sum = own + round;
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (lane() == 0) s[round * (blockDim.x / 32) + warp] = sum;
    }
    __syncthreads();
    data[i] = s[t];
}

// Sums of all before in each window of a block's numbers; no barrier stands between the last step of one window and the next window.
KERNEL windows(int* data, int count) {
    __shared__ int s[256];
    int t = threadIdx.x, n = blockDim.x, before = 0;
    int* own = data + blockIdx.x * n * count;
#pragma unroll 1
    for (int window = 0; window < count; window++) {
        s[t] = 0;
        s[t + n] = own[window * n + t];
        __syncthreads();
#pragma unroll 1
        for (int d = 1; d < n; d *= 2) {
            int other = s[t + n - d];
            __syncthreads();
            s[t + n] += other;
            __syncthreads();
        }
        own[window * n + t] = before + s[t + n - 1];
        before += s[2 * n - 1] & 0xff;
    }
}

// Each warp takes rows one after another, and its first lane takes what the others have left in volatile shared memory, in a branch of its own.
KERNEL taken(int* data, int rows) {
    __shared__ volatile int s[256 + 32];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, own = data[i], sum = 0;
    s[t + 32] = 0;
#pragma unroll 1
    for (int row = 0; row < rows; row++) {
        int value = own + row;
        s[t] = value;
        if (lane() < 16) {
            s[t] = value = value + s[t + 16];
            s[t] = value = value + s[t + 8];
            s[t] = value = value + s[t + 4];
            s[t] = value = value + s[t + 2];
            s[t] = value = value + s[t + 1];
        }
        if (lane() == 0) sum = sum * 3 + s[t];
    }
    data[i] = sum;
}

// Lanes store where a table leads, and then change their own element.
KERNEL scattered(int* data, int* table, int rounds) {
    __shared__ int s[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, first = t & ~31;
    s[t] = data[i];
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        int value = s[t ^ 1] * 5 + round;
        s[first + table[lane()]] = value;
        s[t] ^= round;
    }
    __syncthreads();
    data[i] = s[t];
}

// A warp's stack in volatile shared memory: its first lane pushes and counts, all read, and go on together where one of them has to.
KERNEL walked(int* data, int* children, int leaves) {
    __shared__ volatile int place[128], node[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, bottom = t & ~31, top = bottom, own = data[i], sum = 0;
    if (lane() == 0) {
        node[top] = 0;
        place[top] = 0;
    }
    __threadfence();
    while (top >= bottom) {
        while (place[top] < 8) {
            int child = children[node[top] * 8 + place[top]];
            if (lane() == 0) place[top]++;
            __threadfence();
            if (child >= 0) {
                if (child >= leaves || __all_sync(__activemask(), (own & 31) > child)) {
                    sum += child;
                } else {
                    top++;
                    if (lane() == 0) {
                        node[top] = child;
                        place[top] = 0;
                    }
                    __threadfence();
                }
            } else {
                top = max(bottom, top - 1);
            }
        }
        top--;
    }
    data[i] = sum;
}

// A warp's stack in shared memory that is not volatile: its first lane puts down, and all take from it.
KERNEL stacked(int* data, int* children, int limit) {
    __shared__ int s[4][32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x >> 5, top = 0, node = warp, sum = 0;
    int* stack = s[warp];
    for (int visits = 0; visits < limit; visits++) {
        int child = children[node];
        sum = sum * 3 + node;
        if (child < 0) {
            if (top == 0) break;
            node = stack[--top];
        } else {
            if (lane() == 0) stack[top] = child + 1;
            top++;
            node = child;
        }
    }
    data[i] = sum;
}

// Each lane of a warp fetches another's element and stores it as its own: one that a table tells, and a partner's.
KERNEL fetched(int* data, int* table, int rounds) {
    __shared__ int s[4][32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int* own = s[threadIdx.x >> 5];
    own[lane()] = data[i];
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        int told = own[table[lane()]];
        own[lane()] = told + round;
        int partner = own[lane() ^ 8];
        own[lane()] = partner * 3;
    }
    __syncthreads();
    data[i] = own[lane()];
}

// All lanes set their warp's number, then add to it or take the largest, and the first lane, or the one that came first, or all load the result.
KERNEL summed(int* data, int* global, int how) {
    __shared__ int s[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x >> 5, value = data[i];
    if (how == 0) {
        s[warp] = 5;
        atomicAdd(&s[warp], value);
        if (lane() == 0) data[i] = s[warp];
    } else if (how == 1) {
        s[warp] = 0;
        int before = atomicAdd(&s[warp], (value & 1023) + 1);
        data[i] = before == 0 ? s[warp] : -1;
    } else if (how == 2) {
        s[warp] = -5000;
        if (value & 1) atomicMax(&s[warp], value);
        data[i] = *(volatile int*)&s[warp];
    } else {
        atomicAdd(&global[i >> 5], value);
        __threadfence();
        if (lane() == 0) data[i] = ((volatile int*)global)[i >> 5];
    }
}

// The lane whose number is a given one tells all others, by a place that the warp has for it.
KERNEL announced(int* data, int wanted) {
    __shared__ int s[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (data[i] == wanted) s[threadIdx.x >> 5] = i;
    __threadfence_block();
    data[i] = s[threadIdx.x >> 5];
}

// A warp takes 32 elements a time from its pool, which the first lane fills anew, until there are no more.
KERNEL pool(int* data, int* global, int n) {
    __shared__ volatile int next, count;
    next = 0;
    count = 0;
    do {
        if (lane() == 0 && count <= 0) {
            next = atomicAdd(global, 96);
            count = 96;
        }
        int i = next + lane();
        if (i >= n) break;
        if (lane() == 0) {
            next += 32;
            count -= 32;
        }
        data[i] += 1;
    } while (data);
}

// A warp walks a tree, with a stack on which the first lane puts nodes, and from which it takes them elsewhere.
KERNEL packet(int* data, int inner) {
    __shared__ volatile int stack[32];
    __shared__ volatile int top;
    int node = 0, steps = 0;
    top = -1;
    while (true) {
        steps++;
        if (node < inner) {
            int left = 2 * node + 1;
            if (lane() == 0) {
                top++;
                stack[top] = left + 1;
            }
            node = left;
        } else {
            data[(node - inner) * 32 + lane()] += 1;
            if (top < 0) break;
            node = stack[top];
            if (lane() == 0) top--;
        }
    }
    data[(inner + 1) * 32 + lane()] = steps;
}

// Two lanes count at two places of a loop that is left between them.
KERNEL rounds(int* data, int last) {
    __shared__ volatile int first, second;
    int count = 0;
    first = 0;
    second = 0;
    while (true) {
        if (lane() == 0) first++;
        int now = first;
        if (now > last) break;
        if (lane() == 31) second++;
        count++;
    }
    data[lane()] = count;
}

__device__ void sum_of_all(int* sums, int i) {
    sums[i] += sums[i ^ 1];
    sums[i] += sums[i ^ 2];
    sums[i] += sums[i ^ 4];
    sums[i] += sums[i ^ 8];
    sums[i] += sums[i ^ 16];
}

// Lanes store what they vote to volatile memory, and add it as if it were not.
KERNEL voted(int* data, int rounds) {
    __shared__ volatile int votes[32];
    int own = data[threadIdx.x];
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
        votes[lane()] = own & 1 ? 1 : -1;
        sum_of_all((int*)votes, lane());
        own += votes[lane()] + round;
    }
    data[threadIdx.x] = own;
}

__device__ void first_beyond(const int* sums, int limit, int* found, int* left) {
    *found = *left = 0;
    __syncthreads();
    int i = threadIdx.x;
    if (sums[i] <= limit && sums[i + 1] > limit) {
        *found = i + 1;
        *left = limit - sums[i];
    }
    __syncthreads();
}

// What all have read is cleared by a function, which is told where it is, without a barrier between.
KERNEL beyond(int* data, int limit) {
    __shared__ int sums[256 + 1], halves[256 + 1];
    __shared__ int found, left;
    int i = threadIdx.x;
    sums[i] = data[i] * i;
    halves[i] = i * (i + 1) / 2;
    if (i == 0) sums[blockDim.x] = halves[blockDim.x] = 1 << 30;
    __syncthreads();
    first_beyond(sums, limit, &found, &left);
    int rest = left + found;
    if (rest >= 0) first_beyond(halves, rest, &found, &left);
    data[i] = found * 1000 + left;
}

// All lanes of a warp ask in each round who has come; between, some of them bring a depth down.
KERNEL asked(int* data, int rounds) {
    __shared__ volatile int depth[16];
    int lacking = 0;
    if (lane() < 16) depth[lane()] = 1 << 12;
    __syncwarp();
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
        lacking += __ballot_sync(__activemask(), true) != ~0u;
        int place = (lane() * lane() * 7 + round * 11) & 15;
        int own = ((lane() + round * 9) * 2654435761u) >> 20;
        if (own < depth[place])
            do {
                depth[place] = own;
            } while (own < depth[place]);
    }
    __syncwarp();
    data[lane()] = lacking;
    if (lane() < 16) data[32 + lane()] = depth[lane()];
}

// The same with loops of different lengths.
KERNEL asked_behind_loops(int* data, int rounds) {
    __shared__ volatile int last[16];
    int lacking = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
        lacking += __ballot_sync(__activemask(), true) != ~0u;
        int own = ((lane() + round * 9) * 2654435761u) >> 20;
        if (own & 1) {
#pragma unroll 1
            for (int turn = 0; turn < (own & 7); turn++) last[lane() & 15] = own;
        }
    }
    data[lane()] = lacking;
}

// The lanes of a warp go through the rows and columns of their boxes; in each place they ask who is there.
KERNEL boxes(int* data, const int* rows, int columns) {
    __shared__ int seen[16 * 16];
    int from_row = rows[lane()] >> 16, to_row = from_row + lane() % 3 / 2;
    int from = lane() * 5 % 13, to = from + lane() % 2;
    int* place = &seen[from + from_row * columns];
#pragma unroll 1
    for (int row = 0; row <= to_row; row++) {
        if (row < from_row) continue;
#pragma unroll 1
        for (int column = 0; column <= to; column++) {
            if (column < from) continue;
            int here = __activemask();
            data[(row * columns + column) * 32 + lane()] = here;
            *place++ = here;
        }
        place += columns - (to - from + 1);
    }
}
