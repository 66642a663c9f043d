"""The search for the least cost whose devices peak under their caps: a good placement in a second.

1. Units are joined along heavy nets, level by level, until some two hundred are left.
2. The coarsest are dealt out along the depth of the model, device after device until each is full;
   what is left over stays above the cap of the last one.
3. At every level, from the coarsest on, single units move: annealing, with a price on what is above
   a cap.  A unit of a coarse level is a block of ops, and where no accelerator has room the price
   drives to the host what costs least per byte.
4. Again: from nothing, or from a good placement whose units are joined within their devices or
   freely.

Moves are judged at the moments at which placements were fullest, a placement as a whole at all
times.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.gain_table import transfer_of
from placer.solving.compiled.held_annealing import anneal_held, deal_out, line_up
from placer.solving.process.search_run import BestSoFar, Effort, Hints
from placer.solving.search.multilevel_search import Found, Level, MultilevelSearch, OnBetter
from placer.solving.search.peak_problem import PeakProblem
from placer.solving.search.unit_arrays import transfer_arrays
from placer.solving.search.watch import Watch, Watched
from placer.solving.solution import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakSchedule:
    """How :class:`PeakSearch` begins and anneals."""

    beginnings: tuple[str, ...] = ("depth", "graph", "host")
    """How the first placements begin, one after the other; any later one begins as one of them or
    ``"any"`` where, as a good one (``"vary"``), or as a good one with units joined freely."""
    later: tuple[str, ...] = ("depth", "graph", "host", "any", *("vary",) * 4, *("mix",) * 4)
    # steps of annealing per unit of a level: of the first placements, of later ones from nothing,
    # of a good one, and once more at moments that were not followed
    first_steps: int = 20
    fresh_steps: int = 80
    vary_steps: int = 60
    mend_steps: int = 30
    fewest_steps: int = 4_000
    most_steps: int = 1_000_000
    # temperatures are shares of a heavy net: dealt out along the depth is good already
    first_heat: float = 0.02
    fresh_heats: tuple[float, ...] = (0.02, 0.1, 0.3)
    vary_heats: tuple[float, ...] = (0.003, 0.01, 0.05, 0.2)
    mend_heat: float = 0.01
    cooled: float = 0.03  # of the heat of a level is left at its end
    finest_cooled: float = 1e-6  # the same of the finest: messages of few bytes go as well
    first_price: float = 20.0  # heavy nets that all caps together at one moment cost
    filled: float = 0.98  # of each cap, when units are dealt out
    most_mendings: int = 5  # of one placement, each with more of the caps kept free
    near_below: float = 0.7  # of the value of the best: what is above caps is worth a look
    near_share: float = 0.6  # of the cycles that begin there then
    full_each: int = 4  # of so many cycles one keeps nothing free
    most_answered: int = 200_000  # devices of units, of all placements beside the best
    steps_per_second: float = 4e5  # at first; then as measured


_SCHEDULE = PeakSchedule()


def search_peaks(problem: PeakProblem, hints: Hints, best: BestSoFar, effort: Effort) -> None:
    """The least transfer under caps on peaks."""
    search = PeakSearch(problem, hints, effort.seed, best.keep)
    search.least = problem.least_bytes
    if effort.work_limit is not None and effort.work_limit > 1:
        _search_in_two(search, hints, effort.work_limit, effort.deadline)
    else:
        search.run(effort.deadline, effort.work_limit, effort.threads)
    best.keep_others([each.device_of.tolist() for each in search.others()])
    if search.best is not None and search.best.value <= search.least:
        best.prove(Status.OPTIMAL)


def _search_in_two(search: PeakSearch, hints: Hints, cycles: int, deadline: float) -> None:
    """Half of the cycles in a thread beside, by a second search that knows nothing of the first and
    has no first placements: what both find does not depend on which of them is faster."""
    problem = replace(search.problem, positions=())
    second = PeakSearch(problem, hints, search.next_seed(), lambda _: None)
    second.least, second.cycles = search.least, len(_SCHEDULE.beginnings) + 1
    beside = threading.Thread(target=second.run, args=(deadline, cycles // 2), daemon=True)
    beside.start()
    search.run(deadline, cycles - cycles // 2)
    beside.join()
    for found, _ in second.fitting.values():
        search.keep(search.judge(search.finest, found.device_of))


class PeakSearch(MultilevelSearch[Watched]):
    """The search over one problem; ``on_better`` is called with every improvement.

    A placement that fits is worth what it costs, any other more than ``most``.  ``near`` is above
    some caps, the least of those found, and may cost less than what fits.
    """

    coarsest_units = 200
    cluster_share = 0.05
    most_idle_cycles = 60
    alike_share = 1e-4

    def __init__(self, problem: PeakProblem, hints: Hints, seed: int, on_better: OnBetter) -> None:
        self.problem = problem
        self.watch = Watch(problem)
        self.cycles = 0
        self.speed = _SCHEDULE.steps_per_second
        self.near: Found | None = None
        self.fitting: dict[bytes, tuple[Found, Floats]] = {}
        self.heavy = problem.heavy()
        self.near_cost = np.inf
        self.waiting = deque(problem.positions)
        self.unmended = deque(hints if problem.is_near else ())
        arrays = transfer_arrays(problem.units)
        self.watch.follow(arrays.units.allowed.argmax(axis=1))
        super().__init__(arrays, hints, seed, on_better)

    def judge(self, level: Level[Watched], device_of: Ints) -> Found:
        """The placement with its cost, or how much it is above the caps."""
        cost = float(transfer_of(level.arrays, device_of))
        shares = self.watch.follow(device_of) / np.maximum(1.0, self.watch.capacity)
        if shares.max() <= 0.0:
            found = Found(cost, device_of)
            key = device_of[self.heavy].tobytes()
            with self.lock:
                if key not in self.fitting or cost < self.fitting[key][0].value:
                    self.fitting[key] = found, -shares
            return found
        found = Found(self.most * (1.0 + float(np.maximum(0.0, shares).sum())), device_of)
        if self.near is None or found.value < self.near.value:
            self.near, self.near_cost = found, cost
        return found

    def others(self) -> list[Found]:
        """The cheapest placements beside the best that keep all caps, by their cost; those with all
        heavy units on the same devices count as one."""
        found = sorted((each for each, _ in self.fitting.values()), key=lambda each: each.value)
        most = _SCHEDULE.most_answered // len(self.arrays.units.allowed)
        best = None if self.best is None else self.best.device_of[self.heavy].tobytes()
        return [each for each in found[:most] if each.device_of[self.heavy].tobytes() != best]

    def tie_rank(self, device_of: Ints) -> tuple[float, ...]:
        """Few devices, little on the host, and none full (to a percent, so that ties are not the
        search)."""
        _, highest = self.watch.hold(device_of)
        share = float((highest / np.maximum(1.0, self.watch.capacity)).max())
        on_host = int((device_of == self.problem.units.host).sum())
        return len(np.unique(device_of)), on_host, round(share, 2)

    def step(self, deadline: float) -> None:
        """One cycle: from nothing, or from a good placement.  Near given ones, which may be above
        caps that are lower now, these come first."""
        with self.lock:
            cycle, self.cycles = self.cycles, self.cycles + 1
            position = self.waiting.popleft() if self.waiting else None
            hint = self.unmended.popleft() if self.unmended else None
        early = _SCHEDULE.beginnings
        # all devices keep as much free, each another share, or none anything
        parts = self.random.random(len(self.watch.capacity) if cycle % 2 else 1)
        if cycle % _SCHEDULE.full_each == 0:
            parts = np.zeros(1)
        spare = self.problem.spread * parts * self.watch.capacity
        is_near = self.problem.is_near and bool(self.population)
        ways = ("vary", "mix") if is_near else _SCHEDULE.later
        how = str(self.random.choice(ways))
        if not is_near and cycle < len(early):
            how = early[cycle]
        if hint is not None:
            device_of = np.array(hint, np.int64)
            level = Level(self.arrays, self.data_of(Found(0.0, device_of)))
            steps, heat = _SCHEDULE.mend_steps, _SCHEDULE.mend_heat
            self._refine([level], device_of, steps, heat, deadline, spare)
        elif position is not None and not is_near:
            self._fresh("given", position, cycle, deadline, spare)
        elif how in ("vary", "mix") and self.population:
            heat = float(self.random.choice(_SCHEDULE.vary_heats))
            parents = self.parents(spare)
            apart = parents[0].device_of
            if how == "mix":
                apart = np.zeros_like(apart)
            levels = self.levels(parents[0], apart)
            steps = _SCHEDULE.vary_steps
            self._refine(levels, parents[0].device_of, steps, heat, deadline, spare)
        else:
            self._fresh(how, None, cycle, deadline, spare)

    def parents(self, spare: Floats | float = 0.0) -> list[Found]:
        """As ever, or what is above the caps and costs clearly less; of those that keep some bytes
        ``spare``, the cheapest."""
        found = super().parents()
        if self.problem.spread:
            least = np.array(spare / np.maximum(1.0, self.watch.capacity))
            least[self.problem.units.host] = 0.0
            with self.lock:
                roomy = [each for each, room in self.fitting.values() if (room >= least).all()]
            found = [min(roomy, key=lambda each: each.value, default=found[0]), found[0]]
        near, is_cheap = self.near, self.near_cost < _SCHEDULE.near_below * found[0].value
        if near is not None and is_cheap and self.random.random() < _SCHEDULE.near_share:
            return [near, found[0]]
        return found

    def data_of(self, parent: Found | None) -> Watched:
        """Returns what the units hold at the moments known by now, also those of the parent."""
        return self.watch.watched(None if parent is None else parent.device_of)

    def sizes(self, _arrays: Arrays) -> Floats:
        """The most that each unit holds by itself at the moments known by now."""
        own = self.watch.watched(None).held.own.max(axis=1)
        return np.asarray(own + 1e-6 * own.sum() / max(1, len(own)) + 1.0, np.float64)

    def _fresh(
        self, how: str, position: Floats | None, cycle: int, deadline: float, spare: Floats
    ) -> None:
        """A placement from nothing: units are dealt out along a position, in an order from one end
        of the graph on or from anywhere, or are all on the host."""
        is_early = cycle < len(_SCHEDULE.beginnings)
        levels = self.levels(None, None)
        top = levels[-1]
        graph = np.arange(len(self.arrays.units.allowed), dtype=np.float64)
        along = graph if position is None else position
        for level in levels[1:]:
            assert level.new_of is not None
            along = np.bincount(level.new_of, along) / np.bincount(level.new_of)
        allowed, host = top.arrays.units.allowed, self.problem.units.host
        start = np.where(allowed[:, host], host, allowed.argmax(axis=1)).astype(np.int64)
        if how != "host":
            order = np.argsort(along, kind="stable")
            if how in ("depth", "any"):
                first = order[0] if how == "depth" else self.random.integers(len(order))
                order = line_up(top.arrays, int(first), along)
            sequence = np.arange(len(self.watch.capacity))  # the first device has the first ops
            if not is_early:
                sequence = self.random.permutation(sequence)
            others = sequence[sequence != host] if len(sequence) > 1 else sequence
            start = deal_out(
                top.arrays,
                top.data.held,
                _SCHEDULE.filled * (self.watch.capacity - spare),
                top.data.moments,
                start,
                order.astype(np.int64),
                others.astype(np.int64),
            )
        steps = _SCHEDULE.first_steps if is_early else _SCHEDULE.fresh_steps
        heat = float(
            _SCHEDULE.first_heat if is_early else self.random.choice(_SCHEDULE.fresh_heats)
        )
        self._refine(levels, start, steps, heat, deadline, spare)

    def _refine(
        self,
        levels: list[Level[Watched]],
        device_of: Ints,
        steps: int,
        heat: float,
        deadline: float,
        spare: Floats,
    ) -> None:
        """Annealing at all levels from the coarsest on with some ``spare`` bytes of the caps kept
        free, then until nothing is above a cap at any time; what comes out joins the population if
        it is good."""
        found = self.descend(levels, device_of, heat, deadline, deadline, steps, spare)
        for _ in range(_SCHEDULE.most_mendings):
            if found.value < self.most or time.time() > deadline:
                return
            spare = spare + np.maximum(0.0, self.watch.follow(found.device_of))
            levels, heat = [Level(self.arrays, self.data_of(found))], _SCHEDULE.mend_heat
            how = (deadline, _SCHEDULE.mend_steps, spare)
            found = self.descend(levels, found.device_of, heat, deadline, *how)

    def improve(
        self,
        level: Level[Watched],
        device_of: Ints,
        free: Ints,
        temperature: float,
        deadline: float = np.inf,
        per_unit: int = _SCHEDULE.first_steps,
        spare: Floats | float = 0.0,
    ) -> Ints:
        """Annealing of one level, with some ``spare`` bytes of the caps kept free."""
        now = time.time()
        sizes = level.arrays.nets.bytes
        heavy = max(1.0, float((sizes * sizes).sum() / max(1.0, sizes.sum())))
        steps = min(max(per_unit * len(free), _SCHEDULE.fewest_steps), _SCHEDULE.most_steps)
        steps = int(min(steps, max(2_000.0, (deadline - now) * self.speed)))
        limit = self.watch.capacity - level.data.beyond - spare
        least = max(1.0, float(self.watch.capacity.min()))
        found, _, _ = anneal_held(
            level.arrays,
            level.data.held,
            limit,
            level.data.moments,
            device_of,
            free,
            self.next_seed(),
            steps,
            temperature * heavy,
            _SCHEDULE.cooled if level.new_of is not None else _SCHEDULE.finest_cooled,
            _SCHEDULE.first_price * heavy / (least * level.data.moments),
        )
        spent = max(1e-4, time.time() - now)
        self.speed = 0.5 * self.speed + 0.5 * steps / spent
        return found
