/* A stand-in for NVIDIA's libnvidia-ml.so.1: answers from a memory-mapped file, see layout.py.
 *
 * Signatures and structs are those of nvml.h as nvidia-ml-py (pynvml.py) declares them. A function that is
 * not here does not exist for the caller, as with an older driver (pynvml: FUNCTION_NOT_FOUND, 13);
 * a figure that the file marks absent answers NOT_SUPPORTED, as with a card that lacks the sensor. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"

#ifndef DEFAULT_FILE
#define DEFAULT_FILE "/run/gpuconsole-lab/nvml.values"
#endif

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    UNKNOWN = 999,
};

#define ABSENT32 0xFFFFFFFFu
#define ABSENT64 0xFFFFFFFFFFFFFFFFull
#define API __attribute__((visibility("default")))

typedef int Return;

/* A caller's nvmlDevice_t points at one of these. */
typedef struct {
    unsigned device;
    unsigned mig; /* index of the MIG device + 1; 0 is the card itself */
} Handle;

static Handle handles[VALUES_MAX_DEVICES][VALUES_MAX_MIG + 1];
static volatile Values *values;
static int writable; /* the setters answer NO_PERMISSION where it is not */
static unsigned initialised;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the file, and what each call does first ---- */

/* Reads of the utilisation, in the 8-byte file that GPUCONSOLE_NVML_COUNT names: how often a program really polls. */
static volatile uint64_t *reads;

static void map_counter(void) {
    const char *path = getenv("GPUCONSOLE_NVML_COUNT");
    if (!path || !*path || reads) return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) reads = mapped;
}

static Return map_file(void) {
    const char *path = getenv("GPUCONSOLE_NVML_FILE");
    const char *no_root = getenv("GPUCONSOLE_NVML_NO_ROOT");
    struct stat status;
    if (!path || !*path) path = DEFAULT_FILE;
    int file = no_root && *no_root ? -1 : open(path, O_RDWR | O_CLOEXEC);
    writable = file >= 0;
    if (file < 0) file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return DRIVER_NOT_LOADED;
    if (fstat(file, &status) != 0 || (size_t)status.st_size < sizeof(Values)) {
        close(file);
        return UNKNOWN;
    }
    void *mapped = mmap(NULL, sizeof(Values), writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return UNKNOWN;
    values = mapped;
    map_counter();
    if (values->magic == VALUES_MAGIC && values->version == VALUES_VERSION) return SUCCESS;
    munmap(mapped, sizeof(Values));
    values = NULL;
    return UNKNOWN;
}

static void hang(void) {
    struct timespec slice = {0, 20 * 1000 * 1000};
    for (unsigned waited = 0; waited < values->hang_ms; waited += 20) nanosleep(&slice, NULL);
}

/* Copies the card of a handle. MIG handles pass only where the caller accepts them. */
static Return enter(const Handle *handle, Device *device) {
    if (!initialised) return UNINITIALIZED;
    if (!handle) return INVALID_ARGUMENT;
    hang();
    *device = *(const Device *)&values->devices[handle->device];
    return (Return)device->error;
}

static Return enter_card(const Handle *handle, Device *device) {
    Return error = enter(handle, device);
    return error ? error : handle->mig ? NOT_SUPPORTED : SUCCESS;
}

static Return enter_system(void) {
    if (!initialised) return UNINITIALIZED;
    hang();
    return SUCCESS;
}

static Return put32(uint32_t value, unsigned *out) {
    if (!out) return INVALID_ARGUMENT;
    if (value == ABSENT32) return NOT_SUPPORTED;
    *out = value;
    return SUCCESS;
}

static Return put64(uint64_t value, unsigned long long *out) {
    if (!out) return INVALID_ARGUMENT;
    if (value == ABSENT64) return NOT_SUPPORTED;
    *out = value;
    return SUCCESS;
}

static Return put_text(const char *text, char *out, unsigned size) {
    if (!out) return INVALID_ARGUMENT;
    if (!*text) return NOT_SUPPORTED;
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

#define CARD(handle)                             \
    Device device;                               \
    do {                                         \
        Return error = enter_card(handle, &device); \
        if (error) return error;                 \
    } while (0)

#define GIVES_U32(function, field) \
    API Return function(const Handle *handle, unsigned *out) { CARD(handle); return put32(device.field, out); }
#define GIVES_U64(function, field) \
    API Return function(const Handle *handle, unsigned long long *out) { CARD(handle); return put64(device.field, out); }
#define GIVES_TEXT(function, field) \
    API Return function(const Handle *handle, char *out, unsigned size) { CARD(handle); return put_text(device.field, out, size); }
#define GIVES_TWO(function, first_field, second_field)                                  \
    API Return function(const Handle *handle, unsigned *first, unsigned *second) {      \
        CARD(handle);                                                                   \
        Return error = put32(device.first_field, first);                                \
        return error ? error : put32(device.second_field, second);                      \
    }

/* ---- library and system ---- */

API Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    Return error = initialised ? SUCCESS : map_file();
    if (!error) {
        hang();
        error = (Return)values->init_error;
    }
    if (!error) {
        initialised++;
        for (unsigned i = 0; i < VALUES_MAX_DEVICES; i++)
            for (unsigned j = 0; j <= VALUES_MAX_MIG; j++) handles[i][j] = (Handle){i, j};
    }
    pthread_mutex_unlock(&lock);
    return error;
}

API Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API Return nvmlInit(void) { return nvmlInitWithFlags(0); }

/* The mapping stays: another thread may be inside a call, and a few kilobytes leak in tests only. */
API Return nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    Return error = initialised ? SUCCESS : UNINITIALIZED;
    if (initialised) initialised--;
    pthread_mutex_unlock(&lock);
    return error;
}

