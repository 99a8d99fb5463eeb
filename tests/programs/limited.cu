// Reports what the first CUDA call answers, as a word.
#define EXAMPLE "limited"
#include "common/check.h"

int main() {
    int* p = nullptr;
    cudaError_t error = cudaMalloc(&p, 1 << 20);
    printf("%s\n", cudaGetErrorName(error));
    return error == cudaSuccess ? 0 : 3;
}
