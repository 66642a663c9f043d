"""The search for the least transfer: placements from nothing by recursive bisection, some devices
of a good one drawn anew, and cycles through all scales."""

from collections.abc import Sequence

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.gain_table import excess, transfer_of
from placer.solving.process.search_run import Hints
from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.search.multilevel_search import Found, Level, MultilevelSearch, OnBetter
from placer.solving.search.recursive_bisection import bisect_recursively, finish, redraw, refine
from placer.solving.search.unit_arrays import transfer_arrays
from placer.solving.transfer.schedule import SCHEDULE


class TransferSearch(MultilevelSearch[None]):
    """The search over one problem; ``on_better`` is told of every better placement."""

    coarsest_units = 240
    cluster_share = 0.05
    patience = 25
    most_idle_cycles = 200
    alike_share = 1e-4

    def __init__(self, problem: UnitProblem, hints: Hints, seed: int, on_better: OnBetter) -> None:
        self.problem = problem
        super().__init__(transfer_arrays(problem), hints, seed, on_better)
        for hint in hints:
            if not problem.is_feasible(hint):
                self.keep_mended(hint)

    def judge(self, level: Level[None], device_of: Ints) -> Found:
        """The placement with its transfer in bytes."""
        fits = excess(level.arrays, device_of) == 0.0
        return Found(float(transfer_of(level.arrays, device_of)) if fits else np.inf, device_of)

    def tie_rank(self, device_of: Ints) -> tuple[int, float]:
        """Few devices, and none of them full."""
        return self.problem.tie_rank(device_of.tolist())

    def improve(
        self, level: Level[None], device_of: Ints, _free: Ints, _temperature: float
    ) -> Ints:
        """Moves of single units."""
        return refine(level.arrays, device_of, self.random)

    def sizes(self, arrays: Arrays) -> Floats:
        """Each unit's largest share of a row."""
        totals = np.maximum(1.0, arrays.units.weights.sum(axis=1, keepdims=True))
        return np.asarray((arrays.units.weights / totals).max(axis=0), np.float64)

    def step(self, deadline: float) -> None:
        """A placement from nothing, some devices of a good one drawn anew, or a cycle."""
        kind = self.random.random()
        if not self.population or kind < SCHEDULE.fresh_share:
            sizes = self.sizes(self.arrays)
            self.offer(bisect_recursively(self.arrays, sizes, self.random))
        elif kind < SCHEDULE.fresh_share + SCHEDULE.redrawn_share:
            self.redraw()
        else:
            self.vary(deadline)

    def redraw(self) -> None:
        """Two devices of a good placement, or a few more, are drawn anew."""
        device_of = self.parents()[0].device_of
        count = self.arrays.units.allowed.shape[1]
        devices = self.random.permutation(count)[: 1 + self.random.geometric(0.5)]
        sizes = self.sizes(self.arrays)
        self.offer(redraw(self.arrays, sizes, device_of, devices, self.random))

    def keep_mended(self, device_of: Sequence[int]) -> None:
        """A placement from elsewhere, which need not keep all rows."""
        self.offer(finish(self.arrays, np.array(device_of, np.int64), self.random))

    def offer(self, device_of: Ints) -> None:
        """A placement that joins the population if it is good."""
        self.keep(self.judge(self.finest, device_of))
