"""An order of the ops along which memory stays low: list scheduling under a budget.

Of the ops that are ready, the one is run that fits under the budget, frees more than it takes, or
else takes least.  What only takes memory, such as a mask or a decayed momentum, is held back and
run by the first op that reads it.  The budget is found by bisection: the least under which the
order still keeps to it.

    a (8 MB) --> b (1 MB) --.
    c (8 MB) --> d (1 MB) --+--> e         a b c d e: 9 MB;  a c b d e: 17 MB

Liu, "An application of generalized tree pebbling to sparse matrix factorization",
doi:10.1137/0608031; Kayaaslan, Lambert, Marchal, Ucar, "Scheduling series-parallel task graphs to
minimize peak memory", doi:10.1016/j.tcs.2017.09.037; Ahn et al., "Ordering chaos: memory-aware
scheduling of irregularly wired neural networks for edge devices" (MLSys 2020).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placer.fitting.live_bytes import LiveBytes
from placer.prediction.step.step_layout import Effect, StepLayout

SMALL_BYTES = 1024
"""Scalars and shapes: who reads or writes no more only takes memory, and says little of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSchedule:
    """Limits of the bisection for the least budget."""

    longest: int = 16  # ops in a chain that only takes memory
    finest: float = 0.005  # share by which budgets differ in the end
    ops_in_all: int = 100_000  # scheduled over all budgets, which bounds the time
    fewest_budgets: int = 3
    most_budgets: int = 8


_SCHEDULE = BudgetSchedule()


@dataclass(frozen=True, slots=True, kw_only=True)
class LowOrder:
    """Ops by number in an order, and its peak by memory, without resident and fed bytes."""

    ops: tuple[int, ...]
    peak_bytes: tuple[int, ...]

    def share(self, budget: Sequence[int]) -> float:
        """The peak of the memory that is fullest beside its budget, as a share of that."""
        return max(
            (peak / max(most, 1) for peak, most in zip(self.peak_bytes, budget, strict=True)),
            default=0.0,
        )


