/* cuSOLVER, cuSPARSE and cuFFT: they ask for no workspace. */
#include "simulation.h"

#include <stdlib.h>

static int make_handle(void **handle) { *handle = calloc(1, 256); return *handle ? SUCCESS : 3; }

int cusolverDnCreate(void **handle) { return make_handle(handle); }
int cusparseCreate(void **handle) { return make_handle(handle); }

/* Sizes of workspaces: the last parameter, the fourth, sixth, seventh or eighth one by routine. */
#define FOURTH(name) int name(void *a, int b, int c, int *size) { (void)a; (void)b; (void)c; *size = 0; return SUCCESS; }
#define SIXTH(name) int name(void *a, long b, long c, long d, long e, int *size) { (void)a; (void)b; (void)c; (void)d; (void)e; *size = 0; return SUCCESS; }
#define EIGHTH(name) int name(void *a, long b, long c, long d, long e, long f, void *g, int *size) { (void)a; (void)b; (void)c; (void)d; (void)e; (void)f; (void)g; *size = 0; return SUCCESS; }
#define OF_REAL_AND_COMPLEX(kind, routine) kind(cusolverDnS##routine) kind(cusolverDnD##routine) kind(cusolverDnC##routine) kind(cusolverDnZ##routine)

OF_REAL_AND_COMPLEX(FOURTH, gesvd_bufferSize)
OF_REAL_AND_COMPLEX(SIXTH, getrf_bufferSize)
OF_REAL_AND_COMPLEX(SIXTH, potrf_bufferSize)
OF_REAL_AND_COMPLEX(SIXTH, geqrf_bufferSize)
EIGHTH(cusolverDnSorgqr_bufferSize) EIGHTH(cusolverDnDorgqr_bufferSize)
EIGHTH(cusolverDnCungqr_bufferSize) EIGHTH(cusolverDnZungqr_bufferSize)
EIGHTH(cusolverDnSsyevd_bufferSize) EIGHTH(cusolverDnDsyevd_bufferSize)
EIGHTH(cusolverDnCheevd_bufferSize) EIGHTH(cusolverDnZheevd_bufferSize)

int cufftCreate(int *plan) { *plan = 1; return SUCCESS; }
int cufftPlanMany(int *plan, int rank, int *sizes, int *in, int in_stride, int in_distance, int *out, int out_stride, int out_distance, int type, int batch) {
    (void)rank; (void)sizes; (void)in; (void)in_stride; (void)in_distance; (void)out; (void)out_stride; (void)out_distance; (void)type; (void)batch;
    return cufftCreate(plan);
}
int cufftPlan1d(int *plan, int size, int type, int batch) { (void)size; (void)type; (void)batch; return cufftCreate(plan); }
int cufftMakePlan1d(int plan, int size, int type, int batch, size_t *workspace) { (void)plan; (void)size; (void)type; (void)batch; *workspace = 0; return SUCCESS; }
int cufftMakePlan2d(int plan, int rows, int columns, int type, size_t *workspace) { (void)plan; (void)rows; (void)columns; (void)type; *workspace = 0; return SUCCESS; }
int cufftMakePlan3d(int plan, int x, int y, int z, int type, size_t *workspace) { (void)plan; (void)x; (void)y; (void)z; (void)type; *workspace = 0; return SUCCESS; }
int cufftMakePlanMany(int plan, int rank, int *sizes, int *in, int in_stride, int in_distance, int *out, int out_stride, int out_distance, int type, int batch, size_t *workspace) {
    (void)plan; (void)rank; (void)sizes; (void)in; (void)in_stride; (void)in_distance; (void)out; (void)out_stride; (void)out_distance; (void)type; (void)batch;
    *workspace = 0;
    return SUCCESS;
}
int cufftMakePlanMany64(int plan, int rank, int64_t *sizes, int64_t *in, int64_t in_stride, int64_t in_distance, int64_t *out, int64_t out_stride, int64_t out_distance, int type, int64_t batch, size_t *workspace) {
    (void)plan; (void)rank; (void)sizes; (void)in; (void)in_stride; (void)in_distance; (void)out; (void)out_stride; (void)out_distance; (void)type; (void)batch;
    *workspace = 0;
    return SUCCESS;
}
int cufftGetSize(int plan, size_t *workspace) { (void)plan; *workspace = 0; return SUCCESS; }
