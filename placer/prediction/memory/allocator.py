"""TensorFlow's BFC allocator (best fit with coalescing), address by address.

Memory is one region that is cut into chunks, as GPUs have it by default.  A request is rounded up
to 256 bytes and gets the smallest free chunk that holds it, of several the one at the lowest
address.  What is left of the chunk is split off if the chunk is at least twice as large, or 128 MiB
larger, and else is padding.  A chunk that is freed merges with free neighbours::

    | a | b |          free          |
    | a | b |      c       |  free   |      c asked for 14, there are 24: split
    | a |free|     c       |  free   |      b freed
    | a |d  .|     c       |  free   |      d asked for 3, 5 are there: not split, 2 are padding

``xla/tsl/framework/bfc_allocator.cc`` of TensorFlow 2.21.  Its 21 bins hold chunks by powers of
two, each ordered by (size, address), and are searched from the first that may fit: together they
are one list in that order, which is what is kept here.  The loop over requests is compiled
(:mod:`placer.prediction.memory.chunks`).
"""

from __future__ import annotations

import numpy as np

from placer.prediction.memory.chunks import (
    CHUNK_BYTES,
    FREE,
    IN_USE,
    INDIFFERENT,
    LIMIT_REACHED,
    MOST_PADDING_BYTES,
    NO_SPARE,
    PEAK,
    PEAK_REQUEST,
    REACHED,
    SPARE,
    STOPPED,
    Chunks,
    Ints,
    cut_region,
    hand_out,
)

UNLIMITED_BYTES = 1 << 60
"""More than any device has."""

_FIRST_CHUNKS = 256
"""Chunks that there is room for at first."""


def rounded_bytes(size_bytes: int) -> int:
    """The size of the chunk that ``size_bytes`` are rounded up to.

    >>> rounded_bytes(1), rounded_bytes(256), rounded_bytes(257)
    (256, 256, 512)
    """
    return -(-size_bytes // CHUNK_BYTES) * CHUNK_BYTES


class Allocator:
    """An allocator that may hand out ``limit_bytes``; ``chunk_of`` has the chunk of every request
    that is in use.

    A chunk that has ``most_padding_bytes`` more than it is for is split.
    """

    def __init__(
        self, limit_bytes: int = UNLIMITED_BYTES, most_padding_bytes: int = MOST_PADDING_BYTES
    ) -> None:
        self.most_padding_bytes = most_padding_bytes
        self.chunk_of: Ints = np.zeros(0, np.int64)
        self.chunks = _no_chunks(_FIRST_CHUNKS)
        size = limit_bytes // CHUNK_BYTES * CHUNK_BYTES
        if size:  # the whole region is free
            counts = self.chunks.counts
            counts[SPARE] -= 1
            counts[FREE] = 1
            chunk = self.chunks.free[0] = self.chunks.spare[counts[SPARE]]
            self.chunks.size[chunk], self.chunks.is_free[chunk] = size, 1

    def copy(self, limit_bytes: int) -> Allocator:
        """The same state under a lower limit, which nothing that is in use is beyond."""
        copied = Allocator.__new__(Allocator)
        copied.most_padding_bytes = self.most_padding_bytes
        copied.chunk_of = self.chunk_of.copy()
        copied.chunks = Chunks(*[array.copy() for array in self.chunks])
        if limit_bytes < UNLIMITED_BYTES:
            cut_region(copied.chunks, limit_bytes // CHUNK_BYTES * CHUNK_BYTES)
        return copied

    @property
    def in_use_bytes(self) -> int:
        """The bytes of all chunks in use."""
        return int(self.chunks.counts[IN_USE])

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were in use at once."""
        return int(self.chunks.counts[PEAK])

    @property
    def peak_request(self) -> int:
        """Which of all requests that were served made the peak, from 1 on."""
        return int(self.chunks.counts[PEAK_REQUEST])

    @property
    def indifferent_bytes(self) -> int:
        """The limit from which on none makes a difference to the requests that were watched."""
        return int(self.chunks.counts[INDIFFERENT])

    def in_use(self) -> tuple[Ints, Ints]:
        """The addresses of the chunks in use, which ascend, and their sizes."""
        chunks = self.chunks
        is_used = chunks.is_free == 0
        is_used[chunks.spare[: chunks.counts[SPARE]]] = False
        numbers = np.flatnonzero(is_used)
        numbers = numbers[np.argsort(chunks.start[numbers])]
        return chunks.start[numbers], chunks.size[numbers]

    def addresses(self, requests: Ints) -> Ints:
        """Where the chunks of these requests begin."""
        found: Ints = self.chunks.start[self.chunk_of[requests]]
        return found

    def serve(self, events: Ints, sizes: Ints, first: int = 0, watched_bytes: int = 0) -> int:
        """Hands out chunks of these ``sizes`` (``~request``: frees its chunk), from event number
        ``first`` on, and returns the number of the event at which it stopped.

        Where memory does not suffice it stops, and where ``watched_bytes`` are given at the first
        request to which a limit of so many bytes, or more than any before, makes a difference.
        """
        if len(self.chunk_of) < len(sizes):
            more = np.zeros(len(sizes) - len(self.chunk_of), np.int64)
            self.chunk_of = np.concatenate([self.chunk_of, more])
        index = first
        while True:
            index = hand_out(
                self.chunks,
                self.chunk_of,
                events,
                sizes,
                index,
                self.most_padding_bytes,
                watched_bytes,
            )
            if index == len(events) or self.chunks.counts[STOPPED] != NO_SPARE:
                return index
            self._make_spare_chunks()

    def pass_limit(self) -> bool:
        """Whether it stopped at a limit; if so, it goes on beyond."""
        counts = self.chunks.counts
        if counts[STOPPED] != LIMIT_REACHED:
            return False
        counts[STOPPED], counts[INDIFFERENT] = 0, counts[REACHED]
        return True

    def _make_spare_chunks(self) -> None:
        """Makes room for twice as many chunks."""
        old = self.chunks
        count = len(old.start)
        self.chunks = new = _no_chunks(2 * count)
        for before, after in zip(old[:-1], new[:-1], strict=True):
            after[:count] = before
        new.counts[:] = old.counts
        new.spare[:count] = np.arange(count, 2 * count)
        new.counts[SPARE] = count


def _no_chunks(count: int) -> Chunks:
    """Room for ``count`` chunks."""
    zeros = np.zeros
    return Chunks(
        start=zeros(count, np.int64),
        size=zeros(count, np.int64),
        before=np.full(count, -1),
        after=np.full(count, -1),
        is_free=zeros(count, np.int64),
        free=zeros(count, np.int64),
        spare=np.arange(count),
        counts=np.array([0, count, 0, 0, 0, 0, 0, 0, 0]),
    )
