"""Costs of many ops at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo
from cost_models.registry import op_cost


def estimate(
    ops: Mapping[str, OpInfo], measured: Mapping[str, float] | None = None
) -> dict[str, OpCost]:
    """The cost of every op by name.

    ``measured`` has seconds of one execution by op name; it does not change bytes.
    """
    costs = {name: op_cost(info) for name, info in ops.items()}
    for name, seconds in (measured or {}).items():
        if name in costs:
            costs[name] = replace(costs[name], measured_seconds=seconds)
    return costs
