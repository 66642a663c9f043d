"""The simulated allocator: where chunks lie, beside those of TensorFlow's own."""

import csv
import itertools
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.prediction.memory.allocator import Allocator, rounded_bytes
from placer.processes import run_task

MIB = 1 << 20
TESTS = str(Path(__file__).parents[2])


class OneByOne:
    """An allocator that is asked for one chunk at a time; addresses name chunks."""

    def __init__(self, limit_bytes):
        self.allocator = Allocator(limit_bytes)
        self.sizes = []
        self.request_at = {}

    def allocate(self, size_bytes):
        """The address of a chunk; ``None`` where there is none."""
        request = len(self.sizes)
        self.sizes.append(size_bytes)
        if not self._serve(request):
            return None
        address = int(self.allocator.addresses(np.array([request]))[0])
        self.request_at[address] = request
        return address

    def free(self, address):
        assert self._serve(~self.request_at.pop(address)) == 1

    def _serve(self, event):
        return self.allocator.serve(np.array([event]), np.array(self.sizes, np.int64))

    @property
    def in_use_bytes(self):
        return self.allocator.in_use_bytes

    def in_use(self):
        """The sizes of chunks by address."""
        addresses, sizes = self.allocator.in_use()
        return dict(zip(addresses.tolist(), sizes.tolist(), strict=True))

    def free_chunks(self):
        """(size, address) of the free chunks, in the order in which they are kept."""
        chunks = self.allocator.chunks
        numbers = chunks.free[: chunks.counts[0]]
        return [*zip(chunks.size[numbers].tolist(), chunks.start[numbers].tolist(), strict=True)]


def test_a_chunk_is_split_from_twice_the_request_on():
    """What is less is padding, as bytes in use show."""
    allocator = OneByOne(10 * MIB)
    first, second, _ = (allocator.allocate(size) for size in (2 * MIB, MIB, MIB))
    allocator.free(first)
    assert allocator.allocate(MIB + 1) == first
    assert allocator.in_use_bytes == 4 * MIB  # all of the 2 MiB
    allocator.free(second)
    assert allocator.allocate(MIB // 2) == second
    assert allocator.in_use_bytes == 3 * MIB + MIB // 2


def test_a_chunk_is_split_if_128_mib_would_be_lost():
    allocator = OneByOne(500 * MIB)
    allocator.allocate(300 * MIB)
    assert allocator.in_use_bytes == 300 * MIB
    whole = OneByOne(500 * MIB)
    whole.allocate(500 * MIB - 127 * MIB)
    assert whole.in_use_bytes == 500 * MIB


def test_the_smallest_free_chunk_is_taken_then_the_lowest():
    allocator = OneByOne(100 * MIB)
    sizes = (3, 1, 2, 1, 2, 1)
    chunks = [allocator.allocate(size * MIB) for size in sizes]
    for number in (0, 2, 4):
        allocator.free(chunks[number])
    assert allocator.allocate(2 * MIB) == chunks[2]
    assert allocator.allocate(2 * MIB) == chunks[4]
    assert allocator.allocate(2 * MIB) == chunks[0]


def test_a_host_of_a_pebibyte_is_served_to_its_end():
    """Addresses beyond 256 TiB do not run into the sizes beside them."""
    allocator = OneByOne(1 << 50)
    first, second = allocator.allocate(1 << 49), allocator.allocate(1 << 48)
    assert (first, second) == (0, 1 << 49)
    allocator.free(first)
    assert allocator.allocate(1 << 48) == (1 << 49) + (1 << 48)


def test_free_neighbours_merge():
    allocator = OneByOne(3 * MIB)
    chunks = [allocator.allocate(MIB) for _ in range(3)]
    for number in (0, 2, 1):
        allocator.free(chunks[number])
    assert allocator.allocate(3 * MIB) == chunks[0]


REQUESTS = st.lists(
    st.one_of(
        st.integers(1, 4 * MIB),
        st.sampled_from([1, 256, 257, MIB]),
        st.integers(-20, -1),  # frees one of those in use
    ),
    max_size=80,
)


@settings(max_examples=200, deadline=None)
@given(REQUESTS, st.integers(1, 40))
def test_chunks_do_not_overlap_and_hold_what_was_asked_for(requests, limit_mib):
    """Of those in use and those that are free the region is made up, without two free ones side by
    side."""
    allocator = OneByOne(limit_mib * MIB)
    asked: dict[int, int] = {}
    peak = 0
    for request in requests:
        if request > 0:
            address = allocator.allocate(request)
            if address is None:
                continue
            asked[address] = request
        elif asked:
            address = list(asked)[request % len(asked)]
            allocator.free(address)
            del asked[address]
        in_use, free = allocator.in_use(), allocator.free_chunks()
        assert free == sorted(free)
        ends = sorted(
            [(address, address + size, False) for address, size in in_use.items()]
            + [(address, address + size, True) for size, address in free]
        )
        for (_, end, was_free), (start, _, is_free) in itertools.pairwise(ends):
            assert end == start
            assert not (was_free and is_free)
        assert sum(end - start for start, end, _ in ends) == limit_mib * MIB
        assert in_use.keys() == asked.keys()
        assert all(in_use[a] >= rounded_bytes(size) for a, size in asked.items())
        assert sum(in_use.values()) == allocator.in_use_bytes
        peak = max(peak, allocator.in_use_bytes)
        assert allocator.allocator.peak_bytes == peak


def test_more_chunks_than_there_was_room_for_at_first():
    allocator = OneByOne(100 * MIB)
    addresses = [allocator.allocate(1) for _ in range(5000)]
    assert addresses == [256 * number for number in range(5000)]
    for address in addresses[::2]:
        allocator.free(address)
    assert allocator.free_chunks()[:2] == [(256, 0), (256, 512)]


def _rest(limit_mib):
    """All that the shape of a tensor, which comes first, leaves: the region after that of 2 MiB."""
    return (limit_mib - 2) * MIB


def _driven(sizes, events, limit_mib):
    """Whether TensorFlow's own allocator serves these requests, and its bytes in use after each."""
    environment = {
        "TF_CPU_ALLOCATOR_USE_BFC": "true",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib),
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": TESTS,
    }
    request = sizes, events, _rest(limit_mib)
    return run_task("tasks_in_children:hand_out", request, 120.0, environment).answer


