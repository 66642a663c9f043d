"""How long do the ops of a program take on this machine?

The flat graph runs in a session of a process of its own, every op under its flat name: TensorFlow's
full trace gives the time of every kernel (``RunMetadata.step_stats``), steps without a trace give
the time of the whole.  Both kinds take turns, so that what else the machine does meets both.

Freed memory stays with the process: else glibc gives it back to the system and asks for it again
within a step, and the op that happens to be next pays for fresh pages, more than for its work.

On a busy machine the process waits for the processor, mostly inside long ops, whose time would
count that.  So with one thread the long ops of a traced step are scaled down, where the ops add up
to more than the processor time of a step, until they do not.
"""

import os
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from placer import __version__
from placer.application.placing.graph_placement import map_graph_devices
from placer.application.running.generated_inputs import (
    Array,
    default_feeds,
    input_values,
    open_batches,
)
from placer.argument_types import hints_of, require_type
from placer.errors import ModelError, TimeLimitError, UsageError, run_error, unknown_option
from placer.extraction.extraction import ProgramChoice
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import copied
from placer.extraction.process.local_models import local_model
from placer.extraction.shapes.binding import resolve_shapes
from placer.graph.program_source import Access, Bindings
from placer.plan.measured_costs import MeasuredCosts
from placer.processes import LONG_SECONDS, Ending, Tell, run_task

_LONG_SECONDS = 5e-4
"""An op is long if it takes a good part of the time slice that Linux gives a process."""

_KEEP_FREED_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 46),
}
"""One heap that grows and never shrinks (``mallopt(3)``)."""

WARM_UP_STEPS = 3
"""The first steps allocate, choose algorithms and read constants."""

Dims = Mapping[str, tuple[int | None, ...]]


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """``threads`` are those of one op; ops run one at a time.  ``onednn`` leaves oneDNN's kernels
    on, which replace some ops and fuse others away.  ``batch_size``, ``shapes`` and ``ragged`` bind
    unknown dimensions of inputs."""

    steps: int = 20
    threads: int = 1
    onednn: bool = False
    batch_size: int | None = None
    shapes: Dims = field(default_factory=dict)
    ragged: Dims = field(default_factory=dict)
    time_limit_seconds: float = LONG_SECONDS
    seed: int = 0


def pop_program_options(options: dict[str, Any]) -> tuple[ProgramChoice, Access, Dims, Dims]:
    """Which program, what it may do, and what shapes and rows of ragged inputs are bound to: these
    are taken out of ``options``, keyword arguments of :func:`placer.extract`.

    Raises :class:`UsageError` for shapes that contradict themselves.
    """
    choice = ProgramChoice(
        tag_set=options.pop("tag_set", None),
        signature=options.pop("signature", None),
        outputs=options.pop("outputs", None),
    )
    access = Access(
        allow_unsafe=options.pop("allow_unsafe", False),
        follow_links=options.pop("follow_links", False),
    )
    shapes, dims, ragged = (options.pop(key, None) for key in ("shapes", "dims", "ragged"))
    sizes, lengths, _ = resolve_shapes(shapes, dims, ragged, options.get("batch_size"))
    return choice, access, sizes, lengths


def profile(source: str | os.PathLike[str], **options: Any) -> MeasuredCosts:
    """Measured times of every op of the model in ``source``, and of its step.

    ``options`` are those of :class:`ProfileOptions`, and ``tag_set``, ``signature``, ``outputs``,
    ``dims``, ``allow_unsafe`` and ``follow_links``.  Inputs and weights are made up.

    Raises :class:`UsageError` for a wrong option, :class:`ModelError` for a model that cannot be
    read or does not run here, :class:`TimeLimitError` at the time limit.
    """
    choice, access, shapes, ragged = pop_program_options(options)
    known = [item.name for item in fields(ProfileOptions)]
    for name in options:
        if name not in known:
            raise unknown_option(name, [*known, *ProgramChoice.__annotations__, "dims"])
        require_type(name, options[name], hints_of(ProfileOptions)[name])
    wanted = ProfileOptions(shapes=shapes, ragged=ragged, **options)
    with local_model(source, weights=False, runs=True, **access) as model:
        folder = None if access["allow_unsafe"] else model.folder
        request = os.fspath(model.path), choice, wanted, folder
        limit = wanted.time_limit_seconds
        outcome = run_task(f"{__name__}:measure", request, limit, _environment(wanted))
    if outcome.ending is Ending.LATE:
        raise TimeLimitError(
            f"{wanted.steps} steps did not end within {limit:g} s; ask for fewer with --steps, or "
            f"a smaller batch"
        )
    if outcome.ending is Ending.DIED:
        raise ModelError(f"the model does not run here: {outcome.reason}")
    found: MeasuredCosts = outcome.answer
    return replace(found, model={**found.model, "path": os.fspath(source)})


