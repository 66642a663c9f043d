"""The steps of a trace: which there were, and how long every op took in each.

The host's threads have the ops: an executor's ``ExecutorState::Process`` says which run of a
function it works for (``id``), and what lies in it on the same thread belongs to that run.  A GPU's
streams have the kernels; a kernel bears the name of its op, and a ``correlation_id`` that it shares
with its launch on the host.  A run is whole if it began (``FunctionRun``) and ended
(``ExecutorDoneCallback``) within the window, once per device, or is a session's (``SessionRun``,
which is written at its end); one that the window cuts has times of single ops, and none of a step.

What a trace calls the program may differ from what the file does by the call that the program is
behind (``StatefulPartitionedCall/``), by a scope around it, and by the replica it ran in
(``replica_4/``): these are found by vote, as most names agree on them.

What allocators gave out (``MemoryAllocation``, ``MemoryDeallocation``) is there, too: each event
states the bytes in use after it, rounding included, so those at the window's begin are those after
the first event less that event's own.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from placer.application.measuring.xplane_files import TraceEvent, TraceLine, TracePlane

WANTED = frozenset({"id", "_c", "correlation_id", "tf_op", "level 0", "annotation", "group_id"})
"""The values of events that are looked at here."""

HOST_DEVICE = "CPU:0"

_DEVICE = re.compile(r"/device:(GPU:\d+).*")
_BEGIN, _END, _SESSION = "FunctionRun", "ExecutorDoneCallback", "SessionRun"
_PICOSECOND = 1e-12

Lane = tuple[object, object, str]
"""The run, the executor's context and the thread: what one device's share of a run is known by."""


@dataclass(slots=True)
class RunOfOps:
    """One run of a function or session: how often it was seen to begin and to end, and from when
    to when (picoseconds) it lasted."""

    begun: int = 0
    ended: int = 0
    start: int | None = None
    end: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all of it lies in the window."""
        return 0 < self.begun <= self.ended

    @property
    def seconds(self) -> float:
        """From its first event to its last."""
        return (self.end - (self.start or 0)) * _PICOSECOND

    def widen(self, event: TraceEvent) -> None:
        """Lets it last over ``event``."""
        self.start = event.start if self.start is None else min(self.start, event.start)
        self.end = max(self.end, event.end)


@dataclass(frozen=True, slots=True)
class OpTime:
    """One execution of an op, or one of its kernels, on a device, in a run (``None``: unknown)."""

    device: str
    run: object
    name: str
    op_type: str
    seconds: float


@dataclass(slots=True, kw_only=True)
class TraceTimes:
    """The runs by their number, and what ops took in them; where all of a run's files are together
    also the memory of every device, and what the trace says of the machine."""

    runs: dict[object, RunOfOps] = field(default_factory=lambda: defaultdict(RunOfOps))
    times: list[OpTime] = field(default_factory=list)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    machine: dict[str, str | int] = field(default_factory=dict)


def step_times(planes: Sequence[TracePlane]) -> TraceTimes:
    """The runs and op times of one file."""
    found, launches = TraceTimes(), dict[object, Lane]()
    threads = [line for p in planes if p.name.startswith("/host:") for line in p.lines]
    on_host = [op for line in threads for op in _ops_of_thread(line, launches, found.runs)]
    devices_of: dict[Lane, Counter[str]] = defaultdict(Counter)
    launched = set()
    for device, event in _kernels(planes):
        lane = launches.get(event.values.get("correlation_id"))
        run = lane[0] if lane else None
        if lane:
            devices_of[lane][device] += 1
        named = split_event(_op_of_kernel(event))
        if named is None:
            continue
        if run is not None:
            found.runs[run].widen(event)
        seconds = (event.end - event.start) * _PICOSECOND
        found.times.append(OpTime(device, run, *named, seconds))
        launched.add((run, named[0]))
    # ops without a kernel take no time on a GPU, and are timed by the host on a CPU
    device_of = _lane_devices(devices_of)
    for lane, name, op_type, seconds in on_host:
        if (lane[0], name) in launched:
            continue
        device = device_of.get(lane) or device_of.get((*lane[:2], "")) or HOST_DEVICE
        took = seconds if device == HOST_DEVICE else 0.0
        found.times.append(OpTime(device, lane[0], name, op_type, took))
    return found


