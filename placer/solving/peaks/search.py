"""The search for the least transfer whose devices peak under their caps.

Placements from nothing are contiguous segments of an order in which units that share many bytes
lie close together; then cycles through all scales.  Every move is judged by what devices hold.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.cuts_of_orders import clique_weights, cut
from placer.solving.compiled.gain_table import transfer_of
from placer.solving.compiled.held_annealing import anneal_held
from placer.solving.compiled.held_segments import first_held_starts
from placer.solving.peaks.problem import PeakProblem
from placer.solving.peaks.watch import Watch, Watched
from placer.solving.process.search_run import BestSoFar, Effort, Hints, prove_first
from placer.solving.search.laplacian import MOST_UNITS, slow_modes, smooth
from placer.solving.search.multilevel_search import Found, Level, MultilevelSearch, OnBetter
from placer.solving.search.unit_arrays import transfer_arrays
from placer.solving.solution import Status

_LEAST = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakSchedule:
    """What :class:`PeakSearch` draws, follows and anneals."""

    steps_per_unit: int = 100  # of annealing, within the next two
    fewest_steps: int = 2_000
    most_steps: int = 30_000  # a level takes a tenth of a second
    first_price: float = 0.01  # bytes sent for a byte above a cap at one moment
    margin: float = 0.995  # of the caps: the rest is for what peaks beyond the orders
    # above the caps, one after the other, where no segments fit
    excesses: tuple[float, ...] = (0.0, 0.05, 0.2, 0.5, 1.0, np.inf)
    powers: tuple[float, ...] = (1.0, 1.5, 2.0)  # of bytes: how much more heavy nets hold together
    rings: int = 4  # beginnings around a graph whose ends are joined
    smoothings: int = 12  # of positions, at each finer level
    same_share: float = 0.7  # of levels: what peaks beyond the orders is as it was
    first_draws: int = 6  # placements from nothing before the first cycle
    fresh_share: float = 0.4  # of what comes then is from nothing too
    most_repairs: int = 4  # of one drawn placement, until it fits
    hotter: float = 4.0  # each than the one before
    most_proven_units: int = 5_000  # of more, little work proves nothing


_SCHEDULE = PeakSchedule()


def search_peaks(problem: PeakProblem, hints: Hints, best: BestSoFar, effort: Effort) -> None:
    """The least transfer under caps on peaks."""
    is_large = problem.units.unit_count > _SCHEDULE.most_proven_units
    search = _search_peaks if is_large else prove_first(_search_peaks)
    search(problem, hints, best, effort)


def _search_peaks(problem: PeakProblem, hints: Hints, best: BestSoFar, effort: Effort) -> None:
    search = PeakSearch(problem, hints, effort.seed, best.keep)
    search.least = problem.least_bytes
    search.run(effort.deadline, effort.work_limit, effort.threads)
    if search.best is not None and search.best.value <= search.least:
        best.prove(Status.OPTIMAL)


class PeakSearch(MultilevelSearch[Watched]):
    """The search over one problem; ``on_better`` is told of every better placement.

    Moves are judged at some moments; a placement as a whole at all times, and those at which it is
    fullest are followed from then on.  A placement that fits is worth what it transfers, any other
    more than all tensors to all devices.
    """

    coarsest_units = 240
    cluster_share = 0.05
    fresh_temperature = 0.05
    temperatures = (0.01, 0.05, 0.2, 0.5)
    temperature_fall = 0.7
    most_idle_cycles = 60
    alike_share = 1e-4

    def __init__(self, problem: PeakProblem, hints: Hints, seed: int, on_better: OnBetter) -> None:
        self.problem = problem
        self.watch = Watch(problem)
        self.draws = 0
        self.waiting = deque(problem.positions)
        arrays = transfer_arrays(problem.units)
        self.most = float(arrays.nets.bytes.sum() + 1.0) * len(problem.capacity)
        self.watch.follow(arrays.units.allowed.argmax(axis=1))
        super().__init__(arrays, hints, seed, on_better)

    def judge(self, level: Level[Watched], device_of: Ints) -> Found:
        """The placement with its transfer, or how much it is above the caps."""
        above = self.watch.share_above(device_of)
        if above:
            return Found(self.most * (1.0 + above), device_of)
        return Found(float(transfer_of(level.arrays, device_of)), device_of)

    def tie_rank(self, device_of: Ints) -> tuple[int, float]:
        """Few devices, and none of them full (to a percent, so that ties are not the search)."""
        _, highest, _ = self.watch.hold(device_of)
        share = float((highest / np.maximum(1.0, self.watch.capacity)).max())
        return len(np.unique(device_of)), round(share, 2)

    def step(self, deadline: float) -> None:
        """A placement from nothing, always at first, or a cycle; before the first, one along each
        of the given positions.  Near a given placement: cycles alone."""
        while time.time() < deadline and (position := self._next_given()) is not None:
            level = Level(self.arrays, self.data_of(None))
            drawn = self._segments(level, position)
            self.keep_mended(drawn, self.fresh_temperature, deadline)
        is_early = self.draws < _SCHEDULE.first_draws
        is_fresh = is_early or self.random.random() < _SCHEDULE.fresh_share
        if is_fresh and not self.problem.is_near:
            self.draws += 1
            self.draw(self.fresh_temperature, deadline)
        else:
            self.vary(deadline)

    def _next_given(self) -> Floats | None:
        """A position that was given, each to one worker; ``None`` when all are drawn."""
        with self.lock:
            return self.waiting.popleft() if self.waiting else None

    def data_of(self, parent: Found | None) -> Watched:
        """What the units hold at the moments known by now, those of the parent among them."""
        return self.watch.watched(None if parent is None else parent.device_of)

    def joined(self, data: Watched, new_of: Ints) -> Watched:
        """What the units of a coarser level hold."""
        return data.joined(new_of)

    def improve(
        self, level: Level[Watched], device_of: Ints, free: Ints, temperature: float
    ) -> Ints:
        """Annealing; temperatures are shares of a heavy net.

        What another placement peaks at beyond the orders is not known: mostly it is taken to be
        what it was, else less.
        """
        share = 1.0 if self.random.random() < _SCHEDULE.same_share else self.random.random()
        sizes = level.arrays.nets.bytes
        heavy = float((sizes * sizes).sum() / max(1.0, sizes.sum()))
        best, _, _ = anneal_held(
            level.arrays,
            level.data.held,
            self.watch.capacity - share * level.data.beyond,
            level.data.moments,
            device_of,
            free,
            self.next_seed(),
            min(
                max(_SCHEDULE.steps_per_unit * len(free), _SCHEDULE.fewest_steps),
                _SCHEDULE.most_steps,
            ),
            temperature * max(1.0, heavy),
            _SCHEDULE.first_price,
        )
        return best

    def sizes(self, _arrays: Arrays) -> Floats:
        """The bytes of each unit, resident and written, over the time that they are held."""
        buffers = self.problem.buffers
        last = buffers.done.copy()
        np.maximum.at(last, buffers.read_of, buffers.read_last)
        span = (last - buffers.first + 1) / (self.problem.orders * self.problem.length)
        written = buffers.owner >= 0
        held = np.bincount(
            buffers.owner[written],
            (buffers.size * span)[written],
            minlength=len(self.problem.resident),
        )
        return np.asarray(self.problem.resident + held + 1.0, np.float64)

    def draw(self, temperature: float, deadline: float) -> None:
        """A placement from the best of a few by segments."""
        levels = self.levels(None, None)
        drawn = [self._segments(levels[0], position) for position in self._orders(levels)]
        self.keep_mended(min(drawn, key=lambda each: each.value), temperature, deadline)

    def keep_mended(self, found: Found, temperature: float, deadline: float) -> None:
        """Takes a placement once improved, hotter from time to time, until it is under the caps at
        all times."""
        free = self.finest.free()
        found = self.judge(self.finest, found.device_of)  # segments are cut by some moments only
        for _ in range(_SCHEDULE.most_repairs):
            if time.time() > deadline or not len(free):
                break
            level = Level(self.arrays, self.data_of(found))
            found = self.judge(level, self.improve(level, found.device_of, free, temperature))
            if found.value < self.most:
                break
            temperature *= _SCHEDULE.hotter
        self.keep(found)

    def _orders(self, levels: Sequence[Level[Watched]]) -> list[Floats]:
        """Positions of the units along the slowest mode of the graph, and around the circle that
        the two slowest make, begun anywhere: a graph whose ends are joined is a ring."""
        coarsest, nets = levels[-1].arrays, levels[-1].arrays.nets
        count = len(coarsest.units.allowed)
        power = float(self.random.choice(_SCHEDULE.powers))
        sizes = (nets.bytes / max(1.0, nets.bytes.max(initial=0.0))) ** power
        modes: list[Floats] = []
        if 2 < count <= MOST_UNITS:
            weight = clique_weights(coarsest._replace(nets=nets._replace(bytes=sizes)))
            modes += [*slow_modes(weight, 2, within_parts=True)]
        modes += [self.random.random(count) for _ in range(2 - len(modes))]
        for finer, level in zip(levels[-2::-1], levels[:0:-1], strict=True):
            modes = [
                smooth(finer.arrays.nets, mode[level.new_of], _SCHEDULE.smoothings)
                for mode in modes
            ]
        first, second = (mode / max(np.abs(mode).max(initial=0.0), _LEAST) for mode in modes)
        angle = np.arctan2(second, first)
        begins = self.random.uniform(0.0, 2.0 * np.pi, _SCHEDULE.rings)
        return [first, *((angle + begin) % (2.0 * np.pi) for begin in begins)]

    def _segments(self, level: Level[Watched], position: Floats) -> Found:
        """One segment per device along increasing positions, each within its cap or as little
        above as can be."""
        arrays, allowed = level.arrays, level.arrays.units.allowed
        device_of = allowed.argmax(axis=1).astype(np.int64)
        free = allowed.sum(axis=1) > 1
        widely = np.flatnonzero(allowed[free].mean(axis=0) > 0.5) if free.any() else device_of[:0]
        if not len(widely):
            return Found(self.most, device_of)
        order = np.argsort(position, kind="stable")
        order = order[free[order]].astype(np.int64)
        sequence = self.random.permutation(widely).astype(np.int64)
        segment, excess = self._cut(level, order, sequence)
        device_of[order] = sequence[segment]
        wrong = ~allowed[np.arange(len(allowed)), device_of]
        device_of[wrong] = allowed[wrong].argmax(axis=1)
        return Found(float(transfer_of(arrays, device_of)) + excess * self.most, device_of)

    def _cut(self, level: Level[Watched], order: Ints, sequence: Ints) -> tuple[Ints, float]:
        """The segment of every unit of ``order``, and by which share one may be above its cap."""
        held, moments = level.data.held, level.data.moments
        for excess in _SCHEDULE.excesses:
            limit = (1.0 + excess) * _SCHEDULE.margin * self.watch.capacity
            starts: dict[float, Ints] = {}
            for device in sequence:
                if limit[device] not in starts:
                    starts[limit[device]] = first_held_starts(
                        level.arrays, held, limit, moments, order, device
                    )
            by_step = np.stack([starts[limit[device]] for device in sequence])
            segment, cost = cut(level.arrays, order, by_step)
            if np.isfinite(cost):
                break
        return segment, excess
