/* NCCL: every rank gets its own values back; sums are not computed. */
#include "simulation.h"

#include <stdlib.h>

struct communicator { int ranks, rank; };
struct identity { char bytes[128]; };

static int make(void **made, int ranks, int rank) {
    struct communicator *communicator = calloc(1, 256);
    if (!communicator) return 1;
    communicator->ranks = ranks;
    communicator->rank = rank;
    *made = communicator;
    return SUCCESS;
}

int ncclGetVersion(int *version) { *version = 22800; return SUCCESS; }
int ncclGetUniqueId(struct identity *identity) { memset(identity, 0, sizeof *identity); return SUCCESS; }
const char *ncclGetErrorString(int status) { return status ? "not on a simulated GPU" : "success"; }
const char *ncclGetLastError(void *communicator) { (void)communicator; return ""; }
int ncclCommInitRank(void **made, int ranks, struct identity identity, int rank) { (void)identity; return make(made, ranks, rank); }
int ncclCommInitRankConfig(void **made, int ranks, struct identity identity, int rank, void *configuration) {
    (void)configuration;
    return ncclCommInitRank(made, ranks, identity, rank);
}
int ncclCommInitAll(void **made, int ranks, const int *devices) {
    (void)devices;
    for (int rank = 0; rank < ranks; rank++)
        if (make(&made[rank], ranks, rank)) return 1;
    return SUCCESS;
}
int ncclCommDestroy(void *communicator) { free(communicator); return SUCCESS; }
int ncclCommAbort(void *communicator) { free(communicator); return SUCCESS; }
int ncclCommCount(const struct communicator *communicator, int *ranks) { *ranks = communicator->ranks; return SUCCESS; }
int ncclCommUserRank(const struct communicator *communicator, int *rank) { *rank = communicator->rank; return SUCCESS; }
int ncclCommCuDevice(const struct communicator *communicator, int *device) { (void)communicator; *device = ordinal_of(current_card()); return SUCCESS; }
int ncclCommGetAsyncError(void *communicator, int *status) { (void)communicator; *status = 0; return SUCCESS; }

/* Bytes of an element by ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, half, float,
 * double, bfloat16. */
static size_t element_bytes(int type) {
    static const size_t BYTES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < 10 ? BYTES[type] : 1;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *communicator, void *stream) {
    (void)operation; (void)communicator; (void)stream;
    if (from != to) copy_bytes(to, from, count * element_bytes(type));
    return SUCCESS;
}
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *communicator, void *stream) {
    return ncclAllReduce(from, to, count, type, root, communicator, stream);
}
int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, void *communicator, void *stream) {
    (void)root;
    return to ? ncclAllReduce(from, to, count, type, operation, communicator, stream) : SUCCESS;
}
