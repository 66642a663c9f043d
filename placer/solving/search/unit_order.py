"""Orders of the units in which neighbours share many bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from placer.solving.compiled.laplacian import MOST_PINS, MOST_UNITS, Matrix, slow_modes
from placer.solving.reduction.unit_problem import UnitProblem

Order = npt.NDArray[np.int64]
Position = npt.NDArray[np.float64]

_MODES = 4


def unit_orders(problem: UnitProblem, members: Order) -> Iterator[Order]:
    """Some orders of the units ``members``: as in the graph, then, if it is small, along the
    slowest modes of its Laplacian."""
    yield _along(_mean_place(problem), members)
    if problem.nets and 2 < problem.unit_count <= MOST_UNITS:
        for mode in slow_modes(_clique_weights(problem), _MODES, within_parts=True):
            yield _along(mode, members)


def _along(position: Position, members: Order) -> Order:
    return members[np.argsort(position[members], kind="stable")]


def _mean_place(problem: UnitProblem) -> Position:
    """The mean position in the graph of the ops of each unit."""
    unit_of = np.asarray(problem.unit_of, dtype=np.int64)
    count = np.bincount(unit_of, minlength=problem.unit_count)
    total = np.bincount(
        unit_of, weights=np.arange(len(unit_of), dtype=float), minlength=problem.unit_count
    )
    place: Position = total / np.maximum(count, 1)
    return place


def _clique_weights(problem: UnitProblem) -> Matrix:
    """What ties units: every net is a clique, its bytes divided among the ties of each unit."""
    weight = np.zeros((problem.unit_count, problem.unit_count))
    for net in problem.nets:
        if len(net.consumers) < MOST_PINS:
            pins = np.asarray((net.producer, *net.consumers))
            weight[np.ix_(pins, pins)] += net.bytes / len(net.consumers)
    np.fill_diagonal(weight, 0.0)
    return weight
