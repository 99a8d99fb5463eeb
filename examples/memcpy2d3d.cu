// Pitched memory: copies and sets of rectangles and boxes, in all directions.
#define EXAMPLE "memcpy2d3d"
#include "common/check.h"

__global__ void number(char* base, size_t pitch, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height) ((int*)(base + y * pitch))[x] = y * 1000 + x;
}

static cudaError_t copy_batch(void** to, const void** from, size_t* sizes, size_t count, cudaMemcpyAttributes* attributes,
                              size_t* firsts, size_t number, size_t* failed, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
    *failed = SIZE_MAX;
    return cudaMemcpyBatchAsync(to, from, sizes, count, attributes, firsts, number, stream);
#else
    return cudaMemcpyBatchAsync(to, (void**)from, sizes, count, attributes, firsts, number, failed, stream);
#endif
}

static cudaError_t copy_box_batch(size_t count, cudaMemcpy3DBatchOp* list, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
    return cudaMemcpy3DBatchAsync(count, list, 0, stream);
#else
    return cudaMemcpy3DBatchAsync(count, list, nullptr, 0, stream);
#endif
}

// Several boxes in one call: from memory to an array, from that array to another, and from memory to memory.
static int copy_boxes(cudaStream_t stream) {
    const size_t width = 12, height = 5, depth = 3, texels = width * height * depth;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<short2>();
    cudaArray_t arrays[2];
    for (cudaArray_t& array : arrays) CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, depth)));
    std::vector<short2> from(texels), to(texels, short2{-1, -1});
    for (size_t i = 0; i < texels; i++) from[i] = {(short)i, (short)(1000 + i)};
    auto pointer = [](void* ptr, size_t row, size_t rows) {
        cudaMemcpy3DOperand side = {};
        side.type = cudaMemcpyOperandTypePointer;
        side.op.ptr.ptr = ptr, side.op.ptr.rowLength = row, side.op.ptr.layerHeight = rows;
        return side;
    };
    auto inside = [](cudaArray_t array, size_t x, size_t y, size_t z) {
        cudaMemcpy3DOperand side = {};
        side.type = cudaMemcpyOperandTypeArray;
        side.op.array.array = array, side.op.array.offset = {x, y, z};
        return side;
    };
    auto all = cudaMemcpySrcAccessOrderStream;
    cudaMemcpy3DBatchOp fill = {pointer(from.data(), 0, 0), inside(arrays[0], 0, 0, 0), {width, height, depth}, all, 0};
    CHECK(copy_box_batch(1, &fill, stream));
    cudaMemcpy3DBatchOp shift = {inside(arrays[0], 2, 1, 1), inside(arrays[1], 3, 0, 0), {7, 4, 2}, all, 0};
    CHECK(copy_box_batch(1, &shift, stream));
    // Four texels of each row, three rows of each layer, into a box whose layers have all rows.
    DeviceArray<unsigned char> bytes(200);
    CHECK(cudaMemsetAsync(bytes.data, 7, 200, stream));
    cudaMemcpy3DBatchOp back[] = {
        {inside(arrays[1], 3, 0, 0), pointer(to.data(), width, height), {4, 3, 2}, all, 0},
        {pointer(from.data(), 0, 0), pointer(bytes.data, 10, 4), {8, 2, 2}, cudaMemcpySrcAccessOrderDuringApiCall, 0},
    };
    CHECK(copy_box_batch(2, back, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < texels; i++) {
        size_t x = i % width, y = i / width % height, z = i / width / height;
        size_t e = x + 2 + (y + 1) * width + (z + 1) * width * height;
        short2 expected = x < 4 && y < 3 && z < 2 ? from[e] : short2{-1, -1};
        REQUIRE(to[i].x == expected.x && to[i].y == expected.y, "texel %zu is (%d, %d)", i, to[i].x, to[i].y);
    }
    std::vector<unsigned char> got = bytes.download();
    for (size_t i = 0; i < 200; i++) {
        size_t x = i % 10, y = i / 10 % 4, z = i / 40;
        int expected = x < 8 && y < 2 && z < 2 ? ((unsigned char*)from.data())[x + 8 * y + 16 * z] : 7;
        REQUIRE(got[i] == expected, "byte %zu is %d instead of %d", i, got[i], expected);
    }
    cudaMemcpy3DBatchOp wrong = back[0];
    wrong.dst.op.ptr.rowLength = 3;
    EXPECT_ERROR(copy_box_batch(1, &wrong, stream), cudaErrorInvalidValue);
    wrong = back[0], wrong.extent.depth = 0;
    EXPECT_ERROR(copy_box_batch(1, &wrong, stream), cudaErrorInvalidValue);
    wrong = back[0], wrong.src.op.array.offset.x = 9;
    EXPECT_ERROR(copy_box_batch(1, &wrong, stream), cudaErrorInvalidValue);
    EXPECT_ERROR(copy_box_batch(0, back, stream), cudaErrorInvalidValue);
    cudaGetLastError();
    for (cudaArray_t array : arrays) CHECK(cudaFreeArray(array));
    return 0;
}

