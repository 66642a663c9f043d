/* What cuDNN's descriptors remember. */
#ifndef DNN_H
#define DNN_H

#include "simulation.h"

#define MOST_DIMENSIONS 8
enum { FAILED = 3 }; /* CUDNN_STATUS_INTERNAL_ERROR */

struct descriptor {
    int kind;                /* of a backend descriptor */
    int type;                /* of elements; of a convolution, of products */
    int dimensions;
    int sizes[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
    int cell, biases, directions, input, hidden, layers; /* of a recurrent layer */
    int steps, batch;                                    /* of its data */
};

int cudnnSetTensorNdDescriptor(struct descriptor *of, int type, int dimensions, const int *sizes, const int *strides);

#endif
