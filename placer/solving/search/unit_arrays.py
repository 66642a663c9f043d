"""Unit problems as flat arrays for compiled code.  Sizes become floats: exact up to 2**53 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from placer.problem.placement_problem import ProblemTensor
from placer.solving.compiled.arrays import Arrays, Devices, Floats, Nets, Units, incidence, ragged
from placer.solving.reduction.unit_problem import UnitProblem

if TYPE_CHECKING:
    from placer.solving.objectives.throughput.problem import Stream


def transfer_arrays(problem: UnitProblem) -> Arrays:
    """The problem of the least cost: a unit costs bytes on its device, a byte costs one."""
    count = problem.device_count
    cost = np.array(problem.cost, np.float64).reshape(problem.unit_count, count)
    alike = np.ones((count, count)) - np.eye(count)
    nets = nets_of(problem.nets, np.ones(len(problem.nets)))
    machine = Devices(capacity_of(problem), 0.0 * alike, alike, np.ones(count, np.bool_), False)
    return Arrays(units_of(problem, cost, nets), nets, machine)


def units_of(problem: UnitProblem, cost: Floats, nets: Nets) -> Units:
    """The units with ``cost[unit, device]``."""
    allowed = np.zeros((problem.unit_count, problem.device_count), np.bool_)
    for unit, devices in enumerate(problem.allowed):
        allowed[unit, list(devices)] = True
    weights = np.array([row.weights for row in problem.rows], np.float64)
    weights = weights.reshape(len(problem.rows), problem.unit_count)
    return Units(cost, weights, allowed, *incidence(problem.unit_count, nets))


def capacity_of(problem: UnitProblem) -> Floats:
    """``[row, device]``."""
    capacity = np.array([row.capacity for row in problem.rows], np.float64)
    return capacity.reshape(len(problem.rows), problem.device_count)


def nets_of(sent: Sequence[ProblemTensor | Stream], messages: Floats) -> Nets:
    """Returns the nets of what is sent, each in so many messages."""
    start, pins = ragged([each.consumers for each in sent])
    producers = np.array([each.producer for each in sent], np.int64)
    sizes = np.array([each.bytes for each in sent], np.float64)
    return Nets(producers, start, pins, sizes, messages)