def _environment(wanted: ProfileOptions) -> dict[str, str]:
    preset = {**_KEEP_FREED_MEMORY, "TF_CPP_MIN_LOG_LEVEL": "2"}
    return {
        **{name: os.environ.get(name, value) for name, value in preset.items()},
        "TF_ENABLE_ONEDNN_OPTS": str(int(wanted.onednn)),
        "CUDA_VISIBLE_DEVICES": "-1",
    }


def measure(
    request: tuple[str, ProgramChoice, ProfileOptions, str | None], _: Tell
) -> MeasuredCosts:
    """The measurement of the program in a file, in this process; with the ``folder`` of the file
    the program may do nothing but compute."""
    import tensorflow as tf

    from placer.application.placing.kept_state import with_ops
    from placer.application.running.graph_starts import find_start, invent_tables, started
    from placer.application.running.program_checks import session_start
    from placer.application.running.program_runs import invent_state
    from placer.application.running.unsafe_ops import disarm, require_harmless
    from placer.extraction.analysis import describe
    from placer.extraction.reading.loading import flatten, read_program

    # the program, and values for its inputs
    path, choice, wanted, folder = request
    raw = read_program(path, choice)
    program = flatten(raw)
    start = find_start(raw.graph_def.node, [node.name for node in program.graph_def.node])
    whole = with_ops(start.ops, raw, program, {})[0]
    bindings, feeds = _feeds(program, wanted)
    graph_def = copied(whole.graph_def)
    map_graph_devices(graph_def, lambda _: "")
    ends = (*program.output_ops, *program.targets)
    if folder is not None:
        started_ends = [*ends, *start.ops]
        reached = require_harmless(graph_def, [session_start(started_ends, feeds)], folder)
        disarm(graph_def, reached)
    # its steps in a session that runs one op after the other, none of them optimised away
    try:
        with tf.Graph().as_default() as graph, _serial_session(wanted.threads) as session:
            tf.graph_util.import_graph_def(graph_def, name="")
            invent_state(session, graph)
            invent_tables(session, graph, start)
            targets = [graph.get_operation_by_name(name) for name in ends]
            with started(session, graph, start):
                seconds, traces = _steps(session, targets, feeds, wanted.steps)
    except tf.errors.OpError as error:
        raise ModelError(f"the model does not run here: {run_error(error)}") from error
    except ValueError as error:
        raise ModelError(f"TensorFlow cannot import the graph: {str(error)[:500]}") from error
    step = _step_times(seconds)
    processor_seconds = step["median_processor_seconds"] if wanted.threads == 1 else None
    ops = frozenset(node.name for node in program.graph_def.node)
    return MeasuredCosts(
        ops=op_times(traces, ops, processor_seconds),
        model=describe(program),
        bindings=bindings,
        step=step,
        configuration=_configuration(wanted),
        machine=_machine(),
        tensorflow_version=tf.__version__,
        tool_version=__version__,
    )


def _feeds(program: FlatProgram, wanted: ProfileOptions) -> tuple[Bindings, dict[str, Array]]:
    """The sizes that the inputs of a program have, and made-up values by tensor."""
    bindings: Bindings = {"batch_size": wanted.batch_size, "shapes": dict(wanted.shapes)}
    if wanted.ragged:
        bindings["ragged"] = dict(wanted.ragged)
    if wanted.batch_size is None and (unsized := open_batches(program, bindings)):
        raise UsageError(
            f"the batch size of {', '.join(unsized)} is unknown: add --batch-size N, the "
            "same that you place the model with"
        )
    values = input_values(program, None, bindings, wanted.seed)
    feeds = {item.tensor: values[item.key] for item in program.inputs}
    return bindings, feeds | default_feeds(program, values, bindings)


def _configuration(wanted: ProfileOptions) -> dict[str, Any]:
    """How a program was run, for the record."""
    return {
        "steps": wanted.steps,
        "intra_op_threads": wanted.threads,
        "inter_op_threads": 1,
        "graph_optimisation": False,
        "onednn": wanted.onednn,
        "freed_memory_kept": _KEEP_FREED_MEMORY.items() <= os.environ.items(),
    }


