// Texture and surface references by the driver API, in PTX of its own, since compilers of CUDA 12 and later make none: linear and pitched
// memory, arrays, an array with mipmap levels; filters, normalised coordinates, whole numbers; bound anew between launches.
// rgpu-libcuda: references are the driver's
#define EXAMPLE "texture_references"
#include "common/driver.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const char* text = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .global .texref numbers;
.visible .global .texref picture;
.visible .global .texref levels;
.global .surfref canvas;
.visible .global .u32 plain = 7;

// out[i] = the whole number at i - 2
.visible .entry fetch(.param .u64 out)
{
    .reg .b32 %r<9>; .reg .b64 %rd<5>;
    mov.u32 %r1, %tid.x;
    sub.s32 %r2, %r1, 2;
    tex.1d.v4.s32.s32 {%r3, %r4, %r5, %r6}, [numbers, {%r2}];
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r3;
    ret;
}

// out[y][x] = the picture's four channels at (from + x * step, from + y * step), after so many turns of a loop
.visible .entry sample(.param .u64 out, .param .f32 from, .param .f32 step, .param .u32 turns)
{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<6>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    ld.param.u32 %r4, [turns];
    mov.u32 %r5, 1;
LOOP:
    setp.eq.u32 %p1, %r4, 0;
    @%p1 bra READ;
    mad.lo.u32 %r5, %r5, 1664525, 1013904223;
    sub.u32 %r4, %r4, 1;
    bra LOOP;
READ:
    ld.param.f32 %f1, [from];
    ld.param.f32 %f2, [step];
    cvt.rn.f32.u32 %f3, %r1;
    fma.rn.f32 %f3, %f3, %f2, %f1;
    cvt.rn.f32.u32 %f4, %r2;
    fma.rn.f32 %f4, %f4, %f2, %f1;
    tex.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [picture, {%f3, %f4}];
    mad.lo.u32 %r6, %r2, %r3, %r1;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r6, 16;
    add.s64 %rd1, %rd1, %rd2;
    // What the loop has counted is used, if only for what never is.
    setp.eq.u32 %p2, %r5, 1234567;
    @%p2 mov.f32 %f5, 0fBF800000;
    st.global.v4.f32 [%rd1], {%f5, %f6, %f7, %f8};
    ret;
}

// out[i] = level i of the middle of an array with levels, by the address of the reference
.visible .entry leveled(.param .u64 out)
{
    .reg .b32 %r<3>; .reg .f32 %f<9>; .reg .b64 %rd<6>;
    mov.u32 %r1, %tid.x;
    cvt.rn.f32.u32 %f1, %r1;
    mov.f32 %f2, 0f3F000000;
    mov.u64 %rd3, levels;
    tex.level.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd3, {%f2, %f2}], %f1;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.f32 [%rd1], %f3;
    ret;
}

// Doubles the canvas.
.visible .entry twice()
{
    .reg .b32 %r<4>; .reg .f32 %f<2>;
    mov.u32 %r1, %tid.x;
    shl.b32 %r1, %r1, 2;
    mov.u32 %r2, %ctaid.x;
    suld.b.2d.b32.trap {%r3}, [canvas, {%r1, %r2}];
    mov.b32 %f1, %r3;
    add.f32 %f1, %f1, %f1;
    mov.b32 %r3, %f1;
    sust.b.2d.b32.trap [canvas, {%r1, %r2}], {%r3};
    ret;
}
)";

static CUmodule module;
static CUdeviceptr out;

static CUfunction kernel(const char* name) {
    CUfunction found;
    CU(cuModuleGetFunction(&found, module, name));
    return found;
}

static CUtexref reference(const char* name) {
    CUtexref found, again;
    CU(cuModuleGetTexRef(&found, module, name));
    CU(cuModuleGetTexRef(&again, module, name));
    REQUIRE(found == again, "%s has two handles", name);
    return found;
}

static void sample(CUstream stream, int side, float from, float step, unsigned turns = 0) {
    void* parameters[] = {&out, &from, &step, &turns};
    CU(cuLaunchKernel(kernel("sample"), side, 1, 1, side, 1, 1, 0, stream, parameters, nullptr));
}

static std::vector<float> sampled(int side) {
    std::vector<float> got(side * side * 4);
    CU(cuMemcpyDtoH(got.data(), out, got.size() * sizeof(float)));
    return got;
}

static bool close(double a, double b) { return std::fabs(a - b) <= 1e-5 * std::max(1.0, std::fabs(b)); }

