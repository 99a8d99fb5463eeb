// Device memory that two processes have: the parent exports, a child that it starts opens, computes and writes, the parent reads. And
// what goes wrong: an own handle, garbage, memory that its owner has freed, an owner that has gone.
#define EXAMPLE "ipc"
#include "common/check.h"
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

static const int small = 1000, large = 3 << 20;

struct Letter {
    cudaIpcMemHandle_t small, large;
    cudaIpcEventHandle_t filled;
};

// Takes its time.
__global__ void fill_slowly(int* data, int n, int from) {
    for (int round = 0; round < 200; round++)
        for (int i = threadIdx.x; i < n; i += blockDim.x) data[i] = round == 199 ? from + i : round;
}

__global__ void fill(int* data, int n, int from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = from + i;
}

__global__ void twice(int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= 2;
}

// A call that fails, whose error is not there for others to find.
#define REFUSED(call, expected) EXPECT_ERROR(call, expected); cudaGetLastError()

static void run(void (*kernel)(int*, int), int* data, int n) { kernel<<<(n + 255) / 256, 256>>>(data, n); CHECK(cudaGetLastError()); }

static std::vector<int> read_back(const int* data, int n) {
    std::vector<int> host(n);
    CHECK(cudaMemcpy(host.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost));
    return host;
}

static void send_all(int fd, const void* data, size_t n) { REQUIRE(write(fd, data, n) == (ssize_t)n, "cannot write to a pipe"); }

static void receive(int fd, void* data, size_t n) {
    for (size_t have = 0; have < n;) {
        ssize_t got = read(fd, (char*)data + have, n - have);
        REQUIRE(got > 0, "the other process has gone");
        have += got;
    }
}

// A process of this program, with pipes to and from it.
struct Child {
    pid_t pid;
    int to, from;
    explicit Child(const char* role) {
        int down[2], up[2];
        REQUIRE(pipe(down) == 0 && pipe(up) == 0, "no pipe");
        pid = fork();
        REQUIRE(pid >= 0, "cannot fork");
        if (pid == 0) {
            dup2(down[0], 100);
            dup2(up[1], 101);
            for (int fd : {down[0], down[1], up[0], up[1]}) close(fd);
            execl("/proc/self/exe", "ipc", role, (char*)nullptr);
            _exit(9);
        }
        close(down[0]);
        close(up[1]);
        to = down[1];
        from = up[0];
    }
    void tell(char word) { send_all(to, &word, 1); }
    void hear(char word) {
        char got = 0;
        receive(from, &got, 1);
        REQUIRE(got == word, "heard `%c` instead of `%c`", got, word);
    }
    void end() {
        int status = 0;
        REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %#x", status);
    }
};

static int* open_handle(cudaIpcMemHandle_t handle) {
    void* at = nullptr;
    CHECK(cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess));
    return (int*)at;
}

