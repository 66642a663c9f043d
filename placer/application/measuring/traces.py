"""Op times and memory out of a trace of TensorFlow's profiler, for the ops of a program.

The trace is one that somebody made where the program ran, on GPUs that this machine need not have;
the program is read as ever, and the trace's names are found in it.  Both happen in a process of its
own.
"""

import os
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placer import __version__
from placer.application.measuring.profiling import pop_program_options
from placer.application.measuring.trace_steps import (
    MEMORY_VALUES,
    WANTED,
    FlatNames,
    OpTime,
    RunOfOps,
    TraceTimes,
    allocator_peaks,
    is_fused,
    step_times,
)
from placer.application.measuring.xplane_files import TracePlane, find_trace_files, read_trace_file
from placer.errors import ModelError, TimeLimitError, UsageError
from placer.extraction.extraction import ProgramChoice
from placer.extraction.process.child_process import limit_memory, memory_limit
from placer.extraction.process.local_models import local_model
from placer.graph.program_source import Bindings
from placer.plan.measured_costs import MeasuredCosts
from placer.processes import LONG_SECONDS, Ending, Tell, run_task


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """The program in ``path``, what it was bound to, and the trace files of one run."""

    path: str
    choice: ProgramChoice
    bindings: Bindings
    files: Sequence[Path]
    memory_limit_bytes: int


def read_trace(
    source: str | os.PathLike[str],
    trace: str | os.PathLike[str],
    *,
    time_limit: float = LONG_SECONDS,
    **options: Any,
) -> MeasuredCosts:
    """Measured times of the ops of the model in ``source``, and memory, out of a ``trace``.

    ``trace`` is a log folder of TensorFlow's profiler, a run's folder or an ``*.xplane.pb`` file.
    ``options`` are ``tag_set``, ``signature``, ``outputs``, ``batch_size``, ``shapes``, ``dims``,
    ``ragged``, ``allow_unsafe`` and ``follow_links``; sizes are for the record, nothing runs.

    Raises :class:`ModelError` for a model or a trace that cannot be read, :class:`UsageError` if
    the trace is of another program, :class:`TimeLimitError` at the time limit (seconds).
    """
    choice, access, shapes, ragged = pop_program_options(options)
    bindings: Bindings = {"batch_size": options.pop("batch_size", None), "shapes": dict(shapes)}
    if ragged:
        bindings["ragged"] = dict(ragged)
    if options:
        raise UsageError(f"a trace is measured already: leave out {', '.join(sorted(options))}")
    files = find_trace_files(trace)
    with local_model(source, weights=False, **access) as model:
        request = TraceRequest(
            path=os.fspath(model.path),
            choice=choice,
            bindings=bindings,
            files=[file.resolve() for file in files],
            memory_limit_bytes=memory_limit(max(file.stat().st_size for file in files)),
        )
        hidden = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        outcome = run_task(f"{__name__}:read", request, time_limit, hidden)
    if outcome.ending is Ending.LATE:
        raise TimeLimitError(
            f"the trace was not read within {time_limit:g} s: give it longer "
            "with --time-limit, or trace fewer steps"
        )
    if outcome.ending is Ending.DIED:
        raise ModelError(f"the trace could not be read: {outcome.reason}")
    found: MeasuredCosts = outcome.answer
    return replace(found, model={**found.model, "path": os.fspath(source)})


def read(request: TraceRequest, _: Tell) -> MeasuredCosts:
    """The costs in the files of a request, in this process."""
    import tensorflow as tf

    from placer.extraction.analysis import describe
    from placer.extraction.reading.loading import load_program

    limit_memory(request.memory_limit_bytes)
    program = load_program(request.path, **request.choice)
    trace = _read_files(request.files)
    found = trace_costs(trace.times, trace.runs, [node.name for node in program.graph_def.node])
    return replace(
        found,
        model=describe(program),
        bindings=request.bindings,
        machine=trace.machine,
        memory=trace.memory,
        trace={"files": [file.name for file in request.files], **found.trace},
        tensorflow_version=tf.__version__,
        tool_version=__version__,
    )


