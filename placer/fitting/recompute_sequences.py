"""Sequences in which nodes are computed again so that a budget holds, found at once.

Greedily: where most is held, some node that waits there is dropped and computed again right before
it is read next, with what it reads itself if that is gone by then or without.

By checkpoints: a set of nodes is dropped after the forward pass; each is computed again, with what
is missing of its inputs, when it is read next.  To begin with, every k-th node is kept (Chen et
al., "Training deep nets with sublinear memory cost", arXiv:1604.06174), then single nodes are
dropped or kept while that helps, again and again from the best set with a few nodes changed at
random.
"""

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from placer.fitting.recompute_problem import RematerialisationProblem, check
from placer.problem.status import Status

MOST_CANDIDATES = 40
"""The largest that wait where the device is fullest."""

LEAST_SECONDS_SHARE = 1e-6
"""Share of the step; less extra time counts as this."""

_DEEPEST = 12
_LONGEST_PERIOD = 9
_MOST_FLIPS = 2_000_000
"""Sets, or sequences, times nodes: a second or two."""

_MOST_CHANGED = 4
"""Nodes at random, from the best set."""

_PATIENCE = 60
"""Such changes one after the other that bring nothing: the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rematerialisation:
    """``sequence`` has node numbers, ``None`` when none is known that keeps the budget.

    ``value`` are its seconds and ``extra_share`` what they exceed those of every node once by, as
    a share; ``lower_bound`` is proven for the seconds of any sequence that the problem allows.
    """

    status: Status
    sequence: tuple[int, ...] | None
    value: float | None
    extra_share: float | None
    lower_bound: float | None
    peak_bytes: int | None
    seconds: float


def solve_rematerialisation(problem: RematerialisationProblem) -> Rematerialisation:
    """The sequence that ``--fit recompute`` takes for such a problem, which is the same every time.

    It is optimal where it computes nothing again; else the bound is that of every node once.
    Raises :class:`~placer.errors.UsageError` for a problem that contradicts itself.
    """
    check(problem)
    begun, least = time.monotonic(), problem.least_seconds
    has_one = problem.keep_order and problem.most_computations == 1
    if problem.is_feasible(problem.order):
        sequence, status = problem.order, Status.OPTIMAL
    elif problem.working_set_bytes > problem.budget_bytes or has_one:
        sequence, status = None, Status.INFEASIBLE
    else:
        found = tuple(first_sequence(problem))
        sequence = found if problem.is_feasible(found) else None
        status = Status.UNKNOWN if sequence is None else Status.FEASIBLE
    value = None if sequence is None else problem.value(sequence)
    if value == least:
        status = Status.OPTIMAL
    return Rematerialisation(
        status=status,
        sequence=sequence,
        value=value,
        extra_share=None if value is None else (value - least) / least if least else 0.0,
        lower_bound=None if status is Status.INFEASIBLE else least,
        peak_bytes=None if sequence is None else problem.peak_bytes(sequence),
        seconds=time.monotonic() - begun,
    )


def first_sequence(problem: RematerialisationProblem) -> list[int]:
    """The quickest sequence found at once that keeps the budget, else the one that holds least."""
    found = [drop_greedily(problem, problem.order)]
    if problem.keep_order and problem.most_computations > 1:
        found.append(drop_by_checkpoints(problem, found))
    fitting = [some for some in found if problem.is_feasible(some)]
    return min(fitting, key=problem.value) if fitting else min(found, key=problem.peak_bytes)


def drop_greedily(problem: RematerialisationProblem, start: Sequence[int]) -> list[int]:
    """The sequence that ``start`` becomes; one that holds too much where nothing helps any more."""
    sequence, over = list(start), _over(problem, start)
    left = _MOST_FLIPS // max(len(sequence), 1)
    while over and left > 0:
        best: tuple[float, list[int], int] | None = None
        seconds = problem.value(sequence)
        for changed in _changes(problem, sequence):
            found = _over(problem, changed)
            left -= 1
            if found >= over:
                continue
            added = problem.value(changed) - seconds
            worth = (over - found) / max(added, LEAST_SECONDS_SHARE * problem.least_seconds)
            if best is None or worth > best[0]:
                best = worth, changed, found
        if best is None:
            break
        _, sequence, over = best
    return sequence


def _over(problem: RematerialisationProblem, sequence: Sequence[int]) -> int:
    """By how much the steps are over the budget, in all."""
    budget = problem.budget_bytes
    return sum(size - budget for size in problem.held_along(sequence) if size > budget)


def _readers(problem: RematerialisationProblem, sequence: Sequence[int]) -> list[list[int]]:
    """The steps that read the copy of every step of ``sequence``."""
    latest: dict[int, int] = {}
    readers: list[list[int]] = []
    for step, node in enumerate(sequence):
        for source in problem.inputs[node]:
            readers[latest[source]].append(step)
        latest[node] = step
        readers.append([])
    return readers


def _changes(problem: RematerialisationProblem, sequence: Sequence[int]) -> Iterator[list[int]]:
    """Sequences in which one node less waits where most is held."""
    held, readers = problem.held_along(sequence), _readers(problem, sequence)
    fullest = max(range(len(sequence)), key=held.__getitem__)
    count = [0] * len(problem.bytes)
    for node in sequence:
        count[node] += 1
    for node in problem.once:
        count[node] = problem.most_computations
    waiting = []
    for step, node in enumerate(sequence[:fullest]):
        reads = readers[step]
        waits = reads and reads[-1] > fullest and fullest not in reads
        if waits and count[node] < problem.most_computations:
            reader = next(read for read in reads if read > fullest)
            waiting.append((problem.bytes[node], node, reader))
    waiting.sort(reverse=True)
    for _, node, reader in waiting[:MOST_CANDIDATES]:
        yield [*sequence[:reader], node, *sequence[reader:]]
        chain = _missing(problem, sequence, readers, node, reader, count)
        if chain:
            yield [*sequence[:reader], *chain, node, *sequence[reader:]]


def _missing(
    problem: RematerialisationProblem,
    sequence: Sequence[int],
    readers: Sequence[Sequence[int]],
    node: int,
    reader: int,
    count: Sequence[int],
) -> list[int]:
    """The nodes that ``node`` reads, and those they read, that are gone right before ``reader``."""
    latest = {name: step for step, name in enumerate(sequence[:reader])}
    chain: list[int] = []

    def add(name: int, depth: int) -> None:
        for source in problem.inputs[name]:
            reads = readers[latest[source]]
            gone = not reads or reads[-1] < reader
            if gone and source not in chain and count[source] < problem.most_computations:
                if depth < _DEEPEST:
                    add(source, depth + 1)
                chain.append(source)

    add(node, 0)
    return chain


def drop_by_checkpoints(
    problem: RematerialisationProblem, starts: Iterable[Sequence[int]] = ()
) -> list[int]:
    """The sequence of the best set of dropped nodes; one that holds too much where none is found.
    What is computed twice in one of ``starts`` is a set to begin with, too.

    Only for problems whose order is kept.
    """
    repeatable, checkpoints = _repeatable(problem), _Checkpoints(problem)
    sets = [
        frozenset(node for index, node in enumerate(repeatable) if index % period != offset)
        for period in range(1, _LONGEST_PERIOD)
        for offset in range(period)
    ]
    sets += [frozenset(n for n in repeatable if list(start).count(n) > 1) for start in starts]
    dropped = min(sets, key=checkpoints.worth, default=frozenset[int]())
    best = checkpoints.worth(dropped)
    left = _MOST_FLIPS // max(len(problem.order), 1)
    chance, now, worth, in_vain = random.Random(0), dropped, best, 0
    while repeatable and left > 0 and in_vain < _PATIENCE:
        improved = True
        while improved and left > 0:
            improved = False
            for node in repeatable:
                left -= 1
                changed = checkpoints.worth(now ^ {node})
                if changed < worth:
                    worth, now, improved = changed, now ^ {node}, True
        in_vain += 1
        if worth < best:
            best, dropped, in_vain = worth, now, 0
        count = min(chance.randint(2, _MOST_CHANGED), len(repeatable))
        now = dropped.symmetric_difference(chance.sample(repeatable, count))
        worth = checkpoints.worth(now)
    return checkpoints.sequence(dropped)


def _repeatable(problem: RematerialisationProblem) -> list[int]:
    """The nodes that are read after the last of them, in order."""
    once = set(problem.once)
    found = [node for node in problem.order if node not in once and problem.bytes[node]]
    if not found:
        return []
    late = problem.order[problem.order.index(found[-1]) + 1 :]
    read = {source for node in (*late, *found) for source in problem.inputs[node]}
    return [node for node in found if node in read]


class _Checkpoints:
    """The order, in which what is dropped is computed again when it is read after the last node
    that can be."""

    def __init__(self, problem: RematerialisationProblem) -> None:
        once, self.problem = set(problem.once), problem
        last = max((i for i, node in enumerate(problem.order) if node not in once), default=0)
        self.early, self.late = problem.order[: last + 1], problem.order[last + 1 :]

    def sequence(self, dropped: frozenset[int]) -> list[int]:
        """With the set of nodes that is ``dropped``."""
        sequence, missing, inputs = [*self.early], set(dropped), self.problem.inputs
        for node in self.late:
            if missing.isdisjoint(inputs[node]):
                sequence.append(node)
                continue
            stack = [~node, *reversed(inputs[node])]  # thousands in a row may be missing
            while stack:
                reader = stack.pop()
                if reader < 0:  # what it reads is there
                    sequence.append(~reader)
                elif reader in missing:
                    missing.discard(reader)
                    stack += [~reader, *reversed(inputs[reader])]
        return sequence

    def worth(self, dropped: frozenset[int]) -> tuple[float, float]:
        """Smaller is better: what is over the budget, then the seconds."""
        sequence = self.sequence(dropped)
        return _over(self.problem, sequence), self.problem.value(sequence)
