"""The graph in which sets of units are bounded from below, made smaller.

What a set S of units sends and receives is at least half of cut(S), the bytes of the nets with pins
on both sides of it.  With a price on every unit, the least of cut(S) + price(S) over the sets that
contain a given unit is a minimum cut between that unit and a terminal which is joined to every
unit by its price.  Values count up to ``ceiling`` only, so three changes leave them as they are, or
make them smaller, which a bound may be:

1. Nets of less than ``least_bytes`` are left out.
2. *Follows.*  A unit that no value is asked for, and without a price, joins the one whose shared
   nets of two pins have as many bytes as all nets that the two do not share: a set with one of them
   alone is never better than with both or neither (M. Padberg, G. Rinaldi, An Efficient Algorithm
   for the Minimum Capacity Cut Problem, Mathematical Programming 47 (1990),
   doi:10.1007/BF01580850).
3. *Never parted.*  Units that are then joined by ``ceiling`` bytes or more are one: a set that
   parts them is not below the ceiling.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placer.graph.union_find import UnionFind
from placer.solving.bounds.hypergraph_cuts import HypergraphCuts
from placer.solving.compiled.arrays import Ints
from placer.solving.reduction.unit_problem import UnitProblem, numbered

Pins = tuple[int, ...]

_MOST_ROUNDS = 100


class CutGraph:
    """The units of ``problem`` as ``count`` nodes, with ``node_of`` every unit (-1: it is in no net
    that counts).

    ``asked`` are the units that values are asked for, ``outside`` those that are in no set.
    """

    def __init__(
        self,
        problem: UnitProblem,
        asked: npt.NDArray[np.bool_],
        outside: npt.NDArray[np.bool_],
        ceiling: int,
        least_bytes: int,
    ) -> None:
        self.ceiling = ceiling
        kinds = numbered(
            [(at, out) for at, out in zip(problem.allowed, outside.tolist(), strict=True)]
        )
        root, nets = _merged(_wide_nets(problem, least_bytes), kinds, asked.tolist(), ceiling)
        nodes = {unit: node for node, unit in enumerate(sorted({u for net in nets for u in net}))}
        self.count = len(nodes)
        self.node_of = np.array([nodes.get(unit, -1) for unit in root], np.int64)
        self.outside = np.zeros(self.count, np.bool_)
        here = self.node_of >= 0
        self.outside[self.node_of[here & outside]] = True
        sized = (([nodes[unit] for unit in net], min(b, ceiling)) for net, b in nets.items())
        self.cuts = HypergraphCuts(self.count, sized)

    def least_signed(
        self, price: Ints, inside: Ints, outside: Ints, *, of_any: bool = False
    ) -> tuple[int, Ints]:
        """The least cut and price of a set with the nodes ``inside`` and without those ``outside``,
        and its nodes; a price may be negative.  ``of_any`` takes those too that are in no set of a
        device: elsewhere they cost the ceiling."""
        dearer = price if of_any else price + self.ceiling * self.outside
        value, is_in = self.cuts.least(dearer, inside, outside)
        return value, np.flatnonzero(is_in)


def _wide_nets(problem: UnitProblem, least_bytes: int) -> dict[Pins, int]:
    """The bytes of the nets by their pins, those of less than ``least_bytes`` left out."""
    nets: dict[Pins, int] = defaultdict(int)
    for net in problem.nets:
        if net.bytes >= max(1, least_bytes):
            nets[tuple(sorted({net.producer, *net.consumers}))] += net.bytes
    return nets


def _merged(
    nets: Mapping[Pins, int], kinds: Sequence[int], asked: list[bool], ceiling: int
) -> tuple[list[int], Mapping[Pins, int]]:
    """The unit that each unit is one with, and the nets between those; only units of one kind are
    one."""
    merging = _Merging(kinds, asked)
    for join in (merging.follow, functools.partial(merging.hold, ceiling)):
        for _ in range(_MOST_ROUNDS):
            nets = merging.between(nets)
            # too few nets were touched for another round to be worth it
            if join(_joined(nets, ceiling)) <= len(nets) // 200:
                break
    return [merging.sets.root(unit) for unit in range(len(kinds))], merging.between(nets)


class _Merging:
    """Which units are one so far: ``sets`` has the one that stands for each."""

    def __init__(self, kinds: Sequence[int], asked: list[bool]) -> None:
        self.kinds = kinds
        self.asked = list(asked)
        self.sets = UnionFind[int]()

    def between(self, nets: Mapping[Pins, int]) -> dict[Pins, int]:
        """The nets between what is not one."""
        found: dict[Pins, int] = defaultdict(int)
        for pins, size in nets.items():
            ends = tuple(sorted({self.sets.root(pin) for pin in pins}))
            if len(ends) > 1:
                found[ends] += size
        return found

    def follow(self, joined: _Joined) -> int:
        """Units that nothing is asked for join others; how many units had a part in that."""
        moved: set[int] = set()
        for pair in self._of_one_kind(joined):
            size = joined.shared[pair] + joined.alone[pair]
            follower = next((u for u in pair if self.may_follow(u, size, joined)), None)
            if follower is not None and moved.isdisjoint(pair):
                self.sets.union(sum(pair) - follower, follower)
                moved |= {*pair}
        return len(moved)

    def may_follow(self, unit: int, size: int, joined: _Joined) -> bool:
        """Whether ``unit`` may follow what it is joined to by ``size`` bytes, those of nets of two
        pins counted twice."""
        return not self.asked[unit] and size >= joined.incident[unit]

    def hold(self, ceiling: int, joined: _Joined) -> int:
        """Units that are never parted join; how many pairs do."""
        held = [pair for pair in self._of_one_kind(joined) if joined.shared[pair] >= ceiling]
        for pair in held:
            self.sets.union(*pair)
        return len(held)

    def _of_one_kind(self, joined: _Joined) -> list[Pins]:
        return [pair for pair in joined.shared if self.kinds[pair[0]] == self.kinds[pair[1]]]


class _Joined(NamedTuple):
    """Per pair of units the bytes of the nets that both are in (``shared``), and of those that
    nobody else is in (``alone``); per unit the bytes of its nets."""

    shared: Counter[Pins]
    alone: Counter[Pins]
    incident: Counter[int]


def _joined(nets: Mapping[Pins, int], ceiling: int) -> _Joined:
    """Returns the bytes that join units; a net with many pins joins only pairs with the first, and
    only if it has the bytes of the ceiling."""
    joined = _Joined(Counter(), Counter(), Counter())
    for pins, size in nets.items():
        for pin in pins:
            joined.incident[pin] += size
        if len(pins) == 2:
            joined.alone[pins] += size
        if size >= ceiling:
            for pin in pins[1:]:
                joined.shared[pins[0], pin] += size
        elif len(pins) <= 12:  # pairs of more pins are only once dear
            for place, pin in enumerate(pins):
                for before in pins[:place]:
                    joined.shared[before, pin] += size
    return joined
