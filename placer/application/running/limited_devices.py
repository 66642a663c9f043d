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

from placer.application.devices.graph_optimisers import switch_memory_optimiser_off
from placer.application.running.generated_inputs import Array
from placer.application.running.program_runs import assign_value, switch_optimisers_off
from placer.errors import ModelError
from placer.extraction.files.sources import read_source
from placer.graph.op_types import VARIABLES
from placer.processes import Child, Tell

v1 = tf.compat.v1

JOB = "placer"
_DEVICE = "CPU:0"
_POLL_SECONDS = 0.02
_START_SECONDS = 120.0
_LAST_WORDS_SECONDS = 0.5
"""Until the end of a process is seen."""

_RESET = "reset"
_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
_TABLES = frozenset({"HashTable", "HashTableV2"})
"""Tables that must be filled before they are looked into."""

_OUT_OF_MEMORY = re.compile(r"OOM when allocating.*? on \S*?/task:(\d+)/device")
_NO_CONSTANT = "Cannot parse tensor from proto"
"""What TensorFlow says of a constant that gets no memory."""

_TASK = re.compile(r"/task:(\d+)")
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsRequest:
    """A placed GraphDef (a file) whose ops ask for tasks of the job ``placer``, task 0 being the
    host, and how to run it.

    ``names`` (of the plan's devices) and ``limits_mib`` are by task.  ``variables`` are (dtype,
    shape) by the op that stands for each; they get made-up values where they are.
    """

    graph: str
    names: Sequence[str]
    limits_mib: Sequence[int]
    feeds: Mapping[str, Array]
    fetches: Sequence[str]
    targets: Sequence[str]
    variables: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    steps: int
    optimised: bool
    time_limit_seconds: float


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


def limited_environment(limit_mib: int, *, optimised: bool) -> dict[str, str]:
    """The environment of a process whose tensors come from a limited BFC allocator."""
    found = {
        "TF_CPU_ALLOCATOR_USE_BFC": "true",
        _LIMIT: str(limit_mib),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    return found if optimised else {**found, "TF_ENABLE_ONEDNN_OPTS": "0"}


def serve_device(folder: str, tell: Tell) -> None:
    """In the process of a device: serves it, and tells the bytes in use over and over.

    The statistics are reset as soon as there is a file ``reset`` in ``folder``.
    """
    _take_one_region()
    address = _start_server()
    reset, was_reset = Path(folder) / _RESET, False
    while True:
        if not was_reset and reset.exists():
            tf.config.experimental.reset_memory_stats(_DEVICE)
            was_reset = True
        tell(_in_use(address, was_reset=was_reset))
        time.sleep(_POLL_SECONDS)


def _take_one_region() -> None:
    """Makes the allocator take all it may hand out as one region but for the first 2 MiB, as cards
    do by default: a CPU's grows, and leaves gaps at the ends of its regions.  Memory that nobody
    writes to costs nothing.
    """
    limit_mib = int(os.environ[_LIMIT])
    if limit_mib > 2:  # what is asked for is a tensor, too, and lies in the first region
        with suppress(tf.errors.ResourceExhaustedError):  # more than this machine gives at once
            tf.raw_ops.Empty(shape=[256 * limit_mib - 512, 2**12], dtype=tf.uint8)


_servers: list[Any] = []
"""A server lives as long as its process."""


def _start_server() -> str:
    """The address of a server of this process's device."""
    _servers.append(tf.distribute.Server({"localhost": ["localhost:0"]}, "localhost", 0))
    return str(_servers[-1].target.partition("//")[2])


def _in_use(address: str, *, was_reset: bool) -> InUse:
    found = tf.config.experimental.get_memory_info(_DEVICE)
    return InUse(
        address=address,
        now_bytes=found["current"],
        peak_bytes=found["peak"],
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
            task: Child(limited_environment(limit, optimised=request.optimised))
            for task, limit in enumerate(request.limits_mib)
            if task
        }
        for task in self.children:
            threading.Thread(target=self._follow, args=(task,), daemon=True).start()
        self.own_address = _start_server()

    def _follow(self, task: int) -> None:
        def told(content: object) -> None:
            self.told[task] = content

        try:
            request = str(self.folder)
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
            tf.graph_util.import_graph_def(graph_def, name="")
            starts = _starts(graph, request)
            steps, out_of_memory = 0, _attempt(lambda: session.run(starts), devices, graph)
            devices.reset()
            step = ([*request.fetches], [*request.targets])
            while out_of_memory is None and steps < request.steps:
                out_of_memory = _attempt(lambda: session.run(step, request.feeds), devices, graph)
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
    for op in graph.get_operations():
        if op.name in request.variables and op.type in VARIABLES:
            dtype, shape = request.variables[op.name]
            kind = tf.dtypes.as_dtype(dtype)
            made_up = "" if kind == tf.string else 0.01 if kind.is_floating else 0
            with graph.colocate_with(op, ignore_existing=True):
                element = made_up if kind == tf.string else tf.cast(made_up, kind)
                value = tf.fill(shape, element, name=f"initial/{op.name}")
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
