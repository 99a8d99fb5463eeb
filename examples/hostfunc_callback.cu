// Host functions and stream callbacks: each runs after what stands before it in its stream, and before what follows.
#define EXAMPLE "hostfunc_callback"
#include "common/check.h"

#include <atomic>

__global__ void add(int* value, int by) { *value += by; }

struct State {
    int* pinned;
    std::atomic<int> calls{0};
    int seen[64];
};

static void CUDART_CB note(void* data) {
    State* s = (State*)data;
    s->seen[s->calls] = *s->pinned;
    *s->pinned = *s->pinned * 2;
    s->calls++;
}

static void CUDART_CB callback(cudaStream_t, cudaError_t status, void* data) {
    State* s = (State*)data;
    s->seen[s->calls] = status == cudaSuccess ? *s->pinned : -1;
    s->calls++;
}

int main() {
    State state;
    CHECK(cudaMallocHost(&state.pinned, sizeof(int)));
    DeviceArray<int> value(std::vector<int>{1});
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int expected = 1, expected_seen[64], rounds = 10;
    for (int r = 0; r < rounds; r++) {
        add<<<1, 1, 0, stream>>>(value, r);
        CHECK(cudaMemcpyAsync(state.pinned, value, sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaLaunchHostFunc(stream, note, &state));
        CHECK(cudaMemcpyAsync(value, state.pinned, sizeof(int), cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamAddCallback(stream, callback, &state, 0));
        expected += r;
        expected_seen[2 * r] = expected;
        expected *= 2;
        expected_seen[2 * r + 1] = expected;
    }
    CHECK(cudaStreamSynchronize(stream));
    REQUIRE(state.calls == 2 * rounds, "%d calls instead of %d", state.calls.load(), 2 * rounds);
    for (int i = 0; i < 2 * rounds; i++)
        REQUIRE(state.seen[i] == expected_seen[i], "call %d saw %d instead of %d", i, state.seen[i], expected_seen[i]);
    int got = value.download()[0];
    REQUIRE(got == expected, "the value is %d instead of %d", got, expected);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(state.pinned));
    return ok("%d calls", 2 * rounds);
}
