"""From work to seconds: the roofline of one device, the line of one link.

The model is Williams, Waterman and Patterson, "Roofline: an insightful visual performance model
for multicore architectures", https://doi.org/10.1145/1498765.1498785.

``peak_flops`` of a GPU is that of float32 as TensorFlow runs it: on tensor cores (TF32) from
compute capability 8.0, on CUDA cores before.  The rates of other precisions follow from it by
compute capability, where nobody gives them.  What part of them ops reach, and of the memory's
bandwidth, is in ``data/gpu_efficiency.toml`` by kind, for every GPU that was not calibrated.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from cost_models.devices import DeviceProperties, Efficiency, Link
from cost_models.op_cost import OpCost

FULL = Efficiency()

_HALF_RATIO = (((7, 0), 1.0), ((7, 1), 8.0), ((8, 0), 4.0))
"""Matrix products of float16 over float32, by the first compute capability that the ratio no longer
holds for.  7.0: 125 and 15.7 TFLOPS (V100 datasheet).  7.2 and 7.5: 53.8 and 13.4 TFLOPS with
float32 accumulation, which is what TensorFlow asks for (GeForce RTX 2080 Ti, Turing whitepaper);
boards of other names promise twice that."""

_DOUBLE_RATIO: Mapping[str, float] = {"6.0": 1 / 2, "7.0": 1 / 2, "8.0": 1 / 8, "9.0": 1 / 8}
_USUAL_DOUBLE_RATIO = 1 / 32
"""float64 over float32 (TF32 from 8.0): the table of arithmetic instructions in the CUDA C++
programming guide, and the datasheets of A100 and H100 (19.5 of 156, 67 of 494.5)."""

_MATRIX_FAMILIES = frozenset({"convolution", "matmul", "einsum", "recurrent", "linear_algebra"})
"""Families whose flops are matrix products, which tensor cores take."""


def precision_rate(device: DeviceProperties, cost: OpCost) -> float:
    """FLOP/s at which ``device`` could do the op's arithmetic, by its precision and family.

    ``peak_flops_fp16`` of the device, if given, is that of float16 and bfloat16 matrix products.
    """
    if cost.precision == "float64":
        ratio = _DOUBLE_RATIO.get(capability_of(device), _USUAL_DOUBLE_RATIO)
        return device.peak_flops * ratio
    if not _is_half(cost, device):
        return device.peak_flops
    if device.peak_flops_fp16 is not None:
        return device.peak_flops_fp16
    capability = _numbers(capability_of(device))
    ratios = (ratio for limit, ratio in _HALF_RATIO if capability < limit)
    # from 8.0: float16 over TF32, 312 and 156 TFLOPS (A100 datasheet), 989 and 494.5 (H100)
    return device.peak_flops * next(ratios, 2.0)


def usual_efficiency(cost: OpCost, device: DeviceProperties) -> Efficiency:
    """Returns the rates of such ops on GPUs that nobody calibrated; nothing is known of op types
    without a rule, which have no family."""
    known = usual_efficiencies()
    kinds = (*gpu_kinds(cost, device), "usual") if cost.family else ()
    return next((known[kind] for kind in kinds if kind in known), FULL)


def gpu_kinds(cost: OpCost, device: DeviceProperties) -> tuple[str, ...]:
    """Returns the kinds that a GPU may have an efficiency for, the closest first.

    Matrix products on tensor cores are kinds of their own (``matmul-tensor``), and no fast
    algorithm replaces them.
    """
    op_type, family = cost.op_type, cost.family
    if family in _MATRIX_FAMILIES and _on_tensor_cores(cost, device):
        return f"{op_type}-tensor", f"{family}-tensor", *cost.kinds
    return (cost.gpu_kind, *cost.kinds) if cost.gpu_kind else cost.kinds


@cache
def usual_efficiencies() -> Mapping[str, Efficiency]:
    """``data/gpu_efficiency.toml``, by kind; read at the first call."""
    text = (Path(__file__).parent / "data" / "gpu_efficiency.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)["efficiency"]
    return MappingProxyType({kind: Efficiency(**row) for kind, row in rows.items()})


def capability_of(device: DeviceProperties) -> str:
    """The compute capability, as ``"7.5"``; where it is not given, what the peak suggests."""
    if device.compute_capability:
        return device.compute_capability
    # the largest float32 peak of a card of compute capability 7.5 or less is 16.4e12 FLOP/s
    return "7.5" if device.peak_flops < 20e12 else "8.0"


def _is_half(cost: OpCost, device: DeviceProperties) -> bool:
    """Whether these are matrix products of half precision (bfloat16: from 8.0 on)."""
    half = cost.precision == "float16" or (
        cost.precision == "bfloat16" and _numbers(capability_of(device)) >= (8, 0)
    )
    return half and cost.family in _MATRIX_FAMILIES


def _on_tensor_cores(cost: OpCost, device: DeviceProperties) -> bool:
    capability = _numbers(capability_of(device))
    if cost.precision == "float32":
        return capability >= (8, 0)
    return capability >= (7, 0) and _is_half(cost, device)


@cache
def _numbers(capability: str) -> tuple[int, int]:
    """``"7.5"`` as ``(7, 5)``."""
    major, _, minor = capability.partition(".")
    return int(major), int(minor or 0)


def op_seconds(cost: OpCost, device: DeviceProperties, *, launches: bool = True) -> float:
    """Seconds of one execution: its launches, if they are counted, and the longer of computing and
    moving bytes.

    The device reaches the part of its peak that its ``efficiency`` says for the first of the op's
    kinds that it has; a GPU else what GPUs usually reach, a CPU all of it.  What the peak of a GPU
    is depends on the precision (:mod:`cost_models.roofline`).  An op without flops and without
    traffic (an alias, a handle, a constant) launches no kernel and takes the executor's own time
    for it.  An op with bodies takes as long as what runs in them.  A measured time is taken as it
    is, on devices of its type.
    """
    measured = cost.measured_seconds.get(device.type, cost.measured_seconds.get(""))
    if measured is not None:
        return measured
    if cost.inner:
        return cost.repeats * sum(op_seconds(i, device, launches=launches) for i in cost.inner)
    cost = cost if launches else replace(cost, launches=0)
    reached = _efficiency(cost, device)
    launch = reached.launch_seconds
    if cost.flops == 0 and cost.bytes_accessed == 0:
        return cost.launches * (device.dispatch_seconds if launch is None else launch)
    if launch is None:
        launch = device.launch_seconds
    count, traffic = work_on(cost, device)
    if device.type == "GPU":
        computed, rate = cost.tiled_flops or cost.flops, precision_rate(device, cost)
    else:
        computed, rate = cost.flops, device.peak_flops
    computing = computed / (reached.compute * rate)
    moving = traffic / (reached.memory * device.memory_bandwidth)
    return count * launch + max(computing, moving)


def _efficiency(cost: OpCost, device: DeviceProperties) -> Efficiency:
    known, is_gpu = device.efficiency, device.type == "GPU"
    kinds = gpu_kinds(cost, device) if is_gpu and known else cost.kinds
    found = next((known[kind] for kind in kinds if kind in known), None) if known else None
    if found is not None:
        return found
    return usual_efficiency(cost, device) if is_gpu else FULL


def work_on(cost: OpCost, device: DeviceProperties) -> tuple[int, int]:
    """Launches and bytes of traffic on ``device``: a CPU also cuts and packs."""
    if device.type == "CPU":
        return cost.launches * cost.pieces, cost.bytes_accessed + cost.packed_bytes
    return cost.launches, cost.bytes_accessed


def transfer_seconds(size_bytes: int | None, link: Link) -> float:
    """Seconds to send a tensor over ``link``: its latency, and the bytes at its bandwidth.

    A tensor without a size (``None``: a string, a variant, an unknown shape) takes the latency;
    who adds up times must say how many there were.

    >>> transfer_seconds(1_000_000, Link(bandwidth=1e9, latency=0.0))
    0.001
    """
    return link.latency + (size_bytes or 0) / link.bandwidth