API const char *nvmlErrorString(Return result) {
    switch (result) {
        case 0: return "Success";
        case 1: return "Uninitialized";
        case 2: return "Invalid Argument";
        case 3: return "Not Supported";
        case 4: return "Insufficient Permissions";
        case 6: return "Not Found";
        case 7: return "Insufficient Size";
        case 9: return "Driver Not Loaded";
        case 10: return "Timeout";
        case 12: return "NVML Shared Library Not Found";
        case 13: return "Function Not Found";
        case 15: return "GPU is lost";
        case 16: return "GPU requires reset";
        case 18: return "RM has detected an NVML/RM version mismatch.";
        case 999: return "Unknown Error";
        default: return "Unknown Error code";
    }
}

API Return nvmlSystemGetDriverVersion(char *out, unsigned size) {
    Return error = enter_system();
    return error ? error : put_text((const char *)values->driver_version, out, size);
}

API Return nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    Return error = enter_system();
    return error ? error : put_text((const char *)values->nvml_version, out, size);
}

API Return nvmlSystemGetCudaDriverVersion_v2(int *out) {
    Return error = enter_system();
    return error ? error : put32(values->cuda_version, (unsigned *)out);
}

API Return nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

API Return nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    char path[64], name[1024] = "";
    Return error = enter_system();
    if (error) return error;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (!file) return NOT_FOUND;
    size_t got = fread(name, 1, sizeof name - 1, file);
    fclose(file);
    if (!got || !out) return NOT_FOUND;
    snprintf(out, size, "%s", name);
    return SUCCESS;
}

/* ---- which cards ---- */

API Return nvmlDeviceGetCount_v2(unsigned *count) {
    Return error = enter_system();
    return error ? error : put32(values->device_count, count);
}

API Return nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

API Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle **out) {
    Return error = enter_system();
    if (error) return error;
    if (!out || index >= values->device_count || index >= VALUES_MAX_DEVICES) return INVALID_ARGUMENT;
    *out = &handles[index][0];
    /* A driver tells of a lost card here already. */
    return (Return)values->devices[index].error;
}

API Return nvmlDeviceGetHandleByIndex(unsigned index, Handle **out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }

