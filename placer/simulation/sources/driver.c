/* The CUDA driver (libcuda.so.1). */
#define _GNU_SOURCE
#include "simulation.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define VERSION 12090 /* the newest CUDA that the driver supports: 12.9 */

/* A handle that nobody looks into: of a stream, an event, a graph. */
static int make_handle(void **handle) {
    *handle = calloc(1, 256);
    return *handle ? SUCCESS : OUT_OF_MEMORY;
}

int cuDriverGetVersion(int *version) { *version = VERSION; return SUCCESS; }

int cuInit(unsigned flags) {
    (void)flags;
    return visible_cards() ? SUCCESS : NO_DEVICE;
}

/* Devices */

int cuDeviceGetCount(int *count) { *count = visible_cards(); return SUCCESS; }

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return visible_card(ordinal) ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int length, int device) {
    struct card *card = visible_card(device);
    if (!card) return INVALID_DEVICE;
    snprintf(name, length, "%s", card->name);
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    struct card *card = visible_card(device);
    if (!card) return INVALID_DEVICE;
    *bytes = card->total_bytes;
    return SUCCESS;
}

int cuDeviceGetPCIBusId(char *text, int length, int device) {
    struct card *card = visible_card(device);
    if (!card) return INVALID_DEVICE;
    snprintf(text, length, "0000:%02x:00.0", card->index + 1);
    return SUCCESS;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
    struct card *card = visible_card(device);
    if (!card) return INVALID_DEVICE;
    memset(uuid, 0, 16);
    uuid[3] = (unsigned char)(card->index + 1);
    return SUCCESS;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    struct card *card = visible_card(device);
    if (!card) return INVALID_DEVICE;
    *value = attribute_of(card, attribute);
    return SUCCESS;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer) { *can = device != peer; return SUCCESS; }

int cuDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) {
    *value = device != peer && (attribute == 2 || attribute == 3); /* access, atomics */
    return SUCCESS;
}

/* Contexts */

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = visible_card(device);
    return *context ? SUCCESS : INVALID_DEVICE;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 1;
    return SUCCESS;
}

int cuCtxGetCurrent(void **context) { *context = current_card(); return SUCCESS; }
int cuCtxSetCurrent(void *context) { set_current_card(context); return SUCCESS; }
int cuCtxPushCurrent_v2(void *context) { set_current_card(context); return SUCCESS; }
int cuCtxPopCurrent_v2(void **context) {
    if (context) *context = current_card();
    return SUCCESS;
}
int cuCtxGetDevice(int *device) { *device = ordinal_of(current_card()); return SUCCESS; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return SUCCESS; }
int cuCtxGetApiVersion(void *context, unsigned *version) { (void)context; *version = VERSION; return SUCCESS; }

/* Errors */

int cuGetErrorName(int error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : error ? "CUDA_ERROR_SIMULATED" : "CUDA_SUCCESS";
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : error ? "not on a simulated GPU" : "no error";
    return SUCCESS;
}

/* Streams: everything is done when it is asked for; of events see events.c. */

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { (void)flags; (void)priority; return make_handle(stream); }
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; return make_handle(stream); }
int cuStreamDestroy_v2(void *stream) { free(stream); return SUCCESS; }
int cuStreamGetPriority(void *stream, int *priority) { (void)stream; *priority = 0; return SUCCESS; }
int cuStreamIsCapturing(void *stream, int *status) { (void)stream; *status = 0; return SUCCESS; }
int cuStreamGetCtx(void *stream, void **context) { (void)stream; *context = current_card(); return SUCCESS; }
int cuEventElapsedTime(float *milliseconds, void *begin, void *end) { (void)begin; (void)end; *milliseconds = 0.001f; return SUCCESS; }
int cuEventElapsedTime_v2(float *milliseconds, void *begin, void *end) { return cuEventElapsedTime(milliseconds, begin, end); }
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *argument) { (void)stream; function(argument); return SUCCESS; }
int cuStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *argument, unsigned flags) {
    (void)flags;
    function(stream, SUCCESS, argument);
    return SUCCESS;
}
int cuStreamWriteValue32_v2(void *stream, uint32_t *address, uint32_t value, unsigned flags) { (void)stream; (void)flags; *address = value; return SUCCESS; }

/* Memory */

