// printf in a kernel comes out of the program's own standard output, in its place among the host's lines.
#define EXAMPLE "kernel_printf"
#include "common/check.h"

#include <unistd.h>

#include <algorithm>
#include <string>

__global__ void speak(int base, double x, const char* text) {
    printf("thread %d: %s %5.2f|%-4d|%04x|%c|%lld|%%|%e\n", base + (int)threadIdx.x, text, x, base, base * 3, 'a' + base,
           (long long)base << 40, x);
}

__global__ void returns(int* results) {
    results[0] = printf("no arguments\n");
    results[1] = printf("%s and %d\n", "two", 2);
}

__device__ const char word[] = "word";

__global__ void from_memory() {
    const char* w = word;
    printf("from memory: %s %p\n", w, (void*)0);
    printf("%10.3s|%+d|% d|%o|%X|%#x|%u|%hd|%g|%a\n", w, 5, 5, 8, 255, 255, 4000000000u, (short)-3, 0.0001, 1.0);
}

int main() {
    // Standard output goes to a file meanwhile, and is read back.
    const char* directory = getenv("TMPDIR");
    std::string path = std::string(directory ? directory : "/tmp") + "/rgpu-kernel-printf-XXXXXX";
    int file = mkstemp(path.data()), old = dup(1);
    REQUIRE(file >= 0 && old >= 0, "no temporary file");
    unlink(path.c_str());
    fflush(stdout);
    dup2(file, 1);
    DeviceArray<char> dtext(std::vector<char>{'h', 'i', 0});
    DeviceArray<int> dresults(2);
    printf("before\n");
    speak<<<1, 3>>>(1, 2.5, dtext);
    CHECK(cudaDeviceSynchronize());
    printf("between\n");
    returns<<<1, 1>>>(dresults);
    CHECK(cudaDeviceSynchronize());
    from_memory<<<1, 1>>>();
    std::vector<int> results = dresults.download();
    CHECK(cudaDeviceSynchronize());
    printf("after\n");
    fflush(stdout);
    dup2(old, 1);
    off_t size = lseek(file, 0, SEEK_END);
    lseek(file, 0, SEEK_SET);
    std::string got((size_t)size, 0);
    REQUIRE(read(file, &got[0], got.size()) == (ssize_t)got.size(), "cannot read the output back");

    std::string expected = "before\n";
    for (int t = 0; t < 3; t++) {
        char line[200];
        snprintf(line, sizeof line, "thread %d: %s %5.2f|%-4d|%04x|%c|%lld|%%|%e\n", 1 + t, "hi", 2.5, 1, 3, 'b',
                 1ll << 40, 2.5);
        expected += line;
    }
    expected += "between\nno arguments\ntwo and 2\n";
    char line[200];
    snprintf(line, sizeof line, "from memory: word %p\n", (void*)0);
    expected += line;
    snprintf(line, sizeof line, "%10.3s|%+d|% d|%o|%X|%#x|%u|%hd|%g|%a\n", "word", 5, 5, 8, 255, 255, 4000000000u,
             (short)-3, 0.0001, 1.0);
    expected += line;
    expected += "after\n";
    REQUIRE(got == expected, "the output was:\n%s\ninstead of:\n%s", got.c_str(), expected.c_str());
    REQUIRE(results[0] == 0 && results[1] == 2, "printf returned %d and %d", results[0], results[1]);
    return ok("%zu bytes printed", got.size());
}
