"""The least limit under which an allocator serves the steps of a program.

A limit that serves is no proof that a larger one does, for chunks lie elsewhere then.  So the need
is the least limit from which on every larger one that was tried serves.  Along a further order
those about the last need are tried first: most orders differ by less than what is left open anyway.

Steps are first followed without a limit.  A limit makes no difference to a request as long as what
is left at the end of the region is larger than the free chunk that is taken, or, if it is what is
taken, large enough to be split.  So what is tried starts where the limit first may make a
difference.  Several steps are followed, since what is kept moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placer.prediction.memory.allocation_arrays import AllocationArrays
from placer.prediction.memory.allocations import Allocations
from placer.prediction.memory.allocator import UNLIMITED_BYTES, Allocator, rounded_bytes
from placer.prediction.memory.chunks import CHUNK_BYTES, MOST_PADDING_BYTES
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.step.step_layout import Effect, StepLayout

MOST_STEPS = 10
_RESOLUTION = 0.002
_FEWEST_BYTES = 1 << 12
"""Limits are tried until what is open is this share of the least, or so little."""

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


def find_need(allocations: Allocations, *, kept: KeptChunks | None = None, near: int = 0) -> Need:
    """The need of a device; ``kept`` is what it keeps from step to step, if that is known from
    another order, and ``near`` the need there."""
    unlimited = _Unlimited(allocations, kept or KeptChunks(allocations))
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


def load_loops() -> None:
    """Loads the loops of the simulation and of the allocator, or compiles them the first time."""
    layout = StepLayout(
        names=("op",),
        devices=["CPU:0"],
        effects=[Effect.PLAIN],
        inputs=[()],
        outputs=[range(1)],
        temporary_bytes=[0],
        memory=["CPU:0"],
        bytes=[1],
        producer=[0],
        readers=[0],
    )
    find_lifetimes(layout, (0,))
    find_need(Allocations(sizes={0: 1, 1: 2}, events=[0, 1, ~0, ~1]))


def peak_in_use(allocations: Allocations, kept: KeptChunks) -> int:
    """The most bytes in use without a limit, whole chunks counted."""
    state = kept.state.copy(UNLIMITED_BYTES)
    state.run(allocations)
    return state.allocator.peak_bytes


def serves(allocations: Allocations, limit_bytes: int, *, splits_all: bool = False) -> bool:
    """Whether an allocator with this limit serves the steps; if it ``splits_all``, no chunk has
    padding that could be another."""
    padding = CHUNK_BYTES if splits_all else MOST_PADDING_BYTES
    state = AllocatorState(Allocator(limit_bytes, padding))
    return limit_bytes >= allocations.restoring_bytes and state.run(allocations)


def _least_that_serves(unlimited: _Unlimited, near: int) -> tuple[int, Allocator]:
    """The least limit from which on those that are tried serve, with the allocator under it.

    By bisection between one that fails and the one that makes no difference, once the limits about
    ``near`` were tried.
    """
    open_bytes, fails = unlimited.open_bytes, unlimited.least_bytes
    if (served := unlimited.under(fails)) is not None:
        return fails, served
    likely = [near + open_bytes, near - open_bytes, near]
    enough, served = unlimited.indifferent_bytes, unlimited.state.allocator
    while enough - fails > open_bytes:
        limit = likely.pop() if likely else rounded_bytes((fails + enough) // 2)
        if not fails < limit < enough:
            continue
        found = unlimited.under(limit)
        if found is None:
            fails = limit
        else:
            enough, served = limit, found
    return enough, served


def least_bytes(allocations: Allocations) -> int:
    """The most that is asked for at once, in chunks of the least size: no lower limit serves, in
    whatever order the restored variables come."""
    kept = allocations.arrays
    in_steps = [asked.arrays.most_step_bytes for asked in (allocations, *allocations.later)]
    most = max(kept.most_kept_bytes, kept.kept_bytes + max(in_steps))
    return max(most, allocations.restoring_bytes)


def _asked_for_by(allocations: Allocations, request: int) -> tuple[int, int, int]:
    """The bytes of tensors and of kernels that are asked for, and not given back, when that request
    is served (numbered from 1 over all steps), and the number of the op that asks."""
    left = request - sum(event >= 0 for event in allocations.kept)
    kept = _alive_after(allocations.kept, {}, request)
    if left <= 0:
        alive, asker, asked = kept, -1, allocations
    else:
        number = 0
        while left > allocations.in_step(number).arrays.requests:
            left -= allocations.in_step(number).arrays.requests
            number += 1
        asked = allocations.in_step(number)
        asker = asked.askers[left - 1] if left <= len(asked.askers) else -1
        constants = dict.fromkeys(asked.kept[len(allocations.kept) :])
        alive = _alive_after(asked.events, kept | constants, left)
    sizes = asked.sizes
    workspace = sum(sizes[chunk] for chunk in alive if chunk in asked.temporaries)
    return sum(sizes[chunk] for chunk in alive) - workspace, workspace, asker


def _alive_after(
    events: Sequence[int], alive: Mapping[int, None], requests: int
) -> dict[int, None]:
    """The chunks that are alive after so many requests of the ``events``, with those ``alive``
    before."""
    found = dict(alive)
    for event in events:
        if not requests:
            break
        if event >= 0:
            found[event] = None
            requests -= 1
        else:
            del found[~event]
    return found


class AllocatorState:
    """An allocator in the midst of a step: event number ``index`` of step number ``step`` is the
    next (step -1: what is kept); ``starts`` has what was in use, and where, as each step began."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.step, self.index = -1, 0
        self.starts: tuple[object, ...] = ()

    def copy(self, limit_bytes: int) -> AllocatorState:
        """The same state under another limit."""
        copied = AllocatorState(self.allocator.copy(limit_bytes))
        copied.step, copied.index, copied.starts = self.step, self.index, self.starts
        return copied

    def run(
        self, allocations: Allocations, watched_bytes: int = 0, steps: int = MOST_STEPS
    ) -> bool:
        """Runs to the end, if memory suffices, and no further than to a request to which a limit of
        ``watched_bytes`` makes a difference; says whether it came to the end."""
        while self.step < steps:
            asked = allocations.in_step(self.step).arrays
            events = asked.events if self.step >= 0 else asked.kept
            self.index = self.allocator.serve(events, asked.sizes, self.index, watched_bytes)
            if self.index < len(events):
                return False
            if self.next_step(asked) and self.step > len(allocations.later):
                return True
        return True

    def next_step(self, asked: AllocationArrays) -> bool:
        """Goes to the next step, what is kept being where it moved; says whether that will be as
        one before."""
        allocator = self.allocator
        if self.step >= 0:
            allocator.chunk_of[asked.moved_to] = allocator.chunk_of[asked.moved_from]
        moving = allocator.addresses(asked.moved_to)
        start = tuple(array.tobytes() for array in (*allocator.in_use(), moving))
        is_known = start in self.starts
        self.starts = (*self.starts, start)
        self.step, self.index = self.step + 1, 0
        return is_known


