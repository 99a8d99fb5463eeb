// Asks NVML what nvidia-smi asks, by default and with -q, through libnvidia-ml.so.1 opened at run time. Prints each
// answer; compares with CUDA what both know; checks that what nobody knows is said to be not supported. With the argument
// `native`, for NVIDIA's own library, it only asks, and nothing that could change a device.
#define EXAMPLE "nvml_queries"
#include "common/check.h"

#include <dlfcn.h>
#include <string>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void* Device;
static void* library;
static int answered, refused;
static bool native;

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

template <class... Arguments>
static int call(const char* name, Arguments... arguments) {
    auto function = (int (*)(Arguments...))dlsym(library, name);
    if (!function) fail("there is no %s", name);
    return function(arguments...);
}

static const char* text_of(int code) {
    return ((const char* (*)(int))dlsym(library, "nvmlErrorString"))(code);
}

// A call that must be answered.
template <class... Arguments>
static void must(const char* name, Arguments... arguments) {
    int code = call(name, arguments...);
    if (code != SUCCESS) fail("%s: %s (%d)", name, text_of(code), code);
    answered++;
}

// A call that is answered, or whose subject the device lacks.
template <class... Arguments>
static bool may(const char* name, Arguments... arguments) {
    int code = call(name, arguments...);
    if (code != SUCCESS && code != NOT_SUPPORTED && !native) fail("%s: %s (%d)", name, text_of(code), code);
    (code == SUCCESS ? answered : refused)++;
    if (code != SUCCESS) printf("  %-48s [N/A]\n", name);
    return code == SUCCESS;
}

static void number(Device device, const char* name) {
    unsigned long long value = 0;
    if (may(name, device, &value)) printf("  %-48s %llu\n", name, value);
}

static void number_at(Device device, const char* name, unsigned index) {
    unsigned value = 0;
    if (may(name, device, index, &value)) printf("  %s(%u) = %u\n", name, index, value);
}

static void two(Device device, const char* name) {
    unsigned a = 0, b = 0;
    if (may(name, device, &a, &b)) printf("  %-48s %u %u\n", name, a, b);
}

static void text(Device device, const char* name) {
    char buffer[96] = "";
    if (may(name, device, buffer, (unsigned)sizeof buffer)) printf("  %-48s %s\n", name, buffer);
}

struct Pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
struct Memory {
    unsigned long long total, free, used;
};
struct Memory2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct Process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};
struct Field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
};

static Memory memory_of(Device device) {
    Memory memory;
    must("nvmlDeviceGetMemoryInfo", device, &memory);
    REQUIRE(native || memory.used + memory.free == memory.total, "memory does not add up");
    return memory;
}