def _ops_of_thread(
    line: TraceLine, launches: dict[object, Lane], runs: dict[object, RunOfOps]
) -> Iterator[tuple[Lane, str, str, float]]:
    """Yields the ops of one thread in their lanes, and adds its ``launches`` of kernels and its
    ``runs``; the innermost executor around an event says what it is for."""
    around: list[tuple[int, Lane]] = []
    for event in line.events:
        while around and around[-1][0] < event.end:
            around.pop()
        run = event.values.get("id")
        if event.name == "ExecutorState::Process":
            around.append((event.end, (run, event.values.get("_c"), line.name)))
            runs[run].widen(event)
        elif event.name in (_BEGIN, _SESSION, _END):
            runs[run].begun += event.name != _END
            runs[run].ended += event.name != _BEGIN
            runs[run].widen(event)
        elif around:
            lane = around[-1][1]
            if "correlation_id" in event.values:
                launches[event.values["correlation_id"]] = lane
            elif named := split_event(event.name):
                yield lane, *named, (event.end - event.start) * _PICOSECOND


def _kernels(planes: Iterable[TracePlane]) -> Iterator[tuple[str, TraceEvent]]:
    """Yields the kernels in the streams of GPUs, each with its device."""
    for plane in planes:
        device = _DEVICE.fullmatch(plane.name)
        for line in plane.lines if device else ():
            if line.name.startswith("Stream"):  # others repeat the kernels by op, scope and step
                for event in line.events:
                    yield device[1] if device else "", event


def _op_of_kernel(event: TraceEvent) -> str:
    """``name:Type`` of the op that launched it, as far as it says."""
    for key in ("tf_op", "level 0", "annotation"):
        if event.values.get(key):
            return str(event.values[key])
    return ""


def _lane_devices(devices_of: dict[Lane, Counter[str]]) -> dict[Lane, str]:
    """The GPU of a lane; under a lane without a thread, that of the context if it has but one."""
    found = {lane: counts.most_common(1)[0][0] for lane, counts in devices_of.items()}
    by_context: dict[Lane, set[str]] = defaultdict(set)
    for lane, device in found.items():
        by_context[*lane[:2], ""].add(device)
    return found | {lane: min(names) for lane, names in by_context.items() if len(names) == 1}


_EVENT = re.compile(r"(?P<name>.+):(?P<type>_?[A-Z]\w*)")
_REPLICA = re.compile(r"(?:^|(?<=/))replica_\d+/")
_FUSED = re.compile(r"_(Mkl)?(Native)?Fused")


def split_event(text: str) -> tuple[str, str] | None:
    """The op and its type behind ``name:Type`` (what may follow a ``#`` are its shapes)."""
    found = _EVENT.fullmatch(text.partition("#")[0])
    return (found["name"], found["type"]) if found else None


def is_fused(op_type: str) -> bool:
    """Whether a kernel does the work of several ops of the file (Grappler's remapper and oneDNN
    make them, and give them the last one's name)."""
    return _FUSED.match(op_type) is not None


class FlatNames:
    """The ops of a flat graph, found by their names at run time."""

    def __init__(self, ops: Iterable[str], traced: Iterable[str]) -> None:
        self.ops = frozenset(ops)
        self._found: dict[str, str | None] = {}
        self.away, self.added = self._vote(traced)

    def flat(self, traced: str) -> str | None:
        """The op that ``traced`` is, or the loop or branch that it was lowered from."""
        if traced not in self._found:
            self._found[traced] = self._look_up(traced)
        return self._found[traced]

    def _look_up(self, traced: str) -> str | None:
        whole = [form for form in self._forms(traced) if form in self.ops]
        if whole:
            return whole[0]
        for form in self._forms(traced):
            # a lowered loop's or branch's machinery has a number of its own in the name
            for owner in _owners(form):
                if owner in self.ops and re.search(r"/_\d+(/|$)", form[len(owner) :]):
                    return owner
        return None

    def _forms(self, traced: str) -> Iterator[str]:
        for name in dict.fromkeys((traced, _REPLICA.sub("", traced))):
            yield name
            if name.startswith(self.away):
                yield self.added + name[len(self.away) :]

    def _vote(self, traced: Iterable[str]) -> tuple[str, str]:
        """Returns the prefix to take off names and the one to put there, as most names have it."""
        by_end: dict[str, list[str]] = defaultdict(list)
        for name in self.ops:
            by_end[name.rpartition("/")[2]].append(name)
        votes: Counter[tuple[str, str]] = Counter()
        # so many names are enough for a vote
        for name in sorted({_REPLICA.sub("", name) for name in traced} - self.ops)[:2000]:
            for flat in by_end.get(name.rpartition("/")[2], ()):
                if flat.endswith(f"/{name}"):
                    votes["", flat[: -len(name)]] += 1
                elif name.endswith(f"/{flat}"):
                    votes[name[: -len(flat)], ""] += 1
        return min(votes, key=lambda pair: (-votes[pair], pair), default=("", ""))


def _owners(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


MEMORY_VALUES = frozenset(
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
