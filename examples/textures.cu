// Textures and surfaces by both doors: filtering, address modes, 1D to 3D, layers, cubes, mipmap levels, linear memory.
// rgpu-libcuda: objects are created by the driver API, too
#define EXAMPLE "textures"
#include "common/driver.h"

__global__ void plane(cudaTextureObject_t t, float* out, int n, float from, float step) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < n) out[y * n + x] = tex2D<float>(t, from + x * step, from + y * step);
}

__global__ void colours(cudaTextureObject_t t, float4* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width || y >= height) return;
    bool there = false;
    float4 colour = tex2D<float4>(t, x + 0.5f, y + 0.5f, &there);
    out[y * width + x] = there ? colour : make_float4(-1, -1, -1, -1);
}

__global__ void several(cudaTextureObject_t line, cudaTextureObject_t volume, cudaTextureObject_t layers,
                        cudaTextureObject_t cube, cudaTextureObject_t levels, cudaTextureObject_t memory, float* out) {
    int i = threadIdx.x;
    out[i * 6 + 0] = tex1D<float>(line, i + 0.25f);
    out[i * 6 + 1] = tex3D<float>(volume, i * 0.5f + 0.5f, 1.5f, 2.0f);
    out[i * 6 + 2] = tex2DLayered<float>(layers, i + 0.5f, 2.5f, i % 5);
    float3 direction[6] = {{1, 0.1f, 0.2f}, {-1, 0.1f, 0.2f}, {0.1f, 1, 0.2f}, {0.1f, -1, 0.2f}, {0.1f, 0.2f, 1}, {0.1f, 0.2f, -1}};
    float3 d = direction[i % 6];
    out[i * 6 + 3] = texCubemap<float>(cube, d.x, d.y, d.z);
    out[i * 6 + 4] = tex2DLod<float>(levels, 0.5f, 0.5f, i * 0.25f);
    out[i * 6 + 5] = (float)tex1Dfetch<int>(memory, i - 2);
}

__global__ void twice(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width || y >= height) return;
    float value;
    surf2Dread(&value, from, x * (int)sizeof(float), y);
    surf2Dwrite(value * 2, to, x * (int)sizeof(float), y);
}

static cudaTextureDesc reading(cudaTextureFilterMode filter, cudaTextureAddressMode mode, bool normalized) {
    cudaTextureDesc desc = {};
    for (auto& m : desc.addressMode) m = mode;
    desc.filterMode = filter;
    desc.readMode = cudaReadModeElementType;
    desc.normalizedCoords = normalized;
    return desc;
}

static cudaTextureObject_t texture(const cudaResourceDesc& resource, const cudaTextureDesc& desc) {
    cudaTextureObject_t object = 0;
    CHECK(cudaCreateTextureObject(&object, &resource, &desc, nullptr));
    return object;
}

static cudaResourceDesc of(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

// An array with these floats in it.
static cudaArray_t filled(const std::vector<float>& data, int width, int height, int depth, unsigned flags) {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, depth), flags));
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr((void*)data.data(), width * sizeof(float), width, std::max(height, 1));
    p.dstArray = array;
    p.extent = make_cudaExtent(width, std::max(height, 1), std::max(depth, 1));
    p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&p));
    return array;
}

static bool close(float a, double b) { return fabs(a - b) <= 1e-4 * (1 + fabs(b)); }

// What a plane holds at whole numbers, with the edge repeated or the whole repeated.
static double at(const std::vector<float>& data, int width, int height, int x, int y, bool wrap) {
    if (wrap) {
        x = (x % width + width) % width;
        y = (y % height + height) % height;
    }
    x = std::min(std::max(x, 0), width - 1);
    y = std::min(std::max(y, 0), height - 1);
    return data[y * width + x];
}

