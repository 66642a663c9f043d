/* The CUDA runtime (libcudart.so.12), and the kernels that TensorFlow registers with it. */
#include "simulation.h"

#include <pthread.h>
#include <stdlib.h>

#define VERSION 12090

/* Devices */

int cudaRuntimeGetVersion(int *version) { *version = VERSION; return SUCCESS; }
int cudaDriverGetVersion(int *version) { *version = VERSION; return SUCCESS; }
int cudaGetDeviceCount(int *count) {
    *count = visible_cards();
    return *count ? SUCCESS : NO_DEVICE;
}
int cudaSetDevice(int device) {
    struct card *card = visible_card(device);
    if (!card) return INVALID_DEVICE;
    set_current_card(card);
    return SUCCESS;
}
int cudaGetDevice(int *device) { *device = ordinal_of(current_card()); return SUCCESS; }
int cudaMemGetInfo(size_t *available, size_t *total) {
    *available = free_bytes(current_card());
    *total = current_card()->total_bytes;
    return SUCCESS;
}
int cuDeviceGetPCIBusId(char *text, int length, int device);
int cudaDeviceGetPCIBusId(char *text, int length, int device) { return cuDeviceGetPCIBusId(text, length, device); }
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    struct card *card = visible_card(device);
    if (!card) return INVALID_DEVICE;
    *value = attribute_of(card, attribute);
    return SUCCESS;
}
int cudaDeviceCanAccessPeer(int *can, int device, int peer) { *can = device != peer; return SUCCESS; }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return SUCCESS; }
const char *cudaGetErrorString(int error) { return error == OUT_OF_MEMORY ? "out of memory" : error ? "not on a simulated GPU" : "no error"; }
const char *cudaGetErrorName(int error) { return error == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : error ? "cudaErrorSimulated" : "cudaSuccess"; }

/* cudaDeviceProp of CUDA 12, 1,032 bytes.  Offsets of the fields that Eigen and cub, through which
 * TensorFlow reads it, look at; they follow from the order of the fields in the reference of
 * cudaDeviceProp and the rules of alignment of x86-64.  tests/simulation/test_environment.py shows
 * that TensorFlow finds the name, memory and capability of each card. */
enum {
    AT_NAME = 0, AT_TOTAL_BYTES = 288, AT_SHARED_OF_BLOCK = 296, AT_REGISTERS_OF_BLOCK = 304,
    AT_WARP = 308, AT_THREADS_OF_BLOCK = 320, AT_BLOCK = 324, AT_GRID = 336, AT_CLOCK = 348,
    AT_MAJOR = 360, AT_MINOR = 364, AT_MULTIPROCESSORS = 388, AT_BUS_WIDTH = 608, AT_CACHE = 612,
    AT_THREADS = 624, AT_SHARED = 640, AT_REGISTERS = 648, AT_SHARED_OPTIN = 664, PROPERTIES = 1032,
};

static void put(char *properties, int offset, int value) { memcpy(properties + offset, &value, sizeof value); }
static void put_size(char *properties, int offset, size_t value) { memcpy(properties + offset, &value, sizeof value); }

int cudaGetDeviceProperties_v2(char *properties, int device) {
    struct card *card = visible_card(device);
    if (!card) return INVALID_DEVICE;
    memset(properties, 0, PROPERTIES);
    memcpy(properties + AT_NAME, card->name, sizeof card->name);
    put_size(properties, AT_TOTAL_BYTES, card->total_bytes);
    put_size(properties, AT_SHARED_OF_BLOCK, attribute_of(card, 8));
    put(properties, AT_REGISTERS_OF_BLOCK, attribute_of(card, 12));
    put(properties, AT_WARP, attribute_of(card, 10));
    put(properties, AT_THREADS_OF_BLOCK, attribute_of(card, 1));
    for (int i = 0; i < 3; i++) {
        put(properties, AT_BLOCK + 4 * i, attribute_of(card, 2 + i));
        put(properties, AT_GRID + 4 * i, attribute_of(card, 5 + i));
    }
    put(properties, AT_CLOCK, attribute_of(card, 13));
    put(properties, AT_MAJOR, card->major);
    put(properties, AT_MINOR, card->minor);
    put(properties, AT_MULTIPROCESSORS, card->multiprocessors);
    put(properties, AT_BUS_WIDTH, attribute_of(card, 37));
    put(properties, AT_CACHE, attribute_of(card, 38));
    put(properties, AT_THREADS, attribute_of(card, 39));
    put_size(properties, AT_SHARED, attribute_of(card, 81));
    put(properties, AT_REGISTERS, attribute_of(card, 82));
    put_size(properties, AT_SHARED_OPTIN, attribute_of(card, 97));
    return SUCCESS;
}

/* Streams, events, memory */

int cuMemAlloc_v2(void **, size_t);
int cuMemFree_v2(void *);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemFreeHost(void *);

static int make_handle(void **handle) { *handle = calloc(1, 256); return *handle ? SUCCESS : OUT_OF_MEMORY; }

