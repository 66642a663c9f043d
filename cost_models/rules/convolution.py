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

from dataclasses import dataclass, replace
from math import prod

from cost_models.gpu_convolutions import is_tuned
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import FMA_FLOPS, Work, bytes_touched, cost_rule
from cost_models.tensor_size import counted_bytes, counted_shape, element_bytes, element_count

_WORKING_SET_BYTES = 30 << 20
"""The L3 cache that the CPU kernels assume when they choose how many images to unfold at once."""

_SMALLEST_THREAD_WORK_BYTES = 256 << 10
"""Below this much work per thread (an L2 cache) the input gradient unfolds many images at once."""

_TILE = 64
"""Rows and columns of the matrix tiles that cuDNN's kernels compute, at the smallest
(``volta_scudnn_128x64_relu_small_nn_v1``)."""

_SMALL_WINDOWS = (3, 5)

_WINOGRAD_WINDOW = 3
_WINOGRAD_OUTPUT = 4
_WINOGRAD_TILE = 36
"""Winograd's F(4 x 4, 3 x 3) makes squares of 4 out of squares of 6."""

_FFT_SIDES = (16, 32)
_FFT_TILE = 32
_COMPLEX_BYTES = 8
_COMPLEX_FMA = 4
"""Sides of the squares whose spectra cuDNN multiplies; larger images are cut into tiles."""

_CLOSE = 2
"""So many times as many flops may still be as fast."""

_MOST_WORKSPACE_BYTES = 4 << 30
"""``TF_CUDNN_WORKSPACE_LIMIT_IN_MB``, unless it is set."""

_LINE_BYTES = 64
"""A cache line."""

_VECTOR_BYTES = 32
"""Bytes that TensorFlow's kernels for CPUs compute at once (AVX)."""

