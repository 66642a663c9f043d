"""Costs of many ops at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, ask_once
from cost_models.registry import op_cost


def estimate(ops: Mapping[str, OpInfo]) -> dict[str, OpCost]:
    """The cost of every op by name; ops with one ``OpInfo`` between them are costed once."""
    return dict(zip(ops, ask_once(op_cost, ops.values()), strict=True))


def with_measured(
    costs: Mapping[str, OpCost], seconds: Mapping[str, float], device_type: str = ""
) -> dict[str, OpCost]:
    """``costs`` with measured times: ``seconds`` of one execution, by op name.

    They hold on devices of ``device_type``, by default on all, and change neither flops nor bytes.
    Names that are not among ``costs`` are left out.
    """
    found = dict(costs)
    for name, value in seconds.items():
        if name in found:
            known = {**found[name].measured_seconds, device_type: value}
            found[name] = replace(found[name], measured_seconds=known)
    return found
