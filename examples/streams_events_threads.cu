// Two host threads with several streams; each launch of one is ordered before the other's by host locks alone
// (legacy stream) or by events, and the order is checked by what the kernels see.
#define EXAMPLE "streams_events_threads"
#include "common/check.h"

#include <condition_variable>
#include <mutex>
#include <thread>

__global__ void append(int* log, int* length, int value) {
    int spin = 0;
    for (int i = 0; i < 2000; i++) spin += i * value;
    log[*length] = value;
    *length += 1 + (spin == 0x7fffffff);
}

__global__ void fill(int* data, int n, int value) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] = value;
}

__global__ void check(const int* data, int n, int value, int* wrong) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (data[i] != value) atomicAdd(wrong, 1);
}

// Threads take turns: what one launches happens before what the other launches next.
void turns() {
    const int rounds = 100;
    DeviceArray<int> log(2 * rounds), length(1);
    log.zero();
    length.zero();
    std::mutex mutex;
    std::condition_variable condition;
    int turn = 0;
    auto work = [&](int self) {
        for (int r = 0; r < rounds; r++) {
            std::unique_lock<std::mutex> lock(mutex);
            condition.wait(lock, [&] { return turn % 2 == self; });
            append<<<1, 1>>>(log, length, turn);
            CHECK(cudaGetLastError());
            turn++;
            condition.notify_all();
        }
    };
    std::thread a(work, 0), b(work, 1);
    a.join();
    b.join();
    std::vector<int> got = log.download();
    for (int i = 0; i < 2 * rounds; i++) REQUIRE(got[i] == i, "entry %d of the log is %d", i, got[i]);
}

// One thread's launch, then the other's synchronise: the synchronise must cover the launch.
void synchronise_covers_launch() {
    const int rounds = 30;
    int* flag;
    CHECK(cudaMallocHost(&flag, sizeof(int)));
    DeviceArray<int> length(1), log(rounds);
    length.zero();
    CHECK(cudaDeviceSynchronize());  // the stream below does not wait for the default stream
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int r = 0; r < rounds; r++) {
        std::thread launcher([&] {
            append<<<1, 1, 0, stream>>>(log, length, r);
            CHECK(cudaMemcpyAsync(flag, length, sizeof(int), cudaMemcpyDeviceToHost, stream));
        });
        launcher.join();
        std::thread waiter([&] { CHECK(cudaStreamSynchronize(stream)); });
        waiter.join();
        REQUIRE(*flag == r + 1, "round %d read %d", r, *flag);
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(flag));
}

// A producer's stream and a consumer's stream, in different threads, meet at events only.
void events() {
    const int n = 20000, rounds = 20;
    DeviceArray<int> data(n), wrong(1);
    wrong.zero();
    CHECK(cudaDeviceSynchronize());  // the streams below do not wait for the default stream
    cudaStream_t producer, consumer;
    CHECK(cudaStreamCreateWithPriority(&producer, cudaStreamNonBlocking, 0));
    CHECK(cudaStreamCreateWithFlags(&consumer, cudaStreamNonBlocking));
    cudaEvent_t full[rounds], empty[rounds];
    for (int r = 0; r < rounds; r++) {
        CHECK(cudaEventCreateWithFlags(&full[r], cudaEventDisableTiming));
        CHECK(cudaEventCreate(&empty[r]));
    }
    std::mutex mutex;
    std::condition_variable condition;
    int produced = 0, consumed = 0;
    std::thread a([&] {
        for (int r = 0; r < rounds; r++) {
            if (r > 0) {
                std::unique_lock<std::mutex> lock(mutex);
                condition.wait(lock, [&] { return consumed >= r; });
                CHECK(cudaStreamWaitEvent(producer, empty[r - 1], 0));
            }
            fill<<<8, 128, 0, producer>>>(data, n, r * 3 + 1);
            CHECK(cudaEventRecord(full[r], producer));
            std::lock_guard<std::mutex> lock(mutex);
            produced = r + 1;
            condition.notify_all();
        }
    });
    std::thread b([&] {
        for (int r = 0; r < rounds; r++) {
            {
                std::unique_lock<std::mutex> lock(mutex);
                condition.wait(lock, [&] { return produced > r; });
            }
            CHECK(cudaStreamWaitEvent(consumer, full[r], 0));
            check<<<8, 128, 0, consumer>>>(data, n, r * 3 + 1, wrong);
            CHECK(cudaEventRecord(empty[r], consumer));
            std::lock_guard<std::mutex> lock(mutex);
            consumed = r + 1;
            condition.notify_all();
        }
    });
    a.join();
    b.join();
    CHECK(cudaEventSynchronize(empty[rounds - 1]));
    int count = wrong.download()[0];
    REQUIRE(count == 0, "the consumer saw %d wrong elements", count);
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, empty[0], empty[rounds - 1]));
    REQUIRE(ms > 0 && ms < 600000, "%d rounds took %g ms", rounds, ms);
    EXPECT_ERROR(cudaEventElapsedTime(&ms, full[0], empty[0]), cudaErrorInvalidResourceHandle);
    cudaGetLastError();
    REQUIRE(cudaStreamQuery(consumer) == cudaSuccess, "an idle stream is not ready");
    for (int r = 0; r < rounds; r++) {
        CHECK(cudaEventDestroy(full[r]));
        CHECK(cudaEventDestroy(empty[r]));
    }
    CHECK(cudaStreamDestroy(producer));
    CHECK(cudaStreamDestroy(consumer));
}

// The legacy default stream waits for blocking streams, and they for it.
void legacy() {
    const int n = 200000;
    DeviceArray<int> data(n), wrong(1);
    wrong.zero();
    cudaStream_t blocking;
    CHECK(cudaStreamCreate(&blocking));
    for (int r = 0; r < 10; r++) {
        fill<<<8, 128, 0, blocking>>>(data, n, 2 * r);
        check<<<8, 128>>>(data, n, 2 * r, wrong);
        fill<<<8, 128>>>(data, n, 2 * r + 1);
        check<<<8, 128, 0, blocking>>>(data, n, 2 * r + 1, wrong);
    }
    CHECK(cudaDeviceSynchronize());
    int count = wrong.download()[0];
    REQUIRE(count == 0, "the default stream's order was broken %d times", count);
    CHECK(cudaStreamDestroy(blocking));
}

int main() {
    turns();
    synchronise_covers_launch();
    events();
    legacy();
    return ok("orders kept");
}
