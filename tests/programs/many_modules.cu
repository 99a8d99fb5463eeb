// Modules of 1 MiB each, loaded, used and kept; as many as the first argument says.
// rgpu-libcuda: a stand-in for the driver's library is made for linking
#define EXAMPLE "many_modules"
#include "common/check.h"

#include <cuda.h>

#include <string>

#define CU(call)                                                                                 \
    do {                                                                                         \
        CUresult cu_result_ = (call);                                                            \
        if (cu_result_ != CUDA_SUCCESS) fail("%s:%d: %s: CUDA driver error %d", __FILE__, __LINE__, #call, (int)cu_result_); \
    } while (0)

// A kernel that stores a number of its own, and a great deal of comment.
static std::string module_text(unsigned number) {
    std::string text =
        ".version 7.0\n.target sm_52\n.address_size 64\n"
        ".visible .entry store(.param .u64 out, .param .u32 place)\n{\n"
        "    .reg .b32 %r<3>;\n    .reg .b64 %rd<4>;\n"
        "    ld.param.u64 %rd1, [out];\n    ld.param.u32 %r1, [place];\n"
        "    cvta.to.global.u64 %rd2, %rd1;\n    mul.wide.u32 %rd3, %r1, 4;\n    add.s64 %rd2, %rd2, %rd3;\n"
        "    mov.u32 %r2, " + std::to_string(number) + ";\n    st.global.u32 [%rd2], %r2;\n    ret;\n}\n";
    unsigned seed = number;
    while (text.size() < 1 << 20) {
        text += "// ";
        for (int i = 0; i < 70; i++) text += char('A' + (seed = seed * 1664525u + 1013904223u) % 26);
        text += '\n';
    }
    return text;
}

int main(int argc, char** argv) {
    const int count = argc > 1 ? atoi(argv[1]) : 60;
    DeviceArray<unsigned> out(count);
    unsigned* raw = out;
    for (int i = 0; i < count; i++) {
        // The program may do with the text as it likes once it is loaded.
        CUmodule module;
        CU(cuModuleLoadData(&module, module_text(1000 + 7 * i).c_str()));
        CUfunction store;
        CU(cuModuleGetFunction(&store, module, "store"));
        void* args[] = {&raw, &i};
        CU(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, args, nullptr));
        CUfunction none;
        REQUIRE(cuModuleGetFunction(&none, module, "fetch") == CUDA_ERROR_NOT_FOUND, "there is no kernel `fetch`");
    }
    std::vector<unsigned> got(count);
    CHECK(cudaMemcpy(got.data(), out, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; i++) REQUIRE(got[i] == 1000u + 7 * i, "module %d stored %u", i, got[i]);
    return ok("%d modules", count);
}
