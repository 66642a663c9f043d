"""Convolutions and their gradients.

Every product of an output element with a filter element is an FMA, padded positions included, as
in ``_calc_conv_flops`` of ``tensorflow/python/ops/nn_ops.py``.  Layout (NHWC or NCHW), padding and
dilation act through the output's shape alone.  Temporaries are the im2col buffers of
``tensorflow/core/kernels/conv_grad_filter_ops.cc`` and ``conv_grad_input_ops.h``.  On a CPU
images are unfolded into matrices (im2col) and those packed for the matrix product; depthwise
convolutions, which multiply no matrices, are a family of their own.

GPU kernels cut the matrices that they multiply into tiles: channels that are no multiple of a tile
are padded.  Square windows of 3 and 5 that move by one pixel need fewer multiplications in float32
(kind ``small-window``; Lavin and Gray, "Fast algorithms for convolutional neural networks",
https://doi.org/10.1109/CVPR.2016.435), which cuDNN's autotuning finds.
"""

from dataclasses import replace
from math import prod

from cost_models.convolution_shapes import WINOGRAD_WINDOW, Convolution, convolution_of
from cost_models.gpu_convolutions import is_tuned
from cost_models.op_info import OpInfo
from cost_models.registry import Work, bytes_touched, cost_rule
from cost_models.tensor_size import counted_bytes, element_bytes, element_count

_VECTOR_BYTES = 32
"""Bytes that TensorFlow's kernels for CPUs compute at once (AVX)."""


@cost_rule("""
    Conv3D QuantizedConv2D Dilation2D DepthwiseConv2dNative QuantizedDepthwiseConv2D
    Conv3DBackpropInput Conv3DBackpropInputV2 Conv2DBackpropInputV2
    Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv2DBackpropFilterV2
    DepthwiseConv2dNativeBackpropInput
    Dilation2DBackpropInput Dilation2DBackpropFilter
    _FusedConv2D _FusedConv3D _FusedDepthwiseConv2dNative
""")
def plain_work(info: OpInfo) -> Work:
    """The flops, and one per output element for each fused op (bias, activation)."""
    convolution = convolution_of(info)
    fused = info.attributes.get("fused_ops", ())
    steps = len(fused) if isinstance(fused, tuple | list) else 0
    depthwise = "Depthwise" in info.op
    chunks = _gpu_chunks(convolution, info)
    return Work(
        flops=convolution.flops + steps * element_count(info.outputs[0]),
        tiled_flops=convolution.tiled_flops(info.op),
        gpu_kind="" if depthwise else convolution.gpu_kind,
        gpu_temporary_bytes=sum(chunks) if is_tuned(info.op) else None,
        gpu_temporary_chunks=chunks if is_tuned(info.op) else (),
        tuned_bytes=_tuned_bytes(convolution, info) if is_tuned(info.op) else 0,
        packed_bytes=0 if depthwise else convolution.unfolded_bytes,
        family="depthwise" if depthwise else "",
    )


