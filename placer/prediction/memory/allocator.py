"""TensorFlow's BFC allocator (best fit with coalescing), address by address.

Memory is cut into chunks.  A request is rounded up to 256 bytes and gets the smallest free chunk
that holds it, of several the one at the lowest address.  What is left of the chunk is split off if
the chunk is at least twice as large, or 128 MiB larger, and else is padding.  A chunk that is freed
merges with free neighbours::

    | a | b |          free          |
    | a | b |      c       |  free   |      c asked for 14, there are 24: split
    | a |free|     c       |  free   |      b freed
    | a |d  .|     c       |  free   |      d asked for 3, 5 are there: not split, 2 are padding

Where nothing fits a region is added: all that may be handed out at once (*one region*, the default
of GPUs), or 2 MiB, then twice as much as the time before, at most what is left (*growth*: CPUs,
and GPUs with ``allow_growth``).  Chunks of different regions never merge.

``xla/tsl/framework/bfc_allocator.cc`` of TensorFlow 2.21.  Its 21 bins hold chunks by powers of
two, each ordered by (size, address), and are searched from the first that may fit: together they
are one list in that order, which is what is kept here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

CHUNK_BYTES = 256
"""``kMinAllocationSize``: sizes and addresses of chunks are multiples of it."""

MOST_PADDING_BYTES = 128 << 20
"""``max_internal_fragmentation_bytes_``: a chunk so much larger than the request is split."""

_FIRST_REGION_BYTES = 2 << 20
UNLIMITED_BYTES = 1 << 46
ADDRESS_BITS = 62
"""More than the cap of any device has: a host may be of 1 PiB."""
ADDRESS = (1 << ADDRESS_BITS) - 1


class OutOfMemoryError(Exception):
    """The allocator has no chunk for a request."""


def rounded_bytes(size_bytes: int) -> int:
    """The size of the chunk that ``size_bytes`` are rounded up to.

    >>> rounded_bytes(1), rounded_bytes(256), rounded_bytes(257)
    (256, 256, 512)
    """
    return -(-size_bytes // CHUNK_BYTES) * CHUNK_BYTES


@dataclass(slots=True, kw_only=True)
class Allocator:
    """An allocator that may hand out ``limit_bytes``, in one region unless it has ``growth``;
    ``collects_garbage``: it gives back regions that are free when it runs short, as GPUs do.

    A chunk that has ``most_padding_bytes`` more than it is for is split.
    ``free_chunks`` are size and address as one number, ascending; ``size_at`` has the free chunks
    by where they start, ``start_of`` by where they end, ``in_use`` the sizes of the others.
    ``regions`` are (start, size); ``pool_bytes`` is their sum.  Of the ``requests`` that were
    served, number ``peak_request`` (from 1 on) made the peak.
    """

    limit_bytes: int = UNLIMITED_BYTES
    growth: bool
    collects_garbage: bool = False
    most_padding_bytes: int = MOST_PADDING_BYTES
    next_region_bytes: int = 0
    pool_bytes: int = 0
    in_use_bytes: int = 0
    peak_bytes: int = 0
    requests: int = 0
    peak_request: int = 0
    regions: list[tuple[int, int]] = field(default_factory=list)
    free_chunks: list[int] = field(default_factory=list)
    size_at: dict[int, int] = field(default_factory=dict)
    start_of: dict[int, int] = field(default_factory=dict)
    in_use: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.next_region_bytes:
            first = min(self.limit_bytes, _FIRST_REGION_BYTES) if self.growth else self.limit_bytes
            self.next_region_bytes = rounded_bytes(first)

    def copy(self, limit_bytes: int) -> Allocator:
        """The same state under a lower limit, which nothing that is in use is beyond."""
        copied = Allocator(
            limit_bytes=limit_bytes,
            growth=self.growth,
            collects_garbage=self.collects_garbage,
            most_padding_bytes=self.most_padding_bytes,
            next_region_bytes=self.next_region_bytes,
            pool_bytes=self.pool_bytes,
            in_use_bytes=self.in_use_bytes,
            peak_bytes=self.peak_bytes,
            requests=self.requests,
            peak_request=self.peak_request,
            regions=[*self.regions],
            free_chunks=[*self.free_chunks],
            size_at=dict(self.size_at),
            start_of=dict(self.start_of),
            in_use=dict(self.in_use),
        )
        if not self.growth:
            copied._cut_region()
        return copied

    def _cut_region(self) -> None:
        """Ends the one region, whose last chunk is free, at the limit."""
        size = self.limit_bytes // CHUNK_BYTES * CHUNK_BYTES
        self.next_region_bytes = rounded_bytes(self.limit_bytes)
        if not self.regions:
            return
        (start, old_size), self.regions = self.regions[0], [(0, size)]
        self.pool_bytes = size
        address = self.free_chunks.pop() & ADDRESS
        del self.size_at[address], self.start_of[start + old_size]
        if address < size:
            insort(self.free_chunks, (size - address) << ADDRESS_BITS | address)
            self.size_at[address] = size - address
            self.start_of[size] = address

    def allocate(self, size_bytes: int) -> int:
        """The address of a chunk for ``size_bytes``, at least 1.

        Raises :class:`OutOfMemoryError`.
        """
        address: dict[int, int] = {}
        if not self.serve((0,), {0: size_bytes}, address):
            raise OutOfMemoryError
        return address[0]

    def free(self, address: int) -> None:
        """Frees the chunk at ``address``."""
        self.serve((~0,), {}, {0: address})

    def serve(
        self,
        events: Sequence[int],
        sizes: Mapping[int, int],
        address: dict[int, int],
        first: int = 0,
        watch: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Hands out chunks of these ``sizes`` (``~chunk``: frees it), from event number ``first``
        on, as long as memory suffices; says whether it did.  ``address`` has those in use.
        ``watch`` is called with the number of each event that asks for a chunk, and with the size.
        """
        free_chunks, size_at, start_of = self.free_chunks, self.size_at, self.start_of
        in_use, most_padding = self.in_use, self.most_padding_bytes
        total, peak, requests = self.in_use_bytes, self.peak_bytes, self.requests
        served = True
        for index, event in enumerate(islice(events, first, None), first):
            if event < 0:
                start = address.pop(~event)
                size = in_use.pop(start)
                total -= size
                end = start + size
                after = size_at.pop(end, 0)
                if after:
                    del free_chunks[bisect_left(free_chunks, after << ADDRESS_BITS | end)]
                    size += after
                    end += after
                before = start_of.pop(start, -1)
                if before >= 0:
                    chunk = start - before << ADDRESS_BITS | before
                    del free_chunks[bisect_left(free_chunks, chunk)]
                    size += start - before
                    start = before
                insort(free_chunks, size << ADDRESS_BITS | start)
                size_at[start] = size
                start_of[end] = start
                continue
            if watch is not None:
                self.in_use_bytes, self.peak_bytes, self.requests = total, peak, requests
                watch(index, sizes[event])
            wanted = -(-sizes[event] // CHUNK_BYTES) * CHUNK_BYTES
            place = bisect_left(free_chunks, wanted << ADDRESS_BITS)
            if place == len(free_chunks):
                if not self._make_room(wanted):
                    served = False
                    break
                place = bisect_left(free_chunks, wanted << ADDRESS_BITS)
            chunk = free_chunks.pop(place)
            size, start = chunk >> ADDRESS_BITS, chunk & ADDRESS
            del size_at[start]
            rest = size - wanted
            if rest >= wanted or rest >= most_padding:
                left = start + wanted
                insort(free_chunks, rest << ADDRESS_BITS | left)
                size_at[left] = rest
                start_of[start + size] = left
                size = wanted
            else:
                del start_of[start + size]
            in_use[start] = size
            address[event] = start
            total += size
            requests += 1
            if total > peak:
                peak, self.peak_request = total, requests
        self.in_use_bytes, self.peak_bytes, self.requests = total, peak, requests
        return served

    def _make_room(self, wanted: int) -> bool:
        """Adds a region, if need be in place of those that are free; says whether it could."""
        if self._extend(wanted):
            return True
        return self.collects_garbage and self._give_back_regions(wanted) and self._extend(wanted)

    def _extend(self, wanted: int) -> bool:
        """``BFCAllocator::Extend``, where the machine has what the limit allows."""
        available = (self.limit_bytes - self.pool_bytes) // CHUNK_BYTES * CHUNK_BYTES
        if wanted > available:
            return False
        grown = self.next_region(wanted)
        size = min(grown, available)
        self.next_region_bytes = grown if grown > self.next_region_bytes else 2 * grown
        # a gap lies between regions, so that their chunks are no neighbours
        start = self.regions[-1][0] + self.regions[-1][1] + CHUNK_BYTES if self.regions else 0
        self.regions.append((start, size))
        self.pool_bytes += size
        insort(self.free_chunks, size << ADDRESS_BITS | start)
        self.size_at[start] = size
        self.start_of[start + size] = start
        return True

    def next_region(self, wanted: int) -> int:
        """The bytes of the region that is added for ``wanted`` if the limit allows it."""
        size = self.next_region_bytes
        while wanted > size:
            size *= 2
        return size

    def _give_back_regions(self, wanted: int) -> bool:
        """``BFCAllocator::DeallocateFreeRegions``."""
        unused = [(start, size) for start, size in self.regions if self.size_at.get(start) == size]
        total = sum(size for _, size in unused)
        if not total or wanted > self.limit_bytes - self.pool_bytes + total:
            return False
        for start, size in unused:
            self.free_chunks.remove(size << ADDRESS_BITS | start)
            del self.size_at[start], self.start_of[start + size]
            self.regions.remove((start, size))
        self.pool_bytes -= total
        return True
