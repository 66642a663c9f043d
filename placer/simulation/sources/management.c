/* NVML (libnvidia-ml.so.1): what nvidia-smi and its like ask.  A handle is the address of its card. */
#include "simulation.h"

#include <stdio.h>

enum { NVML_INVALID = 2, NVML_NOT_FOUND = 6, NVML_TOO_SMALL = 7 };

int nvmlInit_v2(void) { return machine_cards() ? SUCCESS : NVML_NOT_FOUND; }
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int status) { return status ? "not on a simulated GPU" : "success"; }

static int write_text(char *text, unsigned length, const char *what) {
    return (unsigned)snprintf(text, length, "%s", what) < length ? SUCCESS : NVML_TOO_SMALL;
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) { return write_text(text, length, "575.00 (simulated)"); }
int nvmlSystemGetNVMLVersion(char *text, unsigned length) { return write_text(text, length, "12.575.00"); }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12090; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)machine_cards(); return SUCCESS; }
int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = machine_card((int)index);
    return *handle ? SUCCESS : NVML_INVALID;
}
int nvmlDeviceGetHandleByIndex(unsigned index, void **handle) { return nvmlDeviceGetHandleByIndex_v2(index, handle); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *text, void **handle) {
    unsigned domain, bus;
    if (sscanf(text, "%x:%x", &domain, &bus) != 2) return NVML_INVALID;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle);
}
int nvmlDeviceGetHandleByPciBusId(const char *text, void **handle) { return nvmlDeviceGetHandleByPciBusId_v2(text, handle); }
int nvmlDeviceGetHandleByUUID(const char *text, void **handle) {
    unsigned number;
    if (sscanf(text, "GPU-%8x", &number) != 1) return NVML_INVALID;
    return nvmlDeviceGetHandleByIndex_v2(number - 1, handle);
}

int nvmlDeviceGetIndex(struct card *card, unsigned *index) { *index = (unsigned)card->index; return SUCCESS; }
int nvmlDeviceGetMinorNumber(struct card *card, unsigned *number) { return nvmlDeviceGetIndex(card, number); }
int nvmlDeviceGetName(struct card *card, char *text, unsigned length) { return write_text(text, length, card->name); }
int nvmlDeviceGetUUID(struct card *card, char *text, unsigned length) {
    char uuid[64];
    snprintf(uuid, sizeof uuid, "GPU-%08x-0000-0000-0000-000000000000", card->index + 1);
    return write_text(text, length, uuid);
}
int nvmlDeviceGetCudaComputeCapability(struct card *card, int *major, int *minor) {
    *major = card->major;
    *minor = card->minor;
    return SUCCESS;
}

/* {total, free, used}; version 2 has a version and reserved bytes before the last two. */
int nvmlDeviceGetMemoryInfo(struct card *card, uint64_t *memory) {
    memory[0] = card->total_bytes;
    memory[1] = free_bytes(card);
    memory[2] = card->total_bytes - free_bytes(card);
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(struct card *card, uint64_t *memory) { /* [0] is its version */
    memory[1] = card->total_bytes;
    memory[2] = 0;
    memory[3] = free_bytes(card);
    memory[4] = card->total_bytes - free_bytes(card);
    return SUCCESS;
}

/* {char bus id, old form[16]; domain, bus, device, device id, subsystem id; char bus id[32]} */
int nvmlDeviceGetPciInfo_v3(struct card *card, char *info) {
    unsigned *numbers = (unsigned *)(info + 16);
    snprintf(info, 16, "0000:%02X:00.0", card->index + 1);
    memset(numbers, 0, 20);
    numbers[1] = (unsigned)card->index + 1;
    snprintf(info + 36, 32, "00000000:%02X:00.0", card->index + 1);
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v2(struct card *card, char *info) { return nvmlDeviceGetPciInfo_v3(card, info); }
int nvmlDeviceGetUtilizationRates(struct card *card, unsigned *percent) {
    (void)card;
    percent[0] = percent[1] = 0; /* of the processors, of the memory */
    return SUCCESS;
}
int nvmlDeviceGetTemperature(struct card *card, int sensor, unsigned *degrees) { (void)card; (void)sensor; *degrees = 30; return SUCCESS; }
int nvmlDeviceGetPowerUsage(struct card *card, unsigned *milliwatts) { (void)card; *milliwatts = 0; return SUCCESS; }
int nvmlDeviceGetPersistenceMode(struct card *card, int *on) { (void)card; *on = 1; return SUCCESS; }
int nvmlDeviceGetPerformanceState(struct card *card, int *state) { (void)card; *state = 0; return SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses_v3(struct card *card, unsigned *count, void *processes) { (void)card; (void)processes; *count = 0; return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkGeneration(struct card *card, unsigned *generation) { (void)card; *generation = 4; return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkWidth(struct card *card, unsigned *lanes) { (void)card; *lanes = 16; return SUCCESS; }

/* The NCCL inside of TensorFlow 2.18 asks how cards reach one another: directly, without NVLinks. */
int nvmlDeviceGetP2PStatus(struct card *one, struct card *other, int kind, int *status) {
    (void)one; (void)other; (void)kind;
    *status = 0;
    return SUCCESS;
}
