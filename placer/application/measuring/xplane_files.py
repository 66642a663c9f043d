"""The files that TensorFlow's profiler writes (``*.xplane.pb``), as plain records.

A file is an ``XSpace`` (``tsl/profiler/protobuf/xplane.proto``): a plane per device and one of the
host (``/device:GPU:0``, ``/host:CPU``); in a plane a line per stream or thread; in a line events,
which point to names and to names of values that the plane lists once.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from placer.errors import ModelError, PlacerError

ENDING = ".xplane.pb"

MOST_BYTES = 2**31 - 1
"""A message of protobuf is no larger."""

_MODULES = (
    "tensorflow.tsl.profiler.protobuf.xplane_pb2",
    "tensorflow.core.profiler.protobuf.xplane_pb2",
)
"""Where TensorFlow has had the messages."""

_PLANE = re.compile(r"/(host|device):.+")

Value = str | int | float
"""A property of an event."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something that happened from ``start`` to ``end`` (picoseconds of one clock per file)."""

    name: str
    start: int
    end: int
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """A stream of a device or a thread of the host, with its events in the order of their start;
    of those that start together the longest is first."""

    name: str
    events: Sequence[TraceEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePlane:
    """A device (``/device:GPU:0``) or the host (``/host:CPU``), and what it says of itself."""

    name: str
    lines: Sequence[TraceLine]
    values: Mapping[str, Value] = field(default_factory=dict)


def find_trace_files(source: str | os.PathLike[str]) -> list[Path]:
    """The trace files of one run, one per host: of the newest run below a log folder (runs are
    named by their time), of a run's folder, or a file itself.

    Raises :class:`ModelError` if there is none, or one is empty or too large to be read.
    """
    path = Path(source)
    if path.is_dir():
        runs = {file.parent for file in path.rglob(f"*{ENDING}") if file.is_file()}
        latest = max(runs, key=lambda run: (run.name, str(run)), default=None)
        found = sorted(latest.glob(f"*{ENDING}")) if latest else []
    else:
        found = [path] if path.is_file() else []
    if not found:
        what = f"no *{ENDING} below" if path.is_dir() else "no file or folder"
        raise ModelError(
            f"there is {what} {str(path)!r}: give the log folder of tf.profiler.experimental or of "
            f"the TensorBoard callback, with its plugins/profile/RUN"
        )
    for file in found:
        size = file.stat().st_size
        if size == 0:
            raise ModelError(f"{str(file)!r} is empty: the profiler did not end")
        if size > MOST_BYTES:
            raise ModelError(
                f"{str(file)!r} has {size:,} bytes, and a message of protobuf at most "
                f"{MOST_BYTES:,}: trace fewer steps"
            )
    return found


def read_trace_file(path: Path, wanted: frozenset[str]) -> list[TracePlane]:
    """The planes of a file; of what events say only the values with a ``wanted`` name.

    Raises :class:`ModelError` if the file is damaged, or is none of the profiler's.
    """
    from google.protobuf.message import DecodeError

    space = _messages().XSpace()
    try:
        space.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ModelError(
            f"{str(path)!r} is not a trace of TensorFlow's profiler, or a damaged one: {error}"
        ) from error
    planes = [_plane(plane, wanted, path) for plane in space.planes if _PLANE.match(plane.name)]
    if not any(plane.lines for plane in planes):
        raise ModelError(
            f"{str(path)!r} has no events of a device or of the host: it is not a trace of "
            f"TensorFlow's profiler, or one that was stopped before anything ran"
        )
    return planes


def _messages() -> Any:
    for name in _MODULES:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise PlacerError(
        "this version of TensorFlow has no reader for traces of its profiler; use another one"
    )


def _plane(plane: Any, wanted: frozenset[str], path: Path) -> TracePlane:
    names = {key: item.name for key, item in plane.event_metadata.items()}
    value_names = {key: item.name for key, item in plane.stat_metadata.items()}
    kept = {key: name for key, name in value_names.items() if name in wanted}
    lines = []
    for line in plane.lines:
        begin = line.timestamp_ns * 1000
        events = []
        for event in line.events:
            if not 0 <= event.duration_ps <= 10**18:  # no event lasts 11 days
                seconds = event.duration_ps * 1e-12
                raise ModelError(f"{str(path)!r} has an event of {seconds:,.0f} s: it is damaged")
            name = names.get(event.metadata_id, "")
            if name.startswith("$"):  # calls of Python functions
                continue
            start = begin + event.offset_ps
            values = dict(_values(event.stats, kept, value_names))
            events.append(TraceEvent(name, start, start + event.duration_ps, values))
        events.sort(key=lambda event: (event.start, -event.end))
        lines.append(TraceLine(name=line.name, events=events))
    own = dict(_values(plane.stats, value_names, value_names))
    return TracePlane(name=plane.name, lines=lines, values=own)


def _values(
    stats: Any, kept: Mapping[int, str], value_names: Mapping[int, str]
) -> Iterator[tuple[str, Value]]:
    """The values with a name in ``kept``; some are names themselves, in ``value_names``."""
    for stat in stats:
        name = kept.get(stat.metadata_id)
        kind = name and stat.WhichOneof("value")
        if kind == "ref_value":
            yield name or "", value_names.get(stat.ref_value, "")
        elif kind and kind != "bytes_value":
            yield name or "", getattr(stat, kind)
