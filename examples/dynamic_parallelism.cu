// Kernels that launch kernels: a tree of launches, their order in a block's stream and in streams of their own, tail launches, copies
// and fills by kernels, and the errors that a kernel is told.
// rgpu-nvcc: -rdc=true
// rgpu-cudadevrt: kernels launch kernels
#define EXAMPLE "dynamic_parallelism"
#include "common/check.h"

// Quicksort: each part that is large enough is sorted by two kernels more.
__global__ void sort(int* values, int left, int right) {
    while (right - left > 16) {
        int pivot = values[(left + right) / 2], i = left, j = right;
        while (i <= j) {
            while (values[i] < pivot) i++;
            while (values[j] > pivot) j--;
            if (i <= j) {
                int value = values[i];
                values[i++] = values[j];
                values[j--] = value;
            }
        }
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        if (left < j) sort<<<1, 1, 0, stream>>>(values, left, j);
        cudaStreamDestroy(stream);
        left = i;
    }
    for (int i = left + 1; i <= right; i++) {
        int value = values[i], j = i;
        for (; j > left && values[j - 1] > value; j--) values[j] = values[j - 1];
        values[j] = value;
    }
}

__global__ void note(int* log, int what) {
    if (threadIdx.x == 0) log[atomicAdd(log, 1) + 1] = what;
}

// What a block puts into its stream runs in that order, and tail launches behind all of it.
__global__ void ordered(int* log) {
    if (threadIdx.x != 0) return;
    note<<<1, 32, 0, cudaStreamTailLaunch>>>(log, 100);
    for (int i = 0; i < 5; i++) note<<<2, 64>>>(log, i);
    note<<<1, 32, 0, cudaStreamTailLaunch>>>(log, 101);
}

__global__ void scale(float* values, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] *= factor;
}

// A fill, a kernel, a copy, in one stream, with shared memory for the kernel.
__global__ void moves(float* values, float* copy, int n) {
    if (threadIdx.x + blockIdx.x != 0) return;
    cudaMemsetAsync(copy, 0, n * sizeof(float), 0);
    scale<<<n / 64, 64, 128>>>(values, 3.0f);
    cudaMemcpyAsync(copy, values, n / 2 * sizeof(float), cudaMemcpyDeviceToDevice, 0);
    scale<<<n / 64, 64>>>(values, 2.0f);
}

struct Answers {
    int launch, last, again, device, warp, stream, registers, blocks;
    char name[32];
};

__global__ void asks(Answers* answers, float* values) {
    scale<<<1, 5000>>>(values, 1.0f);
    answers->launch = cudaPeekAtLastError();
    answers->last = cudaGetLastError();
    answers->again = cudaGetLastError();
    const char* name = cudaGetErrorName(cudaErrorInvalidConfiguration);
    for (int i = 0; i < 31 && name[i]; i++) answers->name[i] = name[i];
    cudaGetDevice(&answers->device);
    cudaDeviceGetAttribute(&answers->warp, cudaDevAttrWarpSize, 0);
    answers->stream = cudaStreamDestroy((cudaStream_t)0x7777);
    cudaFuncAttributes attributes;
    cudaFuncGetAttributes(&attributes, scale);
    answers->registers = attributes.maxThreadsPerBlock;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&answers->blocks, scale, 256, 0);
    cudaGetLastError();
}

// A kernel that launches another generation until none is left.
__global__ void generation(unsigned* count, int left) {
    atomicAdd(count, 1);
    if (left > 0 && threadIdx.x < 2) generation<<<1, 2>>>(count, left - 1);
}

int main() {
    const int n = 4096;
    std::vector<int> numbers(n);
    for (int i = 0; i < n; i++) numbers[i] = int((i * 2654435761u) >> 12);
    int* device;
    CHECK(cudaMalloc(&device, n * sizeof(int)));
    CHECK(cudaMemcpy(device, numbers.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    sort<<<1, 1>>>(device, 0, n - 1);
    CHECK(cudaGetLastError());
    std::vector<int> sorted(n);
    // The copy is ordered behind all that the kernel has launched.
    CHECK(cudaMemcpy(sorted.data(), device, n * sizeof(int), cudaMemcpyDeviceToHost));
    std::sort(numbers.begin(), numbers.end());
    REQUIRE(sorted == numbers, "the numbers are not sorted");

    CHECK(cudaMemset(device, 0, n * sizeof(int)));
    ordered<<<1, 32>>>(device);
    int log[16];
    CHECK(cudaMemcpy(log, device, sizeof log, cudaMemcpyDeviceToHost));
    REQUIRE(log[0] == 12, "%d blocks instead of 12", log[0]);
    const int expected[12] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 100, 101};
    for (int i = 0; i < 12; i++) REQUIRE(log[i + 1] == expected[i], "place %d is %d", i, log[i + 1]);

    std::vector<float> ones(n, 1.0f), values(n), copy(n);
    float *from, *to;
    CHECK(cudaMalloc(&from, n * sizeof(float)));
    CHECK(cudaMalloc(&to, n * sizeof(float)));
    CHECK(cudaMemcpy(from, ones.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(to, ones.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    moves<<<2, 32>>>(from, to, n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(values.data(), from, n * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(copy.data(), to, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        REQUIRE(values[i] == 6.0f, "value %d is %g", i, values[i]);
        REQUIRE(copy[i] == (i < n / 2 ? 3.0f : 0.0f), "copy %d is %g", i, copy[i]);
    }

    Answers answers, *asked;
    CHECK(cudaMalloc(&asked, sizeof answers));
    CHECK(cudaMemset(asked, 0, sizeof answers));
    asks<<<1, 1>>>(asked, from);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&answers, asked, sizeof answers, cudaMemcpyDeviceToHost));
    REQUIRE(answers.launch == cudaErrorInvalidConfiguration, "a launch of 5000 threads gave %d", answers.launch);
    REQUIRE(answers.last == answers.launch && answers.again == cudaSuccess, "last %d, again %d", answers.last, answers.again);
    REQUIRE(!strcmp(answers.name, "cudaErrorInvalidConfiguration"), "it is called %s", answers.name);
    REQUIRE(answers.device == 0 && answers.warp == 32, "device %d, warp %d", answers.device, answers.warp);
    REQUIRE(answers.stream == cudaErrorInvalidValue, "an unknown stream gave %d", answers.stream);
    REQUIRE(answers.registers >= 256 && answers.blocks >= 1, "%d threads, %d blocks", answers.registers, answers.blocks);

    unsigned generations = 0;
    CHECK(cudaMemset(device, 0, sizeof(unsigned)));
    generation<<<1, 2>>>((unsigned*)device, 7);
    CHECK(cudaMemcpy(&generations, device, sizeof generations, cudaMemcpyDeviceToHost));
    // Each of two threads launches two more, eight times over.
    REQUIRE(generations == 510, "%u threads instead of 510", generations);
    return ok("%d numbers sorted by kernels of kernels, 12 in order, %u threads of 8 generations", n, generations);
}
