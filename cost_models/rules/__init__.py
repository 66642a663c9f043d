"""The cost rules of the package, one module per family of op types.

Importing this package registers all of them.  The conventions they share:

- a fused multiply-add counts two flops, every other arithmetic operation or elementary function
  one, as TensorFlow's profiler does (``tensorflow/python/profiler/internal/flops_registry.py``);
- unknown dimensions count as 1;
- temporaries are those that TensorFlow's CPU kernels allocate and track.  What Eigen packs or
  cuDNN takes as a workspace is not among them.
"""

from cost_models.rules import (  # noqa: F401 (importing them registers the rules)
    convolution,
    data_movement,
    einsum,
    elementwise,
    gather_scatter,
    image,
    input_output,
    linear_algebra,
    lists,
    losses,
    matmul,
    normalisation,
    optimizers,
    pooling,
    random,
    recurrent,
    reductions,
    sorting,
    strings,
)