def find_low_order(
    layout: StepLayout,
    successors: Sequence[Sequence[int]],
    memories: Sequence[str],
    budget: Sequence[int],
) -> LowOrder:
    """An order that keeps to the smallest part of ``budget`` (bytes by memory), or exceeds it by
    little.

    ``successors`` has the ops that wait for each op; those that wait for none last.
    """
    task = _Task(layout, successors, memories)
    count = min(
        max(_SCHEDULE.ops_in_all // max(len(layout.names), 1), _SCHEDULE.fewest_budgets),
        _SCHEDULE.most_budgets,
    )
    best = _Schedule(task, budget).run()
    low, high = 0.0, min(best.share(budget), 1.0)
    for _ in range(count):
        if high - low < _SCHEDULE.finest * high:
            break
        share = (low + high) / 2
        found = _Schedule(task, [round(share * most) for most in budget]).run()
        if found.share(budget) < best.share(budget):
            best = found
        if found.share(budget) <= share:
            high = min(share, found.share(budget))
        else:
            low = share
    return best


class _Task:
    """One graph, scheduled under several budgets."""

    def __init__(
        self,
        layout: StepLayout,
        successors: Sequence[Sequence[int]],
        memories: Sequence[str],
    ) -> None:
        self.layout = layout
        self.successors = successors
        self.memories = memories
        self.waits = [0] * len(layout.names)
        for some in successors:
            for op in some:
                self.waits[op] += 1
        self.only_takes = _only_takes(layout)


def _only_takes(layout: StepLayout) -> list[bool]:
    """Whether each op only takes memory: it allocates, needs nothing that is fed, and reads nothing
    that could be freed but what a few such ops made for it alone."""
    lasting = (Effect.RESIDENT, Effect.READ_VARIABLE)
    steps = [_SCHEDULE.longest] * len(layout.names)
    for op, inputs in enumerate(layout.inputs):
        if layout.effects[op] in lasting:
            steps[op] = 0
        elif layout.effects[op] == Effect.PLAIN:
            made = [value for value in inputs if layout.bytes[value] > SMALL_BYTES]
            made = [
                value for value in made if layout.effects[layout.producer[value]] not in lasting
            ]
            if all(layout.readers[value] == 1 for value in made):
                before = [steps[layout.producer[value]] for value in inputs]
                steps[op] = min(max(before, default=0) + 1, _SCHEDULE.longest)
    return [
        0 < steps[op] < _SCHEDULE.longest and any(layout.bytes[v] > SMALL_BYTES for v in outputs)
        for op, outputs in enumerate(layout.outputs)
    ]


class _Schedule:
    """One order while it grows.

    ``held_back`` has, for every op, the ops that only take memory and that it reads: they are
    done as far as others wait for them, and run with the first of those.
    """

    def __init__(self, task: _Task, budget: Sequence[int]) -> None:
        self.task = task
        self.budget = budget
        self.memory = LiveBytes(task.layout, task.memories)
        self.memory.keep()
        self.waits = list(task.waits)
        self.held_back: list[list[int]] = [[] for _ in task.waits]
        self.has_run = [False] * len(task.waits)
        self.order: list[int] = []
        self.peak = [0] * len(task.memories)
        self.trials: dict[int, tuple[int, int, list[int]]] = {}
        self.interested: dict[int, set[int]] = {}

    def run(self) -> LowOrder:
        """The whole order."""
        self._release(len(self.task.waits))
        while self.trials:
            op = self._best()
            del self.trials[op]
            touched = {self.memory.held[v] for o in self._needed(op) for v in self._inputs(o)}
            for needed in self._needed(op):
                self._run(needed)
            stale = set()
            for buffer in touched:
                for other in self.interested.pop(buffer, ()):
                    if other in self.trials:
                        stale.add(other)
            for other in stale:
                self.trials[other] = self._try(other)
            self._release(op)
        return LowOrder(ops=tuple(self.order), peak_bytes=tuple(self.peak))

    def _inputs(self, op: int) -> Sequence[int]:
        return self.task.layout.inputs[op]

    def _best(self) -> int:
        """The op to run next; the newest of equals."""
        live, budget = self.memory.live, self.budget
        best, chosen = None, -1
        for op in reversed(self.trials):
            net, hill, hills = self.trials[op]
            if hill <= 0 and net <= 0:
                return op
            fits = all(a + b <= c for a, b, c in zip(live, hills, budget, strict=True))
            key = (not fits, net > 0, net if fits and net > 0 else hill, net)
            if best is None or key < best:
                best, chosen = key, op
        return chosen

    def _needed(self, op: int) -> Iterator[int]:
        """The ops that have to run with ``op``, itself last."""
        for other in self.held_back[op]:
            if not self.has_run[other]:
                yield from self._needed(other)
        yield op

    def _run(self, op: int) -> None:
        if self.has_run[op]:
            return
        self.has_run[op] = True
        self.order.append(op)
        peak = self.memory.run(op)
        self.peak = [max(pair) for pair in zip(self.peak, peak, strict=True)]
        self.memory.keep()

    def _release(self, op: int) -> None:
        """Makes ready what waited for ``op`` alone, which is done."""
        done = [op]
        while done:
            before = done.pop()
            for other in self.task.successors[before]:
                self.waits[other] -= 1
                if before < len(self.has_run) and not self.has_run[before]:
                    self.held_back[other].append(before)
                if self.waits[other]:
                    continue
                if self.task.only_takes[other] and self.task.successors[other]:
                    done.append(other)
                else:
                    self.trials[other] = self._try(other)

    def _try(self, op: int) -> tuple[int, int, list[int]]:
        """The bytes that running ``op`` takes in the end, at most meanwhile, and that by memory."""
        memory, before = self.memory, list(self.memory.live)
        mark = memory.mark()
        hills = [0] * len(before)
        seen = set()
        for needed in self._needed(op):
            if needed in seen:
                continue
            seen.add(needed)
            for buffer in [memory.held[value] for value in self._inputs(needed)]:
                if buffer >= 0 and memory.bytes[buffer]:
                    self.interested.setdefault(buffer, set()).add(op)
            peak = memory.run(needed)
            hills = [max(h, p - b) for h, p, b in zip(hills, peak, before, strict=True)]
        net = sum(memory.live) - sum(before)
        memory.undo(mark)
        return net, max(hills), hills
