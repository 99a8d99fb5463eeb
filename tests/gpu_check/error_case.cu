// One of CUDA's error cases, as a transcript: what each call answers, before the error, when it shows, and afterwards.
// Run natively and through rgpu, the transcripts must be the same. The argument names the case; without one the cases
// are listed.
#define EXAMPLE "error_case"
#include "common/check.h"

#include <cassert>

static void say(const char* what, cudaError_t error) { printf("%-34s %s\n", what, cudaGetErrorName(error)); }
#define SAY(call) say(#call, call)

__global__ void add_one(int* data) { data[threadIdx.x] += 1; }
__global__ void write_to(int* place) { *place = 1; }
__global__ void read_from(int* out, const int* place) { *out = *place; }
__global__ void trap() { asm volatile("trap;"); }
__global__ void assertion(int n) { assert(n == 0); }
__global__ void spoil_shared(int distance) {
    extern __shared__ int memory[];
    *(volatile int*)&memory[distance] = 1;
}
__global__ void spin(unsigned rounds, int* out) {
    unsigned value = 1;
    for (unsigned i = 0; i < rounds; i++) value = value * 1664525u + 1013904223u;
    *out = (int)value;
}
__global__ void __launch_bounds__(64) bounded(int* out) { *out = 1; }

static int* data;

// What every later call answers once the context is spoilt, and that a reset mends it.
static void aftermath() {
    int host = 0;
    int* more = nullptr;
    cudaStream_t stream = nullptr;
    SAY(cudaDeviceSynchronize());
    SAY(cudaGetLastError());
    SAY(cudaGetLastError());
    SAY(cudaPeekAtLastError());
    SAY(cudaMemcpy(&host, data, sizeof host, cudaMemcpyDeviceToHost));
    SAY(cudaMalloc(&more, 64));
    SAY(cudaStreamCreate(&stream));
    add_one<<<1, 32>>>(data);
    SAY(cudaGetLastError());
    SAY(cudaFree(data));
    SAY(cudaDeviceSynchronize());
    SAY(cudaDeviceReset());
    SAY(cudaGetLastError());
    SAY(cudaMalloc(&data, 128));
    SAY(cudaMemset(data, 0, 128));
    add_one<<<1, 32>>>(data);
    SAY(cudaMemcpy(&host, data, sizeof host, cudaMemcpyDeviceToHost));
    printf("%-34s %d\n", "value after the reset", host);
}

template <class Launch>
static void spoil(Launch launch) {
    launch();
    SAY(cudaPeekAtLastError());
    aftermath();
}

static void illegal_write() { spoil([] { write_to<<<1, 1>>>((int*)16); }); }
static void illegal_read() { spoil([] { read_from<<<1, 1>>>(data, (const int*)16); }); }
static void misaligned() { spoil([] { write_to<<<1, 1>>>((int*)((char*)data + 1)); }); }
static void launch_failure() { spoil([] { trap<<<1, 1>>>(); }); }
static void failed_assertion() { spoil([] { assertion<<<1, 1>>>(1); }); }
static void shared_out_of_bounds() { spoil([] { spoil_shared<<<1, 1, 64>>>(1 << 24); }); }

static void illegal_in_stream() {
    cudaStream_t stream;
    cudaEvent_t event;
    int host = 7;
    SAY(cudaStreamCreate(&stream));
    SAY(cudaEventCreate(&event));
    write_to<<<1, 1, 0, stream>>>((int*)16);
    SAY(cudaPeekAtLastError());
    cudaEventRecord(event, stream);
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaEventQuery(event));
    SAY(cudaStreamQuery(stream));
    SAY(cudaMemcpyAsync(&host, data, sizeof host, cudaMemcpyDeviceToHost, stream));
    aftermath();
}

static void out_of_memory() {
    void* huge = data;
    size_t free_bytes = 0, total = 0;
    SAY(cudaMalloc(&huge, (size_t)1 << 50));
    printf("%-34s %s\n", "pointer", huge == data ? "left alone" : huge ? "changed" : "null");
    SAY(cudaPeekAtLastError());
    SAY(cudaGetLastError());
    SAY(cudaGetLastError());
    SAY(cudaMemGetInfo(&free_bytes, &total));
    SAY(cudaMalloc(&huge, total + 1));
    SAY(cudaGetLastError());
    // Until it is full: in pieces of a sixteenth, of which some must fit and not all can.
    void* pieces[17];
    int count = 0;
    cudaError_t last = cudaSuccess;
    while (count < 17 && (last = cudaMalloc(&pieces[count], total / 16)) == cudaSuccess) count++;
    say("the piece too many", last);
    printf("%-34s %s\n", "pieces before", count > 0 && count < 17 ? "some" : "none or all");
    SAY(cudaGetLastError());
    for (int i = 0; i < count; i++)
        if (cudaFree(pieces[i]) != cudaSuccess) printf("piece %d cannot be freed\n", i);
    SAY(cudaMalloc(&huge, 1 << 20));
    SAY(cudaFree(huge));
    void* pitched;
    size_t pitch;
    SAY(cudaMallocPitch(&pitched, &pitch, (size_t)1 << 40, (size_t)1 << 20));
    SAY(cudaGetLastError());
    // No managed memory: asking a driver for more of that than there is can stall the whole GPU.
    SAY(cudaDeviceSynchronize());
}

