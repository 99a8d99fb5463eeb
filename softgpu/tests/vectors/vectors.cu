// Kernels for vectors of threads. All take the same: `n` numbers in, numbers out.
// nvcc -ptx -arch=sm_80 vectors.cu, comments removed.
#include <mma.h>

extern "C" __global__ void saxpy(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = 2.5f * in[i] + in[n - 1 - i];
}

// Rows of 1024.
extern "C" __global__ void stencil(const float *in, float *out, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, w = 1024, h = n / w;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1)
        return;
    out[y * w + x] = 0.5f * in[y * w + x] + 0.125f * (in[y * w + x - 1] + in[y * w + x + 1] + in[(y - 1) * w + x] + in[(y + 1) * w + x]);
}

extern "C" __global__ void nbody(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, bodies = 1024;
    if (i >= n)
        return;
    float x = in[i], sum = 0;
    for (int k = 0; k < bodies; k++) {
        float d = in[k] - x;
        sum += d * rsqrtf(d * d + 0.01f);
    }
    out[i] = sum;
}

extern "C" __global__ void transcendental(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = sinf(in[i]) * expf(-in[i]) + logf(1.0f + in[i] * in[i]);
}

extern "C" __global__ void mandelbrot(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float cx = (i % 1024) / 400.0f - 2.0f, cy = (i / 1024) / 400.0f - 1.2f, x = 0, y = 0;
    int k = 0;
    while (k < 200 && x * x + y * y < 4.0f) {
        float t = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = t;
        k++;
    }
    out[i] = k;
}

// Matrices of 512 times 512; blocks of 16 times 16.
extern "C" __global__ void matmul(const float *in, float *out, int n)
{
    __shared__ float a[16][16], b[16][16];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, w = 512;
    float sum = 0;
    for (int tile = 0; tile < w / 16; tile++) {
        a[threadIdx.y][threadIdx.x] = in[y * w + tile * 16 + threadIdx.x];
        b[threadIdx.y][threadIdx.x] = in[(tile * 16 + threadIdx.y) * w + x];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            sum += a[threadIdx.y][k] * b[k][threadIdx.x];
        __syncthreads();
    }
    out[y * w + x] = sum;
}

extern "C" __global__ void reduction(const float *in, float *out, int n)
{
    __shared__ float part[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s)
            part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}

extern "C" __global__ void histogram(const float *in, float *out, int n)
{
    __shared__ int bins[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x < 64)
        bins[threadIdx.x] = 0;
    __syncthreads();
    if (i < n)
        atomicAdd(&bins[(int)(in[i] * 13.0f) & 63], 1);
    __syncthreads();
    if (threadIdx.x < 64)
        atomicAdd((int *)out + threadIdx.x, bins[threadIdx.x]);
}

extern "C" __global__ void shuffles(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0;
    for (int s = 16; s > 0; s /= 2)
        v += __shfl_xor_sync(~0u, v, s);
    unsigned odd = __ballot_sync(~0u, (int)v & 1);
    if (i < n)
        out[i] = v + __popc(odd);
}

// Loops that threads leave at different times, by break, continue and return.
extern "C" __global__ void divergent(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned state = i * 2654435761u;
    int sum = 0;
    for (int a = 0; a < (i & 15) + 3; a++) {
        for (int b = 0;; b++) {
            state = state * 1664525u + 1013904223u;
            if ((state >> 28) == 3)
                break;
            if ((state >> 27 & 3) == 1)
                continue;
            sum += b ^ a;
            if (sum > 5000) {
                out[i] = -sum;
                return;
            }
        }
        switch (state >> 20 & 7) {
        case 0: sum += 3; break;
        case 1: sum *= 5; break;
        case 2: sum ^= 0x55; break;
        case 5: sum -= a; // and on
        case 6: sum += state & 3; break;
        default: sum++;
        }
    }
    out[i] = sum / ((i & 3) + 1) + sum % ((i & 7) + 1);
}

