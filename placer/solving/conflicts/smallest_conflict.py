"""The smallest set of elements that cannot be kept together.

Data
    E          elements, numbered
    broken(D)  the elements that a placement D breaks; a *correction set* is one of these

S is in conflict if it meets every correction set, so the smallest conflict is a smallest hitting
set of them, and a smallest hitting set of those known so far is never larger.  While it is not in
conflict itself, the placement that keeps it gives another correction set.

An upper bound comes first: an irreducible conflict (every element of it is needed) by dividing E.

References: Junker, "QuickXplain: preferred explanations and relaxations for over-constrained
problems", AAAI 2004; Ignatiev, Previti, Liffiton, Marques-Silva, "Smallest MUS extraction with
minimal hitting set dualization", CP 2015, doi:10.1007/978-3-319-23219-5_13.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from placer.solving.conflicts.packing import UndecidedError

Check = Callable[[frozenset[int]], frozenset[int] | None]
"""From a set of elements to those that some placement which keeps the set breaks, ``None`` if there
is no such placement; raises :class:`~placer.solving.conflicts.packing.UndecidedError`."""

_MOST_HITTING_NODES = 20_000
_MOST_GROWN = 40
"""Elements that are added one by one to a set that can be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """``elements`` cannot be kept together.  ``is_irreducible``: every subset can; ``is_smallest``:
    no smaller set is in conflict.  ``sufficient`` are elements each of which is enough to drop."""

    elements: tuple[int, ...]
    is_irreducible: bool
    is_smallest: bool
    sufficient: tuple[int, ...]


def smallest_conflict(count: int, check: Check, deadline: float) -> Conflict | None:
    """The smallest conflict among ``count`` elements found until ``deadline`` (of
    ``time.monotonic()``); ``None`` if all can be kept, or nobody knows.

    Elements with low numbers are preferred, where that makes no difference to the size.
    """
    search = _Search(count, check, deadline)
    if search.keeps(search.everything):
        return None
    search.reduce()
    search.single_corrections()
    search.raise_bound()
    return search.answer()


class _Search:
    """``known`` is the smallest conflict so far, ``corrections`` the correction sets so far."""

    def __init__(self, count: int, check: Check, deadline: float) -> None:
        self.everything = frozenset(range(count))
        self.known = self.everything
        self.check = check
        self.deadline = deadline
        self.corrections: list[frozenset[int]] = []
        self.undecided = False
        self.is_irreducible = False
        self.is_smallest = False

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline

    def keeps(self, elements: frozenset[int]) -> bool:
        """Whether a placement keeps the elements, or could: what is not decided counts as kept."""
        if any(not elements & correction for correction in self.corrections):
            return True
        if self.is_over:
            self.undecided = True
            return True
        try:
            broken = self.check(elements)
        except UndecidedError:
            self.undecided = True
            return True
        if broken is not None:
            self.corrections.append(broken)
        elif len(elements) < len(self.known):
            self.known = elements
        return broken is not None

    def reduce(self) -> None:
        """An irreducible conflict, if everything is decided in time."""
        found: frozenset[int] = frozenset()
        if self.keeps(found):
            found = frozenset(self._needed(found, False, sorted(self.everything)))
        self.known = min(found, self.known, key=len)
        self.is_irreducible = self.known == found and not self.undecided

    def _needed(
        self, background: frozenset[int], has_grown: bool, candidates: Sequence[int]
    ) -> list[int]:
        """The candidates that are needed for a conflict with ``background``."""
        if has_grown and not self.keeps(background):
            return []
        if len(candidates) == 1:
            return list(candidates)
        middle = len(candidates) // 2
        first, second = candidates[:middle], candidates[middle:]
        later = self._needed(background | frozenset(first), bool(first), second)
        earlier = self._needed(background | frozenset(later), bool(later), first)
        return [*earlier, *later]

    def single_corrections(self) -> None:
        """Elements that every conflict has: without one of them all others can be kept."""
        for element in sorted(self.known):
            self.keeps(self.everything - {element})

    def raise_bound(self) -> None:
        """Hitting sets, until one is in conflict or as large as the smallest known conflict."""
        while not self.is_over:
            candidate = hitting_set(self.corrections, len(self.known) - 1)
            if candidate is None:
                self.is_smallest = self.is_irreducible = True
                return
            if candidate is OUT_OF_NODES:
                return
            before = len(self.corrections)
            if not self.keeps(candidate):
                self.known = candidate
                self.is_smallest = self.is_irreducible = True
                return
            if len(self.corrections) == before:
                return  # not decided
            self._grow()

    def _grow(self) -> None:
        """The last correction set made smaller: more is kept, element by element."""
        broken = self.corrections[-1]
        for element in sorted(broken)[:_MOST_GROWN]:
            more = self.everything - broken | {element}
            before = len(self.corrections)
            if element in broken and self.keeps(more) and len(self.corrections) > before:
                broken = self.corrections[-1]

    def answer(self) -> Conflict:
        sufficient = {
            e for correction in self.corrections if len(correction) == 1 for e in correction
        }
        return Conflict(
            elements=tuple(sorted(self.known)),
            is_irreducible=self.is_irreducible,
            is_smallest=self.is_smallest,
            sufficient=tuple(sorted(sufficient)),
        )


OUT_OF_NODES: frozenset[int] = frozenset({-1})
"""No answer: the search for a hitting set was given up."""


def hitting_set(sets: Collection[frozenset[int]], most: int) -> frozenset[int] | None:
    """A smallest set of at most ``most`` elements that meets each of ``sets``, ``None`` if there is
    none; :data:`OUT_OF_NODES` if that is too hard."""
    smallest = _minimal(sets)
    nodes = [_MOST_HITTING_NODES]
    for size in range(most + 1):
        found = _hit(smallest, frozenset(), size, nodes)
        if found is not None or nodes[0] < 0:
            return found if nodes[0] >= 0 else OUT_OF_NODES
    return None


def _minimal(sets: Collection[frozenset[int]]) -> list[frozenset[int]]:
    """The sets that contain no other, the smallest first."""
    found: list[frozenset[int]] = []
    for one in sorted(set(sets), key=lambda s: (len(s), sorted(s))):
        if not any(other <= one for other in found):
            found.append(one)
    return found


def _hit(
    sets: Sequence[frozenset[int]], chosen: frozenset[int], left: int, nodes: list[int]
) -> frozenset[int] | None:
    nodes[0] -= 1
    missed = next((one for one in sets if not one & chosen), None)
    if missed is None:
        return chosen
    if left == 0 or nodes[0] < 0 or _disjoint(sets, chosen) > left:
        return None
    for element in sorted(missed):
        found = _hit(sets, chosen | {element}, left - 1, nodes)
        if found is not None or nodes[0] < 0:
            return found
    return None


def _disjoint(sets: Sequence[frozenset[int]], chosen: frozenset[int]) -> int:
    """How many of the sets that are missed have no element in common: so many more are needed."""
    count, used = 0, set(chosen)
    for one in sets:
        if not one & used:
            count += 1
            used |= one
    return count