static void bad_launches() {
    add_one<<<1, 2048>>>(data);
    SAY(cudaGetLastError());
    add_one<<<0, 1>>>(data);
    SAY(cudaGetLastError());
    add_one<<<dim3(1, 65536, 1), 1>>>(data);
    SAY(cudaGetLastError());
    add_one<<<1, dim3(1, 1, 65)>>>(data);
    SAY(cudaGetLastError());
    add_one<<<1, 1, 1 << 20>>>(data);
    SAY(cudaGetLastError());
    bounded<<<1, 128>>>(data);
    SAY(cudaGetLastError());
    void* arguments[] = {&data};
    SAY(cudaLaunchKernel((const void*)&data, dim3(1), dim3(1), arguments, 0, nullptr));
    SAY(cudaGetLastError());
    SAY(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
    SAY(cudaGetLastError());
    SAY(cudaDeviceSynchronize());
}

static void bad_arguments() {
    int host = 0, number = 0;
    cudaDeviceProp properties;
    cudaEvent_t a, b;
    float time;
    SAY(cudaSetDevice(4711));
    SAY(cudaGetDeviceProperties(&properties, -1));
    SAY(cudaDeviceGetAttribute(&number, (cudaDeviceAttr)9999, 0));
    SAY(cudaMemcpy(&host, data, sizeof host, (cudaMemcpyKind)77));
    SAY(cudaMemcpy(nullptr, data, sizeof host, cudaMemcpyDeviceToHost));
    SAY(cudaMemcpy(&host, data, 0, cudaMemcpyDeviceToHost));
    SAY(cudaMemcpy2D(&host, 1, data, 4, 4, 2, cudaMemcpyDeviceToHost));
    SAY(cudaMemset(nullptr, 0, 4));
    SAY(cudaMalloc(nullptr, 4));
    SAY(cudaFree((char*)data + 4));
    SAY(cudaFree(&host));
    SAY(cudaFree(nullptr));
    SAY(cudaFreeHost(&host));
    SAY(cudaHostUnregister(&host));
    SAY(cudaEventCreate(&a));
    SAY(cudaEventCreateWithFlags(&b, cudaEventDisableTiming));
    SAY(cudaEventElapsedTime(&time, a, a));
    SAY(cudaEventRecord(a));
    SAY(cudaEventRecord(b));
    SAY(cudaDeviceSynchronize());
    SAY(cudaEventElapsedTime(&time, a, b));
    SAY(cudaEventElapsedTime(&time, a, a));
    SAY(cudaStreamDestroy(nullptr));
    SAY(cudaMemcpyToSymbol((const void*)&host, &host, 4));
    SAY(cudaDeviceSetLimit((cudaLimit)99, 1));
    SAY(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal));
    SAY(cudaPeekAtLastError());
    SAY(cudaGetLastError());
}

static void not_ready() {
    cudaStream_t stream;
    cudaEvent_t event;
    SAY(cudaStreamCreate(&stream));
    SAY(cudaEventCreate(&event));
    SAY(cudaEventQuery(event));
    SAY(cudaStreamQuery(stream));
    spin<<<1, 1, 0, stream>>>(100000000u, data);
    SAY(cudaEventRecord(event, stream));
    SAY(cudaStreamQuery(stream));
    SAY(cudaEventQuery(event));
    SAY(cudaGetLastError());
    SAY(cudaStreamSynchronize(stream));
    SAY(cudaEventQuery(event));
    SAY(cudaStreamQuery(stream));
}

struct Case {
    const char* name;
    void (*run)();
};
static const Case cases[] = {{"illegal_write", illegal_write},
                             {"illegal_read", illegal_read},
                             {"misaligned", misaligned},
                             {"launch_failure", launch_failure},
                             {"failed_assertion", failed_assertion},
                             {"shared_out_of_bounds", shared_out_of_bounds},
                             {"illegal_in_stream", illegal_in_stream},
                             {"out_of_memory", out_of_memory},
                             {"bad_launches", bad_launches},
                             {"bad_arguments", bad_arguments},
                             {"not_ready", not_ready}};

int main(int argc, char** argv) {
    if (argc < 2) {
        for (const Case& c : cases) puts(c.name);
        return 0;
    }
    for (const Case& c : cases) {
        if (strcmp(c.name, argv[1])) continue;
        SAY(cudaMalloc(&data, 256 * sizeof(int)));
        SAY(cudaMemset(data, 0, 256 * sizeof(int)));
        add_one<<<1, 256>>>(data);
        SAY(cudaDeviceSynchronize());
        c.run();
        return 0;
    }
    fail("there is no case %s", argv[1]);
}
