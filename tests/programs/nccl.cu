// NCCL: all operations over all types, against plain loops. The ranks are devices of one process, driven by one thread or by one each, or
// processes, which find each other by a file. The toolkit need not have the library: what is called is declared here, and found where the
// dynamic loader finds it.
//
//   nccl one N            one thread, N devices
//   nccl threads N        a thread for each of N devices
//   nccl rank R N FILE    a process for each rank
//   nccl lost R N FILE    as `rank`, but rank 1 goes away, and the others hear of it
// rgpu-nvcc: -ldl -Xcompiler -pthread
#define EXAMPLE "nccl"
#include "common/check.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <functional>
#include <string>
#include <thread>

typedef struct ncclComm* Comm;
struct Id {
    char bytes[128];
};
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking, rest[15];
    const char* names[4];
};

static void* find(const char* name) {
    static void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    void* found = library ? dlsym(library, name) : nullptr;
    if (!found) fail("there is no %s", name);
    return found;
}

#define NCCL(name, types, ...)                                                                         \
    do {                                                                                               \
        int status_ = ((int(*) types)find(#name))(__VA_ARGS__);                                        \
        if (status_ != 0) fail("%s:%d: %s gave %d: %s", __FILE__, __LINE__, #name, status_, why());    \
    } while (0)

#define EXPECT_STATUS(expected, name, types, ...)                                                      \
    do {                                                                                               \
        int status_ = ((int(*) types)find(#name))(__VA_ARGS__);                                        \
        if (status_ != (expected)) fail("%s:%d: %s gave %d", __FILE__, __LINE__, #name, status_);      \
    } while (0)

static const char* why() { return ((const char* (*)(Comm))find("ncclGetLastError"))(nullptr); }

typedef const void* In;
typedef cudaStream_t Stream;
enum { SUM, PROD, MAX, MIN, AVG };

// Names of elements' types, and what their sums are computed in.
template <typename T>
struct Type;
#define TYPE(T, W, number)                                                                             \
    template <>                                                                                        \
    struct Type<T> {                                                                                   \
        typedef W Wide;                                                                                \
        enum { NUMBER = number };                                                                      \
    }
TYPE(int8_t, int8_t, 0);
TYPE(uint8_t, uint8_t, 1);
TYPE(int32_t, int32_t, 2);
TYPE(uint32_t, uint32_t, 3);
TYPE(int64_t, int64_t, 4);
TYPE(uint64_t, uint64_t, 5);
TYPE(__half, float, 6);
TYPE(float, float, 7);
TYPE(double, double, 8);
TYPE(__nv_bfloat16, float, 9);

template <typename T>
typename Type<T>::Wide wide(T value) {
    return (typename Type<T>::Wide)value;
}
static float wide(__half value) { return __half2float(value); }
static float wide(__nv_bfloat16 value) { return __bfloat162float(value); }
template <typename T, typename W>
T narrow(W value) {
    return (T)value;
}
template <>
__half narrow<__half, float>(float value) {
    return __float2half(value);
}
template <>
__nv_bfloat16 narrow<__nv_bfloat16, float>(float value) {
    return __float2bfloat16(value);
}

// What a rank begins with.
template <typename T>
T element(int rank, size_t i) {
    return narrow<T, typename Type<T>::Wide>((typename Type<T>::Wide)((i * 7 + rank * 5 + i / 13 * rank) % 11 + 1));
}

// What all ranks' elements at `i` come to, in the order of ranks.
template <typename T>
T combined(int op, int ranks, size_t i) {
    typedef typename Type<T>::Wide W;
    W result = wide(element<T>(0, i));
    for (int rank = 1; rank < ranks; rank++) {
        W next = wide(element<T>(rank, i));
        if (op == SUM || op == AVG) result = (W)(result + next);
        if (op == PROD) result = (W)(result * next);
        if (op == MAX) result = std::max(result, next);
        if (op == MIN) result = std::min(result, next);
    }
    if (op == AVG) result = (W)(result / (W)ranks);
    return narrow<T, W>(result);
}

struct Rank {
    int number, device;
    Comm comm = nullptr;
    Stream stream = nullptr;
};

// The ranks that this thread drives, and how many there are in all.
struct Local {
    std::vector<Rank> ranks;
    int all;
};

// Has each local rank do something with what it begins with, and compares what it gets; `expected` says nothing where that is nobody's business.
template <typename T>
void together(Local& local, const char* what, size_t send, size_t recv, std::function<void(Rank&, T*, T*)> call,
              std::function<bool(int, size_t, T&)> expected) {
    size_t mine = local.ranks.size();
    std::vector<T*> device(mine);
    std::vector<std::vector<T>> host(mine), got(mine);
    for (size_t r = 0; r < mine; r++) {
        Rank& rank = local.ranks[r];
        CHECK(cudaSetDevice(rank.device));
        CHECK(cudaMalloc(&device[r], (send + recv) * sizeof(T)));
        for (size_t i = 0; i < send; i++) host[r].push_back(element<T>(rank.number, i));
        got[r].resize(recv);
        CHECK(cudaMemsetAsync(device[r] + send, 0x7B, recv * sizeof(T), rank.stream));
        CHECK(cudaMemcpyAsync(device[r], host[r].data(), send * sizeof(T), cudaMemcpyHostToDevice, rank.stream));
    }
    NCCL(ncclGroupStart, (), );
    for (size_t r = 0; r < mine; r++) call(local.ranks[r], device[r], device[r] + send);
    NCCL(ncclGroupEnd, (), );
    for (size_t r = 0; r < mine; r++) {
        Rank& rank = local.ranks[r];
        CHECK(cudaSetDevice(rank.device));
        CHECK(cudaMemcpyAsync(got[r].data(), device[r] + send, recv * sizeof(T), cudaMemcpyDeviceToHost, rank.stream));
        CHECK(cudaStreamSynchronize(rank.stream));
        for (size_t i = 0; i < recv; i++) {
            T right;
            memset(&right, 0x7B, sizeof right);
            expected(rank.number, i, right);
            REQUIRE(memcmp(&right, &got[r][i], sizeof right) == 0, "%s of type %d, rank %d of %d: %g instead of %g at %zu of %zu",
                    what, (int)Type<T>::NUMBER, rank.number, local.all, (double)wide(got[r][i]), (double)wide(right), i, recv);
        }
        CHECK(cudaFree(device[r]));
    }
}

#define COLLECTIVE (In, void*, size_t, int, Comm, Stream)
#define ROOTED (In, void*, size_t, int, int, Comm, Stream)
#define REDUCED (In, void*, size_t, int, int, Comm, Stream)
#define REDUCED_TO (In, void*, size_t, int, int, int, Comm, Stream)
#define MESSAGE (const void*, size_t, int, int, Comm, Stream)

template <typename T>
void reductions(Local& local) {
    const int type = Type<T>::NUMBER, n = local.all, root = n - 1;
    for (size_t count : {(size_t)1, (size_t)777, (size_t)30011})
        for (int op = SUM; op <= AVG; op++) {
            together<T>(
                local, "AllReduce", count, count,
                [=](Rank& r, T* send, T* recv) { NCCL(ncclAllReduce, REDUCED, send, recv, count, type, op, r.comm, r.stream); },
                [=](int, size_t i, T& right) { return right = combined<T>(op, n, i), true; });
            together<T>(
                local, "Reduce", count, count,
                [=](Rank& r, T* send, T* recv) {
                    NCCL(ncclReduce, REDUCED_TO, send, r.number == root ? recv : nullptr, count, type, op, root, r.comm, r.stream);
                },
                [=](int rank, size_t i, T& right) { return rank == root && (right = combined<T>(op, n, i), true); });
            together<T>(
                local, "ReduceScatter", count * n, count,
                [=](Rank& r, T* send, T* recv) {
                    NCCL(ncclReduceScatter, REDUCED, send, recv, count, type, op, r.comm, r.stream);
                },
                [=](int rank, size_t i, T& right) { return right = combined<T>(op, n, rank * count + i), true; });
        }
}

template <typename T>
void movements(Local& local) {
    const int type = Type<T>::NUMBER, n = local.all, root = n - 1;
    for (size_t count : {(size_t)3, (size_t)20001}) {
        together<T>(
            local, "Broadcast", count, count,
            [=](Rank& r, T* send, T* recv) { NCCL(ncclBroadcast, ROOTED, send, recv, count, type, root, r.comm, r.stream); },
            [=](int, size_t i, T& right) { return right = element<T>(root, i), true; });
        together<T>(
            local, "AllGather", count, count * n,
            [=](Rank& r, T* send, T* recv) { NCCL(ncclAllGather, COLLECTIVE, send, recv, count, type, r.comm, r.stream); },
            [=](int, size_t i, T& right) { return right = element<T>(i / count, i % count), true; });
        together<T>(
            local, "AlltoAll", count * n, count * n,
            [=](Rank& r, T* send, T* recv) { NCCL(ncclAlltoAll, COLLECTIVE, send, recv, count, type, r.comm, r.stream); },
            [=](int rank, size_t i, T& right) { return right = element<T>(i / count, rank * count + i % count), true; });
        together<T>(
            local, "Gather", count, count * n,
            [=](Rank& r, T* send, T* recv) { NCCL(ncclGather, ROOTED, send, recv, count, type, root, r.comm, r.stream); },
            [=](int rank, size_t i, T& right) { return rank == root && (right = element<T>(i / count, i % count), true); });
        together<T>(
            local, "Scatter", count * n, count,
            [=](Rank& r, T* send, T* recv) { NCCL(ncclScatter, ROOTED, send, recv, count, type, root, r.comm, r.stream); },
            [=](int rank, size_t i, T& right) { return right = element<T>(root, rank * count + i), true; });
        // Each to the next, and to itself.
        together<T>(
            local, "Send and Recv", count, count * 2,
            [=](Rank& r, T* send, T* recv) {
                int next = (r.number + 1) % n, before = (r.number + n - 1) % n;
                NCCL(ncclSend, MESSAGE, send, count, type, next, r.comm, r.stream);
                NCCL(ncclSend, MESSAGE, send, count, type, r.number, r.comm, r.stream);
                NCCL(ncclRecv, MESSAGE, recv, count, type, before, r.comm, r.stream);
                NCCL(ncclRecv, MESSAGE, recv + count, count, type, r.number, r.comm, r.stream);
            },
            [=](int rank, size_t i, T& right) {
                return right = element<T>(i < count ? (rank + n - 1) % n : rank, i % count), true;
            });
    }
}

__global__ void change(float* data, int count, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] += by;
}

// Kernels before and after it, in place, the same many times, with a factor that each rank has for itself.
static void in_order(Local& local) {
    const int count = 5000, n = local.all;
    together<float>(
        local, "kernels and AllReduce", count, count,
        [=](Rank& r, float* send, float* recv) {
            CHECK(cudaSetDevice(r.device));
            change<<<(count + 255) / 256, 256, 0, r.stream>>>(send, count, 1);
            NCCL(ncclAllReduce, REDUCED, send, recv, count, 7, SUM, r.comm, r.stream);
        },
        [=](int, size_t i, float& right) { return right = combined<float>(SUM, n, i) + n, true; });
    for (Rank& r : local.ranks) {
        float factor = 0.5f;
        int op = -1;
        NCCL(ncclRedOpCreatePreMulSum, (int*, void*, int, int, Comm), &op, &factor, 7, 1, r.comm);
        REQUIRE(op >= 5, "the operator %d", op);
    }
    together<float>(
        local, "a factor of one's own", count, count,
        [=](Rank& r, float* send, float* recv) { NCCL(ncclAllReduce, REDUCED, send, recv, count, 7, 5, r.comm, r.stream); },
        [=](int, size_t i, float& right) { return right = combined<float>(SUM, n, i) * 0.5f, true; });
    for (Rank& r : local.ranks) {
        EXPECT_STATUS(4, ncclAllReduce, REDUCED, &r, &r, 1, 8, 5, r.comm, r.stream);
        NCCL(ncclRedOpDestroy, (int, Comm), 5, r.comm);
        EXPECT_STATUS(4, ncclRedOpDestroy, (int, Comm), 5, r.comm);
    }
    // Several in one group, one after another; the second reads what the first has written.
    together<float>(
        local, "twice", count, count,
        [=](Rank& r, float* send, float* recv) {
            NCCL(ncclAllReduce, REDUCED, send, recv, count, 7, SUM, r.comm, r.stream);
            NCCL(ncclAllReduce, REDUCED, recv, recv, count, 7, SUM, r.comm, r.stream);
        },
        [=](int, size_t i, float& right) { return right = combined<float>(SUM, n, i) * n, true; });
}

// What makes no sense is refused at once, with NCCL's status.
static void refusals(Rank& r, int n) {
    CHECK(cudaSetDevice(r.device));
    DeviceArray<float> data(64);
    float host[4] = {};
    EXPECT_STATUS(4, ncclBroadcast, ROOTED, data, data, 4, 7, n, r.comm, r.stream);
    EXPECT_STATUS(4, ncclBroadcast, ROOTED, data, data, 4, 7, -1, r.comm, r.stream);
    EXPECT_STATUS(4, ncclSend, MESSAGE, data, 4, 7, n, r.comm, r.stream);
    EXPECT_STATUS(4, ncclAllReduce, REDUCED, nullptr, data, 4, 7, SUM, r.comm, r.stream);
    EXPECT_STATUS(4, ncclAllReduce, REDUCED, host, data, 4, 7, SUM, r.comm, r.stream);
    EXPECT_STATUS(4, ncclAllReduce, REDUCED, data, data, SIZE_MAX / 2, 7, SUM, r.comm, r.stream);
    EXPECT_STATUS(4, ncclAllReduce, REDUCED, data, data, 4, 12, SUM, r.comm, r.stream);
    EXPECT_STATUS(4, ncclAllReduce, REDUCED, data, data, 4, 7, 99, r.comm, r.stream);
    EXPECT_STATUS(5, ncclAllReduce, REDUCED, data, data, 4, 10, SUM, r.comm, r.stream);
    EXPECT_STATUS(4, ncclAllReduce, REDUCED, data, data, 4, 7, SUM, nullptr, r.stream);
    EXPECT_STATUS(4, ncclCommCount, (Comm, int*), r.comm, nullptr);
    EXPECT_STATUS(5, ncclGroupEnd, (), );
    EXPECT_STATUS(4, ncclCommInitRank, (Comm*, int, Id, int), &r.comm, 2, Id{}, 0);
    Stream captured;
    cudaGraph_t graph;
    CHECK(cudaStreamCreate(&captured));
    CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    EXPECT_STATUS(5, ncclAllReduce, REDUCED, data, data, 4, 7, SUM, r.comm, captured);
    CHECK(cudaStreamEndCapture(captured, &graph));
    // A failure within a group is its end's, too.
    NCCL(ncclGroupStart, (), );
    EXPECT_STATUS(4, ncclSend, MESSAGE, data, 4, 7, n, r.comm, r.stream);
    EXPECT_STATUS(4, ncclGroupEnd, (), );
    int count = 0, rank = -1, device = -1, error = -1;
    NCCL(ncclCommCount, (Comm, int*), r.comm, &count);
    NCCL(ncclCommUserRank, (Comm, int*), r.comm, &rank);
    NCCL(ncclCommCuDevice, (Comm, int*), r.comm, &device);
    NCCL(ncclCommGetAsyncError, (Comm, int*), r.comm, &error);
    REQUIRE(count == n && rank == r.number && device == r.device && error == 0, "rank %d of %d, device %d, error %d", rank,
            count, device, error);
}

// A window says where its memory is; operations on that memory are as without one.
static void windows(Local& local) {
    typedef struct Opaque* Window;
    for (Rank& r : local.ranks) {
        CHECK(cudaSetDevice(r.device));
        DeviceArray<float> data(64);
        Window window = nullptr;
        float host[4] = {};
        void* found = nullptr;
        NCCL(ncclCommWindowRegister, (Comm, void*, size_t, Window*, int), r.comm, data, 64 * sizeof(float), &window, 1);
        REQUIRE(window, "there is no window");
        NCCL(ncclWinGetUserPtr, (Comm, Window, void**), r.comm, window, &found);
        REQUIRE(found == (void*)(float*)data, "a window at %p", found);
        EXPECT_STATUS(4, ncclCommWindowRegister, (Comm, void*, size_t, Window*, int), r.comm, host, sizeof host, &window, 0);
        NCCL(ncclCommWindowDeregister, (Comm, Window), r.comm, window);
        EXPECT_STATUS(4, ncclCommWindowDeregister, (Comm, Window), r.comm, window);
        EXPECT_STATUS(4, ncclWinGetUserPtr, (Comm, Window, void**), r.comm, window, &found);
    }
}

// Even and odd ranks by themselves, in the opposite order.
static void split(Local& local) {
    std::vector<Comm> whole;
    NCCL(ncclGroupStart, (), );
    for (Rank& r : local.ranks) {
        whole.push_back(r.comm);
        NCCL(ncclCommSplit, (Comm, int, int, Comm*, void*), r.comm, r.number % 2, -r.number, &r.comm, nullptr);
    }
    NCCL(ncclGroupEnd, (), );
    int n = local.all;
    together<int32_t>(
        local, "AllGather after Split", 1, (n + 1) / 2,
        [=](Rank& r, int32_t* send, int32_t* recv) { NCCL(ncclAllGather, COLLECTIVE, send, recv, 1, 2, r.comm, r.stream); },
        [=](int rank, size_t i, int32_t& right) {
            int members = (n - rank % 2 + 1) / 2, last = rank % 2 + (members - 1) * 2;
            return (int)i < members && (right = element<int32_t>(last - 2 * (int)i, 0), true);
        });
    for (size_t r = 0; r < local.ranks.size(); r++) {
        NCCL(ncclCommDestroy, (Comm), local.ranks[r].comm);
        local.ranks[r].comm = whole[r];
    }
}

static void all(Local& local) {
    for (Rank& r : local.ranks) {
        CHECK(cudaSetDevice(r.device));
        CHECK(cudaStreamCreate(&r.stream));
    }
    reductions<int8_t>(local);
    reductions<uint8_t>(local);
    reductions<int32_t>(local);
    reductions<uint32_t>(local);
    reductions<int64_t>(local);
    reductions<uint64_t>(local);
    reductions<__half>(local);
    reductions<float>(local);
    reductions<double>(local);
    reductions<__nv_bfloat16>(local);
    movements<uint8_t>(local);
    movements<__half>(local);
    movements<double>(local);
    in_order(local);
    for (Rank& r : local.ranks) refusals(r, local.all);
    windows(local);
    split(local);
    for (Rank& r : local.ranks) NCCL(ncclCommFinalize, (Comm), r.comm);
    for (Rank& r : local.ranks) {
        NCCL(ncclCommDestroy, (Comm), r.comm);
        EXPECT_STATUS(4, ncclCommDestroy, (Comm), r.comm);
    }
}

static Id id_by_file(int rank, const char* path) {
    Id id;
    std::string fresh = std::string(path) + ".new";
    if (getenv("NCCL_COMM_ID")) {
        // All know beforehand where they meet.
        NCCL(ncclGetUniqueId, (Id*), &id);
        return id;
    }
    if (rank == 0) {
        NCCL(ncclGetUniqueId, (Id*), &id);
        FILE* file = fopen(fresh.c_str(), "wb");
        REQUIRE(file && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0, "cannot write %s", path);
        REQUIRE(rename(fresh.c_str(), path) == 0, "cannot rename to %s", path);
        return id;
    }
    FILE* file;
    for (int tries = 0; !(file = fopen(path, "rb")); tries++) {
        REQUIRE(tries < 6000, "%s does not come", path);
        usleep(20000);
    }
    REQUIRE(fread(&id, sizeof id, 1, file) == 1, "cannot read %s", path);
    fclose(file);
    return id;
}

static void lost(Rank& r) {
    CHECK(cudaSetDevice(r.device));
    if (r.number == 1) _exit(0);
    DeviceArray<float> data(100000);
    NCCL(ncclAllReduce, REDUCED, data, data, 100000, 7, SUM, r.comm, cudaStreamPerThread);
    // The stream does not wait for ever, and what waits for it hears that something is wrong.
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess, "nobody noticed");
    int error = 0;
    NCCL(ncclCommGetAsyncError, (Comm, int*), r.comm, &error);
    REQUIRE(error == 6, "the error %d", error);
    EXPECT_STATUS(6, ncclAllReduce, REDUCED, data, data, 100000, 7, SUM, r.comm, cudaStreamPerThread);
    NCCL(ncclCommAbort, (Comm), r.comm);
    // The device is as well as it was.
    CHECK(cudaMemset(data, 0, 400000));
    CHECK(cudaDeviceSynchronize());
}

int main(int argc, char** argv) {
    REQUIRE(argc >= 3, "nccl one|threads N, or nccl rank|lost R N FILE");
    std::string how = argv[1];
    int version = 0;
    NCCL(ncclGetVersion, (int*), &version);
    REQUIRE(version >= 20000, "version %d", version);
    if (how == "rank" || how == "lost") {
        REQUIRE(argc == 5, "nccl rank R N FILE");
        Rank rank{atoi(argv[2]), 0};
        int ranks = atoi(argv[3]);
        Id id = id_by_file(rank.number, argv[4]);
        CHECK(cudaSetDevice(0));
        NCCL(ncclCommInitRank, (Comm*, int, Id, int), &rank.comm, ranks, id, rank.number);
        if (how == "lost") {
            lost(rank);
        } else {
            Local local{{rank}, ranks};
            all(local);
        }
        return ok("rank %d of %d", rank.number, ranks);
    }
    int n = atoi(argv[2]);
    Local local{{}, n};
    for (int i = 0; i < n; i++) local.ranks.push_back(Rank{i, i});
    if (how == "one") {
        std::vector<Comm> comms(n);
        NCCL(ncclCommInitAll, (Comm*, int, const int*), comms.data(), n, nullptr);
        for (int i = 0; i < n; i++) local.ranks[i].comm = comms[i];
        int twice[2] = {0, 0};
        if (n >= 2) EXPECT_STATUS(5, ncclCommInitAll, (Comm*, int, const int*), comms.data(), 2, twice);
        all(local);
        return ok("%d devices of one thread", n);
    }
    Id id;
    NCCL(ncclGetUniqueId, (Id*), &id);
    std::vector<std::thread> threads;
    for (Rank rank : local.ranks)
        threads.emplace_back([=]() mutable {
            CHECK(cudaSetDevice(rank.device));
            // One that does not wait, as frameworks make them.
            Config config = {sizeof config, 0xcafebeef, 23007, 0, {}, {}};
            for (int& undefined : config.rest) undefined = INT_MIN;
            int status = ((int (*)(Comm*, int, Id, int, Config*))find("ncclCommInitRankConfig"))(&rank.comm, n, id, rank.number, &config);
            REQUIRE(status == 0 || status == 7, "ncclCommInitRankConfig gave %d", status);
            for (int error = 7; error == 7; usleep(1000)) NCCL(ncclCommGetAsyncError, (Comm, int*), rank.comm, &error);
            Local own{{rank}, n};
            // What comes of a communicator that does not wait does not, either.
            for (Rank& r : own.ranks) CHECK(cudaStreamCreate(&r.stream));
            reductions<float>(own);
            movements<int32_t>(own);
            in_order(own);
            NCCL(ncclCommDestroy, (Comm), rank.comm);
        });
    for (auto& thread : threads) thread.join();
    return ok("%d threads", n);
}