static int take(void **start, size_t bytes) {
    struct card *card = current_card();
    *start = take_memory(card, bytes);
    if (*start) note_taken(card, *start, bytes);
    else note_refused(card, bytes);
    return *start ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
    *available = free_bytes(current_card());
    *total = current_card()->total_bytes;
    return SUCCESS;
}
int cuMemAlloc_v2(void **start, size_t bytes) { return take(start, bytes); }
int cuMemAllocManaged(void **start, size_t bytes, unsigned flags) { (void)flags; return take(start, bytes); }
int cuMemFree_v2(void *start) { note_given_back(start); return give_back(start); }
int cuMemHostAlloc(void **start, size_t bytes, unsigned flags) {
    (void)flags;
    *start = take_host_memory(bytes);
    return *start ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemAllocHost_v2(void **start, size_t bytes) { return cuMemHostAlloc(start, bytes, 0); }
int cuMemFreeHost(void *start) { give_host_memory_back(start); return SUCCESS; }
int cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned flags) { (void)flags; *device = host; return SUCCESS; }

int cuMemGetAddressRange_v2(void **start, size_t *bytes, void *address) {
    struct block block;
    if (!block_at(address, &block)) return INVALID_VALUE;
    if (start) *start = block.start;
    if (bytes) *bytes = block.bytes;
    return SUCCESS;
}

/* The numbers are those of CUpointer_attribute. */
int cuPointerGetAttribute(void *value, int attribute, void *address) {
    struct block block;
    int is_card = block_at(address, &block);
    if (attribute == 2) { /* kind of memory: 1 host, 2 device */
        *(unsigned *)value = is_card ? 2 : 1;
        return SUCCESS;
    }
    if (attribute == 8) { /* managed memory: none is */
        *(int *)value = 0;
        return SUCCESS;
    }
    if (!is_card) return INVALID_VALUE;
    switch (attribute) {
    case 1: *(void **)value = block.card; break;
    case 3: *(void **)value = address; break;
    case 9: *(int *)value = ordinal_of(block.card); break;
    case 11: *(void **)value = block.start; break;
    case 12: *(size_t *)value = block.bytes; break;
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}

/* Pools of memory (TF_GPU_ALLOCATOR=cuda_malloc_async): a pool is its card. */

int cuDeviceGetDefaultMemPool(void **pool, int device) { *pool = visible_card(device); return SUCCESS; }
int cuDeviceGetMemPool(void **pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }
int cuMemPoolCreate(void **pool, const void *properties) { (void)properties; *pool = current_card(); return SUCCESS; }
int cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
    struct card *card = pool;
    if (attribute < 4) *(int *)value = 1;   /* what may be used again */
    else *(uint64_t *)value = card->taken_bytes;
    return SUCCESS;
}
int cuMemAllocFromPoolAsync(void **start, size_t bytes, void *pool, void *stream) {
    struct card *before = set_current_card(pool);
    int status = take(start, bytes);
    (void)stream;
    set_current_card(before);
    return status;
}
int cuMemAllocAsync(void **start, size_t bytes, void *stream) { (void)stream; return take(start, bytes); }
int cuMemFreeAsync(void *start, void *stream) { (void)stream; return cuMemFree_v2(start); }

/* Virtual memory management: memory is taken where addresses are reserved. */

int cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int kind) {
    (void)properties;
    (void)kind;
    *bytes = 2 << 20;
    return SUCCESS;
}
int cuMemAddressReserve(void **start, size_t bytes, size_t alignment, void *wanted, uint64_t flags) {
    (void)alignment;
    (void)wanted;
    (void)flags;
    return take(start, bytes);
}
int cuMemAddressFree(void *start, size_t bytes) { (void)bytes; return cuMemFree_v2(start); }
int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, uint64_t flags) {
    (void)properties;
    (void)flags;
    *handle = bytes;
    return SUCCESS;
}

/* Copies */

