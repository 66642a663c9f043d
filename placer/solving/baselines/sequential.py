"""Placements that fill devices in the order of the graph, and those on one device."""

import itertools
from collections.abc import Sequence

import numpy as np

from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines.tasks import DoesNotFitError, Placement, Room, Tasks, accelerators
from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.search.linear_split import split


def one_device(problem: PlacementProblem) -> Placement:
    """Everything on the first accelerator that holds it, as far as it may be there."""
    for device in accelerators(problem):
        room = Room(problem)
        try:
            for op in range(len(problem.op_names)):
                choices = room.choices(op)
                if device not in choices and device in room.preferred[room.units.unit_of[op]]:
                    raise DoesNotFitError(f"not everything fits on {problem.device_names[device]}")
                room.put(op, device if device in choices else choices[0])
        except DoesNotFitError:
            continue
        return room.placement()
    raise DoesNotFitError("no single accelerator holds everything")


def tensorflow_default(problem: PlacementProblem) -> Placement:
    """TensorFlow's placement without ``tf.device``: the first accelerator for all that may run
    there, the host for the rest, whatever fits."""
    first = accelerators(problem)[0]
    room = Room(problem)
    devices = []
    for unit in room.units.unit_of:
        allowed = room.preferred[unit] or room.units.allowed[unit]
        if not allowed:
            raise DoesNotFitError("ops that must share a device may run on none")
        devices.append(first if first in allowed else allowed[0])
    return tuple(devices)


def first_fit(problem: PlacementProblem) -> Placement:
    """In topological order onto the first device until it is full, then the next, never back: the
    ``sequential`` device map of Hugging Face Accelerate."""
    return _fill(problem, [1.0] * len(problem.device_names))


def balanced(problem: PlacementProblem) -> Placement:
    """As first fit, with every accelerator limited to an equal share of the bytes, and the largest
    group more: the ``balanced`` device map of Hugging Face Accelerate."""
    return _fill_shares(problem, slack=True)


def m_topo(problem: PlacementProblem) -> Placement:
    """In topological order, every device limited to an equal share plus the largest op (B. Jeon et
    al., Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020, section 3.1)."""
    return _fill_shares(problem, slack=False)


def round_robin_variables(problem: PlacementProblem) -> Placement:
    """Groups with resident bytes in turn over the accelerators, all else on the first one, as
    ``tf.compat.v1.train.replica_device_setter`` spreads variables over parameter servers."""
    devices = accelerators(problem)
    room = Room(problem)
    turn = itertools.cycle(devices)
    for op, size in enumerate(problem.resident_bytes):
        if size and room.of(op) is None:
            choices = room.choices(op)
            wanted = next((d for d in itertools.islice(turn, len(devices)) if d in choices), None)
            room.put(op, choices[0] if wanted is None else wanted)
    for op in range(len(problem.op_names)):
        choices = room.choices(op)
        room.put(op, devices[0] if devices[0] in choices else choices[0])
    return room.placement()


def contiguous(problem: PlacementProblem) -> Placement:
    """One contiguous segment of the topological order per accelerator, cut where the least bytes
    cross: dynamic programming, optimal for this order."""
    tasks = Tasks(problem)
    room = Room(problem)
    devices = accelerators(problem)
    free = [u for u, allowed in enumerate(room.preferred) if set(devices) <= set(allowed)]
    chosen = set(free)
    for op in tasks.order:
        if room.units.unit_of[op] not in chosen:
            room.put(op, room.choices(op)[0])
    sequence = list(dict.fromkeys(room.units.unit_of[op] for op in tasks.order))
    order = np.array([unit for unit in sequence if unit in chosen], np.int64)
    left = [
        [cap - used for cap, used in zip(row.capacity, loads, strict=True)]
        for row, loads in zip(room.units.rows, room.used, strict=True)
    ]
    device_at = split(room.units, order, devices, left)
    if device_at is None:
        raise DoesNotFitError("no division of the ops into one segment per accelerator fits")
    found = dict(zip(order.tolist(), device_at, strict=True))
    for op in tasks.order:
        if room.of(op) is None:
            room.put(op, found[room.units.unit_of[op]])
    return room.placement()


def _fill_shares(problem: PlacementProblem, *, slack: bool) -> Placement:
    """Fill with a limit per accelerator; without a placement, with larger limits up to the caps."""
    units = Room(problem).units
    limits = _shares(problem, units, slack=slack)
    for factor in (1.0, 1.25, 1.5, 2.0, 4.0):
        try:
            return _fill(problem, [min(1.0, factor * share) for share in limits])
        except DoesNotFitError:
            continue
    return _fill(problem, [1.0] * len(limits))


def _shares(problem: PlacementProblem, units: UnitProblem, *, slack: bool) -> list[float]:
    """Per device, the share of its capacity that an equal part of the fullest moment takes."""
    devices = accelerators(problem)
    row = max(units.rows, key=lambda row: sum(row.weights))
    largest = max(row.weights, default=0)
    mean = sum(row.weights) / max(1, len(row.weights))
    part = sum(row.weights) / len(devices) + (1.25 * max(largest, mean) if slack else largest)
    return [
        min(1.0, part / max(1, cap)) if device in devices else 1.0
        for device, cap in enumerate(row.capacity)
    ]


def _fill(problem: PlacementProblem, shares: Sequence[float]) -> Placement:
    """In topological order, device after device, each up to its share of every capacity."""
    tasks = Tasks(problem)
    room = Room(problem)
    devices = accelerators(problem)
    current = 0
    for op in tasks.order:
        if room.of(op) is not None:
            continue
        choices = room.choices(op)
        if not set(choices) & set(devices):
            room.put(op, choices[0])
            continue
        while current < len(devices) and not (
            devices[current] in choices and _within(room, op, devices[current], shares)
        ):
            if devices[current] not in room.preferred[room.units.unit_of[op]]:
                break
            current += 1
        if current == len(devices):
            raise DoesNotFitError(f"{problem.op_names[op]} is left when all devices are full")
        room.put(op, devices[current] if devices[current] in choices else choices[0])
    return room.placement()


def _within(room: Room, op: int, device: int, shares: Sequence[float]) -> bool:
    unit = room.units.unit_of[op]
    return all(
        used[device] + row.weights[unit] <= shares[device] * row.capacity[device]
        for used, row in zip(room.used, room.units.rows, strict=True)
    )