int main() {
    const int width = 37, height = 21, n = 64;
    std::vector<float> data(width * height);
    for (size_t i = 0; i < data.size(); i++) data[i] = (float)((i * 7919) % 1000) / 8;
    // Surface objects are made of arrays without a flag for that, too.
    cudaArray_t array = filled(data, width, height, 0, 0);
    float* out;
    CHECK(cudaMalloc(&out, n * n * sizeof(float4)));
    std::vector<float> got(n * n);

    // Linear filtering in a plane, with the edge's texels outside and with the plane repeated.
    for (int wrap = 0; wrap < 2; wrap++) {
        cudaTextureObject_t t = texture(of(array), reading(cudaFilterModeLinear, wrap ? cudaAddressModeWrap : cudaAddressModeClamp, true));
        const float from = -0.3f, step = 0.03f;
        plane<<<dim3(1, n), n>>>(t, out, n, from, step);
        CHECK(cudaMemcpy(got.data(), out, n * n * sizeof(float), cudaMemcpyDeviceToHost));
        int off = 0;
        for (int j = 0; j < n; j++)
            for (int i = 0; i < n; i++) {
                double u = (double)(from + i * step) * width, v = (double)(from + j * step) * height;
                double x = floor(u - 0.5), y = floor(v - 0.5);
                double a = floor((u - 0.5 - x) * 256 + 0.5) / 256, b = floor((v - 0.5 - y) * 256 + 0.5) / 256;
                auto T = [&](int dx, int dy) { return at(data, width, height, (int)x + dx, (int)y + dy, wrap); };
                double e = (1 - b) * ((1 - a) * T(0, 0) + a * T(1, 0)) + b * ((1 - a) * T(0, 1) + a * T(1, 1));
                // A product of the host's may lie on the other side of a weight's edge: half a step of it.
                if (!close(got[j * n + i], e)) {
                    off++;
                    REQUIRE(fabs(got[j * n + i] - e) < 125.0 / 128, "%d,%d is %f instead of %f", i, j, got[j * n + i], e);
                }
            }
        REQUIRE(off < n * n / 50, "%d of %d are mixed with other weights", off, n * n);
        CHECK(cudaDestroyTextureObject(t));
    }

    // Bytes in pitched memory, read as numbers from 0 to 1.
    uchar4* bytes;
    size_t pitch;
    CHECK(cudaMallocPitch(&bytes, &pitch, width * sizeof(uchar4), height));
    std::vector<uchar4> pixels(width * height);
    for (int i = 0; i < width * height; i++) pixels[i] = make_uchar4(i % 256, i / 3 % 256, 255, 7);
    CHECK(cudaMemcpy2D(bytes, pitch, pixels.data(), width * sizeof(uchar4), width * sizeof(uchar4), height, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = bytes;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<uchar4>();
    resource.res.pitch2D.width = width;
    resource.res.pitch2D.height = height;
    resource.res.pitch2D.pitchInBytes = pitch;
    cudaTextureDesc desc = reading(cudaFilterModeLinear, cudaAddressModeClamp, false);
    cudaTextureObject_t object = 0;
    REQUIRE(cudaCreateTextureObject(&object, &resource, &desc, nullptr) != cudaSuccess, "integers cannot be mixed");
    cudaGetLastError();
    desc.readMode = cudaReadModeNormalizedFloat;
    object = texture(resource, desc);
    colours<<<dim3(1, height), n>>>(object, (float4*)out, width, height);
    std::vector<float4> read(width * height);
    CHECK(cudaMemcpy(read.data(), out, read.size() * sizeof(float4), cudaMemcpyDeviceToHost));
    for (int i = 0; i < width * height; i++)
        REQUIRE(close(read[i].x, pixels[i].x / 255.0) && close(read[i].y, pixels[i].y / 255.0) && read[i].z == 1 && close(read[i].w, 7 / 255.0),
                "pixel %d is %f %f %f %f", i, read[i].x, read[i].y, read[i].z, read[i].w);
    CHECK(cudaDestroyTextureObject(object));
    CHECK(cudaDestroyTextureObject(object));  // once more: devices say nothing

    // One of each other shape.
    std::vector<float> counted(8 * 8 * 6);
    for (size_t i = 0; i < counted.size(); i++) counted[i] = (float)(i * i % 977);
    cudaArray_t line = filled(counted, 32, 0, 0, 0), volume = filled(counted, 8, 8, 6, 0);
    cudaArray_t layers = filled(counted, 8, 8, 6, cudaArrayLayered), cube = filled(counted, 8, 8, 6, cudaArrayCubemap);
    cudaMipmappedArray_t mipmapped;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(16, 16, 0), 4));
    for (unsigned level = 0; level < 4; level++) {
        cudaArray_t part;
        CHECK(cudaGetMipmappedArrayLevel(&part, mipmapped, level));
        cudaExtent extent;
        CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, part));
        REQUIRE(extent.width == 16u >> level && extent.height == 16u >> level, "level %u is %zu wide", level, extent.width);
        std::vector<float> same(extent.width * extent.height, 10.0f * (level + 1));
        CHECK(cudaMemcpy2DToArray(part, 0, 0, same.data(), extent.width * sizeof(float), extent.width * sizeof(float), extent.height,
                                  cudaMemcpyHostToDevice));
    }
    int* numbers;
    CHECK(cudaMalloc(&numbers, 20 * sizeof(int)));
    std::vector<int> first(20);
    for (int i = 0; i < 20; i++) first[i] = 1000 - 100 * i;
    CHECK(cudaMemcpy(numbers, first.data(), 20 * sizeof(int), cudaMemcpyHostToDevice));
    cudaResourceDesc levels = {}, memory = {};
    levels.resType = cudaResourceTypeMipmappedArray;
    levels.res.mipmap.mipmap = mipmapped;
    memory.resType = cudaResourceTypeLinear;
    memory.res.linear.devPtr = numbers;
    memory.res.linear.desc = cudaCreateChannelDesc<int>();
    memory.res.linear.sizeInBytes = 20 * sizeof(int);
    cudaTextureDesc point = reading(cudaFilterModePoint, cudaAddressModeBorder, false);
    cudaTextureDesc linear = reading(cudaFilterModeLinear, cudaAddressModeClamp, false);
    cudaTextureDesc mixed = reading(cudaFilterModeLinear, cudaAddressModeClamp, true);
    mixed.mipmapFilterMode = cudaFilterModeLinear;
    mixed.maxMipmapLevelClamp = 3;
    cudaTextureObject_t objects[6] = {texture(of(line), linear), texture(of(volume), linear), texture(of(layers), point),
                                      texture(of(cube), reading(cudaFilterModePoint, cudaAddressModeClamp, true)),
                                      texture(levels, mixed), texture(memory, point)};
    const int threads = 24;
    several<<<1, threads>>>(objects[0], objects[1], objects[2], objects[3], objects[4], objects[5], out);
    CHECK(cudaMemcpy(got.data(), out, threads * 6 * sizeof(float), cudaMemcpyDeviceToHost));
    auto V = [&](int x, int y, int z) { return (double)counted[(z * 8 + y) * 8 + std::min(x, 7)]; };
    for (int i = 0; i < threads; i++) {
        const float* g = &got[i * 6];
        double e = i == 0 ? counted[0] : 0.25 * counted[i - 1] + 0.75 * counted[i];
        REQUIRE(close(g[0], e), "line %d is %f instead of %f", i, g[0], e);
        int x = i / 2;
        double part = i % 2 * 0.5;
        e = 0;
        for (int z = 1; z < 3; z++) e += 0.5 * ((1 - part) * V(x, 1, z) + part * V(x + 1, 1, z));
        REQUIRE(close(g[1], e), "volume %d is %f instead of %f", i, g[1], e);
        e = i < 8 ? V(i, 2, i % 5) : 0;
        REQUIRE(close(g[2], e), "layers %d is %f instead of %f", i, g[2], e);
        // Directions near the middle of a face: 0.1 and 0.2 of its half are in the texels beside the middle.
        const int where[6][2] = {{3, 3}, {4, 3}, {4, 4}, {4, 3}, {4, 3}, {3, 3}};
        e = V(where[i % 6][0], where[i % 6][1], i % 6);
        REQUIRE(close(g[3], e), "cube %d is %f instead of %f", i, g[3], e);
        e = 10 * (1 + std::min(i * 0.25, 3.0));
        REQUIRE(close(g[4], e), "level %d is %f instead of %f", i, g[4], e);
        e = i - 2 >= 0 && i - 2 < 20 ? first[i - 2] : 0;
        REQUIRE(g[5] == e, "memory %d is %f instead of %f", i, g[5], e);
    }
    for (auto t : objects) CHECK(cudaDestroyTextureObject(t));
    CHECK(cudaFreeMipmappedArray(mipmapped));
    for (cudaArray_t a : {line, volume, layers, cube}) CHECK(cudaFreeArray(a));

    // Surfaces; the one that is written to by the driver's door, and read back through an array's copies there.
    CUDA_ARRAY3D_DESCRIPTOR shape = {};
    shape.Width = width;
    shape.Height = height;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    CUarray doubled;
    CU(cuArray3DCreate(&doubled, &shape));
    CUDA_RESOURCE_DESC made = {};
    made.resType = CU_RESOURCE_TYPE_ARRAY;
    made.res.array.hArray = doubled;
    CUsurfObject to;
    CU(cuSurfObjectCreate(&to, &made));
    cudaSurfaceObject_t source;
    cudaResourceDesc from = of(array);
    CHECK(cudaCreateSurfaceObject(&source, &from));
    twice<<<dim3(1, height), n>>>(source, to, width, height);
    std::vector<float> back(width * height);
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = doubled;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = back.data();
    copy.dstPitch = width * sizeof(float);
    copy.WidthInBytes = width * sizeof(float);
    copy.Height = height;
    CU(cuMemcpy2D(&copy));
    for (int i = 0; i < width * height; i++) REQUIRE(back[i] == 2 * data[i], "%d is %f, not twice %f", i, back[i], data[i]);

    // The driver's texture of it, with what was said of it.
    CUDA_TEXTURE_DESC how = {}, told = {};
    for (auto& mode : how.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
    how.filterMode = CU_TR_FILTER_MODE_POINT;
    CUtexObject view;
    CU(cuTexObjectCreate(&view, &made, &how, nullptr));
    CU(cuTexObjectGetTextureDesc(&told, view));
    REQUIRE(memcmp(&how, &told, sizeof how) == 0, "the description has changed");
    plane<<<dim3(1, n), n>>>(view, out, n, 0.5f, 1.0f);
    CHECK(cudaMemcpy(got.data(), out, n * n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++)
            REQUIRE(got[j * n + i] == 2 * at(data, width, height, i, j, false), "%d,%d is %f", i, j, got[j * n + i]);
    float word = 0;
    CU(cuMemcpyAtoH(&word, doubled, 5 * sizeof(float), sizeof word));
    REQUIRE(word == 2 * data[5], "the word is %f", word);
    CU(cuTexObjectDestroy(view));
    CU(cuSurfObjectDestroy(to));
    CU(cuArrayDestroy(doubled));
    CHECK(cudaDestroySurfaceObject(source));
    CHECK(cudaFreeArray(array));
    return ok("%d texels of a plane", n * n);
}
