// A kernel prints to the program's standard output, between the program's own lines.
#define EXAMPLE "speak"
#include "common/check.h"

__global__ void speak(int round) { printf("kernel %d says %s\n", round, "hello"); }

int main() {
    for (int r = 0; r < 3; r++) {
        printf("host before %d\n", r);
        speak<<<1, 1>>>(r);
        CHECK(cudaDeviceSynchronize());
    }
    return 0;
}
