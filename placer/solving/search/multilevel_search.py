"""A population of placements, improved at several scales.

Cycles run until the deadline: from a fresh placement of the coarsest level; from one of the best,
with only units of one device joined; or from two of the best, with only units joined that neither
parts (P. Sanders, C. Schulz, Distributed Evolutionary Graph Partitioning, ALENEX 2012,
doi:10.1137/1.9781611972924.2).  Each cycle improves the placement at every level from the coarsest
on.  What is least, how it is improved (by annealing, say, from a temperature that falls from level
to level) and where fresh placements come from is up to the subclass.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.coarsening import carry, coarser_levels
from placer.solving.process.search_run import Hints

_POPULATION = 6
_FRESH_SHARE = 0.4
_CROSSING_SHARE = 0.5
_GENERATIONS = 3

OnBetter = Callable[[Sequence[int]], None]

Data = TypeVar("Data", bound=Any)
"""``None``, or a record whose ``joined(new_of)`` is that of fewer units."""


@dataclass(frozen=True, slots=True, eq=False)
class Level(Generic[Data]):
    """The problem at one scale, with what the search knows of its units beside; ``new_of`` is the
    unit here of every unit of the level before (``None``: there is none)."""

    arrays: Arrays
    data: Data
    new_of: Ints | None = None

    def free(self) -> Ints:
        """The units that may use more than one device."""
        return np.flatnonzero(self.arrays.units.allowed.sum(axis=1) > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A placement of the units with its value; infinite if it breaks a row."""

    value: float
    device_of: Ints