// A local array, and addresses from anywhere.
extern "C" __global__ void scattered(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, own[8];
    if (i >= n)
        return;
    for (int k = 0; k < 8; k++)
        own[k] = (int)(in[(i * 7 + k * 13) % n] * 100);
    int at = own[i & 7] & 7;
    own[at] += i;
    unsigned char low = own[(at + i) & 7];
    out[(long long)i * 5 % n] = own[at] + low + (short)own[(at + 3) & 7];
}

// Some threads end before the barrier.
extern "C" __global__ void early(const float *in, float *out, int n)
{
    __shared__ float kept[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    kept[threadIdx.x] = i < n ? in[i] : 1;
    if (i >= n || threadIdx.x % 5 == 3)
        return;
    __syncthreads();
    out[i] = kept[threadIdx.x ^ 1] + kept[255 - threadIdx.x];
}

// Structures of two and four numbers, whole groups of them and a rest.
extern "C" __global__ void structures(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 8) {
        float4 four = ((const float4 *)in)[i];
        float2 two = ((const float2 *)in)[i];
        ((float4 *)out)[i] = make_float4(four.w + two.x, four.z - two.y, four.y * two.x, four.x);
    } else if (i >= n / 4 && i < n / 2) {
        float2 two = ((const float2 *)in)[i];
        ((float2 *)out)[i] = make_float2(two.y, two.x + 1.0f);
    }
}

// Quotients, remainders, and numbers rounded to integers, at the ends of their ranges, too.
extern "C" __global__ void integers(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned a = __float_as_uint(in[i]) * 2654435761u ^ i * 40503u, b = a >> (i & 31) | 1;
    int c = int(a) ^ 0x55aa55aa, d = int(b) >> (i & 7) | 1;
    float large = in[i] * __uint_as_float(i * 2654435761u);
    double huge = double(large) * 1e3;
    if (i % 7 == 0) a = ~0u;
    if (i % 11 == 0) c = -2147483647 - (d != -1);
    unsigned mixed = a / b ^ (a % b) * 3 ^ unsigned(c / d) * 5 ^ unsigned(c % d) * 7;
    mixed ^= unsigned(__float2int_rz(large)) * 11 ^ __float2uint_rn(large) * 13;
    mixed ^= unsigned(__double2int_rd(huge)) * 17 ^ __double2uint_ru(huge) * 19;
    out[i] = __uint_as_float(mixed & 0x3fffffff);
}

static __device__ __noinline__ float series(float x, int terms)
{
    float part[4] = {x, 1.0f, x * x, 0.5f}, sum = 0;
    for (int i = 0; i < terms; i++) sum += part[i & 3] / float(i + 1);
    return sum;
}

// A function that is called, with memory of its own, by lanes apart and together.
extern "C" __global__ void calls(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = series(in[i], 5 + (i & 3));
    if (in[i] > 2.0f) x += series(x, 3);
    out[i] = x;
}

// Loops with the stride of the whole grid: one that lanes leave at different times, one that is unrolled and writes, and one of whole rows; then
// operations of warps and a barrier.
extern "C" __global__ void strided(const float *in, float *out, unsigned n)
{
    __shared__ float of_warps[32];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    float sum = 0, last = -1;
    unsigned rounds = 0;
    for (size_t k = blockIdx.x * size_t(blockDim.x) + threadIdx.x; k < n; k += size_t(gridDim.x) * blockDim.x) {
        float v = in[k];
        if (v > 3.9f && rounds > 2) {
            last = v * float(k);
            break;
        }
        if (v < 1.0f) sum -= v;
        else sum += in[n - 1 - k];
        rounds++;
    }
#pragma unroll 4
    for (unsigned k = i; k < n; k += stride) out[k] = in[k] * 2 + sum;
    float most = last;
    for (unsigned k = i * 3; k + 2 < n; k += stride * 3) most = fmaxf(most, in[k] + in[k + 1] * in[k + 2]);
    for (int distance = 16; distance > 0; distance /= 2) {
        float other = __shfl_down_sync(~0u, most, distance);
        if (threadIdx.x + distance < blockDim.x) most = fmaxf(most, other);
    }
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
    __syncthreads();
    for (unsigned w = 0; w < (blockDim.x + 31) / 32; w++) most += of_warps[w] * float(w + rounds);
    if (i < n) out[i] += most + last;
}

