"""A problem on equal devices."""

from __future__ import annotations

from dataclasses import replace

from placer.problem.placement_problem import PlacementProblem


def on_devices(problem: PlacementProblem, count: int, capacity_bytes: int) -> PlacementProblem:
    """The problem on ``count`` equal devices."""
    ops = len(problem.op_names)
    return replace(
        problem,
        device_names=tuple(f"GPU:{number}" for number in range(count)),
        host=count - 1,
        temporary_bytes=(0,) * ops,
        seconds=((0.0,) * count,) * ops,
        allowed=(tuple(range(count)),) * ops,
        spillable=(False,) * ops,
        capacity_bytes=(capacity_bytes,) * count,
        transient_bytes=(0,) * count,
        live_bytes=(),
        bandwidth=((1e9,) * count,) * count,
        latency=((0.0,) * count,) * count,
        parallel_ops=(),
        slower_bytes=(),
        spill="never",
    )
