"""Where ops stand along the depth of a model: what a person goes by who deals out its layers.

A training step is a hairpin: activations go forward layer by layer, gradients come back the same
way, and what the backward ops of a layer read (its weights, its saved activations) is where its
forward ops are.  The turn is where most tensors are saved for later.

    forward    0 -> 1 -> 2 -> 3        depth of a forward op: the ops between it and the input
               |    |    |    |
    backward   0 <- 1 <- 2 <- 3        of all others: that of what they share most bytes with
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from placer.graph.passes.blocks import find_blocks
from placer.graph.passes.levels import Message, forward_levels
from placer.graph.walks import grouped
from placer.problem.placement_problem import PlacementProblem, ProblemTensor
from placer.solving.compiled.arrays import Flags, Floats, Ints
from placer.solving.reduction.unit_problem import UnitProblem

_STEPS = 512
"""Steps of the depth: units tied to forward ops within one count as tied to the same."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Depths:
    """``position[unit]`` along the depth, from 0 to 1, from the tensors alone; ``blocks`` are ways
    to divide the units that names tell, if they tell any: numbers along the depth by unit."""

    position: Floats
    blocks: tuple[Ints, ...]

    def orders(self) -> list[Floats]:
        """Positions to cut into stages: by blocks and within each by tensors, and by tensors
        alone."""
        within = 0.999 * self.position
        return [*(block + within for block in self.blocks), self.position]


def find_depths(problem: PlacementProblem, units: UnitProblem) -> Depths:
    """Where the units of ``problem`` stand."""
    messages = [Message(t.producer, t.consumers, t.bytes) for t in problem.tensors]
    found_levels, turn = forward_levels(len(problem.op_names), messages)
    levels = np.array(found_levels, np.int64)
    unit_of = np.array(units.unit_of, np.int64)
    is_forward = levels >= 0
    position = _positions(unit_of, levels / max(1, turn), units)
    weight = np.array(problem.resident_bytes, np.float64)
    for tensor in problem.tensors:
        weight[tensor.producer] += tensor.bytes
    sizes = {int(op): float(weight[op]) for op in np.flatnonzero(is_forward)}
    places = position[unit_of].tolist()
    most_size = float(weight.sum()) / 32  # larger ones are divided further
    found: list[Ints] = []
    # the widest deviation of depth within a block: even by itself a third of a model is no step
    # along it.  In the first division anything goes: layers of an unrolled recurrent network go on
    # side by side
    for limits in ({}, {"most_size": most_size, "widest": 0.1}):
        named = find_blocks(problem.op_names, sizes, places, **limits)
        block = _number_blocks(named, is_forward, unit_of, position, units)
        if block is not None and not any(np.array_equal(block, other) for other in found):
            found.append(block)
    return Depths(position=position, blocks=tuple(found))


def _positions(unit_of: Ints, share: Floats, units: UnitProblem) -> Floats:
    """The mean of the forward ops of every unit; elsewhere that of what it is tied to most."""
    known = share >= 0.0
    number = np.bincount(unit_of[known], minlength=units.unit_count)
    total = np.bincount(unit_of[known], share[known], minlength=units.unit_count)
    position = total / np.maximum(1, number)
    steps = np.where(number > 0, np.rint(_STEPS * position), -1).astype(np.int64)
    _follow_ties(steps, units.nets)
    tied = np.where(steps < 0, 0.5, steps / _STEPS)
    return np.asarray(np.where(number > 0, position, tied), np.float64)


def _number_blocks(
    blocks: Sequence[str], is_forward: Flags, unit_of: Ints, position: Floats, units: UnitProblem
) -> Ints | None:
    """The number of the block of every unit, ``None`` where there are no two blocks."""
    places = grouped(
        (blocks[op], float(position[unit_of[op]]))
        for op in np.flatnonzero(is_forward).tolist()
        if blocks[op]
    )
    if len(places) < 2:
        return None
    middle = {name: float(np.mean(found)) for name, found in places.items()}
    ordered = sorted(middle, key=lambda name: (middle[name], name))
    number = {name: index for index, name in enumerate(ordered)}
    found = np.full(len(position), -1, np.int64)
    for op, name in enumerate(blocks):
        if name in number and (is_forward[op] or found[unit_of[op]] < 0):
            found[unit_of[op]] = number[name]
    _follow_ties(found, units.nets)
    alone = found < 0
    nearest = np.searchsorted([middle[name] for name in ordered], position[alone])
    found[alone] = np.minimum(nearest, len(ordered) - 1)
    return found


def _follow_ties(label: Ints, nets: Sequence[ProblemTensor]) -> None:
    """Gives every unit without a label (-1) that of what it shares most bytes with, the closest
    tied first."""
    ties: list[list[tuple[int, float]]] = [[] for _ in label]
    for net in nets:
        pins = (net.producer, *net.consumers)
        share = net.bytes / len(net.consumers)
        # tensors with more ends say little about who belongs together, and take long to go through
        for one, other in permutations(pins, 2) if len(pins) <= 32 else ():
            ties[one].append((other, share))
    shared: dict[tuple[int, int], float] = {}
    waiting: list[tuple[float, int, int]] = []

    def pull(unit: int) -> None:
        for other, share in ties[unit]:
            if label[other] < 0:
                key = (other, int(label[unit]))
                shared[key] = shared.get(key, 0.0) + share
                heapq.heappush(waiting, (-shared[key], *key))

    for unit in np.flatnonzero(label >= 0).tolist():
        pull(unit)
    while waiting:
        _, unit, found = heapq.heappop(waiting)
        if label[unit] < 0:
            label[unit] = found
            pull(unit)