// What nvidia-smi's table shows, and what its long listing adds.
static void list(Device device) {
    text(device, "nvmlDeviceGetName");
    text(device, "nvmlDeviceGetUUID");
    for (const char* name : {"nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetBoardPartNumber",
                             "nvmlDeviceGetInforomImageVersion"})
        text(device, name);
    for (unsigned object = 0; object < 3; object++) {
        char buffer[96] = "";
        may("nvmlDeviceGetInforomVersion", device, object, buffer, (unsigned)sizeof buffer);
    }
    for (const char* name : {"nvmlDeviceGetPersistenceMode", "nvmlDeviceGetDisplayActive", "nvmlDeviceGetDisplayMode",
                             "nvmlDeviceGetFanSpeed", "nvmlDeviceGetPerformanceState", "nvmlDeviceGetPowerUsage",
                             "nvmlDeviceGetPowerManagementMode", "nvmlDeviceGetPowerManagementLimit",
                             "nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetEnforcedPowerLimit",
                             "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetComputeMode",
                             "nvmlDeviceGetAccountingMode", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetBrand",
                             "nvmlDeviceGetArchitecture", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMemoryBusWidth",
                             "nvmlDeviceGetMultiGpuBoard", "nvmlDeviceGetBoardId", "nvmlDeviceGetVirtualizationMode",
                             "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkGeneration",
                             "nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetCurrPcieLinkWidth",
                             "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetCurrentClocksThrottleReasons",
                             "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons",
                             "nvmlDeviceGetNumFans", "nvmlDeviceGetIrqNum", "nvmlDeviceGetPowerSource",
                             "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceIsMigDeviceHandle",
                             "nvmlDeviceGetRetiredPagesPendingStatus"})
        number(device, name);
    for (const char* name : {"nvmlDeviceGetMigMode", "nvmlDeviceGetEccMode", "nvmlDeviceGetEncoderUtilization",
                             "nvmlDeviceGetDecoderUtilization", "nvmlDeviceGetJpgUtilization",
                             "nvmlDeviceGetOfaUtilization", "nvmlDeviceGetGpuOperationMode",
                             "nvmlDeviceGetGspFirmwareMode", "nvmlDeviceGetPowerManagementLimitConstraints"})
        two(device, name);
    for (unsigned i = 0; i < 4; i++)
        for (const char* name : {"nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo",
                                 "nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock",
                                 "nvmlDeviceGetMaxCustomerBoostClock", "nvmlDeviceGetTemperatureThreshold"})
            number_at(device, name, i);
    number_at(device, "nvmlDeviceGetTemperature", 0);
    for (unsigned i = 0; i < 2; i++) number_at(device, "nvmlDeviceGetPcieThroughput", i);
    for (unsigned i = 0; i < 18; i++) number_at(device, "nvmlDeviceGetNvLinkState", i);
    for (unsigned kind = 0; kind < 2; kind++)
        for (unsigned counter = 0; counter < 2; counter++) {
            unsigned long long errors;
            may("nvmlDeviceGetTotalEccErrors", device, kind, counter, &errors);
            for (unsigned location = 0; location < 8; location++)
                may("nvmlDeviceGetMemoryErrorCounter", device, kind, counter, location, &errors);
        }
    unsigned rows[4];
    may("nvmlDeviceGetRemappedRows", device, rows, rows + 1, rows + 2, rows + 3);
    for (unsigned policy = 0; policy < 6; policy++) {
        unsigned long long times[2];
        may("nvmlDeviceGetViolationStatus", device, policy, times);
    }
    Memory bar;
    may("nvmlDeviceGetBAR1MemoryInfo", device, &bar);
    unsigned rates[2];
    must("nvmlDeviceGetUtilizationRates", device, rates);
    REQUIRE(rates[0] <= 100 && rates[1] <= 100, "utilisation is %u and %u", rates[0], rates[1]);
    Memory2 memory = {sizeof(Memory2) | 2u << 24};
    must("nvmlDeviceGetMemoryInfo_v2", device, &memory);
    REQUIRE(native || memory.reserved + memory.used + memory.free == memory.total, "memory does not add up");
    memory.version = 7;
    REQUIRE(native || call("nvmlDeviceGetMemoryInfo_v2", device, &memory) == 25, "a wrong structure was accepted");
    Field fields[3] = {{82}, {83}, {186}};
    must("nvmlDeviceGetFieldValues", device, 3, fields);
    for (const Field& field : fields)
        REQUIRE(field.result == SUCCESS || field.result == NOT_SUPPORTED, "field %u: %d", field.id, field.result);
    if (native) return;
    // What would change the device is refused; what is not implemented says so.
    REQUIRE(call("nvmlDeviceSetPowerManagementLimit", device, 1000u) == NOT_SUPPORTED, "a limit was set");
    REQUIRE(call("nvmlDeviceGetSamples", device, 0u, 0ull, (int*)0, (unsigned*)0, (void*)0) == NOT_SUPPORTED,
            "samples were given");
}

// This process is listed, with the memory that it uses.
static void own_process(Device device, const Memory& memory, size_t size) {
    Process process[4];
    unsigned processes = 0;
    REQUIRE(call("nvmlDeviceGetComputeRunningProcesses_v3", device, &processes, process) == INSUFFICIENT_SIZE &&
                processes == 1, "this process is not listed");
    processes = 4;
    must("nvmlDeviceGetComputeRunningProcesses_v3", device, &processes, process);
    REQUIRE(processes == 1 && process[0].pid == (unsigned)getpid(), "process %u is listed", process[0].pid);
    REQUIRE(process[0].memory >= size && process[0].memory <= memory.total, "it uses %llu bytes", process[0].memory);
    REQUIRE(memory.used >= size, "%llu bytes are in use", memory.used);
    char own[256], whole[256] = "";
    must("nvmlSystemGetProcessName", process[0].pid, own, 256u);
    REQUIRE(strstr(own, EXAMPLE), "this process is called %s", own);
    must("nvmlSystemGetProcessName", process[0].pid, whole, 5u);
    REQUIRE(!strncmp(own, whole, 4) && !whole[4], "a short buffer holds %s", whole);
}

__global__ void spin(unsigned rounds, unsigned* out) {
    unsigned value = threadIdx.x;
    for (unsigned i = 0; i < rounds; i++) value = value * 1664525u + 1013904223u;
    out[threadIdx.x] = value;
}