// The child that computes.
static int work() {
    Letter letter;
    receive(100, &letter, sizeof letter);
    // Memory of its own, before and after.
    DeviceArray<int> own(large);
    int* few = open_handle(letter.small);
    int* many = open_handle(letter.large);
    // The parent's last record is waited for, which came before the letter; its work may be under way.
    cudaEvent_t filled, done;
    CHECK(cudaIpcOpenEventHandle(&filled, letter.filled));
    CHECK(cudaStreamWaitEvent(0, filled, 0));
    CHECK(cudaEventCreate(&done));
    CHECK(cudaEventRecord(done, 0));
    CHECK(cudaEventSynchronize(done));
    CHECK(cudaEventQuery(filled));
    CHECK(cudaEventSynchronize(filled));
    REQUIRE(open_handle(letter.large) == many, "opened again, it is elsewhere");
    cudaPointerAttributes about;
    CHECK(cudaPointerGetAttributes(&about, few));
    REQUIRE(about.type == cudaMemoryTypeDevice, "it is memory of type %d", about.type);
    auto seen = read_back(few, small);
    for (int i = 0; i < small; i++) REQUIRE(seen[i] == 5 + i, "element %d is %d", i, seen[i]);
    auto host = read_back(many, large);
    for (int i = 0; i < large; i++) REQUIRE(host[i] == 7 + i, "element %d is %d", i, host[i]);
    run(twice, few, small);
    run(twice, many, large);
    // Copies of some megabytes both ways, and to memory of its own.
    CHECK(cudaMemcpy(own, many, large * sizeof(int), cudaMemcpyDeviceToDevice));
    host = read_back(own, large);
    for (int i = 0; i < large; i++) REQUIRE(host[i] == 2 * (7 + i), "element %d of the copy is %d", i, host[i]);
    for (int i = 0; i < large / 2; i++) host[i] = -i;
    CHECK(cudaMemcpy(many, host.data(), large / 2 * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(few, 0, sizeof(int)));
    // The parent waits for this by the same event.
    CHECK(cudaEventRecord(filled, 0));
    CHECK(cudaDeviceSynchronize());
    REFUSED(cudaFree(many), cudaErrorInvalidValue);
    CHECK(cudaIpcCloseMemHandle(many));
    CHECK(cudaIpcCloseMemHandle(many));
    REFUSED(cudaIpcCloseMemHandle(many), cudaErrorInvalidValue);
    REFUSED(cudaMemset(many, 0, 4), cudaErrorInvalidValue);
    REFUSED(cudaIpcCloseMemHandle(own), cudaErrorInvalidValue);
    // What is closed is opened anew.
    many = open_handle(letter.large);
    REQUIRE(read_back(many, 10)[9] == -9, "opened anew, it is other memory");
    CHECK(cudaIpcCloseMemHandle(many));
    CHECK(cudaEventDestroy(filled));
    // The other memory is left to the end of the process.
    send_all(101, "d", 1);
    return 0;
}

// The child that keeps memory open which its owner frees, and which outlives its owner.
static int keep() {
    Letter letter;
    receive(100, &letter, sizeof letter);
    int* many = open_handle(letter.large);
    send_all(101, "o", 1);
    char word;
    receive(100, &word, 1);
    // It is there, whatever is in it.
    run(twice, many, large);
    CHECK(cudaDeviceSynchronize());
    read_back(many, large);
    CHECK(cudaIpcCloseMemHandle(many));
    void* at;
    REFUSED(cudaIpcOpenMemHandle(&at, letter.large, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidValue);
    int* few = open_handle(letter.small);
    send_all(101, "f", 1);
    receive(100, &word, 1);
    // The owner has gone.
    run(twice, few, small);
    REQUIRE(read_back(few, small)[2] == 2 * (11 + 2), "what it left is lost");
    CHECK(cudaIpcCloseMemHandle(few));
    // A server may take a moment to notice.
    cudaError_t opened = cudaSuccess;
    for (int tries = 0; tries < 2000 && opened == cudaSuccess; tries++) {
        opened = cudaIpcOpenMemHandle(&at, letter.small, cudaIpcMemLazyEnablePeerAccess);
        if (opened == cudaSuccess) CHECK(cudaIpcCloseMemHandle(at));
        usleep(5000);
    }
    REQUIRE(opened == cudaErrorInvalidValue, "memory of a process that has gone was opened: %d", (int)opened);
    cudaGetLastError();
    send_all(101, "g", 1);
    return 0;
}

// The process that owns what is kept: it hands handles over, frees one, and goes.
static int own() {
    Letter letter;
    int *few, *many;
    CHECK(cudaMalloc(&few, small * sizeof(int)));
    CHECK(cudaMalloc(&many, large * sizeof(int)));
    fill<<<4, 256>>>(few, small, 11);
    CHECK(cudaIpcGetMemHandle(&letter.small, few));
    CHECK(cudaIpcGetMemHandle(&letter.large, many));
    CHECK(cudaDeviceSynchronize());
    send_all(101, &letter, sizeof letter);
    char word;
    receive(100, &word, 1);
    CHECK(cudaFree(many));
    CHECK(cudaDeviceSynchronize());
    send_all(101, "d", 1);
    receive(100, &word, 1);
    return 0;
}

int main(int argc, char** argv) {
    std::string role = argc > 1 ? argv[1] : "";
    if (role == "work") return work();
    if (role == "keep") return keep();
    if (role == "own") return own();

    // Started before and after this process uses the device.
    Child early("work");
    Letter letter;
    int *neighbour, *few, *many;
    CHECK(cudaMalloc(&neighbour, 512));
    CHECK(cudaMalloc(&few, small * sizeof(int)));
    CHECK(cudaMalloc(&many, large * sizeof(int)));
    CHECK(cudaIpcGetMemHandle(&letter.small, few));
    CHECK(cudaIpcGetMemHandle(&letter.large, many));
    cudaIpcMemHandle_t again;
    CHECK(cudaIpcGetMemHandle(&again, few));
    REQUIRE(memcmp(&again, &letter.small, sizeof again) == 0, "the second handle is another");
    cudaEvent_t filled, plain;
    CHECK(cudaEventCreateWithFlags(&filled, cudaEventInterprocess | cudaEventDisableTiming));
    CHECK(cudaEventCreate(&plain));
    REFUSED(cudaEventCreateWithFlags(&plain, cudaEventInterprocess), cudaErrorInvalidValue);
    CHECK(cudaEventRecord(filled, 0));
    REFUSED(cudaIpcGetEventHandle(&letter.filled, plain), cudaErrorInvalidResourceHandle);
    CHECK(cudaIpcGetEventHandle(&letter.filled, filled));
    CHECK(cudaEventSynchronize(filled));
    cudaEvent_t own_event;
    REFUSED(cudaIpcOpenEventHandle(&own_event, letter.filled), cudaErrorDeviceUninitialized);
    Child late("work");
    for (Child* child : {&early, &late}) {
        CHECK(cudaMemset(neighbour, 1, 512));
        fill<<<(large + 255) / 256, 256>>>(many, large, 7);
        fill_slowly<<<1, 256>>>(few, small, 5);
        CHECK(cudaGetLastError());
        // Nobody here waits for it.
        CHECK(cudaEventRecord(filled, 0));
        send_all(child->to, &letter, sizeof letter);
        child->hear('d');
        CHECK(cudaEventSynchronize(filled));
        child->end();
        auto got = read_back(few, small);
        for (int i = 0; i < small; i++) REQUIRE(got[i] == (i ? 2 * (5 + i) : 0), "element %d is %d", i, got[i]);
        got = read_back(many, large);
        for (int i = 0; i < large; i++) {
            int expected = i < large / 2 ? -i : 2 * (7 + i);
            REQUIRE(got[i] == expected, "element %d is %d", i, got[i]);
        }
        REQUIRE(read_back(neighbour, 128)[127] == 0x01010101, "a neighbour was written");
    }

    void* at;
    REFUSED(cudaIpcOpenMemHandle(&at, letter.small, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
    REFUSED(cudaIpcOpenMemHandle(&at, letter.small, 0), cudaErrorInvalidValue);
    cudaIpcMemHandle_t garbage;
    memset(&garbage, 0, sizeof garbage);
    REFUSED(cudaIpcOpenMemHandle(&at, garbage, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidValue);
    for (int byte : {8, 12, 20, 39}) {
        garbage = letter.large;
        garbage.reserved[byte] ^= 1;
        REFUSED(cudaIpcOpenMemHandle(&at, garbage, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidValue);
    }
    cudaIpcEventHandle_t no_event;
    memcpy(&no_event, &letter.large, sizeof no_event);
    REFUSED(cudaIpcOpenEventHandle(&own_event, no_event), cudaErrorInvalidValue);
    CHECK(cudaEventDestroy(filled));
    int on_stack;
    REFUSED(cudaIpcGetMemHandle(&garbage, &on_stack), cudaErrorInvalidValue);
    int* pinned;
    CHECK(cudaMallocHost(&pinned, 4096));
    REFUSED(cudaIpcGetMemHandle(&garbage, pinned), cudaErrorInvalidValue);

    // Two children, of which one has the other's memory.
    Child owner("own"), keeper("keep");
    receive(owner.from, &letter, sizeof letter);
    send_all(keeper.to, &letter, sizeof letter);
    keeper.hear('o');
    owner.tell('f');
    owner.hear('d');
    keeper.tell('f');
    keeper.hear('f');
    owner.tell('e');
    owner.end();
    keeper.tell('g');
    keeper.hear('g');
    keeper.end();
    CHECK(cudaFree(few));
    CHECK(cudaFree(many));
    return ok("memory and events of several processes");
}