API Return nvmlDeviceGetHandleByUUID(const char *uuid, Handle **out) {
    Return error = enter_system();
    if (error) return error;
    if (!uuid || !out) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < values->device_count && i < VALUES_MAX_DEVICES; i++) {
        const Device *device = (const Device *)&values->devices[i];
        unsigned instances = device->mig_count == ABSENT32 ? 0 : device->mig_count;
        *out = &handles[i][0];
        if (strcmp(device->uuid, uuid) == 0) return (Return)device->error;
        for (unsigned j = 0; j < instances && j < VALUES_MAX_MIG; j++) {
            *out = &handles[i][j + 1];
            if (strcmp(device->mig[j].uuid, uuid) == 0) return (Return)device->error;
        }
    }
    return NOT_FOUND;
}

API Return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Handle **out) {
    Return error = enter_system();
    if (error) return error;
    if (!bus_id || !out) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < values->device_count && i < VALUES_MAX_DEVICES; i++) {
        const char *known = (const char *)values->devices[i].bus_id;
        *out = &handles[i][0];
        /* Callers write the domain with four digits or with eight. */
        if (strcasecmp(known, bus_id) == 0 || (strlen(known) > 4 && strcasecmp(known + 4, bus_id) == 0))
            return (Return)values->devices[i].error;
    }
    return NOT_FOUND;
}

/* ---- identity ---- */

API Return nvmlDeviceGetName(const Handle *handle, char *out, unsigned size) {
    Device device;
    Return error = enter(handle, &device);
    if (error) return error;
    return put_text(handle->mig ? device.mig[handle->mig - 1].name : device.name, out, size);
}

API Return nvmlDeviceGetUUID(const Handle *handle, char *out, unsigned size) {
    Device device;
    Return error = enter(handle, &device);
    if (error) return error;
    return put_text(handle->mig ? device.mig[handle->mig - 1].uuid : device.uuid, out, size);
}

API Return nvmlDeviceGetIndex(const Handle *handle, unsigned *out) {
    CARD(handle);
    return put32(handle->device, out);
}

GIVES_TEXT(nvmlDeviceGetSerial, serial)
GIVES_TEXT(nvmlDeviceGetVbiosVersion, vbios)
GIVES_U32(nvmlDeviceGetMinorNumber, minor_number)
GIVES_U32(nvmlDeviceGetBrand, brand)
GIVES_U32(nvmlDeviceGetArchitecture, architecture)
GIVES_TWO(nvmlDeviceGetCudaComputeCapability, compute_major, compute_minor)

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

API Return nvmlDeviceGetPciInfo_v3(const Handle *handle, PciInfo *out) {
    CARD(handle);
    if (!out) return INVALID_ARGUMENT;
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%.31s", device.bus_id);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%.15s", strlen(device.bus_id) > 4 ? device.bus_id + 4 : "");
    out->domain = device.pci_domain;
    out->bus = device.pci_bus;
    out->device = device.pci_device;
    out->pci_device_id = device.pci_device_id;
    out->pci_subsystem_id = device.pci_subsystem_id;
    return SUCCESS;
}

/* Windows only on a real driver too. */
API Return nvmlDeviceGetDriverModel(const Handle *handle, unsigned *current, unsigned *pending) {
    CARD(handle);
    (void)current, (void)pending;
    return NOT_SUPPORTED;
}

API Return nvmlDeviceGetDriverModel_v2(const Handle *handle, unsigned *current, unsigned *pending) {
    return nvmlDeviceGetDriverModel(handle, current, pending);
}

/* ---- memory ---- */

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;

static Return memory(const Handle *handle, MemoryV2 *out) {
    Device device;
    Return error = enter(handle, &device);
    if (error) return error;
    uint64_t total = handle->mig ? device.mig[handle->mig - 1].memory_total : device.memory_total;
    uint64_t used = handle->mig ? device.mig[handle->mig - 1].memory_used : device.memory_used;
    if (total == ABSENT64 || used == ABSENT64) return NOT_SUPPORTED;
    out->total = total;
    out->used = used;
    out->reserved = handle->mig || device.memory_reserved == ABSENT64 ? 0 : device.memory_reserved;
    out->free = total - out->reserved - used;
    return SUCCESS;
}