_THREADS = 2
"""Threads taken for that comparison; the real number belongs to the machine that runs the op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Convolution:
    """Where the image, the filter and the result of the forward convolution are, and its channels'
    place in the image's shape; ``skipped`` are the filter's dimensions, counted from the last, that
    do not multiply: the output channels, in a depthwise convolution all channels; ``steps`` are its
    strides and dilations."""

    image: TensorProperties
    filter: TensorProperties
    result: TensorProperties
    channels_first: bool
    skipped: int
    steps: tuple[int, ...]

    @property
    def filter_shape(self) -> tuple[int, ...]:
        return counted_shape(self.filter.shape)

    @property
    def flops(self) -> int:
        """Two per filter element that an output channel sees, for every output element."""
        return FMA_FLOPS * element_count(self.result) * prod(self.filter_shape[: -self.skipped])

    @property
    def groups(self) -> int:
        """Into how many parts the channels fall that do not see each other."""
        filter_channels = (1, 1, *self.filter_shape)[-2]
        return max(1, self.image_channels // max(1, filter_channels))

    @property
    def gpu_kind(self) -> str:
        """``small-window`` where fast algorithms apply: not to less than a tile of channels."""
        large = min(self.filter_shape[-2:], default=0) >= _TILE
        return "small-window" if large and self.has_small_window else ""

    def tiled_flops(self, op_type: str) -> int:
        """The flops with whole tiles of the filter as a matrix: a column per output channel, a row
        per element of one channel's window; for the gradient of the image a column per input
        channel.  0 for groups, of which nothing is known, and for ops that multiply no matrices."""
        if self.groups > 1 or self.skipped > 1 or len(self.filter_shape) < 4:
            return 0
        elements = prod(self.filter_shape)
        columns = self.filter_shape[-2 if "BackpropInput" in op_type else -1]
        sides = (columns, elements // max(1, columns))
        whole = prod(-(-side // _TILE) * _TILE for side in sides)
        return self.flops * whole // max(1, elements)

    @property
    def has_small_window(self) -> bool:
        """Whether it has a square window of 3 and 5 that moves by one pixel, and no groups."""
        window = {*self.filter_shape[:-2]}
        square = len(self.filter_shape) == 4 and len(window) == 1 and window <= {*_SMALL_WINDOWS}
        return square and set(self.steps) <= {1} and self.groups == 1 and self.skipped == 1

    @property
    def image_sides(self) -> tuple[int, ...]:
        return self._sides(self.image)

    @property
    def result_sides(self) -> tuple[int, ...]:
        return self._sides(self.result)

    def _sides(self, tensor: TensorProperties) -> tuple[int, ...]:
        """Height and width of an image."""
        shape = counted_shape(tensor.shape)
        return shape[2:] if self.channels_first else shape[1:-1]

    def padded_bytes(self, info: OpInfo) -> int:
        """The image with the pixels that ``SAME`` adds, where they are an odd number."""
        sides, filter_sides = self.image_sides, self.filter_shape[: len(self.image_sides)]
        if info.attributes.get("padding") != "SAME" or len(sides) != len(filter_sides):
            return 0
        strides = _spatial(info.attributes.get("strides"), self.channels_first, len(sides))
        dilations = _spatial(info.attributes.get("dilations"), self.channels_first, len(sides))
        if 0 in strides:
            return 0
        added = [
            max(0, (-(-side // stride) - 1) * stride + (window - 1) * dilation + 1 - side)
            for side, window, stride, dilation in zip(
                sides, filter_sides, strides, dilations, strict=True
            )
        ]
        if all(count % 2 == 0 for count in added):
            return 0
        pixels = prod(side + count % 2 for side, count in zip(sides, added, strict=True))
        return self.batch * self.image_channels * pixels * (element_bytes(self.image.dtype) or 0)

    def winograd(self, op_type: str) -> tuple[int, int]:
        """Flops of one image and pair of channels, and bytes: tiles of image and result as
        matrices, and the filter."""
        sides = self.image_sides if "BackpropInput" in op_type else self.result_sides
        tiles = prod(-(-side // _WINOGRAD_OUTPUT) for side in sides)
        channels, made = self.filter_shape[-2:]
        numbers = self.batch * tiles * (channels + made) + channels * made
        return FMA_FLOPS * _WINOGRAD_TILE * tiles, 4 * _WINOGRAD_TILE * numbers

    def fourier(self, op_type: str) -> tuple[int, int]:
        """Flops of one image and pair of channels, and bytes: twice the spectra of what is read or
        of what is written, whichever are more, and a copy of what takes the filter's place."""
        channels, made = self.filter_shape[-2:]
        inner = _FFT_TILE - self.filter_shape[0] + 1
        side = next((s for s in _FFT_SIDES if max(self.image_sides) <= s), _FFT_TILE)
        tiles = prod(1 if n <= side else -(-n // inner) for n in self.image_sides)
        spectrum = side * (side // 2 + 1)
        images, results = self.batch * tiles * channels, self.batch * tiles * made
        filters = channels * made
        if "BackpropFilter" in op_type:
            most, copied = max(images + results, filters), counted_bytes(self.result)
        elif "BackpropInput" in op_type:
            most, copied = max(results + filters, images), counted_bytes(self.filter)
        else:
            most, copied = max(images + filters, results), counted_bytes(self.filter)
        flops = _COMPLEX_FMA * FMA_FLOPS * spectrum * tiles
        return flops, 2 * most * spectrum * _COMPLEX_BYTES + copied

    @property
    def unfolded_bytes(self) -> int:
        """The images of the batch with one row per output pixel."""
        unfolded = self.batch * self.result_positions * prod(self.filter_shape[:-1])
        return unfolded * (element_bytes(self.filter.dtype) or 0)

    @property
    def batch(self) -> int:
        return (counted_shape(self.image.shape) or (1,))[0]

    @property
    def image_channels(self) -> int:
        shape = counted_shape(self.image.shape)
        return (shape[1:2] if self.channels_first else shape[-1:] or (1,))[0]

    @property
    def result_positions(self) -> int:
        """Output pixels of one image."""
        return prod(self.result_sides)


def _convolution(info: OpInfo) -> _Convolution:
    """The convolution, its tensors found among the inputs, -1 being the output."""
    if info.op.startswith("Dilation2DBackprop"):
        image, filter, result = 0, 1, 2
    elif "BackpropInput" in info.op:
        image, filter, result = -1, 1, 2
    elif "BackpropFilter" in info.op:
        image, filter, result = 0, -1, 2
    else:
        image, filter, result = 0, 1, -1
    tensors = (*info.inputs, info.outputs[0])
    return _Convolution(
        image=tensors[image],
        filter=tensors[filter],
        result=tensors[result],
        channels_first=str(info.attributes.get("data_format", "NHWC")).startswith("NC"),
        skipped=2 if "Depthwise" in info.op else 1,
        steps=_steps(info),
    )


def _spatial(listed: object, channels_first: bool, count: int) -> tuple[int, ...]:
    """The entries for height and width of an attribute with one for every dimension, else ones."""
    if not isinstance(listed, tuple | list) or len(listed) != count + 2:
        return (1,) * count
    return tuple(listed[2:] if channels_first else listed[1:-1])


def _steps(info: OpInfo) -> tuple[int, ...]:
    """Strides and dilations, whichever dimension they are of."""
    listed = (info.attributes.get(key) for key in ("strides", "dilations"))
    rows = (row for row in listed if isinstance(row, tuple | list))
    return tuple(step for row in rows for step in row if isinstance(step, int))


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
    convolution = _convolution(info)
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
    convolution = _convolution(info)
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
    convolution = _convolution(info)
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
    convolution = _convolution(info)
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
    convolution = _convolution(info)
    unfolded, work_unit = _work_unit(convolution)
    size = _element_bytes(info)
    one_by_one = (
        convolution.batch == 1 or work_unit // _THREADS >= _SMALLEST_THREAD_WORK_BYTES // size
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
        + products * _LINE_BYTES // size * counted_bytes(info.inputs[1]),
    )


def _work_unit(convolution: _Convolution) -> tuple[int, int]:
    """Elements of one unfolded image, and of it, its gradient and the filter together."""
    filter_size = prod(convolution.filter_shape[:-1])
    channels = (convolution.filter_shape or (1,))[-1]
    unfolded = convolution.result_positions * filter_size
    gradient = convolution.result_positions * channels
    return unfolded, unfolded + gradient + filter_size * channels


def _gpu_chunks(convolution: _Convolution, info: OpInfo) -> tuple[int, ...]:
    """The tensors that the GPU's kernel takes for itself: the image padded where it needs one pixel
    more at one end than at the other, the filter in cuDNN's layout, and for the gradient of the
    image a buffer of its size (``conv_ops_impl.h``, ``conv_grad_ops_impl.h`` of
    ``tensorflow/core/kernels`` where they are for GPUs)."""
    image = counted_bytes(convolution.image) if "BackpropInput" in info.op else 0
    sizes = convolution.padded_bytes(info), counted_bytes(convolution.filter), image
    return tuple(size for size in sizes if size)


def _tuned_bytes(convolution: _Convolution, info: OpInfo) -> int:
    """The result, of which autotuning makes a copy: of the gradient of the image with the pixels
    that were added."""
    padded = convolution.padded_bytes(info) if "BackpropInput" in info.op else 0
    return padded or counted_bytes(info.outputs[0])


def _workspace_bytes(convolution: _Convolution, info: OpInfo) -> int:
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
    if convolution.filter_shape[0] == _WINOGRAD_WINDOW:
        found.append(convolution.winograd(info.op))
    most_flops = _CLOSE * min(flops for flops, _ in found)
    sizes = [size for flops, size in found if flops <= most_flops]
    return max((size for size in sizes if size <= _MOST_WORKSPACE_BYTES), default=0)


def _element_bytes(info: OpInfo) -> int:
    return element_bytes(info.outputs[0].dtype) or 1


def _shard_size(info: OpInfo, work_unit: int) -> int:
    """How many images' work fills the working set, rounded up."""
    return -(-(_WORKING_SET_BYTES // _element_bytes(info)) // max(1, work_unit))