// Barriers in a loop, more of them than are gone through without the executor; with other names, for some warps, and for those threads that
// are left when others have ended.
extern "C" __global__ void phases(const float *in, float *out, unsigned n)
{
    __shared__ float part[1024];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    float v = i < n ? in[i] : 0;
    part[t] = v;
    __syncthreads();
    for (unsigned r = 0; r < 3 + blockIdx.x % 5 * 150; r++) {
        float other = part[(t + r) % blockDim.x];
        asm volatile("bar.sync 3;" ::: "memory");
        if (t % 3 != r % 3) part[t] = other * 0.5f + v;
        __syncthreads();
        if (r % 64 == 7) v += part[blockDim.x - 1 - t];
        if (r % 5 == 4) __syncwarp();
    }
    unsigned half = blockDim.x / 64 * 32;
    __syncthreads();
    if (t < half) {
        part[t] = v;
        asm volatile("bar.sync 1, %0;" :: "r"(half) : "memory");
        v += part[half - 1 - t];
    } else if (i % 7 == 0) {
        if (i < n) out[i] = -v;
        return;
    }
    __syncthreads();
    part[t] = v;
    __syncthreads();
    if (i < n) out[i] = v + part[t > 0 ? t - 1 : 0];
}

// Threads of a warp wait for its first, and then each counts once.
extern "C" __global__ void warps(const float *in, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0)
        for (int turn = 0; turn < 3; turn++)
            if (((const volatile float *)in)[turn] < 0) break;
    __syncwarp();
    if (i < n) out[i] += in[i] + 1;
}

// Each lane asks those before it, which PTX does not allow.
extern "C" __global__ void before(const float *in, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned said = __ballot_sync((1u << lane) - 1, in[i % 512] > 1);
    if (i < n) out[i] = __popc(said) + 100 * __any_sync((1u << lane) - 1, lane == 3);
}

// What each thread adds to one number of the block, and to one of all, in numbers that no order changes.
extern "C" __global__ void sums(const float *in, float *out, unsigned n) {
    __shared__ float part;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) part = 0;
    __syncthreads();
    if (i % 5 != 3) atomicAdd(&part, (float)(i % 7));
    atomicAdd((double *)out, (double)(i % 3));
    __syncthreads();
    if (threadIdx.x == 0) part += in[2];
    __syncthreads();
    if (i > 1 && i < n) out[i] = part + atomicAdd(&out[i], 1.5f);
}

// Reads a texture and writes a surface, between barriers, in branches and in loops that lanes leave one by one. Behind the output are the
// texture's and the surface's headers.
extern "C" __global__ void textures(const float *in, float *out, unsigned n) {
    __shared__ float part[128];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x, x = i % 512, y = i / 512;
    unsigned long long header = (unsigned long long)(in + 2 * max(n, 512u * 512u));
    cudaTextureObject_t texture = header;
    cudaSurfaceObject_t surface = header + 128;
    float v = tex2D<float>(texture, x + 0.25f, y + 0.75f);
    part[t] = v;
    __syncthreads();
    float other = part[blockDim.x - 1 - t];
    if (t % 3 == 0) {
        v += tex2D<float>(texture, other * 100, v * 50);
    } else if (i < n) {
        float2 pair = tex2D<float2>(header + 256, x * 0.01f - 1, other);
        v += pair.x - 2 * pair.y;
    }
    for (unsigned r = 0; r < i % 5; r++) v += tex2D<float>(texture, v + r, r * 20.5f);
    __syncthreads();
    part[t] = v;
    __syncthreads();
    if (i < n) {
        surf2Dwrite(v + part[t ^ 1], surface, x * 4, y);
        float back;
        surf2Dread(&back, surface, x * 4, y);
        if (back > 1) surf2Dwrite(back - 1, surface, (x ^ 1) % 512 * 4, 511 - y, cudaBoundaryModeZero);
    }
}