/* The first version counts what the driver reserves as used. */
API Return nvmlDeviceGetMemoryInfo(const Handle *handle, Memory *out) {
    MemoryV2 full;
    if (!out) return INVALID_ARGUMENT;
    Return error = memory(handle, &full);
    if (!error) *out = (Memory){full.total, full.free, full.used + full.reserved};
    return error;
}

API Return nvmlDeviceGetMemoryInfo_v2(const Handle *handle, MemoryV2 *out) {
    if (!out || out->version != (sizeof(MemoryV2) | 2u << 24)) return INVALID_ARGUMENT;
    return memory(handle, out);
}

API Return nvmlDeviceGetBAR1MemoryInfo(const Handle *handle, Memory *out) {
    CARD(handle);
    if (!out) return INVALID_ARGUMENT;
    if (device.bar1_total == ABSENT64) return NOT_SUPPORTED;
    *out = (Memory){device.bar1_total, device.bar1_total - device.bar1_used, device.bar1_used};
    return SUCCESS;
}

/* ---- load, power, heat, clocks ---- */

typedef struct {
    unsigned gpu, memory;
} Utilization;

API Return nvmlDeviceGetUtilizationRates(const Handle *handle, Utilization *out) {
    if (reads) ++*reads;
    CARD(handle);
    if (!out) return INVALID_ARGUMENT;
    Return error = put32(device.util_gpu, &out->gpu);
    return error ? error : put32(device.util_memory, &out->memory);
}

static Return engine(uint32_t percent, unsigned *out, unsigned *period_us) {
    if (!period_us) return INVALID_ARGUMENT;
    *period_us = 167000;
    return put32(percent, out);
}

API Return nvmlDeviceGetEncoderUtilization(const Handle *handle, unsigned *out, unsigned *period_us) {
    CARD(handle);
    return engine(device.util_encoder, out, period_us);
}

API Return nvmlDeviceGetDecoderUtilization(const Handle *handle, unsigned *out, unsigned *period_us) {
    CARD(handle);
    return engine(device.util_decoder, out, period_us);
}

GIVES_U32(nvmlDeviceGetPowerUsage, power)
GIVES_U32(nvmlDeviceGetPowerManagementLimit, power_limit)
GIVES_U32(nvmlDeviceGetPowerManagementDefaultLimit, power_limit_default)
GIVES_TWO(nvmlDeviceGetPowerManagementLimitConstraints, power_limit_min, power_limit_max)
GIVES_U32(nvmlDeviceGetEnforcedPowerLimit, power_limit_enforced)
GIVES_U64(nvmlDeviceGetTotalEnergyConsumption, energy_mj)
GIVES_U32(nvmlDeviceGetPerformanceState, pstate)
GIVES_U32(nvmlDeviceGetPowerState, pstate)
GIVES_U32(nvmlDeviceGetFanSpeed, fan_percent)
GIVES_U64(nvmlDeviceGetCurrentClocksEventReasons, event_reasons)
GIVES_U64(nvmlDeviceGetCurrentClocksThrottleReasons, event_reasons)
GIVES_U64(nvmlDeviceGetSupportedClocksEventReasons, event_reasons_supported)
GIVES_U64(nvmlDeviceGetSupportedClocksThrottleReasons, event_reasons_supported)

API Return nvmlDeviceGetFanSpeed_v2(const Handle *handle, unsigned fan, unsigned *out) {
    CARD(handle);
    return fan ? INVALID_ARGUMENT : put32(device.fan_percent, out);
}

API Return nvmlDeviceGetNumFans(const Handle *handle, unsigned *out) {
    CARD(handle);
    return put32(device.fan_percent == ABSENT32 ? 0 : 1, out);
}

API Return nvmlDeviceGetTemperature(const Handle *handle, unsigned sensor, unsigned *out) {
    CARD(handle);
    return sensor ? INVALID_ARGUMENT : put32(device.temperature, out);
}

typedef struct {
    unsigned version, sensor;
    int temperature;
} TemperatureV1;

