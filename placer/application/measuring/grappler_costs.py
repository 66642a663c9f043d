"""Grappler's cost model as a second opinion: its virtual cluster, asked in a process of its own.

Grappler (``tensorflow/core/grappler/costs``) is TensorFlow's graph optimiser.  Its Python interface
is private and may go: then the request fails with a clear message.  It sees the flat graph; what
is inside loops and branches it leaves out, so those keep the times of the cost rules.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cost_models.device_names import full_name
from cost_models.devices import Cluster, DeviceProperties
from placer.errors import PlacerError, UsageError
from placer.extraction import Extraction
from placer.extraction.extraction import ProgramChoice, choice_of
from placer.extraction.process.local_models import local_model
from placer.graph.program_source import Bindings
from placer.processes import Ending, Tell, run_task

TIME_LIMIT_SECONDS = 300.0

_GPU_ARCHITECTURE = "7"
_GPU_FLOPS_PER_CYCLE = 128
"""What ``GetDeviceInfo`` of ``op_level_cost_estimator.cc`` takes a multiprocessor of that
architecture to do: 64 cores with an FMA each.  The frequency is chosen to give the device's peak.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRequest:
    """The program in ``path``, and the device that stands for each device type."""

    path: str
    choice: ProgramChoice
    bindings: Bindings
    devices: Mapping[str, DeviceProperties]


def grappler_seconds(
    source: Any, extraction: Extraction, cluster: Cluster, **access: bool
) -> dict[str, dict[str, float]]:
    """Grappler's seconds of one execution by device type and op, for the devices of ``cluster``.

    The first device of each type stands for all of it; ``access`` is ``allow_unsafe`` and
    ``follow_links``.  Raises :class:`UsageError` for a live
    program (it must be in a file), :class:`PlacerError` if this TensorFlow has no Grappler or
    Grappler refuses the graph.
    """
    if not isinstance(source, str | os.PathLike):
        raise UsageError("Grappler's costs are for models in files: save the program first")
    # the program as it was extracted, on one device of each type
    devices = {device.type: device for device in reversed(cluster.devices)}
    splits = extraction.model.get("splits")
    with local_model(source, weights=False, splits=splits, **access) as local:
        request = CostRequest(
            path=os.fspath(local.path),
            choice=choice_of(extraction.model),
            bindings=extraction.bindings,
            devices=devices,
        )
        hidden = {"CUDA_VISIBLE_DEVICES": "-1"}
        outcome = run_task(f"{__name__}:answer", request, TIME_LIMIT_SECONDS, hidden)
    if outcome.ending is not Ending.ANSWERED:
        raise PlacerError(f"Grappler gave no costs: {outcome.reason}")
    # its ops but those with bodies, which Grappler does not look into
    with_bodies = {op.name for op in extraction.graph.ops.values() if op.bodies}
    return {
        kind: {name: value for name, value in seconds.items() if name not in with_bodies}
        for kind, seconds in outcome.answer.items()
    }


def answer(request: CostRequest, _: Tell) -> dict[str, dict[str, float]]:
    """As :func:`predict`, with one error for the many classes of Grappler's own."""
    try:
        return predict(request)
    except Exception as error:
        raise PlacerError(f"Grappler cannot cost this graph: {error}"[:800]) from error


def predict(request: CostRequest) -> dict[str, dict[str, float]]:
    """The prediction itself, in this process."""
    try:
        from tensorflow.python.grappler import cluster as grappler_cluster
        from tensorflow.python.grappler import item as grappler_item
    except ImportError as error:
        raise PlacerError(
            f"this TensorFlow has no Grappler that can be asked ({error}): leave --costs out, or "
            f"measure with placer profile"
        ) from error
    from placer.extraction.reading.loading import load_program

    program = load_program(request.path, **request.choice)
    found = {}
    for kind, device in request.devices.items():
        name = full_name(f"{kind}:0")
        rates = device.peak_flops, device.memory_bandwidth, device.memory_limit_bytes
        devices = [named_device(name, kind, *rates)]
        placement = dict.fromkeys((node.name for node in program.graph_def.node), name)
        item = grappler_item.Item(meta_graph(program, request.bindings, placement))
        cluster = grappler_cluster.Cluster(devices=devices, disable_timeline=False)
        _, _, stats = cluster.MeasureCosts(item)
        found[kind] = seconds_by_op(stats)
    return found


def seconds_by_op(stats: Any) -> dict[str, float]:
    """Seconds of one execution of every op in the ``StepStats`` of a cluster with a timeline.

    That is in nanoseconds; the other results of ``MeasureCosts`` are rounded down to microseconds.
    A ``Merge`` is run for every input that comes, and said to last from the first to the last: it
    takes no time.
    """
    nodes = [node for device in stats.dev_stats for node in device.node_stats]
    times_run = Counter(node.node_name for node in nodes)
    return {
        node.node_name: node.op_end_rel_nanos * 1e-9 if times_run[node.node_name] == 1 else 0.0
        for node in nodes
    }


def named_device(
    name: str, kind: str, peak_flops: float, memory_bandwidth: float, memory_bytes: float
) -> Any:
    """Grappler's description of a device."""
    from tensorflow.core.protobuf import device_properties_pb2

    properties = device_properties_pb2.DeviceProperties(
        type=kind,
        num_cores=1,
        frequency=round(peak_flops / 1e6 / (_GPU_FLOPS_PER_CYCLE if kind == "GPU" else 1)),
        bandwidth=round(memory_bandwidth / 1e3),
        memory_size=int(memory_bytes),
        environment={"architecture": _GPU_ARCHITECTURE},
    )
    return device_properties_pb2.NamedDevice(name=name, properties=properties)


def meta_graph(program: Any, bindings: Bindings, placement: Mapping[str, str]) -> Any:
    """The program as Grappler takes it: every op on its device of ``placement`` (full
    names), inputs with their bound shapes."""
    from tensorflow.core.protobuf import meta_graph_pb2

    from placer.application.running.generated_inputs import bound_shapes
    from placer.extraction.graph_defs.protobufs import fill_shape
    from placer.extraction.graph_defs.pure_ops import withhold_kernels

    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(program.graph_def)
    by_key = bound_shapes(program, bindings)
    shapes = {item.op: by_key[item.key] for item in program.inputs}
    for node in meta_graph.graph_def.node:
        node.device = placement[node.name]
        if node.name in shapes and "shape" in node.attr:
            fill_shape(node.attr["shape"].shape, shapes[node.name])
    withhold_kernels(meta_graph.graph_def)  # Grappler computes constants
    _blank_strings(meta_graph.graph_def)
    fetched = meta_graph.collection_def["train_op"]
    fetched.node_list.value.extend([*program.output_ops, *program.targets])
    return meta_graph


def _blank_strings(graph_def: Any) -> None:
    """Empties every constant of strings, in place: Grappler looks up how large a file is that
    ``ReadFile`` reads."""
    from placer.extraction.graph_defs.protobufs import all_nodes, dtype_number

    string = dtype_number("string")
    for node in all_nodes(graph_def):
        if node.op == "Const" and node.attr["dtype"].type == string:
            tensor = node.attr["value"].tensor
            tensor.tensor_content = b""
            tensor.string_val[:] = [b""]
