"""The costs of a program's ops: by the cost rules, or measured."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost, with_measured
from placer.errors import UsageError
from placer.extraction import Extraction
from placer.plan.measured_costs import MeasuredCosts
from placer.plan.request import Options
from placer.prediction.costs.op_costs import estimate_costs


def cost_ops(
    extraction: Extraction, cluster: Cluster, wanted: Options
) -> tuple[dict[str, OpCost], Extraction]:
    """Returns the cost of every op, and the extraction with warnings about costs.

    Bytes are always those of the cost rules; so are the seconds of ops that were not measured.
    Raises :class:`UsageError` for costs of another graph, or that name no op of this one.
    """
    graph, costs = extraction.graph, wanted.costs
    calibrated = any(device.efficiency for device in cluster.devices)
    found = estimate_costs(graph, wanted.trip_count, in_place=calibrated)
    if costs is None:
        return found, extraction
    by_type = _measured_seconds(extraction, costs)
    for device_type, seconds in by_type.items():
        found = with_measured(found, seconds, device_type)
    if not any(found[name].measured_seconds for name in graph.ops):
        raise UsageError(
            "the costs name no op of this model: the names are those of its flat graph"
        )
    warnings = (*extraction.warnings, *_warnings(found, by_type, cluster))
    return found, replace(extraction, warnings=warnings)


def _warnings(
    costs: Mapping[str, OpCost], by_type: Collection[str], cluster: Cluster
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Warnings of ops that keep the cost model's times beside measured ones (by device type)."""
    others = sorted({device.type for device in cluster.devices} - set(by_type))
    if others and "" not in by_type:
        message = (
            f"the times were measured on a {' and a '.join(by_type)}; for every {others[0]} the "
            f"cost model's are taken"
        )
        yield "measured_elsewhere", message, ()
    rest = tuple(name for name, cost in costs.items() if not cost.measured_seconds and _works(cost))
    if rest:
        message = (
            f"{len(rest):,} of {len(costs):,} ops have no measured time: the cost model's is taken"
        )
        yield "unmeasured", message, rest


def _works(cost: OpCost) -> bool:
    return bool(cost.flops or cost.bytes_accessed)


def _measured_seconds(
    extraction: Extraction, costs: MeasuredCosts | Mapping[str, float] | str | os.PathLike[str]
) -> Mapping[str, Mapping[str, float]]:
    """Seconds of one execution by device type (``""``: any) and op name."""
    if isinstance(costs, Mapping):
        return {"": costs}
    name = "the costs file" if isinstance(costs, MeasuredCosts) else f"the costs file {costs}"
    measured = costs if isinstance(costs, MeasuredCosts) else MeasuredCosts.load(costs)
    measured.check_graph(extraction.graph.fingerprint, name)
    _check_bindings(measured, extraction, name)
    return measured.seconds_by_type


def _check_bindings(measured: MeasuredCosts, extraction: Extraction, source: str) -> None:
    """Raises ``UsageError`` if unknown dimensions were bound to other sizes."""
    for key in ("batch_size", "shapes", "ragged"):
        then, now = measured.bindings.get(key), extraction.bindings.get(key)
        if measured.bindings and _plain(then) != _plain(now):
            raise UsageError(
                f"{source} was measured with {key} {then}, and this is asked for with {now}: "
                f"measure again with placer profile, or ask for the same"
            )


def _plain(value: Any) -> Any:
    """Mappings and sequences as JSON gives them back."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()} or None
    return list(value) if isinstance(value, tuple | list) else value
