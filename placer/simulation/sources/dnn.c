/* cuDNN: convolutions, normalisation, pooling and recurrent layers that compute nothing.
 *
 * A descriptor remembers what programs ask it for again: the backend's its type, a tensor's its
 * element type and shape, a convolution's its kind of products, a recurrent layer's its sizes. */
#include "dnn.h"

#include <stdlib.h>

static int make(struct descriptor **made) {
    *made = calloc(1, sizeof **made);
    return *made ? SUCCESS : FAILED;
}

#define CREATED(name) int cudnnCreate##name##Descriptor(struct descriptor **made) { return make(made); } \
                      int cudnnDestroy##name##Descriptor(struct descriptor *made) { free(made); return SUCCESS; }
CREATED(Tensor) CREATED(Filter) CREATED(Convolution) CREATED(Pooling) CREATED(Activation) CREATED(Dropout)
CREATED(RNN) CREATED(RNNData) CREATED(LRN) CREATED(CTCLoss) CREATED(OpTensor) CREATED(ReduceTensor)
CREATED(SpatialTransformer)

int cudnnCreate(void **handle) { *handle = calloc(1, 256); return *handle ? SUCCESS : FAILED; }
int cudnnDestroy(void *handle) { free(handle); return SUCCESS; }
size_t cudnnGetVersion(void) { return 91900; }
size_t cudnnGetCudartVersion(void) { return 12090; }
int cudnnGetProperty(int which, int *value) { *value = which == 0 ? 9 : which == 1 ? 19 : 0; return SUCCESS; }
const char *cudnnGetErrorString(int status) { return status ? "not on a simulated GPU" : "success"; }
int cudnnGetStream(void *handle, void **stream) { (void)handle; *stream = NULL; return SUCCESS; }

/* The backend, which convolutions use: one engine for each, with PLACER_SIMULATED_WORKSPACE bytes
 * of workspace. */

enum { /* CUDNN_TYPE_...: types of attributes */
    TYPE_NUMERICAL_NOTE = 11, TYPE_LAYOUT = 12, TYPE_BACKEND_DESCRIPTOR = 15,
    TYPE_BEHAVIOUR_NOTE = 25, TYPE_OTHER_NOTE = 26,
};
enum { PLAN_WORKSPACE = 402 }; /* CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE */

int cudnnBackendCreateDescriptor(int kind, struct descriptor **made) {
    int status = make(made);
    if (status == SUCCESS) (*made)->kind = kind;
    return status;
}
int cudnnBackendDestroyDescriptor(struct descriptor *made) { free(made); return SUCCESS; }
int cudnnBackendGetAttribute(struct descriptor *of, int name, int type, int64_t room, int64_t *count, void *values) {
    static const int BYTES[TYPE_BACKEND_DESCRIPTOR] = {8, 4, 1, 8, 4, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4};
    int is_note = type == TYPE_NUMERICAL_NOTE || type == TYPE_LAYOUT || type == TYPE_BEHAVIOUR_NOTE || type == TYPE_OTHER_NOTE;
    (void)of;
    if (count) *count = is_note ? 0 : 1;
    if (is_note || !values || room < 1) return SUCCESS;
    if (type >= 0 && type < TYPE_BACKEND_DESCRIPTOR) memset(values, 0, BYTES[type]);
    if (name == PLAN_WORKSPACE) *(int64_t *)values = setting("PLACER_SIMULATED_WORKSPACE", 0);
    return SUCCESS;
}

/* Tensors */

