"""The shapes of a convolution, and what follows from them."""

from dataclasses import dataclass
from math import prod

from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import FMA_FLOPS
from cost_models.tensor_size import counted_bytes, counted_shape, element_bytes, element_count

_TILE = 64
"""Rows and columns of the matrix tiles that cuDNN's kernels compute, at the smallest
(``volta_scudnn_128x64_relu_small_nn_v1``)."""

_SMALL_WINDOWS = (3, 5)

WINOGRAD_WINDOW = 3
_WINOGRAD_OUTPUT = 4
_WINOGRAD_TILE = (_WINOGRAD_OUTPUT + WINOGRAD_WINDOW - 1) ** 2
"""Winograd's F(4 x 4, 3 x 3) makes squares of 4 out of squares of 6."""

_FFT_SIDES = (16, 32)
_FFT_TILE = 32
_COMPLEX_BYTES = 8
_COMPLEX_FMA = 4
"""Sides of the squares whose spectra cuDNN multiplies; larger images are cut into tiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
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
        """The filter's shape, unknown sizes as 1."""
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
        """The sides of the image."""
        return self._sides(self.image)

    @property
    def result_sides(self) -> tuple[int, ...]:
        """The sides of the result."""
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
        """The number of images."""
        return (counted_shape(self.image.shape) or (1,))[0]

    @property
    def image_channels(self) -> int:
        """The channels of the image."""
        shape = counted_shape(self.image.shape)
        return (shape[1:2] if self.channels_first else shape[-1:] or (1,))[0]

    @property
    def result_positions(self) -> int:
        """Output pixels of one image."""
        return prod(self.result_sides)


def convolution_of(info: OpInfo) -> Convolution:
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
    return Convolution(
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
