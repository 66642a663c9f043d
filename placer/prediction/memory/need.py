"""The least limit under which an allocator serves the steps of a program.

A limit that serves is no proof that a larger one does, for chunks lie elsewhere then.  So the need
is the least limit from which on every larger one that was tried serves.  In growth, where the sizes
of regions follow from the limit, some that are larger by up to a tenth are tried for nothing else.
Along a further order those about the last need are tried first: most orders differ by less than
what is left open anyway.

Steps are first followed without a limit.  A limit makes no difference to a request as long as

- one region: what is left at the end of it is larger than the free chunk that is taken, or, if it
  is what is taken, large enough to be split;
- growth: no region is added, or one that is as large as it would be.

So what is tried starts where the limit first may make a difference.  Several steps are followed,
since what is kept moves, and regions that were added stay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cost_models.byte_sizes import MEBIBYTE
from placer.prediction.memory.allocations import Allocations
from placer.prediction.memory.allocator import (
    ADDRESS,
    ADDRESS_BITS,
    CHUNK_BYTES,
    MOST_PADDING_BYTES,
    UNLIMITED_BYTES,
    Allocator,
    rounded_bytes,
)

_Watch = Callable[[int, int], None]

MOST_STEPS = 10
_RESOLUTION = 0.002
_FEWEST_BYTES = 1 << 12
"""Limits are tried until what is open is this share of the least, or so little."""

LARGER = (0.02, 0.04, 0.06, 0.08, 0.1)
"""By how much those limits are larger that have to serve in growth, too."""

_SNAPSHOT_SHARE = 0.02
"""How far apart the limits are for which states are kept, of what is asked for at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The need of one device's allocator along one order.

    ``in_use_bytes`` are in use at most where there is no limit, whole chunks counted.
    ``need_bytes`` is the least limit that serves.  Under that limit it is made up of, when most is
    in use: ``tensor_bytes`` and ``workspace_bytes`` (what kernels take for themselves), which are
    asked for; ``padding_bytes`` of their chunks; ``fragmentation_bytes`` that are free.
    ``peak_asker`` is the number of the op that asked last then, -1 before the first step.
    """

    in_use_bytes: int
    need_bytes: int
    tensor_bytes: int
    workspace_bytes: int
    padding_bytes: int
    peak_asker: int

    @property
    def fragmentation_bytes(self) -> int:
        """Returns what is left of the need."""
        asked_for = self.tensor_bytes + self.workspace_bytes
        return self.need_bytes - asked_for - self.padding_bytes


def find_need(
    allocations: Allocations, *, growth: bool, kept: KeptChunks | None = None, near: int = 0
) -> Need:
    """The need of a device whose allocator grows, or else takes one region; ``kept`` is what it
    keeps from step to step, if that is known from another order, and ``near`` the need there."""
    unlimited = _Unlimited(allocations, kept or KeptChunks(allocations, growth=growth))
    need_bytes, limited = _least_that_serves(unlimited, near)
    tensors, workspace, asker = _asked_for_by(allocations, limited.peak_request)
    return Need(
        in_use_bytes=unlimited.state.allocator.peak_bytes,
        need_bytes=need_bytes,
        tensor_bytes=tensors,
        workspace_bytes=workspace,
        padding_bytes=limited.peak_bytes - tensors - workspace,
        peak_asker=asker,
    )


def peak_in_use(allocations: Allocations, kept: KeptChunks) -> int:
    """The most bytes in use without a limit, whole chunks counted."""
    state = kept.state.copy(UNLIMITED_BYTES)
    state.run(allocations)
    return state.allocator.peak_bytes


def serves(
    allocations: Allocations, limit_bytes: int, *, growth: bool, splits_all: bool = False
) -> bool:
    """Whether an allocator with this limit serves the steps; if it ``splits_all``, no chunk has
    padding that could be another."""
    padding = CHUNK_BYTES if splits_all else MOST_PADDING_BYTES
    allocator = Allocator(limit_bytes=limit_bytes, growth=growth, most_padding_bytes=padding)
    state = AllocatorState(allocator)
    return limit_bytes >= allocations.restoring_bytes and state.run(allocations)


def _least_that_serves(unlimited: _Unlimited, near: int) -> tuple[int, Allocator]:
    """The least limit from which on those that are tried serve, with the allocator under it.

    By bisection, once the limits about ``near`` were tried; again above each larger limit that does
    not serve.
    """
    open_bytes = unlimited.open_bytes
    likely = [near + open_bytes, near - open_bytes, near]
    limit = unlimited.least_bytes
    served = unlimited.under(limit)
    if served is None:
        limit, served = _bisect(unlimited, limit, likely)
    while (fails := _larger_that_fails(unlimited, limit, served)) is not None:
        limit, served = _bisect(unlimited, fails, likely)
    return limit, served


def _bisect(unlimited: _Unlimited, fails: int, likely: list[int]) -> tuple[int, Allocator]:
    """A limit that serves, hardly above one that does not, with the allocator under it: between one
    that ``fails`` and the one that makes no difference, those that are ``likely`` first."""
    enough, served = unlimited.indifferent_bytes, unlimited.state.allocator
    while enough - fails > unlimited.open_bytes:
        limit = likely.pop() if likely else rounded_bytes((fails + enough) // 2)
        if not fails < limit < enough:
            continue
        found = unlimited.under(limit)
        if found is None:
            fails = limit
        else:
            enough, served = limit, found
    return enough, served


def _larger_that_fails(unlimited: _Unlimited, limit: int, served: Allocator) -> int | None:
    """The largest of the larger limits that are tried in growth and do not serve."""
    larger = larger_limits(limit, LARGER if served.growth else ())
    return next((each for each in larger if unlimited.under(each) is None), None)


def larger_limits(limit: int, shares: Sequence[float]) -> list[int]:
    """The ``limit`` and these ``shares`` of it, if there are any, and the next whole MiB, in which
    TensorFlow is told limits; the largest first.

    >>> larger_limits(3 << 20, (0.1,)), larger_limits((3 << 20) - 256, (0.1,))
    ([3460352], [3460096, 3145728])
    """
    larger = {rounded_bytes(int(limit * (1 + share))) for share in shares}
    whole = {-(-limit // MEBIBYTE) * MEBIBYTE} if shares else set()
    return sorted((larger | whole) - {limit}, reverse=True)


def least_bytes(allocations: Allocations) -> int:
    """The most that is asked for at once, in chunks of the least size: no lower limit serves, in
    whatever order the restored variables come."""
    kept, most = _most_at_once(allocations.kept, allocations, 0)
    for asked in (allocations, *allocations.later):
        most = max(most, _most_at_once(asked.events, asked, kept)[1])
    return max(most, allocations.restoring_bytes)


def _most_at_once(events: Sequence[int], asked: Allocations, now: int) -> tuple[int, int]:
    """The bytes after and at most during the ``events``, with ``now`` before."""
    most, sizes = now, asked.sizes
    for event in events:
        if event < 0:
            now -= rounded_bytes(sizes[~event])
        else:
            now += rounded_bytes(sizes[event])
            most = max(now, most)
    return now, most


def _asked_for_by(allocations: Allocations, request: int) -> tuple[int, int, int]:
    """The bytes of tensors and of kernels that are asked for, and not given back, when that request
    is served (numbered from 1 over all steps), and the number of the op that asks."""
    number, left, asked = 0, request, allocations
    kept, left = _alive_after(allocations.kept, {}, left)
    alive, asker = kept, -1
    while left:
        asked = allocations.in_step(number)
        asker = asked.askers[left - 1] if left <= len(asked.askers) else -1
        constants = dict.fromkeys(asked.kept[len(allocations.kept) :])
        alive, left = _alive_after(asked.events, kept | constants, left)
        number += 1
    sizes = asked.sizes
    workspace = sum(sizes[chunk] for chunk in alive if chunk in asked.temporaries)
    return sum(sizes[chunk] for chunk in alive) - workspace, workspace, asker


def _alive_after(
    events: Sequence[int], alive: Mapping[int, None], requests: int
) -> tuple[dict[int, None], int]:
    """The chunks that are alive after so many requests of the ``events``, with those ``alive``
    before; and how many requests are left for later events."""
    found = dict(alive)
    for event in events:
        if not requests:
            break
        if event >= 0:
            found[event] = None
            requests -= 1
        else:
            del found[~event]
    return found, requests


@dataclass(slots=True)
class AllocatorState:
    """An allocator in the midst of a step: event number ``index`` of step number ``step`` is the
    next (step -1: what is kept); ``address`` has the chunks in use, ``before`` what was free as the
    step began."""

    allocator: Allocator
    address: dict[int, int] = field(default_factory=dict)
    step: int = -1
    index: int = 0
    starts: tuple[object, ...] = ()

    def copy(self, limit_bytes: int) -> AllocatorState:
        """The same state under another limit."""
        allocator = self.allocator.copy(limit_bytes)
        return AllocatorState(allocator, dict(self.address), self.step, self.index, self.starts)

    def run(
        self, allocations: Allocations, watch: _Watch | None = None, steps: int = MOST_STEPS
    ) -> bool:
        """Runs to the end, if memory suffices; ``watch`` is called with the number of each event
        that asks for a chunk, and with the size."""
        while self.step < steps:
            asked = allocations.in_step(self.step)
            events = asked.events if self.step >= 0 else asked.kept
            if not self.allocator.serve(events, asked.sizes, self.address, self.index, watch):
                return False
            if self.next_step(asked.moved) and self.step > len(allocations.later):
                return True
        return True

    def next_step(self, moved: Mapping[int, int]) -> bool:
        """Goes to the next step, what is kept being where it ``moved``; says whether that will be
        as one before."""
        if self.step >= 0:
            self.address.update([(kept, self.address.pop(chunk)) for kept, chunk in moved.items()])
        allocator = self.allocator
        regions = [*allocator.regions] if allocator.growth else []  # else one up to the limit
        moving = [self.address[kept] for kept in moved]
        start = regions, dict(allocator.in_use), moving
        is_known = start in self.starts
        self.starts = (*self.starts, start)
        self.step, self.index = self.step + 1, 0
        return is_known


class KeptChunks:
    """An allocator without a limit that has what a device keeps from step to step, the same along
    all orders; until then no limit from ``indifferent_bytes`` on makes a difference."""

    def __init__(self, allocations: Allocations, *, growth: bool) -> None:
        self.state = AllocatorState(Allocator(growth=growth))
        self.indifferent_bytes = 0
        self.state.run(allocations, self._watch, steps=0)

    def _watch(self, _index: int, size: int) -> None:
        limit = _indifferent_bytes(self.state.allocator, size)
        self.indifferent_bytes = max(self.indifferent_bytes, limit)


class _Unlimited:
    """The steps without a limit, and ``snapshots`` of them: (limit, state) says that until then no
    limit from there on makes a difference; from ``indifferent_bytes`` on none does at all.  Below
    ``least_bytes`` none serves; ``open_bytes`` may be left between what serves and what does not.
    """

    def __init__(self, allocations: Allocations, kept: KeptChunks) -> None:
        self.allocations = allocations
        self.least_bytes = least_bytes(allocations)
        open_bytes = max(int(_RESOLUTION * self.least_bytes), _FEWEST_BYTES)
        self.open_bytes = rounded_bytes(open_bytes)
        growth = kept.state.allocator.growth
        self.indifferent_bytes = kept.indifferent_bytes
        self.state = kept.state.copy(UNLIMITED_BYTES)
        self.snapshots = [
            (0, AllocatorState(Allocator(growth=growth))),
            (kept.indifferent_bytes, kept.state),
        ]
        self.apart = 0 if growth else int(_SNAPSHOT_SHARE * self.least_bytes)
        self.state.run(allocations, self._watch)

    def under(self, limit_bytes: int) -> Allocator | None:
        """The allocator at the end under a limit not below ``least_bytes``, ``None`` if it runs out
        of memory."""
        if limit_bytes >= self.indifferent_bytes:
            return self.state.allocator
        state = next(state for limit, state in reversed(self.snapshots) if limit <= limit_bytes)
        limited = state.copy(limit_bytes)
        return limited.allocator if limited.run(self.allocations) else None

    def _watch(self, index: int, size: int) -> None:
        limit = _indifferent_bytes(self.state.allocator, size)
        if limit <= self.indifferent_bytes:
            return
        if limit > max(self.least_bytes, self.snapshots[-1][0] + self.apart):
            self.state.index = index
            self.snapshots.append((self.indifferent_bytes, self.state.copy(UNLIMITED_BYTES)))
        self.indifferent_bytes = limit


def _indifferent_bytes(allocator: Allocator, size: int) -> int:
    """The limit from which on none makes a difference to a request."""
    wanted, free_chunks = rounded_bytes(size), allocator.free_chunks
    index = bisect_left(free_chunks, wanted << ADDRESS_BITS)
    if allocator.growth:
        added = allocator.pool_bytes + allocator.next_region(wanted)
        return 0 if index < len(free_chunks) else added
    end = free_chunks[-1] & ADDRESS if free_chunks else 0
    if index < len(free_chunks) - 1:
        return end + (free_chunks[index] >> ADDRESS_BITS)
    return end + min(2 * wanted, wanted + MOST_PADDING_BYTES)