int cuMemcpy(void *to, const void *from, size_t bytes) { copy_bytes(to, from, bytes); return SUCCESS; }
int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *stream) { (void)stream; return cuMemcpy(to, from, bytes); }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) { return cuMemcpy(to, from, bytes); }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) { return cuMemcpy(to, from, bytes); }
int cuMemcpyDtoD_v2(void *to, const void *from, size_t bytes) { return cuMemcpy(to, from, bytes); }
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) { return cuMemcpyAsync(to, from, bytes, stream); }
int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *stream) { return cuMemcpyAsync(to, from, bytes, stream); }
int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) { return cuMemcpyAsync(to, from, bytes, stream); }
int cuMemcpyPeer(void *to, void *to_context, const void *from, void *from_context, size_t bytes) {
    (void)to_context;
    (void)from_context;
    return cuMemcpy(to, from, bytes);
}
int cuMemcpyPeerAsync(void *to, void *to_context, const void *from, void *from_context, size_t bytes, void *stream) {
    (void)stream;
    return cuMemcpyPeer(to, to_context, from, from_context, bytes);
}
int cuMemsetD8_v2(void *to, unsigned char value, size_t count) { fill_bytes(to, value, 1, count); return SUCCESS; }
int cuMemsetD16_v2(void *to, unsigned short value, size_t count) { fill_bytes(to, value, 2, count); return SUCCESS; }
int cuMemsetD32_v2(void *to, unsigned value, size_t count) { fill_bytes(to, value, 4, count); return SUCCESS; }
int cuMemsetD8Async(void *to, unsigned char value, size_t count, void *stream) { (void)stream; return cuMemsetD8_v2(to, value, count); }
int cuMemsetD16Async(void *to, unsigned short value, size_t count, void *stream) { (void)stream; return cuMemsetD16_v2(to, value, count); }
int cuMemsetD32Async(void *to, unsigned value, size_t count, void *stream) { (void)stream; return cuMemsetD32_v2(to, value, count); }

/* Kernels: a function is its name.  The constants of a module lie on its card (XLA copies from them
 * and to them); how large one is stands in its code, and addresses cost nothing. */

#define LARGEST_CONSTANT (2ull << 30)
struct module { struct constant { char *name; void *start; struct constant *next; } *constants; };

int cuModuleLoadData(void **module, const void *image) {
    (void)image;
    *module = calloc(1, sizeof(struct module));
    return *module ? SUCCESS : OUT_OF_MEMORY;
}
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void *values) {
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(module, image);
}
int cuModuleLoadFatBinary(void **module, const void *image) { return cuModuleLoadData(module, image); }
int cuModuleUnload(struct module *module) {
    while (module && module->constants) {
        struct constant *constant = module->constants;
        module->constants = constant->next;
        give_back(constant->start);
        free(constant->name);
        free(constant);
    }
    free(module);
    return SUCCESS;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = strdup(name);
    return SUCCESS;
}
int cuModuleGetGlobal_v2(void **address, size_t *bytes, struct module *module, const char *name) {
    struct constant *constant = module->constants;
    while (constant && strcmp(constant->name, name)) constant = constant->next;
    if (!constant) {
        constant = malloc(sizeof *constant);
        if (!constant) return OUT_OF_MEMORY;
        *constant = (struct constant){strdup(name), take_constants(current_card(), LARGEST_CONSTANT), module->constants};
        module->constants = constant;
    }
    *address = constant->start;
    if (bytes) *bytes = LARGEST_CONSTANT;
    return constant->start ? SUCCESS : OUT_OF_MEMORY;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
    (void)function;
    *value = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0; /* threads, registers */
    return SUCCESS;
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                   unsigned threads_z, unsigned shared, void *stream, void **arguments, void **extra) {
    (void)threads_x; (void)threads_y; (void)threads_z; (void)shared; (void)stream; (void)extra;
    launch(function, x * y * z, arguments);
    return SUCCESS;
}
int cuLaunchKernelEx(const unsigned *configuration, void *function, void **arguments, void **extra) {
    (void)extra;
    launch(function, configuration[0] * configuration[1] * configuration[2], arguments);
    return SUCCESS;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
    (void)function;
    (void)shared;
    *blocks = blocks_per_multiprocessor(current_card(), threads);
    return SUCCESS;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *function, int threads, size_t shared, unsigned flags) {
    (void)flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
int cuOccupancyMaxPotentialBlockSize(int *grid, int *threads, void *function, void *of_block, size_t shared, int limit) {
    (void)function; (void)of_block; (void)shared; (void)limit;
    *threads = 1024;
    *grid = current_card()->multiprocessors * blocks_per_multiprocessor(current_card(), 1024);
    return SUCCESS;
}

/* Graphs: they can be made and launched, and do nothing. */

int cuGraphCreate(void **graph, unsigned flags) { (void)flags; return make_handle(graph); }
int cuGraphInstantiateWithFlags(void **executable, void *graph, uint64_t flags) { (void)graph; (void)flags; return make_handle(executable); }
int cuStreamEndCapture(void *stream, void **graph) { (void)stream; return make_handle(graph); }

/* Looks a function of the driver up by name; those that are not there are not supported. */
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    char versioned[128];
    (void)version;
    (void)flags;
    for (int i = 3; i > 0; i--) {
        snprintf(versioned, sizeof versioned, i > 1 ? "%s_v%d" : "%s", name, i);
        *function = dlsym(RTLD_DEFAULT, versioned);
        if (*function) break;
    }
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
