"""The rematerialisation problem as plain data: which nodes to compute again, and when.

Given a graph of computations with the seconds that each takes and the bytes of what it writes, find
a sequence in which every node comes at least once and at most ``most_computations`` times, inputs
first, that takes the fewest seconds while no more than ``budget_bytes`` are held at any time.  The
model of memory is that of Checkmate (Jain et al., MLSys 2020) and MOCCASIN (Bartan et al., ICML
2023): a copy is held from its computation to the last one that reads it (a reader reads the latest
copy before it), one that nobody reads while it is computed.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from operator import add
from typing import Any

from placer.errors import UsageError

SCHEMA = "placer.rematerialisation/1"

_LARGEST = 2**48
"""Sums of a few thousand such numbers are still whole in 64 bits."""

_BESIDE = ("first_bytes", "between_bytes", "again_bytes")

_MOST_COMPUTATIONS = 16
"""Computations of one node; it bounds the length of a sequence."""


@dataclass(frozen=True, kw_only=True)
class RematerialisationProblem:
    """Nodes are numbered; every sequence but ``order`` is indexed by those numbers.

    ``seconds`` are of one computation (any unit, fractions allowed), ``bytes`` of its output;
    ``inputs`` are the nodes that it reads.  ``order`` is a topological order of all nodes; with
    ``keep_order`` the first computations of the answer come in it.  Nodes in ``once`` are not
    computed again.

    What is held beside the nodes' outputs, by node, nothing if empty: ``first_bytes`` while it is
    first computed, ``between_bytes`` before that, while others are computed again,
    ``again_bytes`` in addition while it is computed again itself.
    """

    node_names: tuple[str, ...]
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    budget_bytes: int
    keep_order: bool = True
    most_computations: int = 2
    once: tuple[int, ...] = ()
    first_bytes: tuple[int, ...] = ()
    between_bytes: tuple[int, ...] = ()
    again_bytes: tuple[int, ...] = ()

    def beside(self, name: str) -> tuple[int, ...]:
        """``first_bytes``, ``between_bytes`` or ``again_bytes``, by node."""
        found: tuple[int, ...] = getattr(self, name)
        return found or (0,) * len(self.bytes)

    @cached_property
    def least_seconds(self) -> float:
        """Every node once: no sequence takes less."""
        return math.fsum(self.seconds)

    @cached_property
    def working_set_bytes(self) -> int:
        """The most that one node reads and writes: no sequence holds less at its fullest."""
        sizes = (
            size + beside + sum(self.bytes[source] for source in set(sources))
            for size, beside, sources in zip(
                self.bytes, self.beside("first_bytes"), self.inputs, strict=True
            )
        )
        return max(sizes, default=0)

    def value(self, sequence: Sequence[int]) -> float:
        """The seconds of ``sequence``."""
        return math.fsum(self.seconds[node] for node in sequence)

    def peak_bytes(self, sequence: Sequence[int]) -> int:
        """The most held at any step of ``sequence``.

        Raises ``ValueError`` if a node is read before it is computed, or is no node.
        """
        return max(self.held_along(sequence), default=0)

    def held_along(self, sequence: Sequence[int]) -> list[int]:
        """The bytes held at every step of ``sequence``.

        Raises ``ValueError`` as :meth:`peak_bytes` does.
        """
        latest: dict[int, int] = {}
        last: list[int] = []
        beside: list[int] = []
        first, between, again = self._beside
        for step, node in enumerate(sequence):
            try:
                for source in self.inputs[node]:
                    last[latest[source]] = step
            except KeyError as error:
                name = self.node_names[error.args[0]]
                raise ValueError(f"{name} is read before it is computed") from None
            # as many nodes were computed as are in ``latest``
            beside.append(between[len(latest)] + again[node] if node in latest else first[node])
            latest[node] = step
            last.append(step)
        change = [self.bytes[node] for node in sequence]
        change.append(0)
        for node, end in zip(sequence, last, strict=True):
            change[end + 1] -= self.bytes[node]
        return [*map(add, accumulate(change[:-1]), beside)]

    @cached_property
    def _beside(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """The bytes held beside the outputs: while a node is first computed, by node; while others
        are computed again, by the nodes that were computed so far; in addition then, by node."""
        between = self.beside("between_bytes")
        in_order = [*(between[node] for node in self.order), 0]
        return self.beside("first_bytes"), in_order, self.beside("again_bytes")

    def is_feasible(self, sequence: Sequence[int]) -> bool:
        """Whether ``sequence`` is one of this problem and keeps the budget."""
        counts = [0] * len(self.bytes)
        first = []
        for node in sequence:
            if not 0 <= node < len(counts):
                return False
            counts[node] += 1
            if counts[node] == 1:
                first.append(node)
        if min(counts, default=1) < 1 or max(counts, default=1) > self.most_computations:
            return False
        if any(counts[node] > 1 for node in self.once):
            return False
        if self.keep_order and tuple(first) != self.order:
            return False
        try:
            return self.peak_bytes(sequence) <= self.budget_bytes
        except ValueError:
            return False


def to_json(problem: RematerialisationProblem) -> str:
    """The problem as JSON text with sorted keys."""
    return json.dumps({"schema": SCHEMA, **asdict(problem)}, sort_keys=True)


def from_document(document: dict[str, Any]) -> RematerialisationProblem:
    """The problem of a document that :func:`to_json` wrote.

    Raises :class:`UsageError` if it contradicts itself, and ``ValueError``, ``TypeError`` or
    ``KeyError`` if it is no such document.
    """
    data = {name: value for name, value in document.items() if name != "schema"}
    for name in ("node_names", "seconds", "bytes", "order", "once", *_BESIDE):
        data[name] = tuple(data.get(name, ()))
    data["inputs"] = tuple(tuple(sources) for sources in data["inputs"])
    problem = RematerialisationProblem(**data)
    check(problem)
    return problem


def check(problem: RematerialisationProblem) -> None:
    """Raises :class:`UsageError` if a number of the problem makes no sense."""
    _check_numbers(problem)
    _check_names(problem.node_names)
    count = len(problem.node_names)
    if sorted(problem.order) != list(range(count)):
        raise UsageError("order does not have every node once")
    _check_between(problem)
    unknown = [node for node in problem.once if node >= count]
    if unknown:
        raise UsageError(f"once has node {unknown[0]} of {count}")
    place = {node: position for position, node in enumerate(problem.order)}
    for node, sources in enumerate(problem.inputs):
        name = problem.node_names[node]
        for source in sources:
            if type(source) is not int or not 0 <= source < count:
                raise UsageError(f"{name} reads node {source!r} of {count}")
            if place[source] >= place[node]:
                other = problem.node_names[source]
                raise UsageError(f"{name} reads {other}, which comes no earlier in order")


def _check_numbers(problem: RematerialisationProblem) -> None:
    count = len(problem.node_names)
    for name in ("seconds", "bytes", "inputs", "order", *_BESIDE):
        found = len(getattr(problem, name))
        if found != count and (found or name not in _BESIDE):
            raise UsageError(f"{name} has {found} entries for {count} nodes")
    if not problem.keep_order and any(getattr(problem, name) for name in _BESIDE):
        raise UsageError(f"{', '.join(_BESIDE)} go with an order that is kept: set keep_order")
    whole = ("bytes", "order", "once", *_BESIDE)
    for name, kinds in (*((name, (int,)) for name in whole), ("seconds", (int, float))):
        for value in getattr(problem, name):
            if type(value) not in kinds or not 0 <= value < _LARGEST:
                raise UsageError(f"{name} has {value!r}; it takes numbers from 0 on")
    for name, most in (("budget_bytes", _LARGEST), ("most_computations", _MOST_COMPUTATIONS)):
        value = getattr(problem, name)
        if type(value) is not int or not 1 <= value <= most:
            raise UsageError(f"{name} is {value!r}; it is a whole number from 1 to {most:,}")
    if not isinstance(problem.keep_order, bool):
        raise UsageError(f"keep_order is {problem.keep_order!r}; it is true or false")


def _check_between(problem: RematerialisationProblem) -> None:
    """Raises ``UsageError`` if more is held between two nodes than at the first of them."""
    if not problem.between_bytes:
        return
    first, held = problem.beside("first_bytes"), 0
    for node in problem.order:
        if problem.between_bytes[node] > held:
            name = problem.node_names[node]
            raise UsageError(f"between_bytes of {name} are more than first_bytes of the one before")
        held = first[node]


def _check_names(names: Sequence[object]) -> None:
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise UsageError(f"node_names has {wrong[0]!r}, which is not text")
    if len(set(names)) < len(names):
        raise UsageError("two nodes have the same name; a sequence could not tell them apart")
