/* cuDNN's recurrent layers: the sizes and places of their weights, and what they keep.
 *
 * The weight space has the matrices of every layer and direction, input before recurrent, then the
 * biases in the same order; a layer has one matrix of each sort per gate. */
#include "dnn.h"

enum { RELU = 0, TANH = 1, LSTM = 2, GRU = 3 };   /* cudnnRNNMode_t */
enum { NO_BIAS = 0, DOUBLE_BIAS = 2 };            /* cudnnRNNBiasMode_t: 1 and 3 are single ones */

static size_t bytes_of(int type) {
    switch (type) { /* cudnnDataType_t */
    case 1: return 8;         /* double */
    case 2: case 9: return 2; /* half, bfloat16 */
    default: return 4;
    }
}

static int gates_of(const struct descriptor *rnn) { return rnn->cell == LSTM ? 4 : rnn->cell == GRU ? 3 : 1; }

static int inputs_of(const struct descriptor *rnn, int layer) {
    return layer < rnn->directions ? rnn->input : rnn->hidden * rnn->directions;
}

/* Elements of the matrices of all layers before `layer`; a layer is one of one direction. */
static size_t matrices_before(const struct descriptor *rnn, int layer) {
    size_t elements = 0;
    for (int i = 0; i < layer; i++)
        elements += (size_t)gates_of(rnn) * rnn->hidden * (inputs_of(rnn, i) + rnn->hidden);
    return elements;
}

int cudnnSetRNNDescriptor_v8(struct descriptor *rnn, int algorithm, int cell, int bias, int direction, int input_mode,
                             int type, int precision, int math, int input, int hidden, int projected, int layers,
                             void *dropout, unsigned flags) {
    (void)algorithm; (void)input_mode; (void)precision; (void)math; (void)projected; (void)dropout; (void)flags;
    rnn->type = type;
    rnn->cell = cell;
    rnn->biases = bias == NO_BIAS ? 0 : bias == DOUBLE_BIAS ? 2 : 1;
    rnn->directions = direction == 1 ? 2 : 1;
    rnn->input = input;
    rnn->hidden = hidden;
    rnn->layers = layers;
    return SUCCESS;
}

int cudnnSetRNNDataDescriptor(struct descriptor *of, int type, int layout, int steps, int batch, int width, const int *lengths, void *padding) {
    (void)layout; (void)width; (void)lengths; (void)padding;
    of->type = type;
    of->steps = steps;
    of->batch = batch;
    return SUCCESS;
}

int cudnnGetRNNWeightSpaceSize(void *handle, const struct descriptor *rnn, size_t *bytes) {
    int layers = rnn->layers * rnn->directions;
    size_t biases = (size_t)layers * rnn->biases * gates_of(rnn) * rnn->hidden;
    (void)handle;
    *bytes = (matrices_before(rnn, layers) + biases) * bytes_of(rnn->type);
    return SUCCESS;
}

/* Matrix and bias `which` of a layer: those of the input come first, then the recurrent ones. */
int cudnnGetRNNWeightParams(void *handle, const struct descriptor *rnn, int layer, size_t bytes, const char *weights, int which,
                            struct descriptor *matrix, const char **matrix_at, struct descriptor *bias, const char **bias_at) {
    int gates = gates_of(rnn), inputs = inputs_of(rnn, layer), layers = rnn->layers * rnn->directions;
    int is_recurrent = which >= gates, columns = is_recurrent ? rnn->hidden : inputs;
    size_t element = bytes_of(rnn->type), before = matrices_before(rnn, layer);
    int matrix_sizes[3] = {1, rnn->hidden, columns}, matrix_strides[3] = {rnn->hidden * columns, columns, 1};
    int bias_sizes[3] = {1, rnn->hidden, 1}, bias_strides[3] = {rnn->hidden, 1, 1};
    (void)handle;
    (void)bytes;
    before += (size_t)rnn->hidden * (is_recurrent ? gates * inputs + (which - gates) * rnn->hidden : which * inputs);
    cudnnSetTensorNdDescriptor(matrix, rnn->type, 3, matrix_sizes, matrix_strides);
    *matrix_at = weights + before * element;
    if (rnn->biases == 2 || (rnn->biases == 1 && !is_recurrent)) {
        size_t first = matrices_before(rnn, layers) + (size_t)layer * rnn->biases * gates * rnn->hidden;
        cudnnSetTensorNdDescriptor(bias, rnn->type, 3, bias_sizes, bias_strides);
        *bias_at = weights + (first + (size_t)which * rnn->hidden) * element;
    } else {
        cudnnSetTensorNdDescriptor(bias, rnn->type, 0, bias_sizes, bias_strides);
        *bias_at = NULL;
    }
    return SUCCESS;
}

/* A training step keeps at least what its gates gave; a real card keeps somewhat more. */
int cudnnGetRNNTempSpaceSizes(void *handle, const struct descriptor *rnn, int mode, const struct descriptor *data, size_t *workspace, size_t *reserved) {
    size_t kept = (size_t)data->steps * data->batch * rnn->hidden * gates_of(rnn) * rnn->layers * rnn->directions;
    (void)handle;
    if (workspace) *workspace = 0;
    if (reserved) *reserved = mode == 1 ? kept * bytes_of(rnn->type) : 0; /* 1 is training */
    return SUCCESS;
}
