"""Everything that is known about a solved placement, as one plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer import __version__
from placer.extraction import Extraction
from placer.plan.plan import Plan
from placer.prediction.metrics import Metrics
from placer.problem.constraints import Constraints
from placer.problem.placement_problem import PlacementProblem
from placer.solving.solution import Solution, SolverParameters

METRICS = (
    "transfer_bytes",
    "transfer_count",
    "fetch_bytes",
    "step_seconds",
    "bottleneck_seconds",
    "critical_path_seconds",
)
"""Keys of ``Plan.metrics``, all ``None`` where nothing was placed: unknown is not zero."""

_OPS_PER_WARNING = 20


def assemble_plan(
    extraction: Extraction,
    cluster: Cluster,
    costs: Mapping[str, OpCost],
    constraints: Constraints,
    problem: PlacementProblem,
    solution: Solution,
    metrics: Metrics | None,
    parameters: SolverParameters,
) -> Plan:
    """The plan for ``solution``; without a placement (``metrics is None``) its tables are empty."""
    graph = extraction.graph
    placement = {} if solution.device_of is None else problem.placement(solution.device_of)
    return Plan(
        model=dict(extraction.model),
        bindings=dict(extraction.bindings),
        devices=tuple(_device_rows(cluster, placement, costs, constraints, metrics)),
        placement=placement,
        variables={v.name: placement[v.handle] for v in graph.variables} if placement else {},
        transfers=tuple(_transfer_rows(metrics)) if metrics else (),
        metrics=_metric_values(metrics) if metrics else dict.fromkeys(METRICS),
        solver=_solver_values(problem, solution, parameters),
        unmodelled=_unmodelled(extraction, costs),
        warnings=tuple(_warning_rows(extraction, constraints, solution)),
        conflict=solution.conflict,
        tensorflow_version=extraction.tensorflow_version,
        tool_version=__version__,
    )


def _device_rows(
    cluster: Cluster,
    placement: Mapping[str, str],
    costs: Mapping[str, OpCost],
    constraints: Constraints,
    metrics: Metrics | None,
) -> list[dict[str, Any]]:
    spilled = _spilled_bytes(placement, costs, constraints)
    rows = []
    for device in cluster.devices:
        timeline = metrics.timelines[device.name] if metrics else None
        peak = metrics.peaks[device.name] if metrics else None
        rows.append(
            {
                "name": device.name,
                "type": device.type,
                "model": device.model,
                "memory_limit_bytes": device.memory_limit_bytes,
                "usable_bytes": device.usable_bytes,
                "resident_bytes": timeline.resident_bytes if timeline else None,
                "peak_memory_bytes": peak.high_bytes if peak else None,
                "peak_expected_bytes": peak.expected_bytes if peak else None,
                "peak_low_bytes": peak.low_bytes if peak else None,
                "spilled_bytes": (spilled if device.name == cluster.host.name else 0)
                if timeline
                else None,
                "busy_seconds": metrics.schedule.busy_seconds[device.name] if metrics else None,
            }
        )
    return rows


def _spilled_bytes(
    placement: Mapping[str, str], costs: Mapping[str, OpCost], constraints: Constraints
) -> int:
    """Resident bytes of groups that sit on a device they use only when spilled."""
    return sum(
        costs[op].persistent_bytes
        for group, devices in zip(constraints.groups, constraints.group_devices, strict=True)
        for op in group.ops
        if placement and devices and placement[op] not in devices
    )


def _transfer_rows(metrics: Metrics) -> list[dict[str, Any]]:
    return [
        {
            "tensor": transfer.tensor,
            "from": transfer.source,
            "to": transfer.target,
            "bytes": transfer.bytes,
            "kind": transfer.kind,
            "memory": transfer.memory,
        }
        for transfer in metrics.transfers
    ]


def _metric_values(metrics: Metrics) -> dict[str, Any]:
    return {
        "transfer_bytes": metrics.bytes_of("data", "feed"),
        "transfer_count": sum(t.kind in ("data", "feed") for t in metrics.transfers),
        "fetch_bytes": metrics.bytes_of("fetch"),
        "step_seconds": metrics.schedule.step_seconds,
        "bottleneck_seconds": metrics.schedule.bottleneck_seconds,
        "critical_path_seconds": metrics.schedule.critical_path_seconds,
    }


def _solver_values(
    problem: PlacementProblem, solution: Solution, parameters: SolverParameters
) -> dict[str, Any]:
    return {
        "status": solution.status.value,
        "objective": problem.objective,
        "value": solution.value,
        "lower_bound": solution.lower_bound,
        "relative_gap": _relative_gap(solution),
        "seconds": solution.seconds,
        "seed": parameters.seed,
    }


def _relative_gap(solution: Solution) -> float | None:
    """(value - bound) / value, as CP-SAT and MIP solvers define it; ``None``: none proven."""
    if solution.value is None or solution.lower_bound is None:
        return None
    return (solution.value - solution.lower_bound) / solution.value if solution.value else 0.0


def _unmodelled(extraction: Extraction, costs: Mapping[str, OpCost]) -> dict[str, int]:
    return dict(
        Counter(op.op_type for op in extraction.graph.ops.values() if costs[op.name].unmodelled)
    )


def _warning_rows(
    extraction: Extraction, constraints: Constraints, solution: Solution
) -> list[dict[str, Any]]:
    with_ops = [*extraction.warnings, *constraints.warnings]
    rows: list[dict[str, Any]] = [
        {"code": code, "message": message, "count": max(1, len(ops)), "ops": list(ops)}
        for code, message, ops in with_ops
    ]
    if extraction.unknown:
        rows.append(
            {
                "code": "unknown_shape",
                "message": "the shapes of these tensors are unknown; their bytes are not counted",
                "count": len(extraction.unknown),
                "ops": list(extraction.unknown),
            }
        )
    rows += [
        {"code": code, "message": message, "count": 1, "ops": []}
        for code, message in solution.warnings
    ]
    return [{**row, "ops": row["ops"][:_OPS_PER_WARNING]} for row in rows]
