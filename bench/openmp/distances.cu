// Levenshtein's distance of many pairs of words: rows of a table in each thread's local memory.
#include "pair.h"

const int LETTERS = 32;

BOTH inline int distance(const uint8_t* a, const uint8_t* b, size_t stride) {
    int row[LETTERS + 1];
    for (int x = 0; x <= LETTERS; x++) row[x] = x;
    for (int y = 1; y <= LETTERS; y++) {
        int corner = row[0];
        row[0] = y;
        for (int x = 1; x <= LETTERS; x++) {
            int replaced = corner + (a[(y - 1) * stride] != b[(x - 1) * stride]), smaller = row[x] < row[x - 1] ? row[x] : row[x - 1];
            corner = row[x];
            row[x] = replaced < smaller + 1 ? replaced : smaller + 1;
        }
    }
    return row[LETTERS];
}

#ifdef __CUDACC__
__global__ void all(size_t n, const uint8_t* a, const uint8_t* b, int* out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = distance(a + i, b + i, n);
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    size_t n = pair.size(20000);
    Numbers numbers(15);
    std::vector<uint8_t> a(n * LETTERS), b(n * LETTERS);
    for (auto& letter : a) letter = uint8_t(numbers.next() % 4);
    for (auto& letter : b) letter = uint8_t(numbers.next() % 4);
    std::vector<int> out(n);
#ifdef __CUDACC__
    Device<uint8_t> da(a), db(b);
    Device<int> dout(n);
    pair.time([&] { all<<<blocks(n, 128), 128>>>(n, da, db, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) out[i] = distance(&a[i], &b[i], n);
    });
#endif
    return pair.finish(out);
}