@cost_rule("DepthwiseConv2dNativeBackpropFilter")
def depthwise_filter_gradient_work(info: OpInfo) -> Work:
    """The forward convolution's flops, and the gradient of every image, its channels filled up to
    whole vectors, with one more for what is being added (``depthwise_conv_grad_op.cc``)."""
    convolution = convolution_of(info)
    *window, channels, multiplier = (1, 1, *convolution.filter_shape)
    size = _element_bytes(info)
    vectors = -(-channels * multiplier * size // _VECTOR_BYTES)
    return replace(
        plain_work(info),
        temporary_bytes=(convolution.batch + 1) * prod(window) * vectors * _VECTOR_BYTES,
        gpu_temporary_bytes=0,
    )


@cost_rule("Conv2D Conv")
def convolution_work(info: OpInfo) -> Work:
    """The flops; a grouped convolution copies image, filter and result group by group
    (``LaunchGrouped`` of ``conv_ops_impl.h``)."""
    convolution = convolution_of(info)
    groups, chunks = convolution.groups, _gpu_chunks(convolution, info)
    return Work(
        flops=convolution.flops,
        tiled_flops=convolution.tiled_flops(info.op),
        gpu_kind=convolution.gpu_kind,
        temporary_bytes=bytes_touched(info) if groups > 1 else 0,
        gpu_temporary_bytes=sum(chunks),
        gpu_temporary_chunks=chunks,
        workspace_bytes=_workspace_bytes(convolution, info),
        tuned_bytes=_tuned_bytes(convolution, info),
        pieces=groups,
        packed_bytes=convolution.unfolded_bytes,
    )


@cost_rule("Conv2DBackpropFilter")
def filter_gradient_work(info: OpInfo) -> Work:
    """The forward convolution's flops, and the unfolded images of one shard.

    The shard has as many images as fill the working set with unfolded image, gradient and filter,
    whatever the batch.
    """
    convolution = convolution_of(info)
    unfolded, work_unit = _work_unit(convolution)
    chunks = _gpu_chunks(convolution, info)
    return Work(
        flops=convolution.flops,
        tiled_flops=convolution.tiled_flops(info.op),
        gpu_kind=convolution.gpu_kind,
        temporary_bytes=_shard_size(info, work_unit) * unfolded * _element_bytes(info),
        gpu_temporary_bytes=sum(chunks),
        gpu_temporary_chunks=chunks,
        workspace_bytes=_workspace_bytes(convolution, info),
        tuned_bytes=_tuned_bytes(convolution, info),
        packed_bytes=2 * convolution.unfolded_bytes,
    )


@cost_rule("Conv2DBackpropInput")
def input_gradient_work(info: OpInfo) -> Work:
    """The forward convolution's flops, and one unfolded image, or a shard of small ones.

    The filter is packed again for every product, that is for every image or shard, and against
    the order in which it lies in memory: a cache line is moved for every element.
    """
    convolution = convolution_of(info)
    unfolded, work_unit = _work_unit(convolution)
    size = _element_bytes(info)
    one_by_one = (
        # with less work per thread (an L2 cache) the input gradient unfolds many images at once;
        # the real number of threads belongs to the machine that runs the op
        convolution.batch == 1 or work_unit // 2 >= (256 << 10) // size
    )
    images = 1 if one_by_one else _shard_size(info, work_unit)
    products = -(-convolution.batch // images)
    chunks = _gpu_chunks(convolution, info)
    return Work(
        flops=convolution.flops,
        tiled_flops=convolution.tiled_flops(info.op),
        gpu_kind=convolution.gpu_kind,
        temporary_bytes=images * unfolded * size,
        gpu_temporary_bytes=sum(chunks),
        gpu_temporary_chunks=chunks,
        workspace_bytes=_workspace_bytes(convolution, info),
        tuned_bytes=_tuned_bytes(convolution, info),
        packed_bytes=2 * convolution.unfolded_bytes
        + products * 64 // size * counted_bytes(info.inputs[1]),  # cache lines
    )


def _work_unit(convolution: Convolution) -> tuple[int, int]:
    """Elements of one unfolded image, and of it, its gradient and the filter together."""
    filter_size = prod(convolution.filter_shape[:-1])
    channels = (convolution.filter_shape or (1,))[-1]
    unfolded = convolution.result_positions * filter_size
    gradient = convolution.result_positions * channels
    return unfolded, unfolded + gradient + filter_size * channels


def _gpu_chunks(convolution: Convolution, info: OpInfo) -> tuple[int, ...]:
    """The tensors that the GPU's kernel takes for itself: the image padded where it needs one pixel
    more at one end than at the other, the filter in cuDNN's layout, and for the gradient of the
    image a buffer of its size (``conv_ops_impl.h``, ``conv_grad_ops_impl.h`` of
    ``tensorflow/core/kernels`` where they are for GPUs)."""
    image = counted_bytes(convolution.image) if "BackpropInput" in info.op else 0
    sizes = convolution.padded_bytes(info), counted_bytes(convolution.filter), image
    return tuple(size for size in sizes if size)


def _tuned_bytes(convolution: Convolution, info: OpInfo) -> int:
    """The result, of which autotuning makes a copy: of the gradient of the image with the pixels
    that were added."""
    padded = convolution.padded_bytes(info) if "BackpropInput" in info.op else 0
    return padded or counted_bytes(info.outputs[0])


def _workspace_bytes(convolution: Convolution, info: OpInfo) -> int:
    """The bytes that cuDNN takes besides for the dearer of its algorithms for small windows in
    float32, if both compute about as much: which is the faster is found out on the card. 0 where
    neither applies.

    The matrices that Winograd's algorithm for windows of 3 multiplies, F(4 x 4, 3 x 3): 36 numbers
    for each 4 x 4 of the result.  The spectra of an FFT, twice, and a copy of the filter (of the
    incoming gradient, for the filter's): squares of 16, or tiles of 32.  Both are what allocations
    of traced steps were, to the byte (``benchmarks/gpu_memory``).  More than 4 GiB are not asked
    for (``TF_CUDNN_WORKSPACE_LIMIT_IN_MB``).
    """
    small = convolution.filter.dtype == "float32" and convolution.has_small_window
    sides = convolution.image_sides, convolution.result_sides
    if not small or {*map(len, sides)} != {2} or not element_count(convolution.image):
        return 0
    found = [convolution.fourier(info.op)]
    if convolution.filter_shape[0] == WINOGRAD_WINDOW:
        found.append(convolution.winograd(info.op))
    most_flops = 2 * min(flops for flops, _ in found)  # so many may still be as fast
    sizes = [size for flops, size in found if flops <= most_flops]
    # ``TF_CUDNN_WORKSPACE_LIMIT_IN_MB``, unless it is set
    return max((size for size in sizes if size <= (4 << 30)), default=0)


def _element_bytes(info: OpInfo) -> int:
    return element_bytes(info.outputs[0].dtype) or 1


def _shard_size(info: OpInfo, work_unit: int) -> int:
    """How many images' work fills the working set, rounded up."""
    # the L3 cache that the CPU kernels assume when they choose how many images to unfold at once
    return -(-((30 << 20) // _element_bytes(info)) // max(1, work_unit))
