"""Grappler's cost model as a second opinion: its virtual cluster, asked in a process of its own.

Grappler (``tensorflow/core/grappler/costs``) is TensorFlow's graph optimiser.  Its Python interface
is private and may go: then the request fails with a clear message.  It sees the flat graph; what
is inside loops and branches it leaves out, so those keep the times of the cost rules.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cost_models.device_names import full_name
from cost_models.devices import Cluster, DeviceProperties
from placer.errors import PlacerError, UsageError
from placer.extraction import Extraction
from placer.extraction.process.local_models import local_model

TIME_LIMIT_SECONDS = 300.0

_GPU_ARCHITECTURE = "7"
_GPU_FLOPS_PER_CYCLE = 128
"""What ``GetDeviceInfo`` of ``op_level_cost_estimator.cc`` takes a multiprocessor of that
architecture to do: 64 cores with an FMA each.  The frequency is chosen to give the device's peak.
"""


def grappler_seconds(
    source: Any, extraction: Extraction, cluster: Cluster, *, allow_unsafe_keras: bool = False
) -> dict[str, dict[str, float]]:
    """Grappler's seconds of one execution by device type and op, for the devices of ``cluster``.

    The first device of each type stands for all of it.  Raises :class:`UsageError` for a live
    program (it must be in a file), :class:`PlacerError` if this TensorFlow has no Grappler or
    Grappler refuses the graph.
    """
    if not isinstance(source, str | os.PathLike):
        raise UsageError("Grappler's costs are for models in files: save the program first")
    devices: dict[str, DeviceProperties] = {}
    for device in cluster.devices:
        devices.setdefault(device.type, device)
    model = extraction.model
    choice = {
        "tag_set": ",".join(model.get("tags") or ()) or None,
        "signature": model.get("signature") or None,
        "outputs": model.get("outputs") or None,
    }
    with_bodies = {op.name for op in extraction.graph.ops.values() if op.bodies}
    rates = {
        kind: (device.peak_flops, device.memory_bandwidth, device.memory_limit_bytes)
        for kind, device in devices.items()
    }
    with local_model(source, allow_unsafe_keras=allow_unsafe_keras, weights=False) as local:
        found = _ask((os.fspath(local.path), choice, dict(extraction.bindings), rates))
    return {
        kind: {name: value for name, value in seconds.items() if name not in with_bodies}
        for kind, seconds in found.items()
    }


def _ask(request: tuple[Any, ...]) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="placer-grappler-") as folder:
        files = [Path(folder) / name for name in ("request", "answer")]
        files[0].write_bytes(pickle.dumps(request))
        root = str(Path(__file__).resolve().parents[3])
        environment = {**os.environ, "PYTHONPATH": root, "CUDA_VISIBLE_DEVICES": "-1"}
        command = [sys.executable, "-P", "-m", __spec__.name, *map(str, files)]
        try:
            process = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                timeout=TIME_LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PlacerError(f"Grappler took more than {TIME_LIMIT_SECONDS:g} s") from error
        if not files[1].exists():
            last = process.stderr.decode(errors="replace").strip()[-500:]
            raise PlacerError(f"Grappler's process ended with {process.returncode}: {last}")
        kind, content = pickle.loads(files[1].read_bytes())
    if kind == "error":
        raise PlacerError(str(content))
    found: dict[str, dict[str, float]] = content
    return found


def predict(
    source: str,
    choice: Mapping[str, Any],
    bindings: Mapping[str, Any],
    rates: Mapping[str, Sequence[float]],
) -> dict[str, dict[str, float]]:
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

    program = load_program(source, **choice)
    found = {}
    for kind, device_rates in rates.items():
        name = full_name(f"{kind}:0")
        device = named_device(name, kind, *device_rates)
        item = grappler_item.Item(meta_graph(program, bindings, partial(_always, name)))
        cluster = grappler_cluster.Cluster(devices=[device], disable_timeline=False)
        _, _, stats = cluster.MeasureCosts(item)
        found[kind] = {node.name: node.seconds for node in executions(stats)}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An op that Grappler's scheduler ran on ``device`` (full name), from when to when and for how
    long in seconds, and the bytes of its outputs as far as it knows their shapes."""

    name: str
    device: str
    start: float
    end: float
    seconds: float
    output_bytes: tuple[int, ...]


def executions(stats: Any) -> Iterator[Execution]:
    """What ran, each op once, of the ``StepStats`` of a cluster with a timeline.

    That is in nanoseconds; the other results of ``MeasureCosts`` are rounded down to microseconds.
    A ``Merge`` is run for every input that comes, and said to last from the first to the last: it
    takes no time.
    """
    for device in stats.dev_stats:
        times_run = Counter(node.node_name for node in device.node_stats)
        for node in {node.node_name: node for node in device.node_stats}.values():
            start, lasts = node.all_start_nanos * 1e-9, node.op_end_rel_nanos * 1e-9
            yield Execution(
                name=node.node_name,
                device=device.device,
                start=start,
                end=start + lasts,
                seconds=lasts if times_run[node.node_name] == 1 else 0.0,
                output_bytes=tuple(
                    output.tensor_description.allocation_description.allocated_bytes
                    for output in node.output
                ),
            )


def _always(name: str, _op: str) -> str:
    return name


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


def meta_graph(program: Any, bindings: Mapping[str, Any], device_of: Callable[[str], str]) -> Any:
    """The program as Grappler takes it: every op on the device (full name) that ``device_of``
    gives it, inputs with their bound shapes."""
    from tensorflow.core.protobuf import meta_graph_pb2

    from placer.application.running.generated_inputs import bound_shape
    from placer.extraction.graph_defs.protobufs import fill_shape

    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(program.graph_def)
    shapes = {item.op: bound_shape(item, bindings) for item in program.inputs}
    for node in meta_graph.graph_def.node:
        node.device = device_of(node.name)
        if node.name in shapes and "shape" in node.attr:
            fill_shape(node.attr["shape"].shape, shapes[node.name])
    fetched = meta_graph.collection_def["train_op"]
    fetched.node_list.value.extend([*program.output_ops, *program.targets])
    return meta_graph


def main() -> None:
    """Answers the request in the first file by the second."""
    request, answer = (Path(name) for name in sys.argv[1:3])
    try:
        result: Any = "seconds", predict(*pickle.loads(request.read_bytes()))
    except Exception as error:  # Grappler's own errors are of many classes
        result = "error", f"Grappler cannot cost this graph: {error}"[:800]
    partial = answer.with_suffix(".part")
    partial.write_bytes(pickle.dumps(result))
    partial.replace(answer)


if __name__ == "__main__":
    main()
