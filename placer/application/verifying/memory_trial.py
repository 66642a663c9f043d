"""Does a plan fit?  Its program, loaded and run on simulated GPUs limited to the plan's caps.

TensorFlow's own GPU runtime is the judge, in a process of its own.  Workspaces of cuDNN and cuBLAS
are 0 bytes there.  The host has no limit: TensorFlow knows none for CPUs.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from cost_models.card_memory import card_that_hands_out
from cost_models.devices import preset
from placer.application.devices.device_mapping import HOST, DeviceMapping
from placer.application.devices.graph_optimisers import graph_optimisation
from placer.application.placing.graph_placement import map_graph_devices, place_graph_def
from placer.application.running.generated_inputs import Array
from placer.application.running.program_checks import check_program
from placer.application.running.program_runs import (
    RunOptions,
    RunRequest,
    call_loaded,
    load_function,
    open_session,
)
from placer.application.verifying.model_files import ModelFile
from placer.application.verifying.verification_result import (
    FLAT_GRAPH,
    LOADED,
    DeviceMemory,
    MemoryRehearsal,
    OutOfMemory,
)
from placer.errors import ModelError, TimeLimitError, UsageError
from placer.extraction.graph_defs.program import FlatProgram
from placer.graph.op_types import VARIABLES
from placer.plan.plan import Plan
from placer.plan.rows import PlannedDevice
from placer.processes import Ending, Tell, run_task
from placer.simulation.cards import SimulatedGpu
from placer.simulation.environment import RECORDS, child_environment
from placer.simulation.records import GpuRecord, read_records


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsRun:
    """Bytes in use of every GPU after the last step and at most, chunks counted whole; how many
    steps were run to their end, and if memory ran out where: (number of the GPU, op, what
    TensorFlow said)."""

    in_use: Sequence[tuple[int, int]]
    steps: int
    out_of_memory: tuple[int, str, str] | None = None


def run_steps(request: RunRequest, _: Tell) -> StepsRun:
    """Loads the placed program and runs :data:`STEPS` steps, until memory runs out.

    Raises :class:`ModelError` if the program fails for another reason, or does what it may not.
    """
    check_program(request, 1)
    steps, failure = 0, None
    try:
        with graph_optimisation(True), _loaded(request) as step:
            while steps < STEPS:
                step()
                steps += 1
            records = _records()
    except tf.errors.OpError as error:
        records = _records()
        failure = _out_of_memory(error, records)
    return StepsRun(
        in_use=[(gpu.live_bytes, gpu.peak.in_use_bytes) for gpu in records],
        steps=steps,
        out_of_memory=failure,
    )


@contextmanager
def _loaded(request: RunRequest) -> Iterator[Callable[[], object]]:
    """The step of a program, once that is loaded; feeds are on the host."""
    if request.kind == "saved_model":
        loaded = load_function(request, 1)
        with tf.device("CPU:0"):
            yield lambda: call_loaded(loaded, request, 1)
        return
    with open_session(request, 1) as (session, _):
        wanted = [t for _, t in request.fetches[1]], list(request.targets[1])
        yield lambda: session.run(wanted, dict(request.inputs))


def _records() -> Sequence[GpuRecord]:
    """Returns what this process holds on each GPU."""
    found = read_records(Path(os.environ[RECORDS]))
    return next((record.gpus for record in found if record.process == os.getpid()), ())


def _out_of_memory(error: Exception, records: Sequence[GpuRecord]) -> tuple[int, str, str]:
    """Which GPU refused which op, as far as that is why a program failed.

    Raises :class:`ModelError` if it is not: no GPU has refused anything.
    """
    refused = [(gpu.refused.seconds, gpu.index) for gpu in records if gpu.refused is not None]
    said = str(error).strip()
    if not refused:
        raise ModelError(f"the program does not run on simulated GPUs: {said[:2000]}") from error
    index = max(refused)[1]
    moment = records[index].refused
    assert moment is not None
    return index, moment.op, said.partition("\n")[0]


STEPS = 10

_CAPABILITY = "7.5"
"""The capability of a GPU whose model is not known."""


def rehearse_file(
    model: ModelFile, values: Mapping[str, Array], options: RunOptions, folder: str | None
) -> MemoryRehearsal:
    """Some steps of the placed program of a file, on inputs ``values`` (by key).

    With the ``folder`` of the model's file it may do nothing but compute.  Raises
    :class:`UsageError` where GPUs cannot be simulated, :class:`ModelError` if the program does not
    run for another reason than memory.
    """
    mapping = _mapping(model.plan)
    with tempfile.TemporaryDirectory(prefix="placer-memory-") as name:
        model.write_placed(Path(name) / "placed", mapping)
        request = model.request(Path(name), values)
        request = replace(request, mapping=mapping, options=options, folder=folder)
        return _rehearse(request, model.plan, LOADED)


def rehearse_live(
    program: FlatProgram, plan: Plan, values: Mapping[str, Array], options: RunOptions
) -> MemoryRehearsal:
    """Some steps of the flat graph of a live ``program``; values of variables are made up.

    Raises as :func:`rehearse_file`, and :class:`UsageError` for what cannot be rebuilt in another
    process.
    """
    mapping = _mapping(plan)
    graph_def = place_graph_def(program, plan.placement)
    _revive_captures(graph_def, program)
    map_graph_devices(graph_def, mapping.stand_in)
    tensors = {item.key: item.tensor for item in program.inputs}
    with tempfile.TemporaryDirectory(prefix="placer-memory-") as name:
        path = Path(name) / "graph.pb"
        path.write_bytes(graph_def.SerializeToString())
        request = RunRequest(
            kind="graph",
            programs=("", str(path)),
            inputs={tensors[key]: value for key, value in values.items()},
            fetches=((), tuple(program.outputs)),
            targets=((), tuple(program.targets)),
            mapping=mapping,
            options=options,
        )
        return _rehearse(request, plan, FLAT_GRAPH)


def _gpus(plan: Plan) -> list[PlannedDevice]:
    """The GPUs of a plan; raises :class:`UsageError` if it has none."""
    found = [row for row in plan.devices if row.type == "GPU"]
    if not found:
        raise UsageError(
            "the plan has no GPU: memory is checked on simulated GPUs, and TensorFlow does not "
            "limit the memory of a CPU"
        )
    return found


def _mapping(plan: Plan) -> DeviceMapping:
    """The simulated GPU for each GPU of the plan; all else is the host."""
    number = {row.name: f"GPU:{index}" for index, row in enumerate(_gpus(plan))}
    return DeviceMapping(
        stand_ins={HOST: HOST, **{row.name: number.get(row.name, HOST) for row in plan.devices}}
    )


def _rehearse(request: RunRequest, plan: Plan, how: str) -> MemoryRehearsal:
    rows = _gpus(plan)
    cards = [_card(row, index) for index, row in enumerate(rows)]
    options = replace(request.options, optimised=True)
    with tempfile.TemporaryDirectory(prefix="placer-records-") as records:
        environment = child_environment(cards, os.environ, Path(records))
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(cards))))
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        if any(row.red_zones is False for row in rows):
            environment.setdefault("TF_DISABLE_RZ_CHECK", "1")
        outcome = run_task(
            "placer.application.verifying.memory_trial:run_steps",
            replace(request, options=options),
            options.time_limit_seconds,
            environment,
        )
    if outcome.ending is not Ending.ANSWERED:
        failure = TimeLimitError if outcome.ending is Ending.LATE else ModelError
        raise failure(f"the run on simulated GPUs did not end: {outcome.reason}")
    found: StepsRun = outcome.answer
    in_use = found.in_use or [(0, 0)] * len(rows)  # no GPU was used
    return MemoryRehearsal(
        program=how,
        devices=tuple(
            DeviceMemory(
                device=row.name,
                cap_bytes=row.usable_bytes,
                limit_bytes=row.memory_limit_bytes,
                predicted_bytes=row.peak_memory_bytes,
                need_bytes=row.need_bytes,
                held_bytes=held,
                peak_bytes=peak,
            )
            for row, (held, peak) in zip(rows, in_use, strict=True)
        ),
        steps=found.steps,
        out_of_memory=None
        if found.out_of_memory is None
        else OutOfMemory(
            device=rows[found.out_of_memory[0]].name,
            op=found.out_of_memory[1],
            message=found.out_of_memory[2],
        ),
    )


def _card(row: PlannedDevice, index: int) -> SimulatedGpu:
    """A card that hands out the cap of a device, of the device's model."""
    try:
        capability = preset(row.model).compute_capability or _CAPABILITY
    except (KeyError, ValueError):
        capability = _CAPABILITY
    return SimulatedGpu(
        name=f"GPU:{index}",
        model=row.model or "Simulated GPU",
        compute_capability=capability,
        memory=card_that_hands_out(row.memory_limit_bytes, capability),
    )