API Return nvmlDeviceGetTemperatureV(const Handle *handle, TemperatureV1 *out) {
    CARD(handle);
    if (!out || out->sensor) return INVALID_ARGUMENT;
    return put32(device.temperature, (unsigned *)&out->temperature);
}

API Return nvmlDeviceGetTemperatureThreshold(const Handle *handle, unsigned which, unsigned *out) {
    CARD(handle);
    uint32_t thresholds[] = {device.temperature_shutdown, device.temperature_slowdown, device.temperature_memory_max,
                             device.temperature_gpu_max};
    return which < 4 ? put32(thresholds[which], out) : NOT_SUPPORTED;
}

API Return nvmlDeviceGetClockInfo(const Handle *handle, unsigned type, unsigned *out) {
    CARD(handle);
    if (type >= 4) return INVALID_ARGUMENT;
    uint32_t clock = device.clocks[type];
    int locked = type < 2 && clock != ABSENT32 && device.lock_high != ABSENT32 && device.lock_high;
    if (locked && clock < device.lock_low) clock = device.lock_low;
    if (locked && clock > device.lock_high) clock = device.lock_high;
    return put32(clock, out);
}

API Return nvmlDeviceGetMaxClockInfo(const Handle *handle, unsigned type, unsigned *out) {
    CARD(handle);
    return type < 4 ? put32(device.clocks_max[type], out) : INVALID_ARGUMENT;
}

API Return nvmlDeviceGetApplicationsClock(const Handle *handle, unsigned type, unsigned *out) {
    CARD(handle);
    return type < 4 ? put32(device.clocks_application[type], out) : INVALID_ARGUMENT;
}

typedef struct {
    unsigned long long reference_us, violation_ns;
} Violation;

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

API Return nvmlDeviceGetViolationStatus(const Handle *handle, unsigned policy, Violation *out) {
    CARD(handle);
    if (!out || policy >= 12) return INVALID_ARGUMENT;
    out->reference_us = now_us();
    return put64(device.violation_ns[policy], &out->violation_ns);
}

/* ---- modes, ECC, pages, PCIe ---- */