// A loop with the grid's stride, and then a tree in each warp whose steps only some lanes make.
extern "C" __global__ void arms(const float *in, float *out, unsigned n) {
    __shared__ float part[256];
    unsigned t = threadIdx.x, lane = t % 32, i = blockIdx.x * blockDim.x + t;
    float sum = 0;
    for (unsigned k = i; k < 8 * n; k += gridDim.x * blockDim.x) sum += in[k % n];
    part[t] = sum;
    __syncthreads();
    for (unsigned d = 16; d > 0; d /= 2) {
        if (lane < d && t + d < blockDim.x) part[t] = sum += part[t + d];
        __syncwarp();
    }
    __syncthreads();
    if (i < n) out[i] = part[t / 32 * 32] + sum;
}

// The first warp sums up what all warps have found, a few times, and in the end alone.
extern "C" __global__ void first_warp(const float *in, float *out, unsigned n) {
    __shared__ float part[32], all;
    unsigned t = threadIdx.x, lane = t % 32, i = blockIdx.x * blockDim.x + t;
    float sum = 0;
#pragma unroll 1
    for (int round = 0; round < 3; round++) {
        for (unsigned k = i + round; k < 4 * n; k += gridDim.x * blockDim.x) sum += in[k % n];
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (lane == 0) part[t / 32] = sum;
        __syncthreads();
        if (t < 32) {
            sum = t < blockDim.x / 32 ? part[t] : 0;
            for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
            if (t == 0) all = sum;
        }
        if (round == 2) break;
        __syncthreads();
        sum = all * 0.25f + lane;
    }
    if (i < n) out[i] = sum;
}

// Warps end one after another, and those that are left meet at barriers.
extern "C" __global__ void leaving(const float *in, float *out, unsigned n) {
    __shared__ float part[256];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float value = in[i % n];
    part[t] = 0;
    __syncthreads();
#pragma unroll 1
    for (unsigned round = 0; round < 6; round++) {
        if (t / 32 == (round + blockIdx.x) % 8) break;
        value += __shfl_xor_sync(~0u, value, 1 << round % 5);
        part[t] = value;
        __syncthreads();
        value += part[(t + 32) % blockDim.x];
        __syncthreads();
    }
    if (i < n) out[i] = value;
}

// Lanes end one after another, or go on alone; those that are left exchange values in step, and meet at barriers.
extern "C" __global__ void parting(const float *in, float *out, unsigned n) {
    __shared__ volatile float part[256];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t, own = i * 2654435761u >> 27;
    part[t] = in[i % n];
    float value = 0;
#pragma unroll 1
    for (unsigned round = 0; round < 5; round++) {
        if (i < n && own % 8 == round) {
            out[i] = value + round;
            return;
        }
        if (own % 3 != round % 3) {
            part[t] = part[t ^ 1] + 1;
            part[t] += part[t ^ 2];
        } else if (own & 16) {
            value += 0.5f * round;
        }
        __syncthreads();
        value += part[(t + 7) % blockDim.x];
        __syncthreads();
    }
    if (i < n) out[i] = value;
}

// Each second warp does something else before all meet: one shuffles, the other waits for itself.
extern "C" __global__ void several(const float *in, float *out, unsigned n) {
    __shared__ float part[256];
    unsigned t = threadIdx.x, w = t / 32, lane = t % 32, i = blockIdx.x * blockDim.x + t;
    float value = in[i % n];
#pragma unroll 1
    for (unsigned round = 0; round < 4; round++) {
        if ((w + round) % 2) {
            for (unsigned d = 1; d < 4 + round; d++) value += __shfl_sync(~0u, value, lane * d + round);
        } else {
            part[t] = value;
            __syncwarp();
            if (lane % 3) value -= part[t - lane + (lane * 7 + 1) % 32];
            __syncwarp();
            part[t] = value + lane;
            __syncwarp();
            value += part[t ^ 3];
        }
        __syncthreads();
        part[t] = value;
        __syncthreads();
        value += part[(t + 33) % blockDim.x];
        __syncthreads();
    }
    if (i < n) out[i] = value;
}