def _serial_session(threads: int) -> Any:
    """A session that runs one op after the other, each with so many ``threads``, on a CPU."""
    import tensorflow as tf

    from placer.application.devices.graph_optimisers import switch_optimisers_off

    config = tf.compat.v1.ConfigProto(
        device_count={"CPU": 1},
        inter_op_parallelism_threads=1,
        intra_op_parallelism_threads=threads,
        allow_soft_placement=True,
    )
    switch_optimisers_off(config)
    return tf.compat.v1.Session(config=config)


def _steps(
    session: Any, targets: Sequence[Any], feeds: Mapping[str, Array], count: int
) -> tuple[list[tuple[float, float]], list[dict[str, int]]]:
    """(wall-clock, processor) seconds of untraced steps, and nanoseconds by runtime name of as
    many traced ones, which take turns with them."""
    import tensorflow as tf

    v1 = tf.compat.v1
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    seconds, traces = [], []
    for number in range(WARM_UP_STEPS + count):
        start = time.perf_counter(), time.process_time()
        session.run(targets, feeds)
        step = time.perf_counter() - start[0], time.process_time() - start[1]
        metadata = v1.RunMetadata()
        session.run(targets, feeds, options=options, run_metadata=metadata)
        if number >= WARM_UP_STEPS:
            seconds.append(step)
            traces.append(_kernel_times(metadata.step_stats))
    return seconds, traces


def _kernel_times(step_stats: Any) -> dict[str, int]:
    """Nanoseconds in kernels by runtime name, summed over the iterations of loops."""
    found: dict[str, int] = defaultdict(int)
    for device in step_stats.dev_stats:
        for node in device.node_stats:
            found[node.node_name] += node.op_end_rel_nanos - node.op_start_rel_nanos
    return found


def op_times(
    traces: Sequence[Mapping[str, int]], ops: frozenset[str], processor_seconds: float | None
) -> dict[str, dict[str, float]]:
    """Times by flat op of steps that took ``processor_seconds`` (``None``: of several threads).

    ``traces`` have nanoseconds by runtime name; what a loop or branch was lowered to counts for
    the op that it was.
    """
    samples: dict[str, list[float]] = {}
    for number, trace in enumerate(traces):
        for runtime_name, nanoseconds in trace.items():
            name = _owner(runtime_name, ops)
            if name is not None:
                samples.setdefault(name, [0.0] * len(traces))[number] += nanoseconds * 1e-9
    if processor_seconds is not None:
        _take_out_waiting(samples, processor_seconds)
    return {
        name: {"median_seconds": statistics.median(values), "least_seconds": min(values)}
        for name, values in sorted(samples.items())
    }


def _take_out_waiting(samples: Mapping[str, list[float]], processor_seconds: float) -> None:
    """Scales the long ops of every step, in place, to what the short ones leave of its time."""
    long = [values for values in samples.values() if statistics.median(values) >= _LONG_SECONDS]
    medians = [statistics.median(values) for values in samples.values()]
    left = processor_seconds - sum(value for value in medians if value < _LONG_SECONDS)
    for number in range(len(next(iter(samples.values()), []))):
        total = sum(values[number] for values in long)
        if total > left > 0:
            for values in long:
                values[number] *= left / total


def _owner(runtime_name: str, ops: frozenset[str]) -> str | None:
    """The flat op, or the control-flow op whose name the runtime's name begins with."""
    name = runtime_name
    while name and name not in ops:
        name = name.rpartition("/")[0]
    return name or None


def _step_times(seconds: Sequence[tuple[float, float]]) -> dict[str, float]:
    wall, processor = zip(*seconds, strict=True)
    return {
        "median_seconds": statistics.median(wall),
        "least_seconds": min(wall),
        "median_processor_seconds": statistics.median(processor),
        "least_processor_seconds": min(processor),
    }


def _machine() -> dict[str, str | int]:
    """Processor, cores and system, as far as the system says."""
    model = platform.processor()
    information = Path("/proc/cpuinfo")
    if information.exists():
        rows = information.read_text(errors="replace").splitlines()
        named = [row.partition(":")[2].strip() for row in rows if row.startswith("model name")]
        model = named[0] if named else model
    return {"processor": model, "cores": os.cpu_count() or 1, "system": platform.system()}
