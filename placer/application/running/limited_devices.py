"""Steps of a program on devices that are processes, each with a hard limit of memory.

The tensors of such a process come from TensorFlow's BFC allocator, the one that GPUs use, which
fails at the limit as on a card.  One process, the host's, has the session and serves its own
device, and starts the others::

    host:  session, CPU:0  ---- Child ---->  serve_device, /job:placer/task:1/device:CPU:0
                           `--- Child ---->  serve_device, /job:placer/task:2/device:CPU:0
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.python.eager import context, execute

from cost_models.byte_sizes import MEBIBYTE
from placer.application.devices.graph_optimisers import switch_memory_optimiser_off
from placer.application.running.generated_inputs import Array
from placer.application.running.program_runs import assign_value, switch_optimisers_off
from placer.application.running.run_starts import graph_start
from placer.application.running.starting_gate import add_gate, run_gated
from placer.application.running.unsafe_ops import disarm, require_harmless
from placer.errors import ModelError
from placer.extraction.files.sources import read_source
from placer.graph.op_types import VARIABLES
from placer.prediction.memory.allocator import CHUNK_BYTES
from placer.processes import Child, Tell

v1 = tf.compat.v1

JOB = "placer"
_DEVICE = "CPU:0"
_POLL_SECONDS = 0.02
_START_SECONDS = 120.0
_LAST_WORDS_SECONDS = 0.5
"""Until the end of a process is seen."""

_RESET = "reset"
_UNWRITTEN = "_ParallelConcatStart"
"""An op whose output has the shape of its attribute, and whatever its memory has."""

_SMALL = 0.01
_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
_TABLES = frozenset({"HashTable", "HashTableV2"})
"""Tables that must be filled before they are looked into."""

_OUT_OF_MEMORY = re.compile(r"OOM when allocating.*? on \S*?/task:(\d+)/device")
_NO_CONSTANT = "Cannot parse tensor from proto"
"""What TensorFlow says of a constant that gets no memory."""

_TASK = re.compile(r"/task:(\d+)")
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What an allocator may hand out: all of it ``in_one_region``, to the byte, as a card does, or
    region by region, in whole MiB."""

    bytes: int
    in_one_region: bool

    @property
    def mib(self) -> int:
        """As TensorFlow is told."""
        rounded = -(-self.bytes // MEBIBYTE) if self.in_one_region else self.bytes // MEBIBYTE
        return max(rounded, 1)

    @property
    def held_bytes(self) -> int:
        """What is handed out: whole chunks of what is asked for."""
        return (
            self.bytes // CHUNK_BYTES * CHUNK_BYTES if self.in_one_region else self.mib * MEBIBYTE
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsRequest:
    """A placed GraphDef (a file) whose ops ask for tasks of the job ``placer``, task 0 being the
    host, and how to run it.

    ``names`` (of the plan's devices) and ``limits`` are by task.  ``variables`` are (dtype,
    shape) by the op that stands for each; they get made-up values where they are.  ``folder`` is as
    for a :class:`~placer.application.running.program_runs.RunRequest`.
    """

    graph: str
    names: Sequence[str]
    limits: Sequence[Limit]
    feeds: Mapping[str, Array]
    fetches: Sequence[str]
    targets: Sequence[str]
    variables: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    steps: int
    optimised: bool
    time_limit_seconds: float
    folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """Bytes that the allocator of the process at ``address`` has handed out, chunks counted whole:
    now, and at most since its statistics were reset."""

    address: str
    now_bytes: int
    peak_bytes: int
    was_reset: bool
    at_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsRun:
    """Bytes in use of every task after the last step, how many steps were run to their end, and if
    memory ran out where: (task, op, what TensorFlow said)."""

    in_use: Sequence[InUse]
    steps: int
    out_of_memory: tuple[int, str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServiceRequest:
    """What a device's process has to know: the folder in which there may be a file ``reset``, and
    the limit."""

    folder: str
    limit: Limit


def limited_environment(limit_mib: int, *, optimised: bool) -> dict[str, str]:
    """The environment of a process whose tensors come from a limited BFC allocator."""
    found = {
        "TF_CPU_ALLOCATOR_USE_BFC": "true",
        _LIMIT: str(limit_mib),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    return found if optimised else {**found, "TF_ENABLE_ONEDNN_OPTS": "0"}


def serve_device(request: _ServiceRequest, tell: Tell) -> None:
    """In the process of a device: serves it, and tells the bytes in use over and over.

    The statistics are reset as soon as there is a file ``reset`` in the folder.
    """
    beyond = take_one_region(request.limit) if request.limit.in_one_region else 0
    address = _start_server(threads=1 if request.limit.in_one_region else 0)
    reset, was_reset = Path(request.folder) / _RESET, False
    while True:
        if not was_reset and reset.exists():
            tf.config.experimental.reset_memory_stats(_DEVICE)
            was_reset = True
        tell(_in_use(address, was_reset=was_reset, beyond_bytes=beyond))
        time.sleep(_POLL_SECONDS)


def take_one_region(limit: Limit) -> int:
    """Makes the allocator take all that it may hand out as one region, as cards do by default: a
    CPU's grows, and leaves gaps at the ends of its regions.  Memory that nobody writes to costs
    nothing.

    Returns the bytes that are kept from it, as TensorFlow is told the limit in whole MiB.
    """
    whole = limit.mib * MEBIBYTE
    with suppress(tf.errors.ResourceExhaustedError):  # more than this machine gives at once
        _unwritten(whole)
    if whole > limit.held_bytes:
        _kept.append(_unwritten(whole - limit.held_bytes))
    return whole - limit.held_bytes


def _unwritten(size_bytes: int) -> Any:
    """A tensor of that size, whose shape is no tensor itself: that would be the first to get a
    region."""
    attributes = ("shape", [size_bytes], "dtype", tf.uint8.as_datatype_enum)
    ready = context.context()
    ready.ensure_initialized()
    return execute.execute(_UNWRITTEN.encode(), 1, [], attributes, ready)[0]


_kept: list[Any] = []
_servers: list[Any] = []
"""A server lives as long as its process."""


def _start_server(threads: int = 0) -> str:
    """The address of a server of this process's device, which runs so many ops at once (0: as many
    as there are cores); those of a GPU run one after another."""
    config = v1.ConfigProto(inter_op_parallelism_threads=threads)
    _servers.append(
        tf.distribute.Server({"localhost": ["localhost:0"]}, "localhost", 0, config=config)
    )
    return str(_servers[-1].target.partition("//")[2])


def _in_use(address: str, *, was_reset: bool, beyond_bytes: int = 0) -> InUse:
    found = tf.config.experimental.get_memory_info(_DEVICE)
    return InUse(
        address=address,
        now_bytes=found["current"] - beyond_bytes,
        peak_bytes=found["peak"] - beyond_bytes,
        was_reset=was_reset,
        at_seconds=time.monotonic(),
    )


class _Devices:
    """The processes of all tasks but the host's, which is this one."""

    def __init__(self, request: StepsRequest) -> None:
        self.folder, self.limit_seconds = Path(request.graph).parent, request.time_limit_seconds
        self.names = request.names
        self.told: dict[int, Any] = {}
        self.ended: dict[int, str] = {}
        self.children = {
            task: Child(limited_environment(limit.mib, optimised=request.optimised))
            for task, limit in enumerate(request.limits)
            if task
        }
        for task in self.children:
            asked = _ServiceRequest(folder=str(self.folder), limit=request.limits[task])
            threading.Thread(target=self._follow, args=(task, asked), daemon=True).start()
        self.own_address = _start_server()

    def _follow(self, task: int, request: _ServiceRequest) -> None:
        def told(content: object) -> None:
            self.told[task] = content

        try:
            serve = f"{__name__}:serve_device"
            outcome = self.children[task].ask(serve, request, self.limit_seconds, told=told)
            self.ended[task] = outcome.reason
        except Exception as error:  # said by whoever waits for what it tells
            self.ended[task] = str(error)

    def in_use(self, *, since_reset: bool) -> list[InUse]:
        """The bytes in use of all tasks, as told from now on.

        Raises :class:`ModelError` for a process that is gone.
        """
        now = time.monotonic()
        while not all(
            task in self.told
            and self.told[task].at_seconds > now
            and self.told[task].was_reset >= since_reset
            for task in self.children
        ):
            if self.ended or time.monotonic() > now + _START_SECONDS:
                raise self.gone()
            time.sleep(_POLL_SECONDS)
        own = _in_use(self.own_address, was_reset=since_reset)
        return [own, *(self.told[task] for task in sorted(self.told))]

    def gone(self) -> ModelError:
        """What to say of a process that does not answer any more."""
        task, why = next(iter(self.ended.items()), (0, "it does not answer"))
        return ModelError(
            f"the process that stands for {self.names[task] if task else 'a device'} is gone, "
            f"which may be for lack of memory outside of any op: {why}"
        )

    def reset(self) -> None:
        """Resets the statistics of all, the host's last."""
        (self.folder / _RESET).touch()
        self.in_use(since_reset=True)
        tf.config.experimental.reset_memory_stats(_DEVICE)

    def close(self) -> None:
        """Ends them."""
        for child in self.children.values():
            child.end_group()


def run_steps(request: StepsRequest, _: Tell) -> StepsRun:
    """In the host's process: the steps, until memory runs out.

    Raises :class:`ModelError` if the program fails for another reason.
    """
    devices = _Devices(request)
    try:
        addresses = {n: found.address for n, found in enumerate(devices.in_use(since_reset=False))}
        target = f"grpc://{devices.own_address}"
        with (
            tf.Graph().as_default() as graph,
            v1.Session(target, config=_config(addresses, request)) as session,
        ):
            graph_def = read_source(Path(request.graph), as_written=True)
            if request.folder is not None:
                start = graph_start([*request.fetches, *request.targets], request.feeds)
                disarm(graph_def, require_harmless(graph_def, [start], request.folder))
            fed = {name.partition(":")[0] for name in request.feeds}
            tasks = [f"/job:{JOB}/task:{n}/device:{_DEVICE}" for n in range(len(request.names))]
            add_gate(graph_def, devices=tasks, fed=fed)
            tf.graph_util.import_graph_def(graph_def, name="")
            starts = _starts(graph, request)
            steps, out_of_memory = 0, _attempt(lambda: session.run(starts), devices, graph)
            devices.reset()
            step = ([*request.fetches], [*request.targets])
            while out_of_memory is None and steps < request.steps:
                out_of_memory = _attempt(
                    lambda: run_gated(session, lambda: session.run(step, request.feeds)),
                    devices,
                    graph,
                )
                steps += out_of_memory is None
            return StepsRun(
                in_use=devices.in_use(since_reset=True), steps=steps, out_of_memory=out_of_memory
            )
    finally:
        devices.close()


def _config(addresses: Mapping[int, str], request: StepsRequest) -> Any:
    """The ConfigProto of a session over all the processes."""
    config = v1.ConfigProto(
        allow_soft_placement=True,
        cluster_def=tf.train.ClusterSpec({JOB: addresses}).as_cluster_def(),
        isolate_session_state=True,
    )
    switch_memory_optimiser_off(config)
    if not request.optimised:
        switch_optimisers_off(config)
    return config


def _starts(graph: Any, request: StepsRequest) -> list[Any]:
    """Ops that give every variable a made-up value, and every table a row, on its own device."""
    found = []
    small: dict[tuple[str, Any], Any] = {}
    for op in graph.get_operations():
        if op.name in request.variables and op.type in VARIABLES:
            with graph.colocate_with(op, ignore_existing=True):
                value = _first_value(op, *request.variables[op.name], small)
                found.append(assign_value(op, value))
        elif op.type in _TABLES:
            row = [tf.zeros([1], op.get_attr(key)) for key in ("key_dtype", "value_dtype")]
            with graph.colocate_with(op, ignore_existing=True):
                found.append(
                    tf.raw_ops.InitializeTableV2(
                        table_handle=op.outputs[0], keys=row[0], values=row[1]
                    )
                )
    return found


def _first_value(
    variable: Any, dtype: str, shape: Sequence[int], small: dict[tuple[str, Any], Any]
) -> Any:
    """The value that a variable gets, in the chunk that it keeps.  Constants stay as long as the
    session: there are only those that are ``small``, by device and type."""
    kind, name = tf.dtypes.as_dtype(dtype), f"initial/{variable.name}"
    if kind == tf.string:
        return tf.fill(shape, "", name=name)
    attributes = {
        "shape": AttrValue(shape=tf.TensorShape(shape).as_proto()),
        "dtype": AttrValue(type=kind.as_datatype_enum),
    }
    unwritten = variable.graph.create_op(_UNWRITTEN, [], [kind], name=name, attrs=attributes)
    zeros = tf.raw_ops.ZerosLike(x=unwritten.outputs[0])  # in the same chunk, as the sum is
    if not kind.is_floating:
        return zeros
    if (variable.device, kind) not in small:
        small[variable.device, kind] = tf.constant(_SMALL, kind)
    return zeros + small[variable.device, kind]


def _attempt(
    run: Callable[[], object], devices: _Devices, graph: Any
) -> tuple[int, str, str] | None:
    """Where memory ran out: (task, op, what TensorFlow said); ``None`` if it did not."""
    try:
        run()
    except (tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError) as error:
        message = str(error)
        if isinstance(error, tf.errors.InvalidArgumentError) and _NO_CONSTANT not in message:
            raise _does_not_run(error, devices) from error
        task, node = _OUT_OF_MEMORY.search(message), _NODE.search(message)
        op = node[1] if node else error.op.name if error.op is not None else ""
        said = task[0] if task else message.partition("\n")[0]
        return int(task[1]) if task else _task_of(op, graph), op, said
    except tf.errors.OpError as error:
        raise _does_not_run(error, devices) from error
    return None


def _task_of(op: str, graph: Any) -> int:
    """The task that an op of the graph asks for; the host's if that is not known."""
    try:
        asked = _TASK.search(graph.get_operation_by_name(op).device)
    except (KeyError, ValueError):
        asked = None
    return int(asked[1]) if asked else 0


def _does_not_run(error: Exception, devices: _Devices) -> ModelError:
    """What to say of a program that fails for another reason than memory."""
    time.sleep(_LAST_WORDS_SECONDS)
    if devices.ended:
        return devices.gone()
    return ModelError(f"the program does not run: {str(error).strip()[:2000]}")