def _simulated(sizes, events, limit_mib):
    """The two regions are one, with a chunk between them that stays, and counts as not in use."""
    allocator = OneByOne(limit_mib * MIB + 256)
    first, between = allocator.allocate(2 * MIB), allocator.allocate(256)
    assert (first, between) == (0, 2 * MIB)
    allocator.free(first)
    address, in_use = {}, []
    for _ in sizes:  # their shapes
        allocator.allocate(4)
    for event in events:
        if event >= 0:
            address[event] = allocator.allocate(sizes[event])
            if address[event] is None:
                return [False, in_use]
        else:
            allocator.free(address.pop(~event))
        in_use.append(allocator.in_use_bytes - 256)
    return [True, in_use]


@pytest.mark.slow
def test_tensorflow_hands_out_the_same():
    """TensorFlow's BFC on a CPU, in a region of 2 MiB and one of all the rest: bytes in use after
    every one of 300 requests, and the smallest limit in MiB that serves, below which it runs out of
    memory at the same request."""
    random_ = random.Random(7)
    sizes, events, alive = [], [], []
    for _ in range(300):
        if alive and (len(alive) > 25 or random_.random() < 0.45):
            events.append(~alive.pop(random_.randrange(len(alive))))
        else:
            sizes.append(random_.choice([4, 1000, 40_000, random_.randrange(1, 20 * MIB)]))
            alive.append(len(sizes) - 1)
            events.append(alive[-1])
    roomy = _simulated(sizes, events, 1000)
    least = next(
        limit
        for limit in range(max(roomy[1]) // MIB - 50, 1000)
        if all(_simulated(sizes, events, limit + more)[0] for more in range(30))
    )
    limits = (1000, least, least - 1)
    found = [_simulated(sizes, events, limit) for limit in limits]
    assert [serves for serves, _ in found] == [True, True, False]
    with ThreadPoolExecutor() as at_once:  # before it fails TensorFlow waits for ten seconds
        assert list(at_once.map(lambda limit: _driven(sizes, events, limit), limits)) == found


TRACES = sorted(
    (Path(os.environ.get("PLACER_TEST_DATA", "none")) / "gpu/allocations").glob("*_events.csv")
)


@pytest.mark.skipif(not TRACES, reason="PLACER_TEST_DATA has no gpu/allocations")
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.removesuffix("_events.csv"))
def test_offsets_on_gpus_are_reproduced(path):
    """What a T4 and a V100 handed out in a traced step: every address, size and byte in use.

    What was free as the step began is what it used; what lies beyond is free too, where the
    allocator took one region.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    grew = path.name.startswith("t4_bn_20231107-182425")  # its offsets are GiB apart
    allocator, others = _as_it_began(rows, beyond=0 if grew else 1 << 40)
    address = {}
    for row in rows:
        offset = int(row["offset_bytes"])
        if row["event"] == "alloc":
            address[offset] = allocator.allocate(int(row["requested_bytes"]))
            assert address[offset] == offset
            assert allocator.in_use()[offset] == int(row["allocated_bytes"])
        else:
            allocator.free(address.pop(offset, offset))
        assert allocator.in_use_bytes - others == int(row["in_use_bytes_after"])


def _as_it_began(rows, beyond):
    """The allocator before the first of these events, and by how many bytes more are in use: what
    is neither free nor freed in the step is."""
    freed_first, used = {}, []
    alive = set()
    for row in rows:
        offset, size = int(row["offset_bytes"]), int(row["allocated_bytes"])
        if row["event"] == "alloc":
            alive.add(offset)
            used.append((offset, offset + size))
        elif offset in alive:
            alive.discard(offset)
        else:
            freed_first[offset] = size
    in_use = int(rows[0]["in_use_bytes_after"]) - int(rows[0]["allocated_bytes"])
    free = _without(freed_first, _merged(used), beyond)
    allocator, end = OneByOne(1 << 50), 0
    for start, stop in sorted([*map(tuple, free), *((a, a + b) for a, b in freed_first.items())]):
        for size in (start - end, stop - start):
            if size:
                allocator.allocate(size)
        end = stop
    allocator.allocate(256)
    for start, _ in free:
        allocator.free(start)
    return allocator, allocator.in_use_bytes - in_use


def _merged(intervals):
    found = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return found


def _without(chunks, intervals, beyond):
    """The intervals less the chunks; the last of them goes on ``beyond``."""
    found = []
    for start, end in intervals:
        at = start
        for offset in sorted(chunks):
            if start <= offset < end:
                if offset > at:
                    found.append([at, offset])
                at = offset + chunks[offset]
        if at < end:
            found.append([at, end])
    found[-1][1] += beyond
    return found