int cudaStreamCreate(void **stream) { return make_handle(stream); }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { (void)flags; return make_handle(stream); }
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) { (void)flags; (void)priority; return make_handle(stream); }
int cudaStreamIsCapturing(void *stream, int *status) { (void)stream; *status = 0; return SUCCESS; }
int cudaEventCreate(void **event) { return make_handle(event); }
int cudaEventCreateWithFlags(void **event, unsigned flags) { (void)flags; return make_handle(event); }
int cudaEventElapsedTime(float *milliseconds, void *begin, void *end) { (void)begin; (void)end; *milliseconds = 0.001f; return SUCCESS; }
int cudaMalloc(void **start, size_t bytes) { return cuMemAlloc_v2(start, bytes); }
int cudaFree(void *start) { return cuMemFree_v2(start); }
int cudaMallocAsync(void **start, size_t bytes, void *stream) { (void)stream; return cuMemAlloc_v2(start, bytes); }
int cudaFreeAsync(void *start, void *stream) { (void)stream; return cuMemFree_v2(start); }
int cudaMallocHost(void **start, size_t bytes) { return cuMemHostAlloc(start, bytes, 0); }
int cudaHostAlloc(void **start, size_t bytes, unsigned flags) { return cuMemHostAlloc(start, bytes, flags); }
int cudaFreeHost(void *start) { return cuMemFreeHost(start); }
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) { (void)kind; copy_bytes(to, from, bytes); return SUCCESS; }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) { (void)stream; return cudaMemcpy(to, from, bytes, kind); }
int cudaMemcpyPeerAsync(void *to, int device, const void *from, int peer, size_t bytes, void *stream) {
    (void)device; (void)peer; (void)stream;
    return cudaMemcpy(to, from, bytes, 0);
}
int cudaMemset(void *to, int value, size_t count) { fill_bytes(to, value & 0xff, 1, count); return SUCCESS; }
int cudaMemsetAsync(void *to, int value, size_t count, void *stream) { (void)stream; return cudaMemset(to, value, count); }
int cudaPointerGetAttributes(void *attributes, const void *address) {
    /* {int kind; int device; void *on device; void *on host}: kind 0 is unknown, 2 a device's */
    struct block block;
    memset(attributes, 0, 24);
    if (block_at(address, &block)) {
        ((int *)attributes)[0] = 2;
        ((int *)attributes)[1] = ordinal_of(block.card);
        ((const void **)attributes)[1] = address;
    }
    return SUCCESS;
}

/* Kernels: TensorFlow's libraries register each by the address of a function of the host, and
 * launch it by that address. */

static struct { const void *function; char *name; } *kernels;
static size_t kernel_count, kernel_room;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static size_t slot_of(const void *function) {
    size_t at = (size_t)(((uint64_t)function >> 4) * 0x9E3779B97F4A7C15ull >> 20) & (kernel_room - 1);
    while (kernels[at].function && kernels[at].function != function) at = (at + 1) & (kernel_room - 1);
    return at;
}

static void make_room(void) {
    size_t before = kernel_room;
    __auto_type old = kernels;
    kernel_room = before ? 2 * before : 1 << 15;
    kernels = calloc(kernel_room, sizeof *kernels);
    if (!kernels) abort();
    for (size_t i = 0; i < before; i++)
        if (old[i].function) kernels[slot_of(old[i].function)] = old[i];
    free(old);
}

void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    (void)binary;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
void __cudaRegisterFunction(void **handle, const void *function, char *device_function, const char *name, int limit,
                            void *thread, void *block, void *block_size, void *grid_size, int *warp) {
    (void)handle; (void)device_function; (void)limit; (void)thread; (void)block; (void)block_size;
    (void)grid_size; (void)warp;
    pthread_rwlock_wrlock(&lock);
    if (2 * (kernel_count + 1) > kernel_room) make_room();
    size_t at = slot_of(function);
    if (!kernels[at].function) kernel_count++;
    kernels[at].function = function;
    kernels[at].name = (char *)name; /* a constant of the library that registers it */
    pthread_rwlock_unlock(&lock);
}

static const char *name_of(const void *function) {
    const char *name = NULL;
    pthread_rwlock_rdlock(&lock);
    if (kernel_room) name = kernels[slot_of(function)].name;
    pthread_rwlock_unlock(&lock);
    return name;
}

struct extent { unsigned x, y, z; };

/* What stands between <<< and >>> waits here for the launch. */
static __thread struct { struct extent grid, block; size_t shared; void *stream; } configured[16];
static __thread int depth;

unsigned __cudaPushCallConfiguration(struct extent grid, struct extent block, size_t shared, void *stream) {
    if (depth == 16) return 1;
    configured[depth].grid = grid;
    configured[depth].block = block;
    configured[depth].shared = shared;
    configured[depth++].stream = stream;
    return 0;
}

int __cudaPopCallConfiguration(struct extent *grid, struct extent *block, size_t *shared, void **stream) {
    if (!depth) return INVALID_VALUE;
    depth--;
    *grid = configured[depth].grid;
    *block = configured[depth].block;
    *shared = configured[depth].shared;
    *stream = configured[depth].stream;
    return SUCCESS;
}

int cudaLaunchKernel(const void *function, struct extent grid, struct extent block, void **arguments, size_t shared, void *stream) {
    (void)block; (void)shared; (void)stream;
    launch(name_of(function), grid.x * grid.y * grid.z, arguments);
    return SUCCESS;
}
int cudaLaunchKernelExC(const struct extent *configuration, const void *function, void **arguments) {
    return cudaLaunchKernel(function, configuration[0], configuration[1], arguments, 0, NULL);
}
int cudaGetFuncBySymbol(void **function, const void *symbol) {
    *function = (void *)name_of(symbol);
    return *function ? SUCCESS : NOT_FOUND;
}

/* cudaFuncAttributes: shared, constant and local bytes, then threads of a block, registers,
 * versions of PTX and of the binary, from byte 24 on */
int cudaFuncGetAttributes(int *attributes, const void *function) {
    int capability = 10 * current_card()->major + current_card()->minor;
    (void)function;
    memset(attributes, 0, 56);
    attributes[6] = 1024;
    attributes[7] = 32;
    attributes[8] = attributes[9] = capability;
    return SUCCESS;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t shared, unsigned flags) {
    (void)function; (void)shared; (void)flags;
    *blocks = blocks_per_multiprocessor(current_card(), threads);
    return SUCCESS;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}