// Tiles of several sizes exchange values, in all of the block and in whole warps of it, with masks that data tell.
extern "C" __global__ void tiles(const float *in, float *out, unsigned n) {
    unsigned t = threadIdx.x, lane = t % 32, i = blockIdx.x * blockDim.x + t;
    float value = in[i % n];
#pragma unroll 1
    for (unsigned size = 2; size <= 32; size *= 2) {
        unsigned mask = (size < 32 ? (1u << size) - 1 : ~0u) << (lane & ~(size - 1));
        for (unsigned d = size / 2; d > 0; d /= 2) value += __shfl_xor_sync(mask, value, d);
        value += __popc(__ballot_sync(mask, value > 4 * size)) + 0.25f * __any_sync(mask, value > 50);
        __syncwarp(mask);
        if (t / 32 % 2) value -= __shfl_down_sync(mask, value, 1, size);
        value += __popc(__match_any_sync(mask, (int)value % 3));
    }
    unsigned same = __match_any_sync(~0u, (int)value % 4);
    value += __reduce_add_sync(same, lane) + __popc(__activemask());
    value += __shfl_sync(same, value, __ffs(same) - 1);
    if (i < n) out[i] = value;
}

// Blocks count and vote, and go on by the result until all are done.
extern "C" __global__ void votes(const float *in, float *out, unsigned n) {
    __shared__ float part[256];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float value = in[i % n];
    int round = 0;
    do {
        part[t] = value;
        if (__syncthreads_count(value > 2) > 20) value *= 0.75f;
        value += 0.125f * part[(t + 5) % blockDim.x];
        if (__syncthreads_and(value < 3)) value = value * 0.5f - 1;
        part[t] = value;
    } while (__syncthreads_or(value > 1.5f) && ++round < 12);
    if (i < n) out[i] = value;
}

// Values that are the same in a whole block, across barriers in loops and in branches, also where some threads have ended.
extern "C" __global__ void blockwide(const float *in, float *out, unsigned n) {
    __shared__ float part[2][256];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x, now = 0, rounds = 0;
    if (i + 24 >= n) return;
    float scale = 1;
    part[0][t] = in[i];
    __syncthreads();
    for (unsigned d = 1; d < blockDim.x; d *= 2) {
        float v = part[now][t];
        if (t >= d) v += part[now][t - d] * scale;
        now ^= 1;
        part[now][t] = v;
        scale *= 0.75f;
        if (d == 4) {
            __syncthreads();
            scale += blockIdx.x & 3;
            rounds += 3;
        }
        for (unsigned k = 0; k < (d & 3); k++) {
            __syncthreads();
            rounds += k;
        }
        __syncthreads();
    }
    out[i] = part[now][t] + rounds;
}

// As many rounds as memory says, which is the same for a block, but may be stored to.
extern "C" __global__ void by_memory(const float *in, float *out, unsigned n) {
    __shared__ float part[256];
    __shared__ int rounds;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    if (t == 0) rounds = int(in[blockIdx.x]) + 2;
    part[t] = i < n ? in[i] : 0;
    __syncthreads();
    int left = rounds;
    float sum = 0;
    while (left > 0) {
        sum += part[(t + left) % blockDim.x];
        if (in[blockIdx.x + 1] > left) {
            __syncthreads();
            part[t] += sum;
        }
        __syncthreads();
        if (t == 0) rounds -= 1;
        __syncthreads();
        left = rounds;
    }
    if (i < n) out[i] = sum;
}

// Addresses that are computed in one block and used in another, by some of the threads.
extern "C" __global__ void addresses(const float *in, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ 6;
    if (i >= n || other >= n) return;
    float a = in[i], b = in[other];
    out[i] = b;
    if ((a > b) == ((i & 16) == 0)) {
        out[i] = a + b;
        if (a > 2 * b) out[i] -= in[other] * in[i];
    }
}