GIVES_U32(nvmlDeviceGetPersistenceMode, persistence)
GIVES_U32(nvmlDeviceGetComputeMode, compute_mode)
GIVES_U32(nvmlDeviceGetDisplayMode, display_mode)
GIVES_U32(nvmlDeviceGetDisplayActive, display_active)
GIVES_TWO(nvmlDeviceGetEccMode, ecc_mode, ecc_mode_pending)
GIVES_TWO(nvmlDeviceGetMigMode, mig_mode, mig_mode_pending)
GIVES_U32(nvmlDeviceGetRetiredPagesPendingStatus, retired_pending)
GIVES_U32(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
GIVES_U32(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation_max)
GIVES_U32(nvmlDeviceGetGpuMaxPcieLinkGeneration, pcie_generation_max)
GIVES_U32(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
GIVES_U32(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max)
GIVES_U32(nvmlDeviceGetPcieReplayCounter, pcie_replays)

API Return nvmlDeviceGetPcieThroughput(const Handle *handle, unsigned counter, unsigned *out) {
    CARD(handle);
    return counter > 1 ? INVALID_ARGUMENT : put32(counter ? device.pcie_rx_kbps : device.pcie_tx_kbps, out);
}

API Return nvmlDeviceGetTotalEccErrors(const Handle *handle, unsigned uncorrected, unsigned aggregate, unsigned long long *out) {
    CARD(handle);
    if (uncorrected > 1 || aggregate > 1) return INVALID_ARGUMENT;
    uint64_t counts[2][2] = {{device.ecc_volatile_corrected, device.ecc_volatile_uncorrected},
                             {device.ecc_aggregate_corrected, device.ecc_aggregate_uncorrected}};
    return put64(counts[aggregate][uncorrected], out);
}

static Return retired(const Handle *handle, unsigned cause, unsigned *count, unsigned long long *pages, unsigned long long *times) {
    CARD(handle);
    if (!count || cause > 1) return INVALID_ARGUMENT;
    uint32_t have = cause ? device.retired_double_bit : device.retired_single_bit;
    if (have == ABSENT32) return NOT_SUPPORTED;
    unsigned room = *count;
    *count = have;
    if (room < have || !pages) return have ? INSUFFICIENT_SIZE : SUCCESS;
    for (unsigned i = 0; i < have; i++) {
        pages[i] = 0x10000ull * (i + 1);
        if (times) times[i] = 1700000000ull + i;
    }
    return SUCCESS;
}

API Return nvmlDeviceGetRetiredPages(const Handle *handle, unsigned cause, unsigned *count, unsigned long long *pages) {
    return retired(handle, cause, count, pages, NULL);
}

API Return nvmlDeviceGetRetiredPages_v2(const Handle *handle, unsigned cause, unsigned *count, unsigned long long *pages,
                                        unsigned long long *times) {
    return retired(handle, cause, count, pages, times);
}

API Return nvmlDeviceGetRemappedRows(const Handle *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                     unsigned *failure) {
    CARD(handle);
    Return error = put32(device.remapped_corrected, corrected);
    if (!error) error = put32(device.remapped_uncorrected, uncorrected);
    if (!error) error = put32(device.remap_pending, pending);
    return error ? error : put32(device.remap_failure, failure);
}

/* ---- settings ---- */

static Return enter_setter(const Handle *handle, volatile Device **device) {
    Device copy;
    Return error = enter_card(handle, &copy);
    if (error) return error;
    *device = &values->devices[handle->device];
    return writable ? SUCCESS : NO_PERMISSION;
}

#define SETTER(handle)                               \
    volatile Device *device;                         \
    do {                                             \
        Return error = enter_setter(handle, &device); \
        if (error) return error;                     \
    } while (0)

#define TAKES_MODE(function, field, most)                      \
    API Return function(const Handle *handle, unsigned mode) { \
        SETTER(handle);                                        \
        if (device->field == ABSENT32) return NOT_SUPPORTED;   \
        if (mode > most) return INVALID_ARGUMENT;              \
        device->field = mode;                                  \
        return SUCCESS;                                        \
    }

TAKES_MODE(nvmlDeviceSetPersistenceMode, persistence, 1)
TAKES_MODE(nvmlDeviceSetComputeMode, compute_mode, 3)

API Return nvmlDeviceSetPowerManagementLimit(const Handle *handle, unsigned milliwatts) {
    SETTER(handle);
    if (device->power_limit == ABSENT32) return NOT_SUPPORTED;
    if (milliwatts < device->power_limit_min || milliwatts > device->power_limit_max) return INVALID_ARGUMENT;
    device->power_limit = device->power_limit_enforced = milliwatts;
    return SUCCESS;
}

/* A lock shows in NVML in what the clock then is, and nowhere else. */
API Return nvmlDeviceSetGpuLockedClocks(const Handle *handle, unsigned low, unsigned high) {
    SETTER(handle);
    if (device->lock_low == ABSENT32) return NOT_SUPPORTED;
    if (low > high || high > device->clocks_max[0]) return INVALID_ARGUMENT;
    device->lock_low = low;
    device->lock_high = high;
    return SUCCESS;
}

API Return nvmlDeviceResetGpuLockedClocks(const Handle *handle) {
    SETTER(handle);
    if (device->lock_low == ABSENT32) return NOT_SUPPORTED;
    device->lock_low = device->lock_high = 0;
    return SUCCESS;
}

API Return nvmlDeviceGetSupportedMemoryClocks(const Handle *handle, unsigned *count, unsigned *out) {
    CARD(handle);
    if (!count) return INVALID_ARGUMENT;
    if (device.clocks_max[2] == ABSENT32) return NOT_SUPPORTED;
    unsigned room = *count;
    *count = 1;
    if (room < 1 || !out) return INSUFFICIENT_SIZE;
    *out = device.clocks_max[2];
    return SUCCESS;
}

API Return nvmlDeviceGetSupportedGraphicsClocks(const Handle *handle, unsigned memory_mhz, unsigned *count, unsigned *out) {
    const unsigned lowest = 300, step = 15;
    CARD(handle);
    if (!count) return INVALID_ARGUMENT;
    if (device.clocks_max[0] == ABSENT32) return NOT_SUPPORTED;
    if (memory_mhz != device.clocks_max[2]) return NOT_FOUND;
    unsigned room = *count, have = (device.clocks_max[0] - lowest) / step + 1;
    *count = have;
    if (room < have || !out) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < have; i++) out[i] = device.clocks_max[0] - i * step;
    return SUCCESS;
}

/* ---- fields by number ---- */

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency_us;
    uint32_t type;
    Return result;
    union {
        uint32_t u32;
        uint64_t u64;
    } value;
} FieldValue;

