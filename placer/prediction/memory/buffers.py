"""Records of the buffers of a step."""

from __future__ import annotations

from collections.abc import Iterable
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
    ``kind`` is one of :data:`~placer.prediction.memory.run.KINDS`.  ``reads`` say who keeps it.
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
