"""A predicted step as trace events, for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

A process per device with its ops and its memory by kind, one for the links with the transfers, and
arrows from the op that wrote a tensor over its transfer to the ops that read it.  The format is
"Trace Event Format" of the Chromium project.

Memory lives along the execution order, ops along the schedule.  A position of the order stands
where the schedule has started all ops up to it; where several fall together the most counts, so
the counters reach the predicted peak.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from placer.prediction.predicted_step import KINDS, PredictedStep, Sent

Event = dict[str, object]


def trace_json(step: PredictedStep) -> str:
    """The trace as JSON text; times are microseconds, whole nanoseconds."""
    events = [*_metadata(step), *_ops(step), *_memory(step), *_transfers(step)]
    rows = ",\n".join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in events)
    return f'{{"displayTimeUnit":"ns","traceEvents":[\n{rows}\n]}}\n'


def _metadata(step: PredictedStep) -> Iterator[Event]:
    """Names and order of the processes: devices, then the links."""
    for number, name in enumerate((*step.devices, "links")):
        yield {"ph": "M", "name": "process_name", "pid": number + 1, "args": {"name": name}}
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": number + 1,
            "args": {"sort_index": number},
        }


def _ops(step: PredictedStep) -> Iterator[Event]:
    """A slice for every op, with what it does."""
    for op, thread in enumerate(_threads(step)):
        start, finish = _span(step, op)
        yield {
            "ph": "X",
            "name": step.ops[op],
            "cat": step.op_types[op],
            "pid": step.device_of[op] + 1,
            "tid": thread,
            "ts": start / 1000,
            "dur": (finish - start) / 1000,
            "args": {
                "op type": step.op_types[op],
                "flops": step.flops[op],
                "bytes accessed": step.bytes_accessed[op],
                "output bytes": sum(size or 0 for size in step.output_bytes[op]),
            },
        }


def _threads(step: PredictedStep) -> list[int]:
    """The thread of every op, numbered from 1: on a device that runs several at once the first
    one that is free."""
    found = [1] * len(step.ops)
    free: dict[int, list[int]] = {}
    for op in sorted(range(len(step.ops)), key=lambda op: (_span(step, op), op)):
        start, finish = _span(step, op)
        lanes = free.setdefault(step.device_of[op], [])
        lane = next((i for i, time in enumerate(lanes) if time <= start), len(lanes))
        if lane == len(lanes):
            lanes.append(0)
        lanes[lane] = finish
        found[op] = lane + 1
    return found


def _span(step: PredictedStep, op: int) -> tuple[int, int]:
    """Start and finish in whole nanoseconds, rounded down: what touches does not overlap."""
    return _nanoseconds(step.start_seconds[op]), _nanoseconds(step.finish_seconds[op])


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _memory(step: PredictedStep) -> Iterator[Event]:
    """Counters of every device, one value per kind, wherever one of them changes."""
    times = list(accumulate((_nanoseconds(step.start_seconds[op]) for op in step.order), max))
    for number, device in enumerate(step.devices):
        lines = _bytes_by_kind(step, number)
        if not lines:
            continue
        last: tuple[int, ...] = ()
        for moment in _fullest_moments(times, step.memory_bytes[device]):
            now = tuple(line[moment] for line in lines.values())
            if now != last:
                yield {
                    "ph": "C",
                    "name": "memory",
                    "pid": number + 1,
                    "ts": times[moment] / 1000,
                    "args": dict(zip(lines, now, strict=True)),
                }
            last = now


def _bytes_by_kind(step: PredictedStep, device: int) -> dict[str, list[int]]:
    """Bytes of each kind on a device at every position of the execution order."""
    changes: dict[str, list[int]] = {}
    for buffer in step.buffers:
        if buffer.device == device:
            change = changes.setdefault(buffer.kind, [0] * (len(step.order) + 1))
            change[buffer.first] += buffer.bytes
            change[buffer.last + 1] -= buffer.bytes
    lines = {kind: list(accumulate(changes[kind])) for kind in KINDS if kind in changes}
    if unused := step.unused_bytes[device]:
        lines["unused"] = [unused] * (len(step.order) + 1)
    return lines


def _fullest_moments(times: Sequence[int], in_use: Sequence[int]) -> Iterable[int]:
    """Yields for each time the position with the most bytes in use."""
    best: dict[int, int] = {}
    for moment, time in enumerate(times):
        if time not in best or in_use[moment] > in_use[best[time]]:
            best[time] = moment
    return best.values()


def _transfers(step: PredictedStep) -> Iterator[Event]:
    """A slice for every transfer on the thread of its link, and the arrows along it."""
    process = len(step.devices) + 1
    threads: dict[tuple[str, str], int] = {}
    op_threads = _threads(step)
    for number, sent in enumerate(step.sent):
        link = (sent.transfer.source, sent.transfer.target)
        if link not in threads:
            threads[link] = len(threads) + 1
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": process,
                "tid": threads[link],
                "args": {"name": " to ".join(link)},
            }
        start, finish = _nanoseconds(sent.start_seconds), _nanoseconds(sent.finish_seconds)
        yield {
            "ph": "X",
            "name": sent.transfer.tensor,
            "cat": sent.transfer.kind,
            "pid": process,
            "tid": threads[link],
            "ts": start / 1000,
            "dur": (finish - start) / 1000,
            "args": {"bytes": sent.transfer.bytes, "kind": sent.transfer.kind},
        }
        yield from _arrow(step, sent, number, (process, threads[link]), op_threads)


def _arrow(
    step: PredictedStep, sent: Sent, number: int, link: tuple[int, int], threads: Sequence[int]
) -> Iterator[Event]:
    """From the op over the transfer to its first reader (a fetched tensor ends on the link)."""
    reader = min(sent.readers, key=lambda op: (step.start_seconds[op], op), default=None)
    places = [("s", step.device_of[sent.op] + 1, threads[sent.op], step.start_seconds[sent.op])]
    places.append(("f" if reader is None else "t", *link, sent.start_seconds))
    if reader is not None:
        row = (step.device_of[reader] + 1, threads[reader], step.start_seconds[reader])
        places.append(("f", *row))
    for phase, process, thread, seconds in places:
        yield {
            "ph": phase,
            "id": number + 1,
            "name": "transfer",
            "cat": "transfer",
            "pid": process,
            "tid": thread,
            "ts": _nanoseconds(seconds) / 1000,
            **({"bp": "e"} if phase == "f" else {}),
        }