enum { TYPE_U32 = 1, TYPE_U64 = 3 };

static void field32(FieldValue *out, uint32_t value) {
    out->type = TYPE_U32;
    out->value.u32 = value;
    out->result = value == ABSENT32 ? NOT_SUPPORTED : SUCCESS;
}

static void field64(FieldValue *out, uint64_t value) {
    out->type = TYPE_U64;
    out->value.u64 = value;
    out->result = value == ABSENT64 ? NOT_SUPPORTED : SUCCESS;
}

static void fill_field(const Device *device, FieldValue *out) {
    static const uint32_t policy_of_field[] = {0, 1, 2, 3, 4, 5, 10, 11};
    if (out->field >= 74 && out->field <= 81) {
        field64(out, device->violation_ns[policy_of_field[out->field - 74]]);
        return;
    }
    switch (out->field) {
        case 82: field32(out, device->temperature_memory); break;
        case 83: field64(out, device->energy_mj); break;
        case 185: /* average */
        case 186: field32(out, device->power); break;
        case 187: field32(out, device->power_limit_min); break;
        case 188: field32(out, device->power_limit_max); break;
        case 189: field32(out, device->power_limit_default); break;
        case 190: field32(out, device->power_limit_enforced); break;
        case 192: field32(out, device->power_limit); break;
        case 230: field32(out, device->recovery_action); break;
        case 269: field64(out, device->sw_thermal_ns); break;
        case 270: field64(out, device->hw_thermal_ns); break;
        case 271: field64(out, device->power_brake_ns); break;
        default: out->result = NOT_SUPPORTED;
    }
}

API Return nvmlDeviceGetFieldValues(const Handle *handle, int count, FieldValue *fields) {
    CARD(handle);
    if (!fields || count < 0) return INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        fields[i].timestamp = (int64_t)now_us();
        fields[i].latency_us = 0;
        fill_field(&device, &fields[i]);
    }
    return SUCCESS;
}

/* ---- processes ---- */

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

static Return processes(const Handle *handle, unsigned graphics, unsigned *count, ProcessInfo *out) {
    Device device;
    Return error = enter(handle, &device);
    if (error) return error;
    if (!count) return INVALID_ARGUMENT;
    if (device.process_count == ABSENT32) return NOT_SUPPORTED;
    unsigned have = 0, room = *count;
    for (unsigned i = 0; i < device.process_count && i < VALUES_MAX_PROCESSES; i++) {
        const Process *process = &device.processes[i];
        const Mig *mig = handle->mig ? &device.mig[handle->mig - 1] : NULL;
        if (process->graphics != graphics) continue;
        if (mig && process->gpu_instance != mig->gpu_instance) continue;
        if (out && have < room)
            out[have] = (ProcessInfo){process->pid, process->used_bytes, process->gpu_instance, process->compute_instance};
        have++;
    }
    *count = have;
    return have > room || (have && !out) ? INSUFFICIENT_SIZE : SUCCESS;
}

API Return nvmlDeviceGetComputeRunningProcesses_v3(const Handle *handle, unsigned *count, ProcessInfo *out) {
    return processes(handle, 0, count, out);
}

API Return nvmlDeviceGetComputeRunningProcesses_v2(const Handle *handle, unsigned *count, ProcessInfo *out) {
    return processes(handle, 0, count, out);
}

