/* cuBLAS and cuBLASLt: no product is computed. */
#include "simulation.h"

#include <stdlib.h>

static int make_handle(void **handle) { *handle = calloc(1, 256); return *handle ? SUCCESS : 3; }

int cublasCreate_v2(void **handle) { return make_handle(handle); }
int cublasDestroy_v2(void *handle) { free(handle); return SUCCESS; }
int cublasGetVersion_v2(void *handle, int *version) { (void)handle; *version = 120901; return SUCCESS; }
int cublasGetPointerMode_v2(void *handle, int *mode) { (void)handle; *mode = 0; return SUCCESS; }
int cublasGetMathMode(void *handle, int *mode) { (void)handle; *mode = 0; return SUCCESS; }
int cublasGetStream_v2(void *handle, void **stream) { (void)handle; *stream = NULL; return SUCCESS; }
const char *cublasGetStatusString(int status) { return status ? "not on a simulated GPU" : "success"; }

int cublasLtCreate(void **handle) { return make_handle(handle); }
int cublasLtDestroy(void *handle) { free(handle); return SUCCESS; }
size_t cublasLtGetVersion(void) { return 120901; }
int cublasLtMatmulDescCreate(void **description, int type, int scale) { (void)type; (void)scale; return make_handle(description); }
int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    (void)type; (void)rows; (void)columns; (void)leading;
    return make_handle(layout);
}
int cublasLtMatmulPreferenceCreate(void **preference) { return make_handle(preference); }
int cublasLtMatmulDescDestroy(void *description) { free(description); return SUCCESS; }
int cublasLtMatrixLayoutDestroy(void *layout) { free(layout); return SUCCESS; }
int cublasLtMatmulPreferenceDestroy(void *preference) { free(preference); return SUCCESS; }

/* One algorithm without a workspace: its record is 64 bytes of algorithm, then the workspace, the
 * status and the waves, 96 bytes in all. */
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, void *results, int *found) {
    (void)handle; (void)operation; (void)a; (void)b; (void)c; (void)d; (void)preference;
    *found = wanted > 0;
    if (wanted > 0) memset(results, 0, 96);
    return SUCCESS;
}
