"""The search for the least bottleneck: annealing at several scales, begun at contiguous segments of
topological orders."""

import time

import numpy as np

from placer.solving.compiled.arrays import Arrays, Devices, Floats, Ints
from placer.solving.compiled.load_annealing import anneal_loads, keeps_rows, new_state
from placer.solving.compiled.segments import split_by_load
from placer.solving.objectives.throughput.problem import LoadProblem
from placer.solving.process.search_run import BestSoFar, Effort, Hints, prove_first
from placer.solving.search.multilevel_search import Found, Level, MultilevelSearch, OnBetter
from placer.solving.search.unit_arrays import capacity_of, nets_of, units_of


def load_arrays(problem: LoadProblem) -> Arrays:
    """The problem for compiled code."""
    messages = np.array([stream.messages for stream in problem.streams], np.float64)
    nets = nets_of(problem.streams, messages)
    machine = Devices(
        capacity_of(problem.units),
        np.array(problem.latency, np.float64),
        np.array(problem.seconds_per_byte, np.float64),
        np.array(problem.occupied, np.bool_),
        problem.multicast,
    )
    np.fill_diagonal(machine.latency, 0.0)
    np.fill_diagonal(machine.seconds_per_byte, 0.0)
    seconds = np.array(problem.seconds, np.float64)
    return Arrays(units_of(problem.units, seconds, nets), nets, machine)


@prove_first
def search_loads(problem: LoadProblem, hints: Hints, best: BestSoFar, effort: Effort) -> None:
    """The least bottleneck: annealing first, then CP-SAT from the best, for a bound too."""
    from placer.solving.objectives.throughput.model import LoadModel
    from placer.solving.process.cp_sat_run import run_cp_sat

    best.raise_bound(problem.least())
    variables = (problem.units.unit_count + len(problem.streams)) * problem.units.device_count
    proves = variables <= 60_000  # beyond, CP-SAT proves little in a minute
    search = LoadSearch(problem, hints, effort.seed, best.keep)
    share = 0.5 if proves else 1.0  # for annealing; CP-SAT has the rest
    search.run(effort.until(share), effort.work_limit, effort.threads)
    found = best.answer.device_of
    if proves and found is not None and time.time() < effort.deadline:
        run_cp_sat(LoadModel(problem, found), best, effort)


class LoadSearch(MultilevelSearch[None]):
    """The search over one problem; ``on_better`` is told of every better placement."""

    def __init__(self, problem: LoadProblem, hints: Hints, seed: int, on_better: OnBetter) -> None:
        super().__init__(load_arrays(problem), hints, seed, on_better)
        for found in self._segments(self.finest, 40):
            self.keep(found)

    def judge(self, level: Level[None], device_of: Ints) -> Found:
        """The placement with its largest load."""
        state = new_state(level.arrays, device_of)
        fits = all(keeps_rows(level.arrays, state, device) for device in range(len(state.load)))
        return Found(float(state.load.max()) if fits else np.inf, device_of)

    def improve(self, level: Level[None], device_of: Ints, free: Ints, temperature: float) -> Ints:
        """Annealing of a power mean of the loads."""
        steps = min(200_000, 2_000 * len(free)) + 20 * len(free)
        # of loads: how much the fullest device counts
        power = float(self.random.choice((8.0, 16.0, 32.0)))
        how = (self.next_seed(), steps, temperature, power)
        _, best = anneal_loads(level.arrays, device_of, free, *how)
        return best

    def fresh(self, level: Level[None]) -> list[Found]:
        """One segment per device along some topological orders."""
        return self._segments(level, 5)

    def _segments(self, level: Level[None], orders: int) -> list[Found]:
        arrays = level.arrays
        pinned = arrays.units.allowed.sum(axis=1) == 1
        free = np.flatnonzero(~pinned)
        # segments take their square in time and memory
        if not 0 < len(free) <= 700:
            return []
        widest = arrays.units.allowed[free].all(axis=0)
        found = []
        for number in range(orders):
            order = self._order(arrays, shuffled=number > 0)
            order = order[~pinned[order]]
            sequence = self.random.permutation(np.flatnonzero(widest)).astype(np.int64)
            value, device_at = split_by_load(arrays, order, sequence)
            if np.isfinite(value):
                device_of = arrays.units.allowed.argmax(axis=1).astype(np.int64)
                device_of[order] = device_at
                found.append(self.judge(level, device_of))
        return [each for each in found if np.isfinite(each.value)]

    def _order(self, arrays: Arrays, *, shuffled: bool) -> Ints:
        """The units in the given order, or by depth-first search from where nothing comes in."""
        count = len(arrays.units.cost)
        if not shuffled:
            return np.arange(count)
        priority = self.random.random(count)
        sources = np.diff(arrays.units.in_start)
        roots = np.lexsort((priority, sources))
        return _depth_first(arrays, roots, priority)


def _depth_first(arrays: Arrays, roots: Ints, priority: Floats) -> Ints:
    """Reverse postorder: topological where the units have no cycle."""
    nets, units = arrays.nets, arrays.units
    order, seen, stack = list[int](), set[int](), roots[::-1].tolist()
    while stack:
        unit = stack.pop()
        if unit < 0:  # everything behind it is in the order
            order.append(~unit)
        elif unit not in seen:
            seen.add(unit)
            sent = units.outs[units.out_start[unit] : units.out_start[unit + 1]]
            pins = {p for n in sent for p in nets.pins[nets.pin_start[n] : nets.pin_start[n + 1]]}
            stack += [~unit, *sorted(pins, key=priority.__getitem__, reverse=True)]
    return np.array(order[::-1], np.int64)