class KeptChunks:
    """An allocator without a limit that has what a device keeps from step to step, the same along
    all orders; until then no limit from ``indifferent_bytes`` on makes a difference."""

    def __init__(self, allocations: Allocations) -> None:
        self.state = AllocatorState(Allocator())
        self.state.run(allocations, UNLIMITED_BYTES, steps=0)
        self.indifferent_bytes = self.state.allocator.indifferent_bytes


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
        self.state = kept.state.copy(UNLIMITED_BYTES)
        self.snapshots = [
            (0, AllocatorState(Allocator())),
            (kept.indifferent_bytes, kept.state),
        ]
        self._follow(allocations)
        self.indifferent_bytes = self.state.allocator.indifferent_bytes

    def _follow(self, allocations: Allocations) -> None:
        apart = int(_SNAPSHOT_SHARE * self.least_bytes)
        allocator = self.state.allocator
        watched = max(self.least_bytes, self.snapshots[-1][0] + apart)
        while not self.state.run(allocations, watched):
            known = allocator.indifferent_bytes
            self.snapshots.append((known, self.state.copy(UNLIMITED_BYTES)))
            if not allocator.pass_limit():  # more than any device has
                break
            watched = max(self.least_bytes, known + apart)

    def under(self, limit_bytes: int) -> Allocator | None:
        """The allocator at the end under a limit not below ``least_bytes``, ``None`` if it runs out
        of memory."""
        if limit_bytes >= self.indifferent_bytes:
            return self.state.allocator
        state = next(state for limit, state in reversed(self.snapshots) if limit <= limit_bytes)
        limited = state.copy(limit_bytes)
        return limited.allocator if limited.run(self.allocations) else None
