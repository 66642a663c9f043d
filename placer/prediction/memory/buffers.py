"""Buffers: while they are simulated, and what remains of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple


class Read(NamedTuple):
    """A buffer is kept from op number ``first``, which produced the tensor, to ``last``, and
    lies where op number ``holder`` is: the reader, or the producer of a fetched tensor.
    ``bytes`` are the tensor's, which may be a slice of the buffer."""

    first: int
    last: int
    holder: int
    bytes: int


class Lifetime(NamedTuple):
    """``bytes`` on ``device`` while ops number ``first`` to ``last`` of the order run.

    ``owner`` is the op that wrote them (for a receive buffer: the op whose output arrives);
    ``kind`` is ``activation``, ``temporary``, ``transfer`` (a receive buffer), ``feed``, or
    ``weights`` (the old value of a variable, still being read).  ``reads`` say who keeps it.
    """

    owner: str
    device: str
    bytes: int
    kind: str
    first: int
    last: int
    reads: tuple[Read, ...] = ()


def bytes_in_use(lifetimes: Iterable[Lifetime], op_count: int) -> list[int]:
    """The bytes that are alive while each of ``op_count`` ops runs."""
    change = [0] * (op_count + 1)
    for lifetime in lifetimes:
        change[lifetime.first] += lifetime.bytes
        change[lifetime.last + 1] -= lifetime.bytes
    return list(accumulate(change[:-1]))


def peak_without_feeds(lifetimes: Iterable[Lifetime], op_count: int) -> int:
    """The most bytes that are alive at once while ``op_count`` ops run, fed values aside."""
    own = (lifetime for lifetime in lifetimes if lifetime.kind != "feed")
    return max(bytes_in_use(own, op_count), default=0)


@dataclass(slots=True, eq=False)
class Buffer:
    """A buffer during the simulation; ``holders`` is the number of those who still need it.

    A resident buffer is a variable or constant: its bytes are counted elsewhere.  ``items`` are
    the buffers that a tensor list holds, at most ``capacity`` of them, where that is known,
    of which ``items_read`` were read one after the other.
    """

    owner: str
    device: str
    bytes: int
    kind: str
    first: int
    holders: int = 0
    resident: bool = False
    items: list[Buffer] = field(default_factory=list)
    capacity: int | None = None
    items_read: int = 0
    reads: list[Read] = field(default_factory=list)

    def lifetime(self, last: int) -> Lifetime:
        """Returns the lifetime of the buffer if op number ``last`` is the last that needs it."""
        return Lifetime(
            self.owner, self.device, self.bytes, self.kind, self.first, last, tuple(self.reads)
        )
