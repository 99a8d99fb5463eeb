// Pinned, mapped and registered host memory.
#define EXAMPLE "host_memory"
#include "common/check.h"

__global__ void scale(const int* in, int* out, int n, int factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * factor;
}

__global__ void every_third(int* data, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 3;
    if (i < n) data[i] = -data[i];
}

int main() {
    const int n = 50000;
    cudaPointerAttributes attributes;

    // Pinned: asynchronous copies both ways, in a stream.
    int *in, *out;
    CHECK(cudaMallocHost(&in, n * sizeof(int)));
    CHECK(cudaHostAlloc(&out, n * sizeof(int), cudaHostAllocPortable));
    for (int i = 0; i < n; i++) in[i] = i;
    CHECK(cudaPointerGetAttributes(&attributes, in));
    REQUIRE(attributes.type == cudaMemoryTypeHost, "pinned memory has type %d", (int)attributes.type);
    DeviceArray<int> a(n), b(n);
    CHECK(cudaPointerGetAttributes(&attributes, a.data));
    REQUIRE(attributes.type == cudaMemoryTypeDevice, "device memory has type %d", (int)attributes.type);
    int on_stack = 0;
    CHECK(cudaPointerGetAttributes(&attributes, &on_stack));
    REQUIRE(attributes.type == cudaMemoryTypeUnregistered, "the stack has type %d", (int)attributes.type);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpyAsync(a, in, n * sizeof(int), cudaMemcpyHostToDevice, stream));
    scale<<<(n + 255) / 256, 256, 0, stream>>>(a, b, n, 3);
    CHECK(cudaMemcpyAsync(out, b, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++) REQUIRE(out[i] == 3 * i, "pinned: element %d is %d", i, out[i]);

    // Mapped: kernels read and write the host's memory; host and device take turns.
    int *mapped, *device_view;
    CHECK(cudaHostAlloc(&mapped, n * sizeof(int), cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&device_view, mapped, 0));
    for (int i = 0; i < n; i++) mapped[i] = i + 1;
    for (int round = 0; round < 4; round++) {
        every_third<<<(n / 3 + 256) / 256, 256, 0, stream>>>(device_view, n);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < n; i++) {
            int e = (i + 1 + round * 5) * (i % 3 == 0 ? -1 : 1);
            REQUIRE(mapped[i] == e, "mapped, round %d: element %d is %d instead of %d", round, i, mapped[i], e);
            mapped[i] = i + 1 + (round + 1) * 5;
        }
    }
    scale<<<(n + 255) / 256, 256>>>(device_view, b, n, 2);
    CHECK(cudaMemcpy(out, b, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) REQUIRE(out[i] == 2 * (i + 21), "mapped: the device saw %d at %d", out[i] / 2, i);

    // Registered: the program's own memory.
    std::vector<int> own(n);
    for (int i = 0; i < n; i++) own[i] = i ^ 5;
    CHECK(cudaHostRegister(own.data(), n * sizeof(int), cudaHostRegisterDefault));
    CHECK(cudaMemcpyAsync(a, own.data(), n * sizeof(int), cudaMemcpyHostToDevice, stream));
    scale<<<(n + 255) / 256, 256, 0, stream>>>(a, b, n, 7);
    CHECK(cudaMemcpyAsync(own.data(), b, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++) REQUIRE(own[i] == (i ^ 5) * 7, "registered: element %d is %d", i, own[i]);
    CHECK(cudaHostUnregister(own.data()));
    EXPECT_ERROR(cudaHostUnregister(own.data()), cudaErrorHostMemoryNotRegistered);
    cudaGetLastError();

    // Pageable memory may be reused as soon as an asynchronous copy from it has returned.
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < n; i++) own[i] = i + round;
        CHECK(cudaMemcpyAsync(round == 0 ? a.data : b.data, own.data(), n * sizeof(int), cudaMemcpyHostToDevice, stream));
        for (int i = 0; i < n; i++) own[i] = -1;
    }
    CHECK(cudaMemcpyAsync(own.data(), b, n * sizeof(int), cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++) REQUIRE(own[i] == i + 2, "pageable: element %d is %d", i, own[i]);

    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(in));
    CHECK(cudaFreeHost(out));
    CHECK(cudaFreeHost(mapped));
    return ok("%d elements in pinned, mapped, registered and pageable memory", n);
}
