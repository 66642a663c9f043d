"""How a GPU's kernels run the convolutions of a program: in which layout, and what they try first.

**Layout.**  TensorFlow's graph optimizer has images channels first (NCHW) on a GPU, whatever the
program says, with one transposed copy where they enter and one where they leave::

    image (NHWC) --> Transpose --> Conv2D --> Relu --> Conv2D --> Transpose --> Reshape

unless more than half of the convolutions are faster channels last: in float16 from compute
capability 7.0 on, in bfloat16 from 8.0 on, in float32 from 8.0 on too (TF32), if no gradient of a
float32 convolution is computed.  Windows of one pixel are then matrix products of cuBLAS, which
copy no filter and are not tuned (``GetSrcAndDstDataFormats`` of
``tensorflow/core/grappler/optimizers/generic_layout_optimizer.cc``, ``conv_ops_impl.h``).

**Autotuning.**  The first time that a convolution of some shape runs in a process, cuDNN's
algorithms are tried: each with its workspace between red zones, and on a copy of the result, with
red zones of its own (``autotune_conv_impl.h``, ``redzone_allocator.h``).  Without
the copy it goes on; without the other nothing works.  ``TF_DISABLE_RZ_CHECK=1`` saves both.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo

RED_ZONES_BYTES = 16 << 20
"""Two of 8 MiB about whatever is tried (``RedzoneAllocator::kDefaultRedzoneSize``)."""

_CHANNELS_LAST_FROM = {"float16": 7.0, "bfloat16": 8.0, "float32": 8.0}
"""Compute capabilities."""

UNKNOWN_CAPABILITY = "7.5"
"""The compute capability that a GPU is taken to have whose model is not known."""

DATA_INPUTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative", "_FusedConv2D"), (0,)),
    **dict.fromkeys(("MaxPool", "MaxPoolV2", "AvgPool", "MaxPool3D"), (0,)),
    **dict.fromkeys(("BiasAdd", "BiasAddGrad", "DepthToSpace", "SpaceToDepth"), (0,)),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), (0,)),
    **dict.fromkeys(("FusedBatchNormGradV2", "FusedBatchNormGradV3", "FusedBatchNormGrad"), (0, 1)),
    **dict.fromkeys(("MaxPoolGrad", "MaxPoolGradV2"), (0, 1, 2)),
    "AvgPoolGrad": (1,),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), (2,)),
    "DepthwiseConv2dNativeBackpropInput": (2,),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), (0, 2)),
    "DepthwiseConv2dNativeBackpropFilter": (0, 2),
}
"""The inputs of ops with a layout that are images; so are their first outputs, unless they are
sums or gradients of filters.  The gradient of a pooling of volumes, and their averages, are left
as they are (``Conv3DTransposer`` and ``MaxPool3DTransposer`` are the only ones for five
dimensions)."""

IMAGE_RANK = 4
"""Batch, height, width and channels."""


def gives_images(op_type: str) -> bool:
    """Whether the first output of an op with a layout has that layout.

    >>> gives_images("Conv2DBackpropInput"), gives_images("Conv2DBackpropFilter")
    (True, False)
    """
    return not any(part in op_type for part in ("BackpropFilter", "BiasAddGrad"))


def is_tuned(op_type: str) -> bool:
    """Whether cuDNN's algorithms are tried for the op.

    >>> is_tuned("Conv2DBackpropFilter"), is_tuned("DepthwiseConv2dNative")
    (True, False)
    """
    return op_type.startswith(("Conv2D", "Conv3D", "_FusedConv2D"))


def replaces_output(info: OpInfo, cost: OpCost) -> bool:
    """Whether the kernel hands over what it last asked for as its output, in place of what it first
    asked for: the gradient of an image with channels first (``conv_grad_ops_impl.h`` and
    ``conv_grad_ops_3d.cc``)."""
    return "BackpropInput" in info.op and (cost.channels_first or _is_first(info))


def costs_on_gpus(
    costs: Mapping[str, OpCost],
    infos: Mapping[str, OpInfo],
    capability: str,
    *,
    red_zones: bool = True,
) -> dict[str, OpCost]:
    """``costs`` of the ops ``infos`` as GPUs of that compute capability run them; without
    ``red_zones`` no more memory is taken while algorithms are tried than afterwards."""
    layouts = [info for info in infos.values() if info.op in DATA_INPUTS]
    if not layouts:
        return dict(costs)
    last = _are_channels_last(layouts, float(capability))
    known: dict[tuple[int, int], OpCost] = {}
    found = dict(costs)
    for name, info in infos.items():
        cost = costs[name]
        if info.op not in DATA_INPUTS or not _has_images(info):
            continue
        key = id(info), id(cost)
        if key not in known:
            known[key] = _as_run(cost, info, channels_last=last, red_zones=red_zones)
        found[name] = known[key]
    return found


def _as_run(cost: OpCost, info: OpInfo, *, channels_last: bool, red_zones: bool) -> OpCost:
    if channels_last and _is_product(info):
        return replace(
            cost,
            gpu_temporary_bytes=0,
            gpu_temporary_chunks=(),
            tuned_bytes=0,
            workspace_bytes=0,
        )
    return replace(
        cost,
        channels_first=not channels_last and not _is_first(info),
        tuned_bytes=cost.tuned_bytes if red_zones else 0,
    )


def _are_channels_last(infos: Collection[OpInfo], capability: float) -> bool:
    """Whether more than half of the convolutions are faster so."""
    convolutions = [info for info in infos if is_tuned(info.op)]
    types = [_dtype(info) for info in convolutions]
    trains = any(
        "Backprop" in i.op and t == "float32" for i, t in zip(convolutions, types, strict=True)
    )
    faster = [
        capability >= _CHANNELS_LAST_FROM.get(dtype, 1e9) and not (trains and dtype == "float32")
        for dtype in types
    ]
    return 2 * sum(faster) >= len(faster) > 0


def _dtype(info: OpInfo) -> str:
    return info.outputs[0].dtype if info.outputs else ""


def _has_images(info: OpInfo) -> bool:
    """Whether what it reads has height and width, as a BiasAdd of a matrix has not."""
    number = DATA_INPUTS[info.op][0]
    shape = info.inputs[number].shape if number < len(info.inputs) else None
    return shape is not None and len(shape) >= IMAGE_RANK


def _is_first(info: OpInfo) -> bool:
    """Whether the program itself has channels first."""
    return str(info.attributes.get("data_format", "NHWC")).startswith("NC")


def _is_product(info: OpInfo) -> bool:
    """Whether a forward convolution with windows of one pixel moves by one."""
    if info.op not in ("Conv2D", "_FusedConv2D") or len(info.inputs) <= 1:
        return False
    window = (info.inputs[1].shape or ())[:2]
    strides = info.attributes.get("strides", ())
    return window == (1, 1) and isinstance(strides, tuple | list) and set(strides) <= {1}