class MultilevelSearch(ABC, Generic[Data]):
    """The search over one problem; ``on_better`` is told of every better placement.

    ``coarsest_units`` is where coarsening stops; no cluster is larger than ``cluster_share`` of
    an equal share of all sizes.  After ``patience`` cycles without improvement a population is left
    for a new one; every third one is made of the best of those before.  After ``most_idle_cycles``
    without a better placement the rest of the time is better spent on a proof.  Placements whose
    values differ by ``alike_share`` or less count as one.
    """

    coarsest_units = 16
    cluster_share = 0.5
    fresh_temperature = 0.2
    temperatures: tuple[float, ...] = (0.02, 0.1)
    temperature_fall = 0.6
    patience = np.inf
    most_idle_cycles = 100
    alike_share = 1e-12
    least = -np.inf
    """No placement has a lower value: where one is found, the search is over."""
    most = 1e30
    """More bytes, or seconds, than any placement costs: the value of what is above a cap begins
    here."""

    def __init__(self, arrays: Arrays, hints: Hints, seed: int, on_better: OnBetter) -> None:
        self.arrays = arrays
        self.random = np.random.default_rng(seed)
        self.on_better = on_better
        self.population: list[Found] = []
        self.lock = threading.Lock()
        self.best: Found | None = None
        self.champions: list[Found] = []
        self.idle_cycles = 0
        self.stale_cycles = 0
        self.finest = Level(arrays, self.data_of(None))
        for hint in hints:
            self.keep(self.judge(self.finest, np.array(hint, np.int64)))

    def data_of(self, _parent: Found | None) -> Data:
        """Returns the data of the units of the finest level, in a cycle that begins at a parent."""
        return cast(Data, None)

    @abstractmethod
    def judge(self, level: Level[Data], device_of: Ints) -> Found:
        """The placement with its value."""

    @abstractmethod
    def improve(self, level: Level[Data], device_of: Ints, free: Ints, temperature: float) -> Ints:
        """A better placement of the units ``free``, or the same."""

    def fresh(self, _level: Level[Data]) -> list[Found]:
        """Feasible placements from nothing for a cycle to begin at; none if there are none."""
        return []

    def sizes(self, arrays: Arrays) -> Floats:
        """The sizes that are balanced when units are joined: seconds where each is fastest."""
        fastest: Floats = arrays.units.cost.min(axis=1)
        return fastest

    def run(self, deadline: float, most_cycles: int | None = None, workers: int = 1) -> None:
        """Cycles until ``deadline`` (of ``time.time()``), for ``most_cycles`` per worker, or until
        ``most_idle_cycles`` in a row found nothing better.

        Workers are threads with one population (compiled code lets others run): with more than
        one the result depends on who comes first.
        """
        helpers = [
            threading.Thread(target=self._work, args=(deadline, most_cycles), daemon=True)
            for _ in range(workers - 1)
        ]
        for helper in helpers:
            helper.start()
        self._work(deadline, most_cycles)
        for helper in helpers:
            helper.join(max(0.0, deadline - time.time()))
        if self.best is not None:
            self._insert(self.best)

    def _work(self, deadline: float, most_cycles: int | None) -> None:
        cycles = 0
        while (
            time.time() < deadline
            and cycles != most_cycles
            and self.idle_cycles < self.most_idle_cycles
            and (self.best is None or self.best.value > self.least)
        ):
            self.step(deadline)
            cycles += 1
            if self.stale_cycles >= self.patience:
                self._restart()

    def _restart(self) -> None:
        """Leave the population, or make one of the best of the last few."""
        with self.lock:
            if self.stale_cycles < self.patience:
                return  # another worker was faster
            self.champions += self.population[:1]
            self.population = []
            self.stale_cycles = 0
            if len(self.champions) >= _GENERATIONS:
                champions, self.champions = self.champions, []
                for champion in champions:
                    self._insert(champion)

    def step(self, deadline: float) -> None:
        """One cycle: from nothing, from one placement, or from two."""
        if not self.population or self.random.random() < _FRESH_SHARE:
            self.cycle(None, self.fresh_temperature, deadline)
        else:
            self.vary(deadline)

    def parents(self) -> list[Found]:
        """Two of the population (or one twice), the better first; another worker may just have left
        it, so that only the best of all is known."""
        known = list(self.population) or [each for each in [self.best] if each is not None]
        chosen = [known[self.random.integers(len(known))] for _ in range(2)]
        return sorted(chosen, key=lambda found: found.value)

    def vary(self, deadline: float) -> None:
        """One cycle from a placement, or from what two have in common."""
        parents = self.parents()
        parent = parents[0]
        apart = parent.device_of
        if self.random.random() < _CROSSING_SHARE:
            devices = self.arrays.units.allowed.shape[1]
            apart = parents[0].device_of * devices + parents[1].device_of
        heat = float(self.random.choice(self.temperatures))
        self.cycle(parent, heat, deadline, apart)

    def cycle(
        self,
        parent: Found | None,
        temperature: float,
        deadline: float,
        apart: Ints | None = None,
    ) -> None:
        """One pass through all levels; what comes out joins the population if it is good.

        Units with different ``apart`` are joined on no level (by default those on different devices
        of the parent).
        """
        if apart is None and parent is not None:
            apart = parent.device_of
        levels = self.levels(parent, apart)
        if parent is None:
            starts = self.fresh(levels[-1])
            if not starts:
                return
            device_of = min(starts, key=lambda found: found.value).device_of
        else:
            device_of = parent.device_of
        self.descend(levels, device_of, temperature, deadline)

    def descend(
        self,
        levels: list[Level[Data]],
        device_of: Ints,
        temperature: float,
        deadline: float,
        *how: Any,
    ) -> Found:
        """Improves a placement of the coarsest level, or of the finest, at every level; what comes
        out joins the population if it is good."""
        for level in levels:
            if level.new_of is not None and len(level.new_of) == len(device_of):
                device_of = carry(device_of, level.new_of)
        for level in reversed(levels):
            free = level.free()
            if len(free) and time.time() < deadline:
                device_of = self.improve(level, device_of, free, temperature, *how)
            temperature *= self.temperature_fall
            if level.new_of is not None:
                device_of = device_of[level.new_of]
        found = self.judge(levels[0], device_of)
        self.keep(found)
        return found

    def levels(self, parent: Found | None, apart: Ints | None) -> list[Level[Data]]:
        """The problem at every scale, the finest first; units with different ``apart`` stay
        apart."""
        size = self.sizes(self.arrays)
        most = self.cluster_share * size.sum() / self.arrays.units.allowed.shape[1]
        apart = np.zeros(len(size), np.int64) if apart is None else apart
        level = Level(self.arrays, self.data_of(parent))
        levels = [level]
        for arrays, new_of in coarser_levels(
            self.arrays, size, most, self.coarsest_units, apart, self.next_seed
        ):
            level = Level(arrays, level.data and level.data.joined(new_of), new_of)
            levels.append(level)
        return levels

    def next_seed(self) -> int:
        """A seed for compiled code."""
        return int(self.random.integers(1 << 31))

    def keep(self, found: Found) -> None:
        """Takes a placement into the population, if it is among the best few different ones."""
        with self.lock:
            self.idle_cycles += 1
            self.stale_cycles += 1
            if not np.isfinite(found.value):
                return
            if self.best is None or self._is_better(found, self.best):
                if self.best is None or found.value < self.best.value:
                    self.idle_cycles = 0
                self.best = found
                self.on_better(found.device_of.tolist())
            if not self.population or found.value < self.population[0].value:
                self.stale_cycles = 0
            self._insert(found)

    def _is_better(self, found: Found, known: Found) -> bool:
        if found.value != known.value:
            return found.value < known.value
        return self.tie_rank(found.device_of) < self.tie_rank(known.device_of)

    def tie_rank(self, _device_of: Ints) -> tuple[float, ...]:
        """Returns the rank among placements of one value, the least first."""
        return ()

    def _insert(self, found: Found) -> None:
        near = self.alike_share * abs(found.value)
        alike = [each for each in self.population if abs(each.value - found.value) <= near]
        if all(found.value < each.value for each in alike):
            others = [each for each in self.population if each not in alike]
            self.population = sorted([*others, found], key=lambda each: each.value)
            del self.population[_POPULATION:]
