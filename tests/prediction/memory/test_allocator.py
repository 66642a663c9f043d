"""The simulated allocator: where chunks lie, beside those of TensorFlow's own."""

import csv
import itertools
import os
import random
from bisect import insort
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.prediction.memory.allocator import (
    ADDRESS_BITS,
    Allocator,
    OutOfMemoryError,
    rounded_bytes,
)
from placer.processes import run_task

MIB = 1 << 20
TESTS = str(Path(__file__).parents[2])


def test_a_chunk_is_split_from_twice_the_request_on():
    """What is less is padding, as bytes in use show."""
    allocator = Allocator(limit_bytes=10 * MIB, growth=False)
    first, second, _ = (allocator.allocate(size) for size in (2 * MIB, MIB, MIB))
    allocator.free(first)
    assert allocator.allocate(MIB + 1) == first
    assert allocator.in_use_bytes == 4 * MIB  # all of the 2 MiB
    allocator.free(second)
    assert allocator.allocate(MIB // 2) == second
    assert allocator.in_use_bytes == 3 * MIB + MIB // 2


def test_a_chunk_is_split_if_128_mib_would_be_lost():
    allocator = Allocator(limit_bytes=500 * MIB, growth=False)
    allocator.allocate(300 * MIB)
    assert allocator.in_use_bytes == 300 * MIB
    whole = Allocator(limit_bytes=500 * MIB, growth=False)
    whole.allocate(500 * MIB - 127 * MIB)
    assert whole.in_use_bytes == 500 * MIB


def test_the_smallest_free_chunk_is_taken_then_the_lowest():
    allocator = Allocator(limit_bytes=100 * MIB, growth=False)
    sizes = (3, 1, 2, 1, 2, 1)
    chunks = [allocator.allocate(size * MIB) for size in sizes]
    for number in (0, 2, 4):
        allocator.free(chunks[number])
    assert allocator.allocate(2 * MIB) == chunks[2]
    assert allocator.allocate(2 * MIB) == chunks[4]
    assert allocator.allocate(2 * MIB) == chunks[0]


def test_a_host_of_a_pebibyte_is_served_to_its_end():
    """Addresses beyond 256 TiB do not run into the sizes beside them."""
    allocator = Allocator(limit_bytes=1 << 50, growth=False)
    first, second = allocator.allocate(1 << 49), allocator.allocate(1 << 48)
    assert (first, second) == (0, 1 << 49)
    allocator.free(first)
    assert allocator.allocate(1 << 48) == (1 << 49) + (1 << 48)


def test_free_neighbours_merge():
    allocator = Allocator(limit_bytes=3 * MIB, growth=False)
    chunks = [allocator.allocate(MIB) for _ in range(3)]
    for number in (0, 2, 1):
        allocator.free(chunks[number])
    assert allocator.allocate(3 * MIB) == chunks[0]


def test_regions_double_and_do_not_merge():
    """2 MiB, 4 MiB, then one that is large enough, and the next is as large as that."""
    allocator = Allocator(limit_bytes=1000 * MIB, growth=True)
    chunks = [allocator.allocate(2 * MIB), allocator.allocate(4 * MIB)]
    assert [size for _, size in allocator.regions] == [2 * MIB, 4 * MIB]
    for chunk in chunks:
        allocator.free(chunk)
    allocator.allocate(20 * MIB)
    allocator.allocate(30 * MIB)
    assert [size // MIB for _, size in allocator.regions] == [2, 4, 32, 32]


def test_the_last_region_is_what_the_limit_leaves():
    allocator = Allocator(limit_bytes=5 * MIB, growth=True)
    allocator.allocate(2 * MIB)
    allocator.allocate(3 * MIB)
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(1)


def test_free_regions_are_given_back_where_garbage_is_collected():
    """6 MiB do not fit beside a free region of 2 MiB in 7."""
    for collects in (False, True):
        allocator = Allocator(limit_bytes=7 * MIB, growth=True, collects_garbage=collects)
        allocator.free(allocator.allocate(MIB))
        if collects:
            allocator.allocate(6 * MIB)
            assert [size // MIB for _, size in allocator.regions] == [7]
        else:
            with pytest.raises(OutOfMemoryError):
                allocator.allocate(6 * MIB)


REQUESTS = st.lists(
    st.one_of(
        st.integers(1, 4 * MIB),
        st.sampled_from([1, 256, 257, MIB]),
        st.integers(-20, -1),  # frees one of those in use
    ),
    max_size=80,
)


@settings(max_examples=200, deadline=None)
@given(REQUESTS, st.booleans(), st.integers(1, 40))
def test_chunks_do_not_overlap_and_hold_what_was_asked_for(requests, growth, limit_mib):
    allocator = Allocator(limit_bytes=limit_mib * MIB, growth=growth)
    asked: dict[int, int] = {}
    for request in requests:
        if request > 0:
            try:
                asked[allocator.allocate(request)] = request
            except OutOfMemoryError:
                continue
        elif asked:
            address = list(asked)[request % len(asked)]
            allocator.free(address)
            del asked[address]
        chunks = sorted(
            [(address, address + size) for address, size in allocator.in_use.items()]
            + [(address, address + size) for address, size in allocator.size_at.items()]
        )
        for (_, end), (start, _) in itertools.pairwise(chunks):
            assert end <= start
        assert sum(end - start for start, end in chunks) == allocator.pool_bytes
        assert allocator.pool_bytes <= allocator.limit_bytes
        assert allocator.in_use.keys() == asked.keys()
        assert all(allocator.in_use[a] >= rounded_bytes(size) for a, size in asked.items())
        assert sum(allocator.in_use.values()) == allocator.in_use_bytes <= allocator.peak_bytes
        assert len(allocator.free_chunks) == len(allocator.size_at) == len(allocator.start_of)


def _rest(limit_mib):
    """All that the shape of a tensor, which comes first, leaves: the region after that of 2 MiB."""
    return (limit_mib - 2) * MIB


def _driven(sizes, events, limit_mib, *, growth):
    """Whether TensorFlow's own allocator serves these requests, and its bytes in use after each."""
    environment = {
        "TF_CPU_ALLOCATOR_USE_BFC": "true",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib),
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": TESTS,
    }
    request = sizes, events, 0 if growth else _rest(limit_mib)
    return run_task("tasks_in_children:hand_out", request, 120.0, environment).answer


def _simulated(sizes, events, limit_mib, *, growth):
    allocator = Allocator(limit_bytes=limit_mib * MIB, growth=True)
    address, in_use = {}, []
    if not growth:
        shape, rest = allocator.allocate(4), allocator.allocate(_rest(limit_mib))
        allocator.free(shape)
        allocator.free(rest)
    try:
        for _ in sizes:  # their shapes
            allocator.allocate(4)
        for event in events:
            if event >= 0:
                address[event] = allocator.allocate(sizes[event])
            else:
                allocator.free(address.pop(~event))
            in_use.append(allocator.in_use_bytes)
    except OutOfMemoryError:
        return [False, in_use]
    return [True, in_use]


@pytest.mark.slow
@pytest.mark.parametrize("growth", [True, False], ids=["growth", "rest in one region"])
def test_tensorflow_hands_out_the_same(growth):
    """TensorFlow's BFC on a CPU: bytes in use after every one of 300 requests, and the smallest
    limit in MiB that serves, below which it runs out of memory at the same request."""
    random_ = random.Random(7)
    sizes, events, alive = [], [], []
    for _ in range(300):
        if alive and (len(alive) > 25 or random_.random() < 0.45):
            events.append(~alive.pop(random_.randrange(len(alive))))
        else:
            sizes.append(random_.choice([4, 1000, 40_000, random_.randrange(1, 20 * MIB)]))
            alive.append(len(sizes) - 1)
            events.append(alive[-1])
    most = 4000 if growth else 1000
    roomy = _simulated(sizes, events, most, growth=growth)
    least = next(
        limit
        for limit in range(max(roomy[1]) // MIB - 50, 1000)
        if all(_simulated(sizes, events, limit + more, growth=growth)[0] for more in range(30))
    )
    limits = (most, least, least - 1)
    found = [_simulated(sizes, events, limit, growth=growth) for limit in limits]
    assert [serves for serves, _ in found] == [True, True, False]
    with ThreadPoolExecutor() as at_once:  # before it fails TensorFlow waits for ten seconds
        driven = partial(_driven, sizes, events, growth=growth)
        assert list(at_once.map(driven, limits)) == found


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
    allocator = _as_it_began(rows, beyond=0 if grew else 1 << 40)
    address = {}
    for row in rows:
        offset = int(row["offset_bytes"])
        if row["event"] == "alloc":
            address[offset] = allocator.allocate(int(row["requested_bytes"]))
            assert address[offset] == offset
            assert allocator.in_use[offset] == int(row["allocated_bytes"])
        else:
            allocator.free(address.pop(offset, offset))
        assert allocator.in_use_bytes == int(row["in_use_bytes_after"])


def _as_it_began(rows, beyond):
    """The allocator before the first of these events."""
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
    allocator = Allocator(growth=False)
    allocator.regions, allocator.pool_bytes = [(0, 1 << 41)], 1 << 41
    allocator.in_use_bytes, allocator.in_use = in_use, dict(freed_first)
    for start, end in _without(freed_first, _merged(used), beyond):
        insort(allocator.free_chunks, (end - start) << ADDRESS_BITS | start)
        allocator.size_at[start], allocator.start_of[end] = end - start, start
    return allocator


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
