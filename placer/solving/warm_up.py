"""Compiles the search ahead of its first use.

    python -m placer.solving.warm_up

Numba compiles each function at its first call and keeps it beside the sources.  The first
placement on a machine would spend most of a short time limit on that.
"""

from __future__ import annotations

import random
from dataclasses import replace

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import OBJECTIVES, PlacementProblem, ProblemTensor
from placer.solving.peaks.problem import to_peak_problem
from placer.solving.process.child_search import search_in_child
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.solution import SolverParameters
from placer.solving.solver import solve

_OPS = 1500
_SECONDS = 90.0
_WORK = 1
"""Search cycles are counted, so that the time goes into compiling and not into searching."""


def sample_problem() -> PlacementProblem:
    """A random graph on two accelerators of 60% of its bytes each: large enough to be searched."""
    rng = random.Random(0)
    ops = range(_OPS)
    tensors = [
        ProblemTensor(
            producer=op,
            consumers=tuple(sorted({min(_OPS - 1, op + rng.randint(1, 40)) for _ in range(3)})),
            bytes=rng.randint(1, 1000),
        )
        for op in ops[:-1]
    ]
    resident = tuple(rng.randint(1, 100) for _ in ops)
    cap = 6 * sum(resident) // 10
    return PlacementProblem(
        op_names=tuple(f"op{op}" for op in ops),
        device_names=("GPU:0", "GPU:1", "CPU:0"),
        host=2,
        resident_bytes=resident,
        temporary_bytes=(0,) * _OPS,
        seconds=((1e-5, 1e-5, 1e-4),) * _OPS,
        group=tuple(ops),
        allowed=((0, 1),) * _OPS,
        spillable=(False,) * _OPS,
        tensors=tuple(tensors),
        control_edges=(),
        capacity_bytes=(cap, cap, 1 << 40),
        transient_bytes=(0, 0, 0),
        live_bytes=(),
        bandwidth=((1e9,) * 3,) * 3,
        latency=((1e-6,) * 3,) * 3,
        spill="never",
    )


def sample_lifetimes(problem: PlacementProblem) -> PossibleLifetimes:
    """Every tensor a buffer, the ops in the order of their numbers."""
    lifetimes = PossibleLifetimes(orders=1, length=len(problem.op_names))
    for tensor in problem.tensors:
        lifetimes.add_buffer(tensor.producer, tensor.producer, tensor.bytes)
        for op in tensor.consumers:
            lifetimes.add_read(op, tensor.producer, op, tensor.bytes)
    return lifetimes


def warm_up(seconds: float = _SECONDS) -> None:
    """Solves a small problem for every objective, each for ``seconds`` at most."""
    parameters = SolverParameters(time_limit_seconds=seconds, workers=1, work_limit=_WORK)
    problem = sample_problem()
    for objective in OBJECTIVES:
        solve(replace(problem, objective=objective), parameters)
    units, lifetimes = reduce_to_units(problem), sample_lifetimes(problem)
    peaks = to_peak_problem(problem, units, lifetimes, problem.capacity_bytes)
    counted = replace(parameters, work_limit=2 * _WORK)
    search_in_child("placer.solving.peaks.search:search_peaks", peaks, [], counted, seconds)


if __name__ == "__main__":
    warm_up()
