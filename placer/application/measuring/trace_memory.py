"""Memory that the allocators of a trace gave out (``MemoryAllocation``, ``MemoryDeallocation``).

Each event states the bytes that its allocator has in use after it, rounding included, so the
bytes at the window's begin are those after the first event less that event's own.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from placer.application.measuring.xplane_files import TraceEvent, TracePlane

WANTED = frozenset(
    {"allocator_name", "bytes_allocated", "bytes_available", "requested_bytes", "allocation_bytes"}
    | {"peak_bytes_in_use", "region_type", "addr"}
)
"""The values of events that are looked at here."""

PINNED = "pinned host"

_ALLOCATION, _DEALLOCATION = "MemoryAllocation", "MemoryDeallocation"
_GPU = re.compile(r"GPU_(\d+)_bfc")
_PINNED = re.compile(r"(gpu|cuda)_host_bfc")


def allocator_peaks(planes: Sequence[TracePlane]) -> dict[str, dict[str, int]]:
    """By device (``GPU:0``, ``CPU:0``, ``pinned host``) what its allocator gave out, in bytes.

    ``before_bytes`` were in use when the window began, ``peak_bytes`` at most in it; of what was
    given out in the window ``peak_requested_bytes`` had been asked for at that moment, and
    ``peak_temporary_bytes`` of those by kernels for themselves.  ``lifetime_peak_bytes`` is the
    most since the process began, ``limit_bytes`` what the allocator may hand out, where it says.
    """
    events: dict[str, list[TraceEvent]] = defaultdict(list)
    for event in _allocations(planes):
        events[_device(str(event.values.get("allocator_name", "")))].append(event)
    return {device: _peaks(found) for device, found in sorted(events.items())}


def _allocations(planes: Iterable[TracePlane]) -> list[TraceEvent]:
    found = [
        event
        for plane in planes
        for line in plane.lines
        for event in line.events
        if event.name in (_ALLOCATION, _DEALLOCATION)
    ]
    return sorted(found, key=lambda event: event.start)


def _device(allocator: str) -> str:
    gpu = _GPU.fullmatch(allocator)
    if gpu:
        return f"GPU:{gpu[1]}"
    return PINNED if _PINNED.fullmatch(allocator) else "CPU:0"


def _peaks(events: Sequence[TraceEvent]) -> dict[str, int]:
    live: dict[int, tuple[int, int]] = {}
    first, in_first = events[0], _number(events[0].values, "bytes_allocated")
    own = _number(first.values, "allocation_bytes")
    before = max(0, in_first + (own if first.name == _DEALLOCATION else -own))
    peak, requested, temporary = before, 0, 0
    requested_now = temporary_now = 0
    for event in events:
        address = _number(event.values, "addr")
        gone = live.pop(address, (0, 0))
        requested_now, temporary_now = requested_now - gone[0], temporary_now - gone[1]
        if event.name == _ALLOCATION:
            size = _number(event.values, "requested_bytes")
            for_itself = size if event.values.get("region_type") == "temp" else 0
            live[address] = size, for_itself
            requested_now, temporary_now = requested_now + size, temporary_now + for_itself
        in_use = _number(event.values, "bytes_allocated")
        if in_use > peak:
            peak, requested, temporary = in_use, requested_now, temporary_now
    limits = [
        _number(event.values, "bytes_allocated") + _number(event.values, "bytes_available")
        for event in events
        if event.values.get("bytes_available")
    ]
    return {
        "events": len(events),
        "before_bytes": before,
        "peak_bytes": peak,
        "peak_requested_bytes": requested,
        "peak_temporary_bytes": temporary,
        "lifetime_peak_bytes": max(_number(e.values, "peak_bytes_in_use") for e in events),
        "limit_bytes": max(limits, default=0),
    }


def _number(values: Mapping[str, object], key: str) -> int:
    """A count of bytes, or an address; 0 where it is none."""
    found = values.get(key)
    return found if isinstance(found, int) and found >= 0 else 0