int main() {
    const int width = 83, height = 37, depth = 11;
    int* data;
    size_t pitch = 0;
    CHECK(cudaMallocPitch(&data, &pitch, width * sizeof(int), height));
    REQUIRE(pitch >= width * sizeof(int) && pitch % 32 == 0, "the pitch is %zu", pitch);
    number<<<dim3(1, height), 128>>>((char*)data, pitch, width, height);
    CHECK(cudaGetLastError());
    std::vector<int> host(100 * height, -1);
    CHECK(cudaMemcpy2D(host.data(), 100 * sizeof(int), data, pitch, width * sizeof(int), height, cudaMemcpyDeviceToHost));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < 100; x++)
            REQUIRE(host[y * 100 + x] == (x < width ? y * 1000 + x : -1), "%d,%d is %d", x, y, host[y * 100 + x]);

    // A rectangle in, a set of another, a copy on the device, and all of it out again.
    int *other;
    size_t other_pitch = 0;
    CHECK(cudaMallocPitch(&other, &other_pitch, 200 * sizeof(int), height));
    CHECK(cudaMemset2D(other, other_pitch, 0x11, 200 * sizeof(int), height));
    CHECK(cudaMemcpy2D((char*)other + 3 * other_pitch + 5 * sizeof(int), other_pitch, data, pitch, 60 * sizeof(int), 20,
                       cudaMemcpyDeviceToDevice));
    CHECK(cudaMemset2DAsync((char*)other + 10 * other_pitch, other_pitch, 0x22, 8 * sizeof(int), 2, 0));
    std::vector<int> patch(7 * 4);
    for (size_t i = 0; i < patch.size(); i++) patch[i] = 5000 + (int)i;
    CHECK(cudaMemcpy2DAsync((char*)other + 30 * other_pitch, other_pitch, patch.data(), 7 * sizeof(int), 7 * sizeof(int),
                            4, cudaMemcpyHostToDevice, 0));
    std::vector<int> out(200 * height);
    CHECK(cudaMemcpy2D(out.data(), 200 * sizeof(int), other, other_pitch, 200 * sizeof(int), height, cudaMemcpyDefault));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < 200; x++) {
            int e = 0x11111111;
            if (y >= 3 && y < 23 && x >= 5 && x < 65) e = (y - 3) * 1000 + x - 5;
            if (y >= 10 && y < 12 && x < 8) e = 0x22222222;
            if (y >= 30 && y < 34 && x < 7) e = 5000 + (y - 30) * 7 + x;
            REQUIRE(out[y * 200 + x] == e, "%d,%d is %d instead of %d", x, y, out[y * 200 + x], e);
        }

    // Boxes.
    cudaPitchedPtr box;
    cudaExtent extent = make_cudaExtent(width * sizeof(short), height, depth);
    CHECK(cudaMalloc3D(&box, extent));
    CHECK(cudaMemset3D(box, 0x7f, extent));
    std::vector<short> in(20 * 15 * 6), all(width * height * depth);
    for (size_t i = 0; i < in.size(); i++) in[i] = (short)i;
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(in.data(), 20 * sizeof(short), 20, 15);
    p.srcPos = make_cudaPos(2 * sizeof(short), 1, 1);
    p.dstPtr = box;
    p.dstPos = make_cudaPos(30 * sizeof(short), 7, 4);
    p.extent = make_cudaExtent(15 * sizeof(short), 12, 5);
    p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&p));
    cudaMemcpy3DParms q = {};
    q.srcPtr = box;
    q.dstPtr = make_cudaPitchedPtr(all.data(), width * sizeof(short), width, height);
    q.extent = extent;
    q.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&q));
    for (int z = 0; z < depth; z++)
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++) {
                short e = 0x7f7f;
                if (x >= 30 && x < 45 && y >= 7 && y < 19 && z >= 4 && z < 9)
                    e = in[((z - 4 + 1) * 15 + y - 7 + 1) * 20 + x - 30 + 2];
                short g = all[(z * height + y) * width + x];
                REQUIRE(g == e, "%d,%d,%d is %d instead of %d", x, y, z, g, e);
            }

    // One-dimensional: overlapping offsets, sets of bytes, and device to device.
    DeviceArray<unsigned char> a(1000), b(1000);
    CHECK(cudaMemset(a, 1, 1000));
    CHECK(cudaMemset(a.data + 13, 2, 77));
    CHECK(cudaMemcpy(b, a, 1000, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpyAsync(b.data + 500, a.data + 13, 80, cudaMemcpyDeviceToDevice, 0));
    std::vector<unsigned char> bytes = b.download();
    for (int i = 0; i < 1000; i++) {
        int e = (i >= 13 && i < 90) || (i >= 500 && i < 577) ? 2 : 1;
        REQUIRE(bytes[i] == e, "byte %d is %d instead of %d", i, bytes[i], e);
    }

    // Several copies in one call. What may be read during the call alone is the program's again behind it.
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    DeviceArray<unsigned char> c(1000);
    std::vector<unsigned char> source(1000, 7), target(1000, 0);
    void* to[] = {c.data, a.data + 100, target.data()};
    const void* from[] = {source.data(), b.data + 500, b.data + 10};
    size_t sizes[] = {1000, 60, 990}, firsts[] = {0, 1}, failed = 5;
    cudaMemcpyAttributes attributes[2] = {};
    attributes[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
    attributes[1].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    CHECK(copy_batch(to, from, sizes, 3, attributes, firsts, 2, &failed, stream));
    REQUIRE(failed == SIZE_MAX, "copy %zu failed", failed);
    std::fill(source.begin(), source.end(), 9);
    CHECK(cudaStreamSynchronize(stream));
    std::vector<unsigned char> first = c.download(), second = a.download();
    for (int i = 0; i < 1000; i++) {
        REQUIRE(first[i] == 7, "byte %d of the first copy is %d", i, first[i]);
        int e = (i >= 13 && i < 90) || (i >= 100 && i < 160) ? 2 : 1;
        REQUIRE(second[i] == e, "byte %d of the second copy is %d instead of %d", i, second[i], e);
        REQUIRE(i >= 990 || target[i] == bytes[i + 10], "byte %d of the third copy is %d", i, target[i]);
    }
    firsts[1] = 3;
    EXPECT_ERROR(copy_batch(to, from, sizes, 3, attributes, firsts, 2, &failed, stream), cudaErrorInvalidValue);
    firsts[1] = 1;
    attributes[1].srcAccessOrder = cudaMemcpySrcAccessOrderInvalid;
    EXPECT_ERROR(copy_batch(to, from, sizes, 3, attributes, firsts, 2, &failed, stream), cudaErrorInvalidValue);
    cudaGetLastError();
    if (int failed = copy_boxes(stream)) return failed;
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(data));
    CHECK(cudaFree(other));
    CHECK(cudaFree(box.ptr));
    return ok("rectangles and boxes");
}