// Addresses of a loop that threads leave at different times, used behind it.
extern "C" __global__ void last_address(const float *in, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned k = i;
    const float *at;
    float sum = 0;
    do {
        at = in + k;
        sum += *at;
        k += 32;
    } while (sum < 5 && k + 1 < n);
    out[i] = sum + at[1] * 0.5f + at[0];
}

// Parts of a warp that make shuffles and votes among themselves, named by constants.
extern "C" __global__ void parts_of_warps(const float *in, float *out, unsigned n) {
    __shared__ float part[32];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float value = i < n ? in[i] : 0;
    if (t < 32) part[t] = 0;
    __syncthreads();
    for (int d = 16; d > 0; d /= 2) value = fmaxf(value, __shfl_down_sync(~0u, value, d));
    if (t % 32 == 0) part[t / 32] = value;
    __syncthreads();
    if (t < 8) {
        value = part[t] + t;
        for (int d = 4; d > 0; d /= 2) value += __shfl_down_sync(0xffu, value, d);
        if (__any_sync(0xffu, value > 9)) value *= 0.5f;
    } else if (t < 20 && n & 1) {
        value = part[t % 4];
        for (int d = 1; d < 4; d++) value += __shfl_xor_sync(0xfff00u, value, d & 1) * d;
    }
    if (t >= 24 && t < 32 && n & 1) value += __reduce_max_sync(0xff000000u, t * 7 % 13);
    __syncwarp();
    value += __shfl_sync(~0u, value, 3);
    if (i < n) out[i] = value;
}

// Branches on comparisons of numbers that go up, or down, from thread to thread with one that is the same for all; some of them wrap.
#define BRANCH(type, how, register, row, other)                                                                        \
    asm volatile("{\n\t.reg .pred p;\n\tsetp." how "." type " p, %1, %2;\n\t@!p bra past;\n\tadd.u32 %0, %0, 1;\n\tpast:\n\t" \
                 "shl.b32 %0, %0, 1;\n\t}"                                                                             \
                 : "+r"(found)                                                                                         \
                 : register(row), register(other))
#define BRANCHES(row, other)                                                                                           \
    {                                                                                                                  \
        unsigned found = 0;                                                                                            \
        long long far = (long long)(int)(row) << 20, same = (long long)(int)(other) << 20;                             \
        BRANCH("u32", "lt", "r", row, other);                                                                          \
        BRANCH("u32", "le", "r", other, row);                                                                          \
        BRANCH("u32", "gt", "r", row, other);                                                                          \
        BRANCH("u32", "ge", "r", row, other);                                                                          \
        BRANCH("s32", "lt", "r", row, other);                                                                          \
        BRANCH("s32", "le", "r", row, other);                                                                          \
        BRANCH("s32", "gt", "r", other, row);                                                                          \
        BRANCH("s32", "ge", "r", row, other);                                                                          \
        BRANCH("s32", "eq", "r", row, other);                                                                          \
        BRANCH("s32", "ne", "r", other, row);                                                                          \
        BRANCH("s64", "lt", "l", far, same);                                                                           \
        BRANCH("u64", "ge", "l", far, same);                                                                           \
        BRANCH("s64", "eq", "l", same, far);                                                                           \
        hash = hash * 31 + found;                                                                                      \
    }
extern "C" __global__ void ends(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    unsigned hash = 0;
#pragma unroll 1
    for (int k = 0; k < 9; k++) {
        unsigned start = k / 3 * 0x7ffffff0u, other = start + k % 3 * 40 + blockIdx.x % 32;
        BRANCHES(start + t, other);
        BRANCHES(start + 3 * t, other);
        BRANCHES(start + 200 - t, other);
        BRANCHES(start + (t << 28), other);
    }
    if (i < n)
        out[i] = __uint_as_float(hash);
}

