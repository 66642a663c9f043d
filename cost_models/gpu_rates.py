"""The share of a GPU's peaks that ops reach, by precision and by kind.

``peak_flops`` of a GPU is that of float32 as TensorFlow runs it: on tensor cores (TF32) from
compute capability 8.0, on CUDA cores before.  The rates of other precisions follow from it by
compute capability, where nobody gives them.  What part of them ops reach, and of the memory's
bandwidth, is in ``data/gpu_efficiency.toml`` by kind, for every GPU that was not calibrated.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from cost_models.devices import DeviceProperties, Efficiency
from cost_models.op_cost import OpCost

FULL = Efficiency()
_USUAL = "usual"

_HALF_RATIO = (((7, 0), 1.0), ((7, 1), 8.0), ((8, 0), 4.0))
"""Matrix products of float16 over float32, by the first compute capability that the ratio no longer
holds for.  7.0: 125 and 15.7 TFLOPS (V100 datasheet).  7.2 and 7.5: 53.8 and 13.4 TFLOPS with
float32 accumulation, which is what TensorFlow asks for (GeForce RTX 2080 Ti, Turing whitepaper);
boards of other names promise twice that."""

_NEWEST_HALF_RATIO = 2.0
"""From 8.0: float16 over TF32, 312 and 156 TFLOPS (A100 datasheet), 989 and 494.5 (H100)."""

_DOUBLE_RATIO: Mapping[str, float] = {"6.0": 1 / 2, "7.0": 1 / 2, "8.0": 1 / 8, "9.0": 1 / 8}
_USUAL_DOUBLE_RATIO = 1 / 32
"""float64 over float32 (TF32 from 8.0): the table of arithmetic instructions in the CUDA C++
programming guide, and the datasheets of A100 and H100 (19.5 of 156, 67 of 494.5)."""

_MATRIX_FAMILIES = frozenset({"convolution", "matmul", "einsum", "recurrent", "linear_algebra"})
"""Families whose flops are matrix products, which tensor cores take."""

_TENSOR_CORES = (7, 0)
_TENSOR_CORES_OF_FLOAT32 = (8, 0)

_LARGEST_PEAK_BEFORE_AMPERE = 20e12
"""FLOP/s.  The largest float32 peak of a card of compute capability 7.5 or less is 16.4e12."""


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
    return device.peak_flops * _half_ratio(device)


def usual_efficiency(cost: OpCost, device: DeviceProperties) -> Efficiency:
    """Returns the rates of such ops on GPUs that nobody calibrated; nothing is known of op types
    without a rule, which have no family."""
    known = usual_efficiencies()
    kinds = (*gpu_kinds(cost, device), _USUAL) if cost.family else ()
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
    return "7.5" if device.peak_flops < _LARGEST_PEAK_BEFORE_AMPERE else "8.0"


def _half_ratio(device: DeviceProperties) -> float:
    capability = _numbers(capability_of(device))
    ratios = (ratio for limit, ratio in _HALF_RATIO if capability < limit)
    return next(ratios, _NEWEST_HALF_RATIO)


def _is_half(cost: OpCost, device: DeviceProperties) -> bool:
    """Whether these are matrix products of half precision (bfloat16: from 8.0 on)."""
    half = cost.precision == "float16" or (
        cost.precision == "bfloat16" and _numbers(capability_of(device)) >= (8, 0)
    )
    return half and cost.family in _MATRIX_FAMILIES


def _on_tensor_cores(cost: OpCost, device: DeviceProperties) -> bool:
    capability = _numbers(capability_of(device))
    if cost.precision == "float32":
        return capability >= _TENSOR_CORES_OF_FLOAT32
    return capability >= _TENSOR_CORES and _is_half(cost, device)


@cache
def _numbers(capability: str) -> tuple[int, int]:
    """``"7.5"`` as ``(7, 5)``."""
    major, _, minor = capability.partition(".")
    return int(major), int(minor or 0)
