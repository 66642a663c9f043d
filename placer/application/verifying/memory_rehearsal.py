"""Does a plan fit?  Its program, run with every device's cap as the hard limit of an allocator.

Every device of the plan is a process of its own, whose tensors come from TensorFlow's BFC allocator
(:mod:`placer.application.running.limited_devices`), so that running out of memory is seen before
there is any GPU.  What only GPUs have is not: workspaces of cuDNN, and kernels that differ.  Where
a CPU is predicted to need more than the cap that serves the card, its process may have that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from cost_models.device_names import canonical
from placer.application.devices.device_mapping import HOST
from placer.application.placing.graph_placement import map_graph_devices, place_graph_def
from placer.application.running.generated_inputs import Array
from placer.application.running.limited_devices import (
    JOB,
    Limit,
    StepsRequest,
    StepsRun,
    limited_environment,
)
from placer.application.running.program_runs import RunOptions
from placer.application.verifying.stand_in_needs import stand_in_needs
from placer.application.verifying.verification_result import (
    DeviceMemory,
    MemoryRehearsal,
    OutOfMemory,
)
from placer.errors import ModelError, UsageError
from placer.extraction.graph_defs.program import FlatProgram
from placer.graph.op_types import VARIABLES
from placer.plan.plan import Plan
from placer.prediction.metrics import GROWTH
from placer.processes import Ending, run_task

STEPS = 3


def rehearse_memory(
    program: FlatProgram,
    plan: Plan,
    values: Mapping[str, Array],
    options: RunOptions,
    folder: str | None = None,
) -> MemoryRehearsal:
    """Some steps of ``program``, placed by ``plan``, on inputs ``values`` (by key).

    Weights are made up; every table gets one row.  With ``folder``, its file's, the program may do
    nothing but compute.  Raises :class:`UsageError` for what cannot be
    rebuilt in other processes, :class:`ModelError` if the program does not run for another reason
    than memory.
    """
    names = [HOST, *(device.name for device in plan.devices if device.name != HOST)]
    task = {name: number for number, name in enumerate(names)}
    rows = {device.name: device for device in plan.devices}
    graph_def = place_graph_def(program, plan.placement)
    _revive_captures(graph_def, program)
    map_graph_devices(graph_def, lambda device: _task_device(device, task))
    needs = stand_in_needs(program, plan)
    limits = [
        Limit(
            bytes=max(rows[name].memory_limit_bytes, needs.get(name, 0)),
            in_one_region=name != HOST and rows[name].allocator != GROWTH,
        )
        for name in names
    ]
    tensors = {item.key: item.tensor for item in program.inputs}
    with tempfile.TemporaryDirectory(prefix="placer-memory-") as own:
        path = Path(own) / "graph.pb"
        path.write_bytes(graph_def.SerializeToString())
        request = StepsRequest(
            graph=str(path),
            names=names,
            limits=limits,
            feeds={tensors[key]: value for key, value in values.items()},
            fetches=[tensor for _, tensor in program.outputs],
            targets=program.targets,
            variables={
                variable.handle: (variable.dtype, tuple(size or 1 for size in variable.shape or ()))
                for variable in program.variables
            },
            steps=STEPS,
            optimised=options.optimised,
            time_limit_seconds=options.time_limit_seconds,
            folder=folder,
        )
        found = _run(request)
    return MemoryRehearsal(
        devices=tuple(
            DeviceMemory(
                device=name,
                cap_bytes=rows[name].memory_limit_bytes,
                limit_bytes=limit.held_bytes,
                predicted_bytes=rows[name].peak_memory_bytes,
                need_bytes=rows[name].need_bytes,
                stand_in_need_bytes=needs.get(name),
                held_bytes=used.now_bytes,
                peak_bytes=used.peak_bytes,
            )
            for name, limit, used in zip(names, limits, found.in_use, strict=True)
        ),
        steps=found.steps,
        out_of_memory=None
        if found.out_of_memory is None
        else OutOfMemory(
            device=names[found.out_of_memory[0]],
            op=found.out_of_memory[1],
            message=found.out_of_memory[2],
        ),
    )


def _run(request: StepsRequest) -> StepsRun:
    """The steps, run in processes of their own."""
    outcome = run_task(
        "placer.application.running.limited_devices:run_steps",
        request,
        request.time_limit_seconds,
        limited_environment(request.limits[0].mib, optimised=request.optimised),
    )
    if outcome.ending is not Ending.ANSWERED:
        raise ModelError(f"the rehearsal of memory did not end: {outcome.reason}")
    found: StepsRun = outcome.answer
    return found


def _task_device(device: str, task: Mapping[str, int]) -> str:
    """The device that stands for one of the plan; the host for what names none."""
    return f"/job:{JOB}/task:{task.get(canonical(device), 0) if device else 0}/device:CPU:0"


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
                "rebuilt in another process: memory is rehearsed for programs that have none"
            )


def _become(node: Any, op_type: str, dtype: Any) -> None:
    """Makes ``node`` an op of another type with a ``dtype`` and no other attributes."""
    node.op = op_type
    node.ClearField("attr")
    node.attr["dtype"].type = dtype.as_datatype_enum