int cudnnSetTensorNdDescriptor(struct descriptor *of, int type, int dimensions, const int *sizes, const int *strides) {
    of->type = type;
    of->dimensions = dimensions;
    for (int i = 0; i < dimensions && i < MOST_DIMENSIONS; i++) of->sizes[i] = sizes[i], of->strides[i] = strides ? strides[i] : 1;
    return SUCCESS;
}
int cudnnSetTensorNdDescriptorEx(struct descriptor *of, int format, int type, int dimensions, const int *sizes) {
    (void)format;
    return cudnnSetTensorNdDescriptor(of, type, dimensions, sizes, NULL);
}
int cudnnSetTensor4dDescriptor(struct descriptor *of, int format, int type, int n, int c, int h, int w) {
    int sizes[4] = {n, c, h, w};
    (void)format;
    return cudnnSetTensorNdDescriptor(of, type, 4, sizes, NULL);
}
int cudnnGetTensorNdDescriptor(const struct descriptor *of, int wanted, int *type, int *dimensions, int *sizes, int *strides) {
    *type = of->type;
    *dimensions = of->dimensions;
    for (int i = 0; i < of->dimensions && i < wanted; i++) sizes[i] = of->sizes[i], strides[i] = of->strides[i];
    return SUCCESS;
}
int cudnnGetFilterNdDescriptor(const struct descriptor *of, int wanted, int *type, int *format, int *dimensions, int *sizes) {
    int strides[MOST_DIMENSIONS];
    *format = 0;
    return cudnnGetTensorNdDescriptor(of, wanted < MOST_DIMENSIONS ? wanted : MOST_DIMENSIONS, type, dimensions, sizes, strides);
}

/* Convolutions outside of the backend, which XLA of TensorFlow 2.18 uses: one algorithm for each. */

int cudnnSetConvolutionMathType(struct descriptor *of, int type) { of->type = type; return SUCCESS; }
int cudnnGetConvolutionMathType(const struct descriptor *of, int *type) { *type = of->type; return SUCCESS; }

struct algorithm { int algorithm, status; float seconds; size_t workspace; int is_determinate, math, reserved[3]; };

#define ALGORITHMS(name) \
    int cudnnGet##name##AlgorithmMaxCount(void *handle, int *count) { (void)handle; *count = 1; return SUCCESS; } \
    int cudnnGet##name##Algorithm_v7(void *handle, void *a, void *b, const struct descriptor *of, void *c, int wanted, \
                                     int *count, struct algorithm *found) { \
        (void)handle; (void)a; (void)b; (void)c; \
        *count = wanted > 0; \
        if (wanted > 0) *found = (struct algorithm){.algorithm = 1, .is_determinate = 1, .math = of->type, \
                                                    .workspace = setting("PLACER_SIMULATED_WORKSPACE", 0)}; \
        return SUCCESS; \
    } \
    int cudnnGet##name##WorkspaceSize(void *handle, void *a, void *b, void *of, void *c, int algorithm, size_t *bytes) { \
        (void)handle; (void)a; (void)b; (void)of; (void)c; (void)algorithm; \
        *bytes = setting("PLACER_SIMULATED_WORKSPACE", 0); \
        return SUCCESS; \
    }
ALGORITHMS(ConvolutionForward) ALGORITHMS(ConvolutionBackwardData) ALGORITHMS(ConvolutionBackwardFilter)

/* Sizes of workspaces and of what layers keep */

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int ops, void *x, void *z, void *y, void *scale, void *activation, size_t *bytes) {
    (void)handle; (void)mode; (void)ops; (void)x; (void)z; (void)y; (void)scale; (void)activation;
    *bytes = 0;
    return SUCCESS;
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int ops, void *x, void *y, void *dy, void *dz, void *dx, void *scale, void *activation, size_t *bytes) {
    (void)handle; (void)mode; (void)ops; (void)x; (void)y; (void)dy; (void)dz; (void)dx; (void)scale; (void)activation;
    *bytes = 0;
    return SUCCESS;
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int ops, void *activation, void *x, size_t *bytes) {
    (void)handle; (void)mode; (void)ops; (void)activation; (void)x;
    *bytes = 0;
    return SUCCESS;
}
int cudnnDropoutGetStatesSize(void *handle, size_t *bytes) { (void)handle; *bytes = 0; return SUCCESS; }
int cudnnGetCTCLossWorkspaceSize(void *handle, void *probabilities, void *gradients, const int *labels, const int *label_lengths, const int *input_lengths, int algorithm, void *loss, size_t *bytes) {
    (void)handle; (void)probabilities; (void)gradients; (void)labels; (void)label_lengths; (void)input_lengths; (void)algorithm; (void)loss;
    *bytes = 0;
    return SUCCESS;
}
int cudnnGetCTCLossWorkspaceSize_v8(void *handle, int algorithm, void *loss, void *probabilities, void *gradients, size_t *bytes) {
    (void)handle; (void)algorithm; (void)loss; (void)probabilities; (void)gradients;
    *bytes = 0;
    return SUCCESS;
}
