"""The search for the least transfer: annealing at several scales, begun at segments of orders in
which neighbours share many bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.problem import ProblemTensor
from placer.solving.annealing_search import AnnealingSearch, Found, OnBetter
from placer.solving.compiled.arrays import (
    Arrays,
    Devices,
    Floats,
    Ints,
    Nets,
    Units,
    incidence,
    ragged,
)
from placer.solving.compiled.transfers import (
    anneal_transfer,
    keeps_capacity,
    new_transfer_state,
    transfer_bytes,
)
from placer.solving.drafts import drafts
from placer.solving.occupancy import Incidence
from placer.solving.reduced_problem import ReducedProblem, Row

_MOST_DRAFTS = 8
_FIRST_STEPS_PER_UNIT = 100
_MOST_FIRST_STEPS = 30_000
_STEPS_PER_UNIT = 10
"""Many short rounds from fresh starts find more than few long ones."""


def to_arrays(problem: ReducedProblem) -> Arrays:
    """The problem for compiled code.  Sizes become floats: exact up to 2**53 bytes."""
    count = problem.device_count
    allowed = np.zeros((problem.unit_count, count), np.bool_)
    for unit, devices in enumerate(problem.allowed):
        allowed[unit, list(devices)] = True
    start, pins = ragged([net.consumers for net in problem.nets])
    sizes = np.array([net.bytes for net in problem.nets], np.float64)
    producers = np.array([net.producer for net in problem.nets], np.int64)
    nets = Nets(producers, start, pins, sizes, np.ones(len(sizes)))
    cost = np.zeros((problem.unit_count, count))
    cost[:, problem.host] = problem.host_cost
    weights = np.array([row.weights for row in problem.rows], np.float64)
    units = Units(
        cost,
        weights.reshape(len(problem.rows), problem.unit_count),
        allowed,
        *incidence(problem.unit_count, nets),
    )
    capacity = np.array([row.capacity for row in problem.rows], np.float64)
    alike = np.ones((count, count)) - np.eye(count)
    machine = Devices(
        capacity.reshape(len(problem.rows), count),
        0.0 * alike,
        alike,
        np.ones(count, np.bool_),
        False,
    )
    return Arrays(units, nets, machine)


class TransferSearch(AnnealingSearch):
    """The search over one problem; ``on_better`` is told of every better placement."""

    coarsest_units = 120
    cluster_share = 0.1
    fresh_temperature = 0.5
    temperatures = (0.05, 0.3, 1.0)

    def __init__(
        self, problem: ReducedProblem, hint: Sequence[int] | None, seed: int, on_better: OnBetter
    ) -> None:
        self.problem = problem
        super().__init__(to_arrays(problem), hint, seed, on_better)

    def judge(self, arrays: Arrays, device_of: Ints) -> Found:
        """The placement with its transfer in bytes."""
        state = new_transfer_state(arrays, device_of)
        fits = all(keeps_capacity(arrays, state, d) for d in range(state.used.shape[1]))
        return Found(float(transfer_bytes(arrays, state)) if fits else np.inf, device_of)

    def anneal(self, arrays: Arrays, device_of: Ints, free: Ints, temperature: float) -> Ints:
        """Annealing from ``temperature`` times the mean size of a net that is cut."""
        steps = min(_MOST_FIRST_STEPS, _FIRST_STEPS_PER_UNIT * len(free))
        steps += _STEPS_PER_UNIT * len(free)
        state = new_transfer_state(arrays, device_of)
        home = state.device_of[arrays.nets.producer]
        elsewhere = state.readers > 0
        elsewhere[np.arange(len(home)), home] = False
        cut = elsewhere.any(axis=1)
        mean = float(arrays.nets.bytes[cut].mean()) if cut.any() else 1.0
        heat = temperature * max(1.0, mean)
        _, best = anneal_transfer(arrays, device_of, free, self.next_seed(), steps, heat)
        return best

    def sizes(self, arrays: Arrays) -> Floats:
        """Each unit's largest share of a row."""
        totals = np.maximum(1.0, arrays.units.weights.sum(axis=1, keepdims=True))
        return np.asarray((arrays.units.weights / totals).max(axis=0), np.float64)

    def fresh(self, arrays: Arrays) -> list[Found]:
        """Segments of spectral and given orders, and first fits."""
        coarse = _to_problem(arrays, self.problem)
        found = []
        for device_of in drafts(Incidence(coarse)):
            if device_of is not None:
                found.append(self.judge(arrays, np.array(device_of, np.int64)))
            if len(found) == _MOST_DRAFTS:
                break
        return [each for each in found if np.isfinite(each.value)]


def _to_problem(arrays: Arrays, origin: ReducedProblem) -> ReducedProblem:
    """A coarser problem as the drafts read it."""
    units, nets = arrays.units, arrays.nets
    count = len(units.seconds)
    return ReducedProblem(
        device_count=origin.device_count,
        host=origin.host,
        allowed=tuple(tuple(np.flatnonzero(row).tolist()) for row in units.allowed),
        nets=tuple(
            ProblemTensor(
                producer=int(nets.producer[net]),
                consumers=tuple(nets.pins[nets.pin_start[net] : nets.pin_start[net + 1]].tolist()),
                bytes=int(nets.bytes[net]),
            )
            for net in range(len(nets.producer))
        ),
        rows=tuple(
            Row(weights=tuple(map(int, weights)), capacity=row.capacity)
            for weights, row in zip(units.weights.tolist(), origin.rows, strict=True)
        ),
        host_cost=tuple(map(int, units.seconds[:, origin.host].tolist())),
        unit_of=tuple(range(count)),
        anchor=tuple(range(count)),
    )
