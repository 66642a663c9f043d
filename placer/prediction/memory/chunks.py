"""The chunks of an allocator as arrays, and the loop that hands them out, compiled."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placer.machine_code.jit import compiled, compiled_part

Ints = npt.NDArray[np.int64]

CHUNK_BYTES = 256
"""``kMinAllocationSize``: sizes and addresses of chunks are multiples of it."""

MOST_PADDING_BYTES = 128 << 20
"""``max_internal_fragmentation_bytes_``: a chunk so much larger than the request is split."""

FREE, SPARE, IN_USE, PEAK, REQUESTS, PEAK_REQUEST, INDIFFERENT, STOPPED, REACHED = range(9)
"""The places of ``counts``."""

NO_CHUNK, NO_SPARE, LIMIT_REACHED = 1, 2, 3
"""Why the loop stopped."""


class Chunks(NamedTuple):
    """Chunk number c begins at ``start[c]`` and has ``size[c]`` bytes between its neighbours
    ``before[c]`` and ``after[c]`` (-1: none), free if ``is_free[c]``.

    ``free`` are the numbers of the free chunks, ascending by size and start, ``spare`` those that
    are no chunk; as many of both as ``counts`` says.  That has, too: the bytes in use, their peak,
    how many requests were served and which one made the peak (from 1 on), the limit from which on
    none makes a difference, why the loop stopped, and the limit that it then had reached.
    """

    start: Ints
    size: Ints
    before: Ints
    after: Ints
    is_free: Ints
    free: Ints
    spare: Ints
    counts: Ints


@compiled
def hand_out(
    chunks: Chunks,
    chunk_of: Ints,
    events: Ints,
    sizes: Ints,
    first: int,
    most_padding: int,
    watched_bytes: int,
) -> int:
    """Hands out chunks (``chunk_of``, by request) from event number ``first`` on, and returns the
    number of the event at which it stopped.

    An event is the number of a request, of ``sizes``, or ``~request`` where that is freed.  Unless
    ``watched_bytes`` is 0 it stops where a limit of so many bytes first makes a difference.
    """
    start, size, before, after, _, free, spare, counts = chunks
    for index in range(first, len(events)):
        event = events[index]
        if event < 0:
            chunk = chunk_of[~event]
            counts[IN_USE] -= size[chunk]
            _merge(chunks, chunk)
            continue
        wanted = (sizes[event] + CHUNK_BYTES - 1) // CHUNK_BYTES * CHUNK_BYTES
        place = _place_of(chunks, wanted, -1)
        if watched_bytes:
            limit = _indifferent(chunks, place, wanted)
            if limit > watched_bytes and limit > counts[INDIFFERENT]:
                counts[STOPPED], counts[REACHED] = LIMIT_REACHED, limit
                return index
            counts[INDIFFERENT] = max(counts[INDIFFERENT], limit)
        if place == counts[FREE]:
            counts[STOPPED] = NO_CHUNK
            return index
        if not counts[SPARE]:
            counts[STOPPED] = NO_SPARE
            return index
        chunk = free[place]
        _take(chunks, place)
        rest = size[chunk] - wanted
        if rest >= wanted or rest >= most_padding:
            counts[SPARE] -= 1
            left = spare[counts[SPARE]]
            start[left], size[left], size[chunk] = start[chunk] + wanted, rest, wanted
            before[left], after[left] = chunk, after[chunk]
            if after[chunk] >= 0:
                before[after[chunk]] = left
            after[chunk] = left
            _put(chunks, left)
        chunk_of[event] = chunk
        counts[IN_USE] += size[chunk]
        counts[REQUESTS] += 1
        if counts[IN_USE] > counts[PEAK]:
            counts[PEAK], counts[PEAK_REQUEST] = counts[IN_USE], counts[REQUESTS]
    return len(events)


@compiled
def cut_region(chunks: Chunks, limit_bytes: int) -> None:
    """Ends the region, whose last chunk is free and the largest, at the limit."""
    start, size, before, after, _, free, spare, counts = chunks
    last = free[counts[FREE] - 1]
    _take(chunks, counts[FREE] - 1)
    if start[last] < limit_bytes:
        size[last] = limit_bytes - start[last]
        _put(chunks, last)
        return
    if before[last] >= 0:
        after[before[last]] = -1
    spare[counts[SPARE]] = last
    counts[SPARE] += 1


@compiled_part
def _merge(chunks: Chunks, chunk: int) -> None:
    """Frees a chunk, with its free neighbours."""
    start, size, before, after, is_free, _, spare, counts = chunks
    for neighbour in (after[chunk], before[chunk]):
        if neighbour < 0 or not is_free[neighbour]:
            continue
        _take(chunks, _place_of(chunks, size[neighbour], start[neighbour]))
        size[chunk] += size[neighbour]
        if neighbour == after[chunk]:
            after[chunk] = after[neighbour]
            if after[chunk] >= 0:
                before[after[chunk]] = chunk
        else:
            start[chunk], before[chunk] = start[neighbour], before[neighbour]
            if before[chunk] >= 0:
                after[before[chunk]] = chunk
        spare[counts[SPARE]] = neighbour
        counts[SPARE] += 1
    _put(chunks, chunk)


@compiled_part
def _place_of(chunks: Chunks, size_bytes: int, address: int) -> int:
    """The place among free chunks of the first that is not below this size and address."""
    low, high = 0, int(chunks.counts[FREE])
    while low < high:
        middle = (low + high) // 2
        chunk = chunks.free[middle]
        size = chunks.size[chunk]
        if size < size_bytes or (size == size_bytes and chunks.start[chunk] < address):
            low = middle + 1
        else:
            high = middle
    return low


@compiled_part
def _put(chunks: Chunks, chunk: int) -> None:
    """Adds a chunk to those that are free."""
    free, counts = chunks.free, chunks.counts
    place = _place_of(chunks, chunks.size[chunk], chunks.start[chunk])
    for index in range(counts[FREE], place, -1):
        free[index] = free[index - 1]
    free[place] = chunk
    chunks.is_free[chunk] = 1
    counts[FREE] += 1


@compiled_part
def _take(chunks: Chunks, place: int) -> None:
    """Removes the chunk at a place from those that are free."""
    free, counts = chunks.free, chunks.counts
    chunks.is_free[free[place]] = 0
    counts[FREE] -= 1
    for index in range(place, counts[FREE]):
        free[index] = free[index + 1]


@compiled_part
def _indifferent(chunks: Chunks, place: int, wanted: int) -> int:
    """The limit from which on none makes a difference to a request that takes the free chunk at
    ``place``: the last chunk of the region is the largest, for there is no limit."""
    count = chunks.counts[FREE]
    end = chunks.start[chunks.free[count - 1]]
    if place < count - 1:
        return int(end + chunks.size[chunks.free[place]])
    return int(end + min(2 * wanted, wanted + MOST_PADDING_BYTES))
