"""Orders of the units in which neighbours share many bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from placer.solving.reduced_problem import ReducedProblem

Order = npt.NDArray[np.int64]
Position = npt.NDArray[np.float64]

MOST_SPECTRAL_UNITS = 400
"""Eigenvectors of a dense matrix of this size take a few hundredths of a second."""

_MODES = 4
_NULL = 1e-9
_MOST_PINS = 64
"""Larger nets pull everything together and say little."""


def unit_orders(problem: ReducedProblem, members: Order) -> Iterator[Order]:
    """Some orders of the units ``members``: as in the graph, then, if it is small, along the
    slowest modes of its Laplacian."""
    pins = [(net.producer, *net.consumers) for net in problem.nets]
    sizes = [float(net.bytes) for net in problem.nets]
    for position in (_mean_place(problem), *slow_modes(problem.unit_count, pins, sizes)):
        yield members[np.argsort(position[members], kind="stable")]


def _mean_place(problem: ReducedProblem) -> Position:
    """The mean position in the graph of the ops of each unit."""
    unit_of = np.asarray(problem.unit_of, dtype=np.int64)
    count = np.bincount(unit_of, minlength=problem.unit_count)
    total = np.bincount(
        unit_of, weights=np.arange(len(unit_of), dtype=float), minlength=problem.unit_count
    )
    place: Position = total / np.maximum(count, 1)
    return place


def slow_modes(
    count: int, nets: Sequence[Sequence[int]], sizes: Sequence[float]
) -> Iterator[Position]:
    """Positions in which units that share many bytes lie close together; none for many units.

    ``nets`` have the units of each net, ``sizes`` its bytes.  The eigenvectors of the smallest
    eigenvalues above zero (each part of the graph that is joined to no other has a zero) of the
    normalised Laplacian of the graph in which every net is a clique (M. Fiedler, A property of
    eigenvectors of nonnegative symmetric matrices and its application to graph theory, 1975).
    """
    if not nets or not 2 < count <= MOST_SPECTRAL_UNITS:
        return
    weight = np.zeros((count, count))
    for net, size in zip(nets, sizes, strict=True):
        if len(net) <= _MOST_PINS:
            pins = np.asarray(net)
            weight[np.ix_(pins, pins)] += size / (len(net) - 1)
    np.fill_diagonal(weight, 0.0)
    degree = weight.sum(axis=1)
    scale = 1.0 / np.sqrt(np.where(degree > 0.0, degree, 1.0))
    laplacian = np.eye(count) - scale[:, None] * weight * scale[None, :]
    values, modes = np.linalg.eigh(laplacian)
    first = max(1, int((values < _NULL).sum()))
    for number in range(first, min(first + _MODES, count)):
        yield _signed(modes[:, number] * scale)


def _signed(mode: Position) -> Position:
    """The mode with its largest entry positive, so that rounding cannot turn the order round."""
    return mode if mode[np.argmax(np.abs(mode))] >= 0.0 else -mode