// Indices that are kept inside: rows but at the ends, where all threads or some of them have one element; numbers that wrap.
extern "C" __global__ void clamped(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    if (i >= n)
        return;
    float sum = 0;
#pragma unroll 1
    for (int k = -40; k <= 40; k += 8) {
        sum = sum * 0.5f + in[min(max(i + k, 0), n - 1)];
        sum = sum * 0.5f + in[max(min(n - 1, n - 1 - i - k), 0)];
        sum = sum * 0.5f + in[min(unsigned(i + k), unsigned(n - 1))];
        sum = sum * 0.5f + in[max(unsigned(t), unsigned(k + 40)) & 511];
        sum = sum * 0.5f + in[min(max(2 * t + k, 16), 100)];
        sum = sum * 0.5f + float(max(0x7ffffff0 + t, k)) + float(min(0xfffffff0u + t, 0x80000000u + k));
    }
    out[i] = sum;
}

// Threads let others go first before it is known what all threads of a block keep over barriers: where the block's array begins.
extern "C" __global__ void yielding_first(const float *in, float *out, int n)
{
    __shared__ float area[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    float sum = in[(i + 1) % n];
    __nanosleep(1);
    unsigned distance;
    asm volatile("rem.u32 %0, %1, 11;" : "=r"(distance) : "r"(n + blockIdx.x));
    area[t] = sum;
#pragma unroll
    for (int k = 1; k < 4; k++) {
        __syncthreads();
        float other = area[(t + k * distance) % blockDim.x];
        __syncthreads();
        sum = sum * 0.5f + other;
        area[t] = sum;
    }
    if (i < n)
        out[i] = sum;
}

// Every second block loads what the one before it stores meanwhile: vectors of 16 and of 8 bytes, past the caches, of which no access is to see a part.
extern "C" __global__ void passing_vectors(const float *in, float *out, int n)
{
    int t = threadIdx.x, pair = blockIdx.x / 2;
    uint4 *wide = (uint4 *)out + pair * blockDim.x + (blockDim.x - 1 - t);
    uint2 *narrow = (uint2 *)(out + 4096) + pair * blockDim.x + 3 * t % blockDim.x;
    unsigned torn = 0;
    if (t % 5 == 3)
        return;
    if (blockIdx.x % 2 == 0) {
#pragma unroll 1
        for (unsigned i = 1; i <= 3000; i++) {
            asm volatile("st.cg.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(wide), "r"(i) : "memory");
            asm volatile("st.global.wt.v2.u32 [%0], {%1, %1};" ::"l"(narrow), "r"(i) : "memory");
        }
        return;
    }
#pragma unroll 1
    for (unsigned i = 1; i <= 3000; i++) {
        uint4 a;
        uint2 b;
        asm volatile("ld.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w) : "l"(wide) : "memory");
        asm volatile("ld.global.cv.v2.u32 {%0, %1}, [%2];" : "=r"(b.x), "=r"(b.y) : "l"(narrow) : "memory");
        torn += (a.x != a.y || a.x != a.z || a.x != a.w) + (b.x != b.y);
    }
    ((unsigned *)out)[8192 + blockIdx.x * blockDim.x + t] = torn;
}

// Structures of 8, 16 and 32 bytes that lie in no row, of some lanes.
struct Four { double a, b, c, d; };

extern "C" __global__ void wide_structures(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, m = n / 16;
    if (i >= m)
        return;
    Four v = ((const Four *)in)[i * 37 % m];
    float4 w = ((const float4 *)in)[i * 37 % m];
    float2 x = ((const float2 *)in)[i * 59 % m];
    if (i % 3 != 1) {
        Four other = ((const Four *)in)[i * 59 % m];
        v.a += other.d;
        v.c -= other.b;
        ((Four *)out)[i * 37 % m] = v;
        float4 *behind = (float4 *)(out + 8 * m);
        float4 y = ((const float4 *)in)[i * 59 % m];
        w.x *= y.y;
        w.z += x.y;
        behind[i * 59 % m] = w;
    } else {
        float2 z = ((const float2 *)in)[i * 37 % m];
        ((float2 *)(out + 12 * m))[i * 37 % m] = make_float2(x.x + z.y, w.y * z.x);
    }
}

// A vector that the thread itself has stored past the caches just before, at an address that is used otherwise as well.
extern "C" __global__ void stored_and_loaded(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 16)
        return;
    float4 *own = (float4 *)out + i;
    __stcg(own, __ldcg((const float4 *)in + i));
    float4 w = __ldcg(own);
    w.x += w.y * i;
    __stcg(own, w);
    out[n / 2 + i] = float(((unsigned long long)own - (unsigned long long)out) % 1009);
}

// Loops round loops that have a barrier and may have no turns: behind it threads go on in the middle of both.
extern "C" __global__ void beginnings(const float *in, float *out, int n)
{
    __shared__ float part[2][128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, now = 0, turns = 0;
    float sum = 0, last = 0;
    part[0][t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int r = 0; r < 3 + blockIdx.x % 3; r++) {
        float kept = sum * 0.5f;
        for (unsigned d = 1 + r * (blockIdx.x % 5) * 32; d < blockDim.x; d *= 2) {
            float value = part[now][t];
            if (t >= d)
                value += part[now][t - d] * 0.25f;
            now ^= 1;
            part[now][t] = value;
            turns += d & 3;
            __syncthreads();
            last = value - kept;
        }
        sum += last;
        switch ((r + blockIdx.x) % 5) {
        case 0: sum += t; break;
        case 1: sum *= 0.75f; break;
        case 2: last = 0; break;
        case 3: sum -= now; break;
        default: turns ^= 5;
        }
    }
    if (blockDim.x % 32 == 0)
        for (int k = 0; k < 4; k++) {
            float most = last;
            for (int d = k * blockIdx.x % 40; d < 32; d += 8) {
                sum += __shfl_xor_sync(~0u, most, d);
                most = fmaxf(most, sum);
            }
            last = most * k;
        }
    if (i < n)
        out[i] = sum + last + turns + now;
}

// What a warp loads and stores as one, between what its lanes store and load for themselves, and copies in the background that others read, without barriers.
extern "C" __global__ void as_one(const float *in, float *out, int n)
{
    __shared__ __align__(128) short rows[4][256];
    __shared__ __align__(128) float sums[4][256];
    int t = threadIdx.x, warp = t / 32, lane = t % 32, i = blockIdx.x * blockDim.x + t;
    if ((i / 32 + 1) * 256 > n)
        return;
    const float *own = in + i / 32 * 256;
    for (int k = lane; k < 256; k += 32)
        rows[warp][k] = (short)(own[k] * 1000);
    unsigned from = (unsigned)__cvta_generic_to_shared(&rows[warp][lane % 16 * 16 + lane / 16 * 8]);
    int loaded[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(loaded[0]), "=r"(loaded[1]), "=r"(loaded[2]), "=r"(loaded[3]) : "r"(from) : "memory");
    unsigned to = (unsigned)__cvta_generic_to_shared(&sums[warp][lane * 4]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.cg.shared.global [%0 + 512], [%1 + 512], 16;\n"
                 "cp.async.commit_group; cp.async.wait_group 0;" ::"r"(to), "l"(own + lane * 4) : "memory");
    float sum = 0;
    for (int k = lane; k < 256; k += 32)
        sum = sum * 3 + sums[warp][k];
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> matrix;
    nvcuda::wmma::load_matrix_sync(matrix, sums[warp], 16, nvcuda::wmma::mem_row_major);
    for (int k = 0; k < matrix.num_elements; k++)
        matrix.x[k] = matrix.x[k] * 2 + 1;
    nvcuda::wmma::store_matrix_sync(sums[warp], matrix, 16, nvcuda::wmma::mem_col_major);
    for (int k = lane; k < 256; k += 32)
        sum = sum * 3 + sums[warp][k];
    for (int k = 0; k < 4; k++)
        sum += loaded[k] % 1009 * (k + 1);
    out[i] = sum;
}
