"""Orders of the units in which neighbours share many bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from placer.solving.reduced_problem import ReducedProblem

Order = npt.NDArray[np.int64]
Position = npt.NDArray[np.float64]

_MOST_SMOOTHING_ROUNDS = 300
"""Enough for the slowest modes of graphs of some ten thousand units to stand out; small graphs
need fewer."""


def unit_orders(problem: ReducedProblem, members: Order) -> Iterator[Order]:
    """Some orders of the units ``members``: as in the graph, then two spectral ones."""
    place = _mean_place(problem)
    yield members[np.argsort(place[members], kind="stable")]
    if not problem.nets:
        return
    for position in _slow_modes(problem, place):
        yield members[np.argsort(position[members], kind="stable")]


def _mean_place(problem: ReducedProblem) -> Position:
    """The mean position in the graph of the ops of each unit."""
    unit_of = np.asarray(problem.unit_of, dtype=np.int64)
    count = np.bincount(unit_of, minlength=problem.unit_count)
    total = np.bincount(
        unit_of, weights=np.arange(len(unit_of), dtype=float), minlength=problem.unit_count
    )
    return total / np.maximum(count, 1)


def _slow_modes(problem: ReducedProblem, place: Position) -> list[Position]:
    """Two positions per unit in which units that share nets lie close together.

    Power iteration of a lazy random walk unit -> net -> unit with the bytes as weights (the
    slowest modes of the star expansion, M. Fiedler 1973), begun at the order of the graph so that
    the result does not depend on chance.
    """
    pins = [(n, u) for n, net in enumerate(problem.nets) for u in (net.producer, *net.consumers)]
    net_of, unit_of = np.asarray(pins, dtype=np.int64).T
    size = np.asarray([float(net.bytes) for net in problem.nets])
    pin_count = np.bincount(net_of).astype(float)
    share = (size / pin_count)[net_of]
    degree = np.bincount(unit_of, weights=share, minlength=problem.unit_count)
    degree = np.maximum(degree.astype(float), 1e-300)

    def walk(position: Position) -> Position:
        net_position = np.bincount(net_of, weights=position[unit_of]) / pin_count
        pulled = np.bincount(
            unit_of, weights=share * net_position[net_of], minlength=problem.unit_count
        )
        halfway: Position = 0.5 * (position + pulled / degree)
        return halfway

    first = _iterate(walk, place.copy(), [np.ones_like(place)], degree)
    second = _iterate(walk, place**2, [np.ones_like(place), first], degree)
    return [first, second]


def _iterate(
    walk: Callable[[Position], Position],
    position: Position,
    against: Sequence[Position],
    degree: Position,
) -> Position:
    """The slowest mode of ``walk`` that is orthogonal (weighted by degree) to ``against``; zero
    where there is none."""
    lengths = [(degree * mode) @ mode for mode in against]
    for _ in range(min(_MOST_SMOOTHING_ROUNDS, 10 + 2 * len(position))):
        position = walk(position)
        for mode, length in zip(against, lengths, strict=True):
            if length > 0.0:
                position = position - mode * ((degree * mode) @ position / length)
        norm = np.sqrt((degree * position) @ position)
        if norm == 0.0:
            return position
        position = position / norm
    return position