API Return nvmlDeviceGetGraphicsRunningProcesses_v3(const Handle *handle, unsigned *count, ProcessInfo *out) {
    return processes(handle, 1, count, out);
}

API Return nvmlDeviceGetGraphicsRunningProcesses_v2(const Handle *handle, unsigned *count, ProcessInfo *out) {
    return processes(handle, 1, count, out);
}

typedef struct {
    unsigned pid;
    unsigned long long timestamp;
    unsigned sm, memory, encoder, decoder;
} UtilizationSample;

API Return nvmlDeviceGetProcessUtilization(const Handle *handle, UtilizationSample *out, unsigned *count,
                                           unsigned long long last_seen_us) {
    CARD(handle);
    if (!count) return INVALID_ARGUMENT;
    if (device.process_count == ABSENT32 || device.mig_mode == 1) return NOT_SUPPORTED;
    unsigned have = 0, room = *count;
    uint64_t now = now_us();
    if (now <= last_seen_us) return NOT_FOUND;
    for (unsigned i = 0; i < device.process_count && i < VALUES_MAX_PROCESSES; i++) {
        const Process *process = &device.processes[i];
        if (process->sm_percent == ABSENT32) continue;
        if (out && have < room)
            out[have] = (UtilizationSample){process->pid, now, process->sm_percent, process->memory_percent, 0, 0};
        have++;
    }
    if (!have) return NOT_FOUND;
    *count = have;
    return !out || have > room ? INSUFFICIENT_SIZE : SUCCESS;
}

/* ---- MIG ---- */

API Return nvmlDeviceGetMaxMigDeviceCount(const Handle *handle, unsigned *out) {
    CARD(handle);
    return put32(device.mig_max == ABSENT32 ? 0 : device.mig_max, out);
}

API Return nvmlDeviceGetMigDeviceHandleByIndex(const Handle *handle, unsigned index, Handle **out) {
    CARD(handle);
    if (!out) return INVALID_ARGUMENT;
    if (device.mig_mode == ABSENT32 || !device.mig_mode) return NOT_SUPPORTED;
    if (index >= device.mig_count || index >= VALUES_MAX_MIG) return NOT_FOUND;
    *out = &handles[handle->device][index + 1];
    return SUCCESS;
}

static Return enter_mig(const Handle *handle, Mig *mig) {
    Device device;
    Return error = enter(handle, &device);
    if (error) return error;
    if (!handle->mig) return INVALID_ARGUMENT;
    *mig = device.mig[handle->mig - 1];
    return SUCCESS;
}

API Return nvmlDeviceIsMigDeviceHandle(const Handle *handle, unsigned *out) {
    Device device;
    Return error = enter(handle, &device);
    return error ? error : put32(handle->mig != 0, out);
}

API Return nvmlDeviceGetGpuInstanceId(const Handle *handle, unsigned *out) {
    Mig mig;
    Return error = enter_mig(handle, &mig);
    return error ? error : put32(mig.gpu_instance, out);
}

API Return nvmlDeviceGetComputeInstanceId(const Handle *handle, unsigned *out) {
    Mig mig;
    Return error = enter_mig(handle, &mig);
    return error ? error : put32(mig.compute_instance, out);
}

API Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(const Handle *handle, Handle **out) {
    Mig mig;
    Return error = enter_mig(handle, &mig);
    if (error || !out) return error ? error : INVALID_ARGUMENT;
    *out = &handles[handle->device][0];
    return SUCCESS;
}

typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mib;
} Attributes;

API Return nvmlDeviceGetAttributes_v2(const Handle *handle, Attributes *out) {
    Mig mig;
    Return error = enter_mig(handle, &mig);
    if (error || !out) return error ? error : INVALID_ARGUMENT;
    memset(out, 0, sizeof *out);
    out->multiprocessors = mig.multiprocessors;
    out->gpu_slices = out->compute_slices = mig.gpu_slices;
    out->memory_mib = mig.memory_total >> 20;
    return SUCCESS;
}
