// Computes a little (or not at all, with the argument "plain"), says so, and waits for a signal or a minute.
#define EXAMPLE "idle"
#include "common/check.h"

#include <unistd.h>

__global__ void increment(int* data) { data[threadIdx.x]++; }

int main(int argc, char** argv) {
    if (argc == 1) {
        DeviceArray<int> data(256);
        data.zero();
        increment<<<1, 256>>>(data);
        for (int v : data.download()) REQUIRE(v == 1, "an element is %d", v);
        fprintf(stderr, "ready\n");
        sleep(60);
        return 0;
    }
    fprintf(stderr, "ready\n");
    sleep(60);
    return 0;
}