def trace_costs(
    times: Sequence[OpTime], runs: Mapping[object, RunOfOps], ops: Sequence[str]
) -> MeasuredCosts:
    """The medians over whole steps by flat op (``ops``), and by device type where they differ.

    Ops that only runs cut by the window show have their times from those.  Raises
    :class:`UsageError` if no op of the trace is among ``ops``.
    """
    names = FlatNames(ops, {time.name for time in times})
    # seconds by device, op and run; a loop's are those of all its iterations
    seconds: dict[tuple[str, str], dict[object, float]] = defaultdict(lambda: defaultdict(float))
    fused, matched, total = set(), 0.0, 0.0
    for time in times:
        flat = names.flat(time.name)
        total += time.seconds
        if flat is None:
            continue
        matched += time.seconds
        seconds[time.device, flat][time.run] += time.seconds
        if is_fused(time.op_type):
            fused.add(flat)
    share = matched / total if total else 1.0
    if not seconds or share < 0.05:  # names that match by chance make less
        raise UsageError(
            f"the trace has {'no op' if not seconds else 'hardly an op'} of this model, but "
            f"{_some(times)}: give the model that was traced, with the --signature or --outputs "
            "that ran. Ops that XLA compiled are not in a trace by name"
        )
    whole = _whole_steps(seconds, runs)
    entries = _entries(seconds, whole, fused)
    if whole and share >= 0.95:  # then an op that whole steps do not show did not run
        for name in ops:
            entries.setdefault(name, {"median_seconds": 0.0, "least_seconds": 0.0})
    lasted = [runs[run].seconds for run in whole]
    devices = sorted({device for device, _ in seconds})
    return MeasuredCosts(
        ops=dict(sorted(entries.items())),
        device_type="GPU" if any("GPU" in device for device in devices) else "CPU",
        step={"median_seconds": statistics.median(lasted), "least_seconds": min(lasted)}
        if lasted
        else {},
        trace={
            "whole_steps": len(whole),
            "cut_steps": len({run for found in seconds.values() for run in found} - whole),
            "matched_share": round(share, 4),
            "busy_seconds": {
                device: sum(
                    _median(found, whole)
                    for (where, _), found in seconds.items()
                    if where == device
                )
                for device in devices
            },
        },
    )


def _whole_steps(
    seconds: Mapping[tuple[str, str], Mapping[object, float]], runs: Mapping[object, RunOfOps]
) -> set[object]:
    """The whole runs that have the program's ops, and not only a few of them."""
    counts: dict[object, int] = defaultdict(int)
    for found in seconds.values():
        for run in found:
            counts[run] += 1
    most = max(counts.values())
    return {
        run
        for run, count in counts.items()
        # runs with fewer of the ops that the fullest run has are other functions
        if count >= 0.5 * most and run in runs and runs[run].is_whole
    }


def _entries(
    seconds: Mapping[tuple[str, str], Mapping[object, float]],
    whole: set[object],
    fused: set[str],
) -> dict[str, dict[str, Any]]:
    """Every op's entry of the costs file: of the type of device where it took longest, the median
    over its devices of the medians over steps."""
    by_op: dict[str, dict[str, Mapping[object, float]]] = defaultdict(dict)
    for (device, name), found in seconds.items():
        by_op[name][device] = found
    entries: dict[str, dict[str, Any]] = {}
    accelerated = any("GPU" in device for device, _ in seconds)
    for name, devices in by_op.items():
        medians = {device: _median(found, whole) for device, found in devices.items()}
        longest = max(medians, key=lambda device: (medians[device], device))
        kind = "GPU" if "GPU" in longest else "CPU"
        own = {device: value for device, value in medians.items() if kind in device}
        entry: dict[str, Any] = {
            "median_seconds": statistics.median(own.values()),
            "least_seconds": min(min(_kept(devices[device], whole).values()) for device in own),
        }
        if len(own) > 1:
            entry["device_seconds"] = own
        if kind == "CPU" and accelerated:
            entry["device_type"] = kind
        if name in fused:
            entry["fused"] = True
        entries[name] = entry
    return entries


def _median(found: Mapping[object, float], whole: set[object]) -> float:
    return statistics.median(_kept(found, whole).values())


def _kept(found: Mapping[object, float], whole: set[object]) -> Mapping[object, float]:
    """The whole steps, if the op ran in any."""
    return {run: value for run, value in found.items() if run in whole} or found


def _some(times: Sequence[OpTime]) -> str:
    """Names that the trace has, the longest ops first."""
    names = [time.name for time in sorted(times, key=lambda time: -time.seconds)]
    return ", ".join(dict.fromkeys(names[:3])) or "no op at all"


def _read_files(files: Sequence[Path]) -> TraceTimes:
    """The files of one run together; runs and devices of several hosts have the host's number."""
    found = TraceTimes()
    for number, file in enumerate(files):
        planes = read_trace_file(file, WANTED | MEMORY_VALUES)
        host = f"host {number} " if len(files) > 1 else ""
        here = step_times(planes)
        found.runs |= {(number, run): value for run, value in here.runs.items()}
        found.times += [
            replace(time, device=f"{host}{time.device}", run=(number, time.run))
            for time in here.times
        ]
        found.memory |= {
            f"{host}{device}": peaks for device, peaks in allocator_peaks(planes).items()
        }
        found.machine |= _machine(planes)
    return found


def _machine(planes: Sequence[TracePlane]) -> dict[str, str | int]:
    """Returns the properties of the GPUs by their planes (of one: those of a program are alike)."""
    gpus = [plane for plane in planes if "GPU" in plane.name]
    if not gpus:
        return {}
    values = gpus[0].values
    major, minor = values.get("compute_cap_major"), values.get("compute_cap_minor")
    facts = {
        "gpus": len(gpus),
        "compute_capability": f"{major}.{minor}" if major is not None else None,
        "core_count": values.get("core_count"),
        "clock_khz": values.get("clock_rate"),
        "memory_bytes": values.get("memory_size"),
        "memory_bandwidth": values.get("memory_bandwidth"),
    }
    return {key: value for key, value in facts.items() if isinstance(value, str | int)}
