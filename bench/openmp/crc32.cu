// Check sums of messages with a table: each thread a message, loads that depend on data.
#include "pair.h"

const int MESSAGE = 256;

#ifdef __CUDACC__
__global__ void sums(size_t n, const uint8_t* messages, const uint32_t* table, uint32_t* out) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i >= n) return;
    uint32_t crc = ~0u;
    for (int k = 0; k < MESSAGE; k++) crc = crc >> 8 ^ table[(crc ^ messages[i * MESSAGE + k]) & 255];
    out[i] = ~crc;
}
#endif

int main(int argc, char** argv) {
    Pair pair(argc, argv, 0);
    size_t n = pair.size(32768);
    std::vector<uint32_t> table(256), out(n);
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        table[byte] = crc;
    }
    auto words = pair.words(n * MESSAGE / 4, 11);
    std::vector<uint8_t> messages(n * MESSAGE);
    memcpy(messages.data(), words.data(), messages.size());
#ifdef __CUDACC__
    Device<uint8_t> dm(messages);
    Device<uint32_t> dt(table), dout(n);
    pair.time([&] { sums<<<blocks(n, 128), 128>>>(n, dm, dt, dout); });
    out = dout.host();
#else
    pair.time([&] {
#pragma omp parallel for
        for (size_t i = 0; i < n; i++) {
            uint32_t crc = ~0u;
            for (int k = 0; k < MESSAGE; k++) crc = crc >> 8 ^ table[(crc ^ messages[i * MESSAGE + k]) & 255];
            out[i] = ~crc;
        }
    });
#endif
    return pair.finish(out);
}