def _revive_captures(graph_def: Any, program: FlatProgram) -> None:
    """Makes variables and constants of what a function captured, in place.

    Raises :class:`UsageError` for other resources: only their owner has them.
    """
    variables = {v.handle: v for v in program.variables if v.dtype != "resource"}
    for node in graph_def.node:
        if node.name not in program.captures or node.op in VARIABLES:
            continue
        value = program.captures[node.name]
        if node.name in variables:
            shape = tf.TensorShape(variables[node.name].shape)
            dtype = tf.as_dtype(variables[node.name].dtype)
            _become(node, "VarHandleOp", dtype)
            node.attr["shape"].shape.CopyFrom(shape.as_proto())
            node.attr["shared_name"].s = node.name.encode()
        elif hasattr(value, "numpy") and value.dtype not in (tf.resource, tf.variant):
            _become(node, "Const", value.dtype)
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value.numpy(), value.dtype))
        else:
            raise UsageError(
                f"the function uses {node.name}, a resource besides variables, which cannot be "
                "rebuilt in another process: run the program itself on simulated GPUs "
                "(placer simulate --devices SPEC -- python train.py)"
            )


def _become(node: Any, op_type: str, dtype: Any) -> None:
    """Makes ``node`` an op of another type with a ``dtype`` and no other attributes."""
    node.op = op_type
    node.ClearField("attr")
    node.attr["dtype"].type = dtype.as_datatype_enum