static CUarray filled(const std::vector<float>& data, int width, int height, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {};
    shape.Width = width;
    shape.Height = height;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    shape.Flags = flags;
    CUarray array;
    CU(cuArray3DCreate(&array, &shape));
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = data.data();
    copy.srcPitch = width * sizeof(float);
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = width * sizeof(float);
    copy.Height = height;
    CU(cuMemcpy2D(&copy));
    return array;
}

static void must_be(CUresult got, CUresult wanted, const char* what) {
    REQUIRE(got == wanted, "%s: %d instead of %d", what, (int)got, (int)wanted);
}

int main() {
    CU(cuInit(0));
    CUdevice device;
    CU(cuDeviceGet(&device, 0));
    CUcontext context;
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    CU(cuModuleLoadData(&module, text));
    CU(cuMemAlloc(&out, 1 << 16));

    // Names.
    CUtexref texture;
    CUsurfref surface;
    CUdeviceptr address;
    size_t size;
    must_be(cuModuleGetTexRef(&texture, module, "nothing"), CUDA_ERROR_NOT_FOUND, "no such reference");
    must_be(cuModuleGetTexRef(&texture, module, "plain"), CUDA_ERROR_NOT_FOUND, "a variable is no reference");
    must_be(cuModuleGetTexRef(&texture, module, "canvas"), CUDA_ERROR_NOT_FOUND, "a surface is no texture");
    must_be(cuModuleGetSurfRef(&surface, module, "picture"), CUDA_ERROR_NOT_FOUND, "a texture is no surface");
    must_be(cuModuleGetGlobal(&address, &size, module, "picture"), CUDA_ERROR_NOT_FOUND, "a reference is no variable");
    CU(cuModuleGetGlobal(&address, &size, module, "plain"));

    // Linear memory, in whole numbers; then a part of it that does not begin where textures do.
    const int count = 32;
    std::vector<int> first(count);
    for (int i = 0; i < count; i++) first[i] = 1000 - 100 * i;
    CUdeviceptr memory;
    CU(cuMemAlloc(&memory, count * sizeof(int)));
    CU(cuMemcpyHtoD(memory, first.data(), count * sizeof(int)));
    texture = reference("numbers");
    CU(cuTexRefSetFormat(texture, CU_AD_FORMAT_SIGNED_INT32, 1));
    CU(cuTexRefSetFlags(texture, CU_TRSF_READ_AS_INTEGER));
    size_t beyond = 1;
    CU(cuTexRefSetAddress(&beyond, texture, memory, 20 * sizeof(int)));
    REQUIRE(beyond == 0, "the memory begins %zu bytes behind", beyond);
    CU(cuTexRefGetAddress(&address, texture));
    REQUIRE(address == memory, "another address");
    void* parameters[] = {&out};
    std::vector<int> read(count);
    auto fetched = [&](int shift, int end) {
        CU(cuLaunchKernel(kernel("fetch"), 1, 1, 1, count, 1, 1, 0, nullptr, parameters, nullptr));
        CU(cuMemcpyDtoH(read.data(), out, count * sizeof(int)));
        for (int i = 0; i < count; i++) {
            int at = i - 2, e = at >= 0 && at < end ? first[at + shift] : 0;
            REQUIRE(read[i] == e, "number %d is %d instead of %d", i, read[i], e);
        }
    };
    fetched(0, 20);
    must_be(cuTexRefSetAddress(nullptr, texture, memory + 8, 16), CUDA_ERROR_INVALID_VALUE, "nobody asks for the offset");
    CU(cuTexRefSetAddress(&beyond, texture, memory + 8, 12 * sizeof(int)));
    REQUIRE(beyond == 8, "the memory begins %zu bytes behind", beyond);
    fetched(0, 14);

    // An array: the nearest texel, mixed ones, and coordinates from 0 to 1 that go round.
    const int width = 24, height = 16, side = 20;
    std::vector<float> data(width * height), other(width * height);
    for (int i = 0; i < width * height; i++) data[i] = (float)(i * 7 % 101), other[i] = -1 - data[i];
    CUarray array = filled(data, width, height, CUDA_ARRAY3D_SURFACE_LDST), negative = filled(other, width, height, 0);
    auto at = [&](const std::vector<float>& of, int x, int y) {
        return (double)of[std::min(std::max(y, 0), height - 1) * width + std::min(std::max(x, 0), width - 1)];
    };
    CUtexref picture = reference("picture");
    must_be(cuTexRefSetArray(picture, array, 0), CUDA_ERROR_INVALID_VALUE, "without CU_TRSA_OVERRIDE_FORMAT");
    CU(cuTexRefSetArray(picture, array, CU_TRSA_OVERRIDE_FORMAT));
    sample(nullptr, side, 0.5f, 1.0f);
    std::vector<float> got = sampled(side);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            const float* g = &got[(y * side + x) * 4];
            REQUIRE(g[0] == at(data, x, y) && g[1] == 0 && g[2] == 0 && g[3] == 1, "%d,%d is %f %f %f %f", x, y, g[0], g[1], g[2], g[3]);
        }
    CU(cuTexRefSetFilterMode(picture, CU_TR_FILTER_MODE_LINEAR));
    sample(nullptr, side, 0.75f, 1.0f);
    got = sampled(side);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            double e = 0.5625 * at(data, x, y) + 0.1875 * (at(data, x + 1, y) + at(data, x, y + 1)) + 0.0625 * at(data, x + 1, y + 1);
            REQUIRE(close(got[(y * side + x) * 4], e), "mixed %d,%d is %f instead of %f", x, y, got[(y * side + x) * 4], e);
        }
    CU(cuTexRefSetFilterMode(picture, CU_TR_FILTER_MODE_POINT));
    CU(cuTexRefSetFlags(picture, CU_TRSF_NORMALIZED_COORDINATES));
    for (int d = 0; d < 2; d++) CU(cuTexRefSetAddressMode(picture, d, CU_TR_ADDRESS_MODE_WRAP));
    sample(nullptr, side, 1.03125f, 0.0625f);
    got = sampled(side);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            int column = (int)std::floor((1.03125 + x * 0.0625) * width) % width, row = (int)std::floor((1.03125 + y * 0.0625) * height) % height;
            double e = at(data, column, row);
            REQUIRE(got[(y * side + x) * 4] == e, "round %d,%d is %f instead of %f", x, y, got[(y * side + x) * 4], e);
        }
    unsigned flags;
    CUaddress_mode mode;
    CUfilter_mode filter;
    CUarray_format format;
    int channels;
    CUarray bound;
    CU(cuTexRefGetFlags(&flags, picture));
    CU(cuTexRefGetAddressMode(&mode, picture, 1));
    CU(cuTexRefGetFilterMode(&filter, picture));
    CU(cuTexRefGetFormat(&format, &channels, picture));
    CU(cuTexRefGetArray(&bound, picture));
    REQUIRE(flags == CU_TRSF_NORMALIZED_COORDINATES && mode == CU_TR_ADDRESS_MODE_WRAP && filter == CU_TR_FILTER_MODE_POINT &&
                format == CU_AD_FORMAT_FLOAT && channels == 1 && bound == array,
            "the reference tells something else than was said");
    must_be(cuTexRefGetAddress(&address, picture), CUDA_ERROR_INVALID_VALUE, "an array has no address");

    // Bound anew while kernels that were launched before have not read yet, in streams of both kinds.
    CU(cuTexRefSetFlags(picture, 0));
    for (unsigned kind : {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING}) {
        CUstream stream;
        CU(cuStreamCreate(&stream, kind));
        CU(cuTexRefSetArray(picture, array, CU_TRSA_OVERRIDE_FORMAT));
        CUdeviceptr start = out;
        sample(stream, side, 0.5f, 1.0f, 200000);
        CU(cuTexRefSetArray(picture, negative, CU_TRSA_OVERRIDE_FORMAT));
        out = start + side * side * 16;
        sample(stream, side, 0.5f, 1.0f);
        CU(cuStreamSynchronize(stream));
        std::vector<float> after = sampled(side);
        out = start;
        std::vector<float> before = sampled(side);
        for (int y = 0; y < side; y++)
            for (int x = 0; x < side; x++) {
                int i = (y * side + x) * 4;
                REQUIRE(before[i] == at(data, x, y), "before %d,%d is %f", x, y, before[i]);
                REQUIRE(after[i] == at(other, x, y), "after %d,%d is %f", x, y, after[i]);
            }
        CU(cuStreamDestroy(stream));
    }

    // Pitched memory with colours, read as numbers from 0 to 1.
    CUdeviceptr pixels;
    size_t pitch;
    CU(cuMemAllocPitch(&pixels, &pitch, width * 4, height, 16));
    std::vector<unsigned char> colours(pitch * height);
    for (size_t i = 0; i < colours.size(); i++) colours[i] = (unsigned char)(i * 13);
    CU(cuMemcpyHtoD(pixels, colours.data(), colours.size()));
    CUDA_ARRAY_DESCRIPTOR plane = {};
    plane.Width = width;
    plane.Height = height;
    plane.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    plane.NumChannels = 4;
    must_be(cuTexRefSetAddress2D(picture, &plane, pixels, pitch - 1), CUDA_ERROR_INVALID_VALUE, "a pitch that is not aligned");
    CU(cuTexRefSetAddress2D(picture, &plane, pixels, pitch));
    sample(nullptr, side, 0.5f, 1.0f);
    got = sampled(side);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            for (int c = 0; c < 4; c++) {
                double e = colours[std::min(y, height - 1) * pitch + x * 4 + c] / 255.0;
                REQUIRE(close(got[(y * side + x) * 4 + c], e), "colour %d,%d,%d is %f instead of %f", x, y, c, got[(y * side + x) * 4 + c], e);
            }

    // Mipmap levels.
    CUDA_ARRAY3D_DESCRIPTOR shape = {};
    shape.Width = shape.Height = 16;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    CUmipmappedArray mipmapped, told;
    CU(cuMipmappedArrayCreate(&mipmapped, &shape, 4));
    for (unsigned level = 0; level < 4; level++) {
        CUarray part;
        CU(cuMipmappedArrayGetLevel(&part, mipmapped, level));
        std::vector<float> same(16 >> level, 10.0f * (level + 1));
        for (int row = 0; row < 16 >> level; row++) {
            CUDA_MEMCPY2D copy = {};
            copy.srcMemoryType = CU_MEMORYTYPE_HOST;
            copy.srcHost = same.data();
            copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
            copy.dstArray = part;
            copy.dstY = row;
            copy.WidthInBytes = same.size() * sizeof(float);
            copy.Height = 1;
            CU(cuMemcpy2D(&copy));
        }
    }
    texture = reference("levels");
    CU(cuTexRefSetMipmappedArray(texture, mipmapped, CU_TRSA_OVERRIDE_FORMAT));
    CU(cuTexRefSetFlags(texture, CU_TRSF_NORMALIZED_COORDINATES));
    CU(cuTexRefSetMipmapLevelClamp(texture, 0, 2));
    CU(cuTexRefGetMipmappedArray(&told, texture));
    REQUIRE(told == mipmapped, "another array");
    CU(cuLaunchKernel(kernel("leveled"), 1, 1, 1, 6, 1, 1, 0, nullptr, parameters, nullptr));
    got.assign(6, 0);
    CU(cuMemcpyDtoH(got.data(), out, 6 * sizeof(float)));
    for (int i = 0; i < 6; i++) REQUIRE(got[i] == 10.0f * (1 + std::min(i, 2)), "level %d is %f", i, got[i]);

    // A surface.
    CU(cuModuleGetSurfRef(&surface, module, "canvas"));
    must_be(cuSurfRefGetArray(&bound, surface), CUDA_ERROR_INVALID_VALUE, "nothing is bound");
    must_be(cuSurfRefSetArray(surface, negative, 0), CUDA_ERROR_INVALID_VALUE, "an array that was not created for surfaces");
    CU(cuSurfRefSetArray(surface, array, 0));
    CU(cuSurfRefGetArray(&bound, surface));
    REQUIRE(bound == array, "another array");
    CU(cuLaunchKernel(kernel("twice"), height, 1, 1, width, 1, 1, 0, nullptr, nullptr, nullptr));
    CU(cuTexRefSetArray(picture, array, CU_TRSA_OVERRIDE_FORMAT));
    sample(nullptr, side, 0.5f, 1.0f);
    got = sampled(side);
    for (int i = 0; i < side * side; i++)
        REQUIRE(got[i * 4] == 2 * at(data, i % side, i / side), "%d is %f after doubling", i, got[i * 4]);

    // A reference of no module, and handles that are gone.
    CUtexref own;
    CU(cuTexRefCreate(&own));
    CU(cuTexRefSetArray(own, array, CU_TRSA_OVERRIDE_FORMAT));
    CU(cuTexRefDestroy(own));
    must_be(cuTexRefSetFilterMode(own, CU_TR_FILTER_MODE_POINT), CUDA_ERROR_INVALID_HANDLE, "a destroyed reference");
    must_be(cuTexRefDestroy(picture), CUDA_ERROR_INVALID_VALUE, "a module's reference");
    CU(cuModuleUnload(module));
    must_be(cuTexRefGetFlags(&flags, picture), CUDA_ERROR_INVALID_HANDLE, "a reference of an unloaded module");
    CU(cuArrayDestroy(array));
    CU(cuArrayDestroy(negative));
    CU(cuMipmappedArrayDestroy(mipmapped));
    for (CUdeviceptr p : {memory, pixels, out}) CU(cuMemFree(p));
    return ok("%d texels of a plane", side * side);
}