static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char** argv) {
    native = argc > 1 && !strcmp(argv[1], "native");
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) fail("%s", dlerror());
    unsigned count = 0;
    REQUIRE(call("nvmlDeviceGetCount_v2", &count) == UNINITIALIZED, "NVML answers before it is initialised");
    must("nvmlInit_v2");
    must("nvmlInit");
    must("nvmlShutdown");
    must("nvmlDeviceGetCount_v2", &count);
    REQUIRE(count > 0, "there are no devices");
    char driver[80], version[80];
    int cuda = 0;
    must("nvmlSystemGetDriverVersion", driver, 80u);
    must("nvmlSystemGetNVMLVersion", version, 80u);
    must("nvmlSystemGetCudaDriverVersion_v2", &cuda);
    REQUIRE(call("nvmlSystemGetDriverVersion", driver, 2u) == INSUFFICIENT_SIZE, "a short buffer was filled");
    printf("driver %s, NVML %s, CUDA %d.%d, %u devices\n", driver, version, cuda / 1000, cuda % 1000 / 10, count);

    // NVML has not begun CUDA: a child that is forked now can use it, NVML too.
    fflush(stdout);
    // (NVIDIA's own has to be initialised in it.)
    pid_t child = fork();
    if (child == 0) {
        if (native) must("nvmlInit_v2");
        Device device;
        int devices = 0;
        if (call("nvmlDeviceGetHandleByIndex_v2", 0u, &device) != SUCCESS) _exit(3);
        Memory memory;
        if (call("nvmlDeviceGetMemoryInfo", device, &memory) != SUCCESS) _exit(4);
        if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) _exit(5);
        void* pointer;
        _exit(cudaMalloc(&pointer, 1 << 20) == cudaSuccess ? 0 : 6);
    }
    int status;
    waitpid(child, &status, 0);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child ended with %#x", status);

    Device device, again;
    REQUIRE(call("nvmlDeviceGetHandleByIndex_v2", count, &device) == INVALID_ARGUMENT, "there is one device too many");
    REQUIRE(call("nvmlDeviceGetHandleByUUID", "GPU-0", &device) == NOT_FOUND, "a UUID was made up");
    must("nvmlDeviceGetHandleByIndex_v2", 0u, &device);
    char uuid[96];
    must("nvmlDeviceGetUUID", device, uuid, 96u);
    must("nvmlDeviceGetHandleByUUID", (const char*)uuid, &again);
    REQUIRE(again == device, "the UUID leads to another device");
    Pci pci;
    must("nvmlDeviceGetPciInfo_v3", device, &pci);
    must("nvmlDeviceGetHandleByPciBusId_v2", (const char*)pci.bus_id, &again);
    REQUIRE(again == device, "the PCI address leads to another device");
    must("nvmlDeviceGetHandleByPciBusId_v2", (const char*)pci.legacy, &again);
    unsigned index = 7, processes = 0;
    must("nvmlDeviceGetIndex", device, &index);
    REQUIRE(index == 0, "the first device is number %u", index);
    int code = call("nvmlDeviceGetComputeRunningProcesses_v3", device, &processes, (Process*)0);
    REQUIRE(native || code == SUCCESS, "nvmlDeviceGetComputeRunningProcesses_v3: %s", text_of(code));
    REQUIRE(native || processes == 0, "a process that doesn't compute is listed");
    list(device);

    // What CUDA says of the same device.
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    char name[96];
    must("nvmlDeviceGetName", device, name, 96u);
    REQUIRE(!strcmp(name, properties.name), "CUDA calls it %s, NVML %s", properties.name, name);
    std::string expected = "GPU";
    for (int i = 0; i < 16; i++) {
        char byte[8];
        bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        snprintf(byte, sizeof byte, "%s%02x", dash ? "-" : "", (unsigned char)properties.uuid.bytes[i]);
        expected += byte;
    }
    REQUIRE(expected == uuid, "CUDA's UUID is %s, NVML's %s", expected.c_str(), uuid);
    int major = 0, minor = 0;
    must("nvmlDeviceGetCudaComputeCapability", device, &major, &minor);
    REQUIRE(major == properties.major && minor == properties.minor, "compute capability %d.%d", major, minor);
    REQUIRE((int)pci.bus == properties.pciBusID, "PCI bus %u and %d", pci.bus, properties.pciBusID);

    Memory before = memory_of(device);
    size_t free_bytes, total;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    REQUIRE(native || total == before.total, "CUDA has %zu bytes, NVML %llu", total, before.total);
    const size_t size = 64 << 20;
    unsigned* data;
    CHECK(cudaMalloc(&data, size));
    CHECK(cudaDeviceSynchronize());
    usleep(100000);
    Memory after = memory_of(device);
    if (!native) own_process(device, after, size);

    // A busy device is seen to be busy.
    unsigned rates[2] = {0, 0};
    double end = now() + 30;
    while (rates[0] == 0 && now() < end) {
        spin<<<64, 256>>>(20000, data);
        CHECK(cudaDeviceSynchronize());
        if (count == 1) must("nvmlDeviceGetUtilizationRates", device, rates);
        else rates[0] = 1;
    }
    REQUIRE(rates[0] > 0 && rates[0] <= 100, "a busy device is busy for %u%%", rates[0]);

    void* events;
    must("nvmlEventSetCreate", &events);
    unsigned char event[32];
    REQUIRE(call("nvmlEventSetWait_v2", events, event, 1u) == 10, "an event came");
    must("nvmlEventSetFree", events);
    must("nvmlShutdown");
    REQUIRE(call("nvmlShutdown") == UNINITIALIZED, "NVML was shut down twice");
    REQUIRE(call("nvmlDeviceGetCount_v2", &count) == UNINITIALIZED, "NVML answers after its end");
    return ok("%d queries answered, %d not supported by the device", answered, refused);
}
